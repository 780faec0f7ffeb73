"""A rollback at any moment of other work: it may come between any two of its transactions. What is
being done ends as it should, or says that it can't go on, and can be done again."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import zapdb
from tests import forms
from tests.contract import mirrors
from tests.contract.mirrors import Place
from tests.contract.tables import ADD_COLOR, INDEX_SIZE, ITEMS
from tests.support import Workspace, dump, error_of
from zapdb.activation import rollback
from zapdb.activation.up import MigrationChoice, migrate_up
from zapdb.catalog import DEFAULT_TENANT
from zapdb.database import Database
from zapdb.errors import ConcurrencyError, HistoryGap, ZapdbError
from zapdb.jobs.job_run import run_locally
from zapdb.storage import Storage
from zapdb.transfer.export.directory import export_directory
from zapdb.transfer.export.export_loading import load_export

COUNT = 30
CHANGES = (
    ADD_COLOR,
    INDEX_SIZE,
    "create_index: {table: items, index: by_color, fields: [{field: color}, {field: id}]}",
    "add_check: {table: items, check: sized, expression: size >= 0}",
    "drop_field: {table: items, field: note, restore: {archive: true, otherwise: {value: null}}}",
)
MOMENTS = tuple(range(1, 200)) if forms.is_long else (1, 2, 5, 13, 34)


class Meanwhile:
    """Does something before a storage begins a transaction: the first, or a later one."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._left, self._thread = 0, threading.current_thread()
        self._storage: Storage | None = None
        self._action: Callable[[], object] = bool
        begin = Storage._begin

        def call(this: Storage, *given: Any, **named: Any) -> None:
            if this is self._storage:
                self._count()
            begin(this, *given, **named)

        patch.setattr(Storage, "_begin", call)

    def _count(self) -> None:
        if self._left and threading.current_thread() is self._thread:
            self._left -= 1
            if not self._left:
                self._action()

    def arm(self, storage: Storage, at: int, action: Callable[[], object]) -> None:
        self._storage, self._left, self._action = storage, at, action

    def disarm(self) -> bool:
        """Return whether it has been done."""
        is_done, self._left = not self._left, 0
        return is_done


class World:
    """Thirty records, a mirror and a history; and what the work is done with."""

    def __init__(self, workspace: Workspace, directory: Path) -> None:
        self.workspace, self.directory, self.numbers = workspace, directory, itertools.count(1)
        self.mirror = Place("sqlite", f"sqlite:///{directory / 'mirror.db'}")
        self.records = {n: (f"title {n}", n, f"note {n}") for n in range(COUNT)}
        self.colors = dict.fromkeys(self.records, "red")
        workspace.write(1, ITEMS)
        with workspace.open() as db:
            db.admin.set_setting("change_log", "on")
            db.table("items").insert_many(
                {"id": n, "title": title, "size": size, "note": note}
                for n, (title, size, note) in self.records.items()
            )
        self.plain = workspace.follow()
        self.plain.history.start(directory / "past")
        workspace.write(2, *CHANGES)
        self.new = workspace.open()

    def up(self) -> None:
        directory = self.workspace.directory
        storage = self.workspace.connect()
        migrate_up(storage, DEFAULT_TENANT, directory, MigrationChoice(again=True))
        storage.close()

    def roll_back(self) -> None:
        storage = self.workspace.connect()
        rollback.roll_back(storage)
        storage.close()

    def write(self) -> None:
        """By the process that is rolled back and goes on."""
        number = next(self.numbers)
        key = number % COUNT
        self.new.table("items").update(key, color=f"color {number}", size=number)
        self.colors[key] = f"color {number}"
        title, _, note = self.records[key]
        self.records[key] = (title, number, note)

    def check(self) -> None:
        found = {one.id: (one.title, one.size, one.note) for one in self.plain.table("items")}
        assert found == self.records
        assert {one.id: one.color for one in self.new.table("items").scan()} == self.colors
        assert not [report for report in self.plain.admin.verify() if report.problems]


def run_jobs(_: World, db: Database) -> None:
    db.admin.run_jobs(partial(run_locally, workers=1, batch_records_max=7))


def export(world: World, db: Database) -> None:
    number = next(world.numbers)
    made = world.directory / f"export {number}"
    export_directory(db, made, form="ndjson")
    other = f"sqlite:///{world.directory}/{number}.db"
    load_export(made, other)
    with zapdb.open(other) as copy:
        found = {one.id: one.size for one in copy.table("items").scan()}
    assert found == {key: size for key, (_, size, _) in world.records.items()}


def follow(world: World, db: Database) -> None:
    """The history, which is behind, as of all moments that there were."""
    moment = db.change_log.end()
    db.history.flush()
    assert not db.history.verify(sample=2).problems
    past = {one.id: one.size for one in db.at(moment).table("items").scan()}
    assert past == {key: size for key, (_, size, _) in world.records.items()}


def erase(world: World, db: Database) -> None:
    items, key = db.table("items"), 1_000 + next(world.numbers)
    items.insert(id=key, title="secret")
    items.delete(key)
    db.history.flush()
    db.history.erase("items", key)
    assert "secret" not in str(dump(world.workspace))


def bring(world: World, db: Database) -> None:
    data = pa.table({"id": [*range(COUNT)], "title": [f"new {n}" for n in range(COUNT)]})
    db.table("items").import_from(data, mode="upsert")
    for n, (_, size, note) in world.records.items():
        world.records[n] = (f"new {n}", size, note)


WORK: dict[str, Callable[[World, Database], object]] = {
    "jobs": run_jobs,
    "verify": lambda _, db: db.admin.verify(),
    "export": export,
    "mirror": lambda world, db: mirrors.keep(db, world.mirror),
    "history": follow,
    "erase": erase,
    "import": bring,
    "rehearse": lambda _, db: db.admin.rehearse_rollback(),
}
MAY_END: dict[str, type[ZapdbError]] = {
    "history": HistoryGap,  # of a moment that it had not read before
    "rehearse": ConcurrencyError,
}
"""What may come of it. Everything else goes on."""


@pytest.fixture
def world(workspace: Workspace, tmp_path: Path) -> World:
    return World(workspace, tmp_path)


@pytest.mark.parametrize("work", WORK)
def test_a_rollback_in_the_middle_of_it(
    world: World, work: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    meanwhile, met = Meanwhile(monkeypatch), 0
    for at in MOMENTS:
        world.write()
        world.up()
        with world.workspace.follow() as db:
            meanwhile.arm(db._storage, at, world.roll_back)
            error = error_of(partial(WORK[work], world, db))
            is_met = meanwhile.disarm()
        if not is_met:
            assert error is None
            break
        assert error is None or isinstance(error, MAY_END.get(work, ()))
        met += 1
        with world.workspace.follow() as db:
            WORK[work](world, db)
        world.check()
        world.plain.admin.run_jobs()
        world.check()
    assert met
    mirrors.keep(world.plain, world.mirror)
    mirrors.check(world.plain, world.mirror)
