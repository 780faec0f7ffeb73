"""Total, saturating arithmetic: what passes the range of its type becomes the nearest bound.

Integers end where the orderable varint does, decimals of scale s where their value times 10^s does.
Every operation saturates its own result, so intermediate results stay as short as stored ones.
Floats are IEEE 754 binary64, whose operations are total by themselves; −0.0 becomes 0.0, as it is
stored. `FAILED` is what a partial function returns where it has no result: no value that a field
could have.

No operator of Python is applied to decimals, since those round to the running thread's context.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from zapdb.limits import DECIMAL_SCALE_MAX
from zapdb.values.decimal import with_scale
from zapdb.values.varint import INTEGER_MAX, INTEGER_MIN


class _Failed:
    def __repr__(self) -> str:
        return "FAILED"


FAILED: Final = _Failed()


# Exact for every sum and product of two values that fit, whatever their scales.
WIDE: Final = decimal.Context(
    prec=2 * 152 + 2 * DECIMAL_SCALE_MAX,
    traps=[decimal.Inexact, decimal.InvalidOperation, decimal.Overflow],
)
ROUNDING: Final = decimal.Context(prec=WIDE.prec, traps=[decimal.InvalidOperation])


def saturate(number: int) -> int:
    """The number, or the bound of integers that it passes."""
    if INTEGER_MIN <= number <= INTEGER_MAX:
        return number
    bound: int = INTEGER_MAX if number > 0 else INTEGER_MIN
    return bound


@cache
def saturating(operation: Callable[..., decimal.Decimal], scale: int) -> Callable[..., Any]:
    """An exact operation whose result has `scale`, saturated and without −0."""
    low, high, zero = (with_scale(number, scale) for number in (INTEGER_MIN, INTEGER_MAX, 0))

    def apply(*operands: Any) -> decimal.Decimal:
        number = operation(*operands)
        if low <= number <= high:
            return number or zero
        return high if number > zero else low

    return apply


DECIMAL_OPERATIONS: Final[dict[str, Callable[..., decimal.Decimal]]] = {
    "+": WIDE.add,
    "-": WIDE.subtract,
    "*": WIDE.multiply,
    "negate": WIDE.minus,
    "abs": WIDE.abs,
}


def decimal_operation(operation: str, scale: int) -> Callable[..., Any]:
    """One of DECIMAL_OPERATIONS, on decimals and integers, saturated at the bounds of `scale`."""
    return saturating(DECIMAL_OPERATIONS[operation], scale)


@cache
def round_to(scale: int, mode: str) -> Callable[..., Any]:
    """What brings a decimal to `scale` by a mode of rounding; the literal scale comes along."""
    unit = with_scale(1, scale)
    return saturating(lambda value, _: value.quantize(unit, mode, ROUNDING), scale)


def quotient(dividend: int, divisor: int) -> Any:
    return saturate(dividend // divisor) if divisor else FAILED


def remainder(dividend: int, divisor: int) -> Any:
    return dividend % divisor if divisor else FAILED


def divide(dividend: Any, divisor: Any, scale: int) -> Any:
    """By whole numbers, so that it is rounded once: to the nearest, ties to the even digit."""
    if not divisor:
        return FAILED
    above, below = dividend.as_integer_ratio()
    times, parts = divisor.as_integer_ratio()
    above, below = above * parts * 10**scale, below * times
    if below < 0:
        above, below = -above, -below
    whole, rest = divmod(above, below)
    if 2 * rest > below or (2 * rest == below and whole % 2):
        whole += 1
    return with_scale(saturate(whole), scale)


def absolute(number: int) -> int:
    return saturate(abs(number))


def _sort_nan_last(number: float) -> tuple[bool, float]:
    return number != number, number  # only NaN differs from itself


def least_float(*numbers: float) -> float:
    return min(numbers, key=_sort_nan_last)


def greatest_float(*numbers: float) -> float:
    return max(numbers, key=_sort_nan_last)
