"""Places that are handed out in the order in which they were asked for.

A SQLite file has one place for writers; a pool has one for each of its connections. Threads wait
for a place. An event loop, which must not wait, requests one. Both are in one queue.
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
"""Called once, by the thread that gave up a place, when the caller has it."""


class MayHaveTurn(Protocol):
    """An object that may hold a single place."""

    has_turn: bool


class FairSemaphore:
    """A number of places, each given to the caller that has waited longest.

    A `threading.Semaphore` is acquired by the first thread that tries after a release, which is
    mostly the thread that has just released it. A place need not be released by the thread that
    acquired it.
    """

    def __init__(self, places: int = 1) -> None:
        # The garbage collector may end a generator at any moment, also inside a method of this
        # object, and the generator may acquire or release a place. So each step is completed before
        # other code is called.
        self.guard = threading.RLock()
        self.free = places
        """Return the number of free places."""
        self._waiting: deque[Granted] = deque()
        self.holder: ref[Any] | None = None
        """The holder of a single place, if it has registered itself."""

    def acquire(self, timeout_seconds: float, check: Callable[[], None] | None = None) -> bool:
        """Acquire a place; returns False if none was free within the time; 0 does not wait.

        While it waits, `check` is called from time to time; its error ends the waiting.
        """
        is_taken = False
        try:
            with self.guard:
                if self.free and not self._waiting:
                    self.free -= 1
                    is_taken = True
                    return True
        except BaseException:  # Ctrl-C behind it
            if is_taken:
                self.release()
            raise
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
        except BaseException:  # Ctrl-C at any moment, or an error of the check
            if not self.withdraw(granted) and (is_waiting or not turn.locked()):
                self.release()
            raise
        return True

    def request(self, granted: Granted) -> bool:
        """Take a free place and return True; else call `granted` as soon as there is one."""
        with self.guard:
            if self.take_free():
                return True
            self._waiting.append(granted)
            return False

    def take_free(self) -> bool:
        """Take a free place; returns False if there is none. Nobody waits while one is free."""
        with self.guard:
            if self.free:
                self.free -= 1
                return True
            return False

    def _ask(self, granted: Granted) -> None:
        """Call `granted` as soon as a place is free."""
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
        """Stop waiting; returns False if the place was already given."""
        with self.guard:
            if granted in self._waiting:
                self._waiting.remove(granted)
                return True
            return False

    def release(self, of: MayHaveTurn | None = None) -> None:
        """Give up a place; the place of a holder is given up once, by the first call."""
        with self.guard:
            if of is not None:
                if not of.has_turn:
                    return
                of.has_turn = False
            self.holder = None
            self.free += 1
            if self._waiting:
                self.hand_out()


def _slice(deadline: float, check: Callable[[], None] | None) -> float:
    left = max(0.0, deadline - time.monotonic())
    return left if check is None else min(left, WAIT_CHECK_SECONDS)


class FairLocks:
    """Return this process's one place for a name; it lives as long as something refers to it."""

    def __init__(self) -> None:
        self._forget()
        if hasattr(os, "register_at_fork"):  # not on Windows, which can't fork
            os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        """Free all places after a fork, which did not copy the threads that held them."""
        self._guard = threading.Lock()
        self._locks: WeakValueDictionary[str, FairSemaphore] = WeakValueDictionary()

    def find(self, name: str) -> FairSemaphore:
        with self._guard:
            lock = self._locks.get(name)
            if lock is None:
                lock = self._locks[name] = FairSemaphore()
            return lock
