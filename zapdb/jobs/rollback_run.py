"""Rolling back the newest migration, from its mark to its publication (rule 13)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Final, TypeVar

from zapdb.activation import load_tenant_catalog
from zapdb.activation.rollback import (
    finish_rollback,
    list_table_rollbacks,
    publish_rollback,
    start_rollback,
)
from zapdb.activation.up import CHAIN_LEASE
from zapdb.catalog.cluster import leases
from zapdb.catalog.cluster.leases import Owner
from zapdb.catalog.retired_tables import sweep_retired
from zapdb.catalog.row_kinds import Job
from zapdb.errors import JobError
from zapdb.jobs.archive_pruning import sweep_archives
from zapdb.jobs.job_planning import plan_table_rollback
from zapdb.jobs.job_run import JobReport, Runner, run_job, run_locally
from zapdb.jobs.quarantine import list_quarantined
from zapdb.jobs.throttle import wait
from zapdb.limits import CHAIN_LEASE_SECONDS, OTHERS_POLL_SECONDS, ROLLBACK_WAIT_SECONDS
from zapdb.logs import log_event
from zapdb.storage import Storage, TransactionMode

RECORDS_NAMED_MAX: Final = 3

logger = logging.getLogger("zapdb.jobs")

E = TypeVar("E")


@dataclass(frozen=True, slots=True)
class RolledBack:
    """A migration that was rolled back, and the jobs that converted its records back."""

    number: int
    label: str
    jobs: tuple[JobReport, ...]


@dataclass(frozen=True, slots=True)
class RollbackMark:
    """A rollback has begun: until it is finished, writes are refused."""

    label: str


def log_wait(report: JobReport) -> None:
    """Log that a job of a rollback is held back."""
    logger.warning("a rollback waits: %s is %s", report.job.id, report.hold)


def roll_back_newest(
    storage: Storage,
    *,
    digest: str | None = None,
    evict: bool = False,
    runner: Runner = run_locally,
    on_wait: Callable[[JobReport], None] = log_wait,
) -> RolledBack:
    """Roll back the newest migration, as `roll_back_in_steps` does, with a runner for its jobs;
    calls `on_wait` once for each job that is held back."""

    def run(job: Job) -> Generator[JobReport, None, JobReport | None]:
        yield from ()
        return run_job(storage, job, runner)

    steps = roll_back_in_steps(storage, run, digest=digest, evict=evict)
    while True:
        try:
            told = next(steps)
        except StopIteration as ended:
            rolled_back: RolledBack = ended.value
            return rolled_back
        if isinstance(told, JobReport):
            on_wait(told)


def roll_back_in_steps(
    storage: Storage,
    run: Callable[[Job], Generator[E, None, JobReport | None]],
    *,
    digest: str | None = None,
    evict: bool = False,
) -> Generator[E | JobReport | RollbackMark, None, RolledBack]:
    """Roll back the newest stored migration for every tenant for which it is active.

    Yields a mark when writes are refused from then on, what `run` yields while it runs a job, and
    the report of each job that is paused or outside its window, once: it is waited for. Resumes an
    interrupted rollback. A `digest` must be the newest migration's, so that only the migration that
    was confirmed is rolled back. Raises `UsageError` while live processes use the migration, unless
    `evict`.
    """
    owner = Owner.here()
    reports: list[JobReport] = []
    wait = ROLLBACK_WAIT_SECONDS
    with leases.hold_lease(storage, CHAIN_LEASE, owner, CHAIN_LEASE_SECONDS, wait) as lease:
        started = start_rollback(storage, lease, digest=digest, evict=evict)
        yield RollbackMark(started.migration.label)
        for tenant in started.tenants:
            reports += yield from _roll_back_records(storage, tenant, run)
            sweep_retired(storage)  # delete discarded records before their table comes back
            publish_rollback(storage, tenant, lease, started.migration)
        finish_rollback(storage, lease, started.migration)
    sweep_retired(storage)
    for tenant in started.tenants:
        sweep_archives(storage, tenant)
    log_event(
        logger,
        "migration.rolled_back",
        "a migration was rolled back",
        migration=started.migration.label,
        tenants=len(started.tenants),
    )
    return RolledBack(started.migration.number, started.migration.label, tuple(reports))


def _roll_back_records(
    storage: Storage, tenant: int, run: Callable[[Job], Generator[E, None, JobReport | None]]
) -> Generator[E | JobReport, None, list[JobReport]]:
    """Convert a tenant's records back, or delete the records of tables that are removed."""
    with storage.transaction(TransactionMode.READ) as connection:
        catalog = load_tenant_catalog(connection, tenant)
    reports = []
    for rollback in list_table_rollbacks(catalog):
        job = plan_table_rollback(storage, catalog, rollback)
        if job.state in ("planned", "paused"):
            report = yield from _run_unless_held(job, run)
            if report is not None:
                _require_all_read(storage, report)
                reports.append(report)
    return reports


def _require_all_read(storage: Storage, report: JobReport) -> None:
    """Raise `JobError` if records were left that can't be read: the rollback can't end."""
    if report.job.state != "blocked":
        return
    with storage.transaction(TransactionMode.READ) as connection:
        first = list_quarantined(connection, report.job.id, RECORDS_NAMED_MAX)
    raise JobError(
        "records can't be read, so they can't be rolled back; all others are",
        table=report.job.table_name,
        records=report.progress.quarantined,
        first="; ".join(map(str, first)),
        hint="restore these records from a backup, or delete them with `zapdb data discard`, and "
        f"run `zapdb migrate rollback` again; `zapdb jobs show {report.job.id}` lists them",
    )


def _run_unless_held(
    job: Job, run: Callable[[Job], Generator[E, None, JobReport | None]]
) -> Generator[E | JobReport, None, JobReport | None]:
    told = None
    while True:
        report = yield from run(job)
        if report is None or report.hold is None:
            return report
        if report.hold != told:
            told = report.hold
            yield report
        wait(OTHERS_POLL_SECONDS, lambda: False)
