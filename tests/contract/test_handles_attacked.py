"""Handles of transactions under attack: what would lose, keep or mix records, or leak a place."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import itertools
import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from types import FrameType
from typing import Any

import pytest

from tests import forms, processes
from tests.contract.tables import INDEX_SIZE, ITEMS
from tests.contract.test_handles import PICTURES, ids, insert
from tests.support import GUARD_SECONDS, Workspace, error_of, wait_until
from zapdb.database import Database
from zapdb.errors import UsageError
from zapdb.storage import TransactionMode
from zapdb.storage.fair_lock import FairSemaphore
from zapdb.storage.transaction_owners import _BEGUN


@pytest.fixture
def db(workspace: Workspace) -> Database:
    workspace.write(1, ITEMS, INDEX_SIZE, PICTURES)
    return workspace.open()


class HeldFile:
    """A file whose reader waits in the middle of a write, until it may go on."""

    def __init__(self) -> None:
        self.is_read, self.go_on = threading.Event(), threading.Event()

    def read(self, size: int) -> bytes:
        self.is_read.set()
        self.go_on.wait(GUARD_SECONDS)
        return b""


def test_a_savepoint_that_could_not_be_undone_is_not_committed(db: Database) -> None:
    """It raises while another thread uses the handle: what it did must not stay."""
    file = HeldFile()
    with ThreadPoolExecutor(1) as other, suppress(UsageError), db.transaction() as tx:
        insert(tx, 1)
        with suppress(Exception), tx.savepoint():
            insert(tx, 2)
            writing = other.submit(
                error_of, lambda: tx.table("pictures").insert(id=1, picture=file)
            )
            assert file.is_read.wait(GUARD_SECONDS)
            raise ZeroDivisionError
        file.go_on.set()
        assert writing.result() is None
    assert ids(db) in ([], [1])
    insert(db, 3)


def test_a_savepoint_that_nobody_left_touches_nothing_later(db: Database) -> None:
    """It is collected when its transaction is over, while the next one has the connection."""
    with suppress(UsageError), db.transaction() as tx:
        block = tx.savepoint()
        block.__enter__()
        insert(tx, 1)
        first = db._storage.pool.list_open()[0].connection
        del tx
    with db.transaction() as tx:
        assert db._storage.pool.list_open()[0].connection is first
        insert(tx, 2)
        with tx.savepoint():
            insert(tx, 3)
            del block
            gc.collect()
            insert(tx, 4)
        insert(tx, 5)
    assert ids(db) == [2, 3, 4, 5]


def test_a_savepoint_in_a_thread_leaves_nothing_behind_in_it(db: Database) -> None:
    def work(tx: Any) -> None:
        with tx.savepoint():
            insert(tx, 1)

    with ThreadPoolExecutor(1) as one, db.transaction() as tx:
        one.submit(work, tx).result()
        assert one.submit(db.table("items").find, 1).result() is None
        assert one.submit(db.table("items").count).result() == 0


def test_savepoints_are_not_remembered(db: Database) -> None:
    """Each call would look through them all."""
    with db.transaction() as tx:
        for _ in range(5):
            with tx.savepoint(), db.transaction():
                pass
        assert len(_BEGUN.get()) == 1


@pytest.mark.parametrize("engine", ["postgresql"])
def test_a_loop_that_has_transactions_of_files_and_of_a_server(
    db: Database, tmp_path: Any, workspace: Workspace
) -> None:
    """What waits for the server's is refused, whatever else is open."""
    with Workspace("sqlite", f"sqlite:///{tmp_path / 'beside.db'}", workspace.directory) as beside:
        file = beside.open()
        insert(db, 1)

        async def main() -> None:
            inside, done = asyncio.Event(), asyncio.Event()

            async def hold() -> None:
                with file.transaction(), db.transaction():
                    db.table("items").update(1, size=5)
                    inside.set()
                    await done.wait()

            async def wait() -> None:
                await inside.wait()
                try:
                    error = error_of(lambda: db.table("items").update(1, size=7))
                    assert isinstance(error, UsageError)
                    error = error_of(
                        lambda: db._storage.transaction(TransactionMode.DDL).__enter__()
                    )
                    assert isinstance(error, UsageError)
                finally:
                    done.set()

            await asyncio.gather(hold(), wait())

        asyncio.run(main())


@pytest.mark.parametrize("engine", ["postgresql"])
def test_a_loop_is_not_held_up_by_a_handle_that_a_thread_was_using(db: Database) -> None:
    """When the loop begins to wait, the thread goes on; afterwards only the loop could."""
    insert(db, 1)
    file = HeldFile()

    async def main() -> None:
        with db.transaction() as tx:
            tx.table("items").update(1, size=5)
            working = asyncio.create_task(
                asyncio.to_thread(lambda: tx.table("pictures").insert(id=1, picture=file))
            )
            while not file.is_read.is_set():
                await asyncio.sleep(0.01)
            threading.Timer(0.3, file.go_on.set).start()
            act = lambda: db.table("items").update(1, size=7)
            error = contextvars.Context().run(error_of, act)
            assert isinstance(error, UsageError)
            assert error.message.startswith("this call would wait forever for a transaction")
            await working

    asyncio.run(main())
    assert db.table("items").get(1).size == 5


@dataclass
class _AtPoint:
    """Does something at the n-th point at which a signal or the garbage collector could come: as a
    function of zapdb's storage begins, and as one that is built in returns to it."""

    left: int
    act: Callable[[], object]

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        is_resumed = event == "call" and frame.f_lasti > 0
        if event not in ("call", "c_return") or is_resumed or not _is_storage(frame):
            return
        self.left -= 1
        if self.left == 0:
            sys.setprofile(None)
            self.act()

    def during(self, work: Callable[[], object]) -> None:
        sys.setprofile(self)
        try:
            work()
        finally:
            sys.setprofile(None)


def _is_storage(frame: FrameType) -> bool:
    """It is asked at each call and return, so nothing may be made for it."""
    return frame.f_code.co_filename.rpartition(os.sep)[0].endswith("storage")


def _interrupt() -> None:
    raise KeyboardInterrupt


@pytest.fixture
def young_garbage() -> Iterator[None]:
    """Only what the test makes is looked at by the garbage collector."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def turns(db: Database) -> list[FairSemaphore]:
    turn = db._storage.pool.turn
    return [] if turn is None else [turn]


@pytest.mark.usefixtures("young_garbage")
@pytest.mark.parametrize("how", ["commit", "undo", "single"])
def test_ctrl_c_at_any_moment_keeps_no_place_and_no_turn(db: Database, how: str) -> None:
    """What was interrupted is undone or committed; what is written next commits nothing of it."""

    def work(key: int) -> None:
        if how == "single":
            insert(db, key)
            return
        with suppress(ZeroDivisionError), db.transaction() as tx:
            insert(tx, key)
            if how == "undo":
                raise ZeroDivisionError

    storage = db._storage
    for at in itertools.count(1, 1 if forms.is_long else 5):
        interrupting = _AtPoint(at, _interrupt)
        with suppress(KeyboardInterrupt):
            interrupting.during(lambda key=at: work(key))  # type: ignore[misc]  # a default
        if interrupting.left > 0:
            break
        gc.collect()
        db.table("items").upsert(id=0, title="next")
        with db.snapshot() as snap:
            assert how != "undo" or not snap.table("items").exists(at), at
        assert storage.pool.places.free == storage.pool.connections_max, at
        wait_until(lambda: all(turn.free for turn in turns(db)), f"the turn is free, at {at}")
        assert storage.pool.list_open() == [], at
        own = storage.pool.local.connection
        assert own is None or own.mode is None, at
    assert at > 30


@pytest.mark.usefixtures("young_garbage")
def test_the_garbage_collector_ends_a_transaction_in_the_midst_of_a_call(db: Database) -> None:
    """A generator that was dropped leaves its block then, on a thread that begins another one."""

    def dependency(circle: list[Any]) -> Iterator[Any]:
        with db.transaction() as tx:
            yield tx

    def drop() -> None:
        """A generator in a circle of references, which only the collector finds."""
        circle: list[Any] = []
        circle.append(dependency(circle))
        insert(contextvars.Context().run(next, circle[0]), 1)

    for at in range(1, 30):
        drop()
        _AtPoint(at, gc.collect).during(lambda: db.table("items").upsert(id=0, title="next"))
        gc.collect()
    assert ids(db) == [0]
    assert db._storage.pool.places.free == db._storage.pool.connections_max
    wait_until(lambda: all(turn.free for turn in turns(db)), "the turn is free")


# Nothing that a block left behind may wait for the garbage collector, so there is none here.
CLOSING = """
import contextvars, faulthandler, gc, random, sys, threading, time, zapdb
from zapdb.errors import ZapdbError

faulthandler.enable()
gc.disable()
address, directory, step = sys.argv[1:]

def work(db, seed):
    at = random.Random(seed)
    while not db._storage.pool.is_closed:
        try:
            match at.randrange(4):
                case 0:
                    with db.transaction() as tx:
                        tx.table("items").insert(id=at.getrandbits(40), title="x" * 2000)
                case 1:
                    with db.snapshot() as snap:
                        assert all(item.title for item in snap.table("items").scan())
                case 2:
                    db.table("items").insert(id=at.getrandbits(40), title="y")
                case 3:  # a block that is dropped
                    contextvars.Context().run(db.transaction().__enter__)
        except ZapdbError:
            pass  # it was closed

for round in range(0, 12, int(step)):
    db = zapdb.open(address, migrations=directory, max_connections=3)
    threads = [threading.Thread(target=work, args=(db, (round, n).__hash__())) for n in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(0.012 * round)
    db.close()
    for thread in threads:
        thread.join()
    assert db._storage.pool.list_open() == []
print("done")
"""


def test_a_database_is_closed_while_threads_work(workspace: Workspace) -> None:
    run_to_its_end(workspace, CLOSING, "1" if forms.is_long else "3")


# The driver ends the process where a connection is closed while a statement of another thread is
# under way: it looks at the connection once that has its first row.
CLOSING_BESIDE_STATEMENTS = """
import faulthandler, sys, threading, zapdb
from zapdb.errors import ZapdbError

faulthandler.enable()
address, directory = sys.argv[1:]
ONE_ROW = '''WITH RECURSIVE numbers (n) AS (
    SELECT 1 UNION ALL SELECT n + 1 FROM numbers LIMIT 3000000
) SELECT count(*) FROM numbers'''

def work(db, begun):
    connection = db._storage.connection()
    begun.release()
    try:
        while True:
            connection.fetch_all(ONE_ROW)
    except ZapdbError:
        pass  # it was closed

for round in range(3):
    db = zapdb.open(address, migrations=directory)
    begun = threading.Semaphore(0)
    threads = [threading.Thread(target=work, args=(db, begun)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        begun.acquire()
    threading.Event().wait(0.05)
    db.close()
    for thread in threads:
        thread.join()
print("done")
"""


@pytest.mark.parametrize("engine", ["sqlite"])
def test_a_database_is_closed_while_statements_of_threads_are_under_way(
    workspace: Workspace,
) -> None:
    run_to_its_end(workspace, CLOSING_BESIDE_STATEMENTS)


def run_to_its_end(workspace: Workspace, program: str, *arguments: str) -> None:
    workspace.write(1, ITEMS, INDEX_SIZE)
    workspace.open().close()
    command = [sys.executable, "-c", program, workspace.address, str(workspace.directory)]
    done = processes.run([*command, *arguments], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr[-2000:]


AT_EXIT = """
import atexit, sys
import zapdb

def last() -> None:
    with db.transaction():
        db.table("items").insert(id=1, title="written at exit")
        db._storage.pool.reap_connections()  # as a thread of zapdb's does each second
        db.table("items").insert(id=2, title="and this")
    with db._storage.transaction(TransactionMode.READ) as connection:
        db._storage.pool.reap_connections()
        assert connection.fetch_one("SELECT 7") == (7,)
    print("done")

from zapdb.storage import TransactionMode
db = zapdb.open(sys.argv[1])
atexit.register(last)
"""


def test_what_runs_at_exit_keeps_its_connection_and_its_transaction(workspace: Workspace) -> None:
    """Python says by then that the main thread has ended."""
    workspace.write(1, ITEMS)
    db = workspace.open()
    command = [sys.executable, "-c", AT_EXIT, workspace.address]
    ended = processes.run(command, capture_output=True, text=True, timeout=GUARD_SECONDS)
    assert (ended.stdout, ended.stderr, ended.returncode) == ("done\n", "", 0)
    assert db.table("items").count() == 2
