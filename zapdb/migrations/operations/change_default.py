"""change_default: another default for new records, or none; no record changes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from zapdb.errors import Location
from zapdb.migrations.operations.base import (
    Numbers,
    Operation,
    TableOperation,
    field_in,
    normal_default,
)
from zapdb.migrations.operations.definitions import check_plain, normal_plain
from zapdb.migrations.structure import ABSENT, Name, Plain, Reporter, located
from zapdb.schema import NO_DEFAULT, Field, Schema, Table


@dataclass(frozen=True)
class ChangeDefault(TableOperation):
    """Exactly one of `default` and `remove: true`."""

    keyword = "change_default"

    field: Name
    default: Plain = ABSENT
    remove: bool = ABSENT
    location: Location = located()

    def __post_init__(self) -> None:
        if self.remove is False:
            object.__setattr__(self, "remove", ABSENT)

    def validate(self, schema: Schema, reporter: Reporter) -> None:
        table = self.find_table(schema, reporter)
        field = self.find_field(table, self.field, reporter)
        if (self.default is ABSENT) == (self.remove is ABSENT):
            reporter.report(self.place, "exactly one of default and remove: true is needed here")
            return
        if field.generated:
            reporter.report(self.place, "a generated field has no default")
        if self.default is not ABSENT:
            check_plain(self.default, field.type, field.optional, self.field, self.place, reporter)
        is_removed = self.default is ABSENT or (self.default is None and field.optional)
        if is_removed and not field.has_default:
            reporter.report(self.place, f"{self.field!r} has no default to remove")

    def normalize(self, schema: Schema, number: int) -> Operation:
        """Null is no default, where the field may be null."""
        _, field = self._find(schema)
        if self.default is ABSENT:
            return self
        if self.default is None and field.optional:
            return replace(self, default=ABSENT, remove=True)
        return replace(self, default=Plain(normal_plain(self.default, field.type, self.field)))

    def apply(self, schema: Schema, numbers: Numbers) -> Schema:
        table, field = self._find(schema)
        default: Any = NO_DEFAULT
        if self.default is not ABSENT:
            plain: Any = self.default
            default = None if plain is None else field.type.from_document(plain, self.field)
        return schema.with_table(table.with_field(replace(field, default=default)))

    def _find(self, schema: Schema) -> tuple[Table, Field]:
        table = self.table_in(schema)
        field = field_in(table, self.field)
        return table, field

    def invert(self, before: Schema, number: int, reporter: Reporter) -> tuple[Operation, ...]:
        _, field = self._find(before)
        if not field.has_default:
            return (ChangeDefault(self.table, self.field, remove=True),)
        return (ChangeDefault(self.table, self.field, normal_default(field)),)
