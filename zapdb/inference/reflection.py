"""The tables of a source as SQLAlchemy reads them, and what it can't read."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable

import sqlalchemy as sa

from zapdb.inference.inferred import Note

_UNKNOWN_TYPE = re.compile(r"Did not recognize type '(.+)' of column '(.+)'")
"""A warning of SQLAlchemy, whose type of such a column has no name."""
_FAILURES = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What SQLAlchemy raises where it does not understand the words of a newer server."""


def reflect(connection: sa.Connection) -> tuple[sa.MetaData, list[Note]]:
    """All tables at once; where SQLAlchemy fails, one by one, and those that it can't read get a
    note: a MySQL column of type VECTOR(3), for example, is a `TypeError`."""
    metadata, notes = sa.MetaData(), list[Note]()
    with contextlib.suppress(*_FAILURES):
        metadata.reflect(connection, resolve_fks=False)
        return metadata, notes
    for name in sa.inspect(connection).get_table_names():
        try:
            metadata.reflect(connection, only=[name], resolve_fks=False)
        except _FAILURES as error:
            notes.append(Note(name, f"left out: SQLAlchemy can't read its columns: {error}"))
    return metadata, notes


def find_unknown_types(said: Iterable[str]) -> dict[str, str]:
    """The types that SQLAlchemy does not know, by the names of their columns, of whatever table."""
    found = dict[str, str]()
    for match in filter(None, map(_UNKNOWN_TYPE.match, said)):
        known = found.setdefault(match[2], match[1])
        if known != match[1]:
            found[match[2]] = f"{known} or {match[1]}"
    return found
