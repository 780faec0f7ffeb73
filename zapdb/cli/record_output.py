"""Records as commands write them: for people, and as lines of JSON, CSV or a Parquet file."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final, TextIO

from zapdb.cli.output import Part
from zapdb.cli.progress_counter import ProgressCounter
from zapdb.errors import UsageError
from zapdb.export.manifest import Form
from zapdb.export.record_files import csv_writer, json_writer, write_batches
from zapdb.files import writing_file, writing_text
from zapdb.printing import one_line, printable
from zapdb.records import Record, raw_value
from zapdb.records.cell_format import to_cell
from zapdb.schema import Field, TableSchema
from zapdb.values import Blob

_SHOWN_CHARS_MAX: Final = 60
"""Of one value in a table for people."""


def format_cell(record: Record, field: Field, longest: int = _SHOWN_CHARS_MAX) -> Part:
    """A value for people: shortened, a large one unread."""
    value, _ = raw_value(record, field.name)
    if isinstance(value, Blob):
        return f"<{value.type.name} of {value.size:,} bytes>", "dim"
    if value is None and field.optional:
        return "null", "dim"
    return one_line(to_cell(field, value), longest)


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
