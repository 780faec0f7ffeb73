"""drop_field: a field goes, and the migration says what a rollback puts in its place.

    restore: {value: …}     {expression: …}     {archive: true, otherwise: {value: …}}

With `archive`, each record's value is kept beside it until the archive is pruned, and comes back
exactly; `otherwise` is for records that have none, those that were inserted after the drop.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from zapdb.errors import Location
from zapdb.migrations.operations.base import (
    Fill,
    Numbers,
    Operation,
    TableOperation,
    canonical_expression,
    field_in,
    normal_archiver,
)
from zapdb.migrations.operations.constraints import refuse_no_migration, refuse_used
from zapdb.migrations.operations.definitions import FieldDefinition, normal_plain
from zapdb.migrations.structure import ABSENT, Name, Plain, Reporter, located
from zapdb.records import Derivation, Input, Slot
from zapdb.schema import ArchivedField, Field, Schema, Table


@dataclass(frozen=True)
class Restore:
    """Exactly one of a value, an expression and the archive."""

    value: Plain = ABSENT
    expression: str = ABSENT
    archive: bool = ABSENT
    otherwise: Fill = ABSENT
    location: Location = located()

    def __post_init__(self) -> None:
        if self.archive is False:
            object.__setattr__(self, "archive", ABSENT)
        if self.expression is not ABSENT:
            object.__setattr__(self, "expression", canonical_expression(self.expression))

    @property
    def _fill(self) -> Fill:
        return Fill(self.value, self.expression, self.location)

    @property
    def is_archived(self) -> bool:
        return self.archive is not ABSENT

    @property
    def fill(self) -> Fill:
        """What records get that have nothing in the archive; ABSENT where that is null."""
        return self.otherwise if self.is_archived else self._fill

    def validate(self, table: Table, target: Field, reporter: Reporter) -> None:
        """`target` is restored in records of `table`, whose fields an expression may read."""
        if not self.is_archived:
            if self.otherwise is not ABSENT:
                reporter.report(self.location, "otherwise stands beside archive: true only")
            if self.value is ABSENT and self.expression is ABSENT:
                reporter.report(
                    self.location, "exactly one of value, expression and archive is needed here"
                )
                return
            self._fill.validate(table, target, reporter)
            return
        if self.value is not ABSENT or self.expression is not ABSENT:
            reporter.report(
                self.location,
                "exactly one of value, expression and archive is needed here",
                "for records without an archived value, add otherwise: {value: …}",
            )
        if self.otherwise is not ABSENT:
            self.otherwise.validate(table, target, reporter)

    def normalize(self, target: Field) -> Restore:
        otherwise = self.otherwise
        if otherwise is not ABSENT:
            otherwise = otherwise.normalize(target, None if target.optional else ABSENT)
        value = self.value
        if value is not ABSENT:
            value = Plain(normal_plain(value, target.type, target.name))
        return replace(self, value=value, otherwise=otherwise)


@dataclass(frozen=True)
class DropField(TableOperation):
    """`restore` fills the field again on the way back; a rollback has nothing to restore.

    `archived_by` is the migration whose archive the values go to: its own, unless this takes back
    a `restore_field`.
    """

    keyword = "drop_field"

    field: Name
    restore: Restore = ABSENT
    archived_by: int = ABSENT
    location: Location = located()

    @property
    def _archives(self) -> bool:
        return self.restore is not ABSENT and self.restore.is_archived

    def validate(self, schema: Schema, reporter: Reporter) -> None:
        table = self.find_table(schema, reporter)
        dropped = self.find_field(table, self.field, reporter)
        self.refuse_key(table, dropped, "dropped", reporter)
        refuse_used(table, dropped, self.place, reporter)
        if self.archived_by is not ABSENT and not self._archives:
            reporter.report(self.place, "archived_by stands beside restore: {archive: true} only")
        refuse_no_migration(self.archived_by, self.place, reporter)
        if self.restore is not ABSENT:
            rest = table.with_fields(tuple(f for f in table.fields if f is not dropped))
            self.restore.validate(rest, dropped, reporter)

    def normalize(self, schema: Schema, number: int) -> Operation:
        restore = self.restore
        if restore is not ABSENT:
            restore = restore.normalize(field_in(self.table_in(schema), self.field))
        by = normal_archiver(self.archived_by, number)
        return replace(self, restore=restore, archived_by=by)

    def without_way_back(self) -> Operation:
        return replace(
            self, restore=replace(self.restore, otherwise=ABSENT) if self._archives else ABSENT
        )

    def apply(self, schema: Schema, numbers: Numbers) -> Schema:
        table = self.table_in(schema)
        dropped = field_in(table, self.field)
        table = table.with_fields(tuple(f for f in table.fields if f is not dropped))
        if self._archives:
            by = numbers.migration if self.archived_by is ABSENT else self.archived_by
            table = replace(table, archived=(*table.archived, ArchivedField(dropped, by)))
        return schema.with_table(table)

    def invert(self, before: Schema, number: int, reporter: Reporter) -> tuple[Operation, ...]:
        from zapdb.migrations.operations.add_field import AddField
        from zapdb.migrations.operations.restore_field import RestoreField

        table = self.table_in(before)
        dropped = field_in(table, self.field)
        position = table.fields.index(dropped)
        if self.restore is ABSENT:
            reporter.report_not_exhaustive(
                self.place,
                f"no rollback can be inferred: what was in {self.table}.{self.field} is lost",
                "say what a rollback puts there: add restore: {archive: true, otherwise: "
                "{value: …}}, restore: {value: …} or restore: {expression: …}",
            )
            return ()
        if self._archives:
            if self.restore.otherwise is ABSENT and not dropped.optional:
                reporter.report_not_exhaustive(
                    self.restore.location,
                    f"{self.field!r} is required: what do records get whose value is not archived?",
                    "add otherwise: {value: …} or otherwise: {expression: …}",
                )
            by = number if self.archived_by is ABSENT else self.archived_by
            return (RestoreField(self.table, self.field, by, self.restore.otherwise, position),)
        definition = FieldDefinition.of(dropped)
        return (AddField(self.table, definition, self.restore.fill, position),)

    def loses(self, before: Table) -> frozenset[int]:
        return frozenset() if self._archives else frozenset({field_in(before, self.field).number})

    def archive(self, before: Table, after: Table) -> dict[Slot, Derivation]:
        if not self._archives:
            return {}
        dropped = field_in(before, self.field)
        return {Slot(dropped.number, dropped.type, dropped.optional): Input(dropped.number)}
