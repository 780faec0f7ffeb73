"""`zapdb verify`: checking that the stored data are intact."""

from __future__ import annotations

from typing import Annotated

import typer

from zapdb.activation import TenantCatalog
from zapdb.activation.file_comparison import compare_files
from zapdb.cli.configuration import MigrationsOption, find_migrations_if_any
from zapdb.cli.connecting import TenantOptions
from zapdb.cli.exclusive_jobs import tell_wait
from zapdb.cli.job_engine import Engine
from zapdb.cli.job_progress import with_bar, write_way_on
from zapdb.cli.output import Confirmation, Output, format_count, print_note
from zapdb.errors import EXIT_ERROR, EXIT_PENDING, CorruptionError, UsageError
from zapdb.jobs import Job
from zapdb.jobs.job_run import JobReport, Runner
from zapdb.jobs.job_types import name_job, type_of
from zapdb.jobs.known_revisions import forget_wrong_ranges
from zapdb.jobs.repair import IndexRepair, repair_indexes, repair_schemas
from zapdb.jobs.tenant_verification import (
    BlobsReport,
    TableReport,
    verify_blobs,
    verify_by_jobs,
)
from zapdb.jobs.waiting import Hold
from zapdb.migrations import list_files
from zapdb.printing import show_moment
from zapdb.storage import Storage


def verify_command(
    options: TenantOptions,
    engine: Engine,
    confirmation: Confirmation,
    output: Output,
    migrations: MigrationsOption = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="Repair index entries, after asking.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With --repair: show what would be repaired.")
    ] = False,
    from_start: Annotated[
        bool, typer.Option("--from-start", help="Do not go on where an earlier run has stopped.")
    ] = False,
) -> int:
    """Check that migrations, schema histories, records, indexes, constraints and blobs are intact.

    Stored migrations must match their digests, and the files if a directory is given. The schemas
    from which databases are opened must be what the migrations make, and each entry of a schema
    history must match its fingerprint and the migrations. Every record and every archived value
    must decode, every index must have exactly the entries of its records, and no large value may be
    missing. Exit status 1 if there is a problem. Blobs that no record owns are counted; `zapdb
    sweep` removes them.

    Tables are verified by jobs, which `zapdb jobs` shows, pauses and throttles: each batch is read
    in a snapshot of its own, beside readers and writers. What was interrupted goes on where it
    stopped when the command is run again, unless --from-start is given. Exit status 3 if a job is
    paused, cancelled or outside its window.

    With `--repair`, index entries that are missing are made anew, and entries that no record has
    are removed, after a confirmation; then everything is checked again. Wrong notes about the
    revisions of records are forgotten, and schemas that differ from what the migrations make are
    made anew, also if the database does not open with them. Records and large values are never
    changed: restore what is lost from a backup.

    With `--json`: `{ok, migrations, files_compared, blobs: {blobs, unowned}, tables: [{table,
    records, revisions, entries, building, problem_count, problems}], held: [{id, table, reason}],
    schemas_repaired, repairs}`; `blobs` is null if a record can't be read, because it may own any
    blob; `held` are the jobs that are not at their end; `schemas_repaired` tells whether schemas
    were made anew, or would be in a dry run; `repairs` is `[{table, index, missing, wrong,
    refused_count, refused}]`, or null without `--repair`, which needs `--yes` or `--dry-run` then.
    """
    if (dry_run or confirmation.yes) and not repair:
        raise UsageError("--dry-run and --yes belong to --repair", hint="add --repair")
    directory = find_migrations_if_any(migrations)
    with (
        engine.runner() as runner,
        options.with_rows() as storage,
    ):
        schemas_repaired = repair and _repair_schemas(storage, output, dry_run=dry_run)
        catalog = options.read_catalog(storage)
        if directory is not None:
            compare_files(list_files(directory), catalog.stored, catalog.stored_chain)
        stored_count = len(catalog.stored)
        verification = Verification(storage, catalog, runner, output)
        reports = verification.run(anew=from_start)
        repairs: list[IndexRepair] | None = None
        if repair and not verification.held:
            reports = verification.forget_wrong_ranges(reports, dry_run=dry_run)
            repairs = _plan_repairs(storage, catalog.tenant, output)
            if _is_needed(repairs) and not dry_run:
                if not confirmation.is_given("a repair", "repair these indexes?", output):
                    return EXIT_ERROR
                repairs = _repair(storage, catalog.tenant, output)
                reports = verification.run(anew=True)
        blobs = _count_blobs(storage)
    problems = sum(report.problem_count for report in reports)
    _write_reports(reports, output)
    _write_blobs(blobs, output)
    status = EXIT_ERROR if problems else EXIT_PENDING if verification.held else 0
    if status == 0:
        _write_intact(stored_count, output, compared=directory is not None)
    elif problems:
        output.write((format_count(problems, "problem"), "bold red"))
    else:
        output.write(("not finished", "yellow"), ": no problem so far")
    output.document(
        {
            "ok": status == 0,
            "migrations": stored_count,
            "files_compared": directory is not None,
            "blobs": blobs,
            "tables": reports,
            "held": verification.held_to_json(),
            "schemas_repaired": schemas_repaired,
            "repairs": repairs,
        }
    )
    return status


def _repair_schemas(storage: Storage, output: Output, *, dry_run: bool) -> bool:
    if not repair_schemas(storage, dry_run=dry_run):
        return False
    done = "schemas have to be made anew" if dry_run else "made schemas anew"
    output.write((done, "yellow" if dry_run else "green"), " of the stored migrations")
    return True


def _is_needed(repairs: list[IndexRepair]) -> bool:
    return any(repair.missing or repair.wrong for repair in repairs)


def _write_blobs(blobs: BlobsReport | None, output: Output) -> None:
    if blobs is not None and blobs.blobs:
        output.write(f"{format_count(blobs.blobs, 'blob')}, {blobs.unowned:,} without an owner")


class Verification:
    """Runs the jobs of a verification; `held` are those that an operator holds back, and why."""

    def __init__(
        self, storage: Storage, catalog: TenantCatalog, runner: Runner, output: Output
    ) -> None:
        self.held: list[tuple[Job, Hold]] = []
        self._storage = storage
        self._catalog = catalog
        self._runner = with_bar(runner, catalog, output)
        self._output = output

    def held_to_json(self) -> list[dict[str, str]]:
        return [
            {"id": job.id, "table": job.table_name, "reason": str(hold)} for job, hold in self.held
        ]

    def forget_wrong_ranges(
        self, reports: list[TableReport], *, dry_run: bool
    ) -> list[TableReport]:
        """Forget wrong notes about revisions, unless it is a dry run; returns the reports of
        now."""
        forgotten = [] if dry_run else forget_wrong_ranges(self._storage, self._catalog.tenant)
        if not forgotten:
            return reports
        self._output.write(("forgot", "green"), f" what was noted of {', '.join(forgotten)}")
        return self.run(anew=True)

    def run(self, *, anew: bool) -> list[TableReport]:
        """Raises `KeyboardInterrupt` after a note how to go on."""
        try:
            return verify_by_jobs(
                self._storage,
                self._catalog.tenant,
                self._runner,
                anew=anew,
                on_begun=_tell_begun,
                on_run=self._tell_end,
            )
        except KeyboardInterrupt:
            print_note("nothing is lost: `zapdb verify` goes on where this stopped")
            raise

    def _tell_end(self, job: Job, report: JobReport | None) -> None:
        if report is None:
            print_note(f"{job.table_name}: the schema has changed, or another run took over")
        elif report.hold is not None:
            self.held.append((report.job, report.hold))
            doing = name_job(self._catalog, job).doing
            self._output.write(("waiting ", "yellow"), f"{doing}: {report.hold}")
            write_way_on(report.job.id, report.job.state, type_of(report.job).again, self._output)


def _tell_begun(job: Job) -> None:
    print_note(
        f"{job.table_name}: goes on with the verification of "
        f"{show_moment(job.created_at)}; --from-start begins anew"
    )


def _write_intact(migrations: int, output: Output, *, compared: bool) -> None:
    match = "matches its digest" if migrations == 1 else "match their digests"
    output.write(
        ("ok", "green"),
        f": {format_count(migrations, 'migration')} {match}{' and the files' * compared}; "
        "history, records, indexes, constraints and blobs are intact",
    )


def _plan_repairs(storage: Storage, tenant: int, output: Output) -> list[IndexRepair]:
    repairs = repair_indexes(storage, tenant, dry_run=True)
    _write_repairs(repairs, output)
    return repairs


def _count_blobs(storage: Storage) -> BlobsReport | None:
    try:
        return verify_blobs(storage)
    except CorruptionError:
        return None  # the reports say what is wrong


def _write_repairs(repairs: list[IndexRepair], output: Output) -> None:
    rows = [(one.table, one.index, f"{one.missing:,}", f"{one.wrong:,}") for one in repairs]
    columns = ("table", "index", "entries to add", "entries to remove")
    output.table(columns, rows, right=columns[2:], empty="no index entry needs repair")
    output.write()


def _repair(storage: Storage, tenant: int, output: Output) -> list[IndexRepair]:
    repairs = repair_indexes(storage, tenant, on_wait=tell_wait)
    _write_refused(repairs, output)
    output.write(("repaired index entries", "green"), f" of {_count_repaired(repairs)}")
    return repairs


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
