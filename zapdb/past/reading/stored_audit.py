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
from zapdb.past.reading.moment import Moment, find_moment, open_moments
from zapdb.past.reading.past_session import PastSession
from zapdb.past.reading.stored_moments import StoredMoment, StoredMoments
from zapdb.records import Record
from zapdb.records.archive_cells import decode_archived_values
from zapdb.schema import TableSchema
from zapdb.storage import Connection
from zapdb.tables.changes import reading_log
from zapdb.tables.indexes import BoundTable
from zapdb.tables.session import Session

WINDOW_MOMENTS: Final = 2_000
"""Moments whose changed keys are read together."""

NO_VALUES: Final[Mapping[str, Any]] = {}
ChangedKeys = dict[int, list[bytes]]
"""By moment."""


class StoredChange(NamedTuple):
    """What a moment made of a record, with the schemas before and after."""

    table: int
    key: tuple[Any, ...]
    schema_before: TableSchema | None
    before: Record | None
    schema_after: TableSchema | None
    after: Record | None
    archived_before: Mapping[str, Any] = NO_VALUES
    archived_after: Mapping[str, Any] = NO_VALUES
    """The archived values of dropped fields, if one of them was changed."""


class StoredVersion(NamedTuple):
    """What a moment made of one record; without a moment, what there was when the files of a
    timeline, or those behind a gap, begin."""

    moment: StoredMoment | None
    change: StoredChange


class StoredAudit:
    """The changes of moments that only files have; asked from the newest moment on."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._windows: dict[int, tuple[range, ChangedKeys]] = {}
        """By table, the moments that were looked at last."""

    def list_events(self, moment: Moment, principal: str, made_at: int) -> list[ChangeRow]:
        """Return the schema events of a moment, as the log had them."""
        with reading_log(self._session) as connection:
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

    def list_changes(self, moment: Moment, table: int) -> Iterator[StoredChange]:
        """Yield what became of the records of a table, in the order of keys."""
        keys = sorted(self._find_keys(moment.number, table))
        if not keys:
            return
        numbers = moment.number - 1, moment.number
        (schema_before, before), (schema, after) = (
            self._read(number, table, keys) for number in numbers
        )
        was, has = (self._read_archives(number, table, keys) for number in numbers)
        for key in keys:
            earlier, later = before.get(key), after.get(key)
            found = earlier or later
            if found is not None:
                values, first = found[0], None if earlier is None else earlier[1]
                last = None if later is None else later[1]
                archived = _differing(was.get(key, NO_VALUES), has.get(key, NO_VALUES))
                yield StoredChange(table, values, schema_before, first, schema, last, *archived)

    def list_versions(self, table: int, key: bytes) -> Iterator[StoredVersion]:
        """Yield what became of one record up to the beginning of the log, oldest first.

        Raises `HistoryDamaged` and `HistoryUnreachable`.
        """
        with reading_log(self._session) as connection:
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
                after = self._read_one(number, table, key)
                if number not in changed:
                    yield StoredVersion(None, StoredChange(table, (), None, None, *after))
                    continue
                made = next(iter(stored.list_back(number)))
                before = self._read_one(number - 1, table, key)
                was, has = (self._read_archives(at, table, [key]) for at in (number - 1, number))
                archived = _differing(was.get(key, NO_VALUES), has.get(key, NO_VALUES))
                yield StoredVersion(made, StoredChange(table, (), *before, *after, *archived))

    def _read_one(
        self, number: int, table: int, key: bytes
    ) -> tuple[TableSchema | None, Record | None]:
        schema, found = self._read(number, table, [key])
        return schema, found[key][1] if key in found else None

    def _read(
        self, number: int, table: int, keys: Sequence[bytes]
    ) -> tuple[TableSchema | None, dict[bytes, tuple[tuple[Any, ...], Record]]]:
        """Return a table's schema at a moment, and those of some records that there were, with the
        values of their keys."""
        past = PastSession(self._session, find_moment(self._session, number))
        then = past.then.numbered(table)
        if then is None:
            return None, {}

        def find(connection: Connection, bound: BoundTable) -> tuple[int | None, Any]:
            return bound.records.find_many(connection, keys)

        bound, rows = past.read_active(past.bind_numbered(table, then.schema.name), find)
        read, codec = bound.adapter.reader.read, bound.codec
        return then.schema, {
            key: (codec.decode_key(key), read(key, value)) for key, value in rows.items()
        }

    def _read_archives(
        self, number: int, table: int, keys: Sequence[bytes]
    ) -> dict[bytes, Mapping[str, Any]]:
        """Return the archived values of dropped fields that records had at a moment."""
        past = PastSession(self._session, find_moment(self._session, number))
        then = past.then.numbered(table)
        if then is None or not then.schema.archived:
            return {}

        def read(connection: Connection, bound: BoundTable) -> tuple[int | None, Any]:
            version, rows = bound.records.find_many(connection, keys)
            made, zones = bound.read_archives(connection, list(rows.items())), bound.catalog.zones
            return version, {
                key: decode_archived_values(one.values, then.schema, zones, one.attachments)
                for key, one in zip(rows, made, strict=True)
            }

        found: dict[bytes, Mapping[str, Any]]
        _, found = past.read_active(past.bind_numbered(table, then.schema.name), read)
        return found

    def _find_keys(self, moment: int, table: int) -> list[bytes]:
        known = self._windows.get(table)
        if known is None or moment not in known[0]:
            window = range(max(0, moment - WINDOW_MOMENTS) + 1, moment + 1)
            known = self._windows[table] = (window, self._read_keys(window, table))
        return known[1].get(moment, [])

    def _read_keys(self, window: range, table: int) -> ChangedKeys:
        found: ChangedKeys = defaultdict(list)
        with reading_log(self._session) as connection:
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


def _differing(
    before: Mapping[str, Any], after: Mapping[str, Any]
) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return archived values before and after a change; none where they are the same."""
    return (NO_VALUES, NO_VALUES) if before == after else (before, after)


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
