"""Verification by jobs: it finds what one snapshot shows, range by range, and goes on."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from tests.contract.test_archives import COUNT, DROP, DROP_TABLE, INDEX
from tests.contract.test_archives import base as base
from tests.support import Workspace, finish, wait_until
from zapdb.database import Database
from zapdb.errors import JobError
from zapdb.jobs import Job
from zapdb.jobs.job_run import run_locally
from zapdb.jobs.verification_jobs import plan_verification
from zapdb.limits import VIOLATIONS_SHOWN_MAX
from zapdb.storage import TransactionMode

"""The number of the field that is archived."""


@pytest.fixture(autouse=True)
def small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zapdb.jobs.job.RANGE_RECORDS", 50)


@pytest.fixture
def db(workspace: Workspace, base: list[dict[str, Any]]) -> Database:
    """All titles are archived, some of them as large values; sizes have an index."""
    workspace.write(2, DROP)
    workspace.write(3, INDEX)
    opened = workspace.open()
    opened.admin.run_jobs()
    return opened


def stored_keys(place: Workspace) -> list[bytes]:
    return [bytes(key) for (key,) in place.execute("SELECT key FROM zapdb_records_1 ORDER BY key")]


def break_everything(place: Workspace) -> None:
    """One thing of each kind."""
    keys = stored_keys(place)
    archived = "UPDATE zapdb_archives SET value = ? WHERE key = ?"
    place.execute("UPDATE zapdb_records_1 SET value = ? WHERE key = ?", (b"\x83\x00\x01", keys[7]))
    place.execute("DELETE FROM zapdb_entries_1 WHERE record = ?", (keys[120],))
    place.execute(archived, (b"\x84abc", keys[130]))
    place.execute(archived, (b"\x81a\x00", keys[131]))
    place.execute("DELETE FROM zapdb_records_1 WHERE key = ?", (keys[200],))
    made = place.execute("SELECT id FROM zapdb_blobs ORDER BY id")[0][0]
    place.execute("DELETE FROM zapdb_blobs WHERE id = ?", (made,))
    place.execute(
        "UPDATE zapdb_schema_history SET fingerprint = ? WHERE revision = 1", (b"\x00" * 8,)
    )


def verify_jobs(db: Database) -> list[Job]:
    return [job for job in db.jobs.list() if job.kind == "verify"]


def test_jobs_find_what_a_snapshot_shows(workspace: Workspace, db: Database) -> None:
    assert db.admin.verify(run_locally) == db.admin.verify()
    (job,) = verify_jobs(db)
    status = db.jobs.get(job.id)
    assert (job.state, status.progress.ranges_done, status.progress.read) == ("done", 6, COUNT)

    break_everything(workspace)
    (seen,), (found,) = db.admin.verify(), db.admin.verify(run_locally)
    assert sorted(found.problems) == sorted(seen.problems)
    assert found.problem_count == seen.problem_count == 8
    text = "\n".join(found.problems)
    assert "its fingerprint is" in text
    # One entry is missing, and one that no record has makes their number right.
    assert "no entry in 'by_size'" in text
    assert "index 'by_size': entries that no record has: 1" in text
    assert "archived value of title: stored bytes can't be decoded: " in text
    assert "): stored bytes can't be decoded: " in text
    assert "1 archived values of records that do not exist" in text
    assert "0 of the 9001 bytes of a blob" in text

    (job,) = verify_jobs(db)  # the first one is gone
    assert job.state == "blocked"
    (record,) = db.jobs.get(job.id).quarantine
    assert record.key == stored_keys(workspace)[7]
    assert db.admin.run_jobs() == []
    assert verify_jobs(db) == [job], "no job that the schema needs takes its place"


def test_archived_tables_are_verified_too(workspace: Workspace, base: list[dict[str, Any]]) -> None:
    workspace.write(2, DROP_TABLE)
    with workspace.open() as db:
        assert db.admin.verify(run_locally) == db.admin.verify() == []
        key = stored_keys(workspace)[70]
        workspace.execute("UPDATE zapdb_records_1 SET value = ? WHERE key = ?", (b"\x81\xff", key))
        (report,) = db.admin.verify(run_locally)
        assert (report.table, report.records, report.problem_count) == ("items", COUNT, 1)
        assert db.admin.verify() == [report]


def test_rule_17_a_verification_is_paused_and_goes_on_where_it_stopped(
    workspace: Workspace, db: Database
) -> None:
    """Findings of ranges that are done stay; a new verification ends the one before."""
    break_everything(workspace)
    (job,) = plan_verification(db._storage, 1)
    db.jobs.throttle(job.id, records_per_second=100)
    errors = list[JobError]()

    def run() -> None:
        try:
            db.admin.verify(run_locally)
        except JobError as error:
            errors.append(error)

    for verb in ("pause", "resume"):
        thread = threading.Thread(target=run)
        before = db.jobs.get(job.id).progress.read
        thread.start()
        wait_until(lambda b=before: db.jobs.get(job.id).progress.read > b, "it has begun")
        if verb == "pause":
            db.jobs.pause(job.id)
            finish(thread)
            assert "paused by" in errors.pop().context["reason"]
            assert 0 < db.jobs.get(job.id).progress.read < COUNT
            db.jobs.resume(job.id)
        else:
            db.jobs.throttle(job.id)
            finish(thread)
    assert errors == []
    assert db.jobs.get(job.id).progress.read == COUNT - 1
    (ended,) = verify_jobs(db)
    assert (ended.id, ended.state) == (job.id, "blocked")
    (seen,) = db.admin.verify()
    assert sum(one.count for one in ended.findings) == seen.problem_count < VIOLATIONS_SHOWN_MAX

    (first,) = plan_verification(db._storage, 1)
    (again,) = plan_verification(db._storage, 1, anew=True)
    assert [(one.id, one.state) for one in verify_jobs(db)] == sorted(
        [(first.id, "superseded"), (again.id, "planned")]
    )


@pytest.mark.parametrize("engine", ["postgresql"])
def test_entries_are_searched_by_key_whatever_the_planner_knows(workspace: Workspace) -> None:
    """Right after a table was loaded, each page of 500 was compared with all entries, so that to
    verify 15,000 records took two minutes."""
    workspace.write(
        1,
        "create_table: {table: things, key: [id],"
        " fields: [{name: id, type: integer}, {name: color, type: string}]}",
        "create_index: {table: things, index: by_color, fields: [{field: color}]}",
    )
    db = workspace.open()
    db.table("things").insert_many({"id": n, "color": f"c{n % 3}"} for n in range(4_000))
    index = next(iter(db.table("things")._current().indexes))
    asked = list[tuple[str, Any]]()

    def note(sql: str, parameters: Any = ()) -> list[Any]:
        asked.append((sql, parameters))
        return []

    connection: Any = SimpleNamespace(fetch_all=note)
    index.entries.find_entries(connection, [(b"a", b"b")] * 500)
    ((sql, parameters),) = asked
    with db._storage.transaction(TransactionMode.READ) as begun:
        plan = begun.fetch_all(f"EXPLAIN {sql}", parameters)
    assert not [line for (line,) in plan if "Seq Scan" in line]
    assert [line for (line,) in plan if "Index Cond" in line and "record" in line]
