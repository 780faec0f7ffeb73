"""Plans of a query by one path: the spans to read, and the conditions and sorting that remain.

Pure functions from a table, a path, a predicate and an order to a `QueryPlan`. Other modules read
by it. `choosing` decides which path is best, and plans conditions under `|`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from zapdb.schema import TableSchema
from zapdb.tables.indexes.ordering import ANY_ORDER, Ordering, TotalOrder
from zapdb.tables.indexes.paths import Path
from zapdb.tables.indexes.predicates import And, Predicate
from zapdb.tables.indexes.sorting import SORTING_SCORES, Sorting, essential_orders, fit_order
from zapdb.tables.indexes.spans import Match, Span, bind_match, match_parts


class QueryPlan(NamedTuple):
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


@dataclass(frozen=True, slots=True)
class PathFit:
    """How one path answers all queries of one shape; `bind` adds the values of one of them."""

    path: Path
    match: Match
    left: tuple[int, ...]
    """The places of the parts that the path does not answer."""
    order: TotalOrder
    """Its `lead` is that of the values, if it has any components."""
    lead_components: int
    sorting: Sorting
    score: tuple[int, ...]

    def bind(self, parts: Sequence[Predicate]) -> QueryPlan:
        spans, rechecked, lead = bind_match(self.path, self.match, parts, self.lead_components)
        return QueryPlan(
            self.path,
            spans,
            tuple([parts[place] for place in self.match.places]),
            rechecked,
            tuple([parts[place] for place in self.left]),
            msgspec.structs.replace(self.order, lead=lead) if self.lead_components else self.order,
            self.sorting,
            self.score,
        )


def fit_path(
    table: TableSchema,
    path: Path,
    parts: Sequence[Predicate],
    ordering: Ordering | None,
    common: Sequence[Predicate] | None = None,
) -> PathFit:
    """Return how a path answers queries with such parts; `common` are the parts that all branches
    of a union share."""
    match = match_parts(path, parts)
    sorting: Sorting = "none"
    order, lead_components = ANY_ORDER, None
    if ordering is not None:
        essential = essential_orders(table, parts if common is None else common, ordering)
        sorting, order, lead_components = fit_order(
            table, path, parts, essential, ordering.key_descending, match.points
        )
    score = (
        len(match.fixed),
        len(match.limits),
        SORTING_SCORES[sorting],
        path.keys is None,
        -len(path.components),
    )
    used = {*match.places}
    left = tuple(place for place in range(len(parts)) if place not in used)
    return PathFit(path, match, left, order, lead_components or 0, sorting, score)


def plan_path(
    table: TableSchema,
    path: Path,
    parts: Sequence[Predicate],
    ordering: Ordering | None,
    common: Sequence[Predicate] | None = None,
) -> QueryPlan:
    """Return the plan of one query by one path: see `fit_path`."""
    return fit_path(table, path, parts, ordering, common).bind(parts)


def is_among(part: Predicate, others: Iterable[Predicate]) -> bool:
    """Return whether the same object is among the parts; an equal one does not count."""
    return any(part is other for other in others)
