"""The memory of a job, a scan, a query and a stream does not depend on the table's size.

Each is measured in a process of its own, which says how far its memory rose above what it was
before the work began.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

import zapdb
from tests.bench.databases import TITLES, Bench, Engine, opened
from tests.bench.measure import Row
from tests.bench.people import CREATE, CREATE_INDEX, DROP_ONE_ADD_ONE, make_people

TENTH = 10


def run(bench: Bench) -> list[Row]:
    return [row for engine in bench.engines for row in _compare(bench, engine)]


def _compare(bench: Bench, engine: Engine) -> list[Row]:
    large = bench.sizes[-1]
    small = bench.many // TENTH
    peaks = {count: _measure(bench, engine, count) for count in (small, large)}
    return [
        Row(
            f"{work}: peak memory, {large:,} records, {TITLES[engine]}",
            f"{small:,} records",
            peaks[large][at],
            peaks[small][at],
            ("≤", 1.1),
            "MB",
        )
        for at, work in enumerate(
            (
                "full scan",
                "query in the order of an index",
                "stream of Arrow batches",
                "conversion by jobs",
            )
        )
    ]


def _measure(bench: Bench, engine: Engine, count: int) -> list[float]:
    """Peak megabytes of processes that scan, query, stream, and convert."""
    migrations = bench.migrations(f"memory-{engine}-{count}")
    migrations.add(CREATE, CREATE_INDEX)
    address = bench.address(engine, f"memory-{count}")
    with opened(address, migrations) as database:
        database.table("people").insert_many(make_people(0, count))
    migrations.add(*DROP_ONE_ADD_ONE)
    peaks = []
    for work in ("scan", "query", "arrow", "convert"):
        command = [sys.executable, "-m", __name__, work, address, str(migrations.directory)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        reported = json.loads(done.stdout)
        assert reported["records"] == count
        peaks.append(reported["peak_mb"])
    return peaks


def _work(work: str, address: str, migrations: str) -> None:
    with zapdb.open(address, migrations=migrations, apply="auto") as database:
        if work == "scan":
            records = sum(1 for _ in database.table("people").scan())
        elif work == "query":
            people = database.table("people")
            query = people.where(people.f.number >= 0).order_by("-number")
            assert query.explain().sorting != "all"
            records = sum(1 for _ in query)
        elif work == "arrow":
            records = sum(batch.num_rows for batch in database.table("people").to_arrow())
        else:
            (report,) = database.admin.run_jobs()
            records = report.progress.written
    print(json.dumps({"records": records, "peak_mb": peak_mb()}))


def peak_mb() -> float:
    """Of this process alone: on Linux `getrusage` counts what its parent had when it forked."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(x for x in status.read_text().splitlines() if x.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1024**2 if sys.platform == "darwin" else 1024)


if __name__ == "__main__":
    _work(*sys.argv[1:])
