"""The rows of nodes: the processes that have the database open, and migrations that wait for them.

A row is as of the registration. A node is live while its lease is valid. A dead node may still wake
up, so code that relies on its death evicts it first, with the gate (rules 7, 9). A migration that
waits for nodes becomes active only once the files of all of them contain it (rule 12).
"""

from __future__ import annotations

import logging
from collections.abc import Set
from dataclasses import dataclass, field

from zapdb.catalog import rows
from zapdb.catalog.cluster import nodes
from zapdb.catalog.cluster.leases import Lease, delete_lease, list_leases
from zapdb.catalog.row_kinds import NodeRow
from zapdb.errors import ActivationPending
from zapdb.logs import log_event
from zapdb.migrations import Chain, Migration
from zapdb.storage import Connection, TransactionMode
from zapdb.storage.own_lease import OwnLease

logger = logging.getLogger("zapdb.nodes")


@dataclass(frozen=True, slots=True)
class Node:
    """A registered process: its lease and its row; the process itself has `own`."""

    lease: Lease
    row: NodeRow = field(hash=False)
    own: OwnLease = field(hash=False, compare=False, repr=False)

    @classmethod
    def of(cls, lease: Lease, row: NodeRow) -> Node:
        return cls(lease, row, OwnLease(lease.name, lease.epoch))

    @property
    def id(self) -> str:
        return self.row.id

    @property
    def is_served_rolled_back(self) -> bool:
        """Whether the migration that leads to its schema was rolled back: then it is among those of
        its files that are not stored."""
        return self.row.served_position in self.row.pending_digests

    def __str__(self) -> str:
        return str(self.lease.owner)


def has_migration(node: Node, number: int, digest: str) -> bool:
    """Return whether the node's files contain this migration: they reach its number, with its
    digest."""
    return node.row.files_end >= number and node.row.pending_digests.get(number, digest) == digest


def lease_name(node_id: str) -> str:
    return f"node/{node_id}"


def list_nodes(connection: Connection) -> list[tuple[Node, bool]]:
    """Return every registered node, and whether it is live; the oldest node is first."""
    now = connection.storage.now_us(connection)
    found = {row.id: row for row in rows.list_rows(connection, NodeRow)}
    leases = sorted(list_leases(connection, "node/"), key=lambda lease: (lease.since, lease.name))
    # One without a lease is being evicted, or registered, at this moment.
    return [
        (Node.of(lease, found[lease.owner.id]), not lease.is_over(now))
        for lease in leases
        if lease.owner.id in found
    ]


def list_served(connection: Connection, ids: Set[int]) -> list[Node]:
    """Return the live nodes that are served the schema to which one of these migrations leads, by
    their ids."""
    found = list_nodes(connection)
    return [node for node, alive in found if alive and node.row.served_migration in ids]


def remove_node(connection: Connection, node_id: str) -> None:
    rows.delete(connection, NodeRow, node_id)
    delete_lease(connection, lease_name(node_id))


def evict(connection: Connection, node: Node) -> None:
    """Evict a node inside a DDL transaction: its transactions can't commit from now on."""
    remove_node(connection, node.id)
    log_event(
        logger,
        "node.evicted",
        "a process was evicted: its writes are refused from now on",
        level=logging.WARNING,
        node=node.id,
        owner=str(node.lease.owner),
    )


@dataclass(frozen=True, slots=True)
class BlockedActivation:
    """A migration, and the live processes whose files do not contain it."""

    migration: Migration
    nodes: tuple[str, ...]

    def error(self, position: int) -> ActivationPending:
        return ActivationPending(
            "this migration waits until every running process has its file",
            migration=self.migration.label,
            position=position,
            nodes="; ".join(self.nodes),
            hint="restart them with the new files, with serve_as= if their code is not "
            "ready; `zapdb cluster status` lists them, `zapdb cluster evict` evicts "
            "one",
        )


def find_reachable_position(
    connection: Connection, chain: Chain, position: int, target: int
) -> tuple[int, BlockedActivation | None]:
    """Return how far up to `target` a tenant may be migrated now, and what blocks it there.

    Inside a DDL transaction, this evicts processes whose lease has expired: a process that is only
    suspended must not wake up and continue.
    """
    waiting = [m for m in chain.after(position) if m.number <= target and m.waits_for_nodes]
    if not waiting:
        return target, None
    found = nodes.list_nodes(connection)
    for migration in waiting:
        without = [
            (node, alive)
            for node, alive in found
            # A process without files works with whatever is active.
            if node.row.files_end
            and not nodes.has_migration(node, migration.number, migration.digest)
        ]
        live = tuple(str(node.lease.owner) for node, alive in without if alive)
        if live:
            return migration.number - 1, BlockedActivation(migration, live)
        if connection.mode is TransactionMode.DDL:
            for node, _ in without:
                nodes.evict(connection, node)
    return target, None
