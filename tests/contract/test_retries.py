"""What is tried again by itself, and what is not: connections that are lost inside transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

import zapdb.aio
from tests.contract.tables import INDEX_SIZE, ITEMS
from tests.support import GUARD_SECONDS, Faults, Workspace, error_of, wait_until
from zapdb.database import (
    Database,
    Transaction,
)
from zapdb.errors import (
    CatalogChanged,
    CommitUnknown,
    DiskFull,
    LeaseHeld,
    StorageError,
    TransactionConflict,
    UsageError,
)
from zapdb.limits import CATALOG, EXCLUSIVE_AFTER_CONFLICTS, LEASE, WRITE
from zapdb.storage import Connection, Storage, TransactionMode, retries
from zapdb.tables import (
    commit_tokens,
)


@pytest.fixture
def db(workspace: Workspace) -> Database:
    workspace.write(1, ITEMS, INDEX_SIZE)
    return workspace.open()


def drop(workspace: Workspace, connection: Connection) -> None:
    Faults(workspace, connection.storage, "drop", lasting=False)._drop(connection)


def dropping(workspace: Workspace, connection_of: Callable[[], Connection]) -> Callable[[], int]:
    """A function that drops the connection of its transaction in its first two calls."""
    calls: list[int] = []

    def act() -> int:
        calls.append(1)
        if len(calls) <= 2:
            drop(workspace, connection_of())
        return len(calls)

    return act


def test_rule_15_a_connection_lost_before_commit_is_a_conflict_that_run_repeats(
    workspace: Workspace, db: Database
) -> None:
    items = db.table("items")
    act = dropping(workspace, db._storage.connection)

    def write(tx: Transaction) -> int:
        tx.table("items").insert(id=1, title="Milk", size=1)
        made = act()
        tx.table("items").insert(id=2, title="Bread", size=2)
        return made

    assert db.run(write) == 3
    assert [record.id for record in items.using("by_size")] == [1, 2]


def test_rule_15_run_repeats_where_it_is_noticed_as_commit_is_about_to_be_sent(
    workspace: Workspace, db: Database
) -> None:
    act = dropping(workspace, db._storage.connection)

    def write(tx: Transaction) -> int:
        tx.table("items").insert(id=1, title="Milk")
        return act()

    # Of SQLite's file, no other process can take a connection away: what COMMIT did is not known.
    if workspace.engine == "sqlite":
        assert isinstance(error_of(lambda: db.run(write)), CommitUnknown)
        assert not db.table("items").exists(1)
    else:
        assert db.run(write) == 3
        assert db.table("items").exists(1)


def test_rule_15_a_single_operation_is_repeated_on_a_new_connection(
    workspace: Workspace, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    items = db.table("items")
    faults = Faults(workspace, db._storage, "drop", lasting=False)
    faults.install(monkeypatch)
    for call in range(1, 4):
        faults.arm(call)
        items.insert(id=call, title="Milk", size=call)
        assert len(faults.struck) == 1
        faults.arm(0)
    assert [record.id for record in items.using("by_size")] == [1, 2, 3]


def test_rule_15_a_block_says_that_it_can_be_run_again(workspace: Workspace, db: Database) -> None:
    def write() -> None:
        with db.transaction() as tx:
            tx.table("items").insert(id=1, title="Milk")
            drop(workspace, db._storage.connection())
            tx.table("items").insert(id=2, title="Bread")

    error = error_of(write)
    assert isinstance(error, TransactionConflict)
    assert error.message == "the connection was lost inside a transaction"
    assert "db.run(function)" in error.hint
    assert db.table("items").count() == 0


def test_rule_15_what_another_try_would_meet_again_is_not_tried_again(
    workspace: Workspace, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that is full, and a connection that is there but whose statement failed."""
    full = DiskFull("the disk of the database is full")
    for meaning in (full, StorageError("the database reported an error")):
        calls: list[int] = []

        def write(tx: Transaction, meaning: Any = meaning, calls: list[int] = calls) -> None:
            calls.append(1)
            connection = db._storage.connection()
            if meaning is full:
                drop(workspace, connection)
            monkeypatch.setattr(db._storage.engine, "translate", lambda *_: meaning)
            connection.run("SELECT nonsense FROM nowhere")

        error = error_of(lambda: db.run(write))
        monkeypatch.undo()
        assert error is meaning
        assert calls == [1]


def test_rule_15_tasks_repeat_the_same_with_awaited_pauses(workspace: Workspace) -> None:
    workspace.write(1, ITEMS, INDEX_SIZE)

    async def main() -> tuple[int, list[int]]:
        opening = zapdb.aio.open(workspace.address, migrations=workspace.directory, apply="auto")
        async with opening as db:
            handles = list[Any]()
            act = dropping(workspace, lambda: handles[-1]._begun.connection)

            async def write(tx: Any) -> int:
                handles.append(tx)
                await tx.table("items").insert(id=1, title="Milk", size=1)
                made = act()
                await tx.table("items").insert(id=2, title="Bread", size=2)
                return made

            made = await db.run(write)
            return made, [record.id async for record in db.table("items").scan()]

    made, found = asyncio.run(main())
    assert (made, found) == (3, [1, 2])


# What else ends


def test_opening_ends_where_the_catalog_changes_again_and_again(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace.write(1, ITEMS)
    workspace.open().close()
    calls: list[int] = []

    def always(storage: Storage, *_: Any) -> Any:
        calls.append(1)
        raise CatalogChanged("made by a test")

    monkeypatch.setattr("zapdb.database.opening.prepare_tenant", always)
    monkeypatch.setattr("zapdb.database.opening.CATALOG", CATALOG._replace(tries=4))
    error = error_of(workspace.open)
    assert isinstance(error, CatalogChanged)
    assert (len(calls), error.context) == (4, {"tries": 4})


def test_a_read_ends_where_the_schema_changes_again_and_again(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(db._session), "reload", lambda self, cache=None: None)
    db._storage.connection().run("UPDATE zapdb_catalog_versions SET version = version + 1")
    error = error_of(lambda: db.table("items").count())
    assert isinstance(error, CatalogChanged)
    assert (error.context["table"], error.context["tries"]) == ("items", 20)


def test_waiting_for_a_lease_ends_and_says_who_has_it(
    workspace: Workspace, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    from zapdb.catalog.cluster import leases
    from zapdb.catalog.cluster.leases import Owner

    lease = leases.acquire(db._storage, "test", Owner.here(), 30)
    with (
        pytest.raises(LeaseHeld) as caught,
        leases.hold_lease(db._storage, "test", Owner.here(), 30, LEASE.pause_seconds),
    ):
        pass
    assert caught.value.context["owner"] == lease.owner
    leases.release(db._storage, lease)
    with leases.hold_lease(db._storage, "test", Owner.here(), 30, 0):
        pass


def test_an_operation_that_is_beaten_keeps_other_writers_out(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes: list[bool] = []

    def act() -> None:
        modes.append(db._session._local.exclusive)
        raise TransactionConflict("made by a test")

    monkeypatch.setattr("zapdb.tables.session.WRITE", WRITE._replace(tries=10))
    with pytest.raises(TransactionConflict):
        db._session.run(act)
    assert modes == [False] * 6 + [True, False, True, False]
    assert not db._session._local.exclusive
    with db._storage.transaction(TransactionMode.READ):
        pass


class Rival:
    """Another process, which writes a record between a function's reading and writing it, as long
    as it can."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace, self._items = workspace, workspace.open().table("items")
        self._threads = ThreadPoolExecutor(1)
        self.kept_out: list[Future[Any]] = []
        """The writes that had to wait for the function's end."""

    def write(self) -> None:
        written = self._threads.submit(self._items.upsert, id=1, title="theirs", size=0)
        wait_until(lambda: written.done() or self._waits(), "it has written, or waits")
        if not written.done():
            self.kept_out.append(written)

    def _waits(self) -> bool:
        waiting = "SELECT 1 FROM pg_locks WHERE NOT granted AND relation = 'zapdb_gate'::regclass"
        return bool(self._workspace.execute(waiting))

    def finish(self) -> None:
        for written in self.kept_out:
            written.result(GUARD_SECONDS)


def run_sync(workspace: Workspace, tries: list[int], rival: Rival) -> None:
    def write(tx: Transaction) -> None:
        tries.append(1)
        size = tx.table("items").get(1).size
        rival.write()
        tx.table("items").update(1, title="mine", size=size + 1)

    workspace.open().run(write)


def run_async(workspace: Workspace, tries: list[int], rival: Rival) -> None:
    async def write(tx: zapdb.aio.AsyncTransaction) -> None:
        tries.append(1)
        size = (await tx.table("items").get(1)).size
        await asyncio.to_thread(rival.write)
        await tx.table("items").update(1, title="mine", size=size + 1)

    async def main() -> None:
        async with zapdb.aio.open(workspace.address) as opened:
            await opened.run(write)

    asyncio.run(main())


@pytest.mark.parametrize("engine", ["postgresql"])
@pytest.mark.parametrize("run", [run_sync, run_async])
@pytest.mark.parametrize("is_short", [True, False])
def test_a_short_function_that_is_beaten_goes_alone(
    workspace: Workspace,
    db: Database,
    run: Callable[[Workspace, list[int], Rival], None],
    is_short: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In every other try, another process writes what it has read; alone, it is the first."""
    db.table("items").insert(id=1, title="a", size=0)
    monkeypatch.setattr(retries, "EXCLUSIVE_SECONDS_MAX", 60.0 if is_short else 0.0)
    for module in ("zapdb.database.database", "zapdb.aio.proxies"):
        monkeypatch.setattr(f"{module}.WRITE", WRITE._replace(tries=10, seconds=GUARD_SECONDS))
    tries, rival = list[int](), Rival(workspace)
    error = error_of(lambda: run(workspace, tries, rival))
    rival.finish()
    if is_short:
        assert error is None
        assert len(tries) > EXCLUSIVE_AFTER_CONFLICTS
        assert len(rival.kept_out) == 1
        assert db.table("items").get(1).title == "theirs"  # it came behind
    else:
        assert isinstance(error, TransactionConflict)
        assert (error.context["tries"], rival.kept_out) == (10, [])


@pytest.mark.parametrize("engine", ["postgresql"])
def test_a_function_that_waits_for_who_waits_for_it_keeps_nobody_out_for_long(
    workspace: Workspace, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server ends its session, and it never goes alone again: it has taken too long."""
    db.table("items").insert(id=1, title="a", size=0)
    monkeypatch.setattr("zapdb.storage.postgresql.CATALOG_IDLE_SECONDS", 2.0)
    monkeypatch.setattr("zapdb.database.database.WRITE", WRITE._replace(tries=10))
    rival, tries = Rival(workspace), list[int]()

    def write(tx: Transaction) -> None:
        tries.append(1)
        tx.table("items").get(1)
        rival.write()
        rival.finish()
        tx.table("items").update(1, title="mine")

    error = error_of(lambda: db.run(write))
    assert isinstance(error, TransactionConflict)
    assert len(rival.kept_out) == 1
    assert len(tries) == 10
    assert db.table("items").get(1).title == "theirs"


def test_rule_15_what_a_commit_did_is_not_asked_of_a_closed_database(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stays closed, so the call that waits for the answer ends with it."""
    storage, looks, took_effect = db._storage, list[object](), commit_tokens._took_effect

    def look(*arguments: Any) -> bool | None:
        looks.append(arguments)
        return took_effect(*arguments)

    monkeypatch.setattr(commit_tokens, "_took_effect", look)
    with storage.transaction(TransactionMode.WRITE) as connection:
        token = commit_tokens.write_commit_token(connection, "here")
    unknown = CommitUnknown("the answer to COMMIT was lost")
    commit_tokens.resolve_commit(storage, token, unknown)
    assert len(looks) == 1
    db.close()
    with pytest.raises(CommitUnknown) as caught:
        commit_tokens.resolve_commit(storage, token, unknown)
    assert isinstance(caught.value.__cause__, UsageError)
    assert len(looks) == 2
