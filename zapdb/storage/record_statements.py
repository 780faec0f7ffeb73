"""The statements on the records of a table, written once per table and tenant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from zapdb.limits import PAGE_RECORDS_FIRST, PAGE_RECORDS_MAX
from zapdb.storage.cells import as_bytes, as_number, require_bytes
from zapdb.storage.connection import Connection
from zapdb.storage.data_tables import record_table_name
from zapdb.storage.dialect import JoinedRows, KeySample, LockedRecords, TenantRows
from zapdb.storage.driver_errors import Refusal
from zapdb.storage.statements import (
    PREFIX_PARAMETERS,
    VALUES_PER_STATEMENT,
    between,
    bounds_behind,
    catalog_version_sql,
    count_rows,
    fetch_in,
    prefix_sql,
)
from zapdb.storage.storage import Storage

_NO_TENANT: Final = -1


class RecordSource(Protocol):
    """Records that are read by their keys, or in the order of these: those of now, or of a past
    moment. What has a catalog version with it was read at that version; None: see the reader."""

    tenant: int

    @property
    def storage(self) -> Storage: ...

    def find(self, connection: Connection, key: bytes) -> tuple[int, bytes | None]: ...

    def find_many(
        self, connection: Connection, keys: Sequence[bytes]
    ) -> tuple[int, dict[bytes, bytes]]: ...

    def has(self, connection: Connection, key: bytes) -> tuple[int, bool]: ...

    def count(self, connection: Connection) -> int: ...

    def count_range(
        self, connection: Connection, lower: bytes | None, upper: bytes | None, limit: int | None
    ) -> tuple[int, int]: ...

    def slice_range(
        self, connection: Connection, lower: bytes | None, upper: bytes | None, every: int
    ) -> list[bytes]: ...

    def scan_page(
        self, connection: Connection, after: bytes
    ) -> tuple[int | None, list[tuple[bytes, bytes]]]: ...

    def page(
        self,
        connection: Connection,
        lower: bytes | None,
        upper: bytes | None,
        after: tuple[bytes, bytes] | None,
        limit: int,
        *,
        descending: bool,
    ) -> tuple[int, list[tuple[bytes, bytes, bytes]]]: ...

    def joined_page(
        self, connection: Connection, lower: bytes | None, upper: bytes | None, limit: int
    ) -> tuple[int, JoinedRows | None]: ...

    def sample_keys(
        self, connection: Connection, lower: bytes | None, upper: bytes | None
    ) -> KeySample | None: ...

    def read_catalog_version(self, connection: Connection) -> int: ...


class RecordStatements:
    """The statements on one table's records of one tenant.

    What reads may read another catalog version: see `rewound_records`.
    """

    def __init__(
        self,
        storage: Storage,
        number: int,
        tenant: int,
        version_sql: str | None = None,
        name: str | None = None,
    ) -> None:
        self.storage, self.dialect = storage, storage.dialect
        self.tenant, self.number = int(tenant), number
        self.version_sql = version_sql or catalog_version_sql(tenant)
        self.name = name or record_table_name(number)
        self._mine = TenantRows(self.name, self.tenant)
        mark, mine = self.dialect.placeholder, f"tenant = {self.tenant}"
        self.get_sql = (
            f"SELECT value, ({self.version_sql}) FROM {self.name} WHERE {mine} AND key = {mark}"
        )
        # The catalog version comes even where there is no record; no row: no such tenant.
        self.find_sql = (
            f"SELECT value, a.version FROM ({self.version_sql}) AS a LEFT JOIN"
            f" {self.name} ON {mine} AND key = {mark}"
        )
        self.insert_sql = f"INSERT INTO {self.name} VALUES ({self.tenant}, {mark}, {mark})"
        self.update_sql = f"UPDATE {self.name} SET value = {mark} WHERE {mine} AND key = {mark}"
        self.delete_sql = f"DELETE FROM {self.name} WHERE {mine} AND key = {mark}"
        self.page_sql = (
            f"SELECT key, value FROM {self.name} WHERE {mine} AND key > {mark}"
            f" ORDER BY key LIMIT {mark}"
        )
        self.large_page_sql = (
            f"SELECT key, value FROM {self.name} WHERE {mine} AND length(value) >= {mark}"
            f" AND key > {mark} ORDER BY key LIMIT {mark}"
        )
        self.scan_sql = (
            f"SELECT key, value, ({self.version_sql}) FROM {self.name}"
            f" WHERE {mine} AND key > {mark} ORDER BY key LIMIT {mark}"
        )
        self.count_sql = f"SELECT count(*) FROM {self.name} WHERE {mine}"
        self._has_key_sql = f"EXISTS (SELECT 1 FROM {self.name} WHERE {mine} AND key = {mark})"
        self._has_value_sql = f"{self._has_key_sql[:-1]} AND value = {mark})"
        self._find_keys_sql = f"SELECT key FROM {self.name} WHERE {mine} AND key IN"

    @classmethod
    def of_no_table(cls, storage: Storage, number: int, tenant: int) -> RecordStatements:
        """Those on the records of a table that the database does not have yet: there are none. They
        are looked for in a table with the same columns, among the rows of no tenant."""
        return cls(storage, number, _NO_TENANT, catalog_version_sql(tenant), "zapdb_archives")

    def find(self, connection: Connection, key: bytes) -> tuple[int, bytes | None]:
        """Return the catalog version (0: no such tenant), and the record with a key, or None."""
        row = connection.fetch_one(self.find_sql, (key,))
        return (0, None) if row is None else (row[1], row[0])

    def find_again(self, connection: Connection, key: bytes, stored: bytes | None) -> bytes | None:
        """Return a record that has changed since it was read; `stored` is the one of now."""
        return stored

    def find_many(
        self, connection: Connection, keys: Sequence[bytes]
    ) -> tuple[int, dict[bytes, bytes]]:
        """Return the catalog version, and the records that there are by key."""
        sql = (
            f"SELECT key, value, ({self.version_sql}) FROM {self.name}"
            f" WHERE tenant = {self.tenant} AND key IN"
        )
        rows = list(fetch_in(connection, sql, keys))
        if rows:
            return rows[0][2], {as_bytes(key): value for key, value, _ in rows}
        return self.read_catalog_version(connection), {}

    def has(self, connection: Connection, key: bytes) -> tuple[int, bool]:
        """Return the catalog version, and whether there is a record with a key."""
        row = connection.fetch_one(
            f"SELECT a.version, EXISTS (SELECT 1 FROM {self.name} WHERE tenant = {self.tenant}"
            f" AND key = {self.dialect.placeholder})"
            f" FROM ({self.version_sql}) AS a",
            (key,),
        )
        return (0, False) if row is None else (row[0], bool(row[1]))

    def count(self, connection: Connection) -> int:
        return as_number(connection.fetch_one(self.count_sql)[0])

    def read_catalog_version(self, connection: Connection) -> int:
        """Return the tenant's catalog version; 0 if there is no such tenant."""
        row = connection.fetch_one(self.version_sql)
        return 0 if row is None else as_number(row[0])

    def find_keys(self, connection: Connection, keys: Sequence[bytes]) -> set[bytes]:
        """Return the keys that records have."""
        found = fetch_in(connection, self._find_keys_sql, keys)
        return {as_bytes(key) for (key,) in found}

    def find_key(self, connection: Connection, after: bytes, skipped: int) -> bytes | None:
        """Return the key after another one and `skipped` further ones; None at the table's end."""
        row = connection.fetch_one(
            f"SELECT key FROM {self.name} WHERE tenant = {self.tenant}"
            f" AND key > {self.dialect.placeholder} ORDER BY key LIMIT 1 OFFSET {int(skipped)}",
            (after,),
        )
        return None if row is None else as_bytes(row[0])

    def is_empty(self, connection: Connection) -> bool:
        sql = f"SELECT 1 FROM {self.name} WHERE tenant = {self.tenant} LIMIT 1"
        return connection.fetch_one(sql) is None

    def scan_page(
        self, connection: Connection, after: bytes
    ) -> tuple[int | None, list[tuple[bytes, bytes]]]:
        """Return the catalog version and the (key, record) pairs after a key; no pair means the
        table's end."""
        rows = connection.fetch_all(self.scan_sql, (after, PAGE_RECORDS_MAX))
        if not rows:
            return self.read_catalog_version(connection), []
        return rows[0][2], [(key, value) for key, value, _ in rows]

    def page(
        self,
        connection: Connection,
        lower: bytes | None,
        upper: bytes | None,
        after: tuple[bytes, bytes] | None,
        limit: int,
        *,
        descending: bool,
    ) -> tuple[int, list[tuple[bytes, bytes, bytes]]]:
        """The catalog version, and (key, key, record) of one page with lower ≤ key < upper: rows
        as `EntryStatements.page` has them. `after` is the last (key, key) of the page before."""
        lower, upper = bounds_behind(lower, upper, after, descending=descending)
        where, parameters = self._between(lower, upper)
        # A column of each row costs more than a statement, if they are many and no server is asked.
        # The version is read last then: see `fetch_joined` of SQLite.
        is_apart = limit > PAGE_RECORDS_FIRST and not self.dialect.is_remote
        columns = "key, value" if is_apart else f"key, value, ({self.version_sql})"
        rows = connection.fetch_all(
            f"SELECT {columns} FROM {self.name} WHERE {where}"
            f" ORDER BY key {'DESC' if descending else 'ASC'} LIMIT {int(limit)}",
            parameters,
        )
        page: list[tuple[bytes, bytes, bytes]] = []
        for row in rows:  # cells are checked in the same loop, in half the time
            key, value = row[0], row[1]
            if type(key) is not bytes or type(value) is not bytes:
                require_bytes([(key, value)])
            page.append((key, key, value))
        if is_apart or not rows:
            return self.read_catalog_version(connection), page
        return as_number(rows[0][2]), page

    def joined_page(
        self, connection: Connection, lower: bytes | None, upper: bytes | None, limit: int
    ) -> tuple[int, JoinedRows | None]:
        """The catalog version, and the first records with lower ≤ key < upper, joined: see
        `Dialect.fetch_joined`."""
        where, parameters = self._between(lower, upper)
        version, rows = self.dialect.fetch_joined(
            connection,
            f"SELECT key, value FROM {self.name} WHERE {where} ORDER BY key LIMIT {int(limit)}",
            parameters,
            self.version_sql,
        )
        return 0 if version is None else as_number(version), rows

    def find_in(
        self, connection: Connection, ranges: Sequence[tuple[bytes, bytes]], limit: int
    ) -> list[tuple[bytes, bytes]]:
        """(key, record) of up to `limit` records in any of the ranges, low ≤ key < high."""
        rows = self.dialect.fetch_records(connection, self._mine, ranges, limit)
        return [(as_bytes(key), as_bytes(value)) for key, value in rows]

    def count_range(
        self, connection: Connection, lower: bytes | None, upper: bytes | None, limit: int | None
    ) -> tuple[int, int]:
        """The catalog version, and how many records have lower ≤ key < upper: up to `limit`."""
        return count_rows(
            connection, self.version_sql, self.name, *self._between(lower, upper), limit
        )

    def _between(self, lower: bytes | None, upper: bytes | None) -> tuple[str, list[bytes]]:
        return between(self.dialect.placeholder, self.tenant, lower, upper)

    def count_by_prefix(self, connection: Connection) -> list[tuple[bytes, int]]:
        """Return the number of records of each revision, by its encoded prefix, which is empty for
        empty records."""
        prefix = prefix_sql(self.dialect.placeholder, "value")
        return [
            (b"" if prefix is None else as_bytes(prefix), count)
            for prefix, count in connection.fetch_all(
                f"SELECT prefix, count(*) FROM (SELECT {prefix} AS prefix"
                f" FROM {self.name} WHERE tenant = {self.tenant}) AS prefixes"
                " GROUP BY prefix ORDER BY prefix",
                PREFIX_PARAMETERS,
            )
        ]

    def require_keys(self, connection: Connection, keys: Sequence[bytes], refused: Refusal) -> None:
        """Continue only if each of some different keys is a record's: see `Connection.require`."""
        if len(keys) == 1:
            connection.require(self._has_key_sql, keys, refused)
            return
        for start in range(0, len(keys), VALUES_PER_STATEMENT):
            some = keys[start : start + VALUES_PER_STATEMENT]
            self.dialect.require_keys(connection, self._mine, some, refused)

    def require_value(
        self, connection: Connection, key: bytes, value: bytes | None, refused: Refusal
    ) -> None:
        """Continue only if a record has these bytes: see `Connection.require`."""
        connection.require(self._has_value_sql, (key, value), refused)

    def insert_many(
        self,
        connection: Connection,
        rows: Sequence[tuple[bytes, bytes]],
        refused: Refusal | None = None,
    ) -> None:
        """Insert new records; raises `DuplicateKey`, or the error that `refused` makes, if a key
        exists."""
        self.dialect.insert_rows(connection, self._mine, "key, value", rows, refused)

    def update_many(self, connection: Connection, rows: Sequence[tuple[bytes, bytes]]) -> None:
        """Set the values of existing records, by (key, value) rows."""
        connection.send_many(self.update_sql, [(value, key) for key, value in rows])

    def set_many(
        self, connection: Connection, keys: Sequence[bytes], values: Sequence[bytes]
    ) -> None:
        """Set the values of records that the transaction has locked: see `Dialect.set_values`."""
        self.dialect.set_values(connection, self._mine, keys, values)

    def set_locked(
        self, connection: Connection, locked: LockedRecords, values: Sequence[bytes]
    ) -> None:
        """Set the values of locked records: see `Dialect.set_locked_values`."""
        self.dialect.set_locked_values(connection, self._mine, locked, values)

    def delete_many(self, connection: Connection, keys: Sequence[bytes]) -> None:
        rows = [(key,) for key in keys]
        self.dialect.delete_rows(connection, self.name, f"tenant = {self.tenant}", ["key"], rows)

    def slice_keys(self, connection: Connection, every: int) -> tuple[int, list[bytes]]:
        """Return the number of keys, and every n-th of them, in order. Steps take a fraction of the
        time of numbering all keys, and count them, too."""
        found, after = list[bytes](), b""
        while (key := self.find_key(connection, after, every - 1)) is not None:
            found.append(key)
            after = key
        _, rest = self.count_range(connection, after + b"\x00", None, None)
        return len(found) * every + rest, found

    def find_last_key(self, connection: Connection) -> bytes | None:
        """The highest key; None if there are no records."""
        row = connection.fetch_one(
            f"SELECT key FROM {self.name} WHERE tenant = {self.tenant} ORDER BY key DESC LIMIT 1"
        )
        return None if row is None else as_bytes(row[0])

    def sample_keys(
        self, connection: Connection, lower: bytes | None, upper: bytes | None
    ) -> KeySample | None:
        """About how many records have lower ≤ key < upper, and how they are spread: None if all of
        them have to be counted."""
        where, parameters = self._between(lower, upper)
        return self.dialect.sample_keys(connection, self.name, where, parameters)

    def slice_range(
        self, connection: Connection, lower: bytes | None, upper: bytes | None, every: int
    ) -> list[bytes]:
        """The keys with lower ≤ key < upper before which there are n, 2n, … others, in order."""
        where, parameters = self._between(lower, upper)
        rows = connection.fetch_all(
            "SELECT key FROM (SELECT key, row_number() OVER (ORDER BY key) AS at"
            f" FROM {self.name} WHERE {where}) AS numbered"
            f" WHERE at > 1 AND at - 1 = (at - 1) / {int(every)} * {int(every)} ORDER BY key",
            parameters,
        )
        return [as_bytes(key) for (key,) in rows]
