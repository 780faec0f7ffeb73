"""The records of a table at a moment as the history store and the change log have them.

It gives the same rows as `RecordStatements` for a table of the present: keys and records, in the
order of keys, page by page. Files are read by row groups, so memory does not grow
with the table. Records get the bytes that they had, under the revision at which their era began;
every value is checked on the way.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from zapdb.errors import InvalidValue
from zapdb.limits import PAGE_RECORDS_MAX
from zapdb.log.last_changes import (
    LAST_CHANGES_PAGE,
    find_last_archives,
    find_last_changes,
    list_last_changes,
)
from zapdb.log.moments import LoggedMoment, Moments
from zapdb.memo import Memo
from zapdb.past.files.file_columns import FROM, KEY, OPERATION
from zapdb.past.files.history_erasures import list_half_erased
from zapdb.past.reading.moment import require_kept
from zapdb.past.reading.state_sql import DELETED
from zapdb.past.reading.stored_files import EraFile, EraFiles
from zapdb.records import Attachments
from zapdb.records.arrow import encode_batch
from zapdb.schema import TableSchema
from zapdb.storage import BlobStatements, Connection, Storage
from zapdb.storage.cells import as_number
from zapdb.storage.identifiers import make_uuid7
from zapdb.storage.statements import bounds_behind, catalog_version_sql
from zapdb.values import Zones

Change = tuple[bytes, bytes | None]
"""A key, and its record after the change; None if it is gone."""
StoredPage = list[tuple[bytes, bytes]]
"""Keys and records, in the order of keys."""
WINDOWS_KEPT: Final = 2


class HeldValue(bytes):
    """A record whose large values are not in the database, but in its attachments."""

    attachments: Attachments


class RecordForm(NamedTuple):
    """The bytes that stored records get: by the schema of a revision, with its prefix."""

    schema: TableSchema
    prefix: bytes
    zones: Zones


class Tail:
    """The changes of a table between the end of the files and a moment, from the log.

    Where a record is erased meanwhile, the log has nothing of it any more, and the files still may
    have what it was before: it counts as gone. The log is read first: who reads it as it was before
    the erasure needs no more."""

    def __init__(
        self, moments: Moments, between: tuple[LoggedMoment, LoggedMoment], table: int
    ) -> None:
        self._moments, self._between, self._table = moments, between, table
        self.moments = between[1].number - between[0].number
        self._page: tuple[bytes, list[Change], bool] = (b"", [], False)
        """The page that was read last: behind which key, and whether it is the end."""

    def find(self, connection: Connection, keys: Sequence[bytes]) -> dict[bytes, bytes | None]:
        """Return the changed records that have one of these keys; None for one that is gone."""
        found = find_last_changes(connection, self._moments, self._between, self._table, keys)
        erased = {key: None for key in self._list_erased(connection) if key in keys}
        require_kept(self._moments, connection, self._between[0])
        return erased | found

    def find_archives(
        self, connection: Connection, keys: Sequence[bytes]
    ) -> dict[bytes, tuple[bytes | None, bytes | None]]:
        """As `find_last_archives`."""
        return find_last_archives(connection, self._moments, self._between, self._table, keys)

    def _list_erased(self, connection: Connection) -> list[bytes]:
        return list_half_erased(connection, self._moments.log.tenant, self._table)

    def read(
        self, connection: Connection, lower: bytes, upper: bytes | None
    ) -> dict[bytes, bytes | None]:
        """Return the changed records with lower < key ≤ upper."""
        found = dict[bytes, bytes | None]()
        behind, is_end = lower, False
        while not is_end:
            page, is_end = self._read_page(connection, behind)
            for key, value in page:
                if upper is not None and key > upper:
                    return found
                found[key] = value
            behind = page[-1][0] if page else behind
        return found

    def _read_page(self, connection: Connection, behind: bytes) -> tuple[list[Change], bool]:
        start, page, is_end = self._page
        is_inside = bool(page) and start <= behind < page[-1][0]
        if is_inside or (is_end and start <= behind):
            at = bisect.bisect_right(page, behind, key=lambda made: made[0])
            return page[at:], is_end
        page = list_last_changes(connection, self._moments, self._between, self._table, behind)
        is_end, upper = len(page) < LAST_CHANGES_PAGE, page[-1][0] if page else b""
        erased = {
            key: None
            for key in self._list_erased(connection)
            if behind < key and (is_end or key <= upper)
        }
        page = sorted((erased | dict(page)).items()) if erased else page
        require_kept(self._moments, connection, self._between[0])
        self._page = (behind, page, is_end)
        return page, self._page[2]


class _Chosen(NamedTuple):
    """Of the rows of one file, those that are the last ones of their keys."""

    file: EraFile
    rows: Any
    places: list[int]


class StoredRecords:
    """The records of a table at a moment, from files and the log."""

    def __init__(
        self, storage: Storage, tenant: int, files: EraFiles, form: RecordForm, tail: Tail | None
    ) -> None:
        self.storage = storage
        self.tenant = int(tenant)
        self._files, self._form, self._tail = files, form, tail
        self._load = BlobStatements(storage).load
        self._windows = Memo[int, StoredPage](WINDOWS_KEPT)

    # What is read by keys

    def find(self, connection: Connection, key: bytes) -> tuple[int, bytes | None]:
        version, found = self.find_many(connection, [key])
        return version, found.get(key)

    def find_many(
        self, connection: Connection, keys: Sequence[bytes]
    ) -> tuple[int, dict[bytes, bytes]]:
        ordered = sorted(keys)
        changed = self._tail.find(connection, ordered) if self._tail is not None else {}
        found = {key: value for key, value in changed.items() if value is not None}
        found |= self.find_in_files([key for key in ordered if key not in changed])
        return self.read_catalog_version(connection), found

    def find_in_files(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return records by key as files have them, whatever became of them behind these."""
        chosen = _choose(self._files.read_keys(sorted(keys))) if keys else []
        return {key: value for one in chosen for key, value in self._encode(one)}

    def has(self, connection: Connection, key: bytes) -> tuple[int, bool]:
        version, found = self.find(connection, key)
        return version, found is not None

    def read_catalog_version(self, connection: Connection) -> int:
        row = connection.fetch_one(catalog_version_sql(self.tenant))
        return 0 if row is None else as_number(row[0])

    # What is read in order

    def count(self, connection: Connection) -> int:
        return self._count(connection, None, None, None)

    def count_range(
        self, connection: Connection, lower: bytes | None, upper: bytes | None, limit: int | None
    ) -> tuple[int, int]:
        counted = self._count(connection, lower, upper, limit)
        return self.read_catalog_version(connection), counted

    def slice_range(
        self, connection: Connection, lower: bytes | None, upper: bytes | None, every: int
    ) -> list[bytes]:
        """Return some keys with lower < key < upper, in order; about `every` records are between
        them, where row groups are not larger."""
        found, waiting = list[bytes](), 0
        for at in self._list_windows(lower, upper, descending=False)[:-1]:
            waiting += self._files.rows // (len(self._files.windows) + 1)
            if waiting >= every:
                found.append(self._files.windows[at] + b"\x00")
                waiting = 0
        return [key for key in found if lower is None or lower < key]

    def sample_keys(self, _: Connection, _lower: bytes | None, _upper: bytes | None) -> None:
        """None: counting them reads no record."""

    def estimate_range(self, lower: bytes | None, upper: bytes | None) -> int:
        """Return about how many records have lower ≤ key < upper, at most; reads none."""
        windows = self._list_windows(lower, upper, descending=False)
        return self._files.rows * len(windows) // (len(self._files.windows) + 1)

    def _count(
        self, connection: Connection, lower: bytes | None, upper: bytes | None, limit: int | None
    ) -> int:
        counted = 0
        for at in self._list_windows(lower, upper, descending=False):
            page = self._read_window(connection, at)
            counted += len(_cut(page, lower, upper))
            if limit is not None and counted >= limit:
                return limit
        return counted

    def scan_page(self, connection: Connection, after: bytes) -> tuple[int, StoredPage]:
        version, page = self.page(
            connection, None, None, (after, after), PAGE_RECORDS_MAX, descending=False
        )
        return version, [(key, value) for key, _, value in page]

    def page(
        self,
        connection: Connection,
        lower: bytes | None,
        upper: bytes | None,
        after: tuple[bytes, bytes] | None,
        limit: int,
        *,
        descending: bool,
    ) -> tuple[int, list[tuple[bytes, bytes, bytes]]]:
        lower, upper = bounds_behind(lower, upper, after, descending=descending)
        found: list[tuple[bytes, bytes, bytes]] = []
        for at in self._list_windows(lower, upper, descending=descending):
            page = _cut(self._read_window(connection, at), lower, upper)
            rows = reversed(page) if descending else page
            for key, value in rows:
                found.append((key, key, value))
                if len(found) == limit:
                    break
            if len(found) == limit:
                break
        return self.read_catalog_version(connection), found

    def joined_page(
        self, connection: Connection, _lower: bytes | None, _upper: bytes | None, _limit: int
    ) -> tuple[int, None]:
        """Return no rows: large values are held with their records, which are not joined."""
        return self.read_catalog_version(connection), None

    def _list_windows(
        self, lower: bytes | None, upper: bytes | None, *, descending: bool
    ) -> Sequence[int]:
        """Return the windows that may have keys with lower ≤ key < upper, by their numbers."""
        cuts = self._files.windows
        first = 0 if lower is None else bisect.bisect_left(cuts, lower)
        last = len(cuts) if upper is None else bisect.bisect_left(cuts, upper)
        numbers = range(first, last + 1)
        return numbers[::-1] if descending else numbers

    def _read_window(self, connection: Connection, at: int) -> StoredPage:
        return self._windows.get(at, lambda: self._make_window(connection, at))

    def _make_window(self, connection: Connection, at: int) -> StoredPage:
        cuts = self._files.windows
        lower = cuts[at - 1] if at else b""
        upper = cuts[at] if at < len(cuts) else None
        changed = {} if self._tail is None else self._tail.read(connection, lower, upper)
        found: dict[bytes, bytes | None] = {}
        for one in _choose(self._files.read(lower, upper)):
            found |= self._encode(one)
        found |= changed
        return [(key, value) for key, value in sorted(found.items()) if value is not None]

    def _encode(self, chosen: _Chosen) -> StoredPage:
        """Return keys and records of some rows of a file; raises `HistoryDamaged` for values that
        no record has."""
        schema, prefix, zones = self._form
        rows = chosen.rows.take(chosen.places).combine_chunks()
        values = rows.select(list(chosen.file.columns))
        named = values.rename_columns([field.name for field in schema.fields])
        attachments = Attachments(self._load, make_uuid7)
        found: StoredPage = []
        try:
            for batch in named.to_batches():
                found += encode_batch(schema, batch, prefix, attachments, zones)
        except InvalidValue as error:
            raise chosen.file.damaged(f"{error.message}: {error.context.get('field')}") from error
        if [key for key, _ in found] != rows.column(KEY).to_pylist():
            raise chosen.file.damaged("a row has another key than its values")
        return [(key, _hold(value, attachments)) for key, value in found]


def _hold(value: bytes, attachments: Attachments) -> bytes:
    if not attachments.blobs:
        return value
    held = HeldValue(value)
    held.attachments = attachments
    return held


def _choose(parts: Iterator[tuple[EraFile, Any]]) -> list[_Chosen]:
    """Return the last row of each key among the rows of several files, without those of records
    that are gone."""
    read = list(parts)
    last = dict[bytes, tuple[int, int, int, bool]]()
    for at, (_, rows) in enumerate(read):
        columns = (rows.column(name).to_pylist() for name in (KEY, FROM, OPERATION))
        for place, (key, since, operation) in enumerate(zip(*columns, strict=True)):
            known = last.get(key)
            if known is None or known[0] < since:
                last[key] = (since, at, place, operation != DELETED)
    places: list[list[int]] = [[] for _ in read]
    for _, at, place, is_there in last.values():
        if is_there:
            places[at].append(place)
    paired = zip(read, places, strict=True)
    return [_Chosen(file, rows, sorted(chosen)) for (file, rows), chosen in paired if chosen]


def _cut(page: StoredPage, lower: bytes | None, upper: bytes | None) -> StoredPage:
    """Return the part of a page with lower ≤ key < upper."""

    def key_of(row: tuple[bytes, bytes]) -> bytes:
        return row[0]

    first = 0 if lower is None else bisect.bisect_left(page, lower, key=key_of)
    last = len(page) if upper is None else bisect.bisect_left(page, upper, key=key_of)
    return page[first:last]
