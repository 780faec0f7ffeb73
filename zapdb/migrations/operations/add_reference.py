"""add_reference: what a field of type reference names must exist, from here on.

`on_delete` says what becomes of a record when the one that it refers to is deleted: it keeps that
one from being deleted (`restrict`), goes with it (`cascade`), or lets go of it (`set_null`). The
records that refer to one are found by the table's key or an index, whichever begins with the field;
one of them must. It binds every write at once; records that are there already are looked at in the
background.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from zapdb.errors import Location
from zapdb.migrations.operations.base import Numbers, Operation, TableOperation, field_in
from zapdb.migrations.operations.constraints import can_find_referrers
from zapdb.migrations.structure import Name, Reporter, located
from zapdb.schema import ForeignKey, OnDelete, Schema
from zapdb.values import Reference


@dataclass(frozen=True)
class AddReference(TableOperation):
    keyword = "add_reference"

    field: Name
    on_delete: OnDelete
    location: Location = located()

    def validate(self, schema: Schema, reporter: Reporter) -> None:
        table = self.find_table(schema, reporter)
        field = self.find_field(table, self.field, reporter)
        if not isinstance(field.type, Reference):
            reporter.report(
                self.place,
                f"{self.field!r} is {field.type}, and refers to nothing",
                "a reference is of a field with type: reference",
            )
            return
        if table.foreign_key_on(field.number) is not None:
            reporter.report(self.place, f"what {self.field!r} refers to must exist already")
        if not can_find_referrers(table, field.number, table.indexes):
            reporter.report(
                self.place,
                f"neither the key nor an index of {table.name!r} begins with {self.field!r}",
                f"put a create_index with {self.field!r} as its first field before this change",
            )
        if self.on_delete == "set_null" and not field.optional:
            reporter.report(
                self.place,
                f"{self.field!r} is required, and can't be set to null",
                "make it optional, or use restrict or cascade",
            )
        if self.on_delete == "set_null" and field.number in table.key:
            reporter.report(
                self.place, f"{self.field!r} is part of the key: a record keeps its key"
            )

    def apply(self, schema: Schema, numbers: Numbers) -> Schema:
        table = self.table_in(schema)
        field = field_in(table, self.field)
        added = ForeignKey(field.number, self.on_delete)
        return schema.with_table(replace(table, foreign_keys=(*table.foreign_keys, added)))

    def invert(self, before: Schema, number: int, reporter: Reporter) -> tuple[Operation, ...]:
        from zapdb.migrations.operations.drop_reference import DropReference

        return (DropReference(self.table, self.field),)
