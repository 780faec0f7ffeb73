"""rename_field: another name for the same field; no record changes. Allowed on key fields."""

from __future__ import annotations

from dataclasses import dataclass, replace

from zapdb.errors import Location
from zapdb.migrations.operations.base import Numbers, Operation, TableOperation
from zapdb.migrations.structure import Name, Reporter, located
from zapdb.schema import Schema


@dataclass(frozen=True)
class RenameField(TableOperation):
    keyword = "rename_field"

    field: Name
    to: Name
    location: Location = located()

    def validate(self, schema: Schema, reporter: Reporter) -> None:
        table = self.find_table(schema, reporter)
        self.find_field(table, self.field, reporter)
        if table.field_named(self.to) is not None:
            reporter.report(self.place, f"there is a field {self.to!r} in {self.table!r} already")

    def apply(self, schema: Schema, numbers: Numbers) -> Schema:
        table = schema.table_named(self.table)
        assert table is not None
        renamed = table.field_named(self.field)
        assert renamed is not None
        return schema.with_table(table.with_field(replace(renamed, name=self.to)))

    def invert(self, before: Schema, reporter: Reporter) -> tuple[Operation, ...]:
        return (RenameField(self.table, self.to, self.field),)
