"""Records and keys as commands take them in their arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from zapdb.errors import UsageError
from zapdb.records.cell_format import from_text
from zapdb.records.record_lines import find_input_field
from zapdb.schema import TableSchema


def read_key(table: TableSchema, texts: Sequence[str]) -> tuple[Any, ...]:
    """The key that texts spell, one for each of its fields; raises `UsageError`, `InvalidValue`."""
    fields = table.key_fields
    if len(texts) != len(fields):
        raise UsageError(
            "these are not the fields of the key",
            table=table.name,
            key=", ".join(field.name for field in fields),
            given=len(texts),
            hint="give one value for each field of the key, in this order",
        )
    return tuple(from_text(table, f, text) for f, text in zip(fields, texts, strict=True))


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
