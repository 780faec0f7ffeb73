"""Reading what a plan says: spans of a path, filtered, in the order of the query.

Pages are read as lookups and scans read them: each is a snapshot of its own unless all of it runs
inside `db.snapshot()` or `db.transaction()`, and what is in force may change between two of them.

A plan is made for what this process knows to be in force. Whether that is so, the first page tells,
which comes with the activation number (rule 8): if it is not, all begins again with another plan.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, groupby, islice
from operator import itemgetter
from typing import Final

from zapdb.database.cursors import Place
from zapdb.database.lookup import IndexLookup, Read, page_sizes
from zapdb.database.racing import Look, race
from zapdb.database.session import Session
from zapdb.database.write_back import write_back_page
from zapdb.errors import CatalogChanged, TransactionConflict
from zapdb.indexes import KeyBuilder, LiveTable, Search, build_keys, make_reader, successor
from zapdb.indexes.choosing import Union
from zapdb.indexes.keys import INVERTED, NULL
from zapdb.indexes.live import NOT_STORED
from zapdb.indexes.ordering import TotalOrder
from zapdb.indexes.planning import Plan
from zapdb.indexes.predicates import EVERYTHING, comparisons_in, compile_predicate, find_field
from zapdb.indexes.spans import Span
from zapdb.limits import READ
from zapdb.records import Record, decoder_of
from zapdb.schema import Field, Index, Table
from zapdb.storage.retries import retry

NULL_LAST: Final = b"\x02"
"""A null in the key of an order in which it comes last: behind `PRESENT`."""

Found = tuple[bytes, Record]
"""A record with its key."""

MakePlan = Callable[[LiveTable], Plan | Union]
"""The plan of a query, for a table as it is in force."""

MakeRival = Callable[[LiveTable], Plan | None]
"""A plan that has nothing to sort, for a query whose plan has; None where there is none."""


@dataclass(slots=True)
class Beginning:
    """Whether a first page was read yet, by any of the plans that are read together."""

    is_over: bool = False

    def refuse_change(self) -> None:
        """What is in force is not what the plan was made for: raises `CatalogChanged` if no page
        was read by it yet, so that it can be made anew."""
        if not self.is_over:
            raise CatalogChanged("the schema changed before the first page of a query was read")


class Lens:
    """The filter and the order of a plan for a table as it is now: its fields may be renamed.

    With `fields`, the numbers of those that are asked for, records have these alone, and what the
    plan itself looks at: the others are not decoded.
    """

    def __init__(
        self,
        plan: Plan,
        live: LiveTable,
        fields: frozenset[int] | None = None,
        beginning: Beginning | None = None,
    ) -> None:
        self.plan = plan
        self.beginning = beginning or Beginning(is_over=True)
        self._fields = None if fields is None else fields | fields_of(plan)
        self._reader: tuple[LiveTable, Read] | None = None
        self.turn(live)

    def turn(self, live: LiveTable) -> None:
        """To the table as it is now, under way.

        Raises `UnknownName`, `InvalidValue` where it has changed too much.
        """
        self.live, where = live, self.plan.filter
        self.matches = None if where == EVERYTHING else compile_predicate(where, live.shape.table)
        self._build: Callable[[Record], bytes] | None = None

    def reader_of(self, live: LiveTable) -> Read:
        """How records are read in a shape of the table."""
        if self._fields is None:
            return live.shape.reader.read
        if self._reader is None or self._reader[0] is not live:
            shape, view = live.shape, live.view
            decode = decoder_of(shape.table, self._fields, view.zones)
            reader = make_reader(live.storage, view, live.state, shape.position, NOT_STORED, decode)
            self._reader = (live, reader.read)
        return self._reader[1]

    @property
    def build(self) -> Callable[[Record], bytes]:
        """record → its key in the order; compiled at its first use: many queries need none."""
        if self._build is None:
            self._build = _build_order(self.live.shape.table, self.plan.order)
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


def _build_order(table: Table, order: TotalOrder) -> Callable[[Record], bytes]:
    if not order.fields:
        return lambda record: b""
    if not any(field.nulls_last for field in order.fields):
        return build_keys(table, order.index).build
    parts = [
        (build_keys(table, Index(0, "order", (component,))).build, field.nulls_last)
        for field, component in zip(order.fields, order.index.components, strict=True)
    ]

    def build(record: Record) -> bytes:
        key = b""
        for build_part, nulls_last in parts:
            part = build_part(record)
            key += NULL_LAST if nulls_last and part == NULL else part
        return key

    return build


def fields_of(plan: Plan) -> frozenset[int]:
    """The numbers of the fields that reading a plan looks at."""
    filtered = (comparison.field for comparison in comparisons_in(plan.filter))
    ordered = (order.field for order in plan.order.fields)
    return frozenset(chain(filtered, ordered, (c.field for c in plan.path.components)))


class Reading:
    """The records that a query means, as they are read now: see `read`."""

    def __init__(
        self,
        session: Session,
        live: LiveTable,
        make_plan: MakePlan,
        fields: frozenset[int] | None = None,
        make_rival: MakeRival = lambda _: None,
    ) -> None:
        self._session = session
        self._make_plan = make_plan
        self._make_rival = make_rival
        self._fields = fields
        self._turn(live)

    def _turn(self, live: LiveTable) -> None:
        self.live = live
        self.plan = plan = self._make_plan(live)
        self._beginning = Beginning()
        self._lenses = [self._make_lens(branch) for branch in plan.branches]

    def _make_lens(self, plan: Plan) -> Lens:
        return Lens(plan, self.live, self._fields, self._beginning)

    def place(self, found: Found) -> Place:
        """The place of a record in the order."""
        return self._lenses[-1].place(found)

    def name_of(self, field: Field) -> str:
        """The name that a field has in the records that were read last."""
        table = self._lenses[-1].live.shape.table
        return find_field(table, field.number, field.name).name

    def read(self, *, limit: int | None = None, behind: Place | None = None) -> Iterator[Found]:
        """The records in order: those behind a place, up to a number. The first page is read here.

        As many entries are read as records are asked for, where nothing is filtered or sorted.
        """
        if limit == 0:
            return iter(())

        def read_first() -> Iterator[Found]:
            found = self._read(limit, behind)  # sorting reads already
            first = next(found, None)
            return iter(()) if first is None else chain((first,), found)

        def plan_anew(_: int) -> None:
            self._turn(self._session.find_again(self.live))

        return retry(READ, read_first, on=CatalogChanged, before_again=plan_anew)

    def _read(self, limit: int | None, behind: Place | None) -> Iterator[Found]:
        plan = self.plan
        if plan.sorting == "all" and limit is not None:
            rival = self._make_rival(self.live)
            if rival is not None:
                return self._race(self._make_lens(rival), limit, behind)
        wanted = limit if plan.sorting != "all" else None
        if wanted is not None and behind is not None:
            wanted += 1  # the record at the place is read again
        streams = [self._read_branch(lens, wanted, behind) for lens in self._lenses]
        if plan.sorting == "all":
            keyed = chain.from_iterable(streams)
            if limit is None:
                ordered = sorted(keyed, key=itemgetter(0))
            else:
                ordered = heapq.nsmallest(limit, keyed, key=itemgetter(0))
            return (found for _, found in ordered)
        if self._is_merged:
            found = (one for _, one in heapq.merge(*streams, key=itemgetter(0)))
        else:
            found = (one for stream in streams for _, one in stream)
        return found if limit is None else islice(found, limit)

    def _race(self, rival: Lens, limit: int, behind: Place | None) -> Iterator[Found]:
        unordered = chain.from_iterable(self._look(lens, behind) for lens in self._lenses)
        return iter(race(unordered, self._look(rival, behind), limit))

    def _look(self, lens: Lens, behind: Place | None) -> Iterator[Look[Found]]:
        """The records in the spans of a plan: those that are meant, behind a place, come after
        their places in the order, and for others None."""
        start = b"" if behind is None else lens.position(behind)
        for found in read_spans(self._session, lens, behind):
            if lens.matches is not None and not lens.matches(found[1]):
                yield None
                continue
            place = lens.sort_key(found)
            yield (place, found) if place > start else None

    @property
    def _is_merged(self) -> bool:
        return isinstance(self.plan, Union) and self.plan.is_merged

    def _read_branch(
        self, lens: Lens, wanted: int | None, behind: Place | None
    ) -> Iterator[tuple[bytes, Found]]:
        """The records of one branch, each after its place in the order, where that is needed."""
        plan, found = self.plan, _filter(self._session, lens, behind, wanted)
        if plan.sorting != "all" and lens.plan.sorting == "ties":
            found = _sort_ties(found, lens)
        if behind is not None:
            start = lens.position(behind)
            return ((k, one) for one in found if (k := lens.sort_key(one)) > start)
        if plan.sorting == "all" or self._is_merged:
            return ((lens.sort_key(one), one) for one in found)
        return ((b"", one) for one in found)


def _sort_ties(found: Iterator[Found], lens: Lens) -> Iterator[Found]:
    for _, run in groupby(found, key=lens.order_key):
        yield from sorted(run, key=lens.tie_key)


def _filter(
    session: Session, lens: Lens, behind: Place | None, wanted: int | None
) -> Iterator[Found]:
    # What is filtered out is not counted: how many entries are needed is not known then.
    entries = read_spans(session, lens, behind, None if lens.matches else wanted)
    for found in entries:
        matches = lens.matches
        if matches is None or matches(found[1]):
            yield found


def read_spans(
    session: Session, lens: Lens, behind: Place | None = None, wanted: int | None = None
) -> Iterator[Found]:
    """All records in the spans, whether the rest of the plan is true of them or not."""
    read = _read_by_key if lens.plan.path.keys is None else _read_by_index
    return read(session, lens, behind, wanted)


def _read_by_key(
    session: Session, lens: Lens, behind: Place | None, wanted: int | None
) -> Iterator[Found]:
    plan = lens.plan
    is_reversed, spans = plan.order.is_reversed, plan.spans
    if behind is not None and plan.sorting == "none":
        spans = _cut_spans(spans, behind.record_key, is_reversed=is_reversed)
    read, at = lens.reader_of(lens.live), lens.live
    for span in reversed(spans) if is_reversed else spans:
        lower, upper = span.lower, span.upper
        for limit in page_sizes(wanted):
            live, page = session.ask(
                lens.live,
                lambda c, t, low=lower, up=upper, n=limit: t.records.range_page(  # type: ignore[misc]  # mypy knows no defaults of a lambda
                    c, low, up, n, descending=is_reversed
                ),
            )
            if live is not lens.live:
                lens.beginning.refuse_change()
                lens.turn(live)
            lens.beginning.is_over = True
            write_back_page(session, live, page)
            if live is not at:
                read, at = lens.reader_of(live), live
            for key, value in page:
                yield key, read(key, value)
            if len(page) < limit:
                break
            if is_reversed:
                upper = page[-1][0]
            else:
                lower = page[-1][0] + b"\x00"


def _read_by_index(
    session: Session, lens: Lens, behind: Place | None, wanted: int | None
) -> Iterator[Found]:
    plan = lens.plan
    known, order = plan.path.keys, plan.order
    assert known is not None
    if session.find_again(lens.live) is not lens.live:
        lens.beginning.refuse_change()
    lookup, spans, last = IndexLookup(session, lens.live, known.index.name), plan.spans, None
    key = None if behind is None else _find_key(order, behind)
    if behind is not None and key is not None:
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

        entries = lookup.walk(
            search,
            descending=order.is_reversed,
            last=last,
            wanted=wanted,
            reader_of=lens.reader_of,
            on_change=lens.beginning.refuse_change,
        )
        for _, key, record in entries:
            lens.beginning.is_over = True
            if lookup.live is not lens.live:
                lens.turn(lookup.live)
            yield key, record
        lens.beginning.is_over = True


def _find_key(order: TotalOrder, behind: Place) -> bytes | None:
    """What full keys of the path begin with that are not before a place; None: that of any may."""
    if order.lead is None:
        return None
    way = behind.order_key
    if order.is_of_nulls:
        if not way.startswith(NULL_LAST):
            return None
        way = NULL + way[len(NULL_LAST) :]
    return order.lead + (way.translate(INVERTED) if order.is_reversed else way)


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
