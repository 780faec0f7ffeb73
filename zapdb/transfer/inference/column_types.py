"""The value type for a column's type, by SQLAlchemy's classes.

A type without an equivalent is a string, with a note: the text is what the server writes, or else
what the driver's value prints.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql
from sqlalchemy.dialects.sqlite.base import ischema_names
from sqlalchemy.types import UserDefinedType

from zapdb.limits import DECIMAL_SCALE_MAX
from zapdb.migrations.document_structure import NAME, Name
from zapdb.migrations.operations.definitions import TypeDefinition
from zapdb.values import Enum

SCALE_WITHOUT_ONE = 10


class Measured(NamedTuple):
    """What had to be looked up in a column's values, since its type does not say it."""

    scale: int | None = None
    """Of numbers without a scale: the most digits behind the point."""
    is_irregular: bool = False
    """Of arrays: whether some have nulls or other arrays in them, or do not begin at 1."""


class MappedType(NamedTuple):
    """Parameters of a type definition, a note if the type is not quite the same, and the members of
    an enum that has to be declared. `items` means that these members are of a list's items, and
    `labels` that the texts are no others than these."""

    parameters: dict[str, Any]
    note: str = ""
    members: tuple[str, ...] = ()
    enum_name: str = ""
    is_list: bool = False
    labels: tuple[str, ...] = ()


def map_type_of(kind: Any, measured: Measured | None = None, shown: str = "") -> MappedType:
    """The type for a column type, and `shown` the source's name of a type that SQLAlchemy does not
    know."""
    measured = measured or Measured()
    match kind:
        case postgresql.DOMAIN():
            mapped = map_type_of(kind.data_type, measured, shown)
            note = f"the domain {kind.name} is {_name_of(mapped)} here"
            return mapped._replace(note="; ".join(filter(None, (note, mapped.note))))
        case DeclaredType():
            return _map_declared(kind)
        case sa.Enum() if kind.enums:
            return _map_enum(kind)
        case sa.ARRAY():
            return _map_array(kind, measured)
        case sa.Numeric() if not isinstance(kind, sa.Float):
            return _map_numeric(kind, measured.scale)
    return _map_simple(kind, shown)


def _map_simple(kind: Any, shown: str) -> MappedType:
    if isinstance(kind, mysql.TIMESTAMP):  # a moment, whatever zone it is shown in
        return MappedType(_named("timestamp"))
    if isinstance(kind, sa.DateTime) and not kind.timezone:
        return MappedType(_named("timestamp"), "its times have no zone; import takes them as UTC")
    if isinstance(kind, mysql.TINYINT) and kind.display_width == 1:
        return MappedType(_named("boolean"), "tinyint(1) is taken as a boolean: only 0 and 1 are")
    for classes, name in _SIMPLE:
        if isinstance(kind, classes):
            note = next((note for of, note in _NOTES if isinstance(kind, of)), "")
            return MappedType(_named(name), note)
    shown = shown.upper() or _show(kind)
    return MappedType(_named("string"), f"the type {shown} has no equivalent; it is text")


_SIMPLE: tuple[tuple[Any, str], ...] = (
    (sa.Boolean, "boolean"),
    ((sa.Integer, mysql.YEAR), "integer"),
    (sa.Float, "float"),
    (sa.DateTime, "timestamp"),
    (sa.Date, "date"),
    (sa.JSON, "json"),
    (sa.Uuid, "uuid"),
    ((sa.types._Binary, mysql.BIT), "binary"),
    (sa.String, "string"),
)

_NOTES: tuple[tuple[Any, str], ...] = (
    (mysql.SET, "a set; its members are one text, with commas between"),
    (mysql.BIT, "bits; they are bytes, the first one first"),
    (postgresql.CITEXT, "its texts are equal whatever their case there; here they are not"),
)


def _named(name: str) -> dict[str, Any]:
    return {"type": Name(name)}


def _name_of(mapped: MappedType) -> str:
    return Enum.name if mapped.members else str(mapped.parameters["type"])


def _show(kind: Any) -> str:
    try:
        return str(kind)
    except sa.exc.CompileError:
        return type(kind).__name__


def show_size(kind: Any) -> str:
    """The type with its bounds, where it has any: how long texts and numbers may be."""
    if isinstance(kind, sa.Enum | DeclaredType | sa.Float):
        return ""
    bound = getattr(kind, "length", None) or getattr(kind, "precision", None)
    return _show(kind) if bound and isinstance(kind, sa.String | sa.Numeric) else ""


def _map_declared(kind: DeclaredType) -> MappedType:
    said = f"the type {kind.declared} has no equivalent" if kind.declared else "it has no type"
    for classes, name, shown in _STORED:
        if kind.classes and kind.classes <= classes:
            parameters = _named(name)
            if name == "decimal":
                parameters["scale"] = SCALE_WITHOUT_ONE
            return MappedType(parameters, f"{said}; {shown}")
    return MappedType(_named("string"), f"{said}; it is text")


_STORED: tuple[tuple[frozenset[str], str, str], ...] = (
    (frozenset({"integer"}), "integer", "all its values are integers"),
    (
        frozenset({"integer", "real"}),
        "decimal",
        f"all its values are numbers, and a scale of {SCALE_WITHOUT_ONE} was taken",
    ),
    (frozenset({"blob"}), "binary", "all its values are bytes"),
)
"""The types for SQLite's storage classes."""


def _map_enum(kind: sa.Enum) -> MappedType:
    members = tuple(kind.enums)
    if all(NAME.fullmatch(member) for member in members):
        return MappedType(_named(Enum.name), members=members, enum_name=kind.name or "")
    shown = ", ".join(repr(member) for member in members)
    note = f"an enum whose members are no names here: {shown}; it is text, with a check"
    return MappedType(_named("string"), note, labels=members)


def _map_array(kind: Any, measured: Measured) -> MappedType:
    item = map_type_of(kind.item_type)
    if measured.is_irregular or (kind.dimensions or 1) > 1:
        why = "some have nulls or arrays in them, or do not begin at 1"
        return MappedType(_named("json"), f"the type {_show(kind)} is JSON here: {why}")
    if item.members:
        return item._replace(is_list=True)
    note = item.note.removesuffix(", with a check")
    return MappedType({"type": Name("list"), "items": TypeDefinition(**item.parameters)}, note)


def _map_numeric(kind: Any, scale: int | None) -> MappedType:
    if kind.scale == 0 and kind.precision is not None:
        return MappedType(_named("integer"))
    if kind.scale is not None:
        return MappedType({"type": Name("decimal"), "scale": min(kind.scale, DECIMAL_SCALE_MAX)})
    if scale is not None:
        scale = min(scale, DECIMAL_SCALE_MAX)
        note = f"the type {_show(kind)} has no scale; its numbers have at most {scale} digits"
        return MappedType({"type": Name("decimal"), "scale": scale}, f"{note} after the point")
    note = f"the type {_show(kind)} has no scale; {SCALE_WITHOUT_ONE} was taken"
    return MappedType({"type": Name("decimal"), "scale": SCALE_WITHOUT_ONE}, note)


# Columns of SQLite whose declared type SQLite itself does not know, and what is stored in them.
#
# SQLite takes any words for a type, and finds an affinity by parts of them: `POINT` and `INTERVAL`
# contain `INT`, and `MONEY` is numeric because no rule fits. So SQLAlchemy's type says nothing of
# the values of such a column; their storage classes do (https://www.sqlite.org/datatype3.html).

_ARGUMENTS: Final = re.compile(r"\([^)]*\)")
_KNOWN: Final = re.compile(
    r"[\w ]*(CHAR|CLOB|TEXT|REAL|FLOA|DOUB)[\w ]*"
    r"|([\w ]+ )?(TINY|SMALL|MEDIUM|BIG)?INT(EGER)?\d*( [\w ]+)?"
)
"""Names whose affinity is what they say, besides those that SQLAlchemy knows."""


class DeclaredType(UserDefinedType[Any]):
    """A type by its words; `classes` are the storage classes of its values without nulls."""

    cache_ok = True

    def __init__(self, declared: str, classes: frozenset[str]) -> None:
        self.declared = declared
        self.classes = classes


def find_declared_types(connection: sa.Connection, tables: Iterable[sa.Table]) -> None:
    """Give the columns of these tables that have such a type a `DeclaredType`."""
    for table in tables:
        rows = connection.execute(
            sa.text("SELECT name, upper(type) FROM pragma_table_xinfo(:name)"),
            {"name": table.name},
        )
        for name, declared in rows.all():
            column = table.c.get(name)
            if column is None or _is_known(declared):
                continue
            classes = _find_classes(connection, column)
            if not (_has_scale(column.type) and classes <= {"integer", "real"}):
                column.type = DeclaredType(declared, classes)


def _is_known(declared: str) -> bool:
    name = " ".join(_ARGUMENTS.sub(" ", declared).split())
    return name in ischema_names or _KNOWN.fullmatch(name) is not None


def _has_scale(kind: Any) -> bool:
    return isinstance(kind, sa.Numeric) and kind.scale is not None


def _find_classes(connection: sa.Connection, column: sa.Column[Any]) -> frozenset[str]:
    query = sa.select(sa.func.typeof(column)).distinct().where(column.is_not(None))
    return frozenset(connection.execute(query).scalars())
