"""Lookups by an index: exact, by range, in order.

Values are compared as the index compares them: strings under its collation. An exact lookup then
checks the value itself, since an equal sort key is not an equal string. While the index is being
built, the same questions are answered by a scan of the table: slower, and right.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from zapdb.database.session import Session
from zapdb.errors import UsageError
from zapdb.indexes import LiveIndex, LiveTable, is_cut, successor
from zapdb.limits import INDEX_KEY_SIZE_BYTES_MAX, PAGE_RECORDS_MAX
from zapdb.records import Record
from zapdb.storage import Connection

Entry = tuple[bytes, Record]
"""A record with its full index key."""


class IndexLookup:
    """One index of one table."""

    def __init__(self, session: Session, live: LiveTable, name: str) -> None:
        self._session = session
        self._live = live
        self._name = name

    @property
    def is_readable(self) -> bool:
        """Whether lookups use the index; until it is built they scan the table."""
        return self._index.is_readable

    @property
    def _index(self) -> LiveIndex:
        index = self._live.index(self._name)
        if index is None:
            raise UsageError("the index was dropped", index=self._name)
        return index

    def find(self, *values: Any) -> Iterator[Record]:
        """Records whose leading index fields equal the values, by ==, in index order."""
        keys = self._index.keys
        prefix = keys.encode_prefix(values)
        wanted = list(zip((f.name for f in keys.fields), values, strict=False))
        for _, record in self._entries(prefix, successor(prefix), descending=False):
            if all(getattr(record, name) == value for name, value in wanted):
                yield record

    def range(
        self,
        lower: Any = None,
        upper: Any = None,
        *,
        include_upper: bool = False,
        descending: bool = False,
        limit: int | None = None,
    ) -> Iterator[Record]:
        """Records in index order, from `lower` (inclusive) to `upper`.

        Bounds are values of the first index field, or tuples of leading ones; None is no bound.
        Bounds are given in the order of the index: in a descending one, `lower` is the larger value.
        """
        low, high = self._bound(lower), self._bound(upper)
        if include_upper and high is not None:
            high = successor(high)
        entries = self._entries(low, high, descending=descending)
        for count, (_, record) in enumerate(entries):
            if limit is not None and count >= limit:
                return
            yield record

    def _bound(self, value: Any) -> bytes | None:
        if value is None:
            return None
        values = value if isinstance(value, tuple) else (value,)
        return self._index.keys.encode_prefix(values)

    def _entries(
        self, lower: bytes | None, upper: bytes | None, *, descending: bool
    ) -> Iterator[Entry]:
        """Entries with lower ≤ full key < upper, in order of the full key, then of the record's."""
        if not self._index.is_readable:
            yield from self._scan(lower, upper, descending=descending)
            return
        found = self._stored_entries(lower, upper, descending=descending)
        # Cut keys tie: their runs are put in order by the full keys.
        for cut_key, run in groupby(found, key=lambda entry: entry[0][:INDEX_KEY_SIZE_BYTES_MAX]):
            if not is_cut(cut_key):
                yield from run
                continue
            in_order = sorted(run, key=lambda entry: entry[0], reverse=descending)
            for full_key, record in in_order:
                if (lower is None or full_key >= lower) and (upper is None or full_key < upper):
                    yield full_key, record

    def _stored_entries(
        self, lower: bytes | None, upper: bytes | None, *, descending: bool
    ) -> Iterator[Entry]:
        """Whatever lies between the bounds as entries hold them: cut."""
        low = None if lower is None else (lower[:INDEX_KEY_SIZE_BYTES_MAX], b"")
        high = upper
        if upper is not None and is_cut(upper):
            high = successor(upper[:INDEX_KEY_SIZE_BYTES_MAX])
        after: tuple[bytes, bytes] | None = None
        limit = 64  # the first page is small: many lookups want few records
        while True:
            connection = self._session.storage.connection()
            page = self._page(connection, low, high, after, limit, descending=descending)
            build, read = self._index.keys.build, self._live.reader.read
            for _, record_key, value in page:
                record = read(record_key, value)
                yield build(record), record
            if len(page) < limit:
                return
            after = (page[-1][0], page[-1][1])
            limit = PAGE_RECORDS_MAX

    def _page(
        self,
        connection: Connection,
        low: tuple[bytes, bytes] | None,
        high: bytes | None,
        after: tuple[bytes, bytes] | None,
        limit: int,
        *,
        descending: bool,
    ) -> list[tuple[bytes, bytes, bytes]]:
        """One page under the view in force: an index may have moved since the last one."""
        while True:
            activation, page = self._index.entries.page(
                connection, low, high, after, limit, descending=descending
            )
            if activation == self._live.view.activation:
                return page
            self._live = self._session.refresh_table(self._live)

    def _scan(
        self, lower: bytes | None, upper: bytes | None, *, descending: bool
    ) -> Iterator[Entry]:
        """The same entries by reading all records; memory grows with those that match."""
        build, found, after = self._index.keys.build, [], b""
        while True:
            connection = self._session.storage.connection()
            page = connection.fetch_all(self._live.records.page_sql, (after, PAGE_RECORDS_MAX))
            if not page:
                break
            for key, value in page:
                record = self._live.reader.read(key, value)
                full_key = build(record)
                if (lower is None or full_key >= lower) and (upper is None or full_key < upper):
                    found.append((full_key, bytes(key), record))
            after = page[-1][0]
        found.sort(key=lambda entry: entry[:2], reverse=descending)
        for full_key, _, record in found:
            yield full_key, record
