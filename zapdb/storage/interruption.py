"""Calls that another thread may end: those of a worker for an asyncio task that is cancelled.

A call is interrupted for good: its running statement is cancelled, each later one is refused, and
its connection is not used again, so that a late cancellation can't hit another call's statement. A
COMMIT that was sent is never cancelled, because its outcome must be known.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NoReturn

from zapdb.errors import ZapdbError
from zapdb.limits import GIVE_BACK_SECONDS

if TYPE_CHECKING:
    from zapdb.storage.connection import Connection


class CallInterrupted(BaseException):
    """Ends an interrupted call; not an `Exception`, so that no handler catches it by mistake."""


class InterruptibleCall:
    """One call of a worker; the worker and the thread that ends it share its state."""

    def __init__(self, *, ends_transaction: bool = False) -> None:
        self._ends_transaction = ends_transaction
        """Whether the work after the COMMIT belongs to the call: finding out its outcome."""
        self._state = threading.Lock()
        self._thread: threading.Thread | None = None
        self._end = threading.Lock()
        """Held until the call has ended: the cheapest thing to wait for."""
        self._end.acquire()
        self.has_ended = False
        self._is_committing = False
        self._enders: list[Callable[[], object]] = []
        self.connection: Connection | None = None
        """The connection that it uses, if it is not its thread's own; set in its thread."""
        self.is_interrupted = False
        """Whether it was told to end."""
        self.is_struck = False
        """Whether a statement may have been cancelled."""
        self.commits = 0
        """The number of transactions that it has committed."""
        self.is_commit_lost = False
        """Whether a COMMIT of it failed."""

    def start(self) -> bool:
        """Begin the call, in its thread; returns False if it was ended before."""
        with self._state:
            if self.is_interrupted:
                self._note_end()
                return False
            self._thread = threading.current_thread()
            return True

    def __enter__(self) -> None:
        """Run the call in the block; after the block, nothing of the thread is cancelled."""
        _local.call = self

    def __exit__(self, *_: object) -> None:
        _local.call = None
        with self._state:
            self._note_end()

    def _note_end(self) -> None:
        self.has_ended = True
        self._end.release()

    def refuse_interrupted(self) -> None:
        if self.is_interrupted:
            raise CallInterrupted

    def enter_commit(self) -> None:
        """Note that COMMIT is sent next; raises `CallInterrupted` if the call was told to end."""
        with self._state:
            self.refuse_interrupted()
            self._is_committing = True

    def leave_commit(self, *, is_committed: bool) -> None:
        """Note the outcome of the COMMIT, or that it is unknown."""
        self.commits += is_committed
        self.is_commit_lost = not is_committed
        if not self._ends_transaction:
            with self._state:
                self._is_committing = False

    @contextmanager
    def ending_by(self, ender: Callable[[], object]) -> Iterator[None]:
        """In the block, another thread may call the function to end what the block waits for."""
        with self._state:
            self._enders.append(ender)
        try:
            yield
        finally:
            with self._state:
                self._enders.remove(ender)

    def detach(self, connection: Connection) -> None:
        """Note that the call gives a connection back: other calls may use it from now on."""
        if self.connection is connection:
            with self._state:  # a strike that has begun comes to its end before
                self.connection = None

    def strike(self, interrupt: Callable[[threading.Thread, Connection | None], object]) -> None:
        """Cancel the running statement, but neither a COMMIT nor anything of the next call."""
        with self._state:
            if self._thread is None or self.has_ended or self._is_committing:
                return
            self.is_struck = True
            for ender in self._enders:
                ender()
            interrupt(self._thread, self.connection)

    def wait(self, timeout_seconds: float) -> None:
        """Wait until it has ended, at most for this time."""
        if self._end.acquire(timeout=timeout_seconds):
            self._end.release()


def finish_even_if_interrupted(work: Callable[[], object], at_end: Callable[[], object]) -> None:
    """Do what gives something back to others at the end of a call.

    The thread of an interrupted call can do nothing any more: then another one does it, which calls
    `at_end` as its last, and the call ends as it would have, soon even if the database is busy.
    """
    try:
        work()
    except CallInterrupted:

        def act() -> None:
            try:
                with suppress(ZapdbError):
                    work()
            finally:
                at_end()

        thread = threading.Thread(target=act, name="zapdb-give-back", daemon=True)
        thread.start()
        thread.join(GIVE_BACK_SECONDS)
        raise


class Refusing:
    """Takes the place of a connection's executor: each statement raises the error of a function."""

    def __init__(self, refuse: Callable[[], object]) -> None:
        self._refuse = refuse

    def execute(self, *_: Any) -> NoReturn:
        self._refuse()
        raise CallInterrupted


def raise_interrupted() -> NoReturn:
    """Raise the error of a statement of an interrupted call."""
    raise CallInterrupted


class _Local(threading.local):
    call: InterruptibleCall | None = None


_local = _Local()


def current_call() -> InterruptibleCall | None:
    """The running call of this thread, if another thread may end it."""
    return _local.call
