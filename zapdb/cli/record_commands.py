"""Records and keys as commands take them, and as they write them."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, Final, TextIO

from zapdb.cli.output import Output, Part, print_note
from zapdb.cli.progress_counter import ProgressCounter
from zapdb.control.records import FieldShape, RecordShape, show_cell
from zapdb.database import Query
from zapdb.errors import UsageError
from zapdb.files import writing_file, writing_text
from zapdb.printing import one_line, printable
from zapdb.records import Record
from zapdb.records.cell_format import from_text, to_cell
from zapdb.records.record_lines import find_input_field
from zapdb.schema import TableSchema
from zapdb.tables.queries.conditions import read_condition
from zapdb.tables.table_reading import ReadableTable
from zapdb.transfer.export.manifest import Form
from zapdb.transfer.export.record_files import csv_writer, json_writer, write_batches

_SHOWN_CHARS_MAX: Final = 60
"""Of one value in a table for people."""


def format_cell(
    shape: RecordShape, record: Mapping[str, Any], one: FieldShape, longest: int = _SHOWN_CHARS_MAX
) -> Part:
    """A value for people: shortened, a large one unread."""
    size = shape.large.get(one.name)
    if size is not None:
        return f"<{one.type} of {size:,} bytes>", "dim"
    plain = record[one.name]
    if plain is None and one.optional:
        return "null", "dim"
    return one_line(show_cell(one, plain), longest)


def write_lines(
    table: TableSchema,
    records: Iterable[Record],
    form: Form,
    stream: TextIO,
    counter: ProgressCounter,
    *,
    for_spreadsheets: bool = False,
) -> None:
    """Records as CSV with a line of names, or as a JSON object a line."""
    if form == "csv":
        write = csv_writer(table, stream, for_spreadsheets=for_spreadsheets)
    else:
        write = json_writer(table, stream)
    for record in records:
        write(record)
        counter.add()


def write_parquet(reader: Any, stream: IO[bytes], counter: ProgressCounter) -> None:
    """Batches of a `pyarrow.RecordBatchReader` as one Parquet file."""
    write_batches(reader.schema, reader, stream, lambda count, _: counter.add(count))


@contextmanager
def opened_output(path: Path | None, form: Form, mode: int) -> Iterator[Any]:
    """Where a form is written: a file that takes its name once it is whole, a pipe or a device that
    is written into, or standard output. A new file has the mode."""
    if path is None:
        yield _standard_output(form)
    elif form == "parquet":
        with writing_file(path, mode) as binary:
            yield binary
    else:
        with writing_text(path, mode) as text:
            yield _Terminal(text) if text.isatty() else text


def _standard_output(form: Form) -> Any:
    if form != "parquet":
        if isinstance(sys.stdout, io.TextIOWrapper):  # what is read back is not for the locale
            sys.stdout.reconfigure(encoding="utf-8", errors="strict", newline="\n")
        return _Terminal(sys.stdout) if sys.stdout.isatty() else sys.stdout
    if sys.stdout.isatty() or not hasattr(sys.stdout, "buffer"):
        raise UsageError(
            "Parquet cannot be written to a terminal", hint="add --output FILE, or use a pipe"
        )
    return sys.stdout.buffer


class _Terminal:
    """A terminal: control characters in the data are written as escapes."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return self._stream.write(printable(text))


def key_texts(table: TableSchema, record: Record) -> Sequence[str]:
    """The key of a record, as a command takes it."""
    return [to_cell(field, getattr(record, field.name)) for field in table.key_fields]


def make_query(table: ReadableTable, schema: TableSchema, where: str | None) -> Query:
    return table.where() if where is None else table.where(read_condition(table, schema, where))


def write_page(
    shape: RecordShape,
    records: Sequence[tuple[Mapping[str, Any], Mapping[str, int]]],
    cursor: str | None,
    output: Output,
) -> None:
    """Records without their large values, and the sizes of these."""
    numbers = [one.name for one in shape.fields if one.type in ("integer", "decimal", "float")]
    rows = [
        [format_cell(replace(shape, large=large), record, one) for one in shape.fields]
        for record, large in records
    ]
    output.table([one.name for one in shape.fields], rows, right=numbers, empty="(no records)")
    if cursor is not None:
        print_note(f"more: --cursor {cursor}")


def write_record(shape: RecordShape, record: Mapping[str, Any], output: Output) -> None:
    width = max(len(one.name) for one in shape.fields)
    for one in shape.fields:
        output.write((f"{one.name:<{width}}  ", "bold"), format_cell(shape, record, one, 1_000))


def read_assignments(table: TableSchema, texts: Sequence[str]) -> dict[str, Any]:
    """The values of `name=value` arguments."""
    values = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign:
            raise UsageError(
                "give a field as name=value",
                got=text,
                hint="for example title=Bread; files are read by `zapdb import`",
            )
        if name in values:
            raise UsageError("a field was given twice", field=f"{table.name}.{name}")
        values[name] = from_text(table, find_input_field(table, name), value)
    return values
