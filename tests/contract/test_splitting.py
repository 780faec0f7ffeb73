"""Ranges that lag are cut in two: workers share them, and no record is lost or done twice."""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.contract.tables import INDEX_SIZE, ITEMS
from tests.contract.test_conversion import COUNT, EXPECTED, contents, only_job, stale, state_of
from tests.contract.test_conversion import db as db
from tests.contract.test_jobs import convert_command, end_of, progress_of
from tests.contract.test_jobs import start as start
from tests.support import WAYS, Faults, Way, Workspace, error_of, wait_until
from zapdb.activation.up import migrate_up
from zapdb.catalog import DEFAULT_TENANT
from zapdb.catalog.cluster.leases import Owner
from zapdb.database import Database
from zapdb.jobs import Job, list_jobs, plan_jobs, range_work, read_progress, splitting
from zapdb.jobs.job import claim
from zapdb.jobs.job_run import run_job, run_locally
from zapdb.jobs.progress import record_progress
from zapdb.jobs.range_work import run_range
from zapdb.jobs.splitting import claim_or_split, split_lagging_range
from zapdb.jobs.work import Superseded
from zapdb.jobs.work_loading import load_work
from zapdb.limits import SPLIT
from zapdb.storage import Storage, TransactionMode

BATCH = 16
CHECK_SIZE = 'add_check: {table: items, check: small, expression: "size < 6"}'


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is left is worth to be cut."""
    monkeypatch.setattr("zapdb.jobs.splitting.SPLIT_RECORDS_MIN", BATCH)
    monkeypatch.setattr("zapdb.jobs.splitting.SPLIT_SECONDS_MIN", 0.0)


def ranges_of(place: Workspace, job: Job) -> list[tuple[Any, Any, str]]:
    """The bounds and states of a job's ranges, in the order of their keys."""
    rows = place.execute("SELECT lower, upper, state FROM zapdb_ranges WHERE job = ?", (job.id,))
    plain = [
        (lower and bytes(lower), upper and bytes(upper), state) for lower, upper, state in rows
    ]
    return sorted(plain, key=lambda row: row[0] or b"")


def assert_whole(place: Workspace, job: Job) -> int:
    """Each key up to the last one is in one range; returns how many ranges there are."""
    ranges = ranges_of(place, job)
    assert ranges[0][0] is None
    for (_, upper, _), (lower, _, _) in itertools.pairwise(ranges):
        assert upper == lower
    (last,) = place.execute("SELECT key FROM zapdb_records_1 ORDER BY key DESC LIMIT 1")
    assert ranges[-1][1] == bytes(last[0])
    return len(ranges)


def run_beside(
    monkeypatch: pytest.MonkeyPatch, storage: Storage, job: Job, act: Callable[[], object], at: int
) -> int:
    """Run all ranges, and do something else before a batch; returns how many were written."""
    original, calls = range_work._RangeRun._run_batch, itertools.count(1)

    def run_batch(task: Any, *given: Any, **named: Any) -> Any:
        if task.storage is storage and next(calls) == at:
            act()
        return original(task, *given, **named)

    monkeypatch.setattr(range_work._RangeRun, "_run_batch", run_batch)
    return run_ranges(storage, job)


def run_ranges(storage: Storage, job: Job) -> int:
    work, written = load_work(storage, job.id), 0
    while (result := run_range(storage, work, Owner.here(), batch_records_max=BATCH)) is not None:
        written += result.written
    return written


@pytest.mark.parametrize("at", [1, 3, COUNT // BATCH - 4])
def test_rule_17_a_worker_without_a_range_takes_the_rest_of_anothers(
    workspace: Workspace, db: Database, eager: None, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """All records are in one range; the second worker comes in the middle of it."""
    job, other, written = only_job(db._storage), workspace.connect(), list[int]()
    mine = run_beside(
        monkeypatch, db._storage, job, lambda: written.append(run_ranges(other, job)), at
    )
    left = COUNT - BATCH * (at - 1)
    assert mine + sum(written) == COUNT
    # The second one goes on taking until too little is left.
    assert left // 2 <= sum(written) <= left - BATCH
    assert assert_whole(workspace, job) > 2
    report = run_job(db._storage, job, run_locally)
    assert report is not None
    assert (report.job.state, report.progress.read) == ("done", COUNT)
    assert report.progress.ranges == report.progress.ranges_done
    assert contents(db) == EXPECTED


@pytest.mark.parametrize("operation", [INDEX_SIZE, CHECK_SIZE])
def test_rule_23_no_record_is_done_twice_in_a_range_that_was_cut(
    workspace: Workspace,
    db: Database,
    eager: None,
    monkeypatch: pytest.MonkeyPatch,
    operation: str,
) -> None:
    """Entries are counted against records, and each violation once."""
    db.admin.run_jobs()
    workspace.write(5, operation)
    with workspace.open() as newer:
        job, other = only_job(newer._storage), workspace.connect()
        taken: list[int] = []
        run_beside(
            monkeypatch, newer._storage, job, lambda: taken.append(run_ranges(other, job)), 5
        )
        report = run_job(newer._storage, job, run_locally)
        assert report is not None
        assert report.progress.read == COUNT
        assert assert_whole(workspace, job) > 2
        violating = sum(at % 7 == 6 for at in range(COUNT))
        found = [finding.count for finding in report.job.findings]
        assert found == ([] if operation == INDEX_SIZE else [violating])
        assert report.job.state == ("done" if operation == INDEX_SIZE else "blocked")
        (verified,) = newer.admin.verify()
        assert verified.problems == ()


def test_rule_09_a_range_that_changed_hands_or_is_nearly_done_is_not_cut(
    workspace: Workspace, db: Database, eager: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, other = only_job(db._storage), workspace.connect()
    work = load_work(other, job.id)
    assert split_lagging_range(other, work) is None  # it is free: it is to be claimed
    claimed = claim(db._storage, job.id, Owner.here())
    assert claimed is not None
    cut = splitting._split

    def cut_late(storage: Storage, job_id: str, rest: Any) -> Any:
        """Meanwhile the worker has come beyond the middle."""
        with db._storage.transaction(TransactionMode.JOB) as connection:
            record_progress(connection, claimed, rest.middle)
        return cut(storage, job_id, rest)

    def cut_another(storage: Storage, job_id: str, rest: Any) -> Any:
        assert claim(db._storage, job.id, Owner.here(), 0) is not None
        return cut(storage, job_id, rest)

    monkeypatch.setattr(splitting, "SPLIT", SPLIT._replace(tries=1))
    for late in (cut_late, cut_another):
        monkeypatch.setattr(splitting, "_split", late)
        assert split_lagging_range(other, work) is None
    monkeypatch.setattr(splitting, "_split", cut)
    assert len(ranges_of(workspace, job)) == 1
    work.rate = 2.0 * COUNT  # the second part would take less than a moment
    monkeypatch.setattr(splitting, "SPLIT_SECONDS_MIN", 1.0)
    assert split_lagging_range(other, work) is None
    work.rate = COUNT / 8
    assert split_lagging_range(other, work) == 1
    assert assert_whole(workspace, job) == 2


def test_rule_17_a_worker_that_another_one_outran_looks_again(
    workspace: Workspace, db: Database, eager: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would be idle to the end of the job: of many workers of one range, most would be."""
    job, slow, fast = only_job(db._storage), workspace.connect(), workspace.connect()
    assert claim(db._storage, job.id, Owner.here()) is not None
    cut = splitting._split

    def cut_second(storage: Storage, job_id: str, rest: Any) -> Any:
        monkeypatch.setattr(splitting, "_split", cut)
        assert claim_or_split(fast, load_work(fast, job.id), Owner.here()) is not None
        return cut(storage, job_id, rest)

    monkeypatch.setattr(splitting, "_split", cut_second)
    claimed = claim_or_split(slow, load_work(slow, job.id), Owner.here())
    assert claimed is not None
    assert claimed.number == 2
    assert assert_whole(workspace, job) == 3


@pytest.mark.long_on("postgresql")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.on_each_engine
def test_rule_17_a_cut_survives_a_fault_at_each_statement(
    workspace: Workspace,
    db: Database,
    eager: None,
    monkeypatch: pytest.MonkeyPatch,
    way: Way,
) -> None:
    job, other = only_job(db._storage), workspace.connect()
    assert claim(db._storage, job.id, Owner.here()) is not None
    work = load_work(other, job.id)
    faults = Faults(workspace, other, way, lasting=False)
    faults.install(monkeypatch)
    struck = 0
    for call in itertools.count(1):
        faults.arm(call)
        error_of(partial(split_lagging_range, other, work))
        if not faults.struck:
            break
        faults.arm(0)
        struck += 1
        assert_whole(workspace, job)
        # Somebody has what was cut off.
        workspace.execute(
            "UPDATE zapdb_ranges SET state = 'running', expires_at = 9000000000000000,"
            " owner = (SELECT max(owner) FROM zapdb_ranges)"
        )
    assert struck > 8
    assert assert_whole(workspace, job) > 1
    workspace.execute("UPDATE zapdb_ranges SET expires_at = 0")
    assert run_job(db._storage, job, run_locally) is not None
    assert (progress_of(db, job).written, stale(db)) == (COUNT, 0)
    assert contents(db) == EXPECTED


@pytest.mark.long_on("sqlite")
@pytest.mark.on_each_engine
def test_a_process_that_was_killed_and_two_resumes_lose_nothing_of_a_range_that_was_cut(
    workspace: Workspace, start: Callable[[], subprocess.Popen[str]]
) -> None:
    """Two processes share a table that is one range; one is killed, then all is paused, twice."""
    count = 12_000
    workspace.write(1, ITEMS)
    with workspace.open() as first:
        first.table("items").insert_many(
            {"id": at, "title": f"title {at}", "size": at % 7} for at in range(count)
        )
    workspace.write(2, "add_field: {table: items, field: {name: color, type: string, default: r}}")
    with workspace.open() as db:
        (job,) = plan_jobs(db._storage, 1)
        db.jobs.throttle(job.id, records_per_second=300)
        killed, other = start(), start()
        wait_until(lambda: progress_of(db, job).ranges > 1, "the range was cut")
        before = progress_of(db, job).read
        wait_until(lambda: progress_of(db, job).read > before, "both are at work")
        killed.kill()
        killed.wait()
        for _ in range(2):
            db.jobs.pause(job.id)
            status, _ = end_of(other)
            assert status == 3
            written = progress_of(db, job).written
            assert written == db.admin.count_by_revision("items").get(2, 0) < count
            db.jobs.resume(job.id)
            other = convert_command(workspace)
            wait_until(partial(exceeds, db, job, written), "it goes on")
        db.jobs.throttle(job.id)
        status, _ = end_of(other)
        assert (status, state_of(db, job)) == (0, "done")
        assert progress_of(db, job).written == count
        assert_whole(workspace, job)
        assert sum(1 for record in db.table("items").scan() if record.color == "r") == count


def exceeds(db: Database, job: Job, written: int) -> bool:
    return progress_of(db, job).written > written


def test_rule_17_a_build_ends_in_a_table_that_grows_faster_than_it_is_read(
    workspace: Workspace, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For each record that is read, two come at the end of the table."""
    db.admin.run_jobs()
    workspace.write(5, INDEX_SIZE)
    with workspace.open() as newer:
        job, last, batches = only_job(newer._storage), itertools.count(COUNT), itertools.count(1)
        original = range_work._RangeRun._run_batch

        def run_batch(task: Any, *given: Any, **named: Any) -> Any:
            assert next(batches) < 2 * COUNT // BATCH, "it does not end"
            newer.table("items").insert_many(
                {"id": next(last), "size": 3, "color": "blue", "kind": "k", "number": "n"}
                for _ in range(2 * BATCH)
            )
            return original(task, *given, **named)

        monkeypatch.setattr(range_work._RangeRun, "_run_batch", run_batch)
        report = run_job(
            newer._storage, job, partial(run_locally, workers=1, batch_records_max=BATCH)
        )
        assert report is not None
        assert (report.job.state, report.progress.read) == ("done", COUNT)
        (verified,) = newer.admin.verify()
        assert (verified.problems, verified.records) == ((), next(last))


@pytest.mark.on_each_engine
def test_a_job_of_a_table_that_was_dropped_is_superseded(
    workspace: Workspace, db: Database, eager: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dropped in the middle of a range, and swept, while another worker looks for what is left."""
    db.close()
    storage, other = workspace.connect(), workspace.connect()
    job = only_job(storage)
    idle = load_work(other, job.id)

    def drop() -> None:
        workspace.write(5, "drop_table: {table: items, records: discard}")
        migrate_up(other, DEFAULT_TENANT, workspace.directory)
        assert split_lagging_range(other, idle) is None

    with pytest.raises(Superseded):
        run_beside(monkeypatch, storage, job, drop, 3)
    assert read_progress(storage.connection(), job.id).written == 2 * BATCH
    assert run_job(storage, job, run_locally) is None
    assert [known.state for known in list_jobs(storage.connection())] == ["superseded"]
    assert plan_jobs(other, DEFAULT_TENANT) == []
