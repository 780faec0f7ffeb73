"""Records as files: lines of CSV or JSON, or Parquet."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import IO, Any, Final, TextIO

from zapdb.errors import MissingExtra
from zapdb.records import Record
from zapdb.records.cell_format import record_to_plain, to_cell
from zapdb.schema import Field, TableSchema
from zapdb.transfer.export.manifest import Form
from zapdb.values import Decimal, Float, Integer

WriteRecord = Callable[[Record], int]
"""Writes a record, and returns how many characters it has."""
NoteWritten = Callable[[int, int], object]
"""Is called with how many more records are written, and about how many bytes these have."""

FORMULAS: Final = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""How a cell begins that spreadsheets run, by OWASP's list: the last ones are the wide forms."""

TEXT_HINT: Final = "or write text, which needs no package: --format csv or ndjson"
ROW_GROUP_RECORDS: Final = 65_536
ROW_GROUP_SIZE_BYTES: Final = 16 * 1024 * 1024
"""A row group of a Parquet file ends with the batch that reaches either."""


def require_form(form: Form, hint: str = "") -> None:
    """Raise `MissingExtra` if the packages that a format needs are not installed."""
    if form != "parquet":
        return
    try:
        import_module("zapdb.transfer.export.parquet_tables")
    except MissingExtra as missing:
        missing.hint = "; ".join(filter(None, (missing.hint, hint)))
        raise


def csv_writer(
    table: TableSchema, stream: TextIO, *, for_spreadsheets: bool = False
) -> WriteRecord:
    """Writes the line of names, and returns what writes a record as a line."""
    change = _defuse if for_spreadsheets else to_cell
    plain = csv.writer(stream, lineterminator="\n")
    # Before Python 3.13 a carriage return is not quoted by itself.
    quoted = csv.writer(stream, lineterminator="\n", quoting=csv.QUOTE_ALL)
    plain.writerow([field.name for field in table.fields])

    def write(record: Record) -> int:
        cells = [change(field, getattr(record, field.name)) for field in table.fields]
        return int((quoted if any("\r" in cell for cell in cells) else plain).writerow(cells) or 0)

    return write


def _defuse(field: Field, value: Any) -> str:
    """The text of a value; one that a spreadsheet would take for a formula gets a quote before it.

    Numbers stay as they are: a sign before digits is no formula.
    """
    text = to_cell(field, value)
    is_number = isinstance(field.type, Integer | Decimal | Float)
    return f"'{text}" if text.startswith(FORMULAS) and not is_number else text


def json_writer(table: TableSchema, stream: TextIO) -> WriteRecord:
    """Returns what writes a record as a JSON object on a line."""
    encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
    return lambda record: stream.write(encode(record_to_plain(table, record)) + "\n")


def write_batches(
    schema: Any, batches: Iterable[Any], stream: IO[bytes], note: NoteWritten
) -> None:
    """Arrow batches as one Parquet file; holds one row group."""
    import pyarrow
    from pyarrow import parquet

    with parquet.ParquetWriter(stream, schema) as file:
        held, records, size = list[Any](), 0, 0
        for batch in batches:
            held.append(batch)
            records += batch.num_rows
            size += batch.nbytes
            note(batch.num_rows, batch.nbytes)
            if records >= ROW_GROUP_RECORDS or size >= ROW_GROUP_SIZE_BYTES:
                file.write_table(pyarrow.Table.from_batches(held, schema), ROW_GROUP_RECORDS)
                held, records, size = [], 0, 0
        if held:
            file.write_table(pyarrow.Table.from_batches(held, schema), ROW_GROUP_RECORDS)
