"""Taking what was erased out of what jobs store: bounds of ranges, facts about ranges, quarantine,
and the examples of findings, which have keys and values of records in words.

An erased record is gone, so the key of the one before it bounds the same records. Which examples
are of it can't be told, also in other tables that refer to it: all of the tenant go, and the counts
stay. A job that is run again finds examples of what is left."""

from __future__ import annotations

import sqlalchemy as sa
from msgspec import structs

from zapdb.catalog import rows
from zapdb.catalog.row_kinds import ConstraintFinding, FindingsRow, Job
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


def forget_examples(connection: Connection, tenant: int) -> int:
    """Take the examples out of all findings of a tenant's jobs, inside a transaction that holds the
    gate; returns how many there were."""
    forgotten = 0
    for found in rows.list_rows(connection, Job):
        job = rows.get(connection, Job, found.id, lock=True) if found.tenant == tenant else None
        if job is None:
            continue
        noted: list[Job | FindingsRow] = [job, *rows.list_rows(connection, FindingsRow, job.id)]
        for row in noted:
            shown = sum(len(finding.examples) for finding in row.findings)
            if shown:
                left = tuple(ConstraintFinding(one.what, one.count, ()) for one in row.findings)
                rows.put(connection, structs.replace(row, findings=left))
                forgotten += shown
    return forgotten


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
        f"SELECT key FROM zapdb_records_{int(table)} WHERE tenant = {int(tenant)}"
        f" AND key < {mark} ORDER BY key DESC LIMIT 1",
        (key,),
    )
    return None if row is None else as_bytes(row[0])
