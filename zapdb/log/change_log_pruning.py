"""Deleting the oldest part of the change log for good, while others write and read the log.

Whole transactions are deleted, from the first one up to a chosen one. First, the point directly
after the last of them is stored as the log's beginning, in the same transaction that checks the
named followers. Then the rows are deleted in short transactions. If that is interrupted, the
remaining rows are before the beginning, where no reader looks, and the next pruning deletes them.

Only changes with a stamp are pruned. A transaction that is still open gets a later stamp when it
ends, even with a lower number and commit order. So on PostgreSQL, the snapshots of the stamps tell
which rows are deleted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from zapdb.limits import CHANGES_COUNTED_MAX, PRUNE_BATCH_CHANGES
from zapdb.log.change_log import (
    BEGINNING,
    COMMIT_ORDER_MAX,
    START,
    Bookmark,
    ChangeLog,
)
from zapdb.log.stamps import EMPTY_SNAPSHOT, LogSnapshot
from zapdb.storage.cells import as_bytes, as_number, as_text
from zapdb.storage.connection import Connection

LAST_FIRST: Final = "table_number DESC, key DESC"


@dataclass(frozen=True, slots=True)
class PrunedBatch:
    """What one transaction deleted; the next one begins after the transaction `after`."""

    changes: int
    transactions: int
    after: int
    is_last: bool


class ChangeLogPruning:
    """Pruning one tenant's log."""

    def __init__(self, log: ChangeLog) -> None:
        self.log = log
        self._mine = f"tenant = {log.tenant}"
        self._mark = log.storage.placeholder

    # How far

    def find_last_made_before(self, connection: Connection, moment_us: int) -> Bookmark:
        """Return the last change before the first transaction made at a moment or later; `START` if
        there is none. Called in one snapshot."""
        newest = self.log.read_newest(connection)
        beginning = self.log.read_beginning(connection.fetch_all)  # some before it are kept
        if self.log.is_numbered:
            first = connection.fetch_one(
                f"SELECT number FROM zapdb_transactions WHERE {self._mine} AND made_at >= ?"
                " AND number > ? ORDER BY number LIMIT 1",
                (moment_us, beginning.stamp),
            )
            last = newest if first is None else as_number(first[0]) - 1
            return self._find_last(connection, last, COMMIT_ORDER_MAX)
        (began,) = connection.fetch_one(
            f"SELECT min(number) FROM zapdb_stamps WHERE {self._mine} AND stamped_at >= %s",
            (moment_us,),
        )
        if began is not None:  # all changes with an earlier stamp were made before
            start = Bookmark(max(as_number(began), beginning.stamp), 0, 0, b"")
            for found in self.log.list_stamps(connection.fetch_all, start, newest):
                condition, parameters = found.condition
                after = beginning.commit_order if found.number == beginning.stamp else 0
                (commit_order,) = connection.fetch_one(
                    f"SELECT min(commit_order) FROM zapdb_transactions WHERE {self._mine}"
                    f" AND {condition} AND made_at >= %s AND commit_order > %s",
                    [*parameters, moment_us, after],
                )
                if commit_order is not None:
                    return self._find_last(connection, found.number, as_number(commit_order) - 1)
        return self._find_last(connection, newest, COMMIT_ORDER_MAX)

    def find_last_up_to(self, connection: Connection, bookmark: Bookmark) -> Bookmark:
        """Return the last change of the last transaction that is completely before a bookmark;
        `START` if there is none."""
        last = self._find_last(connection, bookmark.stamp, bookmark.commit_order)
        if last > bookmark:  # the bookmark is inside a transaction
            last = self._find_last(connection, bookmark.stamp, bookmark.commit_order - 1)
        return last

    def _find_last(self, connection: Connection, stamp: int, commit_order: int) -> Bookmark:
        """Return the last change up to a commit order of a stamp."""
        if self.log.is_numbered:
            upto = stamp if commit_order >= stamp else stamp - 1
            row = connection.fetch_one(
                "SELECT transaction_number, table_number, key FROM zapdb_changes"
                f" WHERE {self._mine} AND transaction_number <= ?"
                f" ORDER BY transaction_number DESC, {LAST_FIRST} LIMIT 1",
                (upto,),
            )
            if row is None:
                return START
            transaction, table = as_number(row[0]), as_number(row[1])
            return Bookmark(transaction, transaction, table, as_bytes(row[2]))
        beginning = self.log.read_beginning(connection.fetch_all)
        for number in range(stamp, max(beginning.stamp, 1) - 1, -1):
            bound = commit_order if number == stamp else COMMIT_ORDER_MAX
            found = self._find_last_of(connection, number, bound)
            if found is not None:
                return found
        return START

    def _find_last_of(
        self, connection: Connection, stamp: int, commit_order: int
    ) -> Bookmark | None:
        start = Bookmark(stamp, 0, 0, b"")
        found = next(self.log.list_stamps(connection.fetch_all, start, stamp), None)
        if found is None:
            return None
        condition, parameters = found.condition
        made = connection.fetch_one(
            f"SELECT number, commit_order FROM zapdb_transactions AS t WHERE {self._mine}"
            f" AND {condition} AND commit_order <= %s AND EXISTS (SELECT 1 FROM zapdb_changes AS c"
            " WHERE c.tenant = t.tenant AND c.transaction_number = t.number)"
            " ORDER BY commit_order DESC LIMIT 1",
            [*parameters, commit_order],
        )
        if made is None:
            return None
        table, key = connection.fetch_one(
            f"SELECT table_number, key FROM zapdb_changes WHERE {self._mine}"
            f" AND transaction_number = %s ORDER BY {LAST_FIRST} LIMIT 1",
            (made[0],),
        )
        return Bookmark(stamp, as_number(made[1]), as_number(table), as_bytes(key))

    def count(self, connection: Connection, place: Bookmark) -> int:
        """Return the number of changes up to the end of a transaction, counted up to a limit."""
        condition, parameters = self._up_to(connection, place)
        (count,) = connection.fetch_one(
            "SELECT count(*) FROM (SELECT 1 FROM zapdb_transactions AS t JOIN zapdb_changes AS c"
            " ON c.tenant = t.tenant AND c.transaction_number = t.number"
            f" WHERE t.{self._mine} AND {condition} LIMIT {CHANGES_COUNTED_MAX}) AS old",
            parameters,
        )
        return int(count)

    def list_behind(self, connection: Connection, place: Bookmark) -> list[str]:
        """Return the named followers that have not seen all changes up to a bookmark."""
        rows = connection.fetch_all(
            f"SELECT name, bookmark FROM zapdb_followers WHERE {self._mine}"
            f" AND name <> '{BEGINNING}' ORDER BY name"
        )
        return [as_text(name) for name, text in rows if Bookmark.stored(text) < place]

    # Doing it

    def write_beginning(self, connection: Connection, place: Bookmark) -> None:
        """Store that the log begins directly after a change, unless it begins later already.

        Runs in the WRITE transaction that checked the followers. A follower that moves back at the
        same moment checks the beginning in its transaction, so the two transactions conflict, and
        one of them is run again.
        """
        if place > self.log.read_beginning(connection.fetch_all):
            connection.run(
                f"INSERT INTO zapdb_followers VALUES ({self.log.tenant}, '{BEGINNING}',"
                f" {self._mark}, {self._mark}) ON CONFLICT (tenant, name)"
                " DO UPDATE SET bookmark = excluded.bookmark, advanced_at = excluded.advanced_at",
                (str(place), self.log.storage.now_us(connection)),
            )

    def delete_some(self, connection: Connection, after: int) -> PrunedBatch:
        """Delete some changes before the beginning, of transactions with higher numbers than
        `after`, inside a JOB transaction."""
        if not self.log.is_numbered:  # concurrent prunings take turns, so their counts are right
            connection.run(
                f"SELECT 1 FROM zapdb_followers WHERE {self._mine} AND name = '{BEGINNING}'"
                " FOR UPDATE"
            )
        beginning = self.log.read_beginning(connection.fetch_all)
        condition, parameters = self._up_to(connection, beginning)
        rows = connection.fetch_all(
            f"SELECT number FROM zapdb_transactions WHERE {self._mine} AND {condition}"
            f" AND number > {int(after)} ORDER BY number LIMIT {PRUNE_BATCH_CHANGES}",
            parameters,
        )
        numbers = [as_number(number) for (number,) in rows]
        if not numbers:
            return PrunedBatch(0, 0, after, is_last=not self._delete_stamps(connection, beginning))
        changes = self._delete_changes(connection, numbers)
        if changes == PRUNE_BATCH_CHANGES:  # there may be more of them
            return PrunedBatch(changes, 0, after, is_last=False)
        self._delete_transactions(connection, beginning, numbers)
        return PrunedBatch(changes, len(numbers), numbers[-1], is_last=False)

    def _delete_changes(self, connection: Connection, numbers: list[int]) -> int:
        marks = ", ".join([self._mark] * len(numbers))
        some = (
            f"FROM zapdb_changes WHERE {self._mine} AND transaction_number IN ({marks})"
            f" LIMIT {PRUNE_BATCH_CHANGES}"
        )
        if self.log.is_numbered:
            names = "tenant, transaction_number, table_number, key"
            which = f"({names}) IN (SELECT {names} {some})"
        else:
            which = f"ctid = ANY(ARRAY(SELECT ctid {some}))"
        return connection.run(f"DELETE FROM zapdb_changes WHERE {which}", numbers)

    def _delete_transactions(
        self, connection: Connection, beginning: Bookmark, numbers: list[int]
    ) -> None:
        """Delete transactions, but those with the stamp of the beginning: they number the moments
        after it, and say since when the beginning is visible."""
        if self.log.is_numbered:
            condition, parameters = "number < ?", [beginning.stamp]
        else:
            found = next(
                self.log.list_stamps(connection.fetch_all, beginning, beginning.stamp), None
            )
            condition, parameters = _shown_by(EMPTY_SNAPSHOT if found is None else found.before)
        marks = ", ".join([self._mark] * len(numbers))
        connection.run(
            f"DELETE FROM zapdb_transactions WHERE {self._mine} AND {condition}"
            f" AND number IN ({marks})",
            [*parameters, *numbers],
        )

    def _delete_stamps(self, connection: Connection, beginning: Bookmark) -> int:
        """Delete stamps that no bookmark after the beginning needs. The stamp of the beginning may
        have more transactions; the snapshot of the stamp before it tells which."""
        if self.log.is_numbered:
            return 0
        return connection.run(
            f"DELETE FROM zapdb_stamps WHERE {self._mine} AND number IN (SELECT number FROM"
            f" zapdb_stamps WHERE {self._mine} AND number < {beginning.stamp - 1}"
            f" ORDER BY number LIMIT {PRUNE_BATCH_CHANGES})"
        )

    def _up_to(self, connection: Connection, place: Bookmark) -> tuple[str, list[Any]]:
        """Return the condition for transactions up to that of a place."""
        if self.log.is_numbered:
            return "number <= ?", [place.stamp]
        fetch = connection.fetch_all
        found = next(self.log.list_stamps(fetch, place, place.stamp), None)
        now, before = (
            (EMPTY_SNAPSHOT, EMPTY_SNAPSHOT) if found is None else (found.snapshot, found.before)
        )
        shown, parameters = _shown_by(now)
        earlier, more = _shown_by(before)
        return f"{shown} AND ({earlier} OR commit_order <= %s)", [
            *parameters,
            *more,
            place.commit_order,
        ]


def _shown_by(snapshot: LogSnapshot) -> tuple[str, list[Any]]:
    """Return the condition for rows that a snapshot shows."""
    return (
        "(number < %s AND number <> ALL(%b::bigint[]))",
        [snapshot.xmax, list(snapshot.running)],
    )
