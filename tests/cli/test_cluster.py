"""`zapdb cluster`: who is at work, how far everybody is, who is put out, how the level rises."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator

import pytest

import zapdb
from tests.cli.program import Project
from zapdb import release
from zapdb.activation.up import CHAIN_LEASE
from zapdb.catalog.cluster import (
    leases,
    node_registration,
)
from zapdb.catalog.cluster.leases import Owner
from zapdb.database import Database
from zapdb.errors import LeaseLost
from zapdb.storage import STORAGE_VERSION, Storage, connect

NOW, NEXT = release.LEVEL, release.LEVEL + 1
"""The level of this release, and of one that comes after it."""


@pytest.fixture
def db(current: Project) -> Iterator[Database]:
    with zapdb.open("sqlite:///test.db", migrations="migrations") as db:
        yield db


@pytest.fixture
def storage(current: Project) -> Iterator[Storage]:
    storage = connect("sqlite:///test.db")
    yield storage
    storage.close()


def without_times(text: str) -> str:
    return re.sub(r"\b\d[\d.,]* m?s\b", "TIME", text)


def expire(project: Project, node_id: str) -> None:
    project.sql("UPDATE zapdb_leases SET expires_at = 1 WHERE name = ?", f"node/{node_id}")


def test_status(current: Project, db: Database) -> None:
    result = current.run("cluster", "status")
    assert (result.status, result.err) == (0, "")
    assert result.out == (
        f"level {NOW} (on_demand)\n"
        f"storage version {STORAGE_VERSION}\n"
        f"1 node: 1 of {release.__version__}\n"
        "4 migrations stored; at 4: 1 tenant\n"
    )
    assert current.run("cluster", "status", "--json").json == {
        "level": NOW,
        "level_possible": NOW,
        "level_policy": "on_demand",
        "storage_version": STORAGE_VERSION,
        "storage_pending": [],
        "releases": {release.__version__: 1},
        "nodes": {"alive": 1, "expired": 0},
        "stored": 4,
        "tenants": [{"position": 4, "tenants": 1}],
        "waiting": [],
        "jobs": [],
        "leases": [],
    }


def test_status_of_a_database_where_much_is_under_way(current: Project, storage: Storage) -> None:
    """As if a tenant were at 3 while one process has four files, one three, and one another 4."""
    (digest,) = current.sql("SELECT digest FROM zapdb_migrations WHERE number = 4")[0]
    earlier = "replace(value, '\"position\":4', '\"position\":3')"
    current.sql(f"UPDATE zapdb_catalog SET value = {earlier} WHERE kind = 'tenant'")
    has = node_registration.register(storage, 4, pending={4: digest})
    lacks = node_registration.register(storage, 3)
    other = node_registration.register(storage, 4, pending={4: "z1:other"})
    gone = node_registration.register(storage, 3)
    expire(current, gone.id)
    leases.acquire(storage, CHAIN_LEASE, Owner("someone", "elsewhere", 7), 3600)
    result = current.run("cluster", "status")
    assert result.status == 0
    assert f"3 nodes: 3 of {release.__version__}; 1 expired\n" in result.out
    assert "4 migrations stored; at 3: 1 tenant\n" in result.out
    (line,) = [line for line in result.out.splitlines() if "0004_split_name" in line]
    assert line.startswith("not active everywhere: 0004_split_name: not in the files of ")
    assert {str(lacks), str(other)} == set(line.split("files of ")[1].split("; "))
    assert without_times(result.out).endswith(
        f"lease: {CHAIN_LEASE} of someone (host elsewhere, process 7), TIME\n"
    )
    found = current.run("cluster", "status", "--json").json
    assert found["tenants"] == [{"position": 3, "tenants": 1}]
    (waiting,) = found["waiting"]
    assert {node["id"] for node in waiting["waiting_for"]} == {lacks.id, other.id}
    assert has.id not in str(waiting)
    (lease,) = found["leases"]
    assert (lease["name"], lease["owner"], lease["epoch"]) == (CHAIN_LEASE, "someone", 3)
    assert found["nodes"] == {"alive": 3, "expired": 1}


def test_nodes(current: Project, db: Database, storage: Storage) -> None:
    dead = node_registration.register(storage, 2, datasets={"tz": ("2025b", "f0")})
    expire(current, dead.id)
    result = current.run("cluster", "nodes")
    assert (result.status, result.err) == (0, "")
    header, _, first, second = result.out.splitlines()
    assert header.split() == [
        *("node", "host", "pid", "release", "level"),
        *("files", "end", "served", "age", "lease", "left"),
    ]
    assert first.split()[:7] == [
        db._node.id,
        socket.gethostname(),
        str(os.getpid()),
        release.__version__,
        str(NOW),
        "4",
        "4",
    ]
    assert second.split()[0] == dead.id
    assert second.endswith("over")
    alive, expired = current.run("cluster", "nodes", "--json").json["nodes"]
    assert 0 < alive.pop("lease_seconds") <= 30
    assert 0 <= alive.pop("age_seconds") < 60
    assert alive == {
        "id": db._node.id,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "release": release.__version__,
        "level": NOW,
        "files_end": 4,
        "served_position": 4,
        "rolled_back": False,
        "alive": True,
        "datasets": alive["datasets"],
    }
    assert (expired["alive"], expired["files_end"]) == (False, 2)
    assert expired["lease_seconds"] < 0
    assert expired["datasets"] == {"tz": {"version": "2025b", "fingerprint": "f0"}}


def test_nobody_is_there(current: Project) -> None:
    assert current.run("cluster", "nodes").out == "no process has the database open\n"
    assert current.run("cluster", "nodes", "--json").json == {"nodes": []}
    assert "0 nodes\n" in current.run("cluster", "status").out
    result = current.run("cluster", "evict", "--expired")
    assert (result.status, result.out) == (0, "nothing was changed\n")


def test_leases(current: Project, storage: Storage) -> None:
    result = current.run("cluster", "leases")
    assert result.status == 0
    assert result.out.splitlines()[2].startswith(CHAIN_LEASE)
    assert result.out.splitlines()[2].endswith("not held")
    leases.acquire(storage, CHAIN_LEASE, Owner("someone", "elsewhere", 7), 3600)
    found = current.run("cluster", "leases", "--json").json["leases"]
    (lease,) = [lease for lease in found if lease["name"] == CHAIN_LEASE]
    left, age = lease.pop("lease_seconds"), lease.pop("age_seconds")
    assert age >= 0
    assert left + age == pytest.approx(3600)
    assert lease == {
        "name": CHAIN_LEASE,
        "owner": "someone",
        "host": "elsewhere",
        "pid": 7,
        "epoch": lease["epoch"],
        "held": True,
    }


def test_rule_09_evict(current: Project, db: Database, storage: Storage) -> None:
    other = node_registration.register(storage, 4)
    before = current.dump()
    result = current.run("cluster", "evict", db._node.id[:6], stdin="n\n")
    assert (result.status, result.err) == (0, "evict it? [y/N] \n")
    assert result.out.startswith(f"{db._node}: its lease expires in ")
    assert result.out.endswith("nothing was changed\n")
    assert current.dump() == before
    result = current.run("cluster", "evict", db._node.id[:6], stdin="y\n")
    assert (result.status, result.out.splitlines()[-1]) == (0, "evicted 1 node")
    with pytest.raises(LeaseLost):
        db.table("people").delete(1)
    found = current.run("cluster", "nodes", "--json").json["nodes"]
    assert [node["id"] for node in found] == [other.id]


def test_rule_09_evict_those_whose_lease_is_over(
    current: Project, db: Database, storage: Storage
) -> None:
    dead = node_registration.register(storage, 4)
    expire(current, dead.id)
    evicted = current.run("cluster", "evict", "--expired", "--yes", "--json").json["evicted"]
    assert [node["id"] for node in evicted] == [dead.id]
    db.table("people").delete(1)


def test_evict_asks_for_what_it_needs(current: Project, db: Database) -> None:
    for given, says in (
        ((), "give the ids of the nodes to evict, or --expired"),
        (("--expired", "abc"), "give the ids of the nodes to evict, or --expired"),
        (("zzz", "--yes"), "no such node"),
        ((db._node.id,), "standard input is not a terminal"),
        ((db._node.id, "--json"), "--json does not ask for confirmation"),
    ):
        result = current.run("cluster", "evict", *given, stdin="")
        assert result.status in (1, 2)
        assert says in result.err
    result = current.run("cluster", "evict", "zzz", "--yes")
    assert f"nodes: {db._node.id}" in result.err
    db.table("people").delete(1)


def test_rule_10_upgrade(
    current: Project, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = current.run("cluster", "upgrade")
    assert (result.status, result.out) == (0, f"the level is {NOW}\n")
    older = node_registration.register(storage, 4)
    monkeypatch.setattr(release, "LEVEL", NEXT)
    status = current.run("cluster", "status")
    assert status.out.startswith(f"level {NOW} (on_demand)\n")
    result = current.run("cluster", "upgrade")
    assert result.out == (
        f"the level is {NOW}\n{older} supports only level {NOW}, release {release.__version__}\n"
    )
    node_registration.deregister(storage, older)
    status = current.run("cluster", "status")
    assert status.out.startswith(f"level {NOW}, and could be {NEXT} (on_demand)\n")
    before = current.dump()
    dry = current.run("cluster", "upgrade", "--dry-run", "--json").json
    assert dry.pop("seq") > 0
    assert dry == {
        "dry_run": True,
        "before": NOW,
        "after": NEXT,
        "supported": NEXT,
        "storage_versions": [],
        "waiting_for": [],
    }
    assert (
        current.run("cluster", "upgrade", "--dry-run").out
        == f"the level would rise from {NOW} to {NEXT}\n"
    )
    assert current.dump() == before
    assert current.run("cluster", "upgrade").out == f"the level rose from {NOW} to {NEXT}\n"
    monkeypatch.setattr(release, "LEVEL", NOW)
    result = current.run("cluster", "upgrade")
    assert (result.status, result.out) == (1, "")
    assert "use a newer release of zapdb" in result.err


def test_an_empty_database_has_no_cluster(project: Project) -> None:
    for command in ("status", "nodes", "leases", "upgrade"):
        result = project.run("cluster", command)
        assert result.status == 3
        assert result.err.startswith("error: the database is empty")
    assert not project.database.exists()
