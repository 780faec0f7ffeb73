"""How a record changed: for people in a line, and as JSON."""

from __future__ import annotations

from typing import Any, Final

from zapdb.cli.record_output import format_cell
from zapdb.records import Record, raw_value
from zapdb.records.cell_format import record_to_plain
from zapdb.schema import TableSchema

_SHOWN_CHARS_MAX: Final = 30
"""Characters that are shown of one value of a change."""


def show_change(
    schema_before: TableSchema | None,
    before: Record | None,
    schema_after: TableSchema | None,
    after: Record | None,
) -> str:
    """Return the fields that differ, or all of a record that was inserted or deleted."""
    if after is None or before is None:
        schema, record = (schema_before, before) if after is None else (schema_after, after)
        names, texts = _show_fields(schema, record)
        return ", ".join(f"{name}={text}" for name, text in zip(names, texts, strict=True))
    earlier = dict(zip(*_show_fields(schema_before, before), strict=True))
    later = dict(zip(*_show_fields(schema_after, after), strict=True))
    differing = [
        name
        for name in {**earlier, **later}
        if name not in earlier
        or name not in later
        or raw_value(before, name)[0] != raw_value(after, name)[0]
    ]
    return ", ".join(f"{n}: {earlier.get(n, '-')} → {later.get(n, '-')}" for n in differing)


def _show_fields(schema: TableSchema | None, record: Record | None) -> tuple[list[str], list[str]]:
    """Return the names and values of the fields outside the key."""
    if schema is None or record is None:
        return [], []
    keys = {field.number for field in schema.key_fields}
    fields = [field for field in schema.fields if field.number not in keys]
    parts = [format_cell(record, field, _SHOWN_CHARS_MAX) for field in fields]
    texts = [part if isinstance(part, str) else part[0] for part in parts]
    return [field.name for field in fields], texts


def record_to_json(schema: TableSchema | None, record: Record | None) -> dict[str, Any] | None:
    return None if schema is None or record is None else record_to_plain(schema, record)
