"""`zapdb migrate check`: the files, and a database only if they begin after what it stores."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from zapdb.cli.addresses import ServedDatabaseAddress
from zapdb.cli.configuration import MigrationsOption, find_migrations
from zapdb.cli.output import Output, format_count
from zapdb.migrations import NumberAllocator, list_files
from zapdb.migrations.check import check_files
from zapdb.migrations.directory import FILE
from zapdb.migrations.lockfile import write_lock


def migrate_check_command(
    options: ServedDatabaseAddress,
    output: Output,
    migrations: MigrationsOption = None,
    write: Annotated[
        bool, typer.Option("--write", help="Write zapdb.lock again, if the files are valid.")
    ] = False,
) -> None:
    """Check the files, which needs no database.

    Every file must be valid and exhaustive, its rollback and its examples must hold for the records
    that `migrate prove` generates, and `zapdb.lock` must have the digest of each. If the directory
    begins after a stored migration, which `zapdb.lock` names, a database that stores it has to be
    given. A service checks by its own release, what it is sent.

    With `--json`: `{migrations: [{number, name, summary, digest}], lock_lines_written}`.
    """
    directory = find_migrations(migrations)
    follows = list_files(directory)[0].follows
    is_served, before = options.is_given and options.is_served, None
    if is_served or follows is not None:
        from zapdb.cli.connecting import ServedDatabaseOptions

        opening = ServedDatabaseOptions(**vars(options))
        before = None if is_served else opening.read_before(directory)
    if is_served:
        from zapdb.control.migrations.comparing import check

        with opening.control() as control:
            found = control.call(check, directory, not write)
    else:
        found = check_files(
            directory, with_lock=not write, before=before, numbers=NumberAllocator.provisional()
        )
    checked = format_count(found.migrations[-1].number, "migration")
    if follows is not None:
        checked = f"{format_count(len(found.migrations), 'migration')} after {follows.label}"
    if write:
        lines = [one.lock_line for one in found.migrations]
        written = write_lock(directory, lines if follows is None else [follows, *lines])
        found = replace(found, lock_lines_written=written)
    output.write(
        ("ok", "green"),
        f": {checked}, all valid and exhaustive, and as in {FILE}"
        + (f" ({format_count(found.lock_lines_written, 'line')} written)" if write else ""),
    )
    output.document(found)
