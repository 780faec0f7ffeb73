"""Places that are handed out in the order in which they were asked for.

A SQLite file has one place for its writers, a database's pool of connections has some. They can be
waited for by a thread, or asked for by an event loop, which must not wait: both stand in one queue.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol
from weakref import WeakValueDictionary, ref

from zapdb.limits import WAIT_CHECK_SECONDS

Granted = Callable[[], object]
"""Called once, by the thread that gave a place up, when it is the caller's."""


class MayHoldWriterLock(Protocol):
    """What may hold a single place."""

    holds_writer_lock: bool


class FairSemaphore:
    """So many places, each handed to the one that has waited longest.

    `threading.Semaphore` goes to who asks first after a release, which is mostly the thread that
    has just released it. A place need not be released by the thread that acquired it.
    """

    def __init__(self, places: int = 1) -> None:
        # It may be asked for a place, or given one back, at any moment in the midst of its own
        # calls: by generators that the garbage collector ends. A step that has begun is whole
        # before anything is called.
        self.guard = threading.RLock()
        self.free = places
        """Return the number of free places."""
        self._waiting: deque[Granted] = deque()
        self.holder: ref[Any] | None = None
        """Of a single place: what holds it, where that says so."""

    def acquire(self, timeout_seconds: float, check: Callable[[], None] | None = None) -> bool:
        """Whether a place was had within the time; with 0, without waiting.

        While it waits, `check` is called now and then: what it raises ends the waiting.
        """
        turn = threading.Lock()
        turn.acquire()
        granted, is_waiting = turn.release, False
        try:
            self._ask(granted)
            deadline = time.monotonic() + timeout_seconds
            is_waiting = True
            while not turn.acquire(timeout=_slice(deadline, check)):
                if time.monotonic() >= deadline:
                    is_waiting = False
                    return not self.withdraw(granted)
                if check is not None:
                    check()
        except BaseException:  # Ctrl-C at any moment, or what the check raised
            if not self.withdraw(granted) and (is_waiting or not turn.locked()):
                self.release()
            raise
        return True

    def request(self, granted: Granted) -> bool:
        """Whether a place was free, and is taken; else `granted` is called as soon as one is."""
        with self.guard:
            if self.free:
                self.free -= 1
                return True
            self._waiting.append(granted)
            return False

    def _ask(self, granted: Granted) -> None:
        """Call it as soon as a place is free."""
        with self.guard:
            self._waiting.append(granted)
            self.hand_out()

    def hand_out(self) -> None:
        """Give the free places to waiting callers."""
        with self.guard:
            while self.free and self._waiting:
                granted = self._waiting[0]
                self.free -= 1
                del self._waiting[0]
                granted()

    def withdraw(self, granted: Granted) -> bool:
        """Wait no longer; False where the place was handed over already."""
        with self.guard:
            if granted in self._waiting:
                self._waiting.remove(granted)
                return True
            return False

    def release(self, of: MayHoldWriterLock | None = None) -> None:
        """Give a place up; the place of a holder is given up only once, by the first call."""
        with self.guard:
            if of is not None:
                if not of.holds_writer_lock:
                    return
                of.holds_writer_lock = False
            self.holder = None
            self.free += 1
            self.hand_out()


def _slice(deadline: float, check: Callable[[], None] | None) -> float:
    left = max(0.0, deadline - time.monotonic())
    return left if check is None else min(left, WAIT_CHECK_SECONDS)


class FairLocks:
    """One place of this process for each name, as long as anything refers to it."""

    def __init__(self) -> None:
        self._forget()
        if hasattr(os, "register_at_fork"):  # not on Windows, which can't fork
            os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        """The threads that hold them were not copied with the process."""
        self._guard = threading.Lock()
        self._locks: WeakValueDictionary[str, FairSemaphore] = WeakValueDictionary()

    def find(self, name: str) -> FairSemaphore:
        with self._guard:
            lock = self._locks.get(name)
            if lock is None:
                lock = self._locks[name] = FairSemaphore()
            return lock
