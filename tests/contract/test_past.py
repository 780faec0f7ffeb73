"""The past by rewinding: what `db.at` and `db.before` answer, and what they refuse."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from pathlib import Path
from typing import Any, cast

import pytest

import zapdb
from tests.contract.tables import ADD_COLOR, DROP_NOTE, INDEX_SIZE, ITEMS, RENAME_SIZE
from tests.support import Workspace, finish
from zapdb.activation.rollback import roll_back
from zapdb.catalog import principal
from zapdb.database import Database, RecordChange
from zapdb.errors import (
    HistoryBehind,
    HistoryGap,
    HistoryNotStored,
    HistoryPurged,
    MomentInFuture,
    SqlError,
    UnknownName,
    UsageError,
)
from zapdb.jobs.archive_pruning import prune_archives
from zapdb.log import logged_before, rewound_records
from zapdb.log.change_log import Bookmark
from zapdb.log.rewound_records import RewoundStatements
from zapdb.past.reading import listing
from zapdb.values.timestamp import MICROSECOND

State = list[dict[str, Any]]
BACK = "restore_table: {table: items, archived_by: 2}"


@pytest.fixture
def db(workspace: Workspace) -> Database:
    workspace.write(1, ITEMS, INDEX_SIZE)
    db = workspace.open()
    db.admin.set_setting("change_log", "on")
    return db


def state(source: Any, table: str = "items") -> State:
    return [zapdb.asdict(record) for record in source.table(table).scan()]


def now(db: Database) -> datetime:
    """By the database's clock, in which nothing else happens."""
    storage = db._storage
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(
        microseconds=storage.now_us(storage.connection())
    )


def later(db: Database) -> datetime:
    """A time after all that has happened until now."""
    began = now(db)
    while (time := now(db)) == began:
        pass
    return time


def write_some(db: Database, rnd: random.Random) -> None:
    with db.transaction() as tx:
        items = tx.table("items")
        for _ in range(rnd.randint(1, 4)):
            keys = [record.id for record in items.scan()]
            chance = rnd.random()
            if chance < 0.5 or not keys:
                size = rnd.randint(0, 3)
                items.upsert(id=rnd.randint(1, 20), title=f"t{rnd.random()}", size=size)
            elif chance < 0.8:
                items.update(rnd.choice(keys), title=f"u{rnd.random()}")
            else:
                items.delete(rnd.choice(keys))
                if rnd.random() < 0.3:
                    items.insert(id=keys[-1] + 1, title="again")


def list_transactions(db: Database) -> Iterator[RecordChange]:
    """One change of each transaction, in order."""
    seen = set[int]()
    for made in db.change_log.read():
        if isinstance(made, RecordChange) and made.transaction not in seen:
            seen.add(made.transaction)
            yield made


def test_every_moment_of_a_random_life_is_what_it_was(db: Database) -> None:
    rnd, states, times = random.Random(7), [state(db)], [later(db)]
    for _ in range(40):
        write_some(db, rnd)
        if rnd.random() < 0.4:
            db.change_log.end()  # gives the changes until here a stamp
        if state(db) != states[-1]:
            states.append(state(db))
            times.append(later(db))
    assert len(states) > 30
    made = list(list_transactions(db))
    told = [state(db.at(change)) for change in made]
    differing = [there for there, before in zip(told, [[], *told], strict=False) if there != before]
    assert differing == states[1:]
    for _ in range(2):  # whatever is written or asked for changes no answer
        assert [state(db.at(change)) for change in made] == told
        assert [state(db.before(change)) for change in made] == [[], *told[:-1]]
        assert [state(db.at(time)) for time in times] == states
        numbers = [db.at(change).moment.number for change in made]
        assert numbers == sorted(set(numbers))
        assert [state(db.at(number)) for number in numbers] == told
        write_some(db, rnd)
    for moment in db.moments():  # what becomes visible at a time is not there before it
        assert moment.visible_at is not None
        assert db.at(moment.visible_at).moment.number < moment.number
        assert db.at(moment.visible_at + MICROSECOND).moment.number >= moment.number


@pytest.mark.parametrize(
    ("held", "pays"), [(0, 250), (10, 1), (10, 10), (40, 1), (20_000, 1), (20_000, 5)]
)
def test_pages_of_the_past_in_both_orders(
    db: Database, monkeypatch: pytest.MonkeyPatch, held: int, pays: int
) -> None:
    """Pages shorter than the gaps between records, changes and deletions; and beside writers that
    commit between the two statements of each page. With changes that are held, with more than that,
    and with none."""
    monkeypatch.setattr(rewound_records, "PAGE_RECORDS_MAX", 3)
    monkeypatch.setattr(rewound_records, "HOLDING_PAYS", pays)
    monkeypatch.setattr(logged_before, "HELD_CHANGES_MAX", held)
    items, rnd = db.table("items"), random.Random(3)
    items.insert_many([{"id": n, "title": f"t{n}", "size": n} for n in range(10, 40)])
    before, told = next(db.moments()), state(db)
    past = db.at(before).table("items")
    write, read_before = lambda: None, RewoundStatements._read_gone

    def write_between(*given: Any) -> Any:
        write()
        return read_before(*given)

    monkeypatch.setattr(RewoundStatements, "_read_gone", write_between)

    def write_one() -> None:
        key = rnd.randint(0, 49)
        if rnd.random() < 0.4:
            items.delete_many([key])
        else:
            items.upsert(id=key, title=f"u{rnd.random()}")

    def write_many() -> None:
        items.delete_many(range(14, 25))
        for number in range(50, 56):
            items.upsert(id=number, title="new")
        items.delete_many([38, 39])

    for write in (lambda: None, write_many, write_one, write_one):  # noqa: B007 - is called
        assert [zapdb.asdict(record) for record in past.scan()] == told
        down = [zapdb.asdict(record) for record in past.order_by("-id")]
        assert down == told[::-1]
        assert [r.id for r in past.where(past.f.id >= 12, past.f.id < 20)] == list(range(12, 20))
        assert past.to_arrow(["id"]).read_all()["id"].to_pylist() == list(range(10, 40))
        first = past.order_by("-id").page(4)
        second = past.order_by("-id").page(4, first.cursor)
        assert [r.id for r in (*first, *second)] == list(range(39, 31, -1))
        assert past.count() == len(told)
        for key in range(8, 42):
            assert past.exists(key) == (10 <= key < 40)
        assert past.get_many(range(9, 12))[0] is None


def test_a_page_from_which_changes_were_pruned_is_never_given(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    past, kept = db.at(fill(db)).table("items"), next(db.moments())
    read_before = RewoundStatements._read_gone

    def prune_and_read(*given: Any) -> Any:
        db.change_log.prune(kept.bookmark)
        return read_before(*given)

    monkeypatch.setattr(RewoundStatements, "_read_gone", prune_and_read)
    with pytest.raises(HistoryPurged, match=f"log_begins_behind: {kept.number}"):
        list(past.scan())
    with pytest.raises(HistoryPurged, match=f"log_begins_behind: {kept.number}"):
        past.count()
    monkeypatch.undo()
    db.table("items").update(1, size=11)
    moment = next(db.moments())
    later = db.at(moment).table("items")
    db.table("items").update(1, size=12)
    assert later.get(1).size == 11
    db.change_log.prune(moment.bookmark)
    assert [later.find(n) and later.get(n).size for n in (1, 2)] == [11, None]


# What is read of it


def fill(db: Database) -> Any:
    """Three records, of which two change; returns the moment between."""
    items = db.table("items")
    items.insert_many([{"id": n, "title": f"t{n}", "size": n} for n in (1, 2, 3)])
    made = next(db.moments())
    with db.transaction():
        items.update(1, size=10)
        items.delete(2)
        items.insert(id=4, title="t4", size=0)
    return made


def test_queries_sql_and_arrow_answer_as_of_the_moment(db: Database) -> None:
    past = db.at(fill(db))
    items = past.table("items")
    sizes = [(record.id, record.size) for record in items.order_by("-size")]
    assert sizes == [(3, 3), (2, 2), (1, 1)]
    assert [record.id for record in items.where(items.f.size > 1)] == [2, 3]
    assert [record.id for record in items.using("by_size").reverse()] == [3, 2, 1]
    assert (items.get(1).size, items.find(4), items.count()) == (1, None, 3)
    assert [r and r.size for r in items.get_many([1, 2, 4])] == [1, 2, None]
    assert (items.exists(2), items.exists(4)) == (True, False)
    assert (items.max("size"), items.sum("size")) == (3, 6)
    page = items.order_by("size").page(2)
    assert [r.id for r in page] + [r.id for r in items.order_by("size").page(2, page.cursor)] == [
        1,
        2,
        3,
    ]
    assert items.to_arrow(["id", "size"]).read_all().to_pydict() == {
        "id": [1, 2, 3],
        "size": [1, 2, 3],
    }
    assert past.sql("SELECT sum(size) AS sum FROM items WHERE id < ?", [3]).fetchall() == [(3,)]
    assert past.sql("show tables").fetchall()[0] == ("items",)
    assert state(db) != state(past)
    assert repr(past).endswith(">")
    assert repr(items).startswith(f"<table 'items' at moment {past.moment.number} (")


def test_the_past_is_read_only(db: Database) -> None:
    items = db.at(fill(db)).table("items")
    for write in (items.where().delete, lambda: items.where(id=1).update(size=5)):
        with pytest.raises(UsageError, match="the past can't be changed"):
            write()
    with pytest.raises(AttributeError, match="no such attribute"):
        items.insert(id=9, title="x")  # type: ignore[attr-defined]  # what is tried
    assert state(db)[0]["size"] == 10


def test_names_and_schemas_are_those_of_the_moment(db: Database, workspace: Workspace) -> None:
    before = fill(db)
    workspace.write(2, RENAME_SIZE, "rename_table: {table: items, to: goods}")
    new = workspace.open()
    new.table("goods").insert(id=5, title="t5", extent=5)
    for past in (new.at(before), db.at(before)):
        assert past.tables == ("items",)
        assert [field.name for field in past.schema("items").fields] == [
            "id",
            "title",
            "size",
            "note",
        ]
        assert [record.size for record in past.table("items").scan()] == [1, 2, 3]
        assert past.position == 1
        with pytest.raises(UnknownName, match="items"):
            past.table("goods")
        with pytest.raises(UsageError, match="given by its name"):
            past.table()
    assert new.at(before).table(like=new.table("goods")).get(1).size == 1
    now = new.at(next(new.moments()))
    assert (now.tables, now.position) == (("goods",), 2)
    assert now.table("goods").get(5).extent == 5


def test_beyond_a_change_of_stored_values_is_refused(db: Database, workspace: Workspace) -> None:
    before = fill(db)
    items = db.at(before).table("items")
    assert items.count() == 3
    workspace.write(2, ADD_COLOR)
    new = workspace.open()
    new.admin.run_jobs()
    for refused in (lambda: new.at(before).table("items"), items.count, lambda: items.get(1)):
        with pytest.raises(HistoryNotStored, match="migration: 2"):
            refused()
    assert new.at(before).tables == ("items",)  # its name and schema are known all the same
    assert new.at(before).schema("items").name == "items"
    after = next(new.moments())
    new.table("items").delete(1)
    assert new.at(after).table("items").get(1).color == "red"
    db.close()
    new.close()
    workspace.write(3, "drop_table: {table: items, records: archive}")
    newest = workspace.open()
    with pytest.raises(HistoryNotStored, match="migration: 3"):
        newest.at(after).table("items")
    assert newest.at(next(newest.moments())).tables == ()


def test_what_names_a_moment_of_another_database_is_refused(
    workspace: Workspace, tmp_path: Path
) -> None:
    """Its place may be one of this database, too. (A number or a bookmark alone tells nothing.)"""
    workspace.write(1, ITEMS)
    with zapdb.open(
        f"sqlite:///{tmp_path}/other.db", migrations=workspace.directory, apply="auto"
    ) as other:
        other.admin.set_setting("change_log", "on")
        other.table("items").insert(id=1, title="a")
        (*_, change), moment = other.change_log.read(), next(other.moments())
    db = workspace.open()
    db.admin.set_setting("change_log", "on")
    for at in range(5):
        db.table("items").insert(id=at, title="b")
    for named in (moment, change):
        with pytest.raises(UsageError, match=r"another moment there|beyond the end"):
            db.at(named)
    with pytest.raises(UsageError, match="no change"):
        db.before(cast("Any", 3))
    mine = next(db.moments())
    assert db.at(mine).moment.number == mine.number
    assert [one.table for one in db.diff(db.before(mine).moment, mine, tables="items")] == ["items"]


def test_names_of_another_time_are_told(workspace: Workspace) -> None:
    """Which migration made or dropped what, and when."""
    workspace.write(1, ITEMS)
    db = workspace.open()
    db.admin.set_setting("change_log", "on")
    db.table("items").insert(id=1, title="a")
    first = next(db.moments())
    owners = "{table: owners, key: [name], fields: [{name: name, type: string}]}"
    workspace.write(2, f"create_table: {owners}", DROP_NOTE, RENAME_SIZE)
    db.close()
    db = workspace.open()
    middle = next(db.moments())
    workspace.write(3, "drop_table: {table: owners, records: archive}")
    db.close()
    db = workspace.open()
    items = db.at(middle).table("items")
    for says, ask in (
        ("created later, by migration 2 at 2", lambda: db.at(first).table("owners")),
        ("created later, by migration 2 at 2", lambda: db.at(first).schema("owners")),
        ("dropped by migration 3 at 2", lambda: db.at(next(db.moments())).table("owners")),
        ("dropped by migration 2 at 2", lambda: items.f.note),
        ("the field was called 'extent'", lambda: items["size"]),
        ("the field was called 'extent'", lambda: items.where(size=1)),
        ("the field was called 'extent'", lambda: items.order_by("-size")),
        ("created later", lambda: db.at(first).sql("FROM zapdb_versions_owners")),
        ("dropped by migration 2 at 2", lambda: db.at(middle).sql("SELECT i.note FROM items i")),
    ):
        with pytest.raises((UnknownName, SqlError)) as told:
            ask()
        assert says in told.value.hint


def test_a_switch_for_other_tables_leaves_no_gap(workspace: Workspace) -> None:
    """H9: a table with a value of its own was recorded all the time."""
    workspace.write(1, ITEMS)
    db = workspace.open()
    db.admin.set_setting("change_log", "on", table="items")
    db.table("items").insert(id=1, title="was")
    moment = next(db.moments())
    db.admin.set_setting("change_log", "on")
    db.table("items").update(1, title="is")
    db.admin.set_setting("change_log", "off")
    assert db.at(moment).table("items").get(1).title == "was"


def test_a_gap_in_the_log_is_refused(db: Database) -> None:
    before = fill(db)
    db.admin.set_setting("change_log", "off")
    db.table("items").update(3, size=30)
    with pytest.raises(HistoryGap, match="not recorded all the time"):
        db.at(before).table("items")
    db.admin.set_setting("change_log", "on")
    with pytest.raises(HistoryGap, match="not recorded"):
        db.at(before).table("items")
    with pytest.raises(HistoryGap, match="not recorded"):
        list(db.diff(before, next(db.moments())))
    after = next(db.moments())
    db.table("items").update(3, size=31)
    assert db.at(after).table("items").get(3).size == 30


def test_pruned_moments_are_refused_and_others_stay(db: Database) -> None:
    before = fill(db)
    kept = next(db.moments())
    told, past = state(db.at(kept)), db.at(before)
    db.table("items").update(3, size=30)
    db.change_log.prune(kept.bookmark)
    assert state(db.at(kept)) == told
    for refused in (lambda: db.at(before), lambda: past.table("items").get(1)):
        with pytest.raises(HistoryPurged, match=f"log_begins_behind: {kept.number}"):
            refused()
    assert db.at(kept.number).moment == db.at(kept).moment


@pytest.mark.on_each_engine
def test_a_time_within_a_second_is_waited_for(db: Database) -> None:
    """Clocks differ, and that of SQLite has milliseconds."""
    fill(db)
    newest = next(db.moments()).number
    for seconds in (*[0.0] * 20, 0.3):
        assert db.at(datetime.now(UTC) + timedelta(seconds=seconds)).moment.number == newest


def test_what_is_not_over_is_refused(db: Database, workspace: Workspace) -> None:
    fill(db)
    with pytest.raises(MomentInFuture, match="the time is not over yet"):
        db.at(now(db) + timedelta(minutes=1))
    with pytest.raises(MomentInFuture, match="no such moment yet"):
        db.at(next(db.moments()).number + 1)
    with pytest.raises(UsageError, match="needs a time zone"):
        db.at(datetime(2026, 1, 1))
    with pytest.raises(UsageError, match="this names no moment"):
        db.at("yesterday")  # type: ignore[arg-type]  # what is tried
    with pytest.raises(UsageError, match="numbered from 0"):
        db.at(-1)
    with pytest.raises(UsageError, match="beyond the end of the change log"):
        db.at(Bookmark(10**9, 10**9, 1, b""))
    time = later(db)
    reader = workspace.open(apply="never", read_only=True)
    with pytest.raises(HistoryBehind, match="has not reached this time"):
        reader.at(time)
    db.at(time)
    assert state(reader.at(time)) == state(db)


def test_transactions_and_snapshots(db: Database) -> None:
    before, items = fill(db), db.table("items")
    with db.transaction() as tx:
        tx.table("items").delete(3)
        with pytest.raises(UsageError, match="inside a writing transaction"):
            db.at(before)
    past = db.at(before)
    with db.snapshot():
        assert past.table("items").count() == 3
    newest = next(db.moments())
    with db.snapshot() as snap:
        assert snap.table("items").count() == 2
        assert state(db.at(newest)) == state(db)
        with ThreadPoolExecutor(1) as other:
            later_past = other.submit(
                lambda: (items.delete(1), db.at(next(db.moments())))
            ).result()[1]
        with pytest.raises(HistoryBehind, match="later than the snapshot"):
            later_past.table("items").count()


# Versions, differences, moments


def test_a_record_tells_its_versions(db: Database, workspace: Workspace) -> None:
    fill(db)
    assert [(v.operation, v.fields) for v in db.table("items").history(1)] == [
        ("insert", ("id", "title", "size", "note")),
        ("update", ("size",)),
    ]
    db.table("items").delete(1)
    first, second, third = db.table("items").history(id=1)
    assert [v.record and v.record.size for v in (first, second, third)] == [1, 10, None]
    assert (first.until, second.until, third.until) == (second.since, third.since, None)
    assert third.operation == "delete"
    assert db.table("items").history(99) == []
    assert state(db.at(second.since))[0]["size"] == 10
    workspace.write(2, RENAME_SIZE)
    new = workspace.open()
    new.table("items").update(3, extent=33)
    last = new.table("items").history(3)[-1]
    assert (last.record and last.record.extent, last.fields) == (33, ("extent",))
    db.change_log.prune(next(db.moments()).bookmark)
    new.table("items").update(3, extent=34)
    baseline, update = new.table("items").history(3)
    assert (baseline.operation, baseline.since, baseline.until) == ("baseline", None, update.since)


def test_differences_are_net(db: Database, workspace: Workspace) -> None:
    before, items = fill(db), db.table("items")
    items.update(3, size=30)
    items.update(3, size=3)  # as it was
    items.insert(id=5, title="t5")
    items.delete(5)
    now_ = next(db.moments())

    def tell(*moments: Any) -> list[Any]:
        return [
            (one.key, one.before and one.before.size, one.after and one.after.size, one.fields)
            for one in db.diff(*moments)
        ]

    every = ("id", "title", "size", "note")
    assert tell(before, now_) == [
        ((1,), 1, 10, ("size",)),
        ((2,), 2, None, every),
        ((4,), None, 0, every),
    ]
    assert tell(now_, before) == [
        ((1,), 10, 1, ("size",)),
        ((2,), None, 2, every),
        ((4,), 0, None, every),
    ]
    assert tell(now_, now_) == []
    workspace.write(2, RENAME_SIZE)
    new = workspace.open()
    renamed = next(new.moments())
    assert [one.key for one in new.diff(before, renamed)] == [(1,), (2,), (4,)]
    (one, *_) = new.diff(renamed, before)  # each record has the names of its moment
    assert one.before is not None
    assert one.after is not None
    assert (one.before.extent, one.after.size, one.fields) == (10, 1, ("size",))
    workspace.write(3, ADD_COLOR)
    newest = workspace.open()
    with pytest.raises(HistoryNotStored, match="migration: 3"):
        list(newest.diff(before, next(newest.moments())))
    assert [one.key for one in newest.diff(before, now_)] == [(1,), (2,), (4,)]
    with pytest.raises(UnknownName, match="people"):
        list(newest.diff(before, now_, tables=["people"]))


def test_records_with_which_a_table_comes_back_are_differences(
    db: Database, workspace: Workspace
) -> None:
    """The change log has no changes of them."""
    before = fill(db)
    moments = [before]
    for number, operation in enumerate(("drop_table: {table: items, records: archive}", BACK), 2):
        db.close()
        workspace.write(number, operation)
        db = workspace.open()
        moments.append(next(db.moments()))
    _, gone, back = moments
    keys = [record.id for record in db.table("items").scan()]
    assert len(keys) > 1
    for pair, side in (((gone, back), "after"), ((back, gone), "before")):
        told = [(one.key, getattr(one, side).id) for one in db.diff(*pair)]
        assert told == [((key,), key) for key in keys]
    with pytest.raises(HistoryNotStored):  # as `db.at(before)` does
        list(db.diff(before, back))


def test_a_table_is_not_rewound_over_a_drop(db: Database, workspace: Workspace) -> None:
    """Its layout is that of then, but its records were pruned meanwhile."""
    before = fill(db)
    db.close()
    workspace.write(2, "drop_table: {table: items, records: archive}")
    workspace.open().close()
    prune_archives(workspace.control, 1)
    workspace.remove(2)
    roll_back(workspace.control)
    db = workspace.open()
    assert state(db) == []
    with pytest.raises(HistoryNotStored, match="event: drop"):
        state(db.at(before))


def test_differences_of_schemas(db: Database, workspace: Workspace) -> None:
    before = fill(db)
    workspace.write(2, RENAME_SIZE, "rename_table: {table: items, to: goods}")
    workspace.write(
        3,
        ADD_COLOR.replace("items", "goods"),
        "drop_field: {table: goods, field: note, restore: {archive: true, otherwise: {value: x}}}",
        "create_table: {table: others, key: [id], fields: [{name: id, type: integer}]}",
    )
    new = workspace.open()
    after = next(new.moments())
    told = {one.table: (one, one.changes) for one in new.diff_schemas(before, after)}
    goods, changes = told["goods"]
    assert set(changes) == {
        "the table was items",
        "field extent was size",
        "field color was added",
        "field note was dropped",
    }
    assert (goods.before and goods.before.name, goods.after and goods.after.name) == (
        "items",
        "goods",
    )
    assert told["others"][1] == ("the table was created",)
    back = {one.table: one.changes for one in new.diff_schemas(after, before)}
    assert back["others"] == ("the table was dropped",)
    assert {"the table was goods", "field note was added"} <= {*back["items"]}
    assert new.diff_schemas(after, after) == []


def test_moments_tell_who_did_how_much(db: Database) -> None:
    before = fill(db)
    with principal.acting_as("ada"):
        db.table("items").delete(3)
    newest, middle, *_ = db.moments()
    assert [(c.table, c.inserted, c.updated, c.deleted) for c in newest.changes] == [
        ("items", 0, 0, 1)
    ]
    assert [(c.table, c.inserted, c.updated, c.deleted) for c in middle.changes] == [
        ("items", 1, 1, 1)
    ]
    assert newest.principal == "ada"
    assert [m.number for m in db.moments(principal="ada")] == [newest.number]
    assert [m.number for m in db.moments(since=before)] == [newest.number, middle.number]
    assert next(db.moments(until=before)).number == before.number
    assert [m.number for m in db.moments(table="items", since=before)] == [
        newest.number,
        middle.number,
    ]
    with pytest.raises(UnknownName, match="people"):
        list(db.moments(table="people"))
    numbers = [moment.number for moment in db.moments()]
    assert numbers == sorted(numbers, reverse=True)


def test_the_log_is_read_from_the_newest_on_and_by_moment(
    db: Database, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "MOMENTS_PAGE", 3)
    before, rnd = fill(db), random.Random(11)
    for _ in range(9):
        write_some(db, rnd)
        if rnd.random() < 0.4:
            db.change_log.end()
    workspace.write(2, ADD_COLOR)
    db = workspace.open()
    db.table("items").upsert(id=30, title="last")
    made = list(db.change_log.read())
    assert list(db.change_log.read_back()) == made[::-1]
    upto = [one for one in made if one.bookmark <= before.bookmark]
    assert list(db.change_log.read_back(before)) == upto[::-1]
    for moment in db.moments():
        mine = [one for one in made if db.at(one).moment.number == moment.number]
        assert db.change_log.read_moment(moment) == mine != []
    db.change_log.prune(before.bookmark)
    left = made[len(upto) :]
    assert list(db.change_log.read_back()) == left[::-1]
    assert db.change_log.read_moment(before) == []


def test_tenants_have_pasts_of_their_own(db: Database) -> None:
    db.admin.create_tenant("acme")
    acme = db.for_tenant("acme")
    acme.admin.set_setting("change_log", "on")
    before = fill(db)
    acme.table("items").insert(id=1, title="acme")
    db.table("items").delete(1)
    first = next(acme.moments())
    acme.table("items").delete(1)
    assert [record.title for record in acme.at(first).table("items").scan()] == ["acme"]
    assert [record.id for record in db.at(before).table("items").scan()] == [1, 2, 3]


@pytest.mark.parametrize("engine", ["postgresql"])
def test_a_late_commit_changes_no_answer(db: Database, workspace: Workspace) -> None:
    """A transaction that has logged its changes, and takes a while to commit, is later than every
    time that was asked for meanwhile."""
    fill(db)
    slow, number = workspace.connect().connection(), "pg_current_xact_id()::text::bigint"
    edge = "(SELECT key FROM zapdb_records_1 ORDER BY key {} LIMIT 1)"
    keys = f"{edge.format('ASC')}, {edge.format('DESC')}"
    ((first, last),) = workspace.execute(f"SELECT {keys}")
    slow.run("BEGIN")
    slow.run(
        f"INSERT INTO zapdb_changes SELECT r.tenant, {number}, 1, r.key, NULL, r.value, o.value"
        " FROM zapdb_records_1 AS r, zapdb_records_1 AS o WHERE r.key = %b AND o.key = %b",
        (first, last),
    )
    slow.run(
        "UPDATE zapdb_records_1 SET value = (SELECT value FROM zapdb_records_1 WHERE key = %b)"
        " WHERE key = %b",
        (last, first),
    )
    slow.run(
        "INSERT INTO zapdb_transactions SELECT 1, "
        f"{number}, nextval('zapdb_commit_order'), 'slow', ({db._storage.dialect.clock_sql})"
    )
    times, told = list[datetime](), list[State]()
    for size in (11, 12):
        db.table("items").update(3, size=size)
        times.append(later(db))
        told.append(state(db.at(times[-1])))
    slow.run("COMMIT")
    times.append(later(db))
    assert state(db.at(times[2])) == state(db) != told[1]
    assert [state(db.at(time)) for time in times[:2]] == told
    assert state(db.at(times[2]))[0]["title"] == "t4"
    newest = next(db.moments())
    assert newest.principal == "slow"
    assert newest.visible_at is not None
    assert newest.visible_at >= times[1] > newest.made_at
    moments = [moment.visible_at for moment in db.moments() if moment.visible_at is not None]
    assert len(moments) == len(list(db.moments()))
    assert moments == sorted(moments, reverse=True)


def test_what_another_session_has_changed_in_the_schema_counts(workspace: Workspace) -> None:
    """Reading a time that the log has reached needs no transaction that checks the catalog."""
    workspace.write(1, ITEMS)
    asking, comparing, other = (workspace.open() for _ in range(3))
    other.admin.set_setting("change_log", "on")
    began = next(other.moments())
    other.table("items").insert(id=1, title="then")
    moment = next(other.moments())
    time = later(other)
    other.table("items").insert(id=2, title="now")
    assert [record["title"] for record in state(workspace.open().at(time))] == ["then"]
    assert [change.after.title for change in comparing.diff(began, moment)] == ["then"]
    assert [record["title"] for record in state(asking.at(time))] == ["then"]


@pytest.mark.on_each_engine
def test_times_are_asked_for_by_many_beside_writers(db: Database, workspace: Workspace) -> None:
    """Each answer is given again later; and times without changes between them add nothing."""
    writers, told = [workspace.open() for _ in range(2)], list[tuple[datetime, State, int]]()
    stop = threading.Event()

    def write(at: int) -> None:
        number = 0
        while not stop.is_set():
            number += 1
            writers[at].table("items").upsert(id=at * 10 + number % 3, title=f"{at} {number}")

    def ask(session: Database) -> None:
        for _ in range(12):
            time = later(session)
            past = session.at(time)
            told.append((time, state(past), past.moment.number))

    busy = [threading.Thread(target=write, args=(at,)) for at in (0, 1)]
    askers = [threading.Thread(target=ask, args=(one,)) for one in (db, *writers)]
    for thread in (*busy, *askers):
        thread.start()
    for thread in askers:
        finish(thread)
    stop.set()
    for thread in busy:
        finish(thread)
    assert len(told) == 36
    assert [number for _, _, number in sorted(told, key=itemgetter(0))] == sorted(
        number for _, _, number in told
    )
    for time, before, number in told:
        past = db.at(time)
        assert (state(past), past.moment.number) == (before, number)
    for _ in range(2):  # the first one may be of the last changes
        db.at(later(db))
    stamps = "SELECT count(*) FROM zapdb_stamps"
    count = workspace.execute(stamps)
    watermarks = []
    for _ in range(5):
        assert db.at(later(db)).moment.number == next(db.moments()).number
        watermarks.append(workspace.execute("SELECT max(stamped_at) FROM zapdb_stamps"))
    assert workspace.execute(stamps) == count
    if db._storage.dialect.name == "postgresql":
        assert watermarks == sorted(watermarks)
        assert len({str(one) for one in watermarks}) == 5


def test_large_values_stay_as_long_as_the_log_needs_them(db: Database) -> None:
    items, large = db.table("items"), ["a" * 50_000, "b" * 50_000]
    items.insert(id=1, title="t", note=large[0])
    first = next(db.moments())
    items.update(1, note=large[1])
    second = next(db.moments())
    items.delete(1)
    db.admin.sweep()
    assert [db.at(moment).table("items").get(1).note for moment in (first, second)] == large
    assert [version.fields for version in items.history(1)][1] == ("note",)
    (one,) = db.diff(first, second)
    assert (one.before and one.before.note, one.after and one.after.note) == tuple(large)
    with db.at(first).table("items").open(1, field="note") as file:
        assert file.read(3) == b"aaa"


def test_references_are_followed_in_the_past(db: Database, workspace: Workspace) -> None:
    fill(db)
    workspace.write(
        2,
        "create_table: {table: lines, key: [id], fields: [{name: id, type: integer},"
        " {name: item, type: reference, to: items}]}",
    )
    new = workspace.open()
    new.table("lines").insert(id=1, item=3)
    before = next(new.moments())
    new.table("items").update(3, title="later")
    (line,) = new.at(before).table("lines").include("item").all()
    assert line.follow("item").title == "t3"


def test_a_past_in_front_of_a_roll_back_is_what_it_was(workspace: Workspace) -> None:
    """A roll back has an event for the tenant, and one for each table that it makes anew."""
    workspace.write(1, ITEMS)
    db = workspace.open()
    db.admin.set_setting("change_log", "on")
    db.table("items").insert(id=1, title="one")
    first = next(db.moments()).number
    db.close()
    workspace.write(2, RENAME_SIZE)
    with workspace.open() as renamed:
        second = next(renamed.moments()).number
    roll_back(workspace.connect())
    workspace.remove(2)
    db = workspace.open()
    assert (db.at(first).position, db.at(second).position) == (1, 2)
    assert db.at(first).table("items").get(1).size == 0
    assert db.at(second).table("items").get(1).extent == 0
    assert db.at(next(db.moments())).table("items").get(1).size == 0


def test_a_past_is_counted_as_it_is_scanned(db: Database) -> None:
    items, rnd, counts = db.table("items"), random.Random(4), list[tuple[Any, list[int]]]()
    for _ in range(25):
        write_some(db, rnd)
        keys = [record.id for record in items.scan()]
        counts.append((db.change_log.end(), keys))
    for moment, keys in counts:
        past = db.at(moment).table("items")
        assert past.count() == len(keys)
        for low, limit in ((0, None), (5, None), (12, 3), (40, None)):
            found = past.where(past.f.id >= low)
            found = found if limit is None else found.limit(limit)
            assert found.count() == min(len([k for k in keys if k >= low]), limit or 99)
        assert [record.id for record in past.where().order_by("-id")] == keys[::-1]


READS: dict[str, Callable[[Any], object]] = {
    "scan": lambda past: list(past.scan()),
    "keys down": lambda past: list(past.where().order_by("-id").limit(50)),
    "range": lambda past: list(past.where(past.f.id >= 10, past.f.id < 30)),
    "count": lambda past: past.count(),
    "get": lambda past: past.get(7),
    "arrow": lambda past: past.to_arrow().read_all(),
}


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)  # which counts its own instructions
@pytest.mark.parametrize("name", READS)
def test_reading_a_past_does_not_grow_with_the_changes_since(
    db: Database, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often each record was changed since."""
    monkeypatch.setattr(logged_before, "HELD_CHANGES_MAX", 10)
    items = db.table("items")
    items.insert_many({"id": n, "title": f"t{n}"} for n in range(60))
    past = db.at(db.change_log.end()).table("items")

    def count_steps() -> int:
        driver, steps = db._storage.connection().driver, 0

        def count() -> None:
            nonlocal steps
            steps += 1

        READS[name](past)
        driver.set_progress_handler(count, 10)
        try:
            READS[name](past)
        finally:
            driver.set_progress_handler(None, 0)
        return steps

    for at in range(3):
        items.where().update(size=at)
    few = count_steps()
    for at in range(40):
        items.where().update(size=at)
    assert count_steps() <= 2 * few + 10
