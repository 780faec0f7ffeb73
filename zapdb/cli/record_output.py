"""Records as commands write them: for people, and as lines of JSON, CSV or a Parquet file."""

from __future__ import annotations

import csv
import io
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final, Literal, TextIO

from zapdb.cli.output import Part
from zapdb.cli.progress_counter import ProgressCounter
from zapdb.errors import UsageError
from zapdb.printing import one_line, printable
from zapdb.records import Record, raw_value
from zapdb.records.cell_format import record_to_plain, to_cell
from zapdb.schema import Field, TableSchema
from zapdb.values import Blob, Decimal, Float, Integer

Form = Literal["csv", "ndjson", "parquet"]

_SHOWN_CHARS_MAX: Final = 60
"""Of one value in a table for people."""


FORMULAS: Final = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""How a cell begins that spreadsheets run, by OWASP's list: the last ones are the wide forms."""


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
        write = _csv_writer(table, stream, for_spreadsheets=for_spreadsheets)
    else:
        write = _json_writer(table, stream)
    for record in records:
        write(record)
        counter.add()


def _csv_writer(
    table: TableSchema, stream: TextIO, *, for_spreadsheets: bool
) -> Callable[[Record], object]:
    change = _defuse if for_spreadsheets else to_cell
    plain = csv.writer(stream, lineterminator="\n")
    # Before Python 3.13 a carriage return is not quoted by itself.
    quoted = csv.writer(stream, lineterminator="\n", quoting=csv.QUOTE_ALL)
    plain.writerow([field.name for field in table.fields])

    def write(record: Record) -> None:
        cells = [change(field, getattr(record, field.name)) for field in table.fields]
        (quoted if any("\r" in cell for cell in cells) else plain).writerow(cells)

    return write


def _defuse(field: Field, value: Any) -> str:
    """The text of a value; one that a spreadsheet would take for a formula gets a quote before it.

    Numbers stay as they are: a sign before digits is no formula.
    """
    text = to_cell(field, value)
    is_number = isinstance(field.type, Integer | Decimal | Float)
    return f"'{text}" if text.startswith(FORMULAS) and not is_number else text


def _json_writer(table: TableSchema, stream: TextIO) -> Callable[[Record], object]:
    encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
    return lambda record: stream.write(encode(record_to_plain(table, record)) + "\n")


def write_parquet(reader: Any, stream: IO[bytes], counter: ProgressCounter) -> None:
    """Batches of a `pyarrow.RecordBatchReader` as one Parquet file."""
    from pyarrow import parquet

    with parquet.ParquetWriter(stream, reader.schema) as file:
        for batch in reader:
            file.write_batch(batch)
            counter.add(batch.num_rows)


@contextmanager
def opened_output(path: Path | None, form: Form) -> Iterator[Any]:
    """Where a form is written: a file that takes its name once it is whole, or standard output."""
    if path is None:
        yield _standard_output(form)
        return
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        if form == "parquet":
            with partial.open("wb") as binary:
                yield binary
        else:
            with partial.open("w", encoding="utf-8", newline="") as text:
                yield text
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def _standard_output(form: Form) -> Any:
    if form != "parquet":
        if isinstance(sys.stdout, io.TextIOWrapper):  # what is read back is not for the locale
            sys.stdout.reconfigure(encoding="utf-8", errors="strict", newline="\n")
        return _Terminal() if sys.stdout.isatty() else sys.stdout
    if sys.stdout.isatty() or not hasattr(sys.stdout, "buffer"):
        raise UsageError(
            "Parquet cannot be written to a terminal", hint="add --output FILE, or use a pipe"
        )
    return sys.stdout.buffer


class _Terminal:
    """Standard output on a terminal: control characters in the data are written as escapes."""

    def write(self, text: str) -> int:
        return sys.stdout.write(printable(text))


def key_texts(table: TableSchema, record: Record) -> Sequence[str]:
    """The key of a record, as a command takes it."""
    return [to_cell(field, getattr(record, field.name)) for field in table.key_fields]
