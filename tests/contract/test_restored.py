"""A backup is restored under processes that stay open. Every counter is then as it was, so two
histories of the database meet at the numbers of each: whatever a process has cached under such a
number is of the other one."""

from __future__ import annotations

import itertools
import random
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

import zapdb
from tests.contract.tables import ITEMS
from tests.contract.test_backups import dsn_of, run
from tests.support import PostgresServer, Workspace, error_of
from zapdb.activation.rollback import roll_back
from zapdb.activation.up import MigrationChoice, migrate_up
from zapdb.catalog import DEFAULT_TENANT
from zapdb.catalog.cache import load_cache
from zapdb.catalog.cluster import (
    node_registration,
)
from zapdb.cli.program import run_program
from zapdb.database import Database, RecordChange
from zapdb.errors import (
    LeaseLost,
    PendingMigrations,
    ServedSchemaUnavailable,
    TransactionConflict,
    UnknownName,
    UsageError,
)
from zapdb.log.incarnations import ensure_incarnation
from zapdb.storage import TransactionMode, connect

TICKETS = """\
create_table: {table: tickets, key: [key], fields: [
      {name: key, type: integer},
      {name: number, type: integer, generated: sequence}]}"""
RED = "add_field: {table: items, field: {name: color, type: string, default: red}}"
BLUE = "add_field: {table: items, field: {name: color, type: string, default: blue}}"
SEVEN = "add_field: {table: items, field: {name: color, type: integer, default: 7}}"
COUNT = "add_field: {table: items, field: {name: count, type: integer, default: 3}}"


class Backups:
    """Backups of a workspace's database, and how they are put back; `way` is how."""

    def __init__(self, place: Workspace, way: str, directory: Path, server: Any) -> None:
        self.place = place
        self.way = way
        self.directory = directory
        self.server: PostgresServer = server
        self.numbers = itertools.count(1)

    @property
    def file(self) -> str:
        return self.place.address.removeprefix("sqlite:///")

    @property
    def dsn(self) -> str:
        return dsn_of(self.server, self.place.address)

    def make(self) -> Path:
        path = self.directory / f"backup-{next(self.numbers)}"
        if self.way == "copied":
            copy_file(self.file, str(path))
        elif self.way == "vacuumed":
            with closing(sqlite3.connect(self.file)) as source:
                source.execute(f"VACUUM INTO '{path}'")
        elif self.way == "exported":
            assert run_program(["export", str(path), "-d", self.place.address]) == 0
        else:
            run(self.server, "pg_dump", "--format=custom", f"--file={path}", f"--dbname={self.dsn}")
        return path

    def restore(self, path: Path) -> None:
        if self.place.engine == "sqlite":
            copy_file(str(path), self.file)
            return
        options = ["--no-owner", "--exit-on-error", f"--dbname={self.dsn}", str(path)]
        if self.way == "cleaned":
            run(self.server, "pg_restore", "--clean", *options)
            return
        name = self.place.address.partition("@/")[2].partition("?")[0]
        self.server.execute(f"DROP DATABASE {name} WITH (FORCE)")
        self.server.execute(f"CREATE DATABASE {name}")
        if self.way == "exported":
            assert run_program(["import", str(path), "-d", self.place.address]) == 0
        else:
            run(self.server, "pg_restore", *options)


def copy_file(source: str, target: str) -> None:
    with closing(sqlite3.connect(source)) as read, closing(sqlite3.connect(target)) as written:
        read.backup(written)


WAYS = {
    "copied": "sqlite",
    "vacuumed": "sqlite",
    "recreated": "postgresql",
    "cleaned": "postgresql",
}


LONG = ("vacuumed", "cleaned")


@pytest.fixture(
    params=[pytest.param(way, marks=pytest.mark.long if way in LONG else ()) for way in WAYS]
)
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def engine(way: str) -> str:
    return WAYS.get(way, "postgresql")


@pytest.fixture
def backups(
    workspace: Workspace,
    way: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> Backups:
    """Nodes do not beat by themselves: within a beat, nothing tells of a restored backup but what
    the process has done."""
    monkeypatch.setattr(node_registration, "NODE_HEARTBEAT_SECONDS", 3600.0)
    server = request.getfixturevalue("postgres") if WAYS.get(way) != "sqlite" else None
    (tmp_path / "backups").mkdir()
    workspace.write(1, ITEMS, TICKETS)
    return Backups(workspace, way, tmp_path / "backups", server)


def refresh(db: Database) -> None:
    """As its watch does within a second."""
    db._node_context.watcher._step()


def test_rule_07_another_migration_at_the_same_number_is_not_taken_for_the_former(
    workspace: Workspace, backups: Backups
) -> None:
    older = workspace.open()
    older.table("items").insert(id=1, title="one")
    backup = backups.make()
    workspace.write(2, RED)
    with workspace.open() as newer:
        assert newer.table("items").get(1).color == "red"
    older.table("items").insert(id=2, title="two")  # so it has seen the migration
    for number, (change, color) in enumerate([(BLUE, "blue"), (SEVEN, 7), (RED, "red")], 3):
        backups.restore(backup)
        workspace.write(2, change)
        with workspace.open() as newer:
            older.table("items").insert(id=number, title="new")
            assert [(r.id, r.color) for r in newer.table("items").scan()] == [
                (1, color),
                (number, color),
            ]
            assert [r.id for r in older.table("items").scan()] == [1, number]
            assert [report.problem_count for report in newer.admin.verify()] == [0, 0]


@pytest.mark.parametrize("way", ["copied", "recreated"])
@pytest.mark.parametrize("change", [None, BLUE, SEVEN, COUNT])
def test_rule_07_a_process_whose_schema_is_gone_ends(
    workspace: Workspace, backups: Backups, change: str | None
) -> None:
    """It neither reads nor writes as if it were there; with the same schema it goes on."""
    with workspace.open() as db:
        db.table("items").insert(id=1, title="one")
    backup = backups.make()
    workspace.write(2, RED)
    newer, reader = workspace.open(), workspace.open(apply="never", read_only=True)
    assert newer.table("items").get(1).color == reader.table("items").get(1).color == "red"
    workspace.remove(2)
    backups.restore(backup)
    if change is not None:
        workspace.write(2, change)
    with workspace.open() as db:
        db.table("items").insert(id=2, title="two")
    reads: list[Callable[[Database], object]] = [
        lambda db: db.table("items").get(2),
        lambda db: list(db.table("items").scan()),
        lambda db: db.table("items").count(),
        lambda db: db.table("items").where(title="two").all(),
        lambda db: db.sql("SELECT * FROM items").fetchall(),
        read_in_snapshot,
    ]
    for read in reads:
        kind = PendingMigrations if change is None else ServedSchemaUnavailable
        assert isinstance(error_of(lambda: read(reader)), kind)  # noqa: B023 - called now
        error = error_of(lambda: read(newer))  # noqa: B023 - called now
        # It reads what is in force where nothing is in the place of its migration.
        assert change is None or isinstance(error, kind)
    assert isinstance(error_of(lambda: newer.table("items").insert(id=3, title="x")), LeaseLost)


def read_in_snapshot(db: Database) -> object:
    with db.snapshot():
        return db.table("items").get(2)


def test_rule_07_a_process_whose_schema_came_back_reads_on(
    workspace: Workspace, backups: Backups
) -> None:
    """The same migration is applied to the backup."""
    with workspace.open() as db:
        db.table("items").insert(id=1, title="one")
    backup = backups.make()
    workspace.write(2, RED)
    newer = workspace.open()
    assert newer.table("items").get(1).color == "red"
    backups.restore(backup)
    with workspace.open() as db:
        db.table("items").update(1, color="green")
    assert newer.table("items").get(1).color == "green"
    assert type(error_of(lambda: newer.table("items").insert(id=3, title="x"))) is LeaseLost


def test_rule_07_a_process_that_only_reads_goes_on_when_a_migration_is_applied_again(
    workspace: Workspace,
) -> None:
    """It has other numbers then, and means the same."""
    workspace.write(1, ITEMS)
    workspace.write(2, RED)
    with workspace.open() as db:
        db.table("items").insert(id=1, title="one")
    reader = workspace.open(apply="never", read_only=True)
    storage = connect(workspace.address)
    try:
        roll_back(storage)
        assert type(error_of(lambda: reader.table("items").get(1))) is PendingMigrations
        migrate_up(storage, DEFAULT_TENANT, workspace.directory, MigrationChoice(again=True))
    finally:
        storage.close()
    assert reader.table("items").get(1).color == "red"


def test_rule_09_a_process_that_came_after_the_backup_ends(
    workspace: Workspace, backups: Backups
) -> None:
    with workspace.open() as db:
        db.table("items").insert(id=1, title="one")
    backup = backups.make()
    later = workspace.open()
    later.table("items").insert(id=2, title="two")
    backups.restore(backup)
    assert [r.id for r in later.table("items").scan()] == [1]
    for write in (
        lambda: later.table("items").insert(id=3, title="three"),
        lambda: later.table("tickets").insert(key=1),
        lambda: later.run(lambda: later.table("items").update(1, title="other"), token=True),
    ):
        assert type(error_of(write)) is LeaseLost
    with workspace.open() as again:
        assert [(r.id, r.title) for r in again.table("items").scan()] == [(1, "one")]


def test_rule_09_a_process_that_renewed_its_lease_since_the_backup_ends(
    workspace: Workspace, backups: Backups
) -> None:
    db = workspace.open()
    backup = backups.make()
    db._heartbeat.beat()
    backups.restore(backup)
    error = error_of(lambda: db.table("items").insert(id=3, title="three"))
    assert type(error) is LeaseLost
    assert error.message == "a backup was restored under this process"
    assert type(error_of(db._heartbeat.beat)) is LeaseLost


@pytest.mark.parametrize("place", ["alone", "first in a transaction", "later in one"])
def test_rule_09_no_number_of_a_sequence_is_given_twice(
    workspace: Workspace, backups: Backups, place: str
) -> None:
    """Those in hand on PostgreSQL were drawn after the backup, so that others draw them again."""
    first, second = workspace.open(), workspace.open()
    keys = itertools.count(1)

    def write(db: Database, count: int) -> None:
        def insert() -> None:
            if place == "later in one":
                db.table("items").upsert(id=1, title="one")
                assert db.table("items").count() == 1
            for _ in range(count):
                db.table("tickets").insert(key=next(keys))

        insert() if place == "alone" else db.run(insert)

    write(first, 5)  # has some in hand
    backup = backups.make()
    write(second, 3)
    backups.restore(backup)
    write(first, 2)
    has_some = workspace.engine == "postgresql"
    if has_some:
        assert type(error_of(lambda: write(second, 1))) is LeaseLost
    else:
        write(second, 1)
    with workspace.open() as third:
        write(third, 4)
        write(first, 4)
        numbers = [ticket.number for ticket in third.table("tickets").scan()]
    assert len(numbers) == len(set(numbers)) == 15 + (not has_some)


@pytest.mark.parametrize("ends", ["rolled back", "savepoint", "block"])
def test_rule_09_a_rollback_leaves_the_epoch_of_what_was_drawn(
    workspace: Workspace, backups: Backups, ends: str
) -> None:
    """A block that a transaction drew itself stays drawn, and so does what tells of it."""
    if workspace.engine == "sqlite":
        pytest.skip("on SQLite a transaction draws no block")
    db = workspace.open()
    backup = backups.make()

    def draw_and_fail() -> None:
        with db.transaction():
            db.table("items").insert(id=1, title="one")
            for key in range(3):
                db.table("tickets").insert(key=key)
            raise RuntimeError

    def draw_in_savepoint() -> None:
        with db.transaction():
            db.table("items").insert(id=1, title="one")
            with db.transaction():
                db.table("tickets").insert(key=1)
                raise RuntimeError

    if ends == "block":
        with db.transaction():
            db.table("tickets").insert(key=1)
    else:
        act = draw_and_fail if ends == "rolled back" else draw_in_savepoint
        with pytest.raises(RuntimeError):
            act()
    db.table("items").insert(id=2, title="two")  # it goes on
    db.table("tickets").insert(key=9)
    backups.restore(backup)
    assert type(error_of(lambda: db.table("items").insert(id=3, title="x"))) is LeaseLost


def test_rule_09_threads_that_draw_and_write_at_once_go_on(
    workspace: Workspace, backups: Backups
) -> None:
    """The epoch rises under transactions that compare it, of this tenant and of another one."""
    db = workspace.open()
    db.admin.create_tenant("acme")
    db.for_tenant("acme")
    keys = itertools.count(1)

    def work(number: int) -> None:
        for _ in range(20):
            if number % 2:
                for hand in list(db._session.sequences._hands.values()):
                    db._session.sequences.throw_away(hand)
                db.table("tickets").insert(key=next(keys))
                db._heartbeat.beat()
                continue
            with db.transaction() as tx:
                db.table("items").upsert(id=number, title="x")
                tx.for_tenant("acme").table("items").upsert(id=number, title="x")

    def retried(number: int) -> None:
        with suppress(TransactionConflict):
            work(number)

    db.table("tickets").insert(key=next(keys))
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(retried, range(4)))


def test_rule_29_a_bookmark_of_another_history_is_refused(
    workspace: Workspace, backups: Backups
) -> None:
    db = workspace.open()
    db.admin.set_setting("change_log", "on")
    items = db.table("items")
    items.insert(id=1, title="one")
    kept = str(list(db.change_log.read())[-1].bookmark)
    end = str(db.change_log.end())
    backup = backups.make()
    follower = db.change_log.follower("reader")
    for number in range(2, 6):
        items.insert(id=number, title="former")
        list(db.change_log.read())  # each has a stamp of its own
    former = [change.bookmark for change in db.change_log.read()]
    moments = list(db.moments())
    follower.advance(former[2])
    last = db.change_log.end()
    backups.restore(backup)
    ensure_incarnation(db._storage)  # as each heartbeat does
    for number in range(2, 8):
        items.insert(id=number, title="new")
        list(db.change_log.read())
    for place in (kept, end):
        assert [c.after.title for c in db.change_log.read(place)] == ["new"] * 6
    for bookmark in (former[-1], former[2], last, str(former[-1])):
        with pytest.raises(UsageError, match="is not of this change log"):
            list(db.change_log.read(bookmark))
        with pytest.raises(UsageError, match="is not of this change log"):
            db.change_log.follower("reader").advance(bookmark)
        with pytest.raises(UsageError, match="is not of this change log"):
            follower.advance(bookmark)
        with pytest.raises(UsageError, match="is not of this change log"):
            db.change_log.prune(before=bookmark)
    with pytest.raises(UsageError, match="is not of this change log"):
        db.at(former[-1])
    with pytest.raises(UsageError, match="has another moment there"):
        db.at(moments[0])


@pytest.mark.parametrize("way", ["copied", "cleaned"])
def test_rule_29_the_status_of_a_history_store_tells_of_newer_files(
    workspace: Workspace, backups: Backups, tmp_path: Path
) -> None:
    """Another process has followed since the backup; nothing is written until the manifest is made
    anew from the files."""
    db = workspace.open()
    db.admin.set_setting("change_log", "on")
    db.history.start(tmp_path / "past")
    db.table("items").insert(id=1, title="one")
    assert db.history.flush().problem is None
    backup = backups.make()
    for number in (2, 3):
        db.table("items").insert(id=number, title="former")
        assert db.history.flush().problem is None
    backups.restore(backup)
    ensure_incarnation(db._storage)
    db.table("items").insert(id=2, title="new")
    assert "later commits than the database" in str(db.history.status().problem)
    with pytest.raises(UsageError, match="later commits than the database"):
        db.history.flush()
    assert run_program(["history", "status", "-d", workspace.address]) == 1
    db.history.rebuild_manifest(tmp_path / "past")
    assert db.history.flush().problem is None
    assert [report.problem_count for report in db.admin.verify()] == [0, 0]
    assert not db.history.verify().problems
    seen = [[r.title for r in db.at(m).table("items").scan()] for m in db.moments(table="items")]
    assert seen[:2] == [["one", "new"], ["one"]]


def test_rule_30_the_catalog_cache_is_that_of_the_present_history(
    workspace: Workspace, backups: Backups
) -> None:
    """Fewer changes since the backup, as many, or more."""
    db, reader = workspace.open(), workspace.open(apply="never", read_only=True)
    db.admin.set_setting("on_read", "leave")
    backup = backups.make()
    for count in (0, 2, 4):
        db.admin.set_setting("on_read", "write_back")
        db.admin.set_setting("job_records_per_second", "50")
        db.admin.set_setting("on_read", None)
        for process in (db, reader):
            refresh(process)
        backups.restore(backup)
        other = workspace.connect()
        for at in range(count):
            assert (
                run_program(
                    [
                        "settings",
                        "set",
                        "job_records_per_second",
                        str(at + 1),
                        "-d",
                        workspace.address,
                    ]
                )
                == 0
            )
        for process in (db, reader):
            refresh(process)
            with other.transaction(TransactionMode.READ) as connection:
                found = process._node_context.watcher.known
                assert found is not None
                assert found.to_bytes() == load_cache(connection).to_bytes()
            assert process.admin.settings()["on_read"] == "leave"


def test_rule_27_a_tenant_is_not_taken_for_another_one_with_its_number(
    workspace: Workspace, backups: Backups
) -> None:
    db = workspace.open()
    backup = backups.make()
    db.admin.create_tenant("acme")
    acme = db.for_tenant("acme")
    acme.table("items").insert(id=1, title="acme's")
    backups.restore(backup)
    db.admin.create_tenant("other")
    other = db.for_tenant("other")
    other.table("items").insert(id=1, title="other's")
    for act in (
        lambda: acme.table("items").get(1),
        lambda: acme.table("items").insert(id=2, title="acme's"),
        lambda: db.for_tenant("acme"),
        read_in_snapshot_of_acme(db),
    ):
        assert isinstance(error_of(act), UnknownName)
    assert [r.title for r in other.table("items").scan()] == ["other's"]


def read_in_snapshot_of_acme(db: Database) -> Callable[[], object]:
    def read() -> object:
        with db.snapshot() as snapshot:
            return snapshot.for_tenant("acme").table("items").get(1)

    return read


# Random lives


@dataclass
class State:
    """What a plain program would know of the database at one moment."""

    second: str | None = None
    """The migration that is there as the second one."""
    items: dict[int, Any] = field(default_factory=dict)
    """The colour of each, None where there is none."""
    numbers: list[int] = field(default_factory=list)
    log: tuple[str, ...] = ()
    """The changes and events, by words that are said once; those of `TITLE` are titles."""
    marks: dict[int, int] = field(default_factory=dict)
    """When each process came, or drew numbers last."""

    def copy(self) -> State:
        return replace(
            self, items=dict(self.items), numbers=list(self.numbers), marks=dict(self.marks)
        )


@dataclass
class Process:
    db: Database
    second: str | None
    """The second migration that its files have."""
    mark: int
    """When it came, or drew numbers last: it writes only where the database knows that."""


TITLE = "word"
COLOURS: dict[str | None, Any] = {None: None, RED: "red", BLUE: "blue", SEVEN: 7}


class Life:
    """Processes of several ages beside one that restores backups, and beside a model."""

    def __init__(self, place: Workspace, backups: Backups, seed: int) -> None:
        self.place, self.backups, self.random = place, backups, random.Random(seed)
        self.now = itertools.count(1)
        self.words = itertools.count(1)
        self.state = State()
        self.kept: list[tuple[Path, State]] = []
        self.processes: list[Process] = []
        self.bookmarks: list[tuple[str, tuple[str, ...]]] = []
        self.open()
        self.processes[0].db.admin.set_setting("change_log", "on")

    def open(self) -> None:
        """One that has all files, or none but the first."""
        files = self.state.second if self.random.random() < 0.5 else None
        if files is None:
            self.place.remove(2)
        else:
            self.place.write(2, files)
        self.add_process(files)

    def add_process(self, second: str | None) -> None:
        self.processes.append(Process(self.place.open(), second, next(self.now)))
        self.note(self.processes[-1])

    def note(self, process: Process) -> None:
        self.state.marks[id(process)] = process.mark

    def knows(self, process: Process) -> bool:
        return self.state.marks.get(id(process)) == process.mark

    def migrate(self) -> None:
        if self.state.second is not None:
            return
        self.say("migration")
        self.state.second = self.random.choice([RED, BLUE, SEVEN])
        self.place.write(2, self.state.second)
        self.add_process(self.state.second)
        self.state.items = dict.fromkeys(self.state.items, COLOURS[self.state.second])

    def back_up(self) -> None:
        self.kept.append((self.backups.make(), self.state.copy()))

    def restore(self) -> None:
        if not self.kept:
            return
        path, state = self.random.choice(self.kept)
        self.backups.restore(path)
        self.state = state.copy()
        if self.place.engine == "postgresql":
            with zapdb.open(self.place.address):
                pass  # numbers the transactions
            for process in self.processes:
                ensure_incarnation(process.db._storage)

    def insert(self) -> None:
        process, key = self.random.choice(self.processes), self.random.randrange(1_000)
        word = f"{TITLE} {next(self.words)}"

        def insert() -> None:
            process.db.table("items").insert(id=key, title=word)

        if key not in self.state.items and self.write(process, insert):
            self.state.items[key] = COLOURS[self.state.second]
            self.state.log += (word,)

    def say(self, what: str) -> None:
        self.state.log += (f"{what} {next(self.words)}",)

    def draw(self) -> None:
        process, key = self.random.choice(self.processes), len(self.state.numbers) + 1
        drawn: list[int] = []

        def insert() -> None:
            before = process.db._session.sequences._hands
            was = {field: hand.drawn for field, hand in before.items()}
            drawn.append(process.db.table("tickets").insert(key=key).number)
            if was != {field: hand.drawn for field, hand in before.items()}:
                process.mark = next(self.now)
                self.note(process)

        if self.write(process, insert):
            self.state.numbers += drawn
            self.say("ticket")

    def write(self, process: Process, act: Callable[[], None]) -> bool:
        if not self.knows(process):
            assert isinstance(error_of(act), LeaseLost | ServedSchemaUnavailable)
            return False
        act()
        return True

    def keep_bookmark(self) -> None:
        with zapdb.open(self.place.address) as db:
            self.bookmarks.append((str(db.change_log.end()), self.state.log))

    def follow(self) -> None:
        if not self.bookmarks:
            return
        bookmark, log = self.random.choice(self.bookmarks)
        with zapdb.open(self.place.address) as db:
            if self.state.log[: len(log)] != log:
                with pytest.raises(UsageError):
                    list(db.change_log.read(bookmark))
                return
            found = [
                getattr(change.after, "title", "ticket")
                for change in db.change_log.read(bookmark)
                if isinstance(change, RecordChange)
            ]
            later = [word for word in self.state.log[len(log) :] if "migration" not in word]
            assert found == [word if TITLE in word else "ticket" for word in later]

    def watch(self) -> None:
        for process in self.processes:
            process.db._node_context.watcher.wake()

    def check(self) -> None:
        with zapdb.open(self.place.address) as db:
            self.compare(db, self.state.second)
        for process in self.processes:
            if process.second is None or self.state.second in (None, process.second):
                self.compare(process.db, self.state.second and process.second)
                continue
            error = error_of(lambda: process.db.table("items").count())  # noqa: B023 - called now
            assert isinstance(error, ServedSchemaUnavailable)

    def compare(self, db: Database, second: str | None) -> None:
        found = {record.id: getattr(record, "color", None) for record in db.table("items").scan()}
        assert found == (dict.fromkeys(self.state.items) if second is None else self.state.items)
        numbers = [record.number for record in db.table("tickets").scan()]
        assert numbers == self.state.numbers
        assert len(set(numbers)) == len(numbers)


STEPS = [
    *["insert", "insert", "insert", "draw", "draw", "migrate", "open", "back_up"],
    *["restore", "restore", "keep_bookmark", "follow", "watch"],
]
BEGINNING = [
    *["insert", "draw", "keep_bookmark", "back_up", "migrate", "insert", "keep_bookmark"],
    *["restore", "insert", "draw", "migrate", "insert", "follow", "restore", "follow", "draw"],
]
"""Each step, also those that need others before."""


def test_rule_07_any_history_is_told_from_the_others(
    workspace: Workspace, backups: Backups
) -> None:
    live(Life(workspace, backups, 0), 8)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 130))
def test_rule_07_any_long_history_is_told_from_the_others(
    workspace: Workspace, backups: Backups, seed: int
) -> None:
    live(Life(workspace, backups, seed), 60)


def live(life: Life, steps: int) -> None:
    for step in [*BEGINNING, *life.random.choices(STEPS, k=steps)]:
        getattr(life, step)()
        life.check()
