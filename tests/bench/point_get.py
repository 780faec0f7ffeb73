"""A point get through the API, against the bare driver's of the same blob and against the ORM's."""

from __future__ import annotations

import random
import sqlite3
import warnings
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from tests.bench.databases import Bench, opened, orm_engine
from tests.bench.measure import Row, take_turns
from tests.bench.people import CREATE, Base, Person, make_people
from zapdb.storage import RecordStatements

RECORDS = 50_000
GETS = 1_000
ROUNDS = 25


def run(bench: Bench) -> list[Row]:
    return [*_run_sqlite(bench), _run_postgresql(bench)]


def _run_sqlite(bench: Bench) -> list[Row]:
    address = bench.address("sqlite", "get")
    plain = sqlite3.connect(bench.directory / "get-plain.db", isolation_level=None)
    plain.execute("PRAGMA journal_mode = WAL")
    plain.execute("CREATE TABLE blobs (id INTEGER PRIMARY KEY, value BLOB NOT NULL)")
    plain_sql = "SELECT value FROM blobs WHERE id = ?"
    engine = orm_engine(f"sqlite:///{bench.directory / 'get-orm.db'}")
    _fill_orm(engine)
    ids = _ids()

    with (
        opened(address, bench.migrations("get-sqlite", CREATE)) as database,
        Session(engine) as orm,
    ):
        people = database.table("people")
        people.insert_many(make_people(0, RECORDS))
        plain.execute("BEGIN")
        plain.executemany("INSERT INTO blobs VALUES (?, ?)", _blobs(database))
        plain.execute("COMMIT")

        def get_through_orm() -> None:
            for id in ids:
                person = orm.get(Person, id)
                orm.expunge(person)  # or the next get of it would read nothing

        ours, raw, through_orm = take_turns(
            ROUNDS,
            _for_each(ids, people.get),
            _for_each(ids, lambda id: plain.execute(plain_sql, (id,)).fetchone()),
            get_through_orm,
        )
    plain.close()
    engine.dispose()
    return [
        Row("point get, SQLite", "sqlite3, blob", ours / GETS, raw / GETS, ("≤", 4)),
        Row("point get, SQLite", "ORM Session.get", ours / GETS, through_orm / GETS, ("≥", 5)),
    ]


def _run_postgresql(bench: Bench) -> Row:
    import psycopg

    address = bench.address("postgresql", "get")
    uri = sa.make_url(address).set(drivername="postgresql").render_as_string(hide_password=False)
    ids = _ids()
    with (
        opened(address, bench.migrations("get-postgresql", CREATE)) as database,
        psycopg.connect(uri, autocommit=True) as plain,
    ):
        people = database.table("people")
        people.insert_many(make_people(0, RECORDS))
        plain.execute("CREATE TABLE blobs (id bigint PRIMARY KEY, value bytea NOT NULL)")
        with plain.cursor().copy("COPY blobs FROM STDIN (FORMAT binary)") as copy:
            copy.set_types(["int8", "bytea"])
            for row in _blobs(database):
                copy.write_row(row)
        plain.execute("VACUUM ANALYZE")
        cursor = plain.cursor(binary=True)
        sql = "SELECT value FROM blobs WHERE id = %s"

        def get_raw(id: int) -> Any:
            return cursor.execute(sql, (id,), prepare=True).fetchone()

        ours, raw = take_turns(ROUNDS, _for_each(ids, people.get), _for_each(ids, get_raw))
    return Row(
        "point get, PostgreSQL", "psycopg, prepared, blob", ours / GETS, raw / GETS, ("≤", 1.3)
    )


def _ids() -> list[int]:
    return random.Random(1).choices(range(RECORDS), k=GETS)


def _for_each(ids: list[int], get: Callable[[int], Any]) -> Callable[[], None]:
    def run() -> None:
        for id in ids:
            get(id)

    return run


def _blobs(database: Any) -> list[tuple[int, bytes]]:
    """The records' bytes by id, as zapdb stores them."""
    state = database._catalog.table("people")
    records = RecordStatements(database._storage, state.schema.number, database._catalog.tenant)
    page = database._storage.connection().fetch_all(records.page_sql, (b"", RECORDS))
    return [(id, bytes(value)) for id, (_, value) in enumerate(page)]


def _fill_orm(engine: sa.Engine) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sa.exc.SAWarning)  # SQLite has no decimals
        Base.metadata.create_all(engine)
        with Session(engine) as session:
            session.execute(sa.insert(Person), list(make_people(0, RECORDS)))
            session.commit()
