"""Reading a past moment, by rewinding and from the history store, against reading the present; and
what the store costs those who follow and those who write.

Times are processor times, but for statements that have a process of their own.
"""

from __future__ import annotations

import itertools
import json
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow
from pyarrow import parquet

import zapdb
from tests.bench.databases import ENGINES, TITLES, Bench, Engine, opened
from tests.bench.measure import Row, take_turns
from tests.bench.memory import _peak_mb
from tests.bench.people import CREATE, make_people
from tests.bench.processor import spend, spend_turns
from zapdb.database import Database
from zapdb.database.table_reading import ReadableTable
from zapdb.storage.history_manifest import list_history_files, read_store

RECORDS = 30_000
CHANGED = (100, 10_000)
"""How many records changed since the moment: up to a third of them."""
GETS = 300
ROUNDS = 5

AGGREGATE = "SELECT city, count(*), sum(balance), max(number) FROM people GROUP BY city"
FEW = "SELECT max(city) FROM people WHERE number < 1000"
"""Of some 1,000,000 numbers."""
TAIL = 1_000
WRITES = 500


def run(bench: Bench) -> list[Row]:
    rewound = [row for engine in ENGINES for row in _run(bench, engine)]
    return [*rewound, *_run_stored(bench), *_compare_writers(bench), *_compare_memory(bench)]


# The store


@dataclass
class _Life:
    """A table in a store, with some moments of its history, and the processor time of following and
    of reading the same changes as objects."""

    db: Database
    records: int
    moments: dict[str, Any]
    following: float = 0
    reading: float = 0
    changes: int = 0

    @classmethod
    def live(cls, db: Database, directory: Path, records: int, changes: int) -> _Life:
        """Let a table have a history of so many changes, followed a quarter of the records at a
        time."""
        db.admin.set_setting("change_log", "on")
        db.admin.set_setting("history_store_flush_changes", str(records // 2))
        db.table("people").insert_many(make_people(0, records))
        db.history.start(directory)
        db.history.flush()
        life, parts = cls(db, records, {}), changes * 4 // records
        for part in range(parts):
            read_from = db.change_log.end()
            _change(db, range(part % 4, records, 4), f"part {part}")
            life.changes += records // 4
            life.moments[f"part {part + 1} of {parts}"] = next(db.moments())
            life.reading += spend(None, lambda at=read_from: _count(db.change_log.read(at))).client
            life.following += spend(None, db.history.flush).client
        return life


def _count(items: Iterable[object]) -> int:
    return sum(1 for _ in items)


def _run_stored(bench: Bench) -> list[Row]:
    """Columns of the store: the engine makes no difference but for the tail. The price is flat from
    as many changes as records on; with `--largest`, up to a hundred times as many."""
    records, rows, middles = bench.many // 10, list[Row](), list[float]()
    sizes = (bench.many // 10, bench.many, *([bench.many * 10] if bench.largest else []))
    for changes in sizes:
        name = f"past-stored-{changes}"
        migrations = bench.migrations(name, CREATE)
        directory = bench.directory / name
        address = bench.address("sqlite", name)
        with opened(address, migrations) as db:
            life = _Life.live(db, directory, records, changes)
            current = bench.directory / f"{name}.parquet"
            parquet.write_table(db.table("people").to_arrow().read_all(), current)
            size = f"{records:,} records, {changes:,} changes"
            parts = list(life.moments)
            made = [
                _compare_aggregate(db, current, f"{size}, {at}", life.moments[at])
                for at in (parts[0], parts[len(parts) // 2], parts[-2], parts[-1])
            ]
            middles.append(max(one.measured / one.reference for one in made))
            rows += made
            if changes < bench.many:
                continue
            logged = _measure_logged(address)
            rows += _compare_follower(life, directory, logged)
            rows.append(_compare_segment(life, directory, logged))
            rows += _compare_open_era(life, current, size)
    rows.append(
        Row(
            f"the dearest of these aggregates, {sizes[-1]:,} changes (× the current rows)",
            f"{sizes[0]:,} changes",
            middles[-1],
            middles[0],
            ("≤", 1.2),
        )
    )
    return rows


def _measure_logged(address: str) -> float:
    """The mean bytes of a change's key and records in the log."""
    with sqlite3.connect(address.removeprefix("sqlite:///")) as connection:
        (logged,) = connection.execute(
            "SELECT avg(length(key) + coalesce(length(before), 0) + coalesce(length(after), 0))"
            " FROM zapdb_changes WHERE event IS NULL"
        ).fetchone()
    return float(logged)


def _compare_follower(life: _Life, directory: Path, logged: float) -> list[Row]:
    """Files that others have replaced are no longer of the store."""
    made = _live_files(life.db, directory)
    stored = sum(path.stat().st_size for path in made) / (life.changes + life.records)
    changes = f"megabytes of 1,000,000 changes in files, after {life.changes:,}"
    return [
        Row(
            "follower with merges, processor time of a change",
            "reading it as an object",
            life.following / life.changes,
            life.reading / life.changes,
            ("≤", 0.5),
        ),
        Row(
            f"{changes}, with checkpoints",
            "their keys and records in the log",
            stored,
            logged,
            ("≤", 0.5),
            "MB",
        ),
    ]


def _live_files(db: Database, directory: Path) -> list[Path]:
    with db._session.reading() as connection:
        store = read_store(connection, db._catalog.tenant)
        assert store is not None
        return [directory / file.path for file in list_history_files(connection, store)]


def _compare_segment(life: _Life, directory: Path, logged: float) -> Row:
    """An eighth of the records changed: the first changes that are not merged."""
    before = {*_live_files(life.db, directory)}
    life.db.admin.set_setting("history_store_flush_changes", str(life.records * 10))
    _change(life.db, range(1, life.records, 8), "not merged 1")
    life.moments["1"] = next(life.db.moments())
    life.db.history.flush()
    made = [path for path in {*_live_files(life.db, directory)} - before if "segment" in path.name]
    stored = sum(path.stat().st_size for path in made) / (life.records // 8)
    work = "megabytes of 1,000,000 changes in one segment"
    return Row(work, "their keys and records in the log", stored, logged, ("≤", 0.3), "MB")


def _compare_open_era(life: _Life, current: Path, size: str) -> list[Row]:
    """Changes that are not merged yet, and those that are in no file."""
    db, rows = life.db, list[Row]()
    for part in (1, 2):
        if part > 1:
            _change(db, range(part, life.records, 8), f"not merged {part}")
            life.moments[str(part)] = next(db.moments())
            db.history.flush()
        moment = life.moments[str(part)]
        rows.append(_compare_aggregate(db, current, f"{size}, {part}/8 not merged", moment))
    _change(db, range(0, life.records, life.records // TAIL), "behind the files")
    moment = next(db.moments())
    rows.append(_compare_aggregate(db, current, f"{size}, {TAIL:,} behind the files", moment))
    past = db.at(life.moments[next(iter(life.moments))])
    rows.append(_compare_aggregate(db, current, f"{size}, 0.1 % of them", past.moment, FEW))
    sql = take_turns(ROUNDS, lambda: past.sql(AGGREGATE), lambda: db.sql(AGGREGATE))
    rows.append(Row(f"past.sql of an aggregate: {size}", "db.sql of the present", *sql, ("≤", 1)))
    return rows


def _compare_aggregate(
    db: Database, current: Path, title: str, moment: Any, query: str = AGGREGATE
) -> Row:
    past = db.at(moment)
    duck = duckdb.connect(config={"threads": 1})
    duck.read_parquet(str(current)).create_view("people")
    then = duckdb.connect(config={"threads": 1})
    held = _open_columns(past, then)
    assert sorted(then.sql(query).fetchall()) == sorted(past.sql(query).fetchall())
    spent = spend_turns(
        ROUNDS * 2,
        None,
        lambda: then.sql(query).fetchall(),
        lambda: duck.sql(query).fetchall(),
    )
    del held
    seconds = (one.processor for one in spent)
    return Row(f"aggregate at a moment: {title}", "current rows in one file", *seconds, ("≤", 4))


def _open_columns(past: Any, duck: Any) -> list[Any]:
    """Make the view `people` of a moment in a DuckDB, as the process of a statement has it."""
    session = past._session
    columns = session.open_columns("people")
    with session.reading() as connection:
        select, files, sources = columns.offer(connection, ())
    for name, paths in files.items():
        duck.read_parquet(paths).create_view(name)
    held = []
    for name, source in sources.items():
        held.append(pyarrow.Table.from_batches(source.read(source.schema.names)))
        duck.register(name, held[-1])
    view = ", ".join(f"f{field.number} AS {field.name}" for field in columns.schema.fields)
    duck.execute(f"CREATE VIEW people AS SELECT {view} FROM ({select})")
    return held


# Writers and memory


def _compare_writers(bench: Bench) -> list[Row]:
    """Writers beside a process that follows and merges all the time, and without a store."""
    rows = []
    for engine in ENGINES:
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
            rows.append(Row(f"{what}: processor time", "no store", *spent, ("≤", 1 / 0.95)))
            rows.append(Row(what, "no store", *(one.wall for one in turns), None))
    return rows


def _write(db: Database) -> None:
    people, city = db.table("people"), f"city {time.perf_counter_ns()}"
    for number in range(WRITES):
        people.update(number, city=city)


def _compare_memory(bench: Bench) -> list[Row]:
    """One transaction that changes all records, taken into files and merged, and a query of it."""
    peaks = []
    counts = (bench.many // 20, bench.many * 3 // 10, bench.many)
    for count in counts:
        migrations = bench.migrations(f"past-memory-{count}", CREATE)
        address = bench.address("sqlite", f"past-memory-{count}")
        with opened(address, migrations) as db:
            db.admin.set_setting("change_log", "on")
            db.table("people").insert_many(make_people(0, count))
            db.history.start(bench.directory / f"past-memory-{count}")
            db.history.flush()
            db.table("people").where().update(city="elsewhere")
        command = [sys.executable, "-m", __name__, address, str(migrations.directory)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        peaks.append(json.loads(done.stdout)["peak_mb"])
    work = f"one transaction of {counts[2]:,} changes into files: peak memory"
    return [
        Row(work, f"of {counts[0]:,}", peaks[2], peaks[0], ("≤", 1.2), "MB"),
        Row(work, f"of {counts[1]:,}", peaks[2], peaks[1], ("≤", 1.1), "MB"),
    ]


def _flush(address: str, migrations: str) -> None:
    with zapdb.open(address, migrations=migrations) as db:
        db.history.flush()
        assert db.history.status().lag.changes == 0
        assert db.at(next(db.moments())).sql(AGGREGATE).fetchall()
    print(json.dumps({"peak_mb": _peak_mb()}))


# Rewinding


def _run(bench: Bench, engine: Engine) -> list[Row]:
    rows = []
    migrations = bench.migrations(f"past-{engine}", CREATE)
    server = bench.server_directory if engine == "postgresql" else None
    with opened(bench.address(engine, "past"), migrations) as db:
        db.admin.set_setting("change_log", "on")
        people = db.table("people")
        people.insert_many(make_people(0, RECORDS))
        for changed in CHANGED:
            moment = next(db.moments())
            _change(db, range(0, RECORDS, RECORDS // changed), f"elsewhere {changed}")
            past = db.at(moment).table("people")
            at = f"{TITLES[engine]}, {changed:,} of {RECORDS:,} records changed since"
            turns = spend_turns(ROUNDS, server, lambda p=past: _scan(p), lambda: _scan(people))
            seconds = [one.processor for one in turns]
            rows.append(Row(f"rewound scan, {at}", "scan", *seconds, ("≤", 1.5)))
            turns = spend_turns(ROUNDS, server, lambda p=past: _get(p), lambda: _get(people))
            seconds = [one.processor / GETS for one in turns]
            rows.append(Row(f"rewound get, {at}", "get", *seconds, ("≤", 3)))
    return rows


def _change(db: Database, numbers: Iterable[int], city: str) -> None:
    """Change records, some in each transaction."""
    left = iter(numbers)
    people = db.table("people")
    while some := list(itertools.islice(left, 100)):
        assert people.where(people.f.id.in_(some)).update(city=city) == len(some)


def _scan(table: ReadableTable) -> None:
    assert sum(1 for _ in table.scan()) == RECORDS


def _get(table: ReadableTable) -> None:
    for number in range(GETS):
        table.get(number)


if __name__ == "__main__":
    _flush(*sys.argv[1:])
