"""What the errors of PostgreSQL's driver mean."""

from __future__ import annotations

from typing import Final

import psycopg
from psycopg import errors as driver_errors

from zapdb.errors import StorageError, TransactionConflict
from zapdb.storage.driver_errors import (
    DuplicateKey,
    MissingTable,
    disk_full,
    not_numbered,
    unknown_driver_error,
)

NUMBERED: Final = ("zapdb_transactions", "zapdb_changes")
"""Tables that have nulls only in the place of a number that there is not."""


def translate_postgresql_error(error: BaseException, shown_url: str) -> Exception:
    """The error that an error of the driver means to zapdb; `shown_url` is without secrets."""
    match error:
        case TransactionConflict():
            return error
        case driver_errors.UndefinedTable():
            return MissingTable(
                "a table does not exist",
                database=shown_url,
                detail=str(error).splitlines()[0],
                hint="a migration dropped it in the meantime; try again",
            )
        case driver_errors.UniqueViolation():
            return DuplicateKey(str(error))
        case driver_errors.NotNullViolation() if error.diag.table_name in NUMBERED:
            return not_numbered(shown_url)
        case driver_errors.InsufficientPrivilege():
            return StorageError(
                "the database role lacks a privilege",
                database=shown_url,
                detail=str(error).splitlines()[0],
                hint="grant it; read_only=True needs SELECT on all tables of the "
                "schema, including those of later migrations (ALTER DEFAULT "
                "PRIVILEGES)",
            )
        case (
            driver_errors.SerializationFailure()
            | driver_errors.DeadlockDetected()
            | driver_errors.LockNotAvailable()
        ):
            return TransactionConflict(
                "the transaction conflicted with a concurrent one",
                database=shown_url,
                cause=type(error).__name__,
                hint="run it again, or use db.run(function), which repeats it",
            )
        case driver_errors.InvalidSqlStatementName() | driver_errors.DuplicatePreparedStatement():
            return StorageError(
                "the server has other prepared statements than this connection",
                database=shown_url,
                detail=str(error).splitlines()[0],
                hint="behind a pooler that gives each transaction another session, write "
                "prepared_statements=off in the address, or have the pooler keep them",
            )
        case driver_errors.DiskFull():
            return disk_full(error, shown_url)
        case psycopg.OperationalError():
            detail = str(error).strip().splitlines()
            return StorageError(
                "the database server cannot be reached, or closed the connection",
                database=shown_url,
                detail=detail[0] if detail else "",
                hint="check the address, the user, and that the server runs; then try again",
            )
    return unknown_driver_error(error)
