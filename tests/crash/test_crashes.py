"""Processes are killed at random points, beside writers at full speed: nothing is lost or doubled.

`make crash` goes on for `CRASH_SECONDS`, on a standalone cluster and PostgreSQL, and on SQLite; the
seed that it prints makes it do the same again: `ZAPDB_CRASH_SEED=…`, and `ZAPDB_CRASH_PAIRS=
"write:worker read:python"` leaves the other rounds out. The short form is one round.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

from tests import processes
from tests.crash.world import VISITS_COUNT, Mirroring, World
from tests.crash.writers import Writers, writing
from tests.spark.cluster import Cluster, environment, running_cluster
from tests.support import GUARD_SECONDS, ROOT, PostgresServer, Workspace, wait_until
from zapdb.activation.rollback import roll_back
from zapdb.database import Database
from zapdb.jobs import list_jobs, read_progress
from zapdb.spark import run_on_spark
from zapdb.storage import TransactionMode

SECONDS = float(os.environ.get("ZAPDB_CRASH_SECONDS", "0"))
SEED = int(os.environ.get("ZAPDB_CRASH_SEED", str(random.SystemRandom().randrange(10**6))))
PAIRS = os.environ.get("ZAPDB_CRASH_PAIRS", "").split()
DRIVE = Path(__file__).parent / "drive.py"
RUNS_MAX = 4
"""A run that lost its driver, or the database for longer than Spark repeats tasks, is run again."""
WORKS = ("convert", "roll_back", "write", "read", "import")
SPARK_VICTIMS = ("driver", "executor", "python", "worker", "backend", "mirror")
VICTIMS = {
    "convert": (*SPARK_VICTIMS, "pause"),
    "roll_back": (*SPARK_VICTIMS, "pause"),
    "write": SPARK_VICTIMS,
    "read": SPARK_VICTIMS[:-1],
    "import": ("driver", "backend", "mirror"),
}
ON_CLUSTERS = ("executor", "worker", "backend")
SPARK_REPEATS = ("executor", "python", "worker", "mirror")
"""What a run survives by itself, since Spark runs the tasks again that were lost."""
RATE = 1_500
"""Records a second of a job that something is killed of."""
STANDS_STILL = 20
"""So many looks without progress show that nobody works any more."""
LOOK_SECONDS = 0.05
"""How often it is looked how much is done; it costs the database more than a moment."""


@dataclass
class Begun:
    """A command, what measures how much of its work is done, and what knows that it is at its end:
    a process may be killed after its work, and before it has ended."""

    command: list[str]
    measure: Callable[[], float]
    is_over: Callable[[], bool] = lambda: False


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
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def go(
        self, work: str, victim: str, writers: Writers, finish: Callable[[], None] | None = None
    ) -> None:
        """Run the work, kill the victim on the way, and run it until it is finished.

        Writers begin once there is something done: starting Spark beside them takes a minute.
        """
        begin = {
            "convert": self.begin_convert,
            "roll_back": self.begin_roll_back,
            "write": self.begin_write,
            "read": self.begin_read,
        }
        share = self.draw.uniform(0.02, 0.8)
        writers.wait_until_open()
        with self.world.place.follow() as db:
            begun = begin.get(work, self.begin_import)(db)
            process = self.start(begun.command)

            def wait(holds: Callable[[], bool], what: str) -> None:
                wait_until(lambda: holds() or process.poll() is not None, what, LOOK_SECONDS)

            wait(lambda: begun.measure() > 0, "it has begun")
            writers.begin()
            wait(lambda: begun.measure() >= share, "it is on the way")
            time.sleep(self.draw.random() / 5)
            is_late = process.poll() is not None
            assert not is_late or process.returncode == 0, self.log.read_text()
            db.admin.set_setting("job_records_per_second", None)
            self.told.append(f"{work}, {victim} killed at {share:.2f}{' (late)' * is_late}")
            self.kill(victim, process)
        while process.wait(GUARD_SECONDS) != 0:
            if begun.is_over():
                self.told[-1] += " (after its work)"
                break
            self.runs += 1
            may_fail = victim not in SPARK_REPEATS and self.runs < RUNS_MAX
            assert may_fail, f"{self.told[-1]}: {self.log.read_text()[-8_000:]}"
            if finish is not None:
                finish()
                break
            process = self.start(begun.command)
        if self.answer is not None:
            assert self.answer.read_text() == str(self.world.visits)
        self.told[-1] += f", {self.runs + 1} runs"

    # What goes on

    def begin_convert(self, db: Database) -> Begun:
        # So that it is on the way for long enough.
        db.admin.set_setting("job_records_per_second", str(RATE))
        measure = self.measure_jobs(db, "convert")
        self.world.migrate()
        return Begun(self.spark_command("convert"), measure)

    def begin_roll_back(self, db: Database) -> Begun:
        """Convert back what a migration has just converted."""
        self.world.migrate_for_now()
        db.admin.run_jobs()
        db.admin.set_setting("job_records_per_second", str(RATE))
        measure = self.measure_jobs(db, "convert")
        roll_back(self.world.place.control, to=self.world.position)
        return Begun(self.spark_command("convert"), measure)

    def measure_jobs(self, db: Database, kind: str) -> Callable[[], float]:
        """The share of items that these jobs have written; those of earlier rounds don't count."""
        with db._storage.transaction(TransactionMode.READ) as connection:
            begun_at = db._storage.now_us(connection)

        def measure() -> float:
            with db._storage.transaction(TransactionMode.READ) as connection:
                jobs = [job for job in list_jobs(connection) if job.kind == kind]
                new = [job.id for job in jobs if job.created_at >= begun_at]
                written = sum(read_progress(connection, job).written for job in new)
            return written / len(self.world.sizes)

        return measure

    def begin_write(self, db: Database) -> Begun:
        first, end = self.next_visits()
        command = self.spark_command("write", str(first), str(end))
        return Begun(command, self.measure(db, first))

    def begin_read(self, _: Database) -> Begun:
        notes, answer = (self.world.directory / name for name in ("read", "answer"))
        notes.write_text("")
        self.answer = answer
        if not self.world.visits:
            self.world.add_visits(VISITS_COUNT)
        count = self.world.visits
        command = self.spark_command("read", str(notes), str(answer))
        return Begun(command, lambda: notes.stat().st_size / count)

    def begin_import(self, db: Database) -> Begun:
        first, end = self.next_visits()
        path = self.world.directory / "visits.csv"
        rows = [self.world.visit(at).values() for at in range(first, end)]
        lines = [",".join(map(str, row)) for row in rows]
        path.write_text("\n".join(["number,town,note", *lines, ""]))
        command = [sys.executable, "-m", "zapdb", "import", str(path), "--table", "visits"]
        command += ["--batch", "4", "-d", self.world.place.address]
        return Begun(command, self.measure(db, first), self.is_imported)

    def is_imported(self) -> bool:
        with (
            self.world.place.follow() as db,
            db._storage.transaction(TransactionMode.READ) as connection,
        ):
            jobs = list_jobs(connection)
        return any(job.kind == "import" and job.state == "done" for job in jobs)

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
        if self.cluster is None:
            around |= processes.environment_of_spark()
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                command, cwd=ROOT, env=around, stdout=log, stderr=log, start_new_session=True
            )
        self.started.append(process)
        return process

    def end(self) -> None:
        """Kill what a round that failed has left."""
        for process in self.started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

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
            case "pause":
                self.pause_and_kill(process)
            case _:
                self.mirror.kill()
                self.mirror.start()

    def pause_and_kill(self, process: subprocess.Popen[bytes]) -> None:
        """Nobody goes on with a paused job, however often it is begun, nor with a killed one."""
        with self.world.place.follow() as db:
            jobs = [job.id for job in db.jobs.list() if job.state == "planned"]
            for job in jobs:
                db.jobs.pause(job)
            self.kill("driver", process)
            done, stands = self.count_done(db, jobs), 0
            while stands < STANDS_STILL:  # executors end their present batches
                time.sleep(LOOK_SECONDS)
                before, done = done, self.count_done(db, jobs)
                stands = stands + 1 if done == before else 0
            db.admin.run_jobs()
            assert self.count_done(db, jobs) == done
            for job in jobs:
                db.jobs.resume(job)

    def count_done(self, db: Database, jobs: list[str]) -> list[int]:
        with db._storage.transaction(TransactionMode.READ) as connection:
            return [read_progress(connection, job).read for job in jobs]

    def kill_one(self, processes: list[int]) -> None:
        if not processes:
            self.told[-1] += " (none was there)"
            return
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
        """PostgreSQL ends all its connections, and starts anew; returns when it has."""
        before = self.list_backends()
        os.kill(self.draw.choice(before), signal.SIGKILL)

        def is_back() -> bool:
            try:
                return not {*self.list_backends()} & {*before}
            except psycopg.OperationalError:
                return False

        wait_until(is_back, "the server is back", LOOK_SECONDS)

    def list_backends(self) -> list[int]:
        """Those of the world's own server, but for the one that answers."""
        assert self.world.server is not None
        find = "backend_type = 'client backend' AND pid <> pg_backend_pid()"
        found = self.world.server.execute(f"SELECT pid FROM pg_stat_activity WHERE {find}")
        return [row[0] for row in found]


def list_python(parents: list[int]) -> list[int]:
    """The processes of Python that run tasks: forked by a daemon of Spark's, which is left."""
    found = []
    for parent in parents:
        for one in psutil.Process(parent).children(recursive=True):
            with suppress(psutil.Error):  # it has just ended
                daemon = one.parent()
                is_task = daemon is not None and "pyspark.daemon" in daemon.cmdline()
                if is_task and "pyspark.daemon" in one.cmdline():
                    found.append(one.pid)
    return found


def run_round(one: Round, number: int, work: str, victim: str, **options: Any) -> str:
    world = one.world
    notes = world.directory / f"notes{number}"
    with writing(world.place, notes, one.draw.randrange(1_000)) as writers:
        # A table that is converted grows faster than that, and with it the indexes that are built.
        growth = world.growing(number) if work == "convert" else nullcontext()
        with growth, ExitStack() as stack:
            stack.callback(one.end)
            one.go(work, victim, writers, **options)
        count = world.check_history(writers.end())
    if work == "convert":
        one.told[-1] += f", {len(world.grown)} items more"
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
        if (cluster is not None or victim not in ON_CLUSTERS)
        and (not PAIRS or f"{work}:{victim}" in PAIRS)
    ]
    while not number or time.monotonic() < deadline:
        if number % len(pairs) == 0:
            draw.shuffle(pairs)
        work, victim = pairs[number % len(pairs)]
        number += 1
        log = world.directory / f"log{number}"
        print(run_round(Round(world, mirror, cluster, draw, log), number, work, victim), flush=True)
