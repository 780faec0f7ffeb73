"""Databases of one process that are gone with it: what `sqlite:///:memory:` opens.

SQLite's own databases in memory belong to one connection each, or refuse commits beside a snapshot
where connections share one. So it is a file like any other, with what holds for files, in a
directory of its own below the system's for temporary files: threads, jobs and processes that are
forked open it by its path. It is removed when the database is closed, else when the process ends;
after a crash, by the next process that makes one. Nothing in it need survive a loss of power.

Whoever made a directory holds a lock on a file in it for as long as its process lives: one that can
be locked belongs to nobody. The lock is had before the file has the name that others look for.
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
"""Of the private files of this process."""


def is_in_memory(url: URL) -> bool:
    """Whether an address asks for a database of this process alone."""
    is_sqlite = url.drivername in ("sqlite", "sqlite+pysqlite")
    return is_sqlite and (url.database or ":memory:") == ":memory:" and not url.query


def is_private(path: str) -> bool:
    """Whether a file is one of this process's private ones."""
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
    """The descriptor that holds the lock; a process that is forked from this one holds it, too."""
    made = directory / f"{LOCK}.new"
    descriptor = os.open(made, os.O_CREAT | os.O_RDWR, 0o600)
    if fcntl is not None:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    made.rename(directory / LOCK)
    return descriptor


def _is_abandoned(lock: Path) -> bool:
    if fcntl is None:
        return False
    descriptor = os.open(lock, os.O_RDWR)
    try:
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
