"""Jobs on executors that are paused and cancelled, and ranges that Spark can't finish."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.contract.test_conversion import COUNT, EXPECTED, contents, only_job, stale
from tests.contract.test_conversion import db as db
from tests.contract.test_jobs import progress_of
from tests.contract.test_jobs import small_ranges as small_ranges
from tests.contract.test_quarantine import break_records, put_value
from tests.support import Workspace, finish, wait_until
from zapdb.database import Database
from zapdb.errors import JobError
from zapdb.jobs.job_run import JobReport
from zapdb.spark import run_on_spark


@pytest.mark.long_on("sqlite")
def test_rule_17_executors_stop_at_a_paused_job(db: Database, spark: Any) -> None:
    job, reports = only_job(db._storage), list[JobReport]()
    db.jobs.throttle(job.id, records_per_second=10)
    run = threading.Thread(target=lambda: reports.extend(db.admin.run_jobs(run_on_spark)))
    run.start()
    wait_until(lambda: progress_of(db, job).read > 0, "executors have begun")
    db.jobs.pause(job.id)
    finish(run)
    (report,) = reports
    assert str(report.hold).startswith("paused by")
    written = progress_of(db, job).written
    assert 0 < written == COUNT - stale(db) < COUNT
    assert [one for one in db.jobs.get(job.id).open_ranges if one.is_held] == []

    db.jobs.resume(job.id)
    run = threading.Thread(target=lambda: reports.extend(db.admin.run_jobs(run_on_spark)))
    run.start()
    wait_until(lambda: progress_of(db, job).read > written, "executors go on")
    db.jobs.cancel(job.id)
    finish(run)
    assert str(reports[-1].hold).startswith("cancelled by")
    assert stale(db) > 0
    db.jobs.throttle(job.id)
    (report,) = db.admin.run_jobs(run_on_spark)
    assert (report.job.state, report.progress.written) == ("done", COUNT)
    assert contents(db) == EXPECTED


@pytest.mark.parametrize("engine", ["sqlite"])
def test_spark_says_which_ranges_it_could_not_finish(
    workspace: Workspace, db: Database, spark: Any
) -> None:
    """As if another worker were always faster: no batch can note its progress."""
    job = only_job(db._storage)
    workspace.execute(
        "CREATE TRIGGER thief BEFORE UPDATE OF resume_after ON zapdb_ranges"
        " BEGIN SELECT RAISE(IGNORE); END"
    )
    with pytest.raises(JobError, match="could not finish ranges") as caught:
        db.admin.run_jobs(run_on_spark)
    context, ranges = caught.value.context, progress_of(db, job).ranges
    assert ranges > 5
    assert context["left"] == f"{ranges} of {ranges}"
    assert context["ranges"].startswith("0 (")
    assert context["ranges"].endswith(f" and {ranges - 5} more")
    assert stale(db) == COUNT
    workspace.execute("DROP TRIGGER thief")
    (report,) = db.admin.run_jobs(run_on_spark)
    assert report.progress.written == progress_of(db, job).written == COUNT


@pytest.mark.parametrize("engine", ["postgresql"])
def test_executors_put_records_in_quarantine(
    workspace: Workspace, db: Database, spark: Any
) -> None:
    whole = break_records(workspace, 3, 600)
    (report,) = db.admin.run_jobs(run_on_spark)
    assert (report.job.state, report.progress.quarantined) == ("blocked", 2)
    assert stale(db) == 2
    for key, value in whole.values():
        put_value(workspace, key, value)
    (report,) = db.admin.run_jobs(run_on_spark, retry_quarantined=True)
    assert (report.job.state, report.progress.written) == ("done", COUNT)
    assert contents(db) == EXPECTED
