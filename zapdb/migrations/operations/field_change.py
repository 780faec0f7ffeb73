"""A field's default, and whether it may be null.

Changing a default is its own inverse; making required and making optional are inverses.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from zapdb.errors import Location
from zapdb.expressions import Type
from zapdb.expressions.tree import Call
from zapdb.expressions.tree import Name as FieldName
from zapdb.migrations.document_structure import ABSENT, Plain, ViolationCollector, located
from zapdb.migrations.operations.constraints import require_unconstrained
from zapdb.migrations.operations.definitions import (
    check_default,
    constant_of,
    default_of,
    normal_default,
    read_default,
)
from zapdb.migrations.operations.operation import (
    FieldOperation,
    Fill,
    NumberAllocator,
    Operation,
    field_in,
)
from zapdb.records import Computed, Derivation, SourceField
from zapdb.schema import NO_DEFAULT, Field, Schema, TableSchema


@dataclass(frozen=True)
class _Optionality(FieldOperation):
    """Null comes or goes; `fill` takes its place wherever the field is required."""

    fill: Fill = ABSENT
    location: Location = located()

    makes_optional: ClassVar[bool]

    def validate(self, schema: Schema, collector: ViolationCollector) -> None:
        table, field = self.find(schema, collector)
        if self.makes_optional:
            self.require_no_key(table, field, "made optional", collector)
        if field.optional == self.makes_optional:
            state = "optional" if field.optional else "required"
            collector.report(self.place, f"{self.field!r} is {state} already")
            return
        require_unconstrained(table, field, self.place, collector)
        if self.fill is not ABSENT:
            rest = table.with_fields(tuple(f for f in table.fields if f is not field))
            self.fill.validate(rest, replace(field, optional=False), collector)
        else:
            self._validate_without_fill(field, collector)

    def _validate_without_fill(self, field: Field, collector: ViolationCollector) -> None:
        """Report what is missing where nothing is said of null."""

    def normalize(self, schema: Schema, number: int) -> Operation:
        _, field = self.found_in(schema)
        if self.fill is ABSENT:
            return self
        return replace(self, fill=self.fill.normalize(field, constant_of(field)))


@dataclass(frozen=True)
class MakeRequired(_Optionality):
    """An optional field becomes required; `fill` takes the place of null.

    A rollback makes it optional again. What was null stays filled: no rollback knows which it was.

    Without `fill`, null becomes the field's default.
    """

    keyword = "make_required"
    makes_optional = False

    def _validate_without_fill(self, field: Field, collector: ViolationCollector) -> None:
        if not field.has_constant:
            collector.report(
                self.place,
                f"what do records get whose {self.field!r} is null?",
                "add fill: {value: …} or fill: {expression: …}",
            )

    def apply(self, schema: Schema, numbers: NumberAllocator) -> Schema:
        table, field = self.found_in(schema)
        return schema.with_table(table.with_field(replace(field, optional=False)))

    def invert(
        self, before: Schema, number: int, collector: ViolationCollector
    ) -> tuple[Operation, ...]:
        _, field = self.found_in(before)
        return (MakeOptional(self.table, self.field, self._fill(field)),)

    def _fill(self, field: Field) -> Fill:
        if self.fill is not ABSENT:
            return self.fill
        return Fill(field.type.to_document(field.default))

    def lossy_fields(self, before: TableSchema) -> frozenset[int]:
        return frozenset({field_in(before, self.field).number})

    def derive(self, before: TableSchema, after: TableSchema) -> dict[int, Derivation]:
        field = field_in(after, self.field)
        filler = self._fill(field).derive(before, field)
        inputs = {"value": SourceField(field.number), "fill": filler}
        types = {"value": Type(field.type, optional=True), "fill": Type(field.type)}
        filled = Call("coalesce", (FieldName("value"), FieldName("fill")))
        return {field.number: Computed(filled, inputs, types, Type(field.type))}


@dataclass(frozen=True)
class MakeOptional(_Optionality):
    """A required field may be null from here on; `fill` is for the way back.

    No record changes its values. A rollback makes the field required again, and null becomes
    `fill`.

    Without `fill`, a rollback puts the field's default in the place of null; in a `json` field,
    which may hold null, it stays.
    """

    keyword = "make_optional"
    makes_optional = True

    def without_rollback_hints(self) -> Operation:
        return replace(self, fill=ABSENT)

    def apply(self, schema: Schema, numbers: NumberAllocator) -> Schema:
        table, field = self.found_in(schema)
        default = NO_DEFAULT if field.default is None else field.default
        changed = replace(field, optional=True, default=default)
        return schema.with_table(table.with_field(changed))

    def invert(
        self, before: Schema, number: int, collector: ViolationCollector
    ) -> tuple[Operation, ...]:
        _, field = self.found_in(before)
        null = Plain(None)
        fill = Fill(null) if self.fill is ABSENT and field.type.holds_null else self.fill
        if fill is ABSENT and not field.has_constant:
            collector.report_not_exhaustive(
                self.place,
                f"no rollback can be inferred: {self.table}.{self.field} would be required again",
                "say what null becomes then: add fill: {value: …} or fill: {expression: …}",
            )
            return ()
        if field.default is not None:
            return (MakeRequired(self.table, self.field, fill),)
        # The default of a field that holds null; once it is optional, null is none.
        return (
            MakeRequired(self.table, self.field, fill),
            ChangeDefault(self.table, self.field, null),
        )


@dataclass(frozen=True)
class ChangeDefault(FieldOperation):
    """Another default for new records, or none; no record changes.

    Exactly one of `default` and `remove: true`.
    """

    keyword = "change_default"

    default: Plain = ABSENT
    remove: bool = ABSENT
    location: Location = located()

    def __post_init__(self) -> None:
        if self.remove is False:
            object.__setattr__(self, "remove", ABSENT)

    def validate(self, schema: Schema, collector: ViolationCollector) -> None:
        _, field = self.find(schema, collector)
        if (self.default is ABSENT) == (self.remove is ABSENT):
            collector.report(self.place, "exactly one of default and remove: true is needed here")
            return
        if field.generated:
            collector.report(self.place, "a generated field has no default")
        if self.default is not ABSENT:
            check_default(
                self.default, field.type, field.optional, self.field, self.place, collector
            )
        is_removed = self.default is ABSENT or (self.default is None and field.optional)
        if is_removed and not field.has_default:
            collector.report(self.place, f"{self.field!r} has no default to remove")

    def normalize(self, schema: Schema, number: int) -> Operation:
        """Null is no default, where the field may be null."""
        _, field = self.found_in(schema)
        if self.default is ABSENT:
            return self
        if self.default is None and field.optional:
            return replace(self, default=ABSENT, remove=True)
        return replace(self, default=Plain(normal_default(self.default, field.type, self.field)))

    def apply(self, schema: Schema, numbers: NumberAllocator) -> Schema:
        table, field = self.found_in(schema)
        default = read_default(self.default, field.type, self.field)
        return schema.with_table(table.with_field(replace(field, default=default)))

    def invert(
        self, before: Schema, number: int, collector: ViolationCollector
    ) -> tuple[Operation, ...]:
        _, field = self.found_in(before)
        if not field.has_default:
            return (ChangeDefault(self.table, self.field, remove=True),)
        return (ChangeDefault(self.table, self.field, default_of(field)),)
