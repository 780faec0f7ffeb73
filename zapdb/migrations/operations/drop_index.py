"""drop_index: an index goes; a rollback builds it again from the records."""

from __future__ import annotations

from dataclasses import dataclass

from zapdb.errors import Location
from zapdb.migrations.operations.base import Numbers, Operation, TableOperation
from zapdb.migrations.operations.constraints import can_find_referrers
from zapdb.migrations.structure import Name, Reporter, located
from zapdb.schema import Schema


@dataclass(frozen=True)
class DropIndex(TableOperation):
    keyword = "drop_index"

    index: Name
    location: Location = located()

    def validate(self, schema: Schema, reporter: Reporter) -> None:
        table = self.find_table(schema, reporter)
        index = self.find_index(table, self.index, reporter)
        rest = [other for other in table.indexes if other is not index]
        for key in table.foreign_keys:
            if not can_find_referrers(table, key.field, rest):
                name = table.field_numbered(key.field).name
                reporter.report(
                    self.place,
                    f"the reference of {name!r} needs the index {self.index!r}",
                    f"put a drop_reference of {name!r} before this change",
                )

    def apply(self, schema: Schema, numbers: Numbers) -> Schema:
        table = self.table_in(schema)
        rest = tuple(i for i in table.indexes if i.name != self.index)
        return schema.with_table(table.with_indexes(rest))

    def invert(self, before: Schema, number: int, reporter: Reporter) -> tuple[Operation, ...]:
        from zapdb.migrations.operations.create_index import CreateIndex

        table = self.table_in(before)
        index = table.index_named(self.index)
        assert index is not None
        return (CreateIndex.of(table, index),)
