"""What workers do for tasks: a task waits on its event loop, and may be cancelled.

A task that is cancelled has what its worker does interrupted, waits until that has ended, and goes
on with its `CancelledError`. So what was held is free by then, and it is known whether a COMMIT
that was on its way took effect: a note on the error says so, and the log.

Workers are threads of zapdb's own: the default executor of the event loop is the application's, and
may be full of what waits for zapdb. Each does one thing after the other, in no transaction by
itself.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
import weakref
from collections import deque
from collections.abc import Callable, Generator
from queue import SimpleQueue
from typing import TYPE_CHECKING, Generic, TypeVar

from zapdb.catalog import principal
from zapdb.limits import STRIKE_SECONDS
from zapdb.logs import log_event
from zapdb.storage import Storage
from zapdb.storage.fair_lock import FairSemaphore
from zapdb.storage.interruption import CallInterrupted, InterruptibleCall
from zapdb.storage.open_transaction import OpenTransaction
from zapdb.storage.transaction_owners import in_no_transaction, running_loop

if TYPE_CHECKING:
    from zapdb.aio.runtime import Runtime


Job = Callable[[], object]


class Worker:
    """A thread that does the jobs it is given until it is stopped. No job raises an exception.

    Starting a thread waits until it runs: `starter` is a worker that does that.
    """

    def __init__(self, at_end: Job, starter: Worker | None = None) -> None:
        self._jobs = SimpleQueue[Job | None]()
        self._at_end = at_end
        thread = threading.Thread(
            target=in_no_transaction().run, args=(self._run,), name="zapdb-aio", daemon=True
        )
        if starter is None:
            thread.start()
        else:
            starter.submit(thread.start)

    def submit(self, job: Job) -> None:
        self._jobs.put(job)

    def stop(self) -> None:
        """End the thread when all that it was given is done."""
        self._jobs.put(None)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
            del job  # it would keep what it refers to until there is another one
        self._at_end()


class WorkerPool:
    """The threads of one purpose. A task with a place takes one, and puts it back before the
    place."""

    def __init__(self, places: FairSemaphore, at_end: Job, starter: Worker) -> None:
        self.places = places
        self._starter = starter
        self._at_end = at_end
        self._idle = deque[Worker]()
        self._is_over = False

    def take(self) -> Worker:
        try:
            return self._idle.pop()  # the one used last, so that unneeded ones rest
        except IndexError:
            return Worker(self._at_end, self._starter)

    def put_back(self, worker: Worker) -> None:
        """Also called while objects are destroyed: it takes no lock."""
        self._idle.append(worker)
        if self._is_over:
            self.stop()

    def stop(self) -> None:
        self._is_over = True
        while True:
            try:
                self._idle.pop().stop()
            except IndexError:
                return


class TransactionWorker:
    """The worker of an open transaction, used by one task at a time."""

    def __init__(self, begun: OpenTransaction, workers: WorkerPool, worker: Worker) -> None:
        self.worker = worker
        self._in_use = threading.Lock()
        self.release = self._in_use.release
        self.end = weakref.finalize(begun, workers.put_back, worker)
        """Called at the end of the transaction: the worker is another one's from then on."""
        self.end.atexit = False

    def take(self) -> bool:
        return self._in_use.acquire(blocking=False)


logger = logging.getLogger("zapdb.aio")

T = TypeVar("T")


def do_nothing() -> None:
    """Do nothing: there is nothing to undo or to give back."""


class Arrival:
    """What a task awaits until its worker has done something; in asyncio's terms, a future.

    The task goes on in the step of the event loop in which the word of the worker arrives: with an
    `asyncio.Future`, it would go on in the next one.
    """

    _asyncio_future_blocking = False

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._resume: Job | None = None
        self._cancelled: tuple[object, ...] | None = None
        """What the task was cancelled with."""

    def __await__(self) -> Generator[Arrival, None, None]:
        self._asyncio_future_blocking = True
        yield self

    def arrive(self) -> None:
        """Resume the task, on the event loop, unless it was cancelled."""
        if self._cancelled is None:
            self._go_on()

    def _go_on(self) -> None:
        resume, self._resume = self._resume, None
        if resume is not None:
            resume()

    # What a task calls

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    def add_done_callback(
        self, resume: Callable[[Arrival], object], *, context: contextvars.Context
    ) -> None:
        self._resume = lambda: context.run(resume, self)

    def cancel(self, msg: object = None) -> bool:
        if self._cancelled is not None:
            return False
        self._cancelled = () if msg is None else (msg,)
        self._loop.call_soon(self._go_on)
        return True

    def result(self) -> None:
        if self._cancelled is not None:
            raise asyncio.CancelledError(*self._cancelled)


class CancellableCall(Generic[T]):
    """What a worker does for a task, once.

    `undo` reverses the work if the task was cancelled or destroyed; a worker calls it after the
    work. At the end the worker calls `at_end`, whatever the outcome.
    """

    def __init__(
        self,
        runtime: Runtime | None,
        work: Callable[[], T],
        *,
        interruptible: InterruptibleCall | None = None,
        undo: Job = do_nothing,
        at_end: Job = do_nothing,
        is_interruptible: bool = True,
    ) -> None:
        self._runtime = runtime
        self._work = principal.for_caller(work)
        self.interruptible = interruptible or InterruptibleCall()
        self._undo = undo
        self._at_end = at_end
        self._is_interruptible = is_interruptible and runtime is not None
        self._loop = running_loop()
        """None if it was closed, and the task is destroyed."""
        self._waiter: Arrival | None = None
        self._worker: Worker | None = None
        self._has_arrived = False
        self._result: T | None = None
        self._failure: BaseException | None = None

    async def done_by(self, worker: Worker) -> T:
        """Let a worker do the work; return or raise its outcome."""
        self.begin(worker)
        cancelled = await self._arrival()
        self._forget()
        if cancelled is None:
            failure, self._failure = self._failure, None
            if failure is None:
                result, self._result = self._result, None
                return result  # type: ignore[return-value]  # None is a result, too
            try:
                if self.interruptible.is_interrupted and self._runtime is not None:
                    self._runtime.require_open()  # it was closed meanwhile
                raise failure
            finally:
                del failure  # its traceback refers to this frame
        if self._undo is not do_nothing:  # it had ended by then
            self._has_arrived = False
            worker.submit(self._undo_late)
            await self._arrival()
        try:
            self._say_outcome(cancelled)
            raise cancelled
        finally:
            del cancelled  # its traceback refers to this frame

    async def _arrival(self) -> asyncio.CancelledError | None:
        """Wait for the worker; what has cancelled the task meanwhile."""
        cancelled: asyncio.CancelledError | None = None
        assert self._loop is not None
        while not self._has_arrived:
            self._waiter = Arrival(self._loop)
            try:
                await self._waiter
            except asyncio.CancelledError as error:
                if self._runtime is None:  # it can't be interrupted, and is undone later
                    self._abandon()
                    raise
                if cancelled is None:
                    cancelled = error
                    self.interrupt()
            except BaseException:  # the task is destroyed, with its event loop
                self._abandon()
                raise
        return cancelled

    def begin(self, worker: Worker) -> None:
        """Start the work; a caller that does not wait for it never learns its outcome."""
        if self._runtime is not None and self._is_interruptible:
            self._runtime.under_way.add(self)
        self._worker = worker
        worker.submit(self._perform)

    def interrupt(self) -> None:
        """End it as soon as that can be, unless it undoes something."""
        if self._is_interruptible and self._runtime is not None:
            self._runtime.interrupter.interrupt(self.interruptible)

    def _abandon(self) -> None:
        """Stop waiting for the work: it is undone when it has ended."""
        self.interruptible.is_interrupted = True
        self.interrupt()
        self._forget()
        if self._worker is not None:  # now, since it may be stopped next; it does one by one
            self._worker.submit(self._undone)

    def _perform(self) -> None:
        """In the worker's thread."""
        try:
            if self.interruptible.start():
                with self.interruptible:
                    self._result = self._work()
            else:
                self._failure = CallInterrupted()
        except BaseException as error:
            self._failure = error
        if self._runtime is not None and self.interruptible.is_struck:
            self._runtime.storage.pool.drop_interrupted()
        if self.interruptible.is_interrupted:
            self._undone()
        self._at_end()
        self._tell()

    def _undo_late(self) -> None:
        self._undone()
        self._tell()

    def _tell(self) -> None:
        if self._loop is None:
            self._forget()
            return
        try:
            self._loop.call_soon_threadsafe(self._arrive)
        except RuntimeError:  # the loop was closed meanwhile, so no task waits
            self._undone()
            self._forget()

    def _undone(self) -> None:
        undo, self._undo = self._undo, do_nothing
        try:
            undo()
        except Exception:
            logger.exception("what a cancelled task had done could not be undone")

    def _arrive(self) -> None:
        self._has_arrived = True
        if self._waiter is not None:
            self._waiter.arrive()

    def _forget(self) -> None:
        if self._runtime is not None:
            self._runtime.under_way.discard(self)

    def _say_outcome(self, cancelled: asyncio.CancelledError) -> None:
        """What became of a COMMIT that was on its way when the task was cancelled."""
        if self.interruptible.commits:
            said = "the task was cancelled while its COMMIT was on its way: it was committed"
        elif self.interruptible.is_commit_lost:
            said = f"the task was cancelled while its COMMIT was on its way: {self._failure}"
        else:
            return
        cancelled.add_note(f"zapdb: {said}")
        assert self._runtime is not None
        log_event(
            logger,
            "transaction.cancelled",
            said,
            level=logging.WARNING,
            database=self._runtime.storage.shown_url,
        )


class Interrupter:
    """A thread that interrupts what cancelled tasks have under way in one open database, until it
    ends; it lives as long as there is something to interrupt.

    Again and again, since a statement may end just then and the next one begin; and in a thread of
    its own, since telling a server to cancel a statement waits for the server.
    """

    def __init__(self, storage: Storage, starter: Worker) -> None:
        self._storage = storage
        self._starter = starter
        self._lock = threading.Lock()
        self._calls = list[InterruptibleCall]()
        self._is_running = False

    def interrupt(self, call: InterruptibleCall) -> None:
        """End a call as soon as that can be; returns at once."""
        call.is_interrupted = True
        with self._lock:
            self._calls.append(call)
            if self._is_running:
                return
            self._is_running = True
        thread = threading.Thread(
            target=in_no_transaction().run,
            args=(self._run,),
            name="zapdb-aio-interrupter",
            daemon=True,
        )
        self._starter.submit(thread.start)

    def _run(self) -> None:
        while True:
            with self._lock:
                self._calls = [call for call in self._calls if not call.has_ended]
                calls = list(self._calls)
                if not calls:
                    self._is_running = False
                    return
            for call in calls:
                call.strike(self._storage.pool.interrupt)
            calls[0].wait(STRIKE_SECONDS)
