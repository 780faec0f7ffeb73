"""What a writing Spark job has done, so that each row is written once, however often Spark runs a
task.

Each partition is a range of the job, with a fence: of two attempts at the same time, the older one
can't commit. Each committed batch leaves a mark, in its own transaction: a digest of each of its
rows. Another attempt leaves out the rows that have marks. Rows are known by what they hold, not by
their place, since after a shuffle Spark gives the same rows in another order.

    ("spark/JOB", partition)             the partition: fence, rows written, done
    ("spark/JOB/PARTITION", batch)       a committed batch: 16 bytes for each row, in `lower`
    ("spark/JOB", -1)                    the whole job: done or not

An attempt that Spark gave up long ago may begin after the whole job was done, when its marks are
gone. So the row of the whole job stays: for as long as marks are kept, or for ever if the job has a
name of its own, so that another run of it writes nothing. A claim shares that row's lock, and the
end of the job takes it: it waits for claims under way, and removes what they claimed.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from zapdb.catalog.cluster.leases import Owner
from zapdb.jobs.job import DONE, FREE, RUNNING, Range, draw_first_fence
from zapdb.jobs.progress import BatchCounts, record_progress
from zapdb.limits import CATALOG, SPARK_MARKS_KEPT_SECONDS
from zapdb.storage import Connection, DuplicateKey, Storage, TransactionMode
from zapdb.storage.cells import as_bytes
from zapdb.storage.fixed_tables import RANGES
from zapdb.storage.retries import retry

DIGEST_SIZE_BYTES: Final = 16
PREFIX: Final = "spark/"
WHOLE_JOB: Final = -1
"""The number of the range that stands for the whole job."""


def digest_row(values: Sequence[Any]) -> bytes:
    """Stands for the values of a row: equal values of equal types have the same."""
    text = repr(values).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, digest_size=DIGEST_SIZE_BYTES).digest()


@dataclass
class PartitionMarks:
    """A claimed partition of a job, and the rows that were committed before, which are left out."""

    storage: Storage
    claimed: Range
    is_done: bool
    written: int
    """Rows that are committed, in all attempts."""
    known: Counter[bytes]
    """Digests of rows that earlier attempts have committed, and this one has not seen yet."""
    batches: int

    @classmethod
    def claim(cls, storage: Storage, job: str, partition: int) -> PartitionMarks:
        """Claim a partition from any earlier attempt, which can't commit from then on."""
        return retry(CATALOG, lambda: cls._claim(storage, PREFIX + job, partition), on=DuplicateKey)

    @classmethod
    def _claim(cls, storage: Storage, job: str, partition: int) -> PartitionMarks:
        with storage.transaction(TransactionMode.CATALOG) as connection:
            if _lock_whole(connection, job, is_shared=True) == DONE:
                return cls(
                    storage, Range(job, partition, None, None, 0, None), True, 0, Counter(), 0
                )
            where = (RANGES.c.job == job, RANGES.c.range == partition)
            query = sa.select(RANGES.c.fence, RANGES.c.state, RANGES.c.written).where(*where)
            row = connection.core_execute(query.with_for_update()).one_or_none()
            if row is None:
                _insert(connection, job, partition, None, FREE)
            fence = draw_first_fence() if row is None else row.fence + 1
            if row is None or row.state != DONE:
                connection.core_execute(
                    sa.update(RANGES)
                    .where(*where)
                    .values(state=RUNNING, fence=fence, owner=Owner.here().to_text())
                )
            marks = connection.core_execute(
                sa.select(RANGES.c.lower).where(RANGES.c.job == f"{job}/{partition}")
            ).fetchall()
        known = Counter[bytes]()
        for (packed,) in marks:
            known.update(_unpack(as_bytes(packed)))
        return cls(
            storage,
            Range(job, partition, None, None, fence, None),
            row is not None and row.state == DONE,
            0 if row is None else int(row.written),
            known,
            len(marks),
        )

    def take(self, digest: bytes) -> bool:
        """Whether a row is to be written; if not, an earlier attempt has committed it."""
        if self.known.get(digest, 0):
            self.known[digest] -= 1
            if not self.known[digest]:
                del self.known[digest]
            return False
        return True

    def save(self, connection: Connection, digests: Sequence[bytes]) -> None:
        """Mark the rows of a batch, in its transaction; raises `LeaseLost`."""
        counted = BatchCounts(len(digests), len(digests))
        record_progress(connection, self.claimed, None, counted)
        job = f"{self.claimed.job}/{self.claimed.number}"
        _insert(connection, job, self.batches, b"".join(digests), DONE)

    def committed(self, count: int) -> None:
        """The batch that was saved last is committed."""
        self.batches += 1
        self.written += count

    def finish(self) -> None:
        """The partition is done; its marks go."""
        with self.storage.transaction(TransactionMode.CATALOG) as connection:
            record_progress(connection, self.claimed, None, done=True)
            job = f"{self.claimed.job}/{self.claimed.number}"
            connection.core_execute(sa.delete(RANGES).where(RANGES.c.job == job))


def is_job_done(connection: Connection, job: str) -> bool:
    """Whether a job of this name has been written as a whole."""
    query = sa.select(RANGES.c.state).where(*_whole(PREFIX + job))
    return connection.core_execute(query).scalar() == DONE


def _whole(job: str) -> tuple[sa.ColumnElement[bool], ...]:
    return RANGES.c.job == job, RANGES.c.range == WHOLE_JOB


def _lock_whole(connection: Connection, job: str, *, is_shared: bool) -> str:
    """Return the state of the whole job, and keep it as it is until the transaction ends; raises
    `DuplicateKey` if another transaction makes its row."""
    query = sa.select(RANGES.c.state).where(*_whole(job)).with_for_update(read=is_shared)
    state: str | None = connection.core_execute(query).scalar()
    if state is None:
        _insert(connection, job, WHOLE_JOB, None, FREE)
    return state or FREE


def finish_job(storage: Storage, job: str, *, is_named: bool) -> None:
    """Remove the rows of a job that is written, but for the one that says so."""
    retry(CATALOG, lambda: _finish_job(storage, PREFIX + job, is_named=is_named), on=DuplicateKey)


def _finish_job(storage: Storage, job: str, *, is_named: bool) -> None:
    with storage.transaction(TransactionMode.CATALOG) as connection:
        now = storage.now_us(connection)
        if _lock_whole(connection, job, is_shared=False) != DONE:
            ended = sa.update(RANGES).where(*_whole(job))
            kept_from = 0 if is_named else now
            connection.core_execute(ended.values(state=DONE, expires_at=kept_from))
        parts = (RANGES.c.job == job, RANGES.c.range != WHOLE_JOB)
        connection.core_execute(sa.delete(RANGES).where(*parts))
        # What jobs left behind with which nobody has gone on for long.
        before = now - int(SPARK_MARKS_KEPT_SECONDS * 1e6)
        old = sa.select(RANGES.c.job).where(
            RANGES.c.job.startswith(PREFIX),
            RANGES.c.expires_at > 0,
            RANGES.c.expires_at < before,
        )
        for (name,) in connection.core_execute(old.distinct()).fetchall():
            connection.core_execute(
                sa.delete(RANGES).where(
                    sa.or_(RANGES.c.job == name, RANGES.c.job.startswith(f"{name}/"))
                )
            )


def _unpack(packed: bytes) -> list[bytes]:
    size = DIGEST_SIZE_BYTES
    return [packed[at : at + size] for at in range(0, len(packed), size)]


def _insert(connection: Connection, job: str, number: int, lower: bytes | None, state: str) -> None:
    connection.core_execute(
        sa.insert(RANGES).values(
            job=job,
            range=number,
            lower=lower,
            upper=None,
            state=state,
            fence=0,
            owner="",
            expires_at=0,
            resume_after=None,
            read=0,
            written=0,
            conflicts=0,
        )
    )
