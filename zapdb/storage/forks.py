"""The databases that this process has open, and what becomes of them in one forked from it."""

from __future__ import annotations

import os
import weakref
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from zapdb.storage.lending import LendingPool

OPENED: Final[weakref.WeakSet[LendingPool]] = weakref.WeakSet()
"""For a fork of this process, and to find what its calls wait for."""


def _abandon_after_fork() -> None:
    for pool in list(OPENED):
        pool.abandon_after_fork()


if hasattr(os, "register_at_fork"):  # not on Windows, which can't fork
    os.register_at_fork(after_in_child=_abandon_after_fork)
