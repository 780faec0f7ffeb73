"""Every function of the API that takes a function refuses what is none, and an async one where
nothing would await it; `zapdb.aio` awaits it."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

import zapdb
from tests.contract.tables import ITEMS
from tests.support import Workspace, wait_until
from zapdb import aio
from zapdb.database import Database
from zapdb.errors import UsageError

TAKERS: dict[str, Callable[[Any, Any], Any]] = {
    "Database.on_catalog_change": lambda db, given: db.on_catalog_change(given),
    "Database.run": lambda db, given: db.run(given),
    "Table.insert_many": lambda db, given: db.table("items").insert_many(
        [{"id": 1, "title": "Milk"}], progress=given
    ),
}


def list_takers(module: Any) -> Iterator[str]:
    """The methods with a parameter that is a function, of all classes of a module."""
    for name in dir(module):
        kind = getattr(module, name)
        if not inspect.isclass(kind):
            continue
        for method, function in inspect.getmembers(kind, inspect.isfunction):
            if not method.startswith("_"):
                parameters = inspect.signature(function).parameters.values()
                if any(str(one.annotation).startswith(("Call", "'Call")) for one in parameters):
                    yield f"{kind.__name__.removeprefix('Async')}.{method}"


def test_each_that_takes_a_function_is_tried_here() -> None:
    assert {*list_takers(zapdb)} == {*TAKERS}
    assert {*list_takers(aio)} == {*TAKERS}


async def work(*_: Any) -> None:
    raise AssertionError("nobody awaits it")


class AsyncCallable:
    async def __call__(self, *_: Any) -> None:
        raise AssertionError("nobody awaits it")


@pytest.fixture
def place(workspace: Workspace) -> Workspace:
    workspace.write(1, ITEMS)
    return workspace


@pytest.mark.parametrize("name", TAKERS)
def test_what_is_no_function_is_refused(place: Workspace, name: str) -> None:
    db = place.open()
    refused = [7, "tell"] if name == "Table.insert_many" else [None, 7]
    for given in refused:
        with pytest.raises(UsageError, match="takes a function") as caught:
            TAKERS[name](db, given)
        assert caught.value.hint.startswith("give the function, not its result")

        async def ask(given: Any = given) -> None:
            async with aio.open(place.address) as other:
                await TAKERS[name](other, given)

        with pytest.raises(UsageError, match="takes a function"):
            asyncio.run(ask())
    assert db.table("items").count() == 0


@pytest.mark.parametrize("name", TAKERS)
def test_an_async_function_that_nothing_would_await_is_refused(place: Workspace, name: str) -> None:
    db = place.open()
    for given in (work, partial(work, 1), AsyncCallable()):
        with pytest.raises(UsageError, match="would not await") as caught:
            TAKERS[name](db, given)
        assert "zapdb.aio" in caught.value.hint
    assert db.table("items").count() == 0


def test_a_function_that_returns_a_coroutine_is_told(
    place: Workspace, caplog: pytest.LogCaptureFixture
) -> None:
    """No warning says that it was never awaited: the tests take those for errors."""
    db = place.open()

    def insert(tx: Any) -> Any:
        tx.table("items").insert(id=1, title="Milk")
        return work()

    for name in ("Database.run", "Table.insert_many"):
        given = insert if name == "Database.run" else lambda _: work()
        with pytest.raises(UsageError, match="would not await"):
            TAKERS[name](db, given)
        if name == "Database.run":
            assert db.table("items").count() == 0  # it was undone
    db.on_catalog_change(lambda _: work())
    db.admin.set_setting("on_read", "leave")
    wait_until(lambda: "would not await" in caplog.text, "the log says so")


def test_aio_awaits_what_it_is_given(place: Workspace) -> None:
    place.open()
    told = list[Any]()

    async def main() -> None:
        loop, thread_of_loop = asyncio.get_running_loop(), asyncio.current_task()
        assert thread_of_loop is not None
        enough = asyncio.Event()

        async def hear(change: Any) -> None:
            assert asyncio.get_running_loop() is loop
            told.append(("begun", change.after.value))
            await asyncio.sleep(0.02)
            told.append(("ended", change.after.value))
            if change.after.value == "2":
                enough.set()
            raise ZeroDivisionError

        failures = list[Any]()
        loop.set_exception_handler(lambda _, said: failures.append(type(said["exception"])))
        async with aio.open(place.address) as db:
            end = await db.on_catalog_change(hear, kinds=["setting"])
            for name in ("job_max_latency_ms", "job_records_per_second"):
                await db.admin.set_setting(name, "1" if name == "job_max_latency_ms" else "2")
            async with asyncio.timeout(60):
                await enough.wait()
            assert told == [(what, at) for at in "12" for what in ("begun", "ended")]
            await asyncio.sleep(0)
            assert failures == [ZeroDivisionError] * 2
            end()
            end()

            async def count(inserted: int) -> None:
                await asyncio.sleep(0)
                told.append(inserted)

            records = [{"id": at, "title": "Milk"} for at in range(3)]
            await db.table("items").insert_many(records, 2, count)
            assert told[-2:] == [2, 3]
            with pytest.raises(UsageError, match="can't be awaited") as caught:
                await db.run(lambda: 7)  # type: ignore[arg-type, return-value]  # it is refused
            assert "async def" in caught.value.hint

    asyncio.run(main())


def test_a_change_that_waits_is_not_told_after_the_end(place: Workspace) -> None:
    db: Database = place.open()
    told = list[str]()

    async def main() -> None:
        begun, may_end = asyncio.Event(), asyncio.Event()

        async def hear(change: Any) -> None:
            told.append(change.after.value)
            begun.set()
            await may_end.wait()

        async with aio.open(place.address) as other:
            end = await other.on_catalog_change(hear, kinds=["setting"])
            await other.admin.set_setting("job_records_per_second", "1")
            await begun.wait()
            seq = await other.admin.set_setting("job_records_per_second", "2")
            await other.admin.wait_for_catalog(seq)
            await asyncio.sleep(0.05)
            end()
            may_end.set()
            await asyncio.sleep(0.05)

    asyncio.run(main())
    assert told == ["1"]
    assert db.table("items").count() == 0
