"""In which order tables are, so that references lead to earlier ones, and which can't.

References that close a circle with others are set when all tables are there. It is a reference that
may be null wherever the circle has one; then one that is required, which has to be optional here;
at last one of a key, which is none then. Each of these closes a circle with references that are
kept: none is set later, or lost, without need. The same tables give the same order.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

T = TypeVar("T")
Weight = Literal["key", "required", "optional"]
_WEIGHTS: tuple[Weight, ...] = ("key", "required", "optional")
"""The first ones are kept before the others."""


@dataclass(frozen=True)
class Edge(Generic[T]):
    """A reference of a table to another one; `name` tells those of one table apart."""

    table: str
    target: str
    weight: Weight
    name: Sequence[str]
    reference: T


def sort_tables(
    tables: Collection[str], edges: Collection[Edge[T]]
) -> tuple[list[str], list[Edge[T]]]:
    """The tables, each behind those that it refers to, and the references that close circles.

    References of a table to itself need no order, and are none of these.
    """
    kept = {name: set[str]() for name in tables}
    cyclic = list[Edge[T]]()
    for edge in sorted(edges, key=_order):
        if edge.table == edge.target:
            continue
        if edge.table in _reached(kept, edge.target):
            cyclic.append(edge)
        else:
            kept[edge.table].add(edge.target)
    return _sort(kept), cyclic


def _order(edge: Edge[T]) -> tuple[int, str, str, list[str]]:
    return _WEIGHTS.index(edge.weight), edge.table, edge.target, list(edge.name)


def _reached(kept: Mapping[str, Collection[str]], start: str) -> set[str]:
    """The tables that a table refers to, over others, too; itself among them."""
    found, waiting = {start}, [start]
    while waiting:
        new = set(kept[waiting.pop()]) - found
        found |= new
        waiting += new
    return found


def _sort(kept: Mapping[str, Collection[str]]) -> list[str]:
    left, order = dict(sorted(kept.items())), list[str]()
    while left:
        free = [name for name, targets in left.items() if not left.keys() & targets]
        for name in free:
            del left[name]
        order += free
    return order
