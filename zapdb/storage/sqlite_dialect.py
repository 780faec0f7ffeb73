"""The statements that differ on SQLite."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, Final

from sqlalchemy.dialects.sqlite import insert

from zapdb.storage.cells import require_bytes
from zapdb.storage.connection import Connection
from zapdb.storage.dialect import (
    Dialect,
    JoinedRows,
    LockedRecords,
    OfHeld,
    Ranges,
    TenantRows,
    index_columns,
    join_rows,
)
from zapdb.storage.driver_errors import Refusal

ROWS_PER_STATEMENT: Final = 100
"""The number of rows that one statement inserts; beginning and ending it costs as much as one
row."""


class SQLiteDialect(Dialect):
    """The statements of SQLite."""

    name = "sqlite"
    is_remote = False
    insert = staticmethod(insert)
    placeholder = "?"
    has_writes_in_queries = False
    lock_rows_sql = ""
    # SQLite's own clock is the host's, to the millisecond; in days, which are fractions, it has to
    # be rounded.
    clock_sql = "SELECT CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER) * 1000"

    def table_names(self, connection: Connection) -> list[str]:
        rows = connection.fetch_all(
            "SELECT name FROM sqlite_master WHERE type IN ('table', 'view')"
            " AND name NOT LIKE 'sqlite_%' ORDER BY name"
        )
        return [name for (name,) in rows]

    def lock_storage_version(self, connection: Connection) -> None:
        """Do nothing, because `BEGIN IMMEDIATE` keeps all other writers out."""

    # WITHOUT ROWID keeps a record beside its key: one search instead of two.
    def create_record_table_sql(self, table: str) -> str:
        return (
            f"CREATE TABLE IF NOT EXISTS {table} (tenant INTEGER NOT NULL, key BLOB NOT NULL,"
            " value BLOB NOT NULL, PRIMARY KEY (tenant, key)) WITHOUT ROWID"
        )

    def create_index_table_sql(self, table: str, *, unique: bool) -> str:
        return (
            f"CREATE TABLE {table} (tenant INTEGER NOT NULL, key BLOB NOT NULL,"
            f" record BLOB NOT NULL, PRIMARY KEY ({index_columns(unique=unique)})) WITHOUT ROWID"
        )

    def insert_rows(
        self,
        connection: Connection,
        to: TenantRows,
        columns: str,
        rows: Sequence[Any],
        refused: Refusal | None = None,
    ) -> None:
        self._insert(connection, f"INSERT INTO {to.table} (tenant, {columns})", to, rows, refused)

    def _insert(
        self,
        connection: Connection,
        insert: str,
        to: TenantRows,
        rows: Sequence[Any],
        refused: Refusal | None,
    ) -> None:
        row, insert = f"({int(to.tenant)}, ?, ?)", f"{insert} VALUES"
        several = f"{insert} {', '.join([row] * ROWS_PER_STATEMENT)}"
        whole = len(rows) - len(rows) % ROWS_PER_STATEMENT
        for start in range(0, whole, ROWS_PER_STATEMENT):
            some = rows[start : start + ROWS_PER_STATEMENT]
            connection.send(several, list(chain.from_iterable(some)), refused)
        connection.send_many(f"{insert} {row}", rows[whole:], refused)

    def require_keys(
        self, connection: Connection, of: TenantRows, keys: Sequence[bytes], refused: Refusal
    ) -> None:
        marks = ", ".join("?" * len(keys))
        there = (
            f"SELECT count(*) FROM {of.table} WHERE tenant = {int(of.tenant)} AND key IN ({marks})"
        )
        connection.require(f"({there}) = {len(keys)}", keys, refused)

    def insert_entries_if_absent(
        self, connection: Connection, to: TenantRows, rows: Sequence[Any]
    ) -> int:
        before = connection.driver.total_changes
        connection.run_many(
            f"INSERT INTO {to.table} (tenant, key, record) VALUES ({int(to.tenant)}, ?, ?)"
            " ON CONFLICT DO NOTHING",
            rows,
        )
        added: int = connection.driver.total_changes - before
        return added

    def lock_records(
        self,
        connection: Connection,
        table: str,
        condition: str,
        parameters: Sequence[Any],
        limit: int,
        *,
        of_held: OfHeld,
    ) -> LockedRecords:
        sql = f"SELECT key, value FROM {table} WHERE {condition} ORDER BY key LIMIT {int(limit)}"
        return LockedRecords(require_bytes(connection.fetch_all(sql, parameters)))

    # What is replaced is there, since it is locked. This takes a quarter less time than UPDATE.
    def set_values(
        self, connection: Connection, of: TenantRows, keys: Sequence[bytes], values: Sequence[bytes]
    ) -> None:
        rows = list(zip(keys, values, strict=True))
        self._insert(connection, f"REPLACE INTO {of.table} (tenant, key, value)", of, rows, None)

    def delete_rows(
        self,
        connection: Connection,
        table: str,
        where: str,
        columns: Sequence[str],
        rows: Sequence[Any],
    ) -> None:
        same = " AND ".join(f"{column} = ?" for column in columns)
        connection.run_many(f"DELETE FROM {table} WHERE {where} AND {same}", rows)

    def fetch_entries(
        self, connection: Connection, of: TenantRows, records: str, ranges: Ranges, limit: int
    ) -> list[Any]:
        # CROSS JOIN: in this order, one search by a key after the other.
        return _fetch_in_ranges(
            connection,
            f"SELECT x.record, r.value FROM given CROSS JOIN {of.table} AS x CROSS JOIN"
            f" {records} AS r WHERE x.tenant = {int(of.tenant)} AND x.key >= low AND x.key < high"
            f" AND r.tenant = {int(of.tenant)} AND r.key = x.record",
            ranges,
            limit,
        )

    def find_entries(
        self, connection: Connection, of: TenantRows, entries: Sequence[tuple[bytes, bytes]]
    ) -> list[Any]:
        values = ", ".join(["(?, ?)"] * len(entries))
        return connection.fetch_all(
            f"WITH given (key, record) AS (VALUES {values})"
            f" SELECT x.key, x.record FROM given CROSS JOIN {of.table} AS x"
            f" WHERE x.tenant = {int(of.tenant)} AND x.key = given.key AND x.record = given.record",
            [part for entry in entries for part in entry],
        )

    def fetch_records(
        self, connection: Connection, of: TenantRows, ranges: Ranges, limit: int
    ) -> list[Any]:
        return _fetch_in_ranges(
            connection,
            f"SELECT key, value FROM given CROSS JOIN {of.table}"
            f" WHERE tenant = {int(of.tenant)} AND key >= low AND key < high",
            ranges,
            limit,
        )

    def fetch_joined(
        self, connection: Connection, select: str, parameters: Sequence[Any], version: str
    ) -> tuple[Any, JoinedRows | None]:
        rows = require_bytes(connection.fetch_all(select, parameters))
        # The version is read last: if it is the one that was known, it was so when the rows were
        # read, because it only rises.
        (found,) = connection.fetch_one(f"SELECT ({version})")
        return found, join_rows(rows)


def _fetch_in_ranges(
    connection: Connection, select: str, ranges: Sequence[tuple[bytes, bytes]], limit: int
) -> list[Any]:
    """Return up to `limit` rows of a SELECT from `given(low, high)`, which holds the ranges."""
    found = list[Any]()
    for start in range(0, len(ranges), ROWS_PER_STATEMENT):
        some = ranges[start : start + ROWS_PER_STATEMENT]
        found += connection.fetch_all(
            f"WITH given(low, high) AS (VALUES {', '.join(['(?, ?)'] * len(some))})"
            f" {select} LIMIT {int(limit)}",
            list(chain.from_iterable(some)),
        )
        if len(found) >= limit:
            break
    return found
