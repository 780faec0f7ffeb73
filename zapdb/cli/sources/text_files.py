"""CSV and JSON files."""

from __future__ import annotations

from zapdb.cli.output import Output
from zapdb.cli.sources.base import FileKind, ImportRequest
from zapdb.cli.sources.inferring import name_of_table, one_table, write_migration
from zapdb.database.imports.csv_rows import delimiter_of, refuse_empty
from zapdb.database.imports.text import opened_text
from zapdb.inference.files import infer_csv
from zapdb.records.bounded_lines import BoundedLines
from zapdb.records.record_lines import split_csv


class CsvKind(FileKind):
    name = "csv"

    def infer(self, request: ImportRequest, output: Output) -> int:
        name, given = name_of_table(request.source, request.table), request.file
        with opened_text(given, newline="") as stream:
            rows = (
                cells
                for _, cells in split_csv(BoundedLines(stream, name), delimiter_of(given), name)
            )
            header = next(rows, None)
            if not header:
                raise refuse_empty(given.shown)
            table = infer_csv(name, header, rows, given.null)
        write_migration(one_table(given.shown, table), request.migrations, output)
        return 0


class NdjsonKind(FileKind):
    """A JSON object on each line."""

    name = "ndjson"


class JsonKind(FileKind):
    """One array of JSON objects."""

    name = "json"
