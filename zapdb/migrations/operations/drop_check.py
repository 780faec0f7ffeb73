"""drop_check: a check binds no longer; a rollback adds it again, to be validated anew."""

from __future__ import annotations

from dataclasses import dataclass, replace

from zapdb.errors import Location
from zapdb.migrations.operations.add_check import AddCheck
from zapdb.migrations.operations.base import Numbers, Operation, TableOperation
from zapdb.migrations.structure import Name, Reporter, located
from zapdb.schema import Schema


@dataclass(frozen=True)
class DropCheck(TableOperation):
    keyword = "drop_check"

    check: Name
    location: Location = located()

    def validate(self, schema: Schema, reporter: Reporter) -> None:
        table = self.find_table(schema, reporter)
        if table.check_named(self.check) is None:
            there = ", ".join(check.name for check in table.checks) or "none"
            reporter.report(
                self.place, f"no check {self.check!r} on {table.name!r}", f"there are: {there}"
            )

    def apply(self, schema: Schema, numbers: Numbers) -> Schema:
        table = self.table_in(schema)
        rest = tuple(check for check in table.checks if check.name != self.check)
        return schema.with_table(replace(table, checks=rest))

    def invert(self, before: Schema, number: int, reporter: Reporter) -> tuple[Operation, ...]:
        table = self.table_in(before)
        check = table.check_named(self.check)
        assert check is not None
        return (AddCheck(self.table, self.check, check.expression),)
