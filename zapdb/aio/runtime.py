"""What the proxies of one open database share: its workers, and the order of waiting.

Tasks wait on the event loop: for SQLite's turn to write, a place for an open transaction, a worker.
A worker is taken last, and never waits for any of these. So a task with a worker always makes
progress, and waiting tasks hold up no other task.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, Final, Literal, TypeVar

from zapdb.aio.calls import CancellableCall, Interrupter, Job, TransactionWorker, Worker, WorkerPool
from zapdb.catalog import principal
from zapdb.database.transaction_blocks import Block, Handle
from zapdb.errors import UsageError
from zapdb.limits import (
    ASYNC_LONG_CALLS,
    ASYNC_READERS,
    ASYNC_SCANS,
    ASYNC_STATEMENTS,
    ASYNC_TASKS,
    ASYNC_WRITERS,
    BUSY_TIMEOUT_MS,
    CONNECTION_WAIT_SECONDS,
)
from zapdb.logs import log_event
from zapdb.storage import Storage, TransactionMode
from zapdb.storage.fair_lock import FairSemaphore
from zapdb.storage.interruption import InterruptibleCall
from zapdb.storage.open_transaction import ONE_AT_A_TIME_HINT, OpenTransaction
from zapdb.storage.transaction_owners import find_caller, note_begun

logger = logging.getLogger("zapdb.aio")

CallKind = Literal["read", "write", "sql", "task", "scan", "long"]
"""The kind of a single operation; operations of one kind share workers."""

SHARED: Final[dict[CallKind, int]] = {
    "read": ASYNC_READERS,
    "write": ASYNC_WRITERS,
    "sql": ASYNC_STATEMENTS,
    "task": ASYNC_TASKS,
    "scan": ASYNC_SCANS,
    "long": ASYNC_LONG_CALLS,
}

T = TypeVar("T")
H = TypeVar("H", bound=Handle)


class Runtime:
    """Of one open database; safe to share between event loops. `starter` starts its threads."""

    def __init__(self, storage: Storage, starter: Worker) -> None:
        self.storage = storage
        self._starter = starter
        self.interrupter = Interrupter(storage, starter)
        self.under_way = set[CancellableCall[Any]]()
        """What can be interrupted."""
        self._shared: dict[CallKind, WorkerPool] = {
            kind: WorkerPool(FairSemaphore(count), storage.release_connection, starter)
            for kind, count in SHARED.items()
        }
        self._own = WorkerPool(storage.pool.places, storage.release_connection, starter)
        self._transaction_workers = weakref.WeakKeyDictionary[OpenTransaction, TransactionWorker]()
        self._is_closing = False

    def require_open(self) -> None:
        """Raises `UsageError` if the database is closed, or another process opened it."""
        self.storage.require_open()
        if self._is_closing:
            raise UsageError(
                "the database is closed", database=self.storage.shown_url, hint="open it again"
            )

    # Single operations

    def call(
        self, kind: CallKind, work: Callable[[], T], begun: OpenTransaction | None
    ) -> Coroutine[Any, Any, T]:
        """Do it in an open transaction: the one that is given, or else that of the calling task;
        or else by itself. To be awaited at once."""
        self.require_open()
        if begun is not None:
            return self.within(begun, work)
        joined = self.storage.pool.open_here()
        if joined is None:
            return self._call_alone(kind, work)
        context, act = contextvars.Context(), principal.for_caller(work)
        context.run(note_begun, joined)
        return self.within(joined, lambda: context.run(act))

    async def _call_alone(self, kind: CallKind, work: Callable[[], T]) -> T:
        is_writing = kind == "write" and not self.storage.read_only
        turn = await self._await_turn() if is_writing else None
        workers = self._shared[kind]
        if not workers.places.take_free():
            try:
                await self._acquire(workers.places, None)
            except BaseException:
                _release(turn)
                raise
        worker = workers.take()

        def end() -> None:
            _release(turn)
            workers.put_back(worker)
            workers.places.release()

        act = work if turn is None else self._in_turn(work)
        return await CancellableCall(self, act, at_end=end).done_by(worker)

    def _in_turn(self, work: Callable[[], T]) -> Callable[[], T]:
        local = self.storage.pool.local

        def act() -> T:
            local.has_turn = True
            try:
                return work()
            finally:
                local.has_turn = False

        return act

    async def _acquire(self, places: FairSemaphore, timeout_seconds: float | None) -> bool:
        """Whether a place was had in time; the database may have been closed meanwhile."""
        if places.take_free():
            return True
        is_had = await acquire_place(places, timeout_seconds)
        try:
            self.require_open()
        except UsageError:
            if is_had:
                places.release()
            raise
        return is_had

    async def _await_turn(
        self, mode: TransactionMode = TransactionMode.WRITE
    ) -> FairSemaphore | None:
        """Wait for this process's turn to write to SQLite; return it, or None on other
        databases."""
        turn = self.storage.pool.turn
        if turn is not None and not await self._acquire(turn, BUSY_TIMEOUT_MS / 1000):
            raise await self._call_alone("read", lambda: self.storage.pool.late_for_turn(mode))
        return turn

    async def _await_place(self, *, is_writing: bool) -> FairSemaphore | None:
        """Wait for the turn to write, if the task writes, and for a connection's place; return the
        turn."""
        storage = self.storage
        if is_writing:
            storage.require_writable()
        turn = await self._await_turn() if is_writing else None
        try:
            if not await self._acquire(storage.pool.places, CONNECTION_WAIT_SECONDS):
                raise storage.pool.connections_busy()
        except BaseException:
            _release(turn)
            raise
        return turn

    # Open transactions

    async def within(
        self, begun: OpenTransaction, work: Callable[[], T], *, is_part: bool = True
    ) -> T:
        """Do it with the worker of an open transaction, which is rolled back if the task is
        cancelled meanwhile; in the transaction itself, unless it is no part of it."""
        begun.require_open()
        held = self._transaction_workers.get(begun)
        if held is None or not held.take():
            raise _refuse_use_of(begun)

        def in_transaction() -> T:
            if not is_part:
                return work()
            with begun.use():
                return work()

        return await CancellableCall(
            self,
            in_transaction,
            interruptible=_call_on(begun),
            undo=lambda: self.storage.undo_open(begun),
            at_end=held.release,
        ).done_by(held.worker)

    async def enter(self, block: Block[H]) -> H:
        """Enter a block: a transaction or snapshot is begun, or a savepoint in that of the task."""
        self.require_open()
        outer = block.find_outer()
        if outer is not None:
            return block.entered(await self.within(outer, lambda: block.begin_inside(outer)))
        return block.entered(await self._begin(block))

    async def _begin(self, block: Block[H]) -> OpenTransaction:
        storage, caller = self.storage, find_caller()
        turn = await self._await_place(is_writing=not block.mode.only_reads)
        worker, made = self._own.take(), list[OpenTransaction]()
        held = [_releasing(turn), storage.pool.places.release]
        """What is held by the task; the connection has it from when there is one."""

        def begin() -> OpenTransaction:
            held.pop()
            connection = storage.pool.connect_lent()  # gives the place up if it fails
            call.interruptible.connection = connection
            if turn is not None:
                held.clear()
                storage.pool.give_turn(connection)
            begun = block.begin(connection, caller)
            made.append(begun)
            return begun

        def end() -> None:
            while held:
                held.pop()()

        def undo() -> None:
            for begun in made:
                storage.undo_open(begun)

        call = CancellableCall(self, begin, undo=undo, at_end=end)
        try:
            begun = await call.done_by(worker)
        except BaseException:
            self._own.put_back(worker)
            raise
        self._transaction_workers[begun] = TransactionWorker(begun, self._own, worker)
        return begun

    async def leave(self, block: Block[H], error: BaseException | None) -> None:
        """Leave a block: commit, or undo because of an error.

        What a task leaves that is destroyed, and can't wait for anything, is undone and logged.
        """
        leaver, begun = block.look(), block.begun
        assert begun is not None
        held = self._transaction_workers.get(begun)
        is_free = held is not None and held.take()
        worker = held.worker if held is not None and is_free else self._own.take()

        def end() -> None:
            if held is not None and is_free:
                held.release()
                if begun.is_ended:
                    held.end()
            else:
                self._own.put_back(worker)

        call = CancellableCall(
            self,
            lambda: block.leave(leaver, error),
            interruptible=_call_on(begun, ends_transaction=True),
            undo=lambda: self.storage.undo_open(begun),
            at_end=end,
            is_interruptible=error is None,
        )
        if isinstance(error, GeneratorExit):
            call.begin(worker)
            self._log_destroyed(begun)
        else:
            await call.done_by(worker)

    def _log_destroyed(self, begun: OpenTransaction) -> None:
        log_event(
            logger,
            "transaction.dropped",
            f"the task that was in a {begun.name} was destroyed: it was undone",
            level=logging.WARNING,
            database=self.storage.shown_url,
            begun_at=begun.place,
        )

    # The end

    async def close(self, close: Job) -> None:
        """End what is under way, undo what is open, and close."""
        self._is_closing = True
        ending = list(self.under_way)
        for call in ending:
            call.interrupt()

        def end() -> None:
            for call in ending:
                call.interruptible.wait(CONNECTION_WAIT_SECONDS)
            for begun in self.storage.pool.list_open():
                self.storage.undo_open(begun)
            close()

        worker = self._own.take()
        try:
            await CancellableCall(self, end, is_interruptible=False).done_by(worker)
        finally:
            self._own.put_back(worker)
            for workers in (self._own, *self._shared.values()):
                workers.stop()
            self._starter.stop()


def _call_on(begun: OpenTransaction, *, ends_transaction: bool = False) -> InterruptibleCall:
    call = InterruptibleCall(ends_transaction=ends_transaction)
    call.connection = begun.connection
    return call


def _refuse_use_of(begun: OpenTransaction) -> UsageError:
    return UsageError(
        f"another task is using the {begun.name}", begun_at=begun.place, hint=ONE_AT_A_TIME_HINT
    )


def _release(turn: FairSemaphore | None) -> None:
    if turn is not None:
        turn.release()


def _releasing(turn: FairSemaphore | None) -> Job:
    return lambda: _release(turn)


async def acquire_place(places: FairSemaphore, timeout_seconds: float | None) -> bool:
    """Whether a place was had within the time; that of a task that is cancelled is given on."""
    waiting = _Waiting(places)
    if places.request(waiting.grant):
        return True
    waiting.arrival = waiting.loop.create_future()
    try:
        async with asyncio.timeout(timeout_seconds):
            await waiting.arrival
    except TimeoutError:
        return waiting.leave(wants_place=True)
    except BaseException:  # cancelled, or thrown away with its event loop
        waiting.leave(wants_place=False)
        raise
    return True


class _Waiting:
    """One task in the queue. The place comes from any thread, and arrives on the event loop."""

    def __init__(self, places: FairSemaphore) -> None:
        self._places = places
        self.loop = asyncio.get_running_loop()
        self.arrival: asyncio.Future[None]
        """What the task awaits, if it has to: set before the loop goes on, and with it the place
        arrives."""
        self._has_arrived = False
        self._has_left = False

    def grant(self) -> None:
        """Called by the thread that gave the place up."""
        try:
            self.loop.call_soon_threadsafe(self._arrive)
        except RuntimeError:  # the loop was closed, and its tasks with it
            self._places.release()

    def _arrive(self) -> None:
        if self._has_left:
            self._places.release()
            return
        self._has_arrived = True
        if not self.arrival.done():
            self.arrival.set_result(None)

    def leave(self, *, wants_place: bool) -> bool:
        """Stop waiting; return whether the task has the place, if it wants one."""
        if self._places.withdraw(self.grant):
            return False
        if self._has_arrived:
            if not wants_place:
                self._places.release()
            return wants_place
        self._has_left = True  # it is on its way, and is given on when it arrives
        if self.loop.is_closed():
            self._places.release()
        return False
