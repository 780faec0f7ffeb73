"""Batches of records: decoded from rows as they are stored, and encoded to such rows."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow

from zapdb.errors import InvalidValue, UsageError
from zapdb.limits import ARROW_BATCH_SIZE_BYTES, PAGE_RECORDS_MAX
from zapdb.records.arrow.columns import Column, make_column
from zapdb.records.arrow.decoder import ArrowDecoder, RecordConverter, arrow_decoder
from zapdb.records.arrow.encoder import GivenColumn, column_encoder
from zapdb.records.arrow.whole_columns import PackedRows, StoredRow
from zapdb.records.attachments import Attachments, MakeAttachments
from zapdb.records.codec import bind_zones, check_names, codec_for
from zapdb.records.layout import decode_prefix
from zapdb.schema import Field, TableSchema
from zapdb.values import Zones


def arrow_schema(
    table: TableSchema, fields: Collection[str] | None = None, as_text: Collection[str] = ()
) -> Any:
    """The `pyarrow.Schema` of a table: one column per field, in declared order."""
    return arrow_decoder(table, fields, as_text).schema


@dataclass(frozen=True, slots=True)
class _NoConversion:
    """Takes records for what they should be: of the current layout, whatever their prefix."""

    prefix: bytes

    def convert(self, key: bytes, value: bytes, attachments: Attachments) -> bytes:
        return value


def decode_batches(
    decoder: ArrowDecoder,
    rows: Iterable[StoredRow],
    make_attachments: MakeAttachments,
    reader: RecordConverter | None = None,
    *,
    batch_records: int = PAGE_RECORDS_MAX,
) -> Iterator[Any]:
    """Yield `pyarrow.RecordBatch`es of at most `batch_records` records; raise `CorruptRecord`,
    `BlobMissing`.

    The records have the layout of the decoder's table, or, with a reader, whatever revision that
    converts. Large values are loaded through what `make_attachments` makes. A number beyond 64
    bits, or beyond 38 digits for a decimal, raises `InvalidValue`, unless the decoder makes strings
    of its field's.
    """
    stream = iter(rows)
    if reader is None:
        first = next(stream, None)
        if first is None:
            return
        reader = _NoConversion(first[1][: decode_prefix(first[1], 0)[1]])
        stream = itertools.chain([first], stream)
    held = list[StoredRow]()
    while _hold(held, stream, batch_records):
        batch, count = _decode_held(decoder, held, make_attachments, reader)
        yield batch
        del held[:count]


def decode_page(
    decoder: ArrowDecoder,
    page: PackedRows,
    make_attachments: MakeAttachments,
    reader: RecordConverter | None = None,
) -> Iterator[Any]:
    """Yield the rows of a page that is not empty as `pyarrow.RecordBatch`es, as `decode_batches`
    does: one batch, unless it holds blobs."""
    if reader is None:
        first = page.first_value
        reader = _NoConversion(first[: decode_prefix(first, 0)[1]])
    batch = decoder.decode_page(page, make_attachments, reader)
    if batch is not None:
        yield batch
        return
    rows = list(page.rows())
    while rows:
        batch, count = decoder.decode_rows(rows, make_attachments, reader)
        yield batch
        del rows[:count]


def _hold(held: list[StoredRow], stream: Iterator[StoredRow], count: int) -> int:
    """Take rows of a stream until `count` are held, or as many as fit into a batch; returns how
    many are held."""
    room = ARROW_BATCH_SIZE_BYTES - sum(len(value) for _, value in held)
    if room >= 0:
        for row in itertools.islice(stream, count - len(held)):
            held.append(row)
            room -= len(row[1])
            if room < 0:
                break
    return len(held)


def _decode_held(
    decoder: ArrowDecoder,
    held: list[StoredRow],
    make_attachments: MakeAttachments,
    reader: RecordConverter,
) -> tuple[Any, int]:
    try:
        page = PackedRows.of(held)
    except TypeError:  # what is stored is not bytes: the other way says so
        batch = None
    else:
        batch = decoder.decode_page(page, make_attachments, reader)
    if batch is None:
        return decoder.decode_rows(held, make_attachments, reader)
    return batch, len(held)


def decode_batch(
    decoder: ArrowDecoder,
    rows: Iterable[StoredRow],
    make_attachments: MakeAttachments,
    reader: RecordConverter | None = None,
) -> Any:
    """All rows as one batch; raises `UsageError` for more than fits into one."""
    rows = list(rows)
    batches = decode_batches(decoder, rows, make_attachments, reader, batch_records=len(rows) or 1)
    batch = next(batches, None)
    if batch is None:
        return pyarrow.RecordBatch.from_pylist([], decoder.schema)
    if batch.num_rows < len(rows):
        raise UsageError(
            "the records are too large for one batch",
            size_bytes_max=ARROW_BATCH_SIZE_BYTES,
            hint="use decode_batches",
        )
    return batch


def to_reader(schema: Any, batches: Iterator[Any]) -> Any:
    """A `pyarrow.RecordBatchReader`, which asks for one batch after the other."""
    return pyarrow.RecordBatchReader.from_batches(schema, batches)


# --- encoding ------------------------------------------------------------------------------------


def encode_batch(
    table: TableSchema,
    batch: Any,
    prefix: bytes,
    attachments: Attachments,
    zones: Zones | None = None,
) -> list[StoredRow]:
    """Keys and records of a `pyarrow.RecordBatch`; large values are added to `attachments`.

    Columns are found by name and may have other types that hold the same values (`large_string`,
    a dictionary, a timestamp in another unit or zone); a column that is missing is a field left
    out. Every value is checked: `InvalidValue` names the field, and the row, which count from 0.
    """
    encoder = column_encoder(table, zones)
    try:
        given = _given_columns(table, batch, zones)
        keys = encoder.encode_keys(given, batch.num_rows, attachments)
        records = encoder.encode_records(prefix, given, batch.num_rows, attachments)
    except InvalidValue:  # which row it is, is found row by row
        return list(_encode_rows(table, batch, prefix, attachments, zones))
    return list(zip(keys.to_pylist(), records.to_pylist(), strict=True))


def _encode_rows(
    table: TableSchema, batch: Any, prefix: bytes, attachments: Attachments, zones: Zones | None
) -> Iterator[StoredRow]:
    codec = codec_for(table, zones)
    for row, record in enumerate(read_values(table, batch, zones)):
        try:
            yield codec.encode_key(record), codec.encode(prefix, record, attachments)
        except InvalidValue as error:
            error.context["row"] = row
            raise


def read_values(
    table: TableSchema, batch: Any, zones: Zones | None = None
) -> Iterator[dict[str, Any]]:
    """The values of a `pyarrow.RecordBatch` by field, a dict for each row; types are checked as for
    `encode_batch`, and what a type allows is checked when the values are encoded."""
    given = _given_columns(table, batch, zones)
    values = [column.read() for column in given.values()]
    for row in zip(*values, strict=True):
        yield dict(zip(given, row, strict=True))


def _given_columns(table: TableSchema, batch: Any, zones: Zones | None) -> dict[str, GivenColumn]:
    """The columns by field, in declared order."""
    names = tuple(batch.schema.names)
    check_names(table.name, frozenset(f.name for f in table.fields), dict.fromkeys(names))
    if len(set(names)) < len(names):
        raise InvalidValue("a column occurs twice", table=table.name, columns=", ".join(names))
    columns = {}
    for f in bind_zones(table, zones).fields:
        if f.name in names:
            column = make_column(f.type, f"{table.name}.{f.name}", int)
            array = batch.column(f.name)
            columns[f.name] = GivenColumn(array, partial(_to_values, f, column, array))
    return columns


def _to_values(f: Field, column: Column, array: Any) -> list[Any]:
    def convert(part: Any) -> list[Any]:
        if part.null_count and not f.optional:
            raise column.refuse("null")
        return column.to_values(part)

    try:
        return convert(array)
    except InvalidValue:
        for row in range(len(array)):
            try:
                convert(array.slice(row, 1))
            except InvalidValue as error:
                error.context["row"] = row
                raise error from None
        raise
