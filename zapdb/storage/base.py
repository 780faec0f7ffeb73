"""What a storage engine provides, beneath transactions and connections: its statements.

Most of what differs between SQLite and PostgreSQL is said here by abstract methods. The hot path's
own statements are in `record_statements` and `entry_statements`, for either `placeholder`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

import sqlalchemy

from zapdb.storage.connection import Connection
from zapdb.storage.driver_errors import Refusal
from zapdb.storage.transactions import Transactions


class Storage(Transactions):
    """A database as zapdb uses it; safe to share between threads."""

    dialect: ClassVar[str]
    placeholder: ClassVar[str]
    """The driver's placeholder of a bound parameter."""
    clock_sql: ClassVar[str]
    secret_options: Mapping[str, Any] = MappingProxyType({})
    """Options of the address that `url` is without: what is made of `url` can't show them."""

    def full_address(self) -> str:
        """The address with its password and all: for another process, and never to be shown."""
        url = self.url.update_query_dict(self.secret_options)
        return url.render_as_string(hide_password=False)

    def make_connection(self, core: sqlalchemy.Connection) -> Connection:
        return Connection(self, core)

    def execute_many(self, driver: Any, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run a statement for each row of parameters on the driver's connection."""
        driver.cursor().executemany(sql, rows)

    def copy_in(self, driver: Any, sql: str, data: Iterable[bytes]) -> None:
        """Run a statement that takes rows from the client on the driver's connection."""
        raise NotImplementedError(f"{self.dialect} takes rows as parameters only")

    def now_us(self, connection: Connection) -> int:
        """Microseconds since 1970-01-01 UTC by the database's clock."""
        (now,) = connection.fetch_one(self.clock_sql)
        return int(now)

    def is_absent(self) -> bool:
        """Whether there is no database yet, and connecting would make one."""
        return False

    def prepare(self) -> None:
        """Outside of transactions: settings that stay with a database that is zapdb's."""

    def check_capabilities(self, connection: Connection) -> None:
        """Check, before zapdb's tables are created, that the server has the features that zapdb
        uses (rule 33)."""

    def export_snapshot(self, connection: Connection) -> str | None:
        """The name of the snapshot of an open READ transaction: other sessions can read as of the
        same moment for as long as the transaction is open. None if the engine has no such names."""
        return None

    def import_snapshot(self, name: str) -> None:
        """Begin all READ transactions from now on as of a snapshot that another session exported.

        They raise `StorageError` once the other session's transaction has ended.
        """
        raise NotImplementedError(f"{self.dialect} exports no snapshots")

    def end_dead_holders(self) -> None:
        """End the sessions of dead processes that still hold the gate (rule 7)."""

    @abstractmethod
    def table_names(self, connection: Connection) -> list[str]:
        """The tables and views of the schema in use."""

    @abstractmethod
    def lock_storage_version(self, connection: Connection) -> None:
        """Inside a CATALOG transaction: keep others from creating zapdb's own tables meanwhile."""

    # Statements that differ between the engines

    @abstractmethod
    def create_record_table_sql(self, table: str) -> str: ...

    @abstractmethod
    def create_index_table_sql(self, table: str, *, unique: bool) -> str:
        """Where `unique`, no two entries have one key: the database sees to it (rule 25)."""

    @abstractmethod
    def insert_rows(
        self,
        connection: Connection,
        table: str,
        columns: str,
        tenant: int,
        rows: Sequence[Any],
        refused: Refusal | None = None,
    ) -> None:
        """Insert pairs of bytes into the two `columns`; raises what `refused` makes, else
        `DuplicateKey`: see `Connection.send`."""

    @abstractmethod
    def require_keys(
        self,
        connection: Connection,
        table: str,
        tenant: int,
        keys: Sequence[bytes],
        refused: Refusal,
    ) -> None:
        """Go on only where all of some different keys are in a table: see `Connection.require`."""

    @abstractmethod
    def insert_entries_if_absent(
        self, connection: Connection, table: str, tenant: int, rows: Sequence[Any]
    ) -> int:
        """Insert (key, record) pairs into an index table where they are not; return how many.

        Of a unique index: where the keys are not, whatever records they are of.
        """

    @abstractmethod
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
        """(key, value) rows in key order, locked until the end of the transaction."""

    @abstractmethod
    def set_values(
        self, connection: Connection, table: str, tenant: int, rows: Sequence[Any]
    ) -> None:
        """Set the values of records that are there, by (key, value) rows."""

    @abstractmethod
    def delete_rows(
        self,
        connection: Connection,
        table: str,
        where: str,
        columns: Sequence[str],
        rows: Sequence[Any],
    ) -> None:
        """Delete the rows that have the bytes of one of `rows` in the `columns`. These columns and
        those of `where` are the table's key together; no other transaction changes the rows
        meanwhile."""

    @abstractmethod
    def fetch_entries(
        self,
        connection: Connection,
        table: str,
        records: str,
        tenant: int,
        ranges: Sequence[tuple[bytes, bytes]],
        limit: int,
    ) -> list[Any]:
        """Up to `limit` entries of an index in any of the ranges, low ≤ key < high, as (key, value)
        rows of their records, in no order."""

    @abstractmethod
    def fetch_records(
        self,
        connection: Connection,
        records: str,
        tenant: int,
        ranges: Sequence[tuple[bytes, bytes]],
        limit: int,
    ) -> list[Any]:
        """Up to `limit` (key, value) rows in any of the ranges, low ≤ key < high, in no order."""

    @abstractmethod
    def key_slice_sql(self, table: str) -> str:
        """Every n-th key of a tenant, for (tenant, n): the bounds of ranges."""


def index_columns(*, unique: bool) -> str:
    """The columns by which the entries of an index are told apart."""
    return "tenant, key" if unique else "tenant, key, record"
