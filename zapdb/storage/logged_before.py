"""What the records of a table had before their first changes after a moment, held in memory: for
reading many records of a moment that is not far back.

The changes are read once by their transactions, and then only those that came since. Finding them
page by page, by the keys of a page, takes several times as long for each. It is for SQLite alone,
where transactions commit in the order of their numbers, and for so many changes of all tables as
fit into memory easily.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from typing import Final

from zapdb.storage.cells import as_bytes, optional_bytes
from zapdb.storage.change_log import ChangeLog
from zapdb.storage.connection import Connection

HELD_CHANGES_MAX: Final = 20_000
HELD_SIZE_BYTES_MAX: Final = 8 * 1024 * 1024
_PAGE: Final = 2_000

Place = tuple[int, int, bytes]
"""A row of the log: the number of its transaction, its table, and its key."""


class LoggedBefore:
    """The changes of one table after the transaction with a number; thread-safe."""

    def __init__(self, log: ChangeLog, table: int, after: int) -> None:
        self._table = int(table)
        self._place: Place = (after, 2**63 - 1, b"")
        self._before = dict[bytes, bytes | None]()
        self._keys = list[bytes]()
        self._count = self._size_bytes = 0
        self._lock = threading.Lock()
        self._sql = (
            "SELECT transaction_number, table_number, key, event IS NULL,"
            f" CASE WHEN table_number = {self._table} THEN before END FROM zapdb_changes"
            f" WHERE tenant = {log.tenant} AND (transaction_number, table_number, key) > (?, ?, ?)"
            f" ORDER BY transaction_number, table_number, key LIMIT {_PAGE}"
        )

    @property
    def is_full(self) -> bool:
        """Whether there are more changes than are held."""
        return self._count > HELD_CHANGES_MAX or self._size_bytes > HELD_SIZE_BYTES_MAX

    def find(
        self, connection: Connection, lower: bytes | None, upper: bytes | None
    ) -> dict[bytes, bytes | None] | None:
        """Return what records with lower ≤ key < upper had before they were changed: all of them
        that have changed by now. None if there are too many changes."""
        with self._lock:
            if self.is_full or not self._read(connection):
                return None
            keys = self._keys
            start = 0 if lower is None else bisect_left(keys, lower)
            stop = len(keys) if upper is None else bisect_left(keys, upper)
            return {key: self._before[key] for key in keys[start:stop]}

    def _read(self, connection: Connection) -> bool:
        """Read the changes that came since; returns whether all are held."""
        is_end = False
        while not is_end:
            rows = connection.fetch_all(self._sql, self._place)
            for _, table, key, is_record, before in rows:
                if table == self._table and is_record:
                    self._before.setdefault(as_bytes(key), optional_bytes(before))
                    self._size_bytes += 0 if before is None else len(before)
            if rows:
                self._place = rows[-1][:3]
                self._count += len(rows)
            is_end = len(rows) < _PAGE
            if self.is_full:
                self._before, self._keys = {}, []
                return False
        if len(self._keys) < len(self._before):
            self._keys = sorted(self._before)
        return True
