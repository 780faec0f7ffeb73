"""The statements that PostgreSQL has in words of its own. Rows travel as arrays."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import psycopg
from psycopg.errors import LockNotAvailable
from sqlalchemy.dialects.postgresql import insert

from zapdb.errors import TransactionConflict
from zapdb.limits import (
    ARROW_VALUE_SIZE_BYTES_MAX,
    SAMPLE_BLOCKS,
    SAMPLE_CUTS,
    SAMPLE_RECORDS,
    SAMPLE_SHARE_MAX,
)
from zapdb.storage.connection import Connection
from zapdb.storage.dialect import (
    Dialect,
    JoinedRows,
    KeySample,
    LockedRecords,
    OfHeld,
    Ranges,
    TenantRows,
    index_columns,
)
from zapdb.storage.driver_errors import Refusal, RowsHeld
from zapdb.storage.fixed_tables import complete_for_postgresql
from zapdb.storage.home_schema import HomeSchema
from zapdb.storage.pipeline import encode_row_ids

COPIED_ROWS_MIN: Final = 5_000
"""So many rows are sent by COPY, which costs round trips, and takes half the server's time: as many
by parameters cost the same below it."""
COPY_SIGNATURE: Final = b"PGCOPY\n\xff\r\n\0" + bytes(8)
COPY_END: Final = b"\xff\xff"
STORAGE_VERSION_LOCK: Final = 0x7A617064  # an advisory lock's number: "zapd"

OF_HELD_SQL: Final[dict[OfHeld, str]] = {"wait": "", "skip": " SKIP LOCKED", "refuse": " NOWAIT"}

complete_for_postgresql()

T = TypeVar("T")


class PostgreSQLDialect(Dialect):
    """The statements of PostgreSQL."""

    name = "postgresql"
    is_remote = True
    insert = staticmethod(insert)
    placeholder = "%s"
    has_writes_in_queries = True
    lock_rows_sql = " FOR UPDATE"
    clock_sql = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"

    def __init__(self, home: HomeSchema) -> None:
        self.home = home

    def table_names(self, connection: Connection) -> list[str]:
        if self.home.name is None:
            self.find_home(connection)
        rows = connection.fetch_all(
            "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
            " WHERE n.nspname = coalesce(%s, current_schema()::text)"
            " AND c.relkind IN ('r', 'p', 'v', 'm', 'f') ORDER BY 1",
            (self.home.name,),
        )
        return [name for (name,) in rows]

    @property
    def home_name(self) -> str | None:
        return self.home.name

    def find_home(self, connection: Connection) -> bool:
        return self._ask_home(connection, self.home.find) is not None

    def find_elsewhere(self, connection: Connection) -> list[str]:
        return self._ask_home(connection, self.home.find_elsewhere)

    @contextmanager
    def making_home(self, connection: Connection) -> Iterator[None]:
        self._ask_home(connection, self.home.settle)
        try:
            yield
        except BaseException:
            self.home.unsettle()
            raise

    def _ask_home(self, connection: Connection, question: Callable[[Any], T]) -> T:
        try:
            with connection.in_use():
                return question(connection.driver)
        except psycopg.Error as error:
            raise connection.meaning(error) from error

    def lock_storage_version(self, connection: Connection) -> None:
        connection.fetch_one("SELECT pg_advisory_xact_lock(%s)", (STORAGE_VERSION_LOCK,))

    def create_record_table_sql(self, table: str) -> str:
        return (
            f"CREATE TABLE IF NOT EXISTS {table} (tenant bigint NOT NULL, key bytea NOT NULL,"
            " value bytea NOT NULL, PRIMARY KEY (tenant, key))"
        )

    def create_index_table_sql(self, table: str, *, unique: bool) -> str:
        return (
            f"CREATE TABLE {table} (tenant bigint NOT NULL, key bytea NOT NULL,"
            f" record bytea NOT NULL, PRIMARY KEY ({index_columns(unique=unique)}))"
        )

    def insert_rows(
        self,
        connection: Connection,
        to: TenantRows,
        columns: str,
        rows: Sequence[Any],
        refused: Refusal | None = None,
    ) -> None:
        if len(rows) >= COPIED_ROWS_MIN:
            sql = f"COPY {to.table} (tenant, {columns}) FROM STDIN (FORMAT binary)"
            connection.copy(sql, _copy_data(to.tenant, rows), refused)
            return
        connection.send(
            f"INSERT INTO {to.table} (tenant, {columns}) SELECT {int(to.tenant)}, a, b"
            " FROM unnest(%b::bytea[], %b::bytea[]) AS given(a, b)",
            _columns(rows, 2),
            refused,
        )

    def require_keys(
        self, connection: Connection, of: TenantRows, keys: Sequence[bytes], refused: Refusal
    ) -> None:
        mine = f"stored.tenant = {int(of.tenant)} AND stored.key = given.key"
        connection.require(
            "(SELECT count(*) FROM unnest(%b::bytea[]) AS given(key), LATERAL"
            f" (SELECT 1 FROM {of.table} AS stored WHERE {mine} LIMIT 1) AS found) = %s::bigint",
            (keys, len(keys)),
            refused,
        )

    def insert_entries_if_absent(
        self, connection: Connection, to: TenantRows, rows: Sequence[Any]
    ) -> int:
        return connection.run(
            f"INSERT INTO {to.table} (tenant, key, record) SELECT {int(to.tenant)}, a, b"
            " FROM unnest(%b::bytea[], %b::bytea[]) AS given(a, b) ON CONFLICT DO NOTHING",
            _columns(rows, 2),
        )

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
        try:
            rows = connection.fetch_all(
                f"SELECT key, value, ctid FROM {table} WHERE {condition} ORDER BY key"
                f" LIMIT {int(limit)} FOR NO KEY UPDATE{OF_HELD_SQL[of_held]}",
                parameters,
            )
        except TransactionConflict as error:
            if of_held == "refuse" and error.context.get("cause") == LockNotAvailable.__name__:
                raise RowsHeld from error
            raise
        if not rows:
            return LockedRecords()
        keys, values, row_ids = zip(*rows, strict=True)
        locked = LockedRecords(zip(keys, values, strict=True))
        locked.row_ids = row_ids
        return locked

    def set_values(
        self, connection: Connection, of: TenantRows, keys: Sequence[bytes], values: Sequence[bytes]
    ) -> None:
        connection.send(
            f"UPDATE {of.table} AS stored SET value = given.value"
            " FROM unnest(%b::bytea[], %b::bytea[]) AS given(key, value)"
            f" WHERE stored.tenant = {int(of.tenant)} AND stored.key = given.key",
            (keys, values),
        )

    def set_locked_values(
        self, connection: Connection, of: TenantRows, locked: LockedRecords, values: Sequence[bytes]
    ) -> None:
        """A locked row stays where it is, so the server need not search for it by its key."""
        if not connection.is_pipelined:  # psycopg has no array of row ids
            super().set_locked_values(connection, of, locked, values)
            return
        connection.send(
            f"UPDATE {of.table} AS stored SET value = given.value"
            " FROM unnest(%b::tid[], %b::bytea[]) AS given(id, value)"
            " WHERE stored.ctid = given.id",
            (encode_row_ids(locked.row_ids), values),
        )

    # LATERAL with a LIMIT is one search by key for each given row. For a join, the planner may
    # choose to scan the whole table: that is slow, and conflicts with every other writer.

    def delete_rows(
        self,
        connection: Connection,
        table: str,
        where: str,
        columns: Sequence[str],
        rows: Sequence[Any],
    ) -> None:
        if len(rows) == 1:  # takes half the time so
            same = " AND ".join(f"{column} = %b" for column in columns)
            connection.send(f"DELETE FROM {table} WHERE {where} AND {same}", rows[0])
            return
        arrays = ", ".join(["%b::bytea[]"] * len(columns))
        same = " AND ".join(f"stored.{column} = given.{column}" for column in columns)
        connection.send(
            f"DELETE FROM {table} WHERE ctid = ANY (ARRAY(SELECT found.ctid"
            f" FROM unnest({arrays}) AS given({', '.join(columns)}), LATERAL"
            f" (SELECT ctid FROM {table} AS stored WHERE {where} AND {same}"
            " LIMIT 1) AS found))",
            _columns(rows, len(columns)),
        )

    def fetch_entries(
        self, connection: Connection, of: TenantRows, records: str, ranges: Ranges, limit: int
    ) -> list[Any]:
        mine, (given, parameters) = f"tenant = {int(of.tenant)}", _given_ranges(ranges)
        return connection.fetch_all(
            f"SELECT found.record, stored.value FROM {given}, LATERAL"
            f" (SELECT record FROM {of.table} WHERE {mine} AND key >= low AND key < high"
            f" ORDER BY key LIMIT {int(limit)}) AS found, LATERAL"
            f" (SELECT value FROM {records} WHERE {mine} AND key = found.record LIMIT 1) AS stored"
            f" LIMIT {int(limit)}",
            parameters,
        )

    def find_entries(
        self, connection: Connection, of: TenantRows, entries: Sequence[tuple[bytes, bytes]]
    ) -> list[Any]:
        return connection.fetch_all(
            "SELECT given.key, given.record"
            " FROM unnest(%b::bytea[], %b::bytea[]) AS given(key, record), LATERAL"
            f" (SELECT 1 FROM {of.table} AS stored WHERE stored.tenant = {int(of.tenant)}"
            " AND stored.key = given.key AND stored.record = given.record LIMIT 1) AS found",
            _columns(entries, 2),
        )

    def fetch_records(
        self, connection: Connection, of: TenantRows, ranges: Ranges, limit: int
    ) -> list[Any]:
        mine, (given, parameters) = f"tenant = {int(of.tenant)}", _given_ranges(ranges)
        return connection.fetch_all(
            f"SELECT found.key, found.value FROM {given}, LATERAL"
            f" (SELECT key, value FROM {of.table} WHERE {mine} AND key >= low AND key < high"
            f" ORDER BY key LIMIT {int(limit)}) AS found LIMIT {int(limit)}",
            parameters,
        )

    def sample_keys(
        self, connection: Connection, table: str, where: str, parameters: Sequence[Any]
    ) -> KeySample | None:
        (blocks,) = connection.fetch_one(
            f"SELECT pg_relation_size('{table}') / current_setting('block_size')::int"
        )
        if blocks < SAMPLE_BLOCKS:
            return None
        (some,) = connection.fetch_one(
            f"SELECT count(*) FROM (SELECT 1 FROM {table} WHERE {where}"
            f" LIMIT {SAMPLE_RECORDS}) AS first",
            parameters,
        )
        if some < SAMPLE_RECORDS:
            return None
        share = min(SAMPLE_BLOCKS / blocks, SAMPLE_SHARE_MAX)
        # Whole blocks are drawn, with all their rows, always the same ones.
        count, keys = connection.fetch_one(
            "SELECT count(*), percentile_disc(%s::float8[]) WITHIN GROUP (ORDER BY key)"
            f" FROM {table} TABLESAMPLE SYSTEM ({100 * share}) REPEATABLE (0) WHERE {where}",
            ([at / SAMPLE_CUTS for at in range(1, SAMPLE_CUTS)], *parameters),
        )
        if count < 5 * SAMPLE_CUTS:  # the table is mostly other tenants', or other ranges
            return None
        return KeySample(round(count / share), tuple(dict.fromkeys(keys)))

    def fetch_joined(
        self, connection: Connection, select: str, parameters: Sequence[Any], version: str
    ) -> tuple[Any, JoinedRows | None]:
        # The rows of an ordered subquery reach aggregates in its order. A row that is too long adds
        # its size only.
        most = ARROW_VALUE_SIZE_BYTES_MAX
        short = f"CASE WHEN length(value) <= {most} THEN value ELSE '' END"
        columns = ("key", "int4send(length(key))", short, "int4send(length(value))")
        joined = ", ".join(f"string_agg({column}, ''::bytea)" for column in columns)
        row = connection.fetch_one(
            f"SELECT {joined}, coalesce(max(length(value)), 0) > {most}, ({version})"
            f" FROM ({select}) AS page",
            parameters,
        )
        *pieces, is_long, found = row
        return found, None if is_long else JoinedRows(*(piece or b"" for piece in pieces))


def _copy_data(tenant: int, rows: Sequence[tuple[bytes, bytes]]) -> Iterator[bytes]:
    """Pairs of bytes, each behind its tenant, in the binary format of COPY."""
    head, size = struct.Struct(">hiqi").pack, struct.Struct(">i").pack
    yield COPY_SIGNATURE
    for start in range(0, len(rows), COPIED_ROWS_MIN):
        parts = list[bytes]()
        for first, second in rows[start : start + COPIED_ROWS_MIN]:
            parts += (head(3, 8, tenant, len(first)), first, size(len(second)), second)
        yield b"".join(parts)
    yield COPY_END


def _given_ranges(ranges: Sequence[tuple[bytes, bytes]]) -> tuple[str, Sequence[Any]]:
    """Ranges as a table expression with the columns low and high, and its parameters."""
    if len(ranges) == 1:  # planned once: arrays of one are planned anew each time
        return "(VALUES (%b::bytea, %b::bytea)) AS given(low, high)", ranges[0]
    return "unnest(%b::bytea[], %b::bytea[]) AS given(low, high)", _columns(ranges, 2)


def _columns(rows: Sequence[Any], width: int) -> list[list[Any]]:
    """Rows as columns, which travel as arrays."""
    return [list(column) for column in zip(*rows, strict=True)] or [[] for _ in range(width)]
