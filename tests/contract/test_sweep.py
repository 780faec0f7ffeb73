"""The sweep of blobs: what nobody owns goes, and nothing else, whatever happens beside it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from tests.contract.test_blobs import DOUBLE_TITLE, LONG, PHOTOS, chunks, ids, sweep
from tests.support import GUARD_SECONDS, Workspace, error_of, finish, wait_until
from zapdb.activation.rollback import roll_back
from zapdb.database import Database
from zapdb.errors import CorruptCatalog, CorruptRecord, UsageError
from zapdb.jobs import (
    blob_sweep as sweeping,
)
from zapdb.jobs.job_run import run_locally
from zapdb.jobs.tenant_verification import verify_blobs
from zapdb.storage.fixed_tables import SCHEMA_HISTORY
from zapdb.storage.identifiers import first_id_at_ms

DROP_NOTES = "drop_field: {table: photos, field: notes, restore: {value: none}}"
RENAME = "rename_table: {table: photos, to: pictures}"
OTHERS = """\
create_table: {table: others, key: [id], fields: [
      {name: id, type: integer},
      {name: json, type: json},
      {name: first, type: string, optional: true},
      {name: second, type: binary, optional: true}]}"""


@pytest.fixture
def db(workspace: Workspace) -> Database:
    workspace.write(1, PHOTOS)
    return workspace.open()


@pytest.fixture
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slices of four blobs, batches of two, pages of three records."""
    monkeypatch.setattr("zapdb.jobs.blob_sweep.SWEEP_SLICE_BLOBS", 4)
    monkeypatch.setattr("zapdb.jobs.blob_sweep.SWEEP_BATCH_BLOBS", 2)
    monkeypatch.setattr("zapdb.jobs.blob_sweep.PAGE_RECORDS_MAX", 3)


def fill(db: Database, count: int, first: int = 0) -> None:
    db.table("photos").insert_many(
        {"id": at, "title": f"{at} {LONG}", "data": b"\x7f" * 30} for at in range(first, count)
    )


def test_rule_28_what_nobody_owns_goes(
    workspace: Workspace, db: Database, small_slices: None
) -> None:
    photos = db.table("photos")
    fill(db, 21)
    for at in range(0, 21, 3):
        photos.delete(at)
    for at in range(1, 21, 3):
        photos.update(at, title="short", notes=LONG)
    before = chunks(workspace)
    dry = db.admin.sweep(older_than_seconds=0, dry_run=True)
    assert (dry.blobs, dry.unowned, dry.deleted) == (28, 14, 0)
    assert dry.unowned_bytes == sum(len(f"{at} {LONG}".encode()) for at in range(21) if at % 3 < 2)
    assert chunks(workspace) == before
    counted = verify_blobs(db._storage)
    assert (counted.blobs, counted.unowned) == (28, 14)
    report = db.admin.sweep(older_than_seconds=0)
    assert (report.blobs, report.unowned, report.deleted) == (28, 14, 14)
    assert report.unowned_bytes == dry.unowned_bytes
    assert len(ids(workspace)) == 14
    for record in photos.scan():
        assert LONG in (record.title, record.notes, record.title.partition(" ")[2])
    assert db.admin.verify()[0].problems == ()
    assert sweep(db).deleted == 0


def test_rule_28_what_is_young_stays(workspace: Workspace, db: Database) -> None:
    fill(db, 3)
    db.table("photos").delete(0)
    report = db.admin.sweep()
    assert (report.blobs, report.unowned) == (0, 0)
    old = first_id_at_ms(int((time.time() - 3_601) * 1000))
    young = first_id_at_ms(int((time.time() - 3_590) * 1000))
    for made in (old, young):
        workspace.execute("INSERT INTO zapdb_blobs VALUES (?, 0, 0, ?)", (made, b"x" * 5_000))
    report = db.admin.sweep()
    assert (report.blobs, report.deleted, report.unowned_bytes) == (1, 1, 5_000)
    assert db.admin.sweep(older_than_seconds=3_580).deleted == 1
    assert len(ids(workspace)) == 3
    for age in (-1, float("inf"), float("nan")):
        with pytest.raises(UsageError):
            db.admin.sweep(older_than_seconds=age)
    assert db.admin.sweep(older_than_seconds=1e12).blobs == 0


def test_the_clock_of_the_database_is_at_the_same_millisecond(db: Database) -> None:
    storage = db._storage
    for _ in range(2_000):
        before_ms = time.time_ns() // 1_000_000
        now_us = storage.now_us(storage.connection())
        assert before_ms <= now_us // 1_000 <= time.time_ns() // 1_000_000


@pytest.mark.on_each_engine
def test_rule_28_at_no_age_what_was_just_made_is_old_enough(
    workspace: Workspace, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ms = int(time.time() * 1000)
    monkeypatch.setattr(type(db._storage.dialect), "clock_sql", f"SELECT {now_ms * 1000 + 900}")
    for at_ms in (now_ms, now_ms + 1):
        made = first_id_at_ms(at_ms)
        workspace.execute("INSERT INTO zapdb_blobs VALUES (?, 0, 0, ?)", (made, b"x" * 5_000))
    report = db.admin.sweep(older_than_seconds=0)
    assert (report.blobs, report.deleted) == (1, 1)


def test_rule_28_a_blob_without_its_first_chunk_goes_too(
    workspace: Workspace, db: Database
) -> None:
    workspace.execute("INSERT INTO zapdb_blobs VALUES (?, 3, 0, ?)", (bytes(16), b"left"))
    assert sweep(db).deleted == 1


def test_rule_01_records_of_every_revision_own_their_blobs(
    workspace: Workspace, db: Database, small_slices: None
) -> None:
    fill(db, 5)
    for number, operation in enumerate((DOUBLE_TITLE, DROP_NOTES, OTHERS, RENAME), 2):
        workspace.write(number, operation)
    db.close()
    db = workspace.open()
    db.table("pictures").insert(id=9, titles="a|a", data=LONG.encode())
    db.table("others").insert(id=1, json={"a": [LONG]}, first=LONG, second=LONG.encode())
    db.table("others").insert(id=2, json=LONG, second=LONG.encode())
    assert db.admin.count_by_revision("pictures") == {1: 5, 4: 1}
    assert len(ids(workspace)) == 9
    assert sweep(db).deleted == 0
    assert [report.problems for report in db.admin.verify()] == [(), ()]
    db.admin.run_jobs()
    assert sweep(db).deleted == 5  # the titles are new ones
    assert [report.problems for report in db.admin.verify()] == [(), ()]
    # After a rollback, records have the revisions that were rolled back until they are converted.
    db.close()
    roll_back(workspace.connect(), to=1)
    for number in (2, 3, 4, 5):
        workspace.remove(number)
    with workspace.open() as db:
        assert sweep(db).deleted == 3  # what the others had
        assert [r.title for r in db.table("photos").scan()][:5] == [f"{n} {LONG}" for n in range(5)]
        db.admin.run_jobs()
        assert sweep(db).deleted == 5  # the doubled titles
        assert [r.title for r in db.table("photos").scan()][:5] == [f"{n} {LONG}" for n in range(5)]
        assert sweep(db).deleted == 0
        assert db.admin.verify()[0].problems == ()


def test_rule_27_records_of_other_tenants_and_retired_tables_own_theirs(
    workspace: Workspace, db: Database
) -> None:
    fill(db, 3)
    history = ", ".join(c.name for c in SCHEMA_HISTORY.columns if c.name != "tenant")
    for table, columns in (("zapdb_records_1", "key, value"), (SCHEMA_HISTORY.name, history)):
        workspace.execute(
            f"INSERT INTO {table} (tenant, {columns}) SELECT 77, {columns} FROM {table}"
        )
    for at in range(3):
        db.table("photos").delete(at)
    assert sweep(db).deleted == 0
    workspace.execute("DELETE FROM zapdb_schema_history WHERE tenant <> 77")
    assert sweep(db).deleted == 0  # no active schema has these records
    workspace.execute("DELETE FROM zapdb_records_1")
    assert sweep(db).deleted == 3


@pytest.mark.parametrize(
    ("spoil", "kind"),
    [
        ("UPDATE zapdb_records_1 SET value = ? WHERE key = ?", CorruptRecord),
        ("DELETE FROM zapdb_schema_history", CorruptCatalog),
    ],
)
@pytest.mark.on_each_engine
def test_a_record_that_can_not_be_read_ends_the_sweep(
    workspace: Workspace, db: Database, spoil: str, kind: type[Exception]
) -> None:
    fill(db, 3)
    db.table("photos").delete(0)
    for value in (b"\xbf" + bytes(40), b"\x81\x00" + b"\x7f" * 30):
        workspace.execute(spoil, (value, b"\x82") if "?" in spoil else ())
        assert type(error_of(lambda: sweep(db))) is kind
    assert len(ids(workspace)) == 3


# Beside others


@pytest.mark.on_each_engine
def test_rule_28_what_is_not_committed_yet_stays(workspace: Workspace, db: Database) -> None:
    other = workspace.open()
    fill(db, 2)
    db.table("photos").delete(0)
    written, go_on, deleted = threading.Event(), threading.Event(), list[int]()

    def write() -> None:
        with other.transaction():
            other.table("photos").insert(id=5, title=LONG)
            other.table("photos").update(1, notes=LONG)
            written.set()
            go_on.wait(GUARD_SECONDS)

    writer = threading.Thread(target=write)
    writer.start()
    assert written.wait(GUARD_SECONDS)
    sweeper = threading.Thread(target=lambda: deleted.append(sweep(db).deleted))
    sweeper.start()
    if workspace.engine == "postgresql":  # SQLite has one writer at a time: the deletion waits
        finish(sweeper)
        assert deleted == [1]
    time.sleep(0.05)
    go_on.set()
    for thread in (writer, sweeper):
        finish(thread)
    assert deleted == [1]
    assert len(ids(workspace)) == 3
    assert db.admin.verify()[0].problems == ()
    assert sweep(db).deleted == 0


@pytest.mark.on_each_engine
def test_rule_28_a_snapshot_reads_what_is_swept(workspace: Workspace, db: Database) -> None:
    fill(db, 2)
    other = workspace.open()
    with db.snapshot():
        record = db.table("photos").get(0)
        other.table("photos").delete(0)
        other.table("photos").update(1, title="short")
        assert sweep(other).deleted == 2
        assert chunks(workspace) == []
        assert record.title == f"0 {LONG}"
        assert db.table("photos").open(1, field="title").read() == f"1 {LONG}".encode()
    assert db.table("photos").get(1).title == "short"


@pytest.mark.on_each_engine
def test_rule_28_a_sweep_loses_nothing_to_writers_and_jobs(
    workspace: Workspace, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records change, are converted and taken back while one sweep follows the other."""
    monkeypatch.setattr("zapdb.jobs.blob_sweep.SWEEP_SLICE_BLOBS", 50)
    fill(db, 60)
    workspace.write(2, DOUBLE_TITLE)
    db.close()
    db, sweeper, stop = workspace.open(), workspace.connect(), threading.Event()
    errors: list[BaseException] = []
    swept = [0, 0]

    def run(action: Callable[[], None]) -> None:
        try:
            while not stop.is_set():
                action()
        except BaseException as error:
            errors.append(error)

    def sweep_all() -> None:
        swept[0] += sweeping.sweep_blobs(sweeper, older_than_seconds=0).deleted
        swept[1] += 1

    numbers: Iterator[int] = iter(range(100, 10_000))

    def write() -> None:
        photos, at = db.table("photos"), next(numbers)
        photos.insert(id=at, titles=f"{at}|{LONG}", notes=LONG)
        photos.update(at % 60, notes=f"{at}" * 3_000)
        photos.update(at, notes="")
        if at % 2:
            photos.delete(at)
        time.sleep(0.01)  # SQLite's writers queue without order

    threads = [threading.Thread(target=run, args=(action,)) for action in (sweep_all, write)]
    for thread in threads:
        thread.start()
    try:
        wait_until(lambda: swept[1] > 3 or errors, "three sweeps")
        db.admin.run_jobs(lambda storage, job: run_locally(storage, job, batch_records_max=16))
        wait_until(lambda: (swept[1] > 8 and swept[0] > 0) or errors, "more sweeps")
    finally:
        stop.set()
        for thread in threads:
            finish(thread)
    assert errors == []
    assert swept[0] > 0
    assert db.admin.verify()[0].problems == ()
    assert db.table("photos").count() > 60
    db.close()
    roll_back(sweeper)
    workspace.remove(2)
    with workspace.open() as db:
        sweep(db)
        assert db.admin.verify()[0].problems == ()
        assert verify_blobs(db._storage).unowned == 0


@pytest.mark.on_each_engine
def test_two_sweeps_at_once(workspace: Workspace, db: Database, small_slices: None) -> None:
    fill(db, 12)
    for at in range(0, 12, 2):
        db.table("photos").delete(at)
    other, deleted = workspace.open(), list[int]()
    threads = [
        threading.Thread(target=lambda place=place: deleted.append(sweep(place).deleted))
        for place in (db, other)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        finish(thread)
    assert sum(deleted) == 6
    assert len(ids(workspace)) == 6


@pytest.mark.on_each_engine
def test_rule_28_a_table_that_is_dropped_meanwhile(
    workspace: Workspace, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(db, 2)
    db.table("photos").delete(0)
    original, calls = sweeping.list_record_tables, [0]

    def list_tables(connection):
        calls[0] += 1
        return [*original(connection), *([999] if calls[0] < 3 else [])]

    monkeypatch.setattr(sweeping, "list_record_tables", list_tables)
    assert sweep(db).deleted == 1
    assert calls[0] == 3


@pytest.mark.long_on("postgresql")
@pytest.mark.parametrize("kill_at", [1, 2, 3])
@pytest.mark.on_each_engine
def test_a_sweep_that_was_killed_is_repeated(
    workspace: Workspace, db: Database, kill_at: int
) -> None:
    fill(db, 12)
    for at in range(0, 12, 2):
        db.table("photos").delete(at)
    killed = workspace.run("sweep_dying", str(kill_at))
    assert killed.returncode == -9
    left = len(ids(workspace))
    assert left == 12 if kill_at == 1 else left <= 12
    finished = workspace.run("sweep_dying", "0")
    assert (finished.returncode, finished.stdout) == (0, f"{left - 6}\n")
    assert len(ids(workspace)) == 6
    assert db.admin.verify()[0].problems == ()


# Verification


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        ("DELETE FROM zapdb_blobs WHERE chunk = 1", "262,144 of the 300,000"),
        ("UPDATE zapdb_blobs SET chunk = 2 WHERE chunk = 1", "300,000 of the 300,000"),
        ("DELETE FROM zapdb_blobs", "0 of the 300,000"),
    ],
)
def test_verification_finds_what_is_missing(
    workspace: Workspace, db: Database, spoil: str, problem: str
) -> None:
    db.table("photos").insert(id=7, title="a", data=bytes(300_000))
    assert db.admin.verify()[0].problems == ()
    workspace.execute(spoil)
    (report,) = db.admin.verify()
    assert report.problem_count == 1
    assert report.problems[0].startswith("record 7 (87): ")
    assert problem.replace(",", "") in report.problems[0]
