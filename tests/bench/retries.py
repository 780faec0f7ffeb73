"""What is tried again when four processes write at full speed while a table is converted.

The writers update random records of the table, which is a tenth of a large one, so they meet the
conversion more often. A batch that conflicts is repeated by the job, an update by its writer.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading

import zapdb
from tests.bench.convert import _change
from tests.bench.databases import TITLES, Bench, Engine, opened
from tests.bench.measure import Reach, Row
from tests.bench.people import CREATE, make_people
from zapdb.metrics import JOB_BATCHES, RETRIES, Counter

WRITERS = 4
REACH: Reach = ("≤", 0.05)


def run(bench: Bench) -> list[Row]:
    return [row for engine in bench.engines for row in _measure(bench, engine)]


def _measure(bench: Bench, engine: Engine) -> list[Row]:
    records, migrations = bench.many // 10, bench.migrations(f"retries-{engine}", CREATE)
    address = bench.address(engine, "retries")
    with opened(address, migrations) as database:
        database.table("people").insert_many(make_people(0, records))
    _change(migrations)
    with opened(address, migrations) as database:
        command = [sys.executable, "-m", __name__, address, str(migrations.directory), str(records)]
        writers = [
            subprocess.Popen(
                [*command, str(seed)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            for seed in range(WRITERS)
        ]
        for writer in writers:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
        retries, batches = _read(RETRIES, "batch"), _read(JOB_BATCHES, "convert")
        database.admin.run_jobs()
        retries = _read(RETRIES, "batch") - retries
        batches = _read(JOB_BATCHES, "convert") - batches
        told = [json.loads(writer.communicate("")[0]) for writer in writers]
        assert database.admin.verify()[0].problems == ()
    assert all(writer.returncode == 0 for writer in writers)
    updates, again = (sum(one[at] for one in told) for at in range(2))
    work = f"{WRITERS} writers beside a conversion, {TITLES[engine]}, {records:,} records"
    return [
        Row(f"{work}: batches repeated", "batches", retries, batches, REACH, "trips"),
        Row(f"{work}: updates repeated", "updates", again, updates, REACH, "trips"),
    ]


def _read(counter: Counter, label: str) -> float:
    return counter.read().get((label,), 0.0)


def _write(address: str, migrations: str, records: int, seed: int) -> None:
    """Update until standard input ends; tell how often, and how often again."""
    draw, stop, updates = random.Random(seed), threading.Event(), 0
    threading.Thread(target=lambda: (sys.stdin.read(), stop.set()), daemon=True).start()
    with zapdb.open(address, migrations=migrations) as database:
        people = database.table("people")
        print("ready", flush=True)
        while not stop.is_set():
            people.update(draw.randrange(records), number=draw.randrange(records))
            updates += 1
    print(json.dumps([updates, _read(RETRIES, "write")]))


if __name__ == "__main__":
    _write(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
