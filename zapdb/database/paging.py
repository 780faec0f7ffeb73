"""Reading the spans of a plan, page by page: the one loop that all queries read by.

Each page is a snapshot of its own unless all of it runs inside `db.snapshot()` or
`db.transaction()`. The active schema may change between two pages. Reading then continues after the
last record that it returned, by the entries of the index or by a scan, whichever is possible now.
If the keys themselves are made differently from then on, it raises an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import dropwhile

from zapdb.database.bound_plan import NULL_LAST, BoundPlan, Found
from zapdb.database.cursors import QueryPlace
from zapdb.database.dataset_warnings import warn
from zapdb.database.session import Session, changed_while_read
from zapdb.database.write_back import write_back_page
from zapdb.errors import CatalogChanged
from zapdb.indexes import BoundTable, IndexMaintainer, is_truncated, prefix_end
from zapdb.indexes.keys import INVERTED, NULL
from zapdb.indexes.ordering import TotalOrder
from zapdb.indexes.planning import QueryPlan
from zapdb.indexes.spans import Entry, Span, sort_ties
from zapdb.limits import PAGE_RECORDS_FIRST, PAGE_RECORDS_GROWTH, PAGE_RECORDS_MAX, READ
from zapdb.storage import Connection
from zapdb.storage.retries import attempts

PagedRow = tuple[bytes, bytes, bytes]
"""A key on the path, the key of the record, and the stored record."""
Last = tuple[bytes, bytes] | None
"""The full index key and the record key of the record that was read last."""
Fetch = Callable[[Connection, Last, int], tuple[int | None, list[PagedRow]]]
"""(last row, limit) → the catalog version, and one page of at most `limit` rows after that row."""


def read_spans(
    session: Session,
    bound_plan: BoundPlan,
    behind: QueryPlace | None = None,
    expected: int | None = None,
) -> Iterator[Found]:
    """Yield all records in the spans of a plan in the order of its path, whether or not they match
    the rest of the plan.

    `expected` is how many records the caller is expected to take, None if unknown: about this many
    are read. Some records that are not after the place may come, too.
    """
    spans, last = _find_start(bound_plan.plan, behind)
    for span in reversed(spans) if bound_plan.plan.order.is_reversed else spans:
        for _, key, record in _read_span(session, bound_plan, span, last, expected):
            yield key, record


def _read_span(
    session: Session, bound_plan: BoundPlan, span: Span, last: Last, expected: int | None
) -> Iterator[Entry]:
    """The records of one span behind `last`, with their full keys on the path."""
    descending, tries = bound_plan.plan.order.is_reversed, attempts(READ)
    while next(tries, None) is not None:
        bound = session.rebind(bound_plan.bound)
        if bound is not bound_plan.bound:
            bound_plan.first_page.require_unread()
            bound_plan.bind(bound)
        entries = _list_entries(
            session, bound_plan, _remainder(span, last, descending), last, expected
        )
        if last is not None:
            entries = dropwhile(_is_up_to(last, descending), entries)
        found = None
        try:
            for found in entries:
                yield found
            return
        except CatalogChanged:
            if found is not None:
                last, tries = found[:2], attempts(READ)
        session.reload()
        bound_plan.first_page.require_unread()
    raise changed_while_read(bound_plan.bound)


def _is_up_to(last: tuple[bytes, bytes], descending: bool) -> Callable[[Entry], bool]:
    if descending:
        return lambda entry: entry[:2] >= last
    return lambda entry: entry[:2] <= last


def _list_entries(
    session: Session, bound_plan: BoundPlan, span: Span, last: Last, expected: int | None
) -> Iterator[Entry]:
    """Yield the entries of a span in order; some entries that are not after `last` may be left
    out."""
    index, descending = bound_plan.index, bound_plan.plan.order.is_reversed
    if index is None:
        return _list_records(session, bound_plan, span, last, expected)
    if not index.is_readable:
        warn(bound_plan.bound, index)
        return _scan(session, bound_plan, index, span)
    stored = _list_stored(session, bound_plan, index, span, last, expected)
    return sort_ties(stored, span, unique=index.descriptor.index.unique, descending=descending)


def _list_records(
    session: Session, bound_plan: BoundPlan, span: Span, last: Last, expected: int | None
) -> Iterator[Entry]:
    """Records by their own keys."""
    records, read, descending = (
        bound_plan.bound.records,
        bound_plan.read,
        bound_plan.plan.order.is_reversed,
    )

    def fetch(connection: Connection, after: Last, limit: int) -> tuple[int | None, list[PagedRow]]:
        return records.page(connection, span.lower, span.upper, after, limit, descending=descending)

    for page in _list_pages(session, bound_plan, fetch, last, expected):
        for key, record_key, value in page:
            yield key, record_key, read(record_key, value)


def _list_stored(
    session: Session,
    bound_plan: BoundPlan,
    index: IndexMaintainer,
    span: Span,
    last: Last,
    expected: int | None,
) -> Iterator[Entry]:
    """Yield the entries of a span as an index stores them: entries with tied keys are unordered."""
    unique, read, build = index.descriptor.index.unique, bound_plan.read, index.keys.build
    lower, upper = span.entry_bounds(unique=unique)
    if last is not None and (unique or is_truncated(last[0])):
        last = None  # its entry has another key
    descending = bound_plan.plan.order.is_reversed

    def fetch(connection: Connection, after: Last, limit: int) -> tuple[int | None, list[PagedRow]]:
        return index.entries.page(connection, lower, upper, after, limit, descending=descending)

    for page in _list_pages(session, bound_plan, fetch, last, expected):
        for key, record_key, value in page:
            record = read(record_key, value)
            yield build(record) if index.may_be_truncated(key) else key, record_key, record


def _scan(
    session: Session, bound_plan: BoundPlan, index: IndexMaintainer, span: Span
) -> Iterator[Entry]:
    """Yield the entries of a span of an index that can't be read, by reading all records. Memory
    grows with the matching records."""
    build, descending = index.keys.build, bound_plan.plan.order.is_reversed
    records, read, found = bound_plan.bound.records, bound_plan.read, list[Entry]()

    def fetch(connection: Connection, after: Last, limit: int) -> tuple[int | None, list[PagedRow]]:
        return records.page(connection, None, None, after, limit, descending=False)

    for page in _list_pages(session, bound_plan, fetch, None, None):
        for key, _, value in page:
            record = read(key, value)
            full_key = build(record)
            if span.holds(full_key):
                found.append((full_key, key, record))
    found.sort(key=lambda entry: entry[:2], reverse=descending)
    yield from found


def _list_pages(
    session: Session, bound_plan: BoundPlan, fetch: Fetch, after: Last, expected: int | None
) -> Iterator[list[PagedRow]]:
    """Page after page; raises `CatalogChanged` for one that was read under another
    schema."""
    bound = bound_plan.bound
    for limit in page_sizes(expected):

        def read_page(
            connection: Connection, now: BoundTable, after: Last = after, limit: int = limit
        ) -> tuple[int | None, list[PagedRow]]:
            return fetch(connection, after, limit) if now is bound else (None, [])

        now, page = session.read_active(bound, read_page)
        if now is not bound:
            raise changed_while_read(bound)
        bound_plan.first_page.is_read = True
        write_back_page(session, bound, ((key, value) for _, key, value in page))
        yield page
        if len(page) < limit:
            return
        after = page[-1][:2]


def page_sizes(expected: int | None) -> Iterator[int]:
    """How many rows to fetch, time after time: few at first, or as many as are expected."""
    size = PAGE_RECORDS_FIRST if expected is None else max(expected, 1)
    while True:
        size = min(size, PAGE_RECORDS_MAX)
        yield size
        size = max(PAGE_RECORDS_FIRST, size * PAGE_RECORDS_GROWTH)


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
