"""`sqlite:///:memory:`: a file of this process alone, with what holds for files, gone with it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

import zapdb
from tests import processes
from tests.documents import document
from zapdb.errors import UsageError
from zapdb.storage import connect
from zapdb.storage.private_file import LOCK, PRIVATE_PREFIX, PrivateFile, remove_abandoned

ITEMS = (
    "create_table: {table: items, key: [id], fields: "
    "[{name: id, type: integer}, {name: title, type: string}]}"
)
SIZE = "add_field: {table: items, field: {name: size, type: integer, default: 1}}"

PROGRAM = """\
import os, sys, zapdb
db = zapdb.open("sqlite:///:memory:", migrations=sys.argv[1], apply="auto")
db.table("items").insert(id=1, title="Milk")
print(os.path.dirname(db._storage.engine.url.database), flush=True)
sys.stdin.readline()
if sys.argv[2] == "fork":
    child = os.fork()
    if child == 0:
        sys.exit(0)
    os.waitpid(child, 0)
    print(db.table("items").get(1).title, flush=True)
"""


@pytest.fixture
def migrations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of migrations; temporary files are in another one of the test's own."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", None)
    directory = tmp_path / "migrations"
    directory.mkdir()
    (directory / "0001_items.yaml").write_text(document(ITEMS))
    return directory


def private_directories() -> list[Path]:
    return list(Path(tempfile.gettempdir()).glob(f"{PRIVATE_PREFIX}*"))


def start(migrations: Path, end: str) -> tuple[subprocess.Popen[str], Path]:
    running = processes.Popen(
        [sys.executable, "-c", PROGRAM, str(migrations), end],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert running.stdout is not None
    return running, Path(running.stdout.readline().strip())


@pytest.mark.parametrize("address", ["sqlite:///:memory:", "sqlite://", ":memory:"])
@pytest.mark.on_each_engine
def test_it_is_a_database_like_any_other_and_gone_when_closed(
    migrations: Path, address: str
) -> None:
    with zapdb.open(address, migrations=migrations, apply="auto") as db:
        items = db.table("items")
        items.insert(id=1, title="Milk")
        # What SQLite's own databases in memory refuse: a commit beside a snapshot.
        with db.snapshot() as snap:
            writer = threading.Thread(target=lambda: items.update(1, title="Tea"))
            writer.start()
            writer.join()
            assert snap.table("items").get(1).title == "Milk"
        assert items.get(1).title == "Tea"
        (directory,) = private_directories()
        assert str(directory) in repr(db)
    assert private_directories() == []


def test_each_is_one_of_its_own(migrations: Path) -> None:
    first = zapdb.open("sqlite:///:memory:", migrations=migrations, apply="auto")
    second = zapdb.open("sqlite:///:memory:", migrations=migrations, apply="auto")
    with first, second:
        first.table("items").insert(id=1, title="Milk")
        assert second.table("items").find(1) is None
        assert first.table("items").get(1).title == "Milk"


def test_jobs_and_other_databases_open_it_by_its_path(migrations: Path) -> None:
    with zapdb.open("sqlite:///:memory:", migrations=migrations, apply="auto") as db:
        db.table("items").insert(id=1, title="Milk")
        (migrations / "0002_size.yaml").write_text(document(SIZE))
        address = db._storage.engine.url.render_as_string()
        with zapdb.open(address, migrations=migrations, apply="auto") as newer:
            newer.admin.run_jobs()
            assert newer.admin.count_by_revision("items") == {2: 1}
        assert db.table("items").get(1).title == "Milk"


@pytest.mark.on_each_engine
def test_nothing_waits_for_the_disk(migrations: Path, tmp_path: Path) -> None:
    def synchronous(address: str) -> int:
        with zapdb.open(address, migrations=migrations, apply="auto") as db:
            return int(db._storage.connection().fetch_one("PRAGMA synchronous")[0])

    assert synchronous("sqlite:///:memory:") == 0
    assert synchronous(f"sqlite:///{tmp_path / 'lasting.db'}") == 2


@pytest.mark.on_each_engine
def test_it_is_gone_when_opening_fails(migrations: Path) -> None:
    (migrations / "0002_wrong.yaml").write_text(document("drop_table: {table: nothing}"))
    with pytest.raises(zapdb.ZapdbError):
        zapdb.open("sqlite:///:memory:", migrations=migrations, apply="auto")
    assert private_directories() == []


@pytest.mark.on_each_engine
def test_it_is_gone_when_the_process_ends_without_closing(migrations: Path) -> None:
    running, directory = start(migrations, "end")
    assert directory.is_dir()
    running.communicate("\n")
    assert running.returncode == 0
    assert not directory.exists()


@pytest.mark.on_each_engine
def test_a_forked_process_that_ends_leaves_it_alone(migrations: Path) -> None:
    running, directory = start(migrations, "fork")
    out, _ = running.communicate("\n")
    assert (running.returncode, out) == (0, "Milk\n")
    assert not directory.exists()


@pytest.mark.on_each_engine
def test_after_a_crash_the_next_process_that_makes_one_removes_it(migrations: Path) -> None:
    living, kept = start(migrations, "end")
    killed, left = start(migrations, "end")
    os.kill(killed.pid, signal.SIGKILL)
    killed.communicate()
    assert left.is_dir()
    with zapdb.open("sqlite:///:memory:", migrations=migrations, apply="auto"):
        assert not left.exists()
        assert kept.is_dir()  # its process lives
    living.communicate("\n")


@pytest.mark.on_each_engine
def test_a_directory_that_is_being_made_is_left_alone(migrations: Path) -> None:
    made = Path(tempfile.mkdtemp(prefix=PRIVATE_PREFIX))
    (made / "lock.new").touch()
    remove_abandoned()
    assert made.is_dir()


def test_a_private_file_may_begin_as_a_copy(migrations: Path, tmp_path: Path) -> None:
    template = tmp_path / "template.db"
    with zapdb.open(f"sqlite:///{template}", migrations=migrations, apply="auto") as db:
        db.table("items").insert(id=1, title="Milk")
    copy = PrivateFile(template)
    with zapdb.open(copy.url.render_as_string(), migrations=migrations) as db:
        assert db.table("items").get(1).title == "Milk"
        db.table("items").delete(1)
    with zapdb.open(f"sqlite:///{template}", migrations=migrations) as db:
        assert db.table("items").count() == 1
    copy.remove()
    assert private_directories() == []


def test_it_is_not_opened_to_read_only() -> None:
    with pytest.raises(UsageError, match="read_only is of no use"):
        connect("sqlite:///:memory:", read_only=True)


def test_what_is_not_its_own_is_not_opened_and_not_removed(
    migrations: Path, tmp_path: Path
) -> None:
    """Anyone may make a directory of such a name where temporary files are."""
    foreign = Path(tempfile.mkdtemp(prefix=PRIVATE_PREFIX))
    kept = tmp_path / "kept"
    kept.write_text("kept")
    try:
        (foreign / LOCK).symlink_to(kept)
        PrivateFile().remove()
        assert foreign.is_dir()
        (foreign / LOCK).unlink()
        (foreign / LOCK).touch()
        if os.geteuid() == 0:  # else nobody can make a file of another user
            os.chown(foreign, 65_534, 65_534)
            PrivateFile().remove()
            assert foreign.is_dir()
            os.chown(foreign, 0, 0)
            os.chown(foreign / LOCK, 65_534, 65_534)
            PrivateFile().remove()
            assert foreign.is_dir()
            os.chown(foreign / LOCK, 0, 0)
        PrivateFile().remove()
        assert not foreign.exists()
    finally:
        shutil.rmtree(foreign, ignore_errors=True)
    assert kept.read_text() == "kept"
