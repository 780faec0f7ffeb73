"""What was inferred from a source, as values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from zapdb.migrations.operations.definitions import FieldDefinition
from zapdb.schema import OnDelete


@dataclass(frozen=True, slots=True)
class Note:
    """Something of the source that is not the same here; `subject` is a table, or table.column."""

    subject: str
    text: str

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

    def field_of(self, columns: tuple[str, ...]) -> InferredField | None:
        return next((f for f in self.fields if f.columns == columns), None)


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

    @property
    def all_notes(self) -> list[Note]:
        return [*self.notes, *(note for table in self.tables for note in table.notes)]
