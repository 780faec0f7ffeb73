"""`zapdb migrate prune-archive`: deleting archived values and tables for good."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from zapdb.activation import load_tenant_catalog
from zapdb.catalog.feed import read_seq
from zapdb.cli.connecting import TenantOptions
from zapdb.cli.job_progress import run_jobs_here
from zapdb.cli.output import Confirmation, Output, Part, format_count
from zapdb.errors import EXIT_ERROR
from zapdb.jobs import plan_jobs
from zapdb.jobs.archive_pruning import ArchivedValues, list_archived, prune_archives
from zapdb.storage import Storage, TransactionMode


def migrate_prune_archive_command(
    options: TenantOptions,
    confirmation: Confirmation,
    output: Output,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what is archived, and delete nothing.")
    ] = False,
) -> int:
    """Delete the archived values of dropped fields, and the records of archived tables.

    Afterwards, rollbacks and restores give each record the value that their migration declares for
    records without an archived value, and restore an archived table empty. Stale records are
    converted first, because a later conversion would archive their values.

    With `--json`, which needs `--yes` or `--dry-run`: `{archived: [{table, field, migration,
    count}], pruned, seq}`. `field` is null for a table; the counts are those before the conversion.
    A process whose catalog cache has the seq sees the changes of the conversion.
    """
    with options.opened() as (storage, catalog):
        with storage.transaction(TransactionMode.READ) as connection:
            catalog = load_tenant_catalog(connection, catalog.tenant, catalog)
            archived = list_archived(connection, catalog)
        _write_archived(archived, output)
        pruned = 0
        if archived and not dry_run:
            question = "delete all archived values for good?"
            if not confirmation.is_given("pruning", question, output):
                return EXIT_ERROR
            _finish_conversion(storage, options, output)
            pruned = prune_archives(storage, catalog.tenant)
            output.write(("pruned ", "green"), format_count(pruned, "archived value"))
        seq = read_seq(storage.connection())
    output.document(
        {
            "archived": [
                {"table": a.table, "field": a.field, "migration": a.archived_by, "count": a.count}
                for a in archived
            ],
            "pruned": pruned,
            "seq": seq,
        }
    )
    return 0


def _write_archived(archived: list[ArchivedValues], output: Output) -> None:
    rows: list[Sequence[Part]] = [
        (
            a.table if a.field is None else f"{a.table}.{a.field}",
            f"{a.archived_by:04d}",
            format_count(a.count, "record" if a.field is None else "value"),
        )
        for a in archived
    ]
    output.table(("archived", "dropped by", "values"), rows, empty="nothing is archived")


def _finish_conversion(storage: Storage, options: TenantOptions, output: Output) -> None:
    catalog = options.read_catalog(storage)
    jobs = plan_jobs(storage, catalog.tenant, kinds=["convert"], is_by_hand=True)
    run_jobs_here(storage, catalog, jobs, output)
