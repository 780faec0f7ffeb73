"""Parts of a table that are read apart: together they are the table, each is about as large."""

from __future__ import annotations

import pyarrow
import pytest

from tests.documents import PEOPLE
from zapdb.storage import postgresql_dialect
from zapdb.tables.arrow import WHOLE_TABLE
from zapdb.tables.indexes.predicates import EVERYTHING
from zapdb.tables.queries.arrow_ranges import RangeQuery, plan_ranges, read_ranges

RECORDS = 1_000
MANY = 24_000
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


@pytest.mark.parametrize("engine", ["postgresql"], indirect=True)
def test_a_large_table_is_cut_by_the_keys_of_some_of_its_blocks(workspace, monkeypatch):
    monkeypatch.setattr(postgresql_dialect, "SAMPLE_BLOCKS", 100)
    workspace.write(1, PEOPLE)
    db = workspace.open()
    people = ({"id": at, "name": "p" * 50, "age": at % 100, "extra": None} for at in range(MANY))
    db.table("people").insert_many(people)
    with db.snapshot() as snap:
        table = snap.table("people")
        for where, first, end in (
            (EVERYTHING, 0, MANY),
            ((table.f.id >= 500) & (table.f.id < MANY - 500), 500, MANY - 500),
        ):
            parts = plan(table, where, parts=4).parts
            found = [ids(table, part) for part in parts]
            assert [one for part in found for one in part] == list(range(first, end))
            sizes = [len(part) for part in found]
            assert len(sizes) == 4
            assert max(abs(size - MANY / 4) for size in sizes) < MANY / 8
            assert sizes[:3] != [-(-(end - first) // 4)] * 3  # those of counted keys
        by_size = plan(table, part_records=5_000).parts
        assert len(by_size) in (4, 5, 6)
        few = plan(table, table.f.id < 1_000, parts=4).parts
        assert [len(ids(table, part)) for part in few] == [250] * 4


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
