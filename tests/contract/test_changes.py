"""The change log: what is recorded, in what order it is delivered, and who has seen how much."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest

from tests.contract.tables import ADD_COLOR, DROP_NOTE, INDEX_TITLE, ITEMS, RENAME_SIZE
from tests.support import GUARD_SECONDS, Faults, Workspace, error_of, finish, wait_until
from zapdb.activation.rollback import roll_back
from zapdb.activation.tenant_removal import remove_tenant
from zapdb.catalog import principal
from zapdb.catalog.schema_history import read_entries
from zapdb.database import Database, RecordChange, SchemaEvent
from zapdb.errors import (
    ConcurrencyError,
    CorruptCatalog,
    TransactionConflict,
    UsageError,
)
from zapdb.log import (
    change_log,
    pending_changes,
)
from zapdb.log.change_log import START, Bookmark
from zapdb.log.stamps import LogSnapshot
from zapdb.past.schema_history_pruning import PruneBound, plan_pruning, prune
from zapdb.storage import (
    TransactionMode,
)

REFERRING = (
    "create_table: {{table: {name}, key: [id], fields: [{{name: id, type: integer}},"
    " {{name: title, type: string}}, {{name: item, type: reference, to: items, optional: true}}]}}"
)


@pytest.fixture
def db(workspace: Workspace) -> Database:
    workspace.write(1, ITEMS)
    db = workspace.open()
    db.admin.set_setting("change_log", "on")
    return db


Told = tuple[str, Any, Any, Any]


def tell(made: RecordChange | SchemaEvent) -> Told:
    """A change in short: operation, key, title before and after; an event by name and table."""
    if isinstance(made, SchemaEvent):
        return made.event, made.table, made.revision, made.position
    titles = [None if r is None else r.title for r in (made.before, made.after)]
    return made.operation, made.key[0], *titles


def tell_all(db: Database, since: Bookmark | str | None = None) -> list[Told]:
    return [tell(made) for made in db.change_log.read(since)]


def records_of(db: Database) -> list[RecordChange]:
    return [made for made in db.change_log.read() if isinstance(made, RecordChange)]


@pytest.mark.on_each_engine
def test_rule_29_a_transaction_appends_one_coalesced_change_for_each_key(db: Database) -> None:
    items = db.table("items")
    items.insert_many({"id": n, "title": f"t{n}"} for n in range(1, 8))
    start = db.change_log.end()
    with db.transaction():
        items.update(1, title="a")  # update + update
        items.update(1, title="b")
        items.delete(2)  # delete + insert
        items.insert(id=2, title="c")
        items.insert(id=11, title="d")  # insert + update
        items.update(11, title="e")
        items.insert(id=12, title="f")  # insert + delete
        items.delete(12)
        items.update(3, title="g")  # update + delete
        items.delete(3)
        items.delete(4)  # delete + insert + delete
        items.insert(id=4, title="h")
        items.delete(4)
        items.insert(id=13, title="i")  # insert + delete + insert
        items.delete(13)
        items.insert(id=13, title="j")
        items.update(5, title="t5")  # nothing changes, and it was written
    assert tell_all(db, start) == [
        ("update", 1, "t1", "b"),
        ("update", 2, "t2", "c"),
        ("delete", 3, "t3", None),
        ("delete", 4, "t4", None),
        ("update", 5, "t5", "t5"),
        ("insert", 11, None, "e"),
        ("insert", 13, None, "j"),
    ]
    found = records_of(db)
    assert {made.table for made in found} == {"items"}
    assert len({made.transaction for made in found}) == 2
    assert {made.revision for made in found} == {1}


def test_rule_29_what_a_savepoint_undoes_was_never_done(db: Database) -> None:
    items = db.table("items")
    items.insert(id=1, title="a")
    start = db.change_log.end()
    with db.transaction():
        items.insert(id=2, title="b")
        for _ in range(2):
            with suppress(KeyError), db.transaction():
                items.update(2, title="never")
                items.update(1, title="never")
                with db.transaction():
                    items.delete(1)
                    items.insert(id=3, title="never")
                raise KeyError
        with db.transaction():
            items.update(1, title="c")
        assert error_of(lambda: items.insert(id=2, title="there already")) is not None
    assert tell_all(db, start) == [("update", 1, "a", "c"), ("insert", 2, None, "b")]
    with suppress(KeyError), db.transaction():
        items.update(1, title="never")
        raise KeyError
    with db.transaction(), suppress(KeyError), db.transaction():
        items.update(1, title="never")
        raise KeyError
    assert len(tell_all(db, start)) == 2


@pytest.mark.parametrize("seed", range(3))
def test_rule_29_what_is_written_early_is_coalesced_all_the_same(
    db: Database, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Random transactions with savepoints, of which some are rolled back, beside a plain model."""
    monkeypatch.setattr(pending_changes, "CHANGES_PENDING_MAX", 3)
    draw, items = random.Random(seed), db.table("items")
    before: dict[int, str] = {}
    for _ in range(12):
        start = db.change_log.end()
        with db.transaction():
            after, gone = _write_at_random(db, draw, (dict(before), set()), depth=0)
        wanted = [
            (_name(before.get(key), after.get(key)), key, before.get(key), after.get(key))
            for key in sorted(before.keys() | after.keys())
        ]
        told = tell_all(db, start)
        # A record that was written and is the same again is told, or it is not.
        assert [one for one in told if one[2] != one[3]] == [w for w in wanted if w[2] != w[3]]
        assert {one[1] for one in told} <= {w[1] for w in wanted}
        replaced = {m.key[0] for m in db.change_log.read(start) if getattr(m, "replaced", False)}
        assert replaced == gone & before.keys() & after.keys()
        before = after
    assert {r.id: r.title for r in items.scan()} == before


def _name(before: str | None, after: str | None) -> str:
    if before is None:
        return "insert"
    return "delete" if after is None else "update"


TitlesAndGone = tuple[dict[int, str], set[int]]
"""The titles by key, and the keys of records that the transaction deleted."""


def _write_at_random(
    db: Database, draw: random.Random, made: TitlesAndGone, depth: int
) -> TitlesAndGone:
    items, (state, gone) = db.table("items"), made
    for _ in range(draw.randrange(1, 9)):
        key, title = draw.randrange(6), f"{draw.random():.3f}"
        kind = draw.choice(["write", "write", "write", "keep", "undo"])
        if kind == "write" and key not in state:
            items.insert(id=key, title=title)
            state[key] = title
        elif kind == "write" and draw.random() < 0.4:
            items.delete(key)
            del state[key]
            gone.add(key)
        elif kind == "write":
            items.update(key, title=title)
            state[key] = title
        elif depth < 3 and kind == "keep":
            with db.transaction():
                state, gone = _write_at_random(db, draw, (dict(state), set(gone)), depth + 1)
        elif depth < 3:
            with suppress(KeyError), db.transaction():
                _write_at_random(db, draw, (dict(state), set(gone)), depth + 1)
                raise KeyError
    return state, gone


@pytest.mark.long_on("postgresql")
def test_rule_29_every_way_of_writing_is_recorded(workspace: Workspace, db: Database) -> None:
    workspace.write(
        2,
        REFERRING.format(name="notes"),
        REFERRING.format(name="tags"),
        "create_index: {table: notes, index: by_item, fields: [{field: item}]}",
        "create_index: {table: tags, index: tags_by_item, fields: [{field: item}]}",
        "add_reference: {table: notes, field: item, on_delete: set_null}",
        "add_reference: {table: tags, field: item, on_delete: cascade}",
    )
    db = workspace.open()
    items, notes, tags = (db.table(name) for name in ("items", "notes", "tags"))
    items.insert_many([{"id": 1, "title": "a"}, {"id": 2, "title": "b"}])
    notes.insert(id=7, title="n", item=1)
    tags.insert(id=8, title="t", item=1)
    start = db.change_log.end()
    items.upsert(id=2, title="c")
    items.upsert(id=3, title="d")
    items.delete(1)
    items.delete_many([2, 9])
    assert [(made.table, *tell(made)) for made in db.change_log.read(start)] == [
        ("items", "update", 2, "b", "c"),
        ("items", "insert", 3, None, "d"),
        ("items", "delete", 1, "a", None),
        ("notes", "update", 7, "n", "n"),
        ("tags", "delete", 8, "t", None),
        ("items", "delete", 2, "c", None),
    ]
    found = {
        made.table: made for made in db.change_log.read(start) if isinstance(made, RecordChange)
    }
    assert (found["notes"].before.item, found["notes"].after.item) == (1, None)


@pytest.mark.long_on("postgresql")
def test_rule_29_who_and_when(db: Database) -> None:
    items = db.table("items")
    before = db._storage.now_us(db._storage.connection())
    with principal.acting_as("ada"):
        items.insert(id=1, title="a")
    items.insert(id=2, title="b")
    after = db._storage.now_us(db._storage.connection())
    found = records_of(db)
    assert [made.principal for made in found] == ["ada", principal.current()]
    for made in found:
        assert before - 1000 <= made.made_at.timestamp() * 1e6 <= after + 1000


def test_rule_14_history_is_switched_for_a_database_a_tenant_or_a_table(
    workspace: Workspace,
) -> None:
    workspace.write(1, ITEMS, ITEMS.replace("items", "other"))
    db = workspace.open()
    db.admin.create_tenant("acme")
    acme, beside = db.for_tenant("acme"), workspace.open()
    counts = lambda: [len(records_of(one)) for one in (db, acme)]

    def write(key: int) -> None:
        for one in (beside, acme):
            for name in ("items", "other"):
                one.table(name).insert(id=key, title="x")

    write(1)
    assert counts() == [0, 0]
    db.admin.set_setting("change_log", "on", tenant="default", table="items")
    write(2)  # another open database goes by it at once
    assert counts() == [1, 0]
    assert tell_all(db)[0] == ("change_log_on", "items", None, None)
    db.admin.set_setting("change_log", "on", tenant="acme")
    write(3)
    assert counts() == [2, 2]
    db.admin.set_setting("change_log", "on")
    write(4)
    assert counts() == [4, 4]
    db.admin.set_setting("change_log", "off", tenant="acme", table="other")
    write(5)
    assert counts() == [6, 5]
    db.admin.set_setting("change_log", None)
    db.admin.set_setting("change_log", None, tenant="acme", table="other")
    write(6)
    assert counts() == [7, 7]
    events = [made for made in db.change_log.read() if isinstance(made, SchemaEvent)]
    assert [(e.event, e.table) for e in events] == [
        ("change_log_on", "items"),
        ("change_log_on", "other"),
        ("change_log_off", "other"),
    ]


@pytest.mark.on_each_engine
def test_rule_29_a_transaction_that_began_before_the_switch_keeps_it_waiting(
    db: Database, workspace: Workspace
) -> None:
    db.admin.set_setting("change_log", "off")
    items, reached, go_on = db.table("items"), threading.Event(), threading.Event()

    def write() -> None:
        with db.transaction():
            items.insert(id=1, title="before")
            reached.set()
            go_on.wait(GUARD_SECONDS)
            items.insert(id=2, title="before")

    writer = threading.Thread(target=write)
    switching = threading.Thread(
        target=lambda: workspace.open().admin.set_setting("change_log", "on")
    )
    writer.start()
    assert reached.wait(GUARD_SECONDS)
    switching.start()
    switching.join(0.3)
    assert switching.is_alive()
    go_on.set()
    finish(writer)
    finish(switching)
    items.insert(id=3, title="after")
    assert tell_all(db)[-2:] == [
        ("change_log_on", None, None, None),
        ("insert", 3, None, "after"),
    ]


# The schema of that moment


@pytest.mark.on_each_engine
def test_rule_29_records_are_decoded_under_the_schema_of_their_time(
    workspace: Workspace, db: Database
) -> None:
    items = db.table("items")
    items.insert(id=1, title="a", size=4, note="n")
    items.insert(id=2, title="b")
    workspace.write(2, RENAME_SIZE, DROP_NOTE, ADD_COLOR)
    newer = workspace.open()
    items = newer.table("items")
    items.update(1, extent=5)  # stale when it was changed
    items.delete(2)
    workspace.write(3, "rename_table: {table: items, to: things}")
    workspace.open().table("things").update(1, title="c")
    found = list(newer.change_log.read())
    assert [repr(made.after) for made in found if isinstance(made, RecordChange)] == [
        "items(id=1, title='a', size=4, note='n')",
        "items(id=2, title='b', size=0, note=None)",
        "items(id=1, title='a', extent=5, color='red')",
        "None",
        "things(id=1, title='c', extent=5, color='red')",
    ]
    assert [repr(made.before) for made in found if isinstance(made, RecordChange)] == [
        "None",
        "None",
        "items(id=1, title='a', extent=4, color='red')",
        "items(id=2, title='b', extent=0, color='red')",
        "things(id=1, title='a', extent=5, color='red')",
    ]
    assert [tell(made) for made in found if isinstance(made, SchemaEvent)] == [
        ("change_log_on", None, None, None),
        ("activation", None, None, 2),
        ("change", "items", 2, 2),
        ("activation", None, None, 3),
        ("change", "things", 3, 3),
    ]


@pytest.mark.long_on("postgresql")
def test_rule_22_conversions_indexing_and_write_backs_write_none(
    workspace: Workspace, db: Database
) -> None:
    db.table("items").insert_many({"id": n, "title": str(n)} for n in range(40))
    workspace.write(2, ADD_COLOR, INDEX_TITLE)
    db = workspace.open()
    before = records_of(db)
    db.admin.set_setting("on_read", "write_back")
    assert db.table("items").get(1).color == "red"
    db.admin.run_jobs()
    assert db.admin.count_by_revision("items") == {2: 40}
    assert records_of(db) == before


@pytest.mark.on_each_engine
def test_rule_22_a_rollback_writes_its_events_alone(workspace: Workspace, db: Database) -> None:
    db.table("items").insert(id=1, title="a", note="kept")
    workspace.write(
        2,
        ADD_COLOR,
        DROP_NOTE.replace("{value: dropped}", "{archive: true, otherwise: {value: x}}"),
    )
    newer = workspace.open()
    items = newer.table("items")
    items.insert(id=2, title="b")
    items.insert(id=3, title="c", color="blue")
    items.update(1, title="a2")
    start = newer.change_log.end()
    newer.close()
    db.close()
    workspace.remove(2)
    storage = workspace.connect()
    roll_back(storage)
    after = workspace.open()
    found = list(after.change_log.read(start))
    assert [tell(made) for made in found] == [
        ("rollback", None, None, 1),
        ("rollback", "items", 3, 1),
    ]
    assert after.table("items").get(1).note == "kept"
    after.admin.run_jobs()
    after.table("items").update(3, size=1)
    (changed,) = list(after.change_log.read(found[-1].bookmark))
    assert repr(changed.before) == "items(id=3, title='c', size=0, note='x')"
    assert repr(changed.after) == "items(id=3, title='c', size=1, note='x')"


@pytest.mark.long_on("postgresql")
def test_rule_22_rolling_back_a_table_writes_its_drop(workspace: Workspace, db: Database) -> None:
    workspace.write(2, ITEMS.replace("items", "others"))
    newer = workspace.open()
    newer.table("others").insert_many({"id": n, "title": "x"} for n in range(3))
    newer.close()
    db.close()
    workspace.remove(2)
    roll_back(workspace.connect())
    assert tell_all(workspace.open())[-3:] == [
        ("insert", 2, None, "x"),
        ("rollback", None, None, 1),
        ("drop", "others", 2, 1),
    ]


# Order


class Hand:
    """A thread with a database of its own, that does one thing after the other."""

    def __init__(self, db: Database) -> None:
        self.items = db.table("items")
        self._db, self._stack = db, ExitStack()
        self._asked: Any = None
        self._wake, self._done = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            self._wake.acquire()
            if self._asked is None:
                return
            self._asked()
            self._done.release()

    def do(self, action: Any) -> None:
        self._asked = action
        self._wake.release()
        assert self._done.acquire(timeout=GUARD_SECONDS)

    def begin(self) -> None:
        self.do(lambda: self._stack.enter_context(self._db.transaction()))

    def commit(self) -> None:
        self.do(self._stack.close)

    def stop(self) -> None:
        self._asked = None
        self._wake.release()
        finish(self._thread)


@pytest.fixture
def hands(db: Database) -> Iterator[list[Hand]]:
    made = [Hand(db) for _ in range(3)]
    yield made
    for hand in made:
        hand.stop()


@pytest.mark.parametrize("engine", ["postgresql"])
@pytest.mark.on_each_engine
def test_rule_29_a_long_transaction_is_told_after_the_short_ones_that_it_outlived(
    db: Database, hands: list[Hand]
) -> None:
    long, short, _ = hands
    follower, told = db.change_log.follower("me"), list[Told]()

    def look() -> int:
        found = list(follower.changes())
        for made in found:
            follower.advance(made.bookmark)
        told.extend(tell(made) for made in found)
        return len(found)

    look()
    long.begin()
    long.do(lambda: long.items.insert(id=1, title="long"))  # the lower number
    short.do(lambda: short.items.insert(id=2, title="short"))
    assert look() == 1
    short.do(lambda: short.items.update(2, title="again"))
    assert (look(), look()) == (1, 0)
    long.do(lambda: long.items.insert(id=3, title="long"))
    assert look() == 0
    long.commit()
    assert (look(), look()) == (2, 0)
    assert told[1:] == [
        ("insert", 2, None, "short"),
        ("update", 2, "short", "again"),
        ("insert", 1, None, "long"),
        ("insert", 3, None, "long"),
    ]
    numbers = {made.key[0]: made.transaction for made in records_of(db)}
    assert numbers[1] < numbers[2]
    assert told == tell_all(db)  # a later reader reads the same


@pytest.mark.parametrize("engine", ["postgresql"])
@pytest.mark.parametrize("looks_between", [False, True])
@pytest.mark.on_each_engine
def test_rule_29_who_inserts_what_a_younger_transaction_deleted_comes_after_it(
    db: Database, hands: list[Hand], looks_between: bool
) -> None:
    """The order of the transactions' numbers is the wrong one."""
    db.table("items").insert(id=1, title="first")
    start = db.change_log.end()
    older, younger, _ = hands
    older.begin()
    older.do(lambda: older.items.insert(id=9, title="x"))
    younger.do(lambda: younger.items.delete(1))
    if looks_between:
        assert tell_all(db, start) == [("delete", 1, "first", None)]
    older.do(lambda: older.items.insert(id=1, title="second"))
    older.commit()
    assert tell_all(db, start) == [
        ("delete", 1, "first", None),
        ("insert", 1, None, "second"),
        ("insert", 9, None, "x"),
    ]
    found = [made for made in db.change_log.read(start) if isinstance(made, RecordChange)]
    assert found[0].transaction > found[1].transaction


@pytest.mark.on_each_engine
def test_rule_29_nothing_is_missed_told_twice_or_reordered(
    workspace: Workspace, db: Database
) -> None:
    """Writers with long and short transactions, savepoints and rollbacks; two followers that look
    all the time, each with a database of its own."""
    stop, failed = threading.Event(), list[BaseException]()
    told: dict[str, list[RecordChange]] = {"a": [], "b": []}

    def write(seed: int) -> None:
        draw, mine = random.Random(seed), workspace.open()
        items = mine.table("items")
        while not stop.is_set():
            try:
                with mine.transaction():
                    for _ in range(draw.choice([1, 1, 1, 2, 6])):
                        key = draw.randrange(12)
                        found = items.find(key)
                        if found is None:
                            items.insert(id=key, title=f"{seed}", size=1)
                        elif draw.random() < 0.3:
                            items.delete(key)
                        else:
                            items.update(key, size=found.size + 1)
                        if draw.random() < 0.2:
                            time.sleep(0.02)
                    if draw.random() < 0.2:
                        raise KeyError
            except (TransactionConflict, KeyError):
                continue
            except BaseException as error:
                failed.append(error)
                raise

    def follow(name: str) -> None:
        try:
            mine = workspace.open()
            follower = mine.change_log.follower(name)
            while True:
                is_last = stop.is_set() and not any(w.is_alive() for w in writers)
                for made in follower.changes():
                    if isinstance(made, RecordChange):
                        told[name].append(made)
                    follower.advance(made.bookmark)
                if is_last:
                    return
        except BaseException as error:
            failed.append(error)
            raise

    writers = [threading.Thread(target=write, args=(n,)) for n in range(3)]
    followers = [threading.Thread(target=follow, args=(name,)) for name in told]
    for thread in (*writers, *followers):
        thread.start()
    time.sleep(2)
    wait_until(lambda: failed or all(len(t) > 20 for t in told.values()), "some is told")
    stop.set()
    for thread in (*writers, *followers):
        finish(thread)
        assert not thread.is_alive()
    assert failed == []
    told["later"] = records_of(workspace.open())
    assert len(told["later"]) > 20
    for found in told.values():
        assert [made.bookmark for made in found] == [made.bookmark for made in told["later"]]
        state: dict[int, Any] = {}
        for made in found:  # each begins where the one before has ended
            assert state.get(made.key[0]) == made.before
            state[made.key[0]] = made.after
        left = {r.id: r for r in db.table("items").scan()}
        assert {key: r for key, r in state.items() if r is not None} == left
        stamps = [(made.stamp, made.stamped_at) for made in found]
        assert stamps == sorted(stamps)


@pytest.mark.parametrize("engine", ["postgresql"])
def test_rule_29_the_time_of_timestamps_never_decreases(workspace: Workspace, db: Database) -> None:
    items = db.table("items")
    items.insert(id=1, title="a")
    first = records_of(db)[-1]
    ahead = 3_600_000_000
    workspace.execute("UPDATE zapdb_stamps SET stamped_at = stamped_at + ?", (ahead,))
    items.insert(id=2, title="b")
    made = records_of(db)[-1]
    assert made.stamped_at.timestamp() >= first.stamped_at.timestamp() + ahead / 1e6
    assert made.stamp == first.stamp + 1
    assert made.made_at < made.stamped_at


@pytest.mark.parametrize("engine", ["sqlite"])
def test_rule_29_the_clock_row_never_goes_back(workspace: Workspace, db: Database) -> None:
    items = db.table("items")
    items.insert(id=1, title="a")
    ahead = "UPDATE zapdb_counters SET value = value + 3600000000 WHERE name = 'change_at'"
    workspace.execute(ahead)
    items.insert_many([{"id": 2, "title": "b"}], 1)
    items.update(2, title="c")
    times = [made.stamped_at for made in records_of(db)]
    assert times == sorted(times)
    assert (times[1] - times[0]).total_seconds() >= 3600
    assert [made.stamp for made in records_of(db)] == [2, 3, 4]


@pytest.mark.parametrize("engine", ["sqlite"])
@pytest.mark.on_each_engine
def test_rule_29_a_number_that_a_savepoint_drew_is_drawn_again(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pending_changes, "CHANGES_PENDING_MAX", 2)
    items = db.table("items")
    with db.transaction():
        items.insert(id=1, title="a")
        with suppress(KeyError), db.transaction():
            items.insert_many({"id": n, "title": "x"} for n in range(10, 15))
            raise KeyError
    items.insert(id=2, title="b")
    assert tell_all(db)[1:] == [("insert", 1, None, "a"), ("insert", 2, None, "b")]
    first, second = records_of(db)
    assert (first.stamp, second.stamp) == (2, 3)


# Bookmarks and followers


def test_rule_29_one_can_go_on_from_every_bookmark(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_log, "CHANGES_PAGE", 4)
    monkeypatch.setattr(change_log, "STAMPS_PAGE", 2)
    monkeypatch.setattr(change_log, "TRANSACTIONS_PAGE", 3)
    items = db.table("items")
    for n in range(5):
        items.insert_many({"id": 20 * n + m, "title": "x"} for m in range(n * 3))
        db.change_log.end()
        items.insert(id=1000 + n, title="y")
    items.update(1001, title="z")
    whole = list(db.change_log.read())
    assert [made.bookmark for made in whole] == sorted(made.bookmark for made in whole)
    keys = [made.key[0] for made in whole if isinstance(made, RecordChange)]
    assert len(keys) == 30 + 5 + 1
    for at, made in enumerate(whole):
        assert list(db.change_log.read(str(made.bookmark))) == whole[at + 1 :]
        assert Bookmark.parse(str(made.bookmark)) == made.bookmark
    assert list(db.change_log.read(db.change_log.end())) == []
    items.delete(1001)
    assert tell_all(db, whole[-1].bookmark) == [("delete", 1001, "z", None)]


@pytest.mark.long_on("postgresql")
@pytest.mark.on_each_engine
def test_rule_29_a_follower_goes_on_where_it_was_after_a_restart(
    workspace: Workspace, db: Database
) -> None:
    items = db.table("items")
    items.insert_many({"id": n, "title": "x"} for n in range(6))
    follower = db.change_log.follower("search")
    assert follower.bookmark == START
    seen = []
    for made in follower.changes():
        seen.append(tell(made))
        follower.advance(made.bookmark)
        if len(seen) == 3:
            break
    db.close()
    again = workspace.open()
    seen += [tell(made) for made in again.change_log.follower("search").changes()]
    assert seen == tell_all(again)
    assert len(tell_all(again)) == 7
    status = {one.name: one for one in again.change_log.followers()}
    assert status["search"].lag.changes == 4
    assert status["search"].lag.seconds > 0
    assert again.change_log.follower("other").measure_lag().changes == 7
    text = again.admin.metrics()
    assert 'zapdb_follower_changes_behind{follower="search",tenant="default"} 4.0' in text
    assert 'zapdb_follower_lag_seconds{follower="search",tenant="default"}' in text
    assert 'zapdb_change_log_changes{tenant="default"} 7.0' in text
    assert 'zapdb_change_log_seconds{tenant="default"}' in text
    again.change_log.follower("search").advance(again.change_log.end())
    assert (
        'zapdb_follower_changes_behind{follower="search",tenant="default"} 0.0'
        in again.admin.metrics()
    )
    assert again.change_log.followers()[0].lag.seconds == 0
    again.table("items").insert(id=77, title="new")
    assert again.change_log.followers()[0].lag.changes == 1  # though nobody has looked since
    again.change_log.follower("search").remove()
    assert again.change_log.followers() == []
    assert again.change_log.follower("search").bookmark == START


@pytest.mark.on_each_engine
def test_rule_29_a_follower_moves_with_the_transaction_that_it_writes_in(
    workspace: Workspace, db: Database
) -> None:
    workspace.write(2, ITEMS.replace("items", "copies"))
    db = workspace.open()
    db.admin.set_setting("change_log", "off", table="copies")
    items, copies = db.table("items"), db.table("copies")
    items.insert_many({"id": n, "title": "x"} for n in range(4))
    first, second = db.change_log.follower("copy"), workspace.open().change_log.follower("copy")
    stale = list(second.changes())
    for made in first.changes():
        if isinstance(made, RecordChange):
            with suppress(KeyError), db.transaction():
                copies.insert(id=made.key[0], title="never")
                first.advance(made.bookmark)
                raise KeyError
            with db.transaction():
                copies.insert(id=made.key[0], title=made.after.title)
                first.advance(made.bookmark)
    assert copies.count() == 4
    with pytest.raises(ConcurrencyError, match="another process follows under this name"):
        second.advance(stale[0].bookmark)
    assert list(second.changes()) == []
    second.advance(stale[0].bookmark)  # on purpose: back
    assert len(list(first.changes())) == len(stale) - 1


@pytest.mark.long_on("postgresql")
def test_rule_29_wrong_bookmarks_and_wrong_places(workspace: Workspace, db: Database) -> None:
    db.table("items").insert(id=1, title="a")
    for text in ("", "x", "1.2.3", "1.1.1.0.", "2.1.0.1.0.", "1.1.0.1.0.xyz", "1.a.0.1.0."):
        with pytest.raises(UsageError, match="this is not a bookmark"):
            list(db.change_log.read(text))
    with pytest.raises(UsageError, match="is beyond the end"):
        list(db.change_log.read("1.99.0.1.1.80"))
    for name in ("", "x" * 64, "a\n"):
        with pytest.raises(UsageError, match="name of a follower"):
            db.change_log.follower(name)
    with db.transaction(), pytest.raises(UsageError, match="cannot be read inside a writing"):
        list(db.change_log.read())
    with db.snapshot():
        before = tell_all(db)
        thread = threading.Thread(target=lambda: db.table("items").insert(id=2, title="b"))
        thread.start()
        finish(thread)
        assert tell_all(db) == before
    assert len(tell_all(db)) == 3
    reading = workspace.open(apply="never", read_only=True)
    assert len(tell_all(reading)) == 3
    with pytest.raises(UsageError):
        reading.change_log.follower("x").advance(reading.change_log.end())


@pytest.mark.on_each_engine
def test_snapshots_of_postgresql_are_read() -> None:
    assert LogSnapshot.parse("10:20:10,14") == LogSnapshot(20, (10, 14))
    assert LogSnapshot.parse("10:10:").lowest == 10
    assert LogSnapshot.parse("10:20:14,11").lowest == 11


@pytest.mark.parametrize("engine", ["postgresql"])
def test_rule_29_a_database_that_was_moved_to_another_server_is_told(
    workspace: Workspace, db: Database
) -> None:
    db.table("items").insert(id=1, title="a")
    list(db.change_log.read())
    workspace.execute("UPDATE zapdb_stamps SET snapshot = '999999999:999999999:'")
    workspace.execute("UPDATE zapdb_transactions SET number = 1000000000 + number")
    with pytest.raises(CorruptCatalog, match="lower than those of the change log"):
        list(db.change_log.read())
    workspace.execute(
        "INSERT INTO zapdb_transactions SELECT 1, pg_current_xact_id()::text::bigint + n, 0, 'x', 0"
        " FROM generate_series(1, 50) AS n"
    )
    with pytest.raises(CorruptCatalog, match="already has a transaction of this number"):
        db.table("items").insert(id=2, title="b")
    assert db.table("items").count() == 1


# What looks after the rest


def test_rule_28_the_log_owns_large_values(workspace: Workspace, db: Database) -> None:
    items, large = db.table("items"), "x" * 10_000
    items.insert(id=1, title="a", note=large)
    items.insert(id=2, title="b", note=large + "2")
    items.update(1, note="small")
    items.delete(2)
    with db.transaction():
        items.insert(id=3, title="c", note=large)
        items.delete(3)
    time.sleep(0.01)  # blobs of this very millisecond are left alone
    report = db.admin.sweep(older_than_seconds=0)
    assert (report.blobs, report.unowned) == (3, 1)
    found = [made for made in db.change_log.read() if isinstance(made, RecordChange)]
    assert [made.before.note for made in found[2:]] == [large, large + "2"]
    workspace.execute("DELETE FROM zapdb_changes")
    assert db.admin.sweep(older_than_seconds=0).unowned == 2


@pytest.mark.long_on("postgresql")
def test_rule_28_large_values_that_only_a_conversion_makes_are_kept_for_the_log(
    workspace: Workspace, db: Database
) -> None:
    items = db.table("items")
    items.insert(id=1, title="x" * 3000)
    items.insert(id=2, title="y" * 3000)
    workspace.write(
        2,
        "transform: {table: items, from: {title: string}, into: {title: string},"
        " up: {title: \"join('', title, title)\"}, down: {title: title}, reversibility: lossy,"
        " because: it only gets longer}",
    )
    db = workspace.open()
    start = db.change_log.end()
    db.table("items").update(1, size=7)
    db.table("items").delete(2)
    time.sleep(0.01)
    assert db.admin.sweep(older_than_seconds=0).unowned == 0
    found = [made for made in db.change_log.read(start) if isinstance(made, RecordChange)]
    assert found[0].before.title == found[0].after.title == "x" * 6000
    assert found[1].before.title == "y" * 6000
    assert db.admin.verify()[0].problems == ()


@pytest.mark.long_on("postgresql")
@pytest.mark.on_each_engine
def test_rule_31_pruning_refuses_while_the_log_has_changes_of_a_revision(
    workspace: Workspace, db: Database
) -> None:
    db.table("items").insert(id=1, title="a")
    workspace.write(2, ADD_COLOR)
    db = workspace.open()
    db.table("items").delete(1)  # no record is left
    with db._storage.transaction(TransactionMode.READ) as connection:
        planned = plan_pruning(connection, _entries(db), PruneBound(keep_last=1))
    assert [(requirement.revision, requirement.what) for requirement in planned.required_by] == [
        (1, "1 change")
    ]
    with pytest.raises(UsageError, match="need the revisions that would be pruned"):
        prune(db._storage, planned)
    workspace.execute("DELETE FROM zapdb_changes")
    with db._storage.transaction(TransactionMode.READ) as connection:
        planned = plan_pruning(connection, _entries(db), PruneBound(keep_last=1))
    prune(db._storage, planned)
    assert [entry.revision for entry in db.admin.schema_history("items")] == [2]


def _entries(db: Database) -> Any:
    return list(read_entries(db._storage.connection(), db._catalog.tenant, 1))


@pytest.mark.long_on("postgresql")
def test_a_removed_tenant_leaves_nothing_in_the_log(workspace: Workspace, db: Database) -> None:
    db.admin.create_tenant("acme")
    with db.for_tenant("acme") as acme:
        acme.table("items").insert(id=1, title="a")
        follower = acme.change_log.follower("x")
        for made in follower.changes():
            follower.advance(made.bookmark)
    db.table("items").insert(id=1, title="mine")
    remove_tenant(workspace.connect(), "acme")
    for table in ("changes", "transactions", "stamps", "followers"):
        assert workspace.execute(f"SELECT * FROM zapdb_{table} WHERE tenant <> 1") == []
    assert tell_all(db)[-1] == ("insert", 1, None, "mine")


@pytest.mark.on_each_engine
def test_rule_29_many_records_stream_into_the_log(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one transaction: what waits to be written is bounded."""
    held = list[int]()
    spill = pending_changes.PendingChanges._spill

    def watch(self: Any, connection: Any) -> None:
        held.append(max(len(made.changes) for made in self._savepoints))
        spill(self, connection)

    monkeypatch.setattr(pending_changes.PendingChanges, "_spill", watch)
    items = db.table("items")
    with db.transaction():
        items.insert_many({"id": n, "title": "x"} for n in range(10_000))
        items.update(3, title="y")
        items.delete(9_999)
    assert held
    assert max(held) < 2 * pending_changes.CHANGES_PENDING_MAX
    found = records_of(db)
    assert len(found) == 9_999
    assert tell(found[3]) == ("insert", 3, None, "y")
    assert len({made.transaction for made in found}) == 1


@pytest.mark.on_each_engine
def test_rule_29_a_write_and_its_change_are_both_there_or_neither(
    workspace: Workspace, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    items = db.table("items")
    items.insert(id=1, title="0")
    items.update(1, title="00")
    list(db.change_log.read())
    faults = Faults(workspace, db._storage, "before", lasting=False)
    faults.install(monkeypatch)
    struck = []
    for call in range(1, 100):
        faults.arm(call)
        error = error_of(lambda n=call: items.update(1, title=str(n)))
        if error is None:
            break
        struck.append(faults.struck[0])
        faults.arm(0)
        assert records_of(db)[-1].after.title == items.get(1).title
    faults.arm(0)
    assert len(struck) > 4
    assert records_of(db)[-1].after.title == items.get(1).title == str(len(struck) + 1)


@pytest.mark.on_each_engine
def test_with_history_off_a_transaction_sends_what_it_sent_before(
    workspace: Workspace, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    db.admin.set_setting("change_log", "off")
    faults, counts = Faults(workspace, db._storage, "before", lasting=False), list[int]()
    faults.install(monkeypatch)
    for value in ("off", "on"):
        db.admin.set_setting("change_log", value)
        db.table("items").upsert(id=1, title="warm")
        faults.arm(0)
        with db.transaction():
            db.table("items").update(1, title=value)
            db.table("items").update(1, title=value + "2")
        counts.append(faults.calls)
    # One statement for all of a transaction; two and the clock row on SQLite.
    assert counts[1] - counts[0] == {"postgresql": 1, "sqlite": 3}[workspace.engine]
