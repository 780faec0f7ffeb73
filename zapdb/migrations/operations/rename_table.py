"""rename_table: another name for the same table; no record changes."""

from __future__ import annotations

from dataclasses import dataclass, replace

from zapdb.errors import Location
from zapdb.migrations.operations.base import Numbers, Operation
from zapdb.migrations.structure import Name, Reporter, located
from zapdb.schema import Schema


@dataclass(frozen=True)
class RenameTable(Operation):
    keyword = "rename_table"

    to: Name
    location: Location = located()

    def validate(self, schema: Schema, reporter: Reporter) -> None:
        self.find_table(schema, reporter)
        if schema.table_named(self.to) is not None:
            reporter.report(self.place, f"there is a table {self.to!r} already")

    def apply(self, schema: Schema, numbers: Numbers) -> Schema:
        table = schema.table_named(self.table)
        assert table is not None
        return schema.with_table(replace(table, name=self.to))

    def invert(self, before: Schema, reporter: Reporter) -> tuple[Operation, ...]:
        return (RenameTable(self.to, self.table),)
