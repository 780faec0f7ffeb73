"""Imports, exports and mirrors under an operator's hand: one row of the table of jobs each."""

from __future__ import annotations

import re
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pandas
import pytest

from tests import processes
from tests.contract.tables import ADD_COLOR, ITEMS
from tests.support import GUARD_SECONDS, ROOT, Workspace, finish, wait_until
from zapdb.catalog import principal
from zapdb.catalog.cluster.leases import Owner
from zapdb.cli.program import run_program
from zapdb.database import Database
from zapdb.errors import LeaseHeld, LeaseLost
from zapdb.imports import Checkpoint
from zapdb.jobs import plan_jobs
from zapdb.jobs.exclusive import ExclusiveWork, _plan, working_on
from zapdb.jobs.job import claim, give_back
from zapdb.storage import TransactionMode
from zapdb.transfer.mirror.keeping import keep_mirror

EXPORT = ExclusiveWork("export", 1, "/somewhere")
COUNT = 1_500

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def db(workspace: Workspace) -> Iterator[Database]:
    workspace.write(1, ITEMS)
    with workspace.open() as opened:
        yield opened


@pytest.fixture
def start(workspace: Workspace) -> Iterator[Start]:
    """Starts a command of `zapdb` as a process of its own."""
    begun: list[subprocess.Popen[str]] = []

    def start_one(*words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "zapdb", *words, "-d", workspace.address]
        pipe = subprocess.PIPE
        begun.append(processes.Popen(command, cwd=ROOT, stdout=pipe, stderr=pipe, text=True))
        return begun[-1]

    yield start_one
    for process in begun:
        process.kill()
        process.communicate()


def work(db: Database, about: ExclusiveWork, told: list[str], batches: list[int]) -> None:
    """Counts a batch of ten records again and again, until the third one after it waited."""
    with working_on(db._storage, about, told.append) as job:
        while not told or len(batches) < 3:
            job.note(10)
            batches.append(time.monotonic_ns())
            time.sleep(0.01)


def test_rule_17_a_paused_job_waits_and_goes_on(
    db: Database, workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    told, batches = list[str](), list[int]()
    run = threading.Thread(target=work, args=(db, EXPORT, told, batches))
    run.start()
    wait_until(lambda: batches, "it has begun")
    assert db.jobs.pause("export").subject == "/somewhere"
    wait_until(lambda: told, "it waits")
    assert told[0].startswith("paused by ")
    with principal.acting_as("ada"):
        db.jobs.throttle("export", records_per_second=1_000_000)
    status = db.jobs.get("export")
    assert (status.waits[0], status.job.changed_by) == (told[0], "ada")
    before = len(batches)
    time.sleep(0.3)
    assert len(batches) == before
    status = db.jobs.get("export")
    assert (len(status.open_ranges), status.open_ranges[0].is_held) == (1, True)
    with pytest.raises(LeaseHeld, match="another process is at work on the same export"):
        work(db, EXPORT, [], [])
    db.jobs.resume("export")
    finish(run)
    (job,) = db.jobs.list()
    assert job.state == "done"
    assert db.jobs.get(job.id).progress.read >= 10 * len(batches)
    with working_on(db._storage, ExclusiveWork("export", 1, "/elsewhere"), told.append):
        assert [job.subject for job in db.jobs.list()] == ["/elsewhere"]
        for command in (["list"], ["show", "export", "--measure", "0"]):
            assert run_program(["jobs", *command, "-d", workspace.address]) == 0
            assert re.search(r" running\b", capsys.readouterr().out)


def test_rule_09_a_starved_thread_notes_nothing_twice_and_nothing_afterwards(db: Database) -> None:
    """What it does after its COMMIT, or at all, may come when the job has ended."""
    with working_on(db._storage, EXPORT, print) as job:
        job.expect(15)
        job.note(10, 10)
        job._save()
        job._noted = 0, 0, ""  # as the thread has it until it goes on
    with pytest.raises(LeaseLost):
        job._save()
    (status,) = [db.jobs.get(one.id) for one in db.jobs.list()]
    assert (status.job.state, status.progress.read, status.open_ranges) == ("done", 10, ())
    assert status.reads == 10, "what was estimated before is known"


@pytest.mark.parametrize("engine", ["sqlite"])
def test_a_less_urgent_import_waits_for_a_job_that_runs(workspace: Workspace, db: Database) -> None:
    db.table("items").insert(id=1, title="a")
    db.close()
    workspace.write(2, ADD_COLOR)
    with workspace.open() as db:
        (convert,) = plan_jobs(db._storage, 1)
        claimed = claim(db._storage, convert.id, Owner.here())
        assert claimed is not None
        about, told = ExclusiveWork("import", 1, "a.csv"), list[str]()

        def end_the_other(reason: str) -> None:
            told.append(reason)
            give_back(db._storage, claimed)

        with working_on(db._storage, about, end_the_other) as job:
            db.jobs.set_priority("import", 100)
            wait_until(lambda: job.note(1) or told, "it has waited")
        assert told[0] == f"{convert.id} comes first"
        with working_on(db._storage, about, told.append):
            pass
        assert db.admin.run_jobs() != []
        (found,) = [job for job in db.jobs.list() if job.kind == "import"]
        assert (found.state, found.priority) == ("done", 100)


@pytest.mark.long_on("postgresql")
def test_an_import_is_paused_cancelled_and_killed_and_imports_each_row_once(
    db: Database, start: Start, tmp_path: Path
) -> None:
    source = tmp_path / "items.ndjson"
    source.write_text('{"id": "x"}\n')
    words = ("import", str(source), "--table", "items", "--batch", "50")
    assert end_of(start(*words))[0] != 0
    source.write_text("".join(f'{{"id": {n}, "title": "t"}}\n' for n in range(COUNT)))
    job = db.jobs.throttle("import", records_per_second=40)
    assert job.state == "planned"

    first = start(*words)
    wait_until(lambda: progress(db) > 0, "it has begun")
    db.jobs.pause(job.id)
    wait_until(lambda: count(db) == pause_at(db), "it stands")
    assert first.poll() is None
    db.jobs.cancel(job.id)
    status, err = end_of(first)
    assert status == 1
    assert "the import was cancelled" in err
    assert "`zapdb import`, run again, goes on where it stopped" in err
    done = count(db)
    assert 0 < done < COUNT

    second = start(*words)
    wait_until(lambda: count(db) > done, "it goes on")
    second.send_signal(signal.SIGKILL)
    second.communicate()
    db.jobs.throttle(job.id)
    status, err = end_of(start(*words))
    assert (status, count(db)) == (0, COUNT), err
    assert [found.state for found in db.jobs.list()] == ["done"]


def progress(db: Database) -> int:
    return db.jobs.get("import").progress.read


def count(db: Database) -> int:
    return db.table("items").count()


def pause_at(db: Database) -> int:
    """How many records there are once none came for longer than a batch takes."""
    time.sleep(0.6)
    return count(db)


def end_of(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, err = process.communicate(timeout=GUARD_SECONDS)
    return process.returncode, err


def test_rule_09_an_import_that_was_suspended_writes_nothing_into_a_later_one(
    db: Database,
) -> None:
    """Another process has ended it and taken its row away, and a third one imports once more."""
    storage, name = db._storage, "import/1/1/of-a-source"
    suspended = Checkpoint.claim(storage, name, "a source", anew=False)
    suspended.release()
    Checkpoint.claim(storage, name, "a source", anew=False).forget()
    running = Checkpoint.claim(storage, name, "a source", anew=False)
    with pytest.raises(LeaseLost), storage.transaction(TransactionMode.JOB) as connection:
        suspended.save(connection, {}, 1, 1)
    with storage.transaction(TransactionMode.JOB) as connection:
        running.save(connection, {}, 1, 1)


@pytest.mark.parametrize("engine", ["sqlite"])
def test_a_mirror_waits_and_ends_as_the_operator_says(
    db: Database, start: Start, tmp_path: Path
) -> None:
    db.table("items").insert(id=1, title="a")
    target = f"sqlite:///{tmp_path / 'mirror.db'}"
    process = start("mirror", "run", "--to", target)
    wait_until(lambda: kinds(db) == ["mirror"] and progress_of_mirror(db) is not None, "it runs")
    wait_until(lambda: mirrored(tmp_path) == 1, "it has copied what was there")
    db.jobs.pause("mirror")
    assert process.stderr is not None
    assert any(line.startswith("waiting: paused by ") for line in process.stderr)
    db.table("items").insert(id=2, title="b")
    time.sleep(0.8)
    assert mirrored(tmp_path) == 1
    db.jobs.resume("mirror")
    wait_until(lambda: mirrored(tmp_path) == 2, "it goes on")
    db.jobs.cancel("mirror")
    status, err = end_of(process)
    assert (status, "the mirror was cancelled" in err) == (1, True)
    status, err = end_of(start("mirror", "run", "--to", target, "--engine", "spark"))
    assert (status, "`zapdb mirror run` does not run on Spark" in err) == (2, True)
    assert end_of(start("mirror", "run", "--to", target, "--once"))[0] == 0
    assert [job.state for job in db.jobs.list()] == ["done"]


def test_a_killed_import_of_a_frame_says_what_to_do_and_goes_with_the_next(
    workspace: Workspace, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zapdb.imports.arrow_rows.IMPORT_BLOCK_RECORDS", 10)
    about = ExclusiveWork("import", 1, "the frame", 1, "items", is_resumable=False)
    file = ExclusiveWork("import", 1, "a.csv", 1, "items")
    for one in (about, file):  # a process that was killed has neither ended its job nor its range
        _plan(db._storage, one)
        assert claim(db._storage, one.job_id, Owner.here()) is not None
    held = {job.subject: db.jobs.get(job.id).waits for job in db.jobs.list()}
    assert held == {"the frame": (), "a.csv": ()}
    db.table("items").import_from(pandas.DataFrame({"id": range(30), "title": "t"}))
    assert len(db.jobs.list()) == 3  # it may be alive
    workspace.execute("UPDATE zapdb_ranges SET expires_at = 1")
    (waits,) = db.jobs.get(about.job_id).waits
    assert waits.startswith("interrupted: its process ended, and nobody else has its rows; import")
    (waits,) = db.jobs.get(file.job_id).waits
    assert (
        waits
        == "interrupted: its process ended; `zapdb import`, run again, goes on where it stopped"
    )
    db.table("items").import_from(pandas.DataFrame({"id": range(30, 60), "title": "t"}))
    assert [job.subject for job in db.jobs.list() if job.state == "planned"] == ["a.csv"]
    with working_on(db._storage, file, [].append):
        pass
    assert [job.subject for job in db.jobs.list()][-1:] == ["a.csv"]


def kinds(db: Database) -> list[str]:
    return [job.kind for job in db.jobs.list()]


def progress_of_mirror(db: Database) -> Any:
    return next(iter(db.jobs.get("mirror").open_ranges), None)


def mirrored(place: Path) -> int:
    with closing(sqlite3.connect(place / "mirror.db")) as connection:
        try:
            return int(connection.execute("SELECT count(*) FROM items").fetchone()[0])
        except sqlite3.OperationalError:
            return 0


@pytest.mark.parametrize("engine", ["sqlite"])
def test_a_mirror_that_waits_for_its_target_says_so_in_its_job(
    db: Database,
) -> None:
    address, stop = "postgresql://postgres@127.0.0.1:1/x?schema=reporting", threading.Event()

    def waits() -> tuple[str, ...]:
        jobs = db.jobs.list(kind="mirror")
        return db.jobs.get(jobs[0].id).waits if jobs else ()

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(keep_mirror, db, address, stop=stop)
        try:
            wait_until(lambda: "connection failed" in "".join(waits()), "its job says so")
        finally:
            stop.set()
            running.result(GUARD_SECONDS)
    assert "connection failed" not in "".join(waits())
