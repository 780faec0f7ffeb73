"""How a query is answered, as text and as data."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from typing import Any

from zapdb.catalog.range_revisions import RangeRevision, read_range_revisions
from zapdb.limits import ESTIMATE_RECORDS_MAX, ESTIMATE_SAMPLE_RECORDS
from zapdb.storage import Connection
from zapdb.storage.cells import as_number
from zapdb.storage.statements import catalog_version_sql
from zapdb.tables.indexes import BoundTable
from zapdb.tables.indexes.choosing import UnionPlan
from zapdb.tables.indexes.path_planning import QueryPlan
from zapdb.tables.indexes.predicates import EVERYTHING
from zapdb.tables.indexes.sorting import Sorting
from zapdb.tables.indexes.spans import Span
from zapdb.tables.queries.bound_plan import BoundPlan
from zapdb.tables.queries.paging import read_spans
from zapdb.tables.queries.past_ways import PastReading
from zapdb.tables.session import Session

SORTINGS: dict[Sorting, str] = {
    "none": "they come in order",
    "ties": "they come in order but for ties, which are sorted by their keys",
    "all": "all that match are sorted in memory",
}


@dataclass(frozen=True, slots=True)
class Explanation:
    """A plan as text (`str()`) and as data (`to_json()`).

    `index` is None if the table itself is read: all of it if `is_scan`, else by its keys. If
    several indexes answer the query together, it names all of them, and `branches` explains each.
    `unusable_indexes` can't be read now: they are being built, or have other collation or time zone
    data.

    Two numbers are estimated, the same way on all storage engines: `records_read`, how many records
    are read, and `estimated_rows`, how many the query returns. The records in the ranges are
    counted, up to 100,000; beyond that, both numbers are None. If records are compared one by one,
    the first 100 are used as a sample; else both numbers are exact. If nothing needs sorting,
    reading ends at the limit.
    """

    table: str
    index: str | None
    is_scan: bool
    ranges: int
    index_conditions: tuple[str, ...]
    """Conditions that the ranges answer."""
    rechecked: tuple[str, ...]
    """Index conditions that are compared again, because unequal values may have equal keys."""
    residual: tuple[str, ...]
    """Conditions that are compared for each record."""
    order: tuple[str, ...]
    sorting: Sorting
    is_reversed: bool
    limit: int | None
    records_read: int | None
    estimated_rows: int | None
    unusable_indexes: tuple[str, ...]
    branches: tuple[Explanation, ...] = ()
    is_merged: bool = False
    """Whether branches are merged in order; else they are read one after the other."""
    alternative: Explanation | None = None
    """Another plan, which has the order and is read in turn with this one from the 320th record on;
    the plan that finishes first answers."""
    past: PastReading | None = None
    """Of a past table: by which way it is read, and what that was decided by."""
    warnings: tuple[str, ...] = ()
    """Why indexes whose collation or time zone data changed can't be read."""
    lowest_revision: int | None = None
    """No record that is read has a lower revision, as far as is known; None of a past."""
    may_be_stale: bool | None = None
    """Whether some records may have to be converted as they are read; None of a past."""

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> list[str]:
        lines = [f"{self.table}: {self._describe_reading()}", *self._list_conditions()]
        for one in self.branches:
            lines.append(f"  {one._describe_reading()}")
            lines += [f"  {line}" for line in one._list_conditions()]
        if self.alternative is not None:
            lines.append(f"  or {self.alternative._describe_reading()}, whichever is done first")
            lines += [f"  {line}" for line in self.alternative._list_conditions()]
        if self.past is not None:
            lines.append(f"  {self.past}")
        if self.unusable_indexes:
            lines.append(f"  can't be read now: {'; '.join(self.unusable_indexes)}")
        lines += [f"  warning: {text}" for text in self.warnings]
        if self.may_be_stale:
            from_on = f"revision {self.lowest_revision} or a later one"
            lines.append(f"  some may be converted as they are read: they have {from_on}")
        if self.order:
            sorting = "they are merged" if self.is_merged else SORTINGS[self.sorting]
            if self.alternative is not None:
                sorting = f"{SORTINGS['all']}, or come in order"
            lines.append(f"  ordered by {', '.join(self.order)}: {sorting}")
        if self.limit is not None:
            ends = self.sorting != "all" or self.alternative is not None
            stops = ", and no more is read" if ends else ""
            lines.append(f"  at most {self.limit:,}{stops}")
        return [*lines, f"  gives {_show_count(self.estimated_rows, about=self._is_estimated)}"]

    def _describe_reading(self) -> str:
        return f"reads {self._describe_source()} ({_show_count(self.records_read)})"

    def _list_conditions(self) -> list[str]:
        named = (
            ("index conditions", self.index_conditions),
            ("compared again", self.rechecked),
            ("compared record by record", self.residual),
        )
        return [f"  {title}: {'; '.join(texts)}" for title, texts in named if texts]

    @property
    def _is_estimated(self) -> bool:
        return bool(self.rechecked or self.residual) or any(u._is_estimated for u in self.branches)

    def _describe_source(self) -> str:
        if self.branches:
            count = len(self.branches)
            return f"{count} set{'s' * (count > 1)} of ranges, which have no record in common"
        source = f"the index {self.index}" if self.index else "the table by its keys"
        if self.is_scan:
            source = (
                "all of the table, since no index fits" if not self.index else f"all of {source}"
            )
        direction = ", backwards" if self.is_reversed else ""
        ranges = "" if self.is_scan else f", {self.ranges} range{'' if self.ranges == 1 else 's'}"
        return f"{source}{ranges}{direction}"

    def to_json(self) -> dict[str, Any]:
        """Return all members under their names, tuples as lists."""
        return {name: _plain(getattr(self, name)) for name in self.__slots__}


def _plain(value: Any) -> Any:
    if isinstance(value, Explanation | PastReading):
        return value.to_json()
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def _show_count(count: int | None, *, about: bool = False) -> str:
    if count is None:
        return f"more than {ESTIMATE_RECORDS_MAX:,} records"
    return f"{'about ' if about else ''}{count:,} record{'' if count == 1 else 's'}"


def explain_plan(
    session: Session,
    bound: BoundTable,
    plan: QueryPlan | UnionPlan,
    orders: tuple[str, ...],
    limit: int | None,
    rival: QueryPlan | None = None,
) -> Explanation:
    """Return the explanation of a plan, and of its alternative."""
    found = _explain_one(session, bound, plan, orders, limit)
    if session.has_revisions:
        lowest, is_stale = _find_lowest_revision(session, bound, plan)
        found = replace(found, lowest_revision=lowest, may_be_stale=is_stale)
    if rival is None:
        return found
    return replace(found, alternative=_explain_one(session, bound, rival, (), limit))


def _find_lowest_revision(
    session: Session, bound: BoundTable, plan: QueryPlan | UnionPlan
) -> tuple[int, bool]:
    """Return the lowest revision that a record of the plan may have, by what is known of ranges of
    keys, and whether a record of it is stale."""

    def read(connection: Connection, now: BoundTable) -> tuple[Any, tuple[int, bool]]:
        row = connection.fetch_one(catalog_version_sql(now.catalog.tenant))
        version = None if row is None else as_number(row[0])
        descriptor = now.descriptor
        known = read_range_revisions(
            connection, now.catalog.tenant, descriptor.schema.number, min(descriptor.layouts)
        )
        if isinstance(plan, QueryPlan) and plan.path.keys is None:
            met = [one for one in known if any(_meets(one, span) for span in plan.spans)]
            known = met or known
        lowest = min(one.revision for one in known)
        return version, (lowest, lowest < descriptor.current.since)

    return session.read_active(bound, read)[1]


def _meets(known: RangeRevision, span: Span) -> bool:
    begins = known.lower is None or span.upper is None or known.lower < span.upper
    return begins and (known.upper is None or span.lower is None or span.lower <= known.upper)


def _explain_one(
    session: Session,
    bound: BoundTable,
    plan: QueryPlan | UnionPlan,
    orders: tuple[str, ...],
    limit: int | None,
) -> Explanation:
    ends_early = plan.sorting != "all"
    if isinstance(plan, QueryPlan):
        return _explain(session, bound, plan, orders, limit, ends_early=ends_early)
    branches, left = list[Explanation](), limit
    for branch in plan.branches:
        # If merged, each branch may return all requested records.
        one = _explain(session, bound, branch, (), left, ends_early=ends_early)
        branches.append(one)
        if left is not None and not plan.is_merged and one.estimated_rows is not None:
            left -= one.estimated_rows
    return Explanation(
        bound.adapter.schema.name,
        ", ".join(dict.fromkeys(branch.path.name for branch in plan.branches)),
        is_scan=False,
        ranges=sum(one.ranges for one in branches),
        index_conditions=(),
        rechecked=(),
        residual=(),
        order=orders,
        sorting=plan.sorting,
        is_reversed=False,
        limit=limit,
        records_read=_add(one.records_read for one in branches),
        estimated_rows=_at_most(limit, _add(one.estimated_rows for one in branches)),
        unusable_indexes=_list_unreadable(bound),
        branches=tuple(branches),
        is_merged=plan.is_merged and plan.sorting == "none",
    )


def _explain(
    session: Session,
    bound: BoundTable,
    plan: QueryPlan,
    orders: tuple[str, ...],
    limit: int | None,
    *,
    ends_early: bool,
) -> Explanation:
    counted = count_spans(session, bound, plan, ESTIMATE_RECORDS_MAX + 1)
    inside = None if counted is None or counted > ESTIMATE_RECORDS_MAX else counted
    share = _estimate_share(session, bound, plan, inside) if inside else 1.0
    rows = _at_most(limit, None if inside is None else math.ceil(inside * share))
    read = inside
    if ends_early and limit is not None and share:
        read = _at_most(math.ceil(limit / share), inside)
    return Explanation(
        bound.adapter.schema.name,
        None if plan.path.keys is None else plan.path.name,
        plan.is_scan,
        len(plan.spans),
        tuple(map(str, plan.index_conditions)),
        tuple(map(str, plan.rechecked)),
        tuple(map(str, plan.residual)),
        orders,
        plan.sorting,
        plan.order.is_reversed,
        limit,
        read,
        rows,
        _list_unreadable(bound),
    )


def _list_unreadable(bound: BoundTable) -> tuple[str, ...]:
    return tuple(index.name for index in bound.adapter.indexes if not index.is_readable)


def _add(counts: Iterable[int | None]) -> int | None:
    total = 0
    for count in counts:
        if count is None:
            return None
        total += count
    return total


def _at_most(limit: int | None, count: int | None) -> int | None:
    """Return the smaller of two numbers; None means an unknown number, or no limit."""
    if count is None or limit is None:
        return limit if count is None else count
    return min(limit, count)


def _estimate_share(session: Session, bound: BoundTable, plan: QueryPlan, inside: int) -> float:
    """Return the share of the records in the ranges for which the rest of the plan is true, by the
    first of them. If it is true for none of these, it may be for others: that counts as half a
    record, and as none only if these are all."""
    if plan.filter == EVERYTHING:
        return 1.0
    bound_plan, seen, true = BoundPlan(plan, bound, frozenset()), 0, 0
    pages = read_spans(session, bound_plan, expected=ESTIMATE_SAMPLE_RECORDS)
    for _, record in islice(chain.from_iterable(pages), ESTIMATE_SAMPLE_RECORDS):
        seen += 1
        true += bound_plan.matches is None or bound_plan.matches(record)
    if not true and seen < inside:
        return 0.5 / seen if seen else 1.0
    return true / seen if seen else 1.0


def count_spans(
    session: Session, bound: BoundTable, plan: QueryPlan, limit: int | None
) -> int | None:
    """Return how many entries or records are in the spans, up to a number; None if the table
    changed."""
    index = None if plan.path.keys is None else bound.adapter.index(plan.path.name)
    rows = bound.records if index is None else index.entries
    counted = 0
    for span in plan.spans:
        lower, upper = span.lower, span.upper
        if index is not None:
            lower, upper = span.entry_bounds(unique=index.descriptor.index.unique)
        left = None if limit is None else limit - counted
        if left is not None and left <= 0:
            break
        count = partial(rows.count_range, lower=lower, upper=upper, limit=left)
        rebound, found = session.read_active(bound, partial(_count_if_still, bound, count))
        if rebound is not bound:
            return None
        counted += found
    return counted


def _count_if_still(
    bound: BoundTable,
    count: Callable[[Connection], tuple[int, int]],
    connection: Connection,
    now: BoundTable,
) -> tuple[int | None, int]:
    return count(connection) if now is bound else (None, 0)
