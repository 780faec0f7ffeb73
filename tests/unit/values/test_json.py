import time
from typing import Any

import cbor2
import pytest

from zapdb.errors import CorruptRecord, InvalidValue
from zapdb.limits import JSON_DEPTH_MAX, VALUE_SIZE_BYTES_MAX
from zapdb.values import Json
from zapdb.values.length_prefixed import encode_length_prefixed

JSON = Json()
SAMPLES: list[Any] = [
    None,
    True,
    0,
    -1,
    2**63 - 1,
    -(2**63),
    2**64 - 1,
    -(2**64),
    0.5,
    1e300,
    "",
    "ä😀",
    [],
    [1, [2, [3]]],
    {},
    {"b": 1, "a": {"": None}, "aa": [False]},
]


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("value", SAMPLES, ids=repr)
def test_json_round_trips(value: Any) -> None:
    checked = JSON.check(value, "p")
    encoded = JSON.encode(checked)
    decoded, after = JSON.decode(b"\x00" + encoded, 1)
    assert (decoded, after) == (value, 1 + len(encoded))
    assert JSON.skip(b"\x00" + encoded, 1) == after


def test_equal_json_has_equal_bytes_whatever_the_key_order() -> None:
    assert JSON.encode({"b": 1, "aa": 2, "a": 3}) == JSON.encode({"a": 3, "aa": 2, "b": 1})
    assert JSON.encode({"b": 1, "aa": 2}).hex() == "88a261620162616102"


def test_json_keeps_integers_and_floats_apart_and_knows_no_minus_zero() -> None:
    assert type(JSON.decode(JSON.encode(JSON.check(1.0, "p")), 0)[0]) is float
    assert type(JSON.decode(JSON.encode(JSON.check(1, "p")), 0)[0]) is int
    assert JSON.encode(JSON.check(-0.0, "p")) == JSON.encode(0.0)


def test_json_copies_what_it_is_given() -> None:
    given = {"list": [1, (2, 3)]}
    checked = JSON.check(given, "p")
    given["list"].append(4)
    assert checked == {"list": [1, [2, 3]]}


@pytest.mark.parametrize(
    ("value", "field"),
    [
        (2**64, "p"),
        (-(2**64) - 1, "p"),
        (float("nan"), "p"),
        (float("inf"), "p"),
        (b"x", "p"),
        ({1: 2}, "p"),
        ({"a": [0, {"b": {1}}]}, "p.a[1].b"),
        ("\ud800", "p"),
        ({"\ud800": 1}, "p"),
        ({"a": {"b\udfff": 1}}, "p.a"),
    ],
)
def test_json_refuses_and_names_the_path(value: Any, field: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        JSON.check(value, "p")
    assert caught.value.context["field"] == field


def test_json_is_bounded_in_depth_on_both_ways() -> None:
    deepest = JSON.check(nested(JSON_DEPTH_MAX), "p")
    assert JSON.decode(JSON.encode(deepest), 0)[0] == deepest
    with pytest.raises(InvalidValue, match="does not fit") as caught:
        JSON.check(nested(JSON_DEPTH_MAX + 1), "p")
    assert caught.value.context["expected"] == "JSON nested at most 64 deep"
    for depth in (JSON_DEPTH_MAX + 1, 399, 100_000):
        with pytest.raises(CorruptRecord):
            JSON.decode(encode_length_prefixed(b"\x81" * depth + b"\x01"), 0)


def test_json_that_contains_itself_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(InvalidValue):
        JSON.check(value, "p")


def test_json_is_bounded_in_size() -> None:
    with pytest.raises(InvalidValue) as caught:
        JSON.check(["x" * 1000] * (VALUE_SIZE_BYTES_MAX // 1000), "p")
    assert caught.value.context["expected"] == f"JSON of at most {VALUE_SIZE_BYTES_MAX} bytes"


HOSTILE = {
    "empty": "",
    "trailing byte": "0101",
    "duplicate key": "a2616101616102",
    "keys out of order": "a2616201616102",
    "number not in its shortest form": "1801",
    "float not in its shortest form": "fb3ff0000000000000",
    "minus zero": "f98000",
    "indefinite length": "9f01ff",
    "integer key": "a10102",
    "unhashable key": "a18001",
    "bytes": "4161",
    "nan": "f97e00",
    "infinity": "f97c00",
    "undefined": "f7",
    "simple value": "f820",
    "lone break": "ff",
    "not UTF-8": "61ff",
    "a length of exabytes": "9b7fffffffffffffff",
    "a text of exabytes": "7b7fffffffffffffff",
    "bignum": "c249010000000000000000",
    "cycle": "d81c81d81d00",
    "reference to nothing": "d81d05",
    "regular expression": "d8236a28612b292b28612b292b",
    "broken regular expression": "d82363282861",
    "fraction over 0": "d81e820100",
    "big float": "c5821a7fffffff01",
    "big decimal fraction": "c4821a7fffffff01",
    "time that is none": "c06161",
    "time that is infinite": "c1f97c00",
    "time beyond all": "c11bffffffffffffffff",
    "date beyond all": "d8641b7fffffffffffffff",
    "mime message": "d8246161",
    "uuid of one byte": "d8254161",
    "address that is none": "d904044161",
    "set": "d901028180",
    "unknown tag": "d903e701",
    "self-described": "d9d9f701",
}


@pytest.mark.parametrize("raw", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_cbor_is_corrupt_and_nothing_else(raw: str) -> None:
    started = time.process_time()
    with pytest.raises(CorruptRecord):
        JSON.decode(encode_length_prefixed(bytes.fromhex(raw)), 0)
    assert time.process_time() - started < 1


def test_json_is_written_without_tags() -> None:
    def refuse(decoder: Any, tag: Any) -> Any:
        raise AssertionError(tag)

    for value in SAMPLES:
        raw = JSON.encode(JSON.check(value, "p"))[1:]
        # bignums are tags 2 and 3, which cbor2 reads without asking a hook
        assert raw[0] >> 5 != 6
        assert cbor2.loads(raw, tag_hook=refuse) == value


def test_json_is_neither_key_nor_index() -> None:
    assert not JSON.keyable
    assert not JSON.indexable


@pytest.mark.parametrize(
    ("left", "right"), [(1, True), (0, False), (1, 1.0), ([0], [False]), ({"a": 1}, {"a": 1.0})]
)
def test_values_of_different_bytes_are_different_whatever_python_says(
    left: object, right: object
) -> None:
    assert left == right
    assert not JSON.is_same(left, right)
    assert JSON.is_same(left, left)
    assert JSON.is_same({"a": 1, "b": 2}, {"b": 2, "a": 1})
