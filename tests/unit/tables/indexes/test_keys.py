"""Bytes of index keys, and what is truncated where."""

from __future__ import annotations

import hashlib

import pytest

from zapdb.datasets import Collation, sort_keys
from zapdb.errors import InvalidValue, UsageError
from zapdb.records.record import record_class
from zapdb.schema import Field, Index, IndexComponent, TableSchema
from zapdb.tables.indexes.keys import (
    build_keys,
    is_truncated,
    prefix_end,
    truncate_key,
    truncate_unique_key,
)
from zapdb.values import Integer, String

TABLE = TableSchema(
    1,
    "t",
    (1,),
    (Field(1, "id", Integer()), Field(2, "a", String(), True), Field(3, "b", Integer())),
)
GERMAN = Collation("de")


def keys_of(*components: IndexComponent) -> str:
    """The key of a = 'x\\0y', b = −1, and of a null and 5, in hex."""
    builder = build_keys(TABLE, Index(1, "by_it", components))
    make = record_class("t", ("id", "a", "b"))
    return " ".join(builder.build(make(*row)).hex() for row in [(1, "x\0y", -1), (2, None, 5)])


@pytest.mark.parametrize(
    ("components", "expected"),
    [
        ((IndexComponent(2),), "017800ff790001 00"),
        ((IndexComponent(2, descending=True),), "fe87ff0086fffe ff"),
        ((IndexComponent(3),), "017f 0185"),  # not optional, and marked all the same
        ((IndexComponent(3, descending=True), IndexComponent(2)), "fe80017800ff790001 fe7a00"),
        (
            (IndexComponent(2, GERMAN), IndexComponent(3)),
            f"01{sort_keys(GERMAN).get('xy').hex()}017f 000185",
        ),
    ],
)
def test_rule_24_bytes_of_keys(components: tuple[IndexComponent, ...], expected: str) -> None:
    assert keys_of(*components) == expected


def test_rule_24_a_key_is_cut_exactly_when_it_is_as_long_as_the_limit() -> None:
    for size in (0, 1, 1022, 1023):
        assert truncate_key(b"k" * size) == b"k" * size
        assert not is_truncated(truncate_key(b"k" * size))
    for size in (1024, 1025, 5000):
        assert truncate_key(b"k" * size) == b"k" * 1024
        assert is_truncated(truncate_key(b"k" * size))


@pytest.mark.parametrize(
    ("key", "record_key", "has_null", "told"),
    [
        (b"k" * 3, b"r", False, b"kkk"),
        (b"k" * 3, b"r", True, b"kkkr"),
        (b"k" * 1023, b"r", False, b"k" * 1023),
        (b"k" * 1022, b"r", True, b"k" * 1022 + b"r"),
        (b"k" * 1023, b"r", True, b"k" * 1023 + b"r"),
        (b"k" * 1024, b"r", False, b"k" * 1024),
        (b"k" * 1500, b"r", False, b"k" * 1500),
        (b"k" * 1500, b"r", True, b"k" * 1500 + b"r"),
    ],
)
def test_rule_24_entries_of_unique_indexes(
    key: bytes, record_key: bytes, has_null: bool, told: bytes
) -> None:
    entry = truncate_unique_key(key, record_key, has_null=has_null)
    if len(told) < 1024:
        assert entry == told
    else:
        assert entry == told[:992] + hashlib.sha256(told).digest()
    assert is_truncated(entry) == (len(told) >= 1024)


def test_rule_24_long_values_of_a_unique_index_collide_when_they_are_equal_and_not_otherwise() -> (
    None
):
    one, other = b"k" * 2000 + b"1", b"k" * 2000 + b"2"
    assert truncate_key(one) == truncate_key(other)
    entries = {
        truncate_unique_key(key, record, has_null=null)
        for key in (one, other)
        for record in (b"r", b"s")
        for null in (False, True)
    }
    assert len(entries) == 2 + 4


def test_the_successor_is_the_first_key_behind_all_with_a_prefix() -> None:
    assert prefix_end(b"ab") == b"ac"
    assert prefix_end(b"a\xff\xff") == b"b"
    assert prefix_end(b"\xff\xff") is None
    assert prefix_end(b"") is None


def test_values_of_a_lookup_are_checked() -> None:
    builder = build_keys(TABLE, Index(1, "by_it", (IndexComponent(2), IndexComponent(3))))
    assert builder.check(["a"]) == ["a"]
    assert builder.check([None, None]) == [None, None]
    with pytest.raises(UsageError, match="there are more values than fields of the index"):
        builder.check(["a", 1, 2])
    with pytest.raises(InvalidValue):
        builder.check([1])
