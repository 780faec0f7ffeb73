"""Encoders of columns: keys and records of many rows at once, by whole arrays.

The bytes are those of the table's codec. A column whose Arrow type holds the values of its field is
packed as a whole (see `columns`); of any other, each value is encoded by the field's own source.
An encoder refuses what the codec refuses, but does not say which row it is: the caller then encodes
row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import pyarrow

from zapdb.errors import InvalidValue
from zapdb.limits import RECORD_KEY_SIZE_BYTES_MAX
from zapdb.records.arrow.columns import Column, ColumnPlace, make_column
from zapdb.records.arrow.packing import concatenate, constant, pack_presence, repeated, size_max
from zapdb.records.attachments import Attachments
from zapdb.records.codec import bind_zones, compiled_with, missing_field
from zapdb.records.layout import Layout
from zapdb.schema import Field, TableSchema, canonical_bytes
from zapdb.values import Zones
from zapdb.values.generated_source import Namespace, compile_function, indent

EncodeValues = Callable[[Sequence[Any], Attachments], list[bytes | None]]


class GivenColumn(NamedTuple):
    """The values of one field: the array, and the same as a list of what the type's `check`
    takes, which is made where it is needed; raises `InvalidValue`."""

    array: Any
    read: Callable[[], list[Any]]

    @classmethod
    def of(cls, values: list[Any]) -> Self:
        """A column of values that are there already."""
        return cls(pyarrow.nulls(len(values)), lambda: values)


@dataclass(frozen=True, slots=True)
class FieldEncoder:
    """One field of a table at one place of its records."""

    field: Field
    column: Column
    encode_values: EncodeValues
    table: str

    def encode(self, given: GivenColumn | None, attachments: Attachments) -> list[Any]:
        """The pieces of its encodings; null where an optional value is absent."""
        if given is None:
            return [constant(self._encode_default(attachments))]
        if self.field.optional or not given.array.null_count:
            pieces = self.column.to_pieces(given.array)
            if pieces is not None:
                return pieces
        return [pyarrow.array(self.encode_values(given.read(), attachments), pyarrow.binary())]

    def _encode_default(self, attachments: Attachments) -> bytes:
        if not self.field.has_constant:
            raise missing_field(self.table, (self.field.name,), {})
        (encoded,) = self.encode_values([self.field.default], attachments)
        assert encoded is not None
        return encoded


@dataclass(frozen=True, slots=True)
class ColumnEncoder:
    """All fields of one table schema, compiled."""

    layout: Layout
    key: tuple[FieldEncoder, ...]
    values: tuple[FieldEncoder, ...]

    def encode_keys(
        self, given: Mapping[str, GivenColumn], count: int, attachments: Attachments
    ) -> Any:
        """The record keys; raises `InvalidValue`."""
        pieces = [repeated(b"", count)]
        for encoder in self.key:
            pieces += encoder.encode(given.get(encoder.field.name), attachments)
        keys = concatenate(pieces)
        if size_max(keys) > RECORD_KEY_SIZE_BYTES_MAX:
            raise InvalidValue(
                "a record key is too long",
                size_bytes=size_max(keys),
                size_bytes_max=RECORD_KEY_SIZE_BYTES_MAX,
            )
        return keys

    def encode_records(
        self,
        prefix: bytes,
        given: Mapping[str, GivenColumn],
        count: int,
        attachments: Attachments,
    ) -> Any:
        """The records; large values are added to `attachments`. Raises `InvalidValue`."""
        pieces, optional = list[Any](), list[Any]()
        for encoder in self.values:
            column = given.get(encoder.field.name)
            if not encoder.field.optional:
                pieces += encoder.encode(column, attachments)
                continue
            if column is None and encoder.field.has_constant:
                column = GivenColumn.of([encoder.field.default] * count)
            if column is None:
                optional.append(None)
                continue
            made = encoder.encode(column, attachments)
            optional.append(made[0])
            pieces += made
        head = [repeated(prefix, count)]
        if self.layout.presence_size_bytes:
            head.append(pack_presence(optional, count))
        return concatenate([*head, *pieces])


def column_encoder(table: TableSchema, zones: Zones | None = None) -> ColumnEncoder:
    """The encoder of a table schema in a database with these zones, compiled once."""
    bound = bind_zones(table, zones)
    encoder: ColumnEncoder = compiled_with(table, bound, zones).get(
        ("arrow encoder", canonical_bytes(table)),
        lambda: ColumnEncoder(
            Layout.of(bound),
            tuple(_compile(bound, field, "key") for field in bound.key_fields),
            tuple(_compile(bound, field, "field") for field in bound.value_fields),
        ),
    )
    return encoder


def _compile(table: TableSchema, field: Field, place: ColumnPlace) -> FieldEncoder:
    path, names = f"{table.name}.{field.name}", Namespace()
    make = field.type.encode_key_source if place == "key" else field.type.encode_field_source
    statements, encoded = make("v", path, names)
    lines = [*statements, f"append({encoded})"]
    if field.optional:
        lines = ["if v is None:", "    append(None)", "    continue", *lines]
    body = [
        "def encode_values(values, attachments):",
        *indent(["made = []", "append = made.append", "for v in values:", *indent(lines)]),
        "    return made",
    ]
    encode_values, _ = compile_function("encode_values", body, names, f"encode all {path}")
    return FieldEncoder(
        field, make_column(field.type, path, int, place=place), encode_values, table.name
    )
