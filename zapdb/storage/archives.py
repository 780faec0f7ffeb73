"""The archive: values of dropped fields, kept by the keys of their records (rule 19).

One row per record and field: the value's encoding, or nothing for a null. A conversion that crosses
the drop of a field writes its row in the transaction that writes the record. Rows are deleted with
their record. A rollback consumes them record by record. `restore_field` leaves the rows in place,
because concurrent readers of the stale record need them, too. They are deleted together when no
record of the table is stale; until then, another conversion across the drop overwrites them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final

from zapdb.limits import PAGE_RECORDS_MAX
from zapdb.records import ReadConflict
from zapdb.storage.cells import as_bytes, as_number
from zapdb.storage.connection import Connection
from zapdb.storage.record_statements import RecordStatements

_KEYS_PER_STATEMENT: Final = 500

ArchiveRow = tuple[int, bytes, bytes]
"""Field number, record key, value encoding."""


class ArchiveStatements:
    """The statements on the archived fields of one table of one tenant."""

    def __init__(self, records: RecordStatements, fields: Collection[int]) -> None:
        self._given = fields
        self._records = records
        mark, tenant = records.storage.placeholder, records.tenant
        self._insert_sql = (
            f"INSERT INTO zapdb_archives VALUES ({tenant}, {mark}, {mark}, {mark})"
            " ON CONFLICT (tenant, field, key) DO UPDATE SET value = excluded.value"
        )
        self._consume_sql = (
            f"DELETE FROM zapdb_archives WHERE tenant = {tenant}"
            f" AND field = {mark} AND key = {mark}"
        )

    @cached_property
    def fields(self) -> tuple[int, ...]:
        """The numbers of the archived fields, which take a look at all migrations to tell."""
        return tuple(sorted(self._given))

    @cached_property
    def _mine(self) -> str:
        # No field has the number 0, and a list of none is not for PostgreSQL.
        numbers = ", ".join(map(str, map(int, self.fields or (0,))))
        return f"tenant = {self._records.tenant} AND field IN ({numbers})"

    @cached_property
    def _load_sql(self) -> str:
        # One statement reads as of one moment, so the archived values belong to the record that it
        # reads.
        records, mark = self._records, self._records.storage.placeholder
        return (
            f"SELECT field, value FROM zapdb_archives WHERE {self._mine} AND key = {mark}"
            f" UNION ALL SELECT NULL, value FROM {records.name}"
            f" WHERE tenant = {records.tenant} AND key = {mark}"
        )

    def insert(self, connection: Connection, rows: Iterable[ArchiveRow]) -> None:
        """Keep values, in the place of older ones, in the transaction that writes the records."""
        rows = list(rows)
        if rows:
            connection.send_many(self._insert_sql, rows)

    def consume(self, connection: Connection, rows: Iterable[tuple[int, bytes]]) -> None:
        """Delete values that were restored, by field number and record key."""
        rows = list(rows)
        if rows:
            connection.run_many(self._consume_sql, rows)

    def delete_many(self, connection: Connection, keys: Sequence[bytes]) -> None:
        """Delete the archived values of records that are deleted."""
        dialect, rows = connection.storage.dialect, [(key,) for key in keys]
        for field in self.fields:
            where = f"tenant = {self._records.tenant} AND field = {int(field)}"
            dialect.delete_rows(connection, "zapdb_archives", where, ["key"], rows)

    def load(self, connection: Connection, key: bytes) -> tuple[bytes | None, dict[int, bytes]]:
        """Return a record, or None if it does not exist, and its archived values by field
        number."""
        rows = connection.fetch_all(self._load_sql, (key, key))
        record = next((as_bytes(value) for field, value in rows if field is None), None)
        return record, {as_number(at): as_bytes(value) for at, value in rows if at is not None}

    def load_many(
        self, connection: Connection, keys: Sequence[bytes]
    ) -> dict[bytes, dict[int, bytes]]:
        """Return the archived values of several records, by key and field number."""
        found: dict[bytes, dict[int, bytes]] = {}
        mark = self._records.storage.placeholder
        sql = f"SELECT key, field, value FROM zapdb_archives WHERE {self._mine} AND key IN"
        for start in range(0, len(keys) if self.fields else 0, _KEYS_PER_STATEMENT):
            some = keys[start : start + _KEYS_PER_STATEMENT]
            marks = ", ".join([mark] * len(some))
            for key, field, value in connection.fetch_all(f"{sql} ({marks})", some):
                found.setdefault(as_bytes(key), {})[as_number(field)] = as_bytes(value)
        return found

    def open(self, key: bytes, value: bytes) -> StoredArchive:
        """Return the archive of a record that has been read; it is loaded only if it is needed."""
        return StoredArchive(self, self._records, key, value)


class StoredArchive:
    """The archive of one record, loaded from the database when it is first used.

    Raises `ReadConflict` if the record has changed since it was read: then the archive belongs to
    the new value, or was deleted with the record. One of a past moment is found again there. A
    transaction sees no changes but its own, and may itself be about to write the record: there,
    only a missing archived value counts as a conflict.
    """

    __slots__ = ("_archives", "_key", "_loaded", "_records", "_value")

    def __init__(
        self, archives: ArchiveStatements, records: RecordStatements, key: bytes, value: bytes
    ) -> None:
        self._archives = archives
        self._records = records
        self._key = key
        self._value = value
        self._loaded: dict[int, bytes] | None = None

    def get(self, number: int, /) -> bytes | None:
        if self._loaded is None:
            connection = self._records.storage.connection()
            stored, self._loaded = self._archives.load(connection, self._key)
            is_told = connection.mode is None or number not in self._loaded
            if is_told and stored != self._value:
                raise ReadConflict(self._records.find_again(connection, self._key, stored))
        return self._loaded.get(number)


def delete_archives(
    connection: Connection, tenant: int, fields: Sequence[int], limit: int = PAGE_RECORDS_MAX
) -> int:
    """Delete some archived values of these fields, of all records; returns the number of rows."""
    if not fields:
        return 0
    numbers = ", ".join(map(str, map(int, fields)))
    rows = connection.fetch_all(
        f"SELECT field, key FROM zapdb_archives WHERE tenant = {int(tenant)}"
        f" AND field IN ({numbers}) LIMIT {int(limit)}"
    )
    mark = connection.storage.placeholder
    connection.run_many(
        f"DELETE FROM zapdb_archives WHERE tenant = {int(tenant)}"
        f" AND field = {mark} AND key = {mark}",
        [(field, key) for field, key in rows],
    )
    return len(rows)


def take_archived_of(
    connection: Connection, tenant: int, fields: Sequence[int], key: bytes
) -> list[tuple[int, bytes]]:
    """Delete the archived values of these fields of one record, and return them by field."""
    mark = connection.storage.placeholder
    found = []
    for field in fields:
        of = f"tenant = {int(tenant)} AND field = {int(field)} AND key = {mark}"
        row = connection.fetch_one(f"SELECT value FROM zapdb_archives WHERE {of}", (key,))
        if row is not None:
            connection.run(f"DELETE FROM zapdb_archives WHERE {of}", (key,))
            found.append((field, as_bytes(row[0])))
    return found


def count_archives(connection: Connection, tenant: int) -> dict[int, int]:
    """Return the number of archived values, by field number."""
    rows = connection.fetch_all(
        "SELECT field, count(*) FROM zapdb_archives"
        f" WHERE tenant = {int(tenant)} GROUP BY field ORDER BY field"
    )
    return {as_number(field): as_number(count) for field, count in rows}


def count_unowned(
    connection: Connection, records: RecordStatements, fields: Collection[int]
) -> int:
    """Return the number of a table's archived values whose records do not exist."""
    if not fields:
        return 0
    numbers = ", ".join(map(str, map(int, fields)))
    (count,) = connection.fetch_one(
        f"SELECT count(*) FROM zapdb_archives AS a WHERE tenant = {records.tenant}"
        f" AND field IN ({numbers}) AND NOT EXISTS (SELECT 1 FROM {records.name} AS r"
        f" WHERE r.tenant = {records.tenant} AND r.key = a.key)"
    )
    return as_number(count)


def list_archived_fields(connection: Connection) -> list[tuple[int, int]]:
    """Return (tenant, field number) of every archived field."""
    rows = connection.fetch_all(
        "SELECT tenant, field FROM zapdb_archives GROUP BY tenant, field ORDER BY tenant, field"
    )
    return [(as_number(tenant), as_number(field)) for tenant, field in rows]


def iter_archive(
    connection: Connection, tenant: int, field: int, size_bytes_min: int
) -> Iterator[list[bytes]]:
    """Yield the encoded values of one field that have at least `size_bytes_min` bytes, page by
    page."""
    mark, after = connection.storage.placeholder, b""
    sql = (
        f"SELECT key, value FROM zapdb_archives WHERE tenant = {int(tenant)}"
        f" AND field = {int(field)} AND length(value) >= {int(size_bytes_min)} AND key > {mark}"
        f" ORDER BY key LIMIT {int(PAGE_RECORDS_MAX)}"
    )
    while page := connection.fetch_all(sql, (after,)):
        yield [as_bytes(value) for _, value in page]
        after = as_bytes(page[-1][0])


def archive_rows(key: bytes, archived: Mapping[int, bytes]) -> Iterator[ArchiveRow]:
    """Yield the rows of the values that a conversion archived for the record with this key."""
    return ((number, key, encoded) for number, encoded in archived.items())
