"""`zapdb export`: a whole tenant as a directory of files, or as a script of plain SQL."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from zapdb.cli.configuration import find_migrations_if_any
from zapdb.cli.connecting import PreviewOptions, TenantOptions
from zapdb.cli.exclusive_jobs import OnlyLocalOption, counted_job, place_of, refuse_spark
from zapdb.cli.output import Output, as_plain, format_count, print_note
from zapdb.control.changes import describe_change
from zapdb.database import Database
from zapdb.errors import UsageError
from zapdb.files import writing_text
from zapdb.transfer.export.all_tenants_export import export_all_tenants
from zapdb.transfer.export.directory import export_directory
from zapdb.transfer.export.export_loading import Loaded
from zapdb.transfer.export.manifest import Form, Manifest
from zapdb.transfer.export.record_files import TEXT_HINT, require_form
from zapdb.transfer.export.sql_script import ScriptEngine, export_sql

CHANGES: Final = "changes.ndjson"
APART: Final = {
    "--all-tenants": ("--sql", "--change-log", "--tenant"),
    "--change-log": ("--sql",),
}
"""Options that do not go together."""


def export_command(
    target: Annotated[
        Path,
        typer.Argument(metavar="DIRECTORY|FILE", help="A new directory; with --sql, a file."),
    ],
    options: PreviewOptions,
    output: Output,
    form: Annotated[
        Form, typer.Option("--format", "-f", help="The format of the records' files.")
    ] = "parquet",
    sql: Annotated[
        ScriptEngine | None,
        typer.Option("--sql", help="Write a script of plain tables for this database instead."),
    ] = None,
    all_tenants: Annotated[
        bool, typer.Option("--all-tenants", help="Write an export of each tenant.")
    ] = False,
    change_log: Annotated[
        bool,
        typer.Option("--change-log", help="Write the change log beside, as changes.ndjson."),
    ] = False,
    engine: OnlyLocalOption = "local",
) -> None:
    """Write all tables of a tenant, as of one moment, into a new directory, or as a SQL script.

    The directory has a file for each table, the migrations, and a manifest with the count and the
    digest of each table's records. Large values, archived values of dropped fields, settings and
    the last numbers of sequences are in it; the change log, records of dropped tables, and what is
    kept of migrations that were rolled back are not. `zapdb import DIRECTORY` loads it into an
    empty database, on either engine, and compares counts and digests. Parquet needs the extra
    `sql`; `--format csv` and `ndjson` need no other package.

    With `--all-tenants`, the directory has an export of each tenant in `tenants/`, and `zapdb
    import` loads each under its name. With `--change-log`, the changes are written to
    `changes.ndjson`, as `zapdb changes list --json` shows them: to be kept and read, since no
    import loads them.

    With `--sql`, a file is written, and replaced: plain tables with types, keys, references and
    indexes, and their rows, for `psql` or `sqlite3`. Nothing of zapdb is left in it. Checks are
    constraints, or comments where the other database can't have them. A pipe or a device is written
    into; with `/dev/stdout`, the report goes to standard error.

    The export is a job, which `zapdb jobs` shows, pauses, throttles and cancels. While it is
    paused, its snapshot stays open. After a failure, run the command again with a new directory.

    With `--json`: `{path, format, position, tables: [{name, file, records, digest, as_text}]}`,
    with `--all-tenants` `{path, tenants: {NAME: {format, position, tables}}}`; `as_text` names
    fields whose numbers are text, because some exceed 64 bits or 38 digits. Where migrations that
    were rolled back are kept, `left_out` names them.
    With `--sql`: `{path, engine, records: {TABLE: COUNT}, omitted}`; `omitted` says what has no
    equivalent.
    """
    refuse_spark("export", engine)
    given = {"--sql": sql is not None, "--all-tenants": all_tenants}
    given |= {"--change-log": change_log, "--tenant": options.tenant is not None}
    _refuse_together(given)
    if options.preview and sql is None:
        raise UsageError(
            "a directory has migrations that are applied, and a preview has others",
            hint="--preview goes with --sql; `zapdb data export` writes one table",
        )
    output, place = output.beside(target), place_of(target)
    if sql is not None:
        with options.open(read_only=True) as db, counted_job(options, "export", place) as counter:
            script = export_sql(db, target, sql, progress=counter.add, pace=counter.job)
        report_export(sum(script.records.values()), len(script.records), target, output)
        for what in script.omitted:
            print_note(f"left out: {what}")
        output.document(
            {
                "path": target,
                "engine": sql,
                "records": script.records,
                "omitted": script.omitted,
            }
        )
        return
    require_form(form, TEXT_HINT)
    if all_tenants:
        _export_all(target, form, TenantOptions(options.database), options.migrations, output)
        return
    with options.open(read_only=True) as db, counted_job(options, "export", place) as counter:
        authored = find_migrations_if_any(options.migrations)
        made = export_directory(
            db,
            target,
            form=form,
            migrations=authored,
            progress=counter.add,
            pace=counter.job,
        )
        changes = _write_changes(db, target) if change_log else 0
    report_export(sum(table.records for table in made.tables), len(made.tables), target, output)
    note_left_out([made])
    if change_log:
        output.write(("exported ", "green"), f"{format_count(changes, 'change')} to {CHANGES}")
    output.document({"path": target, **describe_export(made)})


def _refuse_together(given: dict[str, bool]) -> None:
    for option, others in APART.items():
        both = next((other for other in others if given[option] and given[other]), None)
        if both is not None:
            raise UsageError(
                "these options do not go together",
                options=f"{option}, {both}",
                hint=f"leave {option} or {both} out",
            )


def _export_all(
    target: Path, form: Form, options: TenantOptions, migrations: str | None, output: Output
) -> None:
    job = counted_job(options, "export", place_of(target))
    with options.open(read_only=True) as db, job as counter:
        authored = find_migrations_if_any(migrations)
        made = export_all_tenants(
            db,
            target,
            form=form,
            migrations=authored,
            progress=counter.add,
            pace=counter.job,
        )
    records = sum(table.records for one in made.values() for table in one.tables)
    what = f"{format_count(records, 'record')} of {format_count(len(made), 'tenant')}"
    output.write(("exported ", "green"), f"{what} to {target}")
    note_left_out(made.values())
    tenants = {name: describe_export(one) for name, one in made.items()}
    output.document({"path": target, "tenants": tenants})


def describe_export(made: Manifest) -> dict[str, Any]:
    """What `--json` shows of an export."""
    tables = [
        {
            "name": table.name,
            "file": table.file,
            "records": table.records,
            "digest": table.digest,
            "as_text": table.as_text,
        }
        for table in made.tables
    ]
    told: dict[str, Any] = {"format": made.form, "position": made.position, "tables": tables}
    if made.left_out:
        told["left_out"] = made.left_out
    if made.moment is not None:
        told["moment"] = made.moment
    return told


def _write_changes(db: Database, target: Path) -> int:
    """The change log as lines; returns how many."""
    count = 0
    with writing_text(target / CHANGES, db._storage.engine.file_mode) as stream:
        for change in db.change_log.read():
            stream.write(
                json.dumps(describe_change(change), ensure_ascii=False, default=as_plain) + "\n"
            )
            count += 1
    return count


def note_left_out(exports: Iterable[Manifest | Loaded]) -> None:
    """Say which migrations exports have not, though processes are served their schemas."""
    for label in sorted({label for one in exports for label in one.left_out}):
        print_note(f"left out: {label}, which was rolled back and is kept")


def report_export(records: int, tables: int, target: Path, output: Output) -> None:
    """Say what was exported, and where to."""
    what = f"{format_count(records, 'record')} of {format_count(tables, 'table')}"
    output.write(("exported ", "green"), f"{what} to {target}")
