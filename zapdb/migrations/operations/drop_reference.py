"""drop_reference: what a field refers to need not exist any longer; the field itself stays."""

from __future__ import annotations

from dataclasses import dataclass, replace

from zapdb.errors import Location
from zapdb.migrations.operations.add_reference import AddReference
from zapdb.migrations.operations.base import Numbers, Operation, TableOperation, field_in
from zapdb.migrations.structure import Name, Reporter, located
from zapdb.schema import Schema


@dataclass(frozen=True)
class DropReference(TableOperation):
    keyword = "drop_reference"

    field: Name
    location: Location = located()

    def validate(self, schema: Schema, reporter: Reporter) -> None:
        table = self.find_table(schema, reporter)
        field = self.find_field(table, self.field, reporter)
        if table.foreign_key_on(field.number) is None:
            names = [table.field_numbered(key.field).name for key in table.foreign_keys]
            there = ", ".join(names) or "none"
            reporter.report(
                self.place,
                f"what {self.field!r} of {table.name!r} refers to need not exist as it is",
                f"fields with a reference to drop: {there}",
            )

    def apply(self, schema: Schema, numbers: Numbers) -> Schema:
        table = self.table_in(schema)
        field = field_in(table, self.field)
        rest = tuple(key for key in table.foreign_keys if key.field != field.number)
        return schema.with_table(replace(table, foreign_keys=rest))

    def invert(self, before: Schema, number: int, reporter: Reporter) -> tuple[Operation, ...]:
        table = self.table_in(before)
        field = field_in(table, self.field)
        key = table.foreign_key_on(field.number)
        assert key is not None
        return (AddReference(self.table, self.field, key.on_delete),)
