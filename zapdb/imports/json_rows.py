"""JSON: objects of fields, one on each line or all in one array.

A number may stand for a decimal: it is read with the digits that it is written with. Names that are
no fields of the table are errors of their row.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, TextIO

from zapdb.errors import InvalidValue, UnknownField, UsageError, ZapdbError
from zapdb.imports.coercion import Coerce, make_coercer
from zapdb.imports.column_matching import field_of_column
from zapdb.imports.given_file import GivenFile
from zapdb.imports.row import RowSource, SourceRow
from zapdb.imports.text import opened_text, require_utf8
from zapdb.imports.text_rows import Lines, TextMark, TextSource
from zapdb.limits import TEXT_ROW_CHARS_MAX
from zapdb.printing import one_line
from zapdb.records.cell_format import REFUSED_CHARS_MAX, parse_json_cell
from zapdb.records.record_lines import too_long
from zapdb.schema import TableSchema

CHUNK_CHARS: Final = 1 << 16


class _JsonObjects:
    """Texts of objects as rows of a table."""

    def __init__(self, given: GivenFile, target: TableSchema) -> None:
        self._given = given
        self._table = target
        self._known = dict[str, tuple[str, Coerce] | None]()

    def row(self, number: int, text: str) -> SourceRow:
        try:
            require_utf8(text, self._table.name)
            return SourceRow(number, self._read(text), text)
        except ZapdbError as error:
            return SourceRow(number, {}, text, error)

    def _read(self, text: str) -> dict[str, Any]:
        plain = parse_json_cell(text, self._table.name, "a JSON object of fields")
        if not isinstance(plain, Mapping):
            raise InvalidValue(
                "a row is not a JSON object",
                table=self._table.name,
                expected='an object of fields, such as {"id": 1}',
                value=one_line(text, REFUSED_CHARS_MAX),
            )
        values: dict[str, Any] = {}
        for column, value in plain.items():
            if column not in self._known:
                self._known[column] = self._find(column)
            found = self._known[column]
            if found is None:
                continue
            if found[0] in values:
                raise InvalidValue(
                    "two names are the same field", field=f"{self._table.name}.{found[0]}"
                )
            values[found[0]] = found[1](value)
        return values

    def _find(self, column: str) -> tuple[str, Coerce] | None:
        mapping = self._given.mapping
        field = field_of_column(self._table, column, mapping)
        if field is not None:
            path = f"{self._table.name}.{field.name}"
            return field.name, make_coercer(field, path, self._given.coercion())
        if column in mapping:
            return None
        error = UnknownField.named(self._table.name, column, [f.name for f in self._table.fields])
        leave = f'--map "{column}=FIELD" names its field, --map "{column}=" leaves it out'
        error.hint = "; ".join(filter(None, (error.hint, leave)))
        raise error


class NdjsonSource(TextSource):
    """A JSON object on each line."""

    newline = "\n"

    def _read(self, lines: Lines, mark: TextMark | None) -> Iterator[SourceRow]:
        if mark is not None:
            lines.go_to(mark)
        objects = _JsonObjects(self._given, self._table)
        for line in lines:
            if line.strip():
                yield objects.row(lines.count, line.rstrip("\r\n"))


class JsonSource(RowSource):
    """One array of JSON objects, which is read from its beginning by each run."""

    counts_lines = True

    def __init__(self, given: GivenFile, target: TableSchema) -> None:
        self.name = given.shown
        self.identity = given.identity
        self._given = given
        self._table = target

    def rows(self, after: str = "") -> Iterator[SourceRow]:
        objects = _JsonObjects(self._given, self._table)
        with opened_text(self._given, newline="\n") as stream:
            for number, text in split_array(stream, self.name):
                yield objects.row(number, text)


def split_array(stream: TextIO, name: str) -> Iterator[tuple[int, str]]:
    """The elements of an array as they are written, of which one at a time is in memory."""
    text = _Text(stream, name)
    if text.next_char() != "[":
        raise text.refuse("the file is no JSON array", "is it one object a line? --format ndjson")
    text.take(1)
    if text.next_char() == "]":
        text.take(1)
    else:
        while True:
            line = text.line
            yield line, text.take_element()
            mark = text.next_char()
            text.take(1)
            if mark == "]":
                break
            if mark != ",":
                raise text.refuse("a comma or the end of the array is missing", "correct the file")
    if text.next_char():
        raise text.refuse("there is more after the array", "correct the file")


class _Text:
    """The characters of a stream that are not taken yet, and the line where they begin."""

    def __init__(self, stream: TextIO, name: str) -> None:
        self.line = 1
        self._stream = stream
        self._name = name
        self._held = ""
        self._at = 0
        self._decoder = json.JSONDecoder()

    def next_char(self) -> str:
        """The next character that is no blank, which is not taken; empty at the end."""
        while True:
            while self._at < len(self._held):
                char = self._held[self._at]
                if char not in " \t\r\n":
                    return char
                self.take(1)
            if not self._fill():
                return ""

    def take(self, count: int) -> str:
        taken = self._held[self._at : self._at + count]
        self.line += taken.count("\n")
        self._at += count
        return taken

    def take_element(self) -> str:
        self.next_char()
        while True:
            try:
                _, end = self._decoder.raw_decode(self._held, self._at)
                # A number may go on in the next chunk.
                if end < len(self._held) or not self._fill():
                    return self.take(end - self._at)
            except (ValueError, RecursionError) as error:
                if len(self._held) - self._at > TEXT_ROW_CHARS_MAX:
                    raise too_long(self._name, self.line) from None
                if not self._fill():
                    raise self.refuse(
                        "this is not JSON",
                        "correct the file; if it has an object on each line: --format ndjson",
                        problem=str(error),
                    ) from None

    def _fill(self) -> bool:
        """Read on, twice as much as is held: an element is parsed few times, however long."""
        self._held = self._held[self._at :]
        self._at = 0
        more = self._stream.read(max(CHUNK_CHARS, len(self._held)))
        self._held += more
        return bool(more)

    def refuse(self, message: str, hint: str, **context: Any) -> UsageError:
        return UsageError(message, source=self._name, line=self.line, **context, hint=hint)
