"""Every call of the database driver failed, in the three ways of `Way`, at each place of each
operation: what is raised is zapdb's, an operation is done or not, and the database goes on.

The drivers' own classes are put between, by an event of SQLAlchemy's: connect, cursor, execute,
fetch, commit, rollback and close of whatever connects in the thread of the test.
"""

from __future__ import annotations

import itertools
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import psycopg
import pytest
import sqlalchemy

import zapdb
from tests.contract.tables import ADD_COLOR, INDEX_SIZE, ITEMS
from tests.support import BACKGROUND, WAYS, Way, Workspace, dump, error_of, wait_until
from zapdb.activation import load_tenant_catalog
from zapdb.activation.activate import rebuild_index
from zapdb.database import (
    Database,
)
from zapdb.errors import CommitUnknown, StorageError, TransactionConflict, ZapdbError
from zapdb.limits import COMMIT_OUTCOME
from zapdb.storage import Connection, TransactionMode
from zapdb.storage.pipeline import Pipeline
from zapdb.tables import (
    commit_tokens,
)

T = TypeVar("T")

# The drivers, with a gap to strike in


@dataclass
class Driver:
    """Counts the calls of the driver in this thread, and makes the one at `at` fail, or with
    `lasting` each from there on."""

    engine: str
    kill: Callable[[Any], None]
    way: Way = "before"
    lasting: bool = False
    at: int = 0
    calls: int = 0
    is_on: bool = False
    struck: list[str] = field(default_factory=list)
    thread: threading.Thread = field(default_factory=threading.current_thread)
    inside: bool = False

    def arm(self, at: int, way: Way, *, lasting: bool) -> None:
        self.at, self.way, self.lasting = at, way, lasting
        self.calls, self.struck, self.is_on = 0, [], True

    def rest(self) -> None:
        self.is_on = False

    def call(self, name: str, connection: Any, act: Callable[[], Any], cursor: Any = None) -> Any:
        """A call of the driver; those that it makes of itself inside are not told apart."""
        if not self.is_on or self.inside or threading.current_thread() is not self.thread:
            return act()
        self.inside = True
        try:
            self.calls += 1
            if not (self.calls == self.at or (self.lasting and self.at and self.calls > self.at)):
                return act()
            self.struck.append(name)
            return self._strike(name, connection, act, cursor)
        finally:
            self.inside = False

    def _strike(self, name: str, connection: Any, act: Callable[[], Any], cursor: Any) -> Any:
        # Both drivers let go of a connection before closing it can fail.
        if connection is not None and (self.way == "after" or name == "close"):
            act()
        if isinstance(cursor, sqlite3.Cursor):
            # As SQLite itself does where a statement fails: what is left of it would hold a lock.
            sqlite3.Cursor.close(cursor)
        if self.way == "before":
            raise self._error()
        if self.way == "drop":
            if connection is not None:
                self.kill(connection)
                return act()
            made = act()
            self.kill(made)
            return made
        if connection is None:
            act().close()
        raise self._error()

    def _error(self) -> Exception:
        if self.engine == "sqlite":
            return sqlite3.OperationalError("disk I/O error")
        return psycopg.OperationalError("made by a test")


def sqlite_classes(driver: Driver) -> type[sqlite3.Connection]:
    class Cursor(sqlite3.Cursor):
        pass

    class Connection(sqlite3.Connection):
        def cursor(self, factory: Any = Cursor) -> Any:
            return driver.call("cursor", self, lambda: super(Connection, self).cursor(Cursor))

        def execute(self, *given: Any) -> Any:
            return self.cursor().execute(*given)

    for name in ("execute", "executemany", "fetchone", "fetchall", "fetchmany", "close"):
        _put_between(driver, Cursor, name, lambda cursor: cursor.connection)
    for name in ("commit", "rollback", "close"):
        _put_between(driver, Connection, name, lambda connection: connection)
    return Connection


def psycopg_classes(driver: Driver) -> type[Any]:
    class Cursor(psycopg.Cursor):
        pass

    class Connection(psycopg.Connection):
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            self.cursor_factory = Cursor

        def __del__(self) -> None:
            # SQLAlchemy leaves a connection to the garbage collector that fails while it is set up.
            psycopg.Connection.close(self)

        def cursor(self, *given: Any, **named: Any) -> Any:
            return driver.call(
                "cursor", self, lambda: super(Connection, self).cursor(*given, **named)
            )

        def execute(self, *given: Any, **named: Any) -> Any:
            return self.cursor().execute(*given, **named)

    for name in ("execute", "executemany", "fetchone", "fetchall", "fetchmany", "close"):
        _put_between(driver, Cursor, name, lambda cursor: cursor.connection)
    # Pipelines are waited for; what else waits does so inside another call.
    for name in ("commit", "rollback", "close", "wait"):
        _put_between(driver, Connection, name, lambda connection: connection)
    return Connection


def _put_between(driver: Driver, owner: type, name: str, connection_of: Any) -> None:
    original = getattr(owner, name)

    def call(self: Any, *given: Any, **named: Any) -> Any:
        return driver.call(
            name,
            connection_of(self),
            lambda: original(self, *given, **named),
            self if self is not connection_of(self) else None,
        )

    setattr(owner, name, call)


@pytest.fixture
def driver(workspace: Workspace) -> Iterator[Driver]:
    engine = workspace.engine

    def kill(connection: Any) -> None:
        if engine == "sqlite":
            sqlite3.Connection.close(connection)
        elif not connection.closed:
            backend = connection.info.backend_pid
            workspace.execute("SELECT pg_terminate_backend(?)", (backend,))
            gone = "SELECT 1 FROM pg_stat_activity WHERE pid = ?"
            wait_until(lambda: not workspace.execute(gone, (backend,)), "it was gone")

    control = workspace.control
    control.engine.prepare(control.connection)  # on a connection with the driver's own classes
    driver = Driver(engine, kill)
    if engine == "sqlite":
        kind: Any = sqlite_classes(driver)
        connect: Any = lambda *given, **named: sqlite3.connect(*given, factory=kind, **named)
    else:
        connect = psycopg_classes(driver).connect

    def do_connect(_dialect: Any, _record: Any, given: Any, named: Any) -> Any:
        if engine == "postgresql":
            named.setdefault("application_name", "zapdb test")
        return driver.call("connect", None, lambda: connect(*given, **named))

    sqlalchemy.event.listen(sqlalchemy.Engine, "do_connect", do_connect)
    try:
        yield driver
    finally:
        driver.rest()
        sqlalchemy.event.remove(sqlalchemy.Engine, "do_connect", do_connect)


# What is done

NOTE = "a note that is a blob " * 400
OPERATIONS: dict[str, Callable[[Database], object]] = {}


def operation(act: Callable[[Database], object]) -> Callable[[Database], object]:
    OPERATIONS[act.__name__] = act
    return act


@operation
def insert(db: Database) -> object:
    return db.table("items").insert(id=50, title="Milk", size=3, note=NOTE)


@operation
def insert_many(db: Database) -> object:
    return db.table("items").insert_many({"id": n, "title": "x"} for n in (50, 51, 52))


@operation
def update(db: Database) -> object:
    return db.table("items").update(3, size=30, note=NOTE)


@operation
def upsert(db: Database) -> object:
    return db.table("items").upsert(id=3, size=30)


@operation
def delete(db: Database) -> object:
    return db.table("items").delete(3)


@operation
def transaction(db: Database) -> object:
    items = db.table("items")
    with db.transaction():
        items.insert(id=50, title="outer")
        with suppress(ZeroDivisionError), db.transaction():
            items.update(3, size=31)
            raise ZeroDivisionError
        with db.transaction():
            items.delete(4)
    return None


@operation
def run_with_token(db: Database) -> object:
    def work() -> None:
        db.table("items").insert(id=50, title="Milk")
        db.table("items").update(3, size=30)

    return db.run(work, token=True)


@operation
def handle(db: Database) -> object:
    with db.transaction() as tx:
        items = tx.table("items")
        items.insert(id=50, title="outer", note=NOTE)
        with suppress(ZeroDivisionError), tx.savepoint() as inner:
            inner.table("items").update(3, size=31)
            raise ZeroDivisionError
        with tx.savepoint():
            items.delete(4)
        items.update(5, size=items.get(3).size)
    return None


@operation
def handle_with_token(db: Database) -> object:
    with db.transaction(token=True) as tx:
        tx.table("items").insert(id=50, title="Milk")
    return None


@operation
def handle_from_elsewhere(db: Database) -> object:
    """As where a framework leaves the block: begun by one thread, used and left by another."""
    block = db.transaction()
    tx = in_a_thread(block.__enter__)
    with leaving(block):
        tx.table("items").insert(id=50, title="Milk", size=3)
        tx.table("items").update(3, size=30)
    return None


@operation
def handle_left_elsewhere(db: Database) -> object:
    """Begun and used by one thread, and left by another, which can't fail."""
    block = db.transaction()
    tx = block.__enter__()
    failed = None
    try:
        tx.table("items").insert(id=50, title="Milk", size=3)
    except ZapdbError as error:
        failed = error
    in_a_thread(lambda: block.__exit__(type(failed) if failed else None, failed, None))
    if failed is not None:
        raise failed
    return None


SETTLED = ("run_with_token", "handle_with_token", "handle_left_elsewhere")
"""Operations whose COMMIT has an outcome that is known, or does not fail."""


def in_a_thread(act: Callable[[], T]) -> T:
    """What another thread gets of it, in which no call of the driver fails."""
    with ThreadPoolExecutor(1) as other:
        return other.submit(act).result()


@contextmanager
def leaving(block: Any) -> Iterator[None]:
    """Leaves a block that was entered elsewhere."""
    try:
        yield
    except BaseException as error:
        block.__exit__(type(error), error, error.__traceback__)
        raise
    block.__exit__(None, None, None)


READS: dict[str, Callable[[Database], object]] = {
    "get": lambda db: db.table("items").get(3).title,
    "get_many": lambda db: [r and r.id for r in db.table("items").get_many([3, 99])],
    "query": lambda db: [
        r.id for r in db.table("items").where(db.table("items").f.size > 2).order_by("-size")
    ],
    "blob": lambda db: db.table("items").get(1).note,
    "snapshot": lambda db: _read_in_snapshot(db),
    "handle": lambda db: _read_through_handle(db),
    "handle_from_elsewhere": lambda db: _read_begun_elsewhere(db),
}


def _read_in_snapshot(db: Database) -> object:
    with db.snapshot():
        return db.table("items").count(), db.table("items").get(3).title


def _read_through_handle(db: Database) -> object:
    with db.snapshot() as snap:
        items = snap.table("items")
        return items.count(), items.get(1).note, [r.id for r in items.using("by_size")]


def _read_begun_elsewhere(db: Database) -> object:
    block = db.snapshot()
    snap = in_a_thread(block.__enter__)
    with leaving(block):
        return snap.table("items").count(), snap.table("items").get(3).title


# How it is looked at


@pytest.fixture
def place(workspace: Workspace, driver: Driver, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    monkeypatch.setattr(commit_tokens, "COMMIT_OUTCOME", COMMIT_OUTCOME.within(0.15))
    workspace.write(1, ITEMS, INDEX_SIZE)
    with workspace.open() as db:
        db.admin.set_setting("convert", "on_access")
        db.table("items").insert_many({"id": n, "title": f"Item {n}", "size": n} for n in range(6))
        db.table("items").update(1, note=NOTE)
        db.admin.run_jobs()
    return workspace


@pytest.fixture
def watch(place: Workspace) -> Iterator[Database]:
    """Another one that looks at the same database."""
    with zapdb.open(place.address, read_only=True) as db:
        yield db


def content(watch: Database) -> list[Any]:
    """The records as they read, and the entries as they are stored."""
    items = watch.table("items")
    with watch.snapshot():
        connection = watch._storage.connection()
        entries = connection.fetch_all("SELECT key, record FROM zapdb_entries_1 ORDER BY 1, 2")
        return [[(r.id, r.title, r.size, r.note) for r in items.scan()], entries]


def restore(watch: Database, db: Database, before: list[Any]) -> None:
    if content(watch) != before:
        items = db.table("items")
        with db.transaction():
            items.delete_many([*range(6), 50, 51, 52])
            items.insert_many({"id": n, "title": f"Item {n}", "size": n} for n in range(6))
            items.update(1, note=NOTE)


def strikes(
    driver: Driver, act: Callable[[], object], *, whole: bool, some: int, last: int = 0
) -> Iterator[tuple[str, ZapdbError | None, list[Any]]]:
    """Run `act` without a fault, then with each of its calls failed in each way, or with `some` of
    them: where it was struck, what it raised, and what it returned.

    Of what takes very many calls, which has a small `some`, every other one is failed.
    """

    def run(at: int, way: Way, lasting: bool) -> tuple[str, ZapdbError | None, list[Any]]:
        found: list[Any] = []
        driver.arm(at, way, lasting=lasting)
        try:
            error = error_of(lambda: found.append(act()))
        finally:
            driver.rest()
        assert driver.struck or error is None
        return f"{driver.struck[:3]} at {at}, {way}, lasting: {lasting}", error, found

    yield run(0, "before", False)
    calls = driver.calls
    for lasting, (shift, way) in itertools.product((False, True), enumerate(WAYS)):
        if whole:
            at = 1
            while True:  # what was struck may take more calls than what was not
                yield run(at, way, lasting)
                if not driver.struck:
                    break
                at += 1 if some > 2 else 11 if lasting else 2
        elif not lasting:
            # Others in each way, and the `last` ones, where a transaction ends, in all.
            spread = range(1 + shift, calls + 1, max(1, calls // some))
            for at in sorted({*spread, *range(calls + 1 - last, calls + 1)}):
                yield run(at, way, lasting)


def lasting_rows(place: Workspace) -> dict[str, list[tuple[Any, ...]]]:
    """All rows, but for those that opening a database very often changes."""
    rows = dump(place)
    rows["zapdb_counters"] = [row for row in rows["zapdb_counters"] if row[0] != "horizon"]
    return rows


def check_goes_on(place: Workspace, db: Database, *, is_noticed: bool) -> None:
    """Nothing is held, and nothing lost, and the database works as before.

    A connection that was lost without being noticed is noticed when it is used next.
    """
    assert not db._storage.is_in_transaction
    assert db._storage.pool.list_open() == []
    if not is_noticed:
        assert isinstance(error_of(lambda: db.table("items").get(2)), StorageError | None)
    assert db.table("items").get(2).title == "Item 2"
    with db.transaction():
        db.table("items").update(2, title="Item 2")
    # One for this thread, the heartbeat and the follower each, and one for the next transaction.
    assert len(db._storage.pool._idle) <= 1
    assert db._storage.engine.core.pool.checkedout() - len(db._storage.pool._idle) <= 3
    if place.engine == "postgresql":
        sql = (
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            " AND state LIKE 'idle in transaction%%'"
        )
        wait_until(lambda: place.execute(sql) == [(0,)], "no transaction is left open")
    else:
        with place.control.transaction(TransactionMode.CATALOG):
            pass


LENGTHS = [
    pytest.param(False, id="short"),
    pytest.param(True, id="whole", marks=pytest.mark.long),
]


@pytest.mark.parametrize("whole", LENGTHS)
def test_rule_15_a_write_is_done_or_not_whatever_the_driver_does(
    place: Workspace, watch: Database, driver: Driver, whole: bool
) -> None:
    db = place.open()
    before = content(watch)
    for name, act in OPERATIONS.items():
        act(db)
        after = content(watch)
        assert after != before
        restore(watch, db, before)
        assert content(watch) == before
        seen = set()
        for where, error, _ in strikes(driver, lambda a=act: a(db), whole=whole, some=4, last=3):
            now = content(watch)
            assert now in (before, after), (name, where, "it was done in part")
            if error is None:
                assert now == after, (name, where, "it was said to be done")
            elif not isinstance(error, CommitUnknown):
                assert now == before, (name, where, error)
            seen.add((type(error), now == after))
            assert isinstance(error, ZapdbError | None)
            assert error is None or error.hint or type(error) is StorageError
            check_goes_on(place, db, is_noticed=error is not None)
            restore(watch, db, before)
        if whole and name not in SETTLED:
            assert {(CommitUnknown, True), (CommitUnknown, False)} <= seen, name
    assert db.admin.verify()[0].records == 6


def test_what_can_not_be_undone_in_part_is_undone_whole(
    place: Workspace, watch: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever of an inner block may still be there, the outer one does not commit it."""
    db = place.open()
    owner: Any = Connection if place.engine == "sqlite" else Pipeline
    run = owner.run
    items, before = db.table("items"), content(watch)
    statements = ("SAVEPOINT zapdb", "ROLLBACK TO SAVEPOINT zapdb", "RELEASE SAVEPOINT zapdb")

    def work(fail: Any, *, raises: bool) -> None:
        with db.transaction():
            items.insert(id=50, title="outer")
            monkeypatch.setattr(owner, "run", fail)
            with suppress(ZeroDivisionError, StorageError), db.transaction():
                items.insert(id=51, title="inner")
                if raises:
                    raise ZeroDivisionError

    for statement, is_sent in itertools.product(statements, (False, True)):
        struck: list[str] = []

        def fail(
            self: Any,
            given: Any,
            parameters: Any = None,
            *,
            at: tuple[str, bool] = (statement, is_sent),
            struck: list[str] = struck,
        ) -> Any:
            act = partial(run, self, given, *([] if parameters is None else [parameters]))
            sent = [given] if isinstance(given, str) else [one.sql for one in given]
            if at[0] not in sent or struck:
                return act()
            struck.append(at[0])
            if at[1]:
                act()
            raise StorageError("the database reported an error")

        raises = statement.startswith("ROLLBACK")
        error = error_of(lambda fail=fail, raises=raises: work(fail, raises=raises))
        monkeypatch.setattr(owner, "run", run)
        assert struck
        assert isinstance(error, TransactionConflict)
        assert error.message == (
            "rolling back a savepoint failed, so the whole transaction was rolled back"
        )
        assert content(watch) == before
    assert db.run(lambda: items.insert(id=50, title="again").id) == 50


@pytest.mark.parametrize("whole", LENGTHS)
def test_a_read_is_right_or_says_what_failed(place: Workspace, driver: Driver, whole: bool) -> None:
    db = place.open()
    for name, act in READS.items():
        right = act(db)
        run = lambda a=act: a(db)
        for where, error, found in strikes(driver, run, whole=whole, some=3, last=3):
            assert error is not None or found == [right], (name, where)
            assert not isinstance(error, CommitUnknown), (name, where, "nothing was changed")
            check_goes_on(place, db, is_noticed=error is not None)


@pytest.mark.parametrize("whole", LENGTHS)
def test_an_open_that_fails_leaves_nothing(place: Workspace, driver: Driver, whole: bool) -> None:
    before, threads = lasting_rows(place), set(threading.enumerate())
    for read_only in (False, True):

        def act(read_only: bool = read_only) -> object:
            options = {"migrations": place.directory, "read_only": read_only}
            with zapdb.open(place.address, **options) as db:
                return db.table("items").get(2).title

        for where, error, found in strikes(driver, act, whole=whole, some=2):
            assert error is not None or found == ["Item 2"]
            assert lasting_rows(place) == before, where
            assert act() == "Item 2"
            new = set(threading.enumerate()) - threads
            assert not {thread.name for thread in new} & set(BACKGROUND), where


@pytest.mark.parametrize("whole", LENGTHS)
def test_jobs_that_were_interrupted_are_finished(
    place: Workspace, driver: Driver, whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What a fault leaves claimed is waited for.
    monkeypatch.setattr("zapdb.jobs.job.RANGE_LEASE_SECONDS", 0.5)
    place.write(2, ADD_COLOR, INDEX_SIZE.replace("by_size", "again"))
    stale = place.execute("SELECT value, key FROM zapdb_records_1")
    db = place.open()

    def begin_anew() -> None:
        """All records are stale again, and the index is to be built again."""
        place.execute("DELETE FROM zapdb_ranges")
        place.execute("DELETE FROM zapdb_range_revisions")
        place.execute("DELETE FROM zapdb_catalog WHERE kind = 'job'")
        for value, key in stale:
            place.execute("UPDATE zapdb_records_1 SET value = ? WHERE key = ?", (value, key))
        with place.control.transaction(TransactionMode.DDL) as connection:
            state = load_tenant_catalog(connection, 1).table("items")
            rebuild_index(connection, 1, state, state.schema.index_named("again"))

    begin_anew()
    for where, error, _ in strikes(driver, db.admin.run_jobs, whole=whole, some=2):
        assert error is None or isinstance(error, ZapdbError), where
        check_goes_on(place, db, is_noticed=error is not None)
        # A range whose claim was not known to have been committed is its owner's until then.
        place.execute("UPDATE zapdb_ranges SET expires_at = 0 WHERE expires_at IS NOT NULL")
        db.admin.run_jobs()
        assert db.admin.count_by_revision("items") == {2: 6}, where
        assert [r.id for r in db.table("items").using("again")] == list(range(6)), where
        assert "again" in db.table("items").readable_indexes()
        begin_anew()
    db.admin.run_jobs()
    assert db.admin.count_by_revision("items") == {2: 6}
    assert [r.id for r in db.table("items").using("again")] == list(range(6))
    assert db.admin.verify()[0].records == 6
