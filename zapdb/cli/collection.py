"""Python's collection of cyclic garbage while a command is loaded, and when it ends.

What is imported stays. Collections would look through it a dozen times while it is imported, and
once more when the process ends: a third of the time of a short command.
"""

from __future__ import annotations

import gc
import sys
from typing import Final

_PUT_OFF: Final[set[str]] = set()
"""Has a member while collection is put off by this module; other code may have disabled it, too."""


def put_off_collection() -> None:
    """Collect nothing until a command is loaded; for a process that runs one command."""
    if gc.isenabled():
        gc.disable()
        _PUT_OFF.add("gc")


def collect_from_now_on() -> None:
    """Collect as always, but what is made from now on alone, if `put_off_collection` was called."""
    if _PUT_OFF:
        _PUT_OFF.clear()
        gc.freeze()
        gc.enable()


def end_collection() -> None:
    """Collect nothing when the process ends, unless DuckDB is loaded: that would print a long list
    of what it calls leaks."""
    if "duckdb" in sys.modules:
        gc.unfreeze()
    else:
        gc.freeze()
