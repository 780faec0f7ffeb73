"""`zapdb migrate rehearse`: trying the pending migrations on the records."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Annotated

import typer

from zapdb.cli.configuration import AllTenantsOption, MigrationsOption, find_migrations
from zapdb.cli.connecting import ServedTenantOptions
from zapdb.cli.job_bar import closing_answers, showing_looks
from zapdb.cli.output import Output, Part, format_count, format_seconds
from zapdb.control.job_runs import JobLook, RateMeter
from zapdb.control.migrations.rehearsing import RehearsalEvent, rehearse, rehearse_rollback
from zapdb.errors import EXIT_ERROR, UsageError
from zapdb.jobs.migration_plan import ProcessPlan
from zapdb.jobs.rehearsal import (
    TRIED_RECORDS,
    Rehearsal,
    RehearsedIndex,
    RehearsedLoss,
    RehearsedTable,
)
from zapdb.limits import JOB_LATENCY_MS_MAX, PLAN_SAMPLE_RECORDS_MAX


def migrate_rehearse_command(
    options: ServedTenantOptions,
    output: Output,
    migrations: MigrationsOption = None,
    all_tenants: AllTenantsOption = False,
    sample: Annotated[
        int,
        typer.Option(
            min=0,
            max=PLAN_SAMPLE_RECORDS_MAX,
            metavar="N",
            help="Convert N records of each table there and back.",
        ),
    ] = TRIED_RECORDS,
    all_records: Annotated[
        bool, typer.Option("--all", help="Convert every record there and back.")
    ] = False,
    seed: Annotated[
        int | None,
        typer.Option(min=0, metavar="S", help="Draw the same records as an earlier run."),
    ] = None,
    latency: Annotated[
        int | None,
        typer.Option(
            "--max-latency",
            min=1,
            max=JOB_LATENCY_MS_MAX,
            metavar="MS",
            help="Slow down while a small query takes longer than this many milliseconds; else the "
            "setting `job_max_latency_ms`.",
        ),
    ] = None,
    is_rollback: Annotated[
        bool,
        typer.Option("--rollback", help="Try the rollback of stored migrations, and no files."),
    ] = False,
    to: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help="With --rollback: of all above this number; by default of the newest one.",
        ),
    ] = None,
) -> int:
    """Try the pending migrations on the records, before they are applied: nothing is stored.

    Tells what would be refused: records with the same values in a unique index, records that
    violate a check or refer to a record that is not there, and records that can't be read. Tells
    what would be lost: records are converted there and back and compared, and records without a
    value in a field that becomes required are counted. A table that gets a unique index, a check, a
    reference or a required field is read as a whole; of others, a sample is. The times of
    conversions and index builds are measured on a sample, with one worker. Last come the live
    processes with their files, and what would keep `zapdb migrate up` from applying.

    With `--rollback`, tells what rolling back would do instead: which indexes have to be built
    again and how long that takes, which records violate unique indexes, checks and references that
    come back, which fields are lost, and what would keep `zapdb migrate rollback` from it.

    It reads in small batches, beside readers and writers. What they write meanwhile may be missed.
    Exit status 1 if anything would be refused or lost; else 3 if a migration would wait for
    processes.

    With `--json`: `{tenant, position, target, refused, lost, migrations, tables: [{table, action,
    records, converted, seconds, includes_writing, indexes: [{index, unique, records, seconds}],
    refused: [{what, count, examples}], filled: [{what, count, examples}], tried, unchanged, losses:
    [{migration, field, operation, because, records, unchanged, key, value, back}], failures,
    unreadable_count, unreadable}], processes: [{process, release, files_end, served_position,
    blocks, rolled_back}], obstacles, raised_level, seed, is_rollback}`; with `--all-tenants`,
    `{tenants: […]}`. `refused` and `lost` are true or false; `migrations` are labels; `filled` are
    fields that become
    required; `failures` and `obstacles` are errors in the JSON form of all commands: what
    conversions lose without declaring it, and what `zapdb migrate up` would end with.
    `raised_level` is the level that it would raise the database to, or null.
    """
    if all_tenants and options.tenant is not None:
        raise UsageError("--tenant and --all-tenants contradict each other", hint="give one")
    is_of_files = migrations is not None or all_records or seed is not None
    _require_one_way(is_rollback=is_rollback, is_of_files=is_of_files, has_end=to is not None)
    found = list[Rehearsal]()
    with options.control() as control:
        if is_rollback:
            asked = control.call(rehearse_rollback, to, latency, all_tenants)
        else:
            given = (find_migrations(migrations), sample, all_records, seed, latency, all_tenants)
            asked = control.call(rehearse, *given)
        with closing_answers(asked) as events:
            for rehearsal in _show_looks(events, output):
                found.append(rehearsal)
                if all_tenants:
                    output.write((f"tenant {rehearsal.tenant}:", "bold"))
                _write_rehearsal(rehearsal, output)
                if all_tenants:
                    output.write()
    output.document({"tenants": found} if all_tenants else found[0])
    statuses = {_status_of(rehearsal) for rehearsal in found}
    return EXIT_ERROR if EXIT_ERROR in statuses else max(statuses, default=0)


def _require_one_way(*, is_rollback: bool, is_of_files: bool, has_end: bool) -> None:
    """Raise `UsageError` for options that have no meaning together."""
    if is_rollback and is_of_files:
        raise UsageError(
            "--rollback tries what is stored, on all records that matter: no files and no sample",
            hint="leave out --migrations, --all and --seed",
        )
    if has_end and not is_rollback:
        raise UsageError("--to needs --rollback", hint="add --rollback, or leave out --to")


def _status_of(found: Rehearsal) -> int:
    if found.refused or found.lost:
        return EXIT_ERROR
    return max((error.exit_status for error in found.obstacles), default=0)


def _show_looks(events: Iterator[RehearsalEvent], output: Output) -> Iterator[Rehearsal]:
    """Show how far it is; yields the answers."""
    shown: str | None = None
    with ExitStack() as bar:
        look: Callable[[JobLook], None] = lambda _: None  # noqa: E731 - until there is a bar
        meter = RateMeter()
        for event in events:
            if isinstance(event, Rehearsal):
                bar.close()
                shown = None
                yield event
                continue
            title = f"rehearse {event.table} of tenant {event.tenant}"
            if shown != title:
                bar.close()
                shown, meter = title, RateMeter()
                look = bar.enter_context(showing_looks(title, output))
            rate = meter.measure(time.monotonic(), event.read)
            look(JobLook(title, title, event.read, event.total, rate))


def _write_rehearsal(found: Rehearsal, output: Output) -> None:
    if not found.migrations:
        said = "there is nothing to roll back" if found.is_rollback else "nothing is pending"
        output.write(said)
        return
    count = format_count(len(found.migrations), "migration")
    what = f"rehearsed rolling back {count}" if found.is_rollback else f"rehearsed {count}"
    output.write(f"{what}: ", (", ".join(found.migrations), "bold"))
    output.write()
    rows: list[Sequence[Part]] = [
        (
            table.table,
            table.action,
            f"{table.records:,}",
            f"{table.converted:,}",
            _show_seconds(table),
            ", ".join(map(_show_index, table.indexes)),
        )
        for table in found.tables
    ]
    output.table(
        ("table", "action", "records", "to convert", "time to convert", "indexes to build"),
        rows,
        right=("records", "to convert", "time to convert"),
        empty="no table changes",
    )
    _write_tried(found, output)
    _write_refused(found, output)
    _write_lost(found, output)
    _write_processes(found, output)
    output.write()
    _write_sum(found, output)


def _show_seconds(table: RehearsedTable) -> str:
    if table.seconds is None:
        return ""
    shown = format_seconds(table.seconds)
    return shown if table.includes_writing or not table.converted else f"{shown}, without writing"


def _show_index(index: RehearsedIndex) -> str:
    said = ["unique"] if index.unique else []
    said += [] if index.seconds is None else [format_seconds(index.seconds)]
    return f"{index.index} ({', '.join(said)})" if said else index.index


def _write_tried(found: Rehearsal, output: Output) -> None:
    for table in found.tables:
        if not table.tried:
            continue
        drawn = f", drawn with --seed {found.seed}" if table.tried < table.records else ""
        came_back = "all came back"
        if table.unchanged < table.tried:
            came_back = f"{table.unchanged:,} came back unchanged"
        count = format_count(table.records, "record")
        what = f"{table.table}: converted {table.tried:,} of {count} there and back"
        output.write(f"{what}{drawn}: {came_back}")


def _write_refused(found: Rehearsal, output: Output) -> None:
    refused = [table for table in found.tables if table.is_refused]
    if not refused:
        return
    output.write()
    output.write(("would be refused:", "bold red"))
    for table in refused:
        for finding in table.refused:
            _write_finding(table, finding.what, finding.count, finding.examples, output)
        if table.unreadable_count:
            what = "can't be read"
            _write_finding(table, what, table.unreadable_count, table.unreadable, output)


def _write_finding(
    table: RehearsedTable, what: str, count: int, examples: Sequence[str], output: Output
) -> None:
    output.write(f"  {table.table}: {what}: {format_count(count, 'record')}")
    for example in examples:
        output.write(f"    {example}")
    if examples and count > len(examples):
        output.write(f"    … and {count - len(examples):,} more")


def _write_lost(found: Rehearsal, output: Output) -> None:
    lost = [table for table in found.tables if table.is_lost]
    if not lost:
        return
    output.write()
    way_back = "no way back" if found.is_rollback else "no rollback"
    output.write((f"would be lost, and {way_back} brings it back:", "bold yellow"))
    for table in lost:
        if table.action == "discarded":
            output.write(
                f"  {table.table}: {format_count(table.records, 'record')}, with the table"
            )
        for finding in table.filled:
            what = f"{finding.what} becomes required"
            _write_finding(table, what, finding.count, finding.examples, output)
        filled = {finding.what for finding in table.filled}
        for loss in table.losses:
            is_told = loss.operation == "make_required" and f"field {loss.field}" in filled
            if loss.unchanged < loss.records and not is_told:
                _write_loss(table, loss, output)
        for failure in table.failures:
            for at, line in enumerate(str(failure).splitlines()):
                output.write(f"  {line}" if at else f"  {table.table}: {line}")


def _write_loss(table: RehearsedTable, loss: RehearsedLoss, output: Output) -> None:
    because = f" ({loss.because})" if loss.because else ""
    output.write(
        f"  {table.table}.{loss.field}: {loss.operation} of {loss.migration}{because}:"
        f" {loss.unchanged:,} of {loss.records:,} came back"
    )
    if loss.key is not None:
        output.write(
            f"    {loss.key} has {loss.field}={loss.value}, which comes back as {loss.back}"
        )


def _write_processes(found: Rehearsal, output: Output) -> None:
    output.write()
    if not found.processes:
        what = "has a file of theirs" if found.is_rollback else "has the database open"
        output.write(f"no process {what}")
    else:
        output.write("live processes:")
    for process in found.processes:
        output.write(f"  {process.process}: {_show_files(process)}, release {process.release}")
        if process.blocks is not None:
            output.write((f"    {process.blocks} waits until it has the file", "yellow"))
    if found.raised_level is not None:
        output.write(
            f"the level of the database would rise to {found.raised_level}: older releases of zapdb"
            " can't open it any more"
        )


def _show_files(process: ProcessPlan) -> str:
    if not process.files_end:
        return "no files, so the active schema"
    return f"schema {process.schema}, files end at {process.files_end:04d}"


def _write_sum(found: Rehearsal, output: Output) -> None:
    for error in found.obstacles:
        command = "rollback" if found.is_rollback else "up"
        output.write((f"`zapdb migrate {command}` would end with:", "bold red"))
        for line in str(error).splitlines():
            output.write(f"  {line}")
    said = [
        *(["something would be refused"] if found.refused else []),
        *(["something would be lost"] if found.lost else []),
    ]
    if said:
        output.write((" and ".join(said), "bold red"))
    else:
        output.write(("nothing would be refused or lost", "green"))
