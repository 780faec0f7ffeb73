"""Records in answers: as `--json` has them, and what a text for people needs besides.

A record is an object of its fields, each value in the form that documents have (`to_document`). A
text says more of it: which fields are the key, whether a text is one or stands for a number. And it
says less: a large value is not read for it, and only its size is told. So a method whose answer has
records takes `for_text`. With it, the answer has the shapes of the records, and null for a large
value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from zapdb.records import Record, raw_value
from zapdb.records.archive_cells import archived_fields
from zapdb.records.cell_format import NULL, plain_to_cell, record_to_plain, to_plain
from zapdb.schema import Field, TableSchema
from zapdb.values import VALUE_TYPES, Blob


@dataclass(frozen=True, slots=True)
class FieldShape:
    """A field, for texts. `text_is_json`: the text of a value is its JSON, even of a string."""

    number: int
    name: str
    type: str
    optional: bool
    text_is_json: bool


@dataclass(frozen=True, slots=True)
class RecordShape:
    """What a text of a record needs that its JSON does not tell: the number of the table, the
    fields of then, those of the key by their numbers, the dropped ones whose values are archived;
    and the sizes in bytes of large values, which are left out of the record, by field."""

    table: int
    key: tuple[int, ...]
    fields: tuple[FieldShape, ...]
    archived: tuple[FieldShape, ...]
    large: Mapping[str, int] = field(default_factory=dict)


def make_shape(schema: TableSchema, large: Mapping[str, int] | None = None) -> RecordShape:
    """The shape of a table's records; of one that has large values, with their sizes."""
    return RecordShape(
        schema.number,
        tuple(schema.key),
        tuple(_describe_field(one.name, one) for one in schema.fields),
        tuple(_describe_field(name, one) for name, one in archived_fields(schema).items()),
        large or {},
    )


def _describe_field(name: str, one: Field) -> FieldShape:
    return FieldShape(one.number, name, one.type.name, one.optional, one.type.text_is_json)


def describe_record(
    schema: TableSchema | None, record: Record | None, *, for_text: bool
) -> tuple[dict[str, Any] | None, RecordShape | None]:
    """A record as JSON has it, and its shape. For JSON, large values are loaded, and there is no
    shape."""
    if not for_text:
        plain = None if schema is None or record is None else record_to_plain(schema, record)
        return plain, None
    if schema is None:
        return None, None
    if record is None:
        return None, make_shape(schema)
    shown, large = without_large(schema, record)
    return shown, make_shape(schema, large)


def without_large(schema: TableSchema, record: Record) -> tuple[dict[str, Any], dict[str, int]]:
    """A record as JSON has it, null for a large value, and the sizes of those by field."""
    shown, large = dict[str, Any](), dict[str, int]()
    for one in schema.fields:
        value, _ = raw_value(record, one.name)
        if isinstance(value, Blob):
            large[one.name], value = value.size, None
            shown[one.name] = None
        else:
            shown[one.name] = to_plain(one, value)
    return shown, large


def names_in(table: str | None, *schemas: TableSchema | None) -> Iterator[str | None]:
    """The names that an entry of an answer has for its table, and that the records in it have."""
    yield table
    yield from (schema.name for schema in schemas if schema is not None)


def key_to_plain(schema: TableSchema | None, key: tuple[Any, ...]) -> tuple[Any, ...]:
    """The values of a key as JSON has them."""
    return () if schema is None else tuple(map(to_plain, schema.key_fields, key))


def describe_archived(schema: TableSchema | None, values: Mapping[str, Any]) -> dict[str, Any]:
    """Archived values of dropped fields as JSON has them, by name."""
    fields = {} if schema is None else archived_fields(schema)
    return {name: to_plain(fields[name], value) for name, value in values.items()}


def show_cell(shape: FieldShape, plain: Any) -> str:
    """The text of a value that JSON has as `plain`, as `to_cell` writes it."""
    if plain is None and (shape.optional or not VALUE_TYPES[shape.type].holds_null):
        return NULL
    return plain_to_cell(plain, text_is_json=shape.text_is_json)
