"""Calls that can't be right: each is refused by an error with a hint, and changes
nothing."""

from __future__ import annotations

import datetime
import gc
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.contract.tables import ITEMS
from tests.lookups import find
from tests.support import Workspace, dump, error_of, wait_until
from zapdb.database import Database, Table
from zapdb.errors import (
    CheckViolation,
    InvalidCursor,
    InvalidValue,
    RecordExists,
    RecordNotFound,
    ReferenceViolation,
    TransactionConflict,
    UniqueViolation,
    UnknownField,
    UnknownName,
    UpdateConflict,
    UsageError,
    ZapdbError,
)

LINES = """\
create_table: {table: lines, key: [item, position], fields: [
      {name: item, type: reference, to: items},
      {name: position, type: integer},
      {name: text, type: string, optional: true},
      {name: due, type: date, optional: true}]}"""
BY_ITEM = "create_index: {table: lines, index: by_item, fields: [{field: item}]}"
REFERS = "add_reference: {table: lines, field: item, on_delete: restrict}"
UNIQUE_TITLE = (
    "create_index: {table: items, index: one_title, unique: true, fields: [{field: title}]}"
)
BY_SIZE = "create_index: {table: items, index: by_size, fields: [{field: size}]}"
POSITIVE = 'add_check: {table: items, check: positive, expression: "size >= 0"}'


@pytest.fixture
def db(workspace: Workspace) -> Database:
    workspace.write(1, ITEMS, LINES, BY_ITEM, REFERS, UNIQUE_TITLE, BY_SIZE, POSITIVE)
    db = workspace.open()
    db.table("items").insert_many({"id": n, "title": f"Item {n}", "size": n} for n in range(9))
    db.table("lines").insert(item=1, position=1, text="a line", due=datetime.date(2026, 1, 31))
    db.admin.run_jobs()
    return db


@pytest.fixture
def items(db: Database) -> Table:
    return db.table("items")


# Bad calls, what they raise, and some of what it says; `t` is the table, `d` the database.
Call = Callable[[Database, Table], object]
CALLS: list[tuple[Call, type[ZapdbError], str]] = [
    # Names
    (lambda d, t: d.table("itmes"), UnknownName, "did you mean 'items'?"),
    (lambda d, t: d.table(""), UnknownName, "tables: items, lines"),
    (lambda d, t: d.table(None), UnknownName, "tables: items, lines"),
    (lambda d, t: d.for_tenant("defalt"), UnknownName, "did you mean 'default'?"),
    (lambda d, t: d.admin.schema_history("itmes"), UnknownName, "did you mean 'items'?"),
    (lambda d, t: d.admin.count_by_revision("itmes"), UnknownName, "did you mean 'items'?"),
    (
        lambda d, t: d.admin.set_setting("convrt", "background"),
        UnknownName,
        "did you mean 'convert'?",
    ),
    (
        lambda d, t: d.admin.set_setting("convert", "background", table="lnes"),
        UnknownName,
        "did you mean 'lines'?",
    ),
    (lambda d, t: t.using("by_sise"), UnknownName, "did you mean 'by_size'?"),
    (lambda d, t: t.insert(id=50, titel="x"), UnknownField, "did you mean 'title'?"),
    (lambda d, t: t.insert_many([{"id": 50, "titel": 1}]), UnknownField, "did you mean 'title'?"),
    (lambda d, t: t.update(1, titel="x"), UnknownField, "did you mean 'title'?"),
    (lambda d, t: t.upsert(id=1, titel="x"), UnknownField, "did you mean 'title'?"),
    (lambda d, t: t.upsert(id=50, titel="x"), UnknownField, "did you mean 'title'?"),
    (lambda d, t: t.where(t.f.titel == "x"), UnknownField, "did you mean 'title'?"),
    (lambda d, t: t["titel"], UnknownField, "did you mean 'title'?"),
    (lambda d, t: t.order_by("-titel"), UnknownField, "did you mean 'title'?"),
    (lambda d, t: t.where(t.f.size == 1).order_by("zzz"), UnknownField, "fields: id, title, size"),
    (lambda d, t: t.open(1, field="nota"), UnknownField, "did you mean 'note'?"),
    # Keys
    (lambda d, t: t.get(99), RecordNotFound, "find(), which returns None"),
    (lambda d, t: t.delete(99), RecordNotFound, "key: 99"),
    (lambda d, t: t.update(99, title="x"), RecordNotFound, "key: 99"),
    (lambda d, t: t.get(), UsageError, "give the key first, without names: (id, …)"),
    (lambda d, t: t.get(1, 2), UsageError, "key: id"),
    (lambda d, t: d.table("lines").get(1), UsageError, "key: item, position"),
    (lambda d, t: d.table("lines").get_many([1]), UsageError, "key: item, position"),
    (lambda d, t: t.get("1"), InvalidValue, "expected: an integer"),
    (lambda d, t: t.get(1.0), InvalidValue, "expected: an integer"),
    (lambda d, t: t.get(True), InvalidValue, "expected: an integer"),
    (lambda d, t: t.exists(None), InvalidValue, "field: items.id"),
    (lambda d, t: t.delete_many([1, "2"]), InvalidValue, "field: items.id"),
    (lambda d, t: t.insert(title="x"), InvalidValue, "field: items.id"),
    (lambda d, t: t.insert(id=1, title="x"), RecordExists, "use upsert() to replace it"),
    (lambda d, t: t.update(1, id=2), UsageError, "insert it under the new key"),
    # Values
    (lambda d, t: t.insert(id=50), InvalidValue, "give it a value"),
    (lambda d, t: t.insert(id=50, title=None), InvalidValue, "expected: a string"),
    (lambda d, t: t.insert(id=50, title=b"x"), InvalidValue, "got: bytes of 1 bytes"),
    (lambda d, t: t.insert(id=50, title="\ud800"), InvalidValue, "valid Unicode"),
    (lambda d, t: t.update(1, size="1"), InvalidValue, "field: items.size"),
    (lambda d, t: t.upsert(id=1, size=1.5), InvalidValue, "got: float"),
    # Comparisons
    (lambda d, t: t.where(t.f.size < "1"), InvalidValue, "expected: an integer"),
    (lambda d, t: t.where(t.f.size == 1.0), InvalidValue, "got: float"),
    (lambda d, t: t.where(t.f.title == 3), InvalidValue, "expected: a string"),
    (lambda d, t: t.where(t.f.size < None), InvalidValue, "field: items.size"),
    (lambda d, t: t.where(t.f.size.between(1, "2")), InvalidValue, "field: items.size"),
    (lambda d, t: t.where(t.f.size.in_([1, "2"])), InvalidValue, "field: items.size"),
    (lambda d, t: t.where(t.f.size.in_(1)), InvalidValue, "a list of values"),
    (lambda d, t: t.where(t.f.title.in_("ab")), InvalidValue, "a list of values"),
    (lambda d, t: t.where(t.f.title.startswith(1)), InvalidValue, "expected: a string"),
    (
        lambda d, t: t.where(t.f.size.startswith("1")),
        UsageError,
        "only strings compared by code points have prefixes",
    ),
    (lambda d, t: t.where(t.f.size.matches("1")), UsageError, "only strings have a collation"),
    (lambda d, t: t.where(t.f.size == t.f.id), UsageError, "not with a field"),
    (lambda d, t: t.where("size = 1"), UsageError, "compare a field of the table: items.f.id =="),
    (lambda d, t: t.where(1 < t.f.size < 3), UsageError, "between(low, high)"),
    (lambda d, t: t.where(not t.f.size), UsageError, "compare it"),
    (
        lambda d, t: d.table("lines").where(t.f.size == 1),
        UsageError,
        "a field of, another table",
    ),
    (
        lambda d, t: d.table("lines").where(d.table("lines").f.due < datetime.datetime(2026, 1, 1)),
        InvalidValue,
        "expected: a date",
    ),
    # Queries
    (lambda d, t: t.order_by(3), UsageError, "this is not an order: give a field or its name"),
    (lambda d, t: t.order_by("id").limit(-1), InvalidValue, "at least 0"),
    (lambda d, t: t.order_by("id").limit("3"), InvalidValue, "at least 0"),
    (lambda d, t: t.order_by("id").page(0), InvalidValue, "at least 1"),
    (lambda d, t: t.order_by("id").page(1, "no cursor"), InvalidCursor, "None for the first"),
    (
        lambda d, t: t.order_by("size").page(1, t.order_by("id").page(1).cursor),
        InvalidCursor,
        "begin again without a cursor",
    ),
    # Constraints
    (lambda d, t: t.insert(id=50, title="Item 3"), UniqueViolation, "fields: title"),
    (lambda d, t: t.update(1, title="Item 3"), UniqueViolation, "values: title='Item 3'"),
    (lambda d, t: t.update(1, size=-1), CheckViolation, "values: size=-1"),
    (lambda d, t: t.delete(1), ReferenceViolation, "referring: lines.item"),
    (
        lambda d, t: d.table("lines").insert(item=77, position=1),
        ReferenceViolation,
        "field: item\n  value: 77\n  target: items",
    ),
    (
        lambda d, t: t.update(2, size=5, if_unchanged=t.get(3)),
        UsageError,
        "pass the record that get() returned for the same key",
    ),
    # Transactions
    (lambda d, t: d.run(lambda: t.get(99)), RecordNotFound, "key: 99"),
]


NOT_IN_A_TRANSACTION = (("admin", "set_setting"), ("for_tenant",), ("admin", "schema_history"))
"""The names of calls that a transaction refuses in any case."""


def but_tokens(dumped: dict[str, Any]) -> dict[str, Any]:
    """A dump without what settles the outcome of each operation that was committed."""
    return {table: rows for table, rows in dumped.items() if table != "zapdb_commit_tokens"}


def test_bad_calls_have_a_hint_and_change_nothing(workspace: Workspace, db: Database) -> None:
    items, before = db.table("items"), dump(workspace)
    for at, (call, kind, said) in enumerate(CALLS):
        error = error_of(lambda call=call: call(db, items))
        assert type(error) is kind, (at, said, error)
        assert said in str(error), (at, said)
    assert dump(workspace) == before
    # In a transaction each of them leaves alone what was done before it.
    with db.transaction():
        items.insert(id=60, title="kept")
        for call, kind, said in CALLS:
            if call.__code__.co_names[:2] not in NOT_IN_A_TRANSACTION:
                error = error_of(lambda call=call: call(db, items))
                assert type(error) is kind, (said, error)
    assert items.get(60).title == "kept"
    items.delete(60)
    assert but_tokens(dump(workspace)) == but_tokens(before)


def test_an_update_conflict_says_what_changed(db: Database, items: Table) -> None:
    seen = items.get(1)
    items.update(1, size=7, note="theirs")
    error = error_of(lambda: items.update(1, title="mine", if_unchanged=seen))
    assert isinstance(error, UpdateConflict)
    assert error.context == {"table": "items", "key": "1", "changed": "size, note"}
    assert error.hint == "nothing was written; read the record again and decide again"
    assert items.get(1).title == "Item 1"


# Strings that would be more than strings in another language

HOSTILE = [
    "'; DROP TABLE zapdb_records_1; --",
    '"; DELETE FROM zapdb_catalog; --',
    "x' OR '1'='1",
    "items; SELECT 1",
    "\\'; --",
    "%s %(a)s %b %%",
    "? :a $1 @a",
    "{0} {name} {self.__class__}",
    "${jndi:ldap://x}",
    "__import__('os').abort()",
    "__class__",
    "_fields",
    "id\x00",
    "id'",
    "id)",
    "../../etc/passwd",
    "\u202eitems",
    "\uff07 OR 1=1",
    "*",
]


def test_hostile_values_are_values(workspace: Workspace, db: Database, items: Table) -> None:
    before = but_tokens(dump(workspace))
    for n, text in enumerate(HOSTILE, 100):
        assert items.insert(id=n, title=text, note=text).title == text
        assert items.get(n).note == text
        assert [r.id for r in items.where(items.f.title == text)] == [n]
        assert [r.id for r in items.where(items.f.note == text)] == [n]
        assert n in [r.id for r in items.where(items.f.title.startswith(text))]
        assert [r.id for r in find(items, "one_title", text)] == [n]
        assert items.where(items.f.title.in_([text]), items.f.note >= text).count() == 1
        page = items.where(items.f.note >= text).order_by("note").page(1)
        assert page.records[0].note == text
        assert items.upsert(id=n, title=text, note="x" + text).note == "x" + text
        error = error_of(lambda n=n, text=text: items.insert(id=99, title=text))
        assert isinstance(error, UniqueViolation)
        assert isinstance(error_of(lambda text=text: items.get(text)), InvalidValue)
        db.table("lines").insert(item=1, position=n, text=text)
        db.table("lines").delete(1, n)
    assert items.delete_many(range(100, 100 + len(HOSTILE))) == len(HOSTILE)
    assert but_tokens(dump(workspace)) == before


def test_hostile_names_and_cursors_are_refused(
    workspace: Workspace, db: Database, items: Table
) -> None:
    before = dump(workspace)
    for text in HOSTILE:
        acts: list[tuple[Callable[[], object], type[ZapdbError]]] = [
            (lambda t=text: db.table(t), UnknownName),
            (lambda t=text: db.admin.schema_history(t), UnknownName),
            (lambda t=text: db.admin.find_fingerprint(t, 1), UnknownName),
            (lambda t=text: db.for_tenant(t), UnknownName),
            (lambda t=text: db.admin.create_tenant(t), UsageError),
            (lambda t=text: db.admin.setting(t), UnknownName),
            (lambda t=text: db.admin.set_setting(t, t), UnknownName),
            (lambda t=text: db.admin.set_setting("convert", t), UsageError),
            (lambda t=text: db.admin.set_setting("convert", "background", table=t), UnknownName),
            (lambda t=text: items.using(t), UnknownName),
            (lambda t=text: items[t], UnknownField),
            (lambda t=text: items.order_by(t), UnknownField),
            (lambda t=text: items.order_by("-" + t), UnknownField),
            (lambda t=text: items.open(1, field=t), UnknownField),
            (lambda t=text: items.insert(id=99, title="x", **{t: 1}), UnknownField),
            (lambda t=text: items.update(1, **{t: 1}), UnknownField),
            (lambda t=text: items.upsert(id=1, **{t: 1}), UnknownField),
            (lambda t=text: items.order_by("size").page(2, t), InvalidCursor),
            (lambda t=text: items.f.title.collated(t), InvalidValue),
        ]
        for at, (act, kind) in enumerate(acts):
            assert type(error_of(act)) is kind, (text, at)
    cursor = items.order_by("size").page(2).cursor
    assert cursor is not None
    for at in range(len(cursor)):  # each bit of it matters, or does not lead elsewhere
        for other in ("A", "_"):
            changed = cursor[:at] + other + cursor[at + 1 :]
            found: list[Any] = []
            error = error_of(lambda c=changed, f=found: f.extend(items.order_by("size").page(2, c)))
            assert error is None or isinstance(error, InvalidCursor)
            assert {r.id for r in found} <= set(range(9))
    assert dump(workspace) == before


# Transactions that are left open


@pytest.mark.on_each_engine
def test_a_block_whose_thread_ends_is_undone(db: Database, items: Table) -> None:
    """It was entered by hand, and never left: it is undone when the thread lets go of it."""

    def begin() -> None:
        block = db.transaction()
        block.__enter__()
        items.insert(id=50, title="left open")

    other = threading.Thread(target=begin)
    other.start()
    other.join()
    assert not items.exists(50)
    assert items.insert(id=51, title="next").id == 51


def leave_open(db: Database, items: Table) -> list[Any]:
    """Insert record 50 in a thread that ends inside the transaction's block, which is returned."""
    blocks: list[Any] = []

    def begin() -> None:
        blocks.append(db.transaction())
        blocks[0].__enter__()
        items.insert(id=50, title="left open")

    other = threading.Thread(target=begin)
    other.start()
    other.join()
    return blocks


def test_a_block_that_is_kept_by_another_thread_is_undone(db: Database, items: Table) -> None:
    """Its thread has ended, and somebody still holds it: it does not keep all others out."""
    blocks = leave_open(db, items)
    assert not items.exists(50)
    assert items.insert(id=50, title="next").title == "next"
    assert db.run(lambda: items.get(50).title) == "next"
    with db.transaction():
        items.insert(id=51, title="mine")
        blocks.clear()  # what is left of the block is cleared away while another is open
        gc.collect()
        assert items.exists(51)
        items.insert(id=52, title="mine, too")
    assert items.get_many([51, 52]) != [None, None]


def test_leaving_a_block_whose_thread_has_ended_says_so(db: Database, items: Table) -> None:
    blocks = leave_open(db, items)
    items.insert(id=51, title="next")  # it needed the place of the other, which is undone
    error = error_of(lambda: blocks[0].__exit__(None, None, None))
    assert isinstance(error, UsageError | TransactionConflict), error
    assert not items.exists(50)
    assert items.exists(51)
    items.insert(id=52, title="goes on")


@pytest.mark.on_each_engine
def test_a_snapshot_whose_thread_ends_is_let_go(db: Database, items: Table) -> None:
    def begin() -> None:
        db.snapshot().__enter__()

    other = threading.Thread(target=begin)
    other.start()
    other.join()
    items.insert(id=50, title="x")
    assert items.exists(50)


def test_a_database_that_nobody_holds_goes_on_for_its_tables(workspace: Workspace) -> None:
    """Tables keep what they need; the process stays a node until it ends, or closes it."""
    workspace.write(1, ITEMS)
    db = workspace.open()
    items, workspace._opened = db.table("items"), [o for o in workspace._opened if o is not db]
    storage, follower, heartbeat = db._storage, db._node_context.watcher, db._heartbeat
    block = db.transaction()
    block.__enter__()
    items.insert(id=1, title="left open")
    del db
    gc.collect()
    assert items.exists(1)
    del block
    gc.collect()
    wait_until(lambda: not items.exists(1), "the transaction was undone")
    items.insert(id=1, title="goes on")
    assert heartbeat is not None
    follower.stop()
    heartbeat.stop()
    storage.close()
    assert isinstance(error_of(lambda: items.get(1)), UsageError)
