"""What a process of its own may take: limits of the operating system, which no code in it can raise
again."""

from __future__ import annotations

import math
import resource
import signal
from pathlib import Path
from typing import Final

EXTRA_MEMORY_SIZE_BYTES: Final = 64 * 1024 * 1024
"""Memory that Python and its libraries may use in addition to what is allowed."""
EXTRA_SECONDS: Final = 2
"""This much later the operating system ends the process, in case the keeper does not."""


def end_after(seconds: float) -> None:
    """Have the process ended by an alarm."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, seconds + EXTRA_SECONDS)


def give_up(max_memory: int, seconds: float, *, files: int | None, written_bytes: int) -> None:
    """Limit the memory beyond what the process has now, the processor time, how many files and
    connections it may have open (None: as many as before), and how large one it may write."""
    held = _read_held_bytes()
    if held is not None:
        _limit(resource.RLIMIT_AS, held + max_memory + EXTRA_MEMORY_SIZE_BYTES)
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_CPU, math.ceil(seconds) + EXTRA_SECONDS)
    _limit(resource.RLIMIT_FSIZE, written_bytes)
    if files is not None:
        _limit(resource.RLIMIT_NOFILE, files)


def _read_held_bytes() -> int | None:
    """The address space that this process has, most of it libraries; None elsewhere than on
    Linux."""
    try:
        pages = Path("/proc/self/statm").read_text().split()[0]
        return int(pages) * resource.getpagesize()
    except OSError:
        return None


def _limit(what: int, most: int) -> None:
    _, hard = resource.getrlimit(what)
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
    resource.setrlimit(what, (most, most))
