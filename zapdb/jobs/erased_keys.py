"""Taking the key of an erased record out of what jobs store: bounds of ranges, facts about ranges,
and quarantine. The record is gone, so the key of the one before it bounds the same records."""

from __future__ import annotations

import sqlalchemy as sa

from zapdb.catalog import rows
from zapdb.catalog.kinds import Job
from zapdb.storage import Connection
from zapdb.storage.cells import as_bytes
from zapdb.storage.data_tables import list_record_tables
from zapdb.storage.fixed_tables import QUARANTINE, RANGE_REVISIONS, RANGES


def forget_key(connection: Connection, tenant: int, table: int, key: bytes) -> None:
    """Forget the key of a record that does not exist, inside a transaction that holds the gate."""
    facts, held = RANGE_REVISIONS.c, QUARANTINE.c
    connection.core_execute(
        sa.delete(RANGE_REVISIONS).where(
            facts.tenant == tenant,
            facts.table_number == table,
            sa.or_(facts.lower == key, facts.upper == key),
        )
    )
    before = _find_key_before(connection, tenant, table, key)
    for job in rows.list_rows(connection, Job):
        if job.tenant == tenant and job.table in (table, 0):
            connection.core_execute(
                sa.delete(QUARANTINE).where(held.job == job.id, held.key == key)
            )
            if job.table == table:
                _shift_bounds(connection, job.id, key, before)


def _shift_bounds(connection: Connection, job: str, key: bytes, before: bytes | None) -> None:
    at = RANGES.c
    query = sa.select(at.lower).where(at.job == job, at.upper == key)
    row = connection.core_execute(query).first()
    lower = None if row is None or row[0] is None else as_bytes(row[0])
    bounds = [bound for bound in (lower, before) if bound is not None]
    place = max(bounds, default=b"")
    for column in (at.lower, at.upper, at.resume_after):
        connection.core_execute(
            sa.update(RANGES).where(at.job == job, column == key).values({column: place})
        )


def _find_key_before(connection: Connection, tenant: int, table: int, key: bytes) -> bytes | None:
    if table not in list_record_tables(connection):
        return None
    mark = connection.storage.placeholder
    row = connection.fetch_one(
        f"SELECT max(key) FROM zapdb_records_{int(table)} WHERE tenant = {int(tenant)}"
        f" AND key < {mark}",
        (key,),
    )
    return None if row[0] is None else as_bytes(row[0])
