"""Functions from one type to another: exact, or no result."""

from __future__ import annotations

import datetime
import decimal
import math
import re
import uuid
from typing import Any, Final

from zapdb.expressions.dates import show_timestamp
from zapdb.expressions.no_result import FAILED
from zapdb.limits import VALUE_SIZE_BYTES_MAX
from zapdb.values.decimal import EXACT, with_scale
from zapdb.values.varint import INTEGER_MAX, INTEGER_MIN

INTEGER_TEXT: Final = re.compile(r"-?[0-9]{1,152}", re.ASCII)
DECIMAL_TEXT: Final = re.compile(r"-?[0-9]{1,152}(\.[0-9]{1,64})?", re.ASCII)
FLOAT_TEXT: Final = re.compile(r"-?[0-9]{1,400}(\.[0-9]{1,1100})?(e[+-]?[0-9]{1,4})?", re.ASCII)
FLOAT_WORDS: Final = frozenset({"nan", "inf", "-inf"})
"""As `text` shows the floats that are no numbers."""
UUID_TEXT: Final = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", re.ASCII)
HEX_TEXT: Final = re.compile(r"[0-9a-fA-F]*", re.ASCII)


def to_text(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case decimal.Decimal():
            return format(value, "f")
        case datetime.datetime():
            return show_timestamp(value)
        case bytes():
            return to_hex(value)
        case _:  # of a float, the shortest digits that give it back
            return str(value)


def to_integer(value: Any) -> Any:
    if isinstance(value, decimal.Decimal):
        whole = int(value)
        return whole if whole == value else FAILED
    if not INTEGER_TEXT.fullmatch(value):
        return FAILED
    number = int(value)
    return number if INTEGER_MIN <= number <= INTEGER_MAX else FAILED


def to_decimal(value: Any, scale: int) -> Any:
    """Exact or nothing: digits that the scale has no room for make the call fail."""
    if isinstance(value, str):
        if not DECIMAL_TEXT.fullmatch(value):
            return FAILED
        value = decimal.Decimal(value)
    try:
        scaled = EXACT.to_integral_exact(EXACT.scaleb(value, scale))
    except (decimal.Inexact, decimal.Overflow, decimal.InvalidOperation):
        return FAILED
    if not INTEGER_MIN <= scaled <= INTEGER_MAX:
        return FAILED
    return with_scale(int(scaled), scale)


def to_float(value: Any) -> Any:
    """The nearest float, ties to even; beyond the largest there is none."""
    if isinstance(value, str):
        if value in FLOAT_WORDS:
            return float(value)
        if not FLOAT_TEXT.fullmatch(value):
            return FAILED
    number = float(value) + 0.0  # −0.0 + 0.0 is 0.0
    return FAILED if math.isinf(number) else number


def to_hex(value: bytes) -> str:
    return value[: VALUE_SIZE_BYTES_MAX // 2].hex()


def from_hex(text: str) -> Any:
    if len(text) % 2 or not HEX_TEXT.fullmatch(text):
        return FAILED
    return bytes.fromhex(text)


def from_utf8(value: bytes) -> Any:
    if len(value) > VALUE_SIZE_BYTES_MAX:
        return FAILED
    try:
        return value.decode()
    except UnicodeDecodeError:
        return FAILED


def to_bytes(text: str) -> bytes:
    return text.encode()


def to_uuid(text: str) -> Any:
    return uuid.UUID(text) if UUID_TEXT.fullmatch(text) else FAILED
