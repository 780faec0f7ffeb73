"""Reading the spans of a plan, page by page: the one loop that all queries read by.

Each page is a snapshot of its own unless all of it runs inside `db.snapshot()` or
`db.transaction()`, and shows what this process writes meanwhile as `iteration` says. The active
schema may change between two pages. Reading then continues after the last record that it returned,
by the entries of the index or by a scan, whichever is possible now. If the keys themselves are made
differently from then on, it raises an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from itertools import chain, dropwhile
from operator import itemgetter
from typing import Protocol

from zapdb.errors import CatalogChanged
from zapdb.limits import PAGE_RECORDS_FIRST, PAGE_RECORDS_GROWTH, PAGE_RECORDS_MAX, READ
from zapdb.records import PagedRow, PagedRows
from zapdb.storage import Connection
from zapdb.storage.retries import attempts
from zapdb.tables.dataset_warnings import warn
from zapdb.tables.indexes import BoundTable, IndexMaintainer, is_truncated, prefix_end
from zapdb.tables.indexes.keys import INVERTED, NULL
from zapdb.tables.indexes.ordering import TotalOrder
from zapdb.tables.indexes.path_planning import QueryPlan
from zapdb.tables.indexes.predicates import Predicate, compile_predicate
from zapdb.tables.indexes.spans import Span, Ties
from zapdb.tables.iteration import Owed, Taken
from zapdb.tables.queries.bound_plan import (
    NULL_LAST,
    BoundPlan,
    CheckedPage,
    Found,
    FoundPage,
    Watched,
)
from zapdb.tables.queries.cursors import QueryPlace
from zapdb.tables.session import Session, changed_while_read
from zapdb.tables.write_back import write_back_page

Last = tuple[bytes, bytes] | None
"""The full index key and the record key of the record that was read last."""


class SpanSource(Protocol):
    """The stored rows of one span, in the order of their keys on the path."""

    def page(self, connection: Connection, after: Last, limit: int) -> tuple[int | None, PagedRows]:
        """Return the catalog version, and at most `limit` rows after a row, as they are stored."""

    def in_full_key_order(self, page: PagedRows, *, is_last: bool) -> PagedRows:
        """Return the rows of pages so far that are known to come next, with their full keys."""


def read_spans(
    session: Session,
    bound_plan: BoundPlan,
    behind: QueryPlace | None = None,
    expected: int | None = None,
) -> Iterator[FoundPage]:
    """Yield all records in the spans of a plan in the order of its path, page by page, whether or
    not they match the rest of the plan. Those of a page are decoded as they are taken.

    `expected` is how many records the caller is expected to take, None if unknown: about this many
    are read. Some records that are not after the place may come, too.
    """
    spans, last = _find_start(bound_plan.plan, behind)
    ordered = reversed(spans) if bound_plan.plan.order.is_reversed else spans
    pages = [read_span(session, bound_plan, span, last, expected) for span in ordered]
    return pages[0] if len(pages) == 1 else chain.from_iterable(pages)


def read_span(
    session: Session, bound_plan: BoundPlan, span: Span, last: Last, expected: int | None
) -> Iterator[FoundPage]:
    """Read one span behind `last`. If the schema changes meanwhile, it is read on from there by the
    new one."""
    descending = bound_plan.plan.order.is_reversed
    tries: Iterator[int] | None = None
    while True:
        is_up_to = _is_up_to(last, descending)
        try:
            source, after = _open_source(bound_plan, _remainder(span, last, descending), last)
            limit = first_page_size(None if isinstance(source, _Scanned) else expected)
            while True:
                page = _read_page(session, bound_plan, source, after, limit)
                rows = source.in_full_key_order(page, is_last=len(page) < limit)
                if is_up_to is not None:
                    rows = list(dropwhile(is_up_to, rows))
                if rows:
                    last, tries = rows[-1][:2], None
                watched = bound_plan.watched
                if watched is not None:
                    yield from _take(session, bound_plan, watched, span, rows, len(page) < limit)
                elif rows:
                    yield bound_plan.read(rows)
                if len(page) < limit:
                    return
                after, limit = page[-1][:2], next_page_size(limit)
        except CatalogChanged:
            pass
        session.reload()
        bound_plan.first_page.require_unread()
        tries = tries or attempts(READ)
        if next(tries, None) is None:
            raise changed_while_read(bound_plan.bound)
        with nullcontext() if bound_plan.watched is None else bound_plan.watched.iteration.lock:
            bound_plan.bind(session.rebind(bound_plan.bound))


def _take(
    session: Session,
    bound_plan: BoundPlan,
    watched: Watched,
    span: Span,
    rows: PagedRows,
    is_last: bool,
) -> Iterator[FoundPage]:
    """Yield the records of rows, as an iteration has them that is told of its process's writes."""
    iteration, number, predicate = watched
    for taken in iteration.take_all(number, span, rows, is_last=is_last):
        if taken.owed:
            yield _merge(session, bound_plan, predicate, taken)
        elif taken.rows and iteration.is_inside and bound_plan.bound.archives.is_used:
            yield [*bound_plan.read(taken.rows)]  # a write may change archived values, too
        elif taken.rows:
            yield bound_plan.read(taken.rows)


def _merge(
    session: Session, bound_plan: BoundPlan, predicate: Predicate, taken: Taken
) -> CheckedPage:
    """Return the records of rows that match, and those that were moved, at their places."""
    assert bound_plan.watched is not None
    if bound_plan.watched.iteration.is_inside:
        moved = [(one, bound_plan.read_at(one)) for one in taken.owed]
    else:
        moved = _read_now(session, bound_plan, predicate, taken.owed)
    at = {row[1]: row[0] for row in taken.rows}
    found = [(at[one[0]], one) for one in bound_plan.filter(bound_plan.read(taken.rows))]
    found += [(owed.path_key, one) for owed, one in moved]
    found.sort(key=lambda one: (one[0], one[1][0]), reverse=bound_plan.is_reversed)
    return CheckedPage(one for _, one in found)


def _read_now(
    session: Session, bound_plan: BoundPlan, predicate: Predicate, owed: list[Owed]
) -> list[tuple[Owed, Found]]:
    """Return the records that are still there and match the whole query, as they are now."""
    keys = [one.key for one in owed]
    bound, stored = session.read_active(
        bound_plan.bound, lambda connection, now: now.records.find_many(connection, keys)
    )
    matches, read = compile_predicate(predicate, bound.adapter.schema), bound.adapter.reader.read
    found = [(one, (one.key, read(one.key, stored[one.key]))) for one in owed if one.key in stored]
    found = [one for one in found if matches(one[1][1])]
    if bound_plan.is_merged:
        for one, _ in found:
            bound_plan.moved[one.key] = bound_plan.sort_key(bound_plan.read_at(one))
    return found


def _is_up_to(last: Last, descending: bool) -> Callable[[PagedRow], bool] | None:
    if last is None:
        return None
    if descending:
        return lambda row: row[:2] >= last
    return lambda row: row[:2] <= last


def _open_source(bound_plan: BoundPlan, span: Span, last: Last) -> tuple[SpanSource, Last]:
    """Return the source of a span, and the row after which it is read; some rows that are not after
    `last` may come."""
    index = bound_plan.index
    if index is None:
        return _Records(bound_plan, span), last
    if not index.is_readable:
        warn(bound_plan.bound, index)
        return _Scanned(bound_plan, index, span), None
    if last is not None and (index.descriptor.index.unique or is_truncated(last[0])):
        last = None  # its entry has another key
    return _Entries(bound_plan, index, span), last


class _Records:
    """Records by their own keys."""

    def __init__(self, bound_plan: BoundPlan, span: Span) -> None:
        self._plan, self._span = bound_plan, span

    def page(self, connection: Connection, after: Last, limit: int) -> tuple[int | None, PagedRows]:
        span, descending = self._span, self._plan.plan.order.is_reversed
        page = self._plan.bound.records.page
        return page(connection, span.lower, span.upper, after, limit, descending=descending)

    def in_full_key_order(self, page: PagedRows, *, is_last: bool) -> PagedRows:
        return page


class _Entries:
    """The entries of an index. Those with tied keys are stored without an order."""

    def __init__(self, bound_plan: BoundPlan, index: IndexMaintainer, span: Span) -> None:
        self._plan, self._index = bound_plan, index
        unique, self._descending = index.descriptor.index.unique, bound_plan.plan.order.is_reversed
        self._lower, self._upper = span.entry_bounds(unique=unique)
        self._span = span
        self._ties: Ties | None = None

    def page(self, connection: Connection, after: Last, limit: int) -> tuple[int | None, PagedRows]:
        page, lower, upper = self._index.entries.page, self._lower, self._upper
        return page(connection, lower, upper, after, limit, descending=self._descending)

    def in_full_key_order(self, page: PagedRows, *, is_last: bool) -> PagedRows:
        index, is_cut = self._index, self._index.may_be_truncated
        if self._ties is None:
            if not index.may_tie(page):
                return page  # nearly always
            unique = index.descriptor.index.unique
            self._ties = Ties(self._span, unique=unique, descending=self._descending)
        rows = [_with_full_key(self._plan, index, row) if is_cut(row) else row for row in page]
        return self._ties.sort(rows, is_last=is_last)


class _Scanned:
    """What an index would have that can't be read: all records are read. Memory grows with those
    that are in the span."""

    def __init__(self, bound_plan: BoundPlan, index: IndexMaintainer, span: Span) -> None:
        self._plan, self._index, self._span = bound_plan, index, span
        self._found = PagedRows()

    def page(self, connection: Connection, after: Last, limit: int) -> tuple[int | None, PagedRows]:
        page = self._plan.bound.records.page
        return page(connection, None, None, after, limit, descending=False)

    def in_full_key_order(self, page: PagedRows, *, is_last: bool) -> PagedRows:
        rows = (_with_full_key(self._plan, self._index, row) for row in page)
        self._found += [row for row in rows if self._span.holds(row[0])]
        if not is_last:
            return []
        return sorted(self._found, key=itemgetter(0, 1), reverse=self._plan.plan.order.is_reversed)


def _with_full_key(bound_plan: BoundPlan, index: IndexMaintainer, row: PagedRow) -> PagedRow:
    _, key, value = row
    return index.keys.build(bound_plan.read_one(key, value)), key, value


def _read_page(
    session: Session, bound_plan: BoundPlan, source: SpanSource, after: Last, limit: int
) -> PagedRows:
    """Raises `CatalogChanged` for a page that was read under another schema."""
    bound = bound_plan.bound

    def read(connection: Connection, now: BoundTable) -> tuple[int | None, PagedRows]:
        return source.page(connection, after, limit) if now is bound else (None, [])

    now, page = session.read_active(bound, read)
    if now is not bound:
        raise changed_while_read(bound)
    bound_plan.first_page.is_read = True
    if session.writes_back(bound):
        write_back_page(session, bound, ((key, value) for _, key, value in page))
    return page


def page_sizes(expected: int | None) -> Iterator[int]:
    """How many rows to fetch, time after time: few at first, or as many as are expected."""
    size = first_page_size(expected)
    while True:
        yield size
        size = next_page_size(size)


def first_page_size(expected: int | None) -> int:
    """Return how many rows are fetched first where about so many are expected; None: unknown."""
    if expected is None:
        return PAGE_RECORDS_FIRST
    return (expected or 1) if expected < PAGE_RECORDS_MAX else PAGE_RECORDS_MAX


def next_page_size(size: int) -> int:
    """Return how many rows are fetched after a page of this size."""
    return min(max(PAGE_RECORDS_FIRST, size * PAGE_RECORDS_GROWTH), PAGE_RECORDS_MAX)


def _find_start(plan: QueryPlan, behind: QueryPlace | None) -> tuple[tuple[Span, ...], Last]:
    """The spans that may have records behind a place, and the row at that place if the path has the
    order of the plan."""
    if behind is None:
        return plan.spans, None
    order = plan.order
    if plan.path.keys is None:
        if plan.sorting != "none":
            return plan.spans, None
        key = behind.record_key
        return _cut_spans(plan.spans, key, is_reversed=order.is_reversed), (key, key)
    found = _find_key(order, behind)
    if found is None:
        return plan.spans, None
    spans = _cut_spans(plan.spans, found, is_reversed=order.is_reversed)
    return spans, (found, behind.record_key) if order.is_full else None


def _find_key(order: TotalOrder, behind: QueryPlace) -> bytes | None:
    """What full keys of the path begin with that are not before a place; None: that of any may."""
    if order.lead is None:
        return None
    order_key = behind.order_key
    if order.is_of_nulls:
        if not order_key.startswith(NULL_LAST):
            return None
        order_key = NULL + order_key[len(NULL_LAST) :]
    return order.lead + (order_key.translate(INVERTED) if order.is_reversed else order_key)


def _cut_spans(spans: tuple[Span, ...], key: bytes, *, is_reversed: bool) -> tuple[Span, ...]:
    """Return the rest of spans from a key on, in the direction of reading, with that key."""
    left = (_remainder(span, (key, b""), is_reversed) for span in spans)
    return tuple(s for s in left if s.lower is None or s.upper is None or s.lower < s.upper)


def _remainder(span: Span, last: Last, descending: bool) -> Span:
    """Return the rest of a span from a row's full key on; that key is read again."""
    if last is None:
        return span
    if not descending:
        return Span(last[0] if span.lower is None else max(span.lower, last[0]), span.upper)
    end = prefix_end(last[0])  # no other full key begins with it
    if end is None or (span.upper is not None and span.upper < end):
        return span
    return Span(span.lower, end)
