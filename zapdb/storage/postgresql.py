"""PostgreSQL: SERIALIZABLE for applications, READ COMMITTED for range tasks.

The gate is a table lock on `zapdb_gate`, taken before the first query, so that the transaction's
snapshot is younger than whatever change of state came before (rule 7, with the measurements).
No triggers, stored procedures or extensions are used.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import sqlalchemy
from sqlalchemy.engine import URL

from zapdb.errors import GateTimeout, MissingExtra, StorageError, TransactionConflict
from zapdb.limits import ASIDE_LOCK_TIMEOUT_MS, GATE_LOCK_TIMEOUT_MS, GATE_TIMEOUT_SECONDS
from zapdb.storage.base import (
    Connection,
    DuplicateKey,
    MissingTable,
    Mode,
    Storage,
    index_columns,
    unexpected,
)

try:
    import psycopg
    from psycopg import errors as driver_errors
except ImportError as missing:
    raise MissingExtra.named("postgres", "psycopg") from missing

BEGIN = {
    Mode.READ: "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY",
    Mode.WRITE: "BEGIN ISOLATION LEVEL SERIALIZABLE",
    Mode.ASIDE: "BEGIN ISOLATION LEVEL READ COMMITTED",
    Mode.TASK: "BEGIN ISOLATION LEVEL READ COMMITTED",
    Mode.CHANGE: "BEGIN ISOLATION LEVEL READ COMMITTED",
    Mode.CATALOG: "BEGIN ISOLATION LEVEL READ COMMITTED",
}
GATE_SHARED = "LOCK TABLE zapdb_gate IN ROW SHARE MODE"
GATE_EXCLUSIVE = "LOCK TABLE zapdb_gate IN EXCLUSIVE MODE"
LAYOUT_LOCK = 0x7A617064  # an advisory lock's number: "zapd"


class PostgreSQL(Storage):
    dialect = "postgresql"
    mark = "%s"
    clock_sql = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"

    def __init__(self, url: URL) -> None:
        engine = sqlalchemy.create_engine(
            url,
            isolation_level="AUTOCOMMIT",
            poolclass=sqlalchemy.QueuePool,
            pool_size=0,  # no limit: each thread holds one
            # The hot statements are few and always the same: prepare each at its second use.
            connect_args={"prepare_threshold": 1, "application_name": "zapdb"},
        )
        super().__init__(url, engine)

    def begin(self, connection: Connection, mode: Mode) -> None:
        driver = connection.driver
        if mode is Mode.CHANGE:
            self._take_gate_exclusively(driver)
            return
        driver.execute(BEGIN[mode])
        if mode is Mode.ASIDE:
            driver.execute(f"SET LOCAL lock_timeout = {ASIDE_LOCK_TIMEOUT_MS}")
        if mode in (Mode.WRITE, Mode.ASIDE, Mode.TASK):
            driver.execute(GATE_SHARED)

    def _take_gate_exclusively(self, driver: Any) -> None:
        """Short attempts: while one waits, new writers wait behind it."""
        deadline = time.monotonic() + GATE_TIMEOUT_SECONDS
        while True:
            driver.execute(BEGIN[Mode.CHANGE])
            try:
                driver.execute(f"SET LOCAL lock_timeout = {GATE_LOCK_TIMEOUT_MS}")
                driver.execute(GATE_EXCLUSIVE)
                driver.execute("SET LOCAL lock_timeout = 0")
            except driver_errors.LockNotAvailable:
                driver.execute("ROLLBACK")
                if time.monotonic() > deadline:
                    raise GateTimeout(
                        "writers did not let a change of state through",
                        database=self.shown_url,
                        waited_seconds=GATE_TIMEOUT_SECONDS,
                        hint="a transaction has been open for long: see pg_stat_activity for "
                        "application_name = 'zapdb', end it, and try again",
                    ) from None
                time.sleep(GATE_LOCK_TIMEOUT_MS / 1000)
                continue
            return

    def roll_back(self, connection: Connection) -> None:
        if connection.driver.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            connection.driver.execute("ROLLBACK")

    def is_lost(self, driver: Any) -> bool:
        return bool(driver.closed)

    def executor(self, driver: Any) -> Any:
        return driver.cursor(binary=True)  # making one costs as much as a short statement

    def commit(self, connection: Connection) -> None:
        # A transaction that failed answers COMMIT with a rollback and no error.
        cursor = connection.driver.execute("COMMIT")
        if cursor.statusmessage != "COMMIT":
            raise TransactionConflict(
                "the transaction had failed before its end",
                hint="an error inside it was caught and not raised on; run it again",
            )

    def translate(self, error: BaseException) -> Exception:
        match error:
            case TransactionConflict():
                return error
            case driver_errors.UndefinedTable():
                return MissingTable(
                    "a table is not there",
                    database=self.shown_url,
                    detail=str(error).splitlines()[0],
                    hint="a migration took it away meanwhile: try again",
                )
            case driver_errors.UniqueViolation():
                return DuplicateKey(str(error))
            case (
                driver_errors.SerializationFailure()
                | driver_errors.DeadlockDetected()
                | driver_errors.LockNotAvailable()
            ):
                return TransactionConflict(
                    "the transaction met another one",
                    database=self.shown_url,
                    cause=type(error).__name__,
                    hint="run it again; db.run(function) does so by itself",
                )
            case psycopg.OperationalError():
                detail = str(error).strip().splitlines()
                return StorageError(
                    "the database server can't be reached, or ended the connection",
                    database=self.shown_url,
                    detail=detail[0] if detail else "",
                    hint="check address, user and whether the server runs; then try again",
                )
        return unexpected(error)

    def table_names(self, connection: Connection) -> list[str]:
        rows = connection.fetch_all(
            "SELECT c.relname FROM pg_class c WHERE c.relnamespace = current_schema()::regnamespace"
            " AND c.relkind IN ('r', 'p', 'v', 'm', 'f') ORDER BY 1"
        )
        return [name for (name,) in rows]

    def lock_layout(self, connection: Connection) -> None:
        connection.fetch_one("SELECT pg_advisory_xact_lock(%s)", (LAYOUT_LOCK,))

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
        self, connection: Connection, table: str, columns: str, tenant: int, rows: Sequence[Any]
    ) -> None:
        connection.run(
            f"INSERT INTO {table} (tenant, {columns}) SELECT {int(tenant)}, a, b"
            " FROM unnest(%b::bytea[], %b::bytea[]) AS given(a, b)",
            _columns(rows, 2),
        )

    def insert_entries_if_absent(
        self, connection: Connection, table: str, tenant: int, rows: Sequence[Any]
    ) -> int:
        return connection.run(
            f"INSERT INTO {table} (tenant, key, record) SELECT {int(tenant)}, a, b"
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
        skip_locked: bool,
    ) -> list[Any]:
        skip = " SKIP LOCKED" if skip_locked else ""
        return connection.fetch_all(
            f"SELECT key, value FROM {table} WHERE {condition} ORDER BY key"
            f" LIMIT {int(limit)} FOR NO KEY UPDATE{skip}",
            parameters,
        )

    def swap_values(
        self, connection: Connection, table: str, tenant: int, rows: Sequence[Any]
    ) -> int:
        return connection.run(
            f"UPDATE {table} AS stored SET value = given.new"
            " FROM unnest(%b::bytea[], %b::bytea[], %b::bytea[]) AS given(key, old, new)"
            f" WHERE stored.tenant = {int(tenant)} AND stored.key = given.key"
            " AND stored.value = given.old",
            _columns(rows, 3),
        )

    def key_slice_sql(self, table: str) -> str:
        return (
            f"SELECT key FROM (SELECT key, row_number() OVER (ORDER BY key) AS at FROM {table}"
            " WHERE tenant = %s) AS numbered WHERE at %% %s = 0 ORDER BY key"
        )


def _columns(rows: Sequence[Any], width: int) -> list[list[Any]]:
    """Rows as columns, which travel as arrays."""
    return [list(column) for column in zip(*rows, strict=True)] or [[] for _ in range(width)]
