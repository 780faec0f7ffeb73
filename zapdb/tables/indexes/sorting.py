"""Sorting: how a path's order relates to the requested one, and what remains to be sorted.

An index in exactly this order is read without sorting. If an index has the named fields in order,
but not the ties, runs of ties are sorted. For any other index, all records are sorted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from zapdb.datasets import Collation
from zapdb.schema import TableSchema
from zapdb.tables.indexes.ordering import Order, Ordering, TotalOrder
from zapdb.tables.indexes.paths import Path, keys_are_ordered
from zapdb.tables.indexes.predicates import Comparison, Not, Predicate

Sorting = Literal["none", "ties", "all"]

SORTING_SCORES: Final[dict[Sorting, int]] = {"none": 2, "ties": 1, "all": 0}


@dataclass(slots=True)
class _Walk:
    """The fields of an order, matched with a path's components one after the other."""

    left: list[Order]
    """The fields without a component."""
    flips: set[bool] = field(default_factory=set)
    """Whether a field has the other direction than its component, for all matched fields."""
    first: int | None = None
    """The first matched component; None for an order without fields."""
    last: int = -1
    is_contiguous: bool = True
    is_whole: bool = True
    """Whether the path has no order of its own between the fields and the ties."""


def _walk_along(
    table: TableSchema,
    path: Path,
    parts: Sequence[Predicate],
    orders: tuple[Order, ...],
    key_descending: bool,
) -> _Walk:
    walk = _Walk(list(orders))
    ties = list(table.key)  # what of the key entries with equal fields are not yet ordered by
    for at, component in enumerate(path.components):
        if walk.left and _same_order(walk.left[0], path, at, parts) and path.has_order(at):
            walk.flips.add(walk.left.pop(0).descending != component.descending)
            walk.first = at if walk.first is None else walk.first
            walk.is_contiguous = walk.is_contiguous and walk.last in (-1, at - 1)
            walk.last = at
        elif _is_fixed(parts, component.field, component.collation):
            continue
        elif walk.left or not _goes_on(
            path, at, ties, component.descending != key_descending, walk.flips
        ):
            walk.is_whole = not walk.left and path.keys is None
            break
    return walk


def fit_order(
    table: TableSchema,
    path: Path,
    parts: Sequence[Predicate],
    orders: tuple[Order, ...],
    key_descending: bool,
    points: int,
) -> tuple[Sorting, TotalOrder, int | None]:
    """Return what remains to be sorted, how the order relates to the path, and how many components
    are its `lead`, whose bytes are not known yet. `points` leading components have one value."""
    walk = _walk_along(table, path, parts, orders, key_descending)
    if walk.left or len(walk.flips) > 1:
        return "all", TotalOrder(orders, key_descending, is_reversed=False, lead=None), None
    # Where no field decides, only ties do.
    descending = walk.flips.pop() if walk.flips else key_descending
    components = len(path.components)
    before, last = (components, components - 1) if walk.first is None else (walk.first, walk.last)
    lead = b"" if walk.is_contiguous and before <= points else None
    is_sorted = walk.is_whole and descending == key_descending
    is_full = is_sorted and lead is not None and last == components - 1
    is_of_nulls = bool(orders) and orders[0].nulls_last and _is_null(parts, orders[0].field)
    order = TotalOrder(orders, key_descending, descending, lead, is_full, is_of_nulls)
    lead_components = None if lead is None else before
    if is_sorted:
        return "none", order, lead_components
    return ("ties" if orders else "all"), order, lead_components


def _same_order(order: Order, path: Path, at: int, parts: Sequence[Predicate]) -> bool:
    """Return whether a component has the order of a field. With nulls last, the field must be null
    in all records that are read, or in none of them."""
    component = path.components[at]
    if order.field != component.field or order.collation != component.collation:
        return False
    if not order.nulls_last or not path.fields[at].optional or _is_null(parts, order.field):
        return True
    return any(_excludes_nulls(part, order.field) for part in parts)


def _is_null(parts: Sequence[Predicate], field: int) -> bool:
    """Return whether the field is null in all matching records."""
    return any(
        isinstance(p, Comparison) and p.op == "==" and p.field == field and p.value is None
        for p in parts
    )


def _excludes_nulls(part: Predicate, field: int) -> bool:
    """Return whether a condition is false for all records in which the field is null."""
    if isinstance(part, Not):
        return _is_null((part.part,), field)
    return isinstance(part, Comparison) and part.field == field and not part.accepts_null()


def _is_fixed(parts: Sequence[Predicate], field: int, collation: Collation | None) -> bool:
    """Return whether all matching records have one key in this field."""
    return any(
        isinstance(part, Comparison)
        and part.op == "=="
        and part.field == field
        and part.collation in (None, collation)
        for part in parts
    )


def _goes_on(path: Path, at: int, ties: list[int], flip: bool, flips: set[bool]) -> bool:
    """Return whether a component is the next field of the key, in the order of ties."""
    component = path.components[at]
    if not ties or component.field != ties[0] or component.collation is not None:
        return False
    if path.keys is None or not keys_are_ordered(path.fields[at].type) or not flips <= {flip}:
        return False
    ties.pop(0)
    flips.add(flip)
    return True


def essential_orders(
    table: TableSchema, parts: Sequence[Predicate], ordering: Ordering
) -> tuple[Order, ...]:
    """Return the orders that decide: see `TotalOrder`."""
    left = [o for o in ordering.fields if not _is_fixed(parts, o.field, o.collation)]
    if ordering.is_of_index:
        return tuple(left)
    count = len(table.key)
    tail = [(o.field, o.collation, o.descending) for o in left[-count:]]
    key = [(number, None, ordering.key_descending) for number in table.key]
    if tail == key and all(keys_are_ordered(f.type) for f in table.key_fields):
        return tuple(left[:-count])
    return tuple(left)
