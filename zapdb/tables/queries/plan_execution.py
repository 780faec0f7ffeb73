"""Reading what a plan says: spans of its paths, filtered, in the order of the query.

Each page is a snapshot of its own unless all of it runs inside `db.snapshot()` or
`db.transaction()`.

A plan is made for what this process knows to be active. Whether that is so, the first page tells,
which comes with the catalog version (rule 8): if it is not, all begins again with another plan.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, groupby, islice
from operator import itemgetter
from typing import Any, TypeVar

from zapdb.errors import CatalogChanged
from zapdb.limits import RACE_HEAD_START_RECORDS, RACE_TURN_RECORDS, READ
from zapdb.schema import Field
from zapdb.storage.retries import retry
from zapdb.tables.indexes import BoundTable
from zapdb.tables.indexes.choosing import UnionPlan
from zapdb.tables.indexes.path_planning import QueryPlan
from zapdb.tables.indexes.predicates import find_field
from zapdb.tables.queries.bound_plan import BoundPlan, CheckedPage, FirstPage, Found, watch
from zapdb.tables.queries.cursors import QueryPlace
from zapdb.tables.queries.paging import read_spans
from zapdb.tables.queries.selection import Planning
from zapdb.tables.session import Session


class PlanExecution:
    """The records that a query means, as they are read now: see `read`."""

    def __init__(
        self,
        session: Session,
        bound: BoundTable,
        planning: Planning,
        fields: frozenset[int] | None = None,
        *,
        is_watched: bool = True,
    ) -> None:
        """`is_watched` says that this process may write while it is read."""
        self._session = session
        self._planning = planning
        self._fields = fields
        self._is_watched = is_watched
        self._plan(bound)

    def _plan(self, bound: BoundTable) -> None:
        self.bound = bound
        self.plan = plan = self._planning.plan(bound)
        self._first_page = FirstPage()
        self._bound_plans = [self._bind(branch) for branch in plan.branches]
        for bound_plan in self._bound_plans:
            bound_plan.is_merged = self._is_merged

    def _bind(self, plan: QueryPlan) -> BoundPlan:
        return BoundPlan(plan, self.bound, self._fields, self._first_page)

    def place(self, found: Found) -> QueryPlace:
        """The place of a record in the order."""
        return self._bound_plans[-1].place(found)

    def name_of(self, field: Field) -> str:
        """Return the name that a field has in the records that were read last."""
        table = self._bound_plans[-1].bound.adapter.schema
        return find_field(table, field.number, field.name).name

    def read(
        self, *, limit: int | None = None, behind: QueryPlace | None = None
    ) -> Iterator[Found]:
        """Return the records in order, after a place and up to a limit. The first page is read
        here.

        If nothing is filtered or sorted, as many entries are read as records are requested.
        """
        if limit == 0:
            return iter(())

        read = partial(self._begin, limit, behind)
        found = retry(READ, read, on=CatalogChanged, before_again=self._plan_anew)
        self._planning.warn(self.bound)
        return found

    def _begin(self, limit: int | None, behind: QueryPlace | None) -> Iterator[Found]:
        found = self._read(limit, behind)  # sorting reads already
        first = next(found, None)
        return iter(()) if first is None else chain((first,), found)

    def _plan_anew(self, _: int) -> None:
        self._plan(self._session.rebind(self.bound))

    def _read(self, limit: int | None, behind: QueryPlace | None) -> Iterator[Found]:
        if self._is_watched:
            watch(self._session, self._bound_plans, self._planning.asked.predicate)
        if self.plan.sorting != "all":
            found = self._read_in_order(limit, behind)
            if len(self._bound_plans) > 1:
                found = _holding(self._bound_plans, found)
            return found if limit is None else islice(found, limit)
        if limit is not None:
            alternative = self._planning.plan_in_order(self.bound)
            if alternative is not None:
                in_order = self._bind(alternative)
                if self._is_watched:
                    watch(self._session, [in_order], self._planning.asked.predicate)
                return self._race(in_order, limit, behind)
        streams = [self._read_branch(one, None, behind) for one in self._bound_plans]
        return _sort(chain.from_iterable(streams), limit)

    def _read_in_order(self, expected: int | None, behind: QueryPlace | None) -> Iterator[Found]:
        """Return the records in the order of the plan's paths. It is planned for `expected` ones;
        more may follow."""
        if behind is None and not self._is_merged:
            parts = [_list_found(self._session, one, expected) for one in self._bound_plans]
            return parts[0] if len(parts) == 1 else chain.from_iterable(parts)
        if expected is not None and behind is not None:
            expected += 1  # the record at the place is read again
        streams = [self._read_branch(one, expected, behind) for one in self._bound_plans]
        if self._is_merged:
            return (one for _, one in heapq.merge(*streams, key=itemgetter(0)))
        return (one for stream in streams for _, one in stream)

    def _race(
        self, alternative: BoundPlan, limit: int, behind: QueryPlace | None
    ) -> Iterator[Found]:
        unordered = chain.from_iterable(
            self._list_candidates(bound_plan, behind) for bound_plan in self._bound_plans
        )
        return iter(race(unordered, self._list_candidates(alternative, behind), limit))

    def _list_candidates(
        self, bound_plan: BoundPlan, behind: QueryPlace | None
    ) -> Iterator[Candidate[Found]]:
        """Yield the records in the spans of a plan, each with its place in the order. Yield None
        for a record that does not match, or that is not after `behind`."""
        start = b"" if behind is None else bound_plan.position(behind)
        for page in read_spans(self._session, bound_plan, behind):
            is_checked = isinstance(page, CheckedPage)
            for found in page:
                matches = None if is_checked else bound_plan.matches
                if matches is not None and not matches(found[1]):
                    yield None
                    continue
                place = bound_plan.sort_key(found)
                yield (place, found) if place > start else None

    @property
    def _is_merged(self) -> bool:
        return isinstance(self.plan, UnionPlan) and self.plan.is_merged

    def _read_branch(
        self, bound_plan: BoundPlan, expected: int | None, behind: QueryPlace | None
    ) -> Iterator[tuple[bytes, Found]]:
        """Return the records of one branch, each with its place in the order if that is needed."""
        plan = self.plan
        if plan.sorting == "all":
            found = _filter(self._session, bound_plan, behind, expected)
        else:
            found = _list_found(self._session, bound_plan, expected, behind)
        if behind is not None:
            start = bound_plan.position(behind)
            return ((k, one) for one in found if (k := bound_plan.sort_key(one)) > start)
        if plan.sorting == "all" or self._is_merged:
            return ((bound_plan.sort_key(one), one) for one in found)
        return ((b"", one) for one in found)


def _holding(plans: Sequence[BoundPlan], found: Iterator[Found]) -> Iterator[Found]:
    """Return the records, and hold all plans to the end: an iteration asks each of them where a
    record is that is written, those whose records have all come, too."""
    yield from found


def _sort(keyed: Iterable[tuple[Any, Found]], limit: int | None) -> Iterator[Found]:
    """The records in the order of their sort keys, up to a limit."""
    if limit is None:
        ordered = sorted(keyed, key=itemgetter(0))
    else:
        ordered = heapq.nsmallest(limit, keyed, key=itemgetter(0))
    return (found for _, found in ordered)


def _list_found(
    session: Session,
    bound_plan: BoundPlan,
    expected: int | None,
    behind: QueryPlace | None = None,
) -> Iterator[Found]:
    """The records of one branch in the order of the query, ties included."""
    found = _filter(session, bound_plan, behind, expected)
    return _sort_ties(found, bound_plan) if bound_plan.plan.sorting == "ties" else found


def _sort_ties(found: Iterator[Found], bound_plan: BoundPlan) -> Iterator[Found]:
    for _, run in groupby(found, key=bound_plan.order_key):
        yield from sorted(run, key=bound_plan.tie_key)


def _filter(
    session: Session, bound_plan: BoundPlan, behind: QueryPlace | None, expected: int | None
) -> Iterator[Found]:
    if bound_plan.matches is None:
        return chain.from_iterable(read_spans(session, bound_plan, behind, expected))
    # What is filtered out is not counted: how many entries are needed is not known then.
    pages = read_spans(session, bound_plan, behind)
    # `filter` is looked up for each page: the plan may have been bound again.
    return chain.from_iterable(bound_plan.filter(page) for page in pages)


T = TypeVar("T")

Candidate = tuple[bytes, T] | None
"""A place in the order and a matching record, or None for a record that does not match."""


def race(
    unordered: Iterator[Candidate[T]], in_order: Iterator[Candidate[T]], limit: int
) -> list[T]:
    """The first `limit` records in order, of all that either iterator gives, read in turn.

    One has the matching records in no order: they are all needed, and sorted. The other has all
    records in order: it is done when enough of them matched. Which is shorter depends on how many
    records match, and on their places in the order, which is not known before. Read in turn, they
    cost at most twice what the shorter one does, and no statistics are needed (G. Antoshenkov,
    "Dynamic Query Optimization in Rdb/VMS", ICDE 1993).

    The unordered ones come first, for a few pages: most often there are not many of them.
    """
    known, found = list[tuple[bytes, T]](), list[tuple[bytes, T]]()
    turn = RACE_HEAD_START_RECORDS
    while not _take(unordered, turn, known, None):
        known = heapq.nsmallest(limit, known, key=itemgetter(0))
        if _take(in_order, turn, found, limit):
            return [record for _, record in found]
        turn = RACE_TURN_RECORDS
    return [record for _, record in heapq.nsmallest(limit, known, key=itemgetter(0))]


def _take(
    stream: Iterator[Candidate[T]], count: int, into: list[tuple[bytes, T]], limit: int | None
) -> bool:
    """Take `count` more; return whether the stream has ended, or `limit` records were found."""
    for _ in range(count):
        if len(into) == limit:
            return True
        try:
            look = next(stream)
        except StopIteration:
            return True
        if look is not None:
            into.append(look)
    return len(into) == limit
