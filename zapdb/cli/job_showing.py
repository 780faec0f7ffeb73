"""`zapdb jobs show`: how far a job is, which needs the code that does its work."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from zapdb.activation import TenantCatalog
from zapdb.catalog.row_kinds import Job
from zapdb.cli.connecting import TenantOptions
from zapdb.cli.job_progress import write_findings
from zapdb.cli.jobs import JobArgument, job_to_json, show_state, show_throttle
from zapdb.cli.output import Output, format_seconds
from zapdb.jobs.job_status import JobStatus, measure_rate, read_job_status
from zapdb.jobs.job_types import name_job, type_of
from zapdb.printing import show_moment
from zapdb.records import codec_for
from zapdb.records.unreadable import DecodeKey

SHOWN_DIGITS: Final = 2
"""Digits of an estimate that are shown."""


def jobs_show_command(
    job: JobArgument,
    options: TenantOptions,
    output: Output,
    seconds: Annotated[
        float,
        typer.Option(
            "--measure", min=0, max=60, metavar="SECONDS", help="How long to measure the rate."
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
    with options.opened() as (storage, catalog):
        status = read_job_status(storage, catalog.tenant, job)
        rate = measure_rate(storage, status, seconds)
    has_end = status.has_end
    left = max(0, status.reads - status.progress.read) / rate if rate and has_end else None
    _write_status(catalog, status, rate, left, output)
    workers = [
        {"range": one.number, "owner": one.owner, "lease_left_us": one.lease_left_us}
        for one in status.open_ranges
        if one.is_held
    ]
    output.document(
        job_to_json(status.job, status.progress, status.waits, status.is_running)
        | {
            "reads": status.reads,
            "workers": workers,
            "latencies": status.probes,
            "records_per_second": None if rate is None else round(rate, 1),
            "seconds_left": None if left is None else round(left, 1),
            "quarantine": status.quarantine,
        }
    )


def _write_status(
    catalog: TenantCatalog,
    status: JobStatus,
    rate: float | None,
    seconds_left: float | None,
    output: Output,
) -> None:
    job, progress = status.job, status.progress
    output.write((job.id, "bold"), f": {name_job(catalog, job).doing}")
    changed = f", changed by {job.changed_by}, {show_moment(job.changed_at)}"
    said = changed if job.changed_at else ""
    output.write("  state: ", show_state(job, is_running=status.is_running), said)
    output.write(f"  priority: {job.priority}, throttle: {show_throttle(job.throttle)}")
    of = f" of {_show_reads(status)}" if status.has_end else ""
    output.write(
        f"  records: {progress.read:,} read{of}, {progress.written:,} written, "
        f"{progress.conflicts:,} conflicts"
    )
    output.write(f"  ranges: {progress.ranges_done:,} done of {progress.ranges:,}")
    if rate is not None:
        shown = "unknown" if seconds_left is None else format_seconds(seconds_left)
        output.write(f"  rate: {rate:,.0f} records/s, time left: {shown}")
    for one in status.open_ranges:
        if one.is_held:
            output.write(f"  range {one}")
    if job.error and job.state != "planned":  # else it is among what it waits for
        output.write(("  error: ", "red"), job.error)
    for probe in status.probes:
        output.write(f"  latency: {probe}")
    for reason in status.waits:
        output.write(("  waits: ", "yellow"), reason)
    write_findings(job, output)
    decode_key = _find_key_decoder(catalog, job)
    for record in status.quarantine:
        output.write("  can't be read: record ", record.show(decode_key))
    hidden = progress.quarantined - len(status.quarantine)
    if hidden:
        output.write(f"  … and {hidden:,} more")


def _find_key_decoder(catalog: TenantCatalog, job: Job) -> DecodeKey | None:
    """What decodes the keys of a job's table; None if that is not active."""
    for descriptor in catalog.tables.values():
        if descriptor.schema.number == job.table:
            return codec_for(descriptor.schema, catalog.zones).decode_key
    return None


def _show_reads(status: JobStatus) -> str:
    """How many records the job will have read; what was found by a sample is rounded."""
    job, reads = status.job, status.reads
    if type_of(job).is_exclusive and reads != status.progress.read:
        return f"about {reads:,}"
    # What is left of conversions is counted, and what is done is known.
    is_counted = not job.is_estimated or type_of(job).rewrites_records
    if is_counted or reads == status.progress.read:
        return f"{reads:,}"
    return f"about {round(reads, SHOWN_DIGITS - len(str(reads))):,}"
