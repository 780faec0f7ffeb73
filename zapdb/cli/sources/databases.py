"""Databases of other programs, through SQLAlchemy: a migration for their tables, and their rows."""

from __future__ import annotations

import datetime

from zapdb.cli.output import Output, format_count, print_note
from zapdb.cli.progress_counter import ProgressCounter
from zapdb.cli.skipped_file import SkippedFile
from zapdb.cli.sources.base import ImportRequest, SourceKind, opened_target
from zapdb.cli.sources.inferring import write_migration
from zapdb.database import Database
from zapdb.errors import EXIT_ERROR, EXIT_PENDING, UsageError
from zapdb.inference import (
    CopyOptions,
    Inference,
    SourceDatabase,
    TableCopy,
    copy_tables,
    infer_tables,
)
from zapdb.inference.source import is_sqlite_file
from zapdb.limits import INSERT_BATCH_RECORDS


class DatabaseKind(SourceKind):
    name = "database"

    def takes(self, request: ImportRequest) -> bool:
        return "://" in request.source or is_sqlite_file(request.source)

    def infer(self, request: ImportRequest, output: Output) -> int:
        with SourceDatabase.opened(request.source) as source:
            found = infer_tables(source, _only(request))
            if not found.tables:
                raise _nothing_to_import(found)
        write_migration(found, request.migrations, output)
        return EXIT_PENDING if found.left_out else 0

    def run(self, request: ImportRequest, output: Output) -> int:
        _refuse_file_options(request)
        with (
            SourceDatabase.opened(request.source) as source,
            opened_target(request) as db,
            SkippedFile.opened(request.skipped) as skipped,
        ):
            found = infer_tables(source, _only(request))
            _require_tables(found, db)
            with ProgressCounter("row") as counter:
                before = [0]

                def show(read: int) -> None:
                    counter.add(read - before[0] if read >= before[0] else read)
                    before[0] = read

                options = CopyOptions(
                    request.time_zone or datetime.UTC,
                    request.mode,
                    request.batch or INSERT_BATCH_RECORDS,
                    skipped,
                    request.from_start,
                    show,
                )
                copies = copy_tables(source, found, db, options)
        return write_copies(found, copies, request, output)


def _only(request: ImportRequest) -> tuple[str, ...]:
    return () if request.table is None else (request.table,)


def _refuse_file_options(request: ImportRequest) -> None:
    given = {
        "--map": bool(request.mapping),
        "--atomic": request.atomic,
        "--encoding": request.encoding is not None,
        "--null": request.null is not None,
    }
    for option, is_given in given.items():
        if is_given:
            raise UsageError(f"{option} is for files", hint="leave it out for a database")


def _nothing_to_import(found: Inference) -> UsageError:
    return UsageError(
        "no table of the source can be imported",
        source=found.source,
        problem="; ".join(map(str, found.notes)),
    )


def _require_tables(found: Inference, db: Database) -> None:
    if not found.tables:
        raise _nothing_to_import(found)
    missing = [table.name for table in found.tables if table.name not in db.tables]
    if missing:
        raise UsageError(
            "tables of the source do not exist here",
            tables=", ".join(missing),
            hint="write a migration with `zapdb import SOURCE --infer`, look at it, and run "
            "`zapdb migrate up`",
        )


def write_copies(
    found: Inference, copies: list[TableCopy], request: ImportRequest, output: Output
) -> int:
    """Compare the counts, and say what is missing; returns the exit status."""
    wrong = [copy for copy in copies if not copy.is_complete]
    output.document(
        {
            "source": found.source,
            "tables": [
                {
                    "source": copy.source,
                    "table": copy.table,
                    "rows": copy.rows,
                    "records": copy.records,
                    "skipped": copy.skipped,
                }
                for copy in copies
            ],
            "left_out": found.left_out,
            "is_complete": not wrong,
        }
    )
    output.table(
        ["source", "table", "rows", "records", "skipped"],
        [[c.source, c.table, f"{c.rows:,}", f"{c.records:,}", f"{c.skipped:,}"] for c in copies],
        right=("rows", "records", "skipped"),
    )
    for name in found.left_out:
        print_note(f"not imported: {name}, which has no key (see --infer)")
    skipped = sum(copy.skipped for copy in copies)
    if skipped:
        print_note(f"skipped {format_count(skipped, 'row')}: see {request.skipped}")
    if wrong:
        names = ", ".join(copy.table for copy in wrong)
        print_note(
            f"the counts differ: {names}; the source or these tables were written meanwhile, or "
            "had records before"
        )
        return EXIT_ERROR
    return EXIT_PENDING if skipped or found.left_out else 0
