"""Nodes: a process registers, renews its lease from a thread of its own, and is evicted.

A node registers its row for other processes, holds a lease, and renews it. Every writing
transaction checks the lease's epoch, so a node that was evicted can't commit (rules 9 and 10)."""

from __future__ import annotations

import logging
import uuid
from contextlib import suppress
from typing import Final, NoReturn

from zapdb import release
from zapdb.catalog import principal, rows
from zapdb.catalog.cluster import leases
from zapdb.catalog.cluster.leases import Lease, Owner, Renewal
from zapdb.catalog.cluster.level import admit_level, check_level, read_level, try_raise_level
from zapdb.catalog.cluster.nodes import Node, evict, lease_name, list_nodes, remove_node
from zapdb.catalog.cluster.stamping import Stamping
from zapdb.catalog.row_kinds import NodeRow
from zapdb.catalog.stored_migrations import ChainPlace
from zapdb.errors import IncompatibleVersion, LeaseLost, ZapdbError
from zapdb.limits import NODE_HEARTBEAT_SECONDS, NODE_KEPT_SECONDS, NODE_LEASE_SECONDS
from zapdb.log.incarnations import ensure_incarnation
from zapdb.storage import Connection, Storage, TransactionMode

logger = logging.getLogger("zapdb.nodes")


def register(
    storage: Storage,
    files_end: int,
    *,
    served: ChainPlace | None = None,
    pending: dict[int, str] | None = None,
    datasets: dict[str, tuple[str, str]] | None = None,
) -> Node:
    """Enter this process as a node; raises `IncompatibleVersion` below the database's level.

    `NodeRow` explains the arguments. The node's id is the storage's `node_id`, which the server's
    sessions have in their names. A second node of the same storage gets another id.
    """
    with storage.transaction(TransactionMode.CATALOG) as connection:
        check_level(connection, lock=True)  # whichever commits second sees the other
        is_first = rows.get(connection, NodeRow, storage.node_id) is None
        owner = Owner.here(storage.node_id if is_first else None)
        row = NodeRow(
            owner.id,
            release.__version__,
            release.LEVEL,
            files_end,
            files_end if served is None else served.position,
            pending or {},
            datasets or {},
            0 if served is None else served.migration,
        )
        node = _enter(connection, owner, row)
    _try_raise_level(storage)
    return node


def _enter(connection: Connection, owner: Owner, row: NodeRow) -> Node:
    lease = leases.take(connection, lease_name(owner.id), owner, NODE_LEASE_SECONDS)
    rows.put(connection, row)
    return Node.of(lease, row)


JOINED_BY: Final = "joined by "
"""What the owner of a node that joined from outside has as its namespace, before the principal that
it joined for: its process number means something only there."""


def join_cluster(storage: Storage, host: str, pid: int, release_name: str, level: int) -> Node:
    """Enter a process that has the database open through a service, as a node without files.

    While its lease is valid, the level stays at what it supports. Raises `IncompatibleVersion` with
    the level that is needed.
    """
    with storage.transaction(TransactionMode.CATALOG) as connection:
        admit_level(connection, release_name, level)
        owner = Owner(uuid.uuid4().hex[:12], host, pid, namespace=JOINED_BY + principal.current())
        node = _enter(connection, owner, NodeRow(owner.id, release_name, level, 0, 0, {}, {}))
    _try_raise_level(storage)
    return node


def renew_joined(connection: Connection, node_id: str) -> None:
    """Renew the lease of a node that joined from outside, inside a CATALOG transaction.

    Raises `LeaseLost` if it was evicted, or joined for another principal.
    """
    leases.renew(connection, _find_joined(connection, node_id), NODE_LEASE_SECONDS)


def leave_cluster(storage: Storage, node_id: str) -> None:
    """Remove a node that joined from outside; raises as `renew_joined`."""
    with storage.transaction(TransactionMode.CATALOG) as connection:
        _find_joined(connection, node_id)
        remove_node(connection, node_id)
    _try_raise_level(storage)


def _find_joined(connection: Connection, node_id: str) -> Lease:
    found = leases.read_lease(connection, lease_name(node_id), lock=True)
    if found is None or found.owner.namespace != JOINED_BY + principal.current():
        raise LeaseLost(
            "no such node has joined, or it was evicted",
            node=node_id,
            hint="register again",
        )
    return found


def deregister(storage: Storage, node: Node) -> None:
    with storage.transaction(TransactionMode.CATALOG) as connection:
        remove_node(connection, node.id)
    _try_raise_level(storage)


def _try_raise_level(storage: Storage) -> None:
    with suppress(ZapdbError):  # what others do does not keep this process from coming or going
        try_raise_level(storage)


def evict_dead_nodes(storage: Storage, older_than_seconds: float) -> list[Node]:
    """Evict nodes whose lease expired at least this long ago, and return them. Takes the gate if
    there are such nodes."""
    if not _list_dead(storage.connection(), older_than_seconds):
        return []
    with storage.transaction(TransactionMode.DDL) as connection:
        dead = _list_dead(connection, older_than_seconds)
        for node in dead:
            evict(connection, node)
    return dead


def _list_dead(connection: Connection, older_than_seconds: float) -> list[Node]:
    before = connection.storage.now_us(connection) - int(older_than_seconds * 1e6)
    return [
        node
        for node, alive in list_nodes(connection)
        if not alive and (not older_than_seconds or node.lease.expires_at <= before)
    ]


def refuse_lost_lease(connection: Connection, node: Node, found: int | None) -> NoReturn:
    """Refuse a writing transaction whose node's lease has a stored epoch below the one that was
    known when the transaction began.

    Raises `LeaseLost`, and `IncompatibleVersion` if the lease was lost because the level rose above
    this release.
    """
    check_level(connection)
    raise node.own.lost(found)


class Heartbeat(Renewal):
    """Renews a node's lease in the background until it is stopped.

    It also raises the level if that is automatic, deletes rows of nodes that died long ago, ends
    sessions that hold the gate although their process is dead. One node's lets processes that write
    nothing see the newest changes of the change log (`stamping`).
    """

    def __init__(self, storage: Storage, node: Node) -> None:
        self.level: int | None = None
        """The database's level as the last heartbeat saw it."""
        self._node = node
        self._stamping = Stamping(storage, node.lease.owner)
        super().__init__(
            storage, [node.lease], NODE_LEASE_SECONDS, NODE_HEARTBEAT_SECONDS, "zapdb-heartbeat"
        )

    def beat(self) -> None:
        try:
            with self._storage.transaction(TransactionMode.CATALOG) as connection:
                self.level = read_level(connection)
                check_level(connection)
                expires = self._storage.now_us(connection) + int(NODE_LEASE_SECONDS * 1e6)
                epoch = self._node.own.rise(connection, f", expires_at = {expires}")
            self._node.own.note(epoch)
            ensure_incarnation(self._storage)
            self._look_after_others()
            self._give_stamps()
        except LeaseLost as error:
            raise LeaseLost(f"{error.message}; its writes are refused") from error
        except IncompatibleVersion as error:
            logger.error("this process is too old now, its writes are refused: %s", error)
            with suppress(ZapdbError):  # or its lease ends by itself
                deregister(self._storage, self._node)
            raise LeaseLost("this process is no longer a node") from error

    def stop(self) -> None:
        super().stop()
        with suppress(ZapdbError):  # or the lease expires
            self._stamping.end()

    def _give_stamps(self) -> None:
        """What is wrong there keeps no process from its lease."""
        try:
            self._stamping.beat()
        except ZapdbError as error:
            if not self._storage.pool.is_closed:
                logger.warning("changes got no stamp, which is tried again: %s", error)

    def _look_after_others(self) -> None:
        self._storage.engine.end_dead_holders(self._storage.connection())
        try_raise_level(self._storage)
        for node in evict_dead_nodes(self._storage, NODE_KEPT_SECONDS):
            logger.info("the row of a process that died long ago was removed: %s", node)
