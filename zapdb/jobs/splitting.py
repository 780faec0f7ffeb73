"""Ranges that lag are cut in two, so that a worker who has none left takes the rest of another's.

The worker of the range keeps the part up to the middle of what is left. It learns that in its next
batch, which is undone and done again with the new end (`RangeShortened`). The other part is a new
range, free to be claimed; it is made in one transaction with the cut. So each key is in one
range at any time, whichever process dies, and whatever becomes of a COMMIT.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import sqlalchemy as sa

from zapdb.catalog.cluster.leases import Owner
from zapdb.errors import UnknownName
from zapdb.jobs.job import FREE, RUNNING, Range, claim, insert_ranges, read_job
from zapdb.jobs.work import Work
from zapdb.limits import CATALOG, SPLIT, SPLIT_LOOK_RECORDS, SPLIT_RECORDS_MIN, SPLIT_SECONDS_MIN
from zapdb.storage import Connection, Storage, TransactionMode
from zapdb.storage.cells import as_bytes
from zapdb.storage.fixed_tables import RANGES
from zapdb.storage.retries import attempts, retry
from zapdb.storage.statements import catalog_version_sql


@dataclass(frozen=True, slots=True)
class _Rest:
    """What is left of a running range: how many records, as far as they are counted, and the key
    after which the second half of them begins."""

    number: int
    fence: int
    upper: bytes | None
    left: int
    middle: bytes


class _Outrun(Exception):
    """Another worker was faster."""


def claim_or_split(storage: Storage, work: Work, owner: Owner) -> Range | None:
    """Claim a range, or a part of one that is another worker's; None if nothing is worth it. What
    is free may be claimed by others meanwhile."""
    for _ in attempts(SPLIT):
        claimed = claim(storage, work.job.id, owner)
        if claimed is not None:
            return claimed
        if split_lagging_range(storage, work, takes_free=True) is None:
            return None
    return None


def split_lagging_range(storage: Storage, work: Work, *, takes_free: bool = False) -> int | None:
    """Cut the range in two of which most is left; returns the number of its second part, which is
    free. With `takes_free`, returns that of a range which is free already, if there is one.

    None if there are other ranges to claim, or nothing that is worth it: at the rate of this
    worker, the second part would be done in no time. If another worker is faster, it looks again:
    a worker that gave up would be idle for the rest of the job.
    """
    for _ in attempts(SPLIT):
        with suppress(_Outrun):
            return _try_to_split(storage, work, takes_free=takes_free)
    return None


def _try_to_split(storage: Storage, work: Work, *, takes_free: bool) -> int | None:
    least = max(SPLIT_RECORDS_MIN, int((work.rate or 0) * SPLIT_SECONDS_MIN))
    with storage.transaction(TransactionMode.READ) as connection:
        row = connection.fetch_one(catalog_version_sql(work.job.tenant))
        if row is None or row[0] != work.catalog.version:
            return None  # the table may be another one by now, or none
        rows = _list_unfinished(connection, work.job.id)
        free = [row.range for row in rows if row.state == FREE]
        if free:
            return int(free[0]) if takes_free else None
        rest = _find_longest(connection, work, rows, max(SPLIT_LOOK_RECORDS, 2 * least))
    if rest is None or rest.left < 2 * least:
        return None
    return retry(CATALOG, partial(_split, storage, work.job.id, rest))


def _list_unfinished(connection: Connection, job_id: str) -> Sequence[Any]:
    query = sa.select(RANGES).where(RANGES.c.job == job_id, RANGES.c.state.in_([FREE, RUNNING]))
    return connection.core_execute(query.order_by(RANGES.c.range)).all()


def _find_longest(
    connection: Connection, work: Work, running: Sequence[Any], limit: int
) -> _Rest | None:
    """The running range of which most is left, as far as `limit` records."""
    found = list[_Rest]()
    for row in running:
        after = row.lower if row.resume_after is None else row.resume_after
        left, middle = work.find_middle(connection, after, row.upper, limit)
        if middle is not None:
            found.append(_Rest(row.range, row.fence, row.upper, left, middle))
    return max(found, key=lambda rest: rest.left, default=None)


def _split(storage: Storage, job_id: str, rest: _Rest) -> int | None:
    """Cut a range; None if the job is held back or gone. Raises `_Outrun` if the range has changed
    hands, was cut, or its worker is behind the middle by now."""
    with storage.transaction(TransactionMode.CATALOG) as connection:
        try:
            job = read_job(connection, job_id, lock=True)  # one at a time gives numbers
        except UnknownName:  # the tenant was removed
            return None
        of_job = RANGES.c.job == job_id
        row = connection.core_execute(
            sa.select(RANGES).where(of_job, RANGES.c.range == rest.number).with_for_update()
        ).one_or_none()
        if job.state != "planned":
            return None
        if row is None or row.state != RUNNING:
            raise _Outrun
        if (row.fence, row.upper) != (rest.fence, rest.upper):
            raise _Outrun
        if row.resume_after is not None and as_bytes(row.resume_after) >= rest.middle:
            raise _Outrun
        last = connection.core_execute(sa.select(sa.func.max(RANGES.c.range)).where(of_job))
        number = int(last.scalar_one()) + 1
        connection.core_execute(
            sa.update(RANGES).where(of_job, RANGES.c.range == rest.number).values(upper=rest.middle)
        )
        insert_ranges(connection, job_id, [(rest.middle, rest.upper)], row.fence, number)
    return number
