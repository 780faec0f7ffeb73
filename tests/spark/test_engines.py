"""Every kind of job on executors: indexes, checks, verifications, and the way back."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.contract.tables import ADD_WEIGHT, INDEX_SIZE
from tests.contract.test_conversion import COUNT, EXPECTED, contents
from tests.contract.test_conversion import db as db
from tests.contract.test_jobs import small_ranges as small_ranges
from tests.contract.test_quarantine import CHECK_KIND, break_records, put_value
from tests.support import Workspace, finish, wait_until
from zapdb.catalog.row_kinds import JobThrottle
from zapdb.database import Database
from zapdb.errors import UsageError
from zapdb.jobs import Job, list_jobs, read_progress
from zapdb.jobs.control import cancel_job, pause_job, resume_job, throttle_job
from zapdb.jobs.rollback_run import roll_back_newest
from zapdb.spark import run_on_spark
from zapdb.storage import Storage


@pytest.mark.long
def test_rule_13_a_rollback_on_executors_is_paused_and_throttled(
    workspace: Workspace, db: Database, spark: Any
) -> None:
    db.close()
    workspace.write(5, ADD_WEIGHT)
    workspace.write(6, INDEX_SIZE)
    workspace.write(7, CHECK_KIND)
    with workspace.open() as db:
        kinds = [report.job.kind for report in db.admin.run_jobs(run_on_spark)]
        assert sorted(kinds) == ["convert", "index", "validate"]
        whole = break_records(workspace, 3)
        (report,) = db.admin.verify(run_on_spark)
        assert report.problem_count == 1
        for key, value in whole.values():
            put_value(workspace, key, value)
        assert db.admin.verify(run_on_spark) == db.admin.verify()
        assert {record.weight for record in db.table("items").scan()} == {7}
    for number in (7, 6):
        assert roll_back_newest(workspace.control).number == number

    storage, waits = workspace.connect(), list[str]()

    def run_slowly_first(storage: Storage, job: Job) -> None:
        if not waits:
            control(workspace, job.id, "throttle")
        run_on_spark(storage, job)

    run = threading.Thread(
        target=lambda: roll_back_newest(
            storage, runner=run_slowly_first, on_wait=lambda report: waits.append(str(report.hold))
        )
    )
    seen = workspace.control
    try:
        run.start()

        def back() -> list[Any]:
            return [j for j in list_jobs(seen.connection()) if j.kind == "roll_back"]

        wait_until(back, "the job is planned")
        (job,) = back()
        wait_until(
            lambda: read_progress(seen.connection(), job.id).read > 0, "executors have begun"
        )
        control(workspace, job.id, "pause")
        wait_until(lambda: waits, "the rollback waits")
        assert waits[0].startswith("paused by")
        assert 0 < read_progress(seen.connection(), job.id).read < COUNT
        with pytest.raises(UsageError, match="can't be cancelled") as caught:
            control(workspace, job.id, "cancel")
        assert "zapdb jobs pause" in str(caught.value.hint)
        control(workspace, job.id, "unthrottle")
        control(workspace, job.id, "resume")
        finish(run)
    finally:
        storage.close()
    for number in (5, 6, 7):
        workspace.remove(number)
    with workspace.open() as db:
        assert contents(db) == EXPECTED


def control(place: Workspace, job_id: str, verb: str) -> None:
    """As an operator does, from elsewhere."""
    storage = place.control
    if verb == "throttle":
        throttle_job(storage, job_id, JobThrottle(records_per_second=10))
    elif verb == "unthrottle":
        throttle_job(storage, job_id, JobThrottle())
    else:
        {"pause": pause_job, "resume": resume_job, "cancel": cancel_job}[verb](storage, job_id)
