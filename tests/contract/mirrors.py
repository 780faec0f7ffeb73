"""Mirrors for tests: places of each kind, and how a stranger reads them."""

from __future__ import annotations

import json
import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pytest
from psycopg.types.json import set_json_loads

from tests import forms
from tests.support import PostgresServer
from zapdb.database import Database
from zapdb.transfer.mirror.mirror import Mirror
from zapdb.transfer.mirror.mirror_run import run_mirror
from zapdb.transfer.mirror.target_opening import open_target
from zapdb.transfer.plain_tables import Engine, plan_plain_table, to_sqlite


class Place:
    """Where a mirror is kept, and how a stranger reads it."""

    def __init__(self, kind: Engine, address: str, server: str = "") -> None:
        self.kind = kind
        self.address = address
        self.server = server
        """The DSN of a PostgreSQL database."""

    @property
    def path(self) -> str:
        return self.address.partition(":")[2].removeprefix("///")

    def execute(self, sql: str) -> list[Any]:
        if self.kind == "postgresql":
            options = "-c TimeZone=UTC -c search_path=reporting"
            with psycopg.connect(self.server, options=options) as connection:
                set_json_loads(lambda raw: bytes(raw).decode(), connection)
                cursor = connection.execute(sql.encode())
                return cursor.fetchall() if cursor.description else []
        connect: Any = sqlite3.connect if self.kind == "sqlite" else duckdb.connect
        with closing(connect(self.path)) as connection:
            found = connection.execute(sql).fetchall()
            connection.commit()
            return list(found)


@pytest.fixture(params=["sqlite", "postgresql", "duckdb"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """An empty target of each kind."""
    kind: Engine = request.param
    if kind != "postgresql":
        start = "sqlite:///" if kind == "sqlite" else "duckdb:"
        yield Place(kind, f"{start}{tmp_path / 'mirror.db'}")
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    with server.fresh_database() as address:
        name = address.partition("@/")[2].partition("?")[0]
        dsn = f"host={server.directory} user=postgres dbname={name}"
        yield Place(kind, f"{address}&schema=reporting", dsn)


def keep(db: Database, place: Place) -> Mirror:
    """Run a mirror to the end of the change log."""
    db._session.reload()
    target = open_target(place.address, db._storage)
    mirror = Mirror(db, target)
    mirror.switch_on()
    try:
        run_mirror(mirror, once=True)
    finally:
        target.close()
    return mirror


def normal(value: Any) -> Any:
    if isinstance(value, float) and value != value:
        return "nan"
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC)
    return value


def check(db: Database, place: Place) -> None:
    """Every table has the rows that the records make, and there are no others."""
    shown = {row[0] for row in place.execute(LIST[place.kind])}
    assert shown == {*db.tables, "zapdb_mirror", "zapdb_mirror_tables"}
    for name in db.tables:
        schema = db._catalog.table(name).schema
        long = LONG if name == "orders" else ()
        plain = plan_plain_table(schema, place.kind, long)
        names = ", ".join(f'"{column.name}"' for column in plain.columns)
        found = place.execute(f'SELECT {names} FROM "{name}"')
        wanted = [show(place, plain, plain.rows_of(record)) for record in db.table(name).scan()]
        rows = [show(place, plain, row) for row in found]
        assert sorted(map(repr, rows)) == sorted(map(repr, wanted)), name
    check_constraints(db, place)


def check_constraints(db: Database, place: Place) -> None:
    """Columns of required fields are NOT NULL, and references foreign keys, where a target has
    them; nothing else is either."""
    for name in db.tables:
        schema = db._catalog.table(name).schema
        plain = plan_plain_table(schema, place.kind, LONG if name == "orders" else ())
        required = {c.name for c in plain.columns if not c.optional}
        if place.kind != "duckdb":
            required |= {plain.columns[at].name for at in plain.key if place.kind == "postgresql"}
        found = place.execute(REQUIRED[place.kind].format(name=name))
        assert {column for (column,) in found} == required, name
    if place.kind == "duckdb":
        return
    found = place.execute(KEYS[place.kind])
    assert {(t, tuple(c), o, tuple(k)) for t, c, o, k in map(as_key, found)} == keys_of(db, place)
    if place.kind == "sqlite":
        assert place.execute("PRAGMA foreign_key_check") == []
        assert place.execute("PRAGMA integrity_check") == [("ok",)]


def as_key(row: tuple[Any, ...]) -> tuple[Any, ...]:
    table, columns, other, keys = row
    as_list = json.loads if isinstance(columns, str) else list
    return table, as_list(columns), other, as_list(keys)


def keys_of(db: Database, place: Place) -> set[tuple[Any, ...]]:
    """The foreign keys that there must be."""
    found, plans = set(), {}
    for name in db.tables:
        plans[name] = plan_plain_table(db._catalog.table(name).schema, place.kind, ())
    for name, plain in plans.items():
        descriptor = db._catalog.table(name)
        for key in descriptor.schema.foreign_keys:
            (state,) = [
                c for c in descriptor.constraints if (c.kind, c.number) == ("reference", key.field)
            ]
            declared: Any = descriptor.schema.field_numbered(key.field)
            other = declared.type.table
            if state.is_validated and other in plans:
                columns = tuple(c.name for c in plain.columns_of(declared.name))
                keys = tuple(plans[other].columns[at].name for at in plans[other].key)
                found.add((name, columns, other, keys))
    return found


REQUIRED = {
    "sqlite": "SELECT name FROM pragma_table_info('{name}') WHERE \"notnull\"",
    "postgresql": "SELECT column_name::text FROM information_schema.columns"
    " WHERE table_schema = 'reporting' AND table_name = '{name}' AND is_nullable = 'NO'",
    "duckdb": "SELECT column_name FROM information_schema.columns"
    " WHERE table_name = '{name}' AND is_nullable = 'NO'",
}
KEYS = {
    "sqlite": 'SELECT m.name, json_group_array("from"), f."table", json_group_array("to")'
    " FROM sqlite_schema AS m, pragma_foreign_key_list(m.name) AS f"
    " WHERE m.type = 'table' GROUP BY m.name, f.id, f.\"table\"",
    "postgresql": "SELECT c.conrelid::regclass::text, array(SELECT a.attname::text"
    " FROM unnest(c.conkey) WITH ORDINALITY AS k (n, o) JOIN pg_attribute AS a"
    " ON a.attrelid = c.conrelid AND a.attnum = k.n ORDER BY o), c.confrelid::regclass::text,"
    " array(SELECT a.attname::text FROM unnest(c.confkey) WITH ORDINALITY AS k (n, o)"
    " JOIN pg_attribute AS a ON a.attrelid = c.confrelid AND a.attnum = k.n ORDER BY o)"
    " FROM pg_constraint AS c WHERE c.contype = 'f' AND c.convalidated"
    " AND c.connamespace = 'reporting'::regnamespace",
}
LONG = ("amount", "price")
"""The fields of orders whose numbers are long: what stands in lists is JSON."""
LIST = {
    "sqlite": "SELECT name FROM sqlite_schema WHERE type = 'table'",
    "postgresql": "SELECT relname::text FROM pg_class WHERE relkind = 'r'"
    " AND relnamespace = 'reporting'::regnamespace",
    "duckdb": "SHOW TABLES",
}


def show(place: Place, plain: Any, row: tuple[Any, ...]) -> tuple[Any, ...]:
    """A row with the values in one form, of the mirror and of the database."""
    made = []
    for column, value in zip(plain.columns, row, strict=True):
        shown = to_sqlite(column, value) if place.kind == "sqlite" else normal(value)
        if isinstance(shown, uuid.UUID) or isinstance(value, Decimal):
            shown = str(value)
        if column.kind == "long_integer" and value is not None:
            shown = str(value)
        if column.kind == "json" and value is not None:
            shown = json.loads(value) if isinstance(value, str) else value
            shown = json.dumps(shown, sort_keys=True)
        made.append(shown)
    return tuple(made)


PAIRS = [("sqlite", "duckdb"), ("postgresql", "postgresql"), ("sqlite", "sqlite")]
in_pairs = pytest.mark.parametrize(
    ("engine", "place"),
    PAIRS if not forms.is_long else [(e, p) for e in ("sqlite", "postgresql") for p in LIST],
    indirect=["place"],
)
"""Each engine and each kind of target, and in the long form each with each."""
