"""Giving stamps to the change log: what may write does it for what only reads (rule 29).

A process that writes nothing sees the changes that have a stamp. So one node gives stamps with its
heartbeats, for all tenants, under a lease, and each node once more for its own tenants when it
closes: what is behind for longer was left by a process that was killed, and waits for the one that
has the lease.
"""

from __future__ import annotations

import logging
import time
from typing import Final

from zapdb.catalog import rows
from zapdb.catalog.cluster import leases
from zapdb.catalog.cluster.leases import Lease, Owner
from zapdb.catalog.row_kinds import Tenant
from zapdb.errors import ConcurrencyError, LeaseHeld, LeaseLost, ZapdbError
from zapdb.limits import (
    NODE_HEARTBEAT_SECONDS,
    NODE_LEASE_SECONDS,
    RAISED_TENANTS_MAX,
    STAMPED_TENANTS_MAX,
)
from zapdb.log.change_log import ChangeLog
from zapdb.log.moments import moments_of
from zapdb.log.stamps import add_stamp, needs_stamp
from zapdb.storage import Storage, TransactionMode
from zapdb.storage.cells import as_number

STAMPS_LEASE: Final = "stamps"
STAMP_AGE_SECONDS: Final = NODE_HEARTBEAT_SECONDS / 2
"""A newest stamp that is younger is left as it is."""
STAMPING_SECONDS_MAX: Final = NODE_HEARTBEAT_SECONDS / 2
"""How long one heartbeat gives stamps: the node has its own lease to renew. The next one goes on
with those that wait the longest."""

logger = logging.getLogger("zapdb.nodes")


def give_stamp(storage: Storage, tenant: int) -> None:
    """Give the visible changes of a tenant that have no stamp one."""
    if storage.dialect.name == "sqlite" or not needs_stamp(storage.connection(), tenant):
        return
    with storage.transaction(TransactionMode.JOB) as begun:
        add_stamp(begun, tenant)


class Stamping:
    """What one node does for the logs of all tenants, under a lease; the others look whether
    somebody has it, and do no more.

    If that node ends without giving it back, another one has it within `NODE_LEASE_SECONDS`. SQLite
    needs no lease: all its tenants have one watermark.
    """

    def __init__(self, storage: Storage, owner: Owner) -> None:
        self._storage = storage
        self._owner = owner
        self._held: Lease | None = None

    def beat(self) -> None:
        """Raise the watermarks of all logs, unless another node does that."""
        if self._storage.dialect.name == "sqlite" or self._hold():
            raise_watermarks(self._storage)

    def end(self) -> None:
        """Give the lease back."""
        if self._held is not None:
            leases.release(self._storage, self._held)
        self._held = None

    def _hold(self) -> bool:
        """Renew the lease, or take it if it is free; return whether this node has it."""
        if self._held is not None:
            try:
                with self._storage.transaction(TransactionMode.CATALOG) as connection:
                    self._held = leases.renew(connection, self._held, NODE_LEASE_SECONDS)
            except LeaseLost:
                self._held = None
            return self._held is not None
        connection = self._storage.connection()
        found = leases.read_lease(connection, STAMPS_LEASE)
        if found is not None and not found.is_over(self._storage.now_us(connection)):
            return False
        try:
            self._held = leases.acquire(
                self._storage, STAMPS_LEASE, self._owner, NODE_LEASE_SECONDS
            )
        except LeaseHeld:  # another node was faster
            return False
        return True


def raise_watermarks(storage: Storage) -> None:
    """Raise the watermarks of logs that have not been raised for a while: those with changes that
    wait for a stamp first, then the oldest ones. What is wrong with one log is told, and keeps no
    other one from its stamp."""
    until = time.monotonic() + STAMPING_SECONDS_MAX
    for tenant in list_due(storage):
        if time.monotonic() > until:
            return
        try:
            _raise_watermark(storage, tenant)
        except ZapdbError as error:
            if storage.pool.is_closed:
                raise
            level = logging.INFO if isinstance(error, ConcurrencyError) else logging.WARNING
            told = "changes of tenant %d got no stamp, which is tried again: %s"
            logger.log(level, told, tenant, error)


def _raise_watermark(storage: Storage, tenant: int) -> None:
    """Raise the watermark of one log. Raises `ConcurrencyError` where it would wait for a schema
    change on PostgreSQL: the lease of the node would end meanwhile. On SQLite no lease is renewed
    while another process writes, and one that writes for long extends it."""
    is_sqlite = storage.dialect.name == "sqlite"
    mode = TransactionMode.JOB if is_sqlite else TransactionMode.NOWAIT
    with storage.transaction(mode) as begun:
        row = rows.get(begun, Tenant, tenant)
        if row is None or row.removing:
            return
        moments_of(ChangeLog(storage, tenant)).raise_watermark(begun)


def list_due(storage: Storage) -> list[int]:
    """Return the tenants whose watermarks are to be raised now, the most urgent first."""
    age_us = int(STAMP_AGE_SECONDS * 1_000_000)
    connection, before = storage.connection(), f"({storage.dialect.clock_sql}) - {age_us}"
    if storage.dialect.name == "sqlite":  # all tenants have one watermark
        found = connection.fetch_all(
            "SELECT tenant FROM zapdb_transactions WHERE"
            f" (SELECT value FROM zapdb_counters WHERE name = 'change_at') < {before} LIMIT 1"
        )
        return [as_number(tenant) for (tenant,) in found]
    found = connection.fetch_all(
        # One search in the index for each tenant, however many transactions it has.
        "WITH RECURSIVE logged (tenant) AS (SELECT min(tenant) FROM zapdb_transactions UNION ALL"
        " SELECT (SELECT min(later.tenant) FROM zapdb_transactions AS later"
        " WHERE later.tenant > logged.tenant) FROM logged WHERE logged.tenant IS NOT NULL)"
        " SELECT logged.tenant, ((SELECT max(t.number) FROM zapdb_transactions AS t"
        " WHERE t.tenant = logged.tenant)"
        " >= coalesce(split_part(newest.snapshot, ':', 1)::bigint, 0))::int AS waits FROM logged"
        " LEFT JOIN LATERAL (SELECT snapshot, stamped_at FROM zapdb_stamps AS s"
        " WHERE s.tenant = logged.tenant ORDER BY s.number DESC LIMIT 1) AS newest ON true"
        f" WHERE logged.tenant IS NOT NULL AND coalesce(newest.stamped_at, 0) < {before}"
        " ORDER BY waits DESC, coalesce(newest.stamped_at, 0)"
        f" LIMIT {STAMPED_TENANTS_MAX}"
    )
    due = [(as_number(tenant), as_number(waits)) for tenant, waits in found]
    idle = [tenant for tenant, waits in due if not waits]
    return [tenant for tenant, waits in due if waits] + idle[:RAISED_TENANTS_MAX]
