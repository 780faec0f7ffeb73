"""Migrations that take force only once all running processes have their file (rule 12)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.contract.peer import OFTEN, QUICK, open_peer
from tests.contract.tables import ADD_COLOR, ADD_WEIGHT, ITEMS
from tests.support import GUARD_SECONDS, Workspace, advance_clock, dump, error_of, wait_until
from zapdb.activation.up import AppliedMigration, await_activation, migrate_up
from zapdb.catalog import DEFAULT_TENANT
from zapdb.catalog.cluster import (
    node_registration,
    nodes,
)
from zapdb.catalog.cluster.cluster_status import read_status
from zapdb.database import Database, node_context, opening
from zapdb.errors import ActivationPending, LeaseLost, ServedSchemaUnavailable
from zapdb.storage import TransactionMode

DROP = "drop_table: {table: others, records: discard}"


@pytest.fixture
def older(workspace: Workspace) -> Database:
    """A process whose files end at migration 1."""
    workspace.write(1, ITEMS, ITEMS.replace("items", "others"))
    return workspace.open()


def write_waiting(place: Workspace, number: int, *operations: str) -> None:
    path = place.write(number, *operations, name="waits")
    path.write_text(path.read_text() + "activation: wait_for_nodes\n")


def up(place: Workspace, **options: Any) -> list[AppliedMigration]:
    return migrate_up(place.connect(), DEFAULT_TENANT, place.directory, **options)


def owner_of(db: Database) -> str:
    return str(db._node.lease.owner)


def positions(*databases: Database) -> list[int]:
    for db in databases:
        db.admin.wait_for_catalog(db.admin.catalog_seq())
    return [db.position for db in databases]


def later(seconds: float, action: Callable[[], object]) -> threading.Timer:
    timer = threading.Timer(seconds, action)
    timer.start()
    return timer


@pytest.mark.parametrize("way", ["wait_for_nodes", "drop_table"])
def test_rule_12_a_migration_waits_and_names_who_lacks_it(
    workspace: Workspace, older: Database, way: str
) -> None:
    if way == "wait_for_nodes":
        write_waiting(workspace, 2, ADD_COLOR)
    else:
        workspace.write(2, DROP, name="waits")
    applied: list[AppliedMigration] = []
    refused = error_of(lambda: up(workspace, on_applied=applied.append))
    assert isinstance(refused, ActivationPending)
    assert refused.context == {
        "migration": "0002_waits",
        "position": 1,
        "nodes": owner_of(older),
    }
    assert "serve_as" in refused.hint
    assert [(a.number, a.active) for a in applied] == [(2, False)]
    assert positions(older) == [1]
    with workspace.connect().transaction(TransactionMode.READ) as connection:
        status = read_status(connection)
    ((inactive,),) = [status.inactive_migrations]
    assert (inactive.number, [node.id for node in inactive.waiting_for]) == (2, [older._node.id])
    # Nobody is disturbed, and nothing is stored twice.
    older.table("items").insert(id=1, title="Milk")
    older.table("others").insert(id=1, title="Milk")
    again = error_of(lambda: up(workspace, on_applied=applied.append))
    assert isinstance(again, ActivationPending)
    assert len(applied) == 1
    older.close()
    newer = workspace.open(apply="never")
    assert newer.position == 2
    assert [a.number for a in newer.applied] == [2]


def test_rule_12_what_follows_a_waiting_one_is_stored_behind_it(
    workspace: Workspace, older: Database
) -> None:
    workspace.write(2, ADD_COLOR)
    write_waiting(workspace, 3, ADD_WEIGHT)
    workspace.write(4, "rename_table: {table: items, to: goods}")
    applied: list[AppliedMigration] = []
    refused = error_of(lambda: up(workspace, on_applied=applied.append))
    assert isinstance(refused, ActivationPending)
    assert refused.context["migration"] == "0003_waits"
    assert [(a.number, a.active) for a in applied] == [(2, True), (3, False), (4, False)]
    assert positions(older) == [2]
    told = workspace.open(apply="never", serve_as=2)
    assert told.table("items").field_names[-1] == "color"
    older.close()
    newer = workspace.open()
    # In one jump: one entry in the history of the table.
    assert [a.number for a in newer.applied] == [4]
    assert positions(told, newer) == [4, 4]
    assert [entry.position for entry in newer.admin.schema_history("goods")] == [1, 2, 4]
    assert told.table("items").field_names[-1] == "color"


def test_rule_12_opening_waits_until_all_have_the_file(
    workspace: Workspace, older: Database
) -> None:
    write_waiting(workspace, 2, ADD_COLOR)
    started, closing = time.monotonic(), list[float]()

    def close() -> None:
        closing.append(time.monotonic())
        older.close()

    timer = later(0.5, close)
    newer = workspace.open(wait_seconds=GUARD_SECONDS)
    assert closing[0] > started + 0.4  # it did not come back before
    assert newer.position == 2
    timer.join()


def test_rule_12_up_waits_for_one_that_was_stored_before(
    workspace: Workspace, older: Database
) -> None:
    write_waiting(workspace, 2, ADD_COLOR)
    assert isinstance(error_of(lambda: up(workspace)), ActivationPending)
    timer = later(0.3, older.close)
    assert [(a.number, a.active) for a in up(workspace, wait_seconds=GUARD_SECONDS)] == [(2, True)]
    timer.join()


def test_rule_12_opening_gives_up_after_a_while(
    workspace: Workspace, older: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After what is asked for, or what the setting says."""
    write_waiting(workspace, 2, ADD_COLOR)
    older.admin.set_setting("activation_wait_seconds", "0")
    waited: list[float] = []

    def wait(*arguments: Any, **named: Any) -> Any:
        waited.append(arguments[3])
        return await_activation(*arguments, **named)

    monkeypatch.setattr(node_context, "await_activation", wait)
    for options, seconds in (({"wait_seconds": 0.6}, 0.6), ({}, 0.0)):
        started = time.monotonic()
        refused = error_of(lambda o=options: workspace.open(**o))
        assert isinstance(refused, ActivationPending)
        assert waited.pop() == seconds
        assert seconds / 3 <= time.monotonic() - started
    # Who was refused is no node that others would wait for.
    with workspace.connect().transaction(TransactionMode.READ) as connection:
        assert [node.id for node, _ in nodes.list_nodes(connection)] == [older._node.id]
    older.admin.set_setting("activation_wait_seconds", "20")
    timer = later(0.3, older.close)
    assert workspace.open().position == 2
    timer.join()


def test_rule_12_files_are_shipped_first(workspace: Workspace, older: Database) -> None:
    """Every process is started again with the new file, and works without it until all have it."""
    second = workspace.open()
    write_waiting(workspace, 2, "rename_table: {table: items, to: goods}")
    shipped = [workspace.open(serve_as=1)]
    shipped[0].table("items").insert(id=1, title="Milk")
    assert [positions(db) for db in (older, second, shipped[0])] == [[1]] * 3
    older.close()
    shipped.append(workspace.open(serve_as=1))
    refused = error_of(lambda: workspace.open(wait_seconds=0))
    assert isinstance(refused, ActivationPending)
    assert refused.context["nodes"] == owner_of(second)
    second.close()
    newer = workspace.open(wait_seconds=0)
    assert newer.position == 2
    assert positions(*shipped) == [2, 2]
    shipped[0].table("items").insert(id=2, title="Bread")
    assert [record.id for record in newer.table("goods").scan()] == [1, 2]
    assert [record.id for record in shipped[1].table("items").scan()] == [1, 2]


def test_rule_12_another_file_of_the_same_number_is_not_the_file(
    workspace: Workspace, older: Database
) -> None:
    older.close()
    write_waiting(workspace, 2, ADD_WEIGHT)
    stranger = workspace.open(apply="never", serve_as=1)
    workspace.remove(2)
    write_waiting(workspace, 2, ADD_COLOR)
    refused = error_of(lambda: workspace.open(wait_seconds=0))
    assert isinstance(refused, ActivationPending)
    assert refused.context["nodes"] == owner_of(stranger)


def test_rule_12_a_tool_without_files_is_not_waited_for(
    workspace: Workspace, older: Database
) -> None:
    older.close()
    tool = workspace.follow()
    write_waiting(workspace, 2, "rename_table: {table: items, to: goods}")
    assert workspace.open(wait_seconds=0).position == 2
    assert positions(tool) == [2]
    assert tool.table("goods").count() == 0


def test_rule_12_every_tenant_waits(workspace: Workspace, older: Database) -> None:
    older.admin.create_tenant("acme")
    write_waiting(workspace, 2, ADD_COLOR)
    told = workspace.open(serve_as=1)
    assert told.for_tenant("acme").position == 1
    refused = error_of(lambda: workspace.open(tenant="acme", wait_seconds=0))
    assert isinstance(refused, ActivationPending)
    older.close()
    newer = workspace.open(tenant="acme", wait_seconds=0)
    assert newer.position == 2
    assert {tenant.name: tenant.position for tenant in newer.admin.tenants()} == {
        "default": 1,
        "acme": 2,
    }
    assert newer.for_tenant("default").position == 2


# Processes that are no more, or seem so


def test_rule_12_a_process_whose_lease_is_over_is_put_out(
    workspace: Workspace, older: Database
) -> None:
    write_waiting(workspace, 2, ADD_COLOR)
    workspace.execute(
        "UPDATE zapdb_leases SET expires_at = 1 WHERE name = ?",
        (f"node/{older._node.id}",),
    )
    newer = workspace.open(wait_seconds=0)
    assert newer.position == 2
    with pytest.raises(LeaseLost):
        older.table("items").insert(id=1, title="Milk")
    assert newer.table("items").count() == 0


def test_rule_12_a_suspended_process_is_put_out(
    workspace: Workspace, older: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that wakes up afterwards can't write as if nothing had happened."""
    older.close()
    with open_peer(workspace, patches=OFTEN) as peer:
        assert peer.ask("insert 1") == "written"
        workspace.write(2, DROP, name="waits")
        refused = error_of(lambda: workspace.open(wait_seconds=0))
        assert isinstance(refused, ActivationPending)
        assert f"process {peer.pid}" in refused.context["nodes"]
        peer.suspend_idle(workspace)
        advance_clock(monkeypatch, workspace.control, node_registration.NODE_LEASE_SECONDS + 1)
        newer = workspace.open(wait_seconds=0)
        assert newer.position == 2
        peer.resume()
        assert peer.ask("insert 2").startswith("LeaseLost")
    assert [record.id for record in newer.table("items").scan()] == [1]


def test_rule_12_a_process_that_is_killed_is_waited_for_as_long_as_its_lease(
    workspace: Workspace, older: Database
) -> None:
    older.close()
    with open_peer(workspace, patches=QUICK) as peer:
        write_waiting(workspace, 2, ADD_COLOR)
        timer = later(0.3, peer.process.kill)
        assert workspace.open(wait_seconds=GUARD_SECONDS).position == 2
        timer.join()


@pytest.mark.long_on("sqlite")
def test_rule_12_real_processes_ship_files_and_go_on(workspace: Workspace, older: Database) -> None:
    older.close()
    with open_peer(workspace) as first:
        write_waiting(workspace, 2, "rename_field: {table: items, field: title, to: label}")
        with open_peer(workspace, apply="auto", serve_as=1) as second:
            assert first.ask("insert 1") == second.ask("insert 2") == "written"
            refused = error_of(lambda: workspace.open(wait_seconds=0))
            assert isinstance(refused, ActivationPending)
            assert f"process {first.pid}" in refused.context["nodes"]
            assert str(second.pid) not in refused.context["nodes"]
            assert first.process.stdin is not None
            first.process.stdin.close()
            first.process.wait(GUARD_SECONDS)
            newer = workspace.open(wait_seconds=GUARD_SECONDS)
            assert second.ask("insert 3") == "written"
            labels = [(record.id, record.label) for record in newer.table("items").scan()]
            assert labels == [(1, "mine"), (2, "mine"), (3, "mine")]


@pytest.mark.long_on("postgresql")
def test_rule_12_a_process_that_dies_between_storing_and_activating(
    workspace: Workspace, older: Database
) -> None:
    """What it stored takes force through another one, whatever it was doing when it died."""
    write_waiting(workspace, 2, ADD_COLOR)
    died = workspace.run("migrate_dying", "await_activation", "1")
    assert died.returncode == -9, died.stderr
    older.table("items").insert(id=1, title="Milk")
    with workspace.connect().transaction(TransactionMode.READ) as connection:
        status = read_status(connection)
    assert (status.chain.stored_end, status.positions) == (2, {1: 1})
    assert isinstance(error_of(lambda: workspace.open(wait_seconds=0)), ActivationPending)
    older.close()
    before = dump(workspace)
    died = workspace.run("migrate_dying", "switch", "1")
    assert died.returncode == -9, died.stderr
    assert dump(workspace) == before
    newer = workspace.open()
    assert newer.position == 2
    assert [entry.position for entry in newer.admin.schema_history("items")] == [1, 2]
    assert newer.table("items").get(1).color == "red"


@pytest.mark.long_on("postgresql")
def test_rule_12_many_processes_at_once_activate_once(
    workspace: Workspace, older: Database
) -> None:
    write_waiting(workspace, 2, ADD_COLOR)
    timer = later(1.5, older.close)
    result = workspace.run("open_together", "4")
    timer.join()
    found = sorted(tuple(map(int, line.split())) for line in result.stdout.splitlines())
    assert [position for _, position in found] == [2] * 4
    newer = workspace.open()
    assert [entry.position for entry in newer.admin.schema_history("items")] == [1, 2]
    assert newer.table("items").count() == 4


def test_rule_12_what_takes_force_while_a_process_opens_is_looked_at_again(
    workspace: Workspace, older: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is no node yet when the table goes that it would need."""
    workspace.write(2, DROP, name="waits")
    assert isinstance(error_of(lambda: up(workspace)), ActivationPending)
    register = opening.register

    def register_late(*arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(opening, "register", register)
        older.close()
        assert [a.number for a in up(workspace)] == [2]
        return register(*arguments, **options)

    monkeypatch.setattr(opening, "register", register_late)
    refused = error_of(lambda: workspace.open(apply="never", serve_as=1))
    assert isinstance(refused, ServedSchemaUnavailable)
    with workspace.connect().transaction(TransactionMode.READ) as connection:
        assert nodes.list_nodes(connection) == []


def test_rule_12_a_waiting_one_does_not_keep_its_own_process_waiting(
    workspace: Workspace,
) -> None:
    """All of an empty database's migrations are in force when it is opened."""
    workspace.write(1, ITEMS, ITEMS.replace("items", "others"))
    write_waiting(workspace, 2, ADD_COLOR)
    workspace.write(3, DROP)
    newer = workspace.open(wait_seconds=0)
    assert newer.position == 3
    wait_until(lambda: newer.table("items").count() == 0, "it is usable")
