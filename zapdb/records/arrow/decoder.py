"""Decoders: for some fields of one table schema, made once and cached.

They read whole columns where they can (see `whole_columns`). Where they can't, for blobs and rare
forms, a generated function reads row by row: each record once, by the source of the table's columns
(see `columns`), appending the values to one list per column, without record objects. It makes all
the checks of decoding: a record that fails one is passed to the ordinary decoder, which raises the
error.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow

from zapdb.errors import CorruptRecord, InvalidValue, UnknownField, UsageError
from zapdb.limits import ARROW_BATCH_SIZE_BYTES, RECORD_KEY_SIZE_BYTES_MAX
from zapdb.records.arrow.columns import Column, Lists, NumberTooLarge, make_column
from zapdb.records.arrow.positions import NeedsRows
from zapdb.records.arrow.whole_columns import ColumnPlan, PackedRows, StoredRow
from zapdb.records.attachments import Attachments, MakeAttachments, ReadConflict
from zapdb.records.codec import (
    Decode,
    bind_zones,
    codec_for,
    compiled_with,
    decoder_of,
    presence_source,
)
from zapdb.records.layout import NO_REVISION, Layout, decode_prefix, encode_prefix
from zapdb.records.unreadable import name_record
from zapdb.schema import Field, TableSchema, canonical_bytes
from zapdb.values import Zones
from zapdb.values.generated_source import Namespace, compile_function, indent


class RecordConverter(Protocol):
    """What a `RecordReader` does to records of other revisions; its own begin with `prefix`."""

    @property
    def prefix(self) -> bytes: ...

    def convert(self, key: bytes, value: bytes, attachments: Attachments) -> bytes: ...


class _Begin:
    """Where a record's fields begin: (key, record) → the record in the current layout, the position
    after its prefix, and its attachments."""

    def __init__(self, make_attachments: MakeAttachments, reader: RecordConverter) -> None:
        # A stored record that seems to have no revision is damaged, and `convert` says so.
        self.prefix = b"" if reader.prefix == encode_prefix(NO_REVISION) else reader.prefix
        """What records begin with that are in the current layout; empty: each is converted."""
        self.make_attachments = make_attachments
        self._convert = reader.convert

    def __call__(self, key: bytes, value: bytes) -> tuple[bytes, int, Attachments]:
        # New blobs of a conversion are for this record alone, and go with it.
        attachments = self.make_attachments(key, value)
        try:
            converted = self._convert(key, value, attachments)
        except ReadConflict as conflict:
            return self(key, conflict.value_or_conflict())
        return converted, decode_prefix(converted, 0)[1], attachments


@dataclass(frozen=True, slots=True)
class ArrowDecoder:
    """Some or all fields of one table schema, compiled."""

    table: TableSchema
    schema: Any
    """The `pyarrow.Schema` of the batches."""
    columns: Mapping[int, Column]
    """By the numbers of their fields, in declared order."""
    plan: ColumnPlan
    walk: Callable[..., Lists]
    decode_record: Decode
    """The ordinary decoder of the same fields."""
    source: str

    def decode_page(
        self, page: PackedRows, make_attachments: MakeAttachments, reader: RecordConverter
    ) -> Any:
        """A batch of all rows of a page; None if they have to be read row by row."""
        begin = _Begin(make_attachments, reader)
        try:
            arrays = self.plan.read(page, begin.prefix, begin)
        except (NeedsRows, CorruptRecord, IndexError, KeyError, ValueError, OverflowError):
            return None
        ordered = [arrays[number] for number in self.columns]
        return pyarrow.RecordBatch.from_arrays(ordered, schema=self.schema)

    def decode_rows(
        self, rows: Sequence[StoredRow], make_attachments: MakeAttachments, reader: RecordConverter
    ) -> tuple[Any, int]:
        """A batch of the first rows, as many as fit, and how many these are.

        Raises `CorruptRecord`, `BlobMissing`, and `InvalidValue` for numbers that are too large.
        """
        begin, taken = _Begin(make_attachments, reader), list[StoredRow]()
        try:
            arrays = self._to_arrays(rows, begin, taken.append)
        except (CorruptRecord, IndexError, KeyError, ValueError, OverflowError, NumberTooLarge):
            self._explain(taken, begin)
            raise
        return pyarrow.RecordBatch.from_arrays(arrays, schema=self.schema), len(taken)

    def _to_arrays(
        self, rows: Iterable[StoredRow], begin: _Begin, take: Callable[[StoredRow], object]
    ) -> list[Any]:
        lists = self.walk(
            rows, begin, begin.make_attachments(b"", b""), ARROW_BATCH_SIZE_BYTES, take
        )
        return [column.to_array(lists) for column in self.columns.values()]

    def _explain(self, rows: list[StoredRow], begin: _Begin) -> None:
        """Raise what is wrong with the first of the rows that something is wrong with."""
        for key, value in rows:
            try:
                self.decode_record(key, *begin(key, value))
            except CorruptRecord as error:
                name_record(error, self.table.name, codec_for(self.table).decode_key, key)
                raise
            try:
                self._to_arrays([(key, value)], begin, lambda row: None)
            except NumberTooLarge as error:
                field = error.path.removeprefix(f"{self.table.name}.").split(".")[0].split("[")[0]
                raise InvalidValue(
                    "an integer is too large for its Arrow column",
                    field=error.path,
                    key=", ".join(map(repr, codec_for(self.table).decode_key(key))),
                    expected=error.expected,
                    hint=f"as_text=[{field!r}] makes a column of strings",
                ) from None


def arrow_decoder(
    table: TableSchema,
    fields: Collection[str] | None = None,
    as_text: Collection[str] = (),
    zones: Zones | None = None,
) -> ArrowDecoder:
    """The decoder of these fields, or of all, compiled once; raises `UnknownField`."""
    numbers = _numbers_of(table, [f.name for f in table.fields] if fields is None else fields)
    if not numbers:
        raise UsageError("no field is selected", table=table.name)
    texts = _numbers_of(table, as_text)
    bound = bind_zones(table, zones)
    compiled = compiled_with(table, bound, zones)
    wanted = ("arrow", canonical_bytes(table), numbers, texts)
    decoder: ArrowDecoder = compiled.get(
        wanted, lambda: _compile(table, bound, zones, numbers, texts)
    )
    return decoder


def _numbers_of(table: TableSchema, names: Collection[str]) -> frozenset[int]:
    numbers = {f.name: f.number for f in table.fields}
    for name in names:
        if name not in numbers:
            raise UnknownField.named(table.name, name, numbers)
    return frozenset(numbers[name] for name in names)


def _compile(
    table: TableSchema,
    bound: TableSchema,
    zones: Zones | None,
    numbers: frozenset[int],
    texts: frozenset[int],
) -> ArrowDecoder:
    counter = itertools.count()
    columns = {
        f.number: make_column(
            f.type,
            f"{table.name}.{f.name}",
            lambda: next(counter),
            place="key" if f.number in table.key else "field",
            as_text=f.number in texts,
        )
        for f in bound.fields
        if f.number in numbers
    }
    walk, source = _compile_walk(bound, columns, next(counter))
    schema = pyarrow.schema(
        [
            pyarrow.field(f.name, columns[f.number].arrow, f.optional, {"zapdb.type": str(f.type)})
            for f in table.fields
            if f.number in numbers
        ],
        {"zapdb.table": table.name, "zapdb.key": ", ".join(f.name for f in table.key_fields)},
    )
    decode = decoder_of(table, numbers, zones)
    plan = ColumnPlan.of(bound, columns)
    return ArrowDecoder(table, schema, columns, plan, walk, decode, source)


def _compile_walk(
    table: TableSchema, columns: Mapping[int, Column], lists: int
) -> tuple[Callable[..., Any], str]:
    """The function that takes rows one by one, and returns the columns' lists.

    It ends with the row that leaves less than no room.
    """
    names = Namespace()
    body = [
        "take(row)",
        "key, value = row",
        "if value.startswith(prefix):",
        "    s = start",
        "    near = attachments",
        "else:",
        "    value, s, near = begin(key, value)",
    ]
    if any(number in columns for number in table.key):
        body += ["b = key", "p = 0", "n = len(b)"]
        body.append(f"if n > {RECORD_KEY_SIZE_BYTES_MAX}: raise IndexError")
        for f in table.key_fields:
            column = columns.get(f.number)
            if column is None:
                body += f.type.decode_key_source("unwanted", names)
            else:
                body += column.decode_source(names)
        body.append("if p != n: raise IndexError")
    body += ["b = value", "p = s", "n = len(b)", "room -= n"]
    layout = Layout.of(table)
    if layout.presence_size_bytes:
        body += presence_source(layout, names)
    stored = list(table.value_fields)
    while stored and stored[-1].number not in columns:
        stored.pop()
    for f in stored:
        body += _field_source(f, columns.get(f.number), layout, names)
    compare = "!=" if len(stored) == len(table.value_fields) else ">"
    body += [f"if p {compare} n: raise IndexError", "if room < 0: break"]
    lines = ["def walk(rows, begin, attachments, room, take):"]
    lines += indent(["prefix = begin.prefix or ()", "start = len(prefix)"])
    for at in range(lists):
        lines += indent([f"l{at} = []", f"a{at} = l{at}.append"])
    returned = "".join(f"l{at}, " for at in range(lists))
    lines += indent(["for row in rows:", *indent(body), f"return ({returned})"])
    return compile_function("walk", lines, names, f"arrow {table.name}")


def _field_source(f: Field, column: Column | None, layout: Layout, names: Namespace) -> list[str]:
    present = f"m & {1 << layout.bit(f.number)}" if f.optional else None
    if column is not None:
        return column.decode_source(names, present)
    skip = f.type.skip_field_source(names)
    return skip if present is None else [f"if {present}:", *indent(skip)]
