import enum

import pytest

from zapdb.errors import CorruptRecord, InvalidValue
from zapdb.values import Integer
from zapdb.values.varint import INTEGER_MAX, INTEGER_MIN

INTEGER = Integer()


@pytest.mark.parametrize("value", [0, 1, -1, 2**63, -(2**63) - 1, INTEGER_MAX, INTEGER_MIN])
def test_integer_round_trips_as_value_and_key(value: int) -> None:
    assert INTEGER.check(value, "p") == value
    for encode, decode in (
        (INTEGER.encode, INTEGER.decode),
        (INTEGER.encode_key, INTEGER.decode_key),
    ):
        assert decode(encode(value), 0) == (value, len(encode(value)))


@pytest.mark.parametrize(
    ("value", "got"),
    [
        (INTEGER_MAX + 1, "int of 505 bits"),
        (INTEGER_MIN - 1, "int of 505 bits"),
        (True, "True"),
        (None, "None"),
        (1.0, "float"),
        ("1", "str of 1 characters"),
    ],
)
def test_integer_refuses_and_names_the_path(value: object, got: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        INTEGER.check(value, "people.age")
    assert {**caught.value.context, "refused": ""} == {
        "field": "people.age",
        "expected": "an integer of at most 63 bytes",
        "got": got,
        "refused": "",
    }


def test_integer_of_a_subclass_becomes_an_int() -> None:
    class Size(enum.IntEnum):
        LARGE = 7

    assert type(INTEGER.check(Size.LARGE, "p")) is int


def test_integer_from_a_document_is_no_text() -> None:
    assert INTEGER.from_document(5, "p") == 5
    with pytest.raises(InvalidValue):
        INTEGER.from_document("5", "p")


def test_integer_refuses_missing_bytes() -> None:
    with pytest.raises(CorruptRecord):
        INTEGER.decode(b"", 0)
