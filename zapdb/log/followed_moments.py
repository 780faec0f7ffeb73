"""Following a tenant's change log from one moment on: its transactions as moments, in order.

`moments` finds single moments; this module goes forward from a known one, and so counts nothing
again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from zapdb.log.change_log import COMMIT_ORDER_MAX, Bookmark, ChangeLog, Fetch
from zapdb.log.moments import LoggedMoment

FOLLOWED_PAGE: Final = 1_000
"""Transactions that are read at a time."""


@dataclass(frozen=True, slots=True)
class FollowedMoment:
    """A moment with its transaction; times in microseconds since 1970-01-01 UTC."""

    moment: LoggedMoment
    principal: str
    made_at: int

    @property
    def place(self) -> tuple[int, int]:
        """The stamp and the commit order of its transaction, which name it in the log."""
        return self.moment.stamp, self.moment.commit_order


def follow_moments(
    log: ChangeLog, fetch: Fetch, after: LoggedMoment, until: int
) -> Iterator[FollowedMoment]:
    """Yield the moments after one, up to a stamp, in order; those without changes too.

    `after` needs no transaction that is still in the log, only its number, place and time.
    """
    if log.is_numbered:
        return _follow_numbers(log, fetch, after, until)
    return _follow_stamps(log, fetch, after, until)


def _follow_numbers(
    log: ChangeLog, fetch: Fetch, after: LoggedMoment, until: int
) -> Iterator[FollowedMoment]:
    sql = (
        f"SELECT number, principal, made_at FROM zapdb_transactions WHERE tenant = {log.tenant}"
        " AND number > ? AND number <= ? ORDER BY number LIMIT ?"
    )
    place = after.number
    while page := fetch(sql, (place, until, FOLLOWED_PAGE)):
        for number, principal, made_at in page:
            moment = LoggedMoment(number, number, number, made_at, number)
            yield FollowedMoment(moment, principal, made_at)
        place = page[-1][0]


def _follow_stamps(
    log: ChangeLog, fetch: Fetch, after: LoggedMoment, until: int
) -> Iterator[FollowedMoment]:
    number, visible_at = after.number, after.visible_at
    begin = Bookmark(after.stamp, 0, 0, b"")
    for stamp in log.list_stamps(fetch, begin, until):
        visible_at = max(visible_at, stamp.first_visible_at)
        place = after.commit_order if stamp.number == after.stamp else -1
        condition, parameters = stamp.condition
        sql = (
            "SELECT commit_order, number, principal, made_at FROM zapdb_transactions"
            f" WHERE tenant = {log.tenant} AND {condition} AND commit_order > %s"
            " ORDER BY commit_order LIMIT %s"
        )
        while place < COMMIT_ORDER_MAX:
            page = fetch(sql, (*parameters, place, FOLLOWED_PAGE))
            for commit_order, transaction, principal, made_at in page:
                number, visible_at = number + 1, max(visible_at, made_at)
                moment = LoggedMoment(number, stamp.number, commit_order, visible_at, transaction)
                yield FollowedMoment(moment, principal, made_at)
            if len(page) < FOLLOWED_PAGE:
                break
            place = page[-1][0]
