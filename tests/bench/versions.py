"""What another checkout of zapdb takes for the same work, in turns with this one.

    python -m tests.bench.versions CHECKOUT [WORK …] [--rounds N]

Each of both has a process and databases of its own, and works while the other waits. Processor time
is counted: that of its process, and on PostgreSQL that of the server. The median of all rounds is
shown for each, in µs for one record or query, and by what the other's is divided to get this one's.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.bench.databases import ENGINES, TITLES, Bench
from tests.bench.people import CREATE, CREATE_INDEX, make_people
from tests.bench.processor import postmaster_of, tree_seconds

HERE = Path(__file__).parents[2]
RECORDS, BATCH = 20_000, 2_000
GETS, QUERIES, PAGES, LONG = 1_000, 500, 100, 10

Works = dict[str, tuple[int, Callable[[], object]]]
"""How many things a work does, and what does them."""


def make_works(database: Any) -> Works:
    """By name, of a table that has the records already."""
    people, draw = database.table("people"), random.Random(1)
    ids = draw.choices(range(RECORDS), k=GETS)
    numbers = [id * 7919 % 1_000_003 for id in ids[:QUERIES]]
    lows = draw.choices(range(900_000), k=PAGES)
    number, bound = people.f.number, people._bound
    page = database._storage.connection().fetch_all(bound.records.page_sql, (b"", 1_000))
    nothing = bound.make_attachments()
    first = iter(range(RECORDS, 10**9, BATCH))

    def ranges(lows: list[int], count: int) -> None:
        for low in lows:
            assert len(people.where(number >= low).order_by("number").limit(count).all()) > 1

    def insert_many() -> None:
        people.insert_many(new)
        new[:] = make_people(next(first), BATCH)

    new = list(make_people(next(first), BATCH))
    return {
        "get": (GETS, lambda: [people.get(id) for id in ids]),
        "query for one record": (
            QUERIES,
            lambda: [people.where(number == one).first() for one in numbers],
        ),
        "look-up": (
            QUERIES,
            lambda: [people.using("by_number").where(number=one).one() for one in numbers],
        ),
        "look-up of nothing": (
            QUERIES,
            lambda: [people.where(number=-1 - one).first() for one in numbers],
        ),
        "page of 20 by an index": (
            PAGES,
            lambda: [people.where(number >= low).order_by("number").page(20) for low in lows],
        ),
        "index range of 20": (PAGES * 20, lambda: ranges(lows, 20)),
        "index range of 1,000": (LONG * 1_000, lambda: ranges(lows[:LONG], 1_000)),
        "scan": (RECORDS, lambda: sum(1 for _ in people)),
        "scan, compared": (
            RECORDS,
            lambda: sum(1 for _ in people.where(people.f.active == True)),
        ),
        "reader.convert": (
            len(page),
            lambda: [bound.reader.convert(key, value, nothing) for key, value in page],
        ),
        "insert_many": (BATCH, insert_many),
    }


def work(address: str, migrations: str) -> None:
    """In a process of its own: does what each line of its input names, and prints the seconds that
    it took of this process."""
    import zapdb

    with contextlib.closing(zapdb.open(address, migrations=migrations, apply="auto")) as database:
        database.table("people").insert_many(make_people(0, RECORDS))
        works = make_works(database)
        print(json.dumps({name: count for name, (count, _) in works.items()}), flush=True)
        for line in sys.stdin:
            _, action = works[line.rstrip("\n")]
            began = time.process_time()
            action()
            print(time.process_time() - began, flush=True)


class Worker:
    """A checkout at work."""

    def __init__(self, checkout: Path, address: str, migrations: Path, server: int | None) -> None:
        self._server = server
        # This file is run, even where the checkout does not have it.
        self._process = subprocess.Popen(
            [sys.executable, "-P", __file__, "--work", address, str(migrations)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(checkout)},
            cwd=checkout,
        )
        self.counts: dict[str, int] = self._read()

    def run(self, name: str) -> float:
        """Return the seconds that a work took of the process and of the server."""
        assert self._process.stdin is not None
        before = self._server_seconds()
        print(name, file=self._process.stdin, flush=True)
        seconds: float = self._read()
        return seconds + self._server_seconds() - before

    def _server_seconds(self) -> float:
        return 0.0 if self._server is None else tree_seconds(self._server)

    def _read(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate()


def compare(before: Path, rounds: int, names: list[str]) -> Iterator[tuple[str, float, float]]:
    """Yield works with the seconds of the other checkout and of this one, for one thing each."""
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="zapdb-bench-")))
        bench = Bench(directory, True, stack)
        for engine in ENGINES:
            migrations = bench.migrations(f"versions-{engine}", CREATE, CREATE_INDEX).directory
            workers = list[Worker]()
            for title, checkout in (("before", before), ("after", HERE)):
                address = bench.address(engine, f"versions-{title}")
                server = None
                if engine == "postgresql":
                    server = postmaster_of(bench.server_directory)
                worker = Worker(checkout, address, migrations, server)
                workers.append(stack.enter_context(contextlib.closing(worker)))
            for name in names or workers[0].counts:
                turns = [
                    [w.run(name) for w in workers[:: 1 if n % 2 else -1]] for n in range(rounds + 1)
                ]
                taken = [turn if n % 2 else turn[::-1] for n, turn in enumerate(turns)][1:]
                count = workers[0].counts[name]
                old, new = (statistics.median(t) / count for t in zip(*taken, strict=True))
                yield f"{name}, {TITLES[engine]}", old, new


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.versions", description=__doc__)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("works", nargs="*")
    parser.add_argument("--rounds", type=int, default=11)
    given = parser.parse_args()
    for name, old, new in compare(given.checkout.resolve(), given.rounds, given.works):
        print(f"{name:40} {old * 1e6:9.2f} µs {new * 1e6:9.2f} µs {old / new:6.2f} ×", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        work(*sys.argv[2:])
    else:
        main()
