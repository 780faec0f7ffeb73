"""Checks and references: what must be true of every record, and which record a field refers to.

Adding and dropping are inverses.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from zapdb.errors import Location
from zapdb.expressions import Type
from zapdb.limits import CHECKS_PER_TABLE_MAX
from zapdb.migrations.document_structure import Name, ViolationCollector, located
from zapdb.migrations.operations.constraints import can_find_referrers
from zapdb.migrations.operations.operation import (
    FieldOperation,
    NumberAllocator,
    Operation,
    TableOperation,
    canonical_expression,
    report_expression_errors,
    types_of,
)
from zapdb.schema import Check, ForeignKey, OnDelete, Schema
from zapdb.values import Boolean, Reference


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
        report_expression_errors(self.expression, types_of(table), wanted, self.place, collector)

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


@dataclass(frozen=True)
class AddReference(FieldOperation):
    """What a field of type reference names must exist, from here on.

    `on_delete` says what happens when the record that a reference leads to is deleted: the deletion
    is refused (`restrict`), the referencing record is deleted, too (`cascade`), or its field is set
    to null (`set_null`). Referencing records are found by the table's key or an index; one of these
    must begin with the field. The reference binds every write at once; existing records are checked
    in the background.
    """

    keyword = "add_reference"

    on_delete: OnDelete
    location: Location = located()

    def validate(self, schema: Schema, collector: ViolationCollector) -> None:
        table, field = self.find(schema, collector)
        if not isinstance(field.type, Reference):
            collector.report(
                self.place,
                f"{self.field!r} is {field.type}, and refers to nothing",
                "a reference is of a field with type: reference",
            )
            return
        if table.foreign_key_on(field.number) is not None:
            collector.report(self.place, f"what {self.field!r} refers to must exist already")
        if not can_find_referrers(table, field.number, table.indexes):
            collector.report(
                self.place,
                f"neither the key nor an index of {table.name!r} begins with {self.field!r}",
                f"put a create_index with {self.field!r} as its first field before this change",
            )
        if self.on_delete == "set_null" and not field.optional:
            collector.report(
                self.place,
                f"{self.field!r} is required, and can't be set to null",
                "make it optional, or use restrict or cascade",
            )
        if self.on_delete == "set_null" and field.number in table.key:
            collector.report(
                self.place, f"{self.field!r} is part of the key: a record keeps its key"
            )

    def apply(self, schema: Schema, numbers: NumberAllocator) -> Schema:
        table, field = self.found_in(schema)
        added = ForeignKey(field.number, self.on_delete)
        return schema.with_table(replace(table, foreign_keys=(*table.foreign_keys, added)))

    def invert(
        self, before: Schema, number: int, collector: ViolationCollector
    ) -> tuple[Operation, ...]:
        return (DropReference(self.table, self.field),)


@dataclass(frozen=True)
class DropReference(FieldOperation):
    """What a field refers to need not exist any longer; the field itself stays."""

    keyword = "drop_reference"

    location: Location = located()

    def validate(self, schema: Schema, collector: ViolationCollector) -> None:
        table, field = self.find(schema, collector)
        if table.foreign_key_on(field.number) is None:
            names = [table.field_numbered(key.field).name for key in table.foreign_keys]
            there = ", ".join(names) or "none"
            collector.report(
                self.place,
                f"what {self.field!r} of {table.name!r} refers to need not exist as it is",
                f"fields with a reference to drop: {there}",
            )

    def apply(self, schema: Schema, numbers: NumberAllocator) -> Schema:
        table, field = self.found_in(schema)
        rest = tuple(key for key in table.foreign_keys if key.field != field.number)
        return schema.with_table(replace(table, foreign_keys=rest))

    def invert(
        self, before: Schema, number: int, collector: ViolationCollector
    ) -> tuple[Operation, ...]:
        table, field = self.found_in(before)
        key = table.foreign_key_on(field.number)
        assert key is not None
        return (AddReference(self.table, self.field, key.on_delete),)
