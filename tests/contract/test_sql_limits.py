"""Statements end at their limits, and when they are interrupted, and leave nothing behind."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import zapdb
from tests.contract.test_sql_attacks import running
from tests.support import Workspace, wait_until
from zapdb.database import Database
from zapdb.errors import InvalidValue, SqlError, SqlLimitExceeded, StorageError
from zapdb.sandbox import processes
from zapdb.sandbox.inside.spill import SPILL_PREFIX, Spill
from zapdb.sql.sources import TableSource
from zapdb.storage.interruption import InterruptibleCall

ORDERS = (
    "create_table: {table: orders, key: [id], fields: ["
    "{name: id, type: integer}, {name: title, type: string}]}"
)
MB = 1024 * 1024
WORDS = "SELECT sum(hash(s)) FROM (SELECT md5(i::VARCHAR) s FROM range(400000) t(i) ORDER BY s)"
"""Needs about 40 MB to sort."""

pytestmark = pytest.mark.usefixtures("no_collection")
engine_does_not_matter = pytest.mark.parametrize("engine", ["sqlite"])


@pytest.fixture
def db(workspace: Workspace) -> Database:
    workspace.write(1, ORDERS)
    opened = workspace.open()
    opened.table("orders").insert_many({"id": n, "title": f"order {n}"} for n in range(3_000))
    return opened


ENDLESS = {
    "a loop": "SELECT count(*) FROM range(1000000000000) t(i) WHERE hash(i) = 7",
    "one call": "SELECT levenshtein(repeat('a', 100000), repeat('b', 100000))",
    "sorting": "SELECT i FROM range(10000000000) t(i) ORDER BY hash(i) LIMIT 9",
    "an answer": "SELECT * FROM range(10000000000)",
    "reading": "SELECT count(*) FROM orders a, orders b, orders c, orders d "
    "WHERE hash(a.id, b.id, c.id, d.id) = 7",
}
UNBOUNDED: dict[str, Any] = {"max_rows": 10**15, "max_memory": 2**34}


@engine_does_not_matter
@pytest.mark.parametrize("where", ENDLESS)
def test_the_time_limit_and_ctrl_c_end_it(db: Database, where: str) -> None:
    with pytest.raises(SqlLimitExceeded) as caught:
        db.sql(ENDLESS[where], seconds=0.1, **UNBOUNDED)
    assert caught.value.context == {"seconds": 0.1}
    assert not running()

    def interrupt() -> None:
        wait_until(running, "it runs")
        time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGINT)

    other = threading.Thread(target=interrupt)
    other.start()
    with pytest.raises(KeyboardInterrupt):
        db.sql(ENDLESS[where], **UNBOUNDED)
    other.join()
    assert not running()
    assert db.sql("SELECT count(*) FROM orders").fetchone() == (3_000,)


def test_ctrl_c_ends_it_while_a_table_is_read(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = TableSource.read

    def read_and_be_interrupted(self: TableSource, names: Any) -> Iterator[Any]:
        for batch in read(self, names):
            yield batch
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(TableSource, "read", read_and_be_interrupted)
    with db.transaction():
        db.table("orders").delete(1)
        with pytest.raises(KeyboardInterrupt):
            db.sql("SELECT max(title) FROM orders")
    monkeypatch.undo()
    assert not running()
    assert db.sql("SELECT count(*) FROM orders").fetchone() == (2_999,)


def test_what_reading_raises_ends_it(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: TableSource, names: Any) -> Iterator[Any]:
        raise SqlError("broken")
        yield

    monkeypatch.setattr(TableSource, "read", fail)
    with pytest.raises(SqlError, match="broken"):
        db.sql("SELECT max(title) FROM orders")
    assert not running()


@engine_does_not_matter
def test_limits_are_limits(db: Database, tmp_path: Path) -> None:
    for wrong in (
        {"seconds": 0},
        {"seconds": float("nan")},
        {"seconds": "1"},
        {"max_memory": 0},
        {"max_memory": 1e9},
        {"max_rows": -1},
        {"max_rows": True},
        {"spill_to": tmp_path / "nowhere"},
    ):
        with pytest.raises(InvalidValue) as caught:
            db.sql("SELECT 1", **wrong)  # type: ignore[arg-type]  # it is what is tested
        assert caught.value.context["field"] in wrong
    assert len(db.sql("SELECT * FROM range(5)", max_rows=5)) == 5
    assert len(db.sql("SELECT 1 WHERE false", max_rows=0)) == 0
    with pytest.raises(SqlLimitExceeded):
        db.sql("SELECT * FROM range(6)", max_rows=5)


@engine_does_not_matter
def test_a_statement_spills_into_a_directory_of_its_own(db: Database, tmp_path: Path) -> None:
    before = set(tmp_path.rglob("*"))
    wanted = db.sql(WORDS).fetchall()
    with pytest.raises(SqlLimitExceeded) as caught:
        db.sql(WORDS, max_memory=24 * MB)
    assert "spill_to" in caught.value.hint
    assert db.sql(WORDS, max_memory=24 * MB, spill_to=tmp_path).fetchall() == wanted
    assert set(tmp_path.rglob("*")) == before
    with pytest.raises(SqlError):
        db.sql("SELECT error('no')", spill_to=tmp_path)
    assert set(tmp_path.rglob("*")) == before


@engine_does_not_matter
def test_spilled_rows_are_private_and_go_with_a_statement_that_is_killed(
    db: Database, tmp_path: Path
) -> None:
    seen: list[Path] = []
    modes: set[int] = set()

    def look() -> None:
        wait_until(
            lambda: [p for p in tmp_path.glob(f"{SPILL_PREFIX}*/*") if p.stat().st_size],
            "it spills",
        )
        for path in tmp_path.glob(f"{SPILL_PREFIX}*"):
            seen.append(path)
            modes.add(stat.S_IMODE(path.stat().st_mode))
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=look)
    thread.start()
    endless = "SELECT hash(i) FROM range(10000000000) t(i) ORDER BY 1"
    with pytest.raises(KeyboardInterrupt):
        db.sql(endless, max_memory=64 * MB, spill_to=tmp_path)
    thread.join()
    assert modes == {0o700}
    assert seen
    assert not list(tmp_path.glob(f"{SPILL_PREFIX}*"))


PROGRAM = """\
import sys, zapdb
with zapdb.open(sys.argv[1]) as db:
    print("ready", flush=True)
    db.sql("SELECT hash(i) FROM range(10000000000) t(i) ORDER BY 1",
           max_memory=64 * 1024 * 1024, spill_to=sys.argv[2])
"""


@engine_does_not_matter
def test_nothing_is_left_of_an_application_that_is_killed(
    workspace: Workspace, db: Database, tmp_path: Path
) -> None:
    spill = tmp_path / "spill"
    spill.mkdir()
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, workspace.address, str(spill)], stdout=subprocess.PIPE
    )
    with program:
        wait_until(lambda: spilled(spill), "it spills")
        (keeper,) = children(program.pid)
        (statement,) = children(keeper)
        program.kill()
    wait_until(lambda: not is_there(keeper) and not is_there(statement), "both are gone")
    assert not list(spill.iterdir())


@engine_does_not_matter
def test_what_is_left_where_all_are_killed_goes_with_the_next_statement(
    db: Database, tmp_path: Path
) -> None:
    for name in (f"{SPILL_PREFIX}left", "zapdb-other"):
        (tmp_path / name / "deep").mkdir(parents=True)
        (tmp_path / name / "deep" / "rows").write_text("rows")
    (tmp_path / f"{SPILL_PREFIX}link").symlink_to(tmp_path / "zapdb-other")
    held = Spill(str(tmp_path))  # of a statement that runs
    assert not (tmp_path / f"{SPILL_PREFIX}left").exists()
    (tmp_path / f"{SPILL_PREFIX}left").mkdir()
    db.sql("SELECT 1", spill_to=tmp_path)
    assert not (tmp_path / f"{SPILL_PREFIX}left").exists()
    assert Path(held.path).exists()
    assert (tmp_path / "zapdb-other" / "deep" / "rows").read_text() == "rows"
    held.remove()


@engine_does_not_matter
def test_a_directory_that_can_not_be_written_is_named_in_the_error(
    db: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.setattr(Path, "is_dir", lambda _: True)
    gone.rmdir()
    with pytest.raises(SqlError, match="could not be started") as caught:
        db.sql("SELECT 1", spill_to=gone)
    assert caught.value.context["problem"] == "No such file or directory"


@engine_does_not_matter
def test_another_thread_can_interrupt_it(db: Database) -> None:
    """As a cancelled task does."""
    call = InterruptibleCall()
    assert call.start()

    def interrupt() -> None:
        wait_until(running, "it runs")
        call.strike(lambda *_: None)

    other = threading.Thread(target=interrupt)
    other.start()
    with call, pytest.raises(SqlError, match="was interrupted"):
        db.sql(ENDLESS["one call"], **UNBOUNDED)
    other.join()
    assert not running()
    assert db.sql("SELECT 1").fetchall() == [(1,)]


@engine_does_not_matter
def test_a_keeper_that_can_not_be_started_is_an_error(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    processes._end()
    monkeypatch.setattr(processes, "INSIDE", Path("/nowhere"))
    with pytest.raises(StorageError, match="could be started") as caught:
        db.sql("SELECT 1")
    assert caught.value.hint
    monkeypatch.setattr(processes.spawn, "get_executable", lambda: "/nowhere")
    with pytest.raises(StorageError, match="could be started"):
        db.sql("SELECT 1")
    monkeypatch.undo()
    assert db.sql("SELECT 1").fetchall() == [(1,)]


@engine_does_not_matter
def test_another_keeper_takes_over_from_one_that_was_killed(db: Database) -> None:
    assert db.sql("SELECT 1").fetchall() == [(1,)]
    killed = processes._keepers[processes.STATEMENT]._process
    killed.kill()
    killed.wait()
    assert db.sql("SELECT 2").fetchall() == [(2,)]
    assert processes._keepers[processes.STATEMENT]._process.pid != killed.pid


@engine_does_not_matter
def test_a_forked_process_has_a_keeper_of_its_own(workspace: Workspace, db: Database) -> None:
    assert db.sql("SELECT 1").fetchall() == [(1,)]
    child = os.fork()
    if child == 0:
        status = 1
        try:
            with zapdb.open(workspace.address) as own:
                status = 0 if own.sql("SELECT count(*) FROM orders").fetchone() == (3_000,) else 2
            processes._end()
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert db.sql("SELECT count(*) FROM orders").fetchone() == (3_000,)


@engine_does_not_matter
def test_an_answer_larger_than_memory_is_refused_here_too(db: Database) -> None:
    """Whatever the process of the statement sends: it ran what other people wrote."""
    with pytest.raises(SqlLimitExceeded) as caught:
        db.sql("SELECT repeat('x', 1000) FROM range(100000)", max_memory=50 * MB)
    assert caught.value.context == {"max_memory": 50 * MB}


def spilled(directory: Path) -> list[Path]:
    return [path for path in directory.glob(f"{SPILL_PREFIX}*/*") if path.stat().st_size]


def children(process: int) -> list[int]:
    return [
        int(child)
        for path in Path(f"/proc/{process}/task").glob("*/children")
        for child in path.read_text().split()
    ]


def is_there(process: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
