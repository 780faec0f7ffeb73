"""Writes on PostgreSQL: their round trips at the socket, and what becomes of them where
the connection is cut at any message of the protocol."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import get_args

import pytest
import sqlalchemy as sa

import zapdb
from tests import forms
from tests.cutter import Cutter, Direction
from tests.relay import COUNTING_LATENCY_SECONDS, Relay, Upstream, relay
from tests.support import Workspace, error_of, wait_until
from zapdb.database import Database
from zapdb.errors import (
    CommitUnknown,
    RecordExists,
    ReferenceViolation,
    StorageError,
    TransactionConflict,
    UniqueViolation,
    UpdateConflict,
    ZapdbError,
)

pytestmark = pytest.mark.parametrize("engine", ["postgresql"])

PLAIN = """create_table:
      table: plain
      key: [id]
      fields: [{name: id, type: integer}, {name: title, type: string}]"""
ITEMS = """create_table:
      table: items
      key: [id]
      fields:
        - {name: id, type: integer}
        - {name: title, type: string}
        - {name: size, type: integer, default: 0}"""
INDEXES = (
    "create_index: {table: items, index: by_size, fields: [{field: size}]}",
    "create_index: {table: items, index: by_title, unique: true, fields: [{field: title}]}",
)
LINES = """create_table:
      table: lines
      key: [id]
      fields:
        - {name: id, type: integer}
        - {name: item, type: reference, to: items}
        - {name: amount, type: integer, default: 1}"""
LINE_INDEX = "create_index: {table: lines, index: by_item, fields: [{field: item}]}"
REFERENCE = "add_reference: {table: lines, field: item, on_delete: cascade}"


@pytest.fixture
def filled(workspace: Workspace) -> Workspace:
    workspace.write(1, PLAIN, ITEMS, *INDEXES, LINES, LINE_INDEX, REFERENCE)
    with workspace.open() as db:
        db.table("plain").insert_many({"id": n, "title": "t"} for n in range(20))
        db.table("items").insert_many({"id": n, "title": f"t {n}", "size": n} for n in range(20))
        db.table("lines").insert_many({"id": n, "item": 19} for n in range(2))
        db.admin.run_jobs()
    return workspace


# Round trips


@pytest.fixture
def between(filled: Workspace) -> Iterator[Relay]:
    url = sa.make_url(filled.address)
    host = url.query.get("host", url.host)
    assert isinstance(host, str)
    with relay(Upstream(host, url.port or 5432)) as running:
        yield running


@pytest.fixture
def far(filled: Workspace, between: Relay) -> Iterator[Database]:
    url = sa.make_url(filled.address).difference_update_query(["host", "port"])
    address = url.set(host="127.0.0.1", port=between.port).render_as_string(hide_password=False)
    with zapdb.open(address, migrations=filled.directory) as db:
        between.delay(COUNTING_LATENCY_SECONDS)
        yield db
        between.delay(0)


def in_transaction(db: Database, first: int, count: int) -> None:
    with db.transaction() as tx:
        for at in range(first, first + count):
            tx.table("items").insert(id=at, title=f"tx {at}", size=at)


def test_a_write_takes_as_many_round_trips_as_it_has_questions(
    far: Database, between: Relay
) -> None:
    plain, items, lines = far.table("plain"), far.table("items"), far.table("lines")
    new = itertools.count(1000)

    def insert_many() -> object:
        return lines.insert_many({"id": next(new), "item": n % 19} for n in range(100))

    def swap() -> Callable[[], object]:
        seen = items.get(3)
        return lambda: items.update(3, if_unchanged=seen, size=seen.size + 1)

    def count(act: Callable[[], object]) -> int:
        between.count_trips()
        act()
        return between.count_trips()

    def once(act: Callable[[], object]) -> Callable[[], Callable[[], object]]:
        return lambda: act

    operations: list[tuple[str, int, Callable[[], Callable[[], object]]]] = [
        ("insert", 1, once(lambda: plain.insert(id=next(new), title="x"))),
        ("with two indexes", 1, once(lambda: items.insert(id=next(new), title=f"n {next(new)}"))),
        ("with a reference", 1, once(lambda: lines.insert(id=next(new), item=3))),
        ("update", 2, once(lambda: items.update(3, size=next(new), title=f"u {next(new)}"))),
        ("update if unchanged", 1, swap),
        ("upsert of a new one", 2, once(lambda: plain.upsert(id=next(new), title="x"))),
        ("upsert", 2, once(lambda: items.upsert(id=3, size=next(new), title="t 3"))),
        ("delete", 2, lambda: partial(plain.delete, plain.insert(id=next(new), title="x").id)),
        ("delete where one level refers", 3, lambda: _delete_item(far, next(new))),
        ("transaction of 5 inserts", 6, once(lambda: in_transaction(far, next(new) * 10, 5))),
        ("insert many", 1, once(insert_many)),
        ("get", 1, once(lambda: items.get(3))),
        ("page of a query", 1, once(lambda: list(items.where(items["size"] > 5).limit(5)))),
    ]
    counted = {}
    for title, trips, prepare in operations:
        for _ in range(3):  # connections are made, and statements prepared
            prepare()()
        # Those of the database's own threads count, too, and may last for several operations.
        counted[title] = min(count(prepare()) for _ in range(3))
        for _ in range(30):
            if counted[title] > trips:
                counted[title] = min(counted[title], count(prepare()))
    assert counted == {title: trips for title, trips, _ in operations}


def _delete_item(db: Database, at: int) -> Callable[[], object]:
    item = db.table("items").insert(id=at, title=f"d {at}").id
    db.table("lines").insert(id=at, item=item)
    return lambda: db.table("items").delete(item)


def test_a_refused_write_is_explained_behind_the_rollback(far: Database) -> None:
    items, lines = far.table("items"), far.table("lines")
    errors = [
        (lambda: items.insert(id=3, title="x"), RecordExists),
        (lambda: items.insert(id=50, title="t 4"), UniqueViolation),
        (lambda: items.update(3, title="t 4"), UniqueViolation),
        (lambda: lines.insert(id=50, item=999), ReferenceViolation),
        (lambda: lines.insert_many([{"id": 50, "item": 1}, {"id": 51, "item": 999}]),
         ReferenceViolation),
        (lambda: items.insert_many([{"id": n, "title": "same"} for n in (50, 51)]),
         UniqueViolation),
        (lambda: items.insert_many([{"id": 50, "title": t} for t in "ab"]), RecordExists),
    ]  # fmt: skip
    for act, kind in errors:
        assert type(error_of(act)) is kind
        with far.transaction():  # and where it is a part of one
            assert type(error_of(act)) is kind
            items.update(5, size=items.get(5).size + 1)
    assert items.get(5).size == 5 + len(errors)
    assert {(r.id, r.title) for r in items.scan()} == {(n, f"t {n}") for n in range(20)}
    seen = items.get(3)
    items.update(3, size=77)
    assert isinstance(error_of(lambda: items.update(3, if_unchanged=seen, size=1)), UpdateConflict)
    assert items.get(3).size == 77
    assert far.admin.verify()[0].records == 20


# Cuts


@pytest.fixture
def cutter(filled: Workspace) -> Iterator[Cutter]:
    made = Cutter(filled.address)
    yield made
    made.close()


def content(db: Database) -> list[object]:
    return [
        [(r.id, r.title, r.size) for r in db.table("items").scan()],
        [(r.id, r.item, r.amount) for r in db.table("lines").scan()],
    ]


def restore(db: Database) -> None:
    with db.transaction():
        db.table("lines").delete_many(range(100))
        db.table("items").delete_many(range(100))
        rows = [{"id": n, "title": f"t {n}", "size": n} for n in range(20)]
        db.table("items").insert_many(rows)
        db.table("lines").insert_many({"id": n, "item": 19} for n in range(2))


def wait_until_answered(place: Workspace, cutter: Cutter) -> None:
    """A COMMIT that the server has got takes effect, however late it comes to it."""
    are_gone = "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = ANY (?)"
    cut = cutter.cut_sessions
    wait_until(lambda: place.execute(are_gone, (cut,)) == [(True,)], "it has done what it got")


def in_one(db: Database) -> object:
    with db.transaction() as tx:
        tx.table("items").insert(id=50, title="outer", size=1)
        tx.table("items").update(3, size=30)
    return None


WRITES: dict[str, Callable[[Database], object]] = {
    "insert": lambda db: db.table("items").insert(id=50, title="new", size=5),
    "update": lambda db: db.table("items").update(3, size=30, title="other"),
    "upsert": lambda db: db.table("items").upsert(id=3, title="other", size=31),
    "delete": lambda db: db.table("items").delete(19),
    "insert_many": lambda db: db.table("lines").insert_many(
        {"id": n, "item": 4} for n in range(50, 60)
    ),
    "transaction": in_one,
}


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("direction", get_args(Direction))
def test_rule_15_a_write_is_there_or_not_wherever_its_messages_are_cut(
    filled: Workspace, cutter: Cutter, name: str, direction: Direction
) -> None:
    act, watch = WRITES[name], filled.open()
    before, seen = content(watch), set[type[ZapdbError] | None]()
    with zapdb.open(cutter.address, migrations=filled.directory) as db:
        act(db)
        after = content(watch)
        assert after != before
        restore(watch)
        cutter.arm(direction, 0)
        act(db)
        last = cutter.seen
        restore(watch)
        for at in range(last, 0, -1 if forms.is_long else -3):
            db.table("items").get(2)  # connects again: what is cut is the write
            cutter.arm(direction, at)
            error = error_of(lambda: act(db))
            where = (name, direction, at)
            wait_until_answered(filled, cutter)
            now = content(watch)
            assert now in (before, after), (where, "it was done in part")
            if error is None:
                assert now == after, (where, "it was said to be done")
            elif not isinstance(error, CommitUnknown):
                assert now == before, (where, error)
            # Only a block without a token can't find out; and only once its COMMIT was on its way.
            if isinstance(error, CommitUnknown):
                assert name == "transaction", where
                assert at > last - 4, where
            seen.add(type(error) if error is not None else None)
            cutter.arm(direction, 0)
            if now != before:
                restore(watch)
        assert db.table("items").get(2).title == "t 2"
    # A block can't be run again by itself.
    told = {TransactionConflict, StorageError, CommitUnknown} if name == "transaction" else set()
    assert seen <= {None} | told
    assert all(report.problem_count == 0 for report in watch.admin.verify())
