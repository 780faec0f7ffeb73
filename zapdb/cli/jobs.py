"""`zapdb jobs`: what jobs there are and what they wait for; and changing them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Concatenate, ParamSpec, cast

import typer

from zapdb.catalog.row_kinds import JobKind, JobThrottle
from zapdb.cli.connecting import KeyedTenantOptions, ServedTenantOptions
from zapdb.cli.output import Output
from zapdb.control import Target
from zapdb.control.jobs import listing
from zapdb.control.jobs.listing import JobChange, ThrottleChange
from zapdb.errors import UsageError
from zapdb.jobs.job_types import BEGINS_ANEW, JOB_TYPES

P = ParamSpec("P")

JobArgument = Annotated[
    str, typer.Argument(metavar="JOB", help="The job's id, or the beginning of it.")
]
COLORS = {"done": "green", "planned": "", "superseded": "dim"}
NONE = "none"


def jobs_list_command(
    options: ServedTenantOptions,
    output: Output,
    every: Annotated[
        bool, typer.Option("--all", help="Also show jobs that are done or superseded.")
    ] = False,
) -> None:
    """List unfinished jobs, the most urgent first, and what they wait for.

    With `--json`: `{jobs: [{id, kind, table, subject, error, target, state, is_running, priority,
    throttle, records, is_estimated, ranges, ranges_done, read, written, conflicts, quarantined,
    changed_at, changed_by, waits, findings}], lagging}`. `kind` is `index`, `convert`, `validate`,
    `verify`, `repair`, `import`, `export` or `mirror`; `subject` is the source of an import, the
    target of an export or mirror, or what is repaired; `error` is what has ended the last run of
    these four; a job that `is_running` is shown so, and its `state` is planned; `is_estimated` says
    that `records` were found by a sample; `waits` says in words what a job waits for, and `lagging`
    which migration is not active because processes lack its file, or null; `changed_at` is in
    microseconds since 1970 UTC.
    """
    with options.control() as control:
        found = control.call(listing.list_jobs, every)
    output.table(
        ("job", "work", "state", "priority", "ranges done", "waits"),
        [
            (
                (job.id, "bold"),
                job.doing,
                show_state(job.state, is_running=job.is_running),
                str(job.priority),
                f"{job.ranges_done:,} of {job.ranges:,}",
                job.waits[0] if job.waits else "-",
            )
            for job in found.jobs
        ],
        right=("priority", "ranges done"),
        empty="no jobs",
    )
    if found.lagging is not None:
        output.write(("waiting ", "yellow"), found.lagging)
    output.document(found)


def show_state(state: str, *, is_running: bool) -> tuple[str, str]:
    """The state and its color; a planned job that is worked on is called running."""
    return ("running", "") if is_running else (state, COLORS.get(state, "yellow"))


def show_throttle(throttle: JobThrottle) -> str:
    """The limits in words, or `none`."""
    parts = [
        f"{throttle.records_per_second:,} records/s" if throttle.records_per_second else "",
        f"{throttle.bytes_per_second:,} bytes/s" if throttle.bytes_per_second else "",
        f"queries below {throttle.max_latency_ms:,} ms" if throttle.max_latency_ms else "",
        f"in the window {throttle.window}" if throttle.window else "",
    ]
    return ", ".join(filter(None, parts)) or NONE


def jobs_pause_command(job: JobArgument, options: KeyedTenantOptions, output: Output) -> None:
    """Pause a job: its workers stop after their current batches, until you resume it.

    With `--json`: `{id, state, seq}`; a process whose catalog cache has the seq sees the change.
    """
    _write(_change(options, listing.pause_job, job), ("paused ", "yellow"), output)


def jobs_resume_command(job: JobArgument, options: KeyedTenantOptions, output: Output) -> None:
    """Resume a paused job, where it stopped.

    Background jobs, `convert watch`, and the waiting process of an import, export or mirror
    continue by themselves. If none of these runs, run the command of the job's kind: `zapdb convert
    run`, `zapdb verify`, `zapdb import`.

    With `--json`: as for `pause`.
    """
    _write(_change(options, listing.resume_job, job), ("resumed ", "green"), output)


def jobs_cancel_command(job: JobArgument, options: KeyedTenantOptions, output: Output) -> None:
    """Cancel a job: its workers stop at once, and background jobs leave it alone from then on.

    What it has done stays done. If its target is still needed, `zapdb convert run` plans it again.
    The process of an import, export or mirror ends; run again, imports and mirrors go on where they
    stopped.

    With `--json`: as for `pause`.
    """
    changed = _change(options, listing.cancel_job, job)
    _write(changed, ("cancelled ", "yellow"), output)
    kind = JOB_TYPES[cast("JobKind", changed.kind)]
    kept = "" if kind.goes_on == BEGINS_ANEW else "what it has done stays done; "
    output.write(f"  {kept}{kind.again}")


def jobs_priority_command(
    job: JobArgument,
    priority: Annotated[int, typer.Argument(help="0 to 1,000; jobs with a higher one run first.")],
    options: KeyedTenantOptions,
    output: Output,
) -> None:
    """Change the priority of a job.

    By default, indexes that are rebuilt have 800, other indexes 600, validations 400, conversions
    200, and verifications 100. Background jobs and `convert watch` look for the most urgent job at
    once, `convert run` after its present job. Imports, exports and mirrors have 1,000; with less,
    they wait while a process works on a more urgent job.

    With `--json`: as for `pause`.
    """
    changed = _change(options, listing.set_job_priority, job, priority)
    _write(changed, (f"priority {priority} for ", "green"), output)


def jobs_throttle_command(
    job: JobArgument,
    options: KeyedTenantOptions,
    output: Output,
    records: Annotated[
        str | None,
        typer.Option(
            "--records-per-second",
            metavar="N",
            help="Records that all its workers may read in a second; or none.",
        ),
    ] = None,
    size: Annotated[
        str | None,
        typer.Option(
            "--bytes-per-second",
            metavar="N",
            help="Bytes a second, of keys and records without large values; or none.",
        ),
    ] = None,
    latency: Annotated[
        str | None,
        typer.Option(
            "--max-latency",
            metavar="MS",
            help="Slow down while a small query takes longer than this many milliseconds; or none.",
        ),
    ] = None,
    window: Annotated[
        str | None,
        typer.Option(metavar="HH:MM-HH:MM", help="Run only at this time of each day; or none."),
    ] = None,
    zone: Annotated[str, typer.Option(help="The window's time zone.")] = "UTC",
) -> None:
    """Limit how fast all workers of a job together read, and when; takes effect in the next batch.

    With `--max-latency`, the workers measure how long a small read and a small write take beside
    the job. Above the ceiling they work for a smaller share of the time, below it for a larger one.

    Limits that you do not give stay as they are; `none` removes one. The settings
    `job_records_per_second` and `job_max_latency_ms` are the limits of jobs without their own.

    With `--json`: as for `pause`.
    """
    if (records, size, latency, window) == (None, None, None, None):
        raise UsageError(
            "there is nothing to change",
            hint="give --records-per-second, --bytes-per-second, --max-latency, or --window",
        )
    change = ThrottleChange(
        _parse_rate("--records-per-second", records),
        _parse_rate("--bytes-per-second", size),
        _parse_rate("--max-latency", latency),
        window,
        zone,
    )
    changed = _change(options, listing.throttle_job, job, change)
    _write(changed, ("throttled ", "green"), output, f": {show_throttle(changed.throttle)}")


def _parse_rate(option: str, text: str | None) -> int | None:
    """0 for none; None if it is not given."""
    if text is None or text == NONE:
        return None if text is None else 0
    if not (text.isascii() and text.isdigit() and 0 < int(text[:20]) < 2**62):
        example = 20 if option == "--max-latency" else 1000
        raise UsageError(
            f"{option} takes a whole number above 0, or none",
            given=text,
            hint=f"for example {option} {example}",
        )
    return int(text)


def _change(
    options: KeyedTenantOptions,
    change: Callable[Concatenate[Target, P], JobChange],
    *args: P.args,
    **named: P.kwargs,
) -> JobChange:
    with options.control() as control:
        return control.call(change, *args, **named)


def _write(changed: JobChange, said: tuple[str, str], output: Output, ending: str = "") -> None:
    output.write(said, f"{changed.doing}{ending}")
    output.document(changed)
