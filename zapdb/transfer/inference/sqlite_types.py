"""Columns of SQLite whose declared type SQLite itself does not know, and what is stored in them.

SQLite takes any words for a type, and finds an affinity by parts of them: `POINT` and `INTERVAL`
contain `INT`, and `MONEY` is numeric because no rule fits. So SQLAlchemy's type says nothing of the
values of such a column; their storage classes do (https://www.sqlite.org/datatype3.html).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects.sqlite.base import ischema_names
from sqlalchemy.types import UserDefinedType

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
