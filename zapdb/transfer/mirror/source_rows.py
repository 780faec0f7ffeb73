"""What a mirror reads of the database: the tables, and records by their keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from zapdb.activation import TableDescriptor, TenantCatalog
from zapdb.catalog.schema_history import read_entries
from zapdb.database import Snapshot, Table
from zapdb.log.change_log import ChangeLog
from zapdb.log.incarnations import FIRST_NUMBER_SQL
from zapdb.log.stamps import LogSnapshot
from zapdb.records import Record
from zapdb.schema import TableSchema
from zapdb.storage import Connection
from zapdb.storage.cells import as_bytes
from zapdb.tables.bulk import KEYS_PER_STATEMENT
from zapdb.tables.indexes import BoundTable

KeyedRecord = tuple[bytes, Record]


def list_mirrored(catalog: TenantCatalog) -> dict[int, TableDescriptor]:
    """The tables whose changes are in the change log, by number."""
    return {d.schema.number: d for d in catalog.tables.values() if d.logs_changes}


def read_former_schema(
    connection: Connection, tenant: int, table: int, revision: int
) -> TableSchema | None:
    """A table's schema at a revision; None if the history does not have it."""
    entries = read_entries(connection, tenant, table)
    return next((entry.schema for entry in entries if entry.revision == revision), None)


def read_page(table: Table, after: bytes, limit: int) -> list[KeyedRecord]:
    """Up to so many records behind a key, in the order of the keys."""

    def fetch(connection: Connection, bound: BoundTable) -> tuple[int, list[tuple[bytes, bytes]]]:
        place = (after, after) if after else None
        version, rows = bound.records.page(connection, None, None, place, limit, descending=False)
        return version, [(key, value) for key, _, value in rows]

    bound, found = table._read_active(fetch)
    return [(key, bound.reader.read(key, value)) for key, value in found]


def read_keyed(table: Table, keys: Sequence[bytes]) -> Iterator[KeyedRecord]:
    """The records that have some of these keys."""
    for start in range(0, len(keys), KEYS_PER_STATEMENT):
        some = keys[start : start + KEYS_PER_STATEMENT]
        bound, found = table._read_active(partial(_fetch_some, some))
        for key, value in found.items():
            yield key, bound.reader.read(key, as_bytes(value))


def _fetch_some(
    keys: Sequence[bytes], connection: Connection, bound: BoundTable
) -> tuple[int | None, dict[bytes, bytes]]:
    return bound.records.find_many(connection, keys)


def read_baseline(snap: Snapshot) -> LogSnapshot:
    """Which transactions a snapshot sees."""
    session = snap._session
    with session.connected() as connection:
        if session.storage.dialect == "postgresql":
            sql = f"SELECT pg_current_snapshot()::text, {FIRST_NUMBER_SQL}"
            return LogSnapshot.here(*connection.fetch_one(sql))
        newest = ChangeLog(session.storage, session.catalog.tenant).read_newest(connection)
        return LogSnapshot(newest + 1, ())
