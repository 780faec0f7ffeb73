"""The members of an enum or a struct that alter_type adds and removes, as documents say them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, replace

from zapdb.errors import Location
from zapdb.migrations.document_structure import ABSENT, Name, Plain, located
from zapdb.migrations.operations.definitions import (
    TypeDefinition,
    normal_plain,
)
from zapdb.schema import Schema
from zapdb.values import Enum, Member, Struct


@dataclass(frozen=True)
class AddedMember:
    """A new member; one of a struct has a type, and a `fill` unless it is optional.

    `back` is the member of an enum that its records get on the way back. `position` counts from 0;
    without it the member comes last.
    """

    name: Name
    type: Name = ABSENT
    scale: int = ABSENT
    items: TypeDefinition = dataclasses.field(default=ABSENT, metadata={"key": "of"})
    to: Name = ABSENT
    optional: bool = ABSENT
    fill: Plain = ABSENT
    back: Name = ABSENT
    position: int = ABSENT
    location: Location = located()

    def __post_init__(self) -> None:
        if self.optional is False:
            object.__setattr__(self, "optional", ABSENT)

    @property
    def definition(self) -> TypeDefinition:
        return TypeDefinition(self.type, self.scale, self.items, self.to, self.location)

    @property
    def is_optional(self) -> bool:
        return self.optional is True

    def normalize(self, schema: Schema) -> AddedMember:
        if self.fill is ABSENT:
            return self
        if self.fill is None and self.is_optional:
            return replace(self, fill=ABSENT)
        plain = normal_plain(self.fill, self.definition.build_type(schema), self.name)
        return replace(self, fill=Plain(plain))

    def build(self, number: int, schema: Schema) -> Member:
        return Member(number, self.name, self.definition.build_type(schema), self.is_optional)


@dataclass(frozen=True)
class RemovedMember:
    """Records get the member `to` of an enum; on the way back, a struct's member is `restore`."""

    to: Name = ABSENT
    restore: Plain = ABSENT
    location: Location = located()

    def normalize(self, member: Member | None) -> RemovedMember:
        """`member` is the one of a struct that goes."""
        if member is None or self.restore is ABSENT:
            return self
        if self.restore is None and member.optional:
            return replace(self, restore=ABSENT)
        return replace(self, restore=Plain(normal_plain(self.restore, member.type, member.name)))


def member_names(declared: Enum | Struct) -> list[str]:
    """The names of its members, in declared order."""
    if isinstance(declared, Enum):
        return [name for _, name in declared.members]
    return [member.name for member in declared.members]
