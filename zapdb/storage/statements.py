"""The tables that hold records and index entries, one each per zapdb table and index (rule 27).

Their names are made of numbers alone, so no name of a user's ever becomes part of a statement. All
tenants share them. The statements of the hot path are written here, once per table and tenant; the
reads carry the tenant's catalog version, so that a process notices a change with the first
statement after it (rule 8).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import sqlalchemy

from zapdb.limits import PAGE_RECORDS_MAX
from zapdb.storage.base import Storage
from zapdb.storage.cells import as_bytes, as_number
from zapdb.storage.connection import Connection
from zapdb.storage.driver_errors import Refusal

RECORD_TABLE: Final = re.compile(r"zapdb_records_([1-9][0-9]*)")
VALUES_PER_STATEMENT: Final = 500


def record_table_name(number: int) -> str:
    return f"zapdb_records_{int(number)}"


def index_table_name(entry_table: int) -> str:
    return f"zapdb_entries_{int(entry_table)}"


def create_record_table(connection: Connection, number: int) -> None:
    connection.run(connection.storage.create_record_table_sql(record_table_name(number)))


def create_index_table(connection: Connection, entry_table: int, *, unique: bool) -> None:
    name = index_table_name(entry_table)
    connection.run(connection.storage.create_index_table_sql(name, unique=unique))


def drop_index_table(connection: Connection, entry_table: int) -> None:
    connection.run(f"DROP TABLE IF EXISTS {index_table_name(entry_table)}")


def list_tenant_tables(connection: Connection) -> dict[str, list[str]]:
    """All tables with a column `tenant`, whatever they hold; with the rest of their keys."""
    found = {}
    inspector = sqlalchemy.inspect(connection.core)
    for name in connection.storage.table_names(connection):
        columns = [column["name"] for column in inspector.get_columns(name)]
        if "tenant" in columns:
            key = inspector.get_pk_constraint(name)["constrained_columns"]
            found[name] = [column for column in key if column != "tenant"]
    return found


def delete_of_tenant(
    connection: Connection, table: str, key: Sequence[str], tenant: int, limit: int
) -> int:
    """Delete some of a tenant's rows of any table, told apart by `key`; returns how many."""
    mine = f"tenant = {int(tenant)}"
    if not key:
        return connection.run(f"DELETE FROM {table} WHERE {mine}")
    columns = ", ".join(key)
    return connection.run(
        f"DELETE FROM {table} WHERE {mine} AND ({columns}) IN"
        f" (SELECT {columns} FROM {table} WHERE {mine} LIMIT {int(limit)})"
    )


def delete_index_entries(connection: Connection, entry_table: int, tenant: int, limit: int) -> int:
    """Delete some of a tenant's entries; returns how many."""
    name, mark = index_table_name(entry_table), connection.storage.placeholder
    rows = connection.fetch_all(
        f"SELECT key, record FROM {name} WHERE tenant = {int(tenant)} LIMIT {int(limit)}"
    )
    connection.run_many(
        f"DELETE FROM {name} WHERE tenant = {int(tenant)} AND key = {mark} AND record = {mark}",
        rows,
    )
    return len(rows)


def list_record_tables(connection: Connection) -> list[int]:
    """Return the numbers of all existing record tables, also of retired ones."""
    found = (RECORD_TABLE.fullmatch(name) for name in connection.storage.table_names(connection))
    return sorted(int(match[1]) for match in found if match)


def list_tenants_with_records(connection: Connection, number: int) -> Iterator[int]:
    """The tenants that have records in a table: one search in its index for each."""
    name, mark = record_table_name(number), connection.storage.placeholder
    (tenant,) = connection.fetch_one(f"SELECT min(tenant) FROM {name}")
    while tenant is not None:
        yield as_number(tenant)
        (tenant,) = connection.fetch_one(
            f"SELECT min(tenant) FROM {name} WHERE tenant > {mark}", (tenant,)
        )


def drop_record_table_if_empty(connection: Connection, number: int) -> bool:
    """Drop the table once no tenant has records in it; returns whether that is so."""
    name = record_table_name(number)
    empty = connection.fetch_one(f"SELECT 1 FROM {name} LIMIT 1") is None
    if empty:
        connection.run(f"DROP TABLE {name}")
    return empty


def fetch_in(connection: Connection, sql: str, values: Sequence[bytes]) -> Iterator[Any]:
    """The rows of a statement that ends in `IN`, asked for some of the values at a time."""
    for start in range(0, len(values), VALUES_PER_STATEMENT):
        some = values[start : start + VALUES_PER_STATEMENT]
        marks = ", ".join([connection.storage.placeholder] * len(some))
        yield from connection.fetch_all(f"{sql} ({marks})", some)


def prefix_sql(mark: str, column: str) -> str:
    """The revision of a record in a column, encoded; with `PREFIX_PARAMETERS`."""
    # It is one byte up to revision 63, then two, then three (65,535 and beyond: four).
    first = f"substr({column}, 1, 1)"
    size = (
        f"CASE WHEN {first} < {mark} THEN 1 WHEN {first} = {mark} THEN 2"
        f" WHEN {first} = {mark} THEN 3 ELSE 4 END"
    )
    return f"substr({column}, 1, {size})"


PREFIX_PARAMETERS: Final = (b"\xc0", b"\xc0", b"\xc1")


def catalog_version_sql(tenant: int) -> str:
    return f"SELECT version FROM zapdb_catalog_versions WHERE tenant = {int(tenant)}"


def _between(
    mark: str, tenant: int, lower: bytes | None, upper: bytes | None
) -> tuple[str, list[bytes]]:
    """A condition on a tenant's keys, lower ≤ key < upper, and its parameters."""
    conditions, parameters = [f"tenant = {int(tenant)}"], []
    for operator, bound in ((">=", lower), ("<", upper)):
        if bound is not None:
            conditions.append(f"key {operator} {mark}")
            parameters.append(bound)
    return " AND ".join(conditions), parameters


def _count(
    connection: Connection,
    tenant: int,
    name: str,
    where: str,
    parameters: Sequence[bytes],
    limit: int | None,
) -> tuple[int, int]:
    """The catalog version and the number of rows, as far as `limit`."""
    rows = f"SELECT 1 FROM {name} WHERE {where}"
    if limit is not None:
        rows += f" LIMIT {int(limit)}"
    row = connection.fetch_one(
        f"SELECT ({catalog_version_sql(tenant)}), count(*) FROM ({rows}) AS found", parameters
    )
    return (0, 0) if row[0] is None else (as_number(row[0]), as_number(row[1]))


class RecordStatements:
    """The statements on one table's records of one tenant."""

    def __init__(self, storage: Storage, number: int, tenant: int) -> None:
        self.storage = storage
        self.tenant = int(tenant)
        self.name = record_table_name(number)
        mark, mine = storage.placeholder, f"tenant = {self.tenant}"
        self.get_sql = (
            f"SELECT value, ({catalog_version_sql(tenant)}) FROM {self.name}"
            f" WHERE {mine} AND key = {mark}"
        )
        # The catalog version comes even where there is no record; no row: no such tenant.
        self.find_sql = (
            f"SELECT r.value, a.version FROM ({catalog_version_sql(tenant)}) AS a LEFT JOIN"
            f" {self.name} AS r ON r.{mine} AND r.key = {mark}"
        )
        self.insert_sql = f"INSERT INTO {self.name} VALUES ({self.tenant}, {mark}, {mark})"
        self.update_sql = f"UPDATE {self.name} SET value = {mark} WHERE {mine} AND key = {mark}"
        self.swap_sql = self.update_sql + f" AND value = {mark}"
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
            f"SELECT key, value, ({catalog_version_sql(tenant)}) FROM {self.name}"
            f" WHERE {mine} AND key > {mark} ORDER BY key LIMIT {mark}"
        )
        self.count_sql = f"SELECT count(*) FROM {self.name} WHERE {mine}"
        self._has_key_sql = f"EXISTS (SELECT 1 FROM {self.name} WHERE {mine} AND key = {mark})"
        self._has_value_sql = f"{self._has_key_sql[:-1]} AND value = {mark})"
        self._find_keys_sql = f"SELECT key FROM {self.name} WHERE {mine} AND key IN"

    def find_keys(self, connection: Connection, keys: Sequence[bytes]) -> set[bytes]:
        """Return the keys that records have."""
        found = fetch_in(connection, self._find_keys_sql, keys)
        return {as_bytes(key) for (key,) in found}

    def find_key(self, connection: Connection, after: bytes, skipped: int) -> bytes | None:
        """The key behind another one when so many are skipped."""
        row = connection.fetch_one(
            f"SELECT key FROM {self.name} WHERE tenant = {self.tenant}"
            f" AND key > {self.storage.placeholder} ORDER BY key LIMIT 1 OFFSET {int(skipped)}",
            (after,),
        )
        return None if row is None else as_bytes(row[0])

    def is_empty(self, connection: Connection) -> bool:
        sql = f"SELECT 1 FROM {self.name} WHERE tenant = {self.tenant} LIMIT 1"
        return connection.fetch_one(sql) is None

    def scan_page(
        self, connection: Connection, after: bytes
    ) -> tuple[int | None, list[tuple[bytes, bytes]]]:
        """The catalog version and the (key, record) pairs behind a key; none ends the table."""
        rows = connection.fetch_all(self.scan_sql, (after, PAGE_RECORDS_MAX))
        if not rows:
            active = connection.fetch_one(catalog_version_sql(self.tenant))
            return 0 if active is None else active[0], []
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
        if after is not None and descending:
            upper = after[0] if upper is None else min(upper, after[0])
        elif after is not None:
            behind = after[0] + b"\x00"
            lower = behind if lower is None else max(lower, behind)
        where, parameters = self._between(lower, upper)
        rows = connection.fetch_all(
            f"SELECT key, value, ({catalog_version_sql(self.tenant)}) FROM {self.name}"
            f" WHERE {where}"
            f" ORDER BY key {'DESC' if descending else 'ASC'} LIMIT {int(limit)}",
            parameters,
        )
        if not rows:
            active = connection.fetch_one(catalog_version_sql(self.tenant))
            return 0 if active is None else as_number(active[0]), []
        found = [(as_bytes(key), as_bytes(value)) for key, value, _ in rows]
        return as_number(rows[0][2]), [(key, key, value) for key, value in found]

    def find_in(
        self, connection: Connection, ranges: Sequence[tuple[bytes, bytes]], limit: int
    ) -> list[tuple[bytes, bytes]]:
        """(key, record) of up to `limit` records in any of the ranges, low ≤ key < high."""
        rows = self.storage.fetch_records(connection, self.name, self.tenant, ranges, limit)
        return [(as_bytes(key), as_bytes(value)) for key, value in rows]

    def count_range(
        self, connection: Connection, lower: bytes | None, upper: bytes | None, limit: int | None
    ) -> tuple[int, int]:
        """The catalog version, and how many records have lower ≤ key < upper: up to `limit`."""
        return _count(connection, self.tenant, self.name, *self._between(lower, upper), limit)

    def _between(self, lower: bytes | None, upper: bytes | None) -> tuple[str, list[bytes]]:
        return _between(self.storage.placeholder, self.tenant, lower, upper)

    def count_by_prefix(self, connection: Connection) -> list[tuple[bytes, int]]:
        """How many records have each revision, by its encoded prefix."""
        prefix = prefix_sql(self.storage.placeholder, "value")
        return [
            (as_bytes(prefix), count)
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
            self.storage.require_keys(connection, self.name, self.tenant, some, refused)

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
        """Raises `DuplicateKey`, or what `refused` makes, if any key is there."""
        self.storage.insert_rows(connection, self.name, "key, value", self.tenant, rows, refused)

    def update_many(self, connection: Connection, rows: Sequence[tuple[bytes, bytes]]) -> None:
        """Set the values of records that are there, by (key, value) rows."""
        connection.send_many(self.update_sql, [(value, key) for key, value in rows])

    def delete_many(self, connection: Connection, keys: Sequence[bytes]) -> None:
        rows = [(key,) for key in keys]
        self.storage.delete_rows(connection, self.name, f"tenant = {self.tenant}", ["key"], rows)

    def slice_keys(self, connection: Connection, every: int) -> list[bytes]:
        """Every n-th key, in order."""
        sql = self.storage.key_slice_sql(self.name)
        return [as_bytes(key) for (key,) in connection.fetch_all(sql, (self.tenant, every))]


def pack_entry(key: bytes, record: bytes) -> bytes:
    """The place of an entry among those of its index, as the bounds of ranges hold it."""
    return len(key).to_bytes(2) + key + record


def unpack_entry(place: bytes) -> tuple[bytes, bytes]:
    """The key of the entry at a place, and that of its record."""
    end = 2 + int.from_bytes(place[:2])
    return place[2:end], place[end:]


class EntryStatements:
    """The statements on one index's entries of one tenant."""

    def __init__(
        self, storage: Storage, entry_table: int, records: RecordStatements, *, unique: bool = False
    ) -> None:
        self.storage = storage
        self.unique = unique
        self.tenant = records.tenant
        self.entry_table = entry_table
        self.name = index_table_name(entry_table)
        self.records = records
        mark, mine = storage.placeholder, f"tenant = {self.tenant}"
        self.insert_sql = f"INSERT INTO {self.name} VALUES ({self.tenant}, {mark}, {mark})"
        self.delete_sql = (
            f"DELETE FROM {self.name} WHERE {mine} AND key = {mark} AND record = {mark}"
        )
        self.count_sql = f"SELECT count(*) FROM {self.name} WHERE {mine}"

    def insert_many(
        self,
        connection: Connection,
        rows: Sequence[tuple[bytes, bytes]],
        refused: Refusal | None = None,
    ) -> None:
        """Raises `DuplicateKey`, or what `refused` makes, if any of them is there."""
        if len(rows) == 1:
            connection.send(self.insert_sql, rows[0], refused)
            return
        self.storage.insert_rows(connection, self.name, "key, record", self.tenant, rows, refused)

    def count_range(
        self, connection: Connection, lower: bytes | None, upper: bytes | None, limit: int | None
    ) -> tuple[int, int]:
        """The catalog version, and how many entries have lower ≤ key < upper: up to `limit`."""
        where, parameters = _between(self.storage.placeholder, self.tenant, lower, upper)
        return _count(connection, self.tenant, self.name, where, parameters, limit)

    def insert_absent(self, connection: Connection, rows: Sequence[tuple[bytes, bytes]]) -> int:
        return self.storage.insert_entries_if_absent(connection, self.name, self.tenant, rows)

    def delete_many(self, connection: Connection, rows: Sequence[tuple[bytes, bytes]]) -> None:
        """Delete entries by their keys and those of their records."""
        mine = f"tenant = {self.tenant}"
        self.storage.delete_rows(connection, self.name, mine, ["key", "record"], rows)

    def find_in(
        self, connection: Connection, ranges: Sequence[tuple[bytes, bytes]], limit: int
    ) -> list[tuple[bytes, bytes]]:
        """(record key, record) of up to `limit` entries in any of the ranges, low ≤ key < high."""
        rows = self.storage.fetch_entries(
            connection, self.name, self.records.name, self.tenant, ranges, limit
        )
        return [(as_bytes(key), as_bytes(value)) for key, value in rows]

    def find_owners(self, connection: Connection, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """Of a unique index: whose record the entries with these keys are."""
        sql = f"SELECT key, record FROM {self.name} WHERE tenant = {self.tenant} AND key IN"
        found = fetch_in(connection, sql, keys)
        return {as_bytes(key): as_bytes(record) for key, record in found}

    def list_missing(self, connection: Connection, limit: int) -> list[bytes]:
        """The keys of some records that have no entry, in order."""
        mine = f"WHERE tenant = {self.tenant}"
        rows = connection.fetch_all(
            f"SELECT key FROM (SELECT key FROM {self.records.name} {mine}"
            f" EXCEPT SELECT record FROM {self.name} {mine}) AS missing"
            f" ORDER BY key LIMIT {int(limit)}"
        )
        return [as_bytes(key) for (key,) in rows]

    def slice_entries(self, connection: Connection, every: int) -> list[bytes]:
        """The place of every n-th entry, in order."""
        mark = self.storage.placeholder
        rows = connection.fetch_all(
            "SELECT key, record FROM (SELECT key, record,"
            f" row_number() OVER (ORDER BY key, record) AS at FROM {self.name}"
            f" WHERE tenant = {self.tenant}) AS numbered"
            f" WHERE at = at / {mark} * {mark} ORDER BY key, record",
            (every, every),
        )
        return [pack_entry(as_bytes(key), as_bytes(record)) for key, record in rows]

    def walk(
        self, connection: Connection, after: bytes | None, last: bytes | None, limit: int
    ) -> list[tuple[bytes, bytes]]:
        """Entries by their places, behind `after` up to `last`, each with its record, which is
        empty where there is none."""
        conditions, parameters = [f"x.tenant = {self.tenant}"], list[bytes]()
        for operator, place in ((">", after), ("<=", last)):
            if place is not None:
                conditions.append(
                    f"(x.key, x.record) {operator} ({self.storage.placeholder},"
                    f" {self.storage.placeholder})"
                )
                parameters += unpack_entry(place)
        rows = connection.fetch_all(
            f"SELECT x.key, x.record, r.value FROM {self.name} AS x"
            f" LEFT JOIN {self.records.name} AS r ON r.tenant = x.tenant AND r.key = x.record"
            f" WHERE {' AND '.join(conditions)} ORDER BY x.key, x.record LIMIT {int(limit)}",
            parameters,
        )
        return [
            (pack_entry(as_bytes(key), as_bytes(record)), b"" if value is None else as_bytes(value))
            for key, record, value in rows
        ]

    def list_orphans(self, connection: Connection, limit: int) -> list[tuple[bytes, bytes]]:
        """Entries whose record is not there, or has several, by record: (key, record key)."""
        mine = f"tenant = {self.tenant}"
        rows = connection.fetch_all(
            f"SELECT x.key, x.record FROM {self.name} AS x WHERE x.{mine}"
            f" AND (NOT EXISTS (SELECT 1 FROM {self.records.name} AS r"
            " WHERE r.tenant = x.tenant AND r.key = x.record)"
            f" OR x.record IN (SELECT record FROM {self.name} WHERE {mine}"
            f" GROUP BY record HAVING count(*) > 1)) ORDER BY x.record LIMIT {int(limit)}"
        )
        return [(as_bytes(key), as_bytes(record)) for key, record in rows]

    def page(
        self,
        connection: Connection,
        lower: bytes | None,
        upper: bytes | None,
        after: tuple[bytes, bytes] | None,
        limit: int,
        *,
        descending: bool,
    ) -> tuple[int | None, list[tuple[bytes, bytes, bytes]]]:
        """The catalog version, and (entry key, record key, record) of one page.

        `lower` is inclusive, `upper` exclusive; `after` is the last (entry key, record key) of the
        page before, exclusive in the direction of the scan. The catalog version comes even with
        no entry, since an index that moved elsewhere would look empty here.
        """
        mark = self.storage.placeholder
        conditions, parameters = [f"x.tenant = {self.tenant}"], []
        if lower is not None:
            conditions.append(f"x.key >= {mark}")
            parameters.append(lower)
        if upper is not None:
            conditions.append(f"x.key < {mark}")
            parameters.append(upper)
        behind, way = ("<", "DESC") if descending else (">", "ASC")
        order = f"x.key {way}"
        if not self.unique:
            order += f", x.record {way}"
        if after is not None and self.unique:
            conditions.append(f"x.key {behind} {mark}")
            parameters.append(after[0])
        elif after is not None:
            conditions.append(f"(x.key, x.record) {behind} ({mark}, {mark})")
            parameters += after
        sql = (
            "SELECT active.version, page.key, page.record, page.value FROM"
            f" ({catalog_version_sql(self.tenant)}) AS active LEFT JOIN"
            f" (SELECT x.key, x.record, r.value FROM {self.name} AS x"
            f" JOIN {self.records.name} AS r ON r.tenant = x.tenant AND r.key = x.record"
            f" WHERE {' AND '.join(conditions)}"
            f" ORDER BY {order} LIMIT {int(limit)}) AS page ON 1 = 1"
            f" ORDER BY page.key {way}, page.record {way}"
        )
        rows = connection.fetch_all(sql, parameters)
        entries = [
            (as_bytes(key), as_bytes(record), as_bytes(value))
            for _, key, record, value in rows
            if key is not None
        ]
        return as_number(rows[0][0]) if rows else 0, entries
