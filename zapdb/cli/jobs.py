"""`zapdb jobs`: what jobs there are and what they wait for; and changing them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer
from msgspec import structs

from zapdb.catalog.feed import read_seq
from zapdb.catalog.row_kinds import Job, JobThrottle
from zapdb.cli.connecting import TenantOptions
from zapdb.cli.output import Output
from zapdb.errors import UsageError
from zapdb.jobs.control import (
    cancel_job,
    find_job,
    pause_job,
    resume_job,
    set_job_priority,
    throttle_job,
)
from zapdb.jobs.job import OPEN_STATES, Progress, list_jobs, read_job, read_progress
from zapdb.jobs.job_planning import sort_by_priority
from zapdb.jobs.job_types import BEGINS_ANEW, name_job, type_of
from zapdb.jobs.waiting import find_lagging, find_waits, has_worker
from zapdb.jobs.window import parse_window
from zapdb.storage import Storage, TransactionMode

JobArgument = Annotated[
    str, typer.Argument(metavar="JOB", help="The job's id, or the beginning of it.")
]
COLORS = {"done": "green", "planned": "", "superseded": "dim"}
NONE = "none"


def jobs_list_command(
    options: TenantOptions,
    output: Output,
    every: Annotated[
        bool, typer.Option("--all", help="Also show jobs that are done or superseded.")
    ] = False,
) -> None:
    """List unfinished jobs, the most urgent first, and what they wait for.

    With `--json`: `{jobs: [{id, kind, table, subject, error, target, state, is_running, priority,
    throttle, records, is_estimated, ranges, ranges_done, read, written, conflicts, quarantined,
    changed_at, changed_by, waits, findings}], lagging}`. `kind` is `index`, `convert`, `validate`,
    `roll_back`, `verify`, `repair`, `import`, `export` or `mirror`; `subject` is the source of an
    import, the target of an export or mirror, or what is repaired; `error` is what has ended the
    last run of these four; a job that `is_running` is shown so, and its `state` is planned;
    `is_estimated` says that `records` were found by a sample; `waits` says in words what a job
    waits for, and `lagging` which migration is not active because processes lack its file, or null;
    `changed_at` is in microseconds since 1970 UTC.
    """
    with (
        options.opened() as (storage, catalog),
        storage.transaction(TransactionMode.READ) as connection,
    ):
        jobs = [
            (
                job,
                read_progress(connection, job.id),
                find_waits(connection, catalog, job),
                job.state == "planned" and has_worker(connection, job),
            )
            for job in sort_by_priority(list_jobs(connection, catalog.tenant))
            if every or job.state in OPEN_STATES
        ]
        lagging = find_lagging(connection, catalog)
    output.table(
        ("job", "work", "state", "priority", "ranges done", "waits"),
        [
            (
                (job.id, "bold"),
                name_job(catalog, job).doing,
                show_state(job, is_running=is_running),
                str(job.priority),
                f"{progress.ranges_done:,} of {progress.ranges:,}",
                waits[0] if waits else "-",
            )
            for job, progress, waits, is_running in jobs
        ],
        right=("priority", "ranges done"),
        empty="no jobs",
    )
    if lagging is not None:
        output.write(("waiting ", "yellow"), lagging)
    output.document({"jobs": [job_to_json(*found) for found in jobs], "lagging": lagging})


def show_state(job: Job, *, is_running: bool) -> tuple[str, str]:
    """The state and its color; a planned job that is worked on is called running."""
    return ("running", "") if is_running else (job.state, COLORS.get(job.state, "yellow"))


def show_throttle(throttle: JobThrottle) -> str:
    """The limits in words, or `none`."""
    parts = [
        f"{throttle.records_per_second:,} records/s" if throttle.records_per_second else "",
        f"{throttle.bytes_per_second:,} bytes/s" if throttle.bytes_per_second else "",
        f"queries below {throttle.max_latency_ms:,} ms" if throttle.max_latency_ms else "",
        f"in the window {throttle.window}" if throttle.window else "",
    ]
    return ", ".join(filter(None, parts)) or NONE


def job_to_json(
    job: Job, progress: Progress, waits: tuple[str, ...], is_running: bool
) -> dict[str, Any]:
    """What `--json` shows of a job."""
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
        "findings": job.findings,
    }


def jobs_pause_command(job: JobArgument, options: TenantOptions, output: Output) -> None:
    """Pause a job: its workers stop after their current batches, until you resume it.

    The conversion of a rollback can be paused, too; writes stay refused meanwhile.

    With `--json`: `{id, state, seq}`; a process whose catalog cache has the seq sees the change.
    """
    _change(job, pause_job, ("paused ", "yellow"), options, output)


def jobs_resume_command(job: JobArgument, options: TenantOptions, output: Output) -> None:
    """Resume a paused job, where it stopped.

    Background jobs, `convert watch`, a rollback, and the waiting process of an import, export or
    mirror continue by themselves. If none of these runs, run the command of the job's kind: `zapdb
    convert run`, `zapdb verify`, `zapdb import`.

    With `--json`: as for `pause`.
    """
    _change(job, resume_job, ("resumed ", "green"), options, output)


def jobs_cancel_command(job: JobArgument, options: TenantOptions, output: Output) -> None:
    """Cancel a job: its workers stop at once, and background jobs leave it alone from then on.

    What it has done stays done. If its target is still needed, `zapdb convert run` plans it again.
    The process of an import, export or mirror ends; run again, imports and mirrors go on where they
    stopped. The conversion of a rollback can't be cancelled.

    With `--json`: as for `pause`.
    """
    changed = _change(job, cancel_job, ("cancelled ", "yellow"), options, output)
    kind = type_of(changed)
    kept = "" if kind.goes_on == BEGINS_ANEW else "what it has done stays done; "
    output.write(f"  {kept}{kind.again}")


def jobs_priority_command(
    job: JobArgument,
    priority: Annotated[int, typer.Argument(help="0 to 1,000; jobs with a higher one run first.")],
    options: TenantOptions,
    output: Output,
) -> None:
    """Change the priority of a job.

    By default, rollbacks have 900, indexes that are rebuilt 800, other indexes 600, validations
    400, conversions 200, and verifications 100. Background jobs and `convert watch` look for the
    most urgent job at once, `convert run` after its present job. Imports, exports and mirrors have
    1,000; with less, they wait while a process works on a more urgent job.

    With `--json`: as for `pause`.
    """

    def change(storage: Storage, job_id: str) -> Job:
        return set_job_priority(storage, job_id, priority)

    said = (f"priority {priority} for ", "green")
    _change(job, change, said, options, output)


def jobs_throttle_command(
    job: JobArgument,
    options: TenantOptions,
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
    numbers = {
        "records_per_second": ("--records-per-second", records),
        "bytes_per_second": ("--bytes-per-second", size),
        "max_latency_ms": ("--max-latency", latency),
    }

    def change(storage: Storage, job_id: str) -> Job:
        with storage.transaction(TransactionMode.READ) as connection:
            found = read_job(connection, job_id).throttle
        given = {name: _parse_rate(*pair) for name, pair in numbers.items() if pair[1] is not None}
        found = structs.replace(found, **given)
        if window is not None:
            daily = None if window == NONE else parse_window(window, zone)
            found = structs.replace(found, window=daily)
        return throttle_job(storage, job_id, found)

    _change(job, change, ("throttled ", "green"), options, output, shows_throttle=True)


def _parse_rate(option: str, text: str | None) -> int | None:
    if text is None or text == NONE:
        return None
    if not (text.isascii() and text.isdigit() and 0 < int(text[:20]) < 2**62):
        example = 20 if option == "--max-latency" else 1000
        raise UsageError(
            f"{option} takes a whole number above 0, or none",
            given=text,
            hint=f"for example {option} {example}",
        )
    return int(text)


def _change(
    text: str,
    change: Callable[[Storage, str], Job],
    said: tuple[str, str],
    options: TenantOptions,
    output: Output,
    *,
    shows_throttle: bool = False,
) -> Job:
    with options.opened() as (storage, catalog):
        with storage.transaction(TransactionMode.READ) as connection:
            found = find_job(connection, catalog.tenant, text)
        changed = change(storage, found.id)
        seq = read_seq(storage.connection())
    ending = f": {show_throttle(changed.throttle)}" if shows_throttle else ""
    output.write(said, f"{name_job(catalog, changed).doing}{ending}")
    output.document({"id": changed.id, "state": changed.state, "seq": seq})
    return changed
