"""Mirrors: changes applied a second, how far a running one is behind its writer, and what an idle
one costs.

Catching up is compared with reading the same part of the change log and doing nothing with it, in
processor time of this process and the server. For the lag, a thread writes single records, some
hundred a second, and notes when each was committed; the mirror runs in another thread.
"""

from __future__ import annotations

import contextlib
import itertools
import statistics
import threading
import time
from pathlib import Path

from tests.bench.databases import TITLES, Bench, Engine, opened
from tests.bench.measure import Row
from tests.bench.people import CREATE, make_people
from tests.bench.processor import Spent, spend
from zapdb.database import Database
from zapdb.transfer.mirror.mirror import Mirror
from zapdb.transfer.mirror.mirror_run import run_mirror
from zapdb.transfer.mirror.target_opening import open_target

RECORDS = 20_000
CHANGES = 5_000
ROUNDS = 3
PAUSE_SECONDS = 0.01
PAIRS: tuple[tuple[Engine, str], ...] = (
    ("sqlite", "sqlite"),
    ("sqlite", "duckdb"),
    ("postgresql", "postgresql"),
)


def run(bench: Bench) -> list[Row]:
    return [row for engine, target in PAIRS for row in _measure(bench, engine, target)]


def _measure(bench: Bench, engine: Engine, kind: str) -> list[Row]:
    name = f"mirror-{engine}-{kind}"
    migrations = bench.migrations(name, CREATE)
    to = {
        "sqlite": f"sqlite:///{bench.directory / name}-target.db",
        "duckdb": f"duckdb:{bench.directory / name}-target.duckdb",
        "postgresql": "schema:reporting",
    }[kind]
    title = f"mirror of {TITLES[engine]} in {TITLES.get(kind, 'DuckDB')}"
    server = bench.server_directory if engine == "postgresql" else None
    with opened(bench.address(engine, name), migrations) as db:
        db.table("people").insert_many(make_people(0, RECORDS))
        with contextlib.closing(open_target(to, db._storage)) as target:
            mirror = Mirror(db, target)
            mirror.switch_on()
            run_mirror(mirror, once=True)
            applied, read = _catch_up(db, mirror, server)
            lags, idle = _follow(db, mirror, 3.0 if bench.quick else 10.0)
    centiles = statistics.quantiles(lags, n=100)
    return [
        Row(
            f"{title}: a change",
            "reading the change log",
            applied.processor / CHANGES,
            read.processor / CHANGES,
            None,
        ),
        Row(f"{title}: lag, median", "a second", statistics.median(lags), 1.0, ("≤", 1.0)),
        Row(f"{title}: lag, 99th percentile", "a second", centiles[98], 1.0, ("≤", 1.0)),
        Row(f"{title}: a second of waiting", "a second", idle, 1.0, ("≤", 0.05)),
    ]


def _catch_up(db: Database, mirror: Mirror, server: Path | None) -> list[Spent]:
    """What applying so many changes takes, and what reading them takes."""
    counter = itertools.count(1)
    begin = [db.change_log.end()]

    def write() -> None:
        begin[0] = db.change_log.end()
        turn = next(counter)
        for start in range(0, CHANGES, 100):
            with db.transaction() as tx:
                people = tx.table("people")
                for at in range(start, start + 100):
                    people.update(at * 3 % RECORDS, city=f"turn {turn}")

    def apply() -> None:
        run_mirror(mirror, once=True)

    def read() -> None:
        assert sum(1 for _ in db.change_log.read(begin[0])) == CHANGES

    found = [list[Spent](), list[Spent]()]
    for _ in range(ROUNDS):
        write()
        for spent, action in zip(found, (apply, read), strict=True):
            spent.append(spend(server, action))
    return [min(spent, key=lambda one: one.processor) for spent in found]


def _follow(db: Database, mirror: Mirror, seconds: float) -> tuple[list[float], float]:
    """The lag of each change in seconds, and the processor seconds of a second without changes."""
    stop, committed, lags = threading.Event(), list[float](), list[float]()
    before = mirror.report.changes

    def note(_: Mirror) -> None:
        now = time.perf_counter()
        done = mirror.report.changes - before
        lags.extend(now - committed[at] for at in range(len(lags), min(done, len(committed))))

    runner = threading.Thread(
        target=run_mirror, args=(mirror,), kwargs={"stop": stop, "report": note}
    )
    runner.start()
    people, ends = db.table("people"), time.perf_counter() + seconds
    while time.perf_counter() < ends:
        people.update(len(committed) % RECORDS, city=f"city {len(committed)}")
        committed.append(time.perf_counter())
        time.sleep(PAUSE_SECONDS)
    time.sleep(2)
    started = time.process_time()
    time.sleep(4)
    idle = (time.process_time() - started) / 4
    stop.set()
    runner.join()
    return lags, idle
