"""A bank under load while migrations go up and down: no writer gets an error, and no money is lost
or made."""

from __future__ import annotations

import random
import threading
from typing import Any

import pytest

import zapdb
from tests import forms
from tests.support import Workspace, finish
from zapdb.activation.rollback import roll_back
from zapdb.activation.up import MigrationChoice, migrate_up
from zapdb.catalog import DEFAULT_TENANT

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
)
COUNT, EACH = 40, 1_000
ROUNDS = 10 if forms.is_long else 3


def transfer(tx: Any, chance: random.Random) -> None:
    """Move money by the schema of the process."""
    accounts = tx.table("accounts")
    giver, taker = chance.sample(range(COUNT), 2)
    amount = chance.randrange(10)
    for key, change in ((giver, -amount), (taker, amount)):
        found = accounts.get(key)  # from here on, the schema stays what it is
        name = "balance" if hasattr(found, "balance") else "money"
        accounts.update(key, **{name: getattr(found, name) + change})


@pytest.mark.on_each_engine
def test_writers_of_old_files_and_of_none_go_on_while_migrations_come_and_go(
    workspace: Workspace,
) -> None:
    workspace.write(1, ACCOUNTS)
    old = workspace.open()
    old.table("accounts").insert_many(
        {"id": at, "owner": f"owner {at}", "balance": EACH} for at in range(COUNT)
    )
    follower = workspace.follow()
    errors, ended, done = list[BaseException](), threading.Event(), [0, 0, 0]

    def write(place: int, db: zapdb.Database) -> None:
        chance = random.Random(place)
        try:
            while not ended.is_set():
                db.run(lambda tx: transfer(tx, chance))
                done[place] += 1
        except BaseException as error:
            errors.append(error)
        finally:
            db._storage.release_connection()

    writers = [
        threading.Thread(target=write, args=(place, db))
        for place, db in enumerate((old, old, follower))
    ]
    storage, moved = workspace.connect(), 0
    for writer in writers:
        writer.start()
    try:
        for turn in range(ROUNDS):
            for number, changes in enumerate(MIGRATIONS, 2):
                workspace.write(number, *changes)
                again = MigrationChoice(again=True)
                migrate_up(storage, DEFAULT_TENANT, workspace.directory, again)
                if number % 2 == turn % 2:
                    follower.admin.run_jobs()
            before = sum(done)
            moved += len(roll_back(storage, to=1 if turn % 2 else 4).migrations)
            if not turn % 2:
                moved += len(roll_back(storage, to=1).migrations)
            for number in range(2, 2 + len(MIGRATIONS)):
                workspace.remove(number)
            while sum(done) < before + 10 and not errors:
                ended.wait(0.01)
    finally:
        ended.set()
        for writer in writers:
            finish(writer)
    assert errors == []
    assert moved == ROUNDS * len(MIGRATIONS)
    for db in (old, follower):
        found = db.table("accounts").all()
        assert sum(account.balance for account in found) == COUNT * EACH
        assert [account.owner for account in found] == [f"owner {at}" for at in range(COUNT)]
    follower.admin.run_jobs()
    assert sum(a.balance for a in follower.table("accounts").scan()) == COUNT * EACH
    assert all(report.problems == () for report in follower.admin.verify())
