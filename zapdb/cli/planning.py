"""`zapdb migrate plan`: the effects of applying the pending migrations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from zapdb.cli.configuration import MigrationsOption, find_migrations
from zapdb.cli.connecting import ServedTenantOptions
from zapdb.cli.output import Output, Part, format_seconds
from zapdb.control.migrations.planning import SAMPLE_RECORDS, Plan, PlannedTable, plan
from zapdb.errors import EXIT_PENDING
from zapdb.limits import PLAN_SAMPLE_RECORDS_MAX


def migrate_plan_command(
    options: ServedTenantOptions,
    output: Output,
    migrations: MigrationsOption = None,
    sample: Annotated[
        int,
        typer.Option(
            min=1,
            max=PLAN_SAMPLE_RECORDS_MAX,
            metavar="N",
            help="Measure the conversion of N records.",
        ),
    ] = SAMPLE_RECORDS,
) -> int:
    """Show what applying the pending migrations will do, without changing anything.

    Shows the changes and resolved rollbacks, the records that will be converted, and the indexes
    that will be built. The time to convert is measured on a sample of the records, in one thread:
    they are converted and written in short transactions, which are rolled back. It then lists what
    processes with older code lose: fields they read as the rollback's value, and fields whose
    writes are dropped. Last, it lists the live processes with older code, with the migration that
    waits for them. Exit status 3 if a migration is pending.

    With `--json`: `{position, migrations: [{number, label, summary, waits_for_nodes, changes,
    rollback}], tables: [{table, action, records, converted, indexes, seconds, includes_writing,
    declared, dropped_writes}], processes: [{process, release, files_end, served_position,
    blocks, rolled_back}]}`. `action` is `created`, `changed`, `restored`, `archived` or
    `discarded`; `waits_for_nodes` is true if the migration is activated only when all live
    processes have its file; `changes` and `rollback` are YAML; `includes_writing` is false if this
    user may not write;
    `declared` and `dropped_writes` use the present names of fields; `served_position` is the
    position whose schema a process uses, and `blocks` the label of a migration that waits for it,
    or null.
    """
    directory = find_migrations(migrations)
    with options.control() as control:
        found = control.call(plan, directory, sample)
    _write_plan(found, output)
    output.document(found)
    return EXIT_PENDING if found.migrations else 0


def _write_plan(found: Plan, output: Output) -> None:
    if not found.migrations:
        output.write("nothing is pending")
        return
    for migration in found.migrations:
        output.write((migration.label, "bold"), f": {migration.summary}")
        if migration.waits_for_nodes:
            output.write("  is activated when all live processes have its file")
        for title, text in (("changes", migration.changes), ("rollback", migration.rollback)):
            output.write((f"  {title}:", "dim"))
            for line in text.splitlines():
                output.write(f"    {line}")
        output.write()
    rows: list[Sequence[Part]] = [
        (
            table.table,
            table.action,
            f"{table.records:,}",
            f"{table.converted:,}",
            _show_seconds(table),
            ", ".join(table.indexes),
        )
        for table in found.tables
    ]
    output.table(
        ("table", "action", "records", "to convert", "time to convert", "indexes to build"),
        rows,
        right=("records", "to convert", "time to convert"),
        empty="no table changes",
    )
    _write_losses(found, output)
    output.write()
    if not found.processes:
        output.write("every live process has the pending files")
        return
    output.write(("live processes that will be served an older schema:", "yellow"))
    for process in found.processes:
        shape = f"schema {process.schema}, files end at {process.files_end:04d}"
        output.write(f"  {process.process}: {shape}, release {process.release}")
        if process.blocks is not None:
            output.write((f"    {process.blocks} waits until it has the file", "yellow"))


def _show_seconds(table: PlannedTable) -> str:
    if table.seconds is None:
        return ""
    shown = format_seconds(table.seconds)
    return shown if table.includes_writing or not table.converted else f"{shown}, without writing"


def _write_losses(found: Plan, output: Output) -> None:
    lossy = [table for table in found.tables if table.declared or table.dropped_writes]
    if not lossy:
        return
    output.write()
    output.write(("what processes with older code lose:", "yellow"))
    for table in lossy:
        for names, what in (
            (table.declared, "they read the rollback's value"),
            (table.dropped_writes, "their writes are dropped"),
        ):
            if names:
                output.write(f"  {table.table}: {', '.join(names)}: {what}")
