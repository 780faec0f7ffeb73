"""Filling an index: from all records, or by rewriting its entries with other datasets."""

from __future__ import annotations

from typing import Any

from zapdb.activation import TenantCatalog, load_tenant_catalog
from zapdb.activation.activate import publish_index
from zapdb.catalog.row_kinds import ConstraintFinding, Job
from zapdb.jobs.findings import EXAMPLES_MAX
from zapdb.jobs.job import open_ranges
from zapdb.jobs.quarantine import count_quarantined, read_keys_between
from zapdb.jobs.work import Findings, Superseded, Work, find_active_table
from zapdb.limits import BATCH_RECORDS_MAX
from zapdb.storage import Connection, EntryStatements, OfHeld, Storage, TransactionMode
from zapdb.storage.cells import as_bytes
from zapdb.storage.entry_statements import unpack_entry
from zapdb.storage.statements import VALUES_PER_STATEMENT
from zapdb.tables.indexes import BoundTable, IndexMaintainer, find_collision, violations
from zapdb.tables.indexes.maintenance import EntryRow


class IndexWork(Work):
    """Make each record's entry from the record at its current schema.

    In a unique index, a record whose key is another's by then gets none. It is found at the end.
    """

    def __init__(self, storage: Storage, catalog: TenantCatalog, job: Job) -> None:
        super().__init__(storage, catalog, job)
        self.bound = BoundTable(storage, catalog, find_active_table(catalog, job))
        built = [index for index in self.bound.indexes if index.descriptor.build == job.target]
        if not built or built[0].is_built:
            raise Superseded
        self.index: IndexMaintainer = built[0]
        self.read = self.bound.index_reader.read

    @property
    def condition(self) -> tuple[str, list[Any]]:
        return "1 = 1", []

    def count_left(self, connection: Connection) -> int:
        (entries,) = connection.fetch_one(self.index.entries.count_sql)
        (count,) = connection.fetch_one(self.records.count_sql)
        if entries == count and count_quarantined(connection, self.job.id):
            return len(self.index.entries.list_missing(connection, 1))
        return int(count - entries)

    def find_obstacles(self, connection: Connection, *, is_last: bool) -> Findings:
        """The records that have no entry since their key of a unique index is another's.

        None if the ranges have to be gone through again: an entry is missing although its key is
        free, because the record that had the key has changed. After the last repetition
        (`is_last`), that is left to the next run.
        """
        index, examples = self.index, list[str]()
        if not index.descriptor.index.unique:
            return ()
        left_out = read_keys_between(connection, self.job.id, None, None)
        for key in index.entries.list_missing(connection, EXAMPLES_MAX + len(left_out)):
            if key in left_out:
                continue
            if len(examples) == EXAMPLES_MAX:
                break
            value = as_bytes(connection.fetch_one(self.records.get_sql, (key,))[0])
            record = self.read(key, value)
            found = find_collision(connection, index, key, record)
            if found is not None:
                examples.append(violations.describe_collision(self.bound, found, record))
            elif not is_last:
                return ()
        (entries,) = connection.fetch_one(index.entries.count_sql)
        (count,) = connection.fetch_one(self.records.count_sql)
        violating = int(count - entries) - len(left_out)
        if violating <= 0:
            return ()
        return (ConstraintFinding(f"index {index.name}", violating, tuple(examples)),)

    def finish(self) -> Findings:
        """The counted snapshot is enough: since the build began, every writer keeps the index."""
        with self.storage.transaction(TransactionMode.DDL) as connection:
            catalog = load_tenant_catalog(connection, self.job.tenant, self.catalog)
            for descriptor in catalog.all_tables:
                for index in descriptor.indexes:
                    if index.build == self.job.target:
                        if index.needs_build:  # else a twin was faster
                            publish_index(connection, catalog.tenant, descriptor.schema, index)
                        return ()
        raise Superseded

    def try_to_read(self, connection: Connection, place: bytes, value: bytes) -> None:
        self.index.list_entries([(place, self.read(place, value))])

    def write(self, connection: Connection, batch: list[tuple[bytes, bytes]], number: int) -> int:
        # In the order of their keys: of unique ones, workers wait for each other's.
        entries = self.index.list_entries([(key, self.read(key, value)) for key, value in batch])
        return self.index.entries.insert_absent(connection, sorted(entries))


class RewriteWork(IndexWork):
    """Replace entries that were made with other datasets one by one; leave all others alone.

    The job goes through the entries, not through the records. An old key can't be computed any
    more, but each entry names its record, and the right key follows from the record. Ranges and
    batches are of entries. An entry whose record is missing is left for the end: the record can't
    be locked, and the key may be the right one of a record that is just being inserted
    (decisions/0015).
    """

    def fetch(
        self,
        connection: Connection,
        lower: bytes | None,
        upper: bytes | None,
        limit: int,
        *,
        of_held: OfHeld,
    ) -> list[tuple[bytes, bytes]]:
        """Return entries in their order, with their records; nothing is locked."""
        return self.entries.walk(connection, lower, upper, limit)

    @property
    def entries(self) -> EntryStatements:
        return self.index.entries

    def tidy(self) -> None:
        """Remove orphans. Finding them takes looking for all records: they are looked for where
        there must be some."""
        with self.storage.transaction(TransactionMode.READ) as connection:
            if open_ranges(connection, self.job.id) or not self.count_left(connection):
                return
        remove_orphans(self.storage, self)

    def find_middle(
        self, connection: Connection, lower: bytes | None, upper: bytes | None, limit: int
    ) -> tuple[int, bytes | None]:
        return self.entries.find_middle(connection, lower, upper, limit)

    def record_key(self, place: bytes) -> bytes:
        return unpack_entry(place)[1]

    def try_to_read(self, connection: Connection, place: bytes, value: bytes) -> None:
        self._is_wrong(unpack_entry(place), value)

    def write(self, connection: Connection, batch: list[tuple[bytes, bytes]], number: int) -> int:
        suspects = [
            entry for place, value in batch if self._is_wrong(entry := unpack_entry(place), value)
        ]
        return self.replace(connection, suspects)

    def _is_wrong(self, entry: EntryRow, value: bytes) -> bool:
        return bool(value) and self._make_key(entry[1], value) != entry[0]

    def _make_key(self, record_key: bytes, value: bytes) -> bytes:
        return self.index.entry_key(self.read(record_key, value), record_key)

    def replace(
        self, connection: Connection, suspects: list[EntryRow], *, orphans: bool = False
    ) -> int:
        """Replace the entries of a batch that are wrong by now; their records are locked.

        With `orphans`, entries without a record are deleted, too: under the gate.
        """
        entries, values = self.entries, self._lock({record for _, record in suspects})
        wrong, right = list[EntryRow](), set[EntryRow]()
        for key, record_key in suspects:
            value = values.get(record_key)
            if value is None:
                if orphans:
                    wrong.append((key, record_key))
                continue
            made = self._make_key(record_key, value)
            if made != key:
                wrong.append((key, record_key))
                right.add((made, record_key))
        connection.run_many(entries.delete_sql, wrong)
        entries.insert_absent(connection, sorted(right))
        return len(wrong)

    def _lock(self, keys: set[bytes]) -> dict[bytes, bytes]:
        """The records with these keys as they are now, locked in the order of their keys."""
        connection, found = self.storage.connection(), dict[bytes, bytes]()
        ordered, mine = sorted(keys), f"tenant = {self.job.tenant}"
        for start in range(0, len(ordered), VALUES_PER_STATEMENT):
            some = ordered[start : start + VALUES_PER_STATEMENT]
            marks = ", ".join([self.storage.placeholder] * len(some))
            found |= self.storage.dialect.lock_records(
                connection,
                self.records.name,
                f"{mine} AND key IN ({marks})",
                some,
                len(some),
                of_held="wait",
            )
        return found


def open_index_work(storage: Storage, catalog: TenantCatalog, job: Job) -> IndexWork:
    """The work of a job that builds an index, or rewrites its entries."""
    indexes = find_active_table(catalog, job).indexes
    rewriting = (index.build for index in indexes if index.state == "rewriting")
    kind = RewriteWork if job.target in rewriting else IndexWork
    return kind(storage, catalog, job)


def remove_orphans(storage: Storage, work: RewriteWork) -> int:
    """Delete the entries that writers left behind when they deleted records; returns how many.

    The writers could not compute the old key. Such a record may have been inserted again since:
    then it also has its right entry, as all records have once every entry was checked. So one
    snapshot shows all orphans, and no new ones arise. Raises `Superseded`.
    """
    removed = 0
    while True:
        with storage.transaction(TransactionMode.READ) as connection:
            orphans = work.entries.list_orphans(connection, BATCH_RECORDS_MAX)
        if not orphans:
            return removed
        # The gate is held exclusively, so no writer inserts one of these records meanwhile.
        with storage.transaction(TransactionMode.DDL) as connection:
            catalog = load_tenant_catalog(connection, work.job.tenant, work.catalog)
            if catalog is not work.catalog:
                renewed = open_index_work(storage, catalog, work.job)
                if not isinstance(renewed, RewriteWork):
                    raise Superseded
                work = renewed
            found = work.replace(connection, orphans, orphans=True)
        if not found:  # each of these records has one entry by now
            return removed
        removed += found
