"""create_table: a new table with its key and fields."""

from __future__ import annotations

from dataclasses import dataclass, replace

from zapdb.errors import Location
from zapdb.limits import FIELDS_PER_TABLE_MAX
from zapdb.migrations.operations.base import Numbers, Operation, TableOperation, report_taken
from zapdb.migrations.operations.definitions import FieldDefinition
from zapdb.migrations.operations.drop_table import DropTable
from zapdb.migrations.structure import Name, Refused, Reporter, located
from zapdb.schema import Schema, Table


@dataclass(frozen=True)
class CreateTable(TableOperation):
    keyword = "create_table"

    key: tuple[Name, ...]
    fields: tuple[FieldDefinition, ...]
    location: Location = located()

    def validate(self, schema: Schema, reporter: Reporter) -> None:
        report_taken(self.table, self.place, schema, reporter)
        if len(self.fields) > FIELDS_PER_TABLE_MAX:
            reporter.report(self.place, f"a table has at most {FIELDS_PER_TABLE_MAX} fields")
        seen: set[str] = set()
        for definition in self.fields:
            if definition.name in seen:
                reporter.report(definition.location, f"the field {definition.name!r} stands twice")
            seen.add(definition.name)
        reported = len(reporter.violations)
        self._validate_key(schema, reporter)
        if len(reporter.violations) > reported:
            return  # what refers to this table itself can't be looked at
        within = self._with_key(schema, 0, dict.fromkeys(self._names, 0))
        for definition in self.fields:
            try:
                definition.validate(definition.name, within, reporter)
            except Refused:
                continue

    @property
    def _names(self) -> list[str]:
        return [definition.name for definition in self.fields]

    def _with_key(self, schema: Schema, number: int, numbers: dict[str, int]) -> Schema:
        """The schema with this table, its key alone: fields may refer to their own table."""
        defined = {definition.name: definition for definition in self.fields}
        fields = tuple(defined[name].build(name, numbers[name], schema) for name in self.key)
        return schema.with_table(Table(number, self.table, tuple(f.number for f in fields), fields))

    def _validate_key(self, schema: Schema, reporter: Reporter) -> None:
        if not self.key or len(set(self.key)) != len(self.key):
            reporter.report(self.place, "a key is one or more different fields")
        by_name = {definition.name: definition for definition in self.fields}
        for name in self.key:
            definition = by_name.get(name)
            if definition is None:
                reporter.report(self.place, f"the key field {name!r} is not among the fields")
                continue
            try:
                kind = definition.build_type(schema, reporter)
            except Refused:
                continue
            if not kind.keyable:
                reporter.report(definition.location, f"a {kind} can't be part of a key")
            if definition.optional:
                reporter.report(definition.location, "a field of the key can't be optional")

    def normalize(self, schema: Schema, number: int) -> Operation:
        within = self._with_key(schema, 0, dict.fromkeys(self._names, 0))
        return replace(self, fields=tuple(d.normalize(d.name, within) for d in self.fields))

    def apply(self, schema: Schema, numbers: Numbers) -> Schema:
        number = numbers.draw("table")
        drawn = {name: numbers.draw("field") for name in self._names}
        within = self._with_key(schema, number, drawn)
        fields = tuple(d.build(d.name, drawn[d.name], within) for d in self.fields)
        key = tuple(drawn[name] for name in self.key)
        return schema.with_table(Table(number, self.table, key, fields))

    def invert(self, before: Schema, number: int, reporter: Reporter) -> tuple[Operation, ...]:
        return (DropTable(self.table, "discard"),)
