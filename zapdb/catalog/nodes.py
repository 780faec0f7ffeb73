"""Nodes: the processes that have the database open, and the level that they all support.

A node registers with its release, the highest level that it supports, where its files end and which
datasets it has, holds a lease, and renews it from a thread of its own. Every writing transaction
checks the lease's epoch, so a node that was evicted can't commit (rules 9 and 10).
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from typing import Any

from zapdb.catalog import leases, rows
from zapdb.catalog.leases import Lease, Owner
from zapdb.errors import IncompatibleVersion, LeaseLost, ZapdbError
from zapdb.limits import NODE_HEARTBEAT_SECONDS, NODE_LEASE_SECONDS
from zapdb.release import LEVEL, __version__
from zapdb.storage import Connection, Mode, Storage

logger = logging.getLogger("zapdb.nodes")


@dataclass(frozen=True, slots=True)
class Node:
    """A registered process; `files_end` is the number of the last migration that its files hold."""

    lease: Lease
    release: str
    level: int
    files_end: int

    @property
    def id(self) -> str:
        return self.lease.owner.id


def read_level(connection: Connection) -> int:
    """The cluster's level: what everything stored is readable with."""
    row = rows.get(connection, "level", "")
    return 0 if row is None else int(row["level"])


def check_level(connection: Connection) -> None:
    """Raises `IncompatibleVersion` if this release is too old for the database."""
    level = read_level(connection)
    if level > LEVEL:
        raise IncompatibleVersion(
            "the database uses features that this release does not know",
            release=__version__,
            level_supported=LEVEL,
            level_needed=level,
            hint="use a newer release of zapdb",
        )


def register(storage: Storage, files_end: int) -> Node:
    """Enter this process as a node; raises `IncompatibleVersion`."""
    owner = Owner.here()
    with storage.transaction(Mode.CATALOG) as connection:
        check_level(connection)
        value = {"release": __version__, "level": LEVEL, "files_end": files_end}
        rows.put(connection, "node", owner.id, value)
        lease = leases.take(connection, _lease_name(owner.id), owner, NODE_LEASE_SECONDS)
    return Node(lease, __version__, LEVEL, files_end)


def deregister(storage: Storage, node: Node) -> None:
    with storage.transaction(Mode.CATALOG) as connection:
        _remove(connection, node.id)


def _lease_name(node_id: str) -> str:
    return f"node/{node_id}"


def _remove(connection: Connection, node_id: str) -> None:
    rows.delete(connection, "node", node_id)
    rows.delete(connection, "lease", _lease_name(node_id))


def list_nodes(connection: Connection) -> list[tuple[Node, bool]]:
    """Every registered node, with whether it is alive."""
    now = connection.storage.now_us(connection)
    found = []
    for node_id, value in rows.list_rows(connection, "node").items():
        row = rows.get(connection, "lease", _lease_name(node_id))
        if row is None:
            continue  # evicted at this moment
        lease = Lease.from_row(_lease_name(node_id), row)
        node = Node(lease, value["release"], value["level"], value["files_end"])
        found.append((node, not lease.is_over(now)))
    return found


def evict(connection: Connection, node: Node) -> None:
    """Inside a CHANGE transaction: what the node does from now on can't commit."""
    _remove(connection, node.id)


def lease_is_held(connection: Connection, lease_sql: str, epoch: int) -> bool:
    """The check of every writing transaction, as one statement of the hot path."""
    row = connection.fetch_one(lease_sql)
    return row is not None and _epoch(row[0]) == epoch


def _epoch(text: str) -> Any:
    # The value is JSON with sorted keys that this package wrote: {"epoch":7,"expires_at":…
    return int(text[9 : text.index(",")])


class Heartbeat:
    """Renews a node's lease in the background until it is stopped."""

    def __init__(self, storage: Storage, node: Node) -> None:
        self._storage = storage
        self._lease = node.lease
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="zapdb-heartbeat", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stop.wait(NODE_HEARTBEAT_SECONDS):
                try:
                    with self._storage.transaction(Mode.CATALOG) as connection:
                        self._lease = leases.renew(connection, self._lease, NODE_LEASE_SECONDS)
                except LeaseLost:
                    logger.warning("this process was evicted: its writes are refused")
                    return
                except ZapdbError as error:
                    logger.warning("a heartbeat failed, and will be tried again: %s", error)
        finally:
            self._storage.release_connection()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(timeout=5)
