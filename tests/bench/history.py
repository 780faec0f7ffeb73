"""What the change log costs: transactions of one update and inserting many, with and without."""

from __future__ import annotations

import itertools
import threading
import time

from tests.bench.databases import TITLES, Bench, Engine, opened
from tests.bench.measure import Reach, Row, take_turns
from tests.bench.people import CREATE, CREATE_INDEX, make_people
from zapdb.database import Database

RECORDS = 2_000
TRANSACTIONS = 400
INSERTED = 10_000
THREADS = 4
ROUNDS = 5


def run(bench: Bench) -> list[Row]:
    return [row for engine in bench.engines for row in _run(bench, engine)]


def _run(bench: Bench, engine: Engine) -> list[Row]:
    rows, migrations = [], bench.migrations(f"history-{engine}")
    migrations.add(CREATE, CREATE_INDEX)
    addresses = [bench.address(engine, f"history-{name}") for name in ("off", "on")]
    with opened(addresses[0], migrations) as off, opened(addresses[1], migrations) as on:
        on.admin.set_setting("change_log", "on")
        for database in (off, on):
            database.table("people").insert_many(make_people(0, RECORDS))
        for threads in (1, THREADS):
            seconds = take_turns(
                ROUNDS, lambda n=threads: _update(off, n), lambda n=threads: _update(on, n)
            )
            without, recorded = (TRANSACTIONS / each for each in seconds)
            what = f"updates, {threads} thread{'s' * (threads > 1)}, {TITLES[engine]}: history on"
            rows.append(Row(what, "off", recorded, without, _reach(engine, threads), "/s"))
        news = itertools.count(1)

        def insert(database: Database) -> None:
            database.table("people").insert_many(
                make_people(RECORDS + next(news) * INSERTED, INSERTED)
            )

        without, recorded = take_turns(ROUNDS, lambda: insert(off), lambda: insert(on))
        what = f"inserting many, {TITLES[engine]}: history on"
        rows.append(Row(what, "off", INSERTED / recorded, INSERTED / without, None, "/s"))
    return rows


def _reach(engine: Engine, threads: int) -> Reach | None:
    """15 % of single updates on PostgreSQL; elsewhere it is information."""
    return ("≥", 0.85) if engine == "postgresql" and threads == 1 else None


def _update(database: Database, threads: int) -> None:
    """Each thread changes records of its own, one in each transaction."""
    people, share = database.table("people"), TRANSACTIONS // threads
    # SQLite commits nothing where nothing changes.
    city = f"city {time.perf_counter_ns()}"

    def work(first: int) -> None:
        for n in range(first, first + share):
            people.update(n, city=city)
        database._storage.release_connection()

    workers = [threading.Thread(target=work, args=(n * share,)) for n in range(1, threads)]
    for worker in workers:
        worker.start()
    for n in range(share):
        people.update(n, city=city)
    for worker in workers:
        worker.join()
