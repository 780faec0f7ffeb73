"""`zapdb cluster`: the processes that have the database open, their leases, and the cluster
level."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from zapdb import release
from zapdb.catalog.cluster import (
    cluster_status as cluster,
)
from zapdb.catalog.cluster.cluster_status import (
    ClusterStatus,
    LeaseStatus,
    LevelUpgrade,
    NodeStatus,
)
from zapdb.catalog.cluster.nodes import Node
from zapdb.catalog.feed import read_seq
from zapdb.catalog.row_kinds import Job
from zapdb.cli.connecting import DatabaseOptions
from zapdb.cli.output import Confirmation, Output, Part, format_count, format_seconds
from zapdb.errors import UsageError
from zapdb.jobs.job import list_jobs
from zapdb.storage import Connection, TransactionMode

OVER: Part = ("over", "red")


def cluster_status_command(options: DatabaseOptions, output: Output) -> None:
    """Show the cluster level, the running releases, the tenants' positions, and waiting migrations.

    With `--json`: `{level, level_possible, level_policy, storage_version, storage_pending,
    releases, nodes: {alive, expired}, stored, rolling_back, tenants: [{position, tenants}],
    waiting: [{number, label, waiting_for: [NODE]}], jobs: [{id, kind, table, state}], leases:
    [LEASE]}`. NODE and LEASE are as in `cluster nodes` and `cluster leases`. `waiting` are the
    stored migrations that are not active for every tenant, with the running processes whose files
    do not contain them.
    """
    with options.with_rows() as storage, storage.transaction(TransactionMode.READ) as connection:
        status = cluster.read_status(connection)
        jobs = [job for job in list_jobs(connection) if job.state in ("planned", "blocked")]
    _write_status(status, jobs, output)
    output.document(_status_to_json(status, jobs))


def _write_status(status: ClusterStatus, jobs: list[Job], output: Output) -> None:
    could = f", and could be {status.possible}" if status.possible > status.level else ""
    output.write("level ", (str(status.level), "bold"), f"{could} ({status.policy})")
    waits = ", ".join(upgrade.version for upgrade in status.pending)
    output.write(f"storage version {status.layout}" + (f", waiting: {waits}" if waits else ""))
    alive = [node for node in status.nodes if node.is_alive]
    releases = ", ".join(f"{count} of {name}" for name, count in status.releases.items())
    expired = len(status.nodes) - len(alive)
    output.write(
        format_count(len(alive), "node"),
        f": {releases}" if releases else "",
        f"; {expired} expired" if expired else "",
    )
    output.write(
        f"{format_count(status.chain.stored_end, 'migration')} stored; at {_positions(status)}"
    )
    if status.chain.rolling_back is not None:
        output.write((f"rolling back {status.chain.rolling_back:04}", "yellow"))
    for inactive in status.inactive_migrations:
        lacking = "; ".join(map(str, inactive.waiting_for))
        said = f": not in the files of {lacking}" if lacking else ": in the files of all nodes"
        output.write(f"not active everywhere: {inactive.label}{said}")
    for job in jobs:
        output.write(f"job: {job.kind} {job.table_name}, {job.state}")
    for lease in status.leases:
        owner = lease.lease.owner
        output.write(f"lease: {lease.lease.name} of {owner}, {format_seconds(lease.age_seconds)}")


def _positions(status: ClusterStatus) -> str:
    return ", ".join(
        f"{position}: {format_count(count, 'tenant')}"
        for position, count in status.positions.items()
    )


def _status_to_json(status: ClusterStatus, jobs: list[Job]) -> dict[str, Any]:
    alive = sum(node.is_alive for node in status.nodes)
    return {
        "level": status.level,
        "level_possible": status.possible,
        "level_policy": status.policy,
        "storage_version": status.layout,
        "storage_pending": [upgrade.version for upgrade in status.pending],
        "releases": status.releases,
        "nodes": {"alive": alive, "expired": len(status.nodes) - alive},
        "stored": status.chain.stored_end,
        "rolling_back": status.chain.rolling_back,
        "tenants": [
            {"position": position, "tenants": count} for position, count in status.positions.items()
        ],
        "waiting": [
            {
                "number": inactive.number,
                "label": inactive.label,
                "waiting_for": [_node_to_json(node) for node in inactive.waiting_for],
            }
            for inactive in status.inactive_migrations
        ],
        "jobs": [
            {"id": job.id, "kind": job.kind, "table": job.table_name, "state": job.state}
            for job in jobs
        ],
        "leases": [_lease_to_json(lease) for lease in status.leases],
    }


def cluster_nodes_command(options: DatabaseOptions, output: Output) -> None:
    """List the processes that have the database open, the oldest first.

    A process whose lease has expired is dead or suspended; after it is evicted, its writes are
    refused. `files end` is the newest migration in its files, and `served` the position whose
    schema it uses.

    With `--json`: `{nodes: [{id, host, pid, release, level, files_end, served_position, alive,
    age_seconds, lease_seconds, datasets}]}`.
    """
    with options.with_rows() as storage, storage.transaction(TransactionMode.READ) as connection:
        found = cluster.read_nodes(connection)
    columns = (
        *("node", "host", "pid", "release", "level"),
        *("files end", "served", "age", "lease left"),
    )
    numbers = "pid", "level", "files end", "served", "age", "lease left"
    output.table(
        columns,
        [_node_row(status) for status in found],
        right=numbers,
        empty="no process has the database open",
    )
    output.document({"nodes": [_status_of_node(status) for status in found]})


def _node_row(status: NodeStatus) -> tuple[Part, ...]:
    node = status.node
    return (
        (node.id, "bold"),
        node.lease.owner.host,
        str(node.lease.owner.pid),
        node.row.release,
        str(node.row.level),
        str(node.row.files_end),
        str(node.row.served_position),
        format_seconds(status.age_seconds),
        format_seconds(status.lease_seconds) if status.is_alive else OVER,
    )


def _node_to_json(node: Node) -> dict[str, Any]:
    return {
        "id": node.id,
        "host": node.lease.owner.host,
        "pid": node.lease.owner.pid,
        "release": node.row.release,
        "level": node.row.level,
        "files_end": node.row.files_end,
        "served_position": node.row.served_position,
    }


def _status_of_node(status: NodeStatus) -> dict[str, Any]:
    return _node_to_json(status.node) | {
        "alive": status.is_alive,
        "age_seconds": status.age_seconds,
        "lease_seconds": status.lease_seconds,
        "datasets": {
            name: {"version": version, "fingerprint": fingerprint}
            for name, (version, fingerprint) in status.node.row.datasets.items()
        },
    }


def cluster_leases_command(options: DatabaseOptions, output: Output) -> None:
    """List the leases for work that one process does at a time, with the present or last owner.

    With `--json`: `{leases: [{name, owner, host, pid, epoch, held, age_seconds,
    lease_seconds}]}`.
    """
    with options.with_rows() as storage, storage.transaction(TransactionMode.READ) as connection:
        found = cluster.read_leases(connection)
    output.table(
        ("lease", "owner", "host", "pid", "epoch", "age", "expires in"),
        [
            (
                (status.lease.name, "bold"),
                status.lease.owner.id,
                status.lease.owner.host,
                str(status.lease.owner.pid),
                str(status.lease.epoch),
                format_seconds(status.age_seconds),
                format_seconds(status.lease_seconds) if status.is_held else "not held",
            )
            for status in found
        ],
        right=("pid", "epoch", "age", "expires in"),
        empty="no leases",
    )
    output.document({"leases": [_lease_to_json(status) for status in found]})


def _lease_to_json(status: LeaseStatus) -> dict[str, Any]:
    lease = status.lease
    return {
        "name": lease.name,
        "owner": lease.owner.id,
        "host": lease.owner.host,
        "pid": lease.owner.pid,
        "epoch": lease.epoch,
        "held": status.is_held,
        "age_seconds": status.age_seconds,
        "lease_seconds": max(0.0, status.lease_seconds),
    }


def cluster_evict_command(
    options: DatabaseOptions,
    confirmation: Confirmation,
    output: Output,
    nodes: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NODE]...", help="Ids of nodes, or prefixes of them."),
    ] = None,
    expired: Annotated[
        bool, typer.Option("--expired", help="Evict the nodes whose lease has expired.")
    ] = False,
) -> None:
    """Evict processes: their writes are refused until they open the database again.

    With `--json`: `{evicted: [{id, host, pid, release, level, files_end, served_position}],
    seq}`.
    """
    if bool(nodes) == expired:
        raise UsageError("give the ids of the nodes to evict, or --expired")
    with options.with_rows() as storage:
        with storage.transaction(TransactionMode.READ) as connection:
            wanted = _find_wanted(connection, nodes or [], expired=expired)
        for status in wanted:
            lease = f"its lease expires in {format_seconds(status.lease_seconds)}"
            output.write(f"{status.node}: {lease if status.is_alive else 'its lease has expired'}")
        evicted: list[Node] = []
        whom = "it" if len(wanted) == 1 else f"these {len(wanted)} nodes"
        if not wanted:
            output.write("nothing was changed")
        elif confirmation.is_given("an eviction", f"evict {whom}?", output):
            evicted = cluster.evict_nodes(storage, [status.node.id for status in wanted])
        seq = read_seq(storage.connection())
    if evicted:
        output.write(("evicted ", "green"), format_count(len(evicted), "node"))
    output.document({"evicted": [_node_to_json(node) for node in evicted], "seq": seq})


def _find_wanted(connection: Connection, given: list[str], *, expired: bool) -> list[NodeStatus]:
    if expired:
        return [status for status in cluster.read_nodes(connection) if not status.is_alive]
    return cluster.find_nodes(connection, given)


def cluster_upgrade_command(
    options: DatabaseOptions,
    output: Output,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be done, and change nothing.")
    ] = False,
) -> None:
    """Raise the cluster level to the highest that this release and all running processes support.

    From then on, features of the new level can be used, and older releases are refused. The level
    can't be lowered again. zapdb's own tables are upgraded to the storage version of this release.

    With `--json`: `{dry_run, before, after, supported, storage_versions: [VERSION], waiting_for:
    [NODE], seq}`; `waiting_for` are the processes that keep the level below `supported`.
    """
    with options.with_rows() as storage:
        done = cluster.upgrade_cluster(storage, dry_run=dry_run)
        seq = read_seq(storage.connection())
    _write_upgrade(done, output, dry_run=dry_run)
    output.document(
        {
            "dry_run": dry_run,
            "before": done.before,
            "after": done.after,
            "supported": release.LEVEL,
            "storage_versions": [upgrade.version for upgrade in done.layout],
            "waiting_for": [_node_to_json(node) for node in done.waiting_for],
            "seq": seq,
        }
    )


def _write_upgrade(done: LevelUpgrade, output: Output, *, dry_run: bool) -> None:
    would = "would rise" if dry_run else "rose"
    if done.after > done.before:
        output.write(f"the level {would} from {done.before} to ", (str(done.after), "bold"))
    else:
        output.write("the level is ", (str(done.before), "bold"))
    for upgrade in done.layout:
        output.write(f"storage version {upgrade.version}: {'would be run' if dry_run else 'done'}")
    for node in done.waiting_for:
        output.write(f"{node} supports only level {node.row.level}, release {node.row.release}")
