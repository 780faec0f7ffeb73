"""What is known of the revisions of a table's records, by ranges of their keys, as commands print
it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from zapdb.activation import TableDescriptor
from zapdb.catalog.range_revisions import RangeRevision
from zapdb.cli.output import Output, Part
from zapdb.errors import CorruptRecord
from zapdb.printing import one_line
from zapdb.records import codec_for
from zapdb.records.cell_format import to_cell
from zapdb.schema import TableSchema
from zapdb.values import to_json


def write_ranges(
    descriptor: TableDescriptor, known: Sequence[RangeRevision], output: Output
) -> None:
    table = descriptor.schema
    rows: list[Sequence[Part]] = [
        (
            "-" if found.lower is None else _show_key(table, found.lower),
            "-" if found.upper is None else _show_key(table, found.upper),
            str(found.revision),
            ("current", "green") if _is_current(descriptor, found) else ("may be stale", "yellow"),
        )
        for found in known
    ]
    columns = ("after the key", "up to the key", "lowest revision", "records")
    output.table(columns, rows, right=columns[2:3])


def ranges_to_json(
    descriptor: TableDescriptor, known: Sequence[RangeRevision]
) -> list[dict[str, Any]]:
    return [
        {
            "after": _key_to_json(descriptor.schema, found.lower),
            "up_to": _key_to_json(descriptor.schema, found.upper),
            "revision": found.revision,
            "current": _is_current(descriptor, found),
        }
        for found in known
    ]


def _is_current(descriptor: TableDescriptor, found: RangeRevision) -> bool:
    return found.revision >= descriptor.layout_revision


def _show_key(table: TableSchema, key: bytes) -> str:
    try:
        values = codec_for(table).decode_key(key)
    except CorruptRecord:
        return key.hex()
    cells = (to_cell(field, value) for field, value in zip(table.key_fields, values, strict=True))
    return one_line(", ".join(cells), 60)


def _key_to_json(table: TableSchema, key: bytes | None) -> Any:
    if key is None:
        return None
    try:
        values = codec_for(table).decode_key(key)
    except CorruptRecord:
        return key.hex()
    return {field.name: to_json(v) for field, v in zip(table.key_fields, values, strict=True)}
