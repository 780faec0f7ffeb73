"""Records in lines of JSON or CSV, as exports write them and commands take them.

Lines may be untrusted text, so each has to fit in memory.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import get_close_matches
from typing import Any, Final, Literal, TextIO

from zapdb.errors import InvalidValue, UnknownField, UsageError, ZapdbError
from zapdb.limits import TEXT_ROW_CHARS_MAX
from zapdb.records.cell_format import from_plain, make_cell_reader, parse_json_cell
from zapdb.schema import Field, TableSchema


class BoundedLines:
    """The lines of a stream, with their ends; `count` were given so far. Raises `UsageError` for a
    line that is too long, before more of it is read."""

    def __init__(self, stream: TextIO, name: str) -> None:
        self.count = 0
        self._stream, self._name = stream, name

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self._stream.readline(TEXT_ROW_CHARS_MAX + 1)  # iterating loses the stream's place
        if not line:
            raise StopIteration
        self.count += 1
        if len(line) > TEXT_ROW_CHARS_MAX:
            raise too_long(self._name, self.count)
        return line


class RowLines:
    """Lines of which some make a row; raises `UsageError` if those of one are too long together."""

    def __init__(self, lines: Iterable[str], name: str, first: int) -> None:
        self._lines, self._name = iter(lines), name
        self._chars, self._row = 0, first

    def begin_row(self, number: int) -> None:
        self._chars, self._row = 0, number

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = next(self._lines)
        self._chars += len(line)
        if self._chars > TEXT_ROW_CHARS_MAX:
            raise too_long(self._name, self._row)
        return line


def too_long(name: str, line: int) -> UsageError:
    return UsageError(
        "a row of the text is too long",
        source=name,
        line=line,
        limit=f"{TEXT_ROW_CHARS_MAX:,} characters",
        hint="see that the format is the right one, and that no line end or quote is missing; "
        "larger values can be imported from Parquet, or written by the program's own code",
    )


Lines = Literal["ndjson", "csv"]

CELL_LENGTH_MAX: Final = 2**31 - 1
"""Python's CSV reader refuses cells longer than 128 KiB by default."""

Given = tuple[int, dict[str, Any]]
"""A record, after the number of the line that it begins at, from 1."""


def find_input_field(table: TableSchema, name: str) -> Field:
    """Raises `UnknownField`, which names the closest one."""
    found = table.field_named(name)
    if found is not None:
        return found
    names = [field.name for field in table.fields]
    closest = get_close_matches(name, names, n=1)
    raise UnknownField(
        "there is no such field",
        table=table.name,
        field=name,
        fields=", ".join(names),
        hint=f"did you mean {closest[0]!r}?" if closest else "",
    )


def read_lines(table: TableSchema, stream: TextIO, form: Lines) -> Iterator[Given]:
    """The records of a stream; errors name the line."""
    if isinstance(stream, io.TextIOWrapper):  # lines end where CSV and JSON say, and not elsewhere
        stream.reconfigure(encoding="utf-8", errors="strict", newline="" if form == "csv" else "\n")
    try:
        yield from _read_csv(table, stream) if form == "csv" else _read_json(table, stream)
    except UnicodeDecodeError as error:
        raise UsageError("the input is not UTF-8", problem=str(error)) from None


def _read_json(table: TableSchema, stream: TextIO) -> Iterator[Given]:
    number, known = 0, dict[str, Field]()
    try:
        for number, line in enumerate(BoundedLines(stream, _name_of(stream, table)), 1):
            if not line.strip():
                continue
            plain = parse_json_cell(line, table.name, "a JSON object of fields")
            if not isinstance(plain, dict):
                raise InvalidValue.of(table.name, "a JSON object of fields", plain)
            for name in plain:
                if name not in known:
                    known[name] = find_input_field(table, name)
            yield number, {n: from_plain(table, known[n], v) for n, v in plain.items()}
    except ZapdbError as error:
        name_line(error, number)
        raise


def _read_csv(table: TableSchema, stream: TextIO) -> Iterator[Given]:
    name = _name_of(stream, table)
    rows = split_csv(BoundedLines(stream, name), ",", name)
    number, header = next(rows, (1, None))
    if header is None:
        return
    try:
        columns = _read_header(table, header)
        for number, row in rows:
            if len(row) != len(header):
                raise UsageError(
                    "a row has other columns than the header", columns=len(header), cells=len(row)
                )
            cells = zip(columns, row, strict=True)
            yield number, {name: read(cell) for (name, read), cell in cells}
    except ZapdbError as error:
        error.context.setdefault("line", number)
        raise


def _name_of(stream: TextIO, table: TableSchema) -> str:
    return str(getattr(stream, "name", table.name))


def split_csv(
    lines: Iterable[str], delimiter: str, name: str, first: int = 1
) -> Iterator[tuple[int, list[str]]]:
    """The rows of a CSV file, each with the line that it begins at; a blank line is no row.

    `lines` have their ends, whatever these are; `first` is the number of the first one. No line is
    asked for before it is needed.

    Raises `UsageError` where it is no CSV: where the next row begins is not known then; and for a
    row that is too long.
    """
    csv.field_size_limit(CELL_LENGTH_MAX)
    bounded = RowLines(lines, name, first)
    reader = csv.reader(bounded, strict=True, delimiter=delimiter)
    number = first
    while True:
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise UsageError(
                "the file is not CSV from here on",
                source=name,
                line=number,
                problem=str(error),
                hint="a cell that begins with a quote ends with one, and a quote inside it is "
                "written twice",
            ) from None
        if cells is None:
            return
        if cells:
            yield number, cells
        number = first + reader.line_num
        bounded.begin_row(number)


def _read_header(table: TableSchema, row: Sequence[str]) -> list[tuple[str, Callable[[str], Any]]]:
    """The fields that the columns are, with what reads their cells."""
    fields = [find_input_field(table, name) for name in row]
    if len({field.name for field in fields}) < len(fields):
        raise UsageError("a column occurs twice", columns=", ".join(row))
    return [(field.name, make_cell_reader(table, field)) for field in fields]


def name_line(error: ZapdbError, number: int) -> None:
    """Say in an error at which line of the input it arose."""
    error.context["line"] = number
