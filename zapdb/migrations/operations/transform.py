"""transform: n fields become m new ones, by an expression for each, both ways.

The expressions see the fields that go, on the way up, and the fields that came, on the way down.
The new fields stand where the first of the old ones stood, or at `positions`, in order of their
names: the keys of a mapping have no order, and the digest does not cover one.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, replace

from zapdb.errors import Location
from zapdb.expressions import Type
from zapdb.limits import FIELDS_PER_TABLE_MAX
from zapdb.migrations.document_structure import (
    ABSENT,
    Name,
    ParsingStopped,
    ViolationCollector,
    located,
    reason,
)
from zapdb.migrations.operations.constraints import require_unused
from zapdb.migrations.operations.definitions import FieldType, parameters_of
from zapdb.migrations.operations.operation import (
    NumberAllocator,
    Operation,
    Reversibility,
    TableOperation,
    canonical_expression,
    compute,
    report_expression_errors,
)
from zapdb.records import Derivation
from zapdb.schema import Field, Schema, TableSchema


@dataclass(frozen=True)
class Transform(TableOperation):
    """N fields become m new ones, by an expression for each, both ways.

    The expressions see the fields that go, on the way up, and the fields that came, on the way
    down. The new fields stand where the first of the old ones stood, or at `positions`, in order of
    their names: the keys of a mapping have no order, and the digest does not cover one.
    """

    keyword = "transform"

    source: dict[Name, FieldType] = dataclasses.field(metadata={"key": "from"})
    into: dict[Name, FieldType]
    up: dict[Name, str]
    down: dict[Name, str] = ABSENT
    reversibility: Reversibility = "exact"
    because: str = reason()
    positions: tuple[int, ...] = ABSENT
    location: Location = located()

    def __post_init__(self) -> None:
        for name in ("source", "into"):
            object.__setattr__(self, name, dict(sorted(getattr(self, name).items())))
        for name in ("up", "down"):
            texts = getattr(self, name)
            if texts is not ABSENT:
                canonical = {
                    field: canonical_expression(text) for field, text in sorted(texts.items())
                }
                object.__setattr__(self, name, canonical)

    def validate(self, schema: Schema, collector: ViolationCollector) -> None:
        table = self.find_table(schema, collector)
        if not self.source or not self.into:
            collector.report(self.place, "from and into each name one field or more")
            raise ParsingStopped
        old = self._validate_source(schema, table, collector)
        taken = {f.name for f in table.fields} - set(self.source)
        for name, definition in self.into.items():
            if name in taken:
                collector.report(
                    definition.location, f"there is a field {name!r} in {table.name!r} already"
                )
            definition.validate(name, schema, collector)
        size = len(table.fields) - len(self.source) + len(self.into)
        if size > FIELDS_PER_TABLE_MAX:
            collector.report(self.place, f"a table has at most {FIELDS_PER_TABLE_MAX} fields")
        if self.positions is not ABSENT:
            self._validate_positions(size, collector)
        new: dict[str, Type] = {
            name: Type(definition.build_type(schema, collector), definition.optional)
            for name, definition in self.into.items()
        }
        self._validate_expressions("up", self.up, old, new, collector)
        if self.down is not ABSENT:
            self._validate_expressions("down", self.down, new, old, collector)

    def _validate_positions(self, size: int, collector: ViolationCollector) -> None:
        if len(self.positions) != len(self.into) or len(set(self.positions)) != len(self.into):
            collector.report(self.place, "positions has a different number for each field of into")
        if not all(0 <= position < size for position in self.positions):
            collector.report(self.place, f"a position must be 0 to {size - 1}")

    def _validate_source(
        self, schema: Schema, table: TableSchema, collector: ViolationCollector
    ) -> dict[str, Type]:
        types: dict[str, Type] = {}
        for name, definition in self.source.items():
            field = self.find_field(table, name, collector)
            self.require_no_key(table, field, "transformed", collector)
            kind = definition.build_type(schema, collector)
            if (kind, definition.optional) != (field.type, field.optional):
                found = Type(field.type, field.optional)
                collector.report(
                    definition.location, f"{name!r} is {found}, not as it is said here"
                )
            if definition.default is not ABSENT or definition.generated is not False:
                collector.report(
                    definition.location,
                    "from says of a field its type, and whether it is optional",
                    "leave out default and generated",
                )
            require_unused(table, field, self.place, collector)
            types[name] = Type(field.type, field.optional)
        return types

    def _validate_expressions(
        self,
        way: str,
        texts: dict[Name, str],
        given: dict[str, Type],
        wanted: dict[str, Type],
        collector: ViolationCollector,
    ) -> None:
        for name in sorted(wanted.keys() - texts.keys()):
            collector.report(self.place, f"{way} has no expression for {name!r}")
        for name, text in texts.items():
            if name not in wanted:
                collector.report(self.place, f"{way} has an expression for {name!r}, which is none")
                continue
            report_expression_errors(text, given, wanted[name], self.place, collector)

    def normalize(self, schema: Schema, number: int) -> Operation:
        """Write the present types into `from`, and whether they are optional."""
        table = self.table_in(schema)
        source = {
            name: FieldType(**parameters_of(field.type), optional=field.optional)
            for name in self.source
            for field in (self._field(table, name),)
        }
        into = {name: definition.normalize(name, schema) for name, definition in self.into.items()}
        at = self._first(table)
        positions = self.positions
        if positions == tuple(range(at, at + len(into))):
            positions = ABSENT
        return replace(self, source=source, into=into, positions=positions)

    def without_rollback_hints(self) -> Operation:
        return replace(self, down=ABSENT)

    def _first(self, table: TableSchema) -> int:
        """Where the first of the old fields stands."""
        return min(i for i, f in enumerate(table.fields) if f.name in self.source)

    def apply(self, schema: Schema, numbers: NumberAllocator) -> Schema:
        table = self.table_in(schema)
        at = self._first(table)
        fields = [f for f in table.fields if f.name not in self.source]
        positions = range(at, at + len(self.into)) if self.positions is ABSENT else self.positions
        added = [d.build(name, numbers.allocate("field"), schema) for name, d in self.into.items()]
        for position, field in sorted(zip(positions, added, strict=True), key=lambda pair: pair[0]):
            fields.insert(position, field)
        return schema.with_table(table.with_fields(tuple(fields)))

    def invert(
        self, before: Schema, number: int, collector: ViolationCollector
    ) -> tuple[Operation, ...]:
        table = self.table_in(before)
        if self.down is ABSENT:
            collector.report_not_exhaustive(
                self.place,
                f"no rollback can be inferred for a transform of {self.table}",
                f"add down: with an expression for each of {', '.join(self.source)}",
            )
            return ()
        old = {name: self._field(table, name) for name in self.source}
        new = {
            name: replace(definition, default=ABSENT, generated=False)
            for name, definition in self.into.items()
        }
        return (
            Transform(
                self.table,
                new,
                {name: FieldType.of(field) for name, field in old.items()},
                self.down,
                self.up,
                self.reversibility,
                self.because,
                tuple(table.fields.index(field) for field in old.values()),
            ),
        )

    def lossy_fields(self, before: TableSchema) -> frozenset[int]:
        if self.reversibility == "exact":
            return frozenset()
        return frozenset(self._field(before, name).number for name in self.source)

    def derive(self, before: TableSchema, after: TableSchema) -> dict[int, Derivation]:
        derived: dict[int, Derivation] = {}
        for name, text in self.up.items():
            field = self._field(after, name)
            derived[field.number] = compute(text, before, field)
        return derived

    def _field(self, table: TableSchema, name: str) -> Field:
        field = table.field_named(name)
        assert field is not None
        return field
