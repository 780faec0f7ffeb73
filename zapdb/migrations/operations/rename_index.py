"""rename_index: another name for the same index; its entries stay."""

from __future__ import annotations

from dataclasses import dataclass, replace

from zapdb.errors import Location
from zapdb.migrations.operations.base import Numbers, Operation, TableOperation
from zapdb.migrations.structure import Name, Reporter, located
from zapdb.schema import Schema


@dataclass(frozen=True)
class RenameIndex(TableOperation):
    keyword = "rename_index"

    index: Name
    to: Name
    location: Location = located()

    def validate(self, schema: Schema, reporter: Reporter) -> None:
        table = self.find_table(schema, reporter)
        self.find_index(table, self.index, reporter)
        if table.index_named(self.to) is not None:
            reporter.report(self.place, f"there is an index {self.to!r} on {table.name!r} already")

    def apply(self, schema: Schema, numbers: Numbers) -> Schema:
        table = self.table_in(schema)
        indexes = tuple(
            replace(index, name=self.to) if index.name == self.index else index
            for index in table.indexes
        )
        return schema.with_table(table.with_indexes(indexes))

    def invert(self, before: Schema, number: int, reporter: Reporter) -> tuple[Operation, ...]:
        return (RenameIndex(self.table, self.to, self.index),)
