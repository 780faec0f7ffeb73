"""The progress of a range: noted in the transaction of each batch, under the fence of its claim.

A batch whose range is another worker's by now, or ends earlier, is refused as a whole. On
PostgreSQL the refusal comes with COMMIT, since progress and COMMIT travel together
(decisions/0052); what it means is looked up afterwards. After a COMMIT whose outcome is unknown,
the range gets another fence: then the batch can't be committed any more, and whether it was is
known.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from zapdb.errors import LeaseLost
from zapdb.jobs.job import DONE, RUNNING, Range, as_place, lease_us
from zapdb.storage import Connection, Storage, TransactionMode
from zapdb.storage.cells import as_bytes, as_number

_NOTE: Final = (
    'UPDATE zapdb_ranges SET resume_after = {mark}, "read" = "read" + {mark},'
    " written = written + {mark}, conflicts = conflicts + {mark},"
    " expires_at = ({clock}) + {lease_us}, state = {mark}"
    " WHERE job = {mark} AND range = {mark} AND fence = {mark} AND upper {end}"
)


class RangeShortened(Exception):
    """Another worker has taken the rest of the range; `upper` is where it ends now."""

    def __init__(self, upper: bytes) -> None:
        super().__init__()
        self.upper = upper


class ProgressRefused(Exception):
    """The range is another worker's by now, or ends earlier: `explain_refusal` tells which."""


@dataclass(frozen=True, slots=True)
class BatchCounts:
    """How many records of one batch were read, how many were written, and how many had
    conflicts."""

    read: int = 0
    written: int = 0
    conflicts: int = 0


def record_progress(
    connection: Connection,
    claimed: Range,
    resume_after: bytes | None,
    counted: BatchCounts | None = None,
    *,
    done: bool = False,
) -> None:
    """Note a batch in the transaction that did it; raises `LeaseLost` if the fence moved on, and
    `RangeShortened` if the range ends earlier by now."""
    sql, parameters = _note(connection, claimed, resume_after, counted or BatchCounts(), done=done)
    if connection.run(sql, parameters) != 1:
        raise explain_refusal(connection, claimed)


def record_totals(
    connection: Connection, claimed: Range, read: int, written: int, *, done: bool = False
) -> None:
    """Note how much of a range was done in all, in whatever order its worker's threads note it;
    raises `LeaseLost` if the fence moved on."""
    mark, place = connection.storage.placeholder, (claimed.job, claimed.number, claimed.fence)
    rows = connection.fetch_all(
        'UPDATE zapdb_ranges SET "read" = "read"'  # locked until COMMIT, then read
        f' WHERE job = {mark} AND range = {mark} AND fence = {mark} RETURNING "read", written',
        place,
    )
    if not rows:
        raise _lease_lost(claimed)
    before = BatchCounts(*map(as_number, rows[0]))
    counts = BatchCounts(read - before.read, written - before.written)
    record_progress(connection, claimed, None, counts, done=done)


def send_progress(
    connection: Connection, claimed: Range, resume_after: bytes, counted: BatchCounts
) -> Callable[[], int | None]:
    """Do the same with COMMIT, if the engine has pipelines: COMMIT may raise `ProgressRefused`.

    Returns a function that tells after COMMIT when the progress was noted, by the database's clock
    in microseconds; None without pipelines.
    """
    if not connection.is_pipelined:
        record_progress(connection, claimed, resume_after, counted)
        return lambda: None
    sql, parameters = _note(connection, claimed, resume_after, counted, done=False)
    noted = connection.fetch_later(
        f"WITH noted AS ({sql} RETURNING expires_at) SELECT max(expires_at), 1 / count(*)"
        " FROM noted",
        parameters,
        ProgressRefused,
    )
    return lambda: int(noted.rows[0][0]) - lease_us()


def explain_refusal(connection: Connection, claimed: Range) -> Exception:
    """Why the progress of a range was refused."""
    mark = connection.storage.placeholder
    row = connection.fetch_one(
        f"SELECT upper FROM zapdb_ranges WHERE job = {mark} AND range = {mark} AND fence = {mark}",
        (claimed.job, claimed.number, claimed.fence),
    )
    is_cut = row is not None and row[0] is not None
    if is_cut and (claimed.upper is None or as_bytes(row[0]) < claimed.upper):
        return RangeShortened(as_bytes(row[0]))
    return _lease_lost(claimed)


def claim_again(storage: Storage, claimed: Range) -> Range:
    """Claim a range that is this worker's under another fence; raises `LeaseLost`.

    It goes on behind what was committed under the fence before. A batch under that fence whose
    COMMIT is still under way is waited for, or refused.
    """
    mark = storage.placeholder
    place = (claimed.job, claimed.number, claimed.fence)
    here = f"job = {mark} AND range = {mark} AND fence = {mark}"
    with storage.transaction(TransactionMode.CATALOG) as connection:
        sql = f"UPDATE zapdb_ranges SET fence = fence + 1 WHERE {here} AND state = {mark}"
        if connection.run(sql, (*place, RUNNING)) != 1:
            raise _lease_lost(claimed)
        renewed = replace(claimed, fence=claimed.fence + 1)
        upper, resume_after = connection.fetch_one(
            f"SELECT upper, resume_after FROM zapdb_ranges WHERE {here}",
            (claimed.job, claimed.number, renewed.fence),
        )
    return replace(renewed, upper=as_place(upper), resume_after=as_place(resume_after))


def _note(
    connection: Connection,
    claimed: Range,
    resume_after: bytes | None,
    counted: BatchCounts,
    *,
    done: bool,
) -> tuple[str, tuple[Any, ...]]:
    """The statement that notes progress, and its parameters."""
    mark = connection.storage.placeholder
    end, ends = ("IS NULL", ()) if claimed.upper is None else (f"= {mark}", (claimed.upper,))
    sql = _NOTE.format(
        mark=mark, clock=connection.storage.dialect.clock_sql, lease_us=lease_us(), end=end
    )
    return sql, (
        resume_after,
        counted.read,
        counted.written,
        counted.conflicts,
        DONE if done else RUNNING,
        claimed.job,
        claimed.number,
        claimed.fence,
        *ends,
    )


def _lease_lost(claimed: Range) -> LeaseLost:
    return LeaseLost(
        "another worker took over the range",
        job=claimed.job,
        range=claimed.number,
        hint="nothing was lost; the other worker continues with it",
    )
