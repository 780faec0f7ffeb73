"""Every kind of job on executors: indexes, checks, verifications, and the way back."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.tables import ADD_WEIGHT, INDEX_SIZE
from tests.contract.test_conversion import EXPECTED, contents
from tests.contract.test_conversion import db as db
from tests.contract.test_jobs import small_ranges as small_ranges
from tests.contract.test_quarantine import CHECK_KIND, break_records, put_value
from tests.support import Workspace
from zapdb.activation.rollback import roll_back
from zapdb.catalog.row_kinds import JobThrottle
from zapdb.database import Database
from zapdb.jobs.control import cancel_job, pause_job, resume_job, throttle_job
from zapdb.spark import run_on_spark


@pytest.mark.long
def test_rule_13_executors_convert_records_back(
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
    for number in (7, 6, 5):
        assert roll_back(workspace.control).migrations[0].number == number

    for number in (5, 6, 7):
        workspace.remove(number)
    with workspace.open() as db:
        (back,) = db.admin.run_jobs(run_on_spark)
        assert (back.job.kind, back.job.state) == ("convert", "done")
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
