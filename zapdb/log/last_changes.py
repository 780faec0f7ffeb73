"""What became of some records between two moments of the change log, by their keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from zapdb.log.moments import LoggedMoment, Moments
from zapdb.storage.cells import as_bytes
from zapdb.storage.connection import Connection
from zapdb.storage.statements import VALUES_PER_STATEMENT

LAST_CHANGES_PAGE: Final = 10_000


def find_last_changes(
    connection: Connection,
    moments: Moments,
    between: tuple[LoggedMoment, LoggedMoment],
    table: int,
    keys: Sequence[bytes],
) -> dict[bytes, bytes | None]:
    """Return the records at the second moment of those keys that changed after the first one and
    not after the second; None for a record that is gone."""
    since, until = (moments.find_later(connection, moment) for moment in between)
    column, found = "c.transaction_number", dict[bytes, bytes | None]()
    for start in range(0, len(keys), VALUES_PER_STATEMENT):
        some = keys[start : start + VALUES_PER_STATEMENT]
        marks = ", ".join([connection.storage.placeholder] * len(some))
        rows = connection.fetch_all(
            "SELECT c.key, c.after FROM zapdb_changes AS c JOIN zapdb_transactions AS t"
            " ON t.tenant = c.tenant AND t.number = c.transaction_number"
            f" WHERE c.tenant = {moments.log.tenant} AND c.table_number = {int(table)}"
            f" AND c.key IN ({marks}) AND c.event IS NULL"
            f" AND {since(column)} AND NOT {until(column)} ORDER BY t.commit_order",
            some,
        )
        found |= {as_bytes(key): None if after is None else as_bytes(after) for key, after in rows}
    return found


def find_last_archives(
    connection: Connection,
    moments: Moments,
    between: tuple[LoggedMoment, LoggedMoment],
    table: int,
    keys: Sequence[bytes],
) -> dict[bytes, tuple[bytes | None, bytes | None]]:
    """Return, of those keys whose records were inserted, deleted, or got other archived values
    after the first moment and not after the second, what the last such change left: the record, and
    the cell of its archived values."""
    since, until = (moments.find_later(connection, moment) for moment in between)
    column, found = "c.transaction_number", dict[bytes, tuple[bytes | None, bytes | None]]()
    for start in range(0, len(keys), VALUES_PER_STATEMENT):
        some = keys[start : start + VALUES_PER_STATEMENT]
        marks = ", ".join([connection.storage.placeholder] * len(some))
        rows = connection.fetch_all(
            "SELECT c.key, c.after, c.archive_after FROM zapdb_changes AS c"
            " JOIN zapdb_transactions AS t"
            " ON t.tenant = c.tenant AND t.number = c.transaction_number"
            f" WHERE c.tenant = {moments.log.tenant} AND c.table_number = {int(table)}"
            f" AND c.key IN ({marks}) AND c.event IS NULL"
            f" AND {since(column)} AND NOT {until(column)}"
            " AND (c.before IS NULL OR c.after IS NULL OR c.archive_before IS NOT NULL"
            " OR c.archive_after IS NOT NULL) ORDER BY t.commit_order",
            some,
        )
        for key, *cells in rows:
            after, archive = (None if cell is None else as_bytes(cell) for cell in cells)
            found[as_bytes(key)] = after, archive
    return found


def list_last_changes(
    connection: Connection,
    moments: Moments,
    between: tuple[LoggedMoment, LoggedMoment],
    table: int,
    behind: bytes,
) -> list[tuple[bytes, bytes | None]]:
    """Return one page of the records at the second moment that changed after the first one and not
    after the second, by their keys behind one; None for a record that is gone."""
    since, until = (moments.find_later(connection, moment) for moment in between)
    column, mark = "c.transaction_number", connection.storage.placeholder
    # The changes are found by their transactions: with `+`, SQLite leaves the index by key alone.
    plus = "+" if moments.log.is_numbered else ""
    where = (
        f"c.tenant = {moments.log.tenant} AND {plus}c.table_number = {int(table)}"
        f" AND c.event IS NULL AND {since(column)} AND NOT {until(column)} AND {plus}c.key > {mark}"
    )
    if moments.log.is_numbered:  # beside max(), a column has the value of the same row
        sql = f"SELECT c.key, c.after, max({column}) FROM zapdb_changes AS c WHERE {where}"
        sql += " GROUP BY c.key ORDER BY c.key"
    else:
        sql = "SELECT DISTINCT ON (c.key) c.key, c.after FROM zapdb_changes AS c"
        sql += " JOIN zapdb_transactions AS t"
        sql += " ON t.tenant = c.tenant AND t.number = c.transaction_number"
        sql += f" WHERE {where} ORDER BY c.key, t.commit_order DESC"
    rows = connection.fetch_all(f"{sql} LIMIT {LAST_CHANGES_PAGE}", (behind,))
    return [(as_bytes(row[0]), None if row[1] is None else as_bytes(row[1])) for row in rows]
