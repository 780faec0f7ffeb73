"""drop_type: a named type that nothing uses any more goes."""

from __future__ import annotations

from dataclasses import dataclass

from zapdb.errors import Location
from zapdb.migrations.operations.base import Numbers, Operation
from zapdb.migrations.operations.create_type import CreateType
from zapdb.migrations.structure import Name, Refused, Reporter, located
from zapdb.schema import Schema


@dataclass(frozen=True)
class DropType(Operation):
    keyword = "drop_type"

    type: Name
    location: Location = located()

    def validate(self, schema: Schema, reporter: Reporter) -> None:
        dropped = schema.type_named(self.type)
        if dropped is None:
            there = ", ".join(kind.declared_name for kind in schema.types) or "none"
            reporter.report(self.place, f"no type {self.type!r} here", f"there are: {there}")
            raise Refused
        for user in schema.users_of(dropped):
            reporter.report(
                self.place,
                f"{user} is of the type {self.type!r}",
                "drop it, or change its type, before this change",
            )

    def apply(self, schema: Schema, numbers: Numbers) -> Schema:
        dropped = schema.type_named(self.type)
        assert dropped is not None
        return schema.without_type(dropped.number)

    def invert(self, before: Schema, number: int, reporter: Reporter) -> tuple[Operation, ...]:
        dropped = before.type_named(self.type)
        assert dropped is not None
        return (CreateType.describe(dropped),)
