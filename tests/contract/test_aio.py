"""zapdb.aio: what tasks get, whose transaction they are in, and who waits for what."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import io
import itertools
import logging
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import pytest

import zapdb.aio
from tests.contract.tables import INDEX_SIZE, ITEMS
from tests.support import GUARD_SECONDS, HeldFile, Workspace
from zapdb.catalog import principal
from zapdb.errors import (
    ConnectionsBusy,
    HistoryGap,
    RecordNotFound,
    TransactionConflict,
    UnknownName,
    UsageError,
)
from zapdb.storage.fair_lock import FairSemaphore
from zapdb.tables.change_decoding import RecordChange

NOTE = "a note that is a blob " * 400
HERE = Path(__file__).name
PICTURES = """\
create_table: {table: pictures, key: [id], fields: [
      {name: id, type: integer},
      {name: picture, type: binary}]}"""
T = TypeVar("T")


@pytest.fixture
def place(workspace: Workspace) -> Workspace:
    workspace.write(1, ITEMS, INDEX_SIZE, PICTURES)
    return workspace


@asynccontextmanager
async def opened(place: Workspace, **options: Any) -> AsyncIterator[zapdb.aio.AsyncDatabase]:
    opening = zapdb.aio.open(place.address, migrations=place.directory, apply="auto", **options)
    async with opening as db:
        yield db


async def insert(db: Any, key: int) -> None:
    await db.table("items").insert(id=key, title=f"Item {key}", size=key)


async def ids(db: zapdb.aio.AsyncDatabase) -> list[int]:
    """What is committed, as another task sees it."""
    return await apart(collect_ids(db))


async def collect_ids(db: Any) -> list[int]:
    return [record.id async for record in db.table("items")]


def apart(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """A task that is in no transaction of the one that starts it."""
    return asyncio.create_task(work, context=contextvars.Context())


async def error_of(work: Awaitable[Any]) -> Exception | None:
    try:
        await work
    except Exception as error:
        return error
    return None


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.005)


# What there is


def test_whatever_is_closed_is_awaited_or_a_block_at_once(place: Workspace) -> None:
    async def main() -> None:
        options = {"migrations": place.directory, "apply": "auto"}
        async with zapdb.aio.open(place.address, **options) as db:
            await db.admin.set_setting("change_log", "on")
            await insert(db, 1)
            moment = await anext(db.moments())
            await db.table("pictures").insert(id=1, picture=b"0123")
            await db.admin.create_tenant("south")
            async with db.for_tenant("south") as south, db.at(moment) as past:
                assert await ids(south) == []
                assert await (await past.table("items")).count() == 1
            async with db.before(moment) as past:
                assert await (await past.table("items")).count() == 0
            async with db.table("pictures").open(1, field="picture") as file:
                assert await file.read() == b"0123"
            opening = db.table("pictures").open(1, field="picture")
            async with await asyncio.create_task(opening) as file:
                assert await file.read() == b"0123"
            with pytest.raises(RecordNotFound):
                async with db.table("pictures").open(2, field="picture"):
                    pass
        with pytest.raises(UsageError, match="closed"):
            await db.table("items").count()
        again = await zapdb.aio.open(place.address, **options)
        assert await ids(again) == [1]
        await again.close()

    asyncio.run(main())


def test_what_was_never_recorded_is_refused(place: Workspace) -> None:
    async def main() -> None:
        async with opened(place) as db:
            await insert(db, 1)
            asked = (anext(db.moments()), anext(db.audit()), db.versions("items", 1))
            for work in (*asked, db.table("items").history(1)):
                assert isinstance(await error_of(work), HistoryGap)
            await db.admin.set_setting("change_log", "on")
            assert await db.versions("items", 1) == []
            await insert(db, 2)
            assert [one.operation for one in await db.versions("items", 2)] == ["insert"]

    asyncio.run(main())


def test_it_does_what_the_synchronous_library_does(place: Workspace) -> None:
    async def main() -> None:
        async with opened(place) as db:
            items = db.table("items")
            made = await items.insert(id=1, title="Milk", size=3, note=NOTE)
            assert (made.id, made.note) == (1, NOTE)
            assert await items.insert_many({"id": n, "title": "x", "size": n} for n in (2, 3)) == 2
            assert await items.insert_many(numbered(4, 7), batch_records=2) == 3
            assert (await items.update(2, title="Bread")).title == "Bread"
            assert (await items.upsert(id=7, title="Salt", size=7)).id == 7
            assert (await items.get(1)).note == NOTE
            assert await items.find(99) is None
            assert isinstance(await error_of(items.get(99)), RecordNotFound)
            found = await items.get_many(key for key in (7, 99, 1))
            assert [record and record.id for record in found] == [7, None, 1]
            assert await items.exists(7)
            assert await items.count() == 7
            large = items.where(items.f.size >= 4).order_by("-size")
            assert [item.id async for item in large] == [7, 6, 5, 4]
            assert (await large.limit(1).one()).id == 7
            first = await large.first()
            assert first is not None
            assert first.id == 7
            assert (await large.count(), await large.max("size"), await large.sum("size")) == (
                4,
                7,
                22,
            )
            page = await large.page(3)
            assert [item.id for item in page] == [7, 6, 5]
            assert [item.id for item in await large.page(3, page.cursor)] == [4]
            assert "by_size" in str(await large.explain())
            some = items.using("by_size").where(items.f.size >= 2, items.f.size < 4)
            assert [item.id async for item in some] == [2, 1, 3]
            assert await items.readable_indexes() == ("by_size",)
            with pytest.raises(UnknownName):
                items.using("by_nothing")
            assert (await db.sql("SELECT count(*) FROM items")).fetchall() == [(7,)]
            assert (await items.to_arrow(["id"])).num_rows == 7
            await items.delete(7)
            assert await items.delete_many([6, 99]) == 1
            assert await items.delete_where(items.f.size == 5) == 1
            assert await large.delete() == 1
            assert await ids(db) == [1, 2, 3]
            assert repr(items) == "<table 'items' (id, title, size, note)>"
            assert (items.name, items["size"].__class__) == ("items", items.f.size.__class__)
            assert await db.admin.verify() is not None
            assert "zapdb" in await db.admin.metrics()
            assert (await db.admin.setting("change_log")) == "off"

    asyncio.run(main())


async def numbered(start: int, end: int) -> AsyncIterator[dict[str, Any]]:
    for n in range(start, end):
        yield {"id": n, "title": "x", "size": n}


def test_a_past_is_read_as_the_synchronous_one(place: Workspace) -> None:
    async def main() -> None:
        async with opened(place) as db:
            items = db.table("items")
            await db.admin.set_setting("change_log", "on")
            await items.insert(id=1, title="Milk", size=3, note=NOTE)
            (before, *_) = [moment async for moment in db.moments()]
            await items.update(1, size=4)
            past = await db.at(before)
            table = await past.table(like=items)
            assert [(item.size, item.note) async for item in table] == [(3, NOTE)]
            assert (await table.where(size=3).one()).id == 1
            assert "items" in await past.tables()
            assert (await past.sql("SELECT size FROM items")).fetchone() == (3,)
            (now, *_) = [moment async for moment in db.moments()]
            assert [one.fields async for one in db.diff(before, now)] == [("size",)]
            assert [version.operation for version in await items.history(1)] == ["insert", "update"]
            assert await (await (await db.before(before)).table("items")).count() == 0

    asyncio.run(main())


def test_large_values_are_there_and_are_files(place: Workspace) -> None:
    """Looking at a field reads nothing: the event loop would stand still."""
    raw = bytes(range(256)) * 2_000

    async def main() -> None:
        async with opened(place) as db:
            pictures = db.table("pictures")
            await pictures.insert(id=1, picture=io.BytesIO(raw))
            await pictures.insert(id=2, picture=raw)
            got = [await pictures.get(1), *[one async for one in pictures]]
            got += [one for one in await pictures.get_many([1, 2]) if one is not None]
            got += [*await pictures.where().page(2)]
            async with db.snapshot() as snap:
                got.append(await snap.table("pictures").get(1))
        assert [one.picture for one in got] == [raw] * len(got)  # nothing can be read by now
        async with opened(place) as db, await db.table("pictures").open(1, field="picture") as f:
            assert await f.read(10) == raw[:10]
            assert await f.seek(1_000) == f.tell() == 1_000
            assert b"".join([chunk async for chunk in f]) == raw[1_000:]

    asyncio.run(main())


@pytest.mark.on_each_engine
def test_a_stream_reads_no_further_ahead_than_so_many_large_values(
    place: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zapdb.aio.records.ASYNC_LOADED_SIZE_BYTES", 10_000)

    async def main() -> None:
        async with opened(place) as db:
            pictures = db.table("pictures")
            await pictures.insert_many({"id": n, "picture": bytes(9_000)} for n in range(9))
            stream = pictures.scan()
            assert (await anext(stream)).id == 0
            assert len(stream._here) == 1  # type: ignore[attr-defined]  # of the stream
            assert [one.id async for one in stream] == list(range(1, 9))

    asyncio.run(main())


def test_changes_and_followers(place: Workspace) -> None:
    async def main() -> None:
        async with opened(place) as db:
            await db.admin.set_setting("change_log", "on")
            follower = await db.change_log.follower("mail")
            async with db.transaction() as tx:
                await insert(tx, 1)
            seen = [c async for c in follower.changes() if hasattr(c, "operation")]
            assert [(c.table, c.key) for c in seen] == [("items", (1,))]
            await follower.advance(seen[-1].bookmark)
            assert [c async for c in follower.changes()] == []
            assert await follower.bookmark() == seen[-1].bookmark
            assert [one.name for one in await db.change_log.followers()] == ["mail"]

    asyncio.run(main())


@pytest.mark.on_each_engine
def test_workers_act_for_the_principal_of_the_task(place: Workspace) -> None:
    async def main() -> None:
        async with opened(place) as db:
            await db.admin.set_setting("change_log", "on")
            with principal.acting_as("ada"):
                await insert(db, 1)
                async with db.transaction() as tx:
                    await insert(tx, 2)
                async with db.transaction():
                    await insert(db, 3)
            await insert(db, 4)
            made = [c.principal async for c in db.change_log.read() if isinstance(c, RecordChange)]
            assert made == [*["ada"] * 3, principal.current()]

    asyncio.run(main())


def test_tenants(place: Workspace) -> None:
    async def main() -> None:
        async with opened(place) as db:
            await db.admin.create_tenant("acme")
            acme = await db.for_tenant("acme")
            with suppress(ZeroDivisionError):
                async with db.transaction() as tx:
                    await insert(tx, 1)
                    await insert(await tx.for_tenant("acme"), 2)
                    assert await acme.table("items").count() == 1
                    raise ZeroDivisionError
            assert (await ids(db), await ids(acme)) == ([], [])
            await insert(acme, 3)
            async with db.snapshot() as snap:
                assert await collect_ids(await snap.for_tenant("acme")) == [3]
            await acme.close()
            await insert(db, 1)

    asyncio.run(main())


@pytest.mark.on_each_engine
def test_changes_of_the_catalog_are_called_back_on_the_loop(place: Workspace) -> None:
    async def main() -> None:
        async with opened(place) as db:
            heard = asyncio.Queue[Any]()
            thread = threading.current_thread()

            def hear(change: Any) -> None:
                assert threading.current_thread() is thread
                heard.put_nowait(change)

            end = await db.on_catalog_change(hear, kinds=["tenant"])
            place.write(
                2, "add_field: {table: items, field: {name: color, type: string, default: red}}"
            )
            await asyncio.to_thread(place.open)
            async with asyncio.timeout(60):
                assert (await heard.get()).after.position == 2
            end()

    asyncio.run(main())


# Whose transaction it is


@pytest.mark.on_each_engine
def test_rule_15_tasks_have_transactions_of_their_own(place: Workspace) -> None:
    """One leaves its block without an error while the other is in its own and raises."""

    async def main() -> None:
        async with opened(place) as db:

            async def write(key: int, fails: bool) -> None:
                async with db.transaction() as tx:
                    await insert(tx, key)
                    await insert(db, key + 100)
                    await asyncio.sleep(0)
                    if fails:
                        raise ZeroDivisionError

            work = [write(key, key % 2 == 0) for key in range(12)]
            done = await asyncio.gather(*work, return_exceptions=True)
            assert [isinstance(one, ZeroDivisionError) for one in done] == [True, False] * 6
            assert await ids(db) == sorted([*range(1, 12, 2), *range(101, 112, 2)])

    asyncio.run(main())


@pytest.mark.on_each_engine
def test_the_task_that_began_it_joins_and_others_do_not(place: Workspace) -> None:
    async def main() -> None:
        async with opened(place) as db:
            for enter in (db.transaction, db.snapshot):
                async with enter() as handle:
                    if enter == db.transaction:
                        await insert(db, 1)
                        assert await handle.table("items").exists(1)
                        assert await db.table("items").find(1) is not None
                        with suppress(ZeroDivisionError):
                            async with db.transaction() as inner:
                                await insert(inner, 2)
                                raise ZeroDivisionError
                        assert await collect_ids(db) == [1]
                    assert await ids(db) == ([] if enter == db.transaction else [1])
                    for act in (
                        lambda: db.table("items").find(1),
                        lambda: insert(db, 9),
                        lambda: db.transaction().__aenter__(),
                        lambda: db.run(lambda: asyncio.sleep(0)),
                        lambda: anext(db.table("items").scan()),
                    ):
                        error = await asyncio.create_task(error_of(act()))
                        assert isinstance(error, UsageError), error
                        assert error.message.startswith("this task or thread inherited an open ")
                        assert HERE in error.context["begun_at"]
                    assert await asyncio.create_task(handle.table("items").count()) is not None
            assert await ids(db) == [1]

    asyncio.run(main())


@pytest.mark.on_each_engine
def test_two_tasks_at_once_are_an_error_and_nothing_is_interleaved(place: Workspace) -> None:
    picture = HeldFile()

    async def main() -> None:
        async with opened(place) as db:
            async with db.transaction() as tx:
                writing = asyncio.create_task(tx.table("pictures").insert(id=2, picture=picture))
                await until(picture.is_read.is_set)
                for work in (insert(tx, 3), insert(db, 4), tx.sql("SELECT 1")):
                    error = await error_of(work)
                    assert isinstance(error, UsageError)
                    assert error.message == "another task is using the transaction"
                    assert HERE in error.context["begun_at"]
                picture.go_on.set()
                await writing
                await insert(tx, 5)
            assert await ids(db) == [5]
            assert (await db.table("pictures").get(2)).picture == b"x"

    asyncio.run(main())


@pytest.mark.on_each_engine
def test_a_block_that_is_left_while_another_task_works_is_undone(place: Workspace) -> None:
    inside, go_on = threading.Event(), threading.Event()

    class File:
        def read(self, size: int) -> bytes:
            inside.set()
            go_on.wait(GUARD_SECONDS)
            return b""

    async def main() -> None:
        async with opened(place) as db:

            async def leave() -> None:
                async with db.transaction() as tx:
                    made.append(
                        apart(error_of_pair(tx.table("pictures").insert(id=1, picture=File())))
                    )
                    await until(inside.is_set)

            async def error_of_pair(work: Awaitable[Any]) -> Exception | None:
                return await error_of(work)

            made: list[Any] = []
            error = await error_of(leave())
            assert isinstance(error, UsageError)
            assert error.message.startswith("the block was left while another ")
            go_on.set()
            await made[0]
            await until(lambda: not db._sync._storage.pool.list_open())
            await insert(db, 2)
            assert await ids(db) == [2]

    asyncio.run(main())


@pytest.mark.on_each_engine
def test_what_was_made_from_a_handle_ends_with_it(place: Workspace) -> None:
    async def main() -> None:
        async with opened(place) as db:
            await db.table("items").insert_many(
                {"id": n, "title": "x", "size": n} for n in range(5)
            )
            for enter in (db.transaction, db.snapshot):
                async with enter() as handle:
                    items = handle.table("items")
                    query, lookup = items.where(items.f.size >= 0), items.using("by_size")
                    streams = [items.scan(), aiter(query), aiter(lookup)]
                    for stream in streams:
                        assert (await anext(stream)).id == 0
                for act in (
                    lambda items=items: items.get(1),
                    lambda query=query: query.count(),
                    lambda query=query: query.delete(),
                    lambda items=items: items.readable_indexes(),
                    lambda: handle.sql("SELECT 1"),
                    *[lambda stream=stream: anext(stream) for stream in streams],
                ):
                    error = await error_of(act())
                    assert isinstance(error, UsageError), act
                    assert error.message.endswith(" has ended")
                with pytest.raises(UsageError, match="has ended"):
                    handle.table("items")
            assert len(await ids(db)) == 5

    asyncio.run(main())


@pytest.mark.on_each_engine
def test_a_function_is_run_again_when_it_meets_another_one(place: Workspace) -> None:
    async def main() -> None:
        async with opened(place) as db:
            await insert(db, 0)
            calls = itertools.count()

            async def add(tx: zapdb.aio.AsyncTransaction) -> int:
                next(calls)
                items = tx.table("items")
                size: int = (await items.get(0)).size
                await asyncio.sleep(0)
                await items.update(0, size=size + 1)
                return size

            seen = await asyncio.gather(*[db.run(add) for _ in range(12)])
            assert sorted(seen) == list(range(12))
            assert (await db.table("items").get(0)).size == 12
            tries = itertools.count()

            async def meet() -> int:
                await insert(db, 1)
                if next(tries) < 3:
                    raise TransactionConflict("another one")
                return next(tries)

            assert await db.run(meet) == 4
            await db.table("items").delete(1)
            async with db.transaction():
                tries = itertools.count()
                assert isinstance(await error_of(db.run(meet)), TransactionConflict)
            assert await ids(db) == [0]

    asyncio.run(main())


# Waiting


@pytest.mark.on_each_engine
def test_those_that_wait_to_write_hold_up_nobody(place: Workspace) -> None:
    """Sixty tasks, single operations and transactions, wait for one that is held open."""

    async def main() -> None:
        async with opened(place, max_connections=3) as db:
            await insert(db, 0)

            async def write(key: int) -> None:
                if key % 2:
                    await db.table("items").update(0, title=str(key))
                else:
                    async with db.transaction() as tx:
                        await tx.table("items").update(0, title=str(key))

            async def write_again(key: int) -> None:
                while isinstance(error := await error_of(write(key)), Exception):
                    assert isinstance(error, TransactionConflict | ConnectionsBusy)

            async with db.transaction() as tx:
                await tx.table("items").update(0, size=7)
                tasks = [apart(write_again(key)) for key in range(60)]
                await asyncio.sleep(0.3)
                for _ in range(50):
                    assert (await apart(get(db, 0))).size == 0
                    assert not any(task.done() for task in tasks)
                if place.engine == "sqlite":  # nothing but the turn is waited for
                    async with asyncio.timeout(60):
                        assert await apart(count_in_snapshot(db)) == 1
                await tx.table("items").update(0, size=8)
            await asyncio.gather(*tasks)
            assert (await db.table("items").get(0)).size == 8
            threads = [t for t in threading.enumerate() if t.name == "zapdb-aio"]
            assert len(threads) <= 6 + 6 + 4 + 4 + 3 + 1

    asyncio.run(main())


async def get(db: zapdb.aio.AsyncDatabase, key: int) -> Any:
    return await db.table("items").get(key)


async def count_in_snapshot(db: zapdb.aio.AsyncDatabase) -> int:
    async with db.snapshot() as snap:
        return await snap.table("items").count()


@pytest.mark.on_each_engine
def test_so_many_transactions_are_open_and_those_that_hold_them_are_named(
    place: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with opened(place, max_connections=2) as db:
            inside, done = asyncio.Barrier(3), asyncio.Event()

            async def hold() -> int:
                async with db.snapshot() as snap:
                    await inside.wait()
                    await done.wait()
                    return await snap.table("items").count()

            tasks = [asyncio.create_task(hold()) for _ in range(2)]
            await inside.wait()
            with monkeypatch.context() as patched:  # those that wait later get a place
                patched.setattr("zapdb.aio.runtime.CONNECTION_WAIT_SECONDS", 0.3)
                error = await error_of(db.snapshot().__aenter__())
            assert isinstance(error, ConnectionsBusy)
            assert error.context["held_by"].count(HERE) == 2
            await insert(db, 1)
            waiting = asyncio.create_task(count_in_snapshot(db))
            done.set()
            assert await asyncio.gather(*tasks, waiting) == [0, 0, 1]

    asyncio.run(main())


@pytest.mark.on_each_engine
def test_a_place_that_is_granted_to_a_loop_that_was_closed_is_given_on() -> None:
    from zapdb.aio.runtime import acquire_place

    places = FairSemaphore()
    assert places.acquire(0)
    for cancel in (False, True):
        loop = asyncio.new_event_loop()
        task = loop.create_task(acquire_place(places, None))
        loop.run_until_complete(asyncio.sleep(0))
        if cancel:  # the place is on its way when the task is cancelled
            places.release()
            task.cancel()
            with suppress(asyncio.CancelledError):
                loop.run_until_complete(task)
            loop.close()
        else:
            loop.close()
            places.release()
        assert places.acquire(0)
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # it is meant to be
        del task
        gc.collect()
    assert not places.acquire(0)
    places.release()

    async def late() -> None:
        assert await acquire_place(places, None)
        assert not await acquire_place(places, 0.01)
        places.release()
        assert await acquire_place(places, 0.01)

    asyncio.run(late())


@pytest.mark.on_each_engine
def test_a_synchronous_wait_for_a_transaction_of_the_loop_is_refused(place: Workspace) -> None:
    """It stops the loop that would end what it waits for."""

    async def main() -> None:
        async with opened(place) as db:
            await insert(db, 1)
            other = await asyncio.to_thread(place.open)
            async with db.transaction() as tx:
                await tx.table("items").update(1, size=5)
                write = contextvars.Context().run
                with pytest.raises(UsageError, match="would wait forever for a transaction"):
                    write(other.table("items").update, 1, size=6)
            assert (await get(db, 1)).size == 5

    asyncio.run(main())


# The event loop's thread


async def again(make: Callable[[], Awaitable[None]]) -> None:
    """Until it meets no other transaction."""
    while isinstance(error := await error_of(make()), TransactionConflict):
        pass
    assert error is None


async def in_block(db: zapdb.aio.AsyncDatabase, change: Callable[[Any], Awaitable[None]]) -> None:
    async with db.transaction() as tx:
        await change(tx)


@pytest.mark.on_each_engine
def test_nothing_waits_on_the_loops_thread(place: Workspace) -> None:
    """Sixteen clients do everything there is, while each call of a C function on the thread of the
    loop is looked at: none is of a driver, none sleeps, none waits for a lock that is held."""
    forbidden = list[str]()
    allowed = {"time.monotonic", "time.perf_counter", "time.time"}

    def watch(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            module = str(frame.f_globals.get("__name__", ""))
            above = frame.f_back and frame.f_back.f_code.co_name
            if "__del__" in (
                frame.f_code.co_name,
                above,
            ):  # of anything, while garbage is collected
                return
            if module.startswith(("psycopg", "sqlite3", "sqlalchemy.engine", "sqlalchemy.pool")):
                forbidden.append(f"{module}.{frame.f_code.co_name}")
            if module == "threading" and frame.f_code.co_name in ("wait", "join", "acquire"):
                forbidden.append(f"threading.{frame.f_code.co_name}")
        elif event == "c_call":
            owner = type(getattr(argument, "__self__", None)).__module__
            module = str(getattr(argument, "__module__", None) or owner)
            name = f"{module}.{getattr(argument, '__name__', '')}"
            if name in allowed:
                return
            if module.startswith(("sqlite3", "_sqlite3", "psycopg", "time", "_socket", "select")):
                caller = str(frame.f_globals.get("__name__", ""))
                if not caller.startswith(("asyncio", "selectors")):
                    forbidden.append(f"{name} in {caller}.{frame.f_code.co_name}")

    async def client(db: zapdb.aio.AsyncDatabase, number: int) -> None:
        items = db.table("items")
        for turn in range(3):
            key = number * 10 + turn
            await items.insert(id=key, title="x", size=number, note=NOTE)

            async def change(
                tx: zapdb.aio.AsyncTransaction, key: int = key, turn: int = turn
            ) -> None:
                await tx.table("items").update(key, size=turn)
                async with tx.savepoint() as inner:
                    await inner.table("items").update(key, title="y")
                assert (await items.get(key)).note == NOTE

            await again(lambda: in_block(db, change))
            with suppress(ZeroDivisionError, TransactionConflict):
                async with db.transaction() as tx:
                    await insert(tx, 1_000 + key)
                    raise ZeroDivisionError
            async with db.snapshot() as snap:
                found = snap.table("items")
                assert [r.note async for r in found.where(found.f.id == key)] == [NOTE]
                some = found.using("by_size").where(found["size"] == turn)
                assert [r.id async for r in some]
            assert await db.run(lambda tx, key=key: tx.table("items").get(key)) is not None
            await items.insert_many([{"id": 5_000 + key, "title": "z"}])
            await items.where(items.f.id == 5_000 + key).delete()
            with suppress(TimeoutError):
                async with asyncio.timeout(0):
                    await items.count()

    async def main() -> None:
        async with opened(place) as db:
            sys.setprofile(watch)
            try:
                await asyncio.gather(*[client(db, number) for number in range(16)])
            finally:
                sys.setprofile(None)
            assert await db.table("items").count() == 48
            sys.setprofile(watch)
        sys.setprofile(None)

    asyncio.run(main())
    assert sorted(set(forbidden)) == []


# The end


@pytest.mark.on_each_engine
def test_a_database_that_is_closed_ends_what_is_open_and_what_waits(place: Workspace) -> None:
    async def main() -> None:
        async with opened(place) as db:
            await insert(db, 0)
            inside = asyncio.Event()

            async def hold() -> None:
                async with db.transaction() as tx:
                    await tx.table("items").update(0, size=1)
                    inside.set()
                    await asyncio.sleep(60)

            holding = asyncio.create_task(hold())
            await inside.wait()
            waiting = [asyncio.create_task(db.table("items").update(0, size=2)) for _ in range(3)]
            waiting.append(asyncio.create_task(db.run(lambda tx: tx.table("items").delete(0))))
            await asyncio.sleep(0.2)
        for task in waiting:
            error = await error_of(task)
            assert isinstance(error, UsageError), error
            assert error.message == "the database is closed"
        holding.cancel()
        with suppress(asyncio.CancelledError):
            await holding
        assert isinstance(await error_of(db.table("items").count()), UsageError)
        await db.close()
        async with opened(place) as db:
            assert (await get(db, 0)).size == 0
            async with db.transaction():
                error = await error_of(db.close())
                assert isinstance(error, UsageError)
                await insert(db, 1)
            assert await ids(db) == [0, 1]
        await until(
            lambda: not [t for t in threading.enumerate() if t.name.startswith("zapdb-aio")]
        )

    asyncio.run(main())


def test_each_run_of_a_loop_may_open_it(place: Workspace) -> None:
    async def main(key: int) -> None:
        async with opened(place) as db:
            await insert(db, key)
            assert await ids(db) == list(range(key + 1))

    for key in range(3):
        asyncio.run(main(key))


@pytest.mark.parametrize("how", ["destroyed", "dropped"])
@pytest.mark.on_each_engine
def test_a_transaction_that_nobody_left_is_undone_and_named(
    place: Workspace, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    """Its loop was closed while a task was in the block, or the handle was dropped."""
    caplog.set_level(logging.WARNING, logger="zapdb")
    loop = asyncio.new_event_loop()
    db = loop.run_until_complete(
        zapdb.aio.open(place.address, migrations=place.directory, apply="auto", max_connections=1)
    )

    async def stay() -> None:
        async with db.transaction() as tx:
            await insert(tx, 1)
            await asyncio.Event().wait()

    async def drop() -> None:
        block = db.transaction()
        await insert(await block.__aenter__(), 1)

    if how == "destroyed":
        task = loop.create_task(stay())
        while not db._sync._storage.pool.list_open():
            loop.run_until_complete(asyncio.sleep(0.01))
        loop.run_until_complete(asyncio.sleep(0.2))
        loop.close()
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # it is meant to be
        del task
    else:
        loop.run_until_complete(drop())
        loop.close()

    def is_over() -> bool:
        gc.collect()  # a worker may hold a reference until it has gone on
        return not db._sync._storage.pool.list_open()

    async def main() -> None:
        await until(is_over)
        async with db.transaction() as tx:
            await insert(tx, 2)
        assert await ids(db) == [2]
        await until(lambda: HERE in caplog.text)
        await db.close()

    asyncio.run(main())
    assert "it was undone" in caplog.text


def entered(block: Any) -> Iterator[Any]:
    yield block
