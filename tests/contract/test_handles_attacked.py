"""Handles of transactions under attack: what would lose, keep or mix records, or leak a place."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

from tests.contract.tables import INDEX_SIZE, ITEMS
from tests.contract.test_handles import PICTURES, ids, insert
from tests.support import Workspace, error_of
from zapdb.database import Database
from zapdb.errors import UsageError
from zapdb.storage import Mode
from zapdb.storage.transaction_owners import _BEGUN


@pytest.fixture
def db(workspace: Workspace) -> Database:
    workspace.write(1, ITEMS, INDEX_SIZE, PICTURES)
    return workspace.open()


class HeldFile:
    """A file whose reader waits in the middle of a write, until it may go on."""

    def __init__(self) -> None:
        self.is_read, self.go_on = threading.Event(), threading.Event()

    def read(self, size: int) -> bytes:
        self.is_read.set()
        self.go_on.wait(20)
        return b""


def test_a_savepoint_that_could_not_be_undone_is_not_committed(db: Database) -> None:
    """It raises while another thread uses the handle: what it did must not stay."""
    file = HeldFile()
    with ThreadPoolExecutor(1) as other, suppress(UsageError), db.transaction() as tx:
        insert(tx, 1)
        with suppress(Exception), tx.savepoint():
            insert(tx, 2)
            writing = other.submit(
                error_of, lambda: tx.table("pictures").insert(id=1, picture=file)
            )
            assert file.is_read.wait(20)
            raise ZeroDivisionError
        file.go_on.set()
        assert writing.result() is None
    assert ids(db) in ([], [1])
    insert(db, 3)


def test_a_savepoint_in_a_thread_leaves_nothing_behind_in_it(db: Database) -> None:
    def work(tx: Any) -> None:
        with tx.savepoint():
            insert(tx, 1)

    with ThreadPoolExecutor(1) as one, db.transaction() as tx:
        one.submit(work, tx).result()
        assert one.submit(db.table("items").find, 1).result() is None
        assert one.submit(db.table("items").count).result() == 0


def test_savepoints_are_not_remembered(db: Database) -> None:
    """Each call would look through them all."""
    with db.transaction() as tx:
        for _ in range(5):
            with tx.savepoint(), db.transaction():
                pass
        assert len(_BEGUN.get()) == 1


@pytest.mark.parametrize("engine", ["postgresql"])
def test_a_loop_that_has_transactions_of_files_and_of_a_server(
    db: Database, tmp_path: Any, workspace: Workspace
) -> None:
    """What waits for the server's is refused, whatever else is open."""
    with Workspace("sqlite", f"sqlite:///{tmp_path / 'beside.db'}", workspace.directory) as beside:
        file = beside.open()
        insert(db, 1)

        async def main() -> None:
            inside, done = asyncio.Event(), asyncio.Event()

            async def hold() -> None:
                with file.transaction(), db.transaction():
                    db.table("items").update(1, size=5)
                    inside.set()
                    await done.wait()

            async def wait() -> None:
                await inside.wait()
                try:
                    error = error_of(lambda: db.table("items").update(1, size=7))
                    assert isinstance(error, UsageError)
                    error = error_of(lambda: db.storage.transaction(Mode.CHANGE).__enter__())
                    assert isinstance(error, UsageError)
                finally:
                    done.set()

            await asyncio.gather(hold(), wait())

        asyncio.run(main())


@pytest.mark.parametrize("engine", ["postgresql"])
def test_a_loop_is_not_held_up_by_a_handle_that_a_thread_was_using(db: Database) -> None:
    """When the loop begins to wait, the thread goes on; afterwards only the loop could."""
    insert(db, 1)
    file = HeldFile()

    async def main() -> None:
        with db.transaction() as tx:
            tx.table("items").update(1, size=5)
            working = asyncio.create_task(
                asyncio.to_thread(lambda: tx.table("pictures").insert(id=1, picture=file))
            )
            while not file.is_read.is_set():
                await asyncio.sleep(0.01)
            threading.Timer(0.3, file.go_on.set).start()
            act = lambda: db.table("items").update(1, size=7)  # noqa: E731 - run elsewhere
            error = contextvars.Context().run(error_of, act)
            assert isinstance(error, UsageError)
            assert error.message.startswith("this call waits for a transaction")
            await working

    asyncio.run(main())
    assert db.table("items").get(1).size == 5
