"""Calls that another thread may end: what a worker does for an asyncio task that is cancelled.

A call is interrupted for good: its running statement is cancelled, each later one is refused, and
its connection is not used again, so that a late cancellation can't hit another call's statement. A
COMMIT that was sent is never cancelled, because its outcome must be known.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from zapdb.storage.connection import Connection


class CallInterrupted(BaseException):
    """Ends a call that was interrupted. It is no `Exception`, so that no handler on its way catches
    it."""


class InterruptibleCall:
    """One call that a worker makes; its state is read and set by the worker and by who ends it."""

    def __init__(self, *, ends_transaction: bool = False) -> None:
        self._ends_transaction = ends_transaction
        """Whether all that comes behind the COMMIT belongs to it: finding out what it did."""
        self._state = threading.Lock()
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()
        self._is_committing = False
        self._enders: list[Callable[[], object]] = []
        self.connection: Connection | None = None
        """The one that it works on, where that is not its thread's own."""
        self.is_interrupted = False
        """Whether it is to end as soon as it can."""
        self.is_struck = False
        """Whether a statement may have been cancelled."""
        self.commits = 0
        """How many transactions it has committed."""
        self.is_commit_lost = False
        """Whether a COMMIT of it failed."""

    def start(self) -> bool:
        """Whether the call is to be made at all; its thread asks."""
        with self._state:
            if self.is_interrupted:
                self._ended.set()
                return False
            self._thread = threading.current_thread()
            return True

    @contextmanager
    def being_made(self) -> Iterator[None]:
        """The thread does in the block what the call is about; from its end on, nothing of the
        thread is cancelled."""
        _local.call = self
        try:
            yield
        finally:
            _local.call = None
            with self._state:
                self._ended.set()

    def refuse_interrupted(self) -> None:
        if self.is_interrupted:
            raise CallInterrupted

    def enter_commit(self) -> None:
        """COMMIT is sent next. Raises `CallInterrupted`, where it is not too late for that."""
        with self._state:
            self.refuse_interrupted()
            self._is_committing = True

    def leave_commit(self, *, is_committed: bool) -> None:
        """It is known what became of the COMMIT, or that it is not."""
        self.commits += is_committed
        self.is_commit_lost = not is_committed
        if not self._ends_transaction:
            with self._state:
                self._is_committing = False

    @contextmanager
    def ending_by(self, ender: Callable[[], object]) -> Iterator[None]:
        """What the block waits for ends where the function is called, by another thread."""
        with self._state:
            self._enders.append(ender)
        try:
            yield
        finally:
            with self._state:
                self._enders.remove(ender)

    def strike(self, interrupt: Callable[[threading.Thread, Connection | None], object]) -> None:
        """Cancel what it does at this moment; not a COMMIT, and nothing of the next call."""
        with self._state:
            if self._thread is None or self._ended.is_set() or self._is_committing:
                return
            self.is_struck = True
            for ender in self._enders:
                ender()
            interrupt(self._thread, self.connection)

    def wait(self, timeout_seconds: float) -> None:
        """Wait until it has ended, for so long."""
        self._ended.wait(timeout_seconds)

    @property
    def has_ended(self) -> bool:
        return self._ended.is_set()


class Refusing:
    """In the place of what runs statements: each is refused by what the function raises."""

    def __init__(self, refuse: Callable[[], object]) -> None:
        self._refuse = refuse

    def execute(self, *_: Any) -> NoReturn:
        self._refuse()
        raise CallInterrupted


def raise_interrupted() -> NoReturn:
    """What is raised for statements of a call that was interrupted."""
    raise CallInterrupted


class _Local(threading.local):
    call: InterruptibleCall | None = None


_local = _Local()


def current_call() -> InterruptibleCall | None:
    """The call that this thread makes, where another one may end it."""
    return _local.call
