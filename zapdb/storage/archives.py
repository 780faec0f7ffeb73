"""The archive: values of dropped fields, kept by the keys of their records (rule 19).

One row per record and cell, which is what a field is until a migration computes its values anew:
the value's encoding, or nothing for a null. A conversion that crosses the drop of a field writes
its row in the transaction that writes the record. Rows are deleted with their record, whatever
cells they are of. A rollback and `restore_field` leave the rows in place, because concurrent
readers of the stale record need them, too. They are deleted together when no record of the table is
stale; until then, another conversion across the drop overwrites them.
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
"""Cell, record key, value encoding."""


class ArchiveStatements:
    """The statements on the archived values of one table of one tenant; `archived` are the cells
    that its migrations archive."""

    def __init__(self, records: RecordStatements, archived: Collection[int]) -> None:
        self._archived = archived
        self._records = records
        mark, place = records.storage.placeholder, (records.tenant, records.number)
        self._mine = of_table(*place)
        self._insert_sql = (
            f"INSERT INTO zapdb_archives (tenant, table_number, cell, key, value)"
            f" VALUES ({place[0]}, {place[1]}, {mark}, {mark}, {mark})"
            " ON CONFLICT (tenant, table_number, key, cell) DO UPDATE SET value = excluded.value"
        )
        self._consume_sql = (
            f"DELETE FROM zapdb_archives WHERE {self._mine} AND cell = {mark} AND key = {mark}"
        )

    @cached_property
    def is_used(self) -> bool:
        """Whether the table may have archived values, which takes a look at all migrations to
        tell."""
        return bool(self._archived)

    @cached_property
    def _load_sql(self) -> str:
        # One statement reads as of one moment, so the archived values belong to the record that it
        # reads.
        records, mark = self._records, self._records.storage.placeholder
        return (
            f"SELECT cell, value FROM zapdb_archives WHERE {self._mine} AND key = {mark}"
            f" UNION ALL SELECT NULL, value FROM {records.name}"
            f" WHERE tenant = {records.tenant} AND key = {mark}"
        )

    def insert(self, connection: Connection, rows: Iterable[ArchiveRow]) -> None:
        """Keep values, in the place of older ones, in the transaction that writes the records."""
        rows = list(rows)
        if rows:
            connection.send_many(self._insert_sql, rows)

    def consume(self, connection: Connection, rows: Iterable[tuple[int, bytes]]) -> None:
        """Delete values that were restored, by cell and record key."""
        rows = list(rows)
        if rows:
            connection.run_many(self._consume_sql, rows)

    def delete_many(self, connection: Connection, keys: Sequence[bytes]) -> None:
        """Delete the archived values of records that are deleted."""
        if self.is_used:
            delete_archives_of(connection, self._records, keys)

    def load(self, connection: Connection, key: bytes) -> tuple[bytes | None, dict[int, bytes]]:
        """Return a record, or None if it does not exist, and its archived values by cell."""
        rows = connection.fetch_all(self._load_sql, (key, key))
        record = next((as_bytes(value) for cell, value in rows if cell is None), None)
        return record, {as_number(at): as_bytes(value) for at, value in rows if at is not None}

    def load_many(
        self, connection: Connection, keys: Sequence[bytes]
    ) -> dict[bytes, dict[int, bytes]]:
        """Return the archived values of several records, by key and cell."""
        found: dict[bytes, dict[int, bytes]] = {}
        if not self.is_used:
            return found
        sql = f"SELECT key, cell, value FROM zapdb_archives WHERE {self._mine} AND key IN"
        for some, marks in _portions(self._records, keys):
            for key, cell, value in connection.fetch_all(f"{sql} ({marks})", some):
                found.setdefault(as_bytes(key), {})[as_number(cell)] = as_bytes(value)
        return found

    def open(self, key: bytes, value: bytes) -> StoredArchive:
        """Return the archive of a record that has been read; it is loaded only if it is needed."""
        return StoredArchive(self, self._records, key, value)


def _portions(
    records: RecordStatements, keys: Sequence[bytes]
) -> Iterator[tuple[Sequence[bytes], str]]:
    """The keys in portions for one statement each, with the marks for them."""
    mark = records.storage.placeholder
    for start in range(0, len(keys), _KEYS_PER_STATEMENT):
        some = keys[start : start + _KEYS_PER_STATEMENT]
        yield some, ", ".join([mark] * len(some))


def of_table(tenant: int, table: int) -> str:
    """The condition for the archived values of a tenant's table."""
    return f"tenant = {int(tenant)} AND table_number = {int(table)}"


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


def delete_archives_of(
    connection: Connection, records: RecordStatements, keys: Sequence[bytes]
) -> None:
    """Delete the archived values of some records, whatever their cells."""
    mine = of_table(records.tenant, records.number)
    for some, marks in _portions(records, keys):
        connection.run(f"DELETE FROM zapdb_archives WHERE {mine} AND key IN ({marks})", some)


def delete_archives(
    connection: Connection,
    tenant: int,
    table: int,
    cells: Collection[int],
    after: bytes = b"",
    limit: int = PAGE_RECORDS_MAX,
) -> tuple[int, bytes | None]:
    """Delete some archived values of these cells, of records with keys from `after` on; returns how
    many, and the key from which others may follow, None if there are no others."""
    if not cells:
        return 0, None
    mark, mine = connection.storage.placeholder, of_table(tenant, table)
    rows = connection.fetch_all(
        f"SELECT key, cell FROM zapdb_archives WHERE {mine} AND key >= {mark}"
        f" AND cell IN ({', '.join(map(str, map(int, cells)))}) ORDER BY key LIMIT {int(limit)}",
        (after,),
    )
    connection.run_many(
        f"DELETE FROM zapdb_archives WHERE {mine} AND key = {mark} AND cell = {mark}", rows
    )
    return len(rows), as_bytes(rows[-1][0]) if len(rows) == limit else None


def take_archived_of(
    connection: Connection,
    tenant: int,
    table: int,
    key: bytes,
    cells: Collection[int] | None = None,
) -> list[tuple[int, bytes]]:
    """Delete the archived values of one record, or those of some cells, and return them by cell."""
    mark = connection.storage.placeholder
    of = f"{of_table(tenant, table)} AND key = {mark}"
    rows = connection.fetch_all(f"SELECT cell, value FROM zapdb_archives WHERE {of}", (key,))
    found = [(as_number(cell), as_bytes(value)) for cell, value in rows]
    if cells is not None:
        found = [one for one in found if one[0] in cells]
    connection.run_many(
        f"DELETE FROM zapdb_archives WHERE {of} AND cell = {mark}",
        [(key, cell) for cell, _ in found],
    )
    return found


def count_archives(connection: Connection, tenant: int) -> dict[int, dict[int, int]]:
    """Return the number of archived values, by table and cell."""
    rows = connection.fetch_all(
        "SELECT table_number, cell, count(*) FROM zapdb_archives"
        f" WHERE tenant = {int(tenant)} GROUP BY table_number, cell ORDER BY table_number, cell"
    )
    found: dict[int, dict[int, int]] = {}
    for table, cell, count in rows:
        found.setdefault(as_number(table), {})[as_number(cell)] = as_number(count)
    return found


def has_archived(connection: Connection, cells: Collection[int]) -> bool:
    """Whether values of one of these cells are archived, of any tenant."""
    if not cells:
        return False
    found = connection.fetch_one(
        f"SELECT 1 FROM zapdb_archives WHERE cell IN ({', '.join(map(str, map(int, cells)))})"
        " LIMIT 1"
    )
    return found is not None


def count_unowned(connection: Connection, records: RecordStatements) -> int:
    """Return the number of a table's archived values whose records do not exist."""
    (count,) = connection.fetch_one(
        "SELECT count(*) FROM zapdb_archives AS a"
        f" WHERE {of_table(records.tenant, records.number)}"
        f" AND NOT EXISTS (SELECT 1 FROM {records.name} AS r"
        f" WHERE r.tenant = {records.tenant} AND r.key = a.key)"
    )
    return as_number(count)


def iter_archives(
    connection: Connection, size_bytes_min: int
) -> Iterator[list[tuple[int, int, bytes]]]:
    """Yield (tenant, cell, encoded value) of all archived values that have at least
    `size_bytes_min` bytes, page by page."""
    mark = connection.storage.placeholder
    place = (0, 0, b"", 0)
    sql = (
        "SELECT tenant, table_number, key, cell, value FROM zapdb_archives"
        f" WHERE (tenant, table_number, key, cell) > ({mark}, {mark}, {mark}, {mark})"
        f" AND length(value) >= {int(size_bytes_min)}"
        f" ORDER BY tenant, table_number, key, cell LIMIT {int(PAGE_RECORDS_MAX)}"
    )
    while page := connection.fetch_all(sql, place):
        found = [
            ((as_number(tenant), as_number(table), as_bytes(key), as_number(cell)), as_bytes(value))
            for tenant, table, key, cell, value in page
        ]
        yield [(tenant, cell, value) for (tenant, _, _, cell), value in found]
        place, _ = found[-1]


def archive_rows(key: bytes, archived: Mapping[int, bytes]) -> Iterator[ArchiveRow]:
    """Yield the rows of the values that a conversion archived for the record with this key."""
    return ((number, key, encoded) for number, encoded in archived.items())
