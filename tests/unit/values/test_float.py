import itertools
import math
import struct

import pytest

from zapdb.errors import CorruptRecord, InvalidValue
from zapdb.values import Float

FLOAT = Float()
ORDERED = [
    -math.inf,
    -1.7976931348623157e308,
    -1.0,
    -2.2250738585072014e-308,
    -5e-324,
    0.0,
    5e-324,
    2.2250738585072014e-308,
    1.0,
    1.7976931348623157e308,
    math.inf,
]


def test_floats_sort_as_bytes_with_nan_last() -> None:
    encoded = [FLOAT.encode(value) for value in (*ORDERED, math.nan)]
    assert all(left < right for left, right in itertools.pairwise(encoded))
    for value in ORDERED:
        assert FLOAT.decode(FLOAT.encode(value), 0) == (value, 8)
    assert math.isnan(FLOAT.decode(FLOAT.encode(math.nan), 0)[0])


def test_zero_has_one_encoding_without_a_sign() -> None:
    assert FLOAT.encode(-0.0) == FLOAT.encode(0.0)
    assert math.copysign(1, FLOAT.check(-0.0, "p")) == 1
    assert math.copysign(1, FLOAT.decode(FLOAT.encode(-0.0), 0)[0]) == 1


def test_every_nan_has_one_encoding() -> None:
    (other,) = struct.unpack(">d", bytes.fromhex("fff8000000000123"))
    assert math.isnan(other)
    assert FLOAT.encode(other) == FLOAT.encode(math.nan)
    assert FLOAT.is_same(other, math.nan)
    assert not FLOAT.is_same(other, 1.0)
    assert not FLOAT.is_same(1.0, math.nan)


@pytest.mark.parametrize(
    "data",
    [
        "7fffffffffffffff",  # −0.0
        "fff8000000000001",  # another NaN
        "0007ffffffffffff",  # a negative NaN
        "0000000000000000",
        "ffffffffffffffff",
        "80000000000000",
        "",
    ],
)
def test_float_refuses_what_no_encoder_writes(data: str) -> None:
    with pytest.raises(CorruptRecord):
        FLOAT.decode(bytes.fromhex(data), 0)


def test_float_takes_integers_that_it_holds_exactly() -> None:
    assert FLOAT.check(2**53, "p") == 2.0**53
    assert type(FLOAT.check(3, "p")) is float
    for refused in (2**53 + 1, -(2**53) - 1, 10**400, True, "1.0", None):
        with pytest.raises(InvalidValue) as caught:
            FLOAT.check(refused, "people.weight")
        assert caught.value.context["field"] == "people.weight"


def test_float_in_a_document_is_text() -> None:
    for value in ORDERED:
        assert FLOAT.from_document(FLOAT.to_document(value), "p") == value
    assert math.isnan(FLOAT.from_document("nan", "p"))
    assert FLOAT.from_document("-Infinity", "p") == -math.inf
    assert FLOAT.from_document("1.5e-3", "p") == 0.0015
    for refused in ("heavy", "", "1_000.0", " 1.0", "1.0\n", "१.५", "infinit", "0x1p3"):
        with pytest.raises(InvalidValue):
            FLOAT.from_document(refused, "p")
