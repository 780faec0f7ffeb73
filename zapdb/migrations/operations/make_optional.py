"""make_optional: a required field may be null from here on; `fill` is for the way back.

No record changes its values. A rollback makes the field required again, and null becomes `fill`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from zapdb.errors import Location
from zapdb.migrations.operations.base import (
    Fill,
    Numbers,
    Operation,
    TableOperation,
    field_in,
    normal_default,
)
from zapdb.migrations.operations.change_default import ChangeDefault
from zapdb.migrations.operations.constraints import refuse_constrained
from zapdb.migrations.operations.make_required import MakeRequired
from zapdb.migrations.structure import ABSENT, Name, Plain, Reporter, located
from zapdb.schema import NO_DEFAULT, Schema


@dataclass(frozen=True)
class MakeOptional(TableOperation):
    """Without `fill`, a rollback puts the field's default in the place of null."""

    keyword = "make_optional"

    field: Name
    fill: Fill = ABSENT
    location: Location = located()

    def validate(self, schema: Schema, reporter: Reporter) -> None:
        table = self.find_table(schema, reporter)
        field = self.find_field(table, self.field, reporter)
        self.refuse_key(table, field, "made optional", reporter)
        if field.optional:
            reporter.report(self.place, f"{self.field!r} is optional already")
            return
        refuse_constrained(table, field, self.place, reporter)
        if self.fill is not ABSENT:
            rest = table.with_fields(tuple(f for f in table.fields if f is not field))
            self.fill.validate(rest, field, reporter)

    def normalize(self, schema: Schema, number: int) -> Operation:
        field = field_in(self.table_in(schema), self.field)
        if self.fill is ABSENT:
            return self
        return replace(self, fill=self.fill.normalize(field, normal_default(field)))

    def without_way_back(self) -> Operation:
        return replace(self, fill=ABSENT)

    def apply(self, schema: Schema, numbers: Numbers) -> Schema:
        table = self.table_in(schema)
        field = field_in(table, self.field)
        default = NO_DEFAULT if field.default is None else field.default
        changed = replace(field, optional=True, default=default)
        return schema.with_table(table.with_field(changed))

    def invert(self, before: Schema, number: int, reporter: Reporter) -> tuple[Operation, ...]:
        table = self.table_in(before)
        field = field_in(table, self.field)
        if self.fill is ABSENT and not field.has_default:
            reporter.report_not_exhaustive(
                self.place,
                f"no rollback can be inferred: {self.table}.{self.field} would be required again",
                "say what null becomes then: add fill: {value: …} or fill: {expression: …}",
            )
            return ()
        if field.default is not None:
            return (MakeRequired(self.table, self.field, self.fill),)
        # The default of a field that holds null; once it is optional, null is none.
        null = Plain(None)
        fill = Fill(null) if self.fill is ABSENT else self.fill
        return (
            MakeRequired(self.table, self.field, fill),
            ChangeDefault(self.table, self.field, null),
        )
