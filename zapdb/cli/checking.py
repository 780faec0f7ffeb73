"""`zapdb migrate check`: the files, without a database."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from zapdb.cli.configuration import MigrationsOption, find_migrations
from zapdb.cli.output import Output, format_count
from zapdb.migrations.check import check_files
from zapdb.migrations.lockfile import FILE, write_lock


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
    found = check_files(directory, with_lock=not write)
    if write:
        written = write_lock(directory, (one.lock_line for one in found.migrations))
        found = replace(found, lock_lines_written=written)
    output.write(
        ("ok", "green"),
        f": {format_count(found.migrations[-1].number, 'migration')}, all valid and exhaustive, "
        f"and as in {FILE}"
        + (f" ({format_count(found.lock_lines_written, 'line')} written)" if write else ""),
    )
    output.document(found)
