"""The processes that have the database open, their leases, and the cluster level."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from zapdb import release
from zapdb.catalog.cluster import cluster_status, node_registration
from zapdb.catalog.cluster.cluster_status import LeaseStatus, NodeStatus
from zapdb.catalog.cluster.level import read_level
from zapdb.catalog.cluster.nodes import Node
from zapdb.catalog.feed import read_seq
from zapdb.catalog.row_kinds import DatasetVersion
from zapdb.control.bounds import Number
from zapdb.control.target import Target
from zapdb.errors import InvalidValue
from zapdb.jobs.job import list_jobs
from zapdb.limits import NODE_HEARTBEAT_SECONDS, NODE_LEASE_SECONDS, PRINCIPAL_LENGTH_MAX
from zapdb.storage import TransactionMode


@dataclass(frozen=True, slots=True)
class ClusterNode:
    """A process that has the database open.

    `level` is the highest cluster level that its release supports, `files_end` the newest migration
    in its files, and `served_position` the position whose schema it uses, which may be that of a
    migration that was `rolled_back`.
    """

    id: str
    host: str
    pid: int
    release: str
    level: int
    files_end: int
    served_position: int
    rolled_back: bool


@dataclass(frozen=True, slots=True)
class ClusterNodeStatus(ClusterNode):
    """A process, how long ago it registered, and the time that is left of its lease, which is
    negative if that has expired; its collation and time zone data by name."""

    alive: bool
    age_seconds: float
    lease_seconds: float
    datasets: Mapping[str, DatasetVersion]


@dataclass(frozen=True, slots=True)
class ClusterNodes:
    nodes: tuple[ClusterNodeStatus, ...]


@dataclass(frozen=True, slots=True)
class ClusterLease:
    """The right to work that one process does at a time, with its present or last owner."""

    name: str
    owner: str
    host: str
    pid: int
    epoch: int
    held: bool
    age_seconds: float
    lease_seconds: float


@dataclass(frozen=True, slots=True)
class ClusterLeases:
    leases: tuple[ClusterLease, ...]


@dataclass(frozen=True, slots=True)
class NodeCounts:
    """How many processes have a valid lease, and how many have one that has expired."""

    alive: int
    expired: int


@dataclass(frozen=True, slots=True)
class TenantsAtPosition:
    position: int
    tenants: int


@dataclass(frozen=True, slots=True)
class WaitingMigration:
    """A stored migration that is not active for every tenant, and the processes whose files do not
    contain it."""

    number: int
    label: str
    waiting_for: tuple[ClusterNode, ...]


@dataclass(frozen=True, slots=True)
class WaitingJob:
    id: str
    kind: str
    table: str
    state: str


@dataclass(frozen=True, slots=True)
class ClusterOverview:
    """The state of a cluster.

    `level_possible` is the level that all its processes and this release support; `stored` the
    number of the newest stored migration. `releases` has how many processes run each release.
    """

    level: int
    level_possible: int
    level_policy: str
    storage_version: str
    storage_pending: tuple[str, ...]
    releases: Mapping[str, int]
    nodes: NodeCounts
    stored: int
    tenants: tuple[TenantsAtPosition, ...]
    waiting: tuple[WaitingMigration, ...]
    jobs: tuple[WaitingJob, ...]
    leases: tuple[ClusterLease, ...]


def get_status(target: Target) -> ClusterOverview:
    """The level, the processes, the tenants' positions, and what waits, as of one moment."""
    target.require_rows()
    with target.reading() as connection:
        status = cluster_status.read_status(connection)
        jobs = [job for job in list_jobs(connection) if job.state in ("planned", "blocked")]
    alive = sum(node.is_alive for node in status.nodes)
    return ClusterOverview(
        level=status.level,
        level_possible=status.possible,
        level_policy=status.policy,
        storage_version=status.layout,
        storage_pending=tuple(upgrade.version for upgrade in status.pending),
        releases=status.releases,
        nodes=NodeCounts(alive, len(status.nodes) - alive),
        stored=status.chain.stored_end,
        tenants=tuple(TenantsAtPosition(*pair) for pair in status.positions.items()),
        waiting=tuple(
            WaitingMigration(one.number, one.label, tuple(map(_describe_node, one.waiting_for)))
            for one in status.inactive_migrations
        ),
        jobs=tuple(WaitingJob(job.id, job.kind, job.table_name, job.state) for job in jobs),
        leases=tuple(map(_describe_lease, status.leases)),
    )


def list_nodes(target: Target) -> ClusterNodes:
    """The processes that have the database open, the oldest first."""
    target.require_rows()
    with target.reading() as connection:
        found = cluster_status.read_nodes(connection)
    return ClusterNodes(tuple(map(_describe_status, found)))


def list_leases(target: Target) -> ClusterLeases:
    """The leases for work that one process does at a time, by name."""
    target.require_rows()
    with target.reading() as connection:
        found = cluster_status.read_leases(connection)
    return ClusterLeases(tuple(map(_describe_lease, found)))


def find_nodes(target: Target, nodes: tuple[str, ...] = ()) -> ClusterNodes:
    """The processes whose ids begin with these texts; without any, those whose lease has expired.

    Raises `UnknownName`, and `UsageError` for a text that fits several processes.
    """
    target.require_rows()
    with target.reading() as connection:
        if nodes:
            found = cluster_status.find_nodes(connection, nodes)
        else:
            found = [one for one in cluster_status.read_nodes(connection) if not one.is_alive]
    return ClusterNodes(tuple(map(_describe_status, found)))


@dataclass(frozen=True, slots=True)
class Eviction:
    evicted: tuple[ClusterNode, ...]
    seq: int


def evict_nodes(target: Target, nodes: tuple[str, ...]) -> Eviction:
    """Evict processes by their ids: their writes are refused until they open the database again.
    Answers with those that were still there."""
    target.require_rows()
    evicted = cluster_status.evict_nodes(target.storage, nodes) if nodes else []
    return Eviction(tuple(map(_describe_node, evicted)), read_seq(target.storage.connection()))


@dataclass(frozen=True, slots=True)
class LevelRise:
    """The cluster level before and after, and the highest that this release supports.

    `storage_versions` are those to which zapdb's own tables were upgraded; `waiting_for` are the
    processes that keep the level below `supported`.
    """

    dry_run: bool
    before: int
    after: int
    supported: int
    storage_versions: tuple[str, ...]
    waiting_for: tuple[ClusterNode, ...]
    seq: int


def upgrade(target: Target, dry_run: bool = False) -> LevelRise:
    """Raise the level to the highest that this release and all running processes support, and
    upgrade zapdb's own tables; with `dry_run`, only say what would be done.

    Raises `IncompatibleVersion`.
    """
    target.require_rows()
    done = cluster_status.upgrade_cluster(target.storage, dry_run=dry_run)
    return LevelRise(
        dry_run=dry_run,
        before=done.before,
        after=done.after,
        supported=release.LEVEL,
        storage_versions=tuple(one.version for one in done.layout),
        waiting_for=tuple(map(_describe_node, done.waiting_for)),
        seq=read_seq(target.storage.connection()),
    )


# --- processes that join through a service -------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Registration:
    """A process has joined as `node`; it sends a heartbeat before its lease expires, and knows the
    cluster level and the catalog's seq as of this moment."""

    node: str
    lease_seconds: float
    heartbeat_seconds: float
    level: int
    seq: int


def register(target: Target, host: str, pid: Number, release: str, level: Number) -> Registration:
    """Let a process join that has the database open through a service: while its lease is valid,
    the cluster level stays at most `level`, the highest that it supports.

    Raises `IncompatibleVersion`, with the level that is needed, if that is too low; `InvalidValue`.
    """
    target.require_rows()
    for name, text in (("host", host), ("release", release)):
        if len(text) > PRINCIPAL_LENGTH_MAX:
            raise InvalidValue(
                "the text is too long", field=name, characters_max=PRINCIPAL_LENGTH_MAX
            )
    node = node_registration.join_cluster(target.storage, host, pid, release, level)
    return _answer(target, node.id)


def send_heartbeat(target: Target, node: str) -> Registration:
    """Renew the lease of a process that joined; raises `LeaseLost` if it was evicted meanwhile."""
    target.require_rows()
    with target.storage.transaction(TransactionMode.CATALOG) as connection:
        node_registration.renew_joined(connection, node)
    return _answer(target, node)


@dataclass(frozen=True, slots=True)
class Departure:
    seq: int


def deregister(target: Target, node: str) -> Departure:
    """Let a process leave that joined; raises `LeaseLost` if it was evicted meanwhile."""
    target.require_rows()
    node_registration.leave_cluster(target.storage, node)
    return Departure(read_seq(target.storage.connection()))


def _answer(target: Target, node: str) -> Registration:
    with target.reading() as connection:
        return Registration(
            node,
            NODE_LEASE_SECONDS,
            NODE_HEARTBEAT_SECONDS,
            read_level(connection),
            read_seq(connection),
        )


def _describe_node(node: Node) -> ClusterNode:
    return ClusterNode(*_columns(node))


def _describe_status(status: NodeStatus) -> ClusterNodeStatus:
    return ClusterNodeStatus(
        *_columns(status.node),
        alive=status.is_alive,
        age_seconds=status.age_seconds,
        lease_seconds=status.lease_seconds,
        datasets={
            name: DatasetVersion(*found) for name, found in sorted(status.node.row.datasets.items())
        },
    )


def _columns(node: Node) -> tuple[str, str, int, str, int, int, int, bool]:
    owner, row = node.lease.owner, node.row
    return (
        node.id,
        owner.host,
        owner.pid,
        row.release,
        row.level,
        row.files_end,
        row.served_position,
        node.is_served_rolled_back,
    )


def _describe_lease(status: LeaseStatus) -> ClusterLease:
    owner = status.lease.owner
    return ClusterLease(
        name=status.lease.name,
        owner=owner.id,
        host=owner.host,
        pid=owner.pid,
        epoch=status.lease.epoch,
        held=status.is_held,
        age_seconds=status.age_seconds,
        lease_seconds=max(0.0, status.lease_seconds),
    )
