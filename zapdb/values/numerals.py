"""Binary floats and the numbers that are written in digits: one for the other, or neither.

A float stands for its shortest digits. Digits stand for a float that prints as they do: if it is
written with as many digits as they are, it is the same number. So `0.1` and `0.10000000000000001`
are floats, and 2⁵³ + 1, `90071992547409.93` and `1e400` are none, since other digits would be read
back.
"""

from __future__ import annotations

import decimal
import math
from typing import Final

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
