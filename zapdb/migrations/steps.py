"""Where a list of operations leads: from schema to schema, and a table's fields along with them."""

from __future__ import annotations

from zapdb.migrations.operations import NumberAllocator, Operation
from zapdb.records import ConversionPlan, SourceField
from zapdb.schema import Schema, TableSchema

Step = tuple[Operation, Schema, Schema]
"""An operation, with the schema before it and after it."""


def schemas_along(
    schema: Schema, operations: tuple[Operation, ...], numbers: NumberAllocator
) -> list[Schema]:
    """The schema that they begin with, and that after each of them."""
    states = [schema]
    for operation in operations:
        states.append(operation.apply(states[-1], numbers))
    return states


def make_steps(states: list[Schema], operations: tuple[Operation, ...]) -> list[Step]:
    return list(zip(operations, states, states[1:], strict=False))


def compose_conversion(
    states: list[Schema], operations: tuple[Operation, ...], table: int
) -> ConversionPlan:
    """Return how a list of operations converts the records of one table."""
    start = states[0].table_active_or_archived(table)
    assert start is not None
    plan = ConversionPlan({f.number: SourceField(f.number) for f in start.fields})
    for operation, before, after in zip(operations, states, states[1:], strict=False):
        old, new = before.table_active_or_archived(table), after.table_active_or_archived(table)
        if old is None or new is None or old is new:
            continue
        plan = plan.then(conversion_of(operation, old, new))
    return plan


def conversion_of(operation: Operation, before: TableSchema, after: TableSchema) -> ConversionPlan:
    """Return how one operation converts the records of a table that it changes."""
    carried = {f.number: SourceField(f.number) for f in after.fields}
    return ConversionPlan(
        carried | operation.derive(before, after), operation.archive(before, after)
    )
