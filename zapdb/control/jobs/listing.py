"""The jobs of a tenant, and changing them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from msgspec import structs

from zapdb.activation import TenantCatalog
from zapdb.answers import hidden
from zapdb.catalog.feed import read_seq
from zapdb.catalog.row_kinds import ConstraintFinding, Job, JobThrottle
from zapdb.control.bounds import Between, Number
from zapdb.control.target import Target
from zapdb.jobs import control
from zapdb.jobs import job as stored
from zapdb.jobs.findings import without_examples
from zapdb.jobs.job import OPEN_STATES, Progress, read_progress
from zapdb.jobs.job_planning import sort_by_priority
from zapdb.jobs.job_types import name_job
from zapdb.jobs.waiting import find_lagging, find_waits, has_worker
from zapdb.jobs.window import parse_window
from zapdb.limits import SEQUENCE_MAX
from zapdb.storage import Storage

NO_WINDOW = "none"
AnyInteger = Annotated[int, Between(-SEQUENCE_MAX, SEQUENCE_MAX)]
"""What is no priority is told as such."""


@dataclass(frozen=True, slots=True)
class JobSummary:
    """A job, how far it is, and in words what it waits for.

    `subject` is the source of an import, the target of an export or mirror, or what is repaired;
    `error` is what has ended the last run of these. A job that `is_running` is planned;
    `is_estimated` says that `records` were found by a sample. `changed_at` is in microseconds since
    1970 UTC, 0 if nobody has changed it. `doing` is what people call it.
    """

    id: str
    kind: str
    table: str
    subject: str
    error: str
    target: int
    state: str
    is_running: bool
    priority: int
    throttle: JobThrottle
    records: int
    is_estimated: bool
    ranges: int
    ranges_done: int
    read: int
    written: int
    conflicts: int
    quarantined: int
    changed_at: int
    changed_by: str
    waits: tuple[str, ...]
    findings: tuple[ConstraintFinding, ...]
    doing: str = hidden()


@dataclass(frozen=True, slots=True)
class JobList:
    """Jobs, the most urgent first; `lagging` says which migration is not active because processes
    lack its file, if one is not."""

    jobs: tuple[JobSummary, ...]
    lagging: str | None


def list_jobs(target: Target, every: bool = False) -> JobList:
    """The unfinished jobs of the tenant; with `every`, also those that are done or superseded."""
    catalog = target.catalog()
    with target.reading() as connection:
        return JobList(
            tuple(
                JobSummary(
                    **describe_job(
                        target,
                        catalog,
                        job,
                        read_progress(connection, job.id),
                        find_waits(connection, catalog, job),
                        is_running=job.state == "planned" and has_worker(connection, job),
                    )
                )
                for job in sort_by_priority(stored.list_jobs(connection, catalog.tenant))
                if every or job.state in OPEN_STATES
            ),
            find_lagging(connection, catalog),
        )


def describe_job(
    target: Target,
    catalog: TenantCatalog,
    job: Job,
    progress: Progress,
    waits: tuple[str, ...],
    *,
    is_running: bool,
) -> dict[str, Any]:
    """The fields of a `JobSummary`."""
    return {
        "id": job.id,
        "kind": job.kind,
        "table": job.table_name,
        "subject": job.subject,
        "error": job.error,
        "target": job.target,
        "state": job.state,
        "is_running": is_running,
        "priority": job.priority,
        "throttle": job.throttle,
        "records": job.records,
        "is_estimated": job.is_estimated,
        "ranges": progress.ranges,
        "ranges_done": progress.ranges_done,
        "read": progress.read,
        "written": progress.written,
        "conflicts": progress.conflicts,
        "quarantined": progress.quarantined,
        "changed_at": job.changed_at,
        "changed_by": job.changed_by,
        "waits": waits,
        "findings": show_findings(job, shows_values=shows_records(target, catalog, job)),
        "doing": name_job(catalog, job).doing,
    }


def shows_records(target: Target, catalog: TenantCatalog, job: Job) -> bool:
    """Whether the caller may see records of a job's table: by the name that the job has for it, and
    by its present one. What has none any more is for those who may see all."""
    names = (t.schema.name for t in catalog.tables.values() if t.schema.number == job.table)
    return target.shows_values_of(job.table_name, next(names, None))


def show_findings(job: Job, *, shows_values: bool) -> tuple[ConstraintFinding, ...]:
    """What blocks a job; without examples of records, unless it may show values."""
    return job.findings if shows_values else without_examples(job.findings)


# --- changes -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JobChange:
    """A job as it is since it was changed; a process whose catalog cache has the seq sees that."""

    id: str
    state: str
    seq: int
    kind: str = hidden()
    throttle: JobThrottle = hidden()
    doing: str = hidden()


def pause_job(target: Target, job: str) -> JobChange:
    """Stop the workers of a job after their present batches, until it is resumed.

    A job is named by its id, or the beginning of it. Raises `UnknownName` and `UsageError`.
    """
    return _change(target, job, control.pause_job)


def resume_job(target: Target, job: str) -> JobChange:
    """Let a paused job go on where it stopped; raises `UnknownName` and `UsageError`."""
    return _change(target, job, control.resume_job)


def cancel_job(target: Target, job: str) -> JobChange:
    """Stop the workers of a job at once; what it has done stays done. Raises `UnknownName` and
    `UsageError`."""
    return _change(target, job, control.cancel_job)


def set_job_priority(target: Target, job: str, priority: AnyInteger) -> JobChange:
    """Change the priority of a job, 0 to 1,000: those with a higher one run first. Raises
    `UnknownName` and `UsageError`."""
    return _change(target, job, partial(control.set_job_priority, priority=priority))


@dataclass(frozen=True, slots=True)
class ThrottleChange:
    """New limits of a job; those that are not given stay as they are.

    0 removes a number, and `none` the window, which is such as `22:00-06:00` by the clocks of the
    zone.
    """

    records_per_second: Number | None = None
    bytes_per_second: Number | None = None
    max_latency_ms: Number | None = None
    window: str | None = None
    zone: str = "UTC"


def throttle_job(target: Target, job: str, change: ThrottleChange) -> JobChange:
    """Limit how fast all workers of a job together read, and when. Raises `UnknownName` and
    `UsageError`."""
    names = ("records_per_second", "bytes_per_second", "max_latency_ms")
    given = {name: getattr(change, name) for name in names}
    changed: dict[str, Any] = {
        name: number or None for name, number in given.items() if number is not None
    }
    if change.window is not None:
        is_none = change.window == NO_WINDOW
        changed["window"] = None if is_none else parse_window(change.window, change.zone or "UTC")

    def throttle(storage: Storage, job_id: str) -> Job:
        with target.reading() as connection:
            before = stored.read_job(connection, job_id).throttle
        return control.throttle_job(storage, job_id, structs.replace(before, **changed))

    return _change(target, job, throttle)


def _change(target: Target, text: str, change: Callable[[Storage, str], Job]) -> JobChange:
    catalog = target.catalog()
    with target.reading() as connection:
        found = control.find_job(connection, catalog.tenant, text)
    changed = change(target.storage, found.id)
    return JobChange(
        changed.id,
        changed.state,
        read_seq(target.storage.connection()),
        changed.kind,
        changed.throttle,
        name_job(catalog, changed).doing,
    )
