"""Imports, exports and mirrors that an application begins are jobs, as those of commands are."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pandas
import pyarrow
import pytest
import sqlalchemy as sa

import zapdb
from tests import processes
from tests.contract.paces import NotedPace
from tests.contract.tables import ITEMS
from tests.support import GUARD_SECONDS, ROOT, Workspace, finish, wait_until
from zapdb import aio
from zapdb.catalog.row_kinds import JobKind
from zapdb.database import Database
from zapdb.errors import InvalidValue, JobError, LeaseHeld, UsageError
from zapdb.imports.arrow_rows import _count_if_known
from zapdb.jobs.exclusive import ExclusiveJob
from zapdb.limits import BATCH_RECORDS_MIN
from zapdb.transfer.export.directory import export_directory
from zapdb.transfer.export.export_loading import load_export
from zapdb.transfer.export.sql_script import export_sql
from zapdb.transfer.inference import import_database
from zapdb.transfer.mirror.keeping import keep_mirror
from zapdb.transfer.mirror.mirror import Mirror
from zapdb.transfer.mirror.mirror_run import run_mirror
from zapdb.transfer.mirror.target_opening import open_target

COUNT = 600
IMPORT = """
import sys, zapdb
with zapdb.open(sys.argv[1]) as db:
    db.table("items").import_file(sys.argv[2], batch_records=10)
"""


@pytest.fixture
def db(workspace: Workspace) -> Iterator[Database]:
    workspace.write(1, ITEMS)
    with workspace.open() as opened:
        yield opened


class Looks:
    """Counts how often a job of this process has looked at its row."""

    def __init__(self) -> None:
        self._begun = self._ended = 0
        self._is_last = False
        self._look = ExclusiveJob._look

    def count(self, job: ExclusiveJob) -> None:
        self._begun += 1
        self._look(job)
        self._is_last = job.ended is not None
        self._ended = self._begun

    def wait(self) -> None:
        """Until one has ended that begins from now on: it knows what was changed before. A look
        that finds the job cancelled is the last one, and may have come before this call."""
        begun = self._begun
        wait_until(lambda: self._is_last or self._ended > begun, "the job was looked at")


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    found = Looks()
    monkeypatch.setattr(ExclusiveJob, "_look", lambda job: found.count(job))
    return found


def write_csv(path: Path, *numbers: object) -> Path:
    path.write_text("id,title\n" + "".join(f"{n},t\n" for n in numbers))
    return path


class Begun(threading.Thread):
    """Work in a thread of its own, with the error that ended it."""

    def __init__(self, work: Callable[[], object]) -> None:
        super().__init__()
        self.error: Exception | None = None
        self._work = work
        self.start()

    def run(self) -> None:
        try:
            self._work()
        except Exception as error:
            self.error = error


def states(db: Database, kind: JobKind) -> list[str]:
    return [job.state for job in db.jobs.list(kind=kind)]


@pytest.mark.long_on("postgresql")
def test_an_import_is_cancelled_and_killed_and_imports_each_row_once(
    workspace: Workspace, db: Database, tmp_path: Path
) -> None:
    table = db.table("items")
    path = write_csv(tmp_path / "items.csv", *range(COUNT - 1), "x")
    with pytest.raises(InvalidValue, match=r"items\.csv:601"):
        table.import_file(path, batch_records=COUNT)
    db.jobs.throttle("import", records_per_second=20)
    work = Begun(lambda: table.import_file(path, batch_records=10))
    wait_until(lambda: table.count() > 0, "it has begun")
    db.jobs.pause("import")
    wait_until(lambda: db.jobs.get("import").waits[0].startswith("paused by"), "it waits")
    with pytest.raises(LeaseHeld, match="another process is at work on the same import"):
        table.import_file(path)
    db.jobs.cancel("import")
    finish(work)
    assert isinstance(work.error, JobError)
    done = table.count()
    assert 0 < done < COUNT

    command = [sys.executable, "-c", IMPORT, workspace.address, str(path)]
    with processes.Popen(command, cwd=ROOT) as process:
        wait_until(lambda: table.count() > done, "it goes on")
        process.send_signal(signal.SIGKILL)
    db.jobs.throttle("import")
    write_csv(path, *range(COUNT))  # what is wrong is behind what was imported
    report = table.import_file(path)
    assert (table.count(), report.read) == (COUNT, COUNT)
    assert report.resumed_after > done
    assert states(db, "import") == ["done"]


def test_a_part_that_changed_is_noticed_and_a_transaction_is_no_job(
    db: Database, tmp_path: Path
) -> None:
    table, path = db.table("items"), write_csv(tmp_path / "items.csv", 1, 2, "x")
    skipped: list[Any] = []
    with pytest.raises(InvalidValue):
        table.import_file(path, batch_records=2)
    write_csv(path, 1, 3, 4)
    with pytest.raises(UsageError, match="that part has changed since"):
        table.import_file(path)
    report = table.import_file(path, from_start=True, mode="upsert", skipped=skipped)
    assert (report.written, skipped) == (3, [])
    with pytest.raises(InvalidValue), db.transaction():
        table.import_file(write_csv(path, 7, 8, "x"), batch_records=1)
    assert (table.count(), len(db.jobs.list())) == (4, 1)
    with pytest.raises(UsageError, match="there is no such file"):
        table.import_file(tmp_path / "missing.csv")
    with pytest.raises(UsageError, match="the format of the source is not known"):
        table.import_file(workspace_file(tmp_path / "items.xyz"))

    async def import_again() -> int:
        async with await aio.open(db._storage.engine.full_address()) as other:
            await other.table("items").import_file(write_csv(path, 9))
            assert [job.state for job in await other.jobs.list(kind="import")] == ["done"]
            return await other.table("items").count()

    assert asyncio.run(import_again()) == 5


def workspace_file(path: Path) -> Path:
    path.write_text("?")
    return path


def test_a_frame_is_a_job_from_its_second_batch_on(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zapdb.imports.arrow_rows.IMPORT_BLOCK_RECORDS", 10)
    table = db.table("items")
    table.import_from(pandas.DataFrame({"id": range(10), "title": "t"}))
    assert db.jobs.list() == []
    table.import_from(pandas.DataFrame({"id": range(10, 35), "title": "t"}))
    (job,) = db.jobs.list()
    assert (job.kind, job.state, job.table_name) == ("import", "done", "items")
    assert job.subject.startswith("the pandas DataFrame (number ")
    assert (db.jobs.get(job.id).progress.written, table.count()) == (25, 35)


def test_exports_and_what_is_loaded_are_jobs(db: Database, tmp_path: Path, looks: Looks) -> None:
    db.table("items").insert_many({"id": n, "title": "t"} for n in range(30))
    made = export_directory(db, tmp_path / "out", form="csv")
    assert [table.records for table in made.tables] == [30]
    assert states(db, "export") == ["done"]
    assert db.jobs.get("export").progress.read == 30

    def cancel(_: int) -> None:
        finish(Begun(lambda: db.jobs.cancel("export")))  # this thread is in a snapshot
        looks.wait()

    with pytest.raises(JobError, match="the export was cancelled"):
        export_sql(db, tmp_path / "out.sql", "sqlite", progress=cancel)
    assert (states(db, "export"), (tmp_path / "out.sql").exists()) == (["superseded"], False)
    other = f"sqlite:///{tmp_path / 'other.db'}"
    load_export(tmp_path / "out", other)
    with zapdb.open(other) as loaded:
        assert states(loaded, "import") == ["done"]
        assert loaded.jobs.get("import").progress.written == 30
    with zapdb.open(other, read_only=True) as loaded:
        export_sql(loaded, tmp_path / "again.sql", "sqlite")
        assert states(loaded, "export") == []


@pytest.mark.on_each_engine
def test_a_database_is_imported_and_mirrored_by_jobs(db: Database, tmp_path: Path) -> None:
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'old.db'}")
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE items (id INTEGER PRIMARY KEY, title TEXT)"))
        connection.execute(sa.text("INSERT INTO items VALUES (1, 'a'), (2, 'b')"))
    engine.dispose()
    (copy,) = import_database(db, str(tmp_path / "old.db"))
    assert (copy.rows, copy.records, copy.is_complete) == (2, 2, True)
    assert states(db, "import") == ["done"]
    target, stop, told = f"sqlite:///{tmp_path / 'mirror.db'}", threading.Event(), list[str]()
    assert keep_mirror(db, target, once=True).made == ["items"]
    work = Begun(lambda: keep_mirror(db, target, stop=stop, on_wait=told.append))
    wait_until(lambda: states(db, "mirror") == ["planned"], "it runs")
    db.jobs.pause("mirror")
    wait_until(lambda: told, "it waits")
    assert told[0].startswith("paused by ")
    db.jobs.resume("mirror")
    stop.set()
    finish(work)
    assert (work.error, states(db, "mirror")) == (None, ["done"])


def test_a_baseline_tells_how_much_is_left_and_then_no_more(
    db: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zapdb.transfer.mirror.mirror_structure.NOTED_ROWS", 10)
    table, pace = db.table("items"), NotedPace()
    table.insert_many({"id": n, "title": "t"} for n in range(25))
    target = open_target(f"sqlite:///{tmp_path / 'mirror.db'}", db._storage)
    mirror = Mirror(db, target)
    mirror.switch_on()
    mirror.pace = pace
    run_mirror(mirror, once=True, report=lambda mirror: mirror.report.tell(pace))
    assert pace.expected == [25, None]
    assert [count for count in pace.held if count] == [10, 10, 5]
    table.delete(1)
    table.insert(id=100, title="t")
    table.update(2, title="u")
    pace.held.clear()
    run_mirror(mirror, once=True, report=lambda mirror: mirror.report.tell(pace))
    target.close()
    assert sum(pace.held) == 3  # a deletion counts as a row does
    assert len(pace.expected) == 2


def test_the_rows_of_a_frame_are_known_without_a_query() -> None:
    frame = pandas.DataFrame({"id": range(25)})
    arrow = pyarrow.table({"id": range(25)})
    assert [_count_if_known(data) for data in (frame, arrow, arrow.to_reader())] == [25, 25, None]


def wait_of(db: Database, kind: str, begin: str) -> bool:
    return any(wait.startswith(begin) for wait in db.jobs.get(kind).waits)


@pytest.mark.long_on("postgresql")
def test_an_import_keeps_to_bytes_and_to_a_ceiling_within_its_batch(
    db: Database, tmp_path: Path
) -> None:
    table = db.table("items")
    path = write_csv(tmp_path / "items.csv", "x")
    with pytest.raises(InvalidValue):
        table.import_file(path)
    write_csv(path, *range(100_000, 100_000 + COUNT))
    # A row counts 8 bytes for its number, and one for its title.
    db.jobs.throttle("import", bytes_per_second=9 * 60)
    began = time.monotonic()
    work = Begun(lambda: table.import_file(path, batch_records=COUNT))
    wait_until(lambda: table.count() > 2 * BATCH_RECORDS_MIN, "it has begun")
    assert table.count() <= 60 * (time.monotonic() - began) + 2 * BATCH_RECORDS_MIN
    wait_until(lambda: db.jobs.get("import").reads > 1, "it is known how much there is")
    assert COUNT * 0.9 < db.jobs.get("import").reads < COUNT * 1.1
    assert wait_of(db, "import", "throttled to 540 bytes per second")
    db.jobs.throttle("import", max_latency_ms=1, records_per_second=20)
    wait_until(lambda: wait_of(db, "import", "slowed down, since queries may take 1 ms"), "slow")
    assert table.count() < COUNT
    db.jobs.throttle("import")
    finish(work)
    assert (work.error, table.count()) == (None, COUNT)


@pytest.mark.long_on("postgresql")
def test_exports_and_mirrors_are_throttled_while_they_run(
    db: Database, tmp_path: Path, looks: Looks
) -> None:
    db.table("items").insert_many({"id": n, "title": "t"} for n in range(COUNT))
    written, has_begun, may_go_on = list[int](), threading.Event(), threading.Event()

    def count(records: int) -> None:
        written.append(records)
        has_begun.set()
        may_go_on.wait(GUARD_SECONDS)

    work = Begun(lambda: export_directory(db, tmp_path / "out", form="ndjson", progress=count))
    assert has_begun.wait(GUARD_SECONDS)
    db.jobs.throttle("export", bytes_per_second=100)
    looks.wait()
    may_go_on.set()
    wait_until(lambda: db.jobs.get("export").reads == COUNT, "it is known how much there is")
    assert wait_of(db, "export", "throttled to 100 bytes per second")
    assert sum(written) < COUNT
    db.jobs.throttle("export")
    finish(work)
    assert (work.error, sum(written)) == (None, COUNT)

    stop, target = threading.Event(), tmp_path / "mirror.db"
    work = Begun(lambda: keep_mirror(db, f"sqlite:///{target}", stop=stop))
    wait_until(lambda: mirrored(target) == COUNT, "the baseline is there")
    db.jobs.throttle("mirror", records_per_second=10)
    looks.wait()
    for n in range(COUNT, COUNT + 200):
        db.table("items").insert(id=n, title="t")
    wait_until(lambda: mirrored(target) > COUNT, "it goes on")
    assert mirrored(target) < COUNT + 200
    db.jobs.throttle("mirror")
    wait_until(lambda: mirrored(target) == COUNT + 200, "it has gone on")
    stop.set()
    finish(work)
    assert work.error is None


def mirrored(target: Path) -> int:
    if not target.exists():
        return 0
    with closing(sqlite3.connect(target)) as connection:
        try:
            return int(connection.execute("SELECT count(*) FROM items").fetchone()[0])
        except sqlite3.OperationalError:
            return 0
