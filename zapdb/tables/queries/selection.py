"""What a query asks for, as plain data, and the plans that are made for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

from zapdb.errors import UnknownName, UsageError, suggest
from zapdb.tables.dataset_warnings import warn, warn_if_index_is_rewritten
from zapdb.tables.eager_loading import Include, names_of
from zapdb.tables.indexes import BoundTable
from zapdb.tables.indexes.choosing import Planner, UnionPlan, make_plan
from zapdb.tables.indexes.ordering import Order, Ordering, order_of_index
from zapdb.tables.indexes.path_planning import QueryPlan
from zapdb.tables.indexes.predicates import EVERYTHING, And
from zapdb.tables.queries.bound_plan import find_index


class PinnedIndex(msgspec.Struct, frozen=True):
    """The index that a query is read by; `name` is what it was called."""

    number: int
    name: str


class Selection(msgspec.Struct, frozen=True):
    """Which records, in which order, how many, and what comes with them."""

    predicate: And = EVERYTHING
    orders: tuple[Order, ...] = ()
    limit: int | None = None
    includes: tuple[Include, ...] = ()
    pinned: PinnedIndex | None = None
    is_reversed: bool = False

    def __str__(self) -> str:
        parts = list[str]()
        if self.pinned is not None:
            parts.append(f" using {self.pinned.name}")
        if self.predicate != EVERYTHING:
            parts.append(f" where {self.predicate}")
        if self.orders:
            parts.append(f" order by {', '.join(map(str, self.orders))}")
        if self.is_reversed:
            parts.append(" reversed")
        if self.limit is not None:
            parts.append(f" limit {self.limit}")
        if self.includes:
            parts.append(f" with {', '.join(names_of(self.includes))}")
        return "".join(parts)

    def replace(self, **changes: Any) -> Selection:
        """The same with some changes."""
        return msgspec.structs.replace(self, **changes)

    @property
    def is_ordered(self) -> bool:
        """Whether the order is promised: it is named, or that of the pinned index."""
        return bool(self.orders) or self.pinned is not None

    def reversed(self, bound: BoundTable) -> Selection:
        """The same from the end of the order; raises `UsageError` if that can't be read so."""
        if not self.is_ordered:
            raise UsageError(
                "the query has no order yet", hint="call order_by(…) or using(…) first"
            )
        turned = self.replace(is_reversed=not self.is_reversed)
        turned.ordering(bound)
        return turned

    def at_most(self, count: int | None) -> int | None:
        """The limit if only so many records are needed."""
        if self.limit is None or count is None:
            return self.limit if count is None else count
        return min(self.limit, count)

    def ordering(self, bound: BoundTable) -> Ordering | None:
        """The order that is promised, None for none."""
        if self.orders:
            ordering = Ordering.by(self.orders)
        elif self.pinned is not None:
            keys = find_index(bound, self.pinned.number, self.pinned.name).keys
            ordering = order_of_index(keys.fields, keys.index.components)
        else:
            return None
        return ordering.reversed() if self.is_reversed else ordering

    def plan(self, bound: BoundTable, ordering: Ordering | None) -> QueryPlan | UnionPlan:
        """The best plan for a table as it is now."""
        return self.planner(bound).plan(self.predicate, ordering)

    def plan_in_order(self, bound: BoundTable, ordering: Ordering | None) -> QueryPlan | None:
        """A plan that has nothing to sort, if there is one."""
        if ordering is None:
            return None
        return self.planner(bound).plan_in_order(self.predicate, ordering)

    def planner(self, bound: BoundTable) -> Planner:
        if self.pinned is None:
            return bound.adapter.planner
        return bound.adapter.planner_by(find_index(bound, self.pinned.number, self.pinned.name))

    def warn(self, bound: BoundTable, ordering: Ordering | None) -> None:
        """Warn of a query that would be read by an index that can't be."""
        if not bound.adapter.rewritten:
            return
        if self.pinned is not None:
            warn(bound, find_index(bound, self.pinned.number, self.pinned.name))
            return
        table = bound.adapter.schema
        warn_if_index_is_rewritten(
            bound, lambda keys: make_plan(table, keys, self.predicate, ordering)
        )


EVERY_RECORD: Final = Selection()

OrderingOf = Callable[[BoundTable], Ordering | None]
"""The order of the records of a table as it is now; None for any."""


def any_order(_: BoundTable) -> None:
    """The `OrderingOf` records that are needed in no order."""


class Planning(NamedTuple):
    """How the plans of a query are made, for the table as it is whenever one is made."""

    asked: Selection
    ordering: OrderingOf
    change: Callable[[QueryPlan | UnionPlan], QueryPlan | UnionPlan] | None = None

    def plan(self, bound: BoundTable) -> QueryPlan | UnionPlan:
        plan = self.asked.plan(bound, self.ordering(bound))
        return plan if self.change is None else self.change(plan)

    def plan_in_order(self, bound: BoundTable) -> QueryPlan | None:
        """A plan that has nothing to sort, if there is one."""
        return self.asked.plan_in_order(bound, self.ordering(bound))

    def warn(self, bound: BoundTable) -> None:
        """Warn of a query that would be read by an index that can't be."""
        if bound.adapter.rewritten:
            self.asked.warn(bound, self.ordering(bound))


def pin_index(bound: BoundTable, name: str) -> PinnedIndex:
    """The index of this name; raises `UnknownName`, and `UsageError` for what is no name."""
    if not isinstance(name, str):
        raise UsageError("give an index by its name", got=type(name).__name__)
    index = bound.adapter.index(name)
    if index is not None:
        return PinnedIndex(index.descriptor.index.number, name)
    there = [index.name for index in bound.adapter.indexes]
    raise UnknownName(
        "there is no such index",
        table=bound.adapter.schema.name,
        index=name,
        indexes=", ".join(there) or "(none)",
        hint=suggest(name, there),
    )
