"""Mirrors follow changes of schemas in place, and find what others changed."""

from __future__ import annotations

import re
import time
from contextlib import closing
from datetime import UTC, datetime

import pytest

from tests.contract.mirrors import Place, check, in_pairs, keep, place
from tests.contract.tables import ADD_COLOR, DROP_NOTE, ITEMS
from tests.support import Workspace, wait_until
from zapdb.activation.rollback import roll_back
from zapdb.database import Database
from zapdb.transfer.mirror import postgresql_target
from zapdb.transfer.mirror.duckdb_target import DuckdbSession
from zapdb.transfer.mirror.mirror import Mirror
from zapdb.transfer.mirror.mirror_run import run_mirror
from zapdb.transfer.mirror.mirror_status import MirrorTableStatus, read_mirror_status
from zapdb.transfer.mirror.postgresql_target import PostgresqlSession
from zapdb.transfer.mirror.sqlite_target import SqliteSession
from zapdb.transfer.mirror.target_opening import open_target

__all__ = ["place"]

PRICE = """\
transform: {table: items, from: {size: integer}, into: {size: string, half: integer},
      up: {size: "join(' ', 'size', text(size))", half: "size * 2"},
      down: {size: "half"}, reversibility: lossy, because: a test}"""
TYPE = """\
change_type: {table: items, field: size, type: string, default: "0",
      up: "text(size)", down: "integer(size, else=0)"}"""
COMPUTED = """\
add_field: {table: items, field: {name: twice, type: integer}, fill: {expression: size + size}}"""
SWAP = (
    "rename_field: {table: items, field: title, to: spare}",
    "rename_field: {table: items, field: twice, to: title}",
    "rename_field: {table: items, field: spare, to: twice}",
)
STEPS: list[tuple[str, ...]] = [
    (ADD_COLOR,),
    (COMPUTED,),
    SWAP,
    (TYPE,),
    (DROP_NOTE, "rename_field: {table: items, field: size, to: extent}"),
    ("rename_table: {table: items, to: things}",),
]


def start(workspace: Workspace, count: int = 10) -> Database:
    workspace.write(1, ITEMS)
    db = workspace.open()
    db.table("items").insert_many(
        {"id": at, "title": f"t{at}", "size": at, "note": "n"} for at in range(count)
    )
    return db


def reopen(workspace: Workspace, db: Database, number: int, *operations: str) -> Database:
    workspace.write(number, *operations)
    db.close()
    return workspace.open()


def read_status(db: Database, place: Place) -> tuple[MirrorTableStatus, ...]:
    with closing(open_target(place.address, db._storage)) as target:
        return read_mirror_status(db, target).tables


def problems_of(db: Database, place: Place) -> dict[str, str]:
    return {table.name: table.problem for table in read_status(db, place)}


@in_pairs
def test_columns_are_altered_in_place(
    workspace: Workspace, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind in (PostgresqlSession, SqliteSession, DuckdbSession):
        monkeypatch.setattr(kind, "page_rows", 3)
    db = start(workspace)
    keep(db, place)
    if place.kind != "duckdb":  # whose views are not altered with their tables
        place.execute("CREATE VIEW shown AS SELECT id, title FROM items")
    for number, operations in enumerate(STEPS, 2):
        db.table("items").delete(number)  # by the older schema
        if number <= 6:
            db.table("items").update(0, note=f"before {number}")
        db = reopen(workspace, db, number, *operations)
        table = db.table(db.tables[0])
        table.update(1, color="by the newer schema")
        done = keep(db, place).report
        assert (done.made, done.broken, done.altered) == ([], [], [db.tables[0]]), operations
        if place.kind != "duckdb":
            assert len(place.execute("SELECT * FROM shown")) == db.table(db.tables[0]).count()
            place.execute("DROP VIEW shown")
            check(db, place)
            place.execute(f"CREATE VIEW shown AS SELECT id, title FROM {db.tables[0]}")
        else:
            check(db, place)


@in_pairs
def test_a_mirror_follows_several_schemas_and_a_rollback_at_once(
    workspace: Workspace, place: Place
) -> None:
    db = start(workspace)
    keep(db, place)
    for number, operations in enumerate(STEPS[:4], 2):
        db = reopen(workspace, db, number, *operations)
        items = db.table("items")
        items.delete(number)
        items.update(0, note=f"of schema {number}")
    done = keep(db, place).report
    assert (done.made, done.broken, done.altered) == ([], [], ["items"])
    check(db, place)
    db.close()
    workspace.remove(5)
    roll_back(workspace.connect())
    db = workspace.open()
    db.table("items").update(1, color="blue")
    done = keep(db, place).report
    assert (done.made, done.broken, done.altered) == ([], [], ["items"])
    check(db, place)


@pytest.mark.parametrize("place", ["sqlite", "postgresql"], indirect=True)
@pytest.mark.parametrize("engine", ["sqlite"])
def test_a_view_in_the_way_is_named_and_other_tables_go_on(
    workspace: Workspace, place: Place
) -> None:
    db = start(workspace)
    db = reopen(workspace, db, 2, ITEMS.replace("table: items", "table: more"))
    keep(db, place)
    place.execute("CREATE VIEW noted AS SELECT id, note FROM items")
    db = reopen(workspace, db, 3, DROP_NOTE)
    db.table("items").insert(id=50, title="later")
    db.table("more").insert(id=1, title="goes on")
    keep(db, place)
    assert place.execute("SELECT title FROM more") == [("goes on",)]
    found = problems_of(db, place)
    assert "noted" in found["items"]
    assert found["more"] == ""
    place.execute("DROP VIEW noted")
    keep(db, place)
    check(db, place)
    assert problems_of(db, place) == {"items": "", "more": ""}


@in_pairs
def test_values_that_others_changed_are_found_and_repaired(
    workspace: Workspace, place: Place
) -> None:
    db = start(workspace, 5_000)
    keep(db, place)
    with closing(open_target(place.address, db._storage)) as target:
        running = Mirror(db, target)
        run_mirror(running, once=True)
        if place.kind == "duckdb":
            target.close()
        place.execute("UPDATE items SET title = 'mine' WHERE id IN (3, 4999)")
        place.execute("DELETE FROM items WHERE id = 2500")
        place.execute("INSERT INTO items (id, title, size) VALUES (7000, 'foreign', 0)")
        place.execute("UPDATE items SET note = NULL WHERE id = 5")
        db.table("items").update(3, title="by zapdb")
        db.table("items").delete(6)
        if place.kind == "postgresql":
            running.target._is_touched = True
        run_mirror(running, once=True)
        assert running.report.made == []
        assert running.report.repaired == 4  # the row of the change is written by that
    check(db, place)


@in_pairs
def test_writes_of_others_are_seen_and_its_own_are_not(
    workspace: Workspace, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgresql_target, "SETTLES_SECONDS", 0.0)
    db = start(workspace)
    with closing(open_target(place.address, db._storage)) as target:
        running = Mirror(db, target)
        running.switch_on()

        def look() -> bool:
            target.look()
            return target.was_touched()

        for number in range(3):
            db.table("items").update(number, title="by zapdb")
            run_mirror(running, once=True)
        for _ in range(3):
            assert not look()
            time.sleep(0.6)  # a server process reports what it wrote after a second
        place.execute("UPDATE items SET title = 'mine' WHERE id = 3")
        wait_until(look, "the write was seen")


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
@pytest.mark.parametrize("engine", ["sqlite"])
def test_rows_are_compared_when_that_was_long_ago(workspace: Workspace, place: Place) -> None:
    db = start(workspace)
    keep(db, place)
    place.execute("UPDATE items SET title = 'mine' WHERE id = 3")
    assert keep(db, place).report.repaired == 0  # while no mirror ran
    ((state,),) = place.execute("SELECT state FROM zapdb_mirror_tables")
    older = re.sub(r'"checked_at":\d+', '"checked_at":1', state)
    assert older != state
    place.execute(f"UPDATE zapdb_mirror_tables SET state = '{older}'")
    assert keep(db, place).report.repaired == 1
    check(db, place)
    compared_at = read_status(db, place)[0].checked_at
    assert compared_at is not None
    assert compared_at > datetime(2000, 1, 1, tzinfo=UTC)
