"""A job with a ceiling of latency: measured beside it, by one thread of each process."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from msgspec import structs

from tests.contract.test_conversion import COUNT, EXPECTED, contents, only_job, stale
from tests.contract.test_conversion import db as db
from tests.support import GUARD_SECONDS, Workspace, finish, wait_until
from zapdb.database import Database
from zapdb.errors import UsageError
from zapdb.jobs import Job, latency
from zapdb.jobs.job_run import run_locally
from zapdb.jobs.latency import THREAD_NAME, LatencyProbe, list_probes
from zapdb.limits import SHARE_LEAST
from zapdb.storage import Storage, TransactionMode


@pytest.fixture(autouse=True)
def small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zapdb.jobs.job.RANGE_RECORDS", 100)


@pytest.fixture
def slow_queries(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What each query takes longer than it does, in seconds: the one number of the list."""
    more, measure = [0.5], LatencyProbe._time_write
    monkeypatch.setattr(LatencyProbe, "_time_write", lambda probe: measure(probe) + more[0])
    monkeypatch.setattr(latency, "PROBE_SECONDS", 0.01)
    return more


def run_slowly(storage: Storage, job: Job, workers: int) -> None:
    """In hundreds of batches with a wait after each: it does not end before it is measured."""
    run_locally(storage, job, workers=workers, batch_records_max=2)


def count_probes() -> int:
    return sum(thread.name == THREAD_NAME for thread in threading.enumerate())


def test_a_job_that_queries_suffer_from_slows_down_and_says_so(
    db: Database, slow_queries: list[float]
) -> None:
    job, storage = only_job(db._storage), db._storage
    changed = db.jobs.throttle(job.id, max_latency_ms=100)
    assert changed.throttle.max_latency_ms == 100
    worker = threading.Thread(target=lambda: run_slowly(storage, job, workers=2))
    worker.start()

    def shares() -> list[int]:
        return [probe.share_percent for probe in db.jobs.get(job.id).probes]

    wait_until(lambda: shares() == [round(SHARE_LEAST * 100)], "it has slowed down")
    assert count_probes() == 1  # of both threads
    status = db.jobs.get(job.id)
    (reason,) = status.waits
    assert reason.startswith("slowed down, since queries may take 100 ms: 5")
    assert reason.endswith(" ms at " + status.probes[0].owner + ", which works 1 % of the time")
    assert stale(db) > 0
    slow_queries[0] = 0.0
    db.jobs.throttle(job.id, max_latency_ms=60_000)
    wait_until(lambda: not worker.is_alive() or shares() > [50], "it has speeded up")
    finish(worker)
    assert count_probes() == 0
    db.admin.run_jobs()
    assert contents(db) == EXPECTED
    assert stale(db) == 0


def test_a_ceiling_is_taken_away_while_the_job_runs(
    db: Database, slow_queries: list[float]
) -> None:
    job, storage = only_job(db._storage), db._storage
    db.jobs.throttle(job.id, max_latency_ms=100)
    worker = threading.Thread(target=lambda: run_slowly(storage, job, workers=1))
    worker.start()
    wait_until(lambda: db.jobs.get(job.id).probes, "it measures")
    db.jobs.throttle(job.id)
    finish(worker)
    assert count_probes() == 0
    assert stale(db) == 0


def test_the_setting_is_the_ceiling_of_jobs_that_have_none(
    db: Database, slow_queries: list[float]
) -> None:
    db.admin.set_setting("job_max_latency_ms", "100", table="items")
    job = only_job(db._storage)
    worker = threading.Thread(target=lambda: run_slowly(db._storage, job, workers=1))
    worker.start()
    wait_until(lambda: db.jobs.get(job.id).probes, "it measures")
    slow_queries[0] = 0.0
    db.jobs.throttle(job.id, max_latency_ms=60_000)  # its own comes first
    finish(worker)
    assert stale(db) == 0


def test_a_ceiling_must_be_a_number_above_0(db: Database) -> None:
    job = only_job(db._storage)
    with pytest.raises(UsageError, match="max_latency_ms is too small"):
        db.jobs.throttle(job.id, max_latency_ms=0)


def test_old_measurements_are_not_shown_and_deleted_in_time(
    db: Database, workspace: Workspace
) -> None:
    job, storage = only_job(db._storage), db._storage
    old = "INSERT INTO zapdb_probes VALUES (?, 'old', ?, 1, 1, 5)"
    workspace.execute(old, [job.id, '["gone", "", "", "", 1, 1]'])
    with storage.transaction(TransactionMode.READ) as connection:
        assert list_probes(connection, job.id) == []
    db.jobs.throttle(job.id, max_latency_ms=60_000)
    (report,) = db.admin.run_jobs()
    assert report.progress.written == COUNT
    left = workspace.execute("SELECT worker FROM zapdb_probes")
    assert ("old",) not in [tuple(row) for row in left]


def test_a_job_about_all_tables_is_measured_by_writes_alone(db: Database) -> None:
    job = structs.replace(only_job(db._storage), table=0)
    probe = LatencyProbe(db._storage, job, latency.DutyCycle())
    for _ in range(2):  # the second one reports the first
        probe._step()
    (found,) = db.jobs.get(job.id).probes
    assert found.latency_ms > 0


@pytest.mark.parametrize("engine", ["sqlite"])
def test_a_probe_waits_as_the_writers_of_other_processes_do(db: Database) -> None:
    """It is not let in by the queue of this process, whose jobs would let it go first."""
    storage, done = db._storage, threading.Event()
    turn: Any = storage.pool.turn
    assert turn.acquire(GUARD_SECONDS)

    def write() -> None:
        try:
            with (
                storage.writing_as_another_process(),
                storage.transaction(TransactionMode.JOB) as connection,
            ):
                connection.run("DELETE FROM zapdb_probes")
            done.set()
        finally:
            storage.release_connection()

    thread = threading.Thread(target=write)
    thread.start()
    assert done.wait(GUARD_SECONDS)
    turn.release()
    finish(thread)
    began = time.monotonic()
    with storage.transaction(TransactionMode.JOB):  # the queue is as it was
        assert time.monotonic() - began < GUARD_SECONDS
