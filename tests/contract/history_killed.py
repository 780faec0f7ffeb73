"""Works on a history store in processes that are killed, each at another of their steps.

Called with an address, a tenant's number, how many steps apart they are killed, and the name of a
command of `COMMANDS` with its arguments. Forks a process for each kill, which opens the
database for itself, ends itself by SIGKILL at its n-th step, and leaves what it leaves: its lease,
its transaction, its files. Prints how many were killed.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import zapdb
from zapdb.catalog.cluster.leases import Owner
from zapdb.database import Database
from zapdb.errors import UsageError
from zapdb.past.files import (
    history_file,
    working_store,
)
from zapdb.past.files.cleaning import delete_retired
from zapdb.past.files.follower_run import flush_store
from zapdb.past.files.stores import hold_store


class Killer:
    """Counts the steps of this process and ends it at one of them."""

    def __init__(self, at: int) -> None:
        self.left = at

    def step(self, before: Callable[..., Any]) -> Callable[..., Any]:
        def act(*arguments: Any, **named: Any) -> Any:
            self.left -= 1
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return before(*arguments, **named)

        return act


def follow(db: Database, tenant: int) -> None:
    flush_store(db._storage, tenant, 60)


def erase(db: Database, tenant: int, table: str, key: str) -> None:
    db.history.erase(table, int(key) if key.isdigit() else key)


def erase_fields(db: Database, tenant: int, table: str, *fields: str) -> None:
    db.history.erase_fields(table, *fields)


def purge(db: Database, tenant: int, before: str, how: str = "") -> None:
    db.history.purge(int(before), exact=how == "exact")
    with hold_store(db._storage, tenant, Owner.here(), 60) as working:
        delete_retired(working)


def move(db: Database, tenant: int, before: str, directory: str) -> None:
    db.history.move(int(before), directory)


def move_store(db: Database, tenant: int, directory: str) -> None:
    """Goes on where one was killed: the manifest of the copies may be there already."""
    if db.history.status().directory == directory:
        return
    try:
        db.history.move(None, directory)
    except UsageError:
        db.history.rebuild_manifest(directory)


def repair(db: Database, tenant: int) -> None:
    assert db.history.repair().left == ()


def create_tenant(db: Database, tenant: int) -> None:
    db.admin.create_tenant(f"made-by-{os.getpid()}")


def rebuild(db: Database, tenant: int, directory: str) -> None:
    db.history.rebuild_manifest(directory)


COMMANDS: dict[str, Callable[..., None]] = {
    "follow": follow,
    "erase": erase,
    "erase_fields": erase_fields,
    "purge": purge,
    "move": move,
    "move_store": move_store,
    "create_tenant": create_tenant,
    "rebuild": rebuild,
    "repair": repair,
}
STEPS = (
    (history_file.parquet.ParquetWriter, "close"),
    (os, "fsync"),
    (Path, "rename"),
    (Path, "unlink"),
)


def work(address: str, tenant: int, at: int, command: str, *arguments: str) -> None:
    db = zapdb.open(address, apply="never")
    killer = Killer(at)
    for owner, name in STEPS:
        setattr(owner, name, killer.step(getattr(owner, name)))
    engine: Any = type(db._storage.engine)
    engine.commit = killer.step(engine.commit)
    for name in ("update_store", "insert_files", "save_era", "write_follower"):
        setattr(working_store, name, killer.step(getattr(working_store, name)))
    COMMANDS[command](db, tenant, *arguments)
    db.close()
    os._exit(0)


def main() -> None:
    address, tenant, apart = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    command, killed, at = sys.argv[4:], 0, 1
    while True:
        child = os.fork()
        if not child:
            work(address, tenant, at, *command)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            assert os.WEXITSTATUS(status) == 0
            print(killed)
            return
        killed, at = killed + 1, at + apart


if __name__ == "__main__":
    main()
