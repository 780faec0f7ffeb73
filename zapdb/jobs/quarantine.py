"""The quarantine: the records that a job could not read, which do not stop the rest.

A batch with such a record is undone and done again without it, and the record's key is noted in the
same transaction. A job with records in quarantine ends blocked: nothing is published, and nothing
that is needed to read them is deleted, until they were restored or deleted and are tried again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa

from zapdb.catalog import rows
from zapdb.catalog.row_kinds import Job
from zapdb.records.unreadable import DecodeKey, show_stored_key
from zapdb.storage import Connection
from zapdb.storage.cells import as_bytes
from zapdb.storage.fixed_tables import QUARANTINE, RANGES

KEY_BYTES_SHOWN: Final = 32


@dataclass(frozen=True, slots=True)
class QuarantinedRecord:
    """A record by its key, why it can't be read, and when that was found, in microseconds since
    1970 UTC."""

    key: bytes
    reason: str
    found_at: int

    def show(self, decode_key: DecodeKey | None) -> str:
        """The key as people give it, if it can be decoded, and in hex; and the reason."""
        raw = self.key.hex()[: 2 * KEY_BYTES_SHOWN]
        shown = self.key.hex() if decode_key is None else show_stored_key(decode_key, self.key)
        named = raw if shown == self.key.hex() else f"{shown} ({raw})"
        return f"{named}: {self.reason}"


def put_in_quarantine(
    connection: Connection, tenant: int, job_id: str, reasons: Mapping[bytes, str]
) -> None:
    """Note records by their keys, in the transaction of the batch that leaves them out."""
    found_at, mark = connection.storage.now_us(connection), connection.storage.placeholder
    connection.run_many(
        "INSERT INTO zapdb_quarantine (tenant, job, key, reason, found_at)"
        f" VALUES ({', '.join([mark] * 5)}) ON CONFLICT (job, key)"
        " DO UPDATE SET reason = excluded.reason, found_at = excluded.found_at",
        [(tenant, job_id, key, reason, found_at) for key, reason in reasons.items()],
    )


def read_keys_between(
    connection: Connection, job_id: str, lower: bytes | None, upper: bytes | None
) -> set[bytes]:
    """Return the keys above `lower`, up to `upper`, that a job has in quarantine."""
    query = sa.select(QUARANTINE.c.key).where(QUARANTINE.c.job == job_id)
    if lower is not None:
        query = query.where(QUARANTINE.c.key > lower)
    if upper is not None:
        query = query.where(QUARANTINE.c.key <= upper)
    return {as_bytes(key) for (key,) in connection.core_execute(query)}


def count_quarantined(connection: Connection, job_id: str) -> int:
    query = sa.select(sa.func.count()).where(QUARANTINE.c.job == job_id)
    return int(connection.core_execute(query).scalar_one())


def list_quarantined(connection: Connection, job_id: str, limit: int) -> list[QuarantinedRecord]:
    """Return the first records that a job has in quarantine, by their keys."""
    query = sa.select(QUARANTINE).where(QUARANTINE.c.job == job_id)
    return [
        QuarantinedRecord(as_bytes(row.key), row.reason, row.found_at)
        for row in connection.core_execute(query.order_by(QUARANTINE.c.key).limit(limit))
    ]


def list_holding_jobs(connection: Connection, tenant: int, table: int, key: bytes) -> list[Job]:
    """Return the jobs that have a record of a table in quarantine."""
    held = QUARANTINE.c
    query = sa.select(held.job).where(held.tenant == tenant, held.key == key).order_by(held.job)
    found = [rows.get(connection, Job, job) for (job,) in connection.core_execute(query).all()]
    return [job for job in found if job is not None and job.table in (table, 0)]


def clear_quarantine(connection: Connection, job_id: str) -> None:
    connection.core_execute(sa.delete(QUARANTINE).where(QUARANTINE.c.job == job_id))


def is_in_range() -> sa.ColumnElement[bool]:
    """The SQL condition that a range of records has a record in its job's quarantine."""
    return (
        sa.select(1)
        .where(
            QUARANTINE.c.job == RANGES.c.job,
            sa.or_(RANGES.c.lower.is_(None), QUARANTINE.c.key > RANGES.c.lower),
            sa.or_(RANGES.c.upper.is_(None), QUARANTINE.c.key <= RANGES.c.upper),
        )
        .exists()
    )
