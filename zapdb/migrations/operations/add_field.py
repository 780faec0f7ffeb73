"""add_field: a new field, and what records get that were written before it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from zapdb.errors import Location
from zapdb.limits import FIELDS_PER_TABLE_MAX
from zapdb.migrations.operations.base import (
    Fill,
    Numbers,
    Operation,
    TableOperation,
    normal_default,
    normal_position,
)
from zapdb.migrations.operations.definitions import FieldDefinition
from zapdb.migrations.operations.drop_field import DropField
from zapdb.migrations.structure import ABSENT, Reporter, located
from zapdb.records import Constant, Derivation
from zapdb.schema import Schema, Table


@dataclass(frozen=True)
class AddField(TableOperation):
    """`position` counts from 0 in declared order; without it the field comes last.

    Older records get `fill`, or else the default, or else null where the field is optional.
    """

    keyword = "add_field"

    field: FieldDefinition
    fill: Fill = ABSENT
    position: int = ABSENT
    location: Location = located()

    def validate(self, schema: Schema, reporter: Reporter) -> None:
        table = self.find_table(schema, reporter)
        if table.field_named(self.field.name) is not None:
            reporter.report(
                self.place, f"there is a field {self.field.name!r} in {table.name!r} already"
            )
        if len(table.fields) >= FIELDS_PER_TABLE_MAX:
            reporter.report(self.place, f"a table has at most {FIELDS_PER_TABLE_MAX} fields")
        if self.position is not ABSENT and not 0 <= self.position <= len(table.fields):
            reporter.report(self.place, f"the position must be 0 to {len(table.fields)}")
        reported = len(reporter.violations)
        self.field.validate(self.field.name, schema, reporter)
        if len(reporter.violations) > reported:
            return
        if self.fill is not ABSENT:
            added = self.field.build(self.field.name, 0, schema)
            self.fill.validate(table, added, reporter)
        elif self.field.default is ABSENT and not self.field.optional:
            reporter.report(
                self.field.location,
                f"{self.field.name!r} is required: what do older records get?",
                "add a default to the field, or fill: {value: …} or fill: {expression: …}",
            )

    def normalize(self, schema: Schema, number: int) -> Operation:
        table = self.table_in(schema)
        definition = self.field.normalize(self.field.name, schema)
        fill = self.fill
        if fill is not ABSENT:
            added = definition.build(self.field.name, 0, schema)
            left_out = normal_default(added)
            if added.optional and left_out is ABSENT:
                left_out = None
            fill = fill.normalize(added, left_out)
        position = normal_position(self.position, len(table.fields))
        return replace(self, field=definition, fill=fill, position=position)

    def apply(self, schema: Schema, numbers: Numbers) -> Schema:
        table = self.table_in(schema)
        added = self.field.build(self.field.name, numbers.draw("field"), schema)
        at = len(table.fields) if self.position is ABSENT else self.position
        return schema.with_table(table.with_fields((*table.fields[:at], added, *table.fields[at:])))

    def invert(self, before: Schema, number: int, reporter: Reporter) -> tuple[Operation, ...]:
        return (DropField(self.table, self.field.name),)

    def derive(self, before: Table, after: Table) -> dict[int, Derivation]:
        added = after.field_named(self.field.name)
        assert added is not None
        if self.fill is not ABSENT:
            return {added.number: self.fill.derive(before, added)}
        return {added.number: Constant(added.default if added.has_default else None)}
