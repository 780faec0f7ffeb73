"""What `zapdb import` was asked for."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

import typer

from zapdb.cli.configuration import MigrationsOption
from zapdb.cli.connecting import TenantOptions
from zapdb.cli.exclusive_jobs import JobCounter, OnlyLocalOption, counted_job, refuse_spark
from zapdb.datasets import zone
from zapdb.errors import UsageError
from zapdb.imports import ImportMode
from zapdb.imports.given_file import GivenFile


@dataclass(frozen=True, kw_only=True)
class ImportRequest(TenantOptions):
    """The parameters of one `zapdb import`; a field has the name of its option."""

    source: Annotated[
        str,
        typer.Argument(
            help="A file, - for standard input, a database, or a directory of `zapdb export`."
        ),
    ]
    table: Annotated[
        str | None, typer.Option("--table", metavar="NAME", help="The table that rows are for.")
    ] = None
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="TABLE", help="Of a database, this table; may be repeated."),
    ] = None
    exclude: Annotated[
        list[str] | None,
        typer.Option(
            "--exclude",
            metavar="TABLE",
            help="Of a database, all but this table, or this column, as TABLE.COLUMN; may be "
            "repeated.",
        ),
    ] = None
    infer: Annotated[
        bool,
        typer.Option(
            "--infer",
            help="Import nothing: write a migration for the source's tables, to review and apply.",
        ),
    ] = False
    format: Annotated[
        str | None,
        typer.Option(
            "--format",
            "-f",
            help="The format, if the file's name does not say it: csv, ndjson, …",
        ),
    ] = None
    map: Annotated[
        list[str] | None,
        typer.Option(
            "--map",
            metavar="COLUMN=FIELD",
            help='The field of a column, as in "US Gross=us_gross"; "COLUMN=" leaves it out.',
        ),
    ] = None
    mode: Annotated[
        ImportMode,
        typer.Option("--mode", help="Refuse rows whose key exists, or update their records."),
    ] = "append"
    on_error: Annotated[
        Literal["stop", "skip"],
        typer.Option("--on-error", help="End at a wrong row, or write it to --skipped FILE."),
    ] = "stop"
    skipped: Annotated[
        Path | None,
        typer.Option("--skipped", metavar="FILE", help="The file of skipped rows, as NDJSON."),
    ] = None
    batch: Annotated[
        int | None,
        typer.Option(
            "--batch",
            min=1,
            help="Commit this many rows at a time; by default 2,000, and 20,000 of Parquet and "
            "Arrow.",
        ),
    ] = None
    atomic: Annotated[
        bool, typer.Option("--atomic", help="Import all rows in one transaction, or none.")
    ] = False
    from_start: Annotated[
        bool,
        typer.Option("--from-start", help="Begin again, instead of continuing an interrupted run."),
    ] = False
    encoding: Annotated[
        str | None,
        typer.Option("--encoding", help="The encoding of text, if it is not UTF-8: latin-1, …"),
    ] = None
    delimiter: Annotated[
        str, typer.Option("--delimiter", help="In CSV, what separates cells; \\t is a tab.")
    ] = ","
    null: Annotated[
        str | None,
        typer.Option(
            "--null",
            metavar="TEXT",
            help="In CSV, the text of a cell that is a null, such as NA; backslashes are then "
            "ordinary characters.",
        ),
    ] = None
    time_zone: Annotated[
        str | None,
        typer.Option(
            "--time-zone",
            metavar="ZONE",
            help="The zone of times that have none, such as Europe/Vienna.",
        ),
    ] = None
    follow: Annotated[
        bool,
        typer.Option("--follow", help="Keep copying what changes in a PostgreSQL database."),
    ] = False
    switch: Annotated[
        str | None,
        typer.Option(
            "--switch",
            metavar="COMMAND",
            help="End following: lock the source, copy the rest, compare everything, and run "
            "COMMAND, which switches the application over, before the lock ends.",
        ),
    ] = None
    every: Annotated[
        float, typer.Option("--every", min=0.05, help="Seconds between two passes of --follow.")
    ] = 1.0
    engine: OnlyLocalOption = "local"
    migrations: MigrationsOption = None

    def require_valid(self, *, as_json: bool) -> None:
        """Raise `UsageError` for options that do not go together, or can't be read."""
        refuse_spark("import", self.engine)
        if (self.on_error == "skip") != (self.skipped is not None):
            raise UsageError(
                "--on-error skip and --skipped FILE go together",
                hint="for example: --on-error skip --skipped skipped.ndjson",
            )
        if self.atomic and (self.batch is not None or self.from_start):
            raise UsageError(
                "--atomic imports all rows in one transaction",
                hint="leave out --batch and --from-start",
            )
        if self.follow and self.switch is not None:
            raise UsageError("--switch ends what --follow began", hint="leave out --follow")
        if as_json and self.follow:
            raise UsageError(
                "--json reports at the end, and following has none", hint="leave it out"
            )
        _ = self.columns, self.zone
        if not (self.is_stdin or "://" in self.source or Path(self.source).exists()):
            raise UsageError(
                "there is no such file",
                source=self.source,
                hint="give the path of a file, or - for standard input",
            )

    def list_given(self, *options: str) -> list[str]:
        """Those of the options that were given another value than their default."""
        defaults = {field.name: field.default for field in fields(self)}
        names = {option: option[2:].replace("-", "_") for option in options}
        return [option for option, name in names.items() if getattr(self, name) != defaults[name]]

    @cached_property
    def columns(self) -> Mapping[str, str]:
        """The fields of columns; raises `UsageError`."""
        columns = dict[str, str]()
        for text in self.map or ():
            column, sign, field = text.rpartition("=")
            if not sign:
                raise UsageError("give a mapping as COLUMN=FIELD", got=text)
            if column in columns:
                raise UsageError("a column was mapped twice", column=column)
            columns[column] = field
        return columns

    @cached_property
    def zone(self) -> datetime.tzinfo | None:
        return None if self.time_zone is None else zone(self.time_zone)

    @property
    def file(self) -> GivenFile:
        """The source, if it is a file."""
        return GivenFile(
            self.source,
            self.columns,
            self.mode,
            self.encoding,
            self.delimiter,
            self.null,
            self.zone,
        )

    @property
    def is_stdin(self) -> bool:
        return self.file.is_stdin

    @property
    def shown_source(self) -> str:
        return self.file.shown

    def job(
        self, subject: str, table: tuple[int, str] = (0, "")
    ) -> AbstractContextManager[JobCounter]:
        """The job of this import in a block, into a table with this number and name."""
        is_resumable = (
            bool(self.file.identity) or "://" in self.source or Path(self.source).is_dir()
        )
        return counted_job(self, "import", subject, table, is_resumable=is_resumable)
