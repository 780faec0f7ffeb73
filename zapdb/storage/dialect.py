"""What SQL of zapdb's differs between SQLite and PostgreSQL.

The statements of the hot path are in `record_statements` and `entry_statements`, for both
placeholders.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NamedTuple

from zapdb.limits import ARROW_VALUE_SIZE_BYTES_MAX
from zapdb.storage.driver_errors import Refusal
from zapdb.storage.fixed_tables import VERSION_TABLE

if TYPE_CHECKING:
    from zapdb.storage.connection import Connection

OfHeld = Literal["wait", "skip", "refuse"]
"""Of rows that another transaction holds: wait for them, leave them out, or refuse the statement.
Nobody holds rows in SQLite, which has one writer at a time."""


class TenantRows(NamedTuple):
    """What a tenant has in one of the data tables."""

    table: str
    tenant: int


Ranges = Sequence[tuple[bytes, bytes]]
"""Of keys, each low ≤ key < high."""


class LockedRecords(list[tuple[bytes, bytes]]):
    """(key, value) rows that a transaction has locked."""

    row_ids: Sequence[bytes] = ()
    """Where the server has each row, if it tells, until the row is written."""


class Dialect(ABC):
    """The statements of an engine; one object for each open database."""

    name: ClassVar[Literal["sqlite", "postgresql"]]
    is_remote: ClassVar[bool]
    """Whether a statement is a round trip to a server."""
    placeholder: ClassVar[str]
    """The driver's placeholder of a bound parameter."""
    has_writes_in_queries: ClassVar[bool]
    """Whether a statement can begin with another one that writes: WITH … AS (UPDATE …)."""
    lock_rows_sql: ClassVar[str]
    """Behind a SELECT: it locks the rows until the transaction ends; empty where a transaction that
    writes has locked the database."""
    clock_sql: ClassVar[str]
    insert: ClassVar[Callable[..., Any]]
    """The dialect's own INSERT of SQLAlchemy, which has ON CONFLICT."""

    @abstractmethod
    def table_names(self, connection: Connection) -> list[str]:
        """Return the tables and views of the schema in use."""

    @property
    def home_name(self) -> str | None:
        """On PostgreSQL, the schema that zapdb's tables are in, once it is known."""
        return None

    def find_home(self, connection: Connection) -> bool:
        """Return whether the database has zapdb's tables, in whichever schema."""
        return VERSION_TABLE in self.table_names(connection)

    def find_elsewhere(self, connection: Connection) -> list[str]:
        """Return all schemas that have zapdb's tables, if the engine has schemas."""
        return []

    def making_home(self, connection: Connection) -> AbstractContextManager[object]:
        """Make zapdb's tables in the block, in the schema that is chosen for them."""
        return nullcontext()

    @abstractmethod
    def lock_storage_version(self, connection: Connection) -> None:
        """Inside a CATALOG transaction, keep other processes from creating zapdb's own tables."""

    @abstractmethod
    def create_record_table_sql(self, table: str) -> str: ...

    @abstractmethod
    def create_index_table_sql(self, table: str, *, unique: bool) -> str:
        """Return the statement; with `unique`, the database refuses two entries with one key (rule
        25)."""

    @abstractmethod
    def insert_rows(
        self,
        connection: Connection,
        to: TenantRows,
        columns: str,
        rows: Sequence[Any],
        refused: Refusal | None = None,
    ) -> None:
        """Insert pairs of bytes into the two `columns`; raises the error that `refused` makes, else
        `DuplicateKey`: see `Connection.send`."""

    @abstractmethod
    def require_keys(
        self, connection: Connection, of: TenantRows, keys: Sequence[bytes], refused: Refusal
    ) -> None:
        """Continue only if each of some different keys is in a table: see `Connection.require`."""

    @abstractmethod
    def insert_entries_if_absent(
        self, connection: Connection, to: TenantRows, rows: Sequence[Any]
    ) -> int:
        """Insert the (key, record) pairs that an index table lacks; return their number.

        For a unique index, insert the pairs whose keys are missing, no matter which record has the
        key.
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
        of_held: OfHeld,
    ) -> LockedRecords:
        """Return records in key order, locked until the transaction ends.

        `of_held` says what becomes of rows that another transaction holds. Raises `RowsHeld`.
        """

    @abstractmethod
    def set_values(
        self, connection: Connection, of: TenantRows, keys: Sequence[bytes], values: Sequence[bytes]
    ) -> None:
        """Set the values of different records that the transaction has locked."""

    def set_locked_values(
        self, connection: Connection, of: TenantRows, locked: LockedRecords, values: Sequence[bytes]
    ) -> None:
        """Do the same for records as they were locked, none of which was written since."""
        self.set_values(connection, of, [key for key, _ in locked], values)

    @abstractmethod
    def delete_rows(
        self,
        connection: Connection,
        table: str,
        where: str,
        columns: Sequence[str],
        rows: Sequence[Any],
    ) -> None:
        """Delete the rows that have the bytes of one of `rows` in the `columns`. Together with the
        columns of `where` they are the table's key. No other transaction may change the rows
        meanwhile."""

    @abstractmethod
    def fetch_entries(
        self, connection: Connection, of: TenantRows, records: str, ranges: Ranges, limit: int
    ) -> list[Any]:
        """Return up to `limit` entries of an index in any of the ranges, low ≤ key < high, as (key,
        value) rows of their records, in no order."""

    @abstractmethod
    def find_entries(
        self, connection: Connection, of: TenantRows, entries: Sequence[tuple[bytes, bytes]]
    ) -> list[Any]:
        """Return those of the entries of an index that exist, as (key, record) rows, in no
        order."""

    @abstractmethod
    def fetch_records(
        self, connection: Connection, of: TenantRows, ranges: Ranges, limit: int
    ) -> list[Any]:
        """Return up to `limit` (key, value) rows in any of the ranges, low ≤ key < high, in no
        order."""

    def sample_keys(
        self, connection: Connection, table: str, where: str, parameters: Sequence[Any]
    ) -> KeySample | None:
        """Estimate how many rows of a table satisfy a condition, and how their keys are spread;
        None if they are few, or can't be estimated."""
        return None

    @abstractmethod
    def fetch_joined(
        self, connection: Connection, select: str, parameters: Sequence[Any], version: str
    ) -> tuple[Any, JoinedRows | None]:
        """Run a SELECT of (key, value) in the order of keys together with one of the catalog
        version; returns the version, which is None for a removed tenant, and the rows: None if
        one is longer than `ARROW_VALUE_SIZE_BYTES_MAX`. Raises `CorruptRecord` for cells that are
        not bytes."""


@dataclass(frozen=True, slots=True)
class KeySample:
    """About how many rows there are, and keys, in order, that cut them into parts of about equal
    size."""

    records: int
    keys: tuple[bytes, ...]

    def cut(self, every: int) -> list[bytes]:
        """Keys before which there are about n, 2n, … rows."""
        per_record = (len(self.keys) + 1) / self.records
        places = [int(at * per_record) for at in range(every, self.records, every)]
        return [self.keys[place - 1] for place in dict.fromkeys(places) if place]


@dataclass(frozen=True, slots=True)
class JoinedRows:
    """The keys of records one after the other, and the records, with the sizes of each: four bytes
    for a size, as `SIZE` says."""

    keys: bytes
    key_sizes: bytes
    values: bytes
    value_sizes: bytes

    def split(self) -> list[tuple[bytes, bytes]]:
        """Return the rows one by one."""
        keys = _split(self.keys, self.key_sizes)
        return list(zip(keys, _split(self.values, self.value_sizes), strict=True))


SIZE: Final = struct.Struct(">i")


def _split(joined: bytes, sizes: bytes) -> list[bytes]:
    ends = accumulate((size for (size,) in SIZE.iter_unpack(sizes)), initial=0)
    return [joined[start:end] for start, end in pairwise(ends)]


def join_rows(rows: Sequence[tuple[bytes, bytes]]) -> JoinedRows | None:
    """Return rows joined; None if one is longer than `ARROW_VALUE_SIZE_BYTES_MAX`."""
    keys, values = [key for key, _ in rows], [value for _, value in rows]
    if max(map(len, values), default=0) > ARROW_VALUE_SIZE_BYTES_MAX:
        return None
    sizes = struct.Struct(f">{len(rows)}i").pack
    return JoinedRows(
        b"".join(keys), sizes(*map(len, keys)), b"".join(values), sizes(*map(len, values))
    )


def index_columns(*, unique: bool) -> str:
    """Return the columns that identify an entry of an index."""
    return "tenant, key" if unique else "tenant, key, record"
