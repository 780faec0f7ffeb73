"""Jobs that a method runs: how far they are meanwhile, and how they ended."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeVar

from zapdb.activation import TenantCatalog, load_tenant_catalog
from zapdb.answers import hidden
from zapdb.catalog import principal
from zapdb.catalog.row_kinds import ConstraintFinding
from zapdb.control.jobs.listing import show_findings
from zapdb.errors import ConcurrencyError, StorageError
from zapdb.jobs import Job, Progress, read_progress
from zapdb.jobs.job import read_job
from zapdb.jobs.job_planning import sort_by_priority
from zapdb.jobs.job_run import BuildPauses, JobReport, Runner, run_job
from zapdb.jobs.job_status import count_by_revision, count_reads
from zapdb.jobs.job_types import name_job, type_of
from zapdb.jobs.waiting import Hold, SeenBy, find_waits
from zapdb.storage import Connection, Storage, TransactionMode

POLL_SECONDS: Final = 0.2
LOOK_SECONDS: Final = 1.0
"""How often it is asked what the job waits for."""
COUNT_SECONDS: Final = 1.0
COUNT_SHARE: Final = 0.05
"""Records are counted by revision at most so often, and for no more than this part of the time."""
RATE_SECONDS: Final = 5.0
"""The time over which a rate is measured."""

R = TypeVar("R")

Waits = dict[str, str]
"""What a job waited for, by what comes before the colon: numbers behind it change all the time."""


class RateMeter:
    """How fast a count grows."""

    def __init__(self) -> None:
        self._counts: deque[tuple[float, int]] = deque()

    def measure(self, now: float, count: int) -> float | None:
        """The rate per second in the last seconds before `now`; None at the first call."""
        self._counts.append((now, count))
        while self._counts[0][0] < now - RATE_SECONDS:
            self._counts.popleft()
        began, before = self._counts[0]
        return (count - before) / (now - began) if now > began else None


@dataclass(frozen=True, slots=True)
class JobLook:
    """How far a job that runs is at one moment.

    `doing` is what people call it; `read` and `total` are records, and `revisions` says how many
    records have which. `waits` are in words what it waits for.
    """

    id: str
    doing: str
    read: int = 0
    total: int | None = None
    records_per_second: float | None = None
    revisions: str = ""
    waits: tuple[str, ...] = ()

    @property
    def seconds_left(self) -> float | None:
        if not self.records_per_second or self.total is None:
            return None
        return max(0, self.total - self.read) / self.records_per_second


class JobWatcher:
    """Looks at a job from beside it."""

    def __init__(self, storage: Storage, job: Job, doing: str, seen_by: SeenBy) -> None:
        self._storage = storage
        self._job = job
        self._seen_by = seen_by
        self._meter = RateMeter()
        self._look_at = time.monotonic() + LOOK_SECONDS
        self._count_at = 0.0
        self.seen = JobLook(job.id, doing)
        self.waits = Waits()
        """All that it has waited for so far."""

    def look(self) -> JobLook | None:
        """How far it is now; None if the connection was lost, and the next look has another."""
        try:
            self.seen = self._look()
        except (StorageError, ConcurrencyError):
            self._storage.release_connection()
            return None
        self.waits |= {reason.partition(":")[0]: reason for reason in self.seen.waits}
        return self.seen

    def _look(self) -> JobLook:
        seen, now = self.seen, time.monotonic()
        with self._storage.transaction(TransactionMode.READ) as connection:
            progress = read_progress(connection, self._job.id)
            if now >= min(self._look_at, self._count_at):
                catalog = load_tenant_catalog(connection, self._job.tenant)
                if now >= self._count_at:
                    total = count_reads(connection, catalog, self._job, progress)
                    shown = _show_revisions(connection, catalog, self._job)
                    seen = replace(seen, total=max(total, progress.read), revisions=shown)
                    spent = time.monotonic() - now
                    self._count_at = now + max(COUNT_SECONDS, spent / COUNT_SHARE)
                if now >= self._look_at:
                    job = read_job(connection, self._job.id)
                    waits = find_waits(connection, catalog, job, self._seen_by)
                    seen = replace(seen, waits=waits)
                    self._look_at = now + LOOK_SECONDS
        rate = self._meter.measure(now, progress.read)
        return replace(seen, read=progress.read, records_per_second=rate)


def _show_revisions(connection: Connection, catalog: TenantCatalog, job: Job) -> str:
    if not type_of(job).rewrites_records:
        return ""
    counts = count_by_revision(connection, catalog, job.table)
    return ", ".join(f"revision {number}: {count:,}" for number, count in counts.items())


@dataclass(frozen=True, slots=True)
class JobRun:
    """A job that was run, as it ended; `progress` counts this run only. A superseded run did
    nothing, and what holds a job back ended the run before the job's end. `waits` has what it
    waited for meanwhile, in words."""

    job: Job
    superseded: bool
    progress: Progress
    seconds: float
    hold: Hold | None = None
    waits: tuple[str, ...] = ()

    @property
    def rate(self) -> float:
        """Return the records read per second."""
        return self.progress.read / self.seconds if self.seconds else 0.0

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.job.id,
            "kind": self.job.kind,
            "table": self.job.table_name,
            "target": self.job.target,
            "superseded": self.superseded,
            "held": None if self.hold is None else str(self.hold),
            "waits": self.waits,
            "findings": self.job.findings,
            "read": self.progress.read,
            "written": self.progress.written,
            "conflicts": self.progress.conflicts,
            "quarantined": self.progress.quarantined,
            "seconds": round(self.seconds, 3),
            "records_per_second": round(self.rate),
        }

    def describe(self, catalog: TenantCatalog, *, shows_values: bool = True) -> JobOutcome:
        """What is told of it; without examples of records, unless it may show values."""
        name, told = name_job(catalog, self.job), self.to_json()
        told["findings"] = show_findings(self.job, shows_values=shows_values)
        return JobOutcome(
            **told,
            state=self.job.state,
            doing=name.doing,
            done=name.done,
            again=type_of(self.job).again,
        )


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """How the run of a job ended; see `JobRun`. `doing` and `done` are what people call it while it
    runs and afterwards, and `again` is what becomes of a cancelled one."""

    id: str
    kind: str
    table: str
    target: int
    superseded: bool
    held: str | None
    waits: tuple[str, ...]
    findings: tuple[ConstraintFinding, ...]
    read: int
    written: int
    conflicts: int
    quarantined: int
    seconds: float
    records_per_second: int
    state: str = hidden()
    doing: str = hidden()
    done: str = hidden()
    again: str = hidden()


def count_run(job: Job, before: Progress, report: JobReport | None) -> JobRun:
    """How a run ended that began when the job was as far as `before`."""
    if report is None:
        return JobRun(job, True, Progress(0, 0, 0, 0, 0), 0.0)
    after = report.progress
    progress = Progress(
        after.ranges,
        after.ranges_done - before.ranges_done,
        after.read - before.read,
        after.written - before.written,
        after.conflicts - before.conflicts,
        after.quarantined,
    )
    return JobRun(report.job, False, progress, report.seconds, report.hold)


def by_priority(storage: Storage, jobs: Iterable[Job]) -> Iterator[Job]:
    """Planned jobs, one after the other, by their priorities as they are then."""
    left = list(jobs)
    while left:
        with storage.transaction(TransactionMode.READ) as connection:
            left = sort_by_priority(read_job(connection, job.id) for job in left)
        yield left.pop(0)


StoppableRunner = Callable[[Callable[[], bool]], Runner]
"""Makes a runner of a function that says whether it should stop."""


def run_watched(
    storage: Storage,
    job: Job,
    doing: str,
    make_runner: StoppableRunner,
    seen_by: SeenBy = "worker",
) -> Generator[JobLook, None, tuple[JobReport | None, Waits]]:
    """Run a planned job in a thread, and yield how far it is; returns its report, and what it
    waited for. What ends the iteration stops the job after its present batch."""
    stop, runner = threading.Event(), _Running(storage)
    watcher = JobWatcher(storage, job, doing, seen_by)
    runner.start(partial(run_job, storage, job, make_runner(stop.is_set)))
    try:
        yield watcher.seen
        while not runner.ended.wait(POLL_SECONDS):
            seen = watcher.look()
            if seen is not None:
                yield seen
    finally:
        stop.set()
        runner.join()
    return runner.result(), watcher.waits


class _Running:
    """A thread that runs one job."""

    def __init__(self, storage: Storage) -> None:
        self.ended = threading.Event()
        self._storage = storage
        self._report: JobReport | None = None
        self._failure: BaseException | None = None
        self.join: Callable[[], None] = lambda: None

    def start(self, work: Callable[[], JobReport | None]) -> None:
        thread = threading.Thread(
            target=self._run, args=(principal.for_caller(work),), name="zapdb-job", daemon=True
        )
        self.join = thread.join
        thread.start()

    def _run(self, work: Callable[[], JobReport | None]) -> None:
        try:
            self._report = work()
        except BaseException as error:
            self._failure = error
        finally:
            self._storage.release_connection()
            self.ended.set()

    def result(self) -> JobReport | None:
        """The report; raises what the job raised."""
        if self._failure is not None:
            raise self._failure
        return self._report


def run_planned(
    storage: Storage,
    catalog: TenantCatalog,
    jobs: Iterable[Job],
    make_runner: StoppableRunner,
    shows_values: Callable[[str], bool],
) -> Iterator[JobLook | JobOutcome]:
    """Run planned jobs one after the other; yield how far each is, and how it ended.

    `shows_values` says of a table whether values of its records may be told.
    """
    pauses = BuildPauses()
    for job in by_priority(storage, jobs):
        pauses.wait_before(job)
        before = read_progress(storage.connection(), job.id)
        doing = name_job(catalog, job).doing
        report, waits = yield from run_watched(storage, job, doing, make_runner)
        run = replace(count_run(job, before, report), waits=tuple(waits.values()))
        pauses.note(run.job, run.seconds)
        yield run.describe(catalog, shows_values=shows_values(job.table_name))
