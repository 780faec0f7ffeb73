"""What the records of a table had before their first changes after a moment, held in memory.

Of the changes since, the first ones are read, in the order of the log: that takes a small part of
what it takes to look records up one by one, and mostly has the first changes of many of them. A
record that they do not have is looked up by its key, unless all changes were read that there are.

On PostgreSQL, where transactions do not commit in the order of their numbers, what comes later may
have a lower number: it is what the snapshot did not show in which changes were read last.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from zapdb.log.change_log import ChangeLog
from zapdb.log.incarnations import FIRST_NUMBER_SQL
from zapdb.log.moments import LaterSql, LaterTransactions
from zapdb.log.stamps import EMPTY_SNAPSHOT, LogSnapshot
from zapdb.storage.cells import as_bytes, as_number, as_text, require_bytes
from zapdb.storage.connection import Connection

HELD_CHANGES_MAX: Final = 20_000
HELD_SIZE_BYTES_MAX: Final = 8 * 1024 * 1024
PARTS_MAX: Final = 4
"""As many changes as records are read at a time, and so often at most."""
PART_PAYS: Final = 2
"""It goes on if half of the changes that were read last were the first ones of their records."""

Before = Mapping[bytes, bytes | None]
"""What records had, by their keys; None: there was none."""


class _Place(NamedTuple):
    """A row of the log."""

    number: int
    table: int
    key: bytes


def worth_holding(changes: int, records: int) -> bool:
    """Return whether to count by so many changes, all that came since a moment, rather than by so
    many records."""
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
        self._inserted = dict[bytes, dict[int, bytes | None]]()
        """Changes of keys that may not be the first ones, by transactions: see `rewinding`."""
        self._count = self._size_bytes = 0
        self._lock = threading.Lock()
        self._place = _Place(later.lowest - 1, 2**63 - 1, b"")
        self._seen = EMPTY_SNAPSHOT
        self.is_complete = False
        """Whether it had all changes when it was read last."""

    def read_on(
        self, connection: Connection, count: int, list_keys: Callable[[], Iterable[bytes]]
    ) -> bool:
        """Read more changes, for so many records with these keys. Returns whether all that there
        are by now were read: what it does not have was not changed then."""
        with self._lock:
            self.is_complete = self._read_on(connection, count, list_keys)
            return self.is_complete

    def _read_on(
        self, connection: Connection, count: int, list_keys: Callable[[], Iterable[bytes]]
    ) -> bool:
        for _ in range(PARTS_MAX):
            held = len(self._before)
            if held and not self.is_complete and all(key in self._before for key in list_keys()):
                return False
            most = min(max(1, count), HELD_CHANGES_MAX - self._count)
            if most <= 0 or self._size_bytes > HELD_SIZE_BYTES_MAX:
                return False
            if self._read_part(connection, most) < most:
                self._choose_first(connection, self._inserted)
                return True
            self.is_complete = False
            if PART_PAYS * (len(self._before) - held) < most:
                return False
        return False

    def find(self, keys: Iterable[bytes]) -> dict[bytes, bytes | None]:
        """Return what it has of some records."""
        with self._lock:
            before = self._before
            return {key: before[key] for key in keys if key in before}

    def list_between(self, lower: bytes | None, upper: bytes | None) -> dict[bytes, bytes | None]:
        """Return what it has of the records with lower ≤ key < upper."""
        with self._lock:
            if len(self._keys) < len(self._before):
                self._keys = sorted(self._before)
            keys = self._keys
            start = 0 if lower is None else bisect_left(keys, lower)
            stop = len(keys) if upper is None else bisect_left(keys, upper)
            return {key: self._before[key] for key in keys[start:stop]}

    def _read_part(self, connection: Connection, most: int) -> int:
        """Read up to so many changes, in the order of their numbers; returns how many there are. A
        reader in an older snapshot than an earlier reader's reads none, as if there were too
        many: it does not know of all that is held."""
        is_numbered, place = self._log.is_numbered, self._place
        snapshot = EMPTY_SNAPSHOT if is_numbered else self._read_snapshot(connection)
        if not snapshot.shows_all_of(self._seen):
            return most
        mark, column = self._log.storage.placeholder, "c.transaction_number"
        behind = f"({column}, c.table_number, c.key) > ({mark}, {mark}, {mark})"
        if not is_numbered:
            lowest = max(self._later.lowest, min(place.number, self._seen.lowest))
            behind = (
                f"{self._later(column)} AND {column} >= {lowest}"
                f" AND ({behind} OR {self._seen.hides_sql(column)})"
            )
        rows = connection.fetch_all(
            f"SELECT {column}, c.table_number, c.key, c.event IS NULL,"
            f" CASE WHEN c.table_number = {self._table} THEN c.before END FROM zapdb_changes AS c"
            f" WHERE c.tenant = {self._log.tenant} AND {behind}"
            f" ORDER BY {column}, c.table_number, c.key LIMIT {int(most)}",
            place,
        )
        self._count += len(rows)
        self._hold(connection, [row for row in rows if row[1] == self._table and row[3]])
        self._seen = snapshot
        if rows:
            number, table, key = rows[-1][:3]
            self._place = _Place(as_number(number), as_number(table), as_bytes(key))
        return len(rows)

    def _hold(self, connection: Connection, rows: Sequence[Sequence[Any]]) -> None:
        require_bytes([tuple(row[2] for row in rows)])
        require_bytes([tuple(row[4] for row in rows if row[4] is not None)])
        held, inserted, is_numbered = self._before, self._inserted, self._log.is_numbered
        told = set[bytes]()
        """Keys of which the first change can be told now."""
        for number, _, key, _, before in rows:
            if key in held or key in told:
                continue
            if is_numbered or (before is not None and key not in inserted):
                held[key] = before
                self._size_bytes += 0 if before is None else len(before)
                continue
            inserted.setdefault(key, {})[as_number(number)] = before
            if before is not None:
                told.add(key)
        self._choose_first(connection, told)

    def _choose_first(self, connection: Connection, keys: Iterable[bytes]) -> None:
        """Choose the first change of each of some keys by the order of commits."""
        tied = {key: self._inserted[key] for key in keys}
        numbers = sorted({number for one in tied.values() if len(one) > 1 for number in one})
        orders = dict[int, int]()
        for start in range(0, len(numbers), HELD_CHANGES_MAX):
            some = ", ".join(map(str, numbers[start : start + HELD_CHANGES_MAX]))
            rows = connection.fetch_all(
                "SELECT number, commit_order FROM zapdb_transactions"
                f" WHERE tenant = {self._log.tenant} AND number IN ({some})"
            )
            orders |= {as_number(number): as_number(order) for number, order in rows}
        for key, changes in tied.items():
            del self._inserted[key]
            if len(changes) > 1 and not changes.keys() <= orders.keys():
                continue  # the log was pruned: who reads notices it
            first = min(changes, key=lambda number: orders.get(number, 0))
            before = self._before[key] = changes[first]
            self._size_bytes += 0 if before is None else len(before)

    def _read_snapshot(self, connection: Connection) -> LogSnapshot:
        """It is read first: so what it does not show may be read twice."""
        text, first, asking = connection.fetch_one(
            f"SELECT pg_current_snapshot()::text, {FIRST_NUMBER_SQL},"
            " pg_current_xact_id_if_assigned()::text::bigint"
        )
        asks = None if asking is None else as_number(asking)
        return LogSnapshot.here(as_text(text), as_number(first), asks)
