"""Tables: created, dropped and restored.

Creating and dropping are inverses; what was dropped with its records archived is restored.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from zapdb.errors import Location
from zapdb.limits import FIELDS_PER_TABLE_MAX
from zapdb.migrations.document_structure import (
    ABSENT,
    Name,
    ParsingStopped,
    ViolationCollector,
    located,
)
from zapdb.migrations.operations.check_and_reference import AddCheck, AddReference
from zapdb.migrations.operations.constraints import (
    has_same_bytes,
    nested_types,
    require_migration_number,
    require_same_types,
)
from zapdb.migrations.operations.definitions import FieldDefinition
from zapdb.migrations.operations.index import CreateIndex
from zapdb.migrations.operations.operation import (
    NumberAllocator,
    Operation,
    TableOperation,
    check_position,
    insert_at,
    normal_archiver,
    normal_position,
    report_taken,
)
from zapdb.records import Derivation, Recast, SourceField
from zapdb.schema import ArchivedTable, Schema, TableSchema
from zapdb.values import Enum


@dataclass(frozen=True)
class CreateTable(TableOperation):
    """A new table with its key and fields."""

    keyword = "create_table"

    key: tuple[Name, ...]
    fields: tuple[FieldDefinition, ...]
    location: Location = located()

    def validate(self, schema: Schema, collector: ViolationCollector) -> None:
        report_taken(self.table, self.place, schema, collector)
        if len(self.fields) > FIELDS_PER_TABLE_MAX:
            collector.report(self.place, f"a table has at most {FIELDS_PER_TABLE_MAX} fields")
        seen: set[str] = set()
        for definition in self.fields:
            if definition.name in seen:
                collector.report(definition.location, f"the field {definition.name!r} stands twice")
            seen.add(definition.name)
        reported = len(collector.violations)
        self._validate_key(schema, collector)
        if len(collector.violations) > reported:
            return  # references to the table itself can't be checked
        within = self._with_key(schema, 0, dict.fromkeys(self._names, 0))
        for definition in self.fields:
            try:
                definition.validate(definition.name, within, collector)
            except ParsingStopped:
                continue

    @property
    def _names(self) -> list[str]:
        return [definition.name for definition in self.fields]

    def _with_key(self, schema: Schema, number: int, numbers: dict[str, int]) -> Schema:
        """The schema with this table, its key alone: fields may refer to their own table."""
        defined = {definition.name: definition for definition in self.fields}
        fields = tuple(
            replace(defined[name], default=ABSENT).build(name, numbers[name], schema)
            for name in self.key
        )
        return schema.with_table(
            TableSchema(number, self.table, tuple(f.number for f in fields), fields)
        )

    def _validate_key(self, schema: Schema, collector: ViolationCollector) -> None:
        if not self.key or len(set(self.key)) != len(self.key):
            collector.report(self.place, "a key is one or more different fields")
        by_name = {definition.name: definition for definition in self.fields}
        for name in self.key:
            definition = by_name.get(name)
            if definition is None:
                collector.report(self.place, f"the key field {name!r} is not among the fields")
                continue
            try:
                kind = definition.build_type(schema, collector)
            except ParsingStopped:
                continue
            if not kind.keyable:
                collector.report(definition.location, f"a {kind} can't be part of a key")
            if definition.optional:
                collector.report(definition.location, "a field of the key can't be optional")

    def normalize(self, schema: Schema, number: int) -> Operation:
        within = self._with_key(schema, 0, dict.fromkeys(self._names, 0))
        return replace(self, fields=tuple(d.normalize(d.name, within) for d in self.fields))

    def apply(self, schema: Schema, numbers: NumberAllocator) -> Schema:
        number = numbers.allocate("table")
        drawn = {name: numbers.allocate("field") for name in self._names}
        within = self._with_key(schema, number, drawn)
        fields = tuple(d.build(d.name, drawn[d.name], within) for d in self.fields)
        key = tuple(drawn[name] for name in self.key)
        return schema.with_table(TableSchema(number, self.table, key, fields))

    def invert(
        self, before: Schema, number: int, collector: ViolationCollector
    ) -> tuple[Operation, ...]:
        return (DropTable(self.table, "discard"),)


@dataclass(frozen=True)
class DropTable(TableOperation):
    """A table goes; its records are archived or discarded, and the migration says which.

    Archived records stay as they are, out of sight, until `migrate prune-archive`, and a rollback
    brings them back. Discarded ones are deleted in the background; a rollback makes an empty table.

    `archived_by` is the migration whose archive the records go to: its own, unless this takes back
    a `restore_table`.
    """

    keyword = "drop_table"

    records: Literal["archive", "discard"]
    archived_by: int = ABSENT
    location: Location = located()

    def validate(self, schema: Schema, collector: ViolationCollector) -> None:
        table = self.find_table(schema, collector)
        for user in schema.users_of(table):
            collector.report(
                self.place,
                f"{user} refers to {self.table!r}",
                "drop it, or change its type, before this change",
            )
        if self.archived_by is not ABSENT and self.records != "archive":
            collector.report(self.place, "archived_by stands beside records: archive only")
        require_migration_number(self.archived_by, self.place, collector)

    def normalize(self, schema: Schema, number: int) -> Operation:
        return replace(self, archived_by=normal_archiver(self.archived_by, number))

    def apply(self, schema: Schema, numbers: NumberAllocator) -> Schema:
        table = self.table_in(schema)
        rest = schema.without_table(table.number)
        if self.records == "discard":
            return rest
        by = numbers.migration if self.archived_by is ABSENT else self.archived_by
        return replace(rest, archived=(*rest.archived, ArchivedTable(table, by)))

    def invert(
        self, before: Schema, number: int, collector: ViolationCollector
    ) -> tuple[Operation, ...]:
        table = self.table_in(before)
        if self.records == "discard":
            for archived in table.archived:
                if archived.archived_by == number:
                    collector.report(
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

    def lossy_fields(self, before: TableSchema) -> frozenset[int]:
        is_lost = self.records == "discard"
        return frozenset(field.number for field in before.fields) if is_lost else frozenset()


@dataclass(frozen=True)
class RestoreTable(TableOperation):
    """A table that was dropped with its records archived comes back as it was.

    It has its old number, so it has its old records; its indexes are rebuilt.

    `archived_by` is the number of the migration that dropped the table with its archive.

    `position` is its place among the tables; without it the table comes last.
    """

    keyword = "restore_table"

    archived_by: int
    position: int = ABSENT
    location: Location = located()

    def validate(self, schema: Schema, collector: ViolationCollector) -> None:
        report_taken(self.table, self.place, schema, collector)
        archived = schema.archived_named(self.table, self.archived_by)
        if archived is None:
            there = (
                ", ".join(f"{a.table.name} by {a.archived_by}" for a in schema.archived) or "none"
            )
            collector.report(
                self.place,
                f"no table {self.table!r} was archived by migration {self.archived_by}",
                f"archived are: {there}",
            )
            raise ParsingStopped
        check_position(self.position, len(schema.tables), self.place, collector)
        for field in archived.table.fields:
            require_same_types(schema, archived.table.number, field, self.place, collector)
        for field in archived.table.key_fields:
            for kind in nested_types(field.type):
                if not isinstance(kind, Enum):
                    continue
                found = schema.type_named(kind.declared_name)
                if isinstance(found, Enum) and found.members != kind.members:
                    collector.report(
                        self.place,
                        f"{field.name!r} is part of the key, and members of {kind} were removed "
                        "and added again since it was archived",
                        "add a new table instead; within one migration, use two",
                    )

    def normalize(self, schema: Schema, number: int) -> Operation:
        return replace(self, position=normal_position(self.position, len(schema.tables)))

    def apply(self, schema: Schema, numbers: NumberAllocator) -> Schema:
        archived = schema.archived_named(self.table, self.archived_by)
        assert archived is not None
        fields = tuple(
            replace(f, type=schema.with_current_types(f.type)) for f in archived.table.fields
        )
        restored = archived.table.with_fields(fields)
        return replace(
            schema,
            tables=insert_at(self.position, restored, schema.tables),
            archived=tuple(a for a in schema.archived if a is not archived),
        )

    def invert(
        self, before: Schema, number: int, collector: ViolationCollector
    ) -> tuple[Operation, ...]:
        return (DropTable(self.table, "archive", self.archived_by),)

    def derive(self, before: TableSchema, after: TableSchema) -> dict[int, Derivation]:
        """Members of types that went and came back meanwhile are numbered anew."""
        return {
            old.number: Recast(
                SourceField(old.number), same_value, old.type, new.type, keeps_bytes=False
            )
            for old, new in zip(before.fields, after.fields, strict=True)
            if not has_same_bytes(old.type, new.type)
        }


def same_value(value: Any) -> Any:
    """The same value: values hold names, and those have not changed."""
    return value


def rebuild_table(table: TableSchema) -> tuple[Operation, ...]:
    """The operations that make this table again, empty."""
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
