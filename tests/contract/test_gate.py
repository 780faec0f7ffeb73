"""The gate: writers share it, a change of state has it alone, briefly, or not at all."""

from __future__ import annotations

import threading
import time

import pytest

from tests.contract.tables import ADD_COLOR, ADD_WEIGHT, ITEMS
from tests.support import Workspace, dump, error_of
from zapdb.catalog import DEFAULT_TENANT
from zapdb.catalog.up import migrate_up
from zapdb.database import Database
from zapdb.errors import GateTimeout, TransactionConflict, UsageError
from zapdb.jobs import forget_newest
from zapdb.storage import Mode


@pytest.fixture
def db(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Database:
    monkeypatch.setattr("zapdb.storage.postgresql.GATE_TIMEOUT_SECONDS", 0.4)
    monkeypatch.setattr("zapdb.storage.postgresql.GATE_LOCK_TIMEOUT_MS", 50)
    monkeypatch.setattr("zapdb.storage.sqlite.BUSY_TIMEOUT_MS", 400)
    workspace.write(1, ITEMS)
    return workspace.open()


def test_rule_07_a_transaction_held_open_is_named_as_the_reason(
    workspace: Workspace, db: Database
) -> None:
    storage = workspace.connect()
    started = time.monotonic()
    with db.transaction():
        error = error_of(lambda: storage.transaction(Mode.CHANGE).__enter__())
    assert isinstance(error, GateTimeout)
    assert "did not let a change of state through" in error.message
    assert isinstance(error, TimeoutError)
    assert time.monotonic() - started < 3
    assert "a transaction" in error.hint or "transaction open" in error.hint
    if workspace.engine == "postgresql":
        assert "pg_stat_activity" in error.hint
    with storage.transaction(Mode.CHANGE):  # the connection is good, and the gate is free
        pass


def test_rule_07_what_could_not_take_the_gate_changed_nothing(
    workspace: Workspace, db: Database
) -> None:
    storage = workspace.connect()
    db.table("items").insert(id=1, title="Milk")
    workspace.write(2, ADD_COLOR)
    before = dump(workspace)
    kept = threading.Event(), threading.Event()

    def hold() -> None:
        with db.transaction():
            db.table("items").get(1)
            kept[0].set()
            kept[1].wait(20)

    holder = threading.Thread(target=hold)
    holder.start()
    kept[0].wait(20)
    # On SQLite the lease of the chain needs the writer's place, too, and does not get it.
    refused = GateTimeout if workspace.engine == "postgresql" else TransactionConflict
    with pytest.raises(refused):
        migrate_up(storage, DEFAULT_TENANT, workspace.directory)
    kept[1].set()
    holder.join()
    assert dump(workspace) == before
    migrate_up(storage, DEFAULT_TENANT, workspace.directory)
    assert db.table("items").get(1).color == "red"
    db.close()
    assert forget_newest(storage, DEFAULT_TENANT).number == 2


@pytest.mark.parametrize("engine", ["postgresql"])
def test_rule_07_writers_share_the_gate(workspace: Workspace, db: Database) -> None:
    other = workspace.open()
    with db.transaction(), other.transaction():
        db.table("items").insert(id=1, title="Milk")
        other.table("items").insert(id=2, title="Bread")
    assert db.table("items").count() == 2


@pytest.mark.parametrize("engine", ["postgresql"])
def test_rule_07_writers_go_on_while_a_change_waits(
    workspace: Workspace, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attempts are short: one long transaction does not stop all others for as long."""
    monkeypatch.setattr("zapdb.storage.postgresql.GATE_TIMEOUT_SECONDS", 20)
    storage, other, done = workspace.connect(), workspace.open(), list[float]()
    workspace.write(2, ADD_COLOR)

    def change() -> None:
        migrate_up(storage, DEFAULT_TENANT, workspace.directory)
        done.append(time.monotonic())

    changer = threading.Thread(target=change)
    with db.transaction():
        db.table("items").insert(id=-1, title="held")
        changer.start()
        slowest = 0.0
        for number in range(40):
            started = time.monotonic()
            other.table("items").insert(id=number, title="meanwhile")
            slowest = max(slowest, time.monotonic() - started)
            time.sleep(0.01)
        assert done == []
        assert slowest < 2
    changer.join(timeout=20)
    assert len(done) == 1
    assert other.table("items").get(3).color == "red"


def test_rule_07_a_change_gets_through_a_stream_of_writers(
    workspace: Workspace, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zapdb.storage.postgresql.GATE_TIMEOUT_SECONDS", 20)
    monkeypatch.setattr("zapdb.storage.postgresql.GATE_LOCK_TIMEOUT_MS", 250)
    monkeypatch.setattr("zapdb.storage.sqlite.BUSY_TIMEOUT_MS", 20_000)
    writer_db, storage = workspace.open(), workspace.connect()
    # SQLite has no queue: who asks again at once may keep the others out.
    pause = 0.0 if workspace.engine == "postgresql" else 0.005
    stop, problems, written = threading.Event(), list[BaseException](), list[int]()

    def write(seed: int) -> None:
        items, turn = writer_db.table("items"), 0
        try:
            while not stop.is_set():
                turn += 1
                items.insert(id=seed * 100_000 + turn, title="stream")
                time.sleep(pause)
        except BaseException as error:
            problems.append(error)
        written.append(turn)

    writers = [threading.Thread(target=write, args=(seed,)) for seed in range(3)]
    for writer in writers:
        writer.start()
    try:
        for number, operation in ((2, ADD_COLOR), (3, ADD_WEIGHT)):
            workspace.write(number, operation)
            started = time.monotonic()
            migrate_up(storage, DEFAULT_TENANT, workspace.directory)
            assert time.monotonic() - started < 15
    finally:
        stop.set()
        for writer in writers:
            writer.join()
    assert problems == []
    assert db.table("items").count() == sum(written)
    assert {record.weight for record in db.table("items").scan()} == {7}


def test_rule_07_a_change_of_state_can_not_run_inside_a_transaction(
    workspace: Workspace, db: Database
) -> None:
    workspace.write(2, ADD_COLOR)
    with db.transaction(), pytest.raises(UsageError, match="in a transaction already"):
        migrate_up(db.storage, DEFAULT_TENANT, workspace.directory)
    assert db.position == 1
