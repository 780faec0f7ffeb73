"""What a driver's errors mean, where more than one engine reports it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from zapdb.errors import DiskFull, StorageError, TransactionConflict

if TYPE_CHECKING:
    from zapdb.storage.connection import Connection

Explain = Callable[["Connection"], Exception]
Refusal = Callable[[], Exception]
"""Makes what is raised where the database refuses a statement."""


class DuplicateKey(Exception):
    """A uniqueness constraint refused a row; callers raise what that means."""


class StatementRefused(Exception):
    """The database refused a statement of a write, and the reason is to be looked up behind the
    rollback: `explain` gives the error that it means."""

    def __init__(self, explain: Explain) -> None:
        super().__init__()
        self.explain = explain


class MissingTable(StorageError):
    """A statement named a table that is not there: the tenant catalog that it came from is out
    of date."""


def disk_full(error: BaseException, database: str) -> DiskFull:
    """A driver's error that says that there is no room left."""
    return DiskFull(
        "the disk of the database is full",
        database=database,
        detail=_first_line(error),
        hint="nothing was written; free some space, and run it again",
    )


def connection_lost(database: str, detail: str) -> TransactionConflict:
    """A connection was lost inside a transaction, before COMMIT was sent: it wrote nothing, for
    certain, and can be run again."""
    return TransactionConflict(
        "the connection was lost inside a transaction",
        database=database,
        detail=detail,
        hint="nothing was written; run it again, or use db.run(function), which repeats it",
    )


def unknown_driver_error(error: BaseException) -> StorageError:
    """A driver's error that zapdb gives no meaning of its own."""
    return StorageError(
        "the database reported an error",
        error=type(error).__name__,
        detail=_first_line(error),
    )


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else ""
