"""Leases and nodes: who holds what, since when, and what becomes of it when they are gone."""

from __future__ import annotations

import itertools
import os
import threading
import time
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
import sqlalchemy

from tests.contract.tables import ADD_COLOR, ITEMS
from tests.support import (
    GUARD_SECONDS,
    WAYS,
    Faults,
    Way,
    Workspace,
    advance_clock,
    count_connections,
    error_of,
    finish,
    lose_connections,
    wait_until,
)
from zapdb import release
from zapdb.catalog.cluster import (
    leases,
    node_registration,
    nodes,
)
from zapdb.catalog.cluster.leases import Lease, Owner
from zapdb.errors import (
    CommitUnknown,
    LeaseHeld,
    LeaseLost,
    StorageError,
    TransactionConflict,
    UsageError,
    ZapdbError,
)
from zapdb.limits import CATALOG
from zapdb.storage import Storage, TransactionMode
from zapdb.storage.interruption import CallInterrupted, InterruptibleCall


@pytest.fixture
def storage(workspace: Workspace) -> Storage:
    workspace.write(1, ITEMS)
    workspace.open().close()
    return workspace.connect()


def renew(storage: Storage, lease: Lease, seconds: float = 30) -> Lease:
    with storage.transaction(TransactionMode.CATALOG) as connection:
        return leases.renew(connection, lease, seconds)


def check(storage: Storage, lease: Lease) -> None:
    with storage.transaction(TransactionMode.CATALOG) as connection:
        leases.check(connection, lease)


@pytest.mark.on_each_engine
def test_rule_09_a_lease_is_held_by_one(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    here, other = Owner.here(), Owner("other", "elsewhere", 17)
    lease = leases.acquire(storage, "a", other, 30)
    assert (lease.epoch, lease.owner) == (1, other)
    advance_clock(monkeypatch, storage, 10)
    with pytest.raises(LeaseHeld) as caught:
        leases.acquire(storage, "a", here, 30)
    text = str(caught.value)
    assert "owner: other (host elsewhere, process 17)" in text
    assert caught.value.context["held_seconds"] >= 10
    assert 0 < caught.value.context["expires_in_seconds"] <= 20
    assert leases.acquire(storage, "b", here, 30).epoch == 1
    check(storage, lease)


def test_rule_09_one_that_is_given_back_goes_to_the_next_with_a_higher_epoch(
    storage: Storage,
) -> None:
    for epoch in (1, 2, 3):
        owner = Owner(f"owner {epoch}", "elsewhere", 1)
        with leases.hold_lease(storage, "a", owner, 30, 0) as lease:
            assert lease.epoch == epoch
            check(storage, lease)


@pytest.mark.on_each_engine
def test_rule_09_its_owner_may_take_it_again(storage: Storage) -> None:
    owner = Owner("other", "elsewhere", 17)
    first = leases.acquire(storage, "a", owner, 30)
    second = leases.acquire(storage, "a", owner, 30)
    assert (first.epoch, second.epoch) == (1, 2)
    with pytest.raises(LeaseLost):
        check(storage, first)


def test_rule_09_one_that_is_over_is_taken_over(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, fast = Owner("slow", "elsewhere", 17), Owner("fast", "elsewhere", 18)
    lost = leases.acquire(storage, "a", slow, 30)
    advance_clock(monkeypatch, storage, 31)
    check(storage, lost)  # nobody took over yet
    lost = renew(storage, lost, 30)
    advance_clock(monkeypatch, storage, 31)
    taken = leases.acquire(storage, "a", fast, 30)
    assert taken.epoch == 2
    for use in (check, renew):
        with pytest.raises(LeaseLost, match="another process took over") as caught:
            use(storage, lost)
        assert caught.value.context == {"lease": "a", "epoch": 1, "epoch_now": 2}
    leases.release(storage, lost)  # and does nothing to who holds it now
    with pytest.raises(LeaseHeld):
        leases.acquire(storage, "a", slow, 30)


@pytest.mark.on_each_engine
def test_rule_09_renewal_puts_the_end_off(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = leases.acquire(storage, "a", Owner("other", "elsewhere", 17), 30)
    assert renew(storage, lease, 600).epoch == 1
    advance_clock(monkeypatch, storage, 31)
    with pytest.raises(LeaseHeld):
        leases.acquire(storage, "a", Owner.here(), 30)


@pytest.mark.on_each_engine
def test_rule_09_waiting_ends_when_the_lease_is_free_or_after_a_time(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = leases.acquire(storage, "a", Owner("other", "elsewhere", 17), 600)
    with pytest.raises(LeaseHeld), leases.hold_lease(storage, "a", Owner.here(), 30, 0.1):
        pass
    tries, acquire = list[int](), leases.acquire_free

    def note(*arguments: Any) -> Any:
        tries.append(1)
        if len(tries) == 3:  # it waits
            advance_clock(monkeypatch, storage, 601)
        return acquire(*arguments)

    monkeypatch.setattr(leases, "acquire_free", note)
    with leases.hold_lease(storage, "a", Owner.here(), 30, 20) as lease:
        assert lease.epoch == first.epoch + 1
    assert len(tries) == 3


@pytest.mark.parametrize("engine", ["postgresql"])
@pytest.mark.on_each_engine
def test_rule_09_a_session_that_the_server_ends_is_no_reason_to_give_up(
    storage: Storage, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends those that are idle in such a transaction, as a process is that could not run."""
    monkeypatch.setattr("zapdb.storage.postgresql.CATALOG_IDLE_SECONDS", 0.1)
    backend, insert = storage.connection().driver.info.backend_pid, leases._insert
    is_gone = "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = ?"

    def pause(*given: Any) -> Any:
        wait_until(lambda: workspace.execute(is_gone, (backend,)) == [(True,)], "it was ended")
        monkeypatch.undo()
        return insert(*given)

    monkeypatch.setattr(leases, "_insert", pause)
    assert leases.acquire(storage, "a", Owner("other", "elsewhere", 17), 30).epoch == 1
    assert leases._insert is insert  # it was ended


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.on_each_engine
def test_rule_09_a_fault_at_each_call_leaves_one_owner(
    workspace: Workspace, storage: Storage, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults, other = Faults(workspace, storage, way, lasting=False), Owner("other", "elsewhere", 17)
    faults.install(monkeypatch)
    monkeypatch.setattr(leases, "CATALOG", CATALOG)
    struck, survived = list[str](), set[str]()
    for call in itertools.count(1):
        faults.arm(call)
        error = error_of(partial(leases.acquire, storage, str(call), other, 30))
        if not faults.struck:
            break
        struck += faults.struck
        if error is None:
            survived |= set(faults.struck)
            with pytest.raises(LeaseHeld):
                leases.acquire(storage, str(call), Owner("third", "elsewhere", 18), 30)
        assert leases.acquire(storage, str(call), other, 30).epoch in (1, 2)
    assert "commit" in struck
    assert survived == (set(struck) - {"commit"} if way == "drop" else set())


@pytest.mark.on_each_engine
def test_rule_09_a_lease_is_given_back_when_the_work_fails(storage: Storage) -> None:
    with pytest.raises(ZeroDivisionError), leases.hold_lease(storage, "a", Owner.here(), 30, 0):
        raise ZeroDivisionError
    assert leases.acquire(storage, "a", Owner("other", "elsewhere", 17), 30).epoch == 2


@pytest.mark.on_each_engine
def test_rule_09_a_lease_that_can_not_be_given_back_hides_nothing(
    workspace: Workspace, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise CommitUnknown("made by a test")

    monkeypatch.setattr(leases, "release", fail)
    with leases.hold_lease(storage, "a", Owner.here(), 30, 0):
        pass
    with pytest.raises(ZeroDivisionError), leases.hold_lease(storage, "b", Owner.here(), 30, 0):
        raise ZeroDivisionError


@pytest.mark.on_each_engine
def test_a_renewal_ends_with_its_database(storage: Storage) -> None:
    """Who closes a database inside the work under a lease leaves no thread that tries for ever."""
    with leases.hold_lease(storage, "work", Owner.here(), 0.3, 10):
        (thread,) = (one for one in threading.enumerate() if one.name == "zapdb-lease")
        storage.close()
        thread.join(GUARD_SECONDS)
        assert not thread.is_alive()


@pytest.mark.on_each_engine
def test_rule_09_many_threads_take_one_lease_in_turn(
    workspace: Workspace, storage: Storage
) -> None:
    inside, most, epochs, problems = 0, 0, list[int](), list[BaseException]()

    def take(number: int) -> None:
        nonlocal inside, most
        try:
            owner = Owner(f"owner {number}", "elsewhere", number)
            with leases.hold_lease(storage, "a", owner, 30, 30) as lease:
                inside += 1
                most = max(most, inside)
                time.sleep(0.01)
                epochs.append(lease.epoch)
                inside -= 1
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=take, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert most == 1
    assert epochs == [1, 2, 3, 4, 5, 6]


# Nodes


def test_rule_09_heartbeats_renew(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_registration, "NODE_HEARTBEAT_SECONDS", 0.05)
    workspace.write(1, ITEMS)
    db = workspace.open()

    def look() -> tuple[nodes.Node, bool]:
        ((node, alive),) = nodes.list_nodes(db._storage.connection())
        return node, alive

    node, alive = look()
    assert alive
    assert (node.id, node.row.files_end, node.lease.owner.pid) == (db._node.id, 1, os.getpid())
    for _ in range(3):  # again and again, each for as long from then on
        before, _ = look()
        advance_clock(monkeypatch, db._storage, node_registration.NODE_LEASE_SECONDS - 1)
        wait_until(
            lambda at=before.lease.expires_at: look()[0].lease.expires_at >= at + 28_000_000,  # type: ignore[misc]  # mypy takes the default for a second parameter
            "it was renewed",
        )
    later, alive = look()
    assert alive
    assert later.lease.epoch >= node.lease.epoch + 3  # each time


@pytest.mark.parametrize("engine", ["postgresql"])  # another thread's is lost on a server alone
@pytest.mark.on_each_engine
def test_rule_09_heartbeats_go_on_after_a_lost_connection(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(node_registration, "NODE_HEARTBEAT_SECONDS", 0.05)
    workspace.write(1, ITEMS)
    db = workspace.open()
    ((node, _),) = nodes.list_nodes(workspace.control.connection())
    ((first, _),) = nodes.list_nodes(workspace.control.connection())
    wait_until(
        lambda: (
            nodes.list_nodes(workspace.control.connection())[0][0].lease.expires_at
            > first.lease.expires_at
        ),
        "its thread has a connection",
    )
    lose_connections(workspace, db._storage)
    ((before, _),) = nodes.list_nodes(workspace.control.connection())

    def is_renewed() -> bool:
        ((now, _),) = nodes.list_nodes(workspace.control.connection())
        return now.lease.expires_at > before.lease.expires_at + 1_000

    wait_until(is_renewed, "it was renewed")
    assert "a heartbeat failed" not in caplog.text
    assert node.id == before.id


@pytest.mark.on_each_engine
def test_a_connection_lost_between_two_operations_costs_no_error(workspace: Workspace) -> None:
    workspace.write(1, ITEMS)
    db = workspace.open()
    items = db.table("items")
    items.insert(id=1, title="Milk")
    for use in (lambda: items.get(1), lambda: items.update(1, size=2), items.count):
        lose_connections(workspace, db._storage)
        use()
        assert items.get(1).title == "Milk"
    assert items.get(1).size == 2


@pytest.mark.on_each_engine
def test_a_connection_lost_inside_a_transaction_ends_it(workspace: Workspace) -> None:
    """What follows in the block does not succeed on a connection of its own."""
    workspace.write(1, ITEMS)
    db = workspace.open()
    items = db.table("items")

    def write() -> None:
        with db.transaction():
            items.insert(id=1, title="before")
            lose_connections(workspace, db._storage)
            for number in (2, 3):
                with pytest.raises(StorageError):
                    items.insert(id=number, title="after")

    assert isinstance(error_of(write), TransactionConflict)  # nothing of it is there for certain
    assert items.count() == 0
    items.insert(id=4, title="later")


@pytest.mark.on_each_engine
def test_rule_09_an_evicted_node_stops_its_heartbeat(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(node_registration, "NODE_HEARTBEAT_SECONDS", 0.05)
    workspace.write(1, ITEMS)
    db = workspace.open()
    storage = workspace.connect()
    with storage.transaction(TransactionMode.DDL) as connection:
        ((node, _),) = nodes.list_nodes(connection)
        nodes.evict(connection, node)
    wait_until(lambda: not db._heartbeat._thread.is_alive(), "its thread ended")
    assert "this process was evicted" in caplog.text
    assert nodes.list_nodes(storage.connection()) == []
    with pytest.raises(LeaseLost):
        db.table("items").insert(id=1, title="late")
    assert db.table("items").count() == 0


@pytest.mark.on_each_engine
def test_rule_09_each_opening_is_a_node_of_its_own(workspace: Workspace) -> None:
    workspace.write(1, ITEMS)
    first, second = workspace.open(), workspace.open()
    assert first._node.id != second._node.id
    second.close()
    first.table("items").insert(id=1, title="Milk")
    assert [n.id for n, _ in nodes.list_nodes(first._storage.connection())] == [first._node.id]


def test_rule_10_the_level_is_read_in_one_call(workspace: Workspace) -> None:
    workspace.write(1, ITEMS)
    db = workspace.open()
    level = db.admin.cluster_level()
    assert level == release.LEVEL
    with db.snapshot():
        workspace.execute(
            "UPDATE zapdb_catalog SET value = replace(value, ?, ?) WHERE kind = 'level'",
            (f'"level":{level}', f'"level":{level + 1}'),
        )
        assert db.admin.cluster_level() == level
    assert db.admin.cluster_level() == level + 1


# Closing


def test_closing_twice_is_harmless(workspace: Workspace) -> None:
    workspace.write(1, ITEMS)
    db = workspace.open()
    db.close()
    db.close()
    with db:
        pass


def test_a_closed_database_says_so(workspace: Workspace) -> None:
    workspace.write(1, ITEMS)
    db = workspace.open()
    items = db.table("items")
    items.insert(id=1, title="Milk")
    scan = items.scan()
    db.close()
    for use in (
        lambda: items.get(1),
        lambda: items.insert(id=2, title="Bread"),
        lambda: list(scan),
        items.count,
        db.admin.verify,
        db.admin.run_jobs,
        lambda: db.admin.schema_history("items"),
        lambda: db.admin.setting("on_read"),
        lambda: db.transaction().__enter__(),
        lambda: db.run(lambda: None),
    ):
        with pytest.raises(UsageError, match="the database is closed") as caught:
            use()
        assert "open it again" in caught.value.hint


@pytest.mark.empty  # SQLite keeps a closed file open while another connection has locked it
@pytest.mark.on_each_engine
def test_closing_ends_the_threads_and_the_connections(workspace: Workspace) -> None:
    workspace.write(1, ITEMS)
    workspace.execute("SELECT 1")
    before = set(threading.enumerate())
    db = workspace.open()
    started = set(threading.enumerate()) - before
    assert {thread.name for thread in started} == {"zapdb-heartbeat", "zapdb-watch"}
    done, go_on = threading.Event(), threading.Event()

    def read() -> None:
        db.table("items").count()
        done.set()
        go_on.wait(GUARD_SECONDS)

    thread = threading.Thread(target=read)
    thread.start()
    assert done.wait(GUARD_SECONDS)
    db.close()
    go_on.set()
    thread.join()
    assert set(threading.enumerate()) <= before
    wait_until(lambda: count_connections(workspace) == 1, "only the one that looks is left")


@pytest.mark.parametrize("kind", ["own", "lent"])
@pytest.mark.on_each_engine
def test_closing_beside_a_thread_that_connects_leaves_no_connection(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """It connects to a database that is open, and is connected to one that is closed."""
    workspace.write(1, ITEMS)
    db = workspace.open()
    connects, go_on = threading.Event(), threading.Event()
    check_out = db._storage.pool._check_out

    def check_out_late() -> Any:
        if threading.current_thread() is thread:
            connects.set()
            assert go_on.wait(GUARD_SECONDS)
        return check_out()

    monkeypatch.setattr(db._storage.pool, "_check_out", check_out_late)
    errors = list[ZapdbError | None]()
    act = db.table("items").count if kind == "own" else db.snapshot().__enter__
    thread = threading.Thread(target=lambda: errors.append(error_of(act)))
    thread.start()
    assert connects.wait(GUARD_SECONDS)
    db.close()
    go_on.set()
    finish(thread)
    workspace.execute("SELECT 1")
    assert count_connections(workspace) == 1, "only the one that looks is left"
    assert isinstance(errors[0], UsageError)
    assert errors[0].message == "the database is closed"


@pytest.mark.parametrize("kind", ["released", "reaped"])
@pytest.mark.on_each_engine
def test_a_connection_that_comes_back_to_a_closed_pool_is_closed(
    workspace: Workspace, kind: str
) -> None:
    """Its thread gives it back, or the one that finds it ended, while another closes the pool."""
    storage = workspace.connect()
    drivers = list[Any]()

    def read() -> None:
        drivers.append(storage.connection().driver)

    def close(_driver: object, _record: object) -> None:
        storage.close()

    if kind == "released":
        read()
    else:
        thread = threading.Thread(target=read)
        thread.start()
        finish(thread)
    sqlalchemy.event.listen(storage.engine.core, "checkin", close)
    give_back = {"released": storage.release_connection, "reaped": storage.pool.reap_connections}
    give_back[kind]()
    assert storage.pool.is_closed
    assert storage.engine.is_lost(drivers[0]), "it is closed"


@pytest.mark.on_each_engine
def test_threads_that_ended_leave_no_connections_behind(workspace: Workspace) -> None:
    workspace.write(1, ITEMS)
    db = workspace.open()
    items = db.table("items")
    for number in range(30):
        thread = threading.Thread(target=lambda at=number: items.insert(id=at, title="mine"))
        thread.start()
        thread.join()
    assert items.count() == 30
    wait_until(lambda: count_connections(workspace) <= 5, "those of ended threads are closed")


@pytest.mark.on_each_engine
def test_closing_inside_a_transaction_undoes_it(workspace: Workspace) -> None:
    workspace.write(1, ITEMS)
    db = workspace.open()

    def write() -> None:
        with db.transaction():
            db.table("items").insert(id=1, title="Milk")
            db.close()

    assert isinstance(error_of(write), UsageError)  # refused, and so the block is undone
    assert workspace.open().table("items").count() == 0


@pytest.mark.on_each_engine
def test_a_process_that_ends_without_closing_does_no_harm(workspace: Workspace) -> None:
    workspace.write(1, ITEMS)
    workspace.open().close()
    process = workspace.start("hold_open")
    assert process.stdout is not None
    assert process.stdin is not None
    process.stdout.readline()
    process.kill()
    process.wait()
    process.stdout.close()
    process.stdin.close()
    workspace.write(2, ADD_COLOR)
    db = workspace.open()
    listed = nodes.list_nodes(db._storage.connection())
    assert {node.lease.owner.pid: alive for node, alive in listed} == {
        process.pid: False,
        os.getpid(): True,
    }


@pytest.mark.on_each_engine
def test_rule_09_leases_are_held_together_until_the_last_transaction(storage: Storage) -> None:
    here, other = Owner.here(), Owner("other", "elsewhere", 17)
    second = leases.acquire(storage, "b", other, 30)
    with pytest.raises(LeaseHeld), leases.hold_leases(storage, ["a", "b"], here, 30, 0.1):
        pass
    first = leases.acquire(storage, "a", other, 30)  # it was given back
    leases.release(storage, first, second)
    for fails in (True, False):
        with suppress(ZeroDivisionError), leases.hold_leases(storage, "ab", here, 30, 0) as held:
            with pytest.raises(LeaseHeld):
                leases.acquire(storage, "b", other, 30)
            with storage.transaction(TransactionMode.CATALOG) as connection:
                leases.check(connection, *held.leases, lock=True)
                held.release_in(connection)
                if fails:
                    raise ZeroDivisionError
            renew(storage, held.leases[0])  # by the thread that has not heard of it
            leases.release(storage, leases.acquire(storage, "a", other, 30))
        with storage.transaction(TransactionMode.CATALOG) as connection:
            leases.release_in(connection, [leases.take(connection, n, other, 30) for n in "ab"])


@pytest.mark.on_each_engine
def test_rule_09_an_interrupted_call_gives_its_leases_back_at_once(storage: Storage) -> None:
    """Its own thread can do nothing any more, and the process that has them lives on."""
    call = InterruptibleCall()

    def work() -> None:
        assert call.start()
        with call, leases.hold_leases(storage, "ab", Owner.here(), 30, 0):
            call.is_interrupted = True
            call.strike(storage.pool.interrupt)
            with storage.transaction(TransactionMode.READ) as connection:
                storage.now_us(connection)

    with pytest.raises(CallInterrupted):
        work()
    storage.pool.drop_interrupted()
    for name in "ab":
        assert leases.acquire(storage, name, Owner("other", "elsewhere", 17), 30).epoch == 2
