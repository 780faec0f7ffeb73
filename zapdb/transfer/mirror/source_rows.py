"""What a mirror reads of the database: the tables, records by their keys, pages of columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from zapdb.activation import TableDescriptor, TenantCatalog
from zapdb.catalog.schema_history import read_entries
from zapdb.database import Database, Snapshot, Table
from zapdb.log.change_log import ChangeLog
from zapdb.log.incarnations import FIRST_NUMBER_SQL
from zapdb.log.stamps import LogSnapshot
from zapdb.records import Record
from zapdb.schema import TableSchema
from zapdb.storage import Connection
from zapdb.storage.cells import as_bytes
from zapdb.tables.bulk import KEYS_PER_STATEMENT
from zapdb.tables.indexes import BoundTable
from zapdb.transfer.export.snapshots import read_catalog
from zapdb.transfer.mirror.batch import TableChanges, name_key, rows_of, take_keys
from zapdb.transfer.mirror.state import MirroredTable, MirrorState, save_table
from zapdb.transfer.mirror.target import TargetSession
from zapdb.transfer.plain_tables import PlainTable, plan_plain_table

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


def read_log_snapshot(snap: Snapshot) -> LogSnapshot:
    """Which transactions a snapshot sees."""
    session = snap._session
    with session.connected() as connection:
        if session.storage.dialect.name == "postgresql":
            sql = f"SELECT pg_current_snapshot()::text, {FIRST_NUMBER_SQL}"
            return LogSnapshot.here(*connection.fetch_one(sql))
        newest = ChangeLog(session.storage, session.catalog.tenant).read_newest(connection)
        return LogSnapshot(newest + 1, ())


class SchemaMoved(Exception):
    """The table has another schema than its mirror: that is followed first."""


@dataclass(frozen=True, slots=True)
class SnapshotTable:
    """A table in a snapshot, with the schema that the mirror has of it."""

    table: Table
    schema: TableSchema


@contextmanager
def reading_table(db: Database, mirrored: MirroredTable) -> Iterator[SnapshotTable]:
    """A table as of one moment; raises `SchemaMoved`."""
    with db.snapshot() as snap:
        yield find_table(snap, mirrored)


def find_table(snap: Snapshot, mirrored: MirroredTable) -> SnapshotTable:
    snap._session.reload()
    found = list_mirrored(read_catalog(snap._session)).get(mirrored.number)
    if found is None or found.revision != mirrored.revision:
        raise SchemaMoved
    return SnapshotTable(snap.table(found.schema.name), found.schema)


def plan_of(schema: TableSchema, session: TargetSession, mirrored: MirroredTable) -> PlainTable:
    return plan_plain_table(schema, session.engine, mirrored.long)


def fill_page(
    db: Database, session: TargetSession, state: MirrorState, mirrored: MirroredTable
) -> None:
    """Fill the next rows of columns that get their values anew.

    A row that changes meanwhile is written whole when its change has its turn.
    """
    filling = mirrored.filling
    assert filling is not None
    with reading_table(db, mirrored) as source:
        page = read_page(source.table, filling.after, session.page_rows)
        plain = plan_of(source.schema, session, mirrored)
        rows = list(rows_of((record for _, record in page), plain, mirrored.number))
    if rows:
        session.update(mirrored.name, plain, filling.columns, rows)
    is_done = len(page) < session.page_rows
    left = None if is_done else replace(filling, after=page[-1][0])
    save_table(session, state, replace(mirrored, filling=left))


@dataclass(frozen=True, slots=True)
class NewRows:
    """What becomes of rows: the keys that are deleted, the records that are inserted after that,
    and how many of the keys are there now."""

    plain: PlainTable
    keys: list[tuple[object, ...]]
    records: list[Record]
    there: int


def take_changes(
    db: Database,
    session: TargetSession,
    mirrored: MirroredTable,
    schema: TableSchema,
    changes: TableChanges,
) -> NewRows:
    """What a batch makes of one table; raises `SchemaMoved`.

    Records of older revisions are read as they are now, so rows may be newer than the batch.
    """
    found: list[KeyedRecord] = []
    if changes.older:
        with reading_table(db, mirrored) as source:
            found = list(read_keyed(source.table, list(changes.older)))
    plain = plan_of(schema, session, mirrored)
    changed = [name_key(schema, key) for key in changes.older.values()]
    changed += [change.record for change in changes.rows.values()]
    keys = list(take_keys(changed, plain, mirrored.number))
    records = [record for _, record in found]
    records += [change.record for change in changes.rows.values() if change.is_there]
    return NewRows(plain, keys, records, sum(c.was_there for c in changes.rows.values()))
