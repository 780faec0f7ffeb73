"""What reading a past costs: how much of the change log is read does not grow with how often the
records were changed since."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import sqlalchemy as sa

import zapdb
from tests.contract.tables import INDEX_SIZE, ITEMS
from tests.contract.test_changes import Hand
from tests.support import Workspace
from zapdb.database import Database
from zapdb.log import logged_before, rewound_records
from zapdb.log.logged_before import worth_holding
from zapdb.past.reading.listing import MomentSummary

RECORDS, CHANGED = 60, 3
"""Each record is changed so often first, and then ten times as often."""

READS: dict[str, Callable[[Any], object]] = {
    "scan": lambda items: len(list(items.scan())),
    "get": lambda items: items.get(7),
    "get_many": lambda items: items.get_many(range(20)),
    "exists": lambda items: items.exists(7),
    "range": lambda items: len(items.where(items.f.id >= 40).all()),
    "by an index": lambda items: items.where(size=7).all(),
    "count": lambda items: items.count(),
    "count of a range": lambda items: items.where(items.f.id < 20).count(),
    "page": lambda items: items.page(5).cursor,
    "last": lambda items: items.order_by("-id").first(),
    "sum": lambda items: items.sum("size"),
    "to_arrow": lambda items: items.to_arrow().read_all().num_rows,
}


@pytest.fixture
def db(workspace: Workspace) -> Database:
    workspace.write(1, ITEMS, INDEX_SIZE)
    db = workspace.open()
    db.admin.set_setting("change_log", "on")
    return db


@contextmanager
def counting(db: Database, work: Counter[str]) -> Iterator[None]:
    """Count the rows of the log that PostgreSQL reads, or the steps of SQLite's machine."""
    connection = db._storage.connection()
    if db._storage.dialect.name == "sqlite":

        def step() -> int:
            work["steps"] += 1
            return 0

        connection.driver.set_progress_handler(step, 10)
        try:
            yield
        finally:
            connection.driver.set_progress_handler(None, 0)
        return
    sql = (
        "SELECT seq_tup_read + coalesce(idx_tup_fetch, 0) FROM pg_stat_xact_user_tables"
        " WHERE relname = 'zapdb' || '_changes'"  # not a name of ours, to which a schema is put
    )
    (before,) = connection.fetch_one(sql)
    yield
    (after,) = connection.fetch_one(sql)
    work["rows"] += after - before


def change_all(db: Database, times: int) -> None:
    items = db.table("items")
    for number in range(times):
        items.where().update(title=f"u{number}")


def measure(db: Database, moment: MomentSummary) -> tuple[dict[str, int], dict[str, object]]:
    """How much each of the reads reads, and what."""
    found, told = dict[str, int](), dict[str, object]()
    for name, read in READS.items():
        work = Counter[str]()
        with db.snapshot():
            items = db.at(moment).table("items")
            items.get(1)
            with counting(db, work):
                told[name] = read(items)
        found[name] = work.total()
    return found, told


@pytest.mark.parametrize("pays", [1, 250])
def test_reading_does_not_grow_with_the_changes_of_a_record(
    db: Database, monkeypatch: pytest.MonkeyPatch, pays: int
) -> None:
    monkeypatch.setattr(rewound_records, "HOLDING_PAYS", pays)
    items = db.table("items")
    items.insert_many([{"id": n, "title": f"t{n}", "size": n % 20} for n in range(RECORDS)])
    moment = next(db.moments())
    items.delete_many(range(10, 20))
    items.insert_many([{"id": n, "title": "new"} for n in (12, 13, *range(70, 90))])
    change_all(db, CHANGED)
    few, told = measure(db, moment)
    change_all(db, CHANGED * 10)
    items.delete_many([12, 30])
    many, told_again = measure(db, moment)
    assert told_again == told
    assert (told["count"], told["exists"], told["to_arrow"]) == (RECORDS, True, RECORDS)
    grown = {name: (few[name], many[name]) for name in READS if many[name] > 2 * few[name] + 20}
    assert grown == {}


@pytest.mark.parametrize("pays", [1, 250])
@pytest.mark.parametrize("engine", ["postgresql"])
@pytest.mark.on_each_engine
def test_one_change_is_read_for_each_record_whatever_the_planner_knows(
    db: Database, workspace: Workspace, monkeypatch: pytest.MonkeyPatch, pays: int
) -> None:
    """A fresh log has no statistics; then it has those of records that were changed often. SQLite
    is told which index to use."""
    monkeypatch.setattr(rewound_records, "HOLDING_PAYS", pays)
    items = db.table("items")
    items.insert_many([{"id": n, "title": f"t{n}", "size": n % 20} for n in range(RECORDS)])
    moment = next(db.moments())
    change_all(db, CHANGED * 20)
    for is_analyzed in (False, True):
        if is_analyzed:
            engine = sa.create_engine(workspace.address, isolation_level="AUTOCOMMIT")
            with engine.connect() as connection:
                connection.execute(sa.text("ANALYZE"))
            engine.dispose()
        found, _ = measure(db, moment)
        assert found["scan"] <= 2 * RECORDS + 10
        assert found["get"] == found["exists"] == 1


@pytest.mark.parametrize("held", [0, 1, 2, 3, 20_000])
@pytest.mark.parametrize("engine", ["postgresql"])
@pytest.mark.on_each_engine
def test_who_inserts_what_a_younger_transaction_deleted_is_rewound_after_it(
    db: Database, monkeypatch: pytest.MonkeyPatch, held: int
) -> None:
    """Transactions have their numbers for long before they commit, and changes of a key are in the
    order of their commits."""
    monkeypatch.setattr(logged_before, "HELD_CHANGES_MAX", held)
    monkeypatch.setattr(rewound_records, "PAGE_RECORDS_MAX", 4)
    monkeypatch.setattr(rewound_records, "HOLDING_PAYS", 1)
    hands = [Hand(db) for _ in range(2)]
    long, short = hands
    try:
        db.table("items").insert(id=1, title="first")
        moments, states = [next(db.moments())], [read_all(db)]

        def note() -> None:
            moments.append(next(db.moments()))
            states.append(read_all(db))

        long.begin()
        long.do(lambda: long.items.insert(id=2, title="gets a number"))
        short.do(lambda: short.items.update(1, title="second"))
        note()
        short.do(lambda: short.items.delete(1))
        note()
        long.do(lambda: long.items.insert(id=1, title="third"))
        long.commit()
        note()
        short.do(lambda: short.items.update(1, title="fourth"))
        note()
    finally:
        for hand in hands:
            hand.stop()
    for _ in range(2):
        for moment, state in zip(moments, states, strict=True):
            past = db.at(moment).table("items")
            assert read_all(db.at(moment)) == state
            assert [zapdb.asdict(one) for one in (past.find(1), past.find(2)) if one] == state
            assert past.count() == len(state)
            assert past.to_arrow().read_all().num_rows == len(state)
            assert past.exists(1) == any(one["id"] == 1 for one in state)


def read_all(source: Any) -> list[dict[str, Any]]:
    return [zapdb.asdict(record) for record in source.table("items").scan()]


@pytest.mark.parametrize(
    ("changes", "records", "is_worth"),
    [(0, 1, True), (10, 10, True), (11, 10, False), (20_000, 10**6, True), (20_001, 10**6, False)],
)
def test_changes_are_held_if_they_are_fewer_than_the_records(
    changes: int, records: int, is_worth: bool
) -> None:
    assert worth_holding(changes, records) == is_worth
