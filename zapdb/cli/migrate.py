"""`zapdb migrate new`, `check` and `rollback`."""

from __future__ import annotations

from typing import Annotated

import typer

from zapdb.activation import TenantCatalog
from zapdb.catalog.feed import read_seq
from zapdb.cli.added_fields import describe_added_fields
from zapdb.cli.configuration import (
    DatabaseOption,
    JsonOption,
    MigrationsOption,
    find_migrations,
)
from zapdb.cli.engine import Engine, EngineOption, MasterOption, WorkersOption
from zapdb.cli.opening import opened, read_tenant_catalog
from zapdb.cli.output import Output, format_count
from zapdb.cli.rollback import confirm_steps, preview_steps, run_step, step_to_json, write_step
from zapdb.cli.scaffold import create_migration
from zapdb.errors import EXIT_ERROR
from zapdb.migrations import (
    find_file,
    list_files,
    load_directory,
)
from zapdb.migrations.lockfile import FILE, check_lock, write_lock
from zapdb.migrations.prove import require_proven
from zapdb.migrations.undo import to_yaml
from zapdb.migrations.undo import undo as undo_changes


def migrate_new_command(
    summary: Annotated[str, typer.Argument(help="What the migration does, in one line.")],
    migrations: MigrationsOption = None,
    add_field: Annotated[
        list[str] | None,
        typer.Option(
            "--add-field",
            metavar="TABLE.FIELD:TYPE",
            help="Start with a new field, such as people.fax:string? (optional), or "
            "people.joined:timestamp=now. Can be repeated.",
        ),
    ] = None,
    undo: Annotated[
        int | None,
        typer.Option("--undo", min=1, metavar="N", help="Undo migration N."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Start a migration file with the next number.

    With `--undo`, its changes are the resolved rollback of migration N: fields and tables that N
    added are dropped into the archive, and those that N archived are restored. With `--add-field`,
    fields are added; their tables and types must be those after the files that there are. The JSON
    Schema for editors is written next to the file.

    With `--json`: `{path, number, name}`.
    """
    output = Output(as_json)
    directory = find_migrations(migrations)
    changes = describe_added_fields(add_field or [], directory)
    if undo is not None:
        find_file(list_files(directory), undo)
        changes += to_yaml(undo_changes(load_directory(directory), undo))
    path = create_migration(directory, summary, changes)
    number, _, name = path.stem.partition("_")
    output.write((str(path), "bold"))
    what = "review its changes" if changes else "write its changes"
    output.write(f"next: {what}, then `zapdb migrate check --write` and `zapdb migrate up`")
    output.document({"path": str(path), "number": int(number), "name": name})


def migrate_check_command(
    migrations: MigrationsOption = None,
    write: Annotated[
        bool, typer.Option("--write", help="Write zapdb.lock again, if the files are valid.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Check the files, without a database.

    Every file must be valid and exhaustive, its rollback and its examples must hold for the records
    that `migrate prove` generates, and `zapdb.lock` must have the digest of each.

    With `--json`: `{migrations: [{number, name, summary, digest}], lock_lines_written}`.
    """
    output = Output(as_json)
    directory = find_migrations(migrations)
    chain = load_directory(directory)
    require_proven(chain.migrations)
    written = 0
    if write:
        written = write_lock(directory, chain)
    check_lock(directory, chain)
    output.write(
        ("ok", "green"),
        f": {format_count(chain.end, 'migration')}, all valid and exhaustive, and as in {FILE}"
        + (f" ({format_count(written, 'line')} written)" if write else ""),
    )
    output.document(
        {
            "migrations": [
                {"number": m.number, "name": m.name, "summary": m.summary, "digest": m.digest}
                for m in chain.migrations
            ],
            "lock_lines_written": written,
        }
    )


def migrate_rollback_command(
    database: DatabaseOption = None,
    to: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help="Roll back all migrations above this number; by default the newest one.",
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False,
    evict: Annotated[
        bool,
        typer.Option("--evict", help="Evict running processes whose files contain the migration."),
    ] = False,
    engine: EngineOption = "local",
    workers: WorkersOption = None,
    master: MasterOption = None,
    as_json: JsonOption = False,
) -> int:
    """Roll back the newest migration and convert its records back.

    Rolls back every tenant for which the migration is active. Shows what is lost, and asks for
    confirmation. The stored migrations are used, not the files. A rollback that was interrupted is
    finished.

    With `--json`, which needs `--yes`: `{position, rolled_back: [{number, label, tenants, lossy,
    tables: [{table, action, records, fields, indexes}], milliseconds}], seq}`. A process whose
    catalog cache has the seq sees the change. `tenants` is a count, and `records` a count over all
    these tenants. `action` is what happened to the records: `deleted`, `converted` or `kept`;
    `fields` and `indexes` are lost.
    """
    output, runs_on = Output(as_json), Engine(engine, workers, master)
    runs_on.require_valid()
    with opened(database) as (storage, catalog):
        steps = preview_steps(storage, catalog, to)
        if not steps:
            output.write(f"nothing to roll back: the newest migration is {_newest(catalog)}")
        for step in steps:
            write_step(step, output)
        if steps and not yes and not confirm_steps(steps, as_json=as_json):
            output.write("nothing was changed")
            return EXIT_ERROR
        rolled_back = []
        runs_on.prepare(storage)  # before writes are refused
        try:
            for step in steps:
                seconds = run_step(storage, catalog, step, output, runs_on, evict=evict)
                rolled_back.append(step_to_json(step, seconds))
                catalog = read_tenant_catalog(storage)
        finally:
            if rolled_back or not steps:
                seq = read_seq(storage.connection())
                document = {"position": catalog.position, "rolled_back": rolled_back, "seq": seq}
                output.document(document)
    return 0


def _newest(catalog: TenantCatalog) -> str:
    return catalog.chain.at(catalog.position).label if catalog.position else "none"
