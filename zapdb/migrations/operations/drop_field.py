"""drop_field: a field goes, and the migration says what a rollback puts in its place."""

from __future__ import annotations

from dataclasses import dataclass

from zapdb.errors import Location
from zapdb.migrations.operations.base import Fill, Numbers, Operation, TableOperation
from zapdb.migrations.operations.definitions import FieldDefinition
from zapdb.migrations.structure import ABSENT, Name, Reporter, located
from zapdb.schema import Schema


@dataclass(frozen=True)
class DropField(TableOperation):
    """`restore` fills the field again on the way back; a rollback has nothing to restore."""

    keyword = "drop_field"

    field: Name
    restore: Fill = ABSENT
    location: Location = located()

    def validate(self, schema: Schema, reporter: Reporter) -> None:
        table = self.find_table(schema, reporter)
        dropped = self.find_field(table, self.field, reporter)
        self.refuse_key(table, dropped, "dropped", reporter)
        for index in table.indexes_on(dropped.number):
            reporter.report(
                self.place,
                f"the index {index.name!r} uses {self.field!r}",
                f"put a drop_index of {index.name!r} before this change",
            )
        if self.restore is not ABSENT:
            rest = table.with_fields(tuple(f for f in table.fields if f is not dropped))
            self.restore.validate(rest, dropped, reporter)

    def apply(self, schema: Schema, numbers: Numbers) -> Schema:
        table = schema.table_named(self.table)
        assert table is not None
        rest = tuple(f for f in table.fields if f.name != self.field)
        return schema.with_table(table.with_fields(rest))

    def invert(self, before: Schema, reporter: Reporter) -> tuple[Operation, ...]:
        from zapdb.migrations.operations.add_field import AddField

        table = before.table_named(self.table)
        assert table is not None
        dropped = table.field_named(self.field)
        assert dropped is not None
        if self.restore is ABSENT:
            reporter.report_not_exhaustive(
                self.place,
                f"no rollback can be inferred: what was in {self.table}.{self.field} is lost",
                "say what a rollback puts there: add restore: {value: …} "
                "or restore: {expression: …}",
            )
            return ()
        definition = FieldDefinition.of(dropped)
        position = table.fields.index(dropped)
        return (AddField(self.table, definition, self.restore, position),)
