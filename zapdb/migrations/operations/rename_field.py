"""rename_field: another name for the same field, also in the checks that read it.

No record changes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from zapdb.errors import Location
from zapdb.migrations.operations.base import Numbers, Operation, TableOperation, field_in
from zapdb.migrations.operations.constraints import (
    refuse_unreadable,
    with_field_renamed_in_checks,
)
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
        refuse_unreadable(table, self.field, self.to, self.place, reporter)

    def apply(self, schema: Schema, numbers: Numbers) -> Schema:
        table = self.table_in(schema)
        renamed = field_in(table, self.field)
        table = with_field_renamed_in_checks(table, self.field, self.to)
        return schema.with_table(table.with_field(replace(renamed, name=self.to)))

    def invert(self, before: Schema, number: int, reporter: Reporter) -> tuple[Operation, ...]:
        return (RenameField(self.table, self.to, self.field),)
