"""The difference of two shapes of a table: nothing that the fingerprint covers escapes it."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from tests.unit.schema.test_canonical import DIFFERENT, TABLE, replaced
from zapdb.schema import (
    NO_DEFAULT,
    ArchivedField,
    Field,
    TableSchema,
    compare_tables,
)
from zapdb.values import Integer, String


@pytest.mark.parametrize("table", DIFFERENT.values(), ids=DIFFERENT.keys())
def test_rule_04_whatever_changes_the_fingerprint_is_a_difference(table: TableSchema) -> None:
    there, back = compare_tables(TABLE, table), compare_tables(table, TABLE)
    assert there != ()
    turned = {"added": "removed", "removed": "added", "changed": "changed"}
    assert sorted((d.part, d.number, turned[d.change]) for d in there) == sorted(
        (d.part, d.number, d.change) for d in back
    )
    sides = {(d.part, d.number): (d.before, d.after) for d in there}
    assert sides == {(d.part, d.number): (d.after, d.before) for d in back}
    assert compare_tables(table, table) == ()


def summary(old: TableSchema, new: TableSchema) -> list[tuple[Any, ...]]:
    return [
        (d.part, d.number, d.name, d.change, d.before, d.after) for d in compare_tables(old, new)
    ]


def test_parts_are_the_same_by_their_numbers() -> None:
    # The key, an index and a reference are on fields that are called otherwise: no difference.
    renamed = replaced(replaced(TABLE, 4, name="number"), 10, name="chief")
    assert summary(TABLE, renamed) == [
        ("field", 4, "number", "changed", {"name": "id"}, {"name": "number"}),
        ("field", 10, "chief", "changed", {"name": "boss"}, {"name": "chief"}),
    ]
    again = TABLE.with_fields(
        tuple(dataclasses.replace(f, number=99) if f.name == "town" else f for f in TABLE.fields)
    )
    again = dataclasses.replace(again, key=(4, 99))
    assert [(d.number, d.change) for d in compare_tables(TABLE, again) if d.part == "field"] == [
        (99, "added"),
        (2, "removed"),
    ]


def test_only_what_differs_is_told_of_a_part_that_changed() -> None:
    changed = replaced(TABLE, 5, type=Integer(), optional=False, default=3)
    assert summary(TABLE, changed) == [
        (
            "field",
            5,
            "nick",
            "changed",
            {"type": String(), "optional": True, "default": None},
            {"type": Integer(), "optional": False, "default": 3},
        )
    ]
    without = replaced(TABLE, 5, default=NO_DEFAULT)
    assert summary(TABLE, without) == [("field", 5, "nick", "changed", {"default": None}, {})]


def test_a_default_of_another_kind_is_another_one() -> None:
    one, true = (replaced(TABLE, 8, default=value) for value in (1, True))
    assert [d.after for d in compare_tables(one, true)] == [{"default": True}]
    assert compare_tables(replaced(TABLE, 8, default=[1]), replaced(TABLE, 8, default=[1.0]))


def test_the_order_of_fields_is_compared_for_those_that_both_have() -> None:
    whole = TABLE.with_indexes(())
    fewer = whole.with_fields(tuple(f for f in TABLE.fields if f.number != 9))
    assert [d.part for d in compare_tables(whole, fewer)] == ["field"]
    (turned,) = compare_tables(fewer, fewer.with_fields(fewer.fields[::-1]))
    names = [f.name for f in fewer.fields]
    assert (turned.before, turned.after) == (
        {"order of fields": names},
        {"order of fields": names[::-1]},
    )


def test_what_is_archived_is_compared() -> None:
    more = dataclasses.replace(
        TABLE, archived=(*TABLE.archived, ArchivedField(Field(77, "tel", String()), 9))
    )
    assert summary(TABLE, more) == [
        ("archived field", 77, "tel", "added", {}, {"name": "tel", "by": 9})
    ]
