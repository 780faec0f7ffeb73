"""The schemas that stored migrations lead to, as rows: loading one sums no chain.

A migration adds a row for each table that it changes, with the table's new schema, and one for the
outline if other tables or types are there now. So the schema at a migration is, of each table, the
newest row up to it. Rows have the ids of migrations, which rise along the chain; a migration that
is rolled back takes its rows with it. What grows with the number of migrations is the table, never
what is read of it.

The migrations say what is true. The rows are compared with them by `zapdb verify`, and are made
anew from them by `zapdb verify --repair`.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import sqlalchemy as sa

from zapdb.errors import CorruptCatalog
from zapdb.migrations import label
from zapdb.schema import Schema, canonical_bytes, outline_bytes, read_schema
from zapdb.storage import Connection
from zapdb.storage.cells import checked
from zapdb.storage.fixed_tables import SCHEMAS

OUTLINE: Final = 0
"""The table number of outlines; no table has it."""

WAY_OUT: Final = (
    "run `zapdb verify --repair`, which makes zapdb_schemas anew from the stored migrations; if "
    "that does not help, restore the database from a backup"
)
_LEVEL: Final = 9

StoredSchema = tuple[int, str, int, Schema, Schema]
"""Number, name and id of a stored migration, with the schema before it and after it."""


def store_schema(connection: Connection, migration: int, before: Schema, after: Schema) -> None:
    """Add the rows of a migration, inside the transaction that stores it."""
    _insert(connection, migration, list_changed_parts(before, after))


def _insert(connection: Connection, migration: int, parts: Mapping[int, bytes]) -> None:
    mark = connection.storage.placeholder
    connection.run_many(
        "INSERT INTO zapdb_schemas (table_number, migration, content)"
        f" VALUES ({mark}, {mark}, {mark})",
        [(part, migration, zlib.compress(content, _LEVEL)) for part, content in parts.items()],
    )


def delete_schema(connection: Connection, migration: int) -> None:
    """Delete the rows of the newest migration, inside the transaction that removes it."""
    connection.core_execute(sa.delete(SCHEMAS).where(SCHEMAS.c.migration == migration))


def load_schema(connection: Connection, migration: int) -> Schema:
    """Return the schema directly after the stored migration with this id; raises
    `CorruptCatalog`."""
    found = connection.fetch_all(
        "SELECT s.table_number, s.content FROM zapdb_schemas AS s JOIN"
        " (SELECT table_number, max(migration) AS migration FROM zapdb_schemas"
        f" WHERE migration <= {int(migration)} GROUP BY table_number) AS newest"
        " ON s.table_number = newest.table_number AND s.migration = newest.migration"
    )
    try:
        stored = checked((SCHEMAS.c.table_number, SCHEMAS.c.content), found)
        parts = {number: zlib.decompress(content) for number, content in stored}
        return read_schema(parts.pop(OUTLINE), parts)
    except (CorruptCatalog, KeyError, zlib.error) as error:
        raise CorruptCatalog(
            "the tables that a stored migration leads to can't be read",
            table=SCHEMAS.name,
            cause=error.message if isinstance(error, CorruptCatalog) else repr(error),
            hint=WAY_OUT,
        ) from error


def check_schemas(connection: Connection, stored: Iterable[StoredSchema]) -> None:
    """Compare all rows with what the stored migrations make; raises `CorruptCatalog` with the first
    difference."""
    at = SCHEMAS.c
    query = sa.select(at.migration, at.table_number, at.content).order_by(at.migration)
    found = {(row[0], row[1]): row[2] for row in connection.core_execute(query)}
    for number, name, id, before, after in stored:
        for part, content in list_changed_parts(before, after).items():
            if _unpack(found.pop((id, part), None)) != content:
                raise _different(label(number, name), part, after)
    for id, part in found:
        raise _different(f"id {id}", part, Schema())


def _unpack(content: object) -> bytes | None:
    try:
        return zlib.decompress(content) if isinstance(content, bytes) else None
    except zlib.error:
        return None


def _different(migration: str, part: int, schema: Schema) -> CorruptCatalog:
    table = schema.table_active_or_archived(part)
    shown = "(the list of tables and types)" if part == OUTLINE else f"number {part}"
    return CorruptCatalog(
        "the rows of zapdb_schemas are not what the stored migrations make",
        migration=migration,
        table=shown if table is None else table.name,
        hint=WAY_OUT,
    )


def rebuild_schemas(connection: Connection, stored: Iterable[StoredSchema]) -> None:
    """Make all rows anew from the stored migrations, inside a DDL transaction."""
    connection.core_execute(sa.delete(SCHEMAS))
    for _, _, id, before, after in stored:
        store_schema(connection, id, before, after)


def list_changed_parts(before: Schema, after: Schema) -> dict[int, bytes]:
    """Return what differs, by table number, as it is after."""
    old = dict(_list_parts(before))
    return {part: content for part, content in _list_parts(after) if old.get(part) != content}


def _list_parts(schema: Schema) -> Iterator[tuple[int, bytes]]:
    yield OUTLINE, outline_bytes(schema)
    for table in schema:
        yield table.number, canonical_bytes(table)
    for archived in schema.archived:
        yield archived.table.number, canonical_bytes(archived.table)
