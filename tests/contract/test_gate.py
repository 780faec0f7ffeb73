"""The gate: writers share it, a change of state has it alone, briefly, or not at all."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable

import pytest

from tests.contract.peer import OFTEN, QUICK, open_peer
from tests.contract.tables import ADD_COLOR, ADD_WEIGHT, INDEX_SIZE, ITEMS
from tests.lookups import find
from tests.support import GUARD_SECONDS, Workspace, dump, error_of, finish, wait_until
from zapdb.activation.rollback import roll_back
from zapdb.activation.up import migrate_up
from zapdb.catalog import DEFAULT_TENANT
from zapdb.catalog.cluster import (
    leases,
    node_registration,
    nodes,
)
from zapdb.catalog.cluster.cluster_status import evict_nodes
from zapdb.database import Database
from zapdb.errors import GateTimeout, LeaseLost, TransactionConflict, UsageError, ZapdbError
from zapdb.limits import CATALOG, GATE
from zapdb.storage import Storage, TransactionMode, connect
from zapdb.storage.fair_lock import FairSemaphore
from zapdb.storage.pipelined import PipelineQueue


@pytest.fixture
def db(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Database:
    monkeypatch.setattr("zapdb.storage.postgresql.GATE", GATE.within(0.4))
    monkeypatch.setattr("zapdb.storage.postgresql.GATE_LOCK_TIMEOUT_MS", 50)
    monkeypatch.setattr("zapdb.storage.sqlite.BUSY_TIMEOUT_MS", 400)
    monkeypatch.setattr("zapdb.storage.pool.BUSY_TIMEOUT_MS", 400)
    monkeypatch.setattr("zapdb.catalog.cluster.leases.CATALOG", CATALOG.within(1.0))
    workspace.write(1, ITEMS)
    return workspace.open()


def test_rule_07_a_transaction_held_open_is_named_as_the_reason(
    workspace: Workspace, db: Database
) -> None:
    storage = workspace.connect()
    with db.transaction():
        db.table("items").insert(id=1, title="held")
        error = error_of(lambda: storage.transaction(TransactionMode.DDL).__enter__())
    assert isinstance(error, GateTimeout)
    assert "could not get the gate" in error.message
    assert isinstance(error, TimeoutError)
    assert error.context["waited_seconds"] == 0.4
    assert "a transaction" in error.hint or "open transaction" in error.hint
    if workspace.engine == "postgresql":
        assert "pg_stat_activity" in error.hint
    assert db._node.id in (error.context["held_by"] + error.context.get("nodes", ""))
    if workspace.engine == "postgresql":
        assert "its lease ends in" in error.context["held_by"]
    elif sys.platform == "linux":
        assert error.context["held_by"] == f"process {os.getpid()}, which is this one"
    assert db.table("items").count() == 1  # it was let alone
    with storage.transaction(TransactionMode.DDL):  # the connection is good, and the gate is free
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
            kept[1].wait(GUARD_SECONDS)

    holder = threading.Thread(target=hold)
    holder.start()
    assert kept[0].wait(GUARD_SECONDS)
    # On SQLite the lease of the chain needs the writer's place, too, and does not get it.
    refused = GateTimeout if workspace.engine == "postgresql" else TransactionConflict
    with pytest.raises(refused):
        migrate_up(storage, DEFAULT_TENANT, workspace.directory)
    kept[1].set()
    holder.join()
    assert dump(workspace) == before
    migrate_up(storage, DEFAULT_TENANT, workspace.directory)
    with workspace.open() as newer:
        assert newer.table("items").get(1).color == "red"
    db.close()
    assert roll_back(storage).migrations[0].number == 2


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
    monkeypatch.setattr("zapdb.storage.postgresql.GATE", GATE.within(2 * GUARD_SECONDS))
    storage, other, done = workspace.connect(), workspace.open(), list[int]()
    workspace.write(2, ADD_COLOR)

    def change() -> None:
        migrate_up(storage, DEFAULT_TENANT, workspace.directory)
        done.append(1)

    def write() -> None:
        for number in range(40):
            other.table("items").insert(id=number, title="meanwhile")
            time.sleep(0.01)

    changer, writer = threading.Thread(target=change), threading.Thread(target=write)
    with db.transaction():
        db.table("items").insert(id=-1, title="held")
        changer.start()
        writer.start()
        finish(writer)  # a long attempt would keep them out for longer than the guard
        assert done == []
    finish(changer)
    assert len(done) == 1
    assert workspace.open().table("items").get(3).color == "red"


def test_rule_07_a_change_gets_through_a_stream_of_writers(
    workspace: Workspace, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zapdb.storage.postgresql.GATE", GATE.within(GUARD_SECONDS))
    monkeypatch.setattr("zapdb.storage.postgresql.GATE_LOCK_TIMEOUT_MS", 250)
    monkeypatch.setattr("zapdb.storage.sqlite.BUSY_TIMEOUT_MS", 1_000 * GUARD_SECONDS)
    monkeypatch.setattr("zapdb.storage.pool.BUSY_TIMEOUT_MS", 1_000 * GUARD_SECONDS)
    writer_db, storage = workspace.open(), workspace.connect()
    # SQLite has no queue: who asks again at once may keep the others out.
    pause = 0.0 if workspace.engine == "postgresql" else 0.005
    stop, problems, written = threading.Event(), list[BaseException](), list[int]()
    turns = [0, 0, 0]

    def write(seed: int) -> None:
        items, turn = writer_db.table("items"), 0
        try:
            while not stop.is_set():
                turns[seed] = turn = turn + 1
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
            before = sum(turns)
            migrate_up(storage, DEFAULT_TENANT, workspace.directory)
            # As many as they write in 15 s where they write without a pause, and nobody else runs.
            assert sum(turns) - before < 15_000
    finally:
        stop.set()
        for writer in writers:
            writer.join()
    assert problems == []
    assert db.table("items").count() == sum(written)
    assert {record.weight for record in workspace.open().table("items").scan()} == {7}


def test_rule_07_a_change_of_state_can_not_run_inside_a_transaction(
    workspace: Workspace, db: Database
) -> None:
    workspace.write(2, ADD_COLOR)
    with db.transaction(), pytest.raises(UsageError, match="already in a transaction"):
        migrate_up(db._storage, DEFAULT_TENANT, workspace.directory)
    assert db.position == 1


# What the rule is for: a writer that began before a change of state


def without_the_gate(
    workspace: Workspace, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writers begin as if there were no rule 7, with a snapshot of what is there."""
    if workspace.engine == "postgresql":
        monkeypatch.setattr("zapdb.storage.postgresql.GATE_SHARED", "SELECT FROM zapdb_gate")
    else:
        monkeypatch.setattr(
            "zapdb.storage.sqlite.BEGIN",
            {
                mode: "BEGIN" if mode is TransactionMode.WRITE else "BEGIN IMMEDIATE"
                for mode in TransactionMode
            },
        )
        # It stands for another process, which does not share this one's queue of writers.
        monkeypatch.setattr(storage.pool, "turn", FairSemaphore())


def write_around(
    db: Database, change: Callable[[], object], seconds: float
) -> tuple[bool, ZapdbError | None]:
    """Begin a writing transaction, try the change beside it for so long, then write and commit.

    Returns whether the change was done before the commit, and what the writer got.
    """
    began, go_on, got = threading.Event(), threading.Event(), list[ZapdbError | None]()

    def write() -> None:
        with db.transaction():
            db.table("items").count()
            began.set()
            go_on.wait(GUARD_SECONDS)
            db.table("items").insert(id=1, title="late", size=5)

    writer = threading.Thread(target=lambda: got.append(error_of(write)))
    changer = threading.Thread(target=change)
    writer.start()
    assert began.wait(GUARD_SECONDS)
    changer.start()
    changer.join(seconds)
    was_first = not changer.is_alive()
    go_on.set()
    for thread in (writer, changer):
        finish(thread)
        assert not thread.is_alive()
    return was_first, got[0]


@pytest.mark.parametrize("gate", [True, False], ids=["rule", "taken-away"])
@pytest.mark.parametrize("change", ["activation", "index", "eviction"])
def test_rule_07_a_writer_that_began_before_a_change_of_state(
    workspace: Workspace, db: Database, change: str, gate: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zapdb.storage.postgresql.GATE", GATE.within(GUARD_SECONDS))
    monkeypatch.setattr("zapdb.storage.sqlite.BUSY_TIMEOUT_MS", 1_000 * GUARD_SECONDS)
    monkeypatch.setattr("zapdb.storage.pool.BUSY_TIMEOUT_MS", 1_000 * GUARD_SECONDS)
    storage = workspace.connect()
    operation = {"activation": ADD_COLOR, "index": INDEX_SIZE, "eviction": None}[change]
    if operation is not None:
        workspace.write(2, operation)

    def do_it() -> None:
        if operation is not None:
            migrate_up(storage, DEFAULT_TENANT, workspace.directory)
        else:
            evict_nodes(storage, [db._node.id])
        storage.release_connection()

    if not gate:
        without_the_gate(workspace, storage, monkeypatch)
    was_first, error = write_around(db, do_it, 0.3 if gate else GUARD_SECONDS)

    if gate:
        # The change waits for the writer, whose record belongs to what was in force before.
        assert (was_first, error) == (False, None)
        assert db.table("items").get(1).size == 5
        if change == "eviction":
            with pytest.raises(LeaseLost):
                db.table("items").insert(id=2, title="later")
            return
        newer = workspace.open()
        newer.admin.run_jobs()
        assert newer.admin.count_by_revision("items") == (
            {2: 1} if change == "activation" else {1: 1}
        )
        if change == "index":
            assert [r.id for r in find(newer.table("items"), "by_size", 5)] == [1]
        (report,) = newer.admin.verify()
        assert report.problems == ()
        return

    # Without the rule the change overtakes the writer.
    assert was_first
    if workspace.engine == "sqlite":  # and the writer can never write: its snapshot is too old
        assert isinstance(error, TransactionConflict)
        return
    assert error is None
    if change == "eviction":
        assert nodes.list_nodes(storage.connection()) == []
        assert db.table("items").count() == 1  # written by nobody
    elif change == "activation":
        # A record at a revision that was out of force when it was committed.
        assert workspace.open().admin.count_by_revision("items") == {1: 1}
    else:
        newer = workspace.open()
        ((entries,),) = workspace.execute("SELECT count(*) FROM zapdb_entries_1")
        assert entries == 0  # a record without an entry, with no error
        assert newer.table("items").count() == 1


# Suspended holders


@pytest.mark.parametrize("engine", ["postgresql"])
def test_rule_07_a_suspended_holder_is_ended_once_its_lease_is_over(
    workspace: Workspace, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zapdb.storage.postgresql.GATE", GATE.within(GUARD_SECONDS))
    storage = workspace.connect()
    workspace.write(2, ADD_COLOR)
    with open_peer(workspace, apply="auto", patches=OFTEN) as peer:
        assert peer.ask("hold 1") == "held"
        monkeypatch.setattr("zapdb.storage.postgresql.GATE", GATE.within(0.3))
        for _ in ("it lives", "it is suspended, and its lease holds"):
            with pytest.raises(GateTimeout) as caught:  # it is let alone
                storage.transaction(TransactionMode.DDL).__enter__()
            assert f"process {peer.pid}" in caught.value.context["held_by"]
            peer.suspend()
        monkeypatch.setattr("zapdb.storage.postgresql.GATE", GATE.within(GUARD_SECONDS))
        key = f"node/{node_of(db, peer.pid).id}"
        # Just over: one that was over for long would be evicted by the heartbeats of others.
        over = storage.now_us(storage.connection()) - 1_000_000
        expire = "UPDATE zapdb_leases SET expires_at = ? WHERE name = ?"
        workspace.execute(expire, (over, key))
        with storage.transaction(TransactionMode.DDL):
            pass
        peer.resume()
        told = peer.ask("commit")
        assert told.startswith("TransactionConflict | the connection was lost inside")
        assert "nothing was written" in told
        assert peer.ask("count") == "0"
        assert peer.ask("insert 2") == "written"  # nobody put it out: it may go on


@pytest.mark.parametrize("engine", ["postgresql"])
def test_rule_07_a_process_that_wakes_up_after_its_eviction_writes_nothing(
    workspace: Workspace, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zapdb.storage.postgresql.GATE", GATE.within(GUARD_SECONDS))
    with open_peer(workspace, patches=QUICK) as peer:
        assert peer.ask("hold 1") == "held"
        peer.suspend()
        evict_nodes(db._storage, [n.id for n, _ in nodes.list_nodes(db._storage.connection())])
        peer.resume()
        assert "nothing was written" in peer.ask("commit")
        assert peer.ask("insert 2").startswith("LeaseLost")
        assert peer.ask("count") == "0"


@pytest.mark.parametrize("engine", ["postgresql"])
def test_rule_07_a_suspended_process_that_has_the_gate_alone_is_ended_by_the_others(
    workspace: Workspace, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writers wait for it without an end; the heartbeats of nodes see to it."""
    monkeypatch.setattr("zapdb.storage.gate.GATE_IDLE_SECONDS", 0.5)
    monkeypatch.setattr(node_registration, "NODE_HEARTBEAT_SECONDS", 0.1)
    other = workspace.open()
    with open_peer(workspace, patches=QUICK) as peer:
        assert peer.ask("gate") == "taken"
        peer.suspend()
        writer = threading.Thread(
            target=lambda: other.table("items").insert(id=1, title="after a while")
        )
        writer.start()
        finish(writer)
        peer.resume()
        assert "nothing was written" in peer.ask("commit")
    assert db.table("items").count() == 1


@pytest.mark.parametrize("engine", ["postgresql"])
def test_rule_07_a_role_that_may_not_end_the_holder_says_so(
    workspace: Workspace, db: Database
) -> None:
    role = f"weak_{os.getpid()}"
    workspace.execute(f"CREATE ROLE {role} LOGIN")
    workspace.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}")
    try:
        weak = connect(workspace.address.replace("postgres@", f"{role}@"))
        with db.transaction():
            db.table("items").count()
            with pytest.raises(GateTimeout) as caught:
                weak.transaction(TransactionMode.DDL).__enter__()
        context = caught.value.context
        assert context["permission_missing"] == "to look at or end the sessions of postgres"
        assert "which this role may not look at" in context["held_by"]
        assert "GRANT pg_signal_backend" in caught.value.hint
        weak.close()
    finally:
        workspace.execute(f"DROP OWNED BY {role}")
        workspace.execute(f"DROP ROLE {role}")


@pytest.mark.parametrize("engine", ["sqlite"])
@pytest.mark.skipif(sys.platform != "linux", reason="/proc/locks says who writes")
def test_rule_07_the_suspended_writer_is_named(workspace: Workspace, db: Database) -> None:
    with open_peer(workspace, patches=QUICK) as peer:
        assert peer.ask("hold 1") == "held"
        peer.suspend()
        with pytest.raises(GateTimeout) as caught:
            workspace.connect().transaction(TransactionMode.DDL).__enter__()
        assert caught.value.context["held_by"] == f"process {peer.pid}, which is suspended"
        assert f"process {peer.pid})" in caught.value.context["nodes"]
        refused = error_of(
            lambda: workspace.connect().transaction(TransactionMode.WRITE).__enter__()
        )
        assert isinstance(refused, TransactionConflict)
        assert refused.context["held_by"] == f"process {peer.pid}, which is suspended"
        peer.resume()
        assert peer.ask("commit") == "committed"  # nobody could take its place
    assert db.table("items").count() == 1


def test_rule_09_a_suspended_process_that_was_put_out_wakes_up(
    workspace: Workspace, db: Database
) -> None:
    """Between two transactions: nothing had to be ended for it."""
    with open_peer(workspace, patches=OFTEN) as peer:
        assert peer.ask("insert 1") == "written"
        peer.suspend_idle(workspace)
        node = node_of(db, peer.pid)
        key = f"node/{node.id}"
        workspace.execute("UPDATE zapdb_leases SET expires_at = 1 WHERE name = ?", (key,))
        assert [n.id for n in node_registration.evict_dead_nodes(db._storage, 0)] == [node.id]
        peer.resume()
        told = peer.ask("insert 2")
        assert told.startswith("LeaseLost | this process was evicted")
        assert db.table("items").count() == 1


def node_of(db: Database, process: int) -> nodes.Node:
    found = nodes.list_nodes(db._storage.connection())
    (node,) = [node for node, _ in found if node.lease.owner.pid == process]
    return node


@pytest.mark.parametrize("engine", ["postgresql"])
def test_rule_09_a_process_suspended_in_its_heartbeat_can_be_put_out(
    workspace: Workspace, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row of its lease is locked; the server ends the transaction that nobody goes on with."""
    monkeypatch.setattr("zapdb.storage.postgresql.CATALOG_IDLE_SECONDS", 0.3)
    node, suspended, wakes = db._node, threading.Event(), threading.Event()
    errors: list[ZapdbError | None] = []

    def beat() -> None:
        with db._storage.transaction(TransactionMode.CATALOG) as connection:
            leases.renew(connection, node.lease, 60)
            suspended.set()
            assert wakes.wait(GUARD_SECONDS)

    process = threading.Thread(target=lambda: errors.append(error_of(beat)))
    process.start()
    assert suspended.wait(GUARD_SECONDS)
    with workspace.connect().transaction(TransactionMode.DDL) as connection:
        nodes.evict(connection, node)
    wakes.set()
    process.join()
    assert errors[0] is not None
    assert isinstance(error_of(lambda: db.table("items").insert(id=1, title="late")), LeaseLost)


@pytest.mark.parametrize("engine", ["postgresql"])
def test_rule_07_an_operation_that_keeps_writers_out_is_ended_where_nobody_goes_on_with_it(
    workspace: Workspace, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decision 17."""
    monkeypatch.setattr("zapdb.storage.postgresql.CATALOG_IDLE_SECONDS", 0.3)
    storage, suspended, wakes = workspace.connect(), threading.Event(), threading.Event()
    errors: list[ZapdbError | None] = []

    def keep_out() -> None:
        with storage.transaction(TransactionMode.WRITE, exclusive=True):
            suspended.set()
            assert wakes.wait(GUARD_SECONDS)

    process = threading.Thread(target=lambda: errors.append(error_of(keep_out)))
    process.start()
    assert suspended.wait(GUARD_SECONDS)
    db.table("items").insert(id=1, title="late")
    assert not errors
    wakes.set()
    process.join()
    assert isinstance(errors[0], TransactionConflict)


@pytest.mark.parametrize("engine", ["postgresql"])
def test_rule_07_one_that_goes_alone_knows_nothing_of_a_transaction_that_could_not_begin(
    workspace: Workspace, db: Database
) -> None:
    """On the same connection: what a savepoint of it undoes is undone in the database."""
    storage = workspace.connect()
    queue = storage.connection().queue
    assert isinstance(queue, PipelineQueue)
    queue._has_failed_to_begin = True  # as a conflict at the gate leaves it
    with storage.transaction(TransactionMode.WRITE, exclusive=True) as connection:
        assert connection.queue is queue
        mark = connection.queue.begin_savepoint()
        connection.send("CREATE TEMPORARY TABLE undone (n integer)")
        connection.flush()
        connection.queue.undo_savepoint(mark)
        connection.flush()
        there = "SELECT count(*) FROM pg_class WHERE relname = 'undone'"
        assert connection.fetch_one(there) == (0,)


@pytest.mark.parametrize("engine", ["postgresql"])
def test_rule_07_a_commit_of_a_session_that_was_ended_is_known_to_be_undone(
    workspace: Workspace, db: Database
) -> None:
    def write() -> None:
        with db.transaction():
            db.table("items").insert(id=1, title="Milk")
            backend = db._storage.connection().driver.info.backend_pid
            workspace.execute("SELECT pg_terminate_backend(?)", (backend,))
            gone = "SELECT 1 FROM pg_stat_activity WHERE pid = ?"
            wait_until(lambda: not workspace.execute(gone, (backend,)), "it was gone")

    assert isinstance(error_of(write), TransactionConflict)
    assert db.table("items").count() == 0
    db.run(lambda: db.table("items").insert(id=1, title="Milk"))
