"""The meanings of drivers' errors that both engines report."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from zapdb.errors import DiskFull, StorageError, TransactionConflict

if TYPE_CHECKING:
    from zapdb.storage.connection import Connection

Explain = Callable[["Connection"], Exception]
Refusal = Callable[[], Exception]
"""Makes the error to raise if the database refuses a statement."""


class DuplicateKey(Exception):
    """A uniqueness constraint refused a row; callers raise an error for its meaning."""


class RowsHeld(Exception):
    """Another transaction holds rows that were to be locked without waiting."""


class StatementRefused(Exception):
    """The database refused a statement of a write. After the rollback, `explain` looks up the
    reason and returns the error for it."""

    def __init__(self, explain: Explain) -> None:
        super().__init__()
        self.explain = explain


class MissingTable(StorageError):
    """A statement named a table that does not exist: its tenant catalog is out of date."""


def disk_full(error: BaseException, database: str) -> DiskFull:
    """Return the error for a driver's report that the disk is full."""
    return DiskFull(
        "the disk of the database is full",
        database=database,
        detail=_first_line(error),
        hint="nothing was written; free some space, and run it again",
    )


def not_numbered(database: str) -> TransactionConflict:
    """Return the error for a PostgreSQL server on which the database has no incarnation yet."""
    return TransactionConflict(
        "the database was moved to another server, which has not numbered transactions yet",
        database=database,
        hint="nothing was written; run it again: the next process that opens the database numbers "
        "them, or within seconds the heartbeat of one that has it open",
    )


def connection_lost(database: str, detail: str) -> TransactionConflict:
    """Return the error for a connection that was lost before COMMIT was sent. The transaction
    certainly wrote nothing, and can be run again."""
    return TransactionConflict(
        "the connection was lost inside a transaction",
        database=database,
        detail=detail,
        hint="nothing was written; run it again, or use db.run(function), which repeats it",
    )


def unknown_driver_error(error: BaseException) -> StorageError:
    """Return the error for a driver's error without a meaning of its own in zapdb."""
    return StorageError(
        "the database reported an error",
        error=type(error).__name__,
        detail=_first_line(error),
    )


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else ""
