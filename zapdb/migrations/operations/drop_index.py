"""drop_index: an index goes; a rollback builds it again from the records."""

from __future__ import annotations

from dataclasses import dataclass

from zapdb.errors import Location
from zapdb.migrations.operations.base import Numbers, Operation, TableOperation
from zapdb.migrations.structure import Name, Reporter, located
from zapdb.schema import Schema


@dataclass(frozen=True)
class DropIndex(TableOperation):
    keyword = "drop_index"

    index: Name
    location: Location = located()

    def validate(self, schema: Schema, reporter: Reporter) -> None:
        table = self.find_table(schema, reporter)
        if table.index_named(self.index) is None:
            there = ", ".join(i.name for i in table.indexes) or "none"
            reporter.report(
                self.place, f"no index {self.index!r} on {table.name!r}", f"there are: {there}"
            )

    def apply(self, schema: Schema, numbers: Numbers) -> Schema:
        table = schema.table_named(self.table)
        assert table is not None
        rest = tuple(i for i in table.indexes if i.name != self.index)
        return schema.with_table(table.with_indexes(rest))

    def invert(self, before: Schema, reporter: Reporter) -> tuple[Operation, ...]:
        from zapdb.migrations.operations.create_index import CreateIndex, IndexField

        table = before.table_named(self.table)
        assert table is not None
        index = table.index_named(self.index)
        assert index is not None
        fields = tuple(IndexField.of(table, component) for component in index.components)
        return (CreateIndex(self.table, self.index, fields),)
