"""Erasing the past values of fields: they are in no file and no row, and all else is as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import zapdb
from tests.contract.every_type import make_shop
from tests.contract.stored_pasts import begin, check_store, flush, read_manifest
from tests.contract.test_history_erased import (
    ANOTHER,
    DROP_NOTE,
    KEY,
    MARK,
    PHOTO,
    assert_gone,
    dump,
    kill_at_each_step,
    list_marked,
    make_people,
)
from tests.support import Workspace
from zapdb.database import Database
from zapdb.errors import HistoryBehind, HistoryDamaged, UnknownField, UsageError
from zapdb.past.files import field_erasing

Past = dict[int, dict[str, dict[str, Any]]]
OTHER = "someone@example.org"
FIELDS = ("name", "note", "photo")
ADD_SIZE = "add_field: {table: people, field: {name: size, type: string, default: XL}}"


def make_others(workspace: Workspace, directory: Path) -> Database:
    """A store like that of `make_people`, of someone who is still there, under a plain key."""
    db = make_people(workspace, directory)
    people = db.table("people")
    people.insert(mail=OTHER, name=MARK, photo=PHOTO, note=f"{MARK}-note")
    flush(db)
    people.update(OTHER, name=f"{MARK}2", photo=PHOTO + b"2")
    flush(db)
    people.update(OTHER, name="Now", photo=b"p" * 20_000, note="n")
    people.delete(KEY)
    db.history.erase("people", KEY)
    assert list_marked(directory)
    assert MARK in dump(workspace)
    return db


def read_past(db: Database, since: int, until: int) -> Past:
    found: Past = {}
    for number in range(since, until + 1):
        rows = db.at(number).table("people").scan()
        found[number] = {row.mail: {name: getattr(row, name) for name in FIELDS} for row in rows}
    return found


def without(past: Past, *keys: str) -> Past:
    """The past of records without their values: `name` was always required."""
    erased = {"name": "", "note": None, "photo": None}
    return {
        moment: {mail: erased if mail in keys else row for mail, row in rows.items()}
        for moment, rows in past.items()
    }


@pytest.mark.long_on("postgresql")
def test_h13_past_values_of_fields_are_in_no_file_and_no_row(
    workspace: Workspace, tmp_path: Path
) -> None:
    place = tmp_path / "store"
    db = make_others(workspace, place)
    began, last = read_manifest(db)[0].begins, next(db.moments()).number
    before = read_past(db, began, last)
    past = db.at(last - 3)
    assert past.table("people").get(OTHER).name == f"{MARK}2"
    with pytest.raises(UsageError, match="field of the key"):
        db.history.erase("people", OTHER, fields=["mail"])
    with pytest.raises(UnknownField):
        db.history.erase("people", OTHER, fields=["nam"])

    done = db.history.erase("people", OTHER, fields=FIELDS)
    assert (done.fields, done.records, done.changes) == (FIELDS, 1, 3)
    assert done.large_values == 2
    assert done.files_rewritten >= 1
    assert done.rows >= 1
    assert_gone(workspace, place)
    now = db.table("people").get(OTHER)
    assert (now.name, now.photo, now.note) == ("Now", b"p" * 20_000, "n")
    wanted = without(before, OTHER)
    assert read_past(db, began, last) == wanted
    assert past.table("people").get(OTHER).name == ""
    newest = next(db.moments()).number
    assert db.at(newest).table("people").get(OTHER).name == "Now"
    flush(db)
    assert read_past(db, began, last) == wanted
    named = f"SELECT name, photo FROM people WHERE mail = '{OTHER}'"
    assert db.at(newest).sql(named).fetchone() == ("Now", b"p" * 20_000)
    assert db.at(last).sql(named).fetchone() == ("", None)
    version = db.table("people").history(OTHER)[-1]
    assert (version.operation, set(version.fields)) == ("update", set(FIELDS))
    events = [one.field for one in db.change_log.read() if hasattr(one, "event")]
    assert sorted(events[-3:]) == sorted(FIELDS)
    check_store(db)
    assert db.history.verify(sample=100).problems == ()
    again = db.history.erase("people", OTHER, fields=FIELDS)
    assert again.files_rewritten >= 1  # what it had until now
    flush(db)
    assert db.history.verify(sample=100).problems == ()


@pytest.mark.long_on("postgresql")
def test_h13_fields_of_all_records_killed_at_each_step(
    workspace: Workspace, tmp_path: Path
) -> None:
    place = tmp_path / "store"
    db = make_others(workspace, place)
    began, last = read_manifest(db)[0].begins, next(db.moments()).number
    before = read_past(db, began, last)
    now = {row.mail: row.name for row in db.table("people").scan()}
    assert kill_at_each_step(workspace, "erase_fields", "people", *FIELDS, apart=9) >= 2
    assert_gone(workspace, place)
    assert "Anna0" not in str(db.at(last).sql("SELECT * FROM people").fetchall())
    assert read_past(db, began, last) == without(before, *before[last], *before[began], ANOTHER)
    assert {row.mail: row.name for row in db.table("people").scan()} == now
    flush(db)
    check_store(db)
    assert db.history.verify(sample=100).problems == ()


@pytest.mark.parametrize("engine", ["sqlite"])
def test_values_of_a_dropped_field_are_erased_when_records_are_converted(
    workspace: Workspace, tmp_path: Path
) -> None:
    place = tmp_path / "store"
    db = make_others(workspace, place)
    db.table("people").update(OTHER, note=f"{MARK}-last")
    flush(db)
    db.close()
    workspace.write(2, DROP_NOTE)
    db = workspace.open()
    with pytest.raises(UsageError, match="not converted yet"):
        db.history.erase("people", OTHER, fields=["note"])
    db.admin.run_jobs()
    with pytest.raises(HistoryBehind, match="not in the files"):
        db.history.erase("people", OTHER, fields=["note"])
    flush(db)
    done = db.history.erase("people", OTHER, fields="note")
    assert done.archived_values == 1
    assert f"{MARK}-note" not in dump(workspace)
    assert f"{MARK}-last" not in dump(workspace)
    assert db.table("people").get(OTHER).name == "Now"
    assert db.history.erase_fields("people", "name", "photo").records > 3
    assert_gone(workspace, place)
    assert db.history.verify(sample=100).problems == ()


@pytest.mark.long_on("postgresql")
@pytest.mark.parametrize("is_one", [True, False], ids=["one", "all"])
def test_h2_records_that_are_not_converted_stay_as_they_are(
    workspace: Workspace, tmp_path: Path, *, is_one: bool
) -> None:
    """What the erasure writes of them is of the table's layout, so that the store follows it."""
    place = tmp_path / "store"
    make_others(workspace, place).close()
    workspace.write(2, ADD_SIZE)
    db = workspace.open()
    flush(db)
    if is_one:
        db.history.erase("people", OTHER, fields=["name", "note", "photo"])
    else:
        db.history.erase_fields("people", "name", "note", "photo")
    assert_gone(workspace, place)
    newest = next(db.moments()).number
    now = [zapdb.asdict(row) for row in db.table("people").scan()]
    for _ in range(2):
        status = db.history.flush()
        assert (status.ends, status.lag.changes) == (next(db.moments()).number, 0)
        assert [zapdb.asdict(row) for row in db.at(newest).table("people").scan()] == now
        named = f"SELECT note, size FROM people WHERE mail = '{OTHER}'"
        assert db.at(newest).sql(named).fetchone() == ("n", "XL")
        db.table("people").update(OTHER, name="PendingRows")
    check_store(db)
    assert db.history.verify(sample=100).problems == ()


def test_a_record_takes_its_value_back_before_the_archive_loses_it(
    workspace: Workspace, tmp_path: Path
) -> None:
    make_others(workspace, tmp_path / "store").close()
    workspace.write(2, DROP_NOTE)
    db = workspace.open()
    db.admin.run_jobs()
    db.close()
    workspace.write(3, "restore_field: {table: people, field: note, archived_by: 2}")
    db = workspace.open()
    flush(db)
    count = "SELECT count(*) FROM zapdb_archives WHERE length(value) > 0"
    assert workspace.execute(count) != [(0,)]
    assert db.history.erase("people", OTHER, fields=["note"]).archived_values == 1
    assert workspace.execute(count) == [(0,)]
    assert db.table("people").get(OTHER).note == "n"
    flush(db)
    assert db.at(next(db.moments())).sql("SELECT note FROM people WHERE note <> ''").fetchall() == [
        ("n",)
    ]
    assert db.history.verify(sample=100).problems == ()


@pytest.mark.parametrize("engine", ["sqlite"])
def test_values_of_all_types_are_erased(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(field_erasing, "KEYS_PER_TRANSACTION", 50)
    db = make_shop(workspace)
    db.admin.set_setting("change_log", "on")
    began = begin(db, tmp_path / "store").begins
    orders = db.table("orders")
    schema = db._catalog.table("orders").schema
    first = next(iter(orders.scan()))
    key = tuple(getattr(first, f.name) for f in schema.key_fields)
    orders.delete(*key)
    db.close()
    workspace.write(4, "make_optional: {table: orders, field: color}")
    db = workspace.open()
    flush(db)
    names = [f.name for f in schema.value_fields]
    done = db.history.erase_fields("orders", *names)
    assert (done.fields, done.files_rewritten) == (tuple(names), 2)
    wanted = {f.name: None if f.optional else f.type.neutral() for f in schema.value_fields}
    wanted |= {f.name: "" for f in schema.value_fields if f.type.holds_null and not f.optional}
    rows = list(db.at(began).table("orders").scan())
    assert len(rows) == 120
    for row in rows:
        assert {name: getattr(row, name) for name in names} == wanted
    assert db.at(began).sql("SELECT count(*) FROM orders").fetchone() == (120,)
    flush(db)
    assert db.history.verify(sample=9).problems == ()
    assert db.history.erase_fields("orders", *names).changes > 0
    # What is damaged is not written anew as if it were whole.
    victim = next(f for f in read_manifest(db)[2] if f.rows and f.table_number == schema.number)
    there = victim.place_in(tmp_path / "store")
    there.write_bytes(b"p" + there.read_bytes()[1:])
    with pytest.raises(HistoryDamaged, match="not what was written"):
        db.history.erase_fields("orders", *names)
