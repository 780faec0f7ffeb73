"""What every operation provides, and the expressions and fills that several of them share.

An operation is a frozen value parsed from a document. `validate` reports every violation against
the schema before it and changes nothing. `apply` is pure and requires a valid operation. `invert`
returns the operations that roll it back. `derive` returns how the changed fields of its table are
made of the earlier fields, and `archive` which values of dropped fields are archived.
`lossy_fields` returns the fields that the rollback may not restore exactly.

A meaning has one spelling (rule 5): `normalize` gives it, and `without_rollback_hints` leaves out
what a change says for its rollback alone, which the resolved rollback holds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Literal, TypeVar

from zapdb.errors import Location
from zapdb.expressions import (
    ExpressionError,
    Type,
    check_assignable,
    names_in,
    parse_expression,
    unparse,
)
from zapdb.migrations.did_you_mean_key import hint_at
from zapdb.migrations.document_structure import (
    ABSENT,
    Name,
    ParsingStopped,
    Plain,
    ViolationCollector,
    located,
)
from zapdb.migrations.operations.definitions import check_plain, normal_plain
from zapdb.records import Computed, Constant, Derivation, Slot, SourceField
from zapdb.schema import Field, Index, Schema, TableSchema
from zapdb.values import Enum, Struct
from zapdb.values.json import dumps

Reversibility = Literal["exact", "lossy"]
Placed = TypeVar("Placed")

PROVISIONAL: Final = 1 << 62
"""The first of the numbers in migrations that are not stored."""


class NumberAllocator:
    """Draws numbers for what is new, each kind from a counter of its own.

    `migration` is the number of the migration whose operations draw.
    """

    def __init__(
        self, following: dict[str, int] | None = None, step: int = 1, migration: int = 0
    ) -> None:
        self.following = dict(following or {})
        self.step = step
        self.migration = migration

    @classmethod
    def provisional(cls) -> NumberAllocator:
        """Return one that draws numbers to validate migrations that are not stored; they collide
        with no others."""
        return cls(dict.fromkeys(("table", "field", "index", "type", "check"), PROVISIONAL))

    def allocate(self, kind: Literal["table", "field", "index", "type", "check"]) -> int:
        number = self.following.get(kind, self.step)
        self.following[kind] = number + self.step
        return number


@dataclass(frozen=True)
class Operation(ABC):
    """One change."""

    keyword: ClassVar[str]

    @abstractmethod
    def validate(self, schema: Schema, collector: ViolationCollector) -> None:
        """Report all violations; raises `ParsingStopped` if no further check is possible."""

    def normalize(self, schema: Schema, number: int) -> Operation:
        """The one spelling of what this operation means here, for a valid one.

        Values have the form that their type gives them, and what says what leaving it out says is
        left out. `number` is the number of the migration that the operation is part of.
        """
        return self

    def without_rollback_hints(self) -> Operation:
        """This operation as a change whose rollback is resolved: without what that was made of."""
        return self

    @abstractmethod
    def apply(self, schema: Schema, numbers: NumberAllocator) -> Schema:
        """The schema after this operation, which must be valid."""

    @abstractmethod
    def invert(
        self, before: Schema, number: int, collector: ViolationCollector
    ) -> tuple[Operation, ...]:
        """Return the operations that roll it back, or report which rollbacks have to be declared.

        `number` is the number of the migration that this operation is part of.
        """

    def derive(self, before: TableSchema, after: TableSchema) -> dict[int, Derivation]:
        """Derivations by field number of `after`, for fields that are not simply carried over."""
        return {}

    def archive(self, before: TableSchema, after: TableSchema) -> dict[Slot, Derivation]:
        """Return the values to archive for records of `before`, by the slot of the dropped field,
        as the fields are numbered here; the migration knows their cells."""
        return {}

    def lossy_fields(self, before: TableSchema) -> frozenset[int]:
        """Return the numbers of the fields of `before` that a rollback may not restore exactly."""
        return frozenset()

    @property
    def place(self) -> Location:
        place: Location = getattr(self, "location", Location("<stored>"))
        return place


@dataclass(frozen=True)
class TypeOperation(Operation):
    """One change to one declared type."""

    type: Name

    def find_type(self, schema: Schema, collector: ViolationCollector) -> Enum | Struct:
        declared = schema.type_named(self.type)
        if declared is None:
            hint = hint_at(self.type, (kind.declared_name for kind in schema.types))
            collector.report(self.place, f"there is no type {self.type!r} here", hint)
            raise ParsingStopped
        return declared


@dataclass(frozen=True)
class TableOperation(Operation):
    """One change to one table."""

    table: Name

    def find_table(self, schema: Schema, collector: ViolationCollector) -> TableSchema:
        table = schema.table_named(self.table)
        if table is None:
            hint = hint_at(self.table, (t.name for t in schema))
            collector.report(self.place, f"there is no table {self.table!r} here", hint)
            raise ParsingStopped
        return table

    def find_field(self, table: TableSchema, name: str, collector: ViolationCollector) -> Field:
        found = table.field_named(name)
        if found is None:
            hint = hint_at(name, (f.name for f in table.fields))
            collector.report(self.place, f"there is no field {name!r} in {table.name!r} here", hint)
            raise ParsingStopped
        return found

    def table_in(self, schema: Schema) -> TableSchema:
        """The table, where this operation is valid."""
        table = schema.table_named(self.table)
        assert table is not None
        return table

    def find_index(self, table: TableSchema, name: str, collector: ViolationCollector) -> Index:
        found = table.index_named(name)
        if found is None:
            hint = hint_at(name, (index.name for index in table.indexes))
            collector.report(self.place, f"there is no index {name!r} on {table.name!r}", hint)
            raise ParsingStopped
        return found

    def require_no_key(
        self, table: TableSchema, field: Field, what: str, collector: ViolationCollector
    ) -> None:
        """Key fields may be renamed, nothing else (rule 21)."""
        if field.number in table.key:
            collector.report(
                self.place,
                f"{field.name!r} is part of the key of {table.name!r} and can't be {what}",
                "another key is a new table and a copy of the records",
            )


@dataclass(frozen=True)
class FieldOperation(TableOperation):
    """One change to one existing field."""

    field: Name

    def find(self, schema: Schema, collector: ViolationCollector) -> tuple[TableSchema, Field]:
        """The table and the field; raises `ParsingStopped` where there are none."""
        table = self.find_table(schema, collector)
        return table, self.find_field(table, self.field, collector)

    def found_in(self, schema: Schema) -> tuple[TableSchema, Field]:
        """The table and the field, where this operation is valid."""
        table = self.table_in(schema)
        return table, field_in(table, self.field)


@dataclass(frozen=True)
class Fill:
    """What a field gets that has no value: exactly one of a value and an expression."""

    value: Plain = ABSENT
    expression: str = ABSENT
    location: Location = located()

    def __post_init__(self) -> None:
        if self.expression is not ABSENT:
            object.__setattr__(self, "expression", canonical_expression(self.expression))

    def validate(self, table: TableSchema, target: Field, collector: ViolationCollector) -> None:
        """`target` is filled in records of `table`, whose fields the expression may read."""
        if (self.value is ABSENT) == (self.expression is ABSENT):
            collector.report(self.location, "exactly one of value and expression is needed here")
        elif self.value is not ABSENT:
            check_plain(
                self.value, target.type, target.optional, target.name, self.location, collector
            )
        else:
            wanted = Type(target.type, target.optional)
            report_expression_errors(
                self.expression, types_of(table), wanted, self.location, collector
            )

    def normalize(self, target: Field, left_out: Any) -> Fill:
        """This fill, or ABSENT if it says what leaving it out says: the plain value `left_out`."""
        if self.value is ABSENT:
            return self
        value = normal_plain(self.value, target.type, target.name)
        if left_out is not ABSENT and dumps(value) == dumps(left_out):
            return ABSENT  # type: ignore[no-any-return]  # stands for an absent key of any kind
        return replace(self, value=Plain(value))

    def derive(self, table: TableSchema, target: Field) -> Derivation:
        if self.expression is ABSENT:
            plain: Any = self.value
            return Constant(
                None if plain is None else target.type.from_document(plain, target.name)
            )
        return compute(self.expression, table, target)


def insert_at(position: int, item: Placed, items: tuple[Placed, ...]) -> tuple[Placed, ...]:
    """The items with one more at a position, at the end where that is ABSENT."""
    at = len(items) if position is ABSENT else position
    return (*items[:at], item, *items[at:])


def check_position(position: int, end: int, place: Location, collector: ViolationCollector) -> None:
    """Report a position in a list that is not there."""
    if position is not ABSENT and not 0 <= position <= end:
        collector.report(place, f"the position must be 0 to {end}")


def normal_position(position: int, end: int) -> int:
    """A place in a list, ABSENT where it is the end."""
    return ABSENT if position == end else position


def normal_archiver(by: int, number: int) -> int:
    """The migration that something is archived by, ABSENT where it is this one."""
    return ABSENT if by == number else by


def field_in(table: TableSchema, name: str) -> Field:
    """The field with this name, where there is one."""
    found = table.field_named(name)
    assert found is not None
    return found


def types_of(table: TableSchema) -> dict[str, Type]:
    """The names that an expression over the table's records may use."""
    return {f.name: Type(f.type, f.optional) for f in table.fields}


def report_expression_errors(
    text: str,
    names: dict[str, Type],
    wanted: Type,
    location: Location,
    collector: ViolationCollector,
) -> None:
    """Report what is wrong with an expression, with its own column where that is known."""
    try:
        check_assignable(parse_expression(text), names, wanted)
    except ExpressionError as error:
        message = f"in the expression {text!r}, column {error.column}: {error.message}"
        collector.report(location, message, error.hint)


def canonical_expression(text: str) -> str:
    """One text for all spellings of an expression: blanks and quotes are no part of a digest."""
    try:
        return unparse(parse_expression(text))
    except ExpressionError:
        return text


def compute(text: str, table: TableSchema, target: Field) -> Computed:
    """The derivation of `target` by an expression over the fields of `table`."""
    expression = parse_expression(text)
    read = names_in(expression)
    inputs: dict[str, Derivation] = {
        f.name: SourceField(f.number) for f in table.fields if f.name in read
    }
    types = {name: kind for name, kind in types_of(table).items() if name in read}
    return Computed(expression, inputs, types, Type(target.type, target.optional))


def report_taken(name: str, place: Location, schema: Schema, collector: ViolationCollector) -> None:
    """Report a name that a table or a type has already: they share one namespace."""
    for kind, found in (("table", schema.table_named(name)), ("type", schema.type_named(name))):
        if found is not None:
            hint = "rename it before this change" if kind == "table" else "choose another name"
            collector.report(place, f"there is a {kind} {name!r} already", hint)
