"""`zapdb jobs show`: how far a job is, which needs the code that does its work."""

from __future__ import annotations

from typing import Annotated, Final, cast

import typer

from zapdb.catalog.row_kinds import JobKind
from zapdb.cli.connecting import ServedTenantOptions
from zapdb.cli.job_progress import write_findings
from zapdb.cli.jobs import JobArgument, show_state, show_throttle
from zapdb.cli.output import Output, format_seconds
from zapdb.control.jobs import showing
from zapdb.control.jobs.showing import JobDetails
from zapdb.jobs.job import OpenRange
from zapdb.jobs.job_types import JOB_TYPES, JobType
from zapdb.limits import JOB_MEASURE_SECONDS_MAX
from zapdb.printing import show_moment

SHOWN_DIGITS: Final = 2
"""Digits of an estimate that are shown."""


def jobs_show_command(
    job: JobArgument,
    options: ServedTenantOptions,
    output: Output,
    seconds: Annotated[
        float,
        typer.Option(
            "--measure",
            min=0,
            max=JOB_MEASURE_SECONDS_MAX,
            metavar="SECONDS",
            help="How long to measure the rate.",
        ),
    ] = 1.0,
) -> None:
    """Show how far a job is, its rate, its workers, and everything that it waits for.

    The rate is measured while the command runs, if a process works on the job.

    With `--json`: the job as in `list`, with `reads`, how many records it will have read at its
    end, `workers: [{range, owner, lease_left_us}]`, `records_per_second` and `seconds_left`, which
    are null if nobody works on it, `latencies: [{owner, latency_ms, share_percent}]`, what its
    processes measured last if it has a ceiling, and `quarantine: [{key, reason, found_at}]`, the
    first records that can't be read, with keys in hex.
    """
    with options.control() as control:
        found = control.call(showing.get_job, job, seconds)
    _write_job(found, output)
    output.document(found)


def _write_job(job: JobDetails, output: Output) -> None:
    kind = JOB_TYPES[cast("JobKind", job.kind)]
    output.write((job.id, "bold"), f": {job.doing}")
    changed = f", changed by {job.changed_by}, {show_moment(job.changed_at)}"
    said = changed if job.changed_at else ""
    output.write("  state: ", show_state(job.state, is_running=job.is_running), said)
    output.write(f"  priority: {job.priority}, throttle: {show_throttle(job.throttle)}")
    has_end = job.records > 0 or not kind.is_exclusive
    of = f" of {_show_reads(job, kind)}" if has_end else ""
    output.write(
        f"  records: {job.read:,} read{of}, {job.written:,} written, {job.conflicts:,} conflicts"
    )
    output.write(f"  ranges: {job.ranges_done:,} done of {job.ranges:,}")
    if job.records_per_second is not None:
        shown = "unknown" if job.seconds_left is None else format_seconds(job.seconds_left)
        output.write(f"  rate: {job.records_per_second:,.0f} records/s, time left: {shown}")
    for one in job.workers:
        output.write(f"  range {OpenRange(one.range, True, one.owner, one.lease_left_us, 0)}")
    if job.error and job.state != "planned":  # else it is among what it waits for
        output.write(("  error: ", "red"), job.error)
    for probe in job.latencies:
        output.write(f"  latency: {probe}")
    for reason in job.waits:
        output.write(("  waits: ", "yellow"), reason)
    write_findings(job.table, job.findings, output)
    for record in job.quarantine:
        output.write("  can't be read: record ", record.shown)
    hidden = job.quarantined - len(job.quarantine)
    if hidden:
        output.write(f"  … and {hidden:,} more")


def _show_reads(job: JobDetails, kind: JobType) -> str:
    """How many records the job will have read; what was found by a sample is rounded."""
    reads = job.reads
    if kind.is_exclusive and reads != job.read:
        return f"about {reads:,}"
    # What is left of conversions is counted, and what is done is known.
    is_counted = not job.is_estimated or kind.rewrites_records
    if is_counted or reads == job.read:
        return f"{reads:,}"
    return f"about {round(reads, SHOWN_DIGITS - len(str(reads))):,}"
