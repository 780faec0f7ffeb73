"""What an application's queries wait while records are converted: alone, at full speed, throttled.

A process of its own, the application, gets and updates single records, some two hundred a second,
and takes the times. Meanwhile another one converts, or none does. The ceiling is 1.5 times what
95 % of the updates take at most while nothing is converted. The phases take turns, so that whatever
else the machine does concerns all of them.
"""

from __future__ import annotations

import contextlib
import json
import random
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zapdb
from tests.bench.convert import _change
from tests.bench.databases import TITLES, Bench, Engine, Migrations, opened
from tests.bench.measure import Row
from tests.bench.people import CREATE, make_people
from zapdb.catalog.row_kinds import JobThrottle
from zapdb.errors import UsageError
from zapdb.jobs import plan_jobs
from zapdb.jobs.control import throttle_job
from zapdb.jobs.job import read_progress

ROUNDS = 3
ROOT = Path(__file__).parents[2]
UPDATED = 0.2
"""The part of the queries that are updates."""
PAUSE_SECONDS = 0.005
QUERIES_MIN = 20
"""Updates of a phase, however long they wait: writers of other processes starve beside a conversion
of an SQLite file at full speed."""


@dataclass(frozen=True)
class Phase:
    """The 95th percentiles of the application's queries, in seconds, and what was converted, in
    records a second."""

    get: float
    update: float
    rate: float


def run(bench: Bench) -> list[Row]:
    return [row for engine in bench.engines for row in _measure(bench, engine)]


def _measure(bench: Bench, engine: Engine) -> list[Row]:
    seconds = 4.0 if bench.quick else 10.0
    records = 200_000 if bench.quick else 1_000_000
    migrations = bench.migrations(f"foreground-{engine}", CREATE)
    address = bench.address(engine, f"foreground-{engine}")
    with opened(address, migrations) as database:
        database.table("people").insert_many(make_people(0, records))
    phases: dict[str, list[Phase]] = {"alone": [], "full": [], "throttled": []}
    with _application(address, records) as application:
        for _ in range(ROUNDS):
            alone = _take(application, seconds, None)
            ceiling_ms = max(1, round(alone.update * 1.5e3))
            phases["alone"].append(alone)
            phases["full"].append(_convert(address, migrations, application, seconds, None))
            slow = _convert(address, migrations, application, seconds, ceiling_ms)
            phases["throttled"].append(slow)
            print(f"{engine}, ceiling {ceiling_ms} ms:", *(p[-1] for p in phases.values()))
    return list(_rows(phases, TITLES[engine]))


def _rows(phases: dict[str, list[Phase]], title: str) -> Iterator[Row]:
    found = {
        name: Phase(*(statistics.median(getattr(one, part) for one in taken) for part in PARTS))
        for name, taken in phases.items()
    }
    alone, full, throttled = found["alone"], found["full"], found["throttled"]
    for part in ("get", "update"):
        of, base = f"p95 of a {part}, {title}", getattr(alone, part)
        yield Row(f"{of}, converting", "nothing converted", getattr(full, part), base, None)
        slow = getattr(throttled, part)
        yield Row(f"{of}, with --max-latency", "nothing converted", slow, base, ("≤", 2))
    yield Row(
        f"conversion with --max-latency, {title}",
        "at full speed",
        throttled.rate,
        full.rate,
        None,
        "/s",
    )


PARTS = ("get", "update", "rate")


@contextlib.contextmanager
def _application(address: str, records: int) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.bench.foreground", address, str(records)]
    process = subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _take(application: subprocess.Popen[str], seconds: float, _: Any) -> Phase:
    assert application.stdin is not None
    assert application.stdout is not None
    application.stdin.write(f"{seconds}\n")
    application.stdin.flush()
    found = json.loads(application.stdout.readline())
    return Phase(found["get"], found["update"], 0.0)


def _convert(
    address: str,
    migrations: Migrations,
    application: subprocess.Popen[str],
    seconds: float,
    ceiling_ms: int | None,
) -> Phase:
    """The application beside a process that converts all records anew."""
    _change(migrations)
    with opened(address, migrations) as database:
        storage = database._storage
        (job,) = plan_jobs(storage, 1)
        throttle_job(storage, job.id, JobThrottle(max_latency_ms=ceiling_ms))
        command = [sys.executable, "-m", "zapdb", "convert", "run", "-d", address]
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
        while not read_progress(storage.connection(), job.id).read:
            time.sleep(0.01)
        if ceiling_ms is not None:
            time.sleep(seconds / 2)  # the share settles
        began, before = time.monotonic(), read_progress(storage.connection(), job.id).read
        ended: list[float] = []
        waiter = threading.Thread(target=lambda: (process.wait(), ended.append(time.monotonic())))
        waiter.start()
        taken = _take(application, seconds, None)
        read = read_progress(storage.connection(), job.id).read - before
        rate = read / ((ended[0] if ended else time.monotonic()) - began)
        with contextlib.suppress(UsageError):  # it has ended
            throttle_job(storage, job.id, JobThrottle())
        waiter.join()
    return Phase(taken.get, taken.update, rate)


def work(address: str, records: int) -> None:
    """The application: for each number of seconds on standard input, a line of percentiles."""
    with zapdb.open(address) as database:
        people, draw = database.table("people"), random.Random(1)
        for line in sys.stdin:
            times: dict[str, list[float]] = {"get": [], "update": []}
            until = time.perf_counter() + float(line)
            while (began := time.perf_counter()) < until or len(times["update"]) < QUERIES_MIN:
                key, is_update = draw.randrange(records), draw.random() < UPDATED
                if is_update:
                    people.update(key, name=f"Ada {key}")
                else:
                    people.get(key)
                times["update" if is_update else "get"].append(time.perf_counter() - began)
                time.sleep(PAUSE_SECONDS)
            found = {name: statistics.quantiles(taken, n=20)[-1] for name, taken in times.items()}
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    work(sys.argv[1], int(sys.argv[2]))
