"""CSV: the first row names the columns; every other one has as many cells.

Without `--null`, cells are as `zapdb data export` writes them: `\\N` is a null, and a text that
begins with a backslash has another one before it. An empty cell of a field that may be null is a
null, unless an empty text is a value of the field.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TextIO

from zapdb.cli.output import Output
from zapdb.cli.sources.base import FileKind, ImportRequest, coercion_of
from zapdb.cli.sources.inferring import name_of_table, one_table, write_migration
from zapdb.cli.sources.text import opened_text, require_utf8
from zapdb.database.imports import RowSource, SourceRow, make_coercer, match_columns
from zapdb.errors import InvalidValue, UsageError, ZapdbError
from zapdb.inference.files import infer_csv
from zapdb.records.cell_format import NULL
from zapdb.records.record_lines import split_csv
from zapdb.schema import Field, TableSchema
from zapdb.values import Binary, String

ReadCell = Callable[[str], Any]


class CsvKind(FileKind):
    name = "csv"
    suffixes = (".csv", ".tsv", ".txt")

    def open(self, request: ImportRequest, target: TableSchema) -> RowSource:
        return CsvSource(request, target)

    def infer(self, request: ImportRequest, output: Output) -> int:
        name = name_of_table(request.source, request.table)
        with opened_text(request, newline="") as stream:
            rows = (cells for _, cells in split_csv(stream, delimiter_of(request), name))
            header = next(rows, None)
            if not header:
                raise UsageError("the file is empty", source=request.shown_source)
            table = infer_csv(name, header, rows, request.null)
        write_migration(one_table(request.shown_source, table), request.migrations, output)
        return 0


class CsvSource(RowSource):
    counts_lines = True

    def __init__(self, request: ImportRequest, target: TableSchema) -> None:
        self.name = request.shown_source
        self.identity = request.identity
        self._request = request
        self._table = target

    def rows(self, after: str = "") -> Iterator[SourceRow]:
        with opened_text(self._request, newline="") as stream:
            yield from self._read(stream)

    def _read(self, stream: TextIO) -> Iterator[SourceRow]:
        rows = split_csv(stream, delimiter_of(self._request), self.name)
        number, header = next(rows, (1, None))
        if header is None:
            raise UsageError("the file is empty", source=self.name)
        columns = self._read_header(header)
        names = [column and column[0] for column in columns]
        readers = [column and column[1] for column in columns]
        for number, cells in rows:
            if len(cells) != len(columns):
                yield SourceRow(number, {}, cells, _ragged(header, cells))
            else:
                yield _read_row(number, names, readers, cells)

    def _read_header(self, header: list[str]) -> list[tuple[str, ReadCell] | None]:
        table, request = self._table, self._request
        try:
            for name in header:
                require_utf8(name, "the header")
            fields = match_columns(table, header, request.mapping or {}, request.mode)
        except ZapdbError as error:
            _hint_at_delimiter(error, header, request)
            raise self.place(error, 1) from None
        return [None if f is None else (f.name, self._make_reader(f)) for f in fields]

    def _make_reader(self, field: Field) -> ReadCell:
        path = f"{self._table.name}.{field.name}"
        coerce = make_coercer(field, path, coercion_of(self._request, is_text=True))
        null = self._request.null
        may_be_empty = isinstance(field.type, String | Binary)
        empty_is_null = field.optional and not may_be_empty

        def read(cell: str) -> Any:
            if not cell and empty_is_null:
                return None
            require_utf8(cell, path)
            if null is not None:
                return coerce(None if cell == null else cell)
            if cell[:1] == "\\":
                if cell == NULL:
                    return coerce(None)
                if cell[:2] != "\\\\":
                    raise InvalidValue(
                        "a value begins with a single backslash",
                        field=path,
                        hint='--null "" takes backslashes as they are, and empty cells as nulls; '
                        "without it, write two for one, and \\N for null",
                    )
                cell = cell[1:]
            return coerce(cell)

        return read


def delimiter_of(request: ImportRequest) -> str:
    if request.delimiter == "," and request.source.lower().endswith(".tsv"):
        return "\t"
    given = "\t" if request.delimiter == "\\t" else request.delimiter
    if len(given) != 1 or given in '"\r\n':
        raise UsageError("a delimiter is one character", delimiter=request.delimiter)
    return given


def _read_row(
    number: int,
    names: Sequence[str | None],
    readers: Sequence[ReadCell | None],
    cells: list[str],
) -> SourceRow:
    values = {}
    try:
        for name, read, cell in zip(names, readers, cells, strict=True):
            if read is not None and name is not None:
                values[name] = read(cell)
    except ZapdbError as error:
        return SourceRow(number, {}, cells, error)
    return SourceRow(number, values, cells)


def _ragged(header: list[str], cells: list[str]) -> InvalidValue:
    hint = "a cell that contains the delimiter must be quoted"
    if len(cells) < len(header):
        hint = f"the row has no cell for {header[len(cells)]!r}"
    return InvalidValue(
        "a row has another number of cells than the header",
        columns=len(header),
        cells=len(cells),
        hint=hint,
    )


def _hint_at_delimiter(error: ZapdbError, header: list[str], request: ImportRequest) -> None:
    if len(header) == 1 and request.delimiter == ",":
        for mark, shown in ((";", ";"), ("\t", "\\t"), ("|", "|")):
            if mark in header[0]:
                error.hint = f"the columns seem to be separated otherwise: --delimiter '{shown}'"
