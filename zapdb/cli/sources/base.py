"""What `zapdb import` was asked for, and what a kind of source does with it."""

from __future__ import annotations

import datetime
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import zapdb
from zapdb.cli.configuration import find_database, find_tenant_name
from zapdb.cli.opening import TenantOptions
from zapdb.cli.output import Output, format_count, format_seconds, print_note
from zapdb.cli.progress_counter import ProgressCounter
from zapdb.cli.skipped_file import SkippedFile
from zapdb.cli.undivided import CommandJob, JobCounter, place_of
from zapdb.database import Database
from zapdb.database.imports import Checkpoint, Importer, ImportMode, ImportReport, forget_all
from zapdb.database.imports.file_formats import FILE_FORMATS, FileFormat
from zapdb.database.imports.given_file import GivenFile
from zapdb.errors import EXIT_PENDING, UsageError

OnError = Literal["stop", "skip"]


@dataclass(frozen=True, slots=True)
class ImportRequest:
    """The arguments of one `zapdb import`."""

    source: str
    form: str | None = None
    table: str | None = None
    only: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    infer: bool = False
    mapping: Mapping[str, str] | None = None
    mode: ImportMode = "append"
    on_error: OnError = "stop"
    skipped: Path | None = None
    batch: int | None = None
    atomic: bool = False
    from_start: bool = False
    encoding: str | None = None
    delimiter: str = ","
    null: str | None = None
    time_zone: datetime.tzinfo | None = None
    follow: bool = False
    switch: str | None = None
    every: float = 1.0
    database: str | None = None
    migrations: str | None = None
    tenant: str | None = None

    @property
    def is_stdin(self) -> bool:
        return self.file.is_stdin

    @property
    def shown_source(self) -> str:
        return self.file.shown

    def job(self, subject: str, table: tuple[int, str] = (0, "")) -> CommandJob:
        """The job of this import, into a table with this number and name."""
        return CommandJob(
            "import",
            subject,
            TenantOptions(self.database, self.tenant),
            table,
            is_resumable=bool(self.file.identity)
            or "://" in self.source
            or Path(self.source).is_dir(),
        )

    @property
    def file(self) -> GivenFile:
        """The source, if it is a file."""
        return GivenFile(
            self.source,
            self.mapping or {},
            self.mode,
            self.encoding,
            self.delimiter,
            self.null,
            self.time_zone,
        )


class SourceKind(ABC):
    """One kind of source."""

    name: ClassVar[str]
    """As `--format` has it."""

    @abstractmethod
    def takes(self, request: ImportRequest) -> bool:
        """Whether a source looks like this kind."""

    @abstractmethod
    def run(self, request: ImportRequest, output: Output) -> int:
        """Import the source; returns the exit status."""

    def infer(self, request: ImportRequest, output: Output) -> int:
        """Write a migration for the source; returns the exit status."""
        raise UsageError(
            "no migration can be inferred from this kind of source",
            source=request.shown_source,
            format=self.name,
            hint="write it by hand: zapdb migrate new",
        )


class FileKind(SourceKind):
    """A file of rows for one table, in the format with the name of the kind."""

    @property
    def form(self) -> FileFormat:
        return FILE_FORMATS[self.name]

    def takes(self, request: ImportRequest) -> bool:
        return self.form.takes(request.source, is_stdin=request.is_stdin)

    def run(self, request: ImportRequest, output: Output) -> int:
        return import_file(self.form, request, output)


@contextmanager
def opened_target(request: ImportRequest) -> Iterator[Database]:
    """The database that is imported into."""
    address, tenant = find_database(request.database), find_tenant_name(request.tenant)
    with zapdb.open(address, tenant=tenant) as db:
        yield db


def import_file(form: FileFormat, request: ImportRequest, output: Output) -> int:
    """Import a file into one table; returns the exit status."""
    if request.table is None:
        raise UsageError(
            "say which table the rows are for",
            source=request.shown_source,
            hint="add --table NAME; `zapdb catalog list` shows the tables",
        )
    with (
        opened_target(request) as db,
        SkippedFile.opened(request.skipped, request.source, db._storage.file_mode) as skipped,
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
                pace=counter.pace if isinstance(counter, JobCounter) else None,
            )
            with db.transaction() if request.atomic else nullcontext():
                report = importer.run_and_keep(source, kept)
        forget_all(kept)
    write_report(report, request, output)
    return EXIT_PENDING if report.skipped else 0


@contextmanager
def _count(request: ImportRequest, table: tuple[int, str]) -> Iterator[ProgressCounter]:
    """Counts rows, for a job of the database if these are batches, and not one transaction."""
    if request.atomic:
        with ProgressCounter("row") as counter:
            yield counter
        return
    subject = place_of(request.source)
    if request.is_stdin:
        subject = f"standard input of process {os.getpid()}"
    with JobCounter(request.job(subject, table)) as counter:
        counter.begin()
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
