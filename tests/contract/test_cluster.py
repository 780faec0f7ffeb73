"""The cluster: processes of several releases, the level, zapdb's own layout, dead nodes, clocks."""

from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.contract.peer import OFTEN, open_peer, start_peer
from tests.contract.tables import ADD_COLOR, ADD_WEIGHT, INDEX_TITLE, ITEMS
from tests.support import (
    GUARD_SECONDS,
    Workspace,
    advance_clock,
    dump,
    error_of,
    finish,
    has_waiting_session,
    wait_until,
)
from zapdb import release
from zapdb.activation import datasets
from zapdb.activation.up import migrate_up
from zapdb.catalog import DEFAULT_TENANT, rows
from zapdb.catalog.cluster import (
    cluster_status as cluster,
)
from zapdb.catalog.cluster import (
    leases,
    level,
    node_registration,
    nodes,
)
from zapdb.catalog.cluster.leases import Owner
from zapdb.catalog.cluster.nodes import has_migration
from zapdb.catalog.row_kinds import CatalogRow, LevelRow, NodeRow
from zapdb.catalog.stored_migrations import ChainPlace
from zapdb.catalog.stored_settings import write_setting
from zapdb.database import Database
from zapdb.errors import IncompatibleVersion, LeaseLost, UnsupportedServer
from zapdb.storage import (
    STORAGE_VERSION,
    Storage,
    TransactionMode,
    read_storage_version,
    storage_version,
)
from zapdb.storage.storage_version import upgrades_directory

pytestmark = pytest.mark.empty

NOW, NEXT = release.LEVEL, release.LEVEL + 1
"""The level of this release, and of one that comes after it."""


@pytest.fixture
def db(workspace: Workspace) -> Database:
    workspace.write(1, ITEMS)
    return workspace.open()


def set_auto(storage: Storage) -> None:
    with storage.transaction(TransactionMode.CATALOG) as connection:
        write_setting(connection, "raise_level", "auto")


def only_node(storage: Storage) -> nodes.Node:
    ((node, _),) = nodes.list_nodes(storage.connection())
    return node


# What a node says of itself


@pytest.mark.on_each_engine
def test_rule_10_a_node_registers_with_what_others_have_to_know(
    workspace: Workspace, db: Database
) -> None:
    storage = workspace.connect()
    registered = node_registration.register(
        storage,
        7,
        served=ChainPlace(5, 17),
        pending={6: "z1:a", 7: "z1:b"},
        datasets={"tz": ("2025b", "f0")},
    )
    found = {node.id: node for node, alive in nodes.list_nodes(db._storage.connection()) if alive}
    node = found[storage.node_id]
    assert node == registered
    row = node.row
    assert (row.release, row.level) == (release.__version__, release.LEVEL)
    assert (row.files_end, row.served_position, row.served_migration) == (7, 5, 17)
    assert row.pending_digests == {6: "z1:a", 7: "z1:b"}
    assert row.datasets == {"tz": ("2025b", "f0")}
    second = node_registration.register(storage, 7)
    assert second.id not in (node.id, db._node.id)
    assert (second.row.served_position, second.row.pending_digests, second.row.datasets) == (
        7,
        {},
        {},
    )


@pytest.mark.parametrize(
    ("number", "digest", "held"),
    [
        (5, "z1:x", True),  # stored when it registered: compared with its files then
        (6, "z1:a", True),
        (6, "z1:other", False),
        (7, "z1:b", True),
        (8, "z1:c", False),
    ],
)
@pytest.mark.on_each_engine
def test_rule_12_whether_the_files_of_a_node_hold_a_migration(
    workspace: Workspace, number: int, digest: str, held: bool
) -> None:
    workspace.write(1, ITEMS)
    workspace.open().close()
    node = node_registration.register(workspace.connect(), 7, pending={6: "z1:a", 7: "z1:b"})
    assert has_migration(node, number, digest) is held


def test_rule_26_the_datasets_in_use_are_those_of_the_indexes(workspace: Workspace) -> None:
    workspace.write(1, ITEMS)
    assert datasets.datasets_in_use(workspace.open()._catalog) == {}
    workspace.write(2, INDEX_TITLE)
    ((name, (version, fingerprint)),) = datasets.datasets_in_use(workspace.open()._catalog).items()
    assert "und" in name
    assert version.startswith("ICU ")
    assert len(fingerprint) == 64


# The level


@pytest.mark.on_each_engine
def test_rule_10_a_new_database_begins_at_the_level_of_its_layout(db: Database) -> None:
    assert db.admin.cluster_level() == level.first_level() == NOW


@pytest.mark.long_on("sqlite")
@pytest.mark.on_each_engine
def test_rule_10_the_level_rises_once_all_support_it_and_keeps_older_releases_out(
    workspace: Workspace, db: Database
) -> None:
    with open_peer(workspace, level=NEXT) as newer:
        assert newer.ask("level") == str(NOW)
        before = dump(workspace)
        told = newer.ask(f"require {NEXT}")
        assert told.startswith("IncompatibleVersion | some running processes do not support")
        assert f"nodes: {db._node}, release {release.__version__}, level {NOW}" in told
        assert newer.ask(f"require {NEXT + 1}").startswith(
            "IncompatibleVersion | this operation needs a newer release"
        )
        assert dump(workspace) == before
        db.close()
        assert newer.ask(f"require {NEXT}") == "raised"
        assert newer.ask("level") == str(NEXT)
        assert newer.ask(f"require {NOW}") == "raised"  # it only rises
        assert newer.ask("level") == str(NEXT)
        before = dump(workspace)
        with pytest.raises(IncompatibleVersion) as caught:
            workspace.open()
        assert caught.value.context["level_needed"] == NEXT
        with pytest.raises(IncompatibleVersion):
            node_registration.register(workspace.connect(), 1)
        assert dump(workspace) == before
        assert newer.ask("insert 1") == "written"


@pytest.mark.long_on("sqlite")
@pytest.mark.on_each_engine
def test_rule_10_a_suspended_process_of_an_older_release_is_put_out_and_told(
    workspace: Workspace, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_peer(workspace, patches=OFTEN) as older:
        monkeypatch.setattr(release, "LEVEL", NEXT)
        db.close()
        storage = workspace.connect()
        with pytest.raises(IncompatibleVersion, match="running processes"):
            level.require_level(storage, NEXT)
        older.suspend_idle(workspace)
        advance_clock(monkeypatch, storage, node_registration.NODE_LEASE_SECONDS + 1)
        wait_until(lambda: error_of(lambda: level.require_level(storage, NEXT)) is None, "it rose")
        assert nodes.list_nodes(storage.connection()) == []
        older.resume()
        told = older.ask("insert 1")
        assert told.startswith("IncompatibleVersion | the database uses features")
        assert f"level_needed: {NEXT}" in told


def test_rule_10_auto_raises_the_level_as_soon_as_all_can(
    workspace: Workspace, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_auto(db._storage)
    older = node_registration.register(workspace.connect(), 1)  # as of the level of now
    db.close()
    monkeypatch.setattr(release, "LEVEL", NEXT)
    newer = workspace.open()
    assert newer.admin.cluster_level() == NOW
    storage = workspace.connect()
    node_registration.deregister(storage, older)
    assert newer.admin.cluster_level() == NEXT
    silent = node_registration.register(storage, 1)
    newer.close()
    monkeypatch.setattr(release, "LEVEL", NEXT + 1)
    monkeypatch.setattr(node_registration, "NODE_HEARTBEAT_SECONDS", 0.05)
    latest = workspace.open()
    assert latest.admin.cluster_level() == NEXT
    workspace.execute(
        "UPDATE zapdb_leases SET expires_at = 1 WHERE name = ?",
        (f"node/{silent.id}",),
    )
    wait_until(lambda: latest.admin.cluster_level() == NEXT + 1, "a heartbeat raised it")
    wait_until(lambda: latest._heartbeat.level == NEXT + 1, "a heartbeat said so")
    assert [node.id for node, _ in nodes.list_nodes(storage.connection())] == [latest._node.id]


@pytest.mark.on_each_engine
def test_rule_10_on_demand_waits_for_the_operator(
    workspace: Workspace, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    db.close()
    monkeypatch.setattr(release, "LEVEL", NEXT)
    newer = workspace.open()
    assert newer.admin.cluster_level() == NOW
    storage = workspace.connect()
    dry = cluster.upgrade_cluster(storage, dry_run=True)
    assert (dry.before, dry.after, dry.layout, dry.waiting_for) == (NOW, NEXT, (), ())
    assert newer.admin.cluster_level() == NOW
    assert cluster.upgrade_cluster(storage) == dry
    assert newer.admin.cluster_level() == NEXT


@pytest.mark.on_each_engine
def test_rule_10_the_level_is_that_of_the_snapshot(
    workspace: Workspace, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    db.close()
    monkeypatch.setattr(release, "LEVEL", NEXT)
    newer, storage = workspace.open(), workspace.connect()
    with newer.snapshot():
        assert newer.admin.cluster_level() == NOW
        raising = threading.Thread(target=lambda: level.require_level(storage, NEXT))
        raising.start()
        finish(raising)
        assert newer.admin.cluster_level() == NOW
    assert newer.admin.cluster_level() == NEXT


@pytest.mark.on_each_engine
def test_rule_10_a_level_above_this_release_stops_its_writes(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Somebody wrote the row by hand, or this process was forgotten about."""
    monkeypatch.setattr(node_registration, "NODE_HEARTBEAT_SECONDS", 0.05)
    workspace.write(1, ITEMS)
    db = workspace.open()
    with workspace.control.transaction(TransactionMode.CATALOG) as connection:
        rows.put(connection, LevelRow(NEXT, 1, "somebody"))
    wait_until(lambda: not db._heartbeat._thread.is_alive(), "its heartbeat ended")
    assert "this process is too old now" in caplog.text
    with pytest.raises(IncompatibleVersion):
        db.table("items").insert(id=1, title="Milk")
    assert nodes.list_nodes(workspace.control.connection()) == []
    assert db.table("items").count() == 0


@pytest.mark.parametrize("engine", ["postgresql"])
@pytest.mark.parametrize("locked", [True, False], ids=["rule", "taken-away"])
@pytest.mark.on_each_engine
def test_rule_10_a_process_that_registers_while_the_level_rises(
    workspace: Workspace, db: Database, locked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the lock on the level's row neither sees the other."""
    db.close()
    if not locked:
        check = node_registration.check_level
        monkeypatch.setattr(
            node_registration, "check_level", lambda connection, lock=False: check(connection)
        )
    registering, raising = workspace.connect(), workspace.connect()
    reached, go_on, got = threading.Event(), threading.Event(), list[BaseException | None]()
    put = rows.put

    def slow_put(connection: Any, row: CatalogRow, **named: Any) -> int:
        if isinstance(row, NodeRow):
            reached.set()
            go_on.wait(GUARD_SECONDS)
        return put(connection, row, **named)

    monkeypatch.setattr(rows, "put", slow_put)
    registers = threading.Thread(target=lambda: node_registration.register(registering, 1))
    raises = threading.Thread(
        target=lambda: got.append(error_of(lambda: level.require_level(raising, NEXT)))
    )
    registers.start()
    assert reached.wait(GUARD_SECONDS)
    monkeypatch.setattr(release, "LEVEL", NEXT)
    raises.start()
    # With the lock it waits, for the level's row or for the counter of seqs behind it.
    wait_until(lambda: got or has_waiting_session(workspace), "the other one is done, or waits")
    go_on.set()
    finish(registers)
    finish(raises)
    reached_level = level.read_level(workspace.control.connection())
    assert only_node(workspace.control).row.level == NOW
    if locked:
        assert isinstance(got[0], IncompatibleVersion)
        assert reached_level == NOW
    else:
        assert got[0] is None
        assert reached_level == NEXT  # above what a live process supports


@pytest.mark.on_each_engine
def test_rule_10_operations_of_a_later_level_are_not_stored_before(
    workspace: Workspace, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert level.level_of(db._catalog.chain.migrations) == 1
    monkeypatch.setattr(release, "OPERATION_LEVELS", {"create_table": NEXT, "add_field": NEXT + 1})
    assert level.level_of(db._catalog.chain.migrations) == NEXT
    monkeypatch.setattr(release, "LEVEL", NEXT + 1)
    workspace.write(2, ADD_COLOR)
    before, storage = dump(workspace), workspace.connect()
    with pytest.raises(IncompatibleVersion, match="running processes do not support"):
        migrate_up(storage, DEFAULT_TENANT, workspace.directory)
    assert dump(workspace) == before
    db.close()
    assert [one.number for one in migrate_up(storage, DEFAULT_TENANT, workspace.directory)] == [2]
    assert level.read_level(storage.connection()) == NEXT + 1


# zapdb's own layout

NEXT_LAYOUT = """\
import sqlalchemy as sa
from alembic import op

revision = "9999"
down_revision = "{before}"
branch_labels = None
depends_on = None

LEVEL = {level}


def upgrade():
    op.create_table("zapdb_next", sa.Column("unused", sa.Integer))
"""


@pytest.fixture
def layouts(tmp_path: Path) -> dict[str, Any]:
    """The options of a release that has one revision of the layout more."""
    directory = tmp_path / "layouts"
    shutil.copytree(upgrades_directory(), directory, ignore=shutil.ignore_patterns("__pycache__"))
    (directory / "versions" / "9999_next.py").write_text(
        NEXT_LAYOUT.format(before=STORAGE_VERSION, level=NEXT)
    )
    return {"level": NEXT, "layouts": str(directory), "layout": "9999"}


@pytest.mark.long_on("sqlite")
@pytest.mark.on_each_engine
def test_rule_10_a_layout_waits_until_all_support_its_level(
    workspace: Workspace, db: Database, layouts: dict[str, Any]
) -> None:
    with open_peer(workspace, **layouts) as newer:
        assert read_storage_version(db._storage) == STORAGE_VERSION  # it works on what is there
        assert newer.ask("insert 1") == "written"
        before = dump(workspace)
        told = newer.ask("layout")
        assert told.startswith("IncompatibleVersion | some running processes do not support")
        assert str(db._node) in told
        assert dump(workspace) == before
        db.table("items").insert(id=2, title="Milk")
        workspace.write(2, ADD_COLOR)
        assert newer.ask("up") == "2"  # migrations are applied on the old layout
        assert read_storage_version(db._storage) == STORAGE_VERSION
        db.close()
        workspace.write(3, ADD_WEIGHT)
        assert newer.ask("up") == "3"
        assert newer.ask("layout") == "False 9999"
        assert newer.ask("level") == str(NEXT)
        assert newer.ask("insert 3") == "written"
        assert newer.ask("count") == "3"
    with start_peer(workspace) as older:
        assert older.answer().startswith(
            "NewerStorageVersion | the database has a newer storage version"
        )


@pytest.mark.on_each_engine
def test_rule_10_an_upgrade_brings_the_layout_up_under_an_open_database(
    workspace: Workspace, db: Database, layouts: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    db.table("items").insert(id=1, title="Milk")
    db.close()
    monkeypatch.setattr(storage_version, "STORAGE_VERSION", layouts["layout"])
    monkeypatch.setattr(storage_version, "upgrades_directory", lambda: Path(layouts["layouts"]))
    monkeypatch.setattr(release, "LEVEL", NEXT)
    with workspace.open(apply="never") as newer:  # on what is there
        assert (newer.admin.cluster_level(), read_storage_version(newer._storage)) == (
            NOW,
            STORAGE_VERSION,
        )
        newer.table("items").insert(id=2, title="Bread")
        before = dump(workspace)
        done = cluster.upgrade_cluster(workspace.connect())
        assert (done.before, done.after) == (NOW, NEXT)
        assert [upgrade.version for upgrade in done.layout] == ["9999"]
        after = dump(workspace)
        assert after.keys() - before.keys() == {"zapdb_next"}
        passing = {"zapdb_storage_version", "zapdb_catalog", "zapdb_counters", "zapdb_leases"}
        for table in before.keys() - passing:
            if table != "zapdb_catalog_versions":  # every process loads again what it knows
                assert after[table] == before[table]
        newer.table("items").update(2, title="Butter")
        assert newer.table("items").count() == 2


# Dead nodes, and clocks


@pytest.mark.on_each_engine
def test_rule_09_rows_of_nodes_that_died_long_ago_are_removed_by_others(
    workspace: Workspace, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    db.close()
    monkeypatch.setattr(node_registration, "NODE_HEARTBEAT_SECONDS", 0.05)
    storage = workspace.connect()
    dead = node_registration.register(storage, 1)
    advance_clock(monkeypatch, storage, node_registration.NODE_LEASE_SECONDS + 1)
    assert node_registration.evict_dead_nodes(storage, node_registration.NODE_KEPT_SECONDS) == []
    first, watching = workspace.open(), workspace.open()
    ids = lambda: {node.id for node, _ in nodes.list_nodes(storage.connection())}
    assert dead.id in ids()
    advance_clock(monkeypatch, storage, node_registration.NODE_KEPT_SECONDS)
    wait_until(lambda: dead.id not in ids(), "it was removed")
    assert ids() == {first._node.id, watching._node.id}


@pytest.mark.long_on("sqlite")
@pytest.mark.on_each_engine
def test_rule_09_processes_whose_clocks_are_wrong_change_nothing(
    workspace: Workspace, db: Database
) -> None:
    """Leases are by the database's clock alone."""
    with (
        start_peer(workspace, clock_seconds=-3600, patches=OFTEN) as slow,
        start_peer(workspace, clock_seconds=3600, patches=OFTEN) as fast,
    ):
        for key, peer in enumerate((slow, fast)):
            assert peer.answer() == "open"
            assert peer.ask(f"insert {key}") == "written"
        found = {n.lease.owner.pid: n for n, alive in _list(db) if alive}
        now = db._storage.now_us(db._storage.connection())
        for peer in (slow, fast):
            left_us = found[peer.pid].lease.expires_at - now
            assert 0 < left_us <= node_registration.NODE_LEASE_SECONDS * 1_000_000
            assert abs(now - found[peer.pid].lease.since) < 1_800_000_000  # half of what is wrong

        def are_renewed() -> bool:
            at = {n.lease.owner.pid: n.lease.expires_at for n, _ in _list(db)}
            return all(
                at[peer.pid] > found[peer.pid].lease.expires_at + 500_000 for peer in (slow, fast)
            )

        wait_until(are_renewed, "they renewed as the others do")
        assert len(_list(db)) == 3
        assert {alive for _, alive in _list(db)} == {True}
        assert node_registration.evict_dead_nodes(db._storage, 0) == []
        assert fast.ask("evict") == slow.ask("evict") == "0"  # and find nobody dead themselves
    db.table("items").insert(id=3, title="Milk")


def _list(db: Database) -> list[tuple[nodes.Node, bool]]:
    return nodes.list_nodes(db._storage.connection())


@pytest.mark.parametrize("engine", ["sqlite"])
@pytest.mark.parametrize("made_up", [True, False], ids=["rule", "taken-away"])
@pytest.mark.on_each_engine
def test_rule_09_a_long_transaction_costs_nobody_a_lease(
    workspace: Workspace, made_up: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On SQLite it keeps all heartbeats out, its own process's too: time stands still."""
    if not made_up:
        monkeypatch.setattr("zapdb.storage.sqlite.LONG_TRANSACTION_SECONDS", 3600)
    workspace.write(1, ITEMS)
    db, other, storage = workspace.open(), workspace.open(), workspace.connect()
    gone = leases.acquire(storage, "gone", Owner("gone", "elsewhere", 1), 0.0)
    # A process that waits for the place sweeps at once when it is free, before any heartbeat.
    for opened in (db, other):
        opened._heartbeat.stop()
    with db.transaction():
        db.table("items").insert(id=1, title="slow")
        passed_seconds = node_registration.NODE_LEASE_SECONDS + 1
        advance_clock(monkeypatch, storage, passed_seconds)
        by_own_clock = SimpleNamespace(monotonic=lambda: time.monotonic() + passed_seconds)
        monkeypatch.setattr("zapdb.storage.storage.time", by_own_clock)
    evicted = {node.id for node in node_registration.evict_dead_nodes(storage, 0)}
    if not made_up:
        assert evicted == {db._node.id, other._node.id}
        with pytest.raises(LeaseLost):
            db.table("items").insert(id=2, title="late")
        return
    assert evicted == set()
    db.table("items").insert(id=2, title="in time")
    # What was over when it began is over still.
    assert leases.acquire(storage, "gone", Owner.here(), 30).epoch == gone.epoch + 1


def test_what_a_short_transaction_leaves_alone(workspace: Workspace, db: Database) -> None:
    db._heartbeat.stop()
    before = only_node(db._storage).lease.expires_at
    with db.transaction():
        db.table("items").insert(id=1, title="quick")
    assert only_node(db._storage).lease.expires_at == before


# What is used of a server


@pytest.mark.parametrize("engine", ["postgresql"])
def test_rule_33_a_server_that_lacks_a_function_is_refused(
    workspace: Workspace, db: Database
) -> None:
    db.close()
    workspace.execute("ALTER FUNCTION pg_catalog.pg_current_xact_id() RENAME TO elsewhere")
    with pytest.raises(UnsupportedServer) as caught:
        workspace.open()
    assert caught.value.context["feature"] == "pg_current_xact_id"
    workspace.execute("ALTER FUNCTION pg_catalog.elsewhere() RENAME TO pg_current_xact_id")
    workspace.open()


@pytest.mark.parametrize("engine", ["postgresql"])
@pytest.mark.parametrize(
    "name", ["LOCK TABLE", "SKIP LOCKED", "pg_current_xact_id", "pg_terminate_backend", "pg_locks"]
)
def test_rule_33_each_capability_is_tried_before_the_layout_is_made(
    workspace: Workspace, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that does not know the statement: here, one that does not exist."""
    from zapdb.storage import postgresql

    wrong = {**postgresql.CAPABILITIES, name: "SELECT no_such_function()"}
    monkeypatch.setattr(postgresql, "CAPABILITIES", wrong)
    workspace.write(1, ITEMS)
    with pytest.raises(UnsupportedServer) as caught:
        workspace.open()
    assert caught.value.context["feature"] == name
    assert dump(workspace) == {}
    monkeypatch.undo()
    workspace.open()
