"""`zapdb cluster`: the processes that have the database open, their leases, and the cluster
level."""

from __future__ import annotations

from typing import Annotated

import typer

from zapdb.cli.connecting import ServedDatabaseOptions
from zapdb.cli.output import Confirmation, Output, Part, format_count, format_seconds
from zapdb.control import cluster
from zapdb.control.cluster import ClusterNode, ClusterNodeStatus, ClusterOverview, LevelRise
from zapdb.errors import UsageError
from zapdb.printing import one_line

OVER: Part = ("over", "red")


def cluster_status_command(options: ServedDatabaseOptions, output: Output) -> None:
    """Show the cluster level, the running releases, the tenants' positions, and waiting migrations.

    With `--json`: `{level, level_possible, level_policy, storage_version, storage_pending,
    releases, nodes: {alive, expired}, stored, tenants: [{position, tenants}],
    waiting: [{number, label, waiting_for: [NODE]}], jobs: [{id, kind, table, state}], leases:
    [LEASE]}`. NODE and LEASE are as in `cluster nodes` and `cluster leases`. `waiting` are the
    stored migrations that are not active for every tenant, with the running processes whose files
    do not contain them.
    """
    with options.control() as control:
        status = control.call(cluster.get_status)
    _write_status(status, output)
    output.document(status)


def _write_status(status: ClusterOverview, output: Output) -> None:
    is_low = status.level_possible > status.level
    could = f", and could be {status.level_possible}" if is_low else ""
    output.write("level ", (str(status.level), "bold"), f"{could} ({status.level_policy})")
    waits = ", ".join(status.storage_pending)
    output.write(
        f"storage version {status.storage_version}" + (f", waiting: {waits}" if waits else "")
    )
    releases = ", ".join(f"{count} of {name}" for name, count in status.releases.items())
    expired = status.nodes.expired
    output.write(
        format_count(status.nodes.alive, "node"),
        f": {releases}" if releases else "",
        f"; {expired} expired" if expired else "",
    )
    positions = ", ".join(
        f"{one.position}: {format_count(one.tenants, 'tenant')}" for one in status.tenants
    )
    output.write(f"{format_count(status.stored, 'migration')} stored; at {positions}")
    for inactive in status.waiting:
        lacking = "; ".join(map(_show_node, inactive.waiting_for))
        said = f": not in the files of {lacking}" if lacking else ": in the files of all nodes"
        output.write(f"not active everywhere: {inactive.label}{said}")
    for job in status.jobs:
        output.write(f"job: {job.kind} {job.table}, {job.state}")
    for lease in status.leases:
        owner = one_line(f"{lease.owner} (host {lease.host}, process {lease.pid})")
        output.write(f"lease: {lease.name} of {owner}, {format_seconds(lease.age_seconds)}")


def _show_node(node: ClusterNode) -> str:
    # The text is from a row of the database, which may have been tampered with.
    return one_line(f"{node.id} (host {node.host}, process {node.pid})")


def cluster_nodes_command(options: ServedDatabaseOptions, output: Output) -> None:
    """List the processes that have the database open, the oldest first.

    A process whose lease has expired is dead or suspended; after it is evicted, its writes are
    refused. `files end` is the newest migration in its files, and `served` the position whose
    schema it uses, which may be that of a migration that was rolled back.

    With `--json`: `{nodes: [{id, host, pid, release, level, files_end, served_position,
    rolled_back, alive, age_seconds, lease_seconds, datasets}]}`.
    """
    with options.control() as control:
        found = control.call(cluster.list_nodes)
    columns = (
        *("node", "host", "pid", "release", "level"),
        *("files end", "served", "age", "lease left"),
    )
    numbers = "pid", "level", "files end", "served", "age", "lease left"
    output.table(
        columns,
        [_node_row(one) for one in found.nodes],
        right=numbers,
        empty="no process has the database open",
    )
    output.document(found)


def _node_row(node: ClusterNodeStatus) -> tuple[Part, ...]:
    return (
        (node.id, "bold"),
        node.host,
        str(node.pid),
        node.release,
        str(node.level),
        str(node.files_end),
        f"{node.served_position}{', rolled back' if node.rolled_back else ''}",
        format_seconds(node.age_seconds),
        format_seconds(node.lease_seconds) if node.alive else OVER,
    )


def cluster_leases_command(options: ServedDatabaseOptions, output: Output) -> None:
    """List the leases for work that one process does at a time, with the present or last owner.

    With `--json`: `{leases: [{name, owner, host, pid, epoch, held, age_seconds,
    lease_seconds}]}`.
    """
    with options.control() as control:
        found = control.call(cluster.list_leases)
    output.table(
        ("lease", "owner", "host", "pid", "epoch", "age", "expires in"),
        [
            (
                (lease.name, "bold"),
                lease.owner,
                lease.host,
                str(lease.pid),
                str(lease.epoch),
                format_seconds(lease.age_seconds),
                format_seconds(lease.lease_seconds) if lease.held else "not held",
            )
            for lease in found.leases
        ],
        right=("pid", "epoch", "age", "expires in"),
        empty="no leases",
    )
    output.document(found)


def cluster_evict_command(
    options: ServedDatabaseOptions,
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

    With `--json`: `{evicted: [{id, host, pid, release, level, files_end, served_position,
    rolled_back}], seq}`.
    """
    if bool(nodes) == expired:
        raise UsageError("give the ids of the nodes to evict, or --expired")
    with options.control() as control:
        wanted = control.call(cluster.find_nodes, tuple(nodes or ())).nodes
        for node in wanted:
            lease = f"its lease expires in {format_seconds(node.lease_seconds)}"
            said = lease if node.alive else "its lease has expired"
            output.write(f"{_show_node(node)}: {said}")
        whom = "it" if len(wanted) == 1 else f"these {len(wanted)} nodes"
        if not wanted:
            output.write("nothing was changed")
        elif not confirmation.is_given("an eviction", f"evict {whom}?", output):
            wanted = ()
        done = control.call(cluster.evict_nodes, tuple(node.id for node in wanted))
    if done.evicted:
        output.write(("evicted ", "green"), format_count(len(done.evicted), "node"))
    output.document(done)


def cluster_upgrade_command(
    options: ServedDatabaseOptions,
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
    with options.control() as control:
        done = control.call(cluster.upgrade, dry_run)
    _write_upgrade(done, output)
    output.document(done)


def _write_upgrade(done: LevelRise, output: Output) -> None:
    would = "would rise" if done.dry_run else "rose"
    if done.after > done.before:
        output.write(f"the level {would} from {done.before} to ", (str(done.after), "bold"))
    else:
        output.write("the level is ", (str(done.before), "bold"))
    run = "would be run" if done.dry_run else "done"
    for version in done.storage_versions:
        output.write(f"storage version {version}: {run}")
    for node in done.waiting_for:
        supports = f"supports only level {node.level}, release {node.release}"
        output.write(f"{_show_node(node)} {supports}")
