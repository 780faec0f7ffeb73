"""`zapdb verify`: checking that the stored data are intact."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from zapdb import jobs
from zapdb.activation.file_comparison import compare_files
from zapdb.cli.configuration import (
    DatabaseOption,
    JsonOption,
    MigrationsOption,
    TenantOption,
    find_migrations_if_any,
)
from zapdb.cli.opening import opened
from zapdb.cli.output import Output, confirm, format_count
from zapdb.errors import EXIT_ERROR, CorruptionError, UsageError
from zapdb.jobs import BlobsReport, IndexRepair, TableReport
from zapdb.migrations import list_files
from zapdb.storage import Storage


def verify_command(
    database: DatabaseOption = None,
    migrations: MigrationsOption = None,
    tenant: TenantOption = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="Repair index entries, after asking.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With --repair: show what would be repaired.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False,
    as_json: JsonOption = False,
) -> int:
    """Check that migrations, schema histories, records, indexes, constraints and blobs are intact.

    Stored migrations must match their digests, and the files if a directory is given. Each entry of
    a schema history must match its fingerprint and the migrations. Every record must decode, every
    index must have exactly the entries of its records, and no large value may be missing. Exit
    status 1 if there is a problem. Blobs that no record owns are counted; `zapdb sweep` removes
    them.

    With `--repair`, index entries that are missing are made anew, and entries that no record has
    are removed, after a confirmation; then everything is checked again. Records and large values
    are never changed: restore what is lost from a backup.

    With `--json`: `{ok, migrations, files_compared, blobs: {blobs, unowned}, tables: [{table,
    records, revisions, entries, building, blobs, problem_count, problems}], repairs}`; `blobs` is
    null if a record can't be read, because it may own any blob; `repairs` is `[{table, index,
    missing, wrong, refused_count, refused}]`, or null without `--repair`, which needs `--yes` or
    `--dry-run` then.
    """
    if (dry_run or yes) and not repair:
        raise UsageError("--dry-run and --yes belong to --repair", hint="add --repair")
    output = Output(as_json)
    directory = find_migrations_if_any(migrations)
    with opened(database, tenant) as (storage, catalog):
        if directory is not None:
            compare_files(list_files(directory), list(catalog.stored), catalog.chain)
        reports = jobs.verify_tenant(storage, catalog.tenant)
        repairs: list[IndexRepair] | None = None
        if repair:
            repairs = jobs.repair_indexes(storage, catalog.tenant, dry_run=True)
            _write_repairs(repairs, output)
            if any(r.missing or r.wrong for r in repairs) and not dry_run:
                if not yes and not confirm("a repair", "repair these indexes?", as_json=as_json):
                    output.write("nothing was changed")
                    return EXIT_ERROR
                repairs = jobs.repair_indexes(storage, catalog.tenant)
                _write_refused(repairs, output)
                output.write(("repaired index entries", "green"), f" of {_count_repaired(repairs)}")
                reports = jobs.verify_tenant(storage, catalog.tenant)
        blobs = _count_blobs(storage)
    problems = sum(report.problem_count for report in reports)
    _write_reports(reports, output)
    if blobs is not None and blobs.blobs:
        output.write(f"{format_count(blobs.blobs, 'blob')}, {blobs.unowned:,} without an owner")
    stored = format_count(len(catalog.stored), "migration")
    match = "matches its digest" if len(catalog.stored) == 1 else "match their digests"
    files = match + (" and the files" if directory is not None else "")
    if problems:
        output.write((format_count(problems, "problem"), "bold red"))
    else:
        output.write(
            ("ok", "green"),
            f": {stored} {files}; history, records, indexes, constraints and blobs are intact",
        )
    output.document(
        {
            "ok": not problems,
            "migrations": len(catalog.stored),
            "files_compared": directory is not None,
            "blobs": None if blobs is None else asdict(blobs),
            "tables": [asdict(report) for report in reports],
            "repairs": None if repairs is None else [asdict(one) for one in repairs],
        }
    )
    return EXIT_ERROR if problems else 0


def _count_blobs(storage: Storage) -> BlobsReport | None:
    try:
        return jobs.verify_blobs(storage)
    except CorruptionError:
        return None  # the reports say what is wrong


def _write_repairs(repairs: list[IndexRepair], output: Output) -> None:
    rows = [(one.table, one.index, f"{one.missing:,}", f"{one.wrong:,}") for one in repairs]
    columns = ("table", "index", "entries to add", "entries to remove")
    output.table(columns, rows, right=columns[2:], empty="no index entry needs repair")
    output.write()


def _write_refused(repairs: list[IndexRepair], output: Output) -> None:
    for one in repairs:
        for text in one.refused:
            output.write((f"{one.table}: ", "red"), f"index {one.index!r}: {text}")
        if one.refused_count > len(one.refused):
            hidden = one.refused_count - len(one.refused)
            output.write(f"{one.table}: … and {hidden:,} more")


def _count_repaired(repairs: list[IndexRepair]) -> str:
    added, removed = sum(one.missing for one in repairs), sum(one.wrong for one in repairs)
    return f"{', '.join(one.index for one in repairs)}: {added:,} added, {removed:,} removed"


def _write_reports(reports: list[TableReport], output: Output) -> None:
    columns = ("table", "records", "index entries", "not built", "problems")
    rows = [
        (
            report.table,
            f"{report.records:,}",
            ", ".join(f"{name}: {count:,}" for name, count in report.entries.items()) or "-",
            ", ".join(report.building) or "-",
            (f"{report.problem_count:,}", "bold red" if report.problem_count else ""),
        )
        for report in reports
    ]
    output.table(columns, rows, right=("records", "problems"), empty="no tables")
    output.write()
    for report in reports:
        for problem in report.problems:
            output.write((f"{report.table}: ", "red"), problem)
        hidden = report.problem_count - len(report.problems)
        if hidden:
            output.write(f"{report.table}: … and {hidden:,} more")
