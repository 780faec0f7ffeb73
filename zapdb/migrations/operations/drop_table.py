"""drop_table: a table goes; its records are archived or discarded, and the migration says which.

Archived records stay as they are, out of sight, until `migrate prune-archive`, and a rollback
brings them back. Discarded ones are deleted in the background; a rollback makes an empty table.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from zapdb.errors import Location
from zapdb.migrations.operations.base import (
    Numbers,
    Operation,
    TableOperation,
    normal_archiver,
)
from zapdb.migrations.operations.constraints import refuse_no_migration
from zapdb.migrations.structure import ABSENT, Name, Reporter, located
from zapdb.schema import ArchivedTable, Schema, Table


@dataclass(frozen=True)
class DropTable(TableOperation):
    """`archived_by` is the migration whose archive the records go to: its own, unless this takes
    back a `restore_table`."""

    keyword = "drop_table"

    records: Literal["archive", "discard"]
    archived_by: int = ABSENT
    location: Location = located()

    def validate(self, schema: Schema, reporter: Reporter) -> None:
        table = self.find_table(schema, reporter)
        for user in schema.users_of(table):
            reporter.report(
                self.place,
                f"{user} refers to {self.table!r}",
                "drop it, or change its type, before this change",
            )
        if self.archived_by is not ABSENT and self.records != "archive":
            reporter.report(self.place, "archived_by stands beside records: archive only")
        refuse_no_migration(self.archived_by, self.place, reporter)

    def normalize(self, schema: Schema, number: int) -> Operation:
        return replace(self, archived_by=normal_archiver(self.archived_by, number))

    def apply(self, schema: Schema, numbers: Numbers) -> Schema:
        table = self.table_in(schema)
        rest = schema.without_table(table.number)
        if self.records == "discard":
            return rest
        by = numbers.migration if self.archived_by is ABSENT else self.archived_by
        return replace(rest, archived=(*rest.archived, ArchivedTable(table, by)))

    def invert(self, before: Schema, number: int, reporter: Reporter) -> tuple[Operation, ...]:
        from zapdb.migrations.operations.restore_table import RestoreTable, rebuild_table

        table = self.table_in(before)
        if self.records == "discard":
            for archived in table.archived:
                if archived.by == number:
                    reporter.report(
                        self.place,
                        f"drop_table discards what this migration archives of "
                        f"{self.table}.{archived.field.name}: no rollback can restore it",
                        "leave out the drop_field, whose field goes with the table, or archive the "
                        "table's records, too",
                    )
            return rebuild_table(table)
        by = number if self.archived_by is ABSENT else self.archived_by
        position = before.tables.index(table)
        return (RestoreTable(Name(table.name), by, position),)

    def loses(self, before: Table) -> frozenset[int]:
        is_lost = self.records == "discard"
        return frozenset(field.number for field in before.fields) if is_lost else frozenset()
