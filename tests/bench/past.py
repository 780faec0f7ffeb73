"""Reading a past moment by rewinding, against reading the present."""

from __future__ import annotations

import itertools

from tests.bench.databases import ENGINES, TITLES, Bench, Engine, opened
from tests.bench.measure import Row, take_turns
from tests.bench.people import CREATE, make_people
from zapdb.database import Database
from zapdb.database.table_reading import ReadableTable

RECORDS = 30_000
CHANGED = (100, 10_000)
"""How many records changed since the moment: up to a third of them."""
GETS = 300
ROUNDS = 5


def run(bench: Bench) -> list[Row]:
    return [row for engine in ENGINES for row in _run(bench, engine)]


def _run(bench: Bench, engine: Engine) -> list[Row]:
    rows = []
    migrations = bench.migrations(f"past-{engine}", CREATE)
    with opened(bench.address(engine, "past"), migrations) as db:
        db.admin.set_setting("change_log", "on")
        people = db.table("people")
        people.insert_many(make_people(0, RECORDS))
        for changed in CHANGED:
            moment = next(db.moments())
            _change(db, changed)
            past = db.at(moment).table("people")
            at = f"{TITLES[engine]}, {changed:,} of {RECORDS:,} records changed since"
            seconds = take_turns(ROUNDS, lambda p=past: _scan(p), lambda: _scan(people))
            rows.append(Row(f"rewound scan, {at}", "scan", *seconds, ("≤", 1.5)))
            seconds = take_turns(ROUNDS, lambda p=past: _get(p), lambda: _get(people))
            seconds = [one / GETS for one in seconds]
            rows.append(Row(f"rewound get, {at}", "get", *seconds, ("≤", 3)))
    return rows


def _change(db: Database, count: int) -> None:
    """Change so many records, some in each transaction."""
    step = RECORDS // count
    numbers = iter(range(0, count * step, step))
    while some := list(itertools.islice(numbers, 100)):
        with db.transaction() as tx:
            for number in some:
                tx.table("people").update(number, city="elsewhere")


def _scan(table: ReadableTable) -> None:
    assert sum(1 for _ in table.scan()) == RECORDS


def _get(table: ReadableTable) -> None:
    for number in range(GETS):
        table.get(number)
