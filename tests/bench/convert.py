"""Background conversion, beside what it costs without zapdb.

The ratio to reach is that to bare compare-and-swaps of as many bytes by as many processes. Starting
Spark's session is not counted; planning and ending the job are. Each contestant has done one job
before, and processes that swap are connected: what the first job of a session takes, in which
Spark's processes load zapdb, is told apart. An UPDATE of the same bytes in the database is for
information, and so is the conversion of a table of which an index is made anew.
Processor time is that of all processes, the server's included: on a loaded machine it tells more.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tests.bench.databases import TITLES, Bench, Engine, Migrations, opened
from tests.bench.measure import Row
from tests.bench.people import CREATE, CREATE_INDEX, make_people
from tests.bench.processor import postmaster_of, tree_seconds
from tests.bench.swaps import BareSwaps
from zapdb.catalog import DEFAULT_TENANT
from zapdb.jobs.job_run import Runner, run_locally
from zapdb.storage import RecordStatements, Storage, connect

PLAIN = "plain"
FIRST_BYTE = {
    "sqlite": "CAST(x'{:02x}' || substr(value, 2) AS BLOB)",
    "postgresql": r"'\x{:02x}'::bytea || substr(value, 2)",
}
REACH = ("≥", 0.85)
SMALL = 10_000


@dataclass(frozen=True, slots=True)
class Cost:
    """What one way to change all records took, for each record."""

    seconds: float
    processor_seconds: float


def run(bench: Bench) -> list[Row]:
    rows = list[Row]()
    for engine in bench.engines:
        with _Table.make(bench, engine, "local", bench.many) as table:
            rows += _compare(table, "the local runner", run_locally)
        with _Table.make(bench, engine, "indexed", bench.many, CREATE_INDEX) as table:
            rows += _compare_indexed(table)
    return rows


def run_spark(bench: Bench) -> list[Row]:
    from tests.bench import spark
    from zapdb.spark import run_on_spark, start_session

    session = start_session()
    try:
        with _Table.make(bench, "postgresql", "spark", bench.many) as table:
            first = table.convert(run_on_spark)
            with table.bare_swaps() as swaps:
                bare = table.swap(swaps)
            return [
                *_compare(table, "Spark", run_on_spark),
                _rates("  the first job of a session", "the same", first, bare),
                _processor_times("the first job of a session", "the same", first, bare),
            ]
    finally:
        spark.end(session)


def run_growth(bench: Bench) -> list[Row]:
    """How the time of a record grows with the number of records."""
    rows = list[Row]()
    for engine in bench.engines:
        costs = {}
        for records in (SMALL, *bench.sizes):
            with _Table.make(bench, engine, f"growth-{records}", records) as table:
                costs[records] = _take_turns(3, lambda t=table: t.convert(run_locally))[0]
        small = costs.pop(SMALL)
        for records, cost in costs.items():
            work, against = f"a record of {records:,}, {TITLES[engine]}", f"one of {SMALL:,}"
            rows += [
                Row(f"{work}, converted", against, cost.seconds, small.seconds, None),
                Row(
                    f"  processor: {work}, converted",
                    against,
                    cost.processor_seconds,
                    small.processor_seconds,
                    None,
                ),
            ]
    return rows


class _Table:
    """A table of people that is converted again and again, and a plain one of the same bytes."""

    def __init__(self, bench: Bench, engine: Engine, migrations: Migrations, address: str) -> None:
        self.engine = engine
        self.records = 0
        self._migrations = migrations
        self._address = address
        self._watched = [os.getpid()]
        if engine == "postgresql":
            self._watched.append(postmaster_of(bench.server_directory))
        self._storage = connect(address)
        self._prefix = 0x90

    @classmethod
    @contextlib.contextmanager
    def make(
        cls, bench: Bench, engine: Engine, name: str, records: int, *changes: str
    ) -> Iterator[_Table]:
        migrations = bench.migrations(f"{name}-{engine}")
        migrations.add(CREATE, *changes)
        address = bench.address(engine, f"convert-{name}")
        with opened(address, migrations) as database:
            database.table("people").insert_many(make_people(0, records))
            number = database._catalog.table("people").schema.number
        table = cls(bench, engine, migrations, address)
        try:
            table.records = records
            table.convert(run_locally)  # from now on, no record's size changes
            table._copy(number)
            yield table
        finally:
            table._storage.close()

    def _copy(self, number: int) -> None:
        connection = self._storage.connection()
        self._records = RecordStatements(self._storage, number, DEFAULT_TENANT)
        connection.run(self._storage.dialect.create_record_table_sql(PLAIN))
        connection.run(f"INSERT INTO {PLAIN} SELECT * FROM {self._records.name}")

    # Contestants

    def convert(self, runner: Runner, *changes: str) -> Cost:
        _change(self._migrations, *changes)
        with opened(self._address, self._migrations) as database:

            def run() -> int:
                reports = database.admin.run_jobs(runner)
                return next(r.progress.written for r in reports if r.job.kind == "convert")

            return self._measure(run)

    def convert_indexed(self) -> Cost:
        at = self._migrations.count
        before = f"by_number{at - 1}" if at > 2 else "by_number"
        return self.convert(
            run_locally,
            f"drop_index: {{table: people, index: {before}}}",
            f"create_index: {{table: people, index: by_number{at}, fields: [{{field: number}}]}}",
        )

    def swap(self, swaps: BareSwaps) -> Cost:
        return self._measure(lambda: swaps.run(self._next_prefix()))

    def update(self) -> Cost:
        value = FIRST_BYTE[self.engine].format(self._next_prefix())
        connection = self._storage.connection()
        return self._measure(lambda: connection.run(f"UPDATE {PLAIN} SET value = {value}"))

    @contextlib.contextmanager
    def bare_swaps(self) -> Iterator[BareSwaps]:
        """As many processes as the runners have threads or executors."""
        processes = 1 if self.engine == "sqlite" else os.cpu_count() or 1
        _, keys = self._records.slice_keys(self._storage.connection(), self.records // processes)
        bounds = [None, *keys[: processes - 1], None]
        swaps = BareSwaps(self._address, PLAIN, bounds)
        try:
            swaps.run(self._next_prefix())
            yield swaps
        finally:
            swaps.close()

    def _next_prefix(self) -> int:
        self._prefix += 1
        return self._prefix

    def _measure(self, action: Callable[[], int]) -> Cost:
        """Every turn begins with a table that is tidied up."""
        _tidy(self._storage)
        spent, began = tree_seconds(*self._watched), time.perf_counter()
        assert action() == self.records
        seconds = time.perf_counter() - began
        spent = tree_seconds(*self._watched) - spent
        return Cost(seconds / self.records, spent / self.records)


def _tidy(storage: Storage) -> None:
    connection = storage.connection()
    if storage.dialect.name == "sqlite":
        connection.fetch_all("PRAGMA wal_checkpoint(TRUNCATE)")
    else:
        connection.run("VACUUM ANALYZE")
        connection.run("CHECKPOINT")


def _compare(table: _Table, title: str, runner: Runner) -> Sequence[Row]:
    with table.bare_swaps() as swaps:
        ours, bare, update = _take_turns(
            3, lambda: table.convert(runner), lambda: table.swap(swaps), table.update
        )
    work = f"conversion by {title}, {TITLES[table.engine]}, {table.records:,} records"
    processes = f"bare compare-and-swaps, {len(swaps.parts)} processes".replace(
        "1 processes", "1 process"
    )
    return [
        _rates(work, processes, ours, bare, REACH),
        _rates(work, "UPDATE of the same bytes", ours, update),
        _processor_times(work, processes, ours, bare),
        _processor_times(work, "UPDATE of the same bytes", ours, update),
    ]


def _compare_indexed(table: _Table) -> Sequence[Row]:
    with table.bare_swaps() as swaps:
        ours, bare = _take_turns(1, table.convert_indexed, lambda: table.swap(swaps))
    work = f"conversion, and an index made anew, {TITLES[table.engine]}, {table.records:,} records"
    return [
        _rates(work, "bare compare-and-swaps", ours, bare),
        _processor_times(work, "bare compare-and-swaps", ours, bare),
    ]


def _rates(
    work: str, against: str, ours: Cost, theirs: Cost, reach: tuple[str, float] | None = None
) -> Row:
    return Row(work, against, 1 / ours.seconds, 1 / theirs.seconds, reach, "/s")


def _processor_times(work: str, against: str, ours: Cost, theirs: Cost) -> Row:
    """Theirs by ours, as rates are."""
    return Row(
        f"  processor: {work}",
        against,
        1 / ours.processor_seconds,
        1 / theirs.processor_seconds,
        None,
        "/s",
    )


def _take_turns(rounds: int, *contestants: Callable[[], Cost]) -> list[Cost]:
    """The median costs of each; each round has all of them, in an order that rotates."""
    costs: list[list[Cost]] = [[] for _ in contestants]
    for number in range(rounds):
        for at in range(len(contestants)):
            turn = (at + number) % len(contestants)
            costs[turn].append(contestants[turn]())
    return [
        Cost(
            statistics.median(c.seconds for c in found),
            statistics.median(c.processor_seconds for c in found),
        )
        for found in costs
    ]


def _change(migrations: Migrations, *more: str) -> None:
    """One string or one integer goes, another comes: the design's example, each time anew."""
    before, after = migrations.count - 1, migrations.count
    dropped = f"visits{before}" if before else "city"
    value = "0" if before else "''"
    migrations.add(
        f"drop_field: {{table: people, field: {dropped}, restore: {{value: {value}}}}}",
        f"add_field: {{table: people, field: {{name: visits{after}, type: integer, default: 0}}}}",
        *more,
    )
