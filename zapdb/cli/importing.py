"""`zapdb import`: records from files and from other databases."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from zapdb.cli.configuration import DatabaseOption, JsonOption, MigrationsOption, TenantOption
from zapdb.cli.output import Output
from zapdb.cli.sources import find_kind, refuse_choice
from zapdb.cli.sources.base import ImportRequest, OnError
from zapdb.cli.undivided import OnlyLocalOption, refuse_spark
from zapdb.database.imports import ImportMode
from zapdb.datasets import zone
from zapdb.errors import UsageError

SourceArgument = Annotated[
    str,
    typer.Argument(
        help="A file, - for standard input, a database, or a directory of `zapdb export`."
    ),
]
TableOption = Annotated[
    str | None, typer.Option("--table", metavar="NAME", help="The table that rows are for.")
]
OnlyOption = Annotated[
    list[str] | None,
    typer.Option("--only", metavar="TABLE", help="Of a database, this table; may be repeated."),
]
ExcludeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--exclude",
        metavar="TABLE",
        help="Of a database, all but this table, or this column, as TABLE.COLUMN; may be repeated.",
    ),
]
InferOption = Annotated[
    bool,
    typer.Option(
        "--infer",
        help="Import nothing: write a migration for the source's tables, to review and apply.",
    ),
]
FormatOption = Annotated[
    str | None,
    typer.Option(
        "--format", "-f", help="The format, if the file's name does not say it: csv, ndjson, …"
    ),
]
MapOption = Annotated[
    list[str] | None,
    typer.Option(
        "--map",
        metavar="COLUMN=FIELD",
        help='The field of a column, as in "US Gross=us_gross"; "COLUMN=" leaves it out.',
    ),
]
ModeOption = Annotated[
    ImportMode,
    typer.Option("--mode", help="Refuse rows whose key exists, or update their records."),
]
OnErrorOption = Annotated[
    OnError,
    typer.Option("--on-error", help="End at a wrong row, or write it to --skipped FILE."),
]
SkippedOption = Annotated[
    Path | None,
    typer.Option("--skipped", metavar="FILE", help="The file of skipped rows, as NDJSON."),
]
BatchOption = Annotated[
    int | None,
    typer.Option(
        "--batch",
        min=1,
        help="Commit this many rows at a time; by default 2,000, and 20,000 of Parquet and Arrow.",
    ),
]
AtomicOption = Annotated[
    bool, typer.Option("--atomic", help="Import all rows in one transaction, or none.")
]
FromStartOption = Annotated[
    bool,
    typer.Option("--from-start", help="Begin again, instead of continuing an interrupted run."),
]
EncodingOption = Annotated[
    str | None,
    typer.Option("--encoding", help="The encoding of text, if it is not UTF-8: latin-1, …"),
]
DelimiterOption = Annotated[
    str, typer.Option("--delimiter", help="In CSV, what separates cells; \\t is a tab.")
]
NullOption = Annotated[
    str | None,
    typer.Option(
        "--null",
        metavar="TEXT",
        help="In CSV, the text of a cell that is a null, such as NA; backslashes are then ordinary "
        "characters.",
    ),
]
TimeZoneOption = Annotated[
    str | None,
    typer.Option(
        "--time-zone",
        metavar="ZONE",
        help="The zone of times that have none, such as Europe/Vienna.",
    ),
]
FollowOption = Annotated[
    bool,
    typer.Option("--follow", help="Keep copying what changes in a PostgreSQL database."),
]
SwitchOption = Annotated[
    str | None,
    typer.Option(
        "--switch",
        metavar="COMMAND",
        help="End following: lock the source, copy the rest, compare everything, and run COMMAND, "
        "which switches the application over, before the lock ends.",
    ),
]
EveryOption = Annotated[
    float, typer.Option("--every", min=0.05, help="Seconds between two passes of --follow.")
]


def import_command(
    source: SourceArgument,
    table: TableOption = None,
    only: OnlyOption = None,
    exclude: ExcludeOption = None,
    infer: InferOption = False,
    form: FormatOption = None,
    mapping: MapOption = None,
    mode: ModeOption = "append",
    on_error: OnErrorOption = "stop",
    skipped: SkippedOption = None,
    batch: BatchOption = None,
    atomic: AtomicOption = False,
    from_start: FromStartOption = False,
    encoding: EncodingOption = None,
    delimiter: DelimiterOption = ",",
    null: NullOption = None,
    time_zone: TimeZoneOption = None,
    follow: FollowOption = False,
    switch: SwitchOption = None,
    every: EveryOption = 1.0,
    engine: OnlyLocalOption = "local",
    database: DatabaseOption = None,
    migrations: MigrationsOption = None,
    tenant: TenantOption = None,
    as_json: JsonOption = False,
) -> None:
    """Import a file, another database, or a directory that `zapdb export` wrote.

    A column goes into the field of the same name, `US Gross` into `us_gross`. Rows are committed in
    batches. A wrong row ends the import, and nothing of its batch is written. Run the same command
    again: it continues after the last batch, as it does after a crash.

    A directory is a whole tenant: its migrations are applied to a database without records, the
    records are loaded, counts and digests are compared with those of the export, and everything is
    verified. After an interruption, run the same command again.

    A database is an address, such as `postgresql://user@host/name`, or a SQLite file. `--infer`
    writes a migration for its tables, or for a CSV, Parquet or Arrow file. When that is applied,
    the rows are copied, referenced tables first, and counts are compared. What is changed or left
    out is said, and is a comment in the file. Tables and fields that you delete from the file are
    not imported; `--only` and `--exclude` choose them beforehand, in both commands.

    `--follow` copies a PostgreSQL database, and then its changes, until interrupted; run the same
    command again, and it continues. Records that the source does not have are deleted. `--switch
    COMMAND` ends it: it locks the source's tables against writes, copies the remaining changes,
    compares everything, and runs the command.

    The import is a job, which `zapdb jobs` shows, pauses, throttles and cancels, unless it is one
    transaction (--atomic).

    The exit status is 3 if rows were skipped, or tables of a database were left out.

    With `--json`: `{table, source, read, written, skipped, resumed_after, seconds}`; for a database
    `{source, tables: [{source, table, rows, records, skipped}], tables_left_out: [NAME], not_here,
    is_complete}`; for a directory `{source, position, inserted, tables: {NAME: RECORDS}}`; with
    `--infer` `{path, source, tables, carried: {KIND: COUNT}, changed: [{subject, text}], left_out:
    [{subject, text}]}`; with `--switch` `{source, tables: [{table, rows, digest}], repaired}`.
    """
    refuse_spark("import", engine)
    if (on_error == "skip") != (skipped is not None):
        raise UsageError(
            "--on-error skip and --skipped FILE go together",
            hint="for example: --on-error skip --skipped skipped.ndjson",
        )
    if atomic and (batch is not None or from_start):
        raise UsageError(
            "--atomic imports all rows in one transaction",
            hint="leave out --batch and --from-start",
        )
    if follow and switch is not None:
        raise UsageError("--switch ends what --follow began", hint="leave out --follow")
    if as_json and follow:
        raise UsageError("--json reports at the end, and following has none", hint="leave it out")
    request = ImportRequest(
        source,
        form,
        table,
        tuple(only or ()),
        tuple(exclude or ()),
        infer,
        mapping=_read_mapping(mapping or ()),
        mode=mode,
        on_error=on_error,
        skipped=skipped,
        batch=batch,
        atomic=atomic,
        from_start=from_start,
        encoding=encoding,
        delimiter=delimiter,
        null=null,
        time_zone=None if time_zone is None else zone(time_zone),
        follow=follow,
        switch=switch,
        every=every,
        database=database,
        migrations=migrations,
        tenant=tenant,
    )
    status = _import(request, Output(as_json).beside(skipped))
    if status:
        raise typer.Exit(status)


def _import(request: ImportRequest, output: Output) -> int:
    _require_source(request)
    kind = find_kind(request)
    refuse_choice(kind, request)
    return (kind.infer if request.infer else kind.run)(request, output)


def _require_source(request: ImportRequest) -> None:
    if request.is_stdin or "://" in request.source:
        return
    if not Path(request.source).exists():
        raise UsageError(
            "there is no such file",
            source=request.source,
            hint="give the path of a file, or - for standard input",
        )


def _read_mapping(texts: list[str] | tuple[str, ...]) -> dict[str, str]:
    mapping = dict[str, str]()
    for text in texts:
        column, sign, field = text.rpartition("=")
        if not sign:
            raise UsageError("give a mapping as COLUMN=FIELD", got=text)
        if column in mapping:
            raise UsageError("a column was mapped twice", column=column)
        mapping[column] = field
    return mapping
