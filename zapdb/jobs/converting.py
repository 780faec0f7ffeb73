"""Converting records: stale ones forward, and those of a rolled back migration back."""

from __future__ import annotations

from typing import Any

from zapdb.activation.rollback import TableRollback, find_table_rollback, rollback_condition
from zapdb.activation.tenant_catalog import TenantCatalog
from zapdb.catalog.range_revisions import (
    forget_range_revisions,
    note_range_revision,
    note_table_revision,
)
from zapdb.catalog.row_kinds import Job
from zapdb.jobs.archive_pruning import sweep_archives
from zapdb.jobs.quarantine import count_quarantined
from zapdb.jobs.work import Findings, Superseded, Work, find_active_table
from zapdb.log.pending_changes import LoggedChange
from zapdb.records import Attachments, decode_prefix, encode_prefix
from zapdb.records.archive_cells import encode_archive
from zapdb.storage import Connection, Storage
from zapdb.storage.identifiers import make_uuid7
from zapdb.tables.indexes import BoundTable, make_reader
from zapdb.tables.writes import (
    BatchConversion,
    WritePlan,
    convert_records,
    execute,
    plan_conversions,
)


class ConvertWork(Work):
    """Stale records get the current layout. Index entries stay as they are (rule 20)."""

    skips_locked = True

    def __init__(self, storage: Storage, catalog: TenantCatalog, job: Job) -> None:
        super().__init__(storage, catalog, job)
        descriptor = find_active_table(catalog, job)
        if descriptor.layout_revision != job.target or catalog.rolling_back is not None:
            raise Superseded
        self.bound = BoundTable(storage, catalog, descriptor)
        reader = self.bound.reader
        self.conversion = BatchConversion(reader.convert, reader.convert_rows)

    @property
    def condition(self) -> tuple[str, list[Any]]:
        return f"value < {self.storage.placeholder}", [encode_prefix(self.job.target)]

    def count_left(self, connection: Connection) -> int:
        return self.count_stale(connection)

    def begin_anew(self, connection: Connection) -> None:
        """Somebody may have restored records beside zapdb."""
        forget_range_revisions(connection, self.job.tenant, self.job.table)

    def finish(self) -> Findings:
        """Readers need not know: each record tells its own revision."""
        return ()

    def note_reached(self, connection: Connection) -> None:
        note_table_revision(connection, self.job.tenant, self.job.table, self.job.target)

    def clean_up(self) -> None:
        """Archived values of the conversions that are over."""
        sweep_archives(self.storage, self.job.tenant)

    def note_done(self, connection: Connection, lower: bytes | None, upper: bytes | None) -> None:
        bounds = lower, upper
        note_range_revision(connection, self.job.tenant, self.job.table, bounds, self.job.target)

    def write(self, connection: Connection, batch: list[tuple[bytes, bytes]], number: int) -> int:
        return convert_records(connection, self.bound, batch, self.conversion)

    def try_to_read(self, connection: Connection, place: bytes, value: bytes) -> None:
        _try_to_convert(connection, self.bound, place, value, self.conversion)


class RollbackWork(Work):
    """Records of rolled back revisions go back to the layout before, or away with their table."""

    def __init__(self, storage: Storage, catalog: TenantCatalog, job: Job) -> None:
        super().__init__(storage, catalog, job)
        descriptor = find_active_table(catalog, job)
        self.descriptor = descriptor
        if catalog.rolling_back is None:
            raise Superseded
        self.rollback: TableRollback = find_table_rollback(catalog, job.table)
        self.bound = BoundTable(storage, catalog, descriptor)
        self.conversion: BatchConversion | None = None
        if self.rollback.revision is not None:
            position = catalog.rolling_back.number - 1
            reader = make_reader(storage, catalog, descriptor, position, self.rollback.revision)
            # Application writes are refused meanwhile, and no reader converts back. So only this
            # job needs the archived values that it consumes.
            find_change = self.find_change if descriptor.logs_changes else None
            table, number = self.job.table, catalog.rolling_back.number
            self.archived = [
                catalog.chain.table_at(at, table).archived_cells for at in (number, number - 1)
            ]
            plan = catalog.chain.conversion_plan(table, number - 1, number)
            before = catalog.chain.table_at(number - 1, table)
            self.is_known_back = plan.keeps_all({f.number for f in before.value_fields})
            self.conversion = BatchConversion(
                reader.convert, reader.convert_rows, find_change, consumes=True
            )

    @property
    def condition(self) -> tuple[str, list[Any]]:
        condition, parameters = rollback_condition(self.storage.placeholder, self.rollback)
        return condition, list(parameters)

    def count_left(self, connection: Connection) -> int:
        """A rollback counts for itself, under the gate, unless records are in the way."""
        if not count_quarantined(connection, self.job.id):
            return 0
        return self.count_stale(connection)

    def finish(self) -> Findings:
        """The rollback does, once all its tables are converted."""
        return ()

    def write(self, connection: Connection, batch: list[tuple[bytes, bytes]], number: int) -> int:
        if self.conversion is not None:
            return convert_records(connection, self.bound, batch, self.conversion)
        plan = WritePlan(self.bound, is_locked=True)
        for key, value in batch:
            plan.discard(key, value)
        execute(connection, plan)
        return len(batch)

    def try_to_read(self, connection: Connection, place: bytes, value: bytes) -> None:
        if self.conversion is not None:
            _try_to_convert(connection, self.bound, place, value, self.conversion)

    def find_change(
        self, key: bytes, old: bytes, new: bytes, attachments: Attachments
    ) -> LoggedChange | None:
        """Return what the change log keeps if the rollback loses something: if converting its
        result forwards again gives another record, or the migration itself has lost something, so
        that the log does not tell which records were converted before (rule 22)."""
        ongoing = self.catalog.rolling_back
        assert ongoing is not None  # else there is no such work
        number, table = ongoing.number, self.descriptor.schema.number
        forwards = self.catalog.chain.program(table, number - 1, number, self.catalog.zones)
        _, start = decode_prefix(old, 0)
        _, start_new = decode_prefix(new, 0)
        aside = Attachments(attachments.load, make_uuid7, _Kept(attachments))
        is_back = forwards.convert(key, new, start_new, old[:start], aside) == old
        if is_back and self.is_known_back:
            return None
        was = attachments.archive
        assert isinstance(was, dict), "the archives of a batch are loaded together"
        left = {n: v for n, v in was.items() if n not in attachments.restored}
        left |= attachments.archived
        before, after = (
            encode_archive({number: found[number] for number in archived & found.keys()})
            for archived, found in zip(self.archived, (was, left), strict=True)
        )
        return LoggedChange(old, new, before, after)


class _Kept:
    """The archive of a record that was rolled back: values that the rollback archived come
    first."""

    def __init__(self, attachments: Attachments) -> None:
        self._attachments = attachments

    def get(self, number: int, /) -> bytes | None:
        found = self._attachments.archived.get(number)
        return self._attachments.archive.get(number) if found is None else found


def _try_to_convert(
    connection: Connection, bound: BoundTable, key: bytes, value: bytes, conversion: BatchConversion
) -> None:
    """Plan the conversion of a record, which is not executed."""
    archive = bound.archives.load_many(connection, [key])
    for _ in plan_conversions(bound, [(key, value)], archive, conversion):
        pass
