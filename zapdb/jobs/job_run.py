"""Run planned jobs: a runner works on the ranges of a job, which is finished at the end.

A runner takes a planned job and calls `run_range` until no range is open. The local one uses
threads of this process; the one in `zapdb.spark` uses executors. Planning and finishing are the
same for both.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

from msgspec import structs

from zapdb.catalog.cluster.leases import Owner
from zapdb.catalog.feed import read_seq
from zapdb.catalog.row_kinds import Job
from zapdb.errors import JobError, ZapdbError
from zapdb.jobs.job import (
    Progress,
    begin_anew,
    describe_failure,
    note_failure,
    open_ranges,
    read_job,
    read_progress,
    set_state,
    slice_records,
)
from zapdb.jobs.job_planning import REBUILT_PRIORITY
from zapdb.jobs.quarantine import clear_quarantine, count_quarantined
from zapdb.jobs.range_work import run_range
from zapdb.jobs.throttle import Stopped, wait
from zapdb.jobs.waiting import Hold, find_hold
from zapdb.jobs.work import Findings, HeldBack, Superseded, Work
from zapdb.jobs.work_loading import load_work, make_work
from zapdb.limits import (
    BATCH_RECORDS_MAX,
    BUILD_PAUSE_SECONDS_MAX,
    BUILD_PAUSE_SHARE,
    OTHERS_POLL_SECONDS,
)
from zapdb.logs import log_event
from zapdb.storage import Storage, TransactionMode
from zapdb.storage.statements import catalog_version_sql

logger = logging.getLogger("zapdb.jobs")

Runner = Callable[[Storage, Job], None]
"""Works on a job's open ranges until none is left, or the job is superseded."""


@dataclass(frozen=True, slots=True)
class JobReport:
    """A job that was run to its end, or is held back; one that is blocked has findings."""

    job: Job
    progress: Progress
    seconds: float
    seq: int
    """A process whose cache of the catalog has it knows that the job has ended."""
    hold: Hold | None = None
    """Why the job is not at its end, if an operator holds it back."""

    @property
    def rate(self) -> float:
        """Records written per second."""
        return self.progress.written / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, slots=True)
class _EndedJob:
    """A job as it ended, and whether it was a transaction of ours that ended it, or a twin's."""

    job: Job
    ended_here: bool


def run_job(storage: Storage, job: Job, runner: Runner) -> JobReport | None:
    """Run a planned job to its end; None if it was superseded meanwhile.

    A job that is paused, cancelled or outside its window is left as it is; the report says why. An
    error of the runner is noted in the job, until it is run again.
    """
    started, is_last = time.perf_counter(), False
    while True:
        try:
            held = _report_held(storage, job, started)
            if held is not None:
                return held
            _work(storage, job, runner)
            ended = _finish(storage, job, is_last=is_last)
        except HeldBack:
            continue
        except Superseded:
            ended = _find_ended(storage, job)
            if ended is None:
                return None
        if ended is not None:
            report = _report(storage, ended.job, started)
            if ended.ended_here:
                _log(report)
            else:
                logger.debug("another process ended the job %s", job.id)
            return report
        if is_last:
            raise JobError(
                "an index does not match its records after it was built twice",
                job=job.id,
                table=job.table_name,
                hint="run `zapdb verify`, and report this as a bug",
            )
        is_last = True


class BuildPauses:
    """The pauses of one who runs jobs one after the other, between builds of indexes that queries
    wait for.

    Such an index was in use until its collation or time zone data changed, and queries scan, or
    wait for locks, until it is there again. Once it is, those that waited all come at once: so the
    next build, which reads a whole table, begins a little later.
    """

    def __init__(self, should_stop: Callable[[], bool] = lambda: False) -> None:
        self._should_stop = should_stop
        self._seconds = 0.0

    def wait_before(self, job: Job) -> None:
        """Wait if the job builds an index that queries wait for, and so did the last one."""
        if self._seconds and _is_waited_for(job):
            wait(self._seconds, self._should_stop)

    def note(self, job: Job, seconds: float) -> None:
        """Take in how a job ended, and after how long: a part of its time is what queries get."""
        self._seconds = 0.0
        if job.state == "done" and _is_waited_for(job):
            self._seconds = min(seconds * BUILD_PAUSE_SHARE, BUILD_PAUSE_SECONDS_MAX)


def _is_waited_for(job: Job) -> bool:
    return job.kind == "index" and job.priority >= REBUILT_PRIORITY


def run_each(
    storage: Storage,
    jobs: Iterable[Job],
    runner: Runner,
    should_stop: Callable[[], bool] = lambda: False,
) -> Iterator[JobReport]:
    """Run planned jobs one after the other, until it should stop, with `BuildPauses`; yields the
    reports of those that were not superseded."""
    pauses = BuildPauses(should_stop)
    for job in jobs:
        pauses.wait_before(job)
        if should_stop():
            return
        report = run_job(storage, job, runner)
        if report is None:
            pauses.note(job, 0.0)
        else:
            pauses.note(report.job, report.seconds)
            yield report


def _work(storage: Storage, job: Job, runner: Runner) -> None:
    try:
        runner(storage, job)
    except ZapdbError as error:
        note_failure(storage, job.id, describe_failure(error))
        raise


def _report_held(storage: Storage, job: Job, started: float) -> JobReport | None:
    with storage.transaction(TransactionMode.READ) as connection:
        stored = read_job(connection, job.id)
        hold = find_hold(connection, stored)
    if hold is None and stored.error:
        note_failure(storage, job.id, "")
    return None if hold is None else _report(storage, stored, started, hold)


def _report(storage: Storage, job: Job, started: float, hold: Hold | None = None) -> JobReport:
    with storage.transaction(TransactionMode.READ) as connection:
        progress, seq = read_progress(connection, job.id), read_seq(connection)
    return JobReport(job, progress, time.perf_counter() - started, seq, hold)


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


class _FoundBefore(Exception):
    """The tenant catalog has changed since the findings were collected."""


def _finish(storage: Storage, job: Job, *, is_last: bool) -> _EndedJob | None:
    """Count before the result is relied upon; None if the ranges had to be opened again.

    If the tenant catalog changes meanwhile, findings are collected again: an erasure, too, changes
    it, and takes their examples out of what is stored.
    """
    while True:
        with suppress(_FoundBefore):
            return _count_and_end(storage, job, is_last=is_last)


def _count_and_end(storage: Storage, job: Job, *, is_last: bool) -> _EndedJob | None:
    work = load_work(storage, job.id)
    work.tidy()
    with storage.transaction(TransactionMode.READ) as connection:
        if open_ranges(connection, job.id):
            raise JobError(
                "a runner stopped before its job was finished",
                job=job.id,
                hint="run it again; it continues where it stopped",
            )
        missing, quarantined = work.count_left(connection), count_quarantined(connection, job.id)
        findings = work.find_obstacles(connection, is_last=is_last) if missing else ()
        begins_anew = missing and not findings and not 0 < missing <= quarantined
        if begins_anew:
            ranges = slice_records(connection, work.records, work.entries).ranges
    if begins_anew:
        with storage.transaction(TransactionMode.CATALOG) as connection:
            begin_anew(connection, job.id, ranges)
            work.begin_anew(connection)
        return None
    if not missing:
        findings = work.finish()
    ended = _end_job(storage, work, findings, is_reached=not (missing or findings))
    if ended.job.state == "done":
        work.clean_up()
    return ended


def _end_job(storage: Storage, work: Work, findings: Findings, *, is_reached: bool) -> _EndedJob:
    """End a job: it is done if its target is reached; otherwise, findings or records in quarantine
    block it. Raises `_FoundBefore` for findings that were collected under another tenant
    catalog."""
    job = work.job
    with storage.transaction(TransactionMode.CATALOG) as connection:
        stored = read_job(connection, job.id, lock=True)
        if is_reached:
            clear_quarantine(connection, job.id)
            work.note_reached(connection)
            ended = set_state(connection, stored, "done")
            return _EndedJob(ended, ended_here=stored.state != "done")
        if stored.state != "planned" or open_ranges(connection, job.id):
            # another runner was faster, and the job was begun anew
            return _EndedJob(stored, ended_here=False)
        version = connection.fetch_one(catalog_version_sql(job.tenant))
        if findings and (version is None or version[0] != work.catalog.version):
            raise _FoundBefore
        blocked = set_state(connection, structs.replace(stored, findings=findings), "blocked")
        return _EndedJob(blocked, ended_here=True)


def run_locally(
    storage: Storage,
    job: Job,
    *,
    workers: int | None = None,
    batch_records_max: int = BATCH_RECORDS_MAX,
    should_stop: Callable[[], bool] = lambda: False,
) -> None:
    """The local runner: threads of this process; SQLite has room for one writer only."""
    count = workers or (1 if storage.dialect.name == "sqlite" else os.cpu_count() or 1)
    owner = Owner.here()

    def run_ranges(work: Work) -> None:
        try:
            while not should_stop():
                try:
                    result = run_range(
                        storage,
                        work,
                        owner,
                        batch_records_max=batch_records_max,
                        should_stop=should_stop,
                    )
                except Stopped:
                    return
                if result is None:
                    return
        finally:
            if count > 1:
                storage.release_connection()

    work = load_work(storage, job.id)
    if count == 1:
        run_ranges(work)
    else:
        works = [make_work(storage, work.catalog, work.job) for _ in range(count)]
        with ThreadPoolExecutor(count, thread_name_prefix="zapdb-job") as pool:
            for future in [pool.submit(run_ranges, one) for one in works]:
                future.result()
    # Ranges that other live processes hold are theirs; wait until they are done or given up.
    while not should_stop() and _is_open(storage, job):
        wait(OTHERS_POLL_SECONDS, should_stop)
        run_ranges(load_work(storage, job.id))


def _is_open(storage: Storage, job: Job) -> bool:
    with storage.transaction(TransactionMode.READ) as connection:
        return bool(open_ranges(connection, job.id))
