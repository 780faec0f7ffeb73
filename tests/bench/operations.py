"""What applications do all day, against SQLAlchemy's ORM and Core, Peewee and Django's ORM.

All have the same table with the same index, in databases of the same durability, and take turns.
To be as fast as SQLAlchemy's ORM in everything is the least; `get`, `insert` and `scan` ask for
more. The others are information.
"""

from __future__ import annotations

import itertools
import random
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

from tests.bench.contestants import Contestant, OfCore, OfDjango, OfOrm, OfPeewee, OfZapdb
from tests.bench.databases import TITLES, Bench, Engine
from tests.bench.measure import Reach, Row, take_turns
from tests.bench.people import CREATE, CREATE_INDEX, make_people

RECORDS = 20_000
GETS, INSERTS, INSERTS_MANY, UPDATES, FINDS = 500, 200, 5_000, 200, 100
FOUND = 20
FIND = f"index range of {FOUND}"
ROUNDS = 5


def run(bench: Bench) -> list[Row]:
    return [row for engine in bench.engines for row in _run(bench, engine)]


def _run(bench: Bench, engine: Engine) -> list[Row]:
    with ExitStack() as stack, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # SQLAlchemy: SQLite has no decimals
        ours = OfZapdb(
            bench.address(engine, "operations-zapdb"),
            bench.migrations(f"operations-{engine}", CREATE, CREATE_INDEX),
        )
        others: list[Contestant] = [
            kind(bench.address(engine, f"operations-{kind.__name__.lower()}"))
            for kind in (OfOrm, OfCore, OfPeewee, OfDjango)
        ]
        contestants = [stack.enter_context(closing(c)) for c in (ours, *others)]
        for contestant in contestants:
            contestant.insert_many(list(make_people(0, RECORDS)))
        rows = []
        for title, count, work in _works():
            actions = [work(contestant) for contestant in contestants]
            first, *rest = take_turns(ROUNDS, *actions)
            rows += [
                Row(
                    f"{title}, {TITLES[engine]}",
                    contestant.name,
                    count / first,
                    count / seconds,
                    _reach(title) if contestant is others[0] else None,
                    "/s",
                )
                for contestant, seconds in zip(others, rest, strict=True)
            ]
        return rows


def _reach(title: str) -> Reach:
    return ("≥", 1.5) if title == FIND else ("≥", 1)


Work = Callable[[Contestant], Callable[[], object]]


def _works() -> Iterator[tuple[str, int, Work]]:
    """Titles, how many records each handles, and the work of a contestant, to be done again."""
    draw = random.Random(1)
    ids = draw.choices(range(RECORDS), k=GETS)
    lows = draw.choices(range(900_000), k=FINDS)
    new = [list(make_people(RECORDS + at * INSERTS, INSERTS)) for at in range(ROUNDS + 1)]
    first = RECORDS + (ROUNDS + 1) * INSERTS
    many = [list(make_people(first + at * INSERTS_MANY, INSERTS_MANY)) for at in range(ROUNDS + 1)]

    def find(contestant: Contestant) -> Callable[[], object]:
        def run() -> None:
            assert contestant.find(lows, FOUND) > FINDS * FOUND / 2

        return run

    def insert(contestant: Contestant) -> Callable[[], object]:
        batches = iter(new)
        return lambda: contestant.insert(next(batches))

    def insert_many(contestant: Contestant) -> Callable[[], object]:
        batches = iter(many)
        return lambda: contestant.insert_many(next(batches))

    def update(contestant: Contestant) -> Callable[[], object]:
        cities = itertools.count()
        return lambda: contestant.update(ids[:UPDATES], f"City {next(cities)}")

    yield "get", GETS, lambda contestant: lambda: contestant.get(ids)
    yield FIND, FINDS, find
    yield "full scan", RECORDS, lambda contestant: contestant.scan
    yield "update", UPDATES, update
    yield "insert", INSERTS, insert
    yield "insert many", INSERTS_MANY, insert_many
