"""The rows of files of kind `moments`: one for each transaction of the change log.

They have all that is asked of a moment when the log is pruned: its number, place and times, who
made it, what it changed, and its schema events. A timeline begins with the row of the moment at
which its files begin: in place of events that has the tables and the newest migration of then
(`BASELINE`). So the files alone tell the names and schemas of every moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow
from pyarrow import compute

from zapdb.log.change_log import ChangeRow
from zapdb.log.followed_moments import FollowedMoment
from zapdb.log.moments import LoggedMoment
from zapdb.log.pending_changes import OF_TENANT
from zapdb.memo import Memo
from zapdb.past.files.history_file import read_columns, reading_file
from zapdb.past.files.history_manifest import HistoryFile
from zapdb.records import encode_prefix

BASELINE: Final = "baseline"
"""In place of an event: a table's revision, or the tenant's newest migration, where a timeline
begins."""

_COUNTS: Final = pyarrow.struct(
    [
        pyarrow.field("table_number", pyarrow.int64()),
        pyarrow.field("inserted", pyarrow.int64()),
        pyarrow.field("updated", pyarrow.int64()),
        pyarrow.field("deleted", pyarrow.int64()),
        pyarrow.field("events", pyarrow.int64()),
    ]
)
_EVENT: Final = pyarrow.struct(
    [
        pyarrow.field("table_number", pyarrow.int64()),
        pyarrow.field("key", pyarrow.binary()),
        pyarrow.field("event", pyarrow.string()),
        pyarrow.field("before", pyarrow.binary()),
        pyarrow.field("after", pyarrow.binary()),
    ]
)
_UNFILED: Final = pyarrow.struct(
    [
        pyarrow.field("table_number", pyarrow.int64()),
        pyarrow.field("operation", pyarrow.int8()),
        pyarrow.field("keys", pyarrow.list_(pyarrow.binary())),
    ]
)
MOMENTS_SCHEMA: Final = pyarrow.schema(
    [
        pyarrow.field("moment", pyarrow.int64()),
        pyarrow.field("stamp", pyarrow.int64()),
        pyarrow.field("commit_order", pyarrow.int64()),
        pyarrow.field("transaction", pyarrow.int64()),
        pyarrow.field("principal", pyarrow.string()),
        pyarrow.field("made_at", pyarrow.timestamp("us", "UTC")),
        pyarrow.field("visible_at", pyarrow.timestamp("us", "UTC")),
        pyarrow.field("inserted", pyarrow.int64()),
        pyarrow.field("updated", pyarrow.int64()),
        pyarrow.field("deleted", pyarrow.int64()),
        pyarrow.field("events", pyarrow.int64()),
        pyarrow.field("changes", pyarrow.list_(_COUNTS)),
        pyarrow.field("schema_events", pyarrow.list_(_EVENT)),
        pyarrow.field("unfiled", pyarrow.list_(_UNFILED)),
    ]
)
"""The columns. `changes` has the counts of the columns before it by table, `schema_events` the rows
of the log with an event; times of no transaction are null. `unfiled` has the keys of changes that
are counted and in no other file, as those of a roll back: an erasure looks for them there."""


class LoggedEvent(NamedTuple):
    """A row of the log with an event, or one of a timeline's baseline."""

    table: int
    key: bytes
    event: str
    before: bytes | None
    after: bytes | None


@dataclass(slots=True)
class TableCounts:
    """What one transaction did to a table: records inserted, updated and deleted, and events."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    events: int = 0


@dataclass(slots=True)
class MomentCounts:
    """A moment, and what its transaction did, by table."""

    found: FollowedMoment
    events: Sequence[LoggedEvent] = ()
    tables: dict[int, TableCounts] = field(default_factory=dict)
    unfiled: dict[tuple[int, int], list[bytes]] = field(default_factory=dict)
    """The keys of changes that belong to no era, by table and operation."""

    def add(self, row: ChangeRow) -> None:
        counted = self.tables.setdefault(row.table, TableCounts())
        if row.event is not None:
            counted.events += 1
        elif row.after is None:
            counted.deleted += 1
        elif row.before is None:
            counted.inserted += 1
        else:
            counted.updated += 1


def to_events(rows: Sequence[ChangeRow]) -> list[LoggedEvent]:
    """Return the events among the rows of a transaction."""
    return [
        LoggedEvent(row.table, row.key, row.event, row.before, row.after)
        for row in rows
        if row.event is not None
    ]


def make_baseline(
    moment: LoggedMoment, revisions: Mapping[int, int], migration: int
) -> MomentCounts:
    """Return the row with which a timeline begins: the tables' revisions, and the id of the newest
    migration that was active, at its first moment."""
    numbers = [(OF_TENANT, migration), *sorted(revisions.items())]
    events = [
        LoggedEvent(table, b"", BASELINE, None, encode_prefix(number)) for table, number in numbers
    ]
    return MomentCounts(FollowedMoment(moment, "", 0), events)


def read_moments(
    directory: str | Path, file: HistoryFile, columns: Sequence[str] = MOMENTS_SCHEMA.names
) -> Any:
    """Return the rows of a file as a `pyarrow.Table`; raises `HistoryDamaged` and
    `HistoryUnreachable`."""
    rows = read_columns(directory, file, columns)
    with reading_file(file.place_in(directory), file):
        if rows.schema != pyarrow.schema([MOMENTS_SCHEMA.field(name) for name in columns]):
            raise pyarrow.ArrowInvalid("it has not the columns of moments")
    return rows


_EVENTS: Final = Memo[tuple[Path, bytes], list[tuple[int, LoggedEvent]]](10_000)
"""What this process has read; files never change."""


def list_stored_events(
    directory: str | Path, files: Iterable[HistoryFile]
) -> Iterator[tuple[int, LoggedEvent]]:
    """Yield each event in files with its moment, in order; raises `HistoryDamaged`."""
    for file in sorted(files, key=lambda file: file.first_moment):
        place = file.place_in(directory), file.sha256
        yield from _EVENTS.get(place, partial(_read_events, directory, file))


def _read_events(directory: str | Path, file: HistoryFile) -> list[tuple[int, LoggedEvent]]:
    names = ["moment", "schema_events"]
    rows = read_moments(directory, file, names)
    some = rows.filter(compute.greater(compute.list_value_length(rows.column(1)), 0))
    columns = (some.column(name).to_pylist() for name in names)
    return [
        (moment, LoggedEvent(*made.values()))
        for moment, events in zip(*columns, strict=True)
        for made in events
    ]


def to_arrow(moments: Sequence[MomentCounts]) -> Any:
    """Return the rows as a `pyarrow.Table`."""
    arrays = [
        pyarrow.array(values, one.type)
        for values, one in zip(_list_columns(moments), MOMENTS_SCHEMA, strict=True)
    ]
    return pyarrow.Table.from_arrays(arrays, schema=MOMENTS_SCHEMA)


def _list_columns(moments: Sequence[MomentCounts]) -> Iterator[list[Any]]:
    found = [made.found for made in moments]
    yield [one.moment.number for one in found]
    yield [one.moment.stamp for one in found]
    yield [one.moment.commit_order for one in found]
    yield [one.moment.transaction for one in found]
    yield [one.principal for one in found]
    yield [one.made_at or None for one in found]
    yield [one.moment.visible_at or None for one in found]
    counted = [made.tables for made in moments]
    for name in ("inserted", "updated", "deleted", "events"):
        yield [sum(getattr(one, name) for one in tables.values()) for tables in counted]
    yield [
        [
            (number, one.inserted, one.updated, one.deleted, one.events)
            for number, one in sorted(tables.items())
        ]
        for tables in counted
    ]
    yield [[tuple(event) for event in made.events] for made in moments]
    yield [_list_unfiled(made) for made in moments]


def _list_unfiled(made: MomentCounts) -> list[tuple[int, int, list[bytes]]]:
    return [(*of, keys) for of, keys in sorted(made.unfiled.items())]
