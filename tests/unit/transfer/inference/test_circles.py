"""The order of tables whose references make circles: of random graphs."""

from __future__ import annotations

import random

import pytest

from zapdb.transfer.inference.tables import Edge, Weight, sort_tables

WEIGHTS: tuple[Weight, ...] = ("key", "required", "optional")


def edge(table: str, target: str, weight: Weight, name: str = "x") -> Edge[str]:
    return Edge(table, target, weight, [name], f"{table}.{name}")


def has_circle(tables: list[str], edges: list[Edge[str]]) -> bool:
    """By taking away tables that refer to nothing, as long as there are any."""
    left = set(tables)
    while free := {t for t in left if not any(e.table == t and e.target in left for e in edges)}:
        left -= free
    return bool(left)


@pytest.mark.parametrize("seed", range(60))
def test_only_references_that_close_a_circle_are_cut(seed: int) -> None:
    choose = random.Random(seed)
    tables = [f"t{n}" for n in range(choose.randint(1, 8))]
    edges = [
        edge(choose.choice(tables), choose.choice(tables), choose.choice(WEIGHTS), f"f{n}")
        for n in range(choose.randint(0, 24))
    ]
    others = [e for e in edges if e.table != e.target]
    order, cyclic = sort_tables(tables, edges)
    kept = [e for e in others if e not in cyclic]
    assert sorted(order) == sorted(tables)
    assert all(order.index(e.target) < order.index(e.table) for e in kept)
    for one in cyclic:
        # It closes a circle with references that are worth as much, or more.
        worth = WEIGHTS[: WEIGHTS.index(one.weight) + 1]
        assert one.table != one.target
        assert has_circle(tables, [e for e in kept if e.weight in worth] + [one])
    shuffled = choose.sample(edges, len(edges))
    again = sort_tables(choose.sample(tables, len(tables)), shuffled)
    assert (again[0], again[1]) == (order, cyclic)


def test_a_reference_that_may_be_null_is_cut_before_one_that_is_required() -> None:
    edges = [edge("a", "b", "optional"), edge("b", "c", "required"), edge("c", "a", "required")]
    assert sort_tables("abc", edges) == (["a", "c", "b"], [edges[0]])
