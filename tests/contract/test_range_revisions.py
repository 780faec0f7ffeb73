"""What is known of key ranges: no record has a lower revision, and what is converted is skipped."""

from __future__ import annotations

import itertools
import json
from functools import partial
from typing import Any

import pytest

from tests.contract.tables import ADD_WEIGHT
from tests.contract.test_conversion import (
    COUNT,
    EXPECTED,
    contents,
    new_record,
    only_job,
    stale,
)
from tests.contract.test_conversion import db as db
from tests.contract.test_conversion import small_ranges as small_ranges
from tests.contract.test_quarantine import break_records, put_value
from tests.support import Workspace, assert_revisions_are_known
from zapdb.activation import load_tenant_catalog
from zapdb.activation.rollback import roll_back
from zapdb.activation.tenant_removal import remove_tenant
from zapdb.activation.up import migrate_up
from zapdb.catalog import DEFAULT_TENANT
from zapdb.catalog.cluster.leases import Owner
from zapdb.catalog.range_revisions import RangeRevision
from zapdb.cli.program import run_program
from zapdb.database import Database
from zapdb.errors import EXIT_USAGE
from zapdb.jobs import plan_jobs
from zapdb.jobs.job_run import run_job, run_locally
from zapdb.jobs.known_revisions import list_range_revisions
from zapdb.jobs.range_work import run_range
from zapdb.jobs.work_loading import load_work
from zapdb.past.schema_history_pruning import PruneBound, plan_pruning, prune
from zapdb.storage import Connection, RecordStatements, TransactionMode


def known(db: Database, table: str = "items") -> list[RangeRevision]:
    with db._storage.transaction(TransactionMode.READ) as connection:
        catalog = load_tenant_catalog(connection, DEFAULT_TENANT)
        return list_range_revisions(connection, catalog.tenant, catalog.table(table))


def rows_of(place: Workspace) -> int:
    ((count,),) = place.execute("SELECT count(*) FROM zapdb_range_revisions")
    return int(count)


def test_rule_08_each_range_that_is_done_is_known_and_neighbours_are_one(
    workspace: Workspace, db: Database, small_ranges: None
) -> None:
    assert known(db) == [RangeRevision(None, None, 1)]
    job = only_job(db._storage)
    work = load_work(db._storage, job.id)
    for number in (4, 0, 1, 3, 8):
        assert run_range(db._storage, work, Owner.here(), number) is not None
        assert_revisions_are_known(db._storage)
    found = known(db)
    assert [one.revision for one in found] == [4, 1, 4, 1, 4, 1]
    assert rows_of(workspace) == 3
    # It stays true with any writer: the last range is not known, and grows.
    db.table("items").insert_many(new_record(at) for at in range(COUNT, COUNT + 50))
    for at in range(0, COUNT, 90):
        db.table("items").update(at, size=1)
    assert_revisions_are_known(db._storage)
    assert known(db) == found
    assert run_range(db._storage, work, Owner.here(), 2) is not None
    assert [one.revision for one in known(db)] == [4, 1, 4, 1]
    assert run_job(db._storage, job, run_locally) is not None
    assert known(db) == [RangeRevision(None, None, 4)]
    assert rows_of(workspace) == 1
    assert_revisions_are_known(db._storage)


def test_a_conversion_skips_what_is_known_to_be_converted(
    workspace: Workspace, db: Database, small_ranges: None
) -> None:
    """As for a job of another chain, the database has no row that says what is done."""
    work = load_work(db._storage, only_job(db._storage).id)
    for number in (0, 1, 2, 7):
        run_range(db._storage, work, Owner.here(), number)
    workspace.execute("DELETE FROM zapdb_catalog WHERE kind = 'job'")
    workspace.execute("DELETE FROM zapdb_ranges")
    (report,) = db.admin.run_jobs()
    assert (report.progress.read, report.progress.written) == (COUNT - 400, COUNT - 400)
    assert (stale(db), contents(db)) == (0, EXPECTED)
    assert_revisions_are_known(db._storage)


def test_a_conversion_behind_a_rollback_writes_what_was_not_converted_before(
    workspace: Workspace, db: Database, small_ranges: None
) -> None:
    """Superseded in its middle by the migration that is rolled back."""
    job = only_job(db._storage)
    work = load_work(db._storage, job.id)
    for number in (0, 1, 2, 7):
        run_range(db._storage, work, Owner.here(), number)
    workspace.write(5, ADD_WEIGHT)
    other = workspace.connect()
    migrate_up(other, DEFAULT_TENANT, workspace.directory)
    (newer,) = plan_jobs(other, DEFAULT_TENANT)
    assert run_range(other, load_work(other, newer.id), Owner.here(), 5) is not None
    assert_revisions_are_known(db._storage)
    assert [one.revision for one in known(db)] == [4, 1, 5, 1, 4, 1]
    workspace.remove(5)
    roll_back(other)
    assert_revisions_are_known(db._storage)
    assert only_job(other).id not in (job.id, newer.id)
    assert contents(db) == EXPECTED
    (report,) = db.admin.run_jobs()
    # One more range was converted, there and back.
    assert (report.progress.read, report.progress.written) == (COUNT - 400, COUNT - 400)
    assert contents(db) == EXPECTED
    assert_revisions_are_known(db._storage)
    assert {one.revision for one in known(db)} == {4, 5}


def test_a_table_that_is_known_to_be_converted_is_not_looked_at(
    workspace: Workspace, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for a job of another chain, the database has no row that says that it is done."""
    db.admin.run_jobs()
    workspace.execute("DELETE FROM zapdb_catalog WHERE kind = 'job'")
    workspace.execute("DELETE FROM zapdb_ranges")
    sent = note_statements(monkeypatch)
    assert plan_jobs(db._storage, DEFAULT_TENANT) == []
    assert db.admin.run_jobs() == []
    assert not [sql for sql in sent if "zapdb_records_1" in sql]
    # The same without what is known reads it all.
    workspace.execute("DELETE FROM zapdb_range_revisions")
    (report,) = db.admin.run_jobs()
    assert [sql for sql in sent if "zapdb_records_1" in sql]
    assert (report.job.records, report.progress.written) == (COUNT, 0)


def test_rule_08_an_explanation_tells_what_is_known_of_the_records_that_are_read(
    workspace: Workspace, db: Database, small_ranges: None
) -> None:
    """Of the ranges that are read by their keys, else of all. Reading looks at each prefix."""
    items = db.table("items")
    db.admin.set_setting("change_log", "on")
    items.update(0, size=1)
    work = load_work(db._storage, only_job(db._storage).id)
    assert run_range(db._storage, work, Owner.here(), 0) is not None
    upper = next(one for one in known(db) if one.revision == 4).upper
    assert upper is not None
    first, last = items.where(items.f.id == 0), items.where(items.f.id == COUNT - 1)
    told = [one.explain() for one in (first, last, items.where())]
    assert [(one.lowest_revision, one.may_be_stale) for one in told] == [
        (4, False),
        (1, True),
        (1, True),
    ]
    assert "some may be converted as they are read: they have revision 1" in str(told[1])
    assert "converted" not in str(told[0])
    assert told[1].to_json()["lowest_revision"] == 1
    past = db.at(next(db.moments())).table("items")
    assert past.where().explain().lowest_revision is None
    assert [r.id for r in last] == [COUNT - 1]
    *_, (key, old) = workspace.execute("SELECT key, value FROM zapdb_records_1 ORDER BY key")
    db.admin.run_jobs()
    with db.snapshot() as snapshot:
        found = snapshot.table("items").where().explain()
    assert (found.lowest_revision, found.may_be_stale) == (4, False)
    # Who writes beside zapdb makes it wrong, and no reader wrong.
    before = contents(db)
    put_value(workspace, bytes(key), bytes(old))
    assert contents(db) == before


def noting(sent: list[str], original: Any) -> Any:
    def send(this: Connection, sql: str, *more: Any) -> Any:
        sent.append(sql)
        return original(this, sql, *more)

    return send


def note_statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is sent from now on."""
    sent = list[str]()
    for name in ("fetch_one", "fetch_all", "run", "send"):
        monkeypatch.setattr(Connection, name, noting(sent, getattr(Connection, name)))
    return sent


def test_rule_31_pruning_counts_no_records_that_are_known_to_be_newer(
    workspace: Workspace, db: Database, small_ranges: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = only_job(db._storage)
    work = load_work(db._storage, job.id)
    plan = partial(plan_pruning, bound=PruneBound(keep_last=1))
    log = db.admin.schema_history("items")
    counted = list[str]()
    count = RecordStatements.count_by_prefix
    monkeypatch.setattr(
        RecordStatements,
        "count_by_prefix",
        lambda this, connection: counted.append(this.name) or count(this, connection),
    )
    for number in itertools.count():
        with db._storage.transaction(TransactionMode.READ) as connection:
            pruning = plan(connection, log)
        if run_range(db._storage, work, Owner.here(), number) is None:
            break
        assert pruning.required_by
    assert len(counted) == 11
    assert not pruning.required_by
    # All ranges are done, but nobody has looked behind the last key yet.
    assert run_job(db._storage, job, run_locally) is not None
    with db._storage.transaction(TransactionMode.READ) as connection:
        pruning = plan(connection, log)
    assert len(counted) == 11
    prune(db._storage, pruning)
    assert contents(db) == EXPECTED
    assert known(db) == [RangeRevision(None, None, 4)]


def test_rule_08_a_range_with_a_record_in_quarantine_is_not_known(
    workspace: Workspace, db: Database, small_ranges: None
) -> None:
    whole = break_records(workspace, 3, 600)
    (report,) = db.admin.run_jobs()
    assert (report.job.state, stale(db)) == ("blocked", 2)
    assert_revisions_are_known(db._storage)
    assert sum(one.revision == 1 for one in known(db)) == 3  # and the keys behind the last one
    for key, value in whole.values():
        put_value(workspace, key, value)  # of a lower revision
    assert_revisions_are_known(db._storage)
    (report,) = db.admin.run_jobs(retry_quarantined=True)
    assert known(db) == [RangeRevision(None, None, 4)]
    assert contents(db) == EXPECTED


def test_a_record_that_was_restored_beside_zapdb_is_found_and_converted(
    workspace: Workspace, db: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = workspace.execute("SELECT key, value FROM zapdb_records_1")
    db.admin.run_jobs()
    for key, value in rows[:2]:
        put_value(workspace, bytes(key), bytes(value))
    assert contents(db) == EXPECTED  # readers look at each record
    (report,) = db.admin.verify()
    assert report.problems == (
        "records of revisions below 4, which is noted as the lowest one of their keys: 2; "
        "`zapdb verify --repair` forgets the note, and then `zapdb convert run` converts them",
    )
    run_program(["verify", "-d", workspace.address, "--repair", "--yes"])
    assert capsys.readouterr().out.startswith("forgot what was noted of items\n")
    assert known(db) == [RangeRevision(None, None, 1)]
    (conversion,) = db.admin.run_jobs()
    assert (conversion.job.state, stale(db)) == ("done", 0)
    assert db.admin.verify()[0].problems == ()
    assert known(db) == [RangeRevision(None, None, 4)]


def test_what_is_known_is_shown(
    workspace: Workspace, db: Database, small_ranges: None, capsys: pytest.CaptureFixture[str]
) -> None:
    job = only_job(db._storage)
    work = load_work(db._storage, job.id)
    for number in (1, 2):
        run_range(db._storage, work, Owner.here(), number)
    show = ["catalog", "show", "items", "--ranges", "-d", workspace.address]
    assert run_program(show) == 0
    head, _, *lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in (head, *lines)] == [
        ["after", "the", "key", "up", "to", "the", "key", "lowest", "revision", "records"],
        ["-", "99", "1", "may", "be", "stale"],
        ["99", "299", "4", "current"],
        ["299", "-", "1", "may", "be", "stale"],
    ]
    assert run_program([*show, "--json"]) == 0
    document: Any = json.loads(capsys.readouterr().out)
    assert document["ranges"][1] == {
        "after": {"id": 99},
        "up_to": {"id": 299},
        "revision": 4,
        "current": True,
    }
    assert document["ranges"][2]["up_to"] is None
    assert run_program([*show, "--code"]) == EXIT_USAGE
    assert "--code and --ranges show different things" in capsys.readouterr().err


def test_rule_31_tenants_know_their_own_and_leave_nothing(
    workspace: Workspace, db: Database
) -> None:
    db.admin.run_jobs()
    db.admin.create_tenant("other")
    with workspace.open(tenant="other") as other:
        assert known_of(other) == [RangeRevision(None, None, 1)]
        other.table("items").insert(**new_record(1))
    workspace.write(5, ADD_WEIGHT)
    with workspace.open(tenant="other") as other:
        other.admin.run_jobs()
        assert [one.revision for one in known_of(other)] == [2]
    assert known(db) == [RangeRevision(None, None, 4)]
    assert rows_of(workspace) == 2
    remove_tenant(db._storage, "other")
    assert rows_of(workspace) == 1


def known_of(db: Database) -> list[RangeRevision]:
    with db._storage.transaction(TransactionMode.READ) as connection:
        catalog = load_tenant_catalog(connection, db._catalog.tenant)
        return list_range_revisions(connection, catalog.tenant, catalog.table("items"))
