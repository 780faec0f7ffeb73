"""Indexes that are built while others write: no entry is lost, and none is left behind."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.contract.tables import ADD_COLOR, INDEX_SIZE, INDEX_TITLE, ITEMS
from tests.lookups import find
from tests.support import GUARD_SECONDS, WAYS, Faults, Way, Workspace, error_of, finish, writing
from zapdb.activation.up import migrate_up
from zapdb.catalog import DEFAULT_TENANT
from zapdb.catalog.cluster.leases import Owner
from zapdb.database import Database
from zapdb.errors import GateTimeout, JobError, RecordNotFound, TransactionConflict
from zapdb.jobs import Job, plan_jobs
from zapdb.jobs.job_run import run_job, run_locally
from zapdb.jobs.range_work import run_range
from zapdb.jobs.work_loading import load_work
from zapdb.limits import CATALOG, GATE
from zapdb.storage import Storage, connect
from zapdb.tables.indexes import IndexMaintainer


@pytest.fixture
def db(workspace: Workspace) -> Database:
    """Ten items; an index on their size that is not built yet."""
    workspace.write(1, ITEMS)
    with workspace.open() as first:
        first.table("items").insert_many(
            {"id": number, "title": f"title {number}", "size": number} for number in range(10)
        )
    workspace.write(2, INDEX_SIZE)
    return workspace.open()


def only_job(storage: Storage) -> Job:
    (job,) = plan_jobs(storage, DEFAULT_TENANT)
    return job


def build_entries(storage: Storage, job: Job) -> None:
    """What the builder does, up to the count before the index is published."""
    work = load_work(storage, job.id)
    while run_range(storage, work, Owner.here()) is not None:
        pass


def run_to_end(storage: Storage, job: Job) -> None:
    assert run_job(storage, job, run_locally) is not None


def assert_clean(db: Database) -> None:
    (report,) = db.admin.verify()
    assert report.problems == ()
    assert report.building == ()


def ids(db: Database, size: int) -> list[int]:
    return [record.id for record in find(db.table("items"), "by_size", size)]


def delete_without_care(
    index: IndexMaintainer, connection: Any, entries: list[tuple[bytes, bytes]]
) -> None:
    index.entries.delete_many(connection, entries)


# A writer whose snapshot is older than the builder's entries


@pytest.mark.parametrize("engine", ["postgresql"])
@pytest.mark.parametrize("change", ["update", "delete"])
@pytest.mark.on_each_engine
def test_rule_23_a_writer_that_does_not_see_the_builders_entry_runs_again(
    workspace: Workspace, db: Database, change: str
) -> None:
    other = workspace.connect()
    job = only_job(other)
    items, attempts = db.table("items"), []

    def write() -> None:
        items.get(3)  # the snapshot is taken
        if not attempts:
            build_entries(other, job)
        attempts.append(change)
        items.delete(3) if change == "delete" else items.update(3, size=77)

    db.run(write)
    assert attempts == [change, change]
    run_to_end(other, job)
    assert ids(db, 3) == []
    assert ids(db, 77) == ([] if change == "delete" else [3])
    assert_clean(db)


@pytest.mark.parametrize("engine", ["postgresql"])
@pytest.mark.parametrize("change", ["update", "delete"])
def test_rule_23_without_the_insert_before_the_delete_it_leaves_an_entry_behind(
    workspace: Workspace, db: Database, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same with the protection taken away: the count before publishing tells it."""
    monkeypatch.setattr(IndexMaintainer, "remove_entries", delete_without_care)
    other = workspace.connect()
    job = only_job(other)
    with db.transaction():
        db.table("items").get(3)
        build_entries(other, job)
        if change == "delete":
            db.table("items").delete(3)
        else:
            db.table("items").update(3, size=77)
    with pytest.raises(JobError, match="does not match its records after it was built twice"):
        run_job(other, job, run_locally)
    assert "by_size" not in db.table("items").readable_indexes()
    assert ids(db, 3) == []  # a scan, and right


@pytest.mark.parametrize("engine", ["postgresql"])
@pytest.mark.parametrize("change", ["update", "delete", "insert"])
@pytest.mark.on_each_engine
def test_rule_23_the_builder_waits_for_a_writer_that_came_first(
    workspace: Workspace, db: Database, change: str
) -> None:
    other = workspace.connect()
    job = only_job(other)
    builder = threading.Thread(target=lambda: (build_entries(other, job), other.close()))
    with db.transaction():
        if change == "update":
            db.table("items").update(3, size=77)
        elif change == "delete":
            db.table("items").delete(3)
        else:
            db.table("items").insert(id=-1, title="new", size=77)
        builder.start()
        if change == "insert":
            finish(builder)
        else:
            builder.join(timeout=0.3)
            assert builder.is_alive()
    finish(builder)
    run_to_end(workspace.connect(), job)
    assert ids(db, 77) == {"update": [3], "delete": [], "insert": [-1]}[change]
    assert ids(db, 3) == ([3] if change == "insert" else [])
    assert_clean(db)


@pytest.mark.parametrize("engine", ["postgresql"])
@pytest.mark.on_each_engine
def test_rule_23_a_record_that_comes_and_goes_during_the_build(
    workspace: Workspace, db: Database
) -> None:
    other = workspace.connect()
    job = only_job(other)
    items = db.table("items")
    items.insert(id=20, title="new", size=20)
    build_entries(other, job)
    items.delete(20)
    items.insert(id=20, title="again", size=21)
    items.delete(0)
    items.update(1, title="the same key")
    run_to_end(other, job)
    assert ids(db, 20) == []
    assert ids(db, 21) == [20]
    assert_clean(db)


# A writer that began before the index


def begin_index(workspace: Workspace, storage: Storage) -> None:
    workspace.write(2, INDEX_SIZE)
    migrate_up(storage, DEFAULT_TENANT, workspace.directory)


@pytest.fixture
def plain(workspace: Workspace) -> Database:
    workspace.write(1, ITEMS)
    workspace.open().close()
    db = workspace.follow()
    db.table("items").insert(id=1, title="Milk", size=1)
    return db


@pytest.mark.on_each_engine
def test_rule_07_an_index_does_not_begin_while_an_older_writer_is_under_way(
    workspace: Workspace, plain: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = workspace.connect()
    with plain.transaction(), monkeypatch.context() as patch:
        patch.setattr("zapdb.storage.postgresql.GATE", GATE.within(0.3))
        patch.setattr("zapdb.storage.postgresql.GATE_LOCK_TIMEOUT_MS", 50)
        patch.setattr("zapdb.storage.sqlite.BUSY_TIMEOUT_MS", 300)
        patch.setattr("zapdb.storage.pool.BUSY_TIMEOUT_MS", 300)
        patch.setattr("zapdb.catalog.cluster.leases.CATALOG", CATALOG.within(1.0))
        plain.table("items").insert(id=2, title="Bread", size=2)
        with pytest.raises((GateTimeout, TransactionConflict)):
            begin_index(workspace, other)
    begin_index(workspace, other)
    for job in plan_jobs(other, DEFAULT_TENANT):
        run_to_end(other, job)
    assert ids(plain, 2) == [2]
    assert_clean(plain)


@pytest.mark.parametrize("engine", ["postgresql"])
def test_rule_07_without_the_gate_it_leaves_a_record_without_an_entry(
    workspace: Workspace, plain: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no error: the builder could not see the record, and the writer knew of no index."""
    monkeypatch.setattr("zapdb.storage.postgresql.GATE_SHARED", "SET LOCAL lock_timeout = 0")
    other = workspace.connect()
    with plain.transaction():
        plain.table("items").insert(id=2, title="Bread", size=2)
        begin_index(workspace, other)
        run_to_end(other, only_job(other))
    assert ids(plain, 2) == []
    (report,) = plain.admin.verify()
    assert any("no entry in 'by_size'" in problem for problem in report.problems)


@pytest.mark.parametrize("engine", ["postgresql"])
@pytest.mark.on_each_engine
def test_rule_07_a_lock_taken_after_the_snapshot_is_not_enough(
    workspace: Workspace, plain: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that got its snapshot, then waited for the gate, writes into the past."""
    plain._node_context.watcher.stop()  # it would tell the writer what its snapshot does not show
    from zapdb.storage import postgresql

    monkeypatch.setattr(
        postgresql,
        "BEGIN",
        postgresql.BEGIN
        | {
            postgresql.TransactionMode.WRITE: postgresql.BEGIN[postgresql.TransactionMode.WRITE]
            + "; SELECT version FROM zapdb_catalog_versions"
        },
    )
    other = workspace.connect()
    began, go_on, problems = threading.Event(), threading.Event(), list[BaseException]()
    take = postgresql.PostgreSQL.begin

    def begin(storage: Any, connection: Any, mode: Any, *, exclusive: bool) -> None:
        if mode is postgresql.TransactionMode.WRITE and threading.current_thread() is writer:
            connection.driver.execute(postgresql.BEGIN[mode])
            began.set()
            go_on.wait(GUARD_SECONDS)
            connection.driver.execute(postgresql.GATE_SHARED)
            return
        take(storage, connection, mode, exclusive=exclusive)

    def write() -> None:
        try:
            plain.table("items").insert(id=2, title="Bread", size=2)
        except BaseException as error:
            problems.append(error)

    monkeypatch.setattr(postgresql.PostgreSQL, "begin", begin)
    writer = threading.Thread(target=write)
    writer.start()
    assert began.wait(GUARD_SECONDS)
    begin_index(workspace, other)
    run_to_end(other, only_job(other))
    go_on.set()
    writer.join()
    assert problems == []
    (report,) = plain.admin.verify()
    assert any("no entry in 'by_size'" in problem for problem in report.problems)


# Writers by the dozen


def change_at_random(db: Database, seed: int, stop: Callable[[], bool]) -> int:
    """Insert, update and delete records of this seed and those of all, until told to stop."""
    generator, items, turns = random.Random(seed), db.table("items"), 0
    while not stop():
        turns += 1
        number = generator.choice([generator.randint(0, 9), seed * 1000 + generator.randint(0, 30)])
        values = {"title": f"title {generator.randint(0, 99)}", "size": generator.randint(0, 20)}

        def change(number: int = number, values: dict[str, Any] = values) -> None:
            kind = generator.random()
            there = items.find(number)
            if there is None:
                items.insert(id=number, **values)
            elif kind < 0.3:
                items.delete(number)
            else:
                items.update(number, **values)

        try:
            db.run(change)
        except (RecordNotFound, TransactionConflict):
            continue
        time.sleep(0.002)  # SQLite has no queue: who asks again at once keeps the others out
    return turns


@pytest.mark.on_each_engine
def test_rule_23_an_index_that_is_built_under_writers_holds_what_the_records_do(
    workspace: Workspace,
) -> None:
    workspace.write(1, ITEMS)
    workspace.open().close()
    db = workspace.follow()
    db.table("items").insert_many(
        {"id": number, "title": f"title {number}", "size": number % 20}
        for number in range(-(3_000 if workspace.engine == "postgresql" else 600), 10)
    )
    storage = connect(workspace.address)
    with writing(lambda seed, ends: change_at_random(db, seed, ends)) as turns:
        for number, operation in ((2, INDEX_SIZE), (3, INDEX_TITLE), (4, ADD_COLOR)):
            workspace.write(number, operation)
            migrate_up(storage, DEFAULT_TENANT, workspace.directory)
            for job in plan_jobs(storage, DEFAULT_TENANT):
                run_job(
                    storage,
                    job,
                    lambda s, j: run_locally(s, j, workers=2, batch_records_max=32),
                )
    storage.close()
    assert min(turns) > 0
    assert_clean(db)
    with db.snapshot():
        rows = sorted((record.size, record.id) for record in db.table("items").scan())
        found = [(r.size, r.id) for r in db.table("items").using("by_size")]
    assert found == rows
    assert db.admin.count_by_revision("items").keys() <= {4, 3, 2, 1}


def entries_table(db: Database) -> str:
    (state,) = db._catalog.table("items").indexes
    return f"zapdb_entries_{state.entry_table}"


def test_rule_23_an_index_is_published_only_if_entries_and_records_agree(
    workspace: Workspace, db: Database
) -> None:
    storage = workspace.connect()
    job = only_job(storage)
    build_entries(storage, job)
    table = entries_table(db)
    workspace.execute(
        f"DELETE FROM {table} WHERE record = (SELECT record FROM {table} ORDER BY record LIMIT 1)"
    )
    run_to_end(storage, job)  # counted, found short, and built once more
    assert_clean(db)


@pytest.mark.on_each_engine
def test_rule_23_a_build_that_leaves_too_many_entries_is_never_published(
    workspace: Workspace, db: Database
) -> None:
    storage = workspace.connect()
    job = only_job(storage)
    build_entries(storage, job)
    table = entries_table(db)
    workspace.execute(
        f"INSERT INTO {table} SELECT tenant, record, key FROM {table}"
        f" WHERE record = (SELECT record FROM {table} ORDER BY record LIMIT 1)"
    )
    with pytest.raises(JobError, match="does not match its records"):
        run_job(storage, job, run_locally)
    assert "by_size" not in db.table("items").readable_indexes()
    assert ids(db, 3) == [3]


@pytest.mark.on_each_engine
def test_verification_tells_a_missing_entry_and_one_too_many(
    workspace: Workspace, db: Database
) -> None:
    run_to_end(workspace.connect(), only_job(db._storage))
    assert_clean(db)
    table = entries_table(db)
    workspace.execute(
        f"INSERT INTO {table} SELECT tenant, record, key FROM {table} WHERE"
        f" record = (SELECT record FROM {table} ORDER BY record LIMIT 1)"
    )
    (report,) = db.admin.verify()
    assert report.problems == ("index 'by_size': 11 entries for 10 records",)
    workspace.execute(
        f"DELETE FROM {table} WHERE record ="
        f" (SELECT record FROM {table} ORDER BY record DESC LIMIT 1)"
    )
    (report,) = db.admin.verify()
    besides, missing = report.problems
    assert "no entry in 'by_size'" in missing
    assert besides == "index 'by_size': entries that no record has: 1"


def test_verification_tells_a_record_that_no_encoder_wrote(
    workspace: Workspace, db: Database
) -> None:
    (state,) = (db._catalog.table("items"),)
    workspace.execute(
        f"UPDATE zapdb_records_{state.schema.number} SET value = ? WHERE key ="
        f" (SELECT key FROM zapdb_records_{state.schema.number} ORDER BY key LIMIT 1)",
        (b"\x81\x00\xff",),
    )
    (report,) = db.admin.verify()
    assert report.problem_count == 1
    assert report.problems[0].startswith("record 0 (80): ")


# Interruptions


@pytest.mark.long_on("postgresql")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.on_each_engine
def test_rule_23_a_build_survives_a_fault_at_each_statement(
    workspace: Workspace, db: Database, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zapdb.jobs.job.RANGE_LEASE_SECONDS", 0.0)
    storage = workspace.connect()
    faults = Faults(workspace, storage, way, lasting=False)
    faults.install(monkeypatch)

    def build() -> None:
        for job in plan_jobs(storage, DEFAULT_TENANT):
            run_job(storage, job, lambda s, j: run_locally(s, j, workers=1))

    for call in itertools.count(1):
        faults.arm(call)
        if error_of(build) is None:
            break
        faults.arm(0)
        assert ids(db, 3) == [3]
        db.table("items").update(4, size=100 + call)
        assert ids(db, 100 + call) == [4]
    assert call > (20 if way == "drop" else 30)  # no lost connection strikes a `begin`
    assert_clean(db)
    assert ids(db, 3) == [3]


@pytest.mark.long_on("postgresql")
@pytest.mark.parametrize("kill_at", [1, 2, 5])
@pytest.mark.on_each_engine
def test_rule_23_a_build_goes_on_after_a_process_was_killed(
    workspace: Workspace, kill_at: int
) -> None:
    workspace.write(1, ITEMS)
    with workspace.open() as first:
        first.table("items").insert_many(
            {"id": at, "title": f"title {at}", "size": at % 7} for at in range(100)
        )
    workspace.write(2, INDEX_SIZE)
    db = workspace.open()
    killed = workspace.run("convert", str(kill_at))
    assert killed.returncode == -9, killed.stderr
    (state,) = db._catalog.table("items").indexes
    entries = workspace.execute(f"SELECT count(*) FROM zapdb_entries_{state.entry_table}")
    assert entries == [(16 * (kill_at - 1),)]
    db.table("items").update(3, size=77)
    db.table("items").delete(90)
    (report,) = db.admin.run_jobs()
    assert report.progress.read >= 99
    assert_clean(db)
    assert ids(db, 77) == [3]


# Nothing to build


@pytest.mark.on_each_engine
def test_rule_23_an_index_of_an_empty_table_is_readable_at_once(workspace: Workspace) -> None:
    """Whether a database is made by one migration or by many; for each tenant by itself."""
    workspace.write(1, ITEMS)
    first = workspace.open()
    first.admin.create_tenant("other")
    first.for_tenant("other").table("items").insert(id=1, title="there", size=7)
    workspace.write(2, INDEX_SIZE)
    workspace.write(3, INDEX_TITLE)
    db = workspace.open()
    items, others = db.table("items"), db.for_tenant("other").table("items")
    assert "by_size" in items.readable_indexes()
    assert "by_title" in items.readable_indexes()
    assert "by_size" not in others.readable_indexes()
    items.insert(id=1, title="new", size=3)
    assert ids(db, 3) == [1]
    assert_clean(db)
