"""The rows of another database, imported by an application: a job of its own database."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Collection
from dataclasses import replace

from zapdb.database import Database
from zapdb.database.imports import Checkpoint, ImportMode, SkippedRow, forget_all
from zapdb.database.imports.skipped_list import SkippedList
from zapdb.database.undivided_work import OnWait, noted_as_job
from zapdb.errors import UsageError
from zapdb.inference.copying import CopyOptions, TableCopy, copy_tables
from zapdb.inference.inferred import Inference
from zapdb.inference.source import SourceDatabase
from zapdb.inference.tables import infer_tables


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
    mode: ImportMode = "append",
    time_zone: datetime.tzinfo = datetime.UTC,
    skipped: list[SkippedRow] | None = None,
    from_start: bool = False,
    on_wait: OnWait | None = None,
) -> list[TableCopy]:
    """Copy the rows of a SQLite, PostgreSQL or MySQL database into the tables of the same names,
    which a migration has made; all tables that have a key, or those that are named.

    `source` is an address, or the path of a SQLite file. Referenced tables come first; the counts
    of each table are in what is returned. With a list for `skipped`, wrong rows are added to it;
    without, the first one raises its error. It is a job of `db.jobs`; called again after an
    interruption, it goes on. Raises `UsageError` for tables that do not exist here.
    """
    with SourceDatabase.opened(source) as opened:
        found = infer_tables(opened, tuple(tables))
        require_tables(found, db)
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


def require_tables(found: Inference, db: Database) -> None:
    """Raise `UsageError` unless there is a table here for each of the source."""
    if not found.tables:
        raise nothing_to_import(found)
    missing = [table.name for table in found.tables if table.name not in db.tables]
    if missing:
        raise UsageError(
            "tables of the source do not exist here",
            tables=", ".join(missing),
            hint="write a migration with `zapdb import SOURCE --infer`, look at it, and run "
            "`zapdb migrate up`",
        )
