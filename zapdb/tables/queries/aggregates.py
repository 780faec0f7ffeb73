"""Sums of integers, decimals and floats, which are exact in every order of the records."""

from __future__ import annotations

import decimal
import math
from collections.abc import Iterable
from typing import Any, Final

from zapdb.errors import UsageError
from zapdb.schema import Field
from zapdb.values import Decimal, Float, Integer

FLOAT_UNITS: Final = 2**1074
"""So many of the smallest float make 1: every finite float is a whole number of them."""


def require_summable(table: str, field: Field) -> None:
    """Raises `UsageError` unless the values of a field can be added."""
    if not isinstance(field.type, Integer | Decimal | Float):
        raise UsageError(
            "only integers, decimals and floats can be summed",
            field=f"{table}.{field.name}",
            type=field.type,
        )


def add_up(field: Field, values: Iterable[Any]) -> Any:
    """The sum of checked values, nulls left out; 0 of the field's type if there are none.

    Integers and decimals of any size are added exactly, floats exactly and then rounded once.
    """
    present = (value for value in values if value is not None)
    if isinstance(field.type, Float):
        return _add_floats(present)
    if isinstance(field.type, Decimal):
        scale = field.type.scale
        total = sum(field.type.to_number(value, field.name) for value in present)
        digits = tuple(map(int, str(abs(total))))
        return decimal.Decimal((int(total < 0), digits, -scale))
    return sum(present)


def _add_floats(values: Iterable[float]) -> float:
    total, special = 0, 0.0
    for value in values:
        if math.isfinite(value):
            numerator, denominator = value.as_integer_ratio()
            total += numerator * (FLOAT_UNITS // denominator)
        else:
            special += value
    if special != 0:  # NaN, too
        return special
    try:
        return total / FLOAT_UNITS
    except OverflowError:
        return math.inf if total > 0 else -math.inf
