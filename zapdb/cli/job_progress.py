"""Running jobs with a progress bar on a terminal, and a line for each finished job."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from zapdb.activation import TenantCatalog
from zapdb.catalog.row_kinds import ConstraintFinding
from zapdb.cli.job_bar import Waits, showing_progress
from zapdb.cli.output import Output, format_count, format_seconds, print_note
from zapdb.jobs import Job, Progress, read_progress
from zapdb.jobs.job import read_job
from zapdb.jobs.job_planning import sort_by_priority
from zapdb.jobs.job_run import BuildPauses, JobReport, Runner, run_job, run_locally
from zapdb.jobs.job_types import name_job, type_of
from zapdb.jobs.waiting import Hold, SeenBy
from zapdb.storage import Storage, TransactionMode


@dataclass(frozen=True, slots=True)
class JobRun:
    """A job that this command ran, as it ended; `progress` counts this run only. A superseded run
    did nothing, and what holds a job back ended the run before the job's end. `waits` has what it
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


def run_jobs(
    storage: Storage,
    catalog: TenantCatalog,
    jobs: Iterable[Job],
    runner: Runner,
    output: Output,
    on_run: Callable[[JobRun], None] = lambda run: None,
) -> None:
    """Run planned jobs one after the other, by their priorities as they are then.

    Calls `on_run` after each. Ctrl-C ends the present one, and a note says how to go on.
    """
    left, pauses = list(jobs), BuildPauses()
    while left:
        with storage.transaction(TransactionMode.READ) as connection:
            left = sort_by_priority(read_job(connection, job.id) for job in left)
        job = left.pop(0)
        try:
            pauses.wait_before(job)
            run = run_one(storage, catalog, job, runner, output)
        except KeyboardInterrupt:
            print_note("nothing is lost: `zapdb convert run` continues where this stopped")
            raise
        pauses.note(run.job, run.seconds)
        on_run(run)
        write_job_run(run, catalog, output)


def run_jobs_here(
    storage: Storage,
    catalog: TenantCatalog,
    jobs: Iterable[Job],
    output: Output,
    on_run: Callable[[JobRun], None] = lambda run: None,
) -> None:
    """Run planned jobs in threads of this process, as `run_jobs`; Ctrl-C stops them."""
    with stopping_on_interrupt() as should_stop:
        runner = partial(run_locally, should_stop=should_stop)
        run_jobs(storage, catalog, jobs, runner, output, on_run)


def run_one(
    storage: Storage,
    catalog: TenantCatalog,
    job: Job,
    runner: Runner,
    output: Output,
    since: Progress | None = None,
) -> JobRun:
    """Run a planned job, with a bar on a terminal; counts what was done since it was at `since`, or
    from now on."""
    waits = Waits()
    watched = with_bar(runner, catalog, output, waits)
    before = since or read_progress(storage.connection(), job.id)
    run = _count_run(job, before, run_job(storage, job, watched))
    return replace(run, waits=tuple(waits.values()))


def _count_run(job: Job, before: Progress, report: JobReport | None) -> JobRun:
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


def write_job_run(run: JobRun, catalog: TenantCatalog, output: Output, prefix: str = "") -> None:
    """Print how a run ended, behind the name of a tenant, say."""
    name = name_job(catalog, run.job)
    if run.superseded:
        said = f"{name.doing}: the schema has changed since"
        output.write(prefix, ("superseded ", "yellow"), said)
        return
    if run.hold is not None:
        output.write(prefix, ("waiting ", "yellow"), f"{name.doing}: {run.hold}")
        write_way_on(run.job, output)
        return
    if run.job.state == "blocked":
        output.write(prefix, ("blocked ", "bold red"), name.doing)
        write_findings(run.job.table_name, run.job.findings, output)
        write_quarantined(run.job.table_name, run.job.id, run.progress.quarantined, output)
        return
    records = format_count(run.progress.read, "record")
    verb, _, rest = name.done.partition(" ")
    output.write(
        prefix,
        (verb, "green"),
        f" {rest}: {records} in {format_seconds(run.seconds)} ({run.rate:,.0f}/s)",
    )


def write_way_on(job: Job, output: Output) -> None:
    """Print what lets a job go on that an operator holds back."""
    if job.state == "paused":
        output.write(f"  `zapdb jobs resume {job.id}` lets it go on")
    elif job.state == "cancelled":
        output.write(f"  {type_of(job).again}")
    else:
        output.write(f"  `zapdb jobs throttle {job.id} --window none` lets it run at any time")


def write_findings(table: str, findings: Sequence[ConstraintFinding], output: Output) -> None:
    """Print what blocks a job: the violated constraints, with some of the records."""
    for finding in findings:
        verb = "violates" if finding.count == 1 else "violate"
        counted = format_count(finding.count, "record")
        output.write(f"  {counted} of {table} {verb} the ", (finding.what, "bold"), ":")
        for example in finding.examples:
            output.write(f"    {example}")
        hidden = finding.count - len(finding.examples)
        if hidden:
            output.write(f"    … and {hidden:,} more")


def write_quarantined(table: str, job_id: str, count: int, output: Output) -> None:
    """Print how many records a job could not read."""
    if count:
        records = format_count(count, "record")
        output.write(f"  {records} of {table} can't be read: `zapdb jobs show {job_id}`")


def with_bar(
    runner: Runner, catalog: TenantCatalog, output: Output, waits: Waits | None = None
) -> Runner:
    """Return the runner with a bar if standard output is a terminal; otherwise, what a job waits
    for is told. `waits` collects that."""
    module = getattr(runner, "func", runner).__module__
    seen_by: SeenBy = "driver" if module.startswith("zapdb.spark") else "worker"

    def run(storage: Storage, job: Job) -> None:
        title = name_job(catalog, job).doing
        with showing_progress(storage, job, title, output, seen_by) as found:
            try:
                runner(storage, job)
            finally:
                if waits is not None:
                    waits.update(found)

    return run


@contextmanager
def stopping_on_interrupt() -> Iterator[Callable[[], bool]]:
    """Make Ctrl-C in the block also stop worker threads, each after its present range.

    The yielded function returns whether to stop: it is a runner's `should_stop`.
    """
    stop = threading.Event()

    def interrupt(number: int, frame: object) -> None:
        stop.set()
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield stop.is_set
    finally:
        signal.signal(signal.SIGINT, before)
