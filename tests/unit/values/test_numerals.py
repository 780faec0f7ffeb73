"""Floats and digits stand for each other, or for nothing."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zapdb.errors import InvalidValue
from zapdb.values import Float, Json
from zapdb.values.float import decimal_of, float_of
from zapdb.values.json import read_json


@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(17, 40))
def test_what_prints_a_float_is_that_float(value: float, digits: int) -> None:
    for text in (repr(value), f"{value:.{digits - 1}e}", str(Decimal(value))):
        assert float_of(Decimal(text)) == value
        assert Float().from_document(text, "x") == value


@given(st.decimals(allow_nan=False, allow_infinity=False, places=3))
def test_digits_that_are_lost_are_no_float(number: Decimal) -> None:
    found = float_of(number)
    if found is not None:
        digits = len(number.normalize().as_tuple().digits)
        shown = (Decimal(f"{found:.{digits - 1}e}"), Decimal(repr(found)))
        assert number in shown
    elif number:
        assert abs(number) >= 2**43  # so that three places need more digits than a float has


@given(st.integers(-(10**17), 10**17), st.integers(0, 6))
def test_a_float_stands_for_one_decimal_of_a_scale(number: int, scale: int) -> None:
    """Whatever a decimal became as a float, it comes back, or nothing does; but few digits stand
    for themselves, even if they were more."""
    given = Decimal(number).scaleb(-scale)
    found = decimal_of(float(given), scale)
    few = abs(number) < 10**15
    assert found == given if few else found in (None, given) or len(f"{found.normalize():f}") < 17


@pytest.mark.parametrize("text", ["9007199254740993.0", "1e400", "1e-400", "[0.1, {'a': 1e999}]"])
def test_numbers_of_json_are_floats_that_keep_their_digits(text: str) -> None:
    with pytest.raises(InvalidValue):
        Json().from_document(read_json(text.replace("'", '"')), "x")
    assert Json().from_document(read_json("[0.1, 1.50, 1e22, 12]"), "x") == [0.1, 1.5, 1e22, 12]
