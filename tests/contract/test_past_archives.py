"""The past of archived values: processes with older files go on writing fields that newer ones have
dropped. What they write is in the archive alone, and belongs to the log as the record does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import zapdb
from tests.contract.stored_pasts import begin, check_store, flush
from tests.support import Workspace
from zapdb.activation.up import MigrationChoice, migrate_up
from zapdb.catalog import DEFAULT_TENANT
from zapdb.database import Database
from zapdb.jobs.rollback import roll_back_newest

PEOPLE = """\
create_table: {table: people, key: [id], fields: [
      {name: id, type: integer},
      {name: name, type: string, default: ''},
      {name: fax, type: string}]}"""
DROP_FAX = (
    "drop_field: {table: people, field: fax, restore: {archive: true, otherwise: {value: ''}}}"
)
RESTORE_FAX = (
    "restore_field: {table: people, field: fax, archived_by: 2, otherwise: {value: never}}"
)
DROP_AGAIN = DROP_FAX
ADD_COLOR = "add_field: {table: people, field: {name: color, type: string, default: red}}"
LONG = "x" * 10_000


def read(source: Any) -> list[dict[str, Any]]:
    return [zapdb.asdict(record) for record in source.table("people").scan()]


class Life:
    """A database with a process whose files end at 1, and all states by moment."""

    def __init__(self, workspace: Workspace, store: Path, *, is_followed: bool) -> None:
        self.workspace, self.is_followed = workspace, is_followed
        self.number = 1
        workspace.write(1, PEOPLE)
        self.older = workspace.open()
        self.older.admin.set_setting("change_log", "on")
        begin(self.older, store)
        self.states = dict[int, Any]()
        self.newer = self.older

    def note(self) -> None:
        with self.workspace.open(apply="never") as db:
            moment = next(db.moments()).number
            self.states[moment] = read(db)
            if self.is_followed:
                flush(db)

    def up(self, *operations: str) -> None:
        self.number += 1
        self.workspace.write(self.number, *operations)
        choice = MigrationChoice(again=True)
        migrate_up(self.workspace.control, DEFAULT_TENANT, self.workspace.directory, choice)
        self.note()

    def convert(self) -> None:
        with self.workspace.open() as db:
            db.admin.run_jobs()

    def back(self) -> None:
        self.workspace.remove(self.number)
        self.number -= 1
        roll_back_newest(self.workspace.control)
        self.note()

    def write(self, **values: Any) -> None:
        with self.older.transaction() as tx:
            tx.table("people").upsert(**values)
        self.note()

    def write_anew(self, key: int, **values: Any) -> None:
        """As a process does that does not see the dropped field."""
        with self.workspace.open() as db:
            db.table("people").upsert(id=key, **values)
        self.note()

    def check(self) -> Database:
        db = self.workspace.open()
        flush(db)
        check_store(db)
        wrong = dict[int, Any]()
        for moment, state in self.states.items():
            past = db.at(moment)
            if (read(past), past.exact) != (state, True):
                wrong[moment] = read(past), past.doubts, state
        assert wrong == {}
        assert not db.history.verify().problems
        return db


@pytest.fixture(params=[False, True], ids=["late", "followed"])
def life(workspace: Workspace, tmp_path: Path, request: pytest.FixtureRequest) -> Life:
    return Life(workspace, tmp_path / "store", is_followed=request.param)


def test_what_older_processes_write_comes_back_in_the_past(life: Life) -> None:
    life.write(id=1, fax="before")
    life.write(id=3, fax="left")
    life.write(id=4, fax=LONG)
    life.up(DROP_FAX)
    life.write(id=1, fax="changed")
    life.write(id=2, fax="new")
    life.write(id=5, fax=LONG + "y")
    life.write_anew(3, name="Ada")
    life.write_anew(6, name="Bob")
    life.back()
    assert [row["fax"] for row in life.states[max(life.states)]] == [
        "changed",
        "new",
        "left",
        LONG,
        LONG + "y",
        "",
    ]
    life.up(DROP_FAX)
    life.write(id=2, fax="later")
    life.check()


def test_another_migration_is_rolled_back_with_it(life: Life) -> None:
    """Both are gone before a late follower reads."""
    life.write(id=1, fax="before")
    life.up(DROP_FAX)
    life.write(id=1, fax="changed")
    life.up(ADD_COLOR)
    life.write(id=2, fax="new")
    life.convert()
    life.back()
    life.write(id=1, fax="again")
    life.back()
    life.up(ADD_COLOR)
    life.check()


def test_restored_and_dropped_again(life: Life) -> None:
    for key in range(1, 6):
        life.write(id=key, fax=f"f{key}")
    life.up(DROP_FAX)
    life.write(id=1, fax="changed")
    life.write_anew(2, name="Ada")
    life.write_anew(7, name="Bob")
    with life.older.transaction() as tx:
        tx.table("people").delete(3)
        tx.table("people").insert(id=3, fax="inserted anew")
        tx.table("people").delete(4)
    life.note()
    life.up(RESTORE_FAX)
    life.write(id=2, fax="restored")
    life.up(DROP_AGAIN)
    life.write(id=5, fax="last")
    life.back()
    life.back()
    life.up(ADD_COLOR)
    life.check()
