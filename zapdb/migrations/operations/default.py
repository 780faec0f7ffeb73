"""The default of a field; changing it is its own inverse."""

from __future__ import annotations

from dataclasses import dataclass, replace

from zapdb.errors import Location
from zapdb.migrations.document_structure import ABSENT, Plain, ViolationCollector, located
from zapdb.migrations.operations.definitions import (
    check_default,
    default_of,
    normal_default,
    read_default,
)
from zapdb.migrations.operations.operation import (
    FieldOperation,
    NumberAllocator,
    Operation,
)
from zapdb.schema import Schema


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
