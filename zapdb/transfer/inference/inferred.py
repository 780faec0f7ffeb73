"""What was inferred from a source, as values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import sqlalchemy as sa

from zapdb.migrations.document_structure import ABSENT
from zapdb.migrations.operations.definitions import FieldDefinition
from zapdb.schema import OnDelete
from zapdb.values import VALUE_TYPES


@dataclass(frozen=True, slots=True)
class Note:
    """Something of the source that is not the same here; `subject` is a table, or table.column."""

    subject: str
    text: str
    is_left_out: bool = False
    """Whether it is not here at all; else it is another thing here."""

    def __str__(self) -> str:
        return f"{self.subject}: {self.text}"


@dataclass(frozen=True, slots=True)
class InferredField:
    """A field and the columns that it is made of: several for a reference to a composite key."""

    name: str
    columns: tuple[str, ...]
    definition: FieldDefinition
    target: str | None = None
    """The table that it refers to, by its name here."""
    on_delete: OnDelete | None = None
    is_added: bool = False
    """Whether it is added after all tables are created: its target is created later."""
    plain: tuple[InferredField, ...] = ()
    """What a reference would be without its target: a field for each column."""


@dataclass(frozen=True, slots=True)
class InferredIndex:
    name: str
    fields: tuple[tuple[str, bool], ...]
    """Names, and whether the order is descending."""
    unique: bool


@dataclass(frozen=True, slots=True)
class InferredCheck:
    name: str
    expression: str
    given: str
    """As the source has it."""


@dataclass(slots=True)
class InferredTable:
    """One table of the source, as it would be here."""

    source: Any
    """SQLAlchemy's `Table`; None for a file."""
    name: str
    key: tuple[str, ...]
    fields: list[InferredField]
    indexes: list[InferredIndex] = field(default_factory=list)
    checks: list[InferredCheck] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    has_heirs: bool = False
    """Whether tables of PostgreSQL inherit from it, whose rows are theirs."""

    @property
    def source_name(self) -> str:
        return self.name if self.source is None else str(self.source.name)

    def select(self, *columns: Any) -> sa.Select[Any]:
        """A query of the rows that are the table's own."""
        query = sa.select(*columns).select_from(self.source)
        return query.with_hint(self.source, "ONLY", "postgresql") if self.has_heirs else query

    def field_of(self, columns: tuple[str, ...]) -> InferredField | None:
        return next((f for f in self.fields if f.columns == columns), None)

    def change(self, subject: str, text: str) -> None:
        self.notes.append(Note(self._place(subject), text))

    def leave_out(self, subject: str, text: str) -> None:
        self.notes.append(Note(self._place(subject), text, is_left_out=True))

    def _place(self, subject: str) -> str:
        return f"{self.source_name}.{subject}" if subject else self.source_name

    def join_fields(self, fields: Sequence[InferredField], joined: InferredField) -> None:
        """Put one field in the place of several, in the key, too."""
        at = self.fields.index(fields[0])
        self.fields = [f for f in self.fields if f not in fields]
        self.fields.insert(min(at, len(self.fields)), joined)
        names = {f.name for f in fields}
        if names & {*self.key}:
            key = [joined.name if name in names else name for name in self.key]
            self.key = tuple(dict.fromkeys(key))

    def cut_reference(self, cut: InferredField, why: str) -> None:
        """Have the columns of a reference as fields of their own, which name nothing."""
        at = self.fields.index(cut)
        self.fields[at : at + 1] = cut.plain
        names = [f.name for f in cut.plain]
        key = list(self.key)
        if cut.name in key:
            where = key.index(cut.name)
            key[where : where + 1] = names
            self.key = tuple(key)
        self.indexes = [_without(index, cut.name, names) for index in self.indexes]
        self.leave_out(", ".join(cut.columns), f"the reference to {cut.target}: {why}")

    def drop_field(self, dropped: InferredField, why: str) -> None:
        """Leave a field out, with the indexes of it; it is none of the key."""
        self.fields.remove(dropped)
        self.leave_out(", ".join(dropped.columns), why)
        for index in list(self.indexes):
            if dropped.name in [name for name, _ in index.fields]:
                self.indexes.remove(index)
                self.leave_out(index.name, f"an index of {dropped.name}, which is left out")


def _without(index: InferredIndex, name: str, parts: Collection[str]) -> InferredIndex:
    fields = list[tuple[str, bool]]()
    for field_name, descending in index.fields:
        is_cut = field_name == name
        fields += [(part, descending) for part in parts] if is_cut else [(field_name, descending)]
    return replace(index, fields=tuple(fields))


@dataclass(slots=True)
class InferredEnum:
    name: str
    members: tuple[str, ...]


@dataclass(slots=True)
class Inference:
    """The tables in an order in which each refers to earlier ones, except fields that are added
    later; the notes are those of no table, and of tables that are left out."""

    source: str
    tables: list[InferredTable] = field(default_factory=list)
    enums: list[InferredEnum] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    """Tables of the source that can't be tables here."""
    not_here: list[str] = field(default_factory=list)
    """Tables and columns that could be here and are not, since the migration has none of them."""

    @property
    def all_notes(self) -> list[Note]:
        return [*self.notes, *(note for table in self.tables for note in table.notes)]

    def leave_table_out(self, table: InferredTable, why: str) -> None:
        """Leave a table out, and what refers to it: those fields keep their values."""
        self.tables.remove(table)
        self.notes.append(Note(table.source_name, f"left out: {why}", is_left_out=True))
        self.left_out.append(table.source_name)
        for other in self.tables:
            for referring in [f for f in other.fields if f.target == table.name]:
                other.cut_reference(referring, "its table is left out")

    def count_carried(self) -> dict[str, int]:
        """How many things of each kind are the same here, by kinds; those that there are."""
        found = Counter[str]()
        for table in self.tables:
            definitions = [f.definition for f in table.fields]
            found["tables"] += 1
            found["fields"] += len(definitions)
            found["required fields"] += sum(not one.optional for one in definitions)
            found["defaults"] += sum(one.default is not ABSENT for one in definitions)
            found["sequences"] += sum(one.generated == "sequence" for one in definitions)
            found["references"] += sum(f.on_delete is not None for f in table.fields)
            found["unique indexes"] += sum(index.unique for index in table.indexes)
            found["indexes"] += sum(not index.unique for index in table.indexes)
            found["checks"] += len(table.checks)
        found["enums"] += len(self.enums)
        return {kind: count for kind, count in found.items() if count}


def is_indexable(definition: FieldDefinition) -> bool:
    """Whether an index may have such a field; declared types are enums here."""
    kind = VALUE_TYPES.get(definition.type)
    return kind is None or kind.indexable
