"""How a record changed: for people in a line, and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from zapdb.cli.output import format_count, print_note
from zapdb.cli.record_commands import format_cell
from zapdb.database import Database
from zapdb.records import Record, raw_value
from zapdb.records.archive_cells import archived_fields
from zapdb.records.cell_format import record_to_plain, to_cell, to_plain
from zapdb.schema import Field, TableSchema

if TYPE_CHECKING:
    from zapdb.past.reading.audit import AuditEntry
    from zapdb.tables.change_decoding import RecordChange

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


def show_archived(made: RecordChange | AuditEntry) -> str:
    """Return the archived values of dropped fields that were changed."""
    before, after = (
        {name: to_cell(field, value) for name, (field, value) in values.items()}
        for values in _archived_of(made)
    )
    return ", ".join(
        f"{name} (archived): {before.get(name, '-')} → {after.get(name, '-')}"
        for name in {**before, **after}
        if before.get(name) != after.get(name)
    )


def archived_to_json(made: RecordChange | AuditEntry) -> dict[str, Any]:
    """Return the archived values before and after, if one of them was changed, else nulls."""
    before, after = (
        {name: to_plain(field, value) for name, (field, value) in values.items()}
        for values in _archived_of(made)
    )
    is_any = bool(before or after)
    return {
        "archived_before": before if is_any else None,
        "archived_after": after if is_any else None,
    }


def _archived_of(made: RecordChange | AuditEntry) -> list[dict[str, tuple[Field, Any]]]:
    """Return the archived values before and after, with their fields."""
    found = list[dict[str, tuple[Field, Any]]]()
    for schema, values in (
        (made.schema_before, made.archived_before),
        (made.schema_after, made.archived_after),
    ):
        fields = {} if schema is None else archived_fields(schema)
        found.append({name: (fields[name], value) for name, value in values.items()})
    return found


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
