"""What the records of a table had before their first changes after a moment, held in memory: for
reading many records of a moment after which little was changed.

The changes are read once by their transactions, and then only those that came since. Finding the
first change of each key that is read takes longer, unless there are more changes than keys. On
PostgreSQL, where transactions do not commit in the order of their numbers, what came since is what
the snapshot did not show in which they were read last.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from zapdb.log.change_log import ChangeLog
from zapdb.log.incarnations import FIRST_NUMBER_SQL
from zapdb.log.moments import LaterSql, LaterTransactions
from zapdb.log.stamps import EMPTY_SNAPSHOT, LogSnapshot
from zapdb.storage.cells import as_bytes, as_number, as_text, optional_bytes
from zapdb.storage.connection import Connection

HELD_CHANGES_MAX: Final = 20_000
HELD_SIZE_BYTES_MAX: Final = 8 * 1024 * 1024
_PAGE: Final = 2_000

Place = tuple[int, int, bytes]
"""A row of the log: the number of its transaction, its table, and its key."""
Row = tuple[int, bytes, bytes | None]
"""The number of a transaction, a key, and what its record had before."""


def worth_holding(changes: int, records: int) -> bool:
    """Return whether to read so many changes, all that came since a moment, rather than to look for
    the first change of each of so many records."""
    return changes <= min(records, HELD_CHANGES_MAX)


def count_later(connection: Connection, tenant: int, later: LaterSql, most: int) -> int:
    """Return how many changes of all tables are `later`, up to `most`."""
    (count,) = connection.fetch_one(
        f"SELECT count(*) FROM (SELECT 1 FROM zapdb_changes WHERE tenant = {int(tenant)}"
        f" AND {later('transaction_number')} ORDER BY transaction_number LIMIT {int(most)})"
        " AS counted"
    )
    return as_number(count)


class LoggedBefore:
    """What records of one table had before they were changed by the transactions that are `later`;
    thread-safe."""

    def __init__(self, log: ChangeLog, table: int, later: LaterTransactions) -> None:
        self._log, self._table, self._later = log, int(table), later
        self._before = dict[bytes, bytes | None]()
        self._keys = list[bytes]()
        self._count = self._size_bytes = 0
        self._lock = threading.Lock()
        self._place: Place = (later.lowest - 1, 2**63 - 1, b"")
        self._seen = EMPTY_SNAPSHOT
        self._is_used, self._asked_at = False, 0

    @property
    def is_full(self) -> bool:
        """Whether there are more changes than are held."""
        return self._count > HELD_CHANGES_MAX or self._size_bytes > HELD_SIZE_BYTES_MAX

    def is_worth(
        self, connection: Connection, looked_up: int, most: int, count: Callable[[int], int]
    ) -> bool:
        """Return whether to use it from now on, where so many records were looked up in the log,
        and up to `most` more are; `count` tells how many there are, up to a number."""
        with self._lock:
            if not self._is_used and looked_up + most >= 2 * self._asked_at:
                self._asked_at = looked_up + most
                records = max(looked_up, count(min(self._asked_at, HELD_CHANGES_MAX)))
                changes = count_later(connection, self._log.tenant, self._later, records + 1)
                self._is_used = worth_holding(changes, records)
            return self._is_used and not self.is_full

    def find(
        self, connection: Connection, lower: bytes | None, upper: bytes | None
    ) -> dict[bytes, bytes | None] | None:
        """Return what records with lower ≤ key < upper had before they were changed: all of them
        that have changed by now. None if there are too many changes."""
        with self._lock:
            if self.is_full:
                return None
            for rows in self._list_new(connection):
                self._hold(connection, rows)
                if self.is_full:
                    self._before, self._keys = {}, []
                    return None
            if len(self._keys) < len(self._before):
                self._keys = sorted(self._before)
            keys = self._keys
            start = 0 if lower is None else bisect_left(keys, lower)
            stop = len(keys) if upper is None else bisect_left(keys, upper)
            return {key: self._before[key] for key in keys[start:stop]}

    def _hold(self, connection: Connection, rows: list[Row]) -> None:
        first = dict[bytes, list[Row]]()
        for row in rows:
            known = first.setdefault(row[1], [])
            if row[1] not in self._before and (not known or known[-1][2] is None):
                known.append(row)  # see `rewinding`
        for key, tied in first.items():
            if tied:
                is_tied = len(tied) > 1 and not self._log.is_numbered
                _, _, before = self._find_first(connection, tied) if is_tied else tied[0]
                self._before[key] = before
                self._size_bytes += 0 if before is None else len(before)

    def _find_first(self, connection: Connection, tied: Sequence[Row]) -> Row:
        numbers = ", ".join(str(int(row[0])) for row in tied)
        (first,) = connection.fetch_one(
            f"SELECT number FROM zapdb_transactions WHERE tenant = {self._log.tenant}"
            f" AND number IN ({numbers}) ORDER BY commit_order LIMIT 1"
        )
        return next(row for row in tied if row[0] == as_number(first))

    def _list_new(self, connection: Connection) -> Iterator[list[Row]]:
        """Yield the changes that came since it was asked last, in the order of their numbers."""
        if self._log.is_numbered:
            yield from self._list_behind(connection)
        else:
            yield self._list_unseen(connection)

    def _list_behind(self, connection: Connection) -> Iterator[list[Row]]:
        sql = (
            "SELECT transaction_number, table_number, key, event IS NULL,"
            f" CASE WHEN table_number = {self._table} THEN before END FROM zapdb_changes"
            f" WHERE tenant = {self._log.tenant}"
            " AND (transaction_number, table_number, key) > (?, ?, ?)"
            f" ORDER BY transaction_number, table_number, key LIMIT {_PAGE}"
        )
        is_end = False
        while not is_end:
            rows = connection.fetch_all(sql, self._place)
            yield [
                (as_number(number), as_bytes(key), optional_bytes(before))
                for number, table, key, is_record, before in rows
                if table == self._table and is_record
            ]
            if rows:
                self._place = rows[-1][:3]
                self._count += len(rows)
            is_end = len(rows) < _PAGE

    def _list_unseen(self, connection: Connection) -> list[Row]:
        """The snapshot is read first: so what it does not show may be read twice."""
        text, first, asking = connection.fetch_one(
            f"SELECT pg_current_snapshot()::text, {FIRST_NUMBER_SQL},"
            " pg_current_xact_id_if_assigned()::text::bigint"
        )
        asks = None if asking is None else as_number(asking)
        snapshot = LogSnapshot.here(as_text(text), as_number(first), asks)
        later, seen = self._later("c.transaction_number"), self._seen
        rows = connection.fetch_all(
            "SELECT c.transaction_number, c.key, c.before FROM zapdb_changes AS c"
            f" WHERE c.tenant = {self._log.tenant} AND c.table_number = {self._table}"
            f" AND c.event IS NULL AND {later} AND {seen.hides_sql('c.transaction_number')}"
            f" AND c.transaction_number >= {seen.lowest}"
            f" ORDER BY c.transaction_number LIMIT {HELD_CHANGES_MAX + 1}"
        )
        if (snapshot.xmax, snapshot.lowest) >= (seen.xmax, seen.lowest):
            self._seen = snapshot
        self._count += len(rows)
        return [(as_number(row[0]), as_bytes(row[1]), optional_bytes(row[2])) for row in rows]
