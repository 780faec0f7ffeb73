"""Handles of transactions and snapshots: whose they are, from where they may be used, what becomes
of those that nobody left."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.contract.tables import INDEX_SIZE, ITEMS
from tests.support import GUARD_SECONDS, HeldFile, Workspace, error_of, wait_until
from zapdb.database import Database
from zapdb.errors import (
    ConnectionsBusy,
    RecordNotFound,
    TransactionConflict,
    UsageError,
    ZapdbError,
)
from zapdb.storage import TransactionMode
from zapdb.storage.open_transaction import OpenTransaction

NOTE = "a note that is a blob " * 400
HERE = Path(__file__).name


PICTURES = """\
create_table: {table: pictures, key: [id], fields: [
      {name: id, type: integer},
      {name: picture, type: binary}]}"""


@pytest.fixture
def db(workspace: Workspace) -> Database:
    workspace.write(1, ITEMS, INDEX_SIZE, PICTURES)
    return workspace.open()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as made:
        yield made


def ids(db: Database) -> list[int]:
    """What is committed, as another thread sees it."""
    with ThreadPoolExecutor(1) as other:
        return other.submit(lambda: [record.id for record in db.table("items").scan()]).result()


def insert(db: Any, key: int) -> None:
    db.table("items").insert(id=key, title=f"Item {key}", size=key)


# Tasks


@pytest.mark.on_each_engine
def test_rule_15_tasks_of_one_thread_have_transactions_of_their_own(db: Database) -> None:
    """One leaves its block without an error, then the other raises: only the first one's stays."""

    async def main(first_raises: bool, base: int) -> None:
        inside, left = asyncio.Event(), asyncio.Event()

        async def first() -> None:
            with db.transaction():
                insert(db, base)
                inside.set()
                if db._storage.dialect.name == "postgresql":  # a file has one writer at a time
                    await left.wait()
                if first_raises:
                    raise ZeroDivisionError

        async def second() -> None:
            await inside.wait()
            await asyncio.sleep(0)
            with suppress(ZeroDivisionError), db.transaction():
                insert(db, base + 1)
                left.set()
                if not first_raises:
                    raise ZeroDivisionError

        await asyncio.gather(first(), second(), return_exceptions=True)

    asyncio.run(main(True, 10))
    asyncio.run(main(False, 20))
    assert ids(db) == [11, 20]


@pytest.mark.on_each_engine
def test_a_task_in_no_transaction_reads_what_is_committed(db: Database) -> None:
    async def main() -> None:
        inside, seen = asyncio.Event(), asyncio.Event()

        async def write() -> None:
            with db.transaction():
                insert(db, 1)
                inside.set()
                await seen.wait()

        async def look() -> None:
            await inside.wait()
            assert db.table("items").find(1) is None
            assert db.table("items").count() == 0
            seen.set()

        await asyncio.gather(write(), look())

    asyncio.run(main())
    assert ids(db) == [1]


@pytest.mark.on_each_engine
def test_who_inherits_a_context_neither_joins_nor_writes_alone(
    db: Database, pool: ThreadPoolExecutor
) -> None:
    """Tasks and threads that were started inside a block: each is refused, and named the handle."""
    uses: list[Callable[[], object]] = [
        lambda: insert(db, 9),
        lambda: db.table("items").find(1),
        lambda: db.table("items").count(),
        lambda: list(db.table("items").where()),
        lambda: db.transaction().__enter__(),
        lambda: db.snapshot().__enter__(),
        lambda: db.run(lambda: None),
        lambda: db.admin.setting("convert"),
    ]

    async def main() -> None:
        for enter in (db.transaction, db.snapshot):
            with enter() as handle:

                async def use(act: Callable[[], object]) -> Exception | None:
                    return error_of(act)

                for act in uses:
                    in_task, in_thread, gathered = (
                        await asyncio.create_task(use(act)),
                        await asyncio.to_thread(error_of, act),
                        (await asyncio.gather(use(act)))[0],
                    )
                    context = contextvars.copy_context()
                    copied = pool.submit(context.run, error_of, act).result()
                    for error in (in_task, in_thread, gathered, copied):
                        assert isinstance(error, UsageError)
                        assert error.message.startswith("this task or thread inherited an open ")
                        assert HERE in error.context["begun_at"]
                        assert "as tx" in (error.hint or "")
                assert await asyncio.to_thread(handle.table("items").count) == 0

        # Afterwards, those that were started inside are free.
        go_on = asyncio.Event()

        async def later() -> None:
            await go_on.wait()
            insert(db, 1)

        with db.transaction():
            task = asyncio.create_task(later())
            await asyncio.sleep(0)
        go_on.set()
        await task

    asyncio.run(main())
    assert ids(db) == [1]


@pytest.mark.on_each_engine
def test_a_thread_with_a_context_of_its_own_is_in_no_transaction(
    db: Database, pool: ThreadPoolExecutor
) -> None:
    with db.transaction():
        insert(db, 1)
        assert pool.submit(db.table("items").find, 1).result() is None


# Handles


@pytest.mark.on_each_engine
def test_a_handle_is_used_from_any_thread(db: Database, pool: ThreadPoolExecutor) -> None:
    def write(tx: Any) -> object:
        items = tx.table("items")
        items.insert(id=1, title="Milk", size=1)
        items.insert(id=2, title="Bread", size=2, note=NOTE)
        with suppress(ZeroDivisionError), tx.savepoint() as inner:
            inner.table("items").insert(id=3, title="undone")
            raise ZeroDivisionError
        items.update(2, note=NOTE + "more")
        found = [record.id for record in items.where(items.f.size > 0).order_by("size")]
        assert items.get(2).note == NOTE + "more"
        assert next(iter(items.where(items.f.id == 2))).note == NOTE + "more"
        assert items.get_many([2])[0].note == NOTE + "more"
        with items.open(2, field="note") as file:
            assert file.read() == (NOTE + "more").encode()
        assert [record.id for record in items.using("by_size")] == [1, 2]
        assert tx.sql("SELECT count(*) AS n FROM items").fetchall() == [(2,)]
        assert items.to_arrow(["id"]).read_all().num_rows == 2
        return found

    with db.transaction() as tx:
        assert pool.submit(write, tx).result() == [1, 2]
        assert ids(db) == []
        assert db.table("items").exists(2)  # the thread that began it joins
    assert ids(db) == [1, 2]
    with db.snapshot() as snap:
        ThreadPoolExecutor(1).submit(insert, db, 3).result()
        assert pool.submit(snap.table("items").count).result() == 2
        assert db.table("items").count() == 2
    assert db.table("items").count() == 3


@pytest.mark.on_each_engine
def test_two_threads_at_once_are_an_error_and_nothing_is_interleaved(
    db: Database, pool: ThreadPoolExecutor
) -> None:
    picture = HeldFile()

    with db.transaction() as tx:
        insert(tx, 1)
        writing = pool.submit(
            lambda: error_of(lambda: tx.table("pictures").insert(id=2, picture=picture))
        )
        assert picture.is_read.wait(GUARD_SECONDS)
        for act in (
            lambda: insert(tx, 3),
            lambda: insert(db, 4),
            lambda: tx.sql("SELECT 1"),
            lambda: db.admin.setting("convert"),
            lambda: db.admin.settings(),
            lambda: db.admin.catalog_seq(),
            lambda: db.admin.cluster_level(),
            lambda: db.admin.count_by_revision("items"),
        ):
            error = error_of(act)
            assert isinstance(error, UsageError)
            assert error.message == "another thread is using the transaction"
            assert HERE in error.context["begun_at"]
        picture.go_on.set()
        assert writing.result() is None
        insert(tx, 5)
    assert ids(db) == [1, 5]
    assert db.table("pictures").get(2).picture == b"x"


@pytest.mark.on_each_engine
def test_a_commit_does_not_overtake_an_undoing_that_was_asked_for(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By another thread, between the look at it and the moment in which it is taken to commit."""
    take = OpenTransaction.take_to_end

    def ask_meanwhile(begun: OpenTransaction) -> bool:
        taken = take(begun)
        if not begun.is_interrupted:
            begun.storage.undo_open(begun)
            assert not begun.is_ended
        return taken

    def write() -> None:
        with db.transaction() as tx:
            insert(tx, 1)
            monkeypatch.setattr(OpenTransaction, "take_to_end", ask_meanwhile)

    error = error_of(write)
    assert isinstance(error, UsageError)
    assert error.message == "the transaction was undone before its block was left"
    monkeypatch.undo()
    insert(db, 2)
    assert ids(db) == [2]
    assert db._storage.pool.list_open() == []


@pytest.mark.on_each_engine
def test_a_block_that_is_left_while_another_thread_works_is_undone(
    db: Database, pool: ThreadPoolExecutor
) -> None:
    inside, go_on = threading.Event(), threading.Event()

    class File:
        def read(self, size: int) -> bytes:
            inside.set()
            go_on.wait(GUARD_SECONDS)
            return b""

    def leave() -> None:
        with db.transaction() as tx:
            made.append(
                pool.submit(
                    lambda: error_of(lambda: tx.table("pictures").insert(id=1, picture=File()))
                )
            )
            assert inside.wait(GUARD_SECONDS)

    made: list[Any] = []
    error = error_of(leave)
    assert isinstance(error, UsageError)
    assert error.message == "the block was left while another thread was using the transaction"
    go_on.set()
    made[0].result()
    wait_until(lambda: not db._storage.pool.list_open(), "it was undone")
    insert(db, 2)
    assert ids(db) == [2]


@pytest.mark.parametrize("kind", ["transaction", "snapshot"])
@pytest.mark.on_each_engine
def test_what_was_made_from_a_handle_ends_with_it(db: Database, kind: str) -> None:
    db.table("items").insert_many({"id": n, "title": "x", "size": n} for n in range(5))
    with getattr(db, kind)() as handle:
        items = handle.table("items")
        query = items.where(items.f.size >= 0)
        iterators = [iter(items), iter(query), iter(items.using("by_size"))]
        for one in iterators:
            assert next(one).id == 0
    for act in (
        lambda: handle.table("items"),
        lambda: handle.sql("SELECT 1"),
        lambda: items.get(1),
        lambda: items.find(1),
        lambda: items.get_many([1]),
        lambda: items.count(),
        lambda: query.count(),
        lambda: list(query),
        lambda: query.delete(),
        lambda: insert(handle, 9),
        *[lambda one=one: next(one) for one in iterators],
    ):
        error = error_of(act)
        assert isinstance(error, UsageError), act
        assert error.message == f"the {kind} has ended"
        assert HERE in error.context["begun_at"]
    assert len(ids(db)) == 5


@pytest.mark.on_each_engine
def test_a_handle_is_left_wherever_a_framework_leaves_it(
    db: Database, pool: ThreadPoolExecutor
) -> None:
    """As FastAPI runs the parts of a dependency that yields: each in a copy of a context."""

    def dependency() -> Iterator[Any]:
        with db.transaction() as tx:
            yield tx

    def run(act: Callable[..., Any], *given: Any) -> Any:
        return pool.submit(contextvars.copy_context().run, act, *given).result()

    for key, failing in ((1, False), (2, True)):
        made = dependency()
        handle = run(next, made)
        run(insert, handle, key)
        if failing:
            with pytest.raises(ZeroDivisionError):
                run(made.throw, ZeroDivisionError())
        else:
            assert run(next, made, None) is None
    assert ids(db) == [1]


@pytest.mark.parametrize("works", [True, False])
@pytest.mark.on_each_engine
def test_a_block_without_a_handle_that_is_left_elsewhere_is_an_error(
    db: Database, works: bool
) -> None:
    """With one thread for all, too, as with one client: not only under load."""

    def dependency() -> Iterator[Any]:
        with db.transaction():
            yield db

    with ThreadPoolExecutor(1) as one:

        def run(act: Callable[..., Any], *given: Any) -> Any:
            return one.submit(contextvars.copy_context().run, act, *given).result()

        made = dependency()
        given = run(next, made)
        if works and db._storage.dialect.name == "postgresql":
            run(insert, given, 1)
        error = run(error_of, lambda: next(made))
        assert isinstance(error, UsageError)
        assert error.message == (
            "a transaction was left by another thread, task or context than began it"
        )
        assert error.context["note"] == (
            "what was written through `db` in between was committed singly"
        )
        assert "db.run(" in error.hint
        made = dependency()
        run(next, made)
        error = run(error_of, lambda: made.throw(ZeroDivisionError()))
        assert isinstance(error, UsageError)
        assert isinstance(error.__context__, ZeroDivisionError)
    insert(db, 2)  # nothing is held up


@pytest.mark.on_each_engine
def test_a_snapshot_that_is_left_elsewhere_is_an_error_about_what_was_read(db: Database) -> None:
    def dependency() -> Iterator[Any]:
        with db.snapshot():
            yield db

    with ThreadPoolExecutor(1) as one:
        made = dependency()
        for act in (lambda: next(made), lambda: error_of(lambda: next(made))):
            error = one.submit(contextvars.copy_context().run, act).result()
    assert isinstance(error, UsageError)
    assert error.message == "a snapshot was left by another thread, task or context than began it"
    assert error.context["note"] == (
        "what was read through `db` in between was not read as of one moment"
    )
    assert "db.snapshot() as snap" in error.hint


# What nobody left


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.on_each_engine
def test_a_transaction_that_nobody_left_is_undone_and_named(
    db: Database, caplog: pytest.LogCaptureFixture, kept: bool
) -> None:
    block = db.transaction()
    handle = block.__enter__() if kept else (block.__enter__(), None)[1]
    insert(db, 1)
    free = len(db._storage.pool.list_open())
    with caplog.at_level(logging.WARNING, logger="zapdb"):
        del block, handle
        gc.collect()
        wait_until(lambda: len(db._storage.pool.list_open()) < free, "it is gone")
        wait_until(lambda: "left by nobody" in caplog.text, "it is logged")
    assert HERE in caplog.text
    insert(db, 2)
    assert ids(db) == [2]


@pytest.mark.on_each_engine
def test_a_generator_that_is_dropped_undoes_its_block(db: Database) -> None:
    def dependency() -> Iterator[Any]:
        with db.transaction() as tx:
            yield tx

    made = dependency()
    insert(next(made), 1)
    del made
    gc.collect()
    insert(db, 2)
    assert ids(db) == [2]
    assert db._storage.pool.list_open() == []


@pytest.mark.on_each_engine
def test_a_cancelled_task_undoes_its_block(db: Database) -> None:
    async def main() -> None:
        inside = asyncio.Event()

        async def write() -> None:
            with db.transaction():
                insert(db, 1)
                inside.set()
                await asyncio.sleep(60)

        task = asyncio.create_task(write())
        await inside.wait()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    asyncio.run(main())
    insert(db, 2)
    assert ids(db) == [2]


@pytest.mark.on_each_engine
def test_blocks_that_are_left_out_of_order_are_all_undone(db: Database) -> None:
    outer, inner = db.transaction(), db.transaction()
    outer.__enter__()
    insert(db, 1)
    inner.__enter__()
    insert(db, 2)
    error = error_of(lambda: outer.__exit__(None, None, None))
    assert isinstance(error, UsageError)
    assert error.message == "the blocks of a transaction were left out of order"
    error = error_of(lambda: inner.__exit__(None, None, None))
    assert isinstance(error, UsageError)
    assert error.message == "the transaction was undone before its block was left"
    with ExitStack() as stack:
        stack.enter_context(db.transaction())
        insert(db, 3)
    assert ids(db) == [3]


@pytest.mark.on_each_engine
def test_a_commit_that_fails_where_a_framework_left_it_is_logged(
    db: Database, pool: ThreadPoolExecutor, caplog: pytest.LogCaptureFixture
) -> None:
    def dependency() -> Iterator[Any]:
        with db.transaction() as tx:
            yield tx

    made = dependency()
    handle = next(made)
    insert(handle, 1)
    transaction = db._storage.pool.list_open()[0].connection.transaction
    assert transaction is not None
    transaction.is_rollback_only = True
    with caplog.at_level(logging.ERROR, logger="zapdb"):
        assert pool.submit(error_of, lambda: next(made)).result() is not None
    assert "could not be committed" in caplog.text
    assert HERE in caplog.text
    assert ids(db) == []


# Event loops


@pytest.mark.on_each_engine
def test_a_call_that_waits_on_a_loop_for_a_transaction_of_the_loop_is_refused(
    db: Database,
) -> None:
    """It could never go on: the loop that would end what it waits for stands still."""
    insert(db, 1)
    waits: list[Callable[[], object]] = [
        lambda: db.table("items").update(1, size=7),
        lambda: db._storage.transaction(TransactionMode.DDL).__enter__(),
    ]
    if db._storage.dialect.name == "sqlite":
        waits.append(lambda: insert(db, 2))
        waits.append(lambda: db.transaction().__enter__())

    async def main() -> None:
        inside, done = asyncio.Event(), asyncio.Event()

        async def hold() -> None:
            with db.transaction():
                db.table("items").update(1, size=5)
                inside.set()
                await done.wait()

        async def wait() -> None:
            await inside.wait()
            for act in waits:
                began = asyncio.get_running_loop().time()
                error = error_of(act)
                assert isinstance(error, UsageError), error
                assert error.message == (
                    "this call would wait forever for a transaction of the same event loop"
                )
                assert HERE in error.context["begun_at"]
                assert "zapdb.aio" in (error.hint or "")
                assert asyncio.get_running_loop().time() - began < 5  # and not 30
            # In a thread it may wait: the loop goes on.
            waiting = asyncio.create_task(
                asyncio.to_thread(
                    contextvars.Context().run, db.table("items").update, 1, title="later"
                )
            )
            await asyncio.sleep(0.1)
            done.set()
            await waiting

        await asyncio.gather(hold(), wait())

    asyncio.run(main())
    found = db.table("items").get(1)
    assert (found.size, found.title) == (5, "later")


# Connections


@pytest.mark.on_each_engine
def test_so_many_transactions_are_open_and_those_that_hold_them_are_named(
    workspace: Workspace, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zapdb.storage.pool.CONNECTION_WAIT_SECONDS", 0.3)
    insert(db, 1)
    db = workspace.open(max_connections=2)
    with ExitStack() as stack:
        snaps = [contextvars.Context().run(stack.enter_context, db.snapshot()) for _ in range(2)]
        error = error_of(lambda: db.snapshot().__enter__())
        assert isinstance(error, ConnectionsBusy)
        assert isinstance(error, TimeoutError)
        assert error.context["max_connections"] == 2
        assert error.context["held_by"].count(HERE) == 2
        assert "max_connections" in (error.hint or "")
        # Single operations, and what zapdb does by itself, do not wait for them.
        insert(db, 2)
        db.admin.set_setting("convert", "on_access")
        assert [snap.table("items").count() for snap in snaps] == [1, 1]
    with db.snapshot(), ThreadPoolExecutor(1) as other:
        assert other.submit(db.run, lambda tx: tx.table("items").count()).result() == 2


@pytest.mark.on_each_engine
def test_a_database_that_is_closed_ends_waiting_for_its_connections(
    workspace: Workspace, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zapdb.storage.pool.CONNECTION_WAIT_SECONDS", 2 * GUARD_SECONDS)
    db = workspace.open(max_connections=1)
    held = threading.Event()

    def hold() -> None:
        with suppress(UsageError), db.snapshot():  # it is rolled back
            held.set()
            waiting.result(GUARD_SECONDS)

    with ThreadPoolExecutor(2) as pool:
        waiting = Future[ZapdbError | None]()
        pool.submit(hold)
        held.wait(GUARD_SECONDS)
        error = pool.submit(error_of, lambda: db.snapshot().__enter__())
        wait_until(lambda: db._storage.pool.places._waiting, "a thread waits for a connection")
        db.close()
        waiting.set_result(error.result(GUARD_SECONDS))
    assert isinstance(waiting.result(), UsageError)
    assert "the database is closed" in str(waiting.result())
    assert isinstance(error_of(lambda: workspace.open(max_connections=0)), ValueError)


@pytest.mark.on_each_engine
def test_a_transaction_that_waits_goes_on_when_another_one_ends(
    workspace: Workspace, db: Database
) -> None:
    db = workspace.open(max_connections=1)
    waiting = threading.Event()

    def read() -> int:
        waiting.set()
        with db.snapshot() as snap:
            return snap.table("items").count()

    with ThreadPoolExecutor(1) as other:
        with db.snapshot():
            found = other.submit(read)
            assert waiting.wait(GUARD_SECONDS)
        assert found.result() == 0


# What takes a handle


def test_run_gives_the_handle_to_a_function_that_takes_it(db: Database) -> None:
    class Work:
        def method(self, tx: Any) -> int:
            insert(tx, 1)
            return 1

        def __call__(self, tx: Any, extra: int = 2) -> int:
            insert(tx, extra)
            return extra

    assert db.run(Work().method) == 1
    assert db.run(Work()) == 2
    assert db.run(lambda: insert(db, 3)) is None
    assert db.run(lambda tx=None: tx) is None
    assert db.run(lambda *rest, key=4: (insert(db, key), rest)) == (None, ())
    assert db.run(dict) == {}
    with suppress(ZeroDivisionError):
        db.run(lambda tx: (insert(tx, 9), 1 / 0))
    assert ids(db) == [1, 2, 3, 4]


@pytest.mark.on_each_engine
def test_a_handle_is_that_of_other_tenants_too(db: Database) -> None:
    db.admin.create_tenant("acme")
    acme = db.for_tenant("acme")
    with suppress(ZeroDivisionError), db.transaction() as tx:
        insert(tx, 1)
        insert(tx.for_tenant("acme"), 2)
        assert acme.table("items").count() == 1
        raise ZeroDivisionError
    assert (db.table("items").count(), acme.table("items").count()) == (0, 0)
    with db.transaction() as tx:
        insert(tx, 1)
        insert(tx.for_tenant("acme"), 2)
    with db.snapshot() as snap:
        insert_elsewhere = threading.Thread(target=insert, args=(acme, 3))
        insert_elsewhere.start()
        insert_elsewhere.join()
        assert [r.id for r in snap.for_tenant("acme").table("items")] == [2]
    assert [r.id for r in acme.table("items")] == [2, 3]


def test_handles_show_what_they_are(db: Database) -> None:
    with db.transaction() as tx:
        assert repr(tx).startswith("<zapdb transaction, open, begun at ")
        assert HERE in repr(tx)
    assert "ended" in repr(tx)
    with db.snapshot() as snap:
        assert repr(snap).startswith("<zapdb snapshot, open, begun at ")
        error = error_of(lambda: insert(snap, 1))
        assert isinstance(error, UsageError)
        with pytest.raises(RecordNotFound):
            snap.table("items").get(1)


@contextmanager
def entered(block: Any) -> Iterator[Any]:
    with block as handle:
        yield handle


def test_a_block_inside_a_context_manager_is_its_callers(db: Database) -> None:
    with entered(db.transaction()):
        insert(db, 1)
    with suppress(ZeroDivisionError), entered(db.transaction()):
        insert(db, 2)
        raise ZeroDivisionError
    assert ids(db) == [1]


# Snapshots


@pytest.mark.parametrize("engine", ["postgresql"])
@pytest.mark.on_each_engine
def test_a_serializable_snapshot_shows_no_anomaly(db: Database, pool: ThreadPoolExecutor) -> None:
    """The batch of receipts (Cahill 2008, section 2.5.3; PostgreSQL's wiki on SSI): a report that
    reads between two writers sees a day closed, and a receipt of that day come later."""

    def seen(serializable: bool) -> tuple[int, list[int]]:
        db.table("items").where().delete()
        db.table("pictures").upsert(id=0, picture=b"1")  # the day
        writer, report = db.transaction(), db.snapshot(serializable=serializable)
        tx = contextvars.Context().run(writer.__enter__)
        day = int(tx.table("pictures").get(0).picture)
        pool.submit(lambda: db.table("pictures").update(0, picture=b"2")).result()  # it is closed

        def read() -> tuple[int, list[int]]:
            with report as snap:
                items = snap.table("items")
                closed = int(snap.table("pictures").get(0).picture) - 1
                return closed, [r.id for r in items.where(items.f.size == closed)]

        reading = pool.submit(read)
        if not serializable:
            reading.result()
        tx.table("items").insert(id=7, title="receipt", size=day)
        error = error_of(lambda: contextvars.Context().run(writer.__exit__, None, None, None))
        assert error is None
        return reading.result()

    assert seen(serializable=False) == (1, [])  # and receipt 7 came to day 1 afterwards
    assert seen(serializable=True) in ((1, [7]), (0, []))


@pytest.mark.parametrize("engine", ["postgresql"])
@pytest.mark.on_each_engine
def test_a_serializable_snapshot_waits_for_a_safe_moment_and_no_longer_than_it_may(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zapdb.storage.postgresql.SERIAL_WAIT_SECONDS", 0.2)
    writer = db.transaction()
    tx = contextvars.Context().run(writer.__enter__)
    insert(tx, 1)
    error = error_of(lambda: db.snapshot(serializable=True).__enter__())
    assert isinstance(error, TransactionConflict)
    assert error.message == ("concurrent writers left no safe moment for a serializable snapshot")
    contextvars.Context().run(writer.__exit__, None, None, None)
    assert tx is not None
    with db.snapshot(serializable=True) as snap:
        assert snap.table("items").count() == 1
