"""Processes are killed at random points, beside writers at full speed: nothing is lost or doubled.

`make crash` goes on for `CRASH_SECONDS`, on a standalone cluster and PostgreSQL, and on SQLite; the
seed that it prints makes it do the same again: `ZAPDB_CRASH_SEED=…`. The short form is one round.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.crash.world import VISITS_COUNT, Mirroring, World
from tests.crash.writers import writing
from tests.spark.cluster import Cluster, environment, running_cluster
from tests.support import GUARD_SECONDS, ROOT, PostgresServer, Workspace, wait_until
from zapdb.database import Database
from zapdb.jobs import list_jobs, read_progress
from zapdb.spark import run_on_spark
from zapdb.storage import TransactionMode

Begun = tuple[list[str], Callable[[], float]]
"""A command, and what measures how much of its work is done."""

SECONDS = float(os.environ.get("ZAPDB_CRASH_SECONDS", "0"))
SEED = int(os.environ.get("ZAPDB_CRASH_SEED", str(random.SystemRandom().randrange(10**6))))
DRIVE = Path(__file__).parent / "drive.py"
RUNS_MAX = 4
"""A run that lost its driver, or the database for longer than Spark repeats tasks, is run again."""
WORKS = ("convert", "write", "read", "import")
SPARK_VICTIMS = ("driver", "executor", "python", "worker", "backend", "mirror")
VICTIMS = {
    "convert": SPARK_VICTIMS,
    "write": SPARK_VICTIMS,
    "read": SPARK_VICTIMS[:-1],
    "import": ("driver", "backend", "mirror"),
}
ON_CLUSTERS = ("executor", "worker", "backend")
SPARK_REPEATS = ("executor", "python", "worker", "mirror")
"""What a run survives by itself, since Spark runs the tasks again that were lost."""


@dataclass
class Round:
    """Something goes on, and something of it is killed."""

    world: World
    mirror: Mirroring
    cluster: Cluster | None
    draw: random.Random
    log: Path
    runs: int = 0
    answer: Path | None = None
    """Where a run that reads says what it found."""
    told: list[str] = field(default_factory=list)

    def go(self, work: str, victim: str, finish: Callable[[], None] | None = None) -> None:
        """Run the work, kill the victim on the way, and run it until it is finished."""
        begin = {
            "convert": self.begin_convert,
            "write": self.begin_write,
            "read": self.begin_read,
        }
        share = self.draw.uniform(0.02, 0.8)
        with self.world.place.follow() as db:
            command, measure = begin.get(work, self.begin_import)(db)
            process = self.start(command)
            wait_until(lambda: measure() >= share or process.poll() is not None, "it is on the way")
            time.sleep(self.draw.random() / 5)
            is_late = process.poll() is not None
            assert not is_late or process.returncode == 0, self.log.read_text()
            db.admin.set_setting("job_records_per_second", None)
        self.told.append(f"{work}, {victim} killed at {share:.2f}{' (late)' * is_late}")
        self.kill(victim, process)
        while process.wait(GUARD_SECONDS) != 0:
            self.runs += 1
            may_fail = victim not in SPARK_REPEATS and self.runs < RUNS_MAX
            assert may_fail, f"{self.told[-1]}: {self.log.read_text()[-8_000:]}"
            if finish is not None:
                finish()
                break
            process = self.start(command)
        if self.answer is not None:
            assert self.answer.read_text() == str(self.world.visits)
        self.told[-1] += f", {self.runs + 1} runs"

    # What goes on

    def begin_convert(self, db: Database) -> Begun:
        # So that it is on the way for long enough.
        db.admin.set_setting("job_records_per_second", "1500")
        self.world.migrate()

        def measure() -> float:
            with db._storage.transaction(TransactionMode.READ) as connection:
                jobs = [job for job in list_jobs(connection) if job.kind == "convert"]
                written = sum(read_progress(connection, job.id).written for job in jobs)
            return written / len(self.world.sizes)

        return self.spark_command("convert"), measure

    def begin_write(self, db: Database) -> Begun:
        first, end = self.next_visits()
        return self.spark_command("write", str(first), str(end)), self.measure(db, first)

    def begin_read(self, _: Database) -> Begun:
        notes, answer = (self.world.directory / name for name in ("read", "answer"))
        notes.write_text("")
        self.answer = answer
        if not self.world.visits:
            self.world.add_visits(VISITS_COUNT)
        count = self.world.visits
        command = self.spark_command("read", str(notes), str(answer))
        return command, lambda: notes.stat().st_size / count

    def begin_import(self, db: Database) -> Begun:
        first, end = self.next_visits()
        path = self.world.directory / "visits.csv"
        rows = [self.world.visit(at).values() for at in range(first, end)]
        lines = [",".join(map(str, row)) for row in rows]
        path.write_text("\n".join(["number,town,note", *lines, ""]))
        command = [sys.executable, "-m", "zapdb", "import", str(path), "--table", "visits"]
        command += ["--batch", "200", "-d", self.world.place.address]
        return command, self.measure(db, first)

    def next_visits(self) -> tuple[int, int]:
        first = self.world.visits
        self.world.visits += VISITS_COUNT
        return first, self.world.visits

    def measure(self, db: Database, first: int) -> Callable[[], float]:
        """The share of visits that are there."""
        return lambda: (db.table("visits").count() - first) / VISITS_COUNT

    def spark_command(self, *arguments: str) -> list[str]:
        name, *rest = arguments
        address = self.world.place.address
        if self.cluster is None:
            return [sys.executable, str(DRIVE), name, address, "local[2,4]", *rest]
        return self.cluster.command(str(DRIVE), name, address, self.cluster.master, *rest)

    def start(self, command: list[str]) -> subprocess.Popen[bytes]:
        """In a group of its own, so that all of it can be killed."""
        around = {**environment(), "PYTHONPATH": str(ROOT)}
        with self.log.open("ab") as log:
            return subprocess.Popen(
                command, cwd=ROOT, env=around, stdout=log, stderr=log, start_new_session=True
            )

    # What is killed

    def kill(self, victim: str, process: subprocess.Popen[bytes]) -> None:
        match victim:
            case "driver":
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
            case "executor":
                self.kill_one(self.list_executors())
            case "python":
                parents = [process.pid] if self.cluster is None else self.list_executors()
                self.kill_one(list_python(parents))
            case "worker":
                self.kill_worker()
            case "backend":
                self.kill_backend()
            case _:
                self.mirror.kill()
                self.mirror.start()

    def kill_one(self, processes: list[int]) -> None:
        if processes:
            os.kill(self.draw.choice(processes), signal.SIGKILL)

    def list_executors(self) -> list[int]:
        assert self.cluster is not None
        return [c.pid for w in self.cluster.workers for c in psutil.Process(w.pid).children()]

    def kill_worker(self) -> None:
        """With its executors, as when a machine is gone; another one comes later."""
        assert self.cluster is not None
        worker = psutil.Process(self.draw.choice(self.cluster.workers).pid)
        for one in [worker, *worker.children(recursive=True)]:
            one.kill()
        self.cluster.start_workers()

    def kill_backend(self) -> None:
        """PostgreSQL ends all its connections, and starts anew."""
        find = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend'"
        pids = [row[0] for row in self.world.place.execute(find)]
        os.kill(self.draw.choice(pids), signal.SIGKILL)


def list_python(parents: list[int]) -> list[int]:
    """The processes of Python that run tasks: forked by a daemon of Spark's, which is left."""
    found = []
    for parent in parents:
        for one in psutil.Process(parent).children(recursive=True):
            command = one.cmdline()
            if "pyspark.daemon" in command and "pyspark.daemon" in one.parent().cmdline():
                found.append(one.pid)
    return found


def run_round(one: Round, number: int, work: str, victim: str, **options: Any) -> str:
    world = one.world
    notes = world.directory / f"notes{number}"
    with writing(world.place, notes, one.draw.randrange(1_000)) as writers:
        writers.wait_until_they_write()
        one.go(work, victim, **options)
        count = world.check_history(writers.end())
    with world.place.follow() as db:
        db.admin.run_jobs()  # records that were read and not written
    world.check()
    one.mirror.wait_until_equal()
    return f"{number}: {one.told[-1]}; {count} operations of writers"


@pytest.mark.parametrize("engine", ["postgresql"])
def test_a_killed_driver_loses_nothing(workspace, postgres, tmp_path, spark):
    """The short form: the next run goes on, in a session that is there already."""
    world = World(workspace, tmp_path, postgres)
    with world.mirroring() as mirror:
        one = Round(world, mirror, None, random.Random(SEED), tmp_path / "log")

        def finish() -> None:
            with workspace.follow() as db:
                db.admin.run_jobs(run_on_spark)

        print(f"seed {SEED}:", run_round(one, 1, "convert", "driver", finish=finish))


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """One of its own: it is killed."""
    with PostgresServer.start() as server:
        yield server


@pytest.mark.long
def test_crashes_on_a_cluster(server, tmp_path):
    directory = tmp_path / "migrations"
    directory.mkdir()
    with ExitStack() as stack:
        address = stack.enter_context(server.fresh_database())
        place = stack.enter_context(Workspace("postgresql", address, directory))
        cluster = stack.enter_context(running_cluster(tmp_path, PYTHONPATH=str(ROOT)))
        run_rounds(World(place, tmp_path, server), cluster, stack)


@pytest.mark.long
@pytest.mark.parametrize("engine", ["sqlite"])
def test_crashes_on_a_file(workspace, tmp_path):
    with ExitStack() as stack:
        run_rounds(World(workspace, tmp_path, None), None, stack)


def run_rounds(world: World, cluster: Cluster | None, stack: ExitStack) -> None:
    """Each work with each victim in turn, in an order of chance, for as long as there is time."""
    draw, number = random.Random(SEED), 0
    print(f"\nseed {SEED}")
    mirror = stack.enter_context(world.mirroring())
    deadline = time.monotonic() + SECONDS
    pairs = [
        (work, victim)
        for work in WORKS
        for victim in VICTIMS[work]
        if cluster is not None or victim not in ON_CLUSTERS
    ]
    while not number or time.monotonic() < deadline:
        if number % len(pairs) == 0:
            draw.shuffle(pairs)
        work, victim = pairs[number % len(pairs)]
        number += 1
        log = world.directory / f"log{number}"
        print(run_round(Round(world, mirror, cluster, draw, log), number, work, victim), flush=True)
