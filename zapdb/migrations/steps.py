"""Where a list of operations leads: from schema to schema, and a table's fields along with them."""

from __future__ import annotations

from zapdb.migrations.operations import NumberAllocator, Operation
from zapdb.records import Input, Route
from zapdb.schema import Schema, Table

Step = tuple[Operation, Schema, Schema]
"""An operation, with the schema before it and after it."""


def apply_all(
    schema: Schema, operations: tuple[Operation, ...], numbers: NumberAllocator
) -> list[Schema]:
    """The schema that they begin with, and that after each of them."""
    states = [schema]
    for operation in operations:
        states.append(operation.apply(states[-1], numbers))
    return states


def make_steps(states: list[Schema], operations: tuple[Operation, ...]) -> list[Step]:
    return list(zip(operations, states, states[1:], strict=False))


def compose_route(states: list[Schema], operations: tuple[Operation, ...], table: int) -> Route:
    """One table's way through a list of operations."""
    start = states[0].table_kept(table)
    assert start is not None
    route = Route({f.number: Input(f.number) for f in start.fields})
    for operation, before, after in zip(operations, states, states[1:], strict=False):
        old, new = before.table_kept(table), after.table_kept(table)
        if old is None or new is None or old is new:
            continue
        route = route.then(route_of(operation, old, new))
    return route


def route_of(operation: Operation, before: Table, after: Table) -> Route:
    """What one operation does to the records of a table that it changes."""
    carried = {f.number: Input(f.number) for f in after.fields}
    return Route(carried | operation.derive(before, after), operation.archive(before, after))
