"""Connections that the server ends between two operations cost nothing: what was to come is done
on new ones. Inside a transaction, losing one means what it always meant."""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy

import zapdb
from tests import processes
from tests.contract.tables import ADD_COLOR, INDEX_SIZE, ITEMS
from tests.support import (
    GUARD_SECONDS,
    PostgresServer,
    Workspace,
    error_of,
    lose_connections,
    wait_until,
)
from zapdb.catalog.cluster import (
    node_registration,
    nodes,
)
from zapdb.catalog.cluster.leases import Lease
from zapdb.cli import job_bar
from zapdb.cli.job_bar import showing_progress
from zapdb.cli.output import Output
from zapdb.control import job_runs
from zapdb.database import Database, history_threads
from zapdb.errors import StorageError
from zapdb.jobs import plan_jobs
from zapdb.past.files import (
    follower_run,
)
from zapdb.storage import Connection, Storage, TransactionMode, gate
from zapdb.storage.gate import GateHolder

NOTE = "a note that is a blob " * 400


@pytest.fixture(params=["postgresql"])
def engine(request: pytest.FixtureRequest) -> str:
    """A file has no server that could end a connection."""
    return str(request.param)


@pytest.fixture
def db(workspace: Workspace) -> Database:
    workspace.write(1, ITEMS, INDEX_SIZE)
    db = workspace.open()
    db.admin.set_setting("change_log", "on")
    db.table("items").insert_many({"id": n, "title": f"Item {n}", "size": n} for n in range(6))
    db.table("items").update(1, note=NOTE)
    db.admin.run_jobs()
    return db


def backend_of(storage: Storage) -> int:
    """The number of this thread's session in the server."""
    return int(storage.connection().driver.info.backend_pid)


@contextmanager
def attempts() -> Iterator[list[object]]:
    """The attempts of this thread to connect."""
    made: list[object] = []
    thread = threading.current_thread()

    def note(*_: object) -> None:
        if threading.current_thread() is thread:
            made.append(1)

    # Of all engines: such listeners come before what connects for one.
    sqlalchemy.event.listen(sqlalchemy.Engine, "do_connect", note)
    yield made
    sqlalchemy.event.remove(sqlalchemy.Engine, "do_connect", note)


def in_threads(count: int, act: Callable[[int], object]) -> list[Any]:
    """What as many new threads return that are all there at one moment, and then end."""
    together = threading.Barrier(count)

    def work(number: int) -> Any:
        found = act(number)
        together.wait(GUARD_SECONDS)
        return found

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(work, range(count)))


def read_in_snapshot(db: Database) -> object:
    with db.snapshot():
        return db.table("items").count(), db.table("items").get(3).title


ON_ANOTHER = ("snapshot", "run", "token", "with")
"""What has a connection of its own: that of the thread is renewed by what comes after it."""
READS: dict[str, Callable[[Database], object]] = {
    "get": lambda db: db.table("items").get(3).title,
    "find": lambda db: db.table("items").find(99),
    "exists": lambda db: db.table("items").exists(3),
    "get_many": lambda db: [r and r.id for r in db.table("items").get_many([3, 99])],
    "count": lambda db: db.table("items").count(),
    "scan": lambda db: [r.title for r in db.table("items").scan()],
    "query": lambda db: [r.id for r in db.table("items").order_by("title", "-size")],
    "query_count": lambda db: db.table("items").where(db.table("items").f.size > 2).count(),
    "index": lambda db: [r.id for r in db.table("items").using("by_size")],
    "blob": lambda db: db.table("items").get(1).note,
    "to_arrow": lambda db: db.table("items").to_arrow(["id"]).read_all().num_rows,
    "snapshot": read_in_snapshot,
    "sql": lambda db: db.sql("SELECT count(*) AS n FROM items").fetchall(),
    "changes": lambda db: len(list(db.change_log.read())),
    "history": lambda db: len(db.admin.schema_history("items")),
    "setting": lambda db: db.admin.setting("convert"),
    "tenants": lambda db: [tenant.name for tenant in db.admin.tenants()],
    "catalog_seq": lambda db: db.admin.catalog_seq(),
    "count_by_revision": lambda db: db.admin.count_by_revision("items"),
    "verify": lambda db: [report.records for report in db.admin.verify()],
    "metrics": lambda db: "zapdb_records" in db.admin.metrics(),
}


@pytest.mark.parametrize("read_only", [False, True])
def test_a_read_is_asked_again(workspace: Workspace, db: Database, read_only: bool) -> None:
    if read_only:
        db.change_log.end()  # which a process that only reads can't give its place
        db = workspace.open("never", read_only=True)
    for name, act in READS.items():
        right, before = act(db), backend_of(db._storage)
        lose_connections(workspace, db._storage)
        assert act(db) == right, name
        assert name in ON_ANOTHER or backend_of(db._storage) != before, name


def test_what_is_read_in_parts_goes_on(
    workspace: Workspace, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zapdb.storage.record_statements.PAGE_RECORDS_MAX", 2)
    seen = []
    for record in db.table("items").scan():
        seen.append(record.id)
        lose_connections(workspace, db._storage)
    assert seen == list(range(6))
    with db.table("items").open(1, field="note") as file:
        begin = file.read(10)
        lose_connections(workspace, db._storage)
        assert begin + file.read() == NOTE.encode()


def test_a_transaction_is_begun_again(workspace: Workspace, db: Database) -> None:
    items = db.table("items")

    def with_block() -> None:
        with db.transaction():
            items.insert(id=60, title="with")

    writes: dict[str, Callable[[], object]] = {
        "insert": lambda: items.insert(id=50, title="insert"),
        "insert_many": lambda: items.insert_many([{"id": n, "title": "many"} for n in (51, 52)]),
        "update": lambda: items.update(3, size=30),
        "upsert": lambda: items.upsert(id=4, size=40),
        "delete": lambda: items.delete(5),
        "run": lambda: db.run(lambda: items.insert(id=53, title="run")),
        "token": lambda: db.run(lambda: items.insert(id=54, title="token"), token=True),
        "with": with_block,
        "setting": lambda: db.admin.set_setting("convert", "on_access"),
        "jobs": db.admin.run_jobs,
    }
    for name, act in writes.items():
        before = backend_of(db._storage)
        lose_connections(workspace, db._storage)
        act()
        assert name in ON_ANOTHER or backend_of(db._storage) != before, name
    assert [r.id for r in items.scan()] == [*range(5), 50, 51, 52, 53, 54, 60]
    assert (items.get(3).size, items.get(4).size) == (30, 40)
    assert db.admin.setting("convert") == "on_access"


def test_each_kind_of_transaction_is_begun_again(workspace: Workspace, db: Database) -> None:
    storage = db._storage
    connection = storage.connection()
    for mode, exclusive in [
        *((mode, False) for mode in TransactionMode),
        (TransactionMode.WRITE, True),
    ]:
        before = backend_of(storage)
        lose_connections(workspace, storage)
        with storage.transaction(mode, exclusive=exclusive) as begun:
            assert begun is connection  # its holder goes on with it
            begun.flush()  # where it begins with its first statement
            assert begun.driver.info.transaction_status.name == "INTRANS"
        assert backend_of(storage) != before, (mode, exclusive)


def test_one_that_waits_for_the_gate_is_begun_again(workspace: Workspace, db: Database) -> None:
    waiting = (
        "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        " AND query LIKE '%%LOCK TABLE zapdb_gate IN ROW SHARE%%' AND pid <> pg_backend_pid()"
    )
    other = workspace.connect()
    with ThreadPoolExecutor(1) as pool:
        with other.transaction(TransactionMode.DDL):
            insert = pool.submit(lambda: db.table("items").insert(id=50, title="late").id)
            wait_until(lambda: workspace.execute(waiting), "it waited")
            ((first,),) = workspace.execute(waiting)
            workspace.execute("SELECT pg_terminate_backend(?, 10000)", (first,))
            wait_until(lambda: workspace.execute(waiting) not in ([], [(first,)]), "it waits again")
        assert insert.result(GUARD_SECONDS) == 50


def test_one_that_wants_the_gate_alone_goes_on(
    workspace: Workspace, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two attempts it is in no transaction."""
    waits = threading.Event()

    def find_holders(connection: Connection) -> list[GateHolder]:
        if not waits.is_set():
            backend = connection.driver.info.backend_pid
            workspace.execute("SELECT pg_terminate_backend(?, 10000)", (backend,))
            waits.set()
        return gate.find_holders(connection)

    monkeypatch.setattr("zapdb.storage.postgresql.find_holders", find_holders)

    def change() -> object:
        with db._storage.transaction(TransactionMode.DDL) as connection:
            return connection.fetch_one("SELECT 1")

    with ThreadPoolExecutor(1) as pool:
        with workspace.connect().transaction(TransactionMode.WRITE) as writing:
            writing.fetch_one("SELECT 1")  # a transaction begins with its first statement
            changed = pool.submit(change)
            assert waits.wait(GUARD_SECONDS)
            assert not changed.done()
        assert changed.result(GUARD_SECONDS) == (1,)


def test_a_new_session_is_set_up_as_the_lost_one(workspace: Workspace, db: Database) -> None:
    reader = workspace.open("never", read_only=True)
    names = ("enable_bitmapscan", "jit", "application_name", "default_transaction_read_only")
    for opened in (db, reader):
        sql = "SELECT " + ", ".join(f"current_setting('{name}')" for name in names)
        before = opened._storage.connection().fetch_one(sql)
        assert before[:2] == ("off", "off")
        assert before[3] == ("on" if opened is reader else "off")
        lose_connections(workspace, opened._storage)
        assert opened._storage.connection().fetch_one(sql) == before


def test_lost_connections_do_not_come_from_the_pool(workspace: Workspace, db: Database) -> None:
    """Ended threads gave theirs back; all are lost, and the next thread gets a new one."""
    storage = workspace.connect()  # no thread of its own notices a loss
    pool: Any = storage.engine.core.pool

    def read(number: int) -> object:
        return storage.connection().fetch_one("SELECT %s::integer", (number,))

    def write(number: int) -> object:
        with storage.transaction(TransactionMode.WRITE):
            return read(number)

    for first, then in ((read, write), (write, read)):
        in_threads(5, read)
        storage.pool.reap_connections()
        assert pool.checkedin() >= 5
        lose_connections(workspace, storage)
        assert first(7) == (7,)
        assert in_threads(5, then) == [(n,) for n in range(5)]
        storage.pool.reap_connections()
        lose_connections(workspace, storage)
        storage.release_connection()
        # Nobody has noticed, and no thread here has a connection: each takes a lost one first.
        assert in_threads(5, first) == [(n,) for n in range(5)]


def test_a_pooled_connection_is_taken_without_a_word(workspace: Workspace) -> None:
    """A ping would be a round trip more for every thread that begins."""
    storage = workspace.connect()
    sql = "SELECT state_change, query FROM pg_stat_activity WHERE pid = ?"
    assert storage.connection().fetch_one("SELECT 1") == (1,)
    before = backend_of(storage)
    said = workspace.execute(sql, (before,))
    storage.release_connection()
    with attempts() as made:
        assert backend_of(storage) == before
    assert made == []
    assert workspace.execute(sql, (before,)) == said


def test_one_that_was_not_lost_stays_in_the_pool(workspace: Workspace) -> None:
    """What is made after a loss is used again, though others find out late about the same loss."""
    storage = workspace.connect()
    begun, late = threading.Event(), threading.Event()

    def read() -> object:
        return storage.connection().fetch_one("SELECT 1")

    def read_late() -> object:
        read()
        begun.set()
        assert late.wait(GUARD_SECONDS)
        return read()

    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(read_late)
        assert begun.wait(GUARD_SECONDS)
        read()
        lose_connections(workspace, storage)
        assert read() == (1,)
        new = backend_of(storage)
        late.set()
        assert found.result(GUARD_SECONDS) == (1,)
    storage.release_connection()
    with attempts() as made:
        assert backend_of(storage) == new
    assert made == []


def test_inside_a_snapshot_a_lost_connection_is_an_error(
    workspace: Workspace, db: Database
) -> None:
    """Another connection would read as of another moment."""
    items = db.table("items")

    def read() -> None:
        with db.snapshot():
            assert items.count() == 6
            lose_connections(workspace, db._storage)
            items.count()

    error = error_of(read)
    assert type(error) is StorageError
    assert error.message == ("the database server cannot be reached, or closed the connection")
    assert items.count() == 6


def test_a_write_outside_of_a_transaction_is_not_repeated(
    workspace: Workspace, db: Database
) -> None:
    """It may have been done before the connection was lost; zapdb has none but in transactions."""
    lose_connections(workspace, db._storage)
    with pytest.raises(StorageError):
        db._storage.connection().run("UPDATE zapdb_counters SET value = value + 1")
    db._storage.connection().run("UPDATE zapdb_counters SET value = value")


def test_a_read_that_ends_its_connection_is_asked_twice_at_most(db: Database) -> None:
    connection = db._storage.connection()
    with attempts() as made, pytest.raises(StorageError):
        connection.fetch_one("SELECT pg_terminate_backend(pg_backend_pid()), pg_sleep(1)")
    assert len(made) == 1
    assert db.table("items").count() == 6


# A server that is restarted


@pytest.fixture
def own() -> Iterator[PostgresServer]:
    """A server of the test's own, to be stopped."""
    with PostgresServer.start() as server:
        yield server


def test_a_restart_of_the_server_costs_nothing(
    own: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_registration, "NODE_HEARTBEAT_SECONDS", 0.1)
    directory = tmp_path / "migrations"
    directory.mkdir()
    with own.fresh_database() as address, Workspace("postgresql", address, directory) as place:
        place.write(1, ITEMS)
        db = place.open()
        check_short_restart(own, place, db)
        own.stop()
        check_away(db)
        own.restart()
        use_all(db, 3)


FOLLOWING = ("a thread", "history run", "history run --all-tenants")


def test_history_stores_are_followed_after_the_server_was_away(
    own: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower_run, "HISTORY_POLL_SECONDS", 0.05)
    monkeypatch.setattr(follower_run, "HISTORY_RETRY_SECONDS", 0.2)
    monkeypatch.setattr(history_threads, "RETRY_SECONDS", 0.2, raising=False)
    directory = tmp_path / "migrations"
    directory.mkdir()
    with ExitStack() as stack:
        followed = list[tuple[Database, Callable[[], bool]]]()
        for who in FOLLOWING:
            address = stack.enter_context(own.fresh_database())
            place = stack.enter_context(Workspace("postgresql", address, directory))
            place.write(1, ITEMS)
            db = place.open()
            db.admin.set_setting("change_log", "on")
            db.admin.set_setting("history_store_flush_seconds", "0")
            db.history.start(tmp_path / who)
            followed.append((db, stack.enter_context(following(place, db, who))))
        check_followed(followed, 1)
        own.stop()
        time.sleep(1.5)  # some tries fail
        own.restart()
        check_followed(followed, 2)
        db = followed[0][0]
        db.history.stop()
        wait_until(lambda: not db.history.status().is_followed, "it has stopped")
        db.history.start()
        check_followed(followed[:1], 3)


def check_followed(followed: list[tuple[Database, Callable[[], bool]]], number: int) -> None:
    for db, _ in followed:
        db.table("items").insert(id=number, title="a change")
    for db, is_alive in followed:
        assert is_alive()
        assert db.history.wait(seconds=GUARD_SECONDS).is_followed


@contextmanager
def following(place: Workspace, db: Database, who: str) -> Iterator[Callable[[], bool]]:
    if who == "a thread":
        db.history.follow()
        (thread,) = [t for t in threading.enumerate() if t.name == "zapdb-history"]
        yield thread.is_alive
        return
    command = [sys.executable, "-m", "zapdb", *who.split(), "-d", place.address]
    with processes.Popen(command) as process:
        try:
            yield lambda: process.poll() is None
        finally:
            process.kill()


def check_short_restart(own: PostgresServer, place: Workspace, db: Database) -> None:
    with ThreadPoolExecutor(1) as pool:  # a thread that holds its connection all the while
        use_all(db, 0)
        pool.submit(use_all, db, 10).result(GUARD_SECONDS)
        before = read_lease(place)
        own.stop()
        own.restart()
        pool.submit(db.table("items").insert, id=100, title="a write comes first").result(
            GUARD_SECONDS
        )
        pool.submit(use_all, db, 11).result(GUARD_SECONDS)
        use_all(db, 1)
    wait_until(lambda: read_lease(place).expires_at > before.expires_at, "the heartbeat went on")
    assert read_lease(place).since == before.since  # it was never lost
    with zapdb.open(place.address) as other:
        seq = other.admin.set_setting("convert", "on_access")
    assert db.admin.wait_for_catalog(seq, timeout_seconds=GUARD_SECONDS).seq >= seq
    use_all(db, 2)


def check_away(db: Database) -> None:
    """An error that says so, after one attempt, each time."""
    items = db.table("items")
    for act in (items.count, lambda: items.update(1, size=1)) * 2:
        with attempts() as made:
            error = error_of(act)
        assert type(error) is StorageError
        assert error.message == ("the database server cannot be reached, or closed the connection")
        assert error.hint == (
            "check the address, the user, and that the server runs; then try again"
        )
        assert len(made) == 1


def use_all(db: Database, key: int) -> None:
    """Of each kind of operation one."""
    items = db.table("items")
    assert items.find(key) is None
    assert items.insert(id=key, title="Milk").title == "Milk"
    with db.transaction():
        items.update(key, size=3)
    assert db.run(lambda: items.get(key).size, token=True) == 3
    with db.snapshot():
        assert items.get(key).size == 3
    assert key in [record.id for record in items.where(items.f.size == 3)]


def read_lease(place: Workspace) -> Lease:
    ((node, _),) = nodes.list_nodes(place.control.connection())
    return node.lease


def test_the_bar_of_a_job_goes_on_behind_a_lost_connection(
    workspace: Workspace, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace.write(2, ADD_COLOR)
    workspace.open()
    (job,) = plan_jobs(workspace.connect(), 1)
    shown, read, looks = list[Any](), job_runs.read_progress, itertools.count()

    def lose(connection: Connection, number: int) -> Any:
        if next(looks) == 0:  # in the middle of a look
            workspace.execute(f"SELECT pg_terminate_backend({connection.driver.info.backend_pid})")
        return read(connection, number)

    monkeypatch.setattr(job_runs, "read_progress", lose)
    monkeypatch.setattr(job_bar, "showing_looks", lambda *_: nullcontext(shown.append))
    with showing_progress(workspace.connect(), job, "converting", Output(), "worker"):
        wait_until(lambda: shown, "it looks again")
