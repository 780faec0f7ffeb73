"""`zapdb migrate squash`: replacing the first migrations of the chain with one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from zapdb.cli.configuration import MigrationsOption, find_migrations
from zapdb.cli.output import Confirmation, Output, format_count
from zapdb.errors import EXIT_ERROR
from zapdb.files import replace_text_file
from zapdb.migrations import Migration, find_file, list_files, load_directory
from zapdb.migrations.chain import MigrationFile
from zapdb.migrations.directory import FILE
from zapdb.migrations.lockfile import check_lock, lock_lines, write_lock
from zapdb.migrations.squash import squash, to_document


def migrate_squash_command(
    to: Annotated[
        int, typer.Option("--to", min=2, metavar="N", help="The last migration to include.")
    ],
    confirmation: Confirmation,
    output: Output,
    migrations: MigrationsOption = None,
) -> int:
    """Replace the files up to number N with one file that creates the same tables.

    The new file has number N and lists the digests of the files that it replaces, so databases that
    store all of these open as before, and new databases start with the new file. A database that
    stores only some of them is refused until it has the rest. The replaced files are deleted;
    version control has them.

    With `--json`, which needs `--yes`: `{path, number, digest, replaced}`; `replaced` has paths.
    """
    directory = find_migrations(migrations)
    files = list_files(directory)
    find_file(files, to)
    chain = load_directory(directory)
    check_lock(directory, chain)
    made = squash(chain, to)
    replaced = [file for file in files if file.number <= to]
    path = directory / f"{made.label}.yaml"
    count = format_count(len(replaced), "file")
    question = f"write {path}, and delete the {count} that it replaces?"
    if not confirmation.is_given("a squash", question, output):
        return EXIT_ERROR
    _write(directory, path, made, replaced)
    output.write((str(path), "bold"), f" stands for {format_count(len(replaced), 'migration')}")
    output.write(f"{FILE} is rewritten; keep both in version control")
    output.document(
        {
            "path": path,
            "number": made.number,
            "digest": made.digest,
            "replaced": [file.path for file in replaced],
        }
    )
    return 0


def _write(directory: Path, path: Path, made: Migration, replaced: list[MigrationFile]) -> None:
    """Replace the files with the squash; its text is on disk before any file is deleted."""
    waiting = path.with_suffix(".squash")
    replace_text_file(waiting, to_document(made))
    for file in replaced:
        file.path.unlink()
    waiting.rename(path)
    write_lock(directory, lock_lines(load_directory(directory)))
