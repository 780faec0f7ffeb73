"""Count the work to do, and the effects of a rollback; nothing here changes anything."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from msgspec import structs

from zapdb.activation import TableDescriptor, TenantCatalog, load_tenant_catalog
from zapdb.activation.activate import find_kept
from zapdb.activation.descriptors import constraints_of
from zapdb.catalog.row_kinds import Job
from zapdb.catalog.stored_migrations import ChainPlace
from zapdb.catalog.tenants import list_tenants
from zapdb.errors import ExecutorMismatch
from zapdb.jobs.control import find_job
from zapdb.jobs.job import OpenRange, Progress, list_jobs, list_open_ranges, read_progress
from zapdb.jobs.job_types import type_of
from zapdb.jobs.latency import ProbeStatus, list_probes
from zapdb.jobs.quarantine import QuarantinedRecord, list_quarantined
from zapdb.jobs.throttle import wait
from zapdb.jobs.waiting import find_waits, is_worked_on
from zapdb.jobs.work import Superseded
from zapdb.jobs.work_loading import make_work
from zapdb.limits import VIOLATIONS_SHOWN_MAX
from zapdb.migrations import Migration
from zapdb.migrations.chain import find_parting
from zapdb.records import group_by_revision
from zapdb.records.derivation import inputs_of
from zapdb.schema import Schema, TableSchema
from zapdb.storage import Connection, RecordStatements, Storage, TransactionMode


@dataclass(frozen=True, slots=True)
class TableStatus:
    """A table's records, how many are stale, and how many have which revision (0: it can't be
    read); the indexes still to be built, and the checks and references still to be validated."""

    table: str
    records: int
    stale: int
    revision: int
    layout_revision: int
    by_revision: dict[int, int]
    indexes_to_build: tuple[str, ...]
    unvalidated: tuple[str, ...]

    @property
    def is_pending(self) -> bool:
        return self.stale > 0 or bool(self.indexes_to_build) or bool(self.unvalidated)


def read_table_statuses(connection: Connection, catalog: TenantCatalog) -> list[TableStatus]:
    """The active tables, in a READ transaction."""
    return [
        _read_table_status(connection, catalog, descriptor)
        for descriptor in catalog.tables.values()
    ]


def _read_table_status(
    connection: Connection, catalog: TenantCatalog, descriptor: TableDescriptor
) -> TableStatus:
    by_revision = count_by_revision(connection, catalog, descriptor.schema.number)
    return TableStatus(
        descriptor.schema.name,
        sum(by_revision.values()),
        sum(count for found, count in by_revision.items() if not descriptor.current.has(found)),
        descriptor.revision,
        descriptor.layout_revision,
        by_revision,
        tuple(index.index.name for index in descriptor.indexes if index.needs_build),
        tuple(map(str, descriptor.unvalidated)),
    )


def count_by_revision(connection: Connection, catalog: TenantCatalog, table: int) -> dict[int, int]:
    """Return how many records of a table have each revision, 0 if it can't be read."""
    records = RecordStatements(connection.storage, table, catalog.tenant)
    return group_by_revision(records.count_by_prefix(connection))


@dataclass(frozen=True, slots=True)
class JobStatus:
    """How far a job is, who works on it, and what it waits for, in words.

    `reads` is how many records it will have read at its end, as far as that is known.
    """

    job: Job
    progress: Progress
    reads: int
    open_ranges: tuple[OpenRange, ...]
    waits: tuple[str, ...]
    quarantine: tuple[QuarantinedRecord, ...] = ()
    """The first records that can't be read; `progress.quarantined` counts all."""
    probes: tuple[ProbeStatus, ...] = ()
    """What its processes measured last, if it has a ceiling of latency."""

    @property
    def has_end(self) -> bool:
        """Whether it is known how many records the job will have read."""
        return self.job.records > 0 or not type_of(self.job).is_exclusive

    @property
    def is_running(self) -> bool:
        """Whether a process works on the job, as far as leases tell."""
        return self.job.state == "planned" and any(map(is_worked_on, self.open_ranges))


def read_job_status(storage: Storage, tenant: int, text: str) -> JobStatus:
    """The status of a tenant's job, found as by `find_job`."""
    with storage.transaction(TransactionMode.READ) as connection:
        catalog = load_tenant_catalog(connection, tenant)
        job = find_job(connection, tenant, text)
        progress = read_progress(connection, job.id)
        return JobStatus(
            job,
            progress,
            count_reads(connection, catalog, job, progress),
            tuple(list_open_ranges(connection, job.id)),
            find_waits(connection, catalog, job),
            tuple(list_quarantined(connection, job.id, VIOLATIONS_SHOWN_MAX)),
            tuple(list_probes(connection, job.id)),
        )


def measure_rate(storage: Storage, status: JobStatus, seconds: float) -> float | None:
    """Return the records that are read per second, None if no process works on the job."""
    if not seconds or not status.is_running:
        return None
    began = time.perf_counter()
    wait(seconds, lambda: False)
    progress = read_progress(storage.connection(), status.job.id)
    return (progress.read - status.progress.read) / (time.perf_counter() - began)


def list_open_jobs(connection: Connection, tenant: int) -> list[tuple[Job, Progress]]:
    """The jobs that a tenant's schema needs and that are not done, with how far they are."""
    return [
        (job, read_progress(connection, job.id))
        for job in list_jobs(connection, tenant)
        if type_of(job).needed and job.state in ("planned", "paused", "cancelled")
    ]


def list_blocked_jobs(connection: Connection, tenant: int) -> list[Job]:
    """Return the needed jobs of a tenant that records block; their findings say which records."""
    return [
        job
        for job in list_jobs(connection, tenant)
        if type_of(job).needed and job.state == "blocked"
    ]


def count_reads(
    connection: Connection, catalog: TenantCatalog, job: Job, progress: Progress
) -> int:
    """How many records the job will have read when it is done, as far as that is known now."""
    is_over = job.state in ("done", "superseded")
    if is_over and (job.is_estimated or type_of(job).is_exclusive):
        return progress.read
    if not type_of(job).rewrites_records:
        return max(job.records, progress.read)
    if is_over:
        return progress.read
    try:
        work = make_work(connection.storage, catalog, structs.replace(job, state="planned"))
    except (Superseded, ExecutorMismatch):
        return progress.read
    return progress.read + work.count_stale(connection)


@dataclass(frozen=True, slots=True)
class TableRollbackPreview:
    """What a rollback does to one table.

    `records` are deleted with it, or converted back, or kept as they are, or come back with it
    (restored). The `indexes` go, and so do the values of `fields`: nothing on the way back is made
    of them. Those `built` come back, and queries scan until they are built; `constraints` come
    back, bind what is written from then on, and are validated by a job.
    """

    table: str
    action: Literal["deleted", "converted", "kept", "restored"]
    records: int
    fields: tuple[str, ...] = ()
    indexes: tuple[str, ...] = ()
    built: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RollbackStep:
    """One migration that a rollback deactivates, and for how many tenants.

    `lossy` is true for one that declares that values don't come back exactly as they were. The
    losses are those of all tenants together.
    """

    migration: Migration
    tenants: int
    lossy: bool
    tables: tuple[TableRollbackPreview, ...]

    @property
    def active(self) -> bool:
        return self.tenants > 0


def preview_rollback(connection: Connection, catalog: TenantCatalog, to: int) -> list[RollbackStep]:
    """What rolling back everything above `to` does, newest first, in a READ transaction."""
    chain = catalog.stored_chain
    migrations = tuple(reversed(chain.after(to)))
    reached = dict.fromkeys((m.number for m in migrations), 0)
    losses: dict[int, dict[str, TableRollbackPreview]] = {m.number: {} for m in migrations}
    for tenant in list_tenants(connection):
        if tenant.position <= to or tenant.removing:
            continue
        catalog = load_tenant_catalog(connection, tenant.number, catalog)
        for migration, found in list_losses(connection, catalog, to):
            reached[migration.number] += 1
            for loss in found:
                known = losses[migration.number].get(loss.table)
                records = loss.records + (0 if known is None else known.records)
                losses[migration.number][loss.table] = replace(loss, records=records)
    return [
        RollbackStep(m, reached[m.number], _is_lossy(m), tuple(losses[m.number].values()))
        for m in migrations
    ]


def list_losses(
    connection: Connection, catalog: TenantCatalog, to: int
) -> Iterator[tuple[Migration, list[TableRollbackPreview]]]:
    """Yield the migrations above `to` that are active for a tenant, the newest first, and what
    rolling each back does."""
    counts = {
        descriptor.schema.number: _count_by_origin(connection, catalog, descriptor)
        for descriptor in catalog.tables.values()
    }
    for migration in reversed(catalog.stored_chain.after(to)):
        place = ChainPlace(migration.number, migration.id)
        if migration.number > catalog.position or not catalog.is_on_chain(place):
            continue
        found = [
            # A later migration may have dropped the table; its records are counted there.
            _find_loss(catalog, migration, table, counts.get(table.number, {}))
            for table in _changed_tables(migration.before, migration.after)
        ]
        yield migration, [*found, *_list_restored(connection, catalog, migration)]


def _is_lossy(migration: Migration) -> bool:
    return any(
        getattr(operation, "reversibility", "exact") == "lossy" for operation in migration.changes
    )


def _count_by_origin(
    connection: Connection, catalog: TenantCatalog, descriptor: TableDescriptor
) -> dict[int, int]:
    """How many records have the layout of each position on the chain; of a migration that was
    rolled back, of where the chain leaves its line."""
    found: dict[int, int] = {}
    counts = count_by_revision(connection, catalog, descriptor.schema.number)
    for revision, count in counts.items():
        place = descriptor.origins.get(revision)
        origin = 0 if place is None else find_parting(catalog.line_to(place), catalog.chain)
        found[origin] = found.get(origin, 0) + count
    return found


def _changed_tables(before: Schema, after: Schema) -> Sequence[TableSchema]:
    return [table for table in after if before.table_numbered(table.number) != table]


def _list_restored(
    connection: Connection, catalog: TenantCatalog, migration: Migration
) -> Iterator[TableRollbackPreview]:
    """The tables that a migration has dropped: they come back, empty if it discarded the
    records."""
    for table in migration.before:
        if migration.after.table_numbered(table.number) is not None:
            continue
        records = 0
        if migration.after.table_active_or_archived(table.number) is not None:
            statements = RecordStatements(connection.storage, table.number, catalog.tenant)
            (records,) = connection.fetch_one(statements.count_sql)
        yield TableRollbackPreview(
            table.name,
            "restored",
            int(records),
            built=tuple(index.name for index in table.indexes) if records else (),
            constraints=_name_constraints(table),
        )


def _name_constraints(table: TableSchema) -> tuple[str, ...]:
    return tuple(f"{kind} {name}" for kind, _, name in constraints_of(table))


def _find_loss(
    catalog: TenantCatalog, migration: Migration, table: TableSchema, by_origin: dict[int, int]
) -> TableRollbackPreview:
    old, number = migration.before.table_active_or_archived(table.number), migration.number
    indexes = tuple(index.name for index in table.indexes)
    if old is None:
        return TableRollbackPreview(table.name, "deleted", sum(by_origin.values()), (), indexes)
    plan = migration.conversion_down(table.number)
    derived = [*plan.derivations.values(), *plan.archives.values()]
    used = frozenset[int]().union(*(inputs_of(derivation) for derivation in derived))
    held = {index.number for index in old.indexes}
    kept = find_kept(table, old, catalog.chain.up_to(number), catalog.chain.up_to(number - 1))
    lost = TableRollbackPreview(
        table.name,
        "kept",
        0,
        tuple(f.name for f in table.fields if f.number not in used),
        tuple(index.name for index in table.indexes if index.number not in held),
        tuple(index.name for index in old.indexes if index.number not in kept),
        tuple(name for name in _name_constraints(old) if name not in _name_constraints(table)),
    )
    if table.layout == old.layout:
        return lost
    records = sum(count for origin, count in by_origin.items() if origin >= number)
    return replace(lost, action="converted", records=records)
