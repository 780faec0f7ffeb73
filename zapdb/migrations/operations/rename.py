"""Tables, fields and indexes under another name, and fields elsewhere: each its own inverse."""

from __future__ import annotations

from dataclasses import dataclass, replace

from zapdb.errors import Location
from zapdb.migrations.document_structure import Name, ViolationCollector, located
from zapdb.migrations.operations.constraints import (
    require_readable_types,
    with_field_renamed_in_checks,
)
from zapdb.migrations.operations.operation import (
    FieldOperation,
    NumberAllocator,
    Operation,
    TableOperation,
    report_taken,
)
from zapdb.schema import Schema


@dataclass(frozen=True)
class RenameTable(TableOperation):
    """Another name for the same table, also in what refers to it; no record changes."""

    keyword = "rename_table"

    to: Name
    location: Location = located()

    def validate(self, schema: Schema, collector: ViolationCollector) -> None:
        self.find_table(schema, collector)
        report_taken(self.to, self.place, schema, collector)

    def apply(self, schema: Schema, numbers: NumberAllocator) -> Schema:
        table = self.table_in(schema)
        return schema.with_table_renamed(table, self.to)

    def invert(
        self, before: Schema, number: int, collector: ViolationCollector
    ) -> tuple[Operation, ...]:
        return (RenameTable(self.to, self.table),)


@dataclass(frozen=True)
class RenameField(FieldOperation):
    """Another name for the same field, also in the checks that read it.

    No record changes.
    """

    keyword = "rename_field"

    to: Name
    location: Location = located()

    def validate(self, schema: Schema, collector: ViolationCollector) -> None:
        table, _ = self.find(schema, collector)
        if table.field_named(self.to) is not None:
            collector.report(self.place, f"there is a field {self.to!r} in {self.table!r} already")
        require_readable_types(table, self.field, self.to, self.place, collector)

    def apply(self, schema: Schema, numbers: NumberAllocator) -> Schema:
        table, renamed = self.found_in(schema)
        table = with_field_renamed_in_checks(table, self.field, self.to)
        return schema.with_table(table.with_field(replace(renamed, name=self.to)))

    def invert(
        self, before: Schema, number: int, collector: ViolationCollector
    ) -> tuple[Operation, ...]:
        return (RenameField(self.table, self.to, self.field),)


@dataclass(frozen=True)
class RenameIndex(TableOperation):
    """Another name for the same index; its entries stay."""

    keyword = "rename_index"

    index: Name
    to: Name
    location: Location = located()

    def validate(self, schema: Schema, collector: ViolationCollector) -> None:
        table = self.find_table(schema, collector)
        self.find_index(table, self.index, collector)
        if table.index_named(self.to) is not None:
            collector.report(self.place, f"there is an index {self.to!r} on {table.name!r} already")

    def apply(self, schema: Schema, numbers: NumberAllocator) -> Schema:
        table = self.table_in(schema)
        indexes = tuple(
            replace(index, name=self.to) if index.name == self.index else index
            for index in table.indexes
        )
        return schema.with_table(table.with_indexes(indexes))

    def invert(
        self, before: Schema, number: int, collector: ViolationCollector
    ) -> tuple[Operation, ...]:
        return (RenameIndex(self.table, self.to, self.index),)


@dataclass(frozen=True)
class ReorderField(FieldOperation):
    """Another place in declared order; no record changes, since they lie by number.

    `position` counts from 0, among the other fields.
    """

    keyword = "reorder_field"

    position: int
    location: Location = located()

    def validate(self, schema: Schema, collector: ViolationCollector) -> None:
        table, field = self.find(schema, collector)
        if not 0 <= self.position < len(table.fields):
            collector.report(self.place, f"the position must be 0 to {len(table.fields) - 1}")
        elif table.fields[self.position] is field:
            collector.report(self.place, f"{self.field!r} stands there already")

    def apply(self, schema: Schema, numbers: NumberAllocator) -> Schema:
        table, field = self.found_in(schema)
        rest = [f for f in table.fields if f is not field]
        rest.insert(self.position, field)
        return schema.with_table(table.with_fields(tuple(rest)))

    def invert(
        self, before: Schema, number: int, collector: ViolationCollector
    ) -> tuple[Operation, ...]:
        table, field = self.found_in(before)
        return (ReorderField(self.table, self.field, table.fields.index(field)),)
