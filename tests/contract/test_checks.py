"""Checks: what is written meets them, what was there before is looked at."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from tests.contract.tables import ADD_COLOR, ITEMS
from tests.support import LIVE, WAYS, Faults, Way, Workspace, dump, error_of, is_resolved
from zapdb.activation.rollback import roll_back
from zapdb.activation.up import MigrationChoice, migrate_up
from zapdb.catalog import DEFAULT_TENANT
from zapdb.database import Database, Table
from zapdb.errors import CheckViolation, CommitUnknown
from zapdb.jobs import plan_jobs
from zapdb.jobs.job_run import JobReport, run_job, run_locally
from zapdb.storage import Storage, connect
from zapdb.storage.blobs import BlobStatements
from zapdb.tables.indexes import violations

POSITIVE = 'add_check: {table: items, check: positive, expression: "size >= 0"}'
NOTED = """\
add_check: {table: items, check: noted, expression: "length(coalesce(note, '')) < 5000"}"""
DROP_POSITIVE = "drop_check: {table: items, check: positive}"


@pytest.fixture
def db(workspace: Workspace) -> Database:
    workspace.write(1, ITEMS, POSITIVE, NOTED)
    return workspace.open()


@pytest.fixture
def items(db: Database) -> Table:
    return db.table("items")


def run_jobs(storage: Storage, batch_records_max: int = 16) -> list[JobReport]:
    reports = [
        run_job(storage, job, lambda s, j: run_locally(s, j, batch_records_max=batch_records_max))
        for job in plan_jobs(storage, DEFAULT_TENANT, is_by_hand=True)
    ]
    return [report for report in reports if report is not None]


def constraint_states(db: Database, table: str = "items") -> dict[str, str]:
    db._session.reload()
    return {str(c): c.state for c in db._catalog.table(table).constraints}


def assert_clean(db: Database) -> None:
    for report in db.admin.verify():
        assert report.problems == ()


# Writers


def test_rule_11_what_violates_a_check_is_refused_by_name(db: Database, items: Table) -> None:
    items.insert(id=1, title="Milk", size=1)
    with pytest.raises(CheckViolation) as caught:
        items.insert(id=2, title="Bread", size=-4)
    assert isinstance(caught.value, ValueError)
    assert caught.value.context == {
        "table": "items",
        "check": "positive",
        "expression": "size >= 0",
        "values": "size=-4",
        "key": "2",
    }
    with pytest.raises(CheckViolation) as caught:
        items.update(1, size=-1)
    assert caught.value.context["key"] == "1"
    with pytest.raises(CheckViolation) as caught:
        items.insert_many([{"id": 3, "title": "a"}, {"id": 4, "title": "b", "size": -3}])
    assert (caught.value.context["key"], caught.value.hint) == ("4", "none was inserted")
    with db.transaction():
        items.insert(id=5, title="Eggs")
        with pytest.raises(CheckViolation):
            items.update(5, size=-1)
        with pytest.raises(CheckViolation):
            items.insert_many([{"id": 6, "title": "b", "size": -3}])
    assert [(r.id, r.size) for r in items.scan()] == [(1, 1), (5, 0)]
    assert_clean(db)


def test_rule_28_a_blob_is_loaded_only_if_the_check_reads_it(
    items: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = []
    load = BlobStatements.load
    monkeypatch.setattr(BlobStatements, "load", lambda t, b: loaded.append(b) or load(t, b))
    items.insert(id=1, title="t" * 10_000, note="n" * 4_999)
    items.update(1, size=3)
    assert len(loaded) == 1  # the note, which the update left alone
    with pytest.raises(CheckViolation) as caught:
        items.update(1, note="n" * 5_000)
    assert len(caught.value.context["values"]) < 100
    assert len(loaded) == 1  # the new one was at hand
    assert items.get(1).note == "n" * 4_999


def test_rule_23_a_table_without_records_is_validated_at_once(
    workspace: Workspace, db: Database
) -> None:
    assert constraint_states(db) == {"check positive": "validated", "check noted": "validated"}
    db.table("items").insert(id=1, title="a")
    more = "add_check: {table: items, check: titled, expression: \"title != 'b'\"}"
    workspace.write(2, more)
    db = workspace.open()
    assert constraint_states(db)["check titled"] == "unvalidated"
    (report,) = run_jobs(workspace.connect())
    assert (report.job.kind, report.job.state) == ("validate", "done")
    assert set(constraint_states(db).values()) == {"validated"}
    assert run_jobs(workspace.connect()) == []


# What was there before


@pytest.fixture
def violated(workspace: Workspace) -> Database:
    """A hundred items, of which 13 and those from 95 on have negative sizes."""
    workspace.write(1, ITEMS)
    with workspace.open() as first:
        first.table("items").insert_many(
            {"id": n, "title": "t", "size": -1 if n == 13 or n >= 95 else 1} for n in range(100)
        )
    workspace.write(2, POSITIVE, NOTED)
    return workspace.open()


def test_rule_25_what_violates_a_new_check_is_counted_and_listed_until_it_is_gone(
    workspace: Workspace, violated: Database
) -> None:
    storage, items = workspace.connect(), violated.table("items")
    assert items.get(13).size == -1  # reading never refuses
    (report,) = run_jobs(storage)
    assert report.job.state == "blocked"
    (finding,) = report.job.findings
    assert (finding.what, finding.count) == ("check positive", 6)
    assert set(finding.examples) == {f"{n} has size=-1" for n in (13, *range(95, 100))}
    assert constraint_states(violated) == {
        "check positive": "unvalidated",
        "check noted": "validated",
    }
    with pytest.raises(CheckViolation):
        items.insert(id=200, title="t", size=-1)
    with pytest.raises(CheckViolation):
        items.update(13, title="other")  # all checks bind every write
    items.update(13, size=0)
    for number in range(95, 99):
        items.delete(number)
    (report,) = run_jobs(storage)
    assert [(f.count, f.examples) for f in report.job.findings] == [(1, ("99 has size=-1",))]
    assert_clean(violated)  # it is not validated, and nobody says it is
    items.delete(99)
    (report,) = run_jobs(storage)
    assert report.job.state == "done"
    assert set(constraint_states(violated).values()) == {"validated"}
    assert workspace.execute(
        "SELECT count(*) FROM zapdb_catalog WHERE kind = 'finding'" + LIVE
    ) == [(0,)]
    assert run_jobs(storage) == []


def test_rule_18_a_conversion_refuses_nothing_and_validation_finds_what_it_made(
    workspace: Workspace,
) -> None:
    workspace.write(1, ITEMS)
    with workspace.open() as first:
        first.table("items").insert_many({"id": n, "title": "t", "size": n - 2} for n in range(5))
    transform = (
        "transform: {table: items, from: {size: integer}, into: {half: integer},"
        ' up: {half: "size - 1"}, down: {size: "half + 1"}, reversibility: lossy,'
        " because: sizes end somewhere}"
    )
    workspace.write(2, transform)
    workspace.write(3, 'add_check: {table: items, check: halved, expression: "half >= 0"}')
    db = workspace.open()
    assert [r.half for r in db.table("items").scan()] == [-3, -2, -1, 0, 1]
    validate, convert = run_jobs(workspace.connect())
    assert (convert.job.kind, convert.job.state) == ("convert", "done")
    assert validate.job.findings[0].count == 3
    assert_clean(db)


def test_rule_23_verification_checks_what_is_validated(workspace: Workspace, db: Database) -> None:
    items = db.table("items")
    items.insert(id=1, title="a", size=5)
    ((value,),) = workspace.execute("SELECT value FROM zapdb_records_1")
    broken = bytes(value).replace(b"\x85", b"\x7b")
    assert broken != bytes(value)
    workspace.execute("UPDATE zapdb_records_1 SET value = ?", (broken,))
    (report,) = db.admin.verify()
    assert report.problems == ("check positive: 1 has size=-5",)


def test_rule_13_a_rollback_takes_checks_away_and_brings_dropped_ones_back(
    workspace: Workspace,
) -> None:
    workspace.write(1, ITEMS, POSITIVE)
    with workspace.open() as first:
        first.table("items").insert(id=1, title="a")
    workspace.write(2, DROP_POSITIVE, NOTED)
    with workspace.open() as second:
        assert constraint_states(second) == {"check noted": "unvalidated"}
        second.table("items").insert(id=2, title="a", size=-1)
    storage = connect(workspace.address)
    roll_back(storage)
    workspace.remove(2)
    db = workspace.open()
    assert constraint_states(db) == {"check positive": "unvalidated"}
    rows = workspace.execute("SELECT count(*) FROM zapdb_catalog WHERE kind = 'constraint'" + LIVE)
    assert rows == [(1,)]
    (report,) = run_jobs(storage)
    assert report.job.findings[0].examples == ("2 has size=-1",)
    forgotten = forget_first(workspace, storage, db)
    assert forgotten == [(0,)]
    storage.close()


def forget_first(workspace: Workspace, storage: Storage, db: Database) -> list[Any]:
    db.close()
    roll_back(storage)
    return workspace.execute("SELECT count(*) FROM zapdb_catalog WHERE kind = 'constraint'" + LIVE)


def test_rule_13_a_check_that_is_applied_again_is_validated_again(workspace: Workspace) -> None:
    """The chain is the same one again, and the job must not pass for the one that was done."""
    workspace.write(1, ITEMS)
    with workspace.open() as first:
        first.table("items").insert(id=1, title="a")
    workspace.write(2, POSITIVE)
    workspace.open().close()
    storage = workspace.connect()
    assert [report.job.state for report in run_jobs(storage)] == ["done"]
    roll_back(storage)
    workspace.remove(2)
    with workspace.open() as between:
        between.table("items").insert(id=2, title="a", size=-1)
    workspace.write(2, POSITIVE)
    migrate_up(storage, DEFAULT_TENANT, workspace.directory, MigrationChoice(again=True))
    (report,) = run_jobs(storage)
    assert report.job.findings[0].count == 1


def test_a_blocked_job_is_given_up_when_the_check_is_dropped(
    workspace: Workspace, violated: Database
) -> None:
    storage = workspace.connect()
    run_jobs(storage)
    workspace.write(3, DROP_POSITIVE, ADD_COLOR)
    db = workspace.open()
    assert constraint_states(db) == {"check noted": "validated"}
    (report,) = run_jobs(storage)
    assert report.job.kind == "convert"
    jobs = workspace.execute("SELECT value FROM zapdb_catalog WHERE kind = 'job'")
    states = [json.loads(value)["state"] for (value,) in jobs if '"validate"' in value]
    assert states == ["superseded"]
    assert workspace.execute(
        "SELECT count(*) FROM zapdb_catalog WHERE kind = 'finding'" + LIVE
    ) == [(0,)]


def test_a_renamed_field_keeps_its_checks_validated(workspace: Workspace, db: Database) -> None:
    db.table("items").insert(id=1, title="a")
    workspace.write(2, "rename_field: {table: items, field: size, to: extent}")
    db = workspace.open()
    assert set(constraint_states(db).values()) == {"validated"}
    with pytest.raises(CheckViolation) as caught:
        db.table("items").update(1, extent=-1)
    assert caught.value.context["expression"] == "extent >= 0"


def test_values_are_shown_by_their_beginning() -> None:
    assert violations.show_value("x" * 70) == repr("x" * 70)
    assert violations.show_value("x" * 700) == "'" + "x" * 78 + "…"


# Interruptions


@pytest.mark.long_on("postgresql")
@pytest.mark.parametrize("way", WAYS)
def test_rule_25_a_fault_at_each_statement_leaves_all_of_a_change_or_none(
    workspace: Workspace, db: Database, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    items = db.table("items")
    items.insert(id=2, title="t", size=1)  # with the first write old commit tokens are deleted
    items.delete(2)
    before = dump(workspace)
    faults = Faults(workspace, db._storage, way, lasting=False)
    faults.install(monkeypatch)
    for call in itertools.count(1):
        faults.arm(call)
        error = error_of(lambda: items.insert(id=2, title="t" * 5_000, size=1))
        struck = faults.struck
        faults.arm(0)
        if isinstance(error, CommitUnknown) or (error is None and not struck):
            break
        if error is None:
            # The session was lost before COMMIT, and all of the change was made in another one.
            assert way == "drop" or is_resolved(workspace, struck)
            assert_clean(db)
            items.delete(2)
            before = dump(workspace)
        assert dump(workspace) == before
    assert call > 4 - (way == "drop")  # a session that is lost before BEGIN is no fault
    assert_clean(db)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.on_each_engine
def test_rule_25_a_validation_counts_right_whatever_statement_fails(
    workspace: Workspace, violated: Database, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zapdb.jobs.job.RANGE_LEASE_SECONDS", 0.0)
    monkeypatch.setattr("zapdb.jobs.job.RANGE_RECORDS", 40)
    storage = workspace.connect()
    faults = Faults(workspace, storage, way, lasting=False)
    faults.install(monkeypatch)

    done: list[JobReport] = []

    def validate() -> None:
        done.clear()
        for job in plan_jobs(storage, DEFAULT_TENANT, is_by_hand=True):
            report = run_job(
                storage, job, lambda s, j: run_locally(s, j, workers=1, batch_records_max=16)
            )
            done.extend([report] if report is not None else [])

    for call in itertools.count(1):
        faults.arm(call)
        error, struck = error_of(validate), faults.struck
        faults.arm(0)
        if error is None:
            assert [report.job.findings[0].count for report in done] == [6]
            if not struck:
                break
            # The session was lost before COMMIT, and the batch was made again in another one.
            assert way == "drop"
    assert call > 40
    (report,) = run_jobs(storage)
    assert report.job.findings[0].count == 6
    assert constraint_states(violated) == {
        "check positive": "unvalidated",
        "check noted": "validated",
    }
