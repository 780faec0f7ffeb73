"""The sweep: find blobs that no record, archive or change owns, and delete them (rule 28).

Blobs are marked in slices of limited size, in the order of their ids, each slice in its own READ
snapshot. The sweep loads the ids of a slice, scans the records of all tables and tenants, and
removes the ids that these own. The blobs with the remaining ids are deleted afterwards, in short
transactions.

Writers do not wait for a sweep, and a sweep never deletes a blob that they need:

- A blob and the first record that owns it are stored in one transaction, so a snapshot shows both
  or neither. A blob that is being written is not in the slice.
- A blob that no record of the snapshot owns can't be owned later. Only records, and the change log
  with their earlier versions, contain its id. A writer takes ids only from the version that it
  replaces, which it locks, compares or reads serializably; so do conversions.
- The database keeps the blobs that an older snapshot still reads.

The age is an additional margin for clocks that differ, and for readers that have read a record and
are about to load its blob. A record that can't be read may own any blob, so it ends the sweep. The
change log's copy of one that was discarded owns those that can be found in it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from zapdb.activation.record_layouts import load_layouts
from zapdb.catalog.schema_history import read_entries
from zapdb.errors import UsageError
from zapdb.limits import (
    CATALOG,
    PAGE_RECORDS_MAX,
    SWEEP_AGE_SECONDS,
    SWEEP_BATCH_BLOBS,
    SWEEP_SLICE_BLOBS,
)
from zapdb.log.pending_changes import iter_changes
from zapdb.records import OwnedBlobs
from zapdb.records.archive_cells import decode_archive, large_fields, list_archived_blobs
from zapdb.schema import Field
from zapdb.storage import BlobStatements, Connection, MissingTable, Storage, TransactionMode
from zapdb.storage.archives import iter_archives
from zapdb.storage.cells import as_bytes
from zapdb.storage.data_tables import list_record_tables, list_tenants_with_records
from zapdb.storage.identifiers import first_id_at_ms
from zapdb.storage.record_statements import RecordStatements
from zapdb.storage.retries import retry
from zapdb.values.blob import REFERENCE_SIZE_BYTES_MIN, is_blob, read_blob


@dataclass(frozen=True, slots=True)
class SweepReport:
    """`blobs` were old enough to be checked; of these, `unowned` belong to no record."""

    blobs: int
    unowned: int
    unowned_bytes: int
    deleted: int
    seconds: float


@dataclass(frozen=True, slots=True)
class SweepSlice:
    """One slice: the number of its blobs, the last id, and the sizes of the unowned blobs by id."""

    blobs: int
    last: bytes
    unowned: dict[bytes, int]


def sweep_blobs(
    storage: Storage,
    *,
    older_than_seconds: float = SWEEP_AGE_SECONDS,
    dry_run: bool = False,
) -> SweepReport:
    """Delete the blobs without an owner that are older than the age; safe to interrupt.

    With `dry_run` they are only counted. Raises `CorruptRecord` or `CorruptCatalog` if a record
    can't be read, and deletes nothing more.
    """
    if not 0 <= older_than_seconds < float("inf"):
        raise UsageError("an age cannot be negative", older_than_seconds=older_than_seconds)
    started = time.perf_counter()
    age_ms = int(older_than_seconds * 1000)
    now_ms = storage.now_us(storage.connection()) // 1000
    # Blobs of this millisecond are included, so with age 0 every existing blob is old enough.
    before = first_id_at_ms(max(0, now_ms - age_ms + 1))
    blobs = unowned = unowned_bytes = deleted = 0
    after = b""
    while (marked := _mark_in_snapshot(storage, after, before)) is not None:
        blobs += marked.blobs
        unowned += len(marked.unowned)
        unowned_bytes += sum(marked.unowned.values())
        if not dry_run:
            deleted += delete_blobs(storage, list(marked.unowned))
        after = marked.last
    seconds = time.perf_counter() - started
    return SweepReport(blobs, unowned, unowned_bytes, deleted, seconds)


def count_blobs(connection: Connection) -> tuple[int, int]:
    """Return the number of blobs, and how many of them have no owner, as of one snapshot."""
    blobs = unowned = 0
    after = b""
    while (marked := mark_slice(connection, after, None)) is not None:
        blobs += marked.blobs
        unowned += len(marked.unowned)
        after = marked.last
    return blobs, unowned


def _mark_in_snapshot(storage: Storage, after: bytes, before: bytes) -> SweepSlice | None:
    def mark_once() -> SweepSlice | None:
        with storage.transaction(TransactionMode.READ) as connection:
            return mark_slice(connection, after, before)

    # A retired table may be dropped during the scan: it had no records.
    return retry(CATALOG, mark_once, on=MissingTable)


def mark_slice(connection: Connection, after: bytes, before: bytes | None) -> SweepSlice | None:
    """Return the next slice of blobs after the id `after`; None if there is none below `before`."""
    table = BlobStatements(connection.storage)
    ids = table.page_ids(connection, after, before, SWEEP_SLICE_BLOBS)
    if not ids:
        return None
    left = set(ids)
    for owned in _iter_owned(connection):
        left.difference_update(owned)
        if not left:
            break
    sizes = {made: table.measure(connection, made)[0] for made in sorted(left)}
    return SweepSlice(len(ids), ids[-1], sizes)


def delete_blobs(storage: Storage, ids: list[bytes]) -> int:
    """Delete blobs in short transactions, in the given order; returns how many existed."""
    table, deleted = BlobStatements(storage), 0
    for start in range(0, len(ids), SWEEP_BATCH_BLOBS):
        with storage.transaction(TransactionMode.CATALOG) as connection:
            batch = ids[start : start + SWEEP_BATCH_BLOBS]
            deleted += sum(table.delete(connection, made) for made in batch)
    return deleted


def _iter_owned(connection: Connection) -> Iterator[list[bytes]]:
    """Yield, page by page, the ids that records, archives and the change log of all tables and
    tenants own."""
    yield from _iter_archives(connection)
    yield from _iter_changes(connection)
    yield from _iter_archives_of_changes(connection)
    for number in list_record_tables(connection):
        for tenant in list_tenants_with_records(connection, number):
            owned = OwnedBlobs(load_layouts(connection, tenant, number))
            if owned.are_possible:
                records = RecordStatements(connection.storage, number, tenant)
                yield from _iter_records(connection, records, owned)


class _LargeFields:
    """The fields of tenants whose values may be blobs, whatever became of them."""

    def __init__(self, connection: Connection) -> None:
        self._connection, self._found = connection, dict[int, dict[int, Field]]()
        self._small = dict[int, set[int]]()

    def of(self, tenant: int) -> dict[int, Field]:
        if tenant not in self._found:
            entries = read_entries(self._connection, tenant)
            schemas = [entry.schema for entry in entries]
            self._found[tenant] = large_fields(schemas)
            known = {f.cell for schema in schemas for f in schema.fields}
            self._small[tenant] = known - self._found[tenant].keys()
        return self._found[tenant]

    def may_be(self, tenant: int, cell: int) -> bool:
        """Whether a cell's values may be blobs: also those of a migration that was rolled back, and
        whose schema no table of the tenant ever had."""
        return cell in self.of(tenant) or cell not in self._small[tenant]


def _iter_archives(connection: Connection) -> Iterator[list[bytes]]:
    large = _LargeFields(connection)
    for page in iter_archives(connection, REFERENCE_SIZE_BYTES_MIN):
        yield [
            read_blob(encoded, 0)[0][0]
            for tenant, cell, encoded in page
            if large.may_be(tenant, cell) and is_blob(encoded)
        ]


def _iter_changes(connection: Connection) -> Iterator[list[bytes]]:
    """Yield the ids in the versions of records before and after their logged changes."""
    owners: dict[tuple[int, int], OwnedBlobs] = {}
    for page in iter_changes(connection, REFERENCE_SIZE_BYTES_MIN):
        found: list[bytes] = []
        for tenant, table, value in page:
            owned = owners.get((tenant, table))
            if owned is None:
                owned = OwnedBlobs(load_layouts(connection, tenant, table))
                owners[tenant, table] = owned
            if owned.are_possible:
                found += (made for made, _ in owned.find_logged(value))
        yield found


def _iter_archives_of_changes(connection: Connection) -> Iterator[list[bytes]]:
    """Yield the ids in the archived values before and after logged changes."""
    large = _LargeFields(connection)
    for page in iter_changes(connection, REFERENCE_SIZE_BYTES_MIN, archives=True):
        yield [
            made
            for tenant, _, packed in page
            for made in list_archived_blobs(decode_archive(packed), large.of(tenant))
        ]


def _iter_records(
    connection: Connection, records: RecordStatements, owned: OwnedBlobs
) -> Iterator[list[bytes]]:
    sql, after = records.large_page_sql, b""
    while True:
        page = connection.fetch_all(sql, (REFERENCE_SIZE_BYTES_MIN, after, PAGE_RECORDS_MAX))
        if not page:
            return
        yield [made for _, value in page for made, _ in owned.find(as_bytes(value))]
        after = as_bytes(page[-1][0])
