"""Conversion in the background: nothing is lost by writers, deaths or a second run."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.contract.tables import ADD_COLOR, ADD_WEIGHT, DROP_NOTE, INDEX_SIZE, ITEMS, RENAME_SIZE
from tests.crash.growth import growing
from tests.support import (
    WAYS,
    Faults,
    PostgresServer,
    Way,
    Workspace,
    count_stale,
    dead_owner,
    error_of,
    finish,
    wait_until,
)
from zapdb.activation import TenantCatalog, load_tenant_catalog
from zapdb.activation.rollback import roll_back
from zapdb.activation.up import migrate_up
from zapdb.catalog import DEFAULT_TENANT
from zapdb.catalog.cluster.leases import Owner
from zapdb.database import Database
from zapdb.errors import ExecutorMismatch, JobError, StorageError
from zapdb.jobs import Job, plan_jobs, range_work, read_progress
from zapdb.jobs.job import claim, list_jobs, open_ranges
from zapdb.jobs.job_run import run_job, run_locally
from zapdb.jobs.range_work import run_range
from zapdb.jobs.work import load_job_catalog
from zapdb.jobs.work_loading import load_work
from zapdb.records import asdict
from zapdb.storage import (
    Connection,
    OfHeld,
    RecordStatements,
    RowsHeld,
    Storage,
    TransactionMode,
    connect,
)
from zapdb.storage.engine import StorageEngine
from zapdb.storage.interruption import CallInterrupted, InterruptibleCall
from zapdb.storage.pipelined import PipelineQueue

COUNT = 1_000
TRANSFORM = """\
transform: {table: items, from: {title: string}, into: {kind: string, number: string},
      up: {kind: "before(title, ' ')", number: "after(title, ' ')"},
      down: {title: "join(' ', kind, number)"}, reversibility: lossy,
      because: a title of one word gains a blank}"""


@pytest.fixture
def small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranges of a hundred records."""
    monkeypatch.setattr("zapdb.jobs.job.RANGE_RECORDS", 100)


@pytest.fixture
def no_statistics(postgres: PostgresServer) -> Iterator[None]:
    """Nobody looks at tables by himself, however long the test takes."""
    postgres.execute("ALTER SYSTEM SET autovacuum = off")
    postgres.execute("SELECT pg_reload_conf()")
    running = "SELECT 1 FROM pg_stat_activity WHERE backend_type LIKE 'autovacuum%'"
    wait_until(lambda: not postgres.execute(running), "it has ended")
    yield
    postgres.execute("ALTER SYSTEM RESET autovacuum")
    postgres.execute("SELECT pg_reload_conf()")


@pytest.fixture
def db(workspace: Workspace) -> Database:
    """A thousand stale items, in three layouts."""
    workspace.write(1, ITEMS)
    for number, operation in enumerate((ITEMS, ADD_COLOR, TRANSFORM, DROP_NOTE), 1):
        workspace.write(number, operation)
        with workspace.open() as db:
            names = db.table("items").field_names
            if number < 4:
                db.table("items").insert_many(
                    old_record(at, names) for at in range(COUNT) if at % 3 == number - 1
                )
    return workspace.open()


def old_record(at: int, names: tuple[str, ...]) -> dict[str, Any]:
    values = {"id": at, "title": f"title {at}", "size": at % 7, "note": "n", "color": "blue"}
    values |= {"kind": "title", "number": str(at)}
    return {name: values[name] for name in names}


def new_record(at: int) -> dict[str, Any]:
    color = "red" if at % 3 == 0 else "blue"
    return {"id": at, "size": at % 7, "color": color, "kind": "title", "number": str(at)}


def contents(db: Database) -> dict[int, dict[str, Any]]:
    return {record.id: asdict(record) for record in db.table("items").scan()}


EXPECTED = {at: new_record(at) for at in range(COUNT)}


def stale(db: Database) -> int:
    with db._storage.transaction(TransactionMode.READ) as connection:
        catalog = load_tenant_catalog(connection, DEFAULT_TENANT)
    return count_stale(db._storage, catalog, "items")


def only_job(storage: Storage) -> Job:
    (job,) = plan_jobs(storage, DEFAULT_TENANT)
    return job


def state_of(db: Database, job: Job) -> str:
    return next(known.state for known in list_jobs(db._storage.connection()) if known.id == job.id)


def test_jobs_read_a_chain_once(db: Database) -> None:
    def load() -> TenantCatalog:
        with db._storage.transaction(TransactionMode.READ) as connection:
            return load_job_catalog(connection, DEFAULT_TENANT)

    first = load()
    assert load() is first
    (job,) = plan_jobs(db._storage, DEFAULT_TENANT)
    assert load_work(db._storage, job.id).catalog is first
    with db._storage.transaction(TransactionMode.DDL) as connection:
        connection.run("UPDATE zapdb_catalog_versions SET version = version + 1")
    second = load()
    assert second is not first
    assert second.chain is first.chain
    assert load_work(db._storage, job.id).catalog is second


def test_rule_01_all_records_get_the_newest_layout(db: Database) -> None:
    assert db.admin.count_by_revision("items") == {1: 334, 2: 333, 3: 333}
    assert stale(db) == COUNT
    assert contents(db) == EXPECTED
    (report,) = db.admin.run_jobs()
    assert (report.job.kind, report.job.target, report.job.records) == ("convert", 4, COUNT)
    assert (report.progress.read, report.progress.written) == (COUNT, COUNT)
    assert report.progress.ranges == report.progress.ranges_done
    assert db.admin.count_by_revision("items") == {4: COUNT}
    assert stale(db) == 0
    assert contents(db) == EXPECTED
    assert state_of(db, report.job) == "done"
    assert db.admin.run_jobs() == []


def test_rule_22_a_conversion_writes_no_history(db: Database) -> None:
    before = db.admin.schema_history("items")
    db.admin.run_jobs()
    assert db.admin.schema_history("items") == before


def test_ranges_cover_every_record_once(db: Database, small_ranges: None) -> None:
    storage = db._storage
    job = only_job(storage)
    assert len(open_ranges(storage.connection(), job.id)) == 10
    done: list[int] = []
    work = load_work(storage, job.id)
    while (result := run_range(storage, work, Owner.here())) is not None:
        assert result.finished
        assert result.read == result.written
        done.append(result.read)
        assert read_progress(storage.connection(), job.id).ranges_done == len(done)
    assert done == [100] * 10
    assert stale(db) == 0


@pytest.mark.on_each_engine
def test_a_plan_may_have_as_many_ranges_as_there_are_at_most(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than fit into the parameters of one statement."""
    monkeypatch.setattr("zapdb.jobs.job.RANGE_RECORDS", 1)
    db.table("items").insert_many(new_record(at) for at in range(COUNT, 4 * COUNT))
    job = only_job(db._storage)
    assert len(open_ranges(db._storage.connection(), job.id)) == 4 * COUNT


@pytest.mark.on_each_engine
def test_planning_again_finds_the_same_job(workspace: Workspace, db: Database) -> None:
    job = only_job(db._storage)
    assert only_job(workspace.connect()) == job
    run_job(db._storage, job, run_locally)
    assert plan_jobs(db._storage, DEFAULT_TENANT) == []


# Writers


@pytest.mark.parametrize("engine", ["postgresql"])
def test_ranges_are_read_in_the_order_of_the_key_before_there_are_statistics(
    no_statistics: None, workspace: Workspace, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decision 18: no page and no batch fetches and sorts all that is left of its range."""
    items = db.table("items")
    items.insert_many(
        {"id": n, "size": n % 7, "color": "", "kind": "", "number": ""} for n in range(COUNT, 9_000)
    )
    asked: dict[str, Any] = {}
    fetch_all = Connection.fetch_all

    def remember(self: Connection, sql: str, parameters: Any = ()) -> list[Any]:
        if "LIMIT" in sql and ("FROM zapdb_records_" in sql or "FROM zapdb_entries_" in sql):
            asked.setdefault(sql, parameters)
        return fetch_all(self, sql, parameters)

    monkeypatch.setattr(Connection, "fetch_all", remember)
    assert sum(1 for _ in items) == sum(1 for _ in items.order_by("size"))
    workspace.write(5, INDEX_SIZE)
    workspace.write(6, ADD_WEIGHT)
    with workspace.open() as newer:
        newer.admin.run_jobs()
        assert next(iter(newer.table("items").order_by("-size"))).size is not None
    assert len(asked) > 3
    statistics = "SELECT count(*) FROM pg_statistic WHERE starelid = 'zapdb_records_1'::regclass"
    assert workspace.execute(statistics) == [(0,)]
    for sql, parameters in asked.items():
        plan = "\n".join(
            row for (row,) in fetch_all(db._storage.connection(), f"EXPLAIN {sql}", parameters)
        )
        assert "Index" in plan, sql
        assert "Bitmap" not in plan, sql
        _, _, limited = plan.partition("Limit")
        assert limited, sql
        assert "Sort" not in limited, sql  # above the limit one page is sorted, which is little


@pytest.mark.parametrize("engine", ["postgresql"])
def test_a_batch_is_written_by_the_keys_whatever_the_statistics_say(
    workspace: Workspace, db: Database
) -> None:
    """Decision 49: scanning a table that is not much larger than the batch would look cheaper."""
    connection, table = db._storage.connection(), RecordStatements(db._storage, 1, DEFAULT_TENANT)
    workspace.execute(f"ANALYZE {table.name}")
    sent: dict[str, Any] = {}
    connection.send = sent.__setitem__  # type: ignore[method-assign]  # instead of sending it
    keys = [key for key, _ in connection.fetch_all(table.page_sql, (b"", COUNT))]
    table.set_many(connection, keys, keys)
    ((sql, parameters),) = sent.items()
    plan = [row for (row,) in connection.fetch_all(f"EXPLAIN {sql}", parameters)]
    assert any("Index Scan" in line for line in plan), plan
    assert not any("Seq Scan" in line or "Hash" in line for line in plan), plan


@pytest.mark.parametrize("engine", ["postgresql"])
def test_locked_rows_are_written_where_they_are_whatever_the_statistics_say(
    workspace: Workspace, db: Database
) -> None:
    table = RecordStatements(db._storage, 1, DEFAULT_TENANT)
    workspace.execute(f"ANALYZE {table.name}")
    with db._storage.transaction(TransactionMode.JOB) as connection:
        condition = f"tenant = {DEFAULT_TENANT}"
        locked = db._storage.dialect.lock_records(
            connection, table.name, condition, (), COUNT, of_held="wait"
        )
        table.set_locked(connection, locked, [b"\x90" + value[1:] for _, value in locked])
        queue = connection.queue
        assert isinstance(queue, PipelineQueue)
        (statement,) = queue._waiting
        statement.sql = f"EXPLAIN ANALYZE {statement.sql}"
        plan = [row for (row,) in queue.ask(queue._waiting.pop()).rows]
    assert any("Tid Scan" in line and f"loops={len(locked)}" in line for line in plan), plan
    assert not any("Seq Scan" in line or "Hash" in line for line in plan), plan
    found = db._storage.connection().fetch_all(table.page_sql, (b"", COUNT))
    assert found == [(key, b"\x90" + value[1:]) for key, value in locked]


@pytest.mark.on_each_engine
def test_rule_17_writers_lose_nothing_to_a_conversion(
    workspace: Workspace, db: Database, small_ranges: None
) -> None:
    """Each record is counted up by threads while it is converted; no step is lost."""
    stop, problems, counts = threading.Event(), list[BaseException](), list[dict[int, int]]()

    def count_up(seed: int) -> None:
        counted: dict[int, int] = {}
        counts.append(counted)
        items = db.table("items")
        try:
            for turn in itertools.count(seed):
                if stop.is_set() and len(counted) > 20:
                    return
                at = turn * 37 % COUNT
                db.run(lambda at=at: items.update(at, size=items.get(at).size + 100))
                counted[at] = counted.get(at, 0) + 1
                time.sleep(0.001)
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=count_up, args=(seed * 111,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    (report,) = db.admin.run_jobs(
        lambda storage, job: run_locally(storage, job, workers=2, batch_records_max=16)
    )
    stop.set()
    for thread in threads:
        thread.join()
    assert problems == []
    steps = {at: sum(counted.get(at, 0) for counted in counts) for at in range(COUNT)}
    assert sum(steps.values()) > 60
    assert {at: record["size"] for at, record in contents(db).items()} == {
        at: at % 7 + 100 * steps[at] for at in range(COUNT)
    }
    assert stale(db) == 0
    assert report.progress.written <= COUNT
    (checked,) = db.admin.verify()
    assert checked.problems == ()


@pytest.mark.parametrize("engine", ["postgresql"])
@pytest.mark.on_each_engine
def test_rule_17_rows_that_a_writer_holds_are_skipped_and_found_again(
    workspace: Workspace, db: Database
) -> None:
    other = workspace.connect()
    job = only_job(other)
    work, done = load_work(other, job.id), threading.Event()

    def run() -> None:
        run_range(other, work, Owner.here())
        done.set()
        other.release_connection()

    with db.transaction():
        db.table("items").update(5, size=77)
        db.table("items").delete(6)
        runner = threading.Thread(target=run)
        runner.start()
        # All others are converted while two rows are held; then it waits for those.
        wait_until(lambda: stale_seen_from_outside(workspace, db) == 2, "all others are converted")
        assert not done.wait(0.2)
    finish(runner)
    assert done.is_set()
    assert stale(db) == 0
    assert db.table("items").get(5).size == 77
    assert db.table("items").find(6) is None
    run_job(db._storage, job, run_locally)
    assert state_of(db, job) == "done"


class _Undone(Exception):
    """Undoes a transaction."""


@pytest.mark.parametrize("engine", ["postgresql"])
def test_rule_17_rows_that_a_dead_worker_left_behind_are_found(
    workspace: Workspace, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer holds two rows, and undoes what it did; the worker dies after it has passed them."""
    job = only_job(db._storage)
    other = workspace.connect()
    with monkeypatch.context() as dying:
        dying.setattr(range_work._RangeRun, "_any_left", lambda task: 1 / 0)
        with contextlib.suppress(_Undone), db.transaction():
            db.table("items").update(5, size=77)
            db.table("items").delete(6)
            with pytest.raises(ZeroDivisionError):
                run_range(other, load_work(other, job.id), Owner.here(), batch_records_max=16)
            raise _Undone
    assert stale(db) == 2
    result = run_range(other, load_work(other, job.id), Owner.here(), 0)
    assert result is not None
    assert (result.finished, result.written) == (True, 2)
    assert stale(db) == 0
    assert contents(db) == EXPECTED


@pytest.mark.parametrize("engine", ["postgresql"])
@pytest.mark.on_each_engine
def test_rule_17_a_row_is_written_where_a_writer_left_it(
    workspace: Workspace, db: Database
) -> None:
    """A row that was waited for is somewhere else than when the statement began."""
    storage, table = workspace.connect(), RecordStatements(db._storage, 1, DEFAULT_TENANT)
    with db._storage.transaction(TransactionMode.READ) as connection:
        first, second, third = (key for key, _ in connection.fetch_all(table.page_sql, (b"", 3)))

    def write(of_held: OfHeld) -> None:
        with storage.transaction(TransactionMode.JOB) as connection:
            condition = f"tenant = {DEFAULT_TENANT} AND key <= %s"
            locked = storage.dialect.lock_records(
                connection, table.name, condition, (third,), 9, of_held=of_held
            )
            assert dict(locked)[second] == b"other"
            table.set_locked(connection, locked, [b"new %d" % at for at in range(len(locked))])
        storage.release_connection()

    with db._storage.transaction(TransactionMode.JOB) as connection:
        connection.run(table.update_sql, (b"other", second))
        with pytest.raises(RowsHeld):
            write("refuse")
        writer = threading.Thread(target=write, args=("wait",))
        writer.start()
        wait_until(lambda: waits_for_a_lock(workspace), "it waits")
    finish(writer)
    found = db._storage.connection().fetch_all(table.page_sql, (b"", 3))
    assert found == [(first, b"new 0"), (second, b"new 1"), (third, b"new 2")]


def waits_for_a_lock(workspace: Workspace) -> bool:
    return bool(workspace.execute("SELECT 1 FROM pg_locks WHERE NOT granted"))


def stale_seen_from_outside(workspace: Workspace, db: Database) -> int:
    number = db._catalog.table("items").schema.number
    sql = f"SELECT count(*) FROM zapdb_records_{number} WHERE value < ?"
    return int(workspace.execute(sql, (b"\x84",))[0][0])


# Interruptions


@pytest.mark.on_each_engine
def test_a_conversion_goes_on_after_an_exception(
    workspace: Workspace, db: Database, small_ranges: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zapdb.jobs.job.RANGE_LEASE_SECONDS", 0.5)
    calls = itertools.count(1)

    def break_down(*arguments: Any) -> Any:
        if next(calls) == 18:
            raise ZeroDivisionError
        return send_progress(*arguments)

    from zapdb.jobs import range_work

    send_progress = range_work.send_progress
    monkeypatch.setattr(range_work, "send_progress", break_down)
    with pytest.raises(ZeroDivisionError):
        db.admin.run_jobs(lambda s, j: run_locally(s, j, workers=1, batch_records_max=16))
    left = stale(db)
    assert 0 < left < COUNT
    (report,) = db.admin.run_jobs(lambda s, j: run_locally(s, j, workers=1, batch_records_max=16))
    assert stale(db) == 0
    assert contents(db) == EXPECTED
    # The counters hold what was committed, across both runs.
    assert (report.progress.read, report.progress.written) == (COUNT, COUNT)


@pytest.mark.long_on("postgresql")
@pytest.mark.parametrize("kill_at", [1, 2, 11, 30])
@pytest.mark.on_each_engine
def test_a_conversion_goes_on_after_a_process_was_killed(
    workspace: Workspace, db: Database, kill_at: int
) -> None:
    killed = workspace.run("convert", str(kill_at))
    assert killed.returncode == -9, killed.stderr
    # Batches of 16; the killed one is undone.
    assert stale(db) == COUNT - 16 * (kill_at - 1)
    assert contents(db) == EXPECTED
    job = only_job(db._storage)
    assert read_progress(db._storage.connection(), job.id).written == 16 * (kill_at - 1)
    # A worker that is known to be dead is not waited for: its leases would hold for an hour.
    workspace.execute(
        "UPDATE zapdb_ranges SET expires_at = expires_at + 3600000000 WHERE expires_at > 0"
    )
    ((held_until,),) = workspace.execute("SELECT max(expires_at) FROM zapdb_ranges")
    (report,) = db.admin.run_jobs()
    now_us = db._storage.now_us(db._storage.connection())
    assert now_us < held_until < now_us + 3_610_000_000
    assert report.progress.written == COUNT
    assert stale(db) == 0
    assert contents(db) == EXPECTED


def run_all(storage: Storage) -> None:
    for job in plan_jobs(storage, DEFAULT_TENANT):
        run_job(storage, job, lambda s, j: run_locally(s, j, workers=1, batch_records_max=64))


@pytest.mark.long_on("postgresql")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.on_each_engine
def test_a_conversion_survives_a_fault_at_each_statement(
    workspace: Workspace, db: Database, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zapdb.jobs.job.RANGE_LEASE_SECONDS", 0.0)
    storage = workspace.connect()
    faults = Faults(workspace, storage, way, lasting=False)
    faults.install(monkeypatch)
    struck, written = [], 0
    for call in itertools.count(1):
        faults.arm(call)
        if error_of(lambda: run_all(storage)) is None:
            break
        struck.append(faults.struck[0])
        faults.arm(0)
        jobs = list_jobs(db._storage.connection())
        for job in jobs:
            # Never more is counted than is done, and never less: one transaction.
            done = read_progress(db._storage.connection(), job.id).written
            assert done == COUNT - stale(db)
            assert done >= written
            written = done
    assert len(struck) > 15
    assert stale(db) == 0
    assert contents(db) == EXPECTED
    assert [job.state for job in list_jobs(db._storage.connection())] == ["done"]


@pytest.mark.parametrize("way", WAYS)
def test_a_batch_whose_commit_is_unknown_is_settled(
    db: Database, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is done once, whether its COMMIT took effect or not, and the range goes on."""
    storage, commits, unknown = db._storage, itertools.count(1), list[int]()
    commit = type(storage.engine).commit

    def lose(this: StorageEngine, connection: Connection) -> None:
        if connection.mode is not TransactionMode.JOB or (at := next(commits)) % 4:
            commit(this, connection)
            return
        unknown.append(at)
        if way == "after":
            commit(this, connection)
        if way == "drop":
            connection.driver.close()
        raise StorageError("the database reported an error", error="made by a test")

    monkeypatch.setattr(type(storage.engine), "commit", lose)
    report = run_job(
        storage,
        only_job(storage),
        lambda s, j: run_locally(s, j, workers=1, batch_records_max=64),
    )
    assert len(unknown) > 3
    assert report is not None
    assert (report.progress.read, report.progress.written) == (COUNT, COUNT)
    assert stale(db) == 0
    assert contents(db) == EXPECTED


@pytest.mark.on_each_engine
def test_a_runner_that_is_told_to_stop_leaves_the_rest_for_later(
    db: Database, small_ranges: None
) -> None:
    asked = itertools.count(1)
    with pytest.raises(JobError, match="stopped before its job was finished"):
        db.admin.run_jobs(
            lambda s, j: run_locally(s, j, workers=1, should_stop=lambda: next(asked) > 4)
        )
    assert stale(db) == COUNT - 200  # asked before each range, and after each batch
    assert contents(db) == EXPECTED
    (report,) = db.admin.run_jobs()
    assert report.progress.written == COUNT


# Two at once


@pytest.mark.on_each_engine
def test_two_runners_share_one_job(workspace: Workspace, db: Database, small_ranges: None) -> None:
    job, problems, reports = only_job(db._storage), list[BaseException](), list[Any]()

    def run() -> None:
        storage = connect(workspace.address)
        try:
            reports.append(
                run_job(
                    storage, job, lambda s, j: run_locally(s, j, workers=1, batch_records_max=16)
                )
            )
        except BaseException as error:
            problems.append(error)
        finally:
            storage.close()

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert contents(db) == EXPECTED
    assert stale(db) == 0
    assert state_of(db, job) == "done"
    progress = read_progress(db._storage.connection(), job.id)
    assert (progress.written, progress.ranges_done) == (COUNT, 10)
    # The second one finds it done, not unwanted.
    assert None not in reports


@pytest.mark.parametrize("engine", ["postgresql"])
def test_workers_that_claim_at_one_moment_both_get_a_range(
    workspace: Workspace, db: Database, small_ranges: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What one has locked while it chooses must not look as if there were nothing left."""
    from zapdb.jobs import job as jobs

    job, other, seen = only_job(db._storage), workspace.connect(), list[Any]()

    def claim_meanwhile(*values: Any) -> Any:
        monkeypatch.undo()
        seen.append(claim(other, job.id, Owner.here()))
        return jobs.Range(*values)

    monkeypatch.setattr(jobs, "Range", claim_meanwhile)  # inside the first claim's transaction
    first = claim(db._storage, job.id, Owner.here())
    assert first is not None
    assert (first.number, seen[0].number) == (0, 1)


def test_a_worker_that_was_taken_for_dead_writes_nothing(
    workspace: Workspace, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its twin claims the range between two of its batches."""
    from zapdb.jobs import range_work

    job = only_job(db._storage)
    twin = workspace.connect()
    work = load_work(db._storage, job.id)
    lock, calls = range_work._RangeRun._run_batch, itertools.count(1)

    def run_batch(task: Any, position: Any) -> Any:
        if next(calls) == 3:
            assert claim(twin, job.id, Owner.here(), 0) is not None
        return lock(task, position)

    monkeypatch.setattr(range_work._RangeRun, "_run_batch", run_batch)
    cut_off = run_range(db._storage, work, Owner.here(), batch_records_max=16)
    assert cut_off is not None
    assert (cut_off.written, cut_off.finished, work.rate) == (32, False, None)
    assert stale(db) == COUNT - 32
    assert read_progress(db._storage.connection(), job.id).written == 32
    monkeypatch.undo()
    # The twin's fence is above; it goes on where the other stopped.
    result = run_range(twin, load_work(twin, job.id), Owner.here(), 0)
    assert result is not None
    assert result.written == COUNT - 32
    assert contents(db) == EXPECTED


def test_a_range_that_is_held_is_not_claimed_and_one_that_is_over_is(
    workspace: Workspace, db: Database
) -> None:
    job, here = only_job(db._storage), Owner.here()
    first = claim(db._storage, job.id, here, 0)
    assert first is not None
    assert claim(db._storage, job.id, Owner.here()) is None
    workspace.execute("UPDATE zapdb_ranges SET expires_at = 0")
    taken = claim(db._storage, job.id, Owner.here())
    assert taken is not None
    assert taken.fence == first.fence + 1
    assert claim(db._storage, job.id, dead_owner(), 0) is not None
    assert claim(db._storage, job.id, here) is not None  # at once: its process is no more


@pytest.mark.on_each_engine
def test_an_interrupted_call_gives_its_range_back_at_once(db: Database) -> None:
    job, call, storage = only_job(db._storage), InterruptibleCall(), db._storage

    def interrupt() -> bool:
        call.is_interrupted = True
        call.strike(storage.pool.interrupt)
        return False

    work = load_work(storage, job.id)
    assert call.start()
    with pytest.raises(CallInterrupted), call:
        run_range(storage, work, Owner.here(), batch_records_max=16, should_stop=interrupt)
    storage.pool.drop_interrupted()
    assert claim(storage, job.id, Owner.here()) is not None


# Changes under way


def migrate_after_three_ranges(workspace: Workspace, db: Database) -> tuple[Job, Storage]:
    """Run three ranges of the only job, then apply another migration by another storage."""
    job = only_job(db._storage)
    work = load_work(db._storage, job.id)
    for _ in range(3):
        run_range(db._storage, work, Owner.here())
    workspace.write(5, ADD_WEIGHT)
    other = workspace.connect()
    migrate_up(other, DEFAULT_TENANT, workspace.directory)
    return job, other


@pytest.mark.on_each_engine
def test_a_new_migration_supersedes_a_conversion(
    workspace: Workspace, db: Database, small_ranges: None
) -> None:
    job, _ = migrate_after_three_ranges(workspace, db)
    assert run_job(db._storage, job, run_locally) is None
    assert state_of(db, job) == "superseded"
    (report,) = db.admin.run_jobs()
    assert report.job.target == 5
    assert stale(db) == 0
    assert contents(db) == EXPECTED
    newest = {at: record | {"weight": 7} for at, record in EXPECTED.items()}
    assert contents(workspace.follow()) == newest
    assert db.admin.count_by_revision("items") == {5: COUNT}


def migrate_in_the_fourth_batch(
    monkeypatch: pytest.MonkeyPatch, workspace: Workspace, operation: str
) -> None:
    """Make a job apply another migration before its fourth batch."""
    from zapdb.jobs import range_work

    other, calls, run = workspace.connect(), itertools.count(1), range_work._RangeRun._run_batch

    def run_batch(task: Any, position: Any) -> Any:
        if next(calls) == 4:
            workspace.write(5, operation)
            migrate_up(other, DEFAULT_TENANT, workspace.directory)
        return run(task, position)

    monkeypatch.setattr(range_work._RangeRun, "_run_batch", run_batch)


@pytest.mark.on_each_engine
def test_a_migration_in_the_middle_of_a_batch_run_stops_it(
    workspace: Workspace, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    migrate_in_the_fourth_batch(monkeypatch, workspace, ADD_WEIGHT)
    assert db.admin.run_jobs(lambda s, j: run_locally(s, j, workers=1, batch_records_max=16)) == []
    assert db.admin.count_by_revision("items")[4] == 48
    (report,) = db.admin.run_jobs()
    assert report.progress.written == COUNT
    assert stale(db) == 0


@pytest.mark.on_each_engine
def test_a_migration_that_leaves_the_layout_alone_stops_nothing(
    workspace: Workspace, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    migrate_in_the_fourth_batch(monkeypatch, workspace, RENAME_SIZE)
    (report,) = db.admin.run_jobs(lambda s, j: run_locally(s, j, workers=1, batch_records_max=16))
    assert report.progress.written == COUNT
    assert db.admin.count_by_revision("items") == {4: 48, 5: COUNT - 48}
    assert stale(db) == 0


@pytest.mark.on_each_engine
def test_a_conversion_that_is_wanted_again_after_a_rollback_is_run(
    workspace: Workspace, db: Database, small_ranges: None
) -> None:
    """Superseded by a migration that is rolled back: what it has done stays done."""
    job, other = migrate_after_three_ranges(workspace, db)
    plan_jobs(other, DEFAULT_TENANT)
    assert state_of(db, job) == "superseded"
    workspace.remove(5)
    roll_back(other)
    converted = COUNT - stale(db)
    assert converted > 0
    (report,) = db.admin.run_jobs()
    assert (report.job.id == job.id, report.progress.written) == (False, COUNT - converted)
    assert stale(db) == 0
    assert contents(db) == EXPECTED
    assert report.progress.ranges == report.progress.ranges_done


@pytest.mark.on_each_engine
def test_planning_by_a_process_that_is_behind_does_no_harm(
    workspace: Workspace, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It loaded the view, then others changed it and planned: their job stays planned."""
    from zapdb.jobs import (
        job_planning,
    )

    other, supersede, newest = workspace.connect(), job_planning._supersede_all_but, list[Job]()

    def change_meanwhile(*arguments: Any) -> Any:
        monkeypatch.undo()
        workspace.write(5, ADD_WEIGHT)
        migrate_up(other, DEFAULT_TENANT, workspace.directory)
        newest.append(only_job(other))
        return supersede(*arguments)

    monkeypatch.setattr(job_planning, "_supersede_all_but", change_meanwhile)
    assert plan_jobs(db._storage, DEFAULT_TENANT) == newest
    assert newest[0].target == 5
    assert state_of(db, newest[0]) == "planned"


def test_executors_prove_that_they_are_fit(workspace: Workspace, db: Database) -> None:
    job = only_job(db._storage)
    workspace.execute(
        "UPDATE zapdb_catalog SET value = replace(value, ?, ?) WHERE kind = 'job'",
        (str(job.migration), str(job.migration + 1)),
    )
    with pytest.raises(ExecutorMismatch, match="another chain than the job was planned with"):
        load_work(db._storage, job.id)


def test_indexes_are_built_before_records_are_converted(workspace: Workspace, db: Database) -> None:
    workspace.write(5, INDEX_SIZE)
    with workspace.open() as other:
        assert [report.job.kind for report in other.admin.run_jobs(kinds=["index"])] == ["index"]
        assert stale(other) == COUNT
        assert [report.job.kind for report in other.admin.run_jobs()] == ["convert"]
        (report,) = other.admin.verify()
        assert report.problems == ()


def test_rule_19_the_null_of_json_is_none_where_the_field_is_optional(workspace: Workspace) -> None:
    fields = "{name: id, type: integer}, {name: notes, type: json}, {name: size, type: integer}"
    workspace.write(1, f"create_table: {{table: items, key: [id], fields: [{fields}]}}")
    with workspace.open() as db:
        db.table("items").insert(id=1, notes=None, size=3)
        db.table("items").insert(id=2, notes={"a": None}, size=4)
    workspace.write(2, "make_optional: {table: items, field: notes}")

    def look(db: Database) -> list[tuple[Any, ...]]:
        return [(r.id, r.notes, r.size) for r in db.table("items").scan()]

    found = [(1, None, 3), (2, {"a": None}, 4)]
    with workspace.open() as db:
        assert look(db) == found
        db.admin.run_jobs()
        assert look(db) == found
        assert db.admin.verify()[0].problems == ()
    roll_back(workspace.connect())
    workspace.remove(2)
    with workspace.open() as db:
        assert look(db) == found
        assert db.admin.verify()[0].problems == ()


def test_rule_19_a_required_json_field_is_filled_with_null(workspace: Workspace) -> None:
    """Null is a value of it: of an added field, of one that is made required, and of a dropped one
    on the way back."""
    fields = "{name: id, type: integer}, {name: notes, type: json, optional: true}"
    workspace.write(1, f"create_table: {{table: items, key: [id], fields: [{fields}]}}")
    with workspace.open() as db:
        db.table("items").insert(id=1)
        db.table("items").insert(id=2, notes={"a": 1})
    added = "{name: extra, type: json, default: null}"
    workspace.write(2, f"add_field: {{table: items, field: {added}}}")
    workspace.write(3, "make_required: {table: items, field: notes, fill: {value: null}}")
    workspace.write(4, "drop_field: {table: items, field: extra, restore: {value: null}}")

    def look(db: Database) -> list[tuple[Any, ...]]:
        return [(r.id, r.notes) for r in db.table("items").scan()]

    found = [(1, None), (2, {"a": 1})]
    with workspace.open() as db:
        assert look(db) == found
        db.admin.run_jobs()
        assert look(db) == found
        assert db.admin.verify()[0].problems == ()
    roll_back(workspace.connect())
    workspace.remove(4)
    with workspace.open() as db:
        assert [(r.id, r.notes, r.extra) for r in db.table("items").scan()] == [
            (*row, None) for row in found
        ]
        assert db.admin.verify()[0].problems == ()


@pytest.mark.long_on("postgresql")
def test_rule_17_a_table_grows_faster_than_it_is_converted(workspace: Workspace) -> None:
    count = 300
    workspace.write(1, ITEMS)
    with workspace.open() as db:
        # With gaps, in which others are inserted, and which are in the ranges of the jobs.
        db.table("items").insert_many(
            {"id": n * 1_000, "title": f"title {n}", "size": n} for n in range(count)
        )
    workspace.write(2, ADD_COLOR, INDEX_SIZE)
    workspace.open().close()
    with workspace.follow() as db:
        db.admin.set_setting("job_records_per_second", str(2 * count))
        with growing(workspace, 1, 5 * count, seed=7, color="blue") as growth:
            wait_until(lambda: growth.kept, "it grows")
            reports = db.admin.run_jobs()
            grown = len(growth.kept)
        assert {report.job.kind: report.job.state for report in reports} == {
            "convert": "done",
            "index": "done",
        }
        (convert,) = [one for one in reports if one.job.kind == "convert"]
        # What came meanwhile was written as it is now, and is no work.
        assert convert.progress.written == count < grown
        assert count_stale(db._storage, db._catalog, "items") == 0
        assert db.table("items").count() == count + len(growth.kept)
        (report,) = db.admin.verify()
        assert (report.problem_count, report.entries) == (
            0,
            {"by_size": count + len(growth.kept)},
        )
