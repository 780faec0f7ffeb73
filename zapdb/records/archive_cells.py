"""All archived values of a record packed together, as the change log and the files of a history
store have them beside the record.

    archive = (cell, value)…                  in the order of the cells
    cell    = varint
    value   = varint of its size | the value's encoding; nothing for a null

A record without archived values has none, so none is empty. The change log owns the blobs that
the values refer to. Files own nothing, so they have the bytes of a blob in the place of the
reference: these are more than any other value has.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final, cast

from zapdb.errors import CorruptRecord
from zapdb.limits import INLINE_SIZE_BYTES_MAX
from zapdb.records.attachments import Attachments, Load
from zapdb.schema import Field, TableSchema
from zapdb.values import ValueType, Zones
from zapdb.values.blob import (
    Blob,
    BlobSink,
    LargeValueType,
    decode_inline_or_blob,
    is_blob,
    read_blob,
)
from zapdb.values.length_prefixed import encode_length_prefixed, read_length_prefixed
from zapdb.values.varint import decode_varint, encode_varint

PACKED_SIZE_BYTES_MAX: Final = 2**31


def encode_archive(values: Mapping[int, bytes]) -> bytes | None:
    """Pack values by cell; None if there are none."""
    if not values:
        return None
    parts = ((encode_varint(cell), values[cell]) for cell in sorted(values))
    return b"".join(cell + encode_varint(len(value)) + value for cell, value in parts)


def decode_archive(packed: bytes | None) -> dict[int, bytes]:
    """Return packed values by cell; raises `CorruptRecord`."""
    found, at = dict[int, bytes](), 0
    if packed is None:
        return found
    try:
        while at < len(packed):
            cell, at = decode_varint(packed, at)
            size, at = decode_varint(packed, at)
            if size < 0 or at + size > len(packed):
                raise CorruptRecord.at("archived value", packed, at)
            found[cell] = bytes(packed[at : at + size])
            at += size
    except IndexError:
        raise CorruptRecord.at("archived values", packed, at) from None
    return found


def decode_archived_values(
    values: Mapping[int, bytes], schema: TableSchema, zones: Zones, attachments: Attachments
) -> dict[str, Any]:
    """Return the archived values of a record of a schema by the names of the dropped fields; one
    whose name another one has, too, is called `name@migration`. Raises `CorruptRecord` and
    `BlobMissing`."""
    return {
        name: decode_archived_value(field.type.bind(zones), values[field.cell], attachments)
        for name, field in archived_fields(schema).items()
        if field.cell in values
    }


def archived_fields(schema: TableSchema) -> dict[str, Field]:
    """Return the dropped fields of a table whose values are archived, by name: `name@migration` if
    another one has the same."""
    names = [one.field.name for one in schema.archived]
    return {
        one.field.name
        if names.count(one.field.name) == 1
        else f"{one.field.name}@{one.archived_by}": one.field
        for one in schema.archived
    }


def decode_archived_value(kind: ValueType, encoded: bytes, attachments: Attachments) -> Any:
    """Return an archived value, of a type that is bound to the time zones."""
    if not encoded:
        return None
    if not kind.may_be_blob:
        return kind.decode(encoded, 0)[0]
    value, _ = decode_inline_or_blob(cast("LargeValueType", kind), encoded, 0)
    return attachments.load_value(value) if isinstance(value, Blob) else value


def without_cells(packed: bytes | None, cells: Collection[int]) -> bytes | None:
    """Return packed values without those of some cells."""
    return encode_archive(
        {cell: value for cell, value in decode_archive(packed).items() if cell not in cells}
    )


def list_archived_blobs(values: Mapping[int, bytes], large: Collection[int]) -> Iterator[bytes]:
    """Yield the ids of the blobs that values refer to; `large` are the cells that may have one."""
    for cell, value in values.items():
        if cell in large and is_blob(value):
            yield read_blob(value, 0)[0][0]


def cells_of(schemas: Iterable[TableSchema], fields: Collection[int]) -> frozenset[int]:
    """Return the cells that fields have had, by their numbers."""
    return frozenset(field.cell for field in _all_fields(schemas) if field.number in fields)


def large_fields(schemas: Iterable[TableSchema]) -> dict[int, Field]:
    """Return the fields of schemas, archived ones too, whose values may be blobs, by cell."""
    return {field.cell: field for field in _all_fields(schemas) if field.type.may_be_blob}


def _all_fields(schemas: Iterable[TableSchema]) -> Iterator[Field]:
    for schema in schemas:
        yield from schema.fields
        yield from (archived.field for archived in schema.archived)


def embed_blobs(
    values: Mapping[int, bytes], large: Mapping[int, Field], load: Load
) -> dict[int, bytes]:
    """Return values with the bytes of blobs in the place of references to them; raises
    `BlobMissing`."""
    found = dict(values)
    for cell, value in values.items():
        if cell in large and is_blob(value):
            (made, size), _ = read_blob(value, 0)
            kind = cast("LargeValueType", large[cell].type)
            found[cell] = encode_length_prefixed(load(Blob(made, size, kind)))
    return found


def extract_blobs(
    values: Mapping[int, bytes], large: Mapping[int, Field], sink: BlobSink
) -> dict[int, bytes]:
    """Return values with references to blobs in the place of their bytes, which `sink` takes."""
    found = dict(values)
    for cell, value in values.items():
        if cell in large and len(value) > INLINE_SIZE_BYTES_MAX:
            start, end = read_length_prefixed(value, 0, PACKED_SIZE_BYTES_MAX)
            kind = cast("LargeValueType", large[cell].type)
            if end - start > INLINE_SIZE_BYTES_MAX:
                found[cell] = Blob(sink.add(value[start:end]), end - start, kind).encode()
    return found
