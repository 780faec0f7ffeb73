"""Migrations that wait for running processes: active only once all of them know it (rule 12)."""

from __future__ import annotations

from dataclasses import dataclass

from zapdb.catalog.cluster import nodes
from zapdb.errors import ActivationPending
from zapdb.migrations import Chain, Migration
from zapdb.storage import Connection, TransactionMode


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
