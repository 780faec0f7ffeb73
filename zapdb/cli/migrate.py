"""`zapdb migrate new` and `check`, which need no database, and import nothing that does."""

from __future__ import annotations

from typing import Annotated

import typer

from zapdb.cli.added_fields import describe_added_fields
from zapdb.cli.configuration import MigrationsOption, find_migrations
from zapdb.cli.output import Output, format_count
from zapdb.cli.scaffold import create_migration
from zapdb.migrations import find_file, list_files, load_directory
from zapdb.migrations.lockfile import FILE, check_lock, write_lock
from zapdb.migrations.prove import require_proven
from zapdb.migrations.undo import to_yaml
from zapdb.migrations.undo import undo as undo_changes


def migrate_new_command(
    summary: Annotated[str, typer.Argument(help="What the migration does, in one line.")],
    output: Output,
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
) -> None:
    """Start a migration file with the next number.

    With `--undo`, its changes are the resolved rollback of migration N: fields and tables that N
    added are dropped into the archive, and those that N archived are restored. With `--add-field`,
    fields are added; their tables and types must be those after the files that there are. The JSON
    Schema for editors is written next to the file.

    With `--json`: `{path, number, name}`.
    """
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
    output: Output,
    migrations: MigrationsOption = None,
    write: Annotated[
        bool, typer.Option("--write", help="Write zapdb.lock again, if the files are valid.")
    ] = False,
) -> None:
    """Check the files, without a database.

    Every file must be valid and exhaustive, its rollback and its examples must hold for the records
    that `migrate prove` generates, and `zapdb.lock` must have the digest of each.

    With `--json`: `{migrations: [{number, name, summary, digest}], lock_lines_written}`.
    """
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
