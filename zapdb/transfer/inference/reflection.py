"""The tables of a source as SQLAlchemy reads them, and what it can't read.

Foreign keys are read apart from their tables: SQLite lets in keys of columns that are not there,
and takes the name of a column in any case.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy import exc

from zapdb.transfer.inference.inferred import Note

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
