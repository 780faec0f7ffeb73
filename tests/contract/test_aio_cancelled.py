"""Tasks that are cancelled: what they have under way is interrupted, undone, and holds up nobody.

What a cancelled task waits for stays as it is until the task has ended. So it is the cancelling
that ends it, however slow the machine is.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import random
import re
import signal
import sqlite3
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, TypeVar

import pytest
import sqlalchemy as sa

import zapdb.aio
from tests.contract.tables import INDEX_SIZE, ITEMS
from tests.relay import Upstream, relay
from tests.support import GUARD_SECONDS, Workspace, has_waiting_session, wait_until
from zapdb.aio.calls import CancellableCall
from zapdb.aio.proxies import open_by_worker
from zapdb.errors import StorageError, TransactionConflict, UsageError
from zapdb.storage import Connection, Storage, TransactionMode
from zapdb.storage.interruption import InterruptibleCall, current_call
from zapdb.storage.pipeline import Outcome, Pipeline, Statement

T = TypeVar("T")


@pytest.fixture(autouse=True)
def no_end_of_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a cancellation does not end would end by itself only after the guard."""
    monkeypatch.setattr("zapdb.storage.sqlite.BUSY_TIMEOUT_MS", 2_000 * GUARD_SECONDS)
    monkeypatch.setattr("zapdb.storage.pool.BUSY_TIMEOUT_MS", 2_000 * GUARD_SECONDS)
    monkeypatch.setattr("zapdb.aio.runtime.BUSY_TIMEOUT_MS", 2_000 * GUARD_SECONDS)


@pytest.fixture
def place(workspace: Workspace) -> Workspace:
    workspace.write(1, ITEMS, INDEX_SIZE)
    return workspace


@asynccontextmanager
async def opened(place: Workspace, **options: Any) -> AsyncIterator[zapdb.aio.AsyncDatabase]:
    """With one record, of the key 0."""
    opening = zapdb.aio.open(place.address, migrations=place.directory, apply="auto", **options)
    async with opening as db:
        if not await db.table("items").exists(0):
            await db.table("items").insert(id=0, title="x")
        yield db


def apart(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """A task that is in no transaction of the one that starts it."""
    return asyncio.create_task(work, context=contextvars.Context())


async def ended_by_cancelling(task: asyncio.Task[Any]) -> asyncio.CancelledError:
    await asyncio.sleep(0.2)
    assert not task.done()
    task.cancel()
    done, _ = await asyncio.wait({task}, timeout=GUARD_SECONDS)
    assert done
    try:
        await task
    except asyncio.CancelledError as error:
        return error
    raise AssertionError("it was not cancelled")


async def refused(work: Awaitable[Any]) -> Exception:
    try:
        await work
    except Exception as error:
        return error
    raise AssertionError("it was not refused")


async def all_is_free(db: zapdb.aio.AsyncDatabase) -> None:
    """Connections, workers, places and the turn: as many transactions as there may be, and more
    operations than there are workers."""
    storage = db._sync._storage
    assert storage.pool.list_open() == []

    async def write() -> None:
        async with db.transaction() as tx:
            await tx.table("items").count()

    for _ in range(storage.pool.connections_max + 1):
        await apart(write())
    items = db.table("items")
    await asyncio.gather(*[items.count() for _ in range(20)])
    await asyncio.gather(*[items.upsert(id=900 + n, title="y") for n in range(20)])
    await items.where(items.f.id >= 900).delete()


@contextmanager
def held(place: Workspace) -> Iterator[None]:
    """Another connection has changed the record, and SQLite's single place for writers."""
    if place.engine == "sqlite":
        other = sqlite3.connect(place.address.removeprefix("sqlite:///"), isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
    else:
        import psycopg

        dsn = place.address.replace("+psycopg", "")
        other = psycopg.connect(dsn)  # type: ignore[assignment]  # either
        (table,) = other.execute(  # type: ignore[misc]  # there is one
            "SELECT physical FROM (SELECT relname AS physical FROM pg_class"
            " WHERE relkind = 'r' AND relname LIKE 'zapdb_records_%') AS found LIMIT 1"
        ).fetchone()
        other.execute(f"SELECT * FROM public.{table} FOR UPDATE")
    try:
        yield
    finally:
        other.rollback()
        other.close()


WAITS: dict[str, Callable[[zapdb.aio.AsyncDatabase], Coroutine[Any, Any, object]]] = {
    "a single operation": lambda db: db.table("items").update(0, size=1),
    "in a transaction": lambda db: in_transaction(db),
    "a function": lambda db: db.run(lambda tx: tx.table("items").update(0, size=1)),
    "many": lambda db: db.table("items").where().delete(),
}


async def in_transaction(db: zapdb.aio.AsyncDatabase) -> None:
    async with db.transaction() as tx:
        await tx.table("items").insert(id=1, title="undone")
        await tx.table("items").update(0, size=1)


@pytest.mark.parametrize("kind", WAITS)
def test_what_waits_for_another_process_is_interrupted(place: Workspace, kind: str) -> None:
    """A row that is locked; on SQLite, a sleep inside of it that its own interrupt does not end."""

    async def main() -> None:
        async with opened(place, max_connections=2) as db:
            with held(place):
                error = await ended_by_cancelling(apart(WAITS[kind](db)))  # type: ignore[arg-type]  # a coroutine
                assert not getattr(error, "__notes__", [])
            await all_is_free(db)
            assert [(r.id, r.size) async for r in db.table("items")] == [(0, 0)]

    asyncio.run(main())


@pytest.mark.parametrize("kind", WAITS)
def test_what_waits_for_another_task_is_interrupted(place: Workspace, kind: str) -> None:
    async def main() -> None:
        async with opened(place, max_connections=2) as db:
            async with db.transaction() as tx:
                await tx.table("items").update(0, title="held")
                await ended_by_cancelling(apart(WAITS[kind](db)))  # type: ignore[arg-type]  # a coroutine
            await all_is_free(db)
            found = [(r.id, r.title, r.size) async for r in db.table("items")]
            assert found == [(0, "held", 0)]

    asyncio.run(main())


@contextmanager
def endless(place: Workspace) -> Iterator[None]:
    """Reading all records takes for ever: a view that never ends stands in their table's place."""
    if place.engine == "sqlite":
        find = "SELECT name FROM sqlite_master WHERE type = 'table'"
    else:
        find = "SELECT relname FROM pg_class WHERE relkind = 'r'"
    name = next(n for (n,) in place.execute(find) if re.fullmatch("zapdb_records_[0-9]+", n))
    blob = "x''" if place.engine == "sqlite" else "''::bytea"
    place.execute(f"ALTER TABLE {name} RENAME TO put_aside")
    place.execute(
        f"CREATE VIEW {name} AS WITH RECURSIVE counted(n) AS"
        " (SELECT 1 UNION ALL SELECT n FROM counted)"
        f" SELECT 1 AS tenant, {blob} AS key, {blob} AS value FROM counted"
    )
    try:
        yield
    finally:
        place.execute(f"DROP VIEW {name}")
        place.execute(f"ALTER TABLE put_aside RENAME TO {name}")


@pytest.mark.parametrize("kind", ["single", "snapshot", "transaction", "sql"])
def test_a_long_statement_is_interrupted(place: Workspace, kind: str) -> None:
    async def main() -> None:
        async with opened(place, max_connections=2) as db:

            async def read() -> None:
                if kind == "single":
                    await db.table("items").count()
                elif kind == "snapshot":
                    async with db.snapshot() as snap:
                        await snap.table("items").count()
                elif kind == "transaction":
                    async with db.transaction():
                        await db.table("items").count()
                else:
                    await db.sql("SELECT count(*) FROM range(1000000000000)", seconds=600)

            with endless(place):
                await ended_by_cancelling(apart(read()))
            await all_is_free(db)
            assert await db.table("items").count() == 1

    asyncio.run(main())


@pytest.mark.parametrize("engine", ["postgresql"])
def test_a_transaction_goes_on_in_nothing_that_was_cancelled(place: Workspace) -> None:
    """A limit of time inside a block: what it ended is over with all of the transaction.

    On SQLite a task in a transaction has waited for all that there is.
    """

    async def end_once_it_waits(limit: asyncio.Timeout) -> None:
        while not has_waiting_session(place):
            await asyncio.sleep(0.005)
        limit.reschedule(0)

    async def main() -> None:
        async with opened(place) as db:

            async def go_on() -> None:
                async with db.transaction() as tx:
                    await tx.table("items").insert(id=1, title="undone")
                    with suppress(TimeoutError), held(place):
                        async with asyncio.timeout(None) as limit:
                            ending = apart(end_once_it_waits(limit))
                            await tx.table("items").update(0, size=1)
                    await ending
                    error = await refused(tx.sql("SELECT 1"))
                    assert isinstance(error, UsageError)
                    assert error.message == "the transaction has ended"

            error = await refused(go_on())
            assert isinstance(error, UsageError)
            assert error.message == "the transaction was undone before its block was left"
            assert [r.id async for r in db.table("items")] == [0]
            await all_is_free(db)

    asyncio.run(main())


# A COMMIT that is on its way


class Gate:
    """Holds up COMMIT: where it was sent, until it may go on."""

    def __init__(self, storage: Storage, monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
        self.sent, self.may_go_on = threading.Event(), threading.Event()
        self.is_on = False
        commit, run = storage.engine.commit, Pipeline.run

        def held_up(connection: Connection) -> None:
            # COMMIT goes with what it commits; a heartbeat's is none of a task's.
            if not self.is_on or connection.is_waiting or current_call() is None:
                commit(connection)
                return
            self._hold_up(fails)
            commit(connection)

        def held_up_together(pipeline: Pipeline, statements: Sequence[Statement]) -> Outcome:
            if not self.is_on or current_call() is None:
                return run(pipeline, statements)
            if len(statements) == 1 or statements[-1].sql != "COMMIT":
                return run(pipeline, statements)
            outcome = None if fails else run(pipeline, statements)
            self._hold_up(fails)
            assert outcome is not None
            return outcome

        monkeypatch.setattr(storage.engine, "commit", held_up)
        monkeypatch.setattr(Pipeline, "run", held_up_together)

    def _hold_up(self, fails: bool) -> None:
        self.is_on = False
        self.sent.set()
        assert self.may_go_on.wait(GUARD_SECONDS)
        if fails:
            raise sqlite3.OperationalError("the disk is on fire")


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("kind", ["single", "block"])
def test_a_commit_on_its_way_is_waited_for_and_its_outcome_said(
    place: Workspace,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    kind: str,
    fails: bool,
) -> None:
    caplog.set_level(logging.WARNING, logger="zapdb")

    async def write(db: zapdb.aio.AsyncDatabase) -> None:
        if kind == "single":
            await db.table("items").insert(id=1, title="y")
        else:
            async with db.transaction() as tx:
                await tx.table("items").insert(id=1, title="y")

    async def main() -> None:
        async with opened(place, max_connections=1) as db:
            gate = Gate(db._sync._storage, monkeypatch, fails)
            gate.is_on = True
            task = asyncio.create_task(write(db))
            while not gate.sent.is_set():
                await asyncio.sleep(0.005)
            for _ in range(3):
                task.cancel()
                await asyncio.sleep(0.1)
            assert not task.done()
            gate.may_go_on.set()
            with pytest.raises(asyncio.CancelledError) as caught:
                await task
            (note,) = caught.value.__notes__
            assert note.startswith("zapdb: the task was cancelled while its COMMIT was on its way")
            assert note.endswith("it was committed") == (not fails)
            assert note.removeprefix("zapdb: ") in caplog.text
            assert await db.table("items").exists(1) == (not fails)
            await all_is_free(db)

    asyncio.run(main())


def test_before_its_commit_a_transaction_is_undone(
    place: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes before COMMIT is no COMMIT yet: the change log is written, and SQLite looks
    whether it is still the same file."""
    reached, may_go_on = threading.Event(), threading.Event()

    async def write(db: zapdb.aio.AsyncDatabase) -> None:
        async with db.transaction() as tx:
            await tx.table("items").insert(id=1, title="y")

    async def main() -> None:
        async with opened(place) as db:
            storage = db._sync._storage
            before = storage.engine.before_commit

            def hold(connection: Connection, mode: TransactionMode, seconds: float) -> None:
                before(connection, mode, seconds)
                if current_call() is not None:  # and it is no heartbeat
                    reached.set()
                    may_go_on.wait(GUARD_SECONDS)

            monkeypatch.setattr(storage.engine, "before_commit", hold)
            task = asyncio.create_task(write(db))
            while not reached.is_set():
                await asyncio.sleep(0.005)
            task.cancel()
            await asyncio.sleep(0)
            may_go_on.set()
            with pytest.raises(asyncio.CancelledError) as caught:
                await task
            assert not getattr(caught.value, "__notes__", [])
            assert not await db.table("items").exists(1)
            await all_is_free(db)

    asyncio.run(main())


# At any moment


@pytest.mark.parametrize("block", ["snapshot", "transaction"])
def test_cancelling_a_task_that_has_given_its_connection_back_ends_nothing(
    place: Workspace, block: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the next transaction's by then, though the call that left the block still runs."""

    async def main() -> None:
        async with opened(place, max_connections=1) as db:
            storage, loop = db._sync._storage, asyncio.get_running_loop()
            strikes = list[InterruptibleCall]()
            strike = InterruptibleCall.strike

            def noting(call: InterruptibleCall, interrupt: Callable[..., object]) -> None:
                strike(call, interrupt)
                strikes.append(call)

            async def leave() -> None:
                async with getattr(db, block)() as tx:
                    await tx.table("items").count()
                    monkeypatch.setattr(storage.pool, "give_back", cancelling)

            give_back = storage.pool.give_back

            def cancelling(connection: Connection) -> None:
                give_back(connection)
                monkeypatch.setattr(storage.pool, "give_back", give_back)
                call = current_call()
                assert call is not None
                loop.call_soon_threadsafe(task.cancel)
                wait_until(lambda: call in strikes, "the cancelled call is struck")

            monkeypatch.setattr(InterruptibleCall, "strike", noting)
            task = apart(leave())
            with suppress(asyncio.CancelledError):
                await task
            async with db.transaction() as tx:
                await tx.table("items").upsert(id=0, title="y")
            await all_is_free(db)

    asyncio.run(main())


def test_cancelling_at_any_moment_ends_nobody_elses_statement(place: Workspace) -> None:
    """Those that are not cancelled share connections and workers with those that are."""
    drawn = random.Random(7)

    async def main() -> None:
        async with opened(place, max_connections=3) as db:
            items = db.table("items")
            await items.insert_many({"id": n, "title": "x", "size": n} for n in range(1, 200))
            failures = list[BaseException]()
            done = {"steady": 0, "cancelled": 0}

            async def act(n: int) -> None:
                match n % 4:
                    case 0:
                        assert await items.count() == 200
                    case 1:
                        await items.update(n % 200, title=str(n))
                    case 2:
                        async with db.snapshot() as snap:
                            found = snap.table("items")
                            assert len([r async for r in found.where(found.f.size > 50)]) > 100
                    case 3:
                        async with db.transaction() as tx:
                            await tx.table("items").insert(id=1_000 + n, title="y")
                            await tx.table("items").delete(1_000 + n)

            async def steady(number: int) -> None:
                for n in range(1_000):
                    if n >= 25 and done["steady"] > 50:
                        return
                    try:
                        await act(number + n)
                        done["steady"] += 1
                    except (TransactionConflict, TimeoutError):  # of SERIALIZABLE, or for a place
                        pass
                    except Exception as error:
                        failures.append(error)

            async def restless(number: int) -> None:
                for n in range(40):
                    task = asyncio.create_task(act(number + n))
                    # Each fourth is under way for certain: none is done in one turn of the loop.
                    await asyncio.sleep(drawn.random() * 0.01 if n % 4 else 0)
                    task.cancel()
                    try:
                        await task
                    except asyncio.CancelledError:
                        done["cancelled"] += 1
                    except (TransactionConflict, TimeoutError):
                        pass
                    except Exception as error:
                        failures.append(error)

            await asyncio.gather(*[steady(n) for n in range(4)], *[restless(n) for n in range(8)])
            assert failures == []
            assert done["cancelled"] > 50
            await all_is_free(db)
            assert await items.count() == 200

    asyncio.run(main())


def test_a_task_that_is_cancelled_while_it_begins_leaves_nothing(place: Workspace) -> None:
    async def main() -> None:
        async with opened(place, max_connections=1) as db:
            for delay in range(30):
                block = db.transaction() if delay % 2 else db.snapshot()
                task = asyncio.create_task(block.__aenter__())  # type: ignore[arg-type]  # a coroutine
                for _ in range(delay // 2):
                    await asyncio.sleep(0)
                is_early = task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
                    is_early = False
                if not is_early:
                    await block.__aexit__(None, None, None)
            await all_is_free(db)

    asyncio.run(main())


@pytest.mark.parametrize("engine", ["postgresql"])
def test_a_task_is_cancelled_though_the_network_carries_nothing_any_more(
    place: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No connection ends, and no answer comes: neither to a statement nor to its cancellation."""
    monkeypatch.setattr("zapdb.storage.postgresql.CANCEL_SECONDS", 0.1)
    url = sa.make_url(place.address)
    place.open().close()

    async def main() -> None:
        with relay(Upstream(str(url.query["host"]))) as between:
            far = url.difference_update_query(["host"]).set(host="127.0.0.1", port=between.port)
            address = far.render_as_string(hide_password=False)
            db = await zapdb.aio.open(address, migrations=place.directory)
            block = db.transaction()
            tx = await block.__aenter__()
            await apart(db.table("items").find(0))
            await tx.table("items").find(0)
            between.delay(10 * GUARD_SECONDS)
            for reading in (db.table("items").find(0), tx.table("items").find(0)):
                await ended_by_cancelling(apart(reading))
            with pytest.raises(UsageError, match="was undone before its block was left"):
                await block.__aexit__(None, None, None)
        await db.close()

    asyncio.run(main())


@pytest.mark.parametrize("moment", ["begun", "opened", "done", "told"])
def test_an_open_that_is_cancelled_is_closed_again(
    place: Workspace, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """The event loop stands still from before that moment until the task is cancelled."""
    tell, made = CancellableCall._tell, list[zapdb.Database]()
    reached, may_go_on = threading.Event(), threading.Event()

    def reach(here: str) -> None:
        if here == moment:
            reached.set()
            assert may_go_on.wait(GUARD_SECONDS)

    def open_in_steps(*arguments: Any, **options: Any) -> zapdb.Database:
        reach("begun")
        made.append(zapdb.open(*arguments, **options))
        reach("opened")
        return made[-1]

    def tell_in_steps(call: CancellableCall[Any]) -> None:
        reach("done")
        tell(call)
        reach("told")

    monkeypatch.setattr(CancellableCall, "_tell", tell_in_steps)

    async def main() -> None:
        task = asyncio.create_task(
            open_by_worker(open_in_steps)(place.address, migrations=place.directory, apply="auto")
        )
        await asyncio.sleep(0)
        wait_until(reached.is_set, moment)
        task.cancel()
        may_go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with asyncio.timeout(60):
            while [t for t in threading.enumerate() if t.name.startswith("zapdb-aio")]:
                await asyncio.sleep(0.01)

    asyncio.run(main())
    assert [db._storage.pool.is_closed for db in made] == [True] * (moment != "begun")


def test_ctrl_c_undoes_what_is_open(place: Workspace) -> None:
    async def main() -> None:
        async with opened(place) as db, db.transaction() as tx:
            await tx.table("items").insert(id=1, title="y")
            signal.raise_signal(signal.SIGINT)
            await asyncio.sleep(60)

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())

    async def look() -> list[int]:
        async with opened(place) as db:
            await all_is_free(db)
            return [r.id async for r in db.table("items")]

    assert asyncio.run(look()) == [0]


def test_a_server_that_can_not_be_reached_is_an_error(place: Workspace) -> None:
    async def main() -> None:
        is_server = place.engine == "postgresql"
        address = place.address + "x" if is_server else "sqlite:////nowhere/x.db"
        await zapdb.aio.open(address, migrations=place.directory, apply="auto")

    with pytest.raises(StorageError):
        asyncio.run(main())
