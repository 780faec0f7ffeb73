"""`zapdb history rebuild-manifest`: the rows of a history store, made anew from its directory."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from zapdb.cli.changes import YesOption
from zapdb.cli.configuration import AllTenantsOption, DatabaseOption, JsonOption, TenantOption
from zapdb.cli.each_tenant import run_for_tenants
from zapdb.cli.output import Output, confirm, format_count, print_note
from zapdb.database import Database
from zapdb.errors import EXIT_ERROR, UsageError
from zapdb.history.manifest_files import list_manifests
from zapdb.history.rebuilding import HistoryRebuild


def history_rebuild_command(
    directory: Annotated[Path, typer.Argument(help="The directory of the history store.")],
    yes: YesOption = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be made anew, and change nothing.")
    ] = False,
    all_tenants: AllTenantsOption = False,
    database: DatabaseOption = None,
    tenant: TenantOption = None,
    as_json: JsonOption = False,
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
    output = Output(as_json)

    def work(db: Database) -> tuple[dict[str, Any], int]:
        planned = db.history.rebuild_manifest(directory, dry_run=True)
        for one in planned.timelines:
            size = f"{one.size_bytes / 1e6:,.1f} MB"
            what = f"{format_count(one.eras, 'era')} in {format_count(one.files, 'file')}, {size}"
            output.write(f"moments #{one.begins} to #{one.ends}: {what}")
            if one.cut_from is not None:
                print_note(f"the change log does not have #{one.cut_from} as the files have it")
        if dry_run:
            return _to_json(planned, done=False), 0
        question = f"make the rows of {format_count(len(planned.timelines), 'timeline')} anew?"
        if not yes and not confirm("rebuilding", question, as_json=as_json):
            output.write("nothing was changed")
            return _to_json(planned, done=False), EXIT_ERROR
        done = db.history.rebuild_manifest(directory)
        output.write(("rebuilt ", "green"), f"the manifest of {done.directory}")
        return _to_json(done, done=True), 0

    def has_store(db: Database) -> bool:
        """By the directory, or by the rows that the database has."""
        with suppress(UsageError):
            if db.history.status().directory == str(directory.resolve()):
                return True
        return any(list_manifests(directory, db._catalog.tenant))

    return run_for_tenants(
        (database, tenant), output, work, all_tenants=all_tenants, has_store=has_store
    )


def _to_json(found: HistoryRebuild, *, done: bool) -> dict[str, Any]:
    return {
        "directory": found.directory,
        "timelines": [
            {
                "timeline": one.timeline,
                "begins": one.begins,
                "ends": one.ends,
                "eras": one.eras,
                "files": one.files,
                "size_bytes": one.size_bytes,
                "cut_from": one.cut_from,
            }
            for one in found.timelines
        ],
        "unnamed": found.unnamed,
        "done": done,
    }
