"""What an operator changes about a job: pause, resume, cancel, its priority and its throttle.

Each is one change of the job's row. Workers see it in their next batch, wherever they run
(`throttle`); a background thread is woken by it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import assert_never

from msgspec import structs

from zapdb.catalog import principal, rows
from zapdb.catalog.row_kinds import Job, JobState, JobThrottle
from zapdb.errors import UnknownName, UsageError
from zapdb.jobs.job import OPEN_STATES, list_jobs, read_job, release_ranges
from zapdb.jobs.job_types import type_of
from zapdb.limits import CATALOG, JOB_PRIORITY_MAX
from zapdb.storage import Connection, Storage, TransactionMode
from zapdb.storage.retries import retry


def _way_on(job: Job) -> str:
    """The way forward from each state in which nobody works on a job."""
    match job.state:
        case "superseded":
            return "it is not needed any more"
        case "blocked":
            command = type_of(job).command
            return f"change or delete the records that are in its way, and run `{command}`"
        case "cancelled":
            return type_of(job).again
        case "done" | "planned" | "paused":
            return "it is at its end; `zapdb jobs list` lists the jobs that are not"
        case unknown:
            assert_never(unknown)


def find_job(connection: Connection, tenant: int, text: str) -> Job:
    """Return a tenant's job by its id, or by the beginning of its id, if that is only one's.

    Unfinished jobs come first. Raises `UnknownName` and `UsageError`.
    """
    jobs = list_jobs(connection, tenant)
    found = [job for job in jobs if text and job.id.startswith(text)]
    exact = [job for job in found if job.id == text]
    open_ones = [job for job in found if job.state in OPEN_STATES]
    chosen = exact or open_ones or found
    if not chosen:
        raise UnknownName(
            "there is no such job", job=text, hint="`zapdb jobs list --all` lists the jobs"
        )
    if len(chosen) > 1:
        raise UsageError(
            "several jobs begin so", job=text, jobs=_list_ids(chosen), hint="give more of the id"
        )
    return chosen[0]


def _list_ids(jobs: Iterable[Job]) -> str:
    return ", ".join(job.id for job in jobs)


def pause_job(storage: Storage, job_id: str) -> Job:
    """Stop the workers of a job after their present batches, until it is resumed."""
    return _change(storage, job_id, partial(_move, to="paused", states=("planned", "paused")))


def resume_job(storage: Storage, job_id: str) -> Job:
    """Let workers go on with a paused job, after what they have done."""
    return _change(storage, job_id, partial(_move, to="planned", states=("planned", "paused")))


def cancel_job(storage: Storage, job_id: str) -> Job:
    """Stop the workers of a job at once; a batch that is not committed yet is undone.

    What is done stays done. If the target is still needed, a run that is started by hand plans the
    job again.
    """
    return _change(storage, job_id, _cancel)


def set_job_priority(storage: Storage, job_id: str, priority: int) -> Job:
    """Of planned jobs, those with a higher priority run first; raises `UsageError`."""
    if not 0 <= priority <= JOB_PRIORITY_MAX:
        raise UsageError(
            "this is not a priority",
            priority=priority,
            hint=f"give a number from 0 to {JOB_PRIORITY_MAX:,}; higher ones run first",
        )
    return _change(storage, job_id, lambda job: structs.replace(_alive(job), priority=priority))


def throttle_job(storage: Storage, job_id: str, throttle: JobThrottle) -> Job:
    """Change how fast all workers of a job together may read, and when."""
    for name in ("records_per_second", "bytes_per_second", "max_latency_ms"):
        value = getattr(throttle, name)
        if value is not None and value < 1:
            raise UsageError(f"{name} is too small", value=value, hint="give 1 or more, or none")
    return _change(storage, job_id, lambda job: structs.replace(_alive(job), throttle=throttle))


def _alive(job: Job) -> Job:
    if job.state in ("done", "superseded"):
        raise UsageError(f"the job is {job.state}", job=job.id, hint=_way_on(job))
    return job


def _move(job: Job, *, to: JobState, states: tuple[JobState, ...]) -> Job:
    if job.state not in states:
        verb = "paused" if to == "paused" else "resumed"
        raise UsageError(
            f"a job that is {job.state} can't be {verb}", job=job.id, hint=_way_on(job)
        )
    return structs.replace(job, state=to)


def _cancel(job: Job) -> Job:
    return structs.replace(_alive(job), state="cancelled")


def _change(storage: Storage, job_id: str, change: Callable[[Job], Job]) -> Job:
    """Change the job's row, and note who did; returns it as it is then."""
    return retry(CATALOG, partial(_try_to_change, storage, job_id, change))


def _try_to_change(storage: Storage, job_id: str, change: Callable[[Job], Job]) -> Job:
    with storage.transaction(TransactionMode.CATALOG) as connection:
        job = read_job(connection, job_id, lock=True)
        changed = change(job)
        if changed == job:
            return job
        now_us, by = storage.now_us(connection), principal.current()
        changed = structs.replace(changed, changed_at=now_us, changed_by=by)
        if changed.state != job.state and changed.state in ("paused", "cancelled"):
            changed = structs.replace(changed, held_at=now_us, held_by=by)
        rows.put(connection, changed)
        if changed.state == "cancelled":
            release_ranges(connection, job.id)
        return changed
