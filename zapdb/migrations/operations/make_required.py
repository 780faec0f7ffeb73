"""make_required: an optional field becomes required; `fill` takes the place of null.

A rollback makes it optional again. What was null stays filled: no rollback knows which it was.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from zapdb.errors import Location
from zapdb.expressions import Type
from zapdb.expressions.tree import Call
from zapdb.expressions.tree import Name as FieldName
from zapdb.migrations.operations.base import (
    Fill,
    Numbers,
    Operation,
    TableOperation,
    field_in,
    normal_default,
)
from zapdb.migrations.operations.constraints import refuse_constrained
from zapdb.migrations.structure import ABSENT, Name, Reporter, located
from zapdb.records import Computed, Derivation, Input
from zapdb.schema import Field, Schema, Table


@dataclass(frozen=True)
class MakeRequired(TableOperation):
    """Without `fill`, null becomes the field's default."""

    keyword = "make_required"

    field: Name
    fill: Fill = ABSENT
    location: Location = located()

    def validate(self, schema: Schema, reporter: Reporter) -> None:
        table = self.find_table(schema, reporter)
        field = self.find_field(table, self.field, reporter)
        if not field.optional:
            reporter.report(self.place, f"{self.field!r} is required already")
            return
        refuse_constrained(table, field, self.place, reporter)
        if self.fill is not ABSENT:
            rest = table.with_fields(tuple(f for f in table.fields if f is not field))
            self.fill.validate(rest, replace(field, optional=False), reporter)
        elif not field.has_default:
            reporter.report(
                self.place,
                f"what do records get whose {self.field!r} is null?",
                "add fill: {value: …} or fill: {expression: …}",
            )

    def normalize(self, schema: Schema, number: int) -> Operation:
        _, field = self._find(schema)
        if self.fill is ABSENT:
            return self
        return replace(self, fill=self.fill.normalize(field, normal_default(field)))

    def apply(self, schema: Schema, numbers: Numbers) -> Schema:
        table, field = self._find(schema)
        return schema.with_table(table.with_field(replace(field, optional=False)))

    def _find(self, schema: Schema) -> tuple[Table, Field]:
        table = self.table_in(schema)
        field = field_in(table, self.field)
        return table, field

    def invert(self, before: Schema, number: int, reporter: Reporter) -> tuple[Operation, ...]:
        from zapdb.migrations.operations.make_optional import MakeOptional

        return (MakeOptional(self.table, self.field, self._fill(before)),)

    def _fill(self, schema: Schema) -> Fill:
        if self.fill is not ABSENT:
            return self.fill
        _, field = self._find(schema)
        return Fill(field.type.to_document(field.default))

    def loses(self, before: Table) -> frozenset[int]:
        return frozenset({field_in(before, self.field).number})

    def derive(self, before: Table, after: Table) -> dict[int, Derivation]:
        field = field_in(after, self.field)
        fill = self.fill
        if fill is ABSENT:
            fill = Fill(field.type.to_document(field.default))
        inputs = {"value": Input(field.number), "fill": fill.derive(before, field)}
        types = {"value": Type(field.type, optional=True), "fill": Type(field.type)}
        filled = Call("coalesce", (FieldName("value"), FieldName("fill")))
        return {field.number: Computed(filled, inputs, types, Type(field.type))}
