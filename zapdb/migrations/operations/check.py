"""Checks: an expression that must be true of every record; adding and dropping are inverses."""

from __future__ import annotations

from dataclasses import dataclass, replace

from zapdb.errors import Location
from zapdb.expressions import Type
from zapdb.limits import CHECKS_PER_TABLE_MAX
from zapdb.migrations.document_structure import Name, ViolationCollector, located
from zapdb.migrations.operations.operation import (
    NumberAllocator,
    Operation,
    TableOperation,
    canonical_expression,
    check_expression,
    types_of,
)
from zapdb.schema import Check, Schema
from zapdb.values import Boolean


@dataclass(frozen=True)
class AddCheck(TableOperation):
    """An expression that must be true of every record.

    It binds every write from the activation of the migration on. Existing records are checked in
    the background; records that violate it are listed, and the check is not validated until there
    are none.

    `expression` reads the fields of the record, and must be true.
    """

    keyword = "add_check"

    check: Name
    expression: str
    location: Location = located()

    def __post_init__(self) -> None:
        object.__setattr__(self, "expression", canonical_expression(self.expression))

    def validate(self, schema: Schema, collector: ViolationCollector) -> None:
        table = self.find_table(schema, collector)
        if table.check_named(self.check) is not None:
            collector.report(
                self.place, f"there is a check {self.check!r} on {table.name!r} already"
            )
        if len(table.checks) >= CHECKS_PER_TABLE_MAX:
            collector.report(self.place, f"a table has at most {CHECKS_PER_TABLE_MAX} checks")
        wanted = Type(Boolean())
        check_expression(self.expression, types_of(table), wanted, self.place, collector)

    def apply(self, schema: Schema, numbers: NumberAllocator) -> Schema:
        table = self.table_in(schema)
        added = Check(numbers.allocate("check"), self.check, self.expression)
        return schema.with_table(replace(table, checks=(*table.checks, added)))

    def invert(
        self, before: Schema, number: int, collector: ViolationCollector
    ) -> tuple[Operation, ...]:
        return (DropCheck(self.table, self.check),)


@dataclass(frozen=True)
class DropCheck(TableOperation):
    """A check no longer binds writes; a rollback adds it again, and it is validated again."""

    keyword = "drop_check"

    check: Name
    location: Location = located()

    def validate(self, schema: Schema, collector: ViolationCollector) -> None:
        table = self.find_table(schema, collector)
        if table.check_named(self.check) is None:
            there = ", ".join(check.name for check in table.checks) or "none"
            collector.report(
                self.place,
                f"there is no check {self.check!r} on {table.name!r}",
                f"available: {there}",
            )

    def apply(self, schema: Schema, numbers: NumberAllocator) -> Schema:
        table = self.table_in(schema)
        rest = tuple(check for check in table.checks if check.name != self.check)
        return schema.with_table(replace(table, checks=rest))

    def invert(
        self, before: Schema, number: int, collector: ViolationCollector
    ) -> tuple[Operation, ...]:
        table = self.table_in(before)
        check = table.check_named(self.check)
        assert check is not None
        return (AddCheck(self.table, self.check, check.expression),)
