"""`zapdb migrate plan`: the effects of applying the pending migrations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from zapdb.activation.file_comparison import compare_files
from zapdb.activation.up import require_no_ongoing_rollback
from zapdb.catalog.stored_migrations import provisional_numbers
from zapdb.cli.configuration import MigrationsOption, find_migrations
from zapdb.cli.connecting import TenantOptions
from zapdb.cli.output import Output, Part, format_seconds
from zapdb.errors import EXIT_PENDING
from zapdb.jobs.plan import MigrationPlan, ServedSchemaLoss, TablePlan, make_migration_plan
from zapdb.migrations import Chain, Migration, list_files, resolve_files
from zapdb.migrations.undo import to_yaml

_SAMPLE_RECORDS = 500


def migrate_plan_command(
    options: TenantOptions,
    output: Output,
    migrations: MigrationsOption = None,
    sample: Annotated[
        int,
        typer.Option(min=1, metavar="N", help="Measure the conversion of N records."),
    ] = _SAMPLE_RECORDS,
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
    blocks}]}`. `action` is `created`, `changed`, `restored`, `archived` or `discarded`;
    `waits_for_nodes` is true if the migration is activated only when all live processes have its
    file; `changes` and `rollback` are YAML; `includes_writing` is false if this user may not write;
    `declared` and `dropped_writes` use the present names of fields; `served_position` is the
    position whose schema a process uses, and `blocks` the label of a migration that waits for it,
    or null.
    """
    files = list_files(find_migrations(migrations))
    with options.connected() as storage:
        catalog = options.read_catalog_if_any(storage)
        if catalog is None:
            chain = resolve_files(files)
            plan = MigrationPlan(chain.migrations, _all_created(chain), ())
        else:
            require_no_ongoing_rollback(catalog)
            pending = compare_files(files, list(catalog.stored), catalog.chain).pending
            chain = resolve_files(pending, catalog.chain, provisional_numbers())
            plan = make_migration_plan(storage, catalog, chain, sample)
    position = 0 if catalog is None else catalog.position
    _write_plan(plan, output)
    output.document(
        {
            "position": position,
            "migrations": [_migration_to_json(migration) for migration in plan.migrations],
            "tables": [
                {
                    "table": table.table,
                    "action": table.action,
                    "records": table.records,
                    "converted": table.converted,
                    "indexes": table.indexes,
                    "seconds": None if table.seconds is None else round(table.seconds, 3),
                    "includes_writing": table.includes_writing,
                    "declared": table.loss.declared,
                    "dropped_writes": table.loss.dropped_writes,
                }
                for table in plan.tables
            ],
            "processes": plan.older,
        }
    )
    return EXIT_PENDING if plan.migrations else 0


def _all_created(chain: Chain) -> tuple[TablePlan, ...]:
    tables = chain.schema_at(chain.end)
    return tuple(TablePlan(table.name, "created", 0, 0, (), None) for table in tables)


def _migration_to_json(migration: Migration) -> dict[str, Any]:
    return {
        "number": migration.number,
        "label": migration.label,
        "summary": migration.summary,
        "waits_for_nodes": migration.waits_for_nodes,
        "changes": to_yaml(migration.changes),
        "rollback": to_yaml(migration.rollback),
    }


def _write_plan(plan: MigrationPlan, output: Output) -> None:
    if not plan.migrations:
        output.write("nothing is pending")
        return
    for migration in plan.migrations:
        output.write((migration.label, "bold"), f": {migration.summary}")
        if migration.waits_for_nodes:
            output.write("  is activated when all live processes have its file")
        for title, operations in (
            ("changes", migration.changes),
            ("rollback", migration.rollback),
        ):
            output.write((f"  {title}:", "dim"))
            for line in to_yaml(operations).splitlines():
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
        for table in plan.tables
    ]
    output.table(
        ("table", "action", "records", "to convert", "time to convert", "indexes to build"),
        rows,
        right=("records", "to convert", "time to convert"),
        empty="no table changes",
    )
    _write_losses(plan, output)
    output.write()
    if not plan.older:
        output.write("every live process has the pending files")
        return
    output.write(("live processes that will be served an older schema:", "yellow"))
    for process in plan.older:
        shape = f"schema {process.served_position:04d}, files end at {process.files_end:04d}"
        output.write(f"  {process.process}: {shape}, release {process.release}")
        if process.blocks is not None:
            output.write((f"    {process.blocks} waits until it has the file", "yellow"))


def _show_seconds(table: TablePlan) -> str:
    if table.seconds is None:
        return ""
    shown = format_seconds(table.seconds)
    return shown if table.includes_writing or not table.converted else f"{shown}, without writing"


def _write_losses(plan: MigrationPlan, output: Output) -> None:
    lossy = [table for table in plan.tables if table.loss != ServedSchemaLoss()]
    if not lossy:
        return
    output.write()
    output.write(("what processes with older code lose:", "yellow"))
    for table in lossy:
        for names, what in (
            (table.loss.declared, "they read the rollback's value"),
            (table.loss.dropped_writes, "their writes are dropped"),
        ):
            if names:
                output.write(f"  {table.table}: {', '.join(names)}: {what}")
