"""A full disk: the error says so, and that nothing was written, since that is known."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import zapdb
from tests.contract.tables import ITEMS
from tests.support import PostgresServer, Workspace, error_of
from zapdb.database import Database
from zapdb.errors import CommitUnknown, DiskFull, StorageError, TransactionConflict

DISK_BYTES = 4 << 20
PAGE_BYTES = 4096
LOG_FRAMES = 4062
"""That the first 32 KiB of the index of SQLite's log have room for; then it grows."""

TEXT = random.Random(1).randbytes(1500).hex()
"""Nothing makes it shorter."""


@contextmanager
def mounted(directory: Path, size_bytes: int) -> Iterator[Path]:
    """A small file system of its own; skips where it can't be made."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("only root may mount a small file system (tmpfs)")
    directory.mkdir()
    options = f"size={size_bytes},mode=0755"
    mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(directory)]
    done = subprocess.run(mount, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"a small file system can't be mounted: {done.stderr.strip()}")
    try:
        yield directory
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=True)
        directory.rmdir()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path / "disk", DISK_BYTES) as directory:
        yield directory


@pytest.fixture
def on_disk(disk: Path, tmp_path: Path) -> Iterator[Workspace]:
    """A SQLite database on a small disk."""
    directory = tmp_path / "migrations"
    directory.mkdir()
    with Workspace("sqlite", f"sqlite:///{disk / 'test.db'}", directory) as place:
        place.write(1, ITEMS)
        yield place


def fill(disk: Path, left_bytes: int) -> None:
    """Leave so much room, in whole pages."""
    (disk / "filler").unlink(missing_ok=True)
    free = os.statvfs(disk)
    size_bytes = free.f_bavail * free.f_frsize - left_bytes
    if size_bytes > 0:
        with (disk / "filler").open("wb") as filler:
            os.posix_fallocate(filler.fileno(), 0, size_bytes)


def keys(db: Database) -> list[int]:
    return [record.id for record in db.table("items").scan()]


def keys_after_a_loss_of_power(place: Workspace, disk: Path, to: Path) -> list[int]:
    """What recovery finds in the database and its log as they are on disk at this moment."""
    to.mkdir()
    for name in ("test.db", "test.db-wal"):
        shutil.copy(disk / name, to / name)
    with zapdb.open(f"sqlite:///{to / 'test.db'}", migrations=place.directory) as copy:
        return keys(copy)


@pytest.mark.parametrize("pages", [1, 3])
def test_commit_on_a_full_disk(on_disk: Workspace, disk: Path, tmp_path: Path, pages: int) -> None:
    """Wherever in the log it is full, down to the page that commits: what is answered is so, in
    this process and in whatever opens the database after a crash."""
    db = on_disk.open()
    items = db.table("items")
    items.insert(id=0, title="before")
    written, refused = [0], 0
    for number in range(1, 9 * pages):
        fill(disk, number % (3 * pages) * PAGE_BYTES)
        rows = [{"id": number * 100 + part, "title": TEXT} for part in range(pages)]
        error = error_of(lambda rows=rows: items.insert_many(rows))  # type: ignore[misc]  # mypy takes the default for a second parameter
        if error is None:
            written += [int(str(row["id"])) for row in rows]
        else:
            assert type(error) is DiskFull, error
            refused += 1
        assert keys(db) == sorted(written)
    assert refused > 3
    assert len(written) > pages
    found = keys_after_a_loss_of_power(on_disk, disk, tmp_path / "copy")
    assert found == sorted(written)
    (disk / "filler").unlink()
    items.insert(id=9999, title="room again")
    assert keys(db) == [*sorted(written), 9999]


def test_commit_of_each_kind_on_a_full_disk(on_disk: Workspace, disk: Path) -> None:
    """`db.run` with a token has nothing to find out, and repeats nothing."""
    db = on_disk.open()
    items = db.table("items")
    items.insert(id=0, title="before")
    fill(disk, 0)
    attempts = []

    def write() -> None:
        attempts.append(1)
        items.insert(id=1, title=TEXT)

    def write_in_transaction() -> None:
        with db.transaction():
            write()

    for act in (
        lambda: db.run(write),
        lambda: db.run(write, token=True),
        write_in_transaction,
        lambda: db.admin.set_setting("convert", "on_access"),
    ):
        assert type(error_of(act)) is DiskFull  # type: ignore[arg-type]  # of different types
    assert len(attempts) == 3
    assert keys(db) == [0]


def test_the_index_of_the_log_finds_no_room(on_disk: Workspace, disk: Path, tmp_path: Path) -> None:
    """By then the log holds the commit: it counts if the process dies. That is not known here."""
    db = on_disk.open()
    items = db.table("items")
    subprocess.run(["mount", "-o", f"remount,size={64 << 20}", str(disk)], check=True)
    with sqlite3.connect(disk / "test.db", isolation_level=None) as driver:
        driver.execute("PRAGMA wal_autocheckpoint = 0")
        driver.execute("CREATE TABLE other (value blob)")
        frames = LOG_FRAMES - (disk / "test.db-wal").stat().st_size // (PAGE_BYTES + 24)
        driver.execute("INSERT INTO other VALUES (zeroblob(?))", ((frames - 20) * PAGE_BYTES,))
    error, number = None, 0
    while error is None:
        number += 1
        fill(disk, 6 * PAGE_BYTES)
        error = error_of(lambda number=number: items.insert(id=number, title="short"))  # type: ignore[misc]  # mypy takes the default for a second parameter
    assert type(error) is CommitUnknown
    assert "disk I/O error" in str(error.context["cause"])
    assert number not in keys(db)
    assert number in keys_after_a_loss_of_power(on_disk, disk, tmp_path / "copy")
    driver.close()


# Statements


@pytest.fixture
def small(
    workspace: Workspace, request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[Database]:
    """A database on which statements find no room after some records."""
    workspace.write(1, ITEMS)
    db = workspace.open()
    db.table("items").insert(id=0, title="before")
    if workspace.engine == "sqlite":
        yield db
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    with mounted(server.directory.parent / "small", DISK_BYTES) as directory:
        owner = server.directory.stat()
        os.chown(directory, owner.st_uid, owner.st_gid)
        server.execute(f"CREATE TABLESPACE small LOCATION '{directory}'")
        try:
            for table in workspace.control.dialect.table_names(workspace.control.connection()):
                workspace.execute(f"ALTER TABLE {table} SET TABLESPACE small")
            yield db
        finally:
            for table in workspace.control.dialect.table_names(workspace.control.connection()):
                workspace.execute(f"ALTER TABLE {table} SET TABLESPACE pg_default")
            server.execute("DROP TABLESPACE small")


def limit(db: Database, pages: int) -> None:
    """On SQLite: let statements of the transaction find no room, as if it were full."""
    if db._storage.dialect.name == "sqlite":
        driver = db._storage.connection().driver
        (now,) = driver.execute("PRAGMA page_count").fetchone()
        driver.execute(f"PRAGMA max_page_count = {now + pages}")


def insert_until_full(db: Database, at_once: int) -> StorageError:
    items = db.table("items")
    for number in range(1, 3000):
        rows = [{"id": number * 1000 + n, "title": TEXT} for n in range(at_once)]
        error = error_of(lambda rows=rows: items.insert_many(rows))  # type: ignore[misc]  # mypy takes the default for a second parameter
        if error is not None:
            assert type(error) is DiskFull, error
            return error
    raise AssertionError("there was room for all")


def test_a_statement_on_a_full_disk(small: Database) -> None:
    def write() -> None:
        with small.transaction():
            small.table("items").insert(id=1, title="with the rest")
            limit(small, 100)
            raise insert_until_full(small, 300)

    error = error_of(write)
    assert error is not None
    assert error.message == "the disk of the database is full"
    assert "free some space" in error.hint
    limit(small, 1_000_000)
    assert keys(small) == [0]
    small.table("items").insert(id=2, title="after")
    assert keys(small) == [0, 2]


def test_a_full_disk_that_is_caught_inside_a_transaction(small: Database) -> None:
    """All of it is written in the end, or nothing: SQLite undoes the whole transaction at once, and
    what followed in it was committed singly."""
    items = small.table("items")

    def write() -> None:
        with small.transaction():
            items.insert(id=1, title="before it")
            limit(small, 3)
            insert_until_full(small, 1)
            limit(small, 1_000_000)
            error_of(lambda: items.insert(id=2, title="after it"))
            seen.extend(keys(small))

    seen: list[int] = []
    error = error_of(write)
    if error is None:
        assert keys(small) == seen
        assert seen[:2] == [0, 1]
    else:
        assert type(error) is TransactionConflict
        assert keys(small) == [0]


@pytest.mark.parametrize("engine", ["postgresql"])
@pytest.mark.parametrize(("state", "kind"), [("53100", DiskFull), ("XX000", StorageError)])
def test_an_error_that_answers_commit_is_a_known_outcome(
    workspace: Workspace, state: str, kind: type[StorageError]
) -> None:
    """The server undid the transaction and says so."""
    workspace.write(1, ITEMS)
    db = workspace.open()
    workspace.execute(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS"
        f" $$ BEGIN RAISE EXCEPTION 'made by a test' USING ERRCODE = '{state}'; END $$"
    )
    workspace.execute(
        "CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON zapdb_records_1"
        " DEFERRABLE INITIALLY DEFERRED"
        " FOR EACH ROW EXECUTE FUNCTION refuse()"
    )
    items = db.table("items")
    backend = db._storage.connection().driver.info.backend_pid
    for act in (
        lambda: items.insert(id=1, title="x"),
        lambda: db.run(lambda: items.insert(id=1, title="x"), token=True),
    ):
        error = error_of(act)
        assert type(error) is kind
        assert error.context["detail"] == "made by a test"
    assert db._storage.connection().driver.info.backend_pid == backend  # it is of use still
    assert keys(db) == []
