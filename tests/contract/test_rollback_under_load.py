"""A bank under load while migrations go up and down: no writer gets an error, and no money is lost
or made."""

from __future__ import annotations

import os
import random
import threading
import time
from typing import Any

import pytest

import zapdb
from tests import forms
from tests.support import Workspace, finish, wait_until
from zapdb.activation.rollback import roll_back
from zapdb.activation.up import MigrationChoice, migrate_up
from zapdb.catalog import DEFAULT_TENANT
from zapdb.storage import Storage

ACCOUNTS = """\
create_table: {table: accounts, key: [id], fields: [
      {name: id, type: integer},
      {name: owner, type: string, default: nobody},
      {name: balance, type: integer, default: 0}]}"""
MIGRATIONS = (
    ["add_field: {table: accounts, field: {name: branch, type: string, default: main}}"],
    ["create_index: {table: accounts, index: by_branch, fields: [{field: branch}]}"],
    [
        "drop_field: {table: accounts, field: owner,"
        " restore: {archive: true, otherwise: {value: lost}}}"
    ],
    [
        "change_type: {table: accounts, field: balance, type: decimal, scale: 2, default: 0,"
        " up: 'decimal(balance, 2, else=0)', down: 'integer(balance, else=0)',"
        " reversibility: lossy, because: there are no cents}"
    ],
    ["rename_field: {table: accounts, field: balance, to: money}"],
    [
        "add_field: {table: accounts, field: {name: place, type: string},"
        " fill: {expression: \"join('', branch, '!')\"}}"
    ],
    ["add_check: {table: accounts, check: numbered, expression: id >= 0}"],
    ["rename_field: {table: accounts, field: branch, to: office}"],
    [
        "create_index: {table: accounts, index: by_office, fields: [{field: office}, {field: id}],"
        " unique: true}"
    ],
    ["add_field: {table: accounts, field: {name: visits, type: integer, default: 0}}"],
)
COUNT, EACH = 40, 1_000
ROUNDS = 10 if forms.is_long else 1
SOAK_SECONDS = float(os.environ.get("ZAPDB_SOAK_SECONDS", "0"))


def transfer(tx: Any, chance: random.Random) -> None:
    """Move money by the schema of the process."""
    accounts = tx.table("accounts")
    giver, taker = chance.sample(range(COUNT), 2)
    amount = chance.randrange(10)
    for key, change in ((giver, -amount), (taker, amount)):
        found = accounts.get(key)  # from here on, the schema stays what it is
        name = "balance" if hasattr(found, "balance") else "money"
        accounts.update(key, **{name: getattr(found, name) + change})


class Bank:
    """Writers of all versions, each in a thread of its own."""

    def __init__(self) -> None:
        self.errors = list[BaseException]()
        self.done = 0
        self._writers = list[tuple[threading.Thread, threading.Event]]()

    def begin(self, db: zapdb.Database) -> threading.Event:
        """Let a process write; returns what ends that."""
        ended = threading.Event()
        writer = threading.Thread(target=self._write, args=(len(self._writers), db, ended))
        self._writers.append((writer, ended))
        writer.start()
        return ended

    def _write(self, seed: int, db: zapdb.Database, ended: threading.Event) -> None:
        chance = random.Random(seed)
        try:
            while not ended.is_set():
                db.run(lambda tx: transfer(tx, chance))
                self.done += 1
        except BaseException as error:
            self.errors.append(error)
        finally:
            db._storage.release_connection()

    def await_some(self) -> None:
        before = self.done
        wait_until(lambda: self.done >= before + 10 or bool(self.errors))

    def end_one(self, ended: threading.Event) -> None:
        ended.set()
        for writer, its in self._writers:
            if its is ended:
                finish(writer)

    def end(self) -> None:
        for _, ended in self._writers:
            self.end_one(ended)


@pytest.mark.on_each_engine
def test_writers_of_all_versions_go_on_while_migrations_come_and_go(workspace: Workspace) -> None:
    """Those of old files, of none, and of the newest ones, which are rolled back and applied
    again under them."""
    workspace.write(1, ACCOUNTS)
    old = workspace.open()
    old.table("accounts").insert_many(
        {"id": at, "owner": f"owner {at}", "balance": EACH} for at in range(COUNT)
    )
    follower, storage, bank = workspace.follow(), workspace.connect(), Bank()
    for db in (old, old, follower):
        bank.begin(db)
    deadline, turn = time.monotonic() + SOAK_SECONDS, 0
    chance = random.Random(11)
    try:
        while turn < ROUNDS or time.monotonic() < deadline:
            for number, changes in enumerate(MIGRATIONS, 2):
                workspace.write(number, *changes)
                up(storage, workspace)
                if number % 2 == turn % 2:
                    follower.admin.run_jobs()
            newest = workspace.open()
            ended = bank.begin(newest)
            bank.await_some()
            for to in chance.sample(range(1, 1 + len(MIGRATIONS)), 2):
                roll_back(storage, to=to)
                bank.await_some()
                if chance.random() < 0.5:
                    follower.admin.run_jobs()
                up(storage, workspace)  # again, with what was kept
                bank.await_some()
            roll_back(storage, to=1)
            bank.await_some()
            bank.end_one(ended)
            newest.close()
            for number in range(2, 2 + len(MIGRATIONS)):
                workspace.remove(number)
            assert [str(error) for error in bank.errors] == []
            turn += 1
    finally:
        bank.end()
    assert [str(error) for error in bank.errors] == []
    for db in (old, follower):
        found = db.table("accounts").all()
        assert sum(account.balance for account in found) == COUNT * EACH
        assert [account.owner for account in found] == [f"owner {at}" for at in range(COUNT)]
    follower.admin.run_jobs()
    assert sum(a.balance for a in follower.table("accounts").scan()) == COUNT * EACH
    assert all(report.problems == () for report in follower.admin.verify())


def up(storage: Storage, workspace: Workspace) -> None:
    migrate_up(storage, DEFAULT_TENANT, workspace.directory, MigrationChoice(again=True))
