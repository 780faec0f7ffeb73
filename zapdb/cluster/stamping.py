"""Giving stamps to the change log: what may write does it for what only reads (rule 29).

A process that writes nothing sees the changes that have a stamp. So each node gives stamps with its
heartbeats, for all tenants, and once more for its own when it closes: what is behind for longer was
left by a process that was killed, and waits for the next node.
"""

from __future__ import annotations

from typing import Final

from zapdb.catalog import rows
from zapdb.catalog.kinds import Tenant
from zapdb.catalog.stored import read_chain_state
from zapdb.limits import NODE_HEARTBEAT_SECONDS, STAMPED_TENANTS_MAX
from zapdb.storage import Storage, TransactionMode
from zapdb.storage.cells import as_number
from zapdb.storage.change_log import ChangeLog
from zapdb.storage.moments import moments_of
from zapdb.storage.stamps import add_stamp, needs_stamp

STAMP_AGE_SECONDS: Final = NODE_HEARTBEAT_SECONDS / 2
"""A newest stamp that is younger is left as it is: nodes don't all add one with each heartbeat."""


def give_stamp(storage: Storage, tenant: int) -> None:
    """Give the visible changes of a tenant that have no stamp one, unless a rollback is under
    way."""
    if storage.dialect == "sqlite" or not needs_stamp(storage.connection(), tenant):
        return
    with storage.transaction(TransactionMode.JOB) as begun:
        if read_chain_state(begun).rolling_back is None:
            add_stamp(begun, tenant)


def raise_watermarks(storage: Storage) -> None:
    """Raise the watermarks of logs that have not been raised for a while: those with changes that
    wait for a stamp first, then the oldest ones."""
    for tenant in list_due(storage):
        with storage.transaction(TransactionMode.JOB) as begun:
            row = rows.get(begun, Tenant, tenant)
            if row is None or row.removing or read_chain_state(begun).rolling_back is not None:
                continue
            moments_of(ChangeLog(storage, tenant)).raise_watermark(begun)


def list_due(storage: Storage) -> list[int]:
    age_us = int(STAMP_AGE_SECONDS * 1_000_000)
    connection, before = storage.connection(), f"({storage.clock_sql}) - {age_us}"
    if storage.dialect == "sqlite":  # all tenants have one watermark
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
        " SELECT logged.tenant FROM logged"
        " LEFT JOIN LATERAL (SELECT snapshot, stamped_at FROM zapdb_stamps AS s"
        " WHERE s.tenant = logged.tenant ORDER BY s.number DESC LIMIT 1) AS newest ON true"
        f" WHERE logged.tenant IS NOT NULL AND coalesce(newest.stamped_at, 0) < {before}"
        " ORDER BY (SELECT max(t.number) FROM zapdb_transactions AS t"
        " WHERE t.tenant = logged.tenant)"
        " >= coalesce(split_part(newest.snapshot, ':', 1)::bigint, 0) DESC,"
        f" coalesce(newest.stamped_at, 0) LIMIT {STAMPED_TENANTS_MAX}"
    )
    return [as_number(tenant) for (tenant,) in found]
