"""`zapdb export`: a whole tenant as a directory of files, or as a script of plain SQL."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import zapdb
from zapdb.cli.configuration import (
    DatabaseOption,
    JsonOption,
    MigrationsOption,
    TenantOption,
    find_database,
    find_migrations_if_any,
    find_tenant_name,
)
from zapdb.cli.output import Output, format_count, print_note
from zapdb.cli.progress_counter import ProgressCounter
from zapdb.database import Database
from zapdb.export.manifest import Form
from zapdb.export.sql_script import ScriptEngine, export_sql


def export_command(
    target: Annotated[
        Path,
        typer.Argument(metavar="DIRECTORY|FILE", help="A new directory; with --sql, a file."),
    ],
    form: Annotated[
        Form, typer.Option("--format", "-f", help="The format of the records' files.")
    ] = "parquet",
    sql: Annotated[
        ScriptEngine | None,
        typer.Option("--sql", help="Write a script of plain tables for this database instead."),
    ] = None,
    database: DatabaseOption = None,
    migrations: MigrationsOption = None,
    tenant: TenantOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write all tables of a tenant, as of one moment, into a new directory, or as a SQL script.

    The directory has a file for each table, the migrations, and a manifest with the count and the
    digest of each table's records. Large values, archived values of dropped fields, settings and
    the last numbers of sequences are in it; the change log and records of dropped tables are not.
    `zapdb import DIRECTORY` loads it into an empty database, on either engine, and compares counts
    and digests. Needs the extra `sql`.

    With `--sql`, a file is written, and replaced: plain tables with types, keys, references and
    indexes, and their rows, for `psql` or `sqlite3`. Nothing of zapdb is left in it. Checks are
    comments.

    With `--json`: `{path, format, position, tables: [{name, file, records, digest, as_text}]}`;
    `as_text` names fields whose numbers are text, because some exceed 64 bits or 38 digits.
    With `--sql`: `{path, engine, records: {TABLE: COUNT}, omitted}`; `omitted` says what has no
    equivalent.
    """
    output = Output(as_json)
    if sql is not None:
        with _opened(database, tenant) as db, ProgressCounter() as counter:
            script = export_sql(db, target, sql, progress=counter.add)
        _report(sum(script.records.values()), len(script.records), target, output)
        for what in script.omitted:
            print_note(f"left out: {what}")
        output.document(
            {
                "path": str(target),
                "engine": sql,
                "records": script.records,
                "omitted": list(script.omitted),
            }
        )
        return
    from zapdb.export.directory import export_directory

    with _opened(database, tenant) as db, ProgressCounter() as counter:
        authored = find_migrations_if_any(migrations)
        made = export_directory(db, target, form=form, migrations=authored, progress=counter.add)
    _report(sum(table.records for table in made.tables), len(made.tables), target, output)
    described = [
        {
            "name": table.name,
            "file": table.file,
            "records": table.records,
            "digest": table.digest,
            "as_text": list(table.as_text),
        }
        for table in made.tables
    ]
    output.document(
        {"path": str(target), "format": made.form, "position": made.position, "tables": described}
    )


def _report(records: int, tables: int, target: Path, output: Output) -> None:
    what = f"{format_count(records, 'record')} of {format_count(tables, 'table')}"
    output.write(("exported ", "green"), f"{what} to {target}")


def _opened(database: str | None, tenant: str | None) -> Database:
    return zapdb.open(find_database(database), tenant=find_tenant_name(tenant), read_only=True)
