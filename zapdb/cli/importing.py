"""`zapdb import`: records from files and from other databases."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from zapdb.cli.output import Output
from zapdb.cli.sources.databases import import_tables, infer_from_database
from zapdb.cli.sources.exports import import_export
from zapdb.cli.sources.file_source import import_file, infer_from_arrow, infer_from_csv
from zapdb.cli.sources.request import ImportRequest
from zapdb.errors import UsageError
from zapdb.imports.file_formats import FILE_FORMATS, FileFormat
from zapdb.transfer.inference.source_database import is_sqlite_file

Job = Callable[[ImportRequest, Output], int]
"""Does what is asked for, and returns the exit status."""


@dataclass(frozen=True, slots=True)
class SourceKind:
    """A kind of source: which sources are of it, and what is done with one."""

    takes: Callable[[ImportRequest], bool]
    run: Job
    infer: Job | None = None


def _takes_file(form: FileFormat, request: ImportRequest) -> bool:
    return form.takes(request.source, is_stdin=request.is_stdin)


_INFERRED: Final[dict[str, Job]] = {
    "csv": infer_from_csv,
    "parquet": infer_from_arrow,
    "arrow": infer_from_arrow,
}
KINDS: Final[dict[str, SourceKind]] = {
    "export": SourceKind(
        lambda request: "://" not in request.source and Path(request.source).is_dir(), import_export
    ),
    "database": SourceKind(
        lambda request: "://" in request.source or is_sqlite_file(request.source),
        import_tables,
        infer_from_database,
    ),
    **{
        name: SourceKind(
            partial(_takes_file, form), partial(import_file, form), _INFERRED.get(name)
        )
        for name, form in FILE_FORMATS.items()
    },
}
"""By what `--format` calls them; the first one that takes a source is its kind."""


def import_command(request: ImportRequest, output: Output) -> int:
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
    request.require_valid(as_json=output.as_json)
    output = output.beside(request.skipped)
    name = _find_kind(request)
    if name != "database" and (request.only or request.exclude):
        raise UsageError(
            "--only and --exclude choose tables of a database",
            source=request.shown_source,
            hint='leave a column of a file out with --map "COLUMN="',
        )
    kind = KINDS[name]
    if not request.infer:
        return kind.run(request, output)
    if kind.infer is None:
        raise UsageError(
            "no migration can be inferred from this kind of source",
            source=request.shown_source,
            format=name,
            hint="write it by hand: zapdb migrate new",
        )
    return kind.infer(request, output)


def _find_kind(request: ImportRequest) -> str:
    """The name of a source's kind: the one that is given, or the first that takes it."""
    if request.format is not None:
        if request.format in KINDS:
            return request.format
        raise UsageError(
            "there is no such format",
            format=request.format,
            hint=f"available: {', '.join(KINDS)}",
        )
    for name, kind in KINDS.items():
        if kind.takes(request):
            return name
    raise UsageError(
        "the format of the source is not known",
        source=request.shown_source,
        hint=f"say it with --format: {', '.join(KINDS)}",
    )
