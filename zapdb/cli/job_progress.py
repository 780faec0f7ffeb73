"""Running jobs with a progress bar on a terminal, and a line for each finished job."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from zapdb.activation import TenantCatalog
from zapdb.catalog.row_kinds import ConstraintFinding
from zapdb.cli.job_bar import showing_progress
from zapdb.cli.output import Output, format_count, format_seconds, print_note
from zapdb.control.job_runs import JobOutcome, JobRun, Waits, by_priority, count_run
from zapdb.jobs import Job, Progress, read_progress
from zapdb.jobs.job_run import BuildPauses, Runner, run_job, run_locally
from zapdb.jobs.job_types import name_job
from zapdb.jobs.waiting import SeenBy
from zapdb.storage import Storage


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
    pauses = BuildPauses()
    for job in by_priority(storage, jobs):
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
    run = count_run(job, before, run_job(storage, job, watched))
    return replace(run, waits=tuple(waits.values()))


def write_job_run(run: JobRun, catalog: TenantCatalog, output: Output, prefix: str = "") -> None:
    """Print how a run ended, behind the name of a tenant, say."""
    write_outcome(run.describe(catalog), output, prefix)


def write_outcome(run: JobOutcome, output: Output, prefix: str = "") -> None:
    """Print how a job ended."""
    if run.superseded:
        said = f"{run.doing}: the schema has changed since"
        output.write(prefix, ("superseded ", "yellow"), said)
        return
    if run.held is not None:
        output.write(prefix, ("waiting ", "yellow"), f"{run.doing}: {run.held}")
        write_way_on(run.id, run.state, run.again, output)
        return
    if run.state == "blocked":
        output.write(prefix, ("blocked ", "bold red"), run.doing)
        write_findings(run.table, run.findings, output)
        write_quarantined(run.table, run.id, run.quarantined, output)
        return
    records = format_count(run.read, "record")
    verb, _, rest = run.done.partition(" ")
    output.write(
        prefix,
        (verb, "green"),
        f" {rest}: {records} in {format_seconds(run.seconds)} ({run.records_per_second:,}/s)",
    )


def write_way_on(job_id: str, state: str, again: str, output: Output) -> None:
    """Print what lets a job go on that an operator holds back."""
    if state == "paused":
        output.write(f"  `zapdb jobs resume {job_id}` lets it go on")
    elif state == "cancelled":
        output.write(f"  {again}")
    else:
        output.write(f"  `zapdb jobs throttle {job_id} --window none` lets it run at any time")


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
