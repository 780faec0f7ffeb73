"""A lock whose waiters get it in the order in which they came."""

from __future__ import annotations

import os
import threading
from collections import deque
from weakref import WeakValueDictionary


class FairLock:
    """A lock that is handed to whoever has waited longest.

    `threading.Lock` goes to whoever asks first after its release, which is mostly the thread that
    has just released it. Whoever holds this one need not be the thread that releases it.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._is_held = False
        self._waiting: deque[threading.Lock] = deque()

    def acquire(self, timeout_seconds: float) -> bool:
        """Whether it was had within the time; with 0, without waiting."""
        with self._guard:
            if not self._is_held:
                self._is_held = True
                return True
            if timeout_seconds <= 0:
                return False
            turn = threading.Lock()
            turn.acquire()
            self._waiting.append(turn)
        try:
            is_mine = turn.acquire(timeout=timeout_seconds)
        except BaseException:  # Ctrl-C while waiting
            if not self._withdraw(turn):
                self.release()
            raise
        return is_mine or not self._withdraw(turn)

    def _withdraw(self, turn: threading.Lock) -> bool:
        """Wait no longer; False where the lock was handed over in this very moment."""
        with self._guard:
            if turn in self._waiting:
                self._waiting.remove(turn)
                return True
            return False

    def release(self) -> None:
        with self._guard:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._is_held = False


class FairLocks:
    """One lock of this process for each name that somebody holds on to."""

    def __init__(self) -> None:
        self._forget()
        if hasattr(os, "register_at_fork"):  # not on Windows, which can't fork
            os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        """The threads that hold them were not copied with the process."""
        self._guard = threading.Lock()
        self._locks: WeakValueDictionary[str, FairLock] = WeakValueDictionary()

    def find(self, name: str) -> FairLock:
        with self._guard:
            lock = self._locks.get(name)
            if lock is None:
                lock = self._locks[name] = FairLock()
            return lock
