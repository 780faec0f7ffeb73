"""One batch of changes: what they make of the rows of each table, whatever happened in between."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from zapdb.database import RecordChange, SchemaEvent
from zapdb.export.plain_tables import LongNumber, PlainTable
from zapdb.memo import Memo
from zapdb.mirror.shapes import shape_of
from zapdb.mirror.state import MirrorState, sees
from zapdb.schema import TableSchema
from zapdb.storage.change_log import Bookmark

BATCH_CHANGES: Final = 2_000
"""A batch ends with the transaction that reaches this."""
BATCH_CHANGES_MAX: Final = 20_000
"""A transaction that is larger comes in several batches, since a batch is held in memory."""


@dataclass
class RowChange:
    """What becomes of one row: whether it is there before the batch, and its record afterwards."""

    was_there: bool
    table: TableSchema
    record: Any
    """The last record that had the key: the row's if it `is_there` after the batch."""
    is_there: bool


@dataclass
class ChangeBatch:
    """Changes up to `bookmark`; `changed` is by table number and record key.

    `rebuild` has the tables that have to be made again before the next change is applied.
    """

    bookmark: Bookmark
    changes: int = 0
    changed: dict[int, dict[bytes, RowChange]] = field(default_factory=dict)
    rebuild: set[int] = field(default_factory=set)


def collect_batch(
    made: Iterable[RecordChange | SchemaEvent],
    state: MirrorState,
    shapes: Memo[tuple[int, int], str],
) -> ChangeBatch:
    """Take changes from the stream until the batch is full, or a table has another shape."""
    batch = ChangeBatch(state.bookmark)
    transaction = None
    for change in made:
        is_next = change.transaction != transaction
        if batch.changes >= (BATCH_CHANGES if is_next else BATCH_CHANGES_MAX):
            break
        transaction = change.transaction
        if isinstance(change, SchemaEvent):
            batch.rebuild |= set(_find_gaps(change, state))
        elif not _take(change, batch, state, shapes):
            break
        batch.bookmark = change.bookmark
        batch.changes += 1
    return batch


def _find_gaps(event: SchemaEvent, state: MirrorState) -> Iterator[int]:
    """The tables of which changes are missing before this event."""
    if event.event == "change_log_on":
        for table in state.tables.values():
            is_meant = event.table is None or event.bookmark.table == table.number
            if is_meant and not sees(table.baseline, event.transaction):
                yield table.number


def _take(
    change: RecordChange, batch: ChangeBatch, state: MirrorState, shapes: Memo[tuple[int, int], str]
) -> bool:
    """Add a change to the batch; False if its table has to be made again first."""
    number, key = change.bookmark.table, change.bookmark.key
    table = state.tables.get(number)
    if table is None or number in batch.rebuild or sees(table.baseline, change.transaction):
        return True
    schema = change.schema_after or change.schema_before
    record = change.before if change.after is None else change.after
    assert schema is not None
    shape = shapes.get((number, change.revision), partial(shape_of, schema))
    is_moved = None not in (change.schema_before, change.schema_after) and (
        change.schema_before is not change.schema_after  # by a rollback
    )
    if shape != table.shape or (is_moved and shape_of(_other(change)) != shape):
        batch.rebuild.add(number)
        return False
    rows = batch.changed.setdefault(number, {})
    found = rows.get(key)
    was_there = change.before is not None if found is None else found.was_there
    rows[key] = RowChange(was_there, schema, record, change.after is not None)
    return True


def _other(change: RecordChange) -> TableSchema:
    assert change.schema_before is not None
    return change.schema_before


class LongField(Exception):
    """A number of this field needs a longer column, for which the table is made again."""

    def __init__(self, number: int, field: str) -> None:
        super().__init__(number, field)
        self.number = number
        self.field = field


def rows_of(records: Iterable[Any], plain: PlainTable, number: int) -> Iterator[tuple[Any, ...]]:
    """The rows of records; raises `LongField`."""
    try:
        for record in records:
            yield plain.rows_of(record)
    except LongNumber as found:
        raise LongField(number, found.field) from None
