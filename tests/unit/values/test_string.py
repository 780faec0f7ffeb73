import itertools

import pytest

from zapdb.errors import CorruptRecord, InvalidValue
from zapdb.limits import VALUE_SIZE_BYTES_MAX
from zapdb.values import String

STRING = String()
SAMPLES = [
    "",
    "a",
    "ab",
    "a\x00",
    "a\x00b",
    "\x00",
    "\x00\x00",
    "ä",
    "é",
    "😀",
    "\uffff",
    "\U0010ffff",
]


@pytest.mark.parametrize("value", [*SAMPLES, "x" * 63, "x" * 64, "ä" * 1000])
def test_string_round_trips_as_value_and_key(value: str) -> None:
    assert STRING.check(value, "p") == value
    encoded, key = STRING.encode(value), STRING.encode_key(value)
    assert STRING.decode(b"\x00" + encoded, 1) == (value, 1 + len(encoded))
    assert STRING.decode_key(b"\x00" + key + b"\x00\xff", 1) == (value, 1 + len(key))


def test_string_values_have_a_length_prefix_and_keys_an_end_mark() -> None:
    assert STRING.encode("ab").hex() == "826162"
    assert STRING.encode("x" * 64).hex() == "c040" + "78" * 64
    assert STRING.encode_key("ab").hex() == "61620001"
    assert STRING.encode_key("a\x00b").hex() == "6100ff620001"


def test_string_keys_sort_by_code_points() -> None:
    """UTF-16 would put U+10FFFF before U+FFFF."""
    by_code_points = sorted(SAMPLES, key=lambda text: text.encode("utf-32-be"))
    assert sorted(SAMPLES, key=STRING.encode_key) == by_code_points


def test_no_string_key_is_a_prefix_of_another() -> None:
    keys = sorted(map(STRING.encode_key, SAMPLES))
    assert not any(right.startswith(left) for left, right in itertools.pairwise(keys))


@pytest.mark.parametrize("value", ["\ud800", "a\udfff", b"a", 1, None])
def test_string_refuses_and_names_the_path(value: object) -> None:
    with pytest.raises(InvalidValue) as caught:
        STRING.check(value, "people.name")
    assert caught.value.context["field"] == "people.name"


def test_string_is_bounded_in_bytes_of_utf8() -> None:
    assert STRING.check("ä" * (VALUE_SIZE_BYTES_MAX // 2), "p")
    with pytest.raises(InvalidValue):
        STRING.check("ä" * (VALUE_SIZE_BYTES_MAX // 2) + "x", "p")


def test_string_of_a_subclass_becomes_a_str() -> None:
    class Text(str):
        __slots__ = ()

    assert type(STRING.check(Text("a"), "p")) is str


@pytest.mark.parametrize(
    "data",
    [
        "",
        "81",  # a byte is missing
        "81ff",  # not UTF-8
        "82c3",
        "83eda080",  # a surrogate
        "82c080",  # an overlong form
        "7f",  # a length below 0: reserved for blobs
        "c03f" + "78" * 63,  # a length that is not in its shortest form
        "c27fffff",  # a length beyond the limit
        "00",
        "ff",
    ],
)
def test_string_refuses_what_no_encoder_writes(data: str) -> None:
    with pytest.raises(CorruptRecord):
        STRING.decode(bytes.fromhex(data), 0)


@pytest.mark.parametrize(
    "data", ["", "61", "6100", "610002", "610000", "6100020001", "6100000001", "ff0001", "00fe01"]
)
def test_string_key_refuses_what_no_encoder_writes(data: str) -> None:
    with pytest.raises(CorruptRecord):
        STRING.decode_key(bytes.fromhex(data), 0)
