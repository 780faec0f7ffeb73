"""Generated identifiers: UUIDs of version 7 (RFC 9562), which sort by the time they were made.

The identifiers of one process rise strictly: each is greater than all earlier ones, for all
threads, and even if the clock is set back. So records with generated keys are in the order of their
insertion. Between processes, the order follows their clocks.
"""

from __future__ import annotations

import os
import threading
import time
from typing import Final

UUID_VERSION: Final = 0x7 << 76
VARIANT: Final = 0x2 << 62
RANDOM_BYTES: Final = 8
RANDOM_MASK: Final = (1 << 62) - 1
TICK_BITS: Final = 12
"""A tick is 1/4096 of a millisecond."""


class MonotonicTicks:
    """The time in ticks since 1970-01-01 UTC; if the clock has not advanced, one more than the last
    tick."""

    def __init__(self) -> None:
        self.last = 0
        self.forget_threads()

    def forget_threads(self) -> None:
        """In a forked process, the thread that held the lock does not exist."""
        self._lock = threading.Lock()

    def draw(self) -> int:
        with self._lock:
            milliseconds, rest = divmod(time.time_ns(), 1_000_000)
            now = (milliseconds << TICK_BITS) | ((rest << TICK_BITS) // 1_000_000)
            self.last = last = now if now > self.last else self.last + 1
            return last


TICKS: Final = MonotonicTicks()

if hasattr(os, "register_at_fork"):  # not on Windows, which can't fork
    os.register_at_fork(after_in_child=TICKS.forget_threads)


def make_uuid7() -> bytes:
    """16 bytes: 48 bits of milliseconds, 12 of their 4096ths (RFC 9562, 6.2, method 3), 62 random
    bits, version and variant between them.

    If the clock goes back or is too coarse, the ticks count up from the last one.
    """
    return _make_uuid7(os.urandom(RANDOM_BYTES))


def make_many_uuid7(count: int) -> list[bytes]:
    """As many of them, which ask the system for random bytes once."""
    random = os.urandom(RANDOM_BYTES * count)
    starts = range(0, len(random), RANDOM_BYTES)
    return [_make_uuid7(random[start : start + RANDOM_BYTES]) for start in starts]


def _make_uuid7(random: bytes) -> bytes:
    ticks = TICKS.draw()
    milliseconds, part = ticks >> TICK_BITS, ticks & ((1 << TICK_BITS) - 1)
    low = VARIANT | int.from_bytes(random, "big") & RANDOM_MASK
    return (milliseconds << 80 | UUID_VERSION | part << 64 | low).to_bytes(16, "big")


def first_id_at_ms(milliseconds: int) -> bytes:
    """Return the lowest identifier of a moment: no identifier of that moment or later is lower, and
    every earlier one is, unless the clock was set back in between."""
    return milliseconds.to_bytes(6, "big") + bytes(10)
