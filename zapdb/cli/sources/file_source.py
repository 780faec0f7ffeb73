"""Files of rows: CSV, JSON, and what needs the extra `sql`: Parquet, and Arrow (Feather, IPC)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from zapdb.cli.exclusive_jobs import JobCounter, place_of
from zapdb.cli.output import Output, format_count, format_seconds, print_note
from zapdb.cli.skipped_file import SkippedFile
from zapdb.cli.sources.inferring import write_migration
from zapdb.cli.sources.request import ImportRequest
from zapdb.errors import EXIT_PENDING, UsageError
from zapdb.imports import Checkpoint, Importer, ImportReport, forget_all, normalize_name
from zapdb.imports.csv_rows import delimiter_of, refuse_empty
from zapdb.imports.file_formats import FileFormat
from zapdb.imports.text import opened_text
from zapdb.records.record_lines import BoundedLines, split_csv
from zapdb.transfer.inference import Inference
from zapdb.transfer.inference.file_inference import infer_arrow, infer_csv


def infer_from_csv(request: ImportRequest, output: Output) -> int:
    """Write a migration for a CSV file; returns the exit status."""
    name, given = _name_table(request), request.file
    with opened_text(given, newline="") as stream:
        lines = BoundedLines(stream, name)
        rows = (cells for _, cells in split_csv(lines, delimiter_of(given), name))
        header = next(rows, None)
        if not header:
            raise refuse_empty(given.shown)
        table = infer_csv(name, header, rows, given.null)
    write_migration(Inference(given.shown, [table]), request.migrations, output)
    return 0


def infer_from_arrow(request: ImportRequest, output: Output) -> int:
    """Write a migration for a Parquet or Arrow file; returns the exit status."""
    from zapdb.imports.arrow_rows import open_arrow_file

    schema = open_arrow_file(request.source).schema
    table = infer_arrow(_name_table(request), schema)
    write_migration(Inference(request.shown_source, [table]), request.migrations, output)
    return 0


def _name_table(request: ImportRequest) -> str:
    """The name of a file's table: what is given, or the name of the file."""
    return request.table or normalize_name(Path(request.source).stem)


def import_file(form: FileFormat, request: ImportRequest, output: Output) -> int:
    """Import a file into one table; returns the exit status."""
    if request.table is None:
        raise UsageError(
            "say which table the rows are for",
            source=request.shown_source,
            hint="add --table NAME; `zapdb catalog list` shows the tables",
        )
    with (
        request.open() as db,
        SkippedFile.opened(
            request.skipped, request.source, db._storage.engine.file_mode
        ) as skipped,
    ):
        table = db.table(request.table)
        schema = table._current().adapter.schema
        source = form.open(request.file, schema)
        kept = list[Checkpoint]()
        with _count(request, (schema.number, schema.name)) as counter:
            importer = Importer(
                db._session,
                table,
                request.mode,
                request.batch,
                skipped,
                resumable=not request.atomic,
                anew=request.from_start,
                progress=lambda read: counter.add(read - counter.count),
                pace=counter.job,
            )
            with db.transaction() if request.atomic else nullcontext():
                report = importer.run_and_keep(source, kept)
        forget_all(kept)
    write_report(report, request, output)
    return EXIT_PENDING if report.skipped else 0


@contextmanager
def _count(request: ImportRequest, table: tuple[int, str]) -> Iterator[JobCounter]:
    """Counts rows, for a job of the database if these are batches, and not one transaction."""
    if request.atomic:
        with JobCounter("row") as counter:
            yield counter
        return
    subject = place_of(request.source)
    if request.is_stdin:
        subject = f"standard input of process {os.getpid()}"
    with request.job(subject, table) as counter:
        yield counter


def write_report(report: ImportReport, request: ImportRequest, output: Output) -> None:
    output.document(
        {
            "table": report.table,
            "source": report.source,
            "read": report.read,
            "written": report.written,
            "skipped": report.skipped,
            "resumed_after": report.resumed_after,
            "seconds": round(report.seconds, 3),
        }
    )
    if report.resumed_after:
        passed_over = format_count(report.resumed_after, "row")
        print_note(f"went on after {passed_over} of an earlier run")
    rows = format_count(report.written, "record")
    output.write(f"imported {rows} into {report.table} in {format_seconds(report.seconds)}")
    if report.skipped:
        print_note(f"skipped {format_count(report.skipped, 'row')}: see {request.skipped}")
