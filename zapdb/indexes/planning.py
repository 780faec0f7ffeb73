"""How a query is answered by one path: what of it is read, and what is left to do.

Pure: from a table, a path, a predicate and an order, to a `QueryPlan`. Reading it is another
module's. Which path is best, and what becomes of conditions under `|`, is `choosing`'s.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from zapdb.indexes.ordering import ANY_ORDER, Ordering, TotalOrder
from zapdb.indexes.paths import Path
from zapdb.indexes.predicates import And, Predicate
from zapdb.indexes.sorting import SORTING_SCORES, Sorting, essential_orders, fit_order
from zapdb.indexes.spans import Span, SpanBuilder, fix_component, limit_component, make_span
from zapdb.schema import TableSchema


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """How a query is answered.

    Every matching record is in one of the spans, which are in rising order and disjoint.
    `index_conditions` are the conditions that the spans answer, and `rechecked` the ones of these
    that the keys may leave open for these values (rule 24). `residual` are the conditions that the
    spans do not use.
    """

    path: Path
    spans: tuple[Span, ...]
    index_conditions: tuple[Predicate, ...]
    rechecked: tuple[Predicate, ...]
    residual: tuple[Predicate, ...]
    order: TotalOrder
    sorting: Sorting
    score: tuple[int, ...]

    @property
    def is_scan(self) -> bool:
        """Whether all records of the table are read."""
        return self.spans == (Span(None, None),)

    @property
    def branches(self) -> tuple[QueryPlan, ...]:
        """The plan as a union of one."""
        return (self,)

    @property
    def filter(self) -> Predicate:
        """What is compared record by record."""
        return And((*self.rechecked, *self.residual))


def plan_path(
    table: TableSchema,
    path: Path,
    parts: tuple[Predicate, ...],
    ordering: Ordering | None,
    common: tuple[Predicate, ...] | None = None,
) -> QueryPlan:
    """The plan by one path; `common` are the parts that hold for all branches of a union."""
    builder = SpanBuilder([b""], [], [])
    spans: list[Span] | None = None
    for at in range(len(path.components)):
        if not fix_component(path, at, parts, builder):
            spans = limit_component(path, at, parts, builder)
            break
    if spans is None:
        spans = [make_span(prefix, b"", None) for prefix in builder.prefixes]
    may_be_truncated_anywhere = any(
        path.may_truncate(s.lower) or path.may_truncate(s.upper) for s in spans
    )
    rechecked = builder.index_conditions if may_be_truncated_anywhere else builder.rechecked
    sorting: Sorting = "none"
    order = ANY_ORDER
    if ordering is not None:
        essential = essential_orders(table, parts if common is None else common, ordering)
        sorting, order = fit_order(table, path, parts, essential, ordering.key_descending, builder)
    score = (
        builder.fixed,
        builder.limits,
        SORTING_SCORES[sorting],
        path.keys is None,
        -len(path.components),
    )
    return QueryPlan(
        path,
        tuple(spans),
        tuple(builder.index_conditions),
        tuple(rechecked),
        tuple(part for part in parts if not is_among(part, builder.index_conditions)),
        order,
        sorting,
        score,
    )


def is_among(part: Predicate, others: Iterable[Predicate]) -> bool:
    """Whether it is this very part of a predicate, and not only an equal one."""
    return any(part is other for other in others)
