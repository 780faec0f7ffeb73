"""Reading a past moment, by rewinding and from the history store, against reading the present; and
what the store costs those who follow and those who write.

`--changes` says how long the history is that is compared with a short one. All but what is called
wall time are processor times.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator

from tests.bench.databases import TITLES, Bench, Engine, opened
from tests.bench.measure import Row
from tests.bench.past_life import change
from tests.bench.past_store import run_memory, run_stored
from tests.bench.people import CREATE, make_people
from tests.bench.processor import spend_turns
from zapdb.database import Database
from zapdb.tables.table_reading import ReadableTable

RECORDS = 30_000
CHANGED = (100, 10_000)
"""How many records changed since the moment: up to a third of them."""
GETS = 300
ROUNDS = 5
WRITES = 500


def run(bench: Bench) -> Iterator[Row]:
    """Each row as soon as it is measured: a long history may be stopped."""
    for engine in bench.engines:
        yield from _run_rewound(bench, engine)
    yield from _compare_writers(bench)
    yield from run_stored(bench)
    yield from run_memory(bench)


def _run_rewound(bench: Bench, engine: Engine) -> Iterator[Row]:
    migrations = bench.migrations(f"past-{engine}", CREATE)
    server = bench.server_of(engine)
    with opened(bench.address(engine, "past"), migrations) as db:
        db.admin.set_setting("change_log", "on")
        people = db.table("people")
        people.insert_many(make_people(0, RECORDS))
        for changed in CHANGED:
            moment = next(db.moments())
            change(db, range(0, RECORDS, RECORDS // changed), f"elsewhere {changed}")
            past = db.at(moment).table("people")
            at = f"{TITLES[engine]}, {changed:,} of {RECORDS:,} records changed since"
            turns = spend_turns(
                ROUNDS,
                server,
                lambda m=moment: _scan(db.at(m).table("people")),
                lambda: _scan(people),
            )
            seconds = [one.processor for one in turns]
            yield Row(f"rewound scan, {at}", "scan", *seconds, ("≤", 1.5))
            turns = spend_turns(ROUNDS, server, lambda p=past: _get(p), lambda: _get(people))
            seconds = [one.processor / GETS for one in turns]
            yield Row(f"rewound get, {at}", "get", *seconds, ("≤", 3))


def _scan(table: ReadableTable) -> None:
    assert sum(1 for _ in table.scan()) == RECORDS


def _get(table: ReadableTable) -> None:
    for number in range(GETS):
        table.get(number)


def _compare_writers(bench: Bench) -> Iterator[Row]:
    """Writers beside a process that follows and merges all the time, and without a store."""
    for engine in bench.engines:
        migrations = bench.migrations(f"past-writers-{engine}", CREATE)
        addresses = [bench.address(engine, f"past-writers-{name}") for name in ("alone", "beside")]
        with opened(addresses[0], migrations) as alone, opened(addresses[1], migrations) as beside:
            for db in (alone, beside):
                db.admin.set_setting("change_log", "on")
                db.table("people").insert_many(make_people(0, WRITES))
            beside.admin.set_setting("history_store_flush_changes", "1000")
            beside.history.start(bench.directory / f"past-writers-{engine}")
            command = [sys.executable, "-m", "zapdb", "history", "run", "-d", addresses[1]]
            follower = subprocess.Popen(command, stdout=subprocess.DEVNULL)
            try:
                while beside.history.status().state != "follows":
                    time.sleep(0.2)
                turns = spend_turns(
                    ROUNDS, None, lambda b=beside: _write(b), lambda a=alone: _write(a)
                )
            finally:
                follower.terminate()
                follower.wait()
            what = f"{WRITES:,} transactions beside a follower, {TITLES[engine]}"
            spent = [one.client for one in turns]
            yield Row(f"{what}: processor time", "no store", *spent, ("≤", 1 / 0.95))
            yield Row(f"{what}: wall time", "no store", *(one.wall for one in turns), None)


def _write(db: Database) -> None:
    people, city = db.table("people"), f"city {time.perf_counter_ns()}"
    for number in range(WRITES):
        people.update(number, city=city)
