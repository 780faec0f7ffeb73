"""The meanings of the errors of SQLite's driver."""

from __future__ import annotations

import sqlite3
from typing import Final

from zapdb.errors import (
    CorruptCatalog,
    NotZapdb,
    StorageError,
    TransactionConflict,
    WritesRefused,
)
from zapdb.limits import BUSY_TIMEOUT_MS
from zapdb.storage.driver_errors import (
    DuplicateKey,
    MissingTable,
    disk_full,
    unknown_driver_error,
)

READ_ONLY_HINT = (
    "the file must exist; in a read-only directory, its -wal and -shm files, too. If no process "
    "writes to the file, give sqlite:///file:PATH?immutable=1&uri=true"
)

FULL: Final = ("SQLITE_FULL", "SQLITE_IOERR_SHMSIZE")
"""Errors of a full disk: no room for the database or its log, or for the log's index in the -shm
file."""


def translate_sqlite_error(error: BaseException, shown_url: str, *, read_only: bool) -> Exception:
    """Return zapdb's error for an error of the driver; `shown_url` contains no secrets."""
    match error:
        case sqlite3.OperationalError() if "no such table" in str(error):
            return MissingTable(
                "a table does not exist",
                database=shown_url,
                detail=str(error),
                hint="a migration dropped it in the meantime; try again",
            )
        case sqlite3.IntegrityError():
            return DuplicateKey(str(error))
        case sqlite3.DatabaseError() if "not a database" in str(error):
            return NotZapdb(
                "the file is not a SQLite database",
                database=shown_url,
                hint="give the path of a zapdb database, or of a file that does not exist yet",
            )
        case sqlite3.OperationalError() if name_of(error) in FULL:
            return disk_full(error, shown_url)
        case sqlite3.OperationalError() if "Could not decode to UTF-8" in str(error):
            return CorruptCatalog(
                "a stored text is not UTF-8",
                database=shown_url,
                hint="another program wrote to the database; restore it from a backup",
            )
        case sqlite3.OperationalError() if is_busy(error):
            return TransactionConflict(
                "another process held the database too long",
                database=shown_url,
                waited_ms=BUSY_TIMEOUT_MS,
                hint="try again; a long transaction of one process keeps all other writers waiting",
            )
        case sqlite3.OperationalError():
            return _translate_access_error(error, shown_url, read_only=read_only)
    return unknown_driver_error(error)


def _translate_access_error(
    error: sqlite3.OperationalError, shown_url: str, *, read_only: bool
) -> Exception:
    """Return zapdb's error for a file that can't be opened, read or written."""
    if read_only and _is_closed_to_readers(error):
        return StorageError(
            "the database file cannot be opened",
            database=shown_url,
            detail=str(error),
            hint=READ_ONLY_HINT,
        )
    if "unable to open" in str(error):
        return StorageError(
            "the database file cannot be opened",
            database=shown_url,
            hint="its directory must exist and be writable",
        )
    if "readonly" in str(error):
        return WritesRefused(
            "the database is read-only",
            database=shown_url,
            hint="give this process write access to the file and its directory, "
            "or open it with read_only=True",
        )
    if name_of(error).startswith("SQLITE_IOERR"):
        return StorageError(
            "the operating system cannot read or write the database file",
            database=shown_url,
            detail=f"{error} ({name_of(error)})",
            hint="give the path of a file, not of a directory; if it is a file, check the disk",
        )
    return unknown_driver_error(error)


def is_busy(error: sqlite3.OperationalError) -> bool:
    return "locked" in str(error) or "busy" in str(error)


def name_of(error: BaseException) -> str:
    """Return SQLite's name of an error; Python's own errors have none."""
    return getattr(error, "sqlite_errorname", "")


def _is_closed_to_readers(error: sqlite3.OperationalError) -> bool:
    """Return whether the database file can't be opened, or its -wal and -shm files, which readers
    need."""
    return name_of(error) in (
        "SQLITE_CANTOPEN",
        "SQLITE_READONLY_CANTINIT",
        "SQLITE_READONLY_CANTLOCK",
        "SQLITE_READONLY_DIRECTORY",
        "SQLITE_READONLY_RECOVERY",
    )
