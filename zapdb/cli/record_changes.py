"""How a record changed: for people in a line, and as JSON."""

from __future__ import annotations

from typing import Any, Final

from zapdb.cli.output import format_count, print_note
from zapdb.cli.record_output import format_cell
from zapdb.database import Database
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
        return ", ".join(f"{name}={text}" for name, text in _show_fields(schema, record).values())
    earlier, later = _show_fields(schema_before, before), _show_fields(schema_after, after)
    shown = []
    for number, (name, text) in {**earlier, **later}.items():  # by number: a new name is no change
        was, found = earlier.get(number), later.get(number)
        if (
            was is None
            or found is None
            or raw_value(before, was[0])[0] != raw_value(after, found[0])[0]
        ):
            shown.append(f"{name}: {was[1] if was else '-'} → {text if found else '-'}")
    return ", ".join(shown)


def _show_fields(schema: TableSchema | None, record: Record | None) -> dict[int, tuple[str, str]]:
    """Return the names and values of the fields outside the key, by number."""
    if schema is None or record is None:
        return {}
    shown = {}
    for field in schema.fields:
        if field.number not in schema.key:
            part = format_cell(record, field, _SHOWN_CHARS_MAX)
            shown[field.number] = (field.name, part if isinstance(part, str) else part[0])
    return shown


def record_to_json(schema: TableSchema | None, record: Record | None) -> dict[str, Any] | None:
    return None if schema is None or record is None else record_to_plain(schema, record)


def note_waiting(db: Database) -> None:
    """Say of when the answer is, if this process may write nothing: as of the last stamp that
    another one gave."""
    if not db._session.is_read_only:
        return
    status = db.change_log.status()
    if status.watermark is not None:
        waiting = format_count(status.waiting.changes, "change")
        print_note(
            f"as of {status.watermark:%Y-%m-%d %H:%M:%S}, as this process may only read: {waiting} "
            "behind it wait for one that writes"
        )
