"""Moments whose changes were pruned from the change log, as the files of the history store have
them.

Each timeline has its moments without a gap, from its first one up to its end. Behind the end of an
older timeline, or of one that lost its place in the log, nobody knows what came next: what would
have to be looked for there is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy
import pyarrow
from pyarrow import compute

from zapdb.catalog.schema_history import POSITIONS, REVISIONS
from zapdb.errors import HistoryPurged
from zapdb.log.change_log import Bookmark
from zapdb.log.moments import LoggedMoment, Moments
from zapdb.log.pending_changes import OF_TENANT
from zapdb.past.files.history_manifest import (
    NO_TABLE,
    HistoryFile,
    HistoryStore,
    list_history_files,
    list_timelines,
)
from zapdb.past.files.moment_rows import (
    BASELINE,
    LoggedEvent,
    list_stored_events,
    read_moments,
)
from zapdb.records import decode_prefix
from zapdb.storage import Connection

PLACE: Final = ("moment", "stamp", "commit_order", "transaction", "visible_at")
Holds = Callable[[Any], Any]
"""Which rows of a `pyarrow.Table` of moments are wanted: all up to one of them."""


class StoredMoment(NamedTuple):
    """A moment with its transaction: who made it, when (in microseconds since 1970-01-01 UTC), and
    by table how many records it inserted, updated and deleted, and how many events it has."""

    moment: LoggedMoment
    principal: str
    made_at: int
    counts: dict[int, tuple[int, int, int, int]]


@dataclass(frozen=True, slots=True)
class StoredCatalog:
    """What a tenant's tables were at a moment: their revisions by number, and the id of the newest
    migration that was active."""

    revisions: dict[int, int]
    migration: int


class StoredMoments:
    """The moments that a tenant's files have, as of one snapshot."""

    def __init__(self, connection: Connection, moments: Moments) -> None:
        self._log = moments.log
        self._beginning = moments.find_beginning(connection).number
        tenant = moments.log.tenant
        self._timelines = [
            _Timeline(store, list_history_files(connection, store, table=NO_TABLE))
            for store in list_timelines(connection, tenant)
        ]

    # Finding one. Each raises `HistoryPurged` where no file has it, and `HistoryDamaged`.

    def find_number(self, number: int) -> LoggedMoment:
        """Return the last moment up to a number."""
        return self._find(
            lambda rows: _values(rows, "moment") <= number, lambda found: found.number == number
        )

    def find_bookmark(self, place: Bookmark) -> LoggedMoment:
        """Return the moment of the transaction with a change, or of the last one before a place."""

        def holds(rows: Any) -> Any:
            stamps, orders = _values(rows, "stamp"), _values(rows, "commit_order")
            is_same = (stamps == place.stamp) & (orders <= place.commit_order)
            return (stamps < place.stamp) | is_same

        wanted = place.stamp, place.commit_order
        return self._find(holds, lambda found: (found.stamp, found.commit_order) == wanted)

    def find_before(self, time_us: int) -> LoggedMoment:
        """Return the last moment that was visible before a time."""
        return self._find(lambda rows: _values(rows, "visible_at") < time_us, lambda _: False)

    def _find(self, holds: Holds, is_exact: Callable[[LoggedMoment], bool]) -> LoggedMoment:
        for timeline in self._timelines:
            found = timeline.find_last(holds)
            if found is None:
                continue
            if found.number == timeline.store.ends and not is_exact(found):
                break  # what came next is in no file
            if found.number < timeline.store.purged_before:
                raise self._purged(found.number, timeline.store.purged_before)
            return found
        begins = [one.store.begins for one in self._timelines]
        raise self._purged(None, min(begins, default=self._beginning))

    def _purged(self, moment: int | None, kept_from: int) -> HistoryPurged:
        return HistoryPurged(
            "changes after the moment were pruned from the change log",
            moment=moment if moment is not None else "before the first, or between two timelines",
            history_store_begins=kept_from,
            log_begins_behind=self._beginning,
            database=self._log.storage.shown_url,
            hint="ask for a later moment: `zapdb history moments` lists them",
        )

    # Reading them

    def list_back(self, until: int) -> Iterator[StoredMoment]:
        """Yield the moments up to a number, newest first."""
        for timeline in self._timelines:
            first = max(timeline.store.begins, timeline.store.purged_before - 1)
            for rows in timeline.list_back(first, min(until, timeline.store.ends)):
                yield from rows
            until = min(until, timeline.store.begins)

    def read_catalog(self, moment: LoggedMoment) -> StoredCatalog | None:
        """Return what the tables were at a moment; None if the files don't tell it, since the
        beginning of their timeline was purged."""
        timeline = self._find_timeline(moment.number)
        events = [made for at, made in timeline.list_events() if at <= moment.number]
        if not any(made.event == BASELINE for made in events):
            return None
        revisions, migration = dict[int, int](), 0
        for made in events:
            if made.after is None:
                continue
            is_of_tenant = made.table == OF_TENANT
            if made.event in (POSITIONS if is_of_tenant else REVISIONS) or made.event == BASELINE:
                (number, _) = decode_prefix(made.after, 0)
                if is_of_tenant:
                    migration = number
                elif made.event == "drop":
                    revisions.pop(made.table, None)
                else:
                    revisions[made.table] = number
        return StoredCatalog(revisions, migration)

    def list_events_of(self, number: int) -> list[LoggedEvent]:
        """Return the events of one moment."""
        events = self._find_timeline(number).list_events()
        return [made for at, made in events if at == number]

    def find_drop(self, table: int) -> StoredMoment | None:
        """Return the moment at which a table was dropped for the last time, if files have it."""
        for timeline in self._timelines:
            dropped = [
                at
                for at, made in timeline.list_events()
                if made.table == table and made.event == "drop"
            ]
            if dropped:
                return next(self.list_back(max(dropped)), None)
        return None

    def list_later_events(self, moment: LoggedMoment) -> list[LoggedEvent]:
        """Return the events after a moment, up to the end of its timeline."""
        events = self._find_timeline(moment.number).list_events()
        return [made for at, made in events if at > moment.number]

    def _find_timeline(self, number: int) -> _Timeline:
        for timeline in self._timelines:
            if timeline.store.begins <= number <= timeline.store.ends:
                return timeline
        raise self._purged(number, min(one.store.begins for one in self._timelines))


class _Timeline:
    """The files of moments of one timeline, by their first moments."""

    def __init__(self, store: HistoryStore, files: Sequence[HistoryFile]) -> None:
        self.store = store
        self._files = sorted(files, key=lambda file: file.first_moment)

    def find_last(self, holds: Holds) -> LoggedMoment | None:
        low, high = 0, len(self._files)  # the file is before `high`
        found = None
        while low < high:
            middle = (low + high) // 2
            rows = self._read(self._files[middle], PLACE)
            held = numpy.flatnonzero(holds(rows))
            if len(held):
                found, low = _to_moment(rows, int(held[-1])), middle + 1
            else:
                high = middle
        return found

    def list_back(self, first: int, until: int) -> Iterator[list[StoredMoment]]:
        """Yield the moments after one, up to another one, newest first, by file."""
        for file in reversed(self._files):
            if file.last_moment <= first or file.first_moment > until:
                continue
            rows = self._read(file, (*PLACE, "principal", "made_at", "changes"))
            numbers = _values(rows, "moment")
            kept = rows.filter(pyarrow.array((numbers > first) & (numbers <= until)))
            yield [_to_stored(kept, at) for at in reversed(range(kept.num_rows))]

    def list_events(self) -> list[tuple[int, LoggedEvent]]:
        """Return the events with their moments, in order."""
        return [*list_stored_events(self.store.directory, self._files)]

    def _read(self, file: HistoryFile, columns: Sequence[str]) -> Any:
        return read_moments(self.store.directory, file, columns)


def _values(rows: Any, name: str) -> Any:
    """Return a column as numbers; 0 for null."""
    column = rows.column(name)
    if pyarrow.types.is_timestamp(column.type):
        column = column.cast(pyarrow.int64())
    return compute.fill_null(column, 0).to_numpy()


def _to_moment(rows: Any, at: int) -> LoggedMoment:
    number, stamp, commit_order, transaction, visible_at = (
        int(_values(rows, name)[at]) for name in PLACE
    )
    return LoggedMoment(number, stamp, commit_order, visible_at, transaction or None)


def _to_stored(rows: Any, at: int) -> StoredMoment:
    counts = {
        made["table_number"]: (made["inserted"], made["updated"], made["deleted"], made["events"])
        for made in rows.column("changes")[at].as_py()
    }
    made_at = int(_values(rows, "made_at")[at])
    return StoredMoment(_to_moment(rows, at), rows.column("principal")[at].as_py(), made_at, counts)
