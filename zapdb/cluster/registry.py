"""The rows of nodes: the processes that have the database open, what they are and what they hold.

What a row says is as of the registration. A node is alive while its lease is; one that is not alive
may still wake up, so whoever relies on its being gone evicts it first, with the gate (rules 7, 9).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from zapdb.catalog import rows
from zapdb.catalog.kinds import load_value
from zapdb.cluster.leases import Lease
from zapdb.logs import log_event
from zapdb.storage import Connection
from zapdb.storage.tables import CATALOG

logger = logging.getLogger("zapdb.nodes")

Datasets = Mapping[str, tuple[str, str]]
"""By name of a dataset: its version, for people, and its fingerprint, which decides."""


@dataclass(frozen=True, slots=True)
class Node:
    """A registered process.

    `level` is the highest that its release supports, `files_end` the number of the newest migration
    that its files hold, and `serves` the position whose shapes it has its tables in. `pending` are
    the digests, by number, of those that the database did not store when the process registered.
    """

    lease: Lease
    release: str
    level: int
    files_end: int
    serves: int
    pending: Mapping[int, str] = field(hash=False)
    datasets: Datasets = field(hash=False)

    @property
    def id(self) -> str:
        return self.lease.owner.id

    def to_row(self) -> dict[str, Any]:
        return {
            "release": self.release,
            "level": self.level,
            "files_end": self.files_end,
            "serves": self.serves,
            "pending": {str(number): digest for number, digest in self.pending.items()},
            "datasets": {name: list(dataset) for name, dataset in self.datasets.items()},
            "started_at": self.lease.since,
        }

    @classmethod
    def from_row(cls, lease: Lease, row: dict[str, Any]) -> Node:
        pending = {int(number): digest for number, digest in row["pending"].items()}
        datasets = {name: (found[0], found[1]) for name, found in row["datasets"].items()}
        return cls(
            lease, row["release"], row["level"], row["files_end"], row["serves"], pending, datasets
        )

    def __str__(self) -> str:
        return str(self.lease.owner)


def holds(node: Node, number: int, digest: str) -> bool:
    """Whether the node's files hold this migration: not fewer, and no other one of this number."""
    return node.files_end >= number and node.pending.get(number, digest) == digest


def lease_name(node_id: str) -> str:
    return f"node/{node_id}"


def list_nodes(connection: Connection) -> list[tuple[Node, bool]]:
    """Every registered node, with whether it is alive; those that came first stand first."""
    now = connection.storage.now_us(connection)
    found = rows.list_rows(connection, "node")
    leases = sorted(list_leases(connection, "node/"), key=lambda lease: (lease.since, lease.name))
    # One without a lease is being evicted, or registered, at this moment.
    return [
        (Node.from_row(lease, found[lease.owner.id]), not lease.is_over(now))
        for lease in leases
        if lease.owner.id in found
    ]


def list_leases(connection: Connection, prefix: str = "") -> list[Lease]:
    """All leases whose names begin so, by name; those that were given back expired at 0."""
    query = (
        sa.select(CATALOG.c.key, CATALOG.c.value, CATALOG.c.expires_at, CATALOG.c.epoch)
        .where(
            CATALOG.c.kind == "lease",
            CATALOG.c.key.startswith(prefix, autoescape=True),
            CATALOG.c.value.is_not(None),
        )
        .order_by(CATALOG.c.key)
    )
    return [
        Lease.from_row(name, load_value("lease", name, text), expires_at or 0, epoch or 0)
        for name, text, expires_at, epoch in connection.core_execute(query)
    ]


def remove_node(connection: Connection, node_id: str) -> None:
    rows.delete(connection, "node", node_id)
    rows.delete(connection, "lease", lease_name(node_id))


def evict(connection: Connection, node: Node) -> None:
    """Inside a CHANGE transaction: what the node does from now on can't commit."""
    remove_node(connection, node.id)
    log_event(
        logger,
        "node.evicted",
        "a process was put out: what it writes is refused from now on",
        level=logging.WARNING,
        node=node.id,
        owner=str(node.lease.owner),
    )
