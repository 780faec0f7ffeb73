"""Reading all records as objects, against SQLAlchemy in pages alike: its ORM reading all rows as
objects, and its Core reading rows."""

from __future__ import annotations

import warnings

import sqlalchemy as sa
from sqlalchemy.orm import Session

from tests.bench.databases import TITLES, Bench, Engine, opened, orm_engine
from tests.bench.measure import Reach, Row, take_turns
from tests.bench.people import CREATE, Base, Person, make_people
from zapdb.accelerator import load_accelerator
from zapdb.limits import PAGE_RECORDS_MAX

RECORDS = 30_000
ROUNDS = 7
CORE: dict[Engine, Reach] = {"sqlite": ("≥", 3), "postgresql": ("≥", 2)}
"""Of the accelerator: without it, the row is information."""


def run(bench: Bench) -> list[Row]:
    return [row for engine in bench.engines for row in _run(bench, engine)]


def _run(bench: Bench, engine: Engine) -> list[Row]:
    address = bench.address(engine, "scan")
    orm = orm_engine(bench.address(engine, "scan-orm"))
    Base.metadata.create_all(orm)
    with (
        warnings.catch_warnings(),
        opened(address, bench.migrations(f"scan-{engine}", CREATE)) as database,
        Session(orm) as session,
    ):
        warnings.simplefilter("ignore", sa.exc.SAWarning)  # SQLite has no decimals
        people = database.table("people")
        people.insert_many(make_people(0, RECORDS))
        session.execute(sa.insert(Person), list(make_people(0, RECORDS)))
        session.commit()
        pages = sa.select(Person).order_by(Person.id).execution_options(yield_per=PAGE_RECORDS_MAX)

        def scan() -> None:
            assert sum(1 for _ in people.scan()) == RECORDS

        def scan_through_orm() -> None:
            assert sum(1 for _ in session.scalars(pages)) == RECORDS
            session.expunge_all()

        rows = sa.select(Person.__table__).execution_options(yield_per=PAGE_RECORDS_MAX)

        def scan_through_core() -> None:
            assert sum(1 for _ in session.connection().execute(rows)) == RECORDS

        ours, theirs, of_core = take_turns(ROUNDS, scan, scan_through_orm, scan_through_core)
        session.rollback()
    orm.dispose()
    work, reach = f"full scan to objects, {TITLES[engine]}", CORE[engine]
    return [
        Row(work, "ORM scan", ours / RECORDS, theirs / RECORDS, ("≥", 2)),
        Row(
            work,
            "SQLAlchemy Core, rows",
            ours / RECORDS,
            of_core / RECORDS,
            None if load_accelerator() is None else reach,
        ),
    ]
