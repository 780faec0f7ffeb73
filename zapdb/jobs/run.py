"""Find the needed work and do it: jobs are planned, run by a runner, and finished.

A runner takes a planned job and calls `run_range` until no range is open. The local one uses
threads of this process; the one in `zapdb.spark` uses executors. Planning and finishing are the
same for both.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from msgspec import structs

from zapdb.activation import IndexDescriptor, TableDescriptor, TenantCatalog, load_tenant_catalog
from zapdb.activation.activate import publish_index
from zapdb.activation.rollback import TableRollback
from zapdb.catalog.feed import read_seq
from zapdb.catalog.kinds import ConstraintFinding, Job, JobKind
from zapdb.cluster.leases import Owner
from zapdb.errors import CatalogChanged, JobError, LeaseLost
from zapdb.indexes import find_collision, violations
from zapdb.jobs.archives import sweep_archives
from zapdb.jobs.building import IndexWork, RewriteWork, remove_orphans
from zapdb.jobs.findings import EXAMPLES_MAX, clear_findings
from zapdb.jobs.job import (
    Progress,
    list_jobs,
    open_ranges,
    plan_job,
    read_job,
    read_progress,
    reopen,
    set_state,
)
from zapdb.jobs.range_work import ConvertWork, load_work, run_range
from zapdb.jobs.throttle import Stopped, Throttle
from zapdb.jobs.validation import ValidateWork, publish_validated
from zapdb.jobs.work import Superseded, Work
from zapdb.limits import BATCH_RECORDS_MAX, CATALOG, OTHERS_POLL_SECONDS
from zapdb.logs import log_event
from zapdb.migrations.chain import digest_chain
from zapdb.records import encode_prefix
from zapdb.storage import Connection, EntryStatements, RecordStatements, Storage, TransactionMode
from zapdb.storage.retries import retry
from zapdb.storage.statements import catalog_version_sql

logger = logging.getLogger("zapdb.jobs")

Runner = Callable[[Storage, Job], None]
"""Works on a job's open ranges until none is left, or the job is superseded."""


@dataclass(frozen=True, slots=True)
class JobReport:
    """A job that was run to its end; one that is blocked has findings."""

    job: Job
    progress: Progress
    seconds: float
    seq: int
    """A process whose cache of the catalog has it knows that the job has ended."""

    @property
    def rate(self) -> float:
        """Records written per second."""
        return self.progress.written / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, slots=True)
class _EndedJob:
    """A job as it ended, and whether it was a transaction of ours that ended it, or a twin's."""

    job: Job
    ended_here: bool


def plan_jobs(
    storage: Storage, tenant: int, kinds: Collection[JobKind] = ("index", "convert", "validate")
) -> list[Job]:
    """Plan whatever the tenant's tables need now; returns the jobs of `kinds` that are not done.

    Indexes come first, since queries wait for them, and of these the ones that queries used until
    their datasets changed; then conversions, then validations.
    """
    return retry(CATALOG, partial(_plan_jobs, storage, tenant, kinds), on=CatalogChanged)


def _plan_jobs(storage: Storage, tenant: int, kinds: Collection[JobKind]) -> list[Job]:
    with storage.transaction(TransactionMode.READ) as connection:
        catalog = load_tenant_catalog(connection, tenant)
    if catalog.rolling_back is not None:
        return []
    needed = _needed_jobs(catalog)
    _supersede_all_but(storage, catalog, {job.id for job in needed})
    planned = [
        plan_job(storage, job, _entries_of(storage, catalog, job))
        for job in needed
        if job.kind in kinds
    ]
    return [job for job in planned if job.state == "planned"]


def _entries_of(storage: Storage, catalog: TenantCatalog, job: Job) -> EntryStatements | None:
    """Return the entries that a job goes through if it rewrites an index, else None."""
    for descriptor in catalog.tables.values():
        for index in descriptor.indexes:
            if job.kind == "index" and index.build == job.target and index.state == "rewriting":
                records = RecordStatements(storage, job.table, job.tenant)
                return EntryStatements(storage, index.entry_table, records)
    return None


def _needed_jobs(catalog: TenantCatalog) -> list[Job]:
    to_build = [
        (descriptor, index)
        for descriptor in catalog.tables.values()
        for index in descriptor.indexes
        if index.needs_build
    ]
    to_build.sort(key=lambda found: not found[1].is_rebuilt)
    needed = [
        _new_job(catalog, descriptor, "index", index.build, catalog.position, _fingerprints(index))
        for descriptor, index in to_build
    ]
    needed += [
        _new_job(
            catalog,
            descriptor,
            "convert",
            descriptor.layout_revision,
            descriptor.origins[descriptor.layout_revision],
            {},
        )
        for descriptor in catalog.tables.values()
        if descriptor.layout_revision > min(descriptor.layouts)
    ]
    needed += [
        _new_job(catalog, descriptor, "validate", descriptor.revision, catalog.position, {})
        for descriptor in catalog.tables.values()
        if descriptor.unvalidated
    ]
    return needed


def _fingerprints(index: IndexDescriptor) -> dict[str, str]:
    return {name: dataset.fingerprint for name, dataset in index.built_with.items()}


def _supersede_all_but(storage: Storage, catalog: TenantCatalog, needed: set[str]) -> None:
    """Supersede the jobs that the active schema does not need.

    Raises `CatalogChanged`, with nothing done, if the tenant catalog is no longer the active one: a
    process with a newer one may have planned some of the jobs.
    """
    with storage.transaction(TransactionMode.CATALOG) as connection:
        unwanted = [
            job
            for job in list_jobs(connection)
            if job.tenant == catalog.tenant
            and job.state in ("planned", "blocked")
            and job.id not in needed
        ]
        (version,) = connection.fetch_one(catalog_version_sql(catalog.tenant))
        if version != catalog.version:
            raise CatalogChanged(
                "the schema kept changing while jobs were planned",
                database=storage.shown_url,
                hint="run it again when the running migrations have finished",
            )
        for job in unwanted:
            clear_findings(connection, job.id)
            set_state(connection, structs.replace(job, findings=()), "superseded")


def plan_table_rollback(storage: Storage, catalog: TenantCatalog, rollback: TableRollback) -> Job:
    """Return the job that converts a table's records back, for the running rollback."""
    return plan_job(
        storage,
        _new_job(
            catalog, rollback.descriptor, "roll_back", rollback.revision or 0, catalog.position, {}
        ),
    )


def _new_job(
    catalog: TenantCatalog,
    descriptor: TableDescriptor,
    kind: JobKind,
    target: int,
    position: int,
    datasets: dict[str, str],
) -> Job:
    # The chain is part of the name: after a rollback and another migration, the same revision may
    # be needed again by way of other changes.
    chain = digest_chain(catalog.chain, position)
    return Job(
        f"{kind}/{catalog.tenant}/{descriptor.schema.number}/{target}/{chain[:12]}",
        kind,
        catalog.tenant,
        descriptor.schema.number,
        descriptor.schema.name,
        target,
        position,
        chain,
        datasets,
        "planned",
        0,
        0,
    )


def run_job(storage: Storage, job: Job, runner: Runner) -> JobReport | None:
    """Run a planned job to its end; None if it was superseded meanwhile."""
    started = time.perf_counter()
    for is_last in (False, True):
        try:
            runner(storage, job)
            ended = _finish(storage, job, is_last=is_last)
        except Superseded:
            ended = _find_ended(storage, job)
            if ended is None:
                return None
        if ended is not None:
            with storage.transaction(TransactionMode.READ) as connection:
                progress, seq = read_progress(connection, job.id), read_seq(connection)
            report = JobReport(ended.job, progress, time.perf_counter() - started, seq)
            if ended.ended_here:
                _log(report)
            else:
                logger.debug("another process ended the job %s", job.id)
            return report
    raise JobError(
        "an index does not match its records after it was built twice",
        job=job.id,
        table=job.table_name,
        hint="run `zapdb verify`, and report this as a bug",
    )


def _log(report: JobReport) -> None:
    """Log the end of a job once, in the process that ended it, however many processes worked on
    it."""
    job, blocked = report.job, report.job.state == "blocked"
    log_event(
        logger,
        "job.blocked" if blocked else "job.done",
        "records are in the way of a job" if blocked else "a job was run to its end",
        level=logging.WARNING if blocked else logging.INFO,
        job=job.id,
        kind=job.kind,
        tenant=job.tenant,
        table=job.table_name,
        read=report.progress.read,
        written=report.progress.written,
        seconds=round(report.seconds, 3),
    )


def _find_ended(storage: Storage, job: Job) -> _EndedJob | None:
    """Return the job if another runner ended it; otherwise it is not needed any more, and is marked
    as superseded."""
    with storage.transaction(TransactionMode.CATALOG) as connection:
        stored = read_job(connection, job.id, lock=True)
        if stored.state == "planned":
            set_state(connection, stored, "superseded")
        return _EndedJob(stored, ended_here=False) if stored.state in ("done", "blocked") else None


def _finish(storage: Storage, job: Job, *, is_last: bool) -> _EndedJob | None:
    """Count before the result is relied upon; None if the ranges had to be opened again."""
    work = load_work(storage, job.id)
    if isinstance(work, RewriteWork):
        _remove_orphans(storage, work)
    with storage.transaction(TransactionMode.READ) as connection:
        if open_ranges(connection, job.id):
            raise JobError(
                "a runner stopped before its job was finished",
                job=job.id,
                hint="run it again; it continues where it stopped",
            )
        complete = _is_complete(storage, work)
        findings = () if complete else _find_duplicates(connection, work, is_last=is_last)
    if not (complete or findings):
        with storage.transaction(TransactionMode.CATALOG) as connection:
            reopen(connection, job.id)
        return None
    if isinstance(work, IndexWork) and complete:
        _publish(storage, work)
    if isinstance(work, ValidateWork):
        findings = publish_validated(storage, work)
    ended = _end_job(storage, job, findings)
    if job.kind == "convert":
        sweep_archives(storage, job.tenant)
    return ended


def _end_job(storage: Storage, job: Job, findings: tuple[ConstraintFinding, ...]) -> _EndedJob:
    with storage.transaction(TransactionMode.CATALOG) as connection:
        stored = read_job(connection, job.id, lock=True)
        if not findings:
            return _EndedJob(
                set_state(connection, stored, "done"), ended_here=stored.state != "done"
            )
        if stored.state != "planned" or open_ranges(connection, job.id):
            # another runner was faster, and the job was begun anew
            return _EndedJob(stored, ended_here=False)
        blocked = set_state(connection, structs.replace(stored, findings=findings), "blocked")
        return _EndedJob(blocked, ended_here=True)


def _find_duplicates(
    connection: Connection, work: Work, *, is_last: bool
) -> tuple[ConstraintFinding, ...]:
    """The records that have no entry since their key of a unique index is another's.

    None if the ranges have to be gone through again: an entry is missing although its key is free,
    because the record that had the key has changed. After the last repetition (`is_last`), that is
    left to the next run.
    """
    if not (isinstance(work, IndexWork) and work.index and work.index.descriptor.index.unique):
        return ()
    index, examples = work.index, []
    for key in index.entries.list_missing(connection, EXAMPLES_MAX):
        record = work.read(key, bytes(connection.fetch_one(work.records.get_sql, (key,))[0]))
        found = find_collision(connection, index, key, record)
        if found is not None:
            examples.append(violations.describe_collision(work.bound, found, record))
        elif not is_last:
            return ()
    (entries,) = connection.fetch_one(index.entries.count_sql)
    (count,) = connection.fetch_one(work.records.count_sql)
    if count <= entries:
        return ()
    return (ConstraintFinding(f"index {index.name}", int(count - entries), tuple(examples)),)


def _remove_orphans(storage: Storage, work: RewriteWork) -> None:
    """Finding them takes looking for all records: they are looked for where there must be some."""
    with storage.transaction(TransactionMode.READ) as connection:
        if open_ranges(connection, work.job.id) or _is_complete(storage, work):
            return
    remove_orphans(storage, work)


def _is_complete(storage: Storage, work: Work) -> bool:
    connection = storage.connection()
    records = work.records
    if isinstance(work, IndexWork):
        assert work.index is not None
        (entries,) = connection.fetch_one(work.index.entries.count_sql)
        (count,) = connection.fetch_one(records.count_sql)
        return bool(entries == count)
    if isinstance(work, ConvertWork):
        (stale,) = connection.fetch_one(
            f"{records.count_sql} AND value < {storage.placeholder}",
            (encode_prefix(work.job.target),),
        )
        return not stale
    return True  # a rollback counts for itself, under the gate


def _publish(storage: Storage, work: IndexWork) -> None:
    """The counted snapshot is enough: since the build began, every writer keeps the index."""
    with storage.transaction(TransactionMode.DDL) as connection:
        catalog = load_tenant_catalog(connection, work.job.tenant, work.catalog)
        for descriptor in catalog.tables.values():
            for index in descriptor.indexes:
                if index.build == work.job.target:
                    if index.needs_build:  # else a twin was faster
                        publish_index(connection, catalog.tenant, descriptor.schema, index)
                    return
    raise Superseded


def run_locally(
    storage: Storage,
    job: Job,
    *,
    workers: int | None = None,
    batch_records_max: int = BATCH_RECORDS_MAX,
    should_stop: Callable[[], bool] = lambda: False,
) -> None:
    """The local runner: threads of this process; SQLite has room for one writer only."""
    count = workers or (1 if storage.dialect == "sqlite" else os.cpu_count() or 1)
    owner, throttle = Owner.here(), Throttle.of(storage, job, should_stop)

    def run_ranges() -> None:
        try:
            work = load_work(storage, job.id)
            while not should_stop():
                try:
                    result = run_range(
                        storage, work, owner, batch_records_max=batch_records_max, throttle=throttle
                    )
                except LeaseLost:
                    continue  # another worker continues that range
                except Stopped:
                    return
                if result is None:
                    return
        finally:
            if count > 1:
                storage.release_connection()

    if count == 1:
        run_ranges()
    else:
        with ThreadPoolExecutor(count, thread_name_prefix="zapdb-job") as pool:
            for future in [pool.submit(run_ranges) for _ in range(count)]:
                future.result()
    _wait_for_others(storage, job, batch_records_max, throttle)


def _wait_for_others(
    storage: Storage, job: Job, batch_records_max: int, throttle: Throttle
) -> None:
    """Ranges that other live processes hold are theirs; wait until they are done or given up."""
    owner = Owner.here()
    while not throttle.should_stop():
        with storage.transaction(TransactionMode.READ) as connection:
            if not open_ranges(connection, job.id):
                return
        work = load_work(storage, job.id)
        try:
            result = run_range(
                storage, work, owner, batch_records_max=batch_records_max, throttle=throttle
            )
            if result is None:
                throttle.pause(OTHERS_POLL_SECONDS)
        except LeaseLost:
            continue
        except Stopped:
            return
