"""CSV: the first row names the columns; every other one has as many cells.

Unless a text is given that is a null, cells are as `zapdb data export` writes them: `\\N` is a
null, and a text that begins with a backslash has another one before it. An empty cell of a field
that may be null is a null, unless an empty text is a value of the field.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from zapdb.errors import InvalidValue, UsageError, ZapdbError
from zapdb.imports.coercion import make_coercer
from zapdb.imports.column_matching import match_columns
from zapdb.imports.given_file import GivenFile
from zapdb.imports.row import SourceRow
from zapdb.imports.text import require_utf8
from zapdb.imports.text_rows import Lines, TextMark, TextSource
from zapdb.records.cell_format import NULL
from zapdb.records.record_lines import split_csv
from zapdb.schema import Field
from zapdb.values import Binary, String

ReadCell = Callable[[str], Any]


def refuse_empty(name: str) -> UsageError:
    """The error for a file without a line of column names."""
    return UsageError(
        "the file is empty",
        source=name,
        hint="a CSV file begins with a line of column names, such as id,title; "
        "write it again where it comes from",
    )


class CsvSource(TextSource):
    """Rows of a CSV file."""

    newline = ""

    def _read(self, lines: Lines, mark: TextMark | None) -> Iterator[SourceRow]:
        delimiter = delimiter_of(self._given)
        rows = split_csv(lines, delimiter, self.name)
        number, header = next(rows, (1, None))
        if header is None:
            raise refuse_empty(self.name)
        columns = self._read_header(header)
        names = [column and column[0] for column in columns]
        readers = [column and column[1] for column in columns]
        if mark is not None:
            lines.go_to(mark)
            rows = split_csv(lines, delimiter, self.name, mark.line)
        for number, cells in rows:
            if len(cells) != len(columns):
                yield SourceRow(number, {}, cells, _ragged(header, cells))
            else:
                yield _read_row(number, names, readers, cells)

    def _read_header(self, header: list[str]) -> list[tuple[str, ReadCell] | None]:
        table, given = self._table, self._given
        try:
            for name in header:
                require_utf8(name, "the header")
            fields = match_columns(table, header, given.mapping, given.mode)
        except ZapdbError as error:
            _hint_at_delimiter(error, header, given)
            raise self.place(error, 1) from None
        return [None if f is None else (f.name, self._make_reader(f)) for f in fields]

    def _make_reader(self, field: Field) -> ReadCell:
        path = f"{self._table.name}.{field.name}"
        coerce = make_coercer(field, path, self._given.coercion(is_text=True))
        null = self._given.null
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


def delimiter_of(given: GivenFile) -> str:
    """The character between cells; raises `UsageError`."""
    if given.delimiter == "," and given.path.lower().endswith(".tsv"):
        return "\t"
    found = "\t" if given.delimiter == "\\t" else given.delimiter
    if len(found) != 1 or found in '"\r\n':
        raise UsageError(
            "a delimiter is one character",
            delimiter=given.delimiter,
            hint="for example ';' or '\\t'; it is no quote and no line end",
        )
    return found


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


def _hint_at_delimiter(error: ZapdbError, header: list[str], given: GivenFile) -> None:
    if len(header) == 1 and given.delimiter == ",":
        for mark, shown in ((";", ";"), ("\t", "\\t"), ("|", "|")):
            if mark in header[0]:
                error.hint = f"the columns seem to be separated otherwise: --delimiter '{shown}'"
