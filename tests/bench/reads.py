"""Reads, and insertions of many, against the bare drivers, msgspec on them, and SQLAlchemy.

Processor time is compared, with that of the server: load on the machine hardly changes its ratios.
All have the same records with the same index, and take turns.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

from tests.bench.contestants import OfCore, OfDriver, OfMsgspec, OfOrm, OfZapdb, Reader
from tests.bench.databases import TITLES, Bench, Engine
from tests.bench.measure import Reach, Row
from tests.bench.people import CREATE, CREATE_INDEX, make_people
from tests.bench.processor import spend_turns

RECORDS, MANY, ROUNDS = 20_000, 5_000, 5
GETS, QUERIES, SHORT, LONG = 1_000, 500, 400, 20

Work = Callable[[Reader], Callable[[], object]]
BOTH: dict[Engine, Reach] = {"sqlite": ("≥", 2), "postgresql": ("≥", 2)}
REACH: dict[tuple[str, type[Reader]], dict[Engine, Reach]] = {
    ("get", OfDriver): {"sqlite": ("≤", 2)},
    ("index range of 20", OfOrm): BOTH,
    ("index range of 1,000", OfOrm): BOTH,
    ("full scan", OfCore): {"sqlite": ("≥", 3), "postgresql": ("≥", 2)},
    ("insert many", OfOrm): BOTH,
}
ONE_QUERY: Reach = ("≤", 2.5)
"""A query for one record against a `get` of it."""


def run(bench: Bench) -> list[Row]:
    return [row for engine in bench.engines for row in _run(bench, engine)]


def _run(bench: Bench, engine: Engine) -> Iterator[Row]:
    with ExitStack() as stack, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # SQLAlchemy: SQLite has no decimals
        migrations = bench.migrations(f"reads-{engine}", CREATE, CREATE_INDEX)
        kinds: tuple[Callable[[str], Reader], ...] = (OfDriver, OfMsgspec, OfCore, OfOrm)
        others = [kind(bench.address(engine, f"reads-{at}")) for at, kind in enumerate(kinds)]
        readers = [OfZapdb(bench.address(engine, "reads-zapdb"), migrations), *others]
        for reader in readers:
            stack.enter_context(closing(reader))
            reader.insert_many(list(make_people(0, RECORDS)))
        server = bench.server_directory if engine == "postgresql" else None
        taken = dict[str, float]()
        for title, count, work in _works():
            spent = spend_turns(ROUNDS, server, *(work(reader) for reader in readers))
            ours, *theirs = (each.processor / count for each in spent)
            taken[title] = ours
            for other, seconds in zip(others, theirs, strict=True):
                reach = REACH.get((title, type(other)), {}).get(engine)
                yield Row(f"{title}, {TITLES[engine]}", other.name, ours, seconds, reach)
        one = f"query for one record, {TITLES[engine]}"
        yield Row(one, "a get of it", taken["query for one record"], taken["get"], ONE_QUERY)


def _works() -> Iterator[tuple[str, int, Work]]:
    """Titles, how many records or queries each is of, and the work, to be done again."""
    draw = random.Random(1)
    ids = draw.choices(range(RECORDS), k=GETS)
    numbers = [id * 7919 % 1_000_003 for id in ids[:QUERIES]]
    lows = draw.choices(range(900_000), k=SHORT)
    new = [list(make_people(RECORDS + at * MANY, MANY)) for at in range(ROUNDS + 1)]

    def insert_many(reader: Reader) -> Callable[[], object]:
        batches = iter(new)
        return lambda: reader.insert_many(next(batches))

    yield "get", GETS, lambda reader: lambda: reader.get(ids)
    yield "query for one record", QUERIES, lambda reader: lambda: reader.find_one(numbers)
    yield "index range of 20", SHORT * 20, lambda reader: lambda: reader.find(lows, 20)
    long = lows[:LONG]
    yield "index range of 1,000", LONG * 1_000, lambda reader: lambda: reader.find(long, 1_000)
    yield "full scan", RECORDS, lambda reader: reader.scan
    yield "insert many", MANY, insert_many
