"""The frozen model of a schema: what tables, fields and indexes are at one point of the chain.

Identity is by number: numbers are drawn when a migration is stored and never used again, so a
renamed field is the same field, and a dropped one that is added again under its old name is not
(rule 3). Names are unique within their table or schema at any one time. Nothing here is ever
changed in place; the `with_…` methods return a new value.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

from zapdb.datasets import Collation
from zapdb.values import ValueType


class _NoDefault:
    """The absence of a default, where None is a default like any other."""

    def __repr__(self) -> str:
        return "NO_DEFAULT"

    def __reduce__(self) -> str:
        return "NO_DEFAULT"


NO_DEFAULT: Final = _NoDefault()


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a table. `default` is a checked value, None, or `NO_DEFAULT`."""

    number: int
    name: str
    type: ValueType
    optional: bool = False
    default: Any = NO_DEFAULT
    generated: bool = False

    @property
    def has_default(self) -> bool:
        return self.default is not NO_DEFAULT


@dataclass(frozen=True, slots=True)
class IndexComponent:
    """One field of an index, by number; strings have a collation, or None for code points."""

    field: int
    collation: Collation | None = None
    descending: bool = False


@dataclass(frozen=True, slots=True)
class Index:
    number: int
    name: str
    components: tuple[IndexComponent, ...]

    @property
    def datasets(self) -> tuple[Collation, ...]:
        """What its keys depend on; an index that depends on anything is unstable."""
        return tuple(c.collation for c in self.components if c.collation is not None)


@dataclass(frozen=True, slots=True)
class Table:
    """`fields` stand in declared order; `key` holds the numbers of the key's fields in order."""

    number: int
    name: str
    key: tuple[int, ...]
    fields: tuple[Field, ...]
    indexes: tuple[Index, ...] = ()

    def field_named(self, name: str) -> Field | None:
        return next((f for f in self.fields if f.name == name), None)

    def field_numbered(self, number: int) -> Field:
        return next(f for f in self.fields if f.number == number)

    def index_named(self, name: str) -> Index | None:
        return next((i for i in self.indexes if i.name == name), None)

    @property
    def key_fields(self) -> tuple[Field, ...]:
        return tuple(self.field_numbered(number) for number in self.key)

    @property
    def value_fields(self) -> tuple[Field, ...]:
        """The fields that a record's value holds: all but the key's, by number."""
        stored = (f for f in self.fields if f.number not in self.key)
        return tuple(sorted(stored, key=lambda f: f.number))

    def indexes_on(self, number: int) -> tuple[Index, ...]:
        return tuple(i for i in self.indexes if any(c.field == number for c in i.components))

    def with_field(self, changed: Field) -> Table:
        """The table with the field of the same number replaced."""
        fields = tuple(changed if f.number == changed.number else f for f in self.fields)
        return replace(self, fields=fields)

    def with_fields(self, fields: tuple[Field, ...]) -> Table:
        return replace(self, fields=fields)

    def with_indexes(self, indexes: tuple[Index, ...]) -> Table:
        return replace(self, indexes=indexes)


@dataclass(frozen=True, slots=True)
class Schema:
    """All tables at one point of the chain, in order of creation."""

    tables: tuple[Table, ...] = field(default=())

    def __iter__(self) -> Iterator[Table]:
        return iter(self.tables)

    def table_named(self, name: str) -> Table | None:
        return next((t for t in self.tables if t.name == name), None)

    def table_numbered(self, number: int) -> Table | None:
        return next((t for t in self.tables if t.number == number), None)

    def with_table(self, changed: Table) -> Schema:
        """The schema with the table of the same number replaced, or added at the end."""
        if self.table_numbered(changed.number) is None:
            return Schema((*self.tables, changed))
        return Schema(tuple(changed if t.number == changed.number else t for t in self.tables))

    def without_table(self, number: int) -> Schema:
        return Schema(tuple(t for t in self.tables if t.number != number))
