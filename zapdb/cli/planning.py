"""`zapdb migrate plan`: what applying the pending migrations will do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from zapdb.catalog.stored import provisional_numbers
from zapdb.catalog.up import refuse_changes_while_forgetting
from zapdb.catalog.verification import compare_files
from zapdb.cli.configuration import (
    DatabaseOption,
    JsonOption,
    MigrationsOption,
    TenantOption,
    find_migrations,
)
from zapdb.cli.opening import connected, read_view_if_any
from zapdb.cli.output import Output, Part, format_seconds
from zapdb.errors import EXIT_PENDING
from zapdb.jobs.plan import Plan, TablePlan, make_plan
from zapdb.migrations import Chain, Migration, list_files, resolve_files
from zapdb.migrations.undo import to_yaml

SAMPLE_RECORDS = 500


def plan_migrations(
    database: DatabaseOption = None,
    migrations: MigrationsOption = None,
    tenant: TenantOption = None,
    sample: Annotated[
        int,
        typer.Option(min=1, metavar="N", help="Measure the conversion of so many records."),
    ] = SAMPLE_RECORDS,
    as_json: JsonOption = False,
) -> int:
    """Show what applying the pending migrations will do; nothing is changed.

    Their changes and resolved rollbacks; the records that will have to be converted and the indexes
    that will be built, in the background; how long converting takes, told from a sample of the
    records, in one thread and without writing; and the live processes whose files end earlier.
    Exit status 3 if something is pending.

    With `--json`: `{position, migrations: [{number, label, summary, changes, rollback}], tables:
    [{table, fate, records, converted, indexes, seconds}], processes: [{process, release,
    files_end}]}`. `fate` is `created`, `changed`, `restored`, `archived` or `discarded`; `changes`
    and `rollback` are YAML.
    """
    output = Output(as_json)
    files = list_files(find_migrations(migrations))
    with connected(database) as storage:
        view = read_view_if_any(storage, tenant)
        if view is None:
            chain = resolve_files(files)
            plan = Plan(chain.migrations, _all_created(chain), ())
        else:
            refuse_changes_while_forgetting(view)
            pending = compare_files(files, list(view.stored), view.chain).pending
            chain = resolve_files(pending, view.chain, provisional_numbers())
            plan = make_plan(storage, view, chain, sample)
    position = 0 if view is None else view.position
    _write_plan(plan, output)
    output.document(
        {
            "position": position,
            "migrations": [_migration_to_json(migration) for migration in plan.migrations],
            "tables": [
                {
                    "table": table.table,
                    "fate": table.fate,
                    "records": table.records,
                    "converted": table.converted,
                    "indexes": list(table.indexes),
                    "seconds": None if table.seconds is None else round(table.seconds, 3),
                }
                for table in plan.tables
            ],
            "processes": [
                {"process": p.process, "release": p.release, "files_end": p.files_end}
                for p in plan.behind
            ],
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
        "changes": to_yaml(migration.changes),
        "rollback": to_yaml(migration.rollback),
    }


def _write_plan(plan: Plan, output: Output) -> None:
    if not plan.migrations:
        output.write("nothing is pending")
        return
    for migration in plan.migrations:
        output.write((migration.label, "bold"), f": {migration.summary}")
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
            table.fate,
            f"{table.records:,}",
            f"{table.converted:,}",
            "" if table.seconds is None else format_seconds(table.seconds),
            ", ".join(table.indexes),
        )
        for table in plan.tables
    ]
    output.table(
        ("table", "fate", "records", "to convert", "converting takes", "indexes to build"),
        rows,
        right=("records", "to convert", "converting takes"),
        empty="no table changes",
    )
    output.write()
    if plan.behind:
        output.write(("live processes whose files end earlier:", "yellow"))
        for process in plan.behind:
            files = f"files end at {process.files_end:04d}, release {process.release}"
            output.write(f"  {process.process}: {files}")
    else:
        output.write("every live process has the files of what is pending")
