"""Floats: IEEE 754 binary64, big-endian, made order-preserving; value and key alike.

A positive number has its sign bit set, a negative one has all bits inverted, so that unsigned bytes
sort as the numbers do. −0.0 is stored as 0.0 and every NaN as the one quiet NaN, which sorts last.

A float stands for its shortest digits. Digits stand for a float that prints as they do: if it is
written with as many digits as they are, it is the same number. So `0.1` and `0.10000000000000001`
are floats, and 2⁵³ + 1, `90071992547409.93` and `1e400` are none, since other digits would be read
back.
"""

from __future__ import annotations

import decimal
import math
import re
import struct
from dataclasses import dataclass
from typing import Any, Final

from zapdb.errors import CorruptRecord, InvalidValue
from zapdb.values.decimal import NUMERAL
from zapdb.values.generated_source import Namespace
from zapdb.values.value_type import ValueType

SAFE_DIGITS: Final = 15
"""Numbers of so many digits are never confused by floats."""
SAFE_WHOLE: Final = 1 << 53
"""From here on, a float stands for several whole numbers."""


def float_of(number: decimal.Decimal) -> float | None:
    """Return the float that finite digits stand for; None if they stand for none."""
    value = float(number)
    if not math.isfinite(value):
        return None
    digits = max(1, len(_digits_of(number)))
    printed = f"{value:.{digits - 1}e}"
    # The shortest digits need not be those that are nearest.
    if number not in (decimal.Decimal(printed), decimal.Decimal(repr(value))):
        return None
    return value + 0.0  # −0.0 + 0.0 is 0.0


def decimal_of(value: float, scale: int) -> decimal.Decimal | None:
    """Return the number that a float stands for: its shortest digits, if these are few, or if no
    other number with so many digits after the point is the same float; else None."""
    if not math.isfinite(value) or abs(value) >= SAFE_WHOLE:
        return None
    shortest = decimal.Decimal(repr(float(value)))
    if max(len(_digits_of(shortest)), shortest.adjusted() + 1) <= SAFE_DIGITS:
        return shortest
    step = decimal.Decimal((0, (1,), -scale))
    return shortest if decimal.Decimal(math.ulp(value)) <= step else None


def _digits_of(number: decimal.Decimal) -> str:
    """The digits of a number without zeros at its ends."""
    return "".join(map(str, number.as_tuple().digits)).strip("0")


SIGN = 1 << 63
_ALL = (1 << 64) - 1
NAN = struct.pack(">Q", 0x7FF8_0000_0000_0000 | SIGN)
MINUS_ZERO = struct.pack(">Q", SIGN - 1)
PACK, UNPACK = struct.Struct(">d").pack, struct.Struct(">d").unpack_from

NO_NUMERAL = re.compile(r"[+-]?(inf|infinity|nan)", re.ASCII | re.IGNORECASE)
"""The three values that documents write as words."""
FLOAT_DIGITS = "a number that a float keeps, with at most 17 digits"
FLOAT_HINT = "round it to 15 digits, or make the field a decimal"


@dataclass(frozen=True)
class Float(ValueType):
    name = "float"
    expected = "a float"
    text_form = "a number, such as 1.5e-3, or nan, inf, -inf"
    held_as = "float"
    plain_kind = "float"
    fixed_size_bytes = 8
    keyable = False

    def neutral(self) -> float:
        return 0.0

    def check(self, value: Any, path: str) -> float:
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= 1 << 53:
            value = float(value)
        if not isinstance(value, float):
            raise self.refuse(value, path)
        return float(value) + 0.0  # −0.0 + 0.0 is 0.0

    def encode(self, value: float) -> bytes:
        if math.isnan(value):
            return NAN
        (bits,) = struct.unpack(">Q", struct.pack(">d", value + 0.0))
        return struct.pack(">Q", bits ^ _ALL if bits & SIGN else bits | SIGN)

    def encode_source(self, value: str, path: str, names: Namespace) -> tuple[list[str], str]:
        check, encode = (
            names.bind(self.check, "check_float"),
            names.bind(self.encode, "encode_float"),
        )
        # A positive number with its sign bit set has the bytes of its negative.
        return [
            f"if type({value}) is float and {value} > 0.0:",
            f"    {value}_b = {names.bind(PACK, 'pack')}(-{value})",
            "else:",
            f"    {value}_b = {encode}({check}({value}, {names.bind(path, 'path')}))",
        ], f"{value}_b"

    def decode(self, data: bytes, position: int) -> tuple[float, int]:
        after = position + 8
        raw = bytes(data[position:after])
        if len(raw) != 8 or raw == MINUS_ZERO:
            raise CorruptRecord.at("float", data, position)
        (bits,) = struct.unpack(">Q", raw)
        (value,) = struct.unpack(
            ">d", struct.pack(">Q", bits & ~SIGN if bits & SIGN else bits ^ _ALL)
        )
        if math.isnan(value) and raw != NAN:
            raise CorruptRecord.at("float", data, position)
        return value, after

    def decode_source(self, target: str, names: Namespace) -> list[str]:
        corrupt = names.bind(CorruptRecord.at, "corrupt")
        return [
            "q = p + 8",
            f"if q > n: raise {corrupt}('float', b, p)",
            f"{target} = -{names.bind(UNPACK, 'unpack')}(b, p)[0]",
            # Negative numbers, whose bytes are others, and NaN, which equals nothing.
            f"if not {target} >= 0.0 or b[p] < 0x80:",
            f"    {target}, q = {names.bind(self.decode, 'decode_float')}(b, p)",
            "p = q",
        ]

    def skip(self, data: bytes, position: int) -> int:
        return position + 8

    def is_same(self, left: float, right: float) -> bool:
        return left == right or (math.isnan(left) and math.isnan(right))

    def from_document(self, plain: Any, path: str) -> float:
        """Also takes a decimal; raises `InvalidValue` for digits that no float stands for."""
        if isinstance(plain, str):
            return self._read(plain, path)
        if isinstance(plain, int) and not isinstance(plain, bool):
            plain = decimal.Decimal(plain)
        if not isinstance(plain, decimal.Decimal):
            return self.check(plain, path)
        if plain.is_infinite() or plain.is_qnan():
            return self.check(float(plain), path)
        found = None if plain.is_nan() else float_of(plain)
        if found is None:
            raise InvalidValue.of(path, FLOAT_DIGITS, plain, FLOAT_HINT)
        return found

    def _read(self, text: str, path: str) -> float:
        if not NUMERAL.fullmatch(text):
            if NO_NUMERAL.fullmatch(text):
                return self.check(float(text), path)
            raise self.refuse(text, path)
        if len(text) <= SAFE_DIGITS and "e" not in text and "E" not in text:
            return float(text) + 0.0
        try:
            return self.from_document(decimal.Decimal(text), path)
        except decimal.InvalidOperation:  # the exponent is out of range
            raise InvalidValue.of(path, FLOAT_DIGITS, text, FLOAT_HINT) from None

    def to_document(self, value: float) -> str:
        return repr(value)
