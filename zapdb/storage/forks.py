"""The databases that this process has open; a process that is forked from it drops their
connections."""

from __future__ import annotations

import os
import weakref
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from zapdb.storage.lending import TransactionPool

OPENED: Final[weakref.WeakSet[TransactionPool]] = weakref.WeakSet()
"""All open databases: a fork drops their connections, and a call that waits finds what it waits
for."""


def _abandon_after_fork() -> None:
    for pool in list(OPENED):
        pool.abandon_after_fork()


if hasattr(os, "register_at_fork"):  # not on Windows, which can't fork
    os.register_at_fork(after_in_child=_abandon_after_fork)
