"""Databases of other programs, through SQLAlchemy: a migration for their tables, and their rows.

They are copied once, or followed until the application leaves the source.
"""

from __future__ import annotations

import datetime
import subprocess
import time
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from zapdb.cli.exclusive_jobs import JobCounter
from zapdb.cli.output import Output, format_count, print_note
from zapdb.cli.skipped_file import SkippedFile
from zapdb.cli.sources.inferring import write_migration
from zapdb.cli.sources.request import ImportRequest
from zapdb.errors import EXIT_ERROR, EXIT_PENDING, StorageError, UsageError
from zapdb.imports import Checkpoint, forget_all
from zapdb.transfer.inference import (
    CopyOptions,
    Follower,
    Inference,
    SourceDatabase,
    TableChoice,
    TableCopy,
    copy_tables,
    infer_tables,
)
from zapdb.transfer.inference.database_import import counting, fit_to_tables
from zapdb.transfer.inference.source_database import SourceLost
from zapdb.transfer.inference.source_follower import PassReport


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
        SkippedFile.opened(
            request.skipped, request.source, db._storage.engine.file_mode
        ) as skipped,
    ):
        found = infer_tables(source, choice_of(request))
        fit_to_tables(found, db)
        kept = list[Checkpoint]()
        with request.job(found.source) as counter:
            options = CopyOptions(
                request.zone or datetime.UTC,
                request.mode,
                request.batch,
                skipped,
                request.from_start,
                counting(counter.add),
                counter.job,
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


T = TypeVar("T")

BUSY_POLL_SECONDS: Final = 1.0
"""How long it waits before it goes on, when the source can be reached again."""


def follow_source(request: ImportRequest, output: Output) -> int:
    """Follow until interrupted, or switch over; returns the exit status."""
    for option in request.list_given("--mode", "--on-error", "--from-start"):
        raise UsageError(
            f"{option}{' skip' * (option == '--on-error')} does not go with --follow",
            hint="a row that is wrong ends it: correct the row in the source, and go on",
        )
    with SourceDatabase.opened(request.source) as source, request.open() as db:
        found = infer_tables(source, choice_of(request))
        fit_to_tables(found, db)
        if found.left_out:
            raise UsageError(
                "tables without a key can't be followed",
                tables=", ".join(found.left_out),
                hint="give them a primary key, or leave them out with --exclude",
            )
        with request.job(found.source) as counter:
            options = CopyOptions(
                request.zone or datetime.UTC,
                batch_records=request.batch,
                progress=counting(counter.add),
                pace=counter.job,
            )
            with Follower.opened(source, found, db, options) as follower:
                copied = _going_on(follower.copy, source, counter)
                if copied:
                    output.write(f"copied {format_count(copied, 'row')}")
                if request.switch is not None:
                    return _switch(follower, found, request, output)
                _follow(partial(_going_on, follower.step, source, counter), request, output)
    return 0


def _follow(step: Callable[[], PassReport], request: ImportRequest, output: Output) -> None:
    print_note("following; interrupt it at any time, and end it with --switch")
    while True:
        done = step()
        if done.read or done.deleted:
            deleted = f", {format_count(done.deleted, 'record')} deleted" if done.deleted else ""
            output.write(
                f"{datetime.datetime.now():%H:%M:%S}  {format_count(done.read, 'row')} brought"
                f"{deleted} in {done.seconds:.1f} s"
            )
        time.sleep(max(request.every, done.seconds))


def _going_on(action: Callable[[], T], source: SourceDatabase, counter: JobCounter) -> T:
    """Do something that goes on where it stopped; again when the source can be reached again."""
    while True:
        try:
            return action()
        except SourceLost as error:
            print_note(f"waiting: {error.message}: {error.context['problem']}")
            source.wait_until_reached()
        time.sleep(BUSY_POLL_SECONDS)
        counter.job.note(0)  # waits while the job is paused


def _switch(follower: Follower, found: Inference, request: ImportRequest, output: Output) -> int:
    def run() -> None:
        done = subprocess.run(request.switch or "", shell=True, check=False)  # noqa: S602 - the operator's own command
        if done.returncode:
            raise StorageError(
                "the command that switches over has failed; the source is still followed",
                command=request.switch,
                status=done.returncode,
                hint="correct it, and run the same again",
            )

    report = follower.switch(run)
    output.document(
        {
            "source": found.source,
            "tables": report.tables,
            "repaired": report.repaired,
        }
    )
    output.table(
        ["table", "rows", "digest"],
        [[one.table, f"{one.rows:,}", one.digest[:16]] for one in report.tables],
        right=("rows",),
    )
    if report.repaired:
        rows = format_count(report.repaired, "row")
        print_note(f"{rows} had been changed without their updated_at; they are right now")
    output.write(("equal by key and digest", "green"), "; the source is followed no more")
    return 0


def choice_of(request: ImportRequest) -> TableChoice:
    """The tables that an import of a database is of."""
    one = () if request.table is None else (request.table,)
    return TableChoice((*(request.only or ()), *one), tuple(request.exclude or ()))
