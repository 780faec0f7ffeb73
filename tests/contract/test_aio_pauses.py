"""The event loop goes on while clients use the database: what its thread computes at once, and for
how long it waits for anything but a processor.

It may be late by more where other programs have the processors, and where the workers, which share
Python's lock with it, use them: how late depends on the machine, and is measured in
docs/guides/asyncio.md.
"""

from __future__ import annotations

import asyncio
import gc
import random
import threading
import time
from contextlib import suppress
from math import inf
from pathlib import Path

import pytest

import zapdb.aio
from tests.contract.tables import INDEX_SIZE, ITEMS
from tests.support import Workspace, finish
from zapdb.errors import TransactionConflict

CLIENTS = 16
RECORDS = 500
SECONDS = 2.0
OPERATIONS_MIN = 100
STEP_SECONDS = 0.005
PAUSE_SECONDS_MAX = 0.050

TASKS = Path("/proc/self/task")


def read_waits() -> dict[str, int]:
    """The nanoseconds for which each thread of this process was ready to run, and did not."""
    waits = {}
    for thread in TASKS.glob("*"):
        with suppress(OSError):  # the thread has ended
            waits[thread.name] = int((thread / "schedstat").read_text().split()[1])
    return waits


class Witness:
    """A thread that only sleeps, in short steps: it is late where the whole machine, or the whole
    process, did nothing for a while."""

    def __init__(self) -> None:
        self._late_and_due = 0.0, inf
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Witness:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        finish(self._thread)

    def _run(self) -> None:
        while not self._over.is_set():
            self._late_and_due = self.late_seconds, time.perf_counter() + STEP_SECONDS
            time.sleep(STEP_SECONDS)

    @property
    def late_seconds(self) -> float:
        """By how much it was late until now, all together."""
        late, due = self._late_and_due
        return late + max(0.0, time.perf_counter() - due)


def waited_since(before: dict[str, int]) -> float:
    now = read_waits()
    return sum(now[thread] - wait for thread, wait in before.items() if thread in now) / 1e9


@pytest.fixture
def set_aside() -> None:
    """As the guide to asyncio says: what is there now is no work of the garbage collector's."""
    gc.collect()
    gc.freeze()


@pytest.mark.timed
@pytest.mark.usefixtures("set_aside")
def test_the_event_loop_is_never_held_up_by_clients(workspace: Workspace) -> None:
    workspace.write(1, ITEMS, INDEX_SIZE)
    computed, waited, done = list[float](), list[float](), 0

    async def use(db: zapdb.aio.AsyncDatabase, number: int, end: float) -> None:
        nonlocal done
        drawn, items = random.Random(number), db.table("items")
        while time.perf_counter() < end or done < OPERATIONS_MIN:
            key = drawn.randrange(RECORDS)
            try:
                match drawn.randrange(6):
                    case 0 | 1:
                        await items.get(key)
                    case 2:
                        await items.where(items.f.size == key % 10).page(20)
                    case 3:
                        await items.update(key, title="x")
                    case 4:
                        async with db.transaction() as tx:
                            found = await tx.table("items").get(key)
                            await tx.table("items").update(key, size=(found.size + 1) % 10)
                    case 5:
                        async for _ in items.where(items.f.size >= 5).limit(50):
                            pass
            except TransactionConflict:
                pass
            done += 1

    async def main() -> None:
        opening = zapdb.aio.open(workspace.address, migrations=workspace.directory, apply="auto")
        async with opening as db:
            many = ({"id": n, "title": "x", "size": n % 10} for n in range(RECORDS))
            await db.table("items").insert_many(many)
            end = time.perf_counter() + SECONDS
            clients = [asyncio.create_task(use(db, number, end)) for number in range(CLIENTS)]
            while not all(client.done() for client in clients):
                waits, lost = read_waits(), witness.late_seconds
                began, used, own = time.perf_counter(), time.process_time(), time.thread_time()
                await asyncio.sleep(STEP_SECONDS)
                late = time.perf_counter() - began - STEP_SECONDS
                computed.append(time.thread_time() - own)
                excused = waited_since(waits) + witness.late_seconds - lost
                waited.append(late - excused - (time.process_time() - used))
            await asyncio.gather(*clients)

    with Witness() as witness:
        asyncio.run(main())
    assert max(computed) <= PAUSE_SECONDS_MAX
    assert max(waited) <= PAUSE_SECONDS_MAX
