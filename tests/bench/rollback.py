"""Rolling back takes as long as applying, however many records there are, and stops no writer.

Four processes whose files end before the migration update records without a pause, while another
one applies a migration and rolls it back. What they wait at most is told by the 99th percentile of
the updates that were under way in the second after it began.
"""

from __future__ import annotations

import json
import random
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import zapdb
from tests.bench.databases import TITLES, Bench, Engine, Migrations, opened
from tests.bench.measure import Row
from tests.bench.people import CREATE, DROP_ONE_ADD_ONE, make_people
from zapdb.activation.rollback import roll_back
from zapdb.activation.up import MigrationChoice, migrate_up
from zapdb.catalog import DEFAULT_TENANT
from zapdb.storage import Storage, connect

ROUNDS = 15
WRITERS = 4
WRITER_ROUNDS = 5
SECONDS_BETWEEN = 1.5
WATCHED_SECONDS = 1.0
WAIT_SECONDS_MAX = 0.05
ROOT = Path(__file__).parents[2]


def run(bench: Bench) -> list[Row]:
    return [row for engine in bench.engines for row in _run(bench, engine)]


def _run(bench: Bench, engine: Engine) -> Iterator[Row]:
    first = bench.migrations(f"rollback-{engine}", CREATE)
    taken = dict[int, tuple[list[float], list[float]]]()
    for count in (bench.few, bench.many):
        address = bench.address(engine, f"rollback-{count}")
        with opened(address, first) as database:
            database.table("people").insert_many(make_people(0, count))
        taken[count] = _go_back_and_forth(address, first)
    (_, few), (up, many) = (map(statistics.median, taken[n]) for n in (bench.few, bench.many))
    title = f"rolling back, {bench.many:,} records, {TITLES[engine]}"
    yield Row(title, "applying it", many, up, ("≤", 2))
    yield Row(title, f"{bench.few:,} records", many, few, ("≤", 1.2))
    waits = _write_meanwhile(address, first, bench.many)
    what = f"99th percentile of {WRITERS} writers while a migration is"
    for name, found in waits.items():
        yield Row(f"{what} {name}, {TITLES[engine]}", "50 ms", found, WAIT_SECONDS_MAX, ("≤", 1))


def _go_back_and_forth(address: str, first: Migrations) -> tuple[list[float], list[float]]:
    """Seconds of each migration, and of each rollback."""
    ups, backs = list[float](), list[float]()
    with closing(connect(address)) as storage:
        for number in range(ROUNDS + 1):
            up, back = _apply(storage, first), _roll_back(storage, first)
            if number:  # the first round warms up
                ups.append(up)
                backs.append(back)
    return ups, backs


def _apply(storage: Storage, first: Migrations) -> float:
    first.add(*DROP_ONE_ADD_ONE)
    started = time.perf_counter()
    migrate_up(storage, DEFAULT_TENANT, first.directory, MigrationChoice(again=True))
    return time.perf_counter() - started


def _roll_back(storage: Storage, first: Migrations) -> float:
    started = time.perf_counter()
    roll_back(storage)
    seconds = time.perf_counter() - started
    (first.directory / f"{first.count:04d}_step.yaml").unlink()
    first.count -= 1
    return seconds


def _write_meanwhile(address: str, first: Migrations, count: int) -> dict[str, float]:
    """What updates wait, by what is done meanwhile."""
    command = [sys.executable, "-m", __name__, address, str(first.directory), str(count)]
    began: dict[str, list[float]] = {"applied": [], "rolled back": []}
    with ExitStack() as stack:
        writers = [
            stack.enter_context(
                subprocess.Popen(
                    [*command, str(seed)],
                    cwd=ROOT,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for seed in range(WRITERS)
        ]
        for writer in writers:
            assert writer.stdout is not None
            writer.stdout.readline()
        with closing(connect(address)) as storage:
            for _ in range(WRITER_ROUNDS):
                for name, act in (("applied", _apply), ("rolled back", _roll_back)):
                    time.sleep(SECONDS_BETWEEN)
                    began[name].append(time.time())
                    act(storage, first)
            time.sleep(SECONDS_BETWEEN)
        updates = [
            tuple(one) for writer in writers for one in json.loads(writer.communicate("end\n")[0])
        ]
    return {name: _percentile(updates, moments) for name, moments in began.items()}


def _percentile(updates: list[tuple[float, float]], moments: list[float]) -> float:
    found = sorted(
        ended - start
        for start, ended in updates
        if any(ended >= at and start <= at + WATCHED_SECONDS for at in moments)
    )
    return found[int(len(found) * 0.99)]


def _write(address: str, directory: str, count: int, seed: int) -> None:
    """Update records at random until a line comes; print when each began and ended."""
    chance, updates, ended = random.Random(seed), list[tuple[float, float]](), False

    def wait_for_end() -> None:
        nonlocal ended
        sys.stdin.readline()
        ended = True

    threading.Thread(target=wait_for_end, daemon=True).start()
    with zapdb.open(address, migrations=directory) as database:
        people = database.table("people")
        people.update(0, number=0)
        print("ready", flush=True)
        while not ended:
            started = time.time()
            people.update(chance.randrange(count), number=chance.randrange(1_000))
            updates.append((started, time.time()))
            time.sleep(0.002)
    print(json.dumps(updates))


if __name__ == "__main__":
    _write(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
