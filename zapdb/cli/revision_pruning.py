"""`zapdb catalog prune`: deleting old entries of a schema history that no stored record needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from zapdb.catalog.schema_history import RevisionEntry, format_fingerprint
from zapdb.catalog.schema_history_pruning import PruneBound, Pruning, plan_pruning, prune
from zapdb.cli.durations import parse_duration
from zapdb.cli.opening import TenantOptions
from zapdb.cli.output import Confirmation, Output, Part
from zapdb.cli.revisions import TableNumberOption, TableOption, find_log, show_time
from zapdb.errors import EXIT_ERROR
from zapdb.storage import TransactionMode


def catalog_prune_command(
    options: TenantOptions,
    confirmation: Confirmation,
    output: Output,
    table: TableOption = None,
    table_number: TableNumberOption = None,
    keep_last: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Keep the newest N entries.")
    ] = None,
    before: Annotated[
        int | None,
        typer.Option(min=1, metavar="REVISION", help="Delete the entries below a revision."),
    ] = None,
    older_than: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="Delete the entries that are older, such as 90d."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be deleted, and delete nothing.")
    ] = False,
) -> int:
    """Delete old entries of a table's schema history for good.

    The newest entry always stays, so that no revision is ever used again; so does an entry whose
    layout a later entry has. If records or archived values have the revision of an entry that would
    be deleted, nothing is deleted, and they are reported.

    With `--json`, which needs `--yes` or `--dry-run`: `{table, table_number, pruned: [revision],
    kept_for_layout: [revision], in_use: [{revision, by}], newest, done}`. With `--dry-run`, the
    exit status is 1 if an entry is in use.
    """
    with options.opened_for() as (storage, number):
        with storage.transaction(TransactionMode.READ) as connection:
            log = find_log(connection, number, table, table_number)
            now = storage.now_us(connection)
            oldest = None if older_than is None else now - parse_duration(older_than)
            pruning = plan_pruning(connection, log, PruneBound(keep_last, before, oldest))
        _write_plan(pruning, output)
        done = False
        if pruning.pruned and not dry_run:
            question = f"delete {_count(pruning.pruned)} for good?"
            if not pruning.required_by and not confirmation.is_given("pruning", question, output):
                return EXIT_ERROR
            prune(storage, pruning)
            done = True
            output.write(("pruned ", "green"), _count(pruning.pruned))
    output.document(_plan_to_json(pruning, done=done))
    return EXIT_ERROR if pruning.required_by else 0


def _count(entries: Sequence[RevisionEntry]) -> str:
    return "1 entry" if len(entries) == 1 else f"{len(entries):,} entries"


def _write_plan(pruning: Pruning, output: Output) -> None:
    if not pruning.pruned:
        output.write("nothing to prune")
    required_by: dict[int, list[str]] = {}
    for requirement in pruning.required_by:
        required_by.setdefault(requirement.revision, []).append(requirement.what)
    rows: list[Sequence[Part]] = [
        (
            str(entry.revision),
            format_fingerprint(entry.fingerprint),
            show_time(entry),
            entry.event,
            (", ".join(required_by.get(entry.revision, ["-"])), "yellow"),
        )
        for entry in pruning.pruned
    ]
    if rows:
        columns = ("revision", "fingerprint", "migrated_at", "event", "needed by")
        output.table(columns, rows, right=("revision",), solid=("fingerprint", "migrated_at"))
    for entry in pruning.layouts:
        output.write(f"revision {entry.revision} stays: later ones have its layout")


def _plan_to_json(pruning: Pruning, *, done: bool) -> dict[str, Any]:
    newest = pruning.log[-1]
    return {
        "table": newest.schema.name,
        "table_number": newest.table_number,
        "pruned": [entry.revision for entry in pruning.pruned],
        "kept_for_layout": [entry.revision for entry in pruning.layouts],
        "in_use": [
            {"revision": requirement.revision, "by": requirement.what}
            for requirement in pruning.required_by
        ],
        "newest": newest.revision,
        "done": done,
    }
