"""The cluster's status for operators: its nodes, their positions, and the nodes that migrations
wait for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

import sqlalchemy as sa

from zapdb import release
from zapdb.catalog.cluster import nodes
from zapdb.catalog.cluster.leases import Lease, list_leases
from zapdb.catalog.cluster.level import (
    Policy,
    check_level,
    level_possible,
    raise_level,
    read_level,
    read_policy,
)
from zapdb.catalog.cluster.nodes import Node, has_migration
from zapdb.catalog.row_kinds import ChainState
from zapdb.catalog.stored_migrations import STORED, read_chain_state
from zapdb.catalog.tenants import list_tenants
from zapdb.errors import UnknownName, UsageError
from zapdb.migrations import label
from zapdb.printing import one_line
from zapdb.storage import Connection, Storage, TransactionMode, read_storage_version
from zapdb.storage.fixed_tables import MIGRATIONS
from zapdb.storage.storage_version import StorageUpgrade, pending_upgrades, upgrade_storage


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """A node as of `now_us`: its age, and the time left of its lease (negative if it has
    expired)."""

    node: Node
    is_alive: bool
    age_seconds: float
    lease_seconds: float

    def __repr__(self) -> str:
        node, state = self.node, "live" if self.is_alive else "dead"
        return (
            f"<node {node.id}, {state}: {one_line(str(node))}, release {node.row.release}, files "
            f"end at {node.row.files_end}, lease {self.lease_seconds:.0f} s>"
        )


@dataclass(frozen=True, slots=True)
class LeaseStatus:
    lease: Lease
    is_held: bool
    age_seconds: float
    lease_seconds: float


@dataclass(frozen=True, slots=True)
class InactiveMigration:
    """A stored migration that is not active for every tenant, and the live nodes without it."""

    number: int
    label: str
    waiting_for: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """`possible` is the level that all live nodes and this release support.

    `positions` counts tenants by position; `inactive_migrations` are the migrations beyond the
    lowest one.
    """

    level: int
    possible: int
    policy: Policy
    layout: str
    pending: tuple[StorageUpgrade, ...]
    releases: dict[str, int]
    nodes: tuple[NodeStatus, ...]
    chain: ChainState
    positions: dict[int, int]
    inactive_migrations: tuple[InactiveMigration, ...]
    leases: tuple[LeaseStatus, ...]


def read_status(connection: Connection) -> ClusterStatus:
    """Return the status as of one moment, inside a transaction."""
    nodes = read_nodes(connection)
    live = [status.node for status in nodes if status.is_alive]
    positions = Counter(tenant.position for tenant in list_tenants(connection))
    return ClusterStatus(
        read_level(connection),
        level_possible(connection),
        read_policy(connection),
        str(read_storage_version(connection.storage)),
        tuple(pending_upgrades(connection.storage)),
        dict(sorted(Counter(node.row.release for node in live).items())),
        nodes,
        read_chain_state(connection),
        dict(sorted(positions.items())),
        _read_inactive_migrations(connection, min(positions, default=0), live),
        tuple(s for s in read_leases(connection) if s.is_held),
    )


def _read_inactive_migrations(
    connection: Connection, position: int, live: Collection[Node]
) -> tuple[InactiveMigration, ...]:
    stored = connection.core_execute(
        sa.select(MIGRATIONS.c.number, MIGRATIONS.c.name, MIGRATIONS.c.digest)
        .where(MIGRATIONS.c.state == STORED, MIGRATIONS.c.number > position)
        .order_by(MIGRATIONS.c.number)
    )
    return tuple(
        InactiveMigration(
            number,
            label(number, name),
            tuple(node for node in live if not has_migration(node, number, digest)),
        )
        for number, name, digest in stored
    )


def read_nodes(connection: Connection) -> tuple[NodeStatus, ...]:
    """Return every registered node, the oldest first."""
    now = connection.storage.now_us(connection)
    found = [
        NodeStatus(
            node,
            alive,
            (now - node.lease.since) / 1e6,
            (node.lease.expires_at - now) / 1e6,
        )
        for node, alive in nodes.list_nodes(connection)
    ]
    return tuple(sorted(found, key=lambda status: (status.node.lease.since, status.node.id)))


def read_leases(connection: Connection) -> tuple[LeaseStatus, ...]:
    """Return every lease but those of nodes, by name; a released lease is not held."""
    now = connection.storage.now_us(connection)
    return tuple(
        LeaseStatus(
            lease,
            lease.expires_at > now,
            (now - lease.since) / 1e6,
            (lease.expires_at - now) / 1e6,
        )
        for lease in list_leases(connection)
        if not lease.name.startswith("node/")
    )


def find_nodes(connection: Connection, given: Collection[str]) -> list[NodeStatus]:
    """Return the nodes with ids that begin with these texts; raises `UnknownName`, or `UsageError`
    for a text that fits several nodes."""
    found, known = [], read_nodes(connection)
    for text in given:
        fitting = [status for status in known if text and status.node.id.startswith(text)]
        if not fitting:
            raise UnknownName(
                "no such node",
                node=text,
                nodes=", ".join(status.node.id for status in known) or "(none)",
                hint="run `zapdb cluster nodes`; the process may have ended",
            )
        if len(fitting) > 1:
            ids = ", ".join(status.node.id for status in fitting)
            raise UsageError("the ids of several nodes begin with this", node=text, nodes=ids)
        found += fitting
    return found


def evict_nodes(storage: Storage, ids: Collection[str]) -> list[Node]:
    """Evict nodes, with the gate; returns the nodes that were still registered."""
    with storage.transaction(TransactionMode.DDL) as connection:
        evicted = [node for node, _ in nodes.list_nodes(connection) if node.id in ids]
        for node in evicted:
            nodes.evict(connection, node)
    return evicted


@dataclass(frozen=True, slots=True)
class LevelUpgrade:
    """An upgrade: the levels before and after, and the storage versions.

    `waiting_for` are the live nodes that keep the level below this release's.
    """

    before: int
    after: int
    layout: tuple[StorageUpgrade, ...]
    waiting_for: tuple[Node, ...]


def upgrade_cluster(storage: Storage, *, dry_run: bool = False) -> LevelUpgrade:
    """Raise the level to the highest that all support, and upgrade zapdb's own tables.

    Raises `IncompatibleVersion` if the storage version needs a level that a live node does not
    support. With `dry_run` nothing is changed, and `waiting_for` has these nodes.
    """
    pending = tuple(pending_upgrades(storage))
    with storage.transaction(
        TransactionMode.READ if dry_run else TransactionMode.DDL
    ) as connection:
        before, possible = check_level(connection), level_possible(connection)
        after = max(before, possible, *(revision.level for revision in pending))
        waiting_for = tuple(
            node
            for node, alive in nodes.list_nodes(connection)
            if alive and node.row.level < release.LEVEL
        )
        if not dry_run:
            raise_level(connection, after)
            if pending:
                upgrade_storage(connection)
    return LevelUpgrade(before, after, pending, waiting_for)
