"""Fields: added, dropped and restored.

Adding and dropping are inverses; what was dropped with its values archived is restored.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from zapdb.errors import Location
from zapdb.limits import FIELDS_PER_TABLE_MAX
from zapdb.migrations.document_structure import (
    ABSENT,
    Name,
    ParsingStopped,
    Plain,
    ViolationCollector,
    located,
)
from zapdb.migrations.operations.constraints import (
    has_same_bytes,
    require_migration_number,
    require_same_types,
    require_unused,
)
from zapdb.migrations.operations.definitions import FieldDefinition, constant_of, normal_plain
from zapdb.migrations.operations.operation import (
    FieldOperation,
    Fill,
    NumberAllocator,
    Operation,
    TableOperation,
    canonical_expression,
    check_position,
    field_in,
    insert_at,
    normal_archiver,
    normal_position,
)
from zapdb.migrations.operations.table import same_value
from zapdb.records import Constant, Derivation, Recast, Restored, Slot, SourceField
from zapdb.schema import ArchivedField, Field, Schema, TableSchema


@dataclass(frozen=True)
class AddField(TableOperation):
    """A new field, and what records get that were written before it.

    `position` counts from 0 in declared order; without it the field comes last.

    Older records get `fill`, or else the default, or else null where the field is optional.
    """

    keyword = "add_field"

    field: FieldDefinition
    fill: Fill = ABSENT
    position: int = ABSENT
    location: Location = located()

    def validate(self, schema: Schema, collector: ViolationCollector) -> None:
        table = self.find_table(schema, collector)
        if table.field_named(self.field.name) is not None:
            collector.report(
                self.place, f"there is a field {self.field.name!r} in {table.name!r} already"
            )
        if len(table.fields) >= FIELDS_PER_TABLE_MAX:
            collector.report(self.place, f"a table has at most {FIELDS_PER_TABLE_MAX} fields")
        check_position(self.position, len(table.fields), self.place, collector)
        reported = len(collector.violations)
        self.field.validate(self.field.name, schema, collector)
        if len(collector.violations) > reported:
            return
        if self.fill is not ABSENT:
            added = self.field.build(self.field.name, 0, schema)
            self.fill.validate(table, added, collector)
            return
        added = self.field.build(self.field.name, 0, schema)
        if added.has_constant or added.optional:
            return
        hint = "fill: {value: …} or fill: {expression: …}"
        collector.report(
            self.field.location,
            f"{self.field.name!r} is required: what do older records get?",
            f"its values are made at insert, for new records alone: add {hint}"
            if added.is_made
            else f"add a default to the field, or {hint}",
        )

    def normalize(self, schema: Schema, number: int) -> Operation:
        table = self.table_in(schema)
        definition = self.field.normalize(self.field.name, schema)
        fill = self.fill
        if fill is not ABSENT:
            added = definition.build(self.field.name, 0, schema)
            left_out = constant_of(added)
            if added.optional and left_out is ABSENT:
                left_out = None
            fill = fill.normalize(added, left_out)
        position = normal_position(self.position, len(table.fields))
        return replace(self, field=definition, fill=fill, position=position)

    def apply(self, schema: Schema, numbers: NumberAllocator) -> Schema:
        table = self.table_in(schema)
        added = self.field.build(self.field.name, numbers.allocate("field"), schema)
        return schema.with_table(table.with_fields(insert_at(self.position, added, table.fields)))

    def invert(
        self, before: Schema, number: int, collector: ViolationCollector
    ) -> tuple[Operation, ...]:
        return (DropField(self.table, self.field.name),)

    def derive(self, before: TableSchema, after: TableSchema) -> dict[int, Derivation]:
        added = after.field_named(self.field.name)
        assert added is not None
        if self.fill is not ABSENT:
            return {added.number: self.fill.derive(before, added)}
        return {added.number: Constant(added.default if added.has_constant else None)}


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

    def validate(self, table: TableSchema, target: Field, collector: ViolationCollector) -> None:
        """`target` is restored in records of `table`, whose fields an expression may read."""
        if not self.is_archived:
            if self.otherwise is not ABSENT:
                collector.report(self.location, "otherwise stands beside archive: true only")
            if self.value is ABSENT and self.expression is ABSENT:
                collector.report(
                    self.location, "exactly one of value, expression and archive is needed here"
                )
                return
            self._fill.validate(table, target, collector)
            return
        if self.value is not ABSENT or self.expression is not ABSENT:
            collector.report(
                self.location,
                "exactly one of value, expression and archive is needed here",
                "for records without an archived value, add otherwise: {value: …}",
            )
        if self.otherwise is not ABSENT:
            self.otherwise.validate(table, target, collector)

    def normalize(self, target: Field) -> Restore:
        otherwise = self.otherwise
        if otherwise is not ABSENT:
            otherwise = otherwise.normalize(target, None if target.optional else ABSENT)
        value = self.value
        if value is not ABSENT:
            value = Plain(normal_plain(value, target.type, target.name))
        return replace(self, value=value, otherwise=otherwise)


@dataclass(frozen=True)
class DropField(FieldOperation):
    """A field goes, and the migration says what a rollback puts in its place.

        restore: {value: …}     {expression: …}     {archive: true, otherwise: {value: …}}

    With `archive`, each record's value is archived until the archive is pruned, and comes back
    exactly; `otherwise` is for records without an archived value, which were inserted after the
    drop.

    `restore` fills the field again on the way back; a rollback has nothing to restore.

    `archived_by` is the migration whose archive the values go to: its own, unless this takes back a
    `restore_field`.
    """

    keyword = "drop_field"

    restore: Restore = ABSENT
    archived_by: int = ABSENT
    location: Location = located()

    @property
    def _archives(self) -> bool:
        return self.restore is not ABSENT and self.restore.is_archived

    def validate(self, schema: Schema, collector: ViolationCollector) -> None:
        table, dropped = self.find(schema, collector)
        self.require_no_key(table, dropped, "dropped", collector)
        require_unused(table, dropped, self.place, collector)
        if self.archived_by is not ABSENT and not self._archives:
            collector.report(self.place, "archived_by stands beside restore: {archive: true} only")
        require_migration_number(self.archived_by, self.place, collector)
        if self.restore is not ABSENT:
            rest = table.with_fields(tuple(f for f in table.fields if f is not dropped))
            self.restore.validate(rest, dropped, collector)

    def normalize(self, schema: Schema, number: int) -> Operation:
        restore = self.restore
        if restore is not ABSENT:
            restore = restore.normalize(self.found_in(schema)[1])
        by = normal_archiver(self.archived_by, number)
        return replace(self, restore=restore, archived_by=by)

    def without_rollback_hints(self) -> Operation:
        return replace(
            self, restore=replace(self.restore, otherwise=ABSENT) if self._archives else ABSENT
        )

    def apply(self, schema: Schema, numbers: NumberAllocator) -> Schema:
        table, dropped = self.found_in(schema)
        table = table.with_fields(tuple(f for f in table.fields if f is not dropped))
        if self._archives:
            by = numbers.migration if self.archived_by is ABSENT else self.archived_by
            table = replace(table, archived=(*table.archived, ArchivedField(dropped, by)))
        return schema.with_table(table)

    def invert(
        self, before: Schema, number: int, collector: ViolationCollector
    ) -> tuple[Operation, ...]:
        table, dropped = self.found_in(before)
        position = table.fields.index(dropped)
        if self.restore is ABSENT:
            collector.report_not_exhaustive(
                self.place,
                f"no rollback can be inferred: what was in {self.table}.{self.field} is lost",
                "say what a rollback puts there: add restore: {archive: true, otherwise: "
                "{value: …}}, restore: {value: …} or restore: {expression: …}",
            )
            return ()
        if self._archives:
            if self.restore.otherwise is ABSENT and not dropped.optional:
                collector.report_not_exhaustive(
                    self.restore.location,
                    f"{self.field!r} is required: what do records get whose value is not archived?",
                    "add otherwise: {value: …} or otherwise: {expression: …}",
                )
            by = number if self.archived_by is ABSENT else self.archived_by
            return (RestoreField(self.table, self.field, by, self.restore.otherwise, position),)
        definition = FieldDefinition.of(dropped)
        return (AddField(self.table, definition, self.restore.fill, position),)

    def lossy_fields(self, before: TableSchema) -> frozenset[int]:
        return frozenset() if self._archives else frozenset({field_in(before, self.field).number})

    def archive(self, before: TableSchema, after: TableSchema) -> dict[Slot, Derivation]:
        if not self._archives:
            return {}
        dropped = field_in(before, self.field)
        return {Slot.of(dropped): SourceField(dropped.number)}


@dataclass(frozen=True)
class RestoreField(TableOperation):
    """A field that was dropped with its values archived comes back as it was.

    It has its old number, so the archived values are its own. `otherwise` is for records without an
    archived value: records that were inserted since, or all if the archive was pruned.

    `archived_by` is the number of the migration that dropped the field with its archive.
    """

    keyword = "restore_field"

    field: Name
    archived_by: int
    otherwise: Fill = ABSENT
    position: int = ABSENT
    location: Location = located()

    def validate(self, schema: Schema, collector: ViolationCollector) -> None:
        table = self.find_table(schema, collector)
        archived = table.archived_named(self.field, self.archived_by)
        if archived is None:
            there = (
                ", ".join(f"{a.field.name} by {a.archived_by}" for a in table.archived) or "none"
            )
            collector.report(
                self.place,
                f"no field {self.field!r} of {self.table!r} was archived by migration "
                f"{self.archived_by}",
                f"archived are: {there}",
            )
            raise ParsingStopped
        if table.field_named(self.field) is not None:
            collector.report(
                self.place,
                f"there is a field {self.field!r} in {table.name!r} already",
                "rename it before this change",
            )
        if len(table.fields) >= FIELDS_PER_TABLE_MAX:
            collector.report(self.place, f"a table has at most {FIELDS_PER_TABLE_MAX} fields")
        check_position(self.position, len(table.fields), self.place, collector)
        require_same_types(schema, table.number, archived.field, self.place, collector)
        if self.otherwise is not ABSENT:
            self.otherwise.validate(table, archived.field, collector)
        elif not archived.field.optional:
            collector.report(
                self.place,
                f"{self.field!r} is required: what do records get whose value is not archived?",
                "add otherwise: {value: …} or otherwise: {expression: …}",
            )

    def normalize(self, schema: Schema, number: int) -> Operation:
        table, archived = self._archived_in(schema)
        otherwise = self.otherwise
        if otherwise is not ABSENT:
            otherwise = otherwise.normalize(
                archived.field, None if archived.field.optional else ABSENT
            )
        position = normal_position(self.position, len(table.fields))
        return replace(self, otherwise=otherwise, position=position)

    def apply(self, schema: Schema, numbers: NumberAllocator) -> Schema:
        table, archived = self._archived_in(schema)
        restored = replace(archived.field, type=schema.with_current_types(archived.field.type))
        return schema.with_table(
            replace(
                table,
                fields=insert_at(self.position, restored, table.fields),
                archived=tuple(a for a in table.archived if a is not archived),
            )
        )

    def _archived_in(self, schema: Schema) -> tuple[TableSchema, ArchivedField]:
        table = self.table_in(schema)
        archived = table.archived_named(self.field, self.archived_by)
        assert archived is not None
        return table, archived

    def invert(
        self, before: Schema, number: int, collector: ViolationCollector
    ) -> tuple[Operation, ...]:
        restore = Restore(archive=True, otherwise=self.otherwise)
        return (DropField(self.table, self.field, restore, self.archived_by),)

    def derive(self, before: TableSchema, after: TableSchema) -> dict[int, Derivation]:
        archived = before.archived_named(self.field, self.archived_by)
        assert archived is not None
        field = archived.field
        otherwise: Derivation = Constant(None)
        if self.otherwise is not ABSENT:
            otherwise = self.otherwise.derive(before, field)
        restored = Restored(Slot.of(field), otherwise)
        kind = after.field_numbered(field.number).type
        if has_same_bytes(field.type, kind):
            return {field.number: restored}
        # members of types that went and came back meanwhile are numbered anew
        return {field.number: Recast(restored, same_value, field.type, kind, keeps_bytes=False)}
