"""Parts of a table that are read apart: together they are the table, each is about as large."""

from __future__ import annotations

import pyarrow
import pytest

from tests.documents import PEOPLE
from zapdb.database.key_ranges import WHOLE_TABLE, RangeQuery, plan_ranges, read_ranges
from zapdb.indexes.predicates import EVERYTHING

RECORDS = 1_000
INDEX = "create_index: {table: people, index: by_age, fields: [{field: age}]}"


@pytest.fixture
def snapshot(workspace):
    """People whose keys lie close together at first, and far apart at the end."""
    workspace.write(1, PEOPLE, INDEX)
    db = workspace.open()
    db.table("people").insert_many(
        {"id": at**3, "name": f"p{at}", "age": at % 100, "extra": None} for at in range(RECORDS)
    )
    with db.snapshot() as snap:
        yield snap


def ids(table, ranges, limit=None, where=EVERYTHING):
    batches = list(read_ranges(table, ranges, RangeQuery(where, ["id"], (), limit)))
    return pyarrow.Table.from_batches(batches).column("id").to_pylist() if batches else []


def plan(table, predicate=EVERYTHING, part_records=100, parts=None, parts_max=1_000):
    return plan_ranges(
        table, predicate, part_records=part_records, parts=parts, parts_max=parts_max
    )


@pytest.mark.parametrize(
    ("options", "sizes"),
    [
        ({"parts": 4}, [250] * 4),
        ({"parts": 3}, [334, 334, 332]),
        ({"part_records": 300}, [250] * 4),
        ({"part_records": 1, "parts_max": 5}, [200] * 5),
        ({"parts": 1}, [RECORDS]),
    ],
)
def test_parts_follow_the_distribution_of_keys(snapshot, options, sizes):
    table = snapshot.table("people")
    parts = plan(table, **options).parts
    assert [len(ids(table, part)) for part in parts] == sizes
    assert [one for part in parts for one in ids(table, part)] == [n**3 for n in range(RECORDS)]


def test_conditions_on_the_key_leave_ranges_out(snapshot):
    table = snapshot.table("people")
    where = (table.f.id >= 100**3) & (table.f.id < 300**3)
    parts = plan(table, where).parts
    assert [len(ids(table, part)) for part in parts] == [100, 100]
    assert [one for part in parts for one in ids(table, part)] == [n**3 for n in range(100, 300)]
    odd = where & (table.f.age < 50)
    found = [one for part in plan(table, odd).parts for one in ids(table, part, where=odd)]
    assert found == [n**3 for n in range(100, 300) if n % 100 < 50]
    # Many small ranges share a part.
    (part,) = plan(table, table.f.id.in_([8, 27, 64, 65])).parts
    assert len(part) == 4
    assert ids(table, part) == [8, 27, 64]


def test_an_index_is_used_where_it_finds_few(snapshot):
    table = snapshot.table("people")
    assert plan(table, table.f.age == 7).index == "by_age"
    many = plan(table, table.f.age < 50)
    assert many.index is None
    assert sum(len(ids(table, part)) for part in many.parts) == RECORDS
    assert plan(table, table.f.name == "p1").index is None


def test_a_limit_and_an_empty_table(snapshot):
    table = snapshot.table("people")
    assert ids(table, [WHOLE_TABLE], limit=3) == [0, 1, 8]
    assert ids(table, [WHOLE_TABLE], limit=0) == []
    (part,) = plan(table, table.f.id < 0).parts
    assert ids(table, part) == []
