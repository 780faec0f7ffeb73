"""drop_table: as the rollback of create_table; its records are discarded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from zapdb.errors import Location
from zapdb.migrations.operations.base import Numbers, Operation, TableOperation
from zapdb.migrations.structure import Reporter, located
from zapdb.schema import Schema


@dataclass(frozen=True)
class DropTable(TableOperation):
    keyword = "drop_table"
    rollback_only = True

    records: Literal["discard"]
    location: Location = located()

    def validate(self, schema: Schema, reporter: Reporter) -> None:
        table = self.find_table(schema, reporter)
        for user in schema.users_of(table):
            reporter.report(
                self.place,
                f"{user} refers to {self.table!r}",
                "drop it, or change its type, before this change",
            )

    def apply(self, schema: Schema, numbers: Numbers) -> Schema:
        table = schema.table_named(self.table)
        assert table is not None
        return schema.without_table(table.number)

    def invert(self, before: Schema, reporter: Reporter) -> tuple[Operation, ...]:
        return ()
