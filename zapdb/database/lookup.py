"""Lookups by an index: exact, by range, in order.

Values are compared as the index compares them: strings under its collation. An exact lookup then
checks the value itself, since an equal sort key is not an equal string. While the index is being
built, the same questions are answered by a scan of the table: slower, and right.

What is in force may change between two pages. A lookup then goes on behind the last record that it
gave out, by the entries or by a scan, whichever is right now; where the keys themselves are made
differently from then on, it can't, and says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from zapdb.database.session import Session
from zapdb.errors import TransactionConflict, UsageError
from zapdb.indexes import KeyBuilder, LiveIndex, LiveTable, is_cut, successor
from zapdb.limits import INDEX_KEY_SIZE_BYTES_MAX, PAGE_RECORDS_MAX
from zapdb.records import Record
from zapdb.schema import Field

Entry = tuple[bytes, bytes, Record]
"""A record with its full index key and its own key: entries are in the order of these two."""

Bounds = tuple[bytes | None, bytes | None]
"""lower ≤ full key < upper"""


class _Moved(Exception):
    """What is in force changed: the pages so far were right, the next one would not be."""


class IndexLookup:
    """One index of one table."""

    def __init__(self, session: Session, live: LiveTable, name: str) -> None:
        self._session = session
        self._live = live
        self._number = self._named(live, name).state.index.number
        self._name = name

    @property
    def is_readable(self) -> bool:
        """Whether lookups use the index; until it is built they scan the table."""
        self._live, _ = self._session.ask(
            self._live, lambda c, _: (c.fetch_one(self._session.activation_sql)[0], None)
        )
        return self._index(self._live).is_readable

    def _named(self, live: LiveTable, name: str) -> LiveIndex:
        index = live.index(name)
        if index is None:
            raise UsageError("the index was dropped", index=name)
        return index

    def _index(self, live: LiveTable) -> LiveIndex:
        for index in live.indexes:
            if index.state.index.number == self._number:
                return index
        raise UsageError("the index was dropped", index=self._name)

    def find(self, *values: Any) -> Iterator[Record]:
        """Records whose leading index fields are the same as the values, in index order."""
        found = self._search(values, values, include_upper=True, descending=False)
        known: KeyBuilder | None = None
        wanted: list[Any] = []
        for keys, record in found:
            if keys is not known:
                known, wanted = keys, keys.check(values)
            fields = zip(keys.fields, wanted, strict=False)
            if all(_is_same(field, getattr(record, field.name), value) for field, value in fields):
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
        Bounds follow the order of the index: in a descending one, `lower` is the larger value.
        """
        found = self._search(
            _as_tuple(lower), _as_tuple(upper), include_upper=include_upper, descending=descending
        )
        for count, (_, record) in enumerate(found):
            if limit is not None and count >= limit:
                return
            yield record

    def _search(
        self,
        lower: tuple[Any, ...] | None,
        upper: tuple[Any, ...] | None,
        *,
        include_upper: bool,
        descending: bool,
    ) -> Iterator[tuple[KeyBuilder, Record]]:
        """Records in order, each with the keys of the index as it was then."""
        last: tuple[bytes, bytes] | None = None
        known: KeyBuilder | None = None
        while True:
            live = self._live = self._session.find_again(self._live)
            keys = self._index(live).keys
            if last is not None and known is not None and not keys.is_same_as(known):
                raise TransactionConflict(
                    "the keys of the index changed while it was read",
                    index=self._name,
                    hint="read it again, or inside db.snapshot()",
                )
            known = keys
            low = None if lower is None else keys.encode_prefix(lower)
            high = None if upper is None else keys.encode_prefix(upper)
            if high is not None and include_upper:
                high = successor(high)
            if last is not None and descending:
                end = last[0] + b"\x00"  # the first key behind it
                high = end if high is None else min(high, end)
            elif last is not None:
                low = last[0] if low is None else max(low, last[0])
            try:
                for key, record_key, record in self._entries(live, (low, high), descending):
                    at = (key, record_key)
                    if last is None or (at < last if descending else at > last):
                        last = at
                        yield keys, record
                return
            except _Moved:
                self._session.reload()

    def _entries(self, live: LiveTable, bounds: Bounds, descending: bool) -> Iterator[Entry]:
        """Entries between the bounds, in order of the full key, then of the record's."""
        if not self._index(live).is_readable:
            yield from self._scan(live, bounds, descending)
            return
        lower, upper = bounds
        found = self._stored_entries(live, bounds, descending)
        # Cut keys tie: their runs are put in order by the full keys.
        for cut_key, run in groupby(found, key=lambda entry: entry[0][:INDEX_KEY_SIZE_BYTES_MAX]):
            if not is_cut(cut_key):
                yield from run
                continue
            for entry in sorted(run, key=lambda entry: entry[:2], reverse=descending):
                if _is_within(entry[0], lower, upper):
                    yield entry

    def _stored_entries(self, live: LiveTable, bounds: Bounds, descending: bool) -> Iterator[Entry]:
        """Whatever lies between the bounds as entries hold them: cut."""
        lower, upper = bounds
        low = None if lower is None else (lower[:INDEX_KEY_SIZE_BYTES_MAX], b"")
        high = upper
        if upper is not None and is_cut(upper):
            high = successor(upper[:INDEX_KEY_SIZE_BYTES_MAX])
        after: tuple[bytes, bytes] | None = None
        limit = 64  # the first page is small: many lookups want few records
        index, read = self._index(live), live.reader.read
        while True:
            page = self._ask(
                live,
                lambda c, at=after, count=limit: index.entries.page(
                    c, low, high, at, count, descending=descending
                ),
            )
            for _, record_key, value in page:
                record = read(record_key, value)
                yield index.keys.build(record), record_key, record
            if len(page) < limit:
                return
            after = (page[-1][0], page[-1][1])
            limit = PAGE_RECORDS_MAX

    def _scan(self, live: LiveTable, bounds: Bounds, descending: bool) -> Iterator[Entry]:
        """The same entries by reading all records; memory grows with those that match."""
        build, read = self._index(live).keys.build, live.reader.read
        found: list[Entry] = []
        after = b""
        while page := self._ask(live, lambda c, at=after: live.records.scan_page(c, at)):
            for key, value in page:
                record = read(key, value)
                full_key = build(record)
                if _is_within(full_key, *bounds):
                    found.append((full_key, key, record))
            after = page[-1][0]
        found.sort(key=lambda entry: entry[:2], reverse=descending)
        yield from found

    def _ask(self, live: LiveTable, question: Any) -> Any:
        """One page; raises `_Moved` if it was not read under what is known to be in force."""
        moved, page = self._session.ask(live, lambda c, t: question(c) if t is live else (None, ()))
        if moved is not live:
            raise _Moved
        return page


def _is_same(field: Field, found: Any, wanted: Any) -> bool:
    if found is None or wanted is None:
        return found is wanted
    return field.type.is_same(found, wanted)


def _as_tuple(bound: Any) -> tuple[Any, ...] | None:
    if bound is None or isinstance(bound, tuple):
        return bound
    return (bound,)


def _is_within(key: bytes, lower: bytes | None, upper: bytes | None) -> bool:
    return (lower is None or key >= lower) and (upper is None or key < upper)
