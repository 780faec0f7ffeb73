"""Moments: the transactions of a tenant's change log as places in time, and the past behind them.

A moment is the state directly after one transaction of the log. On SQLite its number is that of the
transaction. On PostgreSQL, moments are counted in the order of the log, stamp by stamp (see
`stamps`). Moment 0 is the state before the first transaction.

A time means the state after the last moment that was visible before it. It can be asked for once
the log's watermark has reached it: nothing that commits later can become visible before that.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from zapdb.errors import HistoryPurged
from zapdb.log.change_log import COMMIT_ORDER_MAX, Bookmark, ChangeLog
from zapdb.log.stamps import Stamp, add_stamp, read_stamp
from zapdb.storage.cells import as_number, as_text, wrong_counter
from zapdb.storage.connection import Connection

TABLE_MAX: Final = 2**63 - 1


class LoggedMoment(NamedTuple):
    """A moment: its number, its place in the log, and the time from which it is visible.

    `transaction` is the number of its transaction; None for the state before the log's beginning.
    """

    number: int
    stamp: int
    commit_order: int
    visible_at: int
    transaction: int | None

    @property
    def bookmark(self) -> Bookmark:
        """Behind all changes of the transaction."""
        if not self.stamp:
            return Bookmark(0, 0, 0, b"")
        return Bookmark(self.stamp, self.commit_order, TABLE_MAX, b"")


LaterSql = Callable[[str], str]
"""The SQL condition for transactions, by the name of the column with their number."""


@dataclass(frozen=True, slots=True)
class LaterTransactions:
    """The transactions after a moment: all from a number on, and some before that, which are as
    many as ran at once at most. It is a `LaterSql`."""

    all_from: int
    among: tuple[int, ...] = ()

    @property
    def lowest(self) -> int:
        """No transaction with a lower number is after the moment."""
        return min((self.all_from, *self.among))

    def __call__(self, column: str) -> str:
        if not self.among:
            return f"{column} >= {int(self.all_from)}"
        among = ", ".join(str(int(number)) for number in self.among)
        # The first part is for indexes.
        return (
            f"({column} >= {int(self.lowest)}"
            f" AND ({column} >= {int(self.all_from)} OR {column} IN ({among})))"
        )


BEFORE_ALL: Final = LoggedMoment(0, 0, 0, 0, None)


class Moments(ABC):
    """Finds the moments of one tenant's log. Each method reads in one snapshot."""

    def __init__(self, log: ChangeLog) -> None:
        self.log = log
        self._mine = f"tenant = {log.tenant}"

    def find_beginning(self, connection: Connection) -> LoggedMoment:
        """Return the earliest moment whose following changes are all in the log."""
        beginning = self.log.read_beginning(connection.fetch_all)
        if not beginning.stamp:
            return BEFORE_ALL
        return self.find_bookmark(connection, beginning)

    @abstractmethod
    def find_newest(self, connection: Connection) -> LoggedMoment:
        """Return the last moment that has a stamp."""

    @abstractmethod
    def find_number(self, connection: Connection, number: int) -> LoggedMoment:
        """Return the last moment up to a number."""

    @abstractmethod
    def find_bookmark(self, connection: Connection, bookmark: Bookmark) -> LoggedMoment:
        """Return the moment of the transaction with a change, or of the last one before a place."""

    @abstractmethod
    def find_before(self, connection: Connection, time_us: int) -> LoggedMoment:
        """Return the last moment that was visible before a time up to the watermark."""

    @abstractmethod
    def list_back(
        self, connection: Connection, last: LoggedMoment, count: int
    ) -> list[tuple[LoggedMoment, str, int]]:
        """Return so many moments up to one, newest first, with principals and times of making."""

    @abstractmethod
    def find_transaction(self, connection: Connection, number: int) -> LoggedMoment:
        """Return the moment of a transaction that has a stamp."""

    @abstractmethod
    def read_watermark(self, connection: Connection) -> int:
        """Return the time before which nothing becomes visible any more."""

    @abstractmethod
    def raise_watermark(self, connection: Connection) -> None:
        """Raise it to now, inside a JOB or NOWAIT transaction."""

    @abstractmethod
    def find_later(self, connection: Connection, moment: LoggedMoment) -> LaterTransactions:
        """Return the transactions after a moment, whatever commits later. Raises `HistoryPurged` if
        that can't be told any more."""


def moments_of(log: ChangeLog) -> Moments:
    return NumberedMoments(log) if log.is_numbered else StampedMoments(log)


class NumberedMoments(Moments):
    """On SQLite transactions are numbered in the order of their commits, and so are their times."""

    def find_newest(self, connection: Connection) -> LoggedMoment:
        return self._find_last(connection, COMMIT_ORDER_MAX)

    def find_number(self, connection: Connection, number: int) -> LoggedMoment:
        return self._find_last(connection, number)

    def find_bookmark(self, connection: Connection, bookmark: Bookmark) -> LoggedMoment:
        before = bookmark.commit_order < bookmark.stamp
        return self._find_last(connection, bookmark.stamp - before)

    def _find_last(self, connection: Connection, number: int) -> LoggedMoment:
        row = self._read_last(connection, number)
        if row is None:
            return BEFORE_ALL
        found, made_at = map(as_number, row)
        return LoggedMoment(found, found, found, made_at, found)

    def _read_last(self, connection: Connection, number: int) -> Any:
        return connection.fetch_one(
            f"SELECT number, made_at FROM zapdb_transactions WHERE {self._mine}"
            " AND number <= ? ORDER BY number DESC LIMIT 1",
            (number,),
        )

    def find_before(self, connection: Connection, time_us: int) -> LoggedMoment:
        def is_before(number: int) -> bool:
            row = self._read_last(connection, number)
            return row is None or as_number(row[1]) < time_us

        return self._find_last(
            connection, _bisect(0, self.find_newest(connection).number, is_before)
        )

    def find_transaction(self, connection: Connection, number: int) -> LoggedMoment:
        return self._find_last(connection, number)

    def list_back(
        self, connection: Connection, last: LoggedMoment, count: int
    ) -> list[tuple[LoggedMoment, str, int]]:
        rows = connection.fetch_all(
            f"SELECT number, principal, made_at FROM zapdb_transactions WHERE {self._mine}"
            " AND number <= ? ORDER BY number DESC LIMIT ?",
            (last.number, count),
        )
        found = []
        for cell, principal, at in rows:
            number, made_at = as_number(cell), as_number(at)
            moment = LoggedMoment(number, number, number, made_at, number)
            found.append((moment, as_text(principal), made_at))
        return found

    def read_watermark(self, connection: Connection) -> int:
        found = connection.fetch_one("SELECT value FROM zapdb_counters WHERE name = 'change_at'")
        if found is None:
            raise wrong_counter("change_at")
        return as_number(found[0])

    def raise_watermark(self, connection: Connection) -> None:
        connection.run(
            f"UPDATE zapdb_counters SET value = max(value, ({self.log.storage.dialect.clock_sql}))"
            " WHERE name = 'change_at'"
        )

    def find_later(self, connection: Connection, moment: LoggedMoment) -> LaterTransactions:
        return LaterTransactions(moment.number + 1)


class StampedMoments(Moments):
    """On PostgreSQL the stamps tell the order; within a stamp, the commit order does."""

    def find_newest(self, connection: Connection) -> LoggedMoment:
        return self._find_last(connection, read_stamp(connection, self.log.tenant))

    def find_number(self, connection: Connection, number: int) -> LoggedMoment:
        stamp = self._bisect(connection, lambda stamp: stamp.moment_before < number)
        if stamp is None:
            return self.find_newest(connection)
        return self._find_in(connection, stamp, "place <= %s", (number - stamp.moment_before,))

    def find_bookmark(self, connection: Connection, bookmark: Bookmark) -> LoggedMoment:
        stamp = read_stamp(connection, self.log.tenant, bookmark.stamp)
        if stamp is None or stamp.number < bookmark.stamp:
            return self._find_last(connection, stamp)
        return self._find_in(connection, stamp, "commit_order <= %s", (bookmark.commit_order,))

    def find_before(self, connection: Connection, time_us: int) -> LoggedMoment:
        stamp = self._bisect(connection, lambda stamp: stamp.first_visible_at < time_us)
        if stamp is None:
            return BEFORE_ALL
        return self._find_in(connection, stamp, "visible_at < %s", (time_us,))

    def _bisect(self, connection: Connection, is_wanted: Callable[[Stamp], bool]) -> Stamp | None:
        """Return the last stamp for which it is true, if it is true for all before that."""
        tenant = self.log.tenant
        (first, last) = connection.fetch_one(
            f"SELECT min(number), max(number) FROM zapdb_stamps WHERE {self._mine}"
        )
        if first is None:
            return None

        def is_true(number: int) -> bool:
            stamp = read_stamp(connection, tenant, number)
            return stamp is not None and is_wanted(stamp)

        return read_stamp(connection, tenant, _bisect(as_number(first), as_number(last), is_true))

    def _find_last(self, connection: Connection, stamp: Stamp | None) -> LoggedMoment:
        return BEFORE_ALL if stamp is None else self._find_in(connection, stamp, "TRUE", ())

    def _find_in(
        self,
        connection: Connection,
        stamp: Stamp,
        condition: str,
        parameters: tuple[int, ...],
    ) -> LoggedMoment:
        """Return the last moment of a stamp that fulfils a condition; the last one of the stamps
        before if there is none."""
        found = self._list_in(connection, stamp, condition, parameters, 1)
        if found:
            return found[0][0]
        if not stamp.moment_before:
            return BEFORE_ALL
        earlier = read_stamp(connection, self.log.tenant, stamp.number - 1)
        if earlier is None:  # it was pruned
            return LoggedMoment(stamp.moment_before, stamp.number, 0, stamp.first_visible_at, None)
        return self._find_last(connection, earlier)

    def _list_in(
        self,
        connection: Connection,
        stamp: Stamp,
        condition: str,
        parameters: tuple[int, ...],
        count: int,
    ) -> list[tuple[LoggedMoment, str, int]]:
        """Return so many moments of a stamp that fulfil a condition, newest first."""
        inside, given = stamp.condition
        rows = connection.fetch_all(
            "SELECT place, number, commit_order, visible_at, principal, made_at FROM ("
            "SELECT *, row_number() OVER (ORDER BY commit_order) AS place,"
            f" greatest({int(stamp.first_visible_at)}, max(made_at) OVER (ORDER BY commit_order))"
            f" AS visible_at FROM zapdb_transactions WHERE {self._mine} AND {inside}) AS moments"
            f" WHERE {condition} ORDER BY place DESC LIMIT {int(count)}",
            [*given, *parameters],
        )
        return [
            (
                LoggedMoment(
                    stamp.moment_before + as_number(place),
                    stamp.number,
                    as_number(commit_order),
                    as_number(visible_at),
                    as_number(number),
                ),
                as_text(principal),
                as_number(made_at),
            )
            for place, number, commit_order, visible_at, principal, made_at in rows
        ]

    def find_transaction(self, connection: Connection, number: int) -> LoggedMoment:
        last = self._bisect(connection, lambda stamp: not stamp.before.shows(number))
        assert last is not None, "the transaction has a stamp"
        (found,) = self._list_in(connection, last, "number = %s", (number,), 1)
        return found[0]

    def list_back(
        self, connection: Connection, last: LoggedMoment, count: int
    ) -> list[tuple[LoggedMoment, str, int]]:
        found: list[tuple[LoggedMoment, str, int]] = []
        stamp = read_stamp(connection, self.log.tenant, last.stamp)
        while stamp is not None and len(found) < count:
            limits = ("commit_order <= %s", (last.commit_order,))
            condition, parameters = limits if stamp.number == last.stamp else ("TRUE", ())
            left = count - len(found)
            found += self._list_in(connection, stamp, condition, parameters, left)
            stamp = read_stamp(connection, self.log.tenant, stamp.number - 1)
        return found

    def read_watermark(self, connection: Connection) -> int:
        stamp = read_stamp(connection, self.log.tenant)
        return 0 if stamp is None else stamp.stamped_at

    def raise_watermark(self, connection: Connection) -> None:
        add_stamp(connection, self.log.tenant, may_be_empty=True)

    def find_later(self, connection: Connection, moment: LoggedMoment) -> LaterTransactions:
        if not moment.stamp:
            return LaterTransactions(1)
        stamp = read_stamp(connection, self.log.tenant, moment.stamp)
        if stamp is None or stamp.number < moment.stamp:
            raise HistoryPurged(
                "changes after the moment were pruned from the change log",
                moment=moment.number,
                hint="ask again: what files have, they answer; or ask for a later moment",
            )
        before, snapshot = stamp.before, stamp.snapshot
        if moment.number == stamp.moment:  # the last one of its stamp
            return LaterTransactions(snapshot.xmax, snapshot.running)
        inside, given = stamp.condition
        mine = f"FROM zapdb_transactions WHERE {self._mine} AND {inside} AND commit_order"
        (last,) = connection.fetch_one(
            f"SELECT max(number) {mine} <= %s", [*given, moment.commit_order]
        )
        all_from = before.xmax if last is None else max(before.xmax, as_number(last) + 1)
        later = connection.fetch_all(
            f"SELECT number {mine} > %s AND number < %s", [*given, moment.commit_order, all_from]
        )
        among = {as_number(number) for (number,) in later}
        among |= {number for number in snapshot.running if number < all_from}
        return LaterTransactions(all_from, tuple(sorted(among)))


def _bisect(low: int, high: int, is_wanted: Callable[[int], bool]) -> int:
    """Return the highest number for which it is true; `low` if it is true for none."""
    while low < high:
        middle = (low + high + 1) // 2
        if is_wanted(middle):
            low = middle
        else:
            high = middle - 1
    return low
