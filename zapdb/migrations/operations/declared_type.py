"""Named types, created and dropped, each the inverse of the other."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from zapdb.errors import Location
from zapdb.limits import ENUM_MEMBERS_MAX, STRUCT_MEMBERS_MAX, TYPE_DEPTH_MAX
from zapdb.migrations.document_structure import (
    ABSENT,
    Name,
    ParsingStopped,
    ViolationCollector,
    located,
)
from zapdb.migrations.operations.definitions import TypeDefinition, parameters_of
from zapdb.migrations.operations.operation import (
    NumberAllocator,
    Operation,
    TypeOperation,
    report_taken,
)
from zapdb.schema import Schema
from zapdb.values import VALUE_TYPES, Enum, Member, Struct


@dataclass(frozen=True)
class MemberDefinition(TypeDefinition):
    """A member of a struct: its name and its type, in one mapping."""

    optional: bool = False
    name: Name = dataclasses.field(kw_only=True)


@dataclass(frozen=True)
class CreateType(Operation):
    """A named type, an enum or a struct, for fields of any table.

    Members are numbered from 1 in declared order. A record holds the numbers, so a member that is
    renamed later is the same member.

    Exactly one of `enum`, the members' names, and `struct`, its members like fields.
    """

    keyword = "create_type"

    type: Name
    enum: tuple[Name, ...] = ABSENT
    struct: tuple[MemberDefinition, ...] = ABSENT
    location: Location = located()

    @classmethod
    def describe(cls, kind: Enum | Struct) -> CreateType:
        """The operation that declares this type again."""
        name = Name(kind.declared_name)
        if isinstance(kind, Enum):
            return cls(name, enum=tuple(Name(member) for _, member in kind.members))
        members = (
            MemberDefinition(**parameters_of(m.type), optional=m.optional, name=Name(m.name))
            for m in kind.members
        )
        return cls(name, struct=tuple(members))

    def validate(self, schema: Schema, collector: ViolationCollector) -> None:
        if self.type in VALUE_TYPES:
            collector.report(self.place, f"{self.type!r} is a type of zapdb's own")
        report_taken(self.type, self.place, schema, collector)
        if (self.enum is ABSENT) == (self.struct is ABSENT):
            collector.report(self.place, "a type has exactly one of enum and struct")
            raise ParsingStopped
        if self.enum is not ABSENT:
            names, most = list(self.enum), ENUM_MEMBERS_MAX
        else:
            names, most = [member.name for member in self.struct], STRUCT_MEMBERS_MAX
        if not 1 <= len(names) <= most:
            collector.report(self.place, f"a type has 1 to {most} members")
        for name in sorted({name for name in names if names.count(name) > 1}):
            collector.report(self.place, f"the member {name!r} stands twice")
        if self.struct is not ABSENT:
            self._validate_members(schema, collector)

    def _validate_members(self, schema: Schema, collector: ViolationCollector) -> None:
        for member in self.struct:
            try:
                kind = member.build_type(schema, collector)
            except ParsingStopped:
                continue
            if kind.depth >= TYPE_DEPTH_MAX:
                collector.report(member.location, f"types nest at most {TYPE_DEPTH_MAX} deep")

    def apply(self, schema: Schema, numbers: NumberAllocator) -> Schema:
        return schema.with_type(self._build(schema, numbers.allocate("type")))

    def _build(self, schema: Schema, number: int) -> Enum | Struct:
        if self.enum is not ABSENT:
            return Enum(self.type, number, tuple(enumerate(map(str, self.enum), 1)))
        members = (
            Member(at, definition.name, definition.build_type(schema), definition.optional)
            for at, definition in enumerate(self.struct, 1)
        )
        return Struct(self.type, number, tuple(members))

    def invert(
        self, before: Schema, number: int, collector: ViolationCollector
    ) -> tuple[Operation, ...]:
        return (DropType(self.type),)


@dataclass(frozen=True)
class DropType(TypeOperation):
    """A named type that nothing uses any more goes."""

    keyword = "drop_type"

    location: Location = located()

    def validate(self, schema: Schema, collector: ViolationCollector) -> None:
        dropped = self.find_type(schema, collector)
        for user in schema.users_of(dropped):
            collector.report(
                self.place,
                f"{user} is of the type {self.type!r}",
                "drop it, or change its type, before this change",
            )

    def apply(self, schema: Schema, numbers: NumberAllocator) -> Schema:
        dropped = schema.type_named(self.type)
        assert dropped is not None
        return schema.without_type(dropped.number)

    def invert(
        self, before: Schema, number: int, collector: ViolationCollector
    ) -> tuple[Operation, ...]:
        dropped = before.type_named(self.type)
        assert dropped is not None
        return (CreateType.describe(dropped),)
