"""Plans of a query by one path: the spans to read, and the conditions and sorting that remain.

Pure functions from a table, a path, a predicate and an order to a `QueryPlan`. Other modules read
by it. `choosing` decides which path is best, and plans conditions under `|`.
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
    """A plan of a query by one path.

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
        """Return whether all records of the table are read."""
        return self.spans == (Span(None, None),)

    @property
    def branches(self) -> tuple[QueryPlan, ...]:
        """Return the plan as the only branch of a union."""
        return (self,)

    @property
    def filter(self) -> Predicate:
        """Return the conditions that are compared record by record."""
        return And((*self.rechecked, *self.residual))


def plan_path(
    table: TableSchema,
    path: Path,
    parts: tuple[Predicate, ...],
    ordering: Ordering | None,
    common: tuple[Predicate, ...] | None = None,
) -> QueryPlan:
    """Return the plan by one path; `common` are the parts that all branches of a union share."""
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
    """Return whether the same object is among the parts; an equal one does not count."""
    return any(part is other for other in others)
