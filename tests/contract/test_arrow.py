"""Tables as Arrow streams: all revisions as one shape, page by page, for DuckDB too."""

from __future__ import annotations

import threading
from typing import Any

import duckdb
import pytest

from tests.contract.tables import ADD_COLOR, DROP_NOTE, ITEMS
from tests.support import Workspace
from zapdb.database import Database
from zapdb.errors import InvalidValue, TransactionConflict, UnknownName, UsageError
from zapdb.limits import PAGE_RECORDS_MAX
from zapdb.records import asdict


@pytest.fixture
def db(workspace: Workspace) -> Database:
    workspace.write(1, ITEMS)
    return workspace.open()


def fill(db: Database, count: int) -> None:
    db.table("items").insert_many({"id": at, "title": f"Item {at}"} for at in range(count))


def test_rule_11_a_stream_has_all_records_in_the_current_shape(
    workspace: Workspace, db: Database
) -> None:
    fill(db, PAGE_RECORDS_MAX + 5)
    db.table("items").insert(id=-5, title="long " * 2_000, note="a")
    workspace.write(2, ADD_COLOR, DROP_NOTE)
    later = workspace.open()
    items = later.table("items")
    items.insert(id=10**6, title="New", color="blue")
    reader = items.to_arrow()
    assert reader.schema.names == list(items.field_names)
    batches = list(reader)
    assert [batch.num_rows for batch in batches] == [PAGE_RECORDS_MAX, 7]
    found = [record for batch in batches for record in batch.to_pylist()]
    assert found == [asdict(record) for record in items.scan()]
    part = items.to_arrow(["color", "id"]).read_all()
    assert part.to_pylist() == [{"id": r["id"], "color": r["color"]} for r in found]


def test_long_records_end_pages_of_joined_ones(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ARROW_PAGE_RECORDS", "PAGE_RECORDS_MAX"):
        monkeypatch.setattr(f"zapdb.tables.arrow.{name}", 10)
    workspace.write(
        1,
        "create_table: {table: notes, key: [id], fields: [{name: id, type: string},"
        " {name: text, type: json, optional: true}]}",
    )
    notes = workspace.open().table("notes")
    notes.insert_many({"id": f"{at:02}"} for at in range(45))
    notes.insert_many(
        {"id": f"{at:02}", "text": "long" * (2_100 if at in (63, 64) else at)}
        for at in range(45, 90)
    )
    batches = list(notes.to_arrow())
    assert [batch.num_rows for batch in batches] == [10] * 9
    wanted = [(record.id, None if (t := record.text) is None else f'"{t}"') for record in notes]
    assert [tuple(row.values()) for batch in batches for row in batch.to_pylist()] == wanted


def test_duckdb_reads_a_stream(db: Database) -> None:
    fill(db, 2 * PAGE_RECORDS_MAX)
    items = db.table("items").to_arrow(["id", "size"])
    found = duckdb.sql("SELECT count(*), max(id), sum(size) FROM items").fetchall()
    assert found == [(2 * PAGE_RECORDS_MAX, 2 * PAGE_RECORDS_MAX - 1, 0)]
    assert items.schema.names == ["id", "size"]


def test_names_are_checked_before_anything_is_read(db: Database) -> None:
    with pytest.raises(UnknownName, match="colour"):
        db.table("items").to_arrow(["colour"])


def test_numbers_beyond_64_bits_are_strings_on_demand(db: Database) -> None:
    items = db.table("items")
    items.insert(id=1, title="Large", size=2**70)
    with pytest.raises(InvalidValue, match="too large for its Arrow column") as caught:
        items.to_arrow().read_all()
    assert caught.value.context["key"] == "1"
    found = items.to_arrow(["size"], as_text=["size"]).read_all()
    assert found.to_pylist() == [{"size": str(2**70)}]


def test_a_stream_ends_where_the_shape_changes(workspace: Workspace, db: Database) -> None:
    fill(db, 2 * PAGE_RECORDS_MAX)
    served = db.table("items").to_arrow()
    reader = workspace.follow().table("items").to_arrow()
    for stream in (served, reader):
        stream.read_next_batch()
    workspace.write(2, ADD_COLOR)
    workspace.open()
    assert served.read_next_batch().num_rows  # the shape of its own files stays
    with pytest.raises(TransactionConflict, match="schema of the table changed"):
        reader.read_next_batch()


@pytest.mark.on_each_engine
def test_a_stream_of_a_snapshot_is_read_inside_of_it(db: Database) -> None:
    fill(db, 2 * PAGE_RECORDS_MAX)
    items = db.table("items")
    with db.snapshot():
        reader = items.to_arrow()
        reader.read_next_batch()
        writer = threading.Thread(target=items.delete, args=(2 * PAGE_RECORDS_MAX - 1,))
        writer.start()
        writer.join()
        assert items.to_arrow().read_all().num_rows == 2 * PAGE_RECORDS_MAX
        other = items.to_arrow()
        errors: list[Any] = []

        def read_elsewhere() -> None:
            with pytest.raises(UsageError) as caught:
                other.read_all()
            errors.append(caught.value)

        elsewhere = threading.Thread(target=read_elsewhere)
        elsewhere.start()
        elsewhere.join()
        assert "read outside it" in errors[0].message
    with pytest.raises(UsageError, match="read outside it"):
        reader.read_next_batch()
