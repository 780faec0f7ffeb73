"""restore_table: a table that was dropped with its records archived comes back as it was.

It has its old number, so the records are its own; its indexes are built anew.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from zapdb.errors import Location
from zapdb.migrations.operations.base import (
    Numbers,
    Operation,
    TableOperation,
    normal_position,
    report_taken,
)
from zapdb.migrations.operations.constraints import (
    has_same_bytes,
    parts_of,
    refuse_changed_types,
)
from zapdb.migrations.operations.definitions import FieldDefinition
from zapdb.migrations.operations.drop_table import DropTable
from zapdb.migrations.structure import ABSENT, Name, Refused, Reporter, located
from zapdb.records import Derivation, Input, Recast
from zapdb.schema import Schema, Table
from zapdb.values import Enum


@dataclass(frozen=True)
class RestoreTable(TableOperation):
    """`archived_by` is the number of the migration that dropped the table with its archive.

    `position` is its place among the tables; without it the table comes last.
    """

    keyword = "restore_table"

    archived_by: int
    position: int = ABSENT
    location: Location = located()

    def validate(self, schema: Schema, reporter: Reporter) -> None:
        report_taken(self.table, self.place, schema, reporter)
        archived = schema.archived_named(self.table, self.archived_by)
        if archived is None:
            there = ", ".join(f"{a.table.name} by {a.by}" for a in schema.archived) or "none"
            reporter.report(
                self.place,
                f"no table {self.table!r} was archived by migration {self.archived_by}",
                f"archived are: {there}",
            )
            raise Refused
        if self.position is not ABSENT and not 0 <= self.position <= len(schema.tables):
            reporter.report(self.place, f"the position must be 0 to {len(schema.tables)}")
        for field in archived.table.fields:
            refuse_changed_types(schema, archived.table.number, field, self.place, reporter)
        for field in archived.table.key_fields:
            for kind in parts_of(field.type):
                found = schema.type_named(kind.declared_name) if isinstance(kind, Enum) else None
                if isinstance(found, Enum) and found.members != kind.members:  # type: ignore[attr-defined]  # it is an Enum
                    reporter.report(
                        self.place,
                        f"{field.name!r} is part of the key, and members of {kind} were removed "
                        "and added again since it was archived",
                        "add a new table instead; within one migration, use two",
                    )

    def normalize(self, schema: Schema, number: int) -> Operation:
        return replace(self, position=normal_position(self.position, len(schema.tables)))

    def apply(self, schema: Schema, numbers: Numbers) -> Schema:
        archived = schema.archived_named(self.table, self.archived_by)
        assert archived is not None
        at = len(schema.tables) if self.position is ABSENT else self.position
        fields = tuple(
            replace(f, type=schema.with_current_types(f.type)) for f in archived.table.fields
        )
        restored = archived.table.with_fields(fields)
        return replace(
            schema,
            tables=(*schema.tables[:at], restored, *schema.tables[at:]),
            archived=tuple(a for a in schema.archived if a is not archived),
        )

    def invert(self, before: Schema, number: int, reporter: Reporter) -> tuple[Operation, ...]:
        return (DropTable(self.table, "archive", self.archived_by),)

    def derive(self, before: Table, after: Table) -> dict[int, Derivation]:
        """Members of types that went and came back meanwhile are numbered anew."""
        return {
            old.number: Recast(Input(old.number), keep, old.type, new.type, keeps_bytes=False)
            for old, new in zip(before.fields, after.fields, strict=True)
            if not has_same_bytes(old.type, new.type)
        }


def keep(value: Any) -> Any:
    """The same value: values hold names, and those have not changed."""
    return value


def rebuild_table(table: Table) -> tuple[Operation, ...]:
    """The operations that make this table again, empty."""
    from zapdb.migrations.operations.add_check import AddCheck
    from zapdb.migrations.operations.add_reference import AddReference
    from zapdb.migrations.operations.create_index import CreateIndex
    from zapdb.migrations.operations.create_table import CreateTable

    name = Name(table.name)
    return (
        CreateTable(
            name,
            tuple(Name(f.name) for f in table.key_fields),
            tuple(map(FieldDefinition.of, table.fields)),
        ),
        *(CreateIndex.of(table, index) for index in table.indexes),
        *(AddCheck(name, Name(check.name), check.expression) for check in table.checks),
        *(
            AddReference(name, Name(table.field_numbered(key.field).name), key.on_delete)
            for key in table.foreign_keys
        ),
    )
