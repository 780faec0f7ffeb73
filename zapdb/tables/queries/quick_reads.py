"""Quick reads: the first page of a query in one statement, which nearly always is all of it.

A query has a quick read if one path has its records in order and leaves nothing to sort, and
nothing to compare but what its keys leave open, as collated ones do. Whether it has depends on its
shape alone, so the answer is kept with the table, for one catalog version; so does whether an index
is being rewritten. Wherever anything is not as usual (another catalog version, several ranges,
truncated keys), there is no quick read, and `PlanExecution` reads the query in full.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import Any

from zapdb.records import PagedRows
from zapdb.storage import Connection, MissingTable
from zapdb.tables.indexes import BoundTable, IndexMaintainer
from zapdb.tables.indexes.choosing import shape_of
from zapdb.tables.indexes.keys import UNIQUE_ORDERED_SIZE_BYTES, KeyBuilder
from zapdb.tables.indexes.path_planning import PathFit
from zapdb.tables.indexes.predicates import And, Comparison, Predicate, compile_predicate
from zapdb.tables.indexes.spans import Span, bind_match
from zapdb.tables.iteration import is_inside_writing
from zapdb.tables.queries.bound_plan import BoundPlan, Found, FoundPage, find_index, watch
from zapdb.tables.queries.paging import first_page_size, next_page_size, read_span
from zapdb.tables.queries.selection import Selection
from zapdb.tables.session import Session
from zapdb.tables.write_back import write_back_page


@dataclass(frozen=True, slots=True)
class QuickRead:
    """How all queries of one shape are read, of a table at one catalog version."""

    bound: BoundTable
    fit: PathFit
    size: int
    """Of the first page."""
    index: IndexMaintainer | None = None
    """None: the table is read by its keys."""
    points: tuple[tuple[int, Callable[[Any], bytes]], ...] = ()
    """The places of the equalities that fix the whole key of an index's entries, and what encodes
    their values; empty if the query is not of that shape."""
    key_sql: str = ""
    """The statement for the first page of the entries with such a key."""

    def find_span(self, parts: Sequence[Predicate]) -> Span | None:
        """Return the only range of keys that a query of the shape reads; None if it has several, or
        keys may be truncated."""
        spans, rechecked, _ = bind_match(self.fit.path, self.fit.match, parts, 0)
        if len(spans) != 1 or len(rechecked) != len(self.fit.match.inexact):
            return None
        return spans[0]

    def find_matching(self, parts: Sequence[Predicate], page: FoundPage) -> FoundPage:
        """Return the records of a page for which is true what keys leave open."""
        inexact = self.fit.match.inexact
        if not inexact:
            return page
        rechecked = And(tuple([parts[place] for place in inexact]))
        matches = compile_predicate(rechecked, self.bound.adapter.schema)
        return (found for found in page if matches(found[1]))

    def read(self, session: Session, parts: Sequence[Any]) -> PagedRows | None:
        """Return the first rows; None if the query has no quick read."""
        connection = session.idle_connection()
        if connection is None:
            # In a transaction or a snapshot, which may know another catalog version.
            return session.read_active(self.bound, partial(self._fetch_active, parts))[1]
        try:
            page = self.fetch(connection, parts)
        except MissingTable:  # of an index that was built again
            return None
        return page[1] if page is not None and page[0] == self.bound.catalog.version else None

    def _fetch_active(
        self, parts: Sequence[Any], connection: Connection, now: BoundTable
    ) -> tuple[int | None, PagedRows | None]:
        page = self.fetch(connection, parts) if now is self.bound else None
        return (None, None) if page is None else page

    def fetch(self, connection: Connection, parts: Sequence[Any]) -> tuple[int, PagedRows] | None:
        """Return the catalog version and the first rows; None if the query has no quick read, or if
        keys may be truncated."""
        index = self.index
        if index is not None and self.points:
            key = b"".join([encode(parts[place].value) for place, encode in self.points])
            if len(key) <= UNIQUE_ORDERED_SIZE_BYTES:
                return index.entries.fetch_page(connection, self.key_sql, (key,))
        span = self.find_span(parts)
        if span is None:
            return None
        size, descending = self.size, self.fit.order.is_reversed
        if index is None:
            page = self.bound.records.page
            return page(connection, span.lower, span.upper, None, size, descending=descending)
        lower, upper = span.entry_bounds(unique=index.entries.unique)
        found = index.entries.page(connection, lower, upper, None, size, descending=descending)
        return None if index.may_tie(found[1]) else found

    def read_behind(
        self, session: Session, predicate: And, rows: PagedRows, commits: int
    ) -> Iterator[FoundPage] | None:
        """Return the pages behind the first one; None if this process commits writes, or has since
        there were so many `commits`: the first page may not have seen them."""
        bound_plan = BoundPlan(self.fit.bind(predicate.parts), self.bound)
        bound_plan.reached = last = rows[-1][:2]
        if watch(session, [bound_plan], predicate, commits):
            return None
        (span,) = bound_plan.plan.spans
        pages = read_span(session, bound_plan, span, last, next_page_size(self.size))
        return map(bound_plan.filter, pages)


def read_quickly(
    session: Session, bound: BoundTable, selection: Selection, limit: int | None
) -> Iterator[Found] | None:
    """Return the records of a query with their keys, up to a limit; the first page is read here.
    None: there is no quick read."""
    parts, size = selection.predicate.parts, first_page_size(limit)
    commits = session.storage.own_writes.commits
    quick = _find_quick_read(bound, selection, size)
    rows = None if quick is None else quick.read(session, parts)
    if quick is None or rows is None:
        return None
    if session.writes_back(bound):
        write_back_page(session, bound, ((key, value) for _, key, value in rows))
    found = quick.find_matching(parts, bound.adapter.reader.read_many(rows))
    if session.sees_writes and bound.archives.is_used and is_inside_writing(session):
        found = iter([*found])  # a write may change archived values, too
    is_all = size == limit and not quick.fit.match.inexact
    if len(rows) < size or is_all:
        return iter(found)
    behind = quick.read_behind(session, selection.predicate, rows, commits)
    if behind is None:
        return None
    records = chain.from_iterable(chain((found,), behind))
    return records if limit is None else islice(records, limit)


def _find_quick_read(bound: BoundTable, selection: Selection, size: int) -> QuickRead | None:
    shape = shape_of(selection.predicate.parts)
    if shape is None:
        return None
    kept = bound.adapter.quick_reads
    key = (shape, selection.orders, selection.is_reversed, selection.pinned, size)
    known = kept.find(key)
    if known is None:
        known = kept.put(key, _make_quick_read(bound, selection, size) or False)
    return known or None


def _make_quick_read(bound: BoundTable, selection: Selection, size: int) -> QuickRead | None:
    parts = selection.predicate.parts
    fit = selection.planner(bound).fit(parts, selection.ordering(bound))
    if fit is None or fit.left or fit.sorting != "none" or bound.adapter.rewritten:
        return None
    if any(isinstance(part, Comparison) and part.op == "in" for part in parts):
        return None
    keys = fit.path.keys
    if keys is None:
        return QuickRead(bound, fit, size)
    index = find_index(bound, keys.index.number, keys.index.name)
    key_sql = index.entries.make_key_sql(size, descending=fit.order.is_reversed)
    return QuickRead(bound, fit, size, index, _find_points(fit, parts, keys), key_sql)


def _find_points(
    fit: PathFit, parts: Sequence[Predicate], keys: KeyBuilder
) -> tuple[tuple[int, Callable[[Any], bytes]], ...]:
    fixed = fit.match.fixed
    if len(fixed) < len(keys.fields) or not all(one.is_exact for one in fixed):
        return ()
    # An entry of a unique index with a null has its record's key behind that of the index.
    values = [part.value for part in parts if isinstance(part, Comparison)]
    if keys.index.unique and None in [v for v in values if v is None]:
        return ()
    return tuple((one.place, keys.encoder(at)) for at, one in enumerate(fixed))
