"""Descriptions of values and names in errors: never contents beyond a number or a short prefix."""

from __future__ import annotations

import datetime
import decimal
import difflib
import math
import uuid
from collections.abc import Iterable
from typing import Final

from zapdb.limits import EXCERPT_LENGTH_MAX

REFUSED: Final = "refused"
"""The key of a refused value's beginning in an error's context; it is never shown."""


def excerpt_of(value: object) -> str | None:
    """Return the beginning of a value as Python writes it, or None if only the value's own code
    could."""
    match value:
        case str() | bytes():
            return repr(value[:EXCERPT_LENGTH_MAX])
        case int() if value.bit_length() > EXCERPT_LENGTH_MAX:  # its digits may be too many
            return hex(value >> (value.bit_length() - EXCERPT_LENGTH_MAX)) + "…"
        case int() | float() | decimal.Decimal() | datetime.date() | uuid.UUID():
            return repr(value)[:EXCERPT_LENGTH_MAX]
    return None


def suggest(name: object, names: Iterable[str]) -> str:
    """Return the hint for an unknown name: the closest of `names`, or an empty text."""
    closest = difflib.get_close_matches(str(name), list(names), n=1)
    return f"did you mean {closest[0]!r}?" if closest else ""


def describe_value(value: object) -> str:
    """Return a value's type and size; never its contents beyond a number or a short hex prefix."""
    kind = type(value).__name__
    if isinstance(value, bytes | bytearray):
        return f"{kind} of {len(value)} bytes, {bytes(value[:8]).hex()}…"
    if isinstance(value, str):
        return f"{kind} of {len(value)} characters"
    if isinstance(value, bool) or value is None:
        return repr(value)
    if isinstance(value, int):
        return f"{kind} of {value.bit_length()} bits"
    if isinstance(value, float) and not math.isfinite(value):
        return f"{kind} {value}"
    if isinstance(value, decimal.Decimal):
        return _describe_decimal(value)
    if isinstance(value, datetime.datetime):
        zone = "no time zone" if value.tzinfo is None else f"the time zone {value.tzinfo}"
        return f"{kind} with {zone}"
    if isinstance(value, list | tuple | dict | set):
        return f"{kind} of length {len(value)}"
    return kind


def _describe_decimal(value: decimal.Decimal) -> str:
    if not value.is_finite():
        return f"Decimal {value}"
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    places = max(0, -exponent)
    return f"Decimal of {len(digits)} digits, {places} after the point"
