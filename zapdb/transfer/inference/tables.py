"""From the tables of a source, as SQLAlchemy reads them, to tables as they would be here: names,
keys, references, indexes.

Foreign keys are read apart from their tables: SQLite lets in keys of columns that are not there,
and takes the name of a column in any case.
"""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final, Generic, Literal, NamedTuple, TypeVar

import sqlalchemy as sa
from sqlalchemy import exc

from zapdb.errors import UsageError
from zapdb.imports import normalize_name
from zapdb.migrations.document_structure import ABSENT, Name
from zapdb.migrations.operations.definitions import FieldDefinition
from zapdb.schema import OnDelete
from zapdb.schema.model import free_name
from zapdb.transfer.inference.choice import ALL_TABLES, TableChoice
from zapdb.transfer.inference.column_inference import ColumnInferrer
from zapdb.transfer.inference.column_types import find_declared_types, map_type_of, show_size
from zapdb.transfer.inference.inferred import (
    Inference,
    InferredCheck,
    InferredField,
    InferredIndex,
    InferredTable,
    Note,
    is_indexable,
)
from zapdb.transfer.inference.source_database import SourceDatabase
from zapdb.transfer.inference.source_objects import SourceObjects, find_objects
from zapdb.transfer.inference.sql_texts import translate_check
from zapdb.values import VALUE_TYPES

_ON_DELETE: dict[str, OnDelete] = {"CASCADE": "cascade", "SET NULL": "set_null"}
_NO_ACTION: Final = ("", "NO ACTION", "RESTRICT")
_OF_WORDS: Final = ("gin", "gist", "spgist", "brin")
"""Kinds of index in PostgreSQL that are of parts of values, or of places."""


def infer_tables(source: SourceDatabase, choice: TableChoice = ALL_TABLES) -> Inference:
    """What the tables of a source would be here, or only those that are meant.

    Raises `UsageError` if there are no tables, and if the source is a zapdb database.
    """
    found = Inference(source.shown)
    with source.reading() as connection, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", exc.SAWarning)  # of types that get a note, and others
        metadata, left_out = reflect(connection)
        found.notes += left_out
        if is_zapdb(connection, metadata.tables):
            raise UsageError(
                "the source is a database of zapdb",
                source=source.shown,
                hint="write it to a directory with `zapdb export` and import that",
            )
        if not metadata.tables:
            raise UsageError("the source has no tables", source=source.shown)
        choice.require_known(metadata.tables)
        objects = find_objects(connection)
        tables = [
            t for t in metadata.tables.values() if choice.has(t.name) and objects.is_table(t.name)
        ]
        said = dict.fromkeys(str(one.message) for one in caught)
        if source.dialect == "sqlite":
            find_declared_types(connection, tables)
        found.notes += objects.notes
        unknown = find_unknown_types(said)
        _Inferrer(connection, found, tables, metadata.tables, unknown, objects, choice).run()
        views = sa.inspect(connection).get_view_names()
    said |= dict.fromkeys(str(one.message) for one in caught)
    found.notes += [Note("the source", text, is_left_out=True) for text in said if "index" in text]
    found.notes += [
        Note(view, "a view; its query is not imported", is_left_out=True) for view in sorted(views)
    ]
    return found


class _Reference(NamedTuple):
    """A foreign key that can be a reference; its columns are in the order of the target's key."""

    made: InferredTable
    columns: tuple[str, ...]
    target: str
    foreign_key: ForeignKeyRead
    is_optional: bool

    @property
    def place(self) -> str:
        return ", ".join(self.foreign_key.columns)


class _IndexRead(NamedTuple):
    """An index, or what has one; `why` says why it is none here, if it is none."""

    name: str | None
    columns: Sequence[str | None]
    is_unique: bool
    sorting: Any
    why: str

    @property
    def place(self) -> str:
        return self.name or ", ".join(column for column in self.columns if column)


@dataclass
class _Inferrer:
    """Infers the tables of one source; `declared` are all that it has."""

    connection: sa.Connection
    found: Inference
    tables: Sequence[sa.Table]
    declared: Mapping[str, sa.Table]
    unknown_types: Mapping[str, str]
    objects: SourceObjects
    choice: TableChoice
    sources: dict[str, sa.Table] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    """Of tables, here, by those in the source."""
    keys: dict[str, tuple[str, ...]] = field(default_factory=dict)
    foreign_keys: dict[str, list[ForeignKeyRead]] = field(default_factory=dict)
    made: dict[str, InferredTable] = field(default_factory=dict)

    def run(self) -> None:
        self.inspector = sa.inspect(self.connection)
        self.is_exact = self.connection.dialect.name != "sqlite"
        self.sources = {table.name: table for table in self.tables}
        self.names = _unique_names(sorted(self.sources))
        self.columns = ColumnInferrer(
            self.connection,
            self.unknown_types,
            self.found.enums,
            lambda name: name in self.names.values(),
        )
        for name, table in self.sources.items():
            if key := self._find_key(table):
                self.keys[name] = key
        for name in sorted(self.keys):
            self._infer_columns(self.sources[name])
        references = [one for made in self.made.values() for one in self._find_references(made)]
        order, cyclic = sort_tables(self.made, [self._edge_of(one) for one in references])
        later = {id(edge.reference) for edge in cyclic}
        for reference in references:
            self._refer(reference, is_cyclic=id(reference) in later)
        self.found.tables = [self.made[name] for name in order]
        for made in self.found.tables:
            self._infer_indexes(made)
            self._infer_checks(made)

    def _find_key(self, table: sa.Table) -> tuple[str, ...]:
        """The columns of the primary key, or else of a unique constraint without nulls."""
        candidates = [[column.name for column in table.primary_key.columns]]
        candidates += [u["column_names"] for u in self._unique_constraints(table)]
        for columns in candidates:
            kinds = [map_type_of(table.c[name].type).parameters["type"] for name in columns]
            has_nulls = any(table.c[name].nullable for name in columns)
            is_primary = columns is candidates[0]
            fits = all(VALUE_TYPES[kind].keyable for kind in kinds)
            fits &= all(self.choice.has_column(table.name, name) for name in columns)
            if columns and fits and (is_primary or not has_nulls):
                return tuple(columns)
        why = "its primary key has a type that no key can have here"
        if not candidates[0]:
            why = "it has no primary key and no unique constraint without nulls"
        elif not all(self.choice.has_column(table.name, name) for name in candidates[0]):
            why = "its primary key is excluded"
        text = (
            f"left out: {why}; add a primary key in the source, or import it "
            "from a file into a table that you write by hand"
        )
        self.found.notes.append(Note(table.name, text, is_left_out=True))
        self.found.left_out.append(table.name)
        return ()

    def _unique_constraints(self, table: sa.Table) -> list[Any]:
        found: list[Any] = [dict(c) for c in self.inspector.get_unique_constraints(table.name)]
        if not self.is_exact:  # whose texts are not all understood, and in any case
            names = table.c.keys()
            for one in found:
                columns = [find_name(c, names, is_exact=False) for c in one["column_names"]]
                one["column_names"] = [column for column in columns if column is not None]
            known = [constraint["column_names"] for constraint in found]
            for index in self.inspector.get_indexes(table.name, include_auto_indexes=True):
                is_new = index["column_names"] not in known
                if str(index["name"]).startswith("sqlite_autoindex") and is_new:
                    found.append({"name": None, "column_names": index["column_names"]})
        return found

    # One table

    def _infer_columns(self, table: sa.Table) -> None:
        key, primary = self.keys[table.name], table.primary_key.columns.keys()
        made = InferredTable(table, self.names[table.name], (), [])
        made.has_heirs = table.name in self.objects.parents
        self.made[table.name] = made
        own, notes = read_foreign_keys(self.inspector, table, self.declared)
        self.foreign_keys[table.name] = own
        made.notes += notes
        names = _unique_names([column.name for column in table.columns])
        referring = {column for one in own for column in one.columns}
        is_alone = primary == list(key) and len(key) == 1 and key[0] not in referring
        for column in table.columns:
            if not self.choice.has_column(table.name, column.name):
                made.leave_out(column.name, "excluded")
                continue
            in_key = column.name in key
            may_number = is_alone and in_key and column.autoincrement is not False
            name = names[column.name]
            inferred = self.columns.infer(made, column, name, in_key=in_key, may_number=may_number)
            made.fields.append(inferred)
        made.key = tuple(names[column] for column in key)
        updating = [", ".join(one.columns) for one in own if one.on_update not in _NO_ACTION]
        if updating:
            made.leave_out("", f"on update of {'; '.join(updating)}: keys do not change here")
        if list(key) != primary:
            made.change("", f"no primary key; its key is unique: {', '.join(key)}")
        self._note_table(made, names)

    def _note_table(self, made: InferredTable, names: Mapping[str, str]) -> None:
        """Notes of the whole table, whose columns have these names here."""
        table = made.source
        renamed = {table.name: made.name} if table.name != made.name else {}
        renamed |= {there: here for there, here in names.items() if there != here}
        if renamed:
            made.change("", f"other names: {_show_pairs(renamed)}")
        sizes = {column.name: show_size(column.type) for column in table.columns}
        shown = ", ".join(f"{name} {size}" for name, size in sizes.items() if size)
        if shown and self.is_exact:  # SQLite does not enforce them
            made.change("", f"sizes are not kept: {shown}")
        if any((table.name, column) in self.objects.caseless for column in self.keys[table.name]):
            made.change("", "keys are equal whatever their case there; here they differ by it")
        if table.comment:
            made.change("", f"comment: {table.comment}")

    # References

    def _find_references(self, made: InferredTable) -> Iterator[_Reference]:
        """The foreign keys that can be references, the longest first: their columns become one
        field. The others get a note."""
        name, used = made.source.name, set[str]()
        for one in sorted(self.foreign_keys[name], key=lambda f: (-len(f.columns), f.columns)):
            target = self.objects.roots.get(one.target, one.target)
            key, place = self.keys.get(target), ", ".join(one.columns)
            here = [made.field_of((column,)) for column in one.columns]
            if None in here:
                made.leave_out(place, f"the reference to {target}: a column of it is excluded")
                continue
            if key is None:
                made.leave_out(place, f"refers to {target}, which is not imported")
                continue
            if set(one.referred) != set(key):
                shown = ", ".join(one.referred)
                made.leave_out(place, f"refers to {target} ({shown}), which is not its key")
                continue
            if used & set(one.columns):
                made.leave_out(place, f"a second reference of one column, to {target}")
                continue
            in_key = [column in self.keys[name] for column in one.columns]
            if any(in_key) and not all(in_key):
                why = "of which a part is in the key: not kept"
                made.leave_out(place, f"a reference to {target}, {why}")
                continue
            used |= set(one.columns)
            by_target = dict(zip(one.referred, one.columns, strict=True))
            columns = tuple(by_target[column] for column in key)
            optional = any(f is not None and f.definition.optional for f in here)
            yield _Reference(made, columns, target, one, optional)

    def _edge_of(self, one: _Reference) -> Edge[_Reference]:
        source = one.made.source.name
        weight: Weight = "optional" if one.is_optional else "required"
        if one.columns[0] in self.keys[source]:
            weight = "key"
        return Edge(source, one.target, weight, one.foreign_key.columns, one)

    def _refer(self, one: _Reference, *, is_cyclic: bool) -> None:
        """Put a reference in the place of the fields that its columns are."""
        made, target = one.made, self.names[one.target]
        found = (made.field_of((name,)) for name in one.columns)
        fields = tuple(f for f in found if f is not None)
        name = fields[0].name
        if len(fields) > 1:
            name = free_name(target, [f.name for f in made.fields if f not in fields])
            made.change(one.place, f"the columns are one field: {name}")
        is_own, in_key = made.name == target, fields[0].name in made.key
        optional = one.is_optional or (not in_key and self._must_be_optional(one, is_cyclic))
        definition = FieldDefinition(
            type=Name("reference"),
            to=Name(target),
            optional=optional,
            default=fields[0].definition.default if len(fields) == 1 else ABSENT,
            name=Name(name),
        )
        on_delete = self._on_delete(one)
        reference = InferredField(
            name, one.columns, definition, target, on_delete, is_cyclic, fields
        )
        made.join_fields(fields, reference)
        if in_key and (is_cyclic or is_own):
            made.cut_reference(reference, "keys that refer to each other in a circle")

    def _must_be_optional(self, one: _Reference, is_cyclic: bool) -> bool:
        """Whether a required reference can only be set when all records are there; noted."""
        is_own = one.made.source.name == one.target
        if not (is_cyclic or (is_own and self._refers_forward(one))):
            return False
        circle = "some refer to rows behind them" if is_own else "it closes a circle of such"
        one.made.change(
            one.place,
            f"a required reference to {one.target}, and {circle}: it is optional here, so that it "
            "can be set when all records are there; make_required brings that back",
        )
        return True

    def _refers_forward(self, one: _Reference) -> bool:
        """Whether rows of a table refer to others that come after them in the order of the key."""
        table = one.made.source
        key = sa.tuple_(*(table.c[name] for name in self.keys[table.name]))
        referred = sa.tuple_(*(table.c[name] for name in one.columns))
        query = one.made.select(sa.literal(1)).where(referred > key).limit(1)
        return self.connection.execute(query).first() is not None

    def _on_delete(self, one: _Reference) -> OnDelete:
        action = one.foreign_key.on_delete
        if action == "SET DEFAULT":
            one.made.change(one.place, "on delete set default: it restricts here")
        found = _ON_DELETE.get(action, "restrict")
        if found == "set_null" and not one.is_optional:
            one.made.change(one.place, "on delete set null of what is required: it restricts")
            return "restrict"
        return found

    # Indexes and checks

    def _infer_indexes(self, made: InferredTable) -> None:
        name, taken = made.source.name, set[str]()
        seen = {(made.key, True)}
        for one in self._read_indexes(made.source):
            fields = self._index_fields(made, one.columns, one.sorting)
            if one.why or not fields:
                why = one.why or "an index of a part of a reference, or of a type without order"
                made.leave_out(one.place, f"{why}: left out")
                continue
            if one.is_unique and any((name, c) in self.objects.caseless for c in one.columns):
                made.change(one.place, "unique whatever the case there; here texts differ by it")
            names = tuple(field for field, _ in fields)
            if (names, True) in seen or (names, one.is_unique) in seen:
                continue
            seen.add((names, one.is_unique))
            index_name = _index_name(one.name, names, taken)
            made.indexes.append(InferredIndex(index_name, fields, one.is_unique))
        self._index_references(made, taken)

    def _index_references(self, made: InferredTable, taken: set[str]) -> None:
        """What a reference needs: an index, or the key, that begins with it."""
        for referring in [f for f in made.fields if f.target is not None]:
            begins = [made.key[0], *(index.fields[0][0] for index in made.indexes)]
            if referring.name not in begins:
                index_name = _index_name(None, (referring.name,), taken)
                fields = ((referring.name, False),)
                made.indexes.append(InferredIndex(index_name, fields, unique=False))

    def _read_indexes(self, table: sa.Table) -> Iterator[_IndexRead]:
        for one in self._unique_constraints(table):
            yield _IndexRead(one["name"], one["column_names"], True, {}, _why_left_out(one))
        for index in self.inspector.get_indexes(table.name):
            sorting = index.get("column_sorting", {})
            columns, is_unique = index["column_names"], bool(index["unique"])
            yield _IndexRead(index["name"], columns, is_unique, sorting, _why_left_out(index))

    def _index_fields(
        self, made: InferredTable, columns: Sequence[str | None], sorting: Any
    ) -> tuple[tuple[str, bool], ...]:
        """The fields of these columns in their order; none if there is one that an index can't
        have, or of which there is only a part."""
        fields, left = list[tuple[str, bool]](), list(columns)
        while left:
            whole = next((f for f in made.fields if f.columns and left[0] in f.columns), None)
            if whole is None or not is_indexable(whole.definition):
                return ()
            taken, left = left[: len(whole.columns)], left[len(whole.columns) :]
            if set(taken) != set(whole.columns):
                return ()
            fields.append((whole.name, "desc" in sorting.get(taken[0], ())))
        return tuple(fields)

    def _infer_checks(self, made: InferredTable) -> None:
        names = {
            column: (f.name, f.definition.optional)
            for f in made.fields
            if len(f.columns) == 1
            for column in f.columns
        }
        try:
            checks = self.inspector.get_check_constraints(made.source.name)
        except NotImplementedError:  # SQLAlchemy's word for a dialect that can't tell
            made.leave_out("", "its checks cannot be read from this database")
            return
        for number, check in enumerate(checks, 1):
            text = check["sqltext"]
            expression = translate_check(text, names)
            if expression is None:
                made.leave_out(check["name"] or "check", f"a check without equivalent: {text}")
                continue
            name = normalize_name(check["name"] or f"{made.name}_check_{number}")
            name = free_name(name, [known.name for known in made.checks])
            made.checks.append(InferredCheck(name, expression, text))


def _why_left_out(index: Mapping[str, Any]) -> str:
    """Empty if an index can be one here."""
    options, columns = index.get("dialect_options", {}), index["column_names"]
    if not columns or None in columns:
        return "an index of expressions"
    if index.get("type") or any(key.endswith("_prefix") for key in options):
        return "an index of words or places"
    if options.get("postgresql_using") in _OF_WORDS:
        return f"an index by {options['postgresql_using']}"
    if options.get("postgresql_nulls_not_distinct"):
        return "unique with nulls that are equal"
    return "a partial index" if any(key.endswith("_where") for key in options) else ""


def _show_pairs(names: Mapping[str, str]) -> str:
    return ", ".join(f"{there} is {here}" for there, here in names.items())


def _unique_names(names: Iterable[str]) -> dict[str, str]:
    made = dict[str, str]()
    for name in names:
        made[name] = free_name(normalize_name(name), made.values())
    return made


def _index_name(given: str | None, fields: tuple[str, ...], taken: set[str]) -> str:
    name = free_name(normalize_name(given or f"by_{'_'.join(fields)}"), taken)
    taken.add(name)
    return name


# In which order tables are, so that references lead to earlier ones, and which can't.
#
# References that close a circle with others are set when all tables are there. It is a reference
# that may be null wherever the circle has one; then one that is required, which has to be
# optional here; at last one of a key, which is none then. Each of these closes a circle with
# references that are kept: none is set later, or lost, without need. The same tables give the
# same order.

T = TypeVar("T")
Weight = Literal["key", "required", "optional"]
_WEIGHTS: tuple[Weight, ...] = ("key", "required", "optional")
"""The first ones are kept before the others."""


@dataclass(frozen=True)
class Edge(Generic[T]):
    """A reference of a table to another one; `name` tells those of one table apart."""

    table: str
    target: str
    weight: Weight
    name: Sequence[str]
    reference: T


def sort_tables(
    tables: Collection[str], edges: Collection[Edge[T]]
) -> tuple[list[str], list[Edge[T]]]:
    """The tables, each behind those that it refers to, and the references that close circles.

    References of a table to itself need no order, and are none of these.
    """
    kept = {name: set[str]() for name in tables}
    cyclic = list[Edge[T]]()
    for edge in sorted(edges, key=_order):
        if edge.table == edge.target:
            continue
        if edge.table in _reached(kept, edge.target):
            cyclic.append(edge)
        else:
            kept[edge.table].add(edge.target)
    return _sort(kept), cyclic


def _order(edge: Edge[T]) -> tuple[int, str, str, list[str]]:
    return _WEIGHTS.index(edge.weight), edge.table, edge.target, list(edge.name)


def _reached(kept: Mapping[str, Collection[str]], start: str) -> set[str]:
    """The tables that a table refers to, over others, too; itself among them."""
    found, waiting = {start}, [start]
    while waiting:
        new = set(kept[waiting.pop()]) - found
        found |= new
        waiting += new
    return found


def _sort(kept: Mapping[str, Collection[str]]) -> list[str]:
    left, order = dict(sorted(kept.items())), list[str]()
    while left:
        free = [name for name, targets in left.items() if not left.keys() & targets]
        for name in free:
            del left[name]
        order += free
    return order


_UNKNOWN_TYPE = re.compile(r"Did not recognize type '(.+)' of column '(.+)'")
"""A warning of SQLAlchemy, whose type of such a column has no name."""
CATALOG = "zapdb_catalog"
_FAILURES = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What SQLAlchemy raises where it does not understand the words of a newer server."""


class ForeignKeyRead(NamedTuple):
    """A foreign key as the source has it; `target` is a table of the source, or its name with its
    schema before it."""

    columns: tuple[str, ...]
    target: str
    referred: tuple[str, ...]
    on_delete: str
    on_update: str


def reflect(connection: sa.Connection) -> tuple[sa.MetaData, list[Note]]:
    """All tables at once; where SQLAlchemy fails, one by one, and those that it can't read get a
    note: a MySQL column of type VECTOR(3), for example, is a `TypeError`."""
    metadata, notes = sa.MetaData(), list[Note]()
    with contextlib.suppress(exc.ArgumentError, *_FAILURES):
        metadata.reflect(connection, resolve_fks=False)
        return metadata, notes
    metadata = sa.MetaData()
    inspector = sa.inspect(connection)
    for name in inspector.get_table_names():
        table = sa.Table(name, metadata)
        try:
            with contextlib.suppress(exc.ArgumentError):  # a key of columns that are not there
                inspector.reflect_table(table, None, resolve_fks=False)
        except _FAILURES as error:
            metadata.remove(table)
            why = f"left out: SQLAlchemy can't read its columns: {error}"
            notes.append(Note(name, why, is_left_out=True))
    return metadata, notes


def is_zapdb(connection: sa.Connection, tables: Collection[str]) -> bool:
    """Whether a source is a database of zapdb, in whatever schema its tables are: in one without
    other tables."""
    if tables or connection.dialect.name != "postgresql":
        return CATALOG in tables
    schemas = sa.text("SELECT 1 FROM pg_catalog.pg_tables WHERE tablename = :name")
    return connection.execute(schemas, {"name": CATALOG}).first() is not None


def find_name(name: str, names: Iterable[str], *, is_exact: bool) -> str | None:
    """The name as the source declares it; where it is not exact, its case does not matter."""
    known = {*names}
    if name in known or is_exact:
        return name if name in known else None
    return next((one for one in sorted(known) if one.lower() == name.lower()), None)


def read_foreign_keys(
    inspector: sa.Inspector, table: sa.Table, tables: Mapping[str, sa.Table]
) -> tuple[list[ForeignKeyRead], list[Note]]:
    """The foreign keys of a table, in the order of their columns, and a note of each that names
    columns which are not there. `tables` are those of the source, by the names that keys give."""
    is_exact = inspector.dialect.name != "sqlite"
    found, notes = list[ForeignKeyRead](), list[Note]()
    given = _read_by_inspector(inspector, table) if is_exact else _read_by_pragma(inspector, table)
    for key in given:
        target = find_name(key.target, tables, is_exact=is_exact)
        others: Sequence[str] = key.referred
        if target is not None and not others:  # SQLite's word for the primary key
            others = tables[target].primary_key.columns.keys()
        there = others if target is None else tables[target].c.keys()
        own = [find_name(column, table.c.keys(), is_exact=is_exact) for column in key.columns]
        referred = [find_name(column, there, is_exact=is_exact) for column in others]
        if None in own or None in referred:
            shown = f"{key.target} ({', '.join(others)})"
            why = f"a foreign key to {shown}, with columns that do not exist"
            notes.append(Note(f"{table.name}.{', '.join(key.columns)}", why, is_left_out=True))
            continue
        columns = tuple(column for column in own if column is not None)
        those = tuple(column for column in referred if column is not None)
        found.append(key._replace(columns=columns, target=target or key.target, referred=those))
    return sorted(found), notes


def _read_by_inspector(inspector: sa.Inspector, table: sa.Table) -> Iterator[ForeignKeyRead]:
    for given in inspector.get_foreign_keys(table.name, table.schema):
        options: Mapping[str, Any] = given.get("options", {})
        yield ForeignKeyRead(
            tuple(given["constrained_columns"]),
            ".".join(filter(None, (given["referred_schema"], given["referred_table"]))),
            tuple(given["referred_columns"]),
            str(options.get("ondelete") or "").upper(),
            str(options.get("onupdate") or "").upper(),
        )


def _read_by_pragma(inspector: sa.Inspector, table: sa.Table) -> Iterator[ForeignKeyRead]:
    """SQLAlchemy reads the actions from the text of the table, and finds them in some only."""
    query = sa.text(
        'SELECT id, "table", "from", "to", on_delete, on_update'
        " FROM pragma_foreign_key_list(:name) ORDER BY id, seq"
    )
    connection: Any = inspector.bind
    rows = connection.execute(query, {"name": table.name}).all()
    for _, of_key in groupby(rows, key=lambda row: row.id):
        parts = list(of_key)
        yield ForeignKeyRead(
            tuple(row[2] for row in parts),
            parts[0][1],
            tuple(row[3] for row in parts if row[3] is not None),
            parts[0].on_delete,
            parts[0].on_update,
        )


def find_unknown_types(said: Iterable[str]) -> dict[str, str]:
    """The types that SQLAlchemy does not know, by the names of their columns, of whatever table."""
    found = dict[str, str]()
    for match in filter(None, map(_UNKNOWN_TYPE.match, said)):
        known = found.setdefault(match[2], match[1])
        if known != match[1]:
            found[match[2]] = f"{known} or {match[1]}"
    return found
