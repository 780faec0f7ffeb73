"""Transactions as an application uses them: nested, repeated, left open, closed, forked, in
threads, and those whose COMMIT reports an error."""

from __future__ import annotations

import os
import socket
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

from tests.contract.tables import ADD_COLOR, INDEX_SIZE, ITEMS
from tests.lookups import between
from tests.support import (
    BACKGROUND,
    GUARD_SECONDS,
    WAYS,
    Faults,
    Way,
    Workspace,
    error_of,
    finish,
    wait_until,
)
from zapdb.database import (
    Database,
    Table,
    catalog_watch,
)
from zapdb.errors import (
    CommitUnknown,
    RecordExists,
    StorageError,
    TransactionConflict,
    UsageError,
)
from zapdb.storage import Connection, TransactionMode
from zapdb.storage.driver_errors import DuplicateKey
from zapdb.storage.engine import StorageEngine
from zapdb.storage.fair_lock import Granted
from zapdb.tables import (
    commit_tokens,
)
from zapdb.tables.commit_tokens import _took_effect, write_commit_token

TOKENS = "SELECT count(*) FROM zapdb_commit_tokens"


@pytest.fixture
def db(workspace: Workspace) -> Database:
    workspace.write(1, ITEMS, INDEX_SIZE)
    return workspace.open()


@pytest.fixture
def items(db: Database) -> Table:
    return db.table("items")


def ids(items: Table) -> list[int]:
    found = [record.id for record in items.scan()]
    assert sorted(record.id for record in items.using("by_size")) == found
    return found


# Nested


@pytest.mark.on_each_engine
def test_an_inner_transaction_is_undone_and_the_outer_goes_on(db: Database, items: Table) -> None:
    with db.transaction():
        items.insert(id=1, title="outer")
        with suppress(ZeroDivisionError), db.transaction():
            items.insert(id=2, title="inner")
            with db.transaction():
                items.insert(id=3, title="innermost")
            assert ids(items) == [1, 2, 3]
            raise ZeroDivisionError
        assert ids(items) == [1]
        with pytest.raises(RecordExists):
            items.insert(id=1, title="again")
        with db.transaction():
            items.insert(id=4, title="kept")
            with pytest.raises(ZeroDivisionError):
                db.run(lambda: (items.insert(id=5, title="undone"), 1 / 0))
            assert db.run(lambda: items.insert(id=6, title="kept").id) == 6
    assert ids(items) == [1, 4, 6]
    with suppress(ZeroDivisionError), db.transaction():
        with db.transaction():
            items.insert(id=7, title="inner")
        raise ZeroDivisionError
    assert ids(items) == [1, 4, 6]


# Conflicts


@pytest.mark.parametrize("engine", ["postgresql"])
def test_rule_15_a_function_is_repeated_and_a_block_says_that_it_can_not_be(
    db: Database, items: Table
) -> None:
    items.insert(id=1, title="Milk", size=0)
    calls = []

    def add() -> int:
        size = items.get(1).size
        if not calls:
            other = threading.Thread(target=lambda: items.update(1, size=10))
            other.start()
            other.join()
        calls.append(size)
        return items.update(1, size=size + 1).size

    assert db.run(add) == 11
    assert calls == [0, 10]
    calls.clear()

    def block() -> None:
        with db.transaction():
            items.insert(id=9, title="undone")
            add()

    error = error_of(block)
    assert isinstance(error, TransactionConflict)
    assert error.hint == (
        "nothing was written; a with block can't be run again by itself: run it again, or put "
        "what it does into a function and call db.run(function)"
    )
    assert (items.get(1).size, items.exists(9)) == (10, False)


@pytest.mark.on_each_engine
def test_a_transaction_is_its_threads(db: Database, items: Table) -> None:
    """Another thread sees nothing of it, and is in none."""
    seen: list[object] = []

    def look() -> None:
        seen.append(items.find(1))
        if db._storage.dialect.name == "postgresql":
            seen.append(items.insert(id=2, title="theirs").id)

    with db.transaction():
        items.insert(id=1, title="mine")
        other = threading.Thread(target=look)
        other.start()
        other.join()
        assert seen in ([None], [None, 2])
    assert items.exists(1)


@pytest.mark.on_each_engine
def test_rule_15_no_lock_error_reaches_the_application(db: Database, items: Table) -> None:
    """8 threads that read and 2 that write at once, for 0.8 s and until each has read."""
    items.insert_many({"id": at, "title": "x", "size": at} for at in range(200))
    is_over, errors, done = threading.Event(), list[Exception](), [0] * 10

    def work(number: int) -> None:
        try:
            while not is_over.is_set():
                if number < 8:
                    assert len(list(between(items, "by_size", limit=20))) == 20
                    assert items.get_many([number, 500 + number])[0] is not None
                else:
                    with db.transaction():
                        size = items.get(number).size
                        items.update(number, size=size + 1)
                    items.insert(id=1000 * number + done[number], title="more")
                done[number] += 1
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(10)]
    for thread in threads:
        thread.start()
    time.sleep(0.8)
    readers = threads[:8]
    wait_until(
        lambda: min(done[:8]) > 0 or not all(reader.is_alive() for reader in readers),
        "each has read",
    )
    is_over.set()
    finish(*threads)
    # A with block can't be repeated; on SQLite one writer waits for the other, and none must be.
    if db._storage.dialect.name == "sqlite":
        assert errors == []
        assert [items.get(n).size for n in (8, 9)] == [8 + done[8], 9 + done[9]]
    else:
        assert {type(error) for error in errors} <= {TransactionConflict}
    assert min(done[:8]) > 0


@pytest.mark.parametrize("engine", ["sqlite"])
@pytest.mark.on_each_engine
def test_a_writer_that_waits_is_passed_by_no_other(
    db: Database, items: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a queue, who writes without a pause gets in thousands of times meanwhile."""
    items.insert_many({"id": at, "title": "x"} for at in range(2))
    turn, done, is_over = db._storage.pool.turn, [0], threading.Event()
    ask, acquire, here = turn._ask, turn.acquire, threading.current_thread()
    asked, passed = list[int](), list[int]()

    def ask_and_note(granted: Granted) -> None:
        ask(granted)
        if threading.current_thread() is here:
            asked.append(done[0])

    def acquire_and_note(*given: Any) -> bool:
        found = acquire(*given)
        if threading.current_thread() is here:
            passed.extend(done[0] - at for at in asked)  # none, if the place was free
            asked.clear()
        return found

    def write_on() -> None:
        while not is_over.is_set():
            items.update(0, title=str(done[0]))
            done[0] += 1

    other = threading.Thread(target=write_on)
    other.start()
    wait_until(lambda: done[0] > 5, "the other one writes")
    monkeypatch.setattr(turn, "_ask", ask_and_note)
    monkeypatch.setattr(turn, "acquire", acquire_and_note)
    for number in range(10_000):
        items.update(1, title=str(number))
        if len(passed) >= 20:
            break
    is_over.set()
    finish(other)
    assert len(passed) >= 20
    assert max(passed) <= 2  # the one that was under way, and one that was not yet counted


@pytest.mark.parametrize("engine", ["sqlite"])
@pytest.mark.on_each_engine
def test_writers_of_databases_that_one_process_opened_often_take_turns(
    workspace: Workspace, db: Database, items: Table
) -> None:
    """The one that has waited longest writes next, whichever `Database` it uses."""
    count = 8
    items.insert_many({"id": at, "title": "x"} for at in range(count))
    databases = [workspace.open() for _ in range(count)]
    finished: list[int] = []

    def write(number: int) -> None:
        with databases[number].transaction() as tx:
            tx.table("items").update(number, title="y")
            finished.append(number)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(count)]
    with db.transaction() as tx:
        tx.table("items").update(0, title="y")  # holds the writer lock
        for number, thread in enumerate(threads):
            thread.start()
            wait_until(lambda n=number: len(db._storage.pool.turn._waiting) == n + 1, "it waits")
        assert finished == []
    for thread in threads:
        thread.join()
    assert finished == list(range(count))


# Left open, closed


@pytest.mark.on_each_engine
def test_a_database_is_not_closed_inside_a_transaction(db: Database, items: Table) -> None:
    for enter in (db.transaction, db.snapshot):
        with enter():
            error = error_of(db.close)
            assert isinstance(error, UsageError)
            assert str(error) == (
                "this thread has an open transaction or snapshot\n"
                f"  database: {db._storage.shown_url}\n"
                "  hint: leave its with block first; the end of the block commits it, "
                "and an error rolls it back"
            )
            assert items.count() == 0
    with suppress(UsageError), db.transaction():
        items.insert(id=1, title="undone")
        db.close()
    assert items.count() == 0


@pytest.mark.on_each_engine
def test_closing_undoes_the_transactions_of_other_threads(
    workspace: Workspace, db: Database
) -> None:
    errors: list[BaseException | None] = []
    inside, closed = threading.Event(), threading.Event()

    def write(db: Database, goes_on: bool) -> None:
        with db.transaction():
            db.table("items").insert(id=1, title="undone")
            inside.set()
            closed.wait(GUARD_SECONDS)
            if goes_on:
                db.table("items").insert(id=2, title="late")

    def run(db: Database, goes_on: bool) -> None:
        errors.append(error_of(lambda: write(db, goes_on)))

    for goes_on in (False, True):
        inside.clear()
        closed.clear()
        other = threading.Thread(target=run, args=(db, goes_on))
        other.start()
        assert inside.wait(GUARD_SECONDS)
        db._storage.close()
        closed.set()
        other.join()
        error = errors.pop()
        assert isinstance(error, UsageError)
        assert error.message == "the database is closed"
        db = workspace.open()
        assert db.table("items").count() == 0


def test_a_closed_database_says_so(db: Database, items: Table) -> None:
    db.close()
    for act in (
        lambda: items.get(1),
        lambda: items.get_many([1]),
        lambda: items.upsert(id=1, title="x"),
        lambda: db.run(lambda: None),
        lambda: db.transaction().__enter__(),
        lambda: db.snapshot().__enter__(),
    ):
        error = error_of(act)
        assert isinstance(error, UsageError)
        assert str(error) == (
            f"the database is closed\n  database: {db._storage.shown_url}\n  hint: open it again"
        )


# Forks


def in_a_fork(act: Callable[[], str]) -> str:
    """What `act` returns in a process that is forked from this one."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # this process has threads
        child = os.fork()
    if not child:
        try:
            os.write(writing, act().encode())
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading) as pipe:
        return pipe.read()


@pytest.mark.on_each_engine
def test_a_forked_process_must_open_the_database_again(
    workspace: Workspace, db: Database, items: Table
) -> None:
    items.insert(id=1, title="Milk")

    def use() -> str:
        said = str(error_of(lambda: items.get(1)))
        for act in (
            lambda: items.insert(id=2, title="x"),
            db.snapshot().__enter__,
            db.admin.metrics,
        ):
            error = error_of(act)
            assert isinstance(error, UsageError)
            assert str(error) == said
        db.close()  # of nothing: the node and the connections are the parent's
        return said.replace(str(os.getpid()), "CHILD")

    assert in_a_fork(use) == (
        "the database was opened before this process was forked\n"
        f"  database: {db._storage.shown_url}\n"
        f"  opened_by: {os.getpid()}\n"
        "  process: CHILD\n"
        "  hint: open it again in this process, because connections cannot be shared; "
        "forking servers have a hook for it, and multiprocessing can use 'spawn'"
    )
    items.insert(id=2, title="Bread")
    assert ids(items) == [1, 2]


@pytest.mark.on_each_engine
def test_a_fork_inside_a_transaction_leaves_it_to_the_parent(db: Database, items: Table) -> None:
    def leave() -> str:
        return type(error_of(lambda: block.__exit__(None, None, None))).__name__

    block = db.transaction()
    block.__enter__()
    items.insert(id=1, title="Milk")
    inner = db.transaction()
    inner.__enter__()
    assert in_a_fork(lambda: type(error_of(lambda: inner.__exit__(None, None, None))).__name__)
    assert in_a_fork(leave) == "UsageError"
    inner.__exit__(None, None, None)
    items.insert(id=2, title="Bread")
    block.__exit__(None, None, None)
    assert ids(items) == [1, 2]


# COMMIT


def fail_commit(
    place: Workspace, db: Database, way: Way, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Callable[[], object]], Exception | None]:
    """What makes the next COMMIT of an action fail, and returns what the action raises."""
    faults, kind = Faults(place, db._storage, way, lasting=False), type(db._storage.engine)
    commit, armed = kind.commit, []

    def fail(engine: StorageEngine, connection: Connection) -> None:
        is_other = connection.storage is not db._storage
        if is_other or threading.current_thread().name in BACKGROUND or not armed:
            commit(engine, connection)
            return
        armed.clear()
        if way == "after":
            commit(engine, connection)
        if way == "drop":
            faults._drop(connection)
        raise StorageError("the database reported an error", error="made by a test")

    def run(act: Callable[[], object]) -> Exception | None:
        armed.append(1)
        error = error_of(act)
        assert not armed
        return error

    monkeypatch.setattr(kind, "commit", fail)
    return run


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.on_each_engine
def test_rule_15_a_token_settles_what_a_commit_did(
    workspace: Workspace, db: Database, items: Table, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = fail_commit(workspace, db, way, monkeypatch)
    took_effect = way == "after"

    def block(key: int, *, token: bool) -> None:
        with db.transaction(token=token):
            items.insert(id=key, title="Milk")

    unknown = run(lambda: block(1, token=False))
    assert isinstance(unknown, CommitUnknown)
    assert unknown.hint == (
        "check whether the change is there before repeating it; with token=True, db.run "
        "and db.transaction find out themselves"
    )
    assert items.exists(1) == took_effect
    error = run(lambda: block(2, token=True))
    assert items.exists(2) == took_effect
    if took_effect:
        assert error is None
    else:
        assert isinstance(error, TransactionConflict)
        assert error.message == "COMMIT reported an error and did not take effect"
    calls: list[int] = []

    def write() -> int:
        calls.append(1)
        return items.insert(id=3, title="Milk").id

    found: list[int] = []
    assert run(lambda: found.append(db.run(write, token=True))) is None
    assert (found, len(calls), items.exists(3)) == ([3], 1 if took_effect else 2, True)
    assert isinstance(run(lambda: db.run(lambda: items.insert(id=4, title="x"))), CommitUnknown)
    assert items.exists(4) == took_effect
    ids(items)


@pytest.mark.parametrize("engine", ["postgresql"])
@pytest.mark.on_each_engine
def test_rule_15_a_token_waits_for_the_session_that_was_lost_sight_of(
    workspace: Workspace, db: Database, items: Table
) -> None:
    """Its COMMIT may still be on its way: what is not there yet is not taken for absent."""
    other, found = workspace.connect(), list[bool | None]()
    with other.transaction(TransactionMode.WRITE) as connection:
        token = write_commit_token(connection, "another")
        asking = threading.Thread(target=lambda: found.append(_took_effect(db._storage, token)))
        asking.start()
        waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        wait_until(lambda: workspace.execute(waiting), "it waits")
        assert found == []
    asking.join()
    assert found == [True]


@pytest.mark.parametrize("engine", ["postgresql"])
@pytest.mark.on_each_engine
def test_rule_15_a_token_that_was_not_there_is_not_there_later(
    workspace: Workspace, db: Database
) -> None:
    """The session may not have come to it yet: it is refused then, with all that it wrote."""
    other, late = workspace.connect(), workspace.connect()
    with suppress(ZeroDivisionError), other.transaction(TransactionMode.WRITE) as connection:
        token = write_commit_token(connection, "another")
        raise ZeroDivisionError
    for _ in range(2):
        assert _took_effect(db._storage, token) is False
    insert = "INSERT INTO zapdb_commit_tokens (id, owner, expires_at) VALUES (%s, 'another', %s)"

    with pytest.raises(DuplicateKey), late.transaction(TransactionMode.WRITE) as connection:
        connection.run(insert, (token.id, token.expires_at))


@pytest.mark.parametrize("engine", ["postgresql"])
@pytest.mark.on_each_engine
def test_rule_15_what_a_lost_session_waited_to_do_is_done_once(
    workspace: Workspace, db: Database, items: Table
) -> None:
    """It has got all of a write, up to its COMMIT, and waits for the gate without a client."""
    waiting = (
        "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        " AND query LIKE '%%LOCK TABLE zapdb_gate IN ROW SHARE%%'"
    )
    other = workspace.connect()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(items.insert, id=1, title="before").result(GUARD_SECONDS)
        session = pool.submit(lambda: db._storage.connection().driver.fileno())
        with other.transaction(TransactionMode.DDL):
            insert = pool.submit(error_of, lambda: items.insert(id=2, title="once"))
            wait_until(lambda: workspace.execute(waiting), "it waits")
            with socket.socket(fileno=os.dup(session.result(GUARD_SECONDS))) as client:
                client.shutdown(socket.SHUT_RDWR)
            wait_until(lambda: len(workspace.execute(waiting)) == 2, "it waits in a new session")
        assert insert.result(GUARD_SECONDS) is None
    assert ids(items) == [1, 2]


def test_a_token_settles_nothing_once_it_may_be_gone(
    workspace: Workspace, db: Database, items: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit_tokens, "COMMIT_TOKEN_KEPT_SECONDS", -1.0)
    run = fail_commit(workspace, db, "after", monkeypatch)
    error = run(lambda: db.run(lambda: items.insert(id=1, title="x"), token=True))
    assert isinstance(error, CommitUnknown)
    assert items.exists(1)
    assert workspace.execute(TOKENS) == [(1,)]
    assert db.run(lambda: 7, token=True) == 7
    assert workspace.execute(TOKENS) == [(0,)]  # the first and its own are expired
    monkeypatch.setattr(commit_tokens, "COMMIT_TOKEN_KEPT_SECONDS", 60.0)
    assert db.run(lambda: 7, token=True) == 7
    assert workspace.execute(TOKENS) == [(1,)]
    assert commit_tokens.purge_tokens(db._storage) == 0
    db.admin.run_jobs()
    workspace.execute("UPDATE zapdb_commit_tokens SET expires_at = 1")
    db.admin.sweep(dry_run=True)
    assert workspace.execute(TOKENS) == [(1,)]
    db.admin.sweep()
    assert workspace.execute(TOKENS) == [(0,)]


@pytest.mark.on_each_engine
def test_a_token_ends_with_its_transaction(
    workspace: Workspace, db: Database, items: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next transaction of the connection has none. If it took that of one that was undone, it
    would be told that it did not take effect, and be done twice."""

    def insert_twice() -> None:
        with db.transaction(token=True):
            items.insert(id=1, title="Milk")
            items.insert(id=1, title="Milk")

    assert isinstance(error_of(insert_twice), RecordExists)
    calls: list[int] = []

    def write() -> None:
        calls.append(1)
        items.upsert(id=2, title="Milk")

    run = fail_commit(workspace, db, "after", monkeypatch)
    assert isinstance(run(lambda: db.run(write)), CommitUnknown)
    assert calls == [1]
    assert ids(items) == [2]


@pytest.mark.on_each_engine
def test_a_transaction_with_a_token_meets_a_change_of_the_schema(
    workspace: Workspace, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one without, it begins again: nothing was done in it."""
    monkeypatch.setattr(catalog_watch, "CATALOG_POLL_SECONDS", 3_600.0)
    other = workspace.open()  # which does not notice by itself what others change
    items = other.table("items")
    for number in (2, 3, 4):
        field = f"{{name: added_{number}, type: integer, default: {number}}}"
        workspace.write(number, f"add_field: {{table: items, field: {field}}}")
        workspace.open().close()
        other.run(lambda id=number: None if id == 3 else items.insert(id=id, title=""), token=True)
    assert ids(items) == [2, 4]
    assert workspace.execute(TOKENS) == [(3,)]


@pytest.mark.on_each_engine
def test_a_token_belongs_to_a_whole_transaction(db: Database, items: Table) -> None:
    with db.transaction(token=True):
        items.insert(id=1, title="x")
        for act in (
            lambda: db.run(lambda: None, token=True),
            lambda: db.transaction(token=True).__enter__(),
        ):
            error = error_of(act)
            assert isinstance(error, UsageError)
            assert error.hint == "pass token=True to the outermost transaction"
    assert items.exists(1)


# A schema that changes before the first statement


@pytest.mark.parametrize("engine", ["postgresql"])
@pytest.mark.parametrize("act", ["delete", "update", "insert", "undone", "nested"])
@pytest.mark.on_each_engine
def test_savepoints_are_there_though_the_transaction_was_begun_anew(
    workspace: Workspace, act: str
) -> None:
    """On PostgreSQL the beginning travels with the first statement. Where that is refused, since
    the schema changed, what waited between is not lost."""
    workspace.write(1, ITEMS)
    db = workspace.open()
    db.table("items").insert_many({"id": n, "title": "x", "size": n} for n in range(3))
    with db.transaction() as tx:
        workspace.write(2, ADD_COLOR)
        workspace.open()  # another process applies it
        items = tx.table("items")
        if act == "delete":
            assert items.where(items.f.size == 1).delete() == 1
        elif act == "update":
            with tx.savepoint():
                items.update(1, size=7)
        elif act == "insert":
            with tx.savepoint(), tx.savepoint():
                items.insert(id=3, title="y", size=3)
        elif act == "undone":
            with suppress(KeyError), tx.savepoint():
                items.insert(id=3, title="y", size=3)
                raise KeyError
        else:
            with tx.savepoint():
                with suppress(KeyError), tx.savepoint():
                    items.delete(1)
                    raise KeyError
                items.update(2, size=8)
        items.update(0, size=9)
    db.close()
    with workspace.open() as db:
        found = {record.id: record.size for record in db.table("items").scan()}
    assert (
        found
        == {
            "delete": {0: 9, 2: 2},
            "update": {0: 9, 1: 7, 2: 2},
            "insert": {0: 9, 1: 1, 2: 2, 3: 3},
            "undone": {0: 9, 1: 1, 2: 2},
            "nested": {0: 9, 1: 1, 2: 8},
        }[act]
    )
