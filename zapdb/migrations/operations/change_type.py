"""The type of a field; changing it is its own inverse, by the expression of the other way."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, replace

from zapdb.errors import Location
from zapdb.expressions import Literal, Type, parse_expression
from zapdb.expressions.tree import Conditional, IsNull
from zapdb.expressions.tree import Name as FieldName
from zapdb.migrations.document_structure import (
    ABSENT,
    Name,
    Plain,
    ViolationCollector,
    located,
    reason,
)
from zapdb.migrations.operations.constraints import require_unconstrained
from zapdb.migrations.operations.definitions import (
    TypeDefinition,
    check_default,
    default_of,
    normal_default,
    parameters_of,
    read_default,
)
from zapdb.migrations.operations.operation import (
    FieldOperation,
    NumberAllocator,
    Operation,
    Reversibility,
    canonical_expression,
    field_in,
    report_expression_errors,
)
from zapdb.records import Computed, Derivation, SourceField
from zapdb.schema import Field, Schema, TableSchema
from zapdb.values import ValueType


@dataclass(frozen=True)
class ChangeType(FieldOperation):
    """The same field under another type, with an expression each way.

    Null stays null; the expressions see only values. The field keeps its number. A default must be
    given again, because the old one has the old type.
    """

    keyword = "change_type"

    type: Name
    up: str
    scale: int = ABSENT
    items: TypeDefinition = dataclasses.field(default=ABSENT, metadata={"key": "of"})
    to: Name = ABSENT
    default: Plain = ABSENT
    down: str = ABSENT
    reversibility: Reversibility = "exact"
    because: str = reason()
    location: Location = located()

    def __post_init__(self) -> None:
        for name in ("up", "down"):
            text = getattr(self, name)
            if text is not ABSENT:
                object.__setattr__(self, name, canonical_expression(text))

    @property
    def _definition(self) -> TypeDefinition:
        return TypeDefinition(self.type, self.scale, self.items, self.to, self.place)

    def validate(self, schema: Schema, collector: ViolationCollector) -> None:
        table, old = self.find(schema, collector)
        self.require_no_key(table, old, "given another type", collector)
        if old.generated:
            collector.report(
                self.place, f"{self.field!r} is generated: it can't be of another type"
            )
        kind = self._definition.build_type(schema, collector)
        if kind == old.type:
            collector.report(self.place, f"{self.field!r} is of that type already")
        self._validate_default(old, kind, collector)
        require_unconstrained(table, old, self.place, collector)
        for index in table.indexes_on(old.number):
            component = next(c for c in index.components if c.field == old.number)
            if not kind.indexable or (component.collation is not None and kind.name != "string"):
                collector.report(
                    self.place,
                    f"the index {index.name!r} can't hold values of type {kind} as it is",
                    f"put a drop_index of {index.name!r} before this change",
                )
        names: dict[str, Type] = {self.field: Type(old.type)}
        report_expression_errors(self.up, names, Type(kind), self.place, collector)
        if self.down is not ABSENT:
            names = {self.field: Type(kind)}
            report_expression_errors(self.down, names, Type(old.type), self.place, collector)

    def _validate_default(self, old: Field, kind: ValueType, collector: ViolationCollector) -> None:
        """The field keeps a default, of the new type, or has none before and after."""
        if self.default is ABSENT:
            if old.has_default:
                collector.report(
                    self.place,
                    f"{self.field!r} has a default of the old type",
                    "say the default of the new type: add default: …",
                )
            return
        check_default(self.default, kind, old.optional, self.field, self.place, collector)
        if self.default is None and old.optional:
            collector.report(
                self.place,
                f"null is no default of {self.field!r}, which may be null",
                "say another one, or put a change_default with remove: true before this change",
            )
        elif not old.has_default:
            collector.report(
                self.place,
                f"{self.field!r} has no default, and no rollback could take this one away",
            )

    def normalize(self, schema: Schema, number: int) -> Operation:
        if self.default is ABSENT:
            return self
        kind = self._definition.build_type(schema)
        return replace(self, default=Plain(normal_default(self.default, kind, self.field)))

    def without_rollback_hints(self) -> Operation:
        return replace(self, down=ABSENT)

    def apply(self, schema: Schema, numbers: NumberAllocator) -> Schema:
        table, old = self.found_in(schema)
        return schema.with_table(table.with_field(self._change(old, schema)))

    def _change(self, old: Field, schema: Schema) -> Field:
        kind = self._definition.build_type(schema)
        return replace(old, type=kind, default=read_default(self.default, kind, self.field))

    def invert(
        self, before: Schema, number: int, collector: ViolationCollector
    ) -> tuple[Operation, ...]:
        _, old = self.found_in(before)
        if self.down is ABSENT:
            collector.report_not_exhaustive(
                self.place,
                f"no rollback can be inferred for the type of {self.table}.{self.field}",
                f"add down: an expression that makes a {old.type} of the new value",
            )
            return ()
        return (
            ChangeType(
                self.table,
                self.field,
                up=self.down,
                default=default_of(old),
                down=self.up,
                reversibility=self.reversibility,
                because=self.because,
                **parameters_of(old.type),
            ),
        )

    def lossy_fields(self, before: TableSchema) -> frozenset[int]:
        is_lossy = self.reversibility == "lossy"
        return frozenset({field_in(before, self.field).number} if is_lossy else ())

    def derive(self, before: TableSchema, after: TableSchema) -> dict[int, Derivation]:
        old = before.field_named(self.field)
        new = after.field_named(self.field)
        assert old is not None
        assert new is not None
        expression = parse_expression(self.up)
        if old.optional:
            name = FieldName(self.field)
            expression = Conditional(IsNull(name), Literal(None), expression)
        types: dict[str, Type] = {self.field: Type(old.type)}
        result = Type(new.type, new.optional)
        return {
            new.number: Computed(expression, {self.field: SourceField(old.number)}, types, result)
        }
