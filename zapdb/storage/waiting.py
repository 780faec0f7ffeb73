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
from typing import Any
from weakref import WeakValueDictionary, ref

from zapdb.limits import WAIT_CHECK_SECONDS

Granted = Callable[[], object]
"""Called once, by the thread that gave a place up, when it is the caller's."""


class FairSemaphore:
    """So many places, each handed to the one that has waited longest.

    `threading.Semaphore` goes to who asks first after a release, which is mostly the thread that
    has just released it. A place need not be released by the thread that acquired it.
    """

    def __init__(self, places: int = 1) -> None:
        self._guard = threading.Lock()
        self._free = places
        self._waiting: deque[Granted] = deque()
        self.holder: ref[Any] | None = None
        """Of a single place: what holds it, where that says so."""

    def acquire(self, timeout_seconds: float, check: Callable[[], None] | None = None) -> bool:
        """Whether a place was had within the time; with 0, without waiting.

        While it waits, `check` is called now and then: what it raises ends the waiting.
        """
        with self._guard:
            if self._free:
                self._free -= 1
                return True
        if timeout_seconds <= 0:
            return False
        turn = threading.Lock()
        turn.acquire()
        granted, deadline = turn.release, time.monotonic() + timeout_seconds
        if self.request(granted):
            return True
        try:
            while not turn.acquire(timeout=_slice(deadline, check)):
                if time.monotonic() >= deadline:
                    return not self.withdraw(granted)
                if check is not None:
                    check()
        except BaseException:  # Ctrl-C while waiting, or what the check raised
            if not self.withdraw(granted):
                self.release()
            raise
        return True

    def request(self, granted: Granted) -> bool:
        """Whether a place was free, and is taken; else `granted` is called as soon as one is."""
        with self._guard:
            if self._free:
                self._free -= 1
                return True
            self._waiting.append(granted)
            return False

    def withdraw(self, granted: Granted) -> bool:
        """Wait no longer; False where the place was handed over already."""
        with self._guard:
            if granted in self._waiting:
                self._waiting.remove(granted)
                return True
            return False

    def release(self) -> None:
        self.holder = None
        with self._guard:
            if not self._waiting:
                self._free += 1
                return
            granted = self._waiting.popleft()
        granted()


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
