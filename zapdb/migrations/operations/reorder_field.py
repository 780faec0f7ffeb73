"""reorder_field: another place in declared order; no record changes, since they lie by number."""

from __future__ import annotations

from dataclasses import dataclass

from zapdb.errors import Location
from zapdb.migrations.operations.base import Numbers, Operation, TableOperation, field_in
from zapdb.migrations.structure import Name, Reporter, located
from zapdb.schema import Schema


@dataclass(frozen=True)
class ReorderField(TableOperation):
    """`position` counts from 0, among the other fields."""

    keyword = "reorder_field"

    field: Name
    position: int
    location: Location = located()

    def validate(self, schema: Schema, reporter: Reporter) -> None:
        table = self.find_table(schema, reporter)
        field = self.find_field(table, self.field, reporter)
        if not 0 <= self.position < len(table.fields):
            reporter.report(self.place, f"the position must be 0 to {len(table.fields) - 1}")
        elif table.fields[self.position] is field:
            reporter.report(self.place, f"{self.field!r} stands there already")

    def apply(self, schema: Schema, numbers: Numbers) -> Schema:
        table = self.table_in(schema)
        field = field_in(table, self.field)
        rest = [f for f in table.fields if f is not field]
        rest.insert(self.position, field)
        return schema.with_table(table.with_fields(tuple(rest)))

    def invert(self, before: Schema, number: int, reporter: Reporter) -> tuple[Operation, ...]:
        table = self.table_in(before)
        at = next(at for at, field in enumerate(table.fields) if field.name == self.field)
        return (ReorderField(self.table, self.field, at),)
