"""One batch of changes: what they make of the rows of each table, whatever happened in between."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Final

from zapdb.database import RecordChange, SchemaEvent
from zapdb.log.change_log import Bookmark
from zapdb.schema import TableSchema
from zapdb.transfer.mirror.state import MirrorState
from zapdb.transfer.plain_tables import LongNumber, PlainColumn, PlainTable

BATCH_CHANGES: Final = 2_000
"""A batch ends with the transaction that reaches this."""
BATCH_CHANGES_MAX: Final = 20_000
"""A transaction that is larger comes in several batches, since a batch is held in memory."""


@dataclass(slots=True)
class RowChange:
    """What becomes of one row: whether it is there before the batch, and its record afterwards."""

    was_there: bool
    record: Any
    """The last record that had the key: the row's if it `is_there` after the batch."""
    is_there: bool


@dataclass
class TableChanges:
    """What a batch makes of one table, by record key."""

    rows: dict[bytes, RowChange] = field(default_factory=dict)
    older: dict[bytes, tuple[Any, ...]] = field(default_factory=dict)
    """The keys, by field, of records that were written under another revision than that of the
    mirror's table: they are read as they are now."""


@dataclass
class ChangeBatch:
    """Changes up to `bookmark`; `tables` is by number.

    `stale` has the tables of which changes are missing. With `is_ahead`, the next change is of a
    schema that the mirror does not know yet.
    """

    bookmark: Bookmark
    changes: int = 0
    tables: dict[int, TableChanges] = field(default_factory=dict)
    stale: set[int] = field(default_factory=set)
    is_ahead: bool = False


def collect_batch(
    made: Iterable[RecordChange | SchemaEvent], state: MirrorState, wanted: int | None = None
) -> ChangeBatch:
    """Take changes from the stream until the batch is full, or has as many as are wanted; it ends
    with a transaction."""
    full = BATCH_CHANGES if wanted is None else min(BATCH_CHANGES, wanted)
    batch = ChangeBatch(state.bookmark)
    transaction = None
    for change in made:
        is_next = change.transaction != transaction
        if batch.changes >= (full if is_next else BATCH_CHANGES_MAX):
            break
        transaction = change.transaction
        if isinstance(change, SchemaEvent):
            batch.stale |= set(_find_gaps(change, state))
        else:
            _take(change, batch, state)
        if batch.is_ahead:
            break
        batch.bookmark = change.bookmark
        batch.changes += 1
    return batch


def _find_gaps(event: SchemaEvent, state: MirrorState) -> Iterator[int]:
    """The tables of which changes are missing before this event."""
    if event.event == "change_log_on":
        for table in state.tables.values():
            is_meant = event.table is None or event.bookmark.table == table.number
            if is_meant and not table.baseline.shows(event.transaction):
                yield table.number


def _take(change: RecordChange, batch: ChangeBatch, state: MirrorState) -> None:
    number, key = change.bookmark.table, change.bookmark.key
    table = state.tables.get(number)
    if table is None or not table.is_kept or number in batch.stale:
        return
    if table.baseline.shows(change.transaction):
        return
    changes = batch.tables.setdefault(number, TableChanges())
    if change.revision > table.revision:
        batch.is_ahead = True
    elif change.revision < table.revision:
        changes.rows.pop(key, None)
        changes.older[key] = change.key
    elif key not in changes.older:
        found = changes.rows.get(key)
        was_there = change.operation != "insert" if found is None else found.was_there
        record: Any = change.before if change.after is None else change.after
        if record is None:  # it could not be read
            assert change.schema_before is not None
            record = name_key(change.schema_before, change.key)
        changes.rows[key] = RowChange(was_there, record, change.after is not None)


class LongField(Exception):
    """A number of this field needs a longer column, which the table is given first."""

    def __init__(self, number: int, field: str) -> None:
        super().__init__(number, field)
        self.number = number
        self.field = field


def rows_of(records: Iterable[Any], plain: PlainTable, number: int) -> Iterator[tuple[Any, ...]]:
    """The rows of records; raises `LongField`."""
    return _taken(records, plain.columns, number)


def take_keys(records: Iterable[Any], plain: PlainTable, number: int) -> Iterator[tuple[Any, ...]]:
    """The columns of the keys of records' rows; raises `LongField`."""
    return _taken(records, plain.key_columns, number)


def _taken(
    records: Iterable[Any], columns: Sequence[PlainColumn], number: int
) -> Iterator[tuple[Any, ...]]:
    try:
        for record in records:
            yield tuple([column.take(record) for column in columns])
    except LongNumber as found:
        raise LongField(number, found.field) from None


def name_key(schema: TableSchema, key: tuple[Any, ...]) -> Any:
    """A key by field as an object that has the fields of the key."""
    names = [schema.field_numbered(number).name for number in schema.key]
    return SimpleNamespace(**dict(zip(names, key, strict=True)))
