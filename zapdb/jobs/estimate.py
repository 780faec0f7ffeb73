"""How long jobs will take, measured on a sample of the records that is written and rolled back.

A sample is done in a few short transactions of the kind that jobs have, each of which is rolled
back: nothing of it stays, and locks are held for as long as a batch of a job would hold them. What
is measured is one worker's time, without the COMMITs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from msgspec import structs

from zapdb.activation import TenantCatalog, load_tenant_catalog
from zapdb.catalog import rows
from zapdb.catalog.row_kinds import Job
from zapdb.errors import ConcurrencyError, ExecutorMismatch, ZapdbError
from zapdb.jobs.job import read_progress
from zapdb.jobs.job_planning import list_needed_jobs, sort_by_priority
from zapdb.jobs.job_status import count_reads
from zapdb.jobs.job_types import type_of
from zapdb.jobs.throttle import read_throttle
from zapdb.jobs.work import HeldBack, Superseded, Work
from zapdb.jobs.work_loading import make_work
from zapdb.limits import ESTIMATE
from zapdb.storage import Connection, RecordStatements, Storage, TransactionMode
from zapdb.storage.retries import retry

SAMPLE_RECORDS: Final = 500
PARTS: Final = 4
"""In how many places of the table the sample is taken, each in a transaction of its own."""


class _Undo(Exception):
    """Rolls a transaction back."""


@dataclass(frozen=True, slots=True)
class JobEstimate:
    """A job that is needed: how many records it has left, and about how long one worker takes.

    `seconds` is None if that can't be measured: the database is read-only for this process, or a
    record of the sample can't be read.
    """

    job: Job
    records: int
    seconds: float | None


def estimate_jobs(storage: Storage, tenant: int) -> list[JobEstimate]:
    """Return what `plan_jobs` would plan, the most urgent first; nothing is changed."""
    with storage.transaction(TransactionMode.READ) as connection:
        catalog = load_tenant_catalog(connection, tenant)
        found = [rows.get(connection, Job, job.id) or job for job in list_needed_jobs(catalog)]
        left = {
            job.id: _count_left(connection, catalog, job) for job in found if job.state != "done"
        }
    return [
        JobEstimate(job, left[job.id], _estimate(storage, catalog, job, left[job.id]))
        for job in sort_by_priority(found)
        if job.state != "done"
    ]


def _count_left(connection: Connection, catalog: TenantCatalog, job: Job) -> int:
    progress = read_progress(connection, job.id)
    if not progress.ranges and not type_of(job).rewrites_records:
        records = RecordStatements(connection.storage, job.table, catalog.tenant)
        (count,) = connection.fetch_one(records.count_sql)
        return int(count)
    return max(0, count_reads(connection, catalog, job, progress) - progress.read)


def _estimate(storage: Storage, catalog: TenantCatalog, job: Job, left: int) -> float | None:
    """At the speed of the sample, or at the job's rate if that is less."""
    try:
        work = make_work(storage, catalog, structs.replace(job, state="planned"))
        seconds = measure_work(storage, work, SAMPLE_RECORDS)
    except (Superseded, HeldBack, ExecutorMismatch):
        return None
    if seconds is None:
        return None
    with storage.transaction(TransactionMode.READ) as connection:
        rate = read_throttle(connection, job).records_per_second
    return left * max(seconds, 1 / rate if rate else 0.0)


def measure_work(
    storage: Storage,
    work: Work,
    sample: int,
    prepare: Callable[[Connection], object] = lambda connection: None,
) -> float | None:
    """The seconds that a record takes, from a sample of the table; None if none could be done.
    `prepare` comes first in each transaction, and is not measured."""
    if not may_write_soon(storage):
        return None
    limit = -(-sample // PARTS)
    done, spent = 0, 0.0
    for place in _find_places(storage, work):

        def run(connection: Connection, place: bytes | None = place) -> int:
            batch = work.fetch(connection, place, None, limit, of_held="skip")
            if batch:
                work.write(connection, batch, 0)
            return len(batch)

        count, seconds = try_out(storage, run, prepare)
        done, spent = done + count, spent + seconds
    return spent / done if done else None


def _find_places(storage: Storage, work: Work) -> list[bytes | None]:
    """Where to begin: at the beginning, and at keys that are as far from each other."""
    if work.entries is not None:  # it goes through these, in no order of the table's keys
        return [None]
    with storage.transaction(TransactionMode.READ) as connection:
        (count,) = connection.fetch_one(work.records.count_sql)
        skips = sorted({count * part // PARTS for part in range(1, PARTS)} - {0})
        found = [work.records.find_key(connection, b"", skip) for skip in skips]
    return [None, *(key for key in found if key is not None)]


def try_out(
    storage: Storage,
    action: Callable[[Connection], int],
    prepare: Callable[[Connection], object] = lambda connection: None,
) -> tuple[int, float]:
    """Do something in a job's transaction that is rolled back; returns how many records it was, and
    the seconds; (0, 0) if it failed."""
    done, seconds = 0, 0.0
    with suppress(ZapdbError, _Undo), storage.transaction(TransactionMode.JOB) as connection:
        prepare(connection)
        began = time.perf_counter()
        count = action(connection)
        done, seconds = count, time.perf_counter() - began
        raise _Undo
    return done, seconds


def may_write_soon(storage: Storage) -> bool:
    """Whether this process may write, and no other one keeps it from that: an estimate is not worth
    waiting for."""

    def begin() -> None:
        with suppress(_Undo), storage.transaction(TransactionMode.NOWAIT):
            raise _Undo

    if storage.read_only:
        return False
    try:
        retry(ESTIMATE, begin, on=ConcurrencyError)
    except ZapdbError:
        return False
    return True
