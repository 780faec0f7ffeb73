"""Records that can't be read do not stop a job, and nothing is published without them."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from subprocess import Popen

import pytest

from tests.contract.tables import ADD_WEIGHT
from tests.contract.test_conversion import COUNT, EXPECTED, contents, only_job, stale
from tests.contract.test_conversion import db as db
from tests.contract.test_jobs import progress_of
from tests.contract.test_jobs import small_ranges as small_ranges
from tests.contract.test_jobs import start as start
from tests.support import Workspace, wait_until
from zapdb.activation.rollback import roll_back
from zapdb.cli.program import run_program
from zapdb.database import Database
from zapdb.errors import EXIT_PENDING, CorruptRecord
from zapdb.jobs import plan_jobs
from zapdb.past.schema_history_pruning import PruneBound, plan_pruning
from zapdb.storage import TransactionMode

BROKEN = (3, 4, 600)
INDEX_KIND = "create_index: {table: items, index: by_kind, fields: [{field: kind}]}"
CHECK_KIND = "add_check: {table: items, check: named, expression: \"kind != 'none'\"}"


def break_records(place: Workspace, *ids: int) -> dict[int, tuple[bytes, bytes]]:
    """Make a text of these records no UTF-8; returns their keys and values as they were."""
    rows = [
        (bytes(key), bytes(value))
        for key, value in place.execute("SELECT key, value FROM zapdb_records_1")
    ]
    found = {}
    for at in ids:
        pattern = re.compile(rb"(?<=title).%d(?!\d)" % at, re.DOTALL)
        ((key, value),) = [row for row in rows if pattern.search(row[1])]
        found[at] = key, value
        put_value(place, key, value.replace(b"title", b"\xff\xfe\xfd\xfc\xfb"))
    return found


def put_value(place: Workspace, key: bytes, value: bytes) -> None:
    place.execute("UPDATE zapdb_records_1 SET value = ? WHERE key = ?", (value, key))


def test_rule_08_records_that_can_not_be_read_do_not_stop_a_conversion(
    workspace: Workspace, db: Database
) -> None:
    whole = break_records(workspace, *BROKEN)
    job = only_job(db._storage)
    (report,) = db.admin.run_jobs()
    assert (report.job.state, report.progress.quarantined) == ("blocked", 3)
    assert (report.progress.written, stale(db)) == (COUNT - 3, 3)
    status = db.jobs.get(job.id)
    assert [one.key for one in status.quarantine] == sorted(key for key, _ in whole.values())
    assert all("stored bytes can't be decoded" in one.reason for one in status.quarantine)
    assert status.waits[0].startswith("3 records are in quarantine, until restored or deleted")
    # What reads them stays, and nobody tries them again unasked.
    assert plan_jobs(db._storage, 1) == []
    assert db.admin.run_jobs() == []
    log = db.admin.schema_history("items")
    with db._storage.transaction(TransactionMode.READ) as connection:
        pruning = plan_pruning(connection, log, PruneBound(keep_last=1))
    assert [required.revision for required in pruning.required_by] == [1, 2]
    with pytest.raises(CorruptRecord):
        db.table("items").get(3)

    (key, value), (deleted, _), (late, late_value) = whole.values()
    put_value(workspace, key, value)
    workspace.execute("DELETE FROM zapdb_records_1 WHERE key = ?", (deleted,))
    (report,) = db.admin.run_jobs(retry_quarantined=True)
    assert (report.job.state, report.progress.quarantined) == ("blocked", 1)
    assert [one.key for one in db.jobs.get(job.id).quarantine] == [late]
    put_value(workspace, late, late_value)
    (report,) = db.admin.run_jobs(retry_quarantined=True)
    assert (report.job.state, report.progress.quarantined) == ("done", 0)
    assert report.progress.written == COUNT - 1
    assert contents(db) == {at: values for at, values in EXPECTED.items() if at != 4}


def test_rule_18_a_record_that_was_cut_or_emptied_is_left_as_it_is_and_shown(
    workspace: Workspace, db: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing that the conversion needs is missing in the one that was cut."""
    rows = sorted(workspace.execute("SELECT key, value FROM zapdb_records_1"))
    (cut, whole), (empty, gone) = ((bytes(key), bytes(value)) for key, value in (rows[3], rows[7]))
    put_value(workspace, cut, whole[:-1])
    put_value(workspace, empty, b"")
    assert db.admin.count_by_revision("items") == {0: 1, 1: 334, 2: 332, 3: 333}
    assert run_program(["convert", "status", "-d", workspace.address]) == EXIT_PENDING
    assert "unreadable: 1, 1: 334, 2: 332, 3: 333" in capsys.readouterr().out
    (report,) = db.admin.run_jobs()
    assert (report.job.state, report.progress.quarantined, stale(db)) == ("blocked", 2, 2)
    (verified,) = db.admin.verify()
    assert verified.revisions == {0: 1, 1: 1, 4: COUNT - 2}
    assert [cut.hex() in one or empty.hex() in one for one in verified.problems] == [True, True]
    now = dict(workspace.execute("SELECT key, value FROM zapdb_records_1"))
    assert {bytes(k): bytes(v) for k, v in now.items() if bytes(k) in (cut, empty)} == {
        cut: whole[:-1],
        empty: b"",
    }
    put_value(workspace, cut, whole)
    put_value(workspace, empty, gone)
    (report,) = db.admin.run_jobs(retry_quarantined=True)
    assert report.job.state == "done"
    assert contents(db) == EXPECTED


@pytest.mark.long_on("sqlite")
def test_a_worker_that_was_killed_leaves_its_quarantine(
    workspace: Workspace, db: Database, start: Callable[[], Popen[str]]
) -> None:
    whole = break_records(workspace, *BROKEN)
    job = only_job(db._storage)
    db.jobs.throttle(job.id, records_per_second=10)
    process = start()
    wait_until(lambda: progress_of(db, job).quarantined == 2, "the first ones are found")
    process.send_signal(signal.SIGKILL)
    process.wait()
    db.jobs.throttle(job.id)
    (report,) = db.admin.run_jobs()
    assert (report.job.state, report.progress.quarantined) == ("blocked", 3)
    assert report.progress.written == COUNT - 3
    for key, value in whole.values():
        put_value(workspace, key, value)
    (report,) = db.admin.run_jobs(retry_quarantined=True)
    assert (report.job.state, report.progress.written) == ("done", COUNT)
    assert contents(db) == EXPECTED


def test_rule_23_an_index_is_not_published_without_a_record(
    workspace: Workspace, db: Database
) -> None:
    db.admin.run_jobs()
    whole = break_records(workspace, 6, 17)
    workspace.write(5, INDEX_KIND)
    with workspace.open() as other:
        (report,) = other.admin.run_jobs()
        assert (report.job.state, report.progress.quarantined) == ("blocked", 2)
        assert "by_kind" not in other.table("items").readable_indexes()
        assert other.admin.run_jobs() == []
        for key, value in whole.values():
            put_value(workspace, key, value)
        (again,) = other.admin.run_jobs(retry_quarantined=True)
        assert (again.job.state, again.progress.quarantined) == ("done", 0)
        # Only the ranges of these two were gone through again.
        assert COUNT < again.progress.read <= COUNT + 200
        assert "by_kind" in other.table("items").readable_indexes()
        (verified,) = other.admin.verify()
        assert verified.problems == ()


def test_rule_25_a_check_is_not_validated_without_a_record(
    workspace: Workspace, db: Database
) -> None:
    db.admin.run_jobs()
    whole = break_records(workspace, 6)
    workspace.write(5, CHECK_KIND)
    with workspace.open() as other:
        (report,) = other.admin.run_jobs()
        assert (report.job.state, report.job.findings) == ("blocked", ())
        assert report.progress.quarantined == 1
        assert not other._session.catalog.tables["items"].constraints[0].is_validated
        for key, value in whole.values():
            put_value(workspace, key, value)
        (report,) = other.admin.run_jobs(retry_quarantined=True)
        assert report.job.state == "done"


def test_rule_13_a_rollback_does_not_wait_for_a_record(workspace: Workspace, db: Database) -> None:
    workspace.write(5, ADD_WEIGHT)
    workspace.write(
        6,
        "transform: {table: items, from: {kind: string, number: string}, into: {both: string},"
        " up: {both: \"join('-', kind, number)\"},"
        " down: {kind: \"before(both, '-')\", number: \"after(both, '-')\"}, reversibility: lossy,"
        " because: a dash is taken for the end}",
    )
    workspace.open().close()
    (conversion,) = [r for r in db.admin.run_jobs() if r.job.kind == "convert"]
    assert conversion.progress.written == COUNT
    whole = break_records(workspace, 8)
    assert roll_back(workspace.connect(), evict=True).migrations[0].number == 6
    workspace.remove(6)
    with workspace.open() as other:
        (back,) = [r for r in other.admin.run_jobs() if r.job.kind == "convert"]
        assert (back.job.state, back.progress.quarantined) == ("blocked", 1)
        assert back.progress.written == COUNT - 1
        for key, value in whole.values():
            put_value(workspace, key, value)
        (back,) = other.admin.run_jobs(retry_quarantined=True)
        assert back.job.state == "done"
        assert contents(other) == {at: v | {"weight": 7} for at, v in EXPECTED.items()}
