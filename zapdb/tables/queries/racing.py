"""Two ways to the first records of an order, read in turn: whichever is done first answers.

One way has the matching records in no order: they are all needed, and sorted. The other has all
records in order: it is done when enough of them matched. Which is shorter depends on how many
records match, and on their places in the order, which is not known before. Read in turn, they cost
at most twice what the shorter one does, and no statistics are needed (G. Antoshenkov, "Dynamic
Query Optimization in Rdb/VMS", ICDE 1993).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from operator import itemgetter
from typing import TypeVar

from zapdb.limits import RACE_HEAD_START_RECORDS, RACE_TURN_RECORDS

T = TypeVar("T")

Candidate = tuple[bytes, T] | None
"""A place in the order and a matching record, or None for a record that does not match."""


def race(
    unordered: Iterator[Candidate[T]], in_order: Iterator[Candidate[T]], limit: int
) -> list[T]:
    """The first `limit` records in order, of all that either iterator gives.

    The unordered ones come first, for a few pages: most often there are not many of them.
    """
    known, found = list[tuple[bytes, T]](), list[tuple[bytes, T]]()
    turn = RACE_HEAD_START_RECORDS
    while not _take(unordered, turn, known, None):
        known = heapq.nsmallest(limit, known, key=itemgetter(0))
        if _take(in_order, turn, found, limit):
            return [record for _, record in found]
        turn = RACE_TURN_RECORDS
    return [record for _, record in heapq.nsmallest(limit, known, key=itemgetter(0))]


def _take(
    stream: Iterator[Candidate[T]], count: int, into: list[tuple[bytes, T]], limit: int | None
) -> bool:
    """Take `count` more; return whether the stream has ended, or `limit` records were found."""
    for _ in range(count):
        if len(into) == limit:
            return True
        try:
            look = next(stream)
        except StopIteration:
            return True
        if look is not None:
            into.append(look)
    return len(into) == limit
