"""Jobs under an operator's hand: paused, resumed, cancelled, throttled, by priority."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests import processes
from tests.contract.tables import ADD_COLOR, ADD_WEIGHT, INDEX_SIZE, ITEMS
from tests.contract.test_conversion import COUNT, EXPECTED, contents, only_job, stale, state_of
from tests.contract.test_conversion import db as db
from tests.support import GUARD_SECONDS, ROOT, Workspace, finish, wait_until
from zapdb.catalog import DEFAULT_TENANT
from zapdb.catalog.cluster.leases import Owner
from zapdb.database import Database
from zapdb.errors import UnknownName, UnknownZone, UsageError
from zapdb.jobs import Job, list_jobs, plan_jobs, range_work, read_progress
from zapdb.jobs.job import Progress
from zapdb.jobs.job_run import JobReport, run_locally
from zapdb.jobs.range_work import run_range
from zapdb.jobs.verification_jobs import plan_verification
from zapdb.jobs.work import HeldBack
from zapdb.jobs.work_loading import load_work
from zapdb.storage import connect

MANY = 24_000
"""Records of a table that is cut by a sample."""
SLOW = 10
"""Records a second: a job of the tests would take minutes, so it is in its middle whenever a test
looks, however late."""


@pytest.fixture(autouse=True)
def small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zapdb.jobs.job.RANGE_RECORDS", 100)


def progress_of(db: Database, job: Job) -> Progress:
    return read_progress(db._storage.connection(), job.id)


def convert_command(place: Workspace, *more: str) -> subprocess.Popen[str]:
    """`zapdb convert run` as a process of its own."""
    command = [sys.executable, "-m", "zapdb", "convert", "run", "-d", place.address, *more]
    return processes.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.fixture
def start(workspace: Workspace) -> Iterator[Callable[[], subprocess.Popen[str]]]:
    begun: list[subprocess.Popen[str]] = []

    def start_one() -> subprocess.Popen[str]:
        begun.append(convert_command(workspace))
        return begun[-1]

    yield start_one
    for process in begun:
        process.kill()
        process.communicate()


def end_of(process: subprocess.Popen[str]) -> tuple[int, str]:
    out, err = process.communicate(timeout=GUARD_SECONDS)
    assert all(line.startswith("waiting: ") for line in err.splitlines()), err
    return process.returncode, out


@pytest.mark.long_on("sqlite")
@pytest.mark.on_each_engine
def test_rule_17_a_paused_job_stops_in_another_process_and_goes_on_where_it_stopped(
    db: Database, start: Callable[[], subprocess.Popen[str]]
) -> None:
    """Twice, because others have lost their progress in the second of two resumes."""
    job = only_job(db._storage)
    db.jobs.throttle(job.id, records_per_second=SLOW)
    for _ in range(2):
        before = progress_of(db, job)
        process = start()
        wait_until(lambda b=before: progress_of(db, job).read > b.read, "it has begun")
        paused = db.jobs.pause(job.id)
        assert (paused.state, paused.changed_by != "") == ("paused", True)
        status, out = end_of(process)
        assert status == 3
        assert out.startswith("waiting converting items to revision 4: paused by ")
        assert f"`zapdb jobs resume {job.id}` lets it go on" in out
        after = progress_of(db, job)
        assert before.read < after.read == after.written == COUNT - stale(db) < COUNT
        assert db.admin.run_jobs() == []  # nobody runs it
        (wait,) = db.jobs.get(job.id).waits
        assert wait.startswith("paused by ")
        assert db.jobs.pause(job.id) == paused
        assert db.jobs.resume(job.id).state == "planned"
    db.jobs.throttle(job.id)
    (report,) = db.admin.run_jobs()
    assert (report.progress.read, report.progress.written) == (COUNT, COUNT)
    assert contents(db) == EXPECTED
    assert stale(db) == 0


@pytest.mark.long_on("sqlite")
@pytest.mark.on_each_engine
def test_rule_17_a_worker_killed_and_a_job_paused_leave_nothing_undone(
    db: Database, start: Callable[[], subprocess.Popen[str]]
) -> None:
    job = only_job(db._storage)
    db.jobs.throttle(job.id, records_per_second=SLOW)
    process = start()
    wait_until(lambda: progress_of(db, job).read > 0, "it has begun")
    process.send_signal(signal.SIGKILL)
    process.wait()
    db.jobs.pause(job.id)
    # A server may still commit what it was sent; from then on, nothing changes.
    wait_until(lambda: progress_of(db, job).written == COUNT - stale(db), "each is counted once")
    assert db.admin.run_jobs() == []
    db.jobs.resume(job.id)
    db.jobs.throttle(job.id)
    waits = db.jobs.get(job.id).waits
    assert len(waits) <= 1  # its leases may not be over yet
    (report,) = db.admin.run_jobs()
    assert report.progress.written == COUNT
    assert contents(db) == EXPECTED


@pytest.mark.on_each_engine
def test_rule_17_a_cancelled_job_undoes_the_batch_that_is_not_committed(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, at_end, may_go_on = only_job(db._storage), threading.Event(), threading.Event()
    ended: list[tuple[int, bool]] = []
    note = range_work.send_progress

    def wait_before(*arguments: Any) -> Any:
        at_end.set()
        assert may_go_on.wait(GUARD_SECONDS)
        return note(*arguments)

    def run() -> None:
        storage = connect(db._storage.engine.full_address())
        try:
            work = load_work(storage, job.id)
            result = run_range(storage, work, Owner.here(), batch_records_max=16)
            assert result is not None
            ended.append((result.written, result.finished))
        finally:
            storage.close()

    run_range(db._storage, load_work(db._storage, job.id), Owner.here())
    if db._storage.dialect.name == "postgresql":  # on SQLite, cancelling waits for the batch
        monkeypatch.setattr(range_work, "send_progress", wait_before)
        worker = threading.Thread(target=run)
        worker.start()
        assert at_end.wait(GUARD_SECONDS)
        db.jobs.cancel(job.id)
        may_go_on.set()
        finish(worker)
        monkeypatch.undo()
        monkeypatch.setattr("zapdb.jobs.job.RANGE_RECORDS", 100)
        assert ended == [(0, False)]
    else:
        db.jobs.cancel(job.id)
    assert stale(db) == COUNT - 100
    assert progress_of(db, job).written == 100
    with pytest.raises(HeldBack):
        load_work(db._storage, job.id)
    assert plan_jobs(db._storage, DEFAULT_TENANT) == []  # as background jobs do
    assert state_of(db, job) == "cancelled"
    with pytest.raises(UsageError, match="cancelled can't be resumed") as caught:
        db.jobs.resume(job.id)
    assert "`zapdb convert run` plans it again" in str(caught.value.hint)
    (report,) = db.admin.run_jobs()
    assert report.progress.written == COUNT  # what was done before is not done again
    assert contents(db) == EXPECTED


def test_jobs_run_by_priority(workspace: Workspace, db: Database) -> None:
    workspace.write(5, INDEX_SIZE)
    with workspace.open() as other:
        index, convert = plan_jobs(other._storage, DEFAULT_TENANT)
        assert (index.kind, convert.kind) == ("index", "convert")
        assert index.priority > convert.priority
        other.jobs.set_priority(convert.id, 1000)
        assert [report.job.kind for report in other.admin.run_jobs()] == ["convert", "index"]
        with pytest.raises(UsageError, match="the job is done"):
            other.jobs.set_priority(convert.id, 1)


@pytest.mark.parametrize("engine", ["sqlite"])
def test_wrong_priorities_rates_and_windows_are_refused(db: Database) -> None:
    job = only_job(db._storage)
    for priority in (-1, 1001):
        with pytest.raises(UsageError, match="not a priority"):
            db.jobs.set_priority(job.id, priority)
    for window in ("22:00", "22:00-22:00", "24:00-01:00", "10:00-9:00", ""):
        with pytest.raises(UsageError, match="not a daily window"):
            db.jobs.throttle(job.id, window=window)
    with pytest.raises(UnknownZone, match="lack a zone"):
        db.jobs.throttle(job.id, window="22:00-06:00", zone="Europe/Atlantis")
    with pytest.raises(UsageError, match="bytes_per_second is too small"):
        db.jobs.throttle(job.id, bytes_per_second=0)
    assert only_job(db._storage) == job


def test_a_job_is_found_by_the_beginning_of_its_id(workspace: Workspace, db: Database) -> None:
    workspace.write(5, INDEX_SIZE)
    with workspace.open() as other:
        index, convert = plan_jobs(other._storage, DEFAULT_TENANT)
        assert other.jobs.get("convert").job.id == convert.id
        assert other.jobs.get(index.id).job.id == index.id
        with pytest.raises(UnknownName, match="no such job"):
            other.jobs.pause("verify")
        with pytest.raises(UnknownName, match="no such job"):
            other.jobs.pause("")
    other_kinds = {job.kind for job in list_jobs(db._storage.connection())}
    assert other_kinds == {"index", "convert"}


@pytest.mark.on_each_engine
def test_a_throttle_changes_a_running_job(db: Database) -> None:
    job, reports = only_job(db._storage), list[JobReport]()
    db.jobs.throttle(job.id, records_per_second=1)

    def run() -> None:
        reports.extend(db.admin.run_jobs())

    worker = threading.Thread(target=run)
    worker.start()
    wait_until(lambda: progress_of(db, job).read > 0, "it has begun")
    assert "throttled to 1 records per second" in db.jobs.get(job.id).waits
    assert progress_of(db, job).read < COUNT / 2
    db.jobs.throttle(job.id, bytes_per_second=10_000_000)
    finish(worker)  # it would take a quarter of an hour otherwise
    (report,) = reports
    assert report.progress.written == COUNT


@pytest.mark.parametrize("bound", [{"records_per_second": 500}, {"bytes_per_second": 12_000}])
@pytest.mark.on_each_engine
def test_workers_share_the_rate_of_their_job(db: Database, bound: dict[str, int]) -> None:
    """All together are no faster; a slower machine takes longer."""
    job = only_job(db._storage)
    db.jobs.throttle(job.id, **bound)
    sizes = [len(k) + len(v) for k, v in db._storage.connection().fetch_all(
        f"SELECT key, value FROM {load_work(db._storage, job.id).records.name}"
    )]  # fmt: skip
    began = time.monotonic()
    (report,) = db.admin.run_jobs(lambda s, j: run_locally(s, j, workers=2))
    seconds = time.monotonic() - began
    total = COUNT if "records_per_second" in bound else sum(sizes)
    (rate,) = bound.values()
    # The last batches of both need not be waited for.
    assert seconds > total / rate - 1.5
    assert report.progress.written == COUNT


def windows(db: Database, *, opens_in_minutes: int) -> str:
    """A window of an hour in UTC."""
    now = time.gmtime(db._storage.now_us(db._storage.connection()) / 1e6 + opens_in_minutes * 60)
    return f"{now.tm_hour:02}:{now.tm_min:02}-{(now.tm_hour + 1) % 24:02}:{now.tm_min:02}"


@pytest.mark.on_each_engine
def test_a_job_runs_inside_its_window_only(db: Database) -> None:
    job, reports = only_job(db._storage), list[JobReport]()
    later = windows(db, opens_in_minutes=120)
    db.jobs.throttle(job.id, window=later)
    (report,) = db.admin.run_jobs()
    assert report.hold is not None
    assert f"outside its window {later} UTC" in str(report.hold)
    assert (report.progress.read, report.job.state) == (0, "planned")
    now_us = db._storage.now_us(db._storage.connection())
    assert report.hold.until_us is not None
    assert 0 < report.hold.until_us - now_us <= 121 * 60_000_000
    now = windows(db, opens_in_minutes=-30)
    db.jobs.throttle(job.id, records_per_second=SLOW, window=now)

    worker = threading.Thread(target=lambda: reports.extend(db.admin.run_jobs()))
    worker.start()
    wait_until(lambda: progress_of(db, job).read > 0, "it has begun")
    db.jobs.throttle(job.id, window=later)  # as if it closed
    finish(worker)
    (report,) = reports
    assert report.hold is not None
    assert 0 < report.progress.read < COUNT
    db.jobs.throttle(job.id, window=now)
    (report,) = db.admin.run_jobs()
    assert (report.job.state, report.progress.written) == ("done", COUNT)
    assert contents(db) == EXPECTED


@pytest.mark.on_each_engine
def test_rule_14_background_jobs_leave_a_paused_job_until_it_is_resumed(
    workspace: Workspace, db: Database
) -> None:
    job = only_job(db._storage)
    db.jobs.pause(job.id)
    db.admin.set_setting("convert", "background")
    wait_until(lambda: db._session.settings.converts_in_background, "it knows the setting")
    with workspace.open():  # and another one, whose background jobs begin now
        assert state_of(db, job) == "paused"
        db.jobs.resume(job.id)
        wait_until(lambda: state_of(db, job) == "done", "it has gone on by itself")
    assert contents(db) == EXPECTED


@pytest.mark.on_each_engine
def test_rule_14_an_index_does_not_wait_for_a_long_conversion_in_the_background(
    workspace: Workspace, db: Database
) -> None:
    job = only_job(db._storage)
    db.jobs.throttle(job.id, records_per_second=1)
    db.admin.set_setting("convert", "background")
    wait_until(lambda: progress_of(db, job).read > 0, "the conversion is under way")
    workspace.write(5, INDEX_SIZE)
    with workspace.open() as other:
        wait_until(lambda: "by_size" in other.table("items").readable_indexes(), "it is built")
        assert stale(other) > COUNT / 2
        other.admin.set_setting("convert", "on_access")


@pytest.mark.on_each_engine
def test_a_new_layout_keeps_the_pause_and_the_throttle(workspace: Workspace, db: Database) -> None:
    job = only_job(db._storage)
    db.jobs.throttle(job.id, records_per_second=123)
    db.jobs.pause(job.id)
    workspace.write(5, ADD_WEIGHT)
    with workspace.open() as other:
        assert other.admin.run_jobs() == []
        (newer,) = [known for known in other.jobs.list() if known.state == "paused"]
        assert (newer.target, newer.throttle.records_per_second) == (5, 123)
        assert state_of(other, job) == "superseded"
        other.jobs.resume(newer.id)
        other.jobs.throttle(newer.id)
        (report,) = other.admin.run_jobs()
        assert report.progress.written == COUNT


@pytest.mark.on_each_engine
def test_what_is_at_its_end_can_not_be_changed(db: Database) -> None:
    job = only_job(db._storage)
    db.admin.run_jobs()
    for change in (db.jobs.pause, db.jobs.resume, db.jobs.cancel):
        with pytest.raises(UsageError, match="done") as caught:
            change(job.id)
        assert caught.value.hint.startswith("it is at its end")


@pytest.mark.parametrize("engine", ["postgresql"])
def test_jobs_of_a_large_table_are_cut_by_a_sample_and_say_about(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left of a conversion is counted all the same, and each record is converted."""
    monkeypatch.setattr("zapdb.storage.postgresql_dialect.SAMPLE_BLOCKS", 100)
    monkeypatch.setattr("zapdb.jobs.job.RANGE_RECORDS", 5_000)
    workspace.write(1, ITEMS)
    with workspace.open() as db:
        db.table("items").insert_many({"id": n, "title": "t" * 60} for n in range(MANY))
        (verify,) = plan_verification(db._storage, 1)
        assert verify.is_estimated
        assert 0.8 * MANY < verify.records < 1.2 * MANY
        assert db.jobs.get(verify.id).reads == verify.records
        db.admin.verify(run_locally)
        done = db.jobs.get(verify.id)
        assert (done.job.state, done.progress.read, done.reads) == ("done", MANY, MANY)
    workspace.write(2, ADD_COLOR)
    with workspace.open() as db:
        (job,) = plan_jobs(db._storage, 1)
        assert job.is_estimated
        assert repr(job).startswith("<job convert of 'items', planned: about ")
        status = db.jobs.get(job.id)
        assert (status.reads, status.progress.ranges) == (MANY, -(-job.records // 5_000))
        (report,) = db.admin.run_jobs()
        assert (report.progress.read, report.progress.written) == (MANY, MANY)
        assert report.progress.ranges_done >= status.progress.ranges
