"""Private directories in which statements may spill: made for one, locked while it runs, removed
after it.

The process that made a directory and the processes that it forked lock it (`flock`), so the lock
ends with the last of them, however they end. A directory without a lock is a leftover: the next
statement that spills to the same place removes it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

SPILL_PREFIX: Final = "zapdb-sql-"


class Spill:
    """A directory with mode 0700, under `parent`; raises `OSError`."""

    def __init__(self, parent: str) -> None:
        sweep_spilled(parent)
        while True:
            self.path = tempfile.mkdtemp(prefix=SPILL_PREFIX, dir=parent)
            self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            if _is_at(self.path, self._lock):  # no statement swept it before the lock
                return
            os.close(self._lock)

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def sweep_spilled(parent: str) -> None:
    """Remove the directories under `parent` of statements whose processes have ended."""
    for path in Path(parent).glob(f"{SPILL_PREFIX}*"):
        try:
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            continue  # it was removed, is no directory, or is another user's
        try:
            if os.fstat(lock).st_uid != os.geteuid():
                continue  # another user's: only who made a directory removes it
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
        except OSError:
            pass  # it is in use
        finally:
            os.close(lock)


def _is_at(path: str, descriptor: int) -> bool:
    try:
        return os.path.samestat(Path(path).stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
