"""From reflected tables to tables as they would be here: names, keys, references, indexes."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.sql.ddl import sort_tables_and_constraints

from zapdb.database.imports import normalize_name
from zapdb.errors import UsageError
from zapdb.inference.column_types import map_type_of
from zapdb.inference.inferred import (
    Inference,
    InferredCheck,
    InferredEnum,
    InferredField,
    InferredIndex,
    InferredTable,
    Note,
)
from zapdb.inference.reflection import find_unknown_types, reflect
from zapdb.inference.source import SourceDatabase
from zapdb.inference.sql_texts import is_generator, is_now, read_default_text, translate_check
from zapdb.inference.sqlite_types import find_declared_types
from zapdb.migrations.operations.definitions import FieldDefinition
from zapdb.migrations.structure import ABSENT, Name, Plain
from zapdb.schema import Now, OnDelete
from zapdb.values import VALUE_TYPES

NOT_KEYS = ("float", "json", "list", "zoned_timestamp")
_ON_DELETE: dict[str, OnDelete] = {"CASCADE": "cascade", "SET NULL": "set_null"}


def infer_tables(source: SourceDatabase, only: Collection[str] = ()) -> Inference:
    """What the tables of a source would be here, or only those of these names.

    Raises `UsageError` if there are no tables, and if the source is a zapdb database.
    """
    found = Inference(source.shown)
    with source.reading() as connection, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", exc.SAWarning)  # of types that get a note, and others
        metadata, left_out = reflect(connection)
        found.notes += left_out
        if "zapdb_catalog" in metadata.tables:
            raise UsageError(
                "the source is a database of zapdb",
                source=source.shown,
                hint="write it to a directory with `zapdb export` and import that",
            )
        tables = [t for t in metadata.tables.values() if not only or t.name in only]
        if not tables:
            raise UsageError("the source has no tables", source=source.shown)
        said = dict.fromkeys(str(one.message) for one in caught)
        if source.dialect == "sqlite":
            find_declared_types(connection, tables)
        _Inferrer(connection, found, tables, find_unknown_types(said)).run()
        views = sa.inspect(connection).get_view_names()
    said |= dict.fromkeys(str(one.message) for one in caught)
    found.notes += [Note("the source", text) for text in said if "index" in text]
    found.notes += [Note(view, "a view; its query is not imported") for view in sorted(views)]
    return found


class _Inferrer:
    """Infers the tables of one source."""

    def __init__(
        self,
        connection: sa.Connection,
        found: Inference,
        tables: Sequence[sa.Table],
        unknown_types: Mapping[str, str],
    ) -> None:
        self.unknown_types = unknown_types
        self.connection = connection
        self.found = found
        self.inspector = sa.inspect(connection)
        self.sources = {table.name: table for table in tables}
        self.names = _unique_names(sorted(self.sources))
        self.keys = dict[str, tuple[str, ...]]()
        self.made = dict[str, InferredTable]()

    def run(self) -> None:
        for name, table in self.sources.items():
            key = self._find_key(table)
            if key:
                self.keys[name] = key
        order, cyclic = self._sort()
        for table in order:
            self._infer(table, cyclic.get(table.name, ()))
        self.found.tables = [self.made[t.name] for t in order if t.name in self.made]

    def _find_key(self, table: sa.Table) -> tuple[str, ...]:
        """The columns of the primary key, or else of a unique constraint without nulls."""
        candidates = [[column.name for column in table.primary_key.columns]]
        candidates += [u["column_names"] for u in self._unique_constraints(table)]
        for columns in candidates:
            kinds = [map_type_of(table.c[name].type).parameters["type"] for name in columns]
            has_nulls = any(table.c[name].nullable for name in columns)
            is_primary = columns is candidates[0]
            fits = not any(kind in NOT_KEYS for kind in kinds)
            if columns and fits and (is_primary or not has_nulls):
                return tuple(columns)
        why = "its primary key has a type that no key can have here"
        if not candidates[0]:
            why = "it has no primary key and no unique constraint without nulls"
        self.found.notes.append(
            Note(
                table.name,
                f"left out: {why}; add a primary key in the source, or import it "
                "from a file into a table that you write by hand",
            )
        )
        self.found.left_out.append(table.name)
        return ()

    def _unique_constraints(self, table: sa.Table) -> list[Any]:
        found: list[Any] = list(self.inspector.get_unique_constraints(table.name, table.schema))
        if self.connection.dialect.name == "sqlite":  # whose texts are not all understood
            known = [constraint["column_names"] for constraint in found]
            for index in self.inspector.get_indexes(table.name, include_auto_indexes=True):
                is_new = index["column_names"] not in known
                if str(index["name"]).startswith("sqlite_autoindex") and is_new:
                    found.append({"name": None, "column_names": index["column_names"]})
        return found

    def _sort(self) -> tuple[list[sa.Table], dict[str, list[sa.ForeignKeyConstraint]]]:
        """The tables with a key, each behind those that it refers to; and the constraints that make
        circles, by table."""
        cyclic = dict[str, list[sa.ForeignKeyConstraint]]()
        order = list[sa.Table]()
        there = [table for name, table in self.sources.items() if name in self.keys]
        sort: Any = sort_tables_and_constraints  # has no types
        by_name = sorted(there, key=lambda t: t.name)
        for table, constraints in sort(by_name, filter_fn=self._refers_elsewhere):
            if table is not None:
                order.append(table)
                continue
            for constraint in constraints:
                cyclic.setdefault(constraint.table.name, []).append(constraint)
        return order, cyclic

    def _refers_elsewhere(self, constraint: Any) -> bool | None:
        """Whether a constraint needs no order, since its table is none of these; the sort decides
        where it is None."""
        return None if _target_of(constraint)[0] in self.sources else True

    # One table

    def _infer(self, table: sa.Table, cyclic: Collection[sa.ForeignKeyConstraint]) -> None:
        name = self.names[table.name]
        made = InferredTable(table, name, (), [])
        self.made[table.name] = made
        columns = _unique_names([column.name for column in table.columns])
        for column in table.columns:
            made.fields.append(self._infer_field(made, column, columns[column.name]))
        if not table.primary_key.columns:
            shown = ", ".join(self.keys[table.name])
            made.notes.append(Note(table.name, f"no primary key; its key is unique: {shown}"))
        for constraint in sorted(table.foreign_key_constraints, key=_columns_of):
            self._infer_reference(made, constraint, is_cyclic=constraint in cyclic)
        key = dict.fromkeys(self._field_of(made, c).name for c in self.keys[table.name])
        made.key = tuple(key)
        self._infer_indexes(made)
        self._infer_checks(made)
        comment = table.comment
        if comment:
            made.notes.append(Note(table.name, f"comment: {comment}"))

    def _field_of(self, made: InferredTable, column: str) -> InferredField:
        return next(f for f in made.fields if column in f.columns)

    def _infer_field(self, made: InferredTable, column: Any, name: str) -> InferredField:
        place = f"{made.source.name}.{column.name}"
        shown = self.unknown_types.get(column.name, "")
        mapped = map_type_of(column.type, self._measure_scale(column), shown)
        parameters = dict(mapped.parameters)
        if mapped.note:
            made.notes.append(Note(place, mapped.note))
        if mapped.members:
            parameters["type"] = Name(self._declare_enum(mapped.enum_name, name, mapped.members))
        is_key = column.name in self.keys[made.source.name]
        definition = FieldDefinition(
            **parameters, optional=bool(column.nullable) and not is_key, name=Name(name)
        )
        definition = self._with_default(made, column, definition, place)
        return InferredField(name, (column.name,), definition)

    def _measure_scale(self, column: Any) -> int | None:
        """How many digits after the point numbers of a column without a scale have."""
        is_numeric = isinstance(column.type, sa.Numeric) and not isinstance(column.type, sa.Float)
        if not is_numeric or column.type.scale is not None:
            return None
        if self.connection.dialect.name != "postgresql":
            return None
        measured = sa.select(sa.func.max(sa.func.scale(column)))
        return int(self.connection.execute(measured).scalar() or 0)

    def _declare_enum(self, given: str, field: str, members: tuple[str, ...]) -> str:
        name = normalize_name(given or field)
        known = {enum.name: enum for enum in self.found.enums}
        while (
            name in VALUE_TYPES
            or name in self.names.values()
            or (name in known and known[name].members != members)
        ):
            name += "_kind"
        if name not in known:
            self.found.enums.append(InferredEnum(name, members))
        return name

    def _with_default(
        self, made: InferredTable, column: Any, definition: FieldDefinition, place: str
    ) -> FieldDefinition:
        default = column.server_default
        text = "" if not hasattr(default, "arg") else str(getattr(default.arg, "text", default.arg))
        is_key = column.name in self.keys[made.source.name]
        is_serial = (
            column.identity is not None
            or is_generator(text)
            or (
                is_key
                and definition.type == "integer"
                and column.autoincrement is not False
                and _is_only_key(column, made.source)
            )
        )
        if column.computed is not None:
            made.notes.append(Note(place, "a computed column; its values are imported"))
        elif is_serial and definition.type == "uuid":
            return replace(definition, generated=True)
        elif is_serial and definition.type == "integer":
            return replace(definition, generated="sequence")
        elif is_serial:
            made.notes.append(
                Note(place, "the source makes its values; here give a value to each new record")
            )
        elif is_now(text) and definition.type == "timestamp":
            return replace(definition, default=Plain(str(Now())))
        elif text:
            try:
                kind = VALUE_TYPES.get(definition.type)
                shown = None if kind is None or definition.type == "decimal" else kind()
                plain = read_default_text(text, shown)
                return replace(definition, default=plain)
            except (ValueError, TypeError):
                made.notes.append(Note(place, f"the default has no equivalent: {text}"))
        return definition

    # What ties tables

    def _infer_reference(self, made: InferredTable, constraint: Any, *, is_cyclic: bool) -> None:
        given = tuple(element.parent.name for element in constraint.elements)
        target, referred = _target_of(constraint)
        place = f"{made.source.name}.{', '.join(given)}"
        if target not in self.keys:
            made.notes.append(Note(place, f"refers to {target}, which is not imported"))
            return
        by_target = dict(zip(referred, given, strict=True))
        if set(referred) != set(self.keys[target]):
            shown = ", ".join(referred)
            made.notes.append(Note(place, f"refers to {target} ({shown}), which is not its key"))
            return
        columns = tuple(by_target[name] for name in self.keys[target])
        fields = [self._field_of(made, column) for column in columns]
        if any(
            field.columns != (column,) or field.target
            for field, column in zip(fields, columns, strict=True)
        ):
            made.notes.append(Note(place, f"a second reference of one column, to {target}"))
            return
        in_key = [column in self.keys[made.source.name] for column in columns]
        if any(in_key) and not all(in_key):
            made.notes.append(
                Note(place, f"a reference to {target}, of which a part is in the key: not kept")
            )
            return
        optional = any(field.definition.optional for field in fields)
        if is_cyclic and not optional:
            made.notes.append(Note(place, f"a required reference in a circle, to {target}"))
            return
        name = fields[0].name
        if len(columns) > 1:
            name = _free_name(self.names[target], [f.name for f in made.fields])
            made.notes.append(Note(place, f"the columns are one field: {name}"))
        definition = FieldDefinition(
            type=Name("reference"),
            to=Name(self.names[target]),
            optional=optional,
            default=fields[0].definition.default if len(fields) == 1 else ABSENT,
            name=Name(name),
        )
        reference = InferredField(
            name,
            columns,
            definition,
            self.names[target],
            self._on_delete(made, constraint, place),
            is_cyclic,
        )
        at = made.fields.index(fields[0])
        made.fields = [field for field in made.fields if field not in fields]
        made.fields.insert(at, reference)

    def _on_delete(self, made: InferredTable, constraint: Any, place: str) -> OnDelete:
        action = (constraint.ondelete or "").upper()
        if action == "SET DEFAULT":
            made.notes.append(Note(place, "on delete set default: it restricts here"))
        if (constraint.onupdate or "").upper() not in ("", "NO ACTION", "RESTRICT"):
            made.notes.append(Note(place, "on update: keys do not change here"))
        return _ON_DELETE.get(action, "restrict")

    def _infer_indexes(self, made: InferredTable) -> None:
        name, schema = made.source.name, made.source.schema
        seen = {(made.key, True)}
        taken = set[str]()
        found = list[tuple[str | None, Any, bool, Any, str]]()
        for constraint in self._unique_constraints(made.source):
            found.append((constraint["name"], constraint["column_names"], True, {}, ""))
        for index in self.inspector.get_indexes(name, schema):
            sorting = index.get("column_sorting", {})
            is_unique = bool(index["unique"])
            why = _why_left_out(index)
            found.append((index["name"], index["column_names"], is_unique, sorting, why))
        for given, columns, is_unique, sorting, why in found:
            fields = self._index_fields(made, columns, sorting)
            if why or not fields:
                why = why or "an index of a part of a reference, or of a type without order"
                made.notes.append(Note(f"{name}.{given}", f"{why}: left out"))
                continue
            names = tuple(field for field, _ in fields)
            if (names, True) in seen or (names, is_unique) in seen:
                continue
            seen.add((names, is_unique))
            made.indexes.append(InferredIndex(_index_name(given, names, taken), fields, is_unique))
        for field in made.fields:
            begins = [made.key[0], *(index.fields[0][0] for index in made.indexes)]
            if field.target is not None and field.name not in begins:
                fields = ((field.name, False),)
                made.indexes.append(
                    InferredIndex(_index_name(None, (field.name,), taken), fields, unique=False)
                )

    def _index_fields(
        self, made: InferredTable, columns: Sequence[str | None], sorting: Any
    ) -> tuple[tuple[str, bool], ...]:
        whole = made.field_of(tuple(c for c in columns if c is not None))
        if whole is not None:
            return ((whole.name, "desc" in sorting.get(columns[0], ())),)
        fields = list[tuple[str, bool]]()
        for column in columns:
            field = None if column is None else self._field_of(made, column)
            if field is None or len(field.columns) > 1 or field.definition.type == "json":
                return ()
            fields.append((field.name, "desc" in sorting.get(column, ())))
        return tuple(fields)

    def _infer_checks(self, made: InferredTable) -> None:
        names = {
            column: (field.name, field.definition.optional)
            for field in made.fields
            if len(field.columns) == 1
            for column in field.columns
        }
        try:
            checks = self.inspector.get_check_constraints(made.source.name, made.source.schema)
        except NotImplementedError:  # SQLAlchemy's word for a dialect that can't tell
            made.notes.append(
                Note(made.source.name, "its checks cannot be read from this database")
            )
            return
        for number, check in enumerate(checks, 1):
            text = check["sqltext"]
            expression = translate_check(text, names)
            name = normalize_name(check["name"] or f"{made.name}_check_{number}")
            if expression is None:
                made.notes.append(
                    Note(
                        f"{made.source.name}.{check['name'] or 'check'}",
                        f"a check without equivalent: {text}",
                    )
                )
                continue
            name = _free_name(name, [known.name for known in made.checks])
            made.checks.append(InferredCheck(name, expression, text))


def _why_left_out(index: Any) -> str:
    """Empty if an index can be one here."""
    options, columns = index.get("dialect_options", {}), index["column_names"]
    if not columns or None in columns:
        return "an index of expressions"
    if index.get("type") or any(key.endswith("_prefix") for key in options):
        return "an index of words or places"
    return "a partial index" if any(key.endswith("_where") for key in options) else ""


def _columns_of(constraint: Any) -> tuple[int, list[str]]:
    """The longest first: their columns become one field."""
    names = [element.parent.name for element in constraint.elements]
    return -len(names), names


def _target_of(constraint: Any) -> tuple[str, list[str]]:
    """The table, of another schema with that schema's name, and the columns."""
    parts = [element.target_fullname.rpartition(".") for element in constraint.elements]
    return parts[0][0], [column for _, _, column in parts]


def _is_only_key(column: Any, table: sa.Table) -> bool:
    return len(table.primary_key.columns) == 1 and not column.foreign_keys


def _unique_names(names: Iterable[str]) -> dict[str, str]:
    made = dict[str, str]()
    for name in names:
        made[name] = _free_name(normalize_name(name), list(made.values()))
    return made


def _free_name(name: str, taken: Collection[str]) -> str:
    number, made = 1, name
    while made in taken:
        number += 1
        made = f"{name}_{number}"
    return made


def _index_name(given: str | None, fields: tuple[str, ...], taken: set[str]) -> str:
    name = _free_name(normalize_name(given or f"by_{'_'.join(fields)}"), taken)
    taken.add(name)
    return name
