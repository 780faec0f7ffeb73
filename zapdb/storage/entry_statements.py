"""The statements on the entries of an index, written once per index and tenant."""

from __future__ import annotations

from collections.abc import Sequence

from zapdb.limits import STATEMENTS_KEPT_MAX
from zapdb.memo import Memo
from zapdb.storage.cells import as_bytes, as_number, require_bytes
from zapdb.storage.connection import Connection
from zapdb.storage.data_tables import index_table_name
from zapdb.storage.dialect import TenantRows
from zapdb.storage.driver_errors import Refusal
from zapdb.storage.record_statements import RecordStatements
from zapdb.storage.statements import (
    VALUES_PER_STATEMENT,
    between,
    catalog_version_sql,
    count_rows,
    fetch_in,
    find_middle,
)
from zapdb.storage.storage import Storage


def pack_entry(key: bytes, record: bytes) -> bytes:
    """Return an entry's place in its index, as the bounds of ranges hold it."""
    return len(key).to_bytes(2) + key + record


def unpack_entry(place: bytes) -> tuple[bytes, bytes]:
    """Return the key of the entry at a place, and its record's key."""
    end = 2 + int.from_bytes(place[:2])
    return place[2:end], place[end:]


class EntryStatements:
    """The statements on one index's entries of one tenant."""

    def __init__(
        self, storage: Storage, entry_table: int, records: RecordStatements, *, unique: bool = False
    ) -> None:
        self.dialect = storage.dialect
        self.unique = unique
        self.tenant = records.tenant
        self.entry_table = entry_table
        self.name = index_table_name(entry_table)
        self._mine = TenantRows(self.name, self.tenant)
        self.records = records
        mark, mine = self.dialect.placeholder, f"tenant = {self.tenant}"
        self.insert_sql = f"INSERT INTO {self.name} VALUES ({self.tenant}, {mark}, {mark})"
        self.delete_sql = (
            f"DELETE FROM {self.name} WHERE {mine} AND key = {mark} AND record = {mark}"
        )
        self.delete_of_sql = f"DELETE FROM {self.name} WHERE {mine} AND record = {mark}"
        self.count_sql = f"SELECT count(*) FROM {self.name} WHERE {mine}"
        self._page_sqls = Memo[tuple[bool, bool, bool, int, bool], str](STATEMENTS_KEPT_MAX)

    def insert_many(
        self,
        connection: Connection,
        rows: Sequence[tuple[bytes, bytes]],
        refused: Refusal | None = None,
    ) -> None:
        """Insert entries; raises `DuplicateKey`, or the error that `refused` makes, if an entry
        exists."""
        if len(rows) == 1:
            connection.send(self.insert_sql, rows[0], refused)
            return
        self.dialect.insert_rows(connection, self._mine, "key, record", rows, refused)

    def count_range(
        self, connection: Connection, lower: bytes | None, upper: bytes | None, limit: int | None
    ) -> tuple[int, int]:
        """Return the catalog version, and the number of entries with lower ≤ key < upper, at most
        `limit`."""
        where, parameters = between(self.dialect.placeholder, self.tenant, lower, upper)
        return count_rows(connection, self.records.version_sql, self.name, where, parameters, limit)

    def insert_absent(self, connection: Connection, rows: Sequence[tuple[bytes, bytes]]) -> int:
        return self.dialect.insert_entries_if_absent(connection, self._mine, rows)

    def delete_many(self, connection: Connection, rows: Sequence[tuple[bytes, bytes]]) -> None:
        """Delete entries by their keys and their records' keys."""
        if len(rows) == 1:
            connection.send(self.delete_sql, rows[0])
            return
        mine = f"tenant = {self.tenant}"
        self.dialect.delete_rows(connection, self.name, mine, ["key", "record"], rows)

    def delete_of(self, connection: Connection, record_key: bytes) -> None:
        """Delete all entries of a record, whatever their keys are; reads the tenant's entries."""
        connection.send(self.delete_of_sql, (record_key,))

    def find_in(
        self, connection: Connection, ranges: Sequence[tuple[bytes, bytes]], limit: int
    ) -> list[tuple[bytes, bytes]]:
        """(record key, record) of up to `limit` entries in any of the ranges, low ≤ key < high."""
        rows = self.dialect.fetch_entries(connection, self._mine, self.records.name, ranges, limit)
        return [(as_bytes(key), as_bytes(value)) for key, value in rows]

    def find_owners(self, connection: Connection, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return the record keys of a unique index's entries with these keys."""
        sql = f"SELECT key, record FROM {self.name} WHERE tenant = {self.tenant} AND key IN"
        found = fetch_in(connection, sql, keys)
        return {as_bytes(key): as_bytes(record) for key, record in found}

    def find_entries(
        self, connection: Connection, rows: Sequence[tuple[bytes, bytes]]
    ) -> set[tuple[bytes, bytes]]:
        """Return those of the entries that exist, as (key, record key)."""
        found = set[tuple[bytes, bytes]]()
        for start in range(0, len(rows), VALUES_PER_STATEMENT):
            some = rows[start : start + VALUES_PER_STATEMENT]
            there = self.dialect.find_entries(connection, self._mine, some)
            found.update((as_bytes(key), as_bytes(record)) for key, record in there)
        return found

    def list_missing(self, connection: Connection, limit: int) -> list[bytes]:
        """Return the keys of those of some records that have no entry, in order."""
        mine = f"WHERE tenant = {self.tenant}"
        rows = connection.fetch_all(
            f"SELECT key FROM (SELECT key FROM {self.records.name} {mine}"
            f" EXCEPT SELECT record FROM {self.name} {mine}) AS missing"
            f" ORDER BY key LIMIT {int(limit)}"
        )
        return [as_bytes(key) for (key,) in rows]

    def count_extra(self, connection: Connection) -> int:
        """Return how many entries there are besides one for each record that has any."""
        mine = f"WHERE tenant = {self.tenant}"
        (entries,) = connection.fetch_one(self.count_sql)
        (records,) = connection.fetch_one(
            f"SELECT count(*) FROM (SELECT record FROM {self.name} {mine}"
            f" INTERSECT SELECT key FROM {self.records.name} {mine}) AS present"
        )
        return int(entries - records)

    def slice_entries(self, connection: Connection, every: int) -> list[bytes]:
        """Return the place of every n-th entry, in order."""
        mark = self.dialect.placeholder
        rows = connection.fetch_all(
            "SELECT key, record FROM (SELECT key, record,"
            f" row_number() OVER (ORDER BY key, record) AS at FROM {self.name}"
            f" WHERE tenant = {self.tenant}) AS numbered"
            f" WHERE at = at / {mark} * {mark} ORDER BY key, record",
            (every, every),
        )
        return [pack_entry(as_bytes(key), as_bytes(record)) for key, record in rows]

    def find_last_entry(self, connection: Connection) -> bytes | None:
        """The place of the last entry; None if there are none."""
        row = connection.fetch_one(
            f"SELECT key, record FROM {self.name} WHERE tenant = {self.tenant}"
            " ORDER BY key DESC, record DESC LIMIT 1"
        )
        return None if row is None else pack_entry(as_bytes(row[0]), as_bytes(row[1]))

    def walk(
        self, connection: Connection, after: bytes | None, last: bytes | None, limit: int
    ) -> list[tuple[bytes, bytes]]:
        """Return entries by their places, after `after` and up to `last`, each with its record; the
        record is empty if it is missing."""
        condition, parameters = self._places_between(after, last)
        rows = connection.fetch_all(
            f"SELECT x.key, x.record, r.value FROM {self.name} AS x"
            f" LEFT JOIN {self.records.name} AS r ON r.tenant = x.tenant AND r.key = x.record"
            f" WHERE {condition} ORDER BY x.key, x.record LIMIT {int(limit)}",
            parameters,
        )
        return [
            (pack_entry(as_bytes(key), as_bytes(record)), b"" if value is None else as_bytes(value))
            for key, record, value in rows
        ]

    def find_middle(
        self, connection: Connection, after: bytes | None, last: bytes | None, limit: int
    ) -> tuple[int, bytes | None]:
        """How many entries there are behind `after` up to `last`, up to `limit`, and the place of
        the middle one."""
        condition, parameters = self._places_between(after, last)
        count, row = find_middle(
            connection, "x.key, x.record", f"{self.name} AS x WHERE {condition}", parameters, limit
        )
        return count, None if row is None else pack_entry(as_bytes(row[0]), as_bytes(row[1]))

    def _places_between(self, after: bytes | None, last: bytes | None) -> tuple[str, list[bytes]]:
        conditions, parameters = [f"x.tenant = {self.tenant}"], list[bytes]()
        for operator, place in ((">", after), ("<=", last)):
            if place is not None:
                conditions.append(
                    f"(x.key, x.record) {operator} ({self.dialect.placeholder},"
                    f" {self.dialect.placeholder})"
                )
                parameters += unpack_entry(place)
        return " AND ".join(conditions), parameters

    def list_orphans(self, connection: Connection, limit: int) -> list[tuple[bytes, bytes]]:
        """Return the entries whose record is missing or has several entries, by record: (key,
        record key)."""
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
    ) -> tuple[int, list[tuple[bytes, bytes, bytes]]]:
        """The catalog version, and (entry key, record key, record) of one page.

        `lower` is inclusive, `upper` exclusive; `after` is the last (entry key, record key) of the
        page before, exclusive in the direction of the scan. The catalog version is returned even
        without an entry, because the table of a rebuilt index looks empty.
        """
        parameters = [bound for bound in (lower, upper) if bound is not None]
        if after is not None:
            parameters += after[:1] if self.unique else after
        shape = (lower is not None, upper is not None, after is not None, limit, descending)
        sql = self._page_sqls.find(shape)
        return self.fetch_page(
            connection, sql or self._page_sqls.put(shape, self._make_page_sql(*shape)), parameters
        )

    def fetch_page(
        self, connection: Connection, sql: str, parameters: Sequence[bytes]
    ) -> tuple[int, list[tuple[bytes, bytes, bytes]]]:
        """Return the same by a statement that is made already."""
        rows = connection.fetch_all(sql, parameters)
        if not rows:
            return self.records.read_catalog_version(connection), []
        version = as_number(rows[0][0])
        if rows[0][1] is None:
            return version, []
        entries: list[tuple[bytes, bytes, bytes]] = []
        for _, key, record, value in rows:
            if type(key) is not bytes or type(record) is not bytes or type(value) is not bytes:
                require_bytes([(key, record, value)])
            entries.append((key, record, value))
        return version, entries

    def make_key_sql(self, limit: int, *, descending: bool) -> str:
        """Return the statement for the page of the first entries with one very key."""
        return self._join_records([f"x.key = {self.dialect.placeholder}"], limit, descending)

    def _make_page_sql(
        self, has_lower: bool, has_upper: bool, has_after: bool, limit: int, descending: bool
    ) -> str:
        mark, behind = self.dialect.placeholder, "<" if descending else ">"
        conditions = list[str]()
        if has_lower:
            conditions.append(f"x.key >= {mark}")
        if has_upper:
            conditions.append(f"x.key < {mark}")
        if has_after:
            both = f"(x.key, x.record) {behind} ({mark}, {mark})"
            conditions.append(f"x.key {behind} {mark}" if self.unique else both)
        return self._join_records(conditions, limit, descending)

    def _join_records(self, conditions: Sequence[str], limit: int, descending: bool) -> str:
        """Return the statement for the catalog version and the first entries with their records."""
        way = "DESC" if descending else "ASC"
        order = f"x.key {way}" if self.unique else f"x.key {way}, x.record {way}"
        columns, version_sql = "x.key, x.record, r.value", catalog_version_sql(self.tenant)
        page = (
            f" FROM {self.name} AS x"
            f" JOIN {self.records.name} AS r ON r.tenant = x.tenant AND r.key = x.record"
            f" WHERE {' AND '.join((f'x.tenant = {self.tenant}', *conditions))}"
            f" ORDER BY {order} LIMIT {int(limit)}"
        )
        if not self.dialect.is_remote:
            return f"SELECT ({version_sql}), {columns}{page}"
        # A page without an entry has the version, too: asking for it would be a round trip more.
        return (
            "SELECT active.version, page.key, page.record, page.value"
            f" FROM ({version_sql}) AS active LEFT JOIN (SELECT {columns}{page}) AS page ON 1 = 1"
            f" ORDER BY page.key {way}, page.record {way}"
        )
