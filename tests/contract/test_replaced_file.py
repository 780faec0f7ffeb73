"""The file of an open SQLite database is deleted, moved, or replaced: an error says so, nothing is
written to either file, and nothing is made in its place."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import zapdb
from tests.contract.tables import ITEMS
from tests.support import Workspace, error_of, wait_until
from zapdb.catalog.cluster import (
    node_registration,
)
from zapdb.database import Database
from zapdb.errors import DatabaseReplaced, StorageError, UsageError


@pytest.fixture(params=["sqlite"])
def engine(request: pytest.FixtureRequest) -> str:
    """A server keeps its files to itself."""
    return str(request.param)


@pytest.fixture
def file(workspace: Workspace) -> Path:
    return Path(workspace.address.removeprefix("sqlite:///"))


@pytest.fixture
def db(workspace: Workspace) -> Database:
    workspace.write(1, ITEMS)
    db = workspace.open()
    db.table("items").insert(id=1, title="before")
    return db


def delete(file: Path) -> None:
    file.unlink()


def delete_all(file: Path) -> None:
    for path in file.parent.glob(f"{file.name}*"):
        path.unlink()


def move_away(file: Path) -> None:
    file.rename(file.with_name("elsewhere.db"))


def move_directory(file: Path) -> None:
    file.parent.rename(file.parent.with_name(f"{file.parent.name}-elsewhere"))


def replace_by_copy(file: Path) -> None:
    """As a backup is put back."""
    copy = file.with_name("copy.db")
    with sqlite3.connect(file) as source, sqlite3.connect(copy) as target:
        source.backup(target)
    source.close()
    target.close()
    copy.replace(file)


def replace_by_empty(file: Path) -> None:
    file.unlink()
    file.touch()


def replace_by_link(file: Path) -> None:
    other = file.with_name("other.db")
    shutil.copy(file, other)
    file.unlink()
    file.symlink_to(other)


Loss = Callable[[Path], None]
LOSSES: list[Loss] = [
    delete,
    delete_all,
    move_away,
    move_directory,
    replace_by_copy,
    replace_by_empty,
    replace_by_link,
]


@pytest.fixture(params=LOSSES, ids=lambda loss: loss.__name__)
def lose(request: pytest.FixtureRequest) -> Loss:
    found: Loss = request.param
    return found


def in_new_thread(act: Callable[[], object]) -> object:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(act).result()


def contents(file: Path) -> bytes | None:
    return file.read_bytes() if file.exists() else None


def read_in_snapshot(db: Database) -> object:
    with db.snapshot():
        return db.table("items").count()


def write_in_transaction(db: Database) -> object:
    with db.transaction():
        return db.table("items").insert(id=4, title="after")


CALLS: dict[str, Callable[[Database], object]] = {
    "insert": lambda db: db.table("items").insert(id=2, title="after"),
    "run": lambda db: db.run(lambda: db.table("items").insert(id=3, title="after"), token=True),
    "transaction": write_in_transaction,
    "snapshot": read_in_snapshot,
    "get_in_a_new_thread": lambda db: in_new_thread(lambda: db.table("items").get(1)),
    "insert_in_a_new_thread": lambda db: in_new_thread(
        lambda: db.table("items").insert(id=5, title="after")
    ),
    "setting": lambda db: db.admin.set_setting("convert", "on_access"),
    "jobs": lambda db: db.admin.run_jobs(),
    "sql": lambda db: db.sql("SELECT * FROM items").fetchall(),
}


@pytest.mark.parametrize("first", CALLS)
def test_the_first_call_says_so(db: Database, file: Path, first: str) -> None:
    """Whatever it is, and each one after it."""
    replace_by_copy(file)
    before = contents(file)
    for name in (first, "get", *CALLS):
        # A read on a connection that the thread has is refused from the first notice on.
        act = CALLS.get(name, lambda db: db.table("items").get(1))
        error = error_of(lambda act=act: act(db))  # type: ignore[misc]  # mypy takes the default for a second parameter
        assert type(error) is DatabaseReplaced, name
    assert contents(file) == before


def test_nothing_is_written_to_either_file(
    workspace: Workspace, db: Database, file: Path, lose: Loss
) -> None:
    lose(file)
    before = contents(file)
    for name, act in CALLS.items():
        error = error_of(lambda act=act: act(db))  # type: ignore[misc]  # mypy takes the default for a second parameter
        assert type(error) is DatabaseReplaced, name
        assert error.context["file"] == str(file)
        assert f"{file}-wal" in error.hint
    db.close()
    assert contents(file) == before  # and where it was deleted, none was made


@pytest.mark.on_each_engine
def test_the_message_tells_a_lost_file_from_a_replaced_one(db: Database, file: Path) -> None:
    insert = CALLS["insert"]
    file.rename(file.with_name("kept.db"))
    assert error_of(lambda: insert(db)).message == (  # type: ignore[union-attr]  # it raises
        "the file of the open database is not there any more"
    )
    file.touch()
    assert error_of(lambda: insert(db)).message == (  # type: ignore[union-attr]  # it raises
        "another file was put in the place of the open database's"
    )
    file.with_name("kept.db").replace(file)  # the way out that loses nothing
    insert(db)
    assert [r.id for r in db.table("items").scan()] == [1, 2]


@pytest.mark.on_each_engine
def test_a_transaction_that_is_open_meanwhile_is_not_committed(
    db: Database, file: Path, lose: Loss
) -> None:
    """It is not answered with success, since what it wrote would be gone with the file."""

    def write() -> None:
        with db.transaction():
            db.table("items").insert(id=2, title="after")
            lose(file)

    assert type(error_of(write)) is DatabaseReplaced


@pytest.mark.on_each_engine
def test_a_snapshot_that_is_open_meanwhile_is_read_to_its_end(
    db: Database, file: Path, lose: Loss
) -> None:
    with db.snapshot():
        assert db.table("items").count() == 1
        lose(file)
        assert db.table("items").get(1).title == "before"


def test_the_heartbeat_notices(
    workspace: Workspace, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that only reads, one record at a time, is not served from a lost file for long."""
    monkeypatch.setattr(node_registration, "NODE_HEARTBEAT_SECONDS", 0.02)
    workspace.write(1, ITEMS)
    db = workspace.open()
    db.table("items").insert(id=1, title="before")
    replace_by_copy(file)
    wait_until(lambda: error_of(lambda: db.table("items").get(1)), "it noticed")
    assert type(error_of(lambda: db.table("items").get(1))) is DatabaseReplaced


def test_a_read_only_database_notices(workspace: Workspace, db: Database, file: Path) -> None:
    reader = workspace.open("never", read_only=True)
    assert reader.table("items").count() == 1
    replace_by_copy(file)
    assert type(error_of(reader.table("items").count)) is DatabaseReplaced


def test_the_other_file_can_be_opened(workspace: Workspace, db: Database, file: Path) -> None:
    replace_by_copy(file)
    assert type(error_of(lambda: CALLS["insert"](db))) is DatabaseReplaced
    db.close()
    for path in file.parent.glob(f"{file.name}-*"):  # what the error says
        path.unlink()
    again = workspace.open()
    CALLS["insert"](again)
    assert [r.id for r in again.table("items").scan()] == [1, 2]


def test_a_backup_may_be_restored_through_sqlite(db: Database, file: Path) -> None:
    """That writes the file itself, as one more writer: all who have it open go on."""
    copy = file.with_name("copy.db")
    with sqlite3.connect(file) as source, sqlite3.connect(copy) as target:
        source.backup(target)
    CALLS["insert"](db)
    with source, target:
        target.backup(source)
    source.close()
    target.close()
    assert [r.id for r in db.table("items").scan()] == [1]
    CALLS["insert"](db)
    assert [r.id for r in db.table("items").scan()] == [1, 2]


def test_a_relative_address_stays_where_it_was(
    workspace: Workspace, db: Database, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each connection looked for it in the working directory of the moment."""
    monkeypatch.chdir(file.parent)
    other = zapdb.open(f"sqlite:///{file.name}", migrations=workspace.directory)
    elsewhere = file.parent / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert in_new_thread(lambda: other.table("items").get(1).title) == "before"
    assert list(elsewhere.iterdir()) == []
    other.close()


@pytest.mark.parametrize(
    "rest",
    ["/:memory:?timeout=1", "/file::memory:?uri=true", "/file:some?mode=memory&uri=true"],
)
def test_a_database_in_memory_of_sqlites_own_is_refused(rest: str) -> None:
    with pytest.raises(UsageError, match=r"in memory|unknown option"):
        zapdb.open(f"sqlite://{rest}")


@pytest.mark.empty
@pytest.mark.parametrize("mode", ["rw", "ro"])
def test_an_address_may_say_that_no_file_is_made(
    workspace: Workspace, file: Path, mode: str
) -> None:
    workspace.write(1, ITEMS)
    address: Any = f"sqlite:///file:{file}?mode={mode}&uri=true"
    with pytest.raises(StorageError, match="cannot be opened"):
        zapdb.open(address, migrations=workspace.directory, apply="auto")
    assert not file.exists()
