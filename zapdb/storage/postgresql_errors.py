"""What the errors of PostgreSQL's driver mean."""

from __future__ import annotations

from typing import Final

import psycopg
from psycopg import errors as driver_errors

from zapdb.errors import StorageError, TransactionConflict, WritesRefused
from zapdb.storage.driver_errors import (
    DuplicateKey,
    MissingTable,
    disk_full,
    not_numbered,
    unknown_driver_error,
)

NUMBERED: Final = ("zapdb_transactions", "zapdb_changes")
"""Tables that have nulls only in the place of a number that there is not."""

_OTHER_STATEMENTS: Final = (
    "the server has other prepared statements than this connection",
    "behind a pooler that gives each transaction another session, write prepared_statements=off in "
    "the address, or have the pooler keep them",
)
MEANINGS: Final[dict[type[psycopg.Error], tuple[str, str]]] = {
    driver_errors.InsufficientPrivilege: (
        "the database role lacks a privilege",
        "grant it; read_only=True needs SELECT on all tables of the schema, including those of "
        "later migrations (ALTER DEFAULT PRIVILEGES)",
    ),
    driver_errors.InvalidSqlStatementName: _OTHER_STATEMENTS,
    driver_errors.DuplicatePreparedStatement: _OTHER_STATEMENTS,
    driver_errors.ReadOnlySqlTransaction: (
        "the database takes no writes",
        "open it with read_only=True; the server is a standby, or default_transaction_read_only is "
        "on for the database or the role",
    ),
    driver_errors.QueryCanceled: (
        "the server cancelled a statement",
        "if it is the statement_timeout of the database or the role, raise that",
    ),
}
"""The messages and hints for errors that mean nothing but what they say."""


WRITES_REFUSED: Final = (
    driver_errors.InsufficientPrivilege,
    driver_errors.ReadOnlySqlTransaction,
)


def _find_meaning(error: psycopg.Error) -> tuple[str, str] | None:
    return next((said for kind, said in MEANINGS.items() if isinstance(error, kind)), None)


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
        case driver_errors.DiskFull():
            return disk_full(error, shown_url)
        case psycopg.Error() if (known := _find_meaning(error)) is not None:
            message, hint = known
            detail = str(error).splitlines()[0]
            kind_of = WritesRefused if isinstance(error, WRITES_REFUSED) else StorageError
            return kind_of(message, database=shown_url, detail=detail, hint=hint)
        case psycopg.OperationalError():
            lines = str(error).strip().splitlines()
            return StorageError(
                "the database server cannot be reached, or closed the connection",
                database=shown_url,
                detail=lines[0] if lines else "",
                hint="check the address, the user, and that the server runs; then try again",
            )
    return unknown_driver_error(error)
