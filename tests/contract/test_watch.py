"""`zapdb convert watch`: all tenants, as a node, and no work where there is none."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests import processes
from tests.contract.tables import ADD_COLOR, ADD_WEIGHT, INDEX_SIZE, INDEX_TITLE, ITEMS
from tests.support import GUARD_SECONDS, ROOT, Workspace, finish, lose_connections, wait_until
from zapdb.activation.rollback import roll_back
from zapdb.activation.up import migrate_all_tenants
from zapdb.catalog.cache import load_cache
from zapdb.catalog.cluster.cluster_status import evict_nodes
from zapdb.catalog.cluster.nodes import list_nodes
from zapdb.catalog.stored_migrations import list_stored, read_chain, read_chain_state
from zapdb.catalog.tenants import list_tenants
from zapdb.cli import job_watch
from zapdb.cli.program import run_program
from zapdb.database import Database
from zapdb.jobs import plan_jobs
from zapdb.jobs.job_planning import find_needy_tenants
from zapdb.storage import Connection, Storage, TransactionMode
from zapdb.storage.engine import StorageEngine

TENANTS = ("default", "acme", "beta")


def make_tenants(workspace: Workspace) -> Database:
    """Three tenants with records, at migration 1."""
    workspace.write(1, ITEMS)
    db = workspace.open()
    for name in TENANTS[1:]:
        db.admin.create_tenant(name)
    for name in TENANTS:
        items = db.for_tenant(name).table("items")
        items.insert_many({"id": at, "title": f"title {at}", "size": at} for at in range(50))
    return db


def migrate(workspace: Workspace, number: int, *operations: str) -> None:
    """All tenants, by a process that runs no jobs."""
    workspace.write(number, *operations)
    with workspace.open() as db:
        migrate_all_tenants(db._storage)


@contextmanager
def watching(workspace: Workspace, *more: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "zapdb", "convert", "watch", "-d", workspace.address, *more]
    process = processes.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        assert process.stderr.readline() == "watching the catalog; Ctrl-C ends it\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def end(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    process.send_signal(signal.SIGTERM)
    status = process.wait(GUARD_SECONDS)
    # Not by `communicate`: more than a line may have come with a line that was read.
    assert process.stdout is not None
    assert process.stderr is not None
    return status, process.stdout.read(), process.stderr.read()


def read_runs(process: subprocess.Popen[str], count: int) -> list[dict[str, Any]]:
    assert process.stdout is not None
    return [json.loads(process.stdout.readline()) for _ in range(count)]


def list_live_nodes(storage: Storage) -> list[str]:
    with storage.transaction(TransactionMode.READ) as connection:
        return [node.id for node, is_alive in list_nodes(connection) if is_alive]


def find_needy(storage: Storage) -> set[int]:
    with storage.transaction(TransactionMode.READ) as connection:
        chain = read_chain(list(list_stored(connection, read_chain_state(connection))))
        return find_needy_tenants(connection, load_cache(connection), chain)


def find_planned(storage: Storage) -> set[int]:
    """The same by planning for each tenant."""
    tenants = [tenant.number for tenant in list_tenants(storage.connection())]
    return {tenant for tenant in tenants if plan_jobs(storage, tenant)}


def test_rule_14_a_watch_runs_the_jobs_of_every_tenant_that_becomes_due(
    workspace: Workspace,
) -> None:
    db = make_tenants(workspace)
    before = set(list_live_nodes(db._storage))
    with watching(workspace, "--json") as process:
        (node,) = set(list_live_nodes(db._storage)) - before
        migrate(workspace, 2, ADD_COLOR, INDEX_SIZE)
        runs = read_runs(process, 6)
        assert {(run["tenant"], run["kind"]) for run in runs} == {
            (name, kind) for name in TENANTS for kind in ("convert", "index")
        }
        assert {run["read"] for run in runs} == {50}
        for name in TENANTS:
            mine = [run["kind"] for run in runs if run["tenant"] == name]
            assert mine == ["index", "convert"]
        status, out, err = end(process)
        assert (status, out, err) == (0, "", "")
    assert node not in list_live_nodes(db._storage)
    assert find_planned(db._storage) == set()


def test_rule_14_a_watch_leaves_conversions_for_later_until_the_setting_or_the_time_says_so(
    workspace: Workspace,
) -> None:
    db = make_tenants(workspace)
    db.admin.set_setting("convert_after_seconds", "100000")
    with watching(workspace, "--json") as process:
        migrate(workspace, 2, ADD_COLOR, INDEX_SIZE)
        assert {run["kind"] for run in read_runs(process, 3)} == {"index"}
        time.sleep(1)
        assert find_planned(db._storage) == find_needy(db._storage) != set()
        seq = db.admin.set_setting("convert_after_seconds", "1")
        db.admin.wait_for_catalog(seq)
        assert {run["kind"] for run in read_runs(process, 3)} == {"convert"}
        assert end(process) == (0, "", "")
    assert find_planned(db._storage) == set()


def test_rule_14_a_watch_of_one_tenant_leaves_the_others_alone(workspace: Workspace) -> None:
    db = make_tenants(workspace)
    migrate(workspace, 2, ADD_COLOR)
    with watching(workspace, "--tenant", "acme") as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("acme: converted items to revision 2: 50 records in ")
        assert end(process)[:2] == (0, "")
    assert find_planned(db._storage) == {1, 3}


@pytest.mark.on_each_engine
def test_rule_17_a_watch_that_is_ended_in_mid_job_gives_its_range_back(
    workspace: Workspace,
) -> None:
    db = make_tenants(workspace)
    migrate(workspace, 2, ADD_COLOR)
    (job,) = plan_jobs(db._storage, 2)
    acme = db.for_tenant("acme")
    acme.jobs.throttle(job.id, records_per_second=1)
    with watching(workspace, "--tenant", "acme") as process:
        wait_until(lambda: acme.jobs.get(job.id).progress.read, "it has begun")
        status, out, err = end(process)
    assert (status, out) == (0, "")
    assert (
        err == ("waiting: converting items to revision 2: throttled to 1 records per second\n")
        or not err
    )
    status_now = acme.jobs.get(job.id)
    assert (status_now.job.state, status_now.open_ranges[0].is_held) == ("planned", False)
    acme.jobs.throttle(job.id)
    (report,) = acme.admin.run_jobs()
    assert report.progress.read == 50


@pytest.mark.parametrize("engine", ["postgresql"])
@pytest.mark.on_each_engine
def test_a_watch_goes_on_after_it_lost_its_connections(workspace: Workspace) -> None:
    make_tenants(workspace)
    with watching(workspace, "--json") as process:
        lose_connections(workspace, workspace.control)
        migrate(workspace, 2, ADD_COLOR)
        assert {run["tenant"] for run in read_runs(process, 3)} == set(TENANTS)
        assert end(process)[0] == 0


@pytest.mark.on_each_engine
def test_a_tenant_that_fails_is_told_and_stops_no_other(workspace: Workspace) -> None:
    make_tenants(workspace)
    migrate(workspace, 2, ADD_COLOR)
    broken = "UPDATE zapdb_schema_history SET table_schema = ? WHERE tenant = 2 AND revision = 2"
    workspace.execute(broken, [b"\x00"])
    with watching(workspace, "--json") as process:
        runs = read_runs(process, 2)
        assert [run["tenant"] for run in runs] == ["default", "beta"]
        _, _, err = end(process)
    assert err.startswith("acme: the bytes of a table schema can't be read")
    assert err.endswith("this is tried again\n")


@pytest.mark.parametrize("engine", ["sqlite"])
@pytest.mark.on_each_engine
def test_a_watch_tries_a_blocked_job_again(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing in the catalog changes when the records that are in its way do."""
    monkeypatch.setattr(job_watch, "BLOCKED_RETRY_SECONDS", 0.3)
    monkeypatch.setattr(job_watch, "BLOCKED_RETRY_PAUSES", 0)
    workspace.write(1, ITEMS)
    with workspace.open() as db:
        for number in range(3):
            db.table("items").insert(id=number, title="same")
    migrate(
        workspace,
        2,
        "create_index: {table: items, index: by_title, fields: [{field: title}], unique: true}",
    )
    db = workspace.follow()

    def repair() -> None:
        wait_until(
            lambda: [job.state for job in db.jobs.list()] == ["blocked"], "it is blocked", 0.01
        )
        db.table("items").delete_many([1, 2])

    thread = threading.Thread(target=repair)
    thread.start()
    address = workspace.address
    assert run_program(("convert", "watch", "--for", "1", "--json", "-d", address)) == 0
    finish(thread)
    assert [job.state for job in db.jobs.list()] == ["done"]
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(said) == 2  # that it is blocked is told once


@pytest.mark.on_each_engine
def test_an_evicted_watch_ends(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("zapdb.catalog.cluster.node_registration.NODE_HEARTBEAT_SECONDS", 0.05)
    workspace.write(1, ITEMS)
    workspace.open().close()
    storage = workspace.connect()

    def evict() -> None:
        wait_until(lambda: list_live_nodes(storage), "it is a node")
        evict_nodes(storage, list_live_nodes(storage))
        storage.release_connection()

    thread = threading.Thread(target=evict)
    thread.start()
    assert run_program(["convert", "watch", "-d", workspace.address]) == 1
    thread.join()
    assert "error: this process was evicted" in capsys.readouterr().err


@pytest.mark.parametrize("engine", ["sqlite"])
def test_an_idle_watch_asks_for_no_tenant(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it does in a second does not depend on how many tenants there are."""
    db = make_tenants(workspace)
    storage, kind, commits = db._storage, type(db._storage.engine), list[int]()
    for number in range(100):
        db.admin.create_tenant(f"tenant-{number}")
    migrate_all_tenants(storage)
    db.close()
    original = kind.commit

    def commit(self: StorageEngine, connection: Connection) -> None:
        if self.url == storage.engine.url:
            commits.append(1)
        original(self, connection)

    monkeypatch.setattr(kind, "commit", commit)
    assert run_program(["convert", "watch", "--for", "0.1", "-d", workspace.address]) == 0
    begun = len(commits)
    assert run_program(["convert", "watch", "--for", "3.1", "-d", workspace.address]) == 0
    assert begun > 0
    # Some for each second, however many it was; there are more tenants than that.
    assert len(commits) - 2 * begun < 100


def test_needy_tenants_are_those_for_which_jobs_are_planned(workspace: Workspace) -> None:
    db = make_tenants(workspace)
    storage = db._storage
    assert find_needy(storage) == find_planned(storage) == set()
    workspace.write(2, ADD_COLOR)
    with workspace.open():  # the other tenants stay where they are
        assert find_needy(storage) == find_planned(storage) == {1}
    migrate(workspace, 3, INDEX_TITLE)
    assert find_needy(storage) == find_planned(storage) == {1, 2, 3}
    for name in TENANTS:
        with workspace.open(tenant=name) as acme:
            acme.admin.run_jobs()
    assert find_needy(storage) == find_planned(storage) == set()
    db.close()
    roll_back(storage := workspace.connect())
    workspace.remove(3)
    roll_back(storage)
    workspace.remove(2)
    assert find_needy(storage) == find_planned(storage) == {1, 2, 3}  # they come back
    migrate(workspace, 2, ADD_WEIGHT)
    found = find_planned(storage)
    assert found == {1, 2, 3}
    assert find_needy(storage) == found
    migrate(workspace, 3, "drop_table: {table: items, records: discard}")
    assert find_needy(storage) >= find_planned(storage)
