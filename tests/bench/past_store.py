"""Moments in a history store, against the present; and whether a history five or a hundred times as
long makes anything dearer.

The shorter history has as many changes as there are records: longer ones differ in nothing but
their length.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow
from pyarrow import parquet

import zapdb
from tests.bench.databases import TITLES, Bench, Engine, opened
from tests.bench.measure import Row, Unit, time_turns
from tests.bench.memory import peak_mb
from tests.bench.past_life import Life, change
from tests.bench.people import CREATE, make_people
from tests.bench.processor import spend, spend_tree, spend_turns
from zapdb.past.reading.listing import MomentSummary
from zapdb.sandbox.inside.statement import view_files
from zapdb.tables.table_reading import ReadableTable

ROUNDS = 5
GETS = 300
REPEATED = 20
TAIL = 1_000
MORE_SECONDS = 0.05
"""What a `get` from files may take longer than one of the present."""

AGGREGATE = "SELECT city, count(*), sum(balance), max(number) FROM people GROUP BY city"
FEW = "SELECT max(city) FROM people WHERE number < 1000"
"""Of some 1,000,000 numbers."""

DEAREST = "the dearest aggregate (× the current rows)"
MEMORY = "peak memory of following and querying"
GROWTH: dict[str, tuple[float, Unit]] = {DEAREST: (1.2, "×"), MEMORY: (1.1, "MB")}
"""What they may grow by, and their units; that of others, which are seconds, is of their noise."""
Prices = dict[str, float]
"""What may not grow with a history, by its name."""


def run_stored(bench: Bench) -> Iterator[Row]:
    for engine in bench.engines:
        yield from _run(bench, engine)


def _run(bench: Bench, engine: Engine) -> Iterator[Row]:
    small, large = bench.many // 10, bench.changes
    prices = dict[int, Prices]()
    for changes in sorted({small, large}):
        name = f"past-stored-{engine}-{changes}"
        migrations, address = bench.migrations(name, CREATE), bench.address(engine, name)
        with opened(address, migrations) as db:
            directory, server = bench.directory / name, bench.server_of(engine)
            life = Life(db, address, directory, server, small, changes * 4 // small)
            life.live()
            stored = _Stored(life, f"{changes:,} changes of {small:,} records, {TITLES[engine]}")
            yield from stored.compare(migrations.directory)
            prices[changes] = stored.prices
    for work, price in prices[large].items() if large > small else ():
        reach, unit = GROWTH.get(work, (1.5, "s"))
        title = f"{work}: {large:,} changes, {TITLES[engine]}"
        yield Row(title, f"{small:,} changes", price, prices[small][work], ("≤", reach), unit)


@dataclass
class _Stored:
    """What is compared of one life. The last comparisons prune the log and purge the store."""

    life: Life
    title: str
    prices: Prices = field(default_factory=Prices)

    def compare(self, migrations: Path) -> Iterator[Row]:
        life, prices = self.life, self.prices
        prices["a change"] = life.mean_of_last(life.writing)
        prices["following a change"] = life.mean_of_last(life.following)
        middle = len(life.moments) // 2
        aggregates = [
            self._compare_aggregate(f"part {at + 1} of {life.parts}", life.moments[at])
            for at in (0, middle, life.parts - 2, life.parts - 1)
        ]
        prices[DEAREST] = max(row.ratio for row in aggregates)
        yield from aggregates
        yield from self._compare_making()
        yield from self._compare_sizes()
        yield from self._compare_open_era()
        yield from self._compare_statements()
        prices[MEMORY] = self._measure_memory(migrations)
        yield from self._compare_files()
        yield self._compare_purge()

    def _compare_aggregate(self, at: str, moment: MomentSummary, query: str = AGGREGATE) -> Row:
        past = self.life.db.at(moment)
        duck = duckdb.connect(config={"threads": 1})
        duck.read_parquet(str(self.life.current)).create_view("people")
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
        title, seconds = f"aggregate: {self.title}, {at}", (one.processor for one in spent)
        return Row(title, "current rows in one file", *seconds, ("≤", 4))

    def _compare_making(self) -> Iterator[Row]:
        life = self.life
        following, reading = (life.mean_of_last(each) for each in (life.following, life.reading))
        work = f"following with merges, a change: {self.title}"
        yield Row(work, "reading it as an object", following, reading, ("≤", 0.5))
        work = f"baseline of {life.records:,} records: {self.title}"
        yield Row(work, "to_arrow into one file", life.baseline, life.copying, ("≤", 1.5))

    def _compare_sizes(self) -> Iterator[Row]:
        """Bytes of a change; and of an eighth of the records, of which changes are not merged."""
        life, logged = self.life, self.life.measure_logged()
        before = {*life.list_files()}
        stored = _size(before) / (life.changes + life.records)
        work, against = f"1,000,000 changes in files: {self.title}", "their records in the log"
        yield Row(work, against, stored, logged, ("≤", 0.5), "MB")
        life.db.admin.set_setting("history_store_flush_changes", str(life.records * 10))
        self._change_eighth(1)
        made = [path for path in {*life.list_files()} - before if "segment" in path.name]
        segment = _size(made) / (life.records // 8)
        yield Row(f"{work}, one segment", against, segment, logged, ("≤", 0.3), "MB")

    def _change_eighth(self, number: int) -> None:
        change(self.life.db, range(number, self.life.records, 8), f"not merged {number}")
        self.life.db.history.flush()

    def _compare_open_era(self) -> Iterator[Row]:
        """Changes that are not merged yet, and those that are in no file."""
        db = self.life.db
        yield self._compare_aggregate("1/8 not merged", next(db.moments()))
        self._change_eighth(2)
        yield self._compare_aggregate("2/8 not merged", next(db.moments()))
        change(db, range(0, self.life.records, self.life.records // TAIL), "behind the files")
        yield self._compare_aggregate(f"{TAIL:,} behind the files", next(db.moments()))
        yield self._compare_aggregate("0.1 % of them", self.life.moments[0], FEW)

    def _compare_statements(self) -> Iterator[Row]:
        """What is asked of the log, of the manifest, and by a process of its own."""
        life, db = self.life, self.life.db
        past = db.at(life.moments[0])
        ask = partial(spend_tree, life.server)
        turns = time_turns(
            ROUNDS, lambda: ask(lambda: past.sql(AGGREGATE)), lambda: ask(lambda: db.sql(AGGREGATE))
        )
        yield Row(f"past.sql of it: {self.title}", "db.sql of the present", *turns, ("≤", 1))
        middle = life.moments[len(life.moments) // 2]
        works = {
            "db.at(moment) of the middle": lambda: db.at(middle.number),
            "db.at(time) of the middle": lambda: db.at(middle.visible_at),
            "100 moments": lambda: list(zip(db.moments(), range(100), strict=False)),
            "db.history.status()": db.history.status,
        }
        spent = spend_turns(
            ROUNDS, life.server, *(partial(_repeat, each) for each in works.values())
        )
        for name, one in zip(works, spent, strict=True):
            self.prices[name] = one.processor / REPEATED

    def _measure_memory(self, migrations: Path) -> float:
        change(self.life.db, range(3, self.life.records, 4), "by another process")
        return _flush_apart(self.life.address, migrations)

    def _compare_files(self) -> Iterator[Row]:
        """Records from the files, when the log has been pruned."""
        life, db = self.life, self.life.db
        count = life.changes + life.records
        pruned = spend(life.server, lambda: db.change_log.prune(db.change_log.end())).processor
        self.prices["pruning a change from the log"] = pruned / count
        now, works = db.table("people"), dict[str, list[float]]()
        for at in (life.moments[0], life.moments[-1]):
            then = db.at(at).table("people")
            assert then.get(1) != now.get(1)
            turns = spend_turns(
                ROUNDS, life.server, lambda then=then: _get(then), lambda: _get(now)
            )
            works.setdefault("get", []).append((turns[0].processor - turns[1].processor) / GETS)
            turns = spend_turns(
                ROUNDS, life.server, lambda then=then: _scan(then), lambda: _scan(now)
            )
            yield Row(f"scan from files: {self.title}", "scan", *(t.processor for t in turns), None)
        self.prices["a get from files"] = more = max(works["get"])
        work = f"a get from files, beyond a get: {self.title}"
        yield Row(work, "50 ms", more, MORE_SECONDS, ("≤", 1))

    def _compare_purge(self) -> Row:
        life = self.life
        middle = life.moments[len(life.moments) // 2]
        written = life.directory / "written.parquet"
        rewrite = spend(None, lambda: _rewrite(life.list_files(), written)).client
        purge = spend(life.server, lambda: life.db.history.purge(middle)).processor
        work = f"purge of half the history: {self.title}"
        return Row(work, "writing its files anew", purge, rewrite, ("≤", 0.01))


def _repeat(work: Callable[[], object]) -> None:
    for _ in range(REPEATED):
        work()


def _scan(table: ReadableTable) -> None:
    for _ in table.scan():
        pass


def _get(table: ReadableTable) -> None:
    for number in range(GETS):
        table.get(number)


def _size(paths: Iterable[Path]) -> int:
    return sum(path.stat().st_size for path in paths)


def _rewrite(paths: Iterable[Path], written: Path) -> None:
    for path in paths:
        parquet.write_table(parquet.read_table(path), written, compression="zstd")


def _open_columns(past: Any, duck: Any) -> list[Any]:
    """Make the view `people` of a moment in a DuckDB, as the process of a statement has it."""
    session = past._session
    columns = session.open_columns("people")
    with session.reading() as connection:
        select, files, sources = columns.offer(connection, ())
    for name, held in files.items():
        view_files(duck, name, *held)
    tails = []
    for name, source in sources.items():
        tails.append(pyarrow.Table.from_batches(source.read(source.schema.names)))
        duck.register(name, tails[-1])
    view = ", ".join(f"f{field.number} AS {field.name}" for field in columns.schema.fields)
    duck.execute(f"CREATE VIEW people AS SELECT {view} FROM ({select})")
    return tails


# Memory


def run_memory(bench: Bench) -> list[Row]:
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
        peaks.append(_flush_apart(address, migrations.directory))
    work = f"one transaction of {counts[2]:,} changes into files: peak memory"
    return [
        Row(work, f"of {counts[0]:,}", peaks[2], peaks[0], ("≤", 1.2), "MB"),
        Row(work, f"of {counts[1]:,}", peaks[2], peaks[1], ("≤", 1.1), "MB"),
    ]


def _flush_apart(address: str, migrations: Path) -> float:
    """The peak megabytes of a process that takes the changes into files and asks for their end."""
    command = [sys.executable, "-m", __name__, address, str(migrations)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(json.loads(done.stdout)["peak_mb"])


def _flush(address: str, migrations: str) -> None:
    with zapdb.open(address, migrations=migrations) as db:
        db.history.flush()
        assert db.history.status().lag.changes == 0
        assert db.at(next(db.moments())).sql(AGGREGATE).fetchall()
    print(json.dumps({"peak_mb": peak_mb()}))


if __name__ == "__main__":
    _flush(*sys.argv[1:])
