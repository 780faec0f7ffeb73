"""`zapdb convert run` and `status`: index builds, conversions of stale records, and validations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from zapdb.activation import load_tenant_catalog
from zapdb.catalog.feed import read_seq
from zapdb.cli.connecting import ServedTenantOptions, TenantOptions
from zapdb.cli.job_engine import Engine
from zapdb.cli.job_progress import (
    run_jobs,
    write_findings,
    write_job_run,
    write_quarantined,
)
from zapdb.cli.output import Output, format_count, format_duration
from zapdb.control.job_runs import JobRun
from zapdb.control.jobs import showing
from zapdb.control.jobs.showing import UnfinishedJob
from zapdb.errors import EXIT_ERROR, EXIT_PENDING, UsageError
from zapdb.jobs import Progress, list_jobs, plan_jobs
from zapdb.jobs.archive_pruning import drop_kept_tables
from zapdb.jobs.estimate import estimate_jobs
from zapdb.jobs.job_status import TableStatus
from zapdb.jobs.job_types import name_job, type_of
from zapdb.jobs.quarantine import count_quarantined
from zapdb.jobs.waiting import find_hold, find_lagging
from zapdb.storage import Storage, TransactionMode


def convert_run_command(
    options: TenantOptions,
    engine: Engine,
    output: Output,
    plan_only: Annotated[
        bool,
        typer.Option(
            "--plan-only",
            help="Only plan the jobs, so that they can be paused or throttled before they run.",
        ),
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Only show what there is to do, and how long it will take; see below."
        ),
    ] = False,
    retry_quarantined: Annotated[
        bool,
        typer.Option(
            "--retry-quarantined", help="Try records again that could not be read before."
        ),
    ] = False,
) -> int:
    """Build indexes, convert stale records, and validate checks and references.

    If records violate a unique index, a check or a reference, some of them are listed, and the exit
    status is 1: change or delete them, and run the command again. It can be interrupted at any
    time, and continues where it stopped when it is run again. Cancelled jobs that are still needed
    are planned again. Exit status 3 if jobs are left: paused, outside their window, or planned.

    Records that can't be read are put in quarantine and do not stop the rest; the exit status is 1.
    `zapdb jobs show` lists them: restore or delete them, and run the command with
    --retry-quarantined.

    With --dry-run, no job is planned. The time is that of one worker, measured on a sample of the
    records: the job's work is done on them and rolled back. Exit status 3 if there is work. With
    `--json`: `{jobs: [{id, kind, table, target, state, records, seconds}]}`, where `seconds` is
    null if it can't be measured.

    With `--json`: `{jobs: [{id, kind, table, target, superseded, held, waits, findings: [{what,
    count, examples}], read, written, conflicts, quarantined, seconds, records_per_second}],
    lagging, seq}`; `kind` is `index`, `convert` or `validate`, `held` says why a job was left,
    `waits` what it waited for while it ran, and `lagging` which migration is not active because
    processes lack its file, or null.
    """
    if dry_run:
        return _show_needed(output, options, is_planned=plan_only)
    runs: list[JobRun] = []
    with (
        engine.runner() as runner,
        options.opened() as (storage, catalog),
    ):
        drop_kept_tables(storage, catalog.tenant)
        jobs = plan_jobs(
            storage, catalog.tenant, is_by_hand=True, retries_quarantined=retry_quarantined
        )
        if plan_only:
            for job in jobs:
                output.write(("planned ", "yellow"), f"{name_job(catalog, job).doing}: {job.id}")
                runs.append(JobRun(job, False, Progress(0, 0, 0, 0, 0), 0.0))
            jobs = []
        run_jobs(storage, catalog, jobs, runner, output, runs.append)
        for run in _list_left(storage, catalog.tenant, {run.job.id for run in runs}):
            write_job_run(run, catalog, output)
            runs.append(run)
        seq, lagging = _find_lagging(storage, catalog.tenant)
    if not runs:
        output.write("nothing to do: every index is built, and every record is current")
    is_blocked = any(one.job.state == "blocked" for one in runs)
    if any(one.progress.quarantined for one in runs):
        output.write(
            "restore or delete these records, and run `zapdb convert run --retry-quarantined`"
        )
    elif is_blocked:
        output.write("change or delete these records, and run `zapdb convert run` again")
    if lagging is not None:
        output.write(("waiting ", "yellow"), lagging)
    output.document({"jobs": [one.to_json() for one in runs], "lagging": lagging, "seq": seq})
    if is_blocked:
        return EXIT_ERROR
    return EXIT_PENDING if (plan_only and runs) or any(one.hold for one in runs) else 0


def _show_needed(output: Output, options: TenantOptions, *, is_planned: bool) -> int:
    """The jobs that would be run, with the time that each will take."""
    if is_planned:
        raise UsageError(
            "--dry-run changes nothing, and --plan-only stores jobs", hint="give one of them"
        )
    with options.opened() as (storage, catalog):
        estimates = estimate_jobs(storage, catalog.tenant)
        for one in estimates:
            seconds = one.seconds
            took = "" if seconds is None else f", about {format_duration(max(1.0, seconds))}"
            state = "" if one.job.state == "planned" else f" ({one.job.state})"
            doing = name_job(catalog, one.job).doing
            records = format_count(one.records, "record")
            output.write(("needed ", "yellow"), f"{doing}: {records}{took}{state}")
    if not estimates:
        output.write("nothing to do: every index is built, and every record is current")
    output.document(
        {
            "jobs": [
                {
                    "id": one.job.id,
                    "kind": one.job.kind,
                    "table": one.job.table_name,
                    "target": one.job.target,
                    "state": one.job.state,
                    "records": one.records,
                    "seconds": None if one.seconds is None else round(one.seconds, 3),
                }
                for one in estimates
            ]
        }
    )
    return EXIT_PENDING if estimates else 0


def _find_lagging(storage: Storage, tenant: int) -> tuple[int, str | None]:
    """The newest seq, and which migration waits for processes with older files."""
    with storage.transaction(TransactionMode.READ) as connection:
        lagging = find_lagging(connection, load_tenant_catalog(connection, tenant))
        return read_seq(connection), lagging


def _list_left(storage: Storage, tenant: int, known: set[str]) -> list[JobRun]:
    """The jobs that were not run: they were paused before, or records in quarantine block them."""
    with storage.transaction(TransactionMode.READ) as connection:
        found = []
        for job in list_jobs(connection, tenant):
            if job.id in known or not type_of(job).needed:
                continue
            if job.state not in ("paused", "blocked"):
                continue
            progress = Progress(0, 0, 0, 0, 0, count_quarantined(connection, job.id))
            found.append(JobRun(job, False, progress, 0.0, find_hold(connection, job)))
        return found


def convert_status_command(options: ServedTenantOptions, output: Output) -> int:
    """Show how many records have each revision, and which jobs are not finished.

    Exit status 3 if records are stale, an index is not built, or a check or reference is not
    validated.

    With `--json`: `{pending, tables: [{table, records, stale, revision, layout_revision,
    by_revision, indexes_to_build, unvalidated}], jobs: [{id, kind, table, target, records, ranges,
    ranges_done, read, written, conflicts}], blocked: [{id, kind, table, findings: [{what, count,
    examples}], quarantined}]}`. `by_revision` maps a revision to a count, 0 to that of records
    whose revision can't be read; `jobs` are the unfinished jobs, and `blocked` the jobs that found
    violating records, or records that can't be read.
    """
    with options.control() as control:
        found = control.call(showing.get_conversion_status)
    _write_tables(found.tables, output)
    if found.jobs:
        output.write()
        _write_jobs(found.jobs, output)
    _write_unvalidated(found.tables, output)
    for job in found.blocked:
        output.write()
        output.write(("blocked ", "bold red"), job.doing)
        write_findings(job.table, job.findings, output)
        write_quarantined(job.table, job.id, job.quarantined, output)
    if found.pending:
        output.write()
        output.write(("pending", "yellow"), ": run `zapdb convert run`")
    output.document(found)
    return EXIT_PENDING if found.pending else 0


def _write_tables(tables: Sequence[TableStatus], output: Output) -> None:
    columns = ("table", "records", "stale", "by revision", "indexes to build")
    rows = [
        (
            table.table,
            f"{table.records:,}",
            (f"{table.stale:,}", "yellow" if table.stale else ""),
            ", ".join(
                f"{index or 'unreadable'}: {count:,}" for index, count in table.by_revision.items()
            )
            or "-",
            (", ".join(table.indexes_to_build) or "-", "yellow" if table.indexes_to_build else ""),
        )
        for table in tables
    ]
    output.table(columns, rows, right=("records", "stale"), empty="no tables")


def _write_unvalidated(tables: Sequence[TableStatus], output: Output) -> None:
    rows = [(table.table, what) for table in tables for what in table.unvalidated]
    if rows:
        output.write()
        output.table(("table", "not validated"), rows)


def _write_jobs(jobs: Sequence[UnfinishedJob], output: Output) -> None:
    columns = ("job", "ranges done", "read", "written", "conflicts")
    rows = [
        (
            job.doing,
            f"{job.ranges_done} of {job.ranges}",
            f"{job.read:,}",
            f"{job.written:,}",
            f"{job.conflicts:,}",
        )
        for job in jobs
    ]
    output.table(columns, rows, right=columns[1:])
