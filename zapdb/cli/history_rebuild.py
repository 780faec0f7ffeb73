"""`zapdb history rebuild-manifest`: the rows of a history store, made anew from its directory."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from zapdb.cli.each_tenant import StoreOptions
from zapdb.cli.output import Confirmation, Output, as_plain, format_count, print_note
from zapdb.database import Database
from zapdb.errors import EXIT_ERROR, UsageError
from zapdb.history.manifest_files import list_manifests


def history_rebuild_command(
    directory: Annotated[Path, typer.Argument(help="The directory of the history store.")],
    options: StoreOptions,
    confirmation: Confirmation,
    output: Output,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be made anew, and change nothing.")
    ] = False,
) -> int:
    """Make the database's rows of a history store anew, from the manifest in its directory.

    For a database that has lost them, or was restored from a backup that is older than the files.
    If the files have moments that the change log does not have, or has otherwise, they are written
    anew up to the last one that both have, and the store goes on from there. All files are read and
    compared with their digests before.

    With `--json`, which needs `--yes` or `--dry-run`: `{directory, timelines: [{timeline, begins,
    ends, eras, files, size_bytes, cut_from}], unnamed, done}`; `cut_from` is null where the change
    log agrees, `unnamed` how many files there are that count no more. With `--all-tenants`, which
    leaves out tenants without a store in the directory: `{tenants: [{tenant, …}]}`.
    """

    def work(db: Database) -> tuple[dict[str, Any], int]:
        planned = db.history.rebuild_manifest(directory, dry_run=True)
        for one in planned.timelines:
            size = f"{one.size_bytes / 1e6:,.1f} MB"
            what = f"{format_count(one.eras, 'era')} in {format_count(one.files, 'file')}, {size}"
            output.write(f"moments #{one.begins} to #{one.ends}: {what}")
            if one.cut_from is not None:
                print_note(f"the change log does not have #{one.cut_from} as the files have it")
        if dry_run:
            return as_plain(planned) | {"done": False}, 0
        question = f"make the rows of {format_count(len(planned.timelines), 'timeline')} anew?"
        if not confirmation.is_given("rebuilding", question, output):
            return as_plain(planned) | {"done": False}, EXIT_ERROR
        done = db.history.rebuild_manifest(directory)
        output.write(("rebuilt ", "green"), f"the manifest of {done.directory}")
        return as_plain(done) | {"done": True}, 0

    def has_store(db: Database) -> bool:
        """By the directory, or by the rows that the database has."""
        with suppress(UsageError):
            if db.history.status().directory == str(directory.resolve()):
                return True
        return any(list_manifests(directory, db._catalog.tenant))

    return options.run(output, work, has_store)
