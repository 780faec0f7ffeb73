"""Who changed what, of moments that were pruned from the change log: by the files of the store.

A row of a file says that a record was changed at its moment. What it was before and after, are the
states of the moments in front of it and at it. Files of moments have the schema events.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import pyarrow
from pyarrow import compute

from zapdb.log.change_log import ChangeRow, LoggedTransaction
from zapdb.past.files.file_columns import FROM, KEY, OPERATION, RowOperation
from zapdb.past.files.history_file import read_columns
from zapdb.past.files.history_manifest import (
    HistoryFile,
    HistoryStore,
    list_eras,
    list_history_files,
    list_timelines,
)
from zapdb.past.files.moment_rows import BASELINE
from zapdb.past.reading.changed_fields import Sides
from zapdb.past.reading.moment import Moment, find_moment, open_moments
from zapdb.past.reading.past_session import PastSession
from zapdb.past.reading.stored_moments import StoredMoment, StoredMoments
from zapdb.records import Record
from zapdb.records.archive_cells import decode_archived_values
from zapdb.schema import TableSchema
from zapdb.storage import Connection
from zapdb.tables.changes import within_snapshot
from zapdb.tables.indexes import BoundTable
from zapdb.tables.indexes.bound_table import RecordArchive
from zapdb.tables.session import Session

WINDOW_MOMENTS: Final = 2_000
"""Moments whose changed keys are read together."""

ChangedKeys = dict[int, list[bytes]]
"""By moment."""


class StoredVersion(NamedTuple):
    """What a moment made of one record; without a moment, what there was when the files of a
    timeline, or those behind a gap, begin."""

    moment: StoredMoment | None
    change: Sides


class StoredAudit:
    """The changes of moments that only files have; asked from the newest moment on."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._windows: dict[int, tuple[range, ChangedKeys]] = {}
        """By table, the moments that were looked at last."""

    def list_events(self, moment: Moment, principal: str, made_at: int) -> list[ChangeRow]:
        """Return the schema events of a moment, as the log had them."""
        with within_snapshot(self._session) as connection:
            stored = StoredMoments(connection, open_moments(self._session))
            made = stored.find_number(moment.number)
            events = stored.list_events_of(moment.number)
        number = made.transaction or 0
        transaction = LoggedTransaction(
            made.stamp, 0, made.visible_at, made.commit_order, number, principal, made_at
        )
        return [
            ChangeRow(transaction, one.table, one.key, one.event, one.before, one.after)
            for one in events
            if one.event != BASELINE
        ]

    def list_changes(self, moment: Moment, table: int) -> Iterator[tuple[tuple[Any, ...], Sides]]:
        """Yield what became of the records of a table, in the order of keys, with the values of
        these."""
        keys = sorted(self._find_keys(moment.number, table))
        if keys:
            before = self._read(moment.number - 1, table, keys)
            after = self._read(moment.number, table, keys)
            for key in keys:
                found = after.get(key) or before.get(key)
                if found is not None:
                    yield found.key, _join(before.get(key), after.get(key))

    def list_versions(self, table: int, key: bytes) -> Iterator[StoredVersion]:
        """Yield what became of one record up to the beginning of the log, oldest first.

        Raises `HistoryDamaged` and `HistoryUnreachable`.
        """
        with within_snapshot(self._session) as connection:
            moments = open_moments(self._session)
            beginning = moments.find_beginning(connection).number
            stored = StoredMoments(connection, moments)
            timelines = [
                (store, *_list_places(connection, store, table, beginning))
                for store in reversed(list_timelines(connection, self._session.catalog.tenant))
            ]
        for store, kept, starts, files in timelines:
            changed = {
                since
                for file in files
                if (file.key_lower or b"") <= key <= (file.key_upper or b"")
                for _, since in _list_changed(store, file, kept, key)
            }
            for number in sorted(changed | starts):
                before = made = None
                if number in changed:
                    before = self._read(number - 1, table, [key]).get(key)
                    made = next(iter(stored.list_back(number)))
                after = self._read(number, table, [key]).get(key)
                yield StoredVersion(made, _join(before, after))

    def _read(self, number: int, table: int, keys: Sequence[bytes]) -> dict[bytes, _State]:
        """Return the records that there were at a moment, of some keys."""
        past = PastSession(self._session, find_moment(self._session, number))
        then = past.then.numbered(table)
        if then is None:
            return {}
        schema = then.schema

        def find(
            connection: Connection, bound: BoundTable
        ) -> tuple[int | None, tuple[dict[bytes, bytes], list[RecordArchive]]]:
            version, rows = bound.records.find_many(connection, keys)
            is_archiving = bool(schema.archived)
            archives = bound.read_archives(connection, list(rows.items())) if is_archiving else []
            return version, (rows, archives)

        bound, (rows, archives) = past.read_active(past.bind_numbered(table, schema.name), find)
        read, codec, zones = bound.adapter.reader.read, bound.codec, bound.catalog.zones
        archived = {
            key: decode_archived_values(one.values, schema, zones, one.attachments)
            for key, one in zip(rows, archives, strict=False)
        }
        return {
            key: _State(codec.decode_key(key), schema, read(key, value), archived.get(key, {}))
            for key, value in rows.items()
        }

    def _find_keys(self, moment: int, table: int) -> list[bytes]:
        known = self._windows.get(table)
        if known is None or moment not in known[0]:
            window = range(max(0, moment - WINDOW_MOMENTS) + 1, moment + 1)
            known = self._windows[table] = (window, self._read_keys(window, table))
        return known[1].get(moment, [])

    def _read_keys(self, window: range, table: int) -> ChangedKeys:
        found: ChangedKeys = defaultdict(list)
        with within_snapshot(self._session) as connection:
            stores = list_timelines(connection, self._session.catalog.tenant)
            files = [
                (store, file)
                for store in stores
                for file in list_history_files(connection, store, table=table)
                if file.kind in ("checkpoint", "ended", "segment")
                if file.first_moment < window.stop and file.last_moment >= window.start
            ]
        for store, file in files:
            kept = range(max(window.start, _find_first(store) + 1), window.stop)
            for key, since in _list_changed(store, file, kept):
                found[since].append(key)
        return found


class _State(NamedTuple):
    """A record at a moment: the values of its key, and its archived values of dropped fields."""

    key: tuple[Any, ...]
    schema: TableSchema
    record: Record
    archived: Mapping[str, Any]


def _join(before: _State | None, after: _State | None) -> Sides:
    was, has = ({} if one is None else one.archived for one in (before, after))
    archived = () if was == has else (was, has)
    states = [(None, None) if one is None else one[1:3] for one in (before, after)]
    return Sides(*states[0], *states[1], *archived)


def _list_places(
    connection: Connection, store: HistoryStore, table: int, beginning: int
) -> tuple[range, set[int], list[HistoryFile]]:
    """Return the moments of a timeline whose changes are kept and were pruned from the log, those
    at which its files of a table begin, and the files."""
    first = _find_first(store)
    kept = range(first + 1, min(store.ends, beginning) + 1)
    starts, ended = set[int](), -1
    for era in list_eras(connection, store, table):
        start = max(first, era.first_moment)
        is_start = start == first or era.first_moment != ended + 1
        if era.state != "baseline" and era.holds(start) and is_start and start < kept.stop:
            starts.add(start)
        ended = -1 if era.last_moment is None else era.last_moment
    files = [
        file
        for file in list_history_files(connection, store, table=table)
        if file.kind in ("checkpoint", "ended", "segment")
    ]
    return kept, starts, files


def _find_first(store: HistoryStore) -> int:
    """Return the first moment that a timeline has; what it was before a change of that is gone."""
    return max(store.begins, store.purged_before)


def _list_changed(
    store: HistoryStore, file: HistoryFile, window: range, key: bytes | None = None
) -> Iterator[tuple[bytes, int]]:
    """Yield keys and moments of the changes of a file, or those of one key; raises
    `HistoryDamaged` and `HistoryUnreachable`."""
    since, operation = compute.field(FROM), compute.field(OPERATION)
    condition = (since >= window.start) & (since < window.stop)
    condition &= operation != int(RowOperation.CHECKPOINT)
    if key is not None:
        condition &= compute.field(KEY) == pyarrow.scalar(key)
    rows = read_columns(store.directory, file, [KEY, FROM], condition)
    yield from zip(*(column.to_pylist() for column in rows.columns), strict=True)
