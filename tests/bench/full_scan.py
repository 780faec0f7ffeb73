"""Reading all records as objects, against the ORM reading all rows as objects, in pages alike."""

from __future__ import annotations

import warnings

import sqlalchemy as sa
from sqlalchemy.orm import Session

from tests.bench.databases import ENGINES, TITLES, Bench, Engine, opened, orm_engine
from tests.bench.measure import Row, take_turns
from tests.bench.people import CREATE, Base, Person, make_people
from zapdb.limits import PAGE_RECORDS_MAX

RECORDS = 30_000
ROUNDS = 7


def run(bench: Bench) -> list[Row]:
    return [_run(bench, engine) for engine in ENGINES]


def _run(bench: Bench, engine: Engine) -> Row:
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

        ours, theirs = take_turns(ROUNDS, scan, scan_through_orm)
        session.rollback()
    orm.dispose()
    return Row(
        f"full scan to objects, {TITLES[engine]}",
        "ORM scan",
        ours / RECORDS,
        theirs / RECORDS,
        ("≥", 2),
    )
