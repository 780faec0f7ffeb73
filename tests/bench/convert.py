"""Background conversion, against an UPDATE of the same bytes in the database.

The ratio to reach is that of the Spark runner on PostgreSQL; starting its session is not counted.
The local runner's are for information.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.bench.databases import TITLES, Bench, Engine, Migrations, opened
from tests.bench.measure import Reach, Row, time_turns
from tests.bench.people import CREATE, make_people
from zapdb.jobs import Runner, run_locally
from zapdb.storage import Storage, connect
from zapdb.storage.data_tables import record_table_name

SAME_BYTES = {
    "sqlite": "CAST(x'86' || substr(value, 2) AS BLOB)",
    "postgresql": r"'\x86'::bytea || substr(value, 2)",
}


def run(bench: Bench) -> list[Row]:
    fewer = bench.many // 10
    return [
        _run(bench, "sqlite", "the local runner", run_locally, fewer, 3, None),
        _run(bench, "postgresql", "the local runner", run_locally, fewer, 3, None),
    ]


def run_spark(bench: Bench) -> list[Row]:
    from zapdb.spark import run_on_spark, start_session

    session = start_session()
    try:
        # The first job starts the workers that execute Python.
        session.range(64).mapInArrow(lambda batches: batches, "id long").collect()
        return [_run(bench, "postgresql", "Spark", run_on_spark, bench.many, 1, ("≥", 0.4))]
    finally:
        session.stop()


def _run(
    bench: Bench,
    engine: Engine,
    title: str,
    runner: Runner,
    records: int,
    rounds: int,
    reach: Reach | None,
) -> Row:
    name = f"convert-{runner.__name__}-{engine}"
    migrations = bench.migrations(name, CREATE)
    address = bench.address(engine, name)
    with opened(address, migrations) as database:
        database.table("people").insert_many(make_people(0, records))
        number = database._catalog.table("people").schema.number

    def convert() -> float:
        _change(migrations)
        with opened(address, migrations) as database:
            started = time.perf_counter()
            reports = database.admin.run_jobs(runner)
            seconds = time.perf_counter() - started
        assert [report.progress.written for report in reports] == [records]
        return seconds

    storage = connect(address)
    update = _plain_update(storage, engine, number, records)
    ours, theirs = time_turns(rounds, convert, update, warm_up=False)
    storage.close()
    return Row(
        f"conversion by {title}, {TITLES[engine]}, {records:,} records",
        "UPDATE of the same bytes",
        records / ours,
        records / theirs,
        reach,
        "/s",
    )


def _plain_update(
    storage: Storage, engine: Engine, number: int, records: int
) -> Callable[[], float]:
    """An UPDATE of all records of a copy of the table."""
    connection = storage.connection()
    connection.run(storage.create_record_table_sql("plain"))
    connection.run(f"INSERT INTO plain SELECT * FROM {record_table_name(number)}")

    def update() -> float:
        started = time.perf_counter()
        assert connection.run(f"UPDATE plain SET value = {SAME_BYTES[engine]}") == records
        return time.perf_counter() - started

    return update


def _change(migrations: Migrations) -> None:
    """One string or one integer goes, another comes: the design's example, each time anew."""
    before, after = migrations.count - 1, migrations.count
    dropped = f"visits{before}" if before else "city"
    value = "0" if before else "''"
    migrations.add(
        f"drop_field: {{table: people, field: {dropped}, restore: {{value: {value}}}}}",
        f"add_field: {{table: people, field: {{name: visits{after}, type: integer, default: 0}}}}",
    )
