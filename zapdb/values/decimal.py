"""Decimals of a fixed scale: the value times 10^scale as an orderable varint, also as key."""

from __future__ import annotations

import decimal
import re
from dataclasses import dataclass
from typing import Any, Final

from zapdb.errors import InvalidValue
from zapdb.limits import DECIMAL_SCALE_MAX
from zapdb.values.generated_source import Namespace
from zapdb.values.value_type import ValueType
from zapdb.values.varint import (
    INTEGER_MAX,
    INTEGER_MIN,
    SIZES,
    decode_varint,
    decode_varint_source,
    encode_varint,
    encode_varint_source,
    skip_varint,
)

# Exact for every value that the varint can hold (152 digits); traps make any loss an error.
EXACT = decimal.Context(
    prec=152 + DECIMAL_SCALE_MAX,
    traps=[decimal.Inexact, decimal.InvalidOperation, decimal.Overflow],
)
MULTIPLY, TO_INTEGRAL = EXACT.multiply, EXACT.to_integral_exact

NUMERAL: Final = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)(e[+-]?[0-9]+)?", re.ASCII | re.I)
"""Numbers as documents write them; Python also accepts `1_000`, blanks and other digits."""


@dataclass(frozen=True)
class Decimal(ValueType):
    """`scale` counts the digits after the point, 0 to 64."""

    scale: int

    name = "decimal"
    expected = "a decimal"
    text_form = "a number, such as 12.50"
    held_as = "decimal.Decimal"
    plain_kind = "decimal"
    has_python_order = True

    def __post_init__(self) -> None:
        if not 0 <= self.scale <= DECIMAL_SCALE_MAX:
            raise InvalidValue.of("scale", f"0 to {DECIMAL_SCALE_MAX}", self.scale)

    def neutral(self) -> decimal.Decimal:
        return with_scale(0, self.scale)

    def check(self, value: Any, path: str) -> decimal.Decimal:
        return with_scale(self.to_number(value, path), self.scale)

    def to_number(self, value: Any, path: str) -> int:
        """Return the value times 10^scale, exactly; raises `InvalidValue`."""
        if isinstance(value, int) and not isinstance(value, bool):
            value = decimal.Decimal(value)
        if not isinstance(value, decimal.Decimal) or not value.is_finite():
            raise self.refuse(value, path)
        try:
            scaled = EXACT.scaleb(value, self.scale)
            whole = EXACT.to_integral_exact(scaled)
        except (decimal.Inexact, decimal.Overflow, decimal.InvalidOperation):
            expected = f"a decimal with at most {self.scale} digits after the point"
            raise InvalidValue.of(path, expected, value) from None
        if not INTEGER_MIN <= whole <= INTEGER_MAX:
            raise InvalidValue.of(path, "a decimal of at most 63 bytes", value)
        return int(whole)

    def encode(self, value: decimal.Decimal) -> bytes:
        return encode_varint(int(EXACT.scaleb(value, self.scale)))

    def encode_source(self, value: str, path: str, names: Namespace) -> tuple[list[str], str]:
        number = f"{names.bind(self.to_number, 'to_number')}({value}, {names.bind(path, 'path')})"
        shift = names.bind(decimal.Decimal((0, (1,), self.scale)), "SHIFT")
        multiply, to_integral = (
            names.bind(MULTIPLY, "multiply"),
            names.bind(TO_INTEGRAL, "integral"),
        )
        # Other types and long numbers are converted by `to_number`, so that `int` does not make a
        # million digits of an exponent.
        return [
            f"if type({value}) is {names.bind(decimal.Decimal, 'Decimal')}:",
            "    try:",
            f"        c = {to_integral}({multiply}({value}, {shift}))",
            f"        {value} = int(c) if c.adjusted() < 19 else {number}",
            "    except (ArithmeticError, ValueError):",
            f"        {value} = {number}",
            "else:",
            f"    {value} = {number}",
            *encode_varint_source(value, f"{value}_b", names),
        ], f"{value}_b"

    def decode(self, data: bytes, position: int) -> tuple[decimal.Decimal, int]:
        number, position = decode_varint(data, position)
        return with_scale(number, self.scale), position

    def decode_source(self, target: str, names: Namespace) -> list[str]:
        unit = names.bind(decimal.Decimal((0, (1,), -self.scale)), "UNIT")
        return [
            *decode_varint_source(target, names),
            f"{target} = {names.bind(MULTIPLY, 'multiply')}({target}, {unit})",
            "p = q",
        ]

    def skip(self, data: bytes, position: int) -> int:
        return skip_varint(data, position)

    def skip_source(self, names: Namespace) -> list[str]:
        return [f"p += {names.bind(SIZES, 'SIZES')}[b[p]]"]

    def from_document(self, plain: Any, path: str) -> decimal.Decimal:
        if isinstance(plain, str):
            if not NUMERAL.fullmatch(plain):
                raise self.refuse(plain, path)
            try:
                plain = decimal.Decimal(plain)
            except decimal.InvalidOperation:  # the exponent is out of range
                raise self.refuse(plain, path) from None
        return self.check(plain, path)

    def to_document(self, value: decimal.Decimal) -> str:
        return format(value, "f")


def with_scale(number: int, scale: int) -> decimal.Decimal:
    """Return number / 10^scale in the normal form: `scale` digits after the point, no −0.

    So the digits that `text()` and others show do not depend on whether the value was stored.
    """
    return EXACT.scaleb(decimal.Decimal(number), -scale)
