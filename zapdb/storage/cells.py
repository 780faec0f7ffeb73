"""Checks that cells have the type of their column; others are corrupt. Words that are none of their
column's closed set are of a later release.

SQLite stores values of any type in any cell. Without a check, Python would turn some into something
worse than an error: `bytes(5)` is five zeros, and `bytes(2**40)` ends the process.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

import sqlalchemy as sa

from zapdb.errors import CorruptCatalog, CorruptRecord, ZapdbError
from zapdb.formats import require_word
from zapdb.storage.fixed_tables import WORDS

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_HINT: Final = "somebody wrote to the database beside zapdb: restore the row from a backup"
_KINDS: Final[dict[type, type]] = {
    sa.BigInteger: int,
    sa.Integer: int,
    sa.Text: str,
    sa.LargeBinary: bytes,
}


def as_bytes(cell: Any) -> bytes:
    """Return a cell of records, entries, blobs or archived values; raises `CorruptRecord`."""
    if type(cell) is bytes:
        return cell
    raise _no_bytes(type(cell))


def _no_bytes(found: type) -> CorruptRecord:
    return CorruptRecord(
        "a stored cell is not bytes", what="a cell", found=found.__name__, hint=_HINT
    )


_Row = TypeVar("_Row", bound=tuple[bytes, ...])


def require_bytes(rows: list[_Row]) -> list[_Row]:
    """Return rows of such cells alone; raises `CorruptRecord`. It is `as_bytes` for many."""
    for row in rows:
        for cell in row:
            if type(cell) is not bytes:
                raise _no_bytes(type(cell))
    return rows


def optional_bytes(cell: Any) -> bytes | None:
    """The same of a cell that may be null."""
    return None if cell is None else as_bytes(cell)


def as_number(cell: Any) -> int:
    """Return a number of a fixed table; raises `CorruptCatalog`."""
    if type(cell) is int:
        return cell
    raise CorruptCatalog("a stored cell is not a number", found=type(cell).__name__, hint=_HINT)


def as_text(cell: Any) -> str:
    """Return a string of a fixed table; raises `CorruptCatalog`."""
    if type(cell) is str:
        return cell
    raise CorruptCatalog("a stored cell is not text", found=type(cell).__name__, hint=_HINT)


def as_word(cell: Any, column: sa.Column[Any]) -> str:
    """Return a word of the closed set of a column; raises `CorruptCatalog`, and
    `IncompatibleVersion` for a word of a later release."""
    found = as_text(cell)
    require_word(found, column.info[WORDS], table=column.table.name, column=column.name)
    return found


def as_time(cell: Any) -> datetime:
    """Return a time of a fixed table, in microseconds since 1970-01-01 UTC; raises
    `CorruptCatalog`."""
    try:
        return _EPOCH + timedelta(microseconds=as_number(cell))
    except OverflowError:
        raise CorruptCatalog(
            "a stored time is outside the years 1 to 9999", found=cell, hint=_HINT
        ) from None


@contextmanager
def reading(table: str) -> Iterator[None]:
    """Read rows of a fixed table in the block; an error in it means tampered rows, and raises
    `CorruptCatalog`."""
    try:
        yield
    except (TypeError, ValueError, LookupError, ArithmeticError, AttributeError) as error:
        if isinstance(error, ZapdbError):
            raise
        raise CorruptCatalog(
            "rows of zapdb's own tables are invalid or contradict each other",
            table=table,
            cause=f"{type(error).__name__}: {error}".splitlines()[0],
            hint=_HINT,
        ) from error


def check_rows(statement: sa.Executable, rows: Sequence[Any]) -> None:
    """Raise `CorruptCatalog` unless each cell has the type of its column in the fixed tables, and
    `IncompatibleVersion` for a word that is none of its column's.

    Computed columns are not checked.
    """
    if not rows or not isinstance(statement, sa.Select):
        return
    for at, column in enumerate(statement.selected_columns):
        if isinstance(column, sa.Column):
            _check_column(column, at, rows)


_AnyRow = TypeVar("_AnyRow", bound=Sequence[Any])


def checked(columns: Iterable[sa.Column[Any]], rows: list[_AnyRow]) -> list[_AnyRow]:
    """Return rows of these columns of the fixed tables; raises as `check_rows` does."""
    if rows:
        for at, column in enumerate(columns):
            _check_column(column, at, rows)
    return rows


def _check_column(column: sa.Column[Any], at: int, rows: Sequence[Any]) -> None:
    kind = _KINDS[type(column.type)]
    for row in rows:
        found = type(row[at])
        if found is not kind and not (row[at] is None and column.nullable):
            raise CorruptCatalog(
                "a cell does not have the type of its column",
                table=getattr(column.table, "name", "?"),
                column=column.name,
                found=found.__name__,
                hint=_HINT,
            )
    if WORDS in column.info:
        for row in rows:
            if row[at] is not None:
                as_word(row[at], column)


def wrong_counter(counter: str) -> CorruptCatalog:
    """Return the error for a row of the counters that is missing or not a number."""
    return CorruptCatalog(
        "a counter is missing or not a number",
        table="zapdb_counters",
        counter=counter,
        hint="restore the row from a backup",
    )


def empty_change(table: int, transaction: int) -> CorruptCatalog:
    """Return the error for a row of the change log without a record."""
    return CorruptCatalog(
        "a change has neither a record before nor one after",
        table=table,
        transaction=transaction,
        hint="restore zapdb_changes from a backup, or prune the change log",
    )
