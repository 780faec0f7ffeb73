"""References: what a field refers to must exist; adding and dropping are inverses."""

from __future__ import annotations

from dataclasses import dataclass, replace

from zapdb.errors import Location
from zapdb.migrations.document_structure import ViolationCollector, located
from zapdb.migrations.operations.constraints import can_find_referrers
from zapdb.migrations.operations.operation import FieldOperation, NumberAllocator, Operation
from zapdb.schema import ForeignKey, OnDelete, Schema
from zapdb.values import Reference


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
