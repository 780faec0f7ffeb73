"""Lookups by an index: exact, by range, by prefix, in order.

Values are compared as the index compares them: strings under its collation. Where a search says
that this is not all (an equal sort key is not an equal string), the values themselves are compared,
too. While the index is being built, the same questions are answered by a scan of the table: slower,
and right.

What is in force may change between two pages. A lookup then goes on behind the last record that it
gave out, by the entries or by a scan, whichever is right now; where the keys themselves are made
differently from then on, it can't, and says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

from zapdb.database.rewriting import warn
from zapdb.database.session import Session
from zapdb.database.write_back import write_back_page
from zapdb.errors import TransactionConflict, UsageError
from zapdb.indexes import (
    Entry,
    KeyBuilder,
    LiveIndex,
    LiveTable,
    Search,
    is_cut,
    search_equal,
    search_prefix,
    search_range,
    successor,
)
from zapdb.limits import PAGE_RECORDS_FIRST, PAGE_RECORDS_GROWTH, PAGE_RECORDS_MAX
from zapdb.records import Record

Plan = Callable[[KeyBuilder], Search]
"""A question, ready to be put to the index as it is now."""


Read = Callable[[bytes, bytes], Record]
"""A record of its key and its bytes, whatever their revision."""
ReaderOf = Callable[[LiveTable], Read]
"""How records are read in a shape of the table."""


def read_whole(live: LiveTable) -> Read:
    """All fields, as the application sees them."""
    return live.shape.reader.read


def page_sizes(wanted: int | None) -> Iterator[int]:
    """How many rows to fetch, time after time: few at first, or as many as are wanted."""
    size = PAGE_RECORDS_FIRST if wanted is None else max(wanted, 1)
    while True:
        size = min(size, PAGE_RECORDS_MAX)
        yield size
        size = max(PAGE_RECORDS_FIRST, size * PAGE_RECORDS_GROWTH)


class _Moved(Exception):
    """What is in force changed: the pages so far were right, the next one would not be."""


class IndexLookup:
    """One index of one table."""

    def __init__(self, session: Session, live: LiveTable, name: str) -> None:
        self._session = session
        self._live = live
        self._number = self._named(live, name).descriptor.index.number
        self._name = name

    @property
    def live(self) -> LiveTable:
        """The table in the shape that the last record was read in."""
        return self._live

    @property
    def is_readable(self) -> bool:
        """Whether lookups use the index; until it is built they scan the table."""
        self._live, _ = self._session.ask(
            self._live, lambda c, _: (self._session.read_activation(c), None)
        )
        return self._index(self._live).is_readable

    def _named(self, live: LiveTable, name: str) -> LiveIndex:
        index = live.shape.index(name)
        if index is None:
            raise UsageError("the index was dropped", index=name)
        return index

    def _index(self, live: LiveTable) -> LiveIndex:
        for index in live.shape.indexes:
            if index.descriptor.index.number == self._number:
                return index
        raise UsageError("the index was dropped", index=self._name)

    def find(self, *values: Any) -> Iterator[Record]:
        """Records whose leading index fields are the same as the values, in index order."""
        return self._search(lambda keys: search_equal(keys, values))

    def starts_with(self, *values: Any) -> Iterator[Record]:
        """Records whose strings begin with the last value, as `str.startswith` says; in order.

        The values before it are those of the fields before the string's. An index by code points
        has all such records together and no others between them. Under a collation, what is read
        is what begins with the prefix but for case, accents and the like: shorter by the last
        letters that what follows may turn into others (Czech c into ch). If there are only such
        letters, it is all records that have the values before.
        """
        return self._search(lambda keys: search_prefix(keys, values))

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
        low, high = _as_tuple(lower), _as_tuple(upper)
        found = self._search(
            lambda keys: search_range(keys, low, high, include_upper=include_upper), descending
        )
        return found if limit is None else islice(found, limit)

    def _search(self, plan: Plan, descending: bool = False) -> Iterator[Record]:
        found = self.walk(plan, descending=descending)
        return self._session.guard(record for _, _, record in found)

    def walk(
        self,
        plan: Plan,
        *,
        descending: bool,
        last: tuple[bytes, bytes] | None = None,
        wanted: int | None = None,
        reader_of: ReaderOf = read_whole,
        on_change: Callable[[], None] | None = None,
    ) -> Iterator[Entry]:
        """Records in order, with their full index keys and their own keys: those behind `last`.

        `wanted` is how many will be asked for, if that is known: about so many are read. Where what
        is in force has changed since, `on_change` is called before it goes on; it may raise.
        """
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
            search = plan(keys)
            matches = search.matches
            if last is not None:
                search = _go_on(search, last[0], descending)
            try:
                entries = self._entries(live, search, descending, last, wanted, reader_of(live))
                for key, record_key, record in entries:
                    at = (key, record_key)
                    if last is None or (at < last if descending else at > last):
                        last = at
                        if matches is None or matches(record):
                            yield key, record_key, record
                return
            except _Moved:
                self._session.reload()
                if on_change is not None:
                    on_change()

    def _entries(
        self,
        live: LiveTable,
        search: Search,
        descending: bool,
        last: tuple[bytes, bytes] | None,
        wanted: int | None,
        read: Read,
    ) -> Iterator[Entry]:
        """Entries between the bounds, in order of the full key, then of the record's.

        Those up to `last` may be left out.
        """
        index = self._index(live)
        if not index.is_readable:
            warn(live, index)
            yield from self._scan(live, search, descending, read)
            return
        stored = self._stored_entries(live, search, descending, last, wanted, read)
        yield from search.settle(stored, descending=descending)

    def _stored_entries(
        self,
        live: LiveTable,
        search: Search,
        descending: bool,
        last: tuple[bytes, bytes] | None,
        wanted: int | None,
        read: Read,
    ) -> Iterator[Entry]:
        """Whatever lies between the bounds as entries hold them: cut."""
        low, high = search.entry_bounds
        lower = None if low is None else (low, b"")
        after: tuple[bytes, bytes] | None = None
        if last is not None and not search.unique and not is_cut(last[0]):
            after = last  # the entry has the full key
        index = self._index(live)
        for limit in page_sizes(wanted):
            page = self._ask(
                live,
                lambda c, at=after, count=limit: index.entries.page(
                    c, lower, high, at, count, descending=descending
                ),
            )
            write_back_page(self._session, live, ((row[1], row[2]) for row in page))
            for key, record_key, value in page:
                record = read(record_key, value)
                full_key = index.keys.build(record) if index.tells_less(key) else key
                yield full_key, record_key, record
            if len(page) < limit:
                return
            after = (page[-1][0], page[-1][1])

    def _scan(
        self, live: LiveTable, search: Search, descending: bool, read: Read
    ) -> Iterator[Entry]:
        """The same entries by reading all records; memory grows with those that match."""
        build = self._index(live).keys.build
        found: list[Entry] = []
        after = b""
        while page := self._ask(live, lambda c, at=after: live.records.scan_page(c, at)):
            write_back_page(self._session, live, page)
            for key, value in page:
                record = read(key, value)
                full_key = build(record)
                if search.holds(full_key):
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


def _as_tuple(bound: Any) -> tuple[Any, ...] | None:
    if bound is None or isinstance(bound, tuple):
        return bound
    return (bound,)


def _go_on(search: Search, last: bytes, descending: bool) -> Search:
    """What is left of a search behind the full key of the last record; that key is read again."""
    if descending:
        end = successor(last)  # no other full key begins with it
        if end is None or (search.upper is not None and search.upper < end):
            return search
        return replace(search, upper=end)
    return replace(search, lower=last if search.lower is None else max(search.lower, last))
