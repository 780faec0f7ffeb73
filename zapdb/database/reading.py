"""Reading what a plan says: spans of a path, filtered, in the order of the query.

Pages are read as lookups and scans read them: each is a snapshot of its own unless all of it runs
inside `db.snapshot()` or `db.transaction()`, and what is in force may change between two of them.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from itertools import groupby, islice

from zapdb.database.cursors import Place
from zapdb.database.lookup import IndexLookup
from zapdb.database.session import Session
from zapdb.errors import TransactionConflict
from zapdb.indexes import KeyBuilder, LiveTable, Search, build_keys, successor
from zapdb.indexes.keys import INVERTED
from zapdb.indexes.planning import Plan, Span
from zapdb.indexes.predicates import EVERYTHING, compile_predicate
from zapdb.limits import PAGE_RECORDS_FIRST, PAGE_RECORDS_MAX
from zapdb.records import Record

Found = tuple[bytes, Record]
"""A record with its key."""


class Lens:
    """The filter and the order of a plan for a table as it is now: its fields may be renamed."""

    def __init__(self, plan: Plan, live: LiveTable) -> None:
        self.plan = plan
        self.turn(live)

    def turn(self, live: LiveTable) -> None:
        """To the table as it is now.

        Raises `UnknownName`, `InvalidValue` where it has changed too much.
        """
        self.live, where = live, self.plan.filter
        self.matches = None if where == EVERYTHING else compile_predicate(where, live.shape.table)
        self._build: Callable[[Record], bytes] | None = None

    @property
    def build(self) -> Callable[[Record], bytes]:
        """record → its key in the order; compiled at its first use: many queries need none."""
        if self._build is None:
            keys, table = self.plan.order, self.live.shape.table
            self._build = build_keys(table, keys.index).build if keys.fields else _no_key
        return self._build

    def place(self, found: Found) -> Place:
        return Place(self.build(found[1]), found[0])

    def sort_key(self, found: Found) -> bytes:
        """The place in the total order: no order's key is the beginning of another one."""
        return self.position(self.place(found))

    def position(self, place: Place) -> bytes:
        return place.order_key + self._tie(place.record_key)

    def tie_key(self, found: Found) -> bytes:
        return self._tie(found[0])

    def order_key(self, found: Found) -> bytes:
        return self.build(found[1])

    def _tie(self, record_key: bytes) -> bytes:
        return record_key.translate(INVERTED) if self.plan.order.tie_descends else record_key


def _no_key(record: Record) -> bytes:
    return b""


def read_plan(
    session: Session, lens: Lens, *, limit: int | None = None, behind: Place | None = None
) -> Iterator[Found]:
    """The records that the plan means, in order: those behind a place, up to a number."""
    if limit == 0:
        return iter(())
    found = _filter(session, lens, behind)
    if behind is not None:
        start = lens.position(behind)
        found = (one for one in found if lens.sort_key(one) > start)
    if lens.plan.sorting == "ties":
        found = _sort_ties(found, lens)
    elif lens.plan.sorting == "all":
        if limit is None:
            return iter(sorted(found, key=lens.sort_key))
        return iter(heapq.nsmallest(limit, found, key=lens.sort_key))
    return found if limit is None else islice(found, limit)


def _sort_ties(found: Iterator[Found], lens: Lens) -> Iterator[Found]:
    for _, run in groupby(found, key=lens.order_key):
        yield from sorted(run, key=lens.tie_key)


def _filter(session: Session, lens: Lens, behind: Place | None) -> Iterator[Found]:
    read = _read_by_key if lens.plan.path.keys is None else _read_by_index
    for key, record in read(session, lens, behind):
        matches = lens.matches
        if matches is None or matches(record):
            yield key, record


def _read_by_key(session: Session, lens: Lens, behind: Place | None) -> Iterator[Found]:
    plan = lens.plan
    is_reversed, spans = plan.order.is_reversed, plan.spans
    if behind is not None and plan.sorting == "none":
        spans = _cut_spans(spans, behind.record_key, is_reversed=is_reversed)
    for span in reversed(spans) if is_reversed else spans:
        lower, upper, limit = span.lower, span.upper, PAGE_RECORDS_FIRST
        while True:
            live, page = session.ask(
                lens.live,
                lambda c, t, low=lower, up=upper, n=limit: t.records.range_page(  # type: ignore[misc]  # mypy knows no defaults of a lambda
                    c, low, up, n, descending=is_reversed
                ),
            )
            if live is not lens.live:
                lens.turn(live)
            read = live.shape.reader.read
            for key, value in page:
                yield key, read(key, value)
            if len(page) < limit:
                break
            if is_reversed:
                upper = page[-1][0]
            else:
                lower = page[-1][0] + b"\x00"
            limit = PAGE_RECORDS_MAX


def _read_by_index(session: Session, lens: Lens, behind: Place | None) -> Iterator[Found]:
    plan = lens.plan
    known, order = plan.path.keys, plan.order
    assert known is not None
    lookup, spans, last = IndexLookup(session, lens.live, known.index.name), plan.spans, None
    if behind is not None and order.lead is not None:
        way = behind.order_key
        key = order.lead + (way.translate(INVERTED) if order.is_reversed else way)
        spans = _cut_spans(spans, key, is_reversed=order.is_reversed)
        if order.is_full:
            last = (key, behind.record_key)
    for span in reversed(spans) if order.is_reversed else spans:

        def search(keys: KeyBuilder, span: Span = span) -> Search:
            if not keys.is_same_as(known):
                raise TransactionConflict(
                    "the keys of the index changed while it was read",
                    index=keys.index.name,
                    hint="read it again, or inside db.snapshot()",
                )
            return Search(span.lower, span.upper, None, unique=keys.index.unique)

        for _, key, record in lookup.walk(search, descending=order.is_reversed, last=last):
            if lookup.live is not lens.live:
                lens.turn(lookup.live)
            yield key, record


def _cut_spans(spans: tuple[Span, ...], key: bytes, *, is_reversed: bool) -> tuple[Span, ...]:
    """What is left of spans from a key on, in the direction of reading; that key included."""
    left = []
    for span in spans:
        lower, upper = span.lower, span.upper
        if is_reversed:
            end = successor(key)
            upper = upper if end is None or (upper is not None and upper < end) else end
        else:
            lower = key if lower is None else max(lower, key)
        if lower is None or upper is None or lower < upper:
            left.append(Span(lower, upper))
    return tuple(left)
