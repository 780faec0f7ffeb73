"""Threads that do what waits for the database, in the place of the event loop's.

Each does one thing after the other, in no transaction by itself. They are zapdb's own: the default
executor of the event loop is the application's, and may be full of what waits for zapdb.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue

from zapdb.storage.fair_lock import FairSemaphore
from zapdb.storage.open_transaction import OpenTransaction
from zapdb.storage.transaction_owners import in_no_transaction

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
