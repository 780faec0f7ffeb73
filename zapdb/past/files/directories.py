"""The directories of a history store: whether they are there, and what is in the way when they are
written to.

A directory has a store if it has the tenant's directory in it: of a file system that is not
mounted, an empty one is left.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from zapdb.errors import DiskFull, HistoryUnreachable
from zapdb.past.files.history_manifest import HistoryFile, HistoryStore

GONE: Final = "the directory of the history store is not there"
_NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


@contextmanager
def writing_to(directory: str) -> Iterator[None]:
    """Write to a store's directory in the block; raises `HistoryUnreachable` and `DiskFull`."""
    try:
        if not Path(directory).is_dir():
            raise HistoryUnreachable(
                GONE,
                directory=directory,
                hint="mount or restore it: the store goes on where it is, and the change log keeps "
                "what it lacks",
            )
        yield
    except OSError as error:
        if error.errno in _NO_SPACE:
            raise DiskFull(
                "the disk of the history store is full",
                directory=directory,
                hint="make room: the store goes on where it is, and the change log keeps what it "
                "lacks",
            ) from error
        raise HistoryUnreachable(
            "the directory of the history store can't be written to",
            directory=directory,
            error=str(error),
            hint="the store goes on where it is when the cause is gone",
        ) from error


def is_there(store: HistoryStore, file: HistoryFile) -> bool:
    """Return whether a file is in its directory; raises `HistoryUnreachable` if that is not
    there."""
    directory = file.directory or store.directory
    with writing_to(directory):
        require_directory(directory, store.tenant)
        return file.place_in(store.directory).exists()


def has_store(directory: str | Path, tenant: int) -> bool:
    """Return whether a directory that a tenant's files are in is there, and can be looked at."""
    try:
        return (Path(directory) / str(tenant)).is_dir()
    except OSError:  # of a disk, or a network
        return False


def require_directory(directory: str | Path, tenant: int) -> None:
    """Raise `HistoryUnreachable` if a directory that a tenant's files are in is not there."""
    if not has_store(directory, tenant):
        raise HistoryUnreachable(
            GONE, directory=str(directory), hint="mount it, or put it back where it was"
        )
