"""Inserting many records with one index, against the ORM's bulk insert into an indexed table."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from tests.bench.databases import TITLES, Bench, Engine, opened, orm_engine
from tests.bench.measure import Row, take_turns
from tests.bench.people import CREATE, CREATE_INDEX, Base, Person, make_people
from zapdb.limits import INSERT_BATCH_RECORDS

RECORDS = 20_000
ROUNDS = 5


def run(bench: Bench) -> list[Row]:
    return [_run(bench, engine) for engine in bench.engines]


def _run(bench: Bench, engine: Engine) -> Row:
    address = bench.address(engine, "insert")
    orm = orm_engine(bench.address(engine, "insert-orm"))
    Base.metadata.create_all(orm)
    chunks = [_chunks(), _chunks()]
    migrations = bench.migrations(f"insert-{engine}")
    migrations.add(CREATE, CREATE_INDEX)
    with (
        warnings.catch_warnings(),
        opened(address, migrations) as database,
        Session(orm) as session,
    ):
        warnings.simplefilter("ignore", sa.exc.SAWarning)  # SQLite has no decimals
        people = database.table("people")

        def insert() -> None:
            people.insert_many(next(chunks[0]))

        def insert_through_orm() -> None:
            for batch in _batches(next(chunks[1])):
                session.execute(sa.insert(Person), batch)
                session.commit()

        ours, theirs = take_turns(ROUNDS, insert, insert_through_orm)
        assert "by_number" in people.readable_indexes()
    orm.dispose()
    return Row(
        f"insert of many, one index, {TITLES[engine]}",
        "ORM bulk insert",
        ours / RECORDS,
        theirs / RECORDS,
        ("≥", 1.5),
    )


def _chunks() -> Any:
    """New records for each round, made before the clock runs."""
    return iter([list(make_people(first * RECORDS, RECORDS)) for first in range(ROUNDS + 1)])


def _batches(rows: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """As many records in a transaction as zapdb has."""
    stream = iter(rows)
    return list(iter(lambda: list(itertools.islice(stream, INSERT_BATCH_RECORDS)), []))
