"""rename_table: another name for the same table, also in what refers to it; no record changes."""

from __future__ import annotations

from dataclasses import dataclass

from zapdb.errors import Location
from zapdb.migrations.operations.base import Numbers, Operation, TableOperation, report_taken
from zapdb.migrations.structure import Name, Reporter, located
from zapdb.schema import Schema


@dataclass(frozen=True)
class RenameTable(TableOperation):
    keyword = "rename_table"

    to: Name
    location: Location = located()

    def validate(self, schema: Schema, reporter: Reporter) -> None:
        self.find_table(schema, reporter)
        report_taken(self.to, self.place, schema, reporter)

    def apply(self, schema: Schema, numbers: Numbers) -> Schema:
        table = self.table_in(schema)
        return schema.with_table_renamed(table, self.to)

    def invert(self, before: Schema, number: int, reporter: Reporter) -> tuple[Operation, ...]:
        return (RenameTable(self.to, self.table),)
