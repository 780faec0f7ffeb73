"""Who changed what, and when: `db.audit`, `zapdb_audit` in SQL."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.contract.stored_pasts import begin, flush, read_manifest
from tests.contract.tables import ADD_COLOR, ITEMS, RENAME_SIZE
from tests.contract.test_history_erased import make_people
from tests.support import Workspace
from zapdb.database import Database
from zapdb.errors import ChangesPruned, HistoryGap, UnknownField, UnknownName, UsageError
from zapdb.past.reading import stored_audit
from zapdb.past.reading.audit import iterate_audit
from zapdb.sql import (
    past_relations as sql_audit,
)


def told(entries: Any) -> list[tuple[Any, ...]]:
    return [
        (one.operation, one.table, one.key, one.fields, values(one.before), values(one.after))
        for one in entries
    ]


def values(record: Any) -> Any:
    return None if record is None else record.title


@pytest.fixture
def db(workspace: Workspace) -> Database:
    """Items that were changed before and after a renaming of a field and of their table."""
    workspace.write(1, ITEMS)
    db = workspace.open()
    db.admin.set_setting("change_log", "on")
    items = db.table("items")
    with db.transaction() as tx:
        tx.table("items").insert(id=1, title="Milk", size=1)
        tx.table("items").insert(id=2, title="Bread", size=2)
    items.update(1, size=10)
    items.update(2, title="Rye")
    workspace.write(
        2,
        RENAME_SIZE,
        "rename_table: {table: items, to: goods}",
        ADD_COLOR.replace("items", "goods"),
    )
    db.close()
    db = workspace.open()
    db.table("goods").update(1, extent=11)
    db.table("goods").delete(2)
    return db


def test_changes_are_told_newest_first_by_table_and_field(db: Database) -> None:
    every = list(db.audit())
    records = [one for one in every if one.operation in ("insert", "update", "delete")]
    new = ("id", "title", "extent", "note", "color")
    assert told(records) == [
        ("delete", "goods", (2,), new, "Rye", None),
        ("update", "goods", (1,), ("extent",), "Milk", "Milk"),
        ("update", "items", (2,), ("title",), "Bread", "Rye"),
        ("update", "items", (1,), ("size",), "Milk", "Milk"),
        ("insert", "items", (2,), ("id", "title", "size", "note"), None, "Bread"),
        ("insert", "items", (1,), ("id", "title", "size", "note"), None, "Milk"),
    ]
    assert {"activation", "change", "change_log_on"} <= {one.operation for one in every}
    numbers = [one.moment.number for one in every]
    assert numbers == sorted(numbers, reverse=True)
    assert numbers[-1] > 0
    moments = {moment.number: moment for moment in db.moments()}
    for one in every:
        assert one.made_at == moments[one.moment.number].made_at
        assert one.principal == moments[one.moment.number].principal

    for name in ("size", "extent"):
        sizes = list(db.audit(table="goods", field=name))
        assert [one.key for one in sizes] == [(2,), (1,), (1,), (2,), (1,)]
    # A table and a field are meant by any name that they had.
    assert told(db.audit(table="items")) == told(db.audit(table="goods"))
    assert len(list(db.audit(table="items"))) == len(records) + 1
    updated = records[1]
    assert [*db.audit(since=updated.moment.number - 1, until=updated.moment)] == [updated]
    assert list(db.audit(principal="nobody")) == []
    assert next(db.audit(principal=updated.principal, field="title")) == records[0]
    with pytest.raises(UnknownField, match="titel"):
        list(db.audit(field="titel"))
    with pytest.raises(UnknownName, match="did you mean 'goods'"):
        list(db.audit(table="good"))


def test_a_name_means_the_table_that_has_it_and_dropped_ones(
    workspace: Workspace, tmp_path: Path
) -> None:
    """In the log, and in files behind it, which know tables by their numbers."""
    workspace.write(1, ITEMS)
    db = workspace.open()
    db.admin.set_setting("change_log", "on")
    db.table("items").insert(id=1, title="Milk")
    begin(db, tmp_path / "store")
    db.table("items").update(1, title="Bread")
    db.close()
    workspace.write(2, "drop_table: {table: items, records: archive}", ITEMS)
    db = workspace.open()
    db.table("items").insert(id=2, title="Salt")
    db.table("items").update(2, title="Rice")
    flush(db)
    every, named = told(db.audit()), told(db.audit(table="items"))
    assert [one[4:] for one in named if one[2]] == [
        *[("Salt", "Rice"), (None, "Salt")],
        *[("Milk", "Bread"), (None, "Milk")],
    ]
    moments = [moment.number for moment in db.moments(table="items")]
    assert len(moments) == 5
    db.change_log.prune(db.change_log.end())  # files lack the first moment
    assert told(db.audit(since=moments[2])) == every[:2]
    assert told(db.audit(table="items", field="title")) == [one for one in named if one[2]][:3]
    assert [moment.number for moment in db.moments(table="items")] == moments[:4]


def test_files_tell_the_same_from_the_first_moment_that_was_not_purged(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of all kinds, in two eras. What there was before a change of that moment is gone."""
    monkeypatch.setattr(stored_audit, "WINDOW_MOMENTS", 1)
    db = make_people(workspace, tmp_path / "store")
    store, eras, files = read_manifest(db)
    assert {file.kind for file in files} >= {"checkpoint", "ended", "segment"}

    def tell(since: int | None = store.begins) -> list[tuple[Any, ...]]:
        return [
            (
                *(one.moment.number, one.principal, one.made_at, one.operation, one.key),
                *(one.fields, *(None if r is None else r.name for r in (one.before, one.after))),
            )
            for one in db.audit(since=since, table="people")
        ]

    wanted = tell()
    assert len(wanted) > 15
    db.change_log.prune(db.change_log.end())
    assert tell() == wanted
    kept = eras[-1].first_moment + 1
    db.history.purge(kept)
    flush(db)
    db.change_log.prune(db.change_log.end())
    assert tell(None) == [one for one in wanted if one[0] > kept]


def test_sql_tells_the_same(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql_audit, "BATCH_ROWS", 3)
    columns = "moment, made_at, principal, table_name, operation, field, before, after"
    rows = db.sql(f"SELECT {columns} FROM zapdb_audit ORDER BY moment").fetchall()
    entries = [*db.audit()]
    assert len(rows) == sum(max(1, len(one.fields)) for one in entries)
    assert {row[:5] for row in rows} == {
        (one.moment.number, one.made_at, one.principal, one.table, one.operation) for one in entries
    }
    assert db.sql(
        "SELECT field, before, after FROM zapdb_audit"
        " WHERE operation = 'update' AND key = '[1]' ORDER BY moment"
    ).fetchall() == [("size", 1, 10), ("extent", 10, 11)]
    deleted = "SELECT before, after FROM zapdb_audit WHERE operation = 'delete' AND field = 'title'"
    assert db.sql(deleted).fetchall() == [("Rye", None)]
    assert db.sql(
        "SELECT table_name, count(DISTINCT key) FROM zapdb_audit WHERE key IS NOT NULL"
        " GROUP BY 1 ORDER BY 1"
    ).fetchall() == [("goods", 2), ("items", 2)]
    with db.transaction() as tx, pytest.raises(UsageError, match="inside a writing transaction"):
        tx.sql("SELECT 1 FROM zapdb_audit")
    with db.snapshot() as snap:
        assert len(snap.sql("SELECT 1 FROM zapdb_audit")) == len(rows)


def test_each_tenant_has_its_own(workspace: Workspace) -> None:
    workspace.write(
        1,
        ITEMS,
        "create_table: {table: days, key: [day], fields: [{name: title, type: string},"
        " {name: day, type: date}]}",
    )
    db = workspace.open()
    db.admin.set_setting("change_log", "on")
    db.admin.create_tenant("other")
    db.table("items").insert(id=1, title="Milk", note="fresh")
    db.for_tenant("other").table("items").insert(id=9, title="Nail")
    for note in ("long", None):
        db.for_tenant("other").table("items").update(9, note=note)
    keys = {
        name: {one.key for one in db.for_tenant(name).audit(table="items", field="title")}
        for name in ("default", "other")
    }
    assert keys == {"default": {(1,)}, "other": {(9,)}}
    # From null, and back.
    notes = [one.fields for one in db.for_tenant("other").audit(table="items", field="note")]
    assert notes[:2] == [("note",), ("note",)]
    told_in_sql = "SELECT DISTINCT key FROM zapdb_audit WHERE key IS NOT NULL"
    assert db.for_tenant("other").sql(told_in_sql).fetchall() == [([9],)]
    db.table("days").insert(title="A day", day=date(2026, 1, 31))  # whose key stands last
    told_in_sql += " AND table_name = 'days'"
    assert db.sql(told_in_sql).fetchall() == [(["2026-01-31"],)]


@pytest.mark.on_each_engine
def test_a_record_of_dropped_tables_is_told(workspace: Workspace, tmp_path: Path) -> None:
    """By the name that they had, from the log and from files, and in front of the table that has
    the name now. Keys of another form are none of the record's."""
    days = "create_table: {table: items, key: [day], fields: [{name: day, type: date}]}"
    drop = "drop_table: {table: items, records: discard}"
    workspace.write(1, ITEMS)
    db = workspace.open()
    db.admin.set_setting("change_log", "on")
    begin(db, tmp_path)
    old = db.table("items")
    old.insert(id=1, title="Milk")
    old.insert(id=2, title="Salt")
    old.delete(2)
    flush(db)
    workspace.write(2, drop)
    db.close()
    db = workspace.open()
    with pytest.raises(UnknownName):
        db.table("items")
    assert biography(db.versions("items", 1)) == [("insert", "Milk"), ("drop", None)]
    assert biography(db.versions("items", 2)) == [("insert", "Salt"), ("delete", None)]
    assert db.versions("items", 3) == []
    with pytest.raises(UsageError, match="these are not the fields of the key"):
        db.versions("items", 1, 2)
    with pytest.raises(UnknownName):
        db.versions("itms", 1)
    for number, operation in enumerate((days, drop, ITEMS), start=3):
        workspace.write(number, operation)
    db.close()
    db = workspace.open()
    db.table("items").insert(id=1, title="Rice")
    flush(db)
    every = [("insert", "Milk"), ("drop", None), ("insert", "Rice")]
    assert biography(db.table("items").history(1)) == every
    assert biography(db.table("items").history(id=1)) == every
    for found in (db.versions("items", 1), db.table("items").history(1)):
        first, dropped, last = found
        assert (first.until, last.until) == (dropped.since, None)
        assert (dropped.until, dropped.fields) == (None, ("id", "title", "size", "note"))
        assert None not in (dropped.principal, dropped.made_at)
    db.change_log.prune(db.change_log.end())
    found = db.versions("items", 1)
    assert [one.operation for one in found] == ["insert", "drop", "insert"]
    assert found[1].since.number == dropped.since.number
    with pytest.raises(UsageError, match="these are not the fields of the key"):
        db.table("items").history(1, 2)


@pytest.mark.on_each_engine
def test_what_is_pruned_while_it_is_told_does_not_end_it_in_silence(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outside of a snapshot, moments and changes are read page by page, one beside the other."""
    monkeypatch.setattr("zapdb.log.followed_moments.FOLLOWED_PAGE", 3)
    workspace.write(1, ITEMS)
    db = workspace.open()
    db.admin.set_setting("change_log", "on")
    for n in range(20):
        db.table("items").insert(id=n, title=f"t{n}")
    every = len(list(iterate_audit(db._session)))
    entries = iterate_audit(db._session)
    assert next(entries) is not None
    db.change_log.prune(db.change_log.end())
    try:
        told = 1 + len(list(entries))
    except ChangesPruned:
        return
    assert told == every
    assert workspace.engine == "postgresql"  # where they may all have one stamp


def biography(versions: Any) -> list[tuple[str, Any]]:
    return [(one.operation, values(one.record)) for one in versions]


@pytest.mark.on_each_engine
def test_with_the_change_log_off_nothing_to_tell_is_refused(workspace: Workspace) -> None:
    """Whether something was changed is not known; what was recorded earlier is told."""
    workspace.write(1, ITEMS, ITEMS.replace("items", "quiet"))
    db = workspace.open()
    db.admin.create_tenant("other")
    db.table("quiet").insert(id=1, title="Milk")
    refuse_all(db, "items", 1)
    refuse_all(db.for_tenant("other"), None, 1)
    with pytest.raises(HistoryGap, match="the change log is off"):
        db.sql("SELECT count(*) FROM zapdb_audit").fetchall()
    for one in (db, db.for_tenant("other")):
        for at in (0, datetime.now(UTC)):
            with pytest.raises(HistoryGap, match="the change log is off"):
                one.at(at).sql("SELECT count(*) FROM zapdb_moments")
    db.admin.set_setting("change_log", "on")
    assert db.at(0).sql("SELECT count(*) FROM zapdb_moments").fetchall() == [(0,)]
    assert (list(db.moments(table="items")), db.table("items").history(1)) == ([], [])
    assert list(db.audit(principal="nobody")) == []
    before = datetime.now(UTC)
    db.table("items").insert(id=1, title="Milk")
    newest = next(db.moments())
    db.admin.set_setting("change_log", "off")
    db.table("items").update(1, title="Rice")
    told_before = db.moments(table="items"), db.audit(table="items"), db.table("items").history(1)
    assert [len(list(one)) for one in told_before] == [1, 1, 1]
    told = db.at(newest).sql("SELECT moment FROM zapdb_moments WHERE inserted = 1").fetchall()
    assert told == [(newest.number,)]
    refuse_all(db, "quiet", 1)
    refuse_all(db, None, 2, since=datetime.now(UTC))
    assert list(db.moments(until=before, since=before, table="items")) == []
    assert list(db.moments(since=newest, until=newest)) == []
    db.admin.set_setting("change_log", "on", table="quiet")  # of two tables, one
    assert list(db.moments(table="quiet", since=datetime.now(UTC))) == []
    assert list(db.audit(since=datetime.now(UTC))) == []
    assert db.sql("SELECT count(*) FROM zapdb_audit").fetchall() != [(0,)]


def refuse_all(db: Database, table: str | None, key: int, **given: Any) -> None:
    for ask in (
        lambda: list(db.moments(table=table, **given)),
        lambda: list(db.audit(table=table, **given)),
        lambda: list(db.audit(table=table, until=datetime.now(UTC), **given)),
        lambda: db.table(table or "items").history(key),
    ):
        with pytest.raises(HistoryGap, match="the change log is off") as raised:
            ask()
        assert "change_log" in str(raised.value)
