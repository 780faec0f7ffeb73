"""Following a tenant's change log from one moment on: its transactions as moments, in order.

`moments` finds single moments; this module goes forward from a known one, and so counts nothing
again. It also reads page by page in columns, for a follower that makes columns of the log. A page
has some whole transactions with their changes, or a part of a transaction that is too large for
one. What was before a change is not read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Any, Final

from zapdb.limits import HISTORY_PAGE_CHANGES
from zapdb.log.change_log import COMMIT_ORDER_MAX, Bookmark, ChangeLog, ChangeRow, Fetch
from zapdb.log.moments import LoggedMoment
from zapdb.storage.cells import as_bytes

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


def follow_changes(
    log: ChangeLog, fetch: Fetch, after: LoggedMoment, until: int
) -> Iterator[tuple[FollowedMoment, Iterator[ChangeRow]]]:
    """Yield the same moments, each with the rows of its transaction, to be read before the next.
    Raises `ChangesPruned`."""
    grouped = groupby(log.read(fetch, after.bookmark, until), key=_place_of)
    following = next(grouped, None)
    for made in follow_moments(log, fetch, after, until):
        if following is not None and following[0] == made.place:
            yield made, following[1]
            following = next(grouped, None)
        else:
            yield made, iter(())
    if following is not None:  # its transaction is gone, which was read before
        log.require_unpruned(fetch, after.bookmark)


def _place_of(row: ChangeRow) -> tuple[int, int]:
    return row.transaction.stamp, row.transaction.commit_order


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


INSERTED: Final = 0
UPDATED: Final = 1
DELETED: Final = 2
NOT_PLAIN: Final = 3
"""A schema event, or a change that a reader has to look at more closely."""

_COLUMNS: Final = (
    "transaction_number, table_number, key, after, CASE"
    f" WHEN event IS NOT NULL OR replaced IS NOT NULL THEN {NOT_PLAIN}"
    f" WHEN after IS NULL THEN CASE WHEN before IS NULL THEN {NOT_PLAIN} ELSE {DELETED} END"
    f" WHEN archive_before IS NOT NULL OR archive_after IS NOT NULL THEN {NOT_PLAIN}"
    f" WHEN before IS NULL THEN {INSERTED} ELSE {UPDATED} END"
)
_FIRST_TRANSACTIONS: Final = 16
_TRANSACTIONS: Final = 2_000


@dataclass(frozen=True, slots=True)
class ChangePage:
    """Changes in columns, and the moments that they belong to, which may have none.

    `before` is the moment before them. A `part` is the number of the part of one transaction, from
    0; None for whole ones.
    """

    before: LoggedMoment
    moments: Sequence[FollowedMoment]
    transactions: Sequence[int] = ()
    tables: Sequence[int] = ()
    keys: Sequence[bytes] = ()
    records: Sequence[bytes | None] = ()
    operations: Sequence[int] = ()
    part: int | None = None

    @property
    def last(self) -> LoggedMoment:
        return self.moments[-1].moment


def read_change_pages(
    log: ChangeLog, fetch: Fetch, after: LoggedMoment, until: int
) -> Iterator[ChangePage]:
    """Yield the pages after a moment, up to a stamp; all moments are in one. Raises
    `ChangesPruned`."""
    moments, some = follow_moments(log, fetch, after, until), _FIRST_TRANSACTIONS
    waiting: list[FollowedMoment] = []
    place = after
    while waiting := waiting or list(islice(moments, some)):
        taken = waiting[:some]
        rows = _read(log, fetch, taken)
        log.require_unpruned(fetch, after.bookmark)  # after reading, so the page is complete
        if len(rows) <= HISTORY_PAGE_CHANGES:
            yield _to_page(place, taken, rows, None)
            waiting, some = waiting[some:], _count_next(len(taken), len(rows))
        elif some > 1:
            some = max(1, some // 4)
            continue
        else:
            yield from _read_large(log, fetch, place, taken)
            waiting = waiting[1:]
        place = taken[-1].moment
    log.require_unpruned(fetch, after.bookmark)


def _count_next(transactions: int, changes: int) -> int:
    """Return how many transactions to read after some with so many changes: twice as many, unless
    as many changes each would fill a page. Those that are too many are read again."""
    fitting = HISTORY_PAGE_CHANGES * transactions * 4 // (5 * max(changes, 1))
    return max(1, min(2 * transactions, fitting, _TRANSACTIONS))


def _read(log: ChangeLog, fetch: Fetch, moments: Sequence[FollowedMoment]) -> list[Any]:
    """Return the rows of transactions, and one more than a page has if these are too many."""
    numbers = [found.moment.transaction for found in moments]
    marks = ", ".join([log.storage.placeholder] * len(numbers))
    return fetch(
        f"SELECT {_COLUMNS} FROM zapdb_changes WHERE tenant = {log.tenant}"
        f" AND transaction_number IN ({marks}) LIMIT {HISTORY_PAGE_CHANGES + 1}",
        numbers,
    )


def _read_large(
    log: ChangeLog, fetch: Fetch, before: LoggedMoment, one: Sequence[FollowedMoment]
) -> Iterator[ChangePage]:
    mark, place, part = log.storage.placeholder, (-1, b""), 0
    sql = (
        f"SELECT {_COLUMNS} FROM zapdb_changes WHERE tenant = {log.tenant}"
        f" AND transaction_number = {one[0].moment.transaction}"
        f" AND (table_number, key) > ({mark}, {mark})"
        f" ORDER BY table_number, key LIMIT {HISTORY_PAGE_CHANGES}"
    )
    while rows := fetch(sql, place):
        yield _to_page(before, one, rows, part)
        place, part = (rows[-1][1], as_bytes(rows[-1][2])), part + 1


def _to_page(
    before: LoggedMoment, moments: Sequence[FollowedMoment], rows: list[Any], part: int | None
) -> ChangePage:
    if not rows:
        return ChangePage(before, moments, part=part)
    transactions, tables, keys, records, operations = zip(*rows, strict=True)
    for cells in (keys, records):
        if {*map(type, cells)} - {bytes, type(None)}:
            for cell in cells:
                if cell is not None:
                    as_bytes(cell)
    return ChangePage(before, moments, transactions, tables, keys, records, operations, part)
