"""restore_field: a field that was dropped with its values archived comes back as it was.

It has its old number, so the archived values are its own. `otherwise` is for records that have
none: those that were inserted since, or all if the archive was pruned.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from zapdb.errors import Location
from zapdb.limits import FIELDS_PER_TABLE_MAX
from zapdb.migrations.operations.base import (
    Fill,
    Numbers,
    Operation,
    TableOperation,
    normal_position,
)
from zapdb.migrations.operations.constraints import has_same_bytes, refuse_changed_types
from zapdb.migrations.operations.drop_field import DropField, Restore
from zapdb.migrations.operations.restore_table import keep
from zapdb.migrations.structure import ABSENT, Name, Refused, Reporter, located
from zapdb.records import Constant, Derivation, Recast, Restored, Slot
from zapdb.schema import Schema, Table


@dataclass(frozen=True)
class RestoreField(TableOperation):
    """`archived_by` is the number of the migration that dropped the field with its archive."""

    keyword = "restore_field"

    field: Name
    archived_by: int
    otherwise: Fill = ABSENT
    position: int = ABSENT
    location: Location = located()

    def validate(self, schema: Schema, reporter: Reporter) -> None:
        table = self.find_table(schema, reporter)
        archived = table.archived_named(self.field, self.archived_by)
        if archived is None:
            there = ", ".join(f"{a.field.name} by {a.by}" for a in table.archived) or "none"
            reporter.report(
                self.place,
                f"no field {self.field!r} of {self.table!r} was archived by migration "
                f"{self.archived_by}",
                f"archived are: {there}",
            )
            raise Refused
        if table.field_named(self.field) is not None:
            reporter.report(
                self.place,
                f"there is a field {self.field!r} in {table.name!r} already",
                "rename it before this change",
            )
        if len(table.fields) >= FIELDS_PER_TABLE_MAX:
            reporter.report(self.place, f"a table has at most {FIELDS_PER_TABLE_MAX} fields")
        if self.position is not ABSENT and not 0 <= self.position <= len(table.fields):
            reporter.report(self.place, f"the position must be 0 to {len(table.fields)}")
        refuse_changed_types(schema, table.number, archived.field, self.place, reporter)
        if self.otherwise is not ABSENT:
            self.otherwise.validate(table, archived.field, reporter)
        elif not archived.field.optional:
            reporter.report(
                self.place,
                f"{self.field!r} is required: what do records get whose value is not archived?",
                "add otherwise: {value: …} or otherwise: {expression: …}",
            )

    def normalize(self, schema: Schema, number: int) -> Operation:
        table = self.table_in(schema)
        archived = table.archived_named(self.field, self.archived_by)
        assert archived is not None
        otherwise = self.otherwise
        if otherwise is not ABSENT:
            otherwise = otherwise.normalize(
                archived.field, None if archived.field.optional else ABSENT
            )
        position = normal_position(self.position, len(table.fields))
        return replace(self, otherwise=otherwise, position=position)

    def apply(self, schema: Schema, numbers: Numbers) -> Schema:
        table = self.table_in(schema)
        archived = table.archived_named(self.field, self.archived_by)
        assert archived is not None
        at = len(table.fields) if self.position is ABSENT else self.position
        restored = replace(archived.field, type=schema.with_current_types(archived.field.type))
        return schema.with_table(
            replace(
                table,
                fields=(*table.fields[:at], restored, *table.fields[at:]),
                archived=tuple(a for a in table.archived if a is not archived),
            )
        )

    def invert(self, before: Schema, number: int, reporter: Reporter) -> tuple[Operation, ...]:
        restore = Restore(archive=True, otherwise=self.otherwise)
        return (DropField(self.table, self.field, restore, self.archived_by),)

    def derive(self, before: Table, after: Table) -> dict[int, Derivation]:
        archived = before.archived_named(self.field, self.archived_by)
        assert archived is not None
        field = archived.field
        otherwise: Derivation = Constant(None)
        if self.otherwise is not ABSENT:
            otherwise = self.otherwise.derive(before, field)
        restored = Restored(Slot(field.number, field.type, field.optional), otherwise)
        kind = after.field_numbered(field.number).type
        if has_same_bytes(field.type, kind):
            return {field.number: restored}
        # members of types that went and came back meanwhile are numbered anew
        return {field.number: Recast(restored, keep, field.type, kind, keeps_bytes=False)}
