"""The place of a field in declared order; moving it is its own inverse."""

from __future__ import annotations

from dataclasses import dataclass

from zapdb.errors import Location
from zapdb.migrations.document_structure import ViolationCollector, located
from zapdb.migrations.operations.operation import FieldOperation, NumberAllocator, Operation
from zapdb.schema import Schema


@dataclass(frozen=True)
class ReorderField(FieldOperation):
    """Another place in declared order; no record changes, since they lie by number.

    `position` counts from 0, among the other fields.
    """

    keyword = "reorder_field"

    position: int
    location: Location = located()

    def validate(self, schema: Schema, collector: ViolationCollector) -> None:
        table, field = self.find(schema, collector)
        if not 0 <= self.position < len(table.fields):
            collector.report(self.place, f"the position must be 0 to {len(table.fields) - 1}")
        elif table.fields[self.position] is field:
            collector.report(self.place, f"{self.field!r} stands there already")

    def apply(self, schema: Schema, numbers: NumberAllocator) -> Schema:
        table, field = self.found_in(schema)
        rest = [f for f in table.fields if f is not field]
        rest.insert(self.position, field)
        return schema.with_table(table.with_fields(tuple(rest)))

    def invert(
        self, before: Schema, number: int, collector: ViolationCollector
    ) -> tuple[Operation, ...]:
        table, field = self.found_in(before)
        return (ReorderField(self.table, self.field, table.fields.index(field)),)
