"""Operations on several records, or on one that may or may not be there or be as it was.

Each in a process that works with what is in force, and in one that works with an older shape; and
outside of a transaction as well as inside one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any

import pytest

from tests.contract.tables import ADD_COLOR, INDEX_SIZE, ITEMS, RENAME_SIZE
from tests.lookups import find
from tests.support import GUARD_SECONDS, Workspace, error_of
from zapdb import etag
from zapdb.database import Database, Table
from zapdb.errors import (
    InvalidValue,
    RecordNotFound,
    ReferenceViolation,
    TransactionConflict,
    UniqueViolation,
    UnknownField,
    UpdateConflict,
    UsageError,
)
from zapdb.records import asdict, replace

LINES = """\
create_table: {table: lines, key: [order, name], fields: [
      {name: order, type: integer}, {name: name, type: string}, {name: count, type: integer}]}"""
NOTES = """\
create_table: {table: notes, key: [id], fields: [
      {name: id, type: uuid, generated: true}, {name: text, type: string, optional: true}]}"""
BOXES = """\
create_table: {table: boxes, key: [id], fields: [
      {name: id, type: integer}, {name: inside, type: reference, to: boxes, optional: true}]}"""
INDEX_INSIDE = "create_index: {table: boxes, index: by_inside, fields: [{field: inside}]}"
INSIDE = "add_reference: {table: boxes, field: inside, on_delete: restrict}"
UNIQUE_TITLE = """\
create_index: {table: items, index: by_title, unique: true, fields: [{field: title}]}"""
COUNT = 1_203
"""More than two statements fetch."""


@pytest.fixture(params=["in_force", "older"])
def db(workspace: Workspace, request: pytest.FixtureRequest) -> Database:
    """Items 0 to 5; where the shape is an older one, 3 to 5 by the newer process."""
    workspace.write(1, ITEMS, INDEX_SIZE, LINES, NOTES)
    opened = workspace.open()
    writer = opened
    for at in range(6):
        if at == 3 and request.param == "older":
            workspace.write(2, RENAME_SIZE, ADD_COLOR)
            writer = workspace.open()
        size = "size" if writer is opened else "extent"
        writer.table("items").insert(id=at, title=f"t{at}", **{size: at * 10})
    return opened


@pytest.fixture
def items(db: Database) -> Table:
    return db.table("items")


def ways(db: Database) -> list[Callable[[], AbstractContextManager]]:
    """Outside of a transaction, and in one, and in a nested one: what is written is undone."""

    @contextmanager
    def undone() -> Iterator[None]:
        with suppress(ZeroDivisionError), db.transaction():
            yield
            raise ZeroDivisionError

    return [undone, db.transaction, nullcontext]


def assert_clean(db: Database) -> None:
    for report in db.admin.verify():
        assert report.problems == ()


# get_many, exists


@pytest.mark.on_each_engine
def test_many_come_in_the_order_of_their_keys(db: Database, items: Table) -> None:
    for within in ways(db):
        with within():
            found = items.get_many([4, 99, 0, 4])
            assert found == [items.get(4), None, items.get(0), items.get(4)]
            assert [r and r.size for r in found] == [40, None, 0, 40]
            assert items.get_many(iter(())) == []
            assert [items.exists(at) for at in (0, 5, 6)] == [True, True, False]
    assert isinstance(error_of(lambda: items.exists(1, 2)), UsageError)
    with db.snapshot():
        before = items.get_many(range(7))
        other = threading.Thread(target=lambda: (items.update(5, size=1), items.delete(4)))
        other.start()
        other.join()
        assert items.get_many(range(7)) == before
        assert items.exists(4)
    assert not items.exists(4)


def test_many_are_fetched_some_hundred_at_a_time(db: Database, monkeypatch) -> None:
    items = db.table("items")
    items.insert_many({"id": at, "title": "x", "size": at} for at in range(6, COUNT))
    from zapdb.storage import Connection

    asked = []
    fetch_all = Connection.fetch_all

    def note_keys(connection: Connection, sql: str, *parameters: Any) -> Any:
        if "zapdb_records" in sql:
            asked.append(len(parameters[0]))
        return fetch_all(connection, sql, *parameters)

    monkeypatch.setattr(Connection, "fetch_all", note_keys)
    found = items.get_many(range(COUNT - 1, -2, -1))
    assert [r and r.id for r in found] == [*range(COUNT - 1, -1, -1), None]
    assert asked == [500, 500, 204]


def test_keys_of_several_fields_are_tuples(db: Database) -> None:
    lines = db.table("lines")
    made = lines.insert(order=1, name="a", count=3)
    assert lines.get_many([(1, "b"), (1, "a")]) == [None, made]
    assert (lines.exists(1, "a"), lines.exists(1, "b")) == (True, False)
    for wrong in (1, (1,), (1, "a", 2)):
        error = error_of(lambda key=wrong: lines.get_many([key]))
        assert isinstance(error, UsageError)
        assert error.context["key"] == "order, name"
    assert isinstance(error_of(lambda: lines.get_many([("a", 1)])), InvalidValue)


def test_rule_08_many_are_asked_again_in_a_new_shape(workspace: Workspace) -> None:
    workspace.write(1, ITEMS)
    workspace.open().table("items").insert(id=1, title="Milk")
    tool = workspace.follow().table("items")
    assert tool.get_many([1])[0].size == 0
    workspace.write(2, RENAME_SIZE, ADD_COLOR)
    workspace.open()
    assert asdict(tool.get_many([1])[0]) == {
        "id": 1, "title": "Milk", "extent": 0, "note": None, "color": "red"
    }  # fmt: skip
    assert tool.get_many([7]) == [None]
    assert tool.exists(1)


# upsert


def test_an_upsert_inserts_or_changes(db: Database, items: Table) -> None:
    for within in ways(db):
        with within():
            made = items.upsert(id=9, title="new")
            assert asdict(made) == {"id": 9, "title": "new", "size": 0, "note": None}
            changed = items.upsert(id=9, size=7)  # what is not given stays
            assert asdict(changed) == {"id": 9, "title": "new", "size": 7, "note": None}
            assert items.upsert(id=9) == changed
            assert items.upsert(id=4, title="other").size == 40
            assert (items.count(), items.get(9)) == (7, changed)
            assert [r.id for r in find(items, "by_size", 7)] == [9]
            for values, field in (
                ({"id": 8}, "items.title"),
                ({"title": "no key"}, "items.id"),
                ({"id": 5, "title": None}, "items.title"),
                ({"id": 5, "other": 1}, "other"),
            ):
                error = error_of(lambda v=values: items.upsert(**v))
                assert type(error) is (UnknownField if field == "other" else InvalidValue)
                assert error.context["field"] == field
            assert (items.get(5).title, items.count()) == ("t5", 7)
        assert items.exists(9) == (within.__name__ != "undone")
        if items.exists(9):
            items.delete(9)
    notes = db.table("notes")
    first = notes.upsert(text="a")  # its key is generated
    assert notes.upsert(text="b").id != first.id
    assert notes.upsert(id=first.id, text="c") == notes.get(first.id)
    assert notes.count() == 2
    assert_clean(db)


def test_an_upsert_names_who_is_in_the_way(workspace: Workspace) -> None:
    workspace.write(1, ITEMS, UNIQUE_TITLE)
    items = workspace.open().table("items")
    items.upsert(id=1, title="Milk")
    items.upsert(id=2, title="Bread")
    for key in (2, 3):
        error = error_of(lambda k=key: items.upsert(id=k, title="Milk"))
        assert isinstance(error, UniqueViolation)
        wanted = {"index": "by_title", "fields": "title", "key": str(key), "in_the_way": "1"}
        assert error.context | wanted == error.context
    assert (items.get(2).title, items.count()) == ("Bread", 2)


@pytest.mark.on_each_engine
def test_rule_15_upserts_of_one_key_meet(workspace: Workspace) -> None:
    """Four threads at once, again and again: none of them sees anything of the others."""
    workspace.write(1, ITEMS)
    db = workspace.open()
    items, errors, start = db.table("items"), [], threading.Barrier(4)

    def write(thread: int) -> None:
        try:
            for at in range(15):
                start.wait(timeout=GUARD_SECONDS)
                items.upsert(id=at, title=f"by {thread}")
        except Exception as error:
            start.abort()
            errors.append(error)

    threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert items.count() == 15
    assert_clean(db)


@pytest.mark.parametrize("engine", ["postgresql"])
def test_rule_15_an_upsert_in_a_transaction_that_meets_an_insert_is_a_conflict(
    workspace: Workspace,
) -> None:
    workspace.write(1, ITEMS)
    db = workspace.open()
    items = db.table("items")

    def meet() -> None:
        with db.transaction():
            assert not items.exists(1)
            other = threading.Thread(target=lambda: items.insert(id=1, title="theirs"))
            other.start()
            other.join()
            items.upsert(id=1, title="mine")

    error = error_of(meet)
    assert isinstance(error, TransactionConflict)
    assert items.get(1).title == "theirs"


def test_generated_keys_rise_as_records_are_made(workspace: Workspace) -> None:
    workspace.write(1, NOTES)
    notes = workspace.open().table("notes")
    notes.insert_many({"text": str(n)} for n in range(1_500))
    for n in range(1_500, 1_510):
        (notes.insert if n % 2 else notes.upsert)(text=str(n))
    assert [int(note.text) for note in notes.order_by("-id")] == list(range(1_509, -1, -1))


# update(if_unchanged=…)


def test_an_update_conflict_names_what_changed(db: Database, items: Table) -> None:
    for within in ways(db):
        for at in (0, 4):
            with within():
                seen = items.get(at)
                now = items.update(at, title="mine", if_unchanged=seen)
                items.update(at, title="theirs", size=7, if_unchanged=now)
                error = error_of(lambda a=at, s=seen: items.update(a, note="x", if_unchanged=s))
                assert isinstance(error, UpdateConflict)
                assert str(error) == (
                    "the record changed since it was read\n"
                    "  table: items\n"
                    f"  key: {at}\n"
                    "  changed: title, size\n"
                    "  hint: nothing was written; read the record again and decide again"
                )
                assert items.get(at).note is None
                items.update(at, title=seen.title, size=seen.size)  # the same record again
                assert items.update(at, size=8, if_unchanged=seen).size == 8
    made: list[Any] = [items.get(1), db.table("notes").insert(text="a"), {"id": 0}]
    for wrong in made:
        error = error_of(lambda w=wrong: items.update(0, size=1, if_unchanged=w))
        assert isinstance(error, UsageError)
        assert error.message == ("if_unchanged must be the record with this key, as it was read")
    seen = items.get(0)
    items.delete(0)
    gone = error_of(lambda: items.update(0, size=9, if_unchanged=seen))
    assert isinstance(gone, RecordNotFound)
    assert_clean(db)


def test_a_conversion_in_between_is_no_change(workspace: Workspace) -> None:
    workspace.write(1, ITEMS)
    older = workspace.open()
    items = older.table("items")
    items.insert(id=1, title="Milk", note="n" * 9_000)
    seen = items.get(1)
    read = "SELECT value FROM zapdb_records_1"
    (before,) = workspace.execute(read)
    workspace.write(2, ADD_COLOR)
    workspace.open().admin.run_jobs()
    (after,) = workspace.execute(read)
    assert bytes(before[0]) != bytes(after[0])
    assert items.update(1, size=3, if_unchanged=seen).size == 3
    seen = items.get(1)
    items.update(1, note="n" * 9_000)  # another blob of the same value
    assert items.update(1, size=4, if_unchanged=seen).size == 4
    seen = items.get(1)
    items.update(1, note="m" * 9_000)
    workspace.open().admin.sweep(older_than_seconds=0)  # what was seen can't be looked at any more
    error = error_of(lambda: items.update(1, size=5, if_unchanged=seen))
    assert isinstance(error, UpdateConflict)
    assert error.context["changed"] == "note"


def test_what_a_newer_process_changed_that_is_not_seen_here_is_no_change(
    workspace: Workspace,
) -> None:
    workspace.write(1, ITEMS)
    items = workspace.open().table("items")
    seen = items.insert(id=1, title="Milk")
    workspace.write(2, ADD_COLOR)
    newer = workspace.open().table("items")
    newer.update(1, color="blue")
    items.update(1, size=3, if_unchanged=seen)
    assert (newer.get(1).color, newer.get(1).size) == ("blue", 3)


def test_a_field_that_is_gone_counts_as_changed(workspace: Workspace) -> None:
    workspace.write(1, ITEMS)
    workspace.open().table("items").insert(id=1, title="Milk")
    tool = workspace.follow().table("items")
    seen = tool.get(1)
    workspace.write(2, RENAME_SIZE)
    workspace.open()
    error = error_of(lambda: tool.update(1, title="Bread", if_unchanged=seen))
    assert isinstance(error, UpdateConflict)
    assert error.context["changed"] == "size"


def test_an_etag_stands_for_the_record_as_it_was_read(db: Database, items: Table) -> None:
    for within in ways(db):
        with within():
            seen_etag = etag(items.get(0))
            assert etag(items.get(0)) == seen_etag != etag(items.get(1))
            changed = items.update(0, title="mine", if_unchanged=seen_etag)
            assert etag(changed) == etag(items.get(0)) != seen_etag
            error = error_of(lambda s=seen_etag: items.update(0, note="x", if_unchanged=s))
            assert isinstance(error, UpdateConflict)
            assert str(error) == (
                "the record changed since it was read\n"
                "  table: items\n"
                "  key: 0\n"
                "  hint: nothing was written; read the record again and decide again"
            )
            assert items.update(0, note="y", if_unchanged=etag(changed)).note == "y"
            items.update(0, note=None, title="as before")
    for wrong in ("", "x", "'; DROP TABLE zapdb_records_1 --", f"{seen_etag}A", "ä" * 22):
        assert isinstance(error_of(lambda w=wrong: items.update(0, if_unchanged=w)), InvalidValue)
    other = etag(items.get(1))
    assert isinstance(error_of(lambda: items.update(0, size=2, if_unchanged=other)), UpdateConflict)
    assert_clean(db)


def test_an_etag_is_the_same_after_a_conversion_and_a_restart(workspace: Workspace) -> None:
    workspace.write(1, ITEMS)
    older = workspace.open()
    items = older.table("items")
    items.insert(id=1, title="Milk", note="n" * 9_000)
    seen_etag = etag(items.get(1))
    workspace.write(2, ADD_COLOR)
    newer = workspace.open()
    newer.admin.run_jobs()
    assert etag(items.get(1)) == seen_etag
    newer.table("items").update(1, color="blue")  # which is not seen here
    assert (
        etag(items.update(1, note="n" * 9_000, if_unchanged=seen_etag)) == seen_etag
    )  # another blob
    now = etag(newer.table("items").get(1))
    newer.close()
    again = workspace.open().table("items")
    assert again.update(1, size=3, if_unchanged=now).size == 3
    error = error_of(lambda: items.update(1, size=4, if_unchanged=seen_etag))
    assert isinstance(error, UpdateConflict)


def test_a_record_with_other_values_is_what_was_seen_of_it(workspace: Workspace) -> None:
    workspace.write(1, ITEMS)
    items = workspace.open().table("items")
    items.insert(id=1, title="Milk", note="n" * 9_000)
    seen = items.get(1)
    other = replace(seen, title="Bread")
    assert (other.title, seen.title, other.id) == ("Bread", "Milk", 1)
    assert "not loaded" in repr(other)
    assert isinstance(error_of(lambda: items.update(1, if_unchanged=other)), UpdateConflict)
    items.update(1, title="Bread")
    assert items.update(1, title="Milk", if_unchanged=other).title == "Milk"
    error = error_of(lambda: replace(seen, titel="x"))
    assert isinstance(error, UnknownField)
    assert error.hint == "did you mean 'title'?"


# delete_many


def test_many_are_deleted_and_inserted(db: Database, items: Table) -> None:
    told: list[int] = []
    for within in ways(db):
        with within():
            assert items.delete_many([5, 99, 0, 5]) == 2
            assert items.delete_many([]) == 0
            assert [r.id for r in items.scan()] == [1, 2, 3, 4]
            assert [r.id for r in items.using("by_size")] == [1, 2, 3, 4]
            records = ({"id": at, "title": "x"} for at in (0, 5, 6, 7, 8))
            assert items.insert_many(records, batch_records=2, progress=told.append) == 5
            assert items.count() == 9
            assert items.delete_many(range(6, 9)) == 3
        assert told == [2, 4, 5]
        told.clear()

    def stop(count: int) -> None:
        raise KeyboardInterrupt

    records = ({"id": at, "title": "x"} for at in range(30, 41))
    with pytest.raises(KeyboardInterrupt):
        items.insert_many(records, batch_records=4, progress=stop)
    assert items.count() == 6 + 4
    items.insert_many({"id": at, "title": "x"} for at in range(100, COUNT))
    there = items.count()
    assert items.delete_many(iter(range(1, COUNT))) == there - 1
    assert [r.id for r in items.scan()] == [0]
    assert_clean(db)


def test_records_that_refer_to_each_other_go_together(workspace: Workspace) -> None:
    workspace.write(1, BOXES, INDEX_INSIDE, INSIDE)
    db = workspace.open()
    boxes = db.table("boxes")
    boxes.insert_many([{"id": 1}, {"id": 2, "inside": 1}, {"id": 3, "inside": 2}])
    error = error_of(lambda: boxes.delete_many([1, 2]))
    assert isinstance(error, ReferenceViolation)
    assert (error.context["key"], error.context["example"]) == ("2", "3")
    assert boxes.count() == 3
    assert boxes.delete_many([1, 2, 3]) == 3
    assert_clean(db)
