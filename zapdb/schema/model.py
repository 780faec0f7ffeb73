"""The frozen model of a schema: what tables, fields and indexes are at one point of the chain.

Identity is by number: numbers are drawn when a migration is stored and never used again, so a
renamed field is the same field, and a dropped one that is added again under its old name is not
(rule 3). A field keeps its number when a migration computes its values anew, such as with another
type; its *cell* is a new one then. So a cell stands for a field's values of one meaning. Names are
unique within their table or schema at any one time. Nothing here is ever changed in place; the
`with_…` methods return a new value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from zapdb.datasets import Collation, Dependency, TimeZones
from zapdb.limits import NAME_LENGTH_MAX
from zapdb.values import Enum, List, Member, Reference, Struct, Timestamp, ValueType, ZonedTimestamp


class _NoDefault:
    """The absence of a default, where None is a default like any other."""

    def __repr__(self) -> str:
        return "NO_DEFAULT"

    def __reduce__(self) -> str:
        return "NO_DEFAULT"


NO_DEFAULT: Final = _NoDefault()


@dataclass(frozen=True, slots=True)
class Now:
    """A default that is the moment of the insert: a `timestamp`, or where a zone is named, a
    `zoned_timestamp` there.

    It is made at insert, and is no constant: records that are older than the field have none of it
    (rule 18).
    """

    zone: str = ""

    def __str__(self) -> str:
        """As documents say it: `now`, or `now Europe/Vienna`."""
        return f"now {self.zone}".rstrip()


Generator = Literal["uuid", "sequence"]
"""What makes the value of a generated field."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a table. `default` is a checked value, None, `Now`, or `NO_DEFAULT`. `cell` is
    its number, until a migration computes its values anew."""

    number: int
    name: str
    type: ValueType
    optional: bool = False
    default: Any = NO_DEFAULT
    generated: Generator | None = None
    cell: int = 0

    def __post_init__(self) -> None:
        if not self.cell:
            object.__setattr__(self, "cell", self.number)

    @property
    def has_default(self) -> bool:
        return self.default is not NO_DEFAULT

    @property
    def has_constant(self) -> bool:
        """Whether it has a default that is the same for all records."""
        return self.has_default and not isinstance(self.default, Now)

    @property
    def is_made(self) -> bool:
        """Whether the value of a new record is made at insert where none is given."""
        return self.generated is not None or isinstance(self.default, Now)

    @property
    def is_sequence(self) -> bool:
        return self.generated == "sequence"

    @property
    def plain_generated(self) -> Literal[True, False, "sequence"]:
        """What makes its value, as documents say it."""
        return "sequence" if self.generated == "sequence" else self.generated is not None

    @property
    def plain_default(self) -> Any:
        """The default as documents say it, for a field that has one."""
        if self.default is None or isinstance(self.default, Now):
            return None if self.default is None else str(self.default)
        return self.type.to_document(self.default)


@dataclass(frozen=True, slots=True)
class IndexComponent:
    """One field of an index, by number; strings have a collation, or None for code points."""

    field: int
    collation: Collation | None = None
    descending: bool = False


@dataclass(frozen=True, slots=True)
class Index:
    """With `unique`, records that are equal in all components, none of them null, are refused."""

    number: int
    name: str
    components: tuple[IndexComponent, ...]
    unique: bool = False


@dataclass(frozen=True, slots=True)
class Check:
    """What must be true of every record: the canonical text of a boolean expression."""

    number: int
    name: str
    expression: str


OnDelete = Literal["restrict", "cascade", "set_null"]


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """The records that a field of type reference names, by the field's number, must exist.

    `on_delete` is the action on a record when its target is deleted.
    """

    field: int
    on_delete: OnDelete


@dataclass(frozen=True, slots=True)
class ArchivedField:
    """A field that was dropped with its values kept; `by` is the number of that migration."""

    field: Field
    archived_by: int


@dataclass(frozen=True, slots=True)
class TableSchema:
    """`fields` are in declared order; `key` has the numbers of the key's fields in order.

    `archived` are dropped fields whose values are archived, in the order of their dropping: they
    are not part of the table, but `restore_field` brings them back.
    """

    number: int
    name: str
    key: tuple[int, ...]
    fields: tuple[Field, ...]
    indexes: tuple[Index, ...] = ()
    checks: tuple[Check, ...] = ()
    foreign_keys: tuple[ForeignKey, ...] = ()
    archived: tuple[ArchivedField, ...] = ()
    packed: bytes | None = field(default=None, init=False, repr=False, compare=False)
    """Its canonical bytes, once they were needed: what is compiled is looked up by them."""

    def field_named(self, name: str) -> Field | None:
        for found in self.fields:  # a loop, because each query asks
            if found.name == name:
                return found
        return None

    def field_numbered(self, number: int) -> Field:
        for found in self.fields:
            if found.number == number:
                return found
        raise KeyError(number)  # no StopIteration, which would end who iterates

    def index_named(self, name: str) -> Index | None:
        return next((i for i in self.indexes if i.name == name), None)

    def check_named(self, name: str) -> Check | None:
        return next((c for c in self.checks if c.name == name), None)

    def foreign_key_on(self, number: int) -> ForeignKey | None:
        return next((k for k in self.foreign_keys if k.field == number), None)

    def archived_named(self, name: str, by: int) -> ArchivedField | None:
        """The last one, where a migration archived several of this name: they come back in turn."""
        found = (a for a in reversed(self.archived) if a.field.name == name and a.archived_by == by)
        return next(found, None)

    @property
    def key_fields(self) -> tuple[Field, ...]:
        return tuple(self.field_numbered(number) for number in self.key)

    @property
    def value_fields(self) -> tuple[Field, ...]:
        """The fields that a record's value holds: all but the key's, by number."""
        stored = (f for f in self.fields if f.number not in self.key)
        return tuple(sorted(stored, key=lambda f: f.number))

    @property
    def cells(self) -> frozenset[int]:
        """The cells of its fields: tables with the same ones have records of the same bytes."""
        return frozenset(f.cell for f in self.fields)

    @property
    def archived_cells(self) -> frozenset[int]:
        return frozenset(archived.field.cell for archived in self.archived)

    @property
    def layout(self) -> tuple[frozenset[int], frozenset[int]]:
        """What tells its records from those of another schema: its cells, and the archived ones. A
        record that never had a field is another one than a record that lost it."""
        return self.cells, self.archived_cells

    def indexes_on(self, number: int) -> tuple[Index, ...]:
        return tuple(i for i in self.indexes if any(c.field == number for c in i.components))

    def datasets_of(self, index: Index) -> tuple[Dependency, ...]:
        """What the keys of an index depend on; one that depends on anything is unstable."""
        found: list[Dependency] = [c.collation for c in index.components if c.collation is not None]
        if any(self.field_numbered(c.field).type.depends_on_zones for c in index.components):
            found.append(TimeZones())
        return tuple(dict.fromkeys(found))

    def with_field(self, changed: Field) -> TableSchema:
        """The table with the field of the same number replaced."""
        fields = tuple(changed if f.number == changed.number else f for f in self.fields)
        return replace(self, fields=fields)

    def with_fields(self, fields: tuple[Field, ...]) -> TableSchema:
        return replace(self, fields=fields)

    def with_indexes(self, indexes: tuple[Index, ...]) -> TableSchema:
        return replace(self, indexes=indexes)


@dataclass(frozen=True, slots=True)
class ArchivedTable:
    """A table that was dropped with its records kept; `by` is the number of that migration."""

    table: TableSchema
    archived_by: int


@dataclass(frozen=True, slots=True)
class Schema:
    """All tables and named types at one point of the chain, in order of creation."""

    tables: tuple[TableSchema, ...] = field(default=())
    types: tuple[Enum | Struct, ...] = field(default=())
    archived: tuple[ArchivedTable, ...] = field(default=())

    def __iter__(self) -> Iterator[TableSchema]:
        return iter(self.tables)

    def table_named(self, name: str) -> TableSchema | None:
        for table in self.tables:
            if table.name == name:
                return table
        return None

    def table_numbered(self, number: int) -> TableSchema | None:
        for table in self.tables:
            if table.number == number:
                return table
        return None

    def table_active_or_archived(self, number: int) -> TableSchema | None:
        """Return the table with this number, active or archived."""
        found = self.table_numbered(number)
        if found is not None:
            return found
        return next((a.table for a in self.archived if a.table.number == number), None)

    def archived_named(self, name: str, by: int) -> ArchivedTable | None:
        """The last one, where a migration archived several of this name: they come back in turn."""
        found = (a for a in reversed(self.archived) if a.table.name == name and a.archived_by == by)
        return next(found, None)

    def with_table(self, changed: TableSchema) -> Schema:
        """The schema with the table of the same number replaced, or added at the end."""
        if self.table_numbered(changed.number) is None:
            return Schema((*self.tables, changed), self.types, self.archived)
        tables = tuple([changed if t.number == changed.number else t for t in self.tables])
        return Schema(tables, self.types, self.archived)

    def with_cells(self, cells: Mapping[int, int]) -> Schema:
        """The schema with other cells for some fields, by their numbers, archived ones too."""

        def put(f: Field) -> Field:
            return replace(f, cell=cells[f.number]) if f.number in cells else f

        def put_all(table: TableSchema) -> TableSchema:
            numbers = {f.number for f in (*table.fields, *(a.field for a in table.archived))}
            if numbers.isdisjoint(cells):
                return table
            archived = (replace(a, field=put(a.field)) for a in table.archived)
            return replace(table, fields=tuple(map(put, table.fields)), archived=tuple(archived))

        return Schema(
            tuple(map(put_all, self.tables)),
            self.types,
            tuple(replace(a, table=put_all(a.table)) for a in self.archived),
        )

    def without_table(self, number: int) -> Schema:
        return replace(self, tables=tuple(t for t in self.tables if t.number != number))

    def with_table_renamed(self, table: TableSchema, name: str) -> Schema:
        """The schema with the table under another name, in the references to it, too."""

        def rename(kind: ValueType) -> ValueType:
            is_meant = isinstance(kind, Reference) and kind.number == table.number
            return replace(kind, table=name) if is_meant else kind  # type: ignore[call-arg]  # it is a Reference

        renamed = self._with_types_changed(rename)
        (target,) = (t for t in renamed.tables if t.number == table.number)
        return renamed.with_table(replace(target, name=name))

    def with_current_names(self, kind: ValueType) -> Any:
        """A type that was kept from earlier, with the names that its references' tables have."""

        def name(part: ValueType) -> ValueType:
            target = self.target_of(part) if isinstance(part, Reference) else None
            return part if target is None else replace(part, table=target.name)  # type: ignore[call-arg]  # it is a Reference

        return map_type(kind, name)

    def with_current_types(self, kind: ValueType) -> Any:
        """A type that was kept from earlier, made of the declared types and tables of today."""

        def put(part: ValueType) -> ValueType:
            if isinstance(part, Enum | Struct):
                return self.type_named(part.declared_name) or part
            target = self.target_of(part) if isinstance(part, Reference) else None
            if target is None:
                return part
            return Reference(target.name, target.number, tuple(f.type for f in target.key_fields))

        return map_type(kind, put)

    def target_of(self, reference: Reference) -> TableSchema | None:
        """Return the table that a reference leads to, or the table that a rollback made in its
        place.

        A table that a rollback makes has a provisional number below zero, so its name identifies
        it.
        """
        found = self.table_numbered(reference.number)
        if found is not None:
            return found
        named = self.table_named(reference.table)
        return named if named is not None and named.number < 0 else None

    def type_named(self, name: str) -> Enum | Struct | None:
        return next((t for t in self.types if t.declared_name == name), None)

    def with_type(self, added: Enum | Struct) -> Schema:
        return replace(self, types=(*self.types, added))

    def with_type_replaced(self, changed: Enum | Struct) -> Schema:
        """The schema with the type of the same number replaced, in all that is of it, too."""

        def put(kind: ValueType) -> ValueType:
            is_meant = isinstance(kind, Enum | Struct) and kind.number == changed.number
            return changed if is_meant else kind

        return self._with_types_changed(put)

    def _with_types_changed(self, change: Callable[[ValueType], ValueType]) -> Schema:
        """The schema with `change` applied to the types of all fields, and to the declared ones."""

        def change_in(table: TableSchema) -> TableSchema:
            fields = tuple(replace(f, type=map_type(f.type, change)) for f in table.fields)
            return table if fields == table.fields else table.with_fields(fields)

        types = tuple(map_type(kind, change) for kind in self.types)
        return replace(self, tables=tuple(map(change_in, self.tables)), types=types)

    def without_type(self, number: int) -> Schema:
        return replace(self, types=tuple(t for t in self.types if t.number != number))

    def users_of(self, target: TableSchema | Enum | Struct) -> Iterator[str]:
        """What is of a named type or refers to a table: `table.field`, or `type.member`."""

        def uses(kind: ValueType) -> bool:
            if isinstance(kind, Reference):
                return isinstance(target, TableSchema) and kind.number == target.number
            if not isinstance(kind, Enum | Struct) or isinstance(target, TableSchema):
                return False
            return kind.number == target.number

        parts: list[tuple[object, str, tuple[Field | Member, ...]]] = []
        parts += [(table, table.name, table.fields) for table in self.tables]
        structs = [kind for kind in self.types if isinstance(kind, Struct)]
        parts += [(kind, kind.declared_name, kind.members) for kind in structs]
        for owner, name, members in parts:
            for part in members if owner is not target else ():
                if any(map(uses, types_in(part.type))):
                    yield f"{name}.{part.name}"


def find_now(plain: Any, kind: ValueType) -> Now | None:
    """What `now`, or `now ZONE`, means as the default of a field of this type; None for a constant.

    The zone may be one that the time zone data in use lack.
    """
    if not isinstance(plain, str) or not plain.startswith("now"):
        return None
    if isinstance(kind, Timestamp) and plain == "now":
        return Now()
    if isinstance(kind, ZonedTimestamp) and plain.startswith("now "):
        return Now(plain.removeprefix("now "))
    return None


def types_in(kind: ValueType) -> Iterator[ValueType]:
    """A type and those within it."""
    yield kind
    match kind:
        case List(items):
            yield from types_in(items)
        case Struct():
            for member in kind.members:
                yield from types_in(member.type)


def map_type(kind: Any, change: Callable[[ValueType], ValueType]) -> Any:
    """The type with `change` applied to it and to those within it, innermost first."""
    match kind:
        case List(items):
            return change(List(map_type(items, change)))
        case Reference(key=key):
            return change(replace(kind, key=tuple(map_type(part, change) for part in key)))
        case Struct():
            members = (replace(m, type=map_type(m.type, change)) for m in kind.members)
            return change(replace(kind, members=tuple(members)))
    return change(kind)


def free_name(name: str, taken: Iterable[str]) -> str:
    """The name, or with a number behind it the first one that is not taken."""
    known, number, made = {*taken}, 1, name[:NAME_LENGTH_MAX]
    while made in known:
        number += 1
        suffix = f"_{number}"
        made = name[: NAME_LENGTH_MAX - len(suffix)] + suffix
    return made
