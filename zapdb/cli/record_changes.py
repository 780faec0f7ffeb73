"""How a record changed, for people in a line; and of when an answer is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from zapdb.cli.output import format_count, print_note
from zapdb.cli.record_commands import format_cell
from zapdb.control.records import FieldShape, RecordShape, show_cell

if TYPE_CHECKING:
    from zapdb.control.changes import ListedChange, LogStatus
    from zapdb.control.history import AuditedChange, ChangedRecord

_SHOWN_CHARS_MAX: Final = 30
"""Characters that are shown of one value of a change."""

Shown = tuple[RecordShape | None, Mapping[str, Any] | None]
"""A record with its shape; Nones for no record."""


def show_change(made: ListedChange | AuditedChange | ChangedRecord) -> str:
    """Return the fields that differ, or all of a record that was inserted or deleted."""
    return show_difference(
        (made.shape_before, made.before), (made.shape_after, made.after), made.fields
    )


def show_difference(before: Shown, after: Shown, changed: tuple[str, ...]) -> str:
    """Return the fields that are `changed` between two states of a record, or only in one of them;
    all fields of the only state."""
    if after[1] is None or before[1] is None:
        only = before if after[1] is None else after
        return ", ".join(f"{one.name}={_show(only, one)}" for one in _fields(only).values())
    earlier, later = _fields(before), _fields(after)
    shown = []
    for number in {**earlier, **later}:  # by number: a new name is no change
        was, found = earlier.get(number), later.get(number)
        if was is None or found is None or found.name in changed:
            one = found or was
            assert one is not None
            told = _show(before, was) if was else "-", _show(after, found) if found else "-"
            shown.append(f"{one.name}: {told[0]} → {told[1]}")
    return ", ".join(shown)


def _fields(shown: Shown) -> dict[int, FieldShape]:
    """Return the fields outside the key, by number."""
    shape, record = shown
    if shape is None or record is None:
        return {}
    return {one.number: one for one in shape.fields if one.number not in shape.key}


def _show(shown: Shown, one: FieldShape) -> str:
    shape, record = shown
    assert shape is not None
    assert record is not None
    part = format_cell(shape, record, one, _SHOWN_CHARS_MAX)
    return part if isinstance(part, str) else part[0]


def show_key_values(shape: RecordShape | None, key: tuple[Any, ...]) -> str:
    """Return the values of a record's key."""
    if shape is None:
        return ""
    by_number = {one.number: one for one in shape.fields}
    return ", ".join(map(show_cell, (by_number[number] for number in shape.key), key))


def show_archived(made: ListedChange | AuditedChange) -> str:
    """Return the archived values of dropped fields that were changed."""
    before = _archived_cells(made.shape_before, made.archived_before)
    after = _archived_cells(made.shape_after, made.archived_after)
    return ", ".join(
        f"{name} (archived): {before.get(name, '-')} → {after.get(name, '-')}"
        for name in {**before, **after}
        if before.get(name) != after.get(name)
    )


def _archived_cells(shape: RecordShape | None, values: Any) -> dict[str, str]:
    fields = {} if shape is None else {one.name: one for one in shape.archived}
    return {name: show_cell(fields[name], value) for name, value in (values or {}).items()}


def note_waiting(status: LogStatus) -> None:
    """Say of when the answer is, if its process may write nothing: as of the last stamp that
    another process gave."""
    if status.waiting is not None:
        changes = format_count(status.waiting.changes, "change")
        print_note(
            f"as of {status.waiting.watermark:%Y-%m-%d %H:%M:%S}, as this process may only read: "
            f"{changes} behind it wait for one that writes"
        )
