"""Repair of index entries: missing ones are made anew, and those that no record has are removed.

What is wrong is found page by page, in snapshots that hold up nobody. It is looked at again, and
repaired, while all writers are kept out, some hundred entries at a time: so what a writer has just
changed is never taken for a fault. Wrong entries go first, since they may hold a unique key.

The rows from which the active schema is loaded are made anew of the stored migrations, which their
digests vouch for: all at once, under the gate.

Nothing is repaired that is not understood: records that can't be read and their entries, indexes
that this process can't read, unique keys that two records have. Records and large values are never
changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from zapdb.activation import TenantCatalog, load_tenant_catalog
from zapdb.catalog.stored_migrations import (
    list_stored,
    pair_stored,
    read_chain,
    read_chain_state,
)
from zapdb.catalog.stored_schemas import StoredSchema, check_schemas, rebuild_schemas
from zapdb.errors import CorruptCatalog, CorruptionError, UnknownZone
from zapdb.jobs.exclusive import ExclusiveWork, ProgressReporter, working_on
from zapdb.limits import BATCH_RECORDS_MAX, PAGE_RECORDS_MAX, VIOLATIONS_SHOWN_MAX
from zapdb.storage import Connection, Storage, TransactionMode
from zapdb.storage.cells import as_bytes
from zapdb.storage.entry_statements import unpack_entry
from zapdb.storage.statements import fetch_in, raise_catalog_version
from zapdb.tables.indexes import BoundTable, IndexMaintainer

Row = tuple[bytes, bytes]
"""An entry: its key, and its record's."""
Found = tuple[list[Row], bytes, int, int]
"""What is wrong in one page, the place of its last row, which is empty if there is none, and how
many rows and bytes it has."""
Find = Callable[[Connection, BoundTable, IndexMaintainer, bytes | None], Found]
"""(…, after) → the next page."""


def repair_schemas(storage: Storage, *, dry_run: bool = False) -> bool:
    """Make the rows of zapdb_schemas anew if they are not what the stored migrations make; returns
    whether they are not. Raises `CorruptCatalog` if the migrations themselves are damaged."""
    with storage.transaction(TransactionMode.READ) as connection:
        if _are_schemas_intact(connection):
            return False
    if dry_run:
        return True
    with storage.transaction(TransactionMode.DDL) as connection:
        rebuild_schemas(connection, _read_stored(connection))
        raise_catalog_version(connection)
    return True


def _read_stored(connection: Connection) -> list[StoredSchema]:
    stored = list_stored(connection, read_chain_state(connection))
    return pair_stored(stored, read_chain(stored))


def _are_schemas_intact(connection: Connection) -> bool:
    stored = _read_stored(connection)
    try:
        check_schemas(connection, stored)
    except CorruptCatalog:
        return False
    return True


@dataclass(slots=True)
class IndexRepair:
    """What was found wrong in an index, and repaired unless it was a dry run.

    `missing` is how many records had no entry, and `wrong` how many entries no record has.
    `refused` says what is left as it is, and why: the first ones of `refused_count`.
    """

    table: str
    index: str
    missing: int = 0
    wrong: int = 0
    refused_count: int = 0
    refused: list[str] = field(default_factory=list)

    def refuse(self, text: str) -> None:
        self.refused_count += 1
        if len(self.refused) < VIOLATIONS_SHOWN_MAX:
            self.refused.append(text)


SUBJECT: Final = "index entries"
"""What the job of a repair is about."""

Note = Callable[[int, int, int], object]
"""Is called after each page with how many rows were read, how many entries were repaired, and how
many bytes the rows have."""


def repair_indexes(
    storage: Storage,
    tenant: int,
    *,
    dry_run: bool = False,
    on_wait: Callable[[str], object] = lambda _: None,
) -> list[IndexRepair]:
    """Repair the entries of all readable indexes of a tenant; with `dry_run`, only look.

    Returns a report for each index that has something wrong. Safe beside readers and writers, and
    when it is ended anywhere; what is right is not touched. A repair is a job, and `on_wait` is
    called with the reason while it is held back; a dry run is none. Raises `UsageError` for a
    database that was opened read-only, `LeaseHeld` while another process repairs, and `JobError` if
    the job is cancelled.
    """
    if dry_run:
        return _repair_all(storage, tenant, ProgressReporter().note, dry_run=True)
    storage.require_writable()
    with working_on(storage, ExclusiveWork("repair", tenant, SUBJECT), on_wait) as job:
        return _repair_all(storage, tenant, job.note, dry_run=False)


def _repair_all(storage: Storage, tenant: int, note: Note, *, dry_run: bool) -> list[IndexRepair]:
    with storage.transaction(TransactionMode.READ) as connection:
        catalog = load_tenant_catalog(connection, tenant)
    reports = []
    for descriptor in catalog.all_tables:
        for index in descriptor.indexes:
            repair = _Repair(storage, catalog, descriptor.schema.number, index.index.number)
            repair.note = note
            report = repair.run(dry_run=dry_run)
            if report is not None and (report.missing or report.wrong or report.refused_count):
                reports.append(report)
    return reports


class _Repair:
    """The repair of one index."""

    def __init__(self, storage: Storage, catalog: TenantCatalog, table: int, index: int) -> None:
        self._storage = storage
        self._catalog = catalog
        self._table = table
        self._index = index
        self.note: Note = ProgressReporter().note

    def run(self, *, dry_run: bool) -> IndexRepair | None:
        """Repair it; None where it can't be read, or was dropped."""
        bound = self._bind(self._catalog)
        if bound is None:
            return None
        report = IndexRepair(bound[0].schema.name, bound[1].name)
        for wrong in self._find(_find_wrong):
            removed = len(wrong) if dry_run else self._remove(wrong)
            report.wrong += removed
            self.note(0, removed, 0)
        for missing in self._find(_find_missing):
            if dry_run:
                report.missing += len(missing)
            else:
                before = report.missing
                self._add(missing, report)
                self.note(0, report.missing - before, 0)
        return report

    def _bind(self, catalog: TenantCatalog) -> tuple[BoundTable, IndexMaintainer] | None:
        descriptor = catalog.find_numbered(self._table)
        if descriptor is None:
            return None
        bound = BoundTable(self._storage, catalog, descriptor)
        for index in bound.indexes:
            if index.descriptor.index.number == self._index and index.is_readable:
                return bound, index
        return None

    def _bind_now(self, connection: Connection) -> tuple[BoundTable, IndexMaintainer] | None:
        known = self._catalog
        self._catalog = load_tenant_catalog(connection, known.tenant, known)
        return self._bind(self._catalog)

    def _find(self, find: Find) -> Iterator[list[Row]]:
        """What is wrong, in batches; each page is read in a snapshot of its own."""
        after: bytes | None = None
        is_over = False
        while not is_over:
            with self._storage.transaction(TransactionMode.READ) as connection:
                bound = self._bind_now(connection)
                found, last, read, size = (
                    ([], b"", 0, 0) if bound is None else find(connection, *bound, after)
                )
            self.note(read, 0, size)
            for at in range(0, len(found), BATCH_RECORDS_MAX):
                yield found[at : at + BATCH_RECORDS_MAX]
            after, is_over = last, not last

    def _remove(self, rows: Sequence[Row]) -> int:
        """Delete those of these entries that no record has; returns how many."""
        with self._storage.transaction(TransactionMode.DDL) as connection:
            bound = self._bind_now(connection)
            if bound is None:
                return 0
            table, index = bound
            stored = _read_values(connection, table, [record for _, record in rows])
            wrong = [
                (key, record)
                for key, record in index.entries.find_entries(connection, rows)
                if _is_wrong(table, index, key, record, stored.get(record))
            ]
            index.entries.delete_many(connection, wrong)
            return len(wrong)

    def _add(self, rows: Sequence[Row], report: IndexRepair) -> None:
        """Insert those of these entries that their records lack."""
        with self._storage.transaction(TransactionMode.DDL) as connection:
            bound = self._bind_now(connection)
            if bound is None:
                return
            table, index = bound
            stored = _read_values(connection, table, [record for _, record in rows])
            entries = [
                (key, record)
                for record, value in stored.items()
                if (key := _entry_key(table, index, record, value)) is not None
            ]
            present = index.entries.find_entries(connection, entries)
            for entry in sorted(set(entries) - present):
                taken = index.descriptor.index.unique and index.find_collision(connection, [entry])
                if taken:
                    report.refuse(
                        f"record {entry[1].hex()[:32]}: record {taken.owner.hex()[:32]} has the"
                        " same unique key; change or delete one of them"
                    )
                    continue
                index.add_entries(connection, [entry])
                report.missing += 1


def _find_missing(
    connection: Connection, bound: BoundTable, index: IndexMaintainer, after: bytes | None
) -> Found:
    """The entries that records of one page lack."""
    page = connection.fetch_all(bound.statements.page_sql, (after or b"", PAGE_RECORDS_MAX))
    rows = []
    for raw_key, raw_value in page:
        record = as_bytes(raw_key)
        key = _entry_key(bound, index, record, as_bytes(raw_value))
        if key is not None:
            rows.append((key, record))
    present = index.entries.find_entries(connection, rows)
    last = as_bytes(page[-1][0]) if page else b""
    return [row for row in rows if row not in present], last, len(page), _measure(page)


def _find_wrong(
    connection: Connection, bound: BoundTable, index: IndexMaintainer, after: bytes | None
) -> Found:
    """The entries of one page that no record has."""
    page = index.entries.walk(connection, after, None, PAGE_RECORDS_MAX)
    wrong = []
    for place, value in page:
        key, record = unpack_entry(place)
        if _is_wrong(bound, index, key, record, value or None):
            wrong.append((key, record))
    return wrong, page[-1][0] if page else b"", len(page), _measure(page)


def _measure(page: Sequence[tuple[bytes, bytes]]) -> int:
    return sum(len(key) + len(value or b"") for key, value in page)


def _is_wrong(
    bound: BoundTable, index: IndexMaintainer, key: bytes, record: bytes, value: bytes | None
) -> bool:
    """Whether a record has another entry than this, or is not there."""
    if value is None:
        return True
    right = _entry_key(bound, index, record, value)
    return right is not None and right != key


def _entry_key(
    bound: BoundTable, index: IndexMaintainer, record: bytes, value: bytes
) -> bytes | None:
    """The key of a record's entry; None for a record that can't be read."""
    try:
        return index.entry_key(bound.index_reader.read(record, value), record)
    except (CorruptionError, UnknownZone):
        return None


def _read_values(
    connection: Connection, bound: BoundTable, keys: Sequence[bytes]
) -> dict[bytes, bytes]:
    """The records with these keys that are there."""
    records = bound.statements
    sql = f"SELECT key, value FROM {records.name} WHERE tenant = {records.tenant} AND key IN"
    found = fetch_in(connection, sql, keys)
    return {as_bytes(key): as_bytes(value) for key, value in found}
