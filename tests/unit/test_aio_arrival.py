"""What a task awaits while a worker does something."""

from __future__ import annotations

import asyncio

import pytest

from zapdb.aio.calls import Arrival


async def begin(arrival: Arrival, seen: list[str]) -> asyncio.Task[None]:
    """A task that awaits it."""

    async def wait() -> None:
        try:
            await arrival
            seen.append("arrived")
        except asyncio.CancelledError as error:
            seen.append(f"cancelled {error.args}")
            raise

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    return task


def test_a_task_goes_on_in_the_same_step_of_the_loop() -> None:
    async def main() -> None:
        seen, loop = list[str](), asyncio.get_running_loop()
        arrival = Arrival(loop)
        task = await begin(arrival, seen)
        loop.call_soon(arrival.arrive)
        loop.call_soon(seen.append, "later")
        await task
        assert seen == ["arrived", "later"]

    asyncio.run(main())


@pytest.mark.parametrize("also_arrives", [False, True])
def test_a_cancelled_task_goes_on_once(also_arrives: bool) -> None:
    async def main() -> None:
        seen = list[str]()
        arrival = Arrival(asyncio.get_running_loop())
        task = await begin(arrival, seen)
        assert task.cancel("enough")
        if also_arrives:
            arrival.arrive()
        await asyncio.wait([task])
        arrival.arrive()
        await asyncio.sleep(0)
        assert task.cancelled()
        assert seen == ["cancelled ('enough',)"]

    asyncio.run(main())


def test_a_task_that_is_cancelled_before_it_waits_does_not_wait() -> None:
    async def main() -> None:
        async def wait() -> None:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await Arrival(asyncio.get_running_loop())

        task = asyncio.create_task(wait())
        await asyncio.wait([task], timeout=10)
        assert task.cancelled()

    asyncio.run(main())


def test_a_timeout_ends_the_waiting() -> None:
    async def main() -> None:
        arrival = Arrival(asyncio.get_running_loop())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await arrival

    asyncio.run(main())
