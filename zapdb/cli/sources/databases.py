"""Databases of other programs, through SQLAlchemy: a migration for their tables, and their rows."""

from __future__ import annotations

import datetime

from zapdb.cli.exclusive_jobs import JobCounter
from zapdb.cli.output import Output, format_count, print_note
from zapdb.cli.skipped_file import SkippedFile
from zapdb.cli.sources.following import choice_of, follow_source
from zapdb.cli.sources.inferring import write_migration
from zapdb.cli.sources.request import ImportRequest
from zapdb.database.imports import Checkpoint, forget_all
from zapdb.errors import EXIT_ERROR, EXIT_PENDING, UsageError
from zapdb.inference import (
    CopyOptions,
    Inference,
    SourceDatabase,
    TableCopy,
    copy_tables,
    infer_tables,
)
from zapdb.inference.importing import counting, fit_to_tables


def infer_from_database(request: ImportRequest, output: Output) -> int:
    """Write a migration for the tables of a database; returns the exit status."""
    with SourceDatabase.opened(request.source) as source:
        found = infer_tables(source, choice_of(request))
    write_migration(found, request.migrations, output)
    return EXIT_PENDING if found.left_out else 0


def import_tables(request: ImportRequest, output: Output) -> int:
    """Copy the tables of a database, or follow it; returns the exit status."""
    for option in request.list_given("--map", "--atomic", "--encoding", "--null"):
        raise UsageError(f"{option} is for files", hint="leave it out for a database")
    if request.follow or request.switch is not None:
        return follow_source(request, output)
    with (
        SourceDatabase.opened(request.source) as source,
        request.open() as db,
        SkippedFile.opened(request.skipped, request.source, db._storage.file_mode) as skipped,
    ):
        found = infer_tables(source, choice_of(request))
        fit_to_tables(found, db)
        kept = list[Checkpoint]()
        with JobCounter(request.job(found.source)) as counter:
            counter.begin()
            options = CopyOptions(
                request.zone or datetime.UTC,
                request.mode,
                request.batch,
                skipped,
                request.from_start,
                counting(counter.add),
                counter.pace,
            )
            copies = copy_tables(source, found, db, options, kept)
        forget_all(kept)
    return write_copies(found, copies, request, output)


def write_copies(
    found: Inference, copies: list[TableCopy], request: ImportRequest, output: Output
) -> int:
    """Compare the counts, and say what is missing; returns the exit status."""
    wrong = [copy for copy in copies if not copy.is_complete]
    output.document(
        {
            "source": found.source,
            "tables": copies,
            "tables_left_out": found.left_out,
            "not_here": found.not_here,
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
    if found.not_here:
        print_note(
            f"not imported, since the tables here have no place for it: {', '.join(found.not_here)}"
        )
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
