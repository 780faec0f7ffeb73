"""The rows of another database, imported by an application: a job of its own database."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Collection
from dataclasses import replace

from zapdb.database import Database
from zapdb.errors import UsageError
from zapdb.imports import Checkpoint, ImportMode, SkippedRow, forget_all
from zapdb.imports.column_matching import require_fields
from zapdb.imports.importer import SkippedList
from zapdb.jobs.exclusive import OnWait, noted_as_job
from zapdb.schema import TableSchema
from zapdb.transfer.inference.choice import TableChoice
from zapdb.transfer.inference.copying import CopyOptions, TableCopy, copy_tables
from zapdb.transfer.inference.inferred import Inference, InferredTable
from zapdb.transfer.inference.source_database import SourceDatabase
from zapdb.transfer.inference.tables import infer_tables


def counting(add: Callable[[int], object]) -> Callable[[int], None]:
    """Adds up the rows of one table after the other: it is called with those of a table so far."""
    before = 0

    def count(read: int) -> None:
        nonlocal before
        add(read - before if read >= before else read)
        before = read

    return count


def import_database(
    db: Database,
    source: str,
    *,
    tables: Collection[str] = (),
    exclude: Collection[str] = (),
    mode: ImportMode = "append",
    time_zone: datetime.tzinfo = datetime.UTC,
    skipped: list[SkippedRow] | None = None,
    from_start: bool = False,
    on_wait: OnWait | None = None,
) -> list[TableCopy]:
    """Copy the rows of a SQLite, PostgreSQL or MySQL database into the tables of the same names,
    which a migration has made; all tables that have a key, or those that are named. `exclude` names
    tables, and columns as `TABLE.COLUMN`, that are left out.

    `source` is an address, or the path of a SQLite file. Referenced tables come first; the counts
    of each table are in what is returned. With a list for `skipped`, wrong rows are added to it;
    without, the first one raises its error. It is a job of `db.jobs`; called again after an
    interruption, it goes on. Raises `UsageError` for tables that do not exist here.
    """
    with SourceDatabase.opened(source) as opened:
        found = infer_tables(opened, TableChoice(tables, exclude))
        fit_to_tables(found, db)
        kept = list[Checkpoint]()
        options = CopyOptions(
            time_zone,
            mode,
            skipped=None if skipped is None else SkippedList(skipped),
            anew=from_start,
        )
        with noted_as_job(db._session, "import", found.source, on_wait=on_wait) as job:
            copies = copy_tables(opened, found, db, replace(options, pace=job), kept)
        forget_all(kept)
    return copies


def nothing_to_import(found: Inference) -> UsageError:
    return UsageError(
        "no table of the source can be imported",
        source=found.source,
        problem="; ".join(map(str, found.notes)),
        hint="give its tables a primary key, or name one that has one",
    )


def fit_to_tables(found: Inference, db: Database) -> None:
    """Leave out what was deleted from the migration: tables and fields that are not here, whose
    names are in `found.not_here` then.

    Raises `UsageError` if nothing of the source is here, if a table lacks a part of its key, and if
    it has a field that needs a value which the source does not have.
    """
    if not found.tables:
        raise nothing_to_import(found)
    there = [table for table in found.tables if table.name in db.tables]
    if not there:
        raise UsageError(
            "tables of the source do not exist here",
            tables=", ".join(table.name for table in found.tables),
            hint="write a migration with `zapdb import SOURCE --infer`, look at it, and run "
            "`zapdb migrate up`",
        )
    found.not_here += [table.source_name for table in found.tables if table not in there]
    found.tables = there
    for table in there:
        _fit_to_table(found, table, db.table(table.name)._current().adapter.schema)


def _fit_to_table(found: Inference, table: InferredTable, schema: TableSchema) -> None:
    names = {field.name for field in schema.fields}
    key = [field.name for field in schema.key_fields]
    missing = [name for name in table.key if name not in names]
    if missing or not {*key} <= {field.name for field in table.fields}:
        raise UsageError(
            "the key of a table here is not the key of the source's table",
            table=table.name,
            key=", ".join(key),
            source_key=", ".join(table.key),
            hint="write the migration anew with --infer, or leave the table out with --exclude",
        )
    for field in [field for field in table.fields if field.name not in names]:
        table.fields.remove(field)
        found.not_here += [f"{table.source_name}.{column}" for column in field.columns]
    require_fields(schema, [field.name for field in table.fields], "append")
