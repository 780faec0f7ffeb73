"""Converting stale records to the layout of now, from wherever they are in the tree of
migrations."""

from __future__ import annotations

from typing import Any

from zapdb.activation.tenant_catalog import TenantCatalog
from zapdb.catalog.range_revisions import (
    forget_range_revisions,
    note_range_revision,
    note_table_revision,
)
from zapdb.catalog.row_kinds import Job
from zapdb.jobs.archive_pruning import sweep_archives, sweep_chain_state
from zapdb.jobs.work import Findings, Superseded, Work, find_active_table
from zapdb.storage import Connection, Storage
from zapdb.tables.indexes import BoundTable
from zapdb.tables.writes import BatchConversion, convert_records, plan_conversions


class ConvertWork(Work):
    """Stale records get the current layout. Index entries stay as they are (rule 20)."""

    skips_locked = True

    def __init__(self, storage: Storage, catalog: TenantCatalog, job: Job) -> None:
        super().__init__(storage, catalog, job)
        descriptor = find_active_table(catalog, job)
        if descriptor.current.since != job.target:
            raise Superseded
        self.current = descriptor.current
        self.bound = BoundTable(storage, catalog, descriptor)
        reader = self.bound.reader
        self.conversion = BatchConversion(reader.convert, reader.convert_rows)

    @property
    def condition(self) -> tuple[str, list[Any]]:
        condition, parameters = self.current.stale_sql(self.storage.placeholder)
        return condition, list(parameters)

    def count_left(self, connection: Connection) -> int:
        return self.count_stale(connection)

    def begin_anew(self, connection: Connection) -> None:
        """Somebody may have restored records beside zapdb."""
        forget_range_revisions(connection, self.job.tenant, self.job.table)

    def finish(self) -> Findings:
        """Readers need not know: each record tells its own revision."""
        return ()

    def note_reached(self, connection: Connection) -> None:
        note_table_revision(connection, self.job.tenant, self.job.table, self.current.first)

    def clean_up(self) -> None:
        """Archived values of the conversions that are over."""
        sweep_archives(self.storage, self.job.tenant)
        sweep_chain_state(self.storage)

    def note_done(self, connection: Connection, lower: bytes | None, upper: bytes | None) -> None:
        bounds = lower, upper
        first = self.current.first
        note_range_revision(connection, self.job.tenant, self.job.table, bounds, first)

    def write(self, connection: Connection, batch: list[tuple[bytes, bytes]], number: int) -> int:
        return convert_records(connection, self.bound, batch, self.conversion)

    def try_to_read(self, connection: Connection, place: bytes, value: bytes) -> None:
        archive = self.bound.archives.load_many(connection, [place])
        for _ in plan_conversions(self.bound, [(place, value)], archive, self.conversion):
            pass  # what is planned is not executed
