"""Private databases that end with their process: `sqlite:///:memory:` opens one.

SQLite's own databases in memory belong to one connection each; if connections share one, it refuses
commits beside a snapshot. So a private database is a temporary file in a directory of its own, with
all the properties of a file: threads, jobs and forked processes open it by its path. It is removed
when the database is closed, or when the process ends. After a crash, the next process that makes a
private database removes it. Its contents need not survive a loss of power.

The process that made a directory holds a lock on a file in it until the process ends. If another
process can take the lock, the directory is abandoned. The lock is taken before the file gets the
name that other processes look for.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Final

from sqlalchemy.engine import URL

try:
    import fcntl
except ImportError:  # Windows, where a file that is open can't be removed
    fcntl = None  # type: ignore[assignment]  # a module, or nothing

PRIVATE_PREFIX: Final = "zapdb-private-"
LOCK: Final = "lock"
_PATHS: Final = set[str]()
"""The paths of this process's private files."""


def is_in_memory(url: URL) -> bool:
    """Return whether an address names a private database of this process."""
    is_sqlite = url.drivername in ("sqlite", "sqlite+pysqlite")
    return is_sqlite and (url.database or ":memory:") == ":memory:" and not url.query


def is_private(path: str) -> bool:
    """Return whether a file is one of this process's private databases."""
    return path in _PATHS


class PrivateFile:
    """A file for a database, empty or a copy of another; `remove` is safe to repeat."""

    def __init__(self, template: Path | None = None) -> None:
        remove_abandoned()
        directory = Path(tempfile.mkdtemp(prefix=PRIVATE_PREFIX)).resolve()
        self.path = str(directory / "database.db")
        lock = _lock_directory(directory)
        _PATHS.add(self.path)
        self.remove = weakref.finalize(self, _remove, directory, self.path, lock, os.getpid())
        """Also done when the process ends."""
        if template is not None:
            shutil.copyfile(template, self.path)

    @property
    def url(self) -> URL:
        return URL.create("sqlite", database=self.path)


def remove_abandoned() -> None:
    """Remove the directories of processes that ended without removing theirs."""
    for lock in Path(tempfile.gettempdir()).glob(f"{PRIVATE_PREFIX}*/{LOCK}"):
        with suppress(OSError):  # another user's, or removed meanwhile
            if _is_abandoned(lock):
                shutil.rmtree(lock.parent, ignore_errors=True)


def _lock_directory(directory: Path) -> int:
    """Lock a directory and return the descriptor that holds the lock; forked processes hold it,
    too."""
    made = directory / f"{LOCK}.new"
    descriptor = os.open(made, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
    if fcntl is not None:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    made.rename(directory / LOCK)
    return descriptor


def _is_abandoned(lock: Path) -> bool:
    if fcntl is None:
        return False
    if lock.parent.lstat().st_uid != os.geteuid() or lock.parent.is_symlink():
        return False  # another user's: only who made a directory removes it
    descriptor = os.open(lock, os.O_RDWR | os.O_NOFOLLOW)
    try:
        if os.fstat(descriptor).st_uid != os.geteuid():
            return False
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


def _remove(directory: Path, path: str, lock: int, process: int) -> None:
    if os.getpid() != process:
        return  # forked: it is the parent's
    _PATHS.discard(path)
    shutil.rmtree(directory, ignore_errors=True)
    os.close(lock)
