"""Reading the change log in an order that every follower sees, and that never changes (rule 29).

On PostgreSQL, transactions do not commit in the order of their numbers, and a number does not say
which other transactions are visible. So readers store a snapshot from time to time: all changes
that became visible between two stored snapshots have one stamp, a logical timestamp. Writers never
wait for this.

Within a stamp, transactions have their commit order, a number drawn from a sequence directly before
COMMIT. A transaction that writes a record after another transaction waits for that one's end, and
draws its number later. So the changes of one key are in the order of writing. (Transaction numbers
do not have this order: an older transaction may insert a record that a younger one has deleted and
committed.)

On SQLite, transactions commit one after the other and draw their numbers from a counter. The number
is both stamp and commit order.

The beginning of a pruned log (`zapdb.log.change_log_pruning`) is stored in the row of a
follower without a name. Pruning writes it before it deletes anything, and readers check it again
after each page. So a reader whose page is being deleted gets an error, and misses no change
silently.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Final, Self

from zapdb.errors import ChangesPruned, CorruptCatalog, UsageError
from zapdb.limits import CHANGES_COUNTED_MAX, CHANGES_PAGE, ERROR_VALUE_CHARS_MAX
from zapdb.log.stamps import (
    EMPTY_SNAPSHOT,
    STAMP_COLUMNS,
    Stamp,
    needs_stamp,
    not_in,
    read_stamp,
)
from zapdb.storage.cells import as_bytes, as_number, as_text, reading
from zapdb.storage.connection import Connection
from zapdb.storage.fixed_tables import CHANGES
from zapdb.storage.storage import Storage

BOOKMARK_VERSION: Final = "1"
BOOKMARK_TEXT: Final = re.compile(r"[0-9]+(\.[0-9]+){4}\.[0-9a-f]*")
"""What a bookmark looks like, and no time or number does."""
COMMIT_ORDER_MAX: Final = 2**63 - 1
STAMPS_PAGE: Final = 256
TRANSACTIONS_PAGE: Final = 10_000
"""Of one stamp, whose transactions are sorted anew for each page."""
CHUNK_FIRST: Final = 64
"""The number of transactions whose changes are first read together."""
_COLUMNS: Final = (
    "transaction_number, table_number, key, event, before, after, replaced,"
    " archive_before, archive_after"
)
ORDER: Final = "transaction_number, table_number, key"
BEGINNING: Final = ""
"""The name of the row among the followers that stores the log's beginning; no follower can have
it."""


@dataclass(frozen=True, slots=True, order=True)
class Bookmark:
    """A place in a tenant's log, directly after one change; `str(bookmark)` can be stored anywhere.

    It contains the key of that change's record, in hexadecimal digits. `time` tells the stamp from
    those that other histories of the database have at its number, where a backup was restored:
    microseconds since 1970-01-01 UTC, or 0 if it is not known.
    """

    stamp: int
    commit_order: int
    table: int
    key: bytes
    time: int = field(default=0, compare=False)

    def __repr__(self) -> str:
        return f"<bookmark {self}>"

    @classmethod
    def behind(cls, stamp: int) -> Bookmark:
        """Behind all that has a stamp."""
        return cls(stamp, COMMIT_ORDER_MAX, 0, b"") if stamp else START

    def __str__(self) -> str:
        numbers = f"{self.stamp}.{self.time}.{self.commit_order}.{self.table}"
        return f"{BOOKMARK_VERSION}.{numbers}.{self.key.hex()}"

    @classmethod
    def parse(cls, text: str) -> Bookmark:
        """Raises `UsageError`."""
        try:
            version, stamp, time, commit_order, table, key = text.split(".")
            if version != BOOKMARK_VERSION:
                raise ValueError(version)
            return cls(int(stamp), int(commit_order), int(table), bytes.fromhex(key), int(time))
        except (AttributeError, ValueError):
            raise UsageError(
                "this is not a bookmark",
                hint="give the bookmark of a change, or None for the beginning of the log",
            ) from None

    @classmethod
    def stored(cls, cell: Any) -> Bookmark:
        """Read a bookmark of a fixed table; raises `CorruptCatalog`."""
        try:
            return cls.parse(as_text(cell))
        except UsageError:
            raise CorruptCatalog(
                "a stored bookmark is none",
                found=as_text(cell)[:ERROR_VALUE_CHARS_MAX],
                hint="restore the row from a backup, or remove the follower",
            ) from None


START: Final = Bookmark(0, 0, 0, b"")


@dataclass(frozen=True, slots=True)
class LoggedTransaction:
    """One transaction of the log; times in microseconds since 1970-01-01 UTC by the database's
    clock. `stamped_at` is the time of the logical timestamp, which never decreases, and
    `stamp_time` what bookmarks have of it."""

    stamp: int
    stamp_time: int
    stamped_at: int
    commit_order: int
    number: int
    principal: str
    made_at: int

    @classmethod
    def from_row(cls, row: Any, stamp: int, stamp_time: int, stamped_at: int) -> Self:
        """Make it of `commit_order`, `number`, `principal` and `made_at`."""
        commit_order, number, principal, made_at = row
        return cls(
            stamp,
            stamp_time,
            stamped_at,
            as_number(commit_order),
            as_number(number),
            as_text(principal),
            as_number(made_at),
        )


@dataclass(frozen=True, slots=True)
class ChangeRow:
    """One row of the log."""

    transaction: LoggedTransaction
    table: int
    key: bytes
    event: str | None
    before: bytes | None
    after: bytes | None
    is_replaced: bool = False
    archive_before: bytes | None = None
    archive_after: bytes | None = None
    """All archived values of the record, where one of them was changed; else both are None."""

    @property
    def bookmark(self) -> Bookmark:
        made = self.transaction
        return Bookmark(made.stamp, made.commit_order, self.table, self.key, made.stamp_time)


@dataclass(frozen=True, slots=True)
class Lag:
    """The number of changes that a follower has not read, counted up to a limit, and the age of the
    oldest one in seconds (0 without such changes)."""

    changes: int
    seconds: float


Fetch = Callable[[str, Sequence[Any]], list[Any]]
"""Runs one statement of a reader, as `Connection.fetch_all` does."""


class ChangeLog:
    """Reads one tenant's log."""

    def __init__(self, storage: Storage, tenant: int) -> None:
        self.storage = storage
        self.tenant = int(tenant)
        self.is_numbered = storage.dialect.name == "sqlite"
        """Whether a transaction's number is its stamp."""

    # Where it begins

    def read_beginning(self, fetch: Fetch) -> Bookmark:
        """Return the place after the last pruned change; `START` if none was pruned."""
        found = fetch(
            f"SELECT bookmark FROM zapdb_followers WHERE tenant = {self.tenant}"
            f" AND name = '{BEGINNING}'",
            (),
        )
        return Bookmark.stored(found[0][0]) if found else START

    def require_unpruned(self, fetch: Fetch, place: Bookmark) -> None:
        """Raise `ChangesPruned` if changes after a place were pruned."""
        beginning = self.read_beginning(fetch)
        if place < beginning:
            raise self.pruned(place, beginning)

    def pruned(self, place: Bookmark, beginning: Bookmark) -> ChangesPruned:
        return ChangesPruned(
            "changes after the bookmark were pruned from the change log",
            database=self.storage.shown_url,
            bookmark=f"{place.stamp}.{place.commit_order}, and a key",
            log_begins_behind=f"{beginning.stamp}.{beginning.commit_order}, and a key",
            hint="take db.change_log.end(), read the records themselves again, and "
            "continue from that bookmark; or continue from db.change_log.begin() "
            "without the pruned changes",
        )

    # Timestamps

    def read_newest(self, connection: Connection) -> int:
        """Return the newest stamp; 0 before the first."""
        if self.is_numbered:
            sql = "SELECT max(number) FROM zapdb_transactions"
        else:
            sql = "SELECT max(number) FROM zapdb_stamps"
        (newest,) = connection.fetch_one(f"{sql} WHERE tenant = {self.tenant}")
        # The beginning is read second: the first query still read a stamp that is pruned in
        # between.
        return max(as_number(newest or 0), self.read_beginning(connection.fetch_all).stamp)

    def read_time(self, connection: Connection, stamp: int) -> int | None:
        """Return the time of a stamp; None if it has no transactions, as far as is known.

        It is another one if the database was restored, and others have written to it since.
        """
        if self.is_numbered:
            row = connection.fetch_one(
                f"SELECT made_at FROM zapdb_transactions WHERE tenant = {self.tenant}"
                f" AND number = {int(stamp)}"
            )
            return None if row is None else as_number(row[0])
        found = read_stamp(connection, self.tenant, stamp)
        if found is None or found.number != stamp or found.is_empty:
            return None
        return found.visible_at

    def timed(self, connection: Connection, bookmark: Bookmark) -> Bookmark:
        """Return the bookmark with the time of its stamp, if that is known."""
        return replace(bookmark, time=self._read_stamp_time(connection, bookmark.stamp) or 0)

    def require_own(self, connection: Connection, bookmark: Bookmark) -> None:
        """Raise `UsageError` if another history of the database has another stamp at the number of
        the bookmark's; a stamp that is not visible yet is not looked at."""
        if not bookmark.time:
            return
        time = self._read_stamp_time(connection, bookmark.stamp)
        if time == bookmark.time:
            return
        begin, newest = self.read_beginning(connection.fetch_all), self.read_newest(connection)
        if time is None and not begin.stamp < bookmark.stamp <= newest:
            return
        raise UsageError(
            "the bookmark is not of this change log",
            database=self.storage.shown_url,
            bookmark_stamp=bookmark.stamp,
            hint="it belongs to another database, or this one was restored from an older backup; "
            "begin again from db.change_log.begin()",
        )

    def _read_stamp_time(self, connection: Connection, stamp: int) -> int | None:
        table, column = (
            ("zapdb_transactions", "made_at")
            if self.is_numbered
            else ("zapdb_stamps", "visible_at")
        )
        row = connection.fetch_one(
            f"SELECT {column} FROM {table} WHERE tenant = {self.tenant} AND number = {int(stamp)}"
        )
        return None if row is None else as_number(row[0])

    def needs_stamp(self, connection: Connection) -> bool:
        """Return whether there are changes without a stamp."""
        return not self.is_numbered and needs_stamp(connection, self.tenant)

    # Reading

    def read(self, fetch: Fetch, since: Bookmark, until: int) -> Iterator[ChangeRow]:
        """Yield the rows after a bookmark up to a stamp, in batches.

        All are committed, and no others can come between them. Raises `ChangesPruned` when it gets
        to pruned rows; the rows before them have been yielded then.
        """
        place = since
        for page in self._read_pages(fetch, since, until):
            self.require_unpruned(fetch, place)  # checked after reading, so the page is complete
            yield from page
            place = page[-1].bookmark if page else place
        self.require_unpruned(fetch, place)

    def _read_pages(self, fetch: Fetch, since: Bookmark, until: int) -> Iterator[list[ChangeRow]]:
        transactions, some = self._list_transactions(fetch, since, until), CHUNK_FIRST
        waiting: list[LoggedTransaction] = []
        while waiting := waiting or list(islice(transactions, some)):
            page = self._read_page(fetch, waiting[:some], since)
            if page is not None:
                yield page
                waiting, some = waiting[some:], min(some * 2, CHANGES_PAGE)
            elif some > 1:
                some = max(1, some // 4)
            else:
                yield from self._read_large(fetch, waiting[0], since)
                waiting = waiting[1:]

    def _list_transactions(
        self, fetch: Fetch, since: Bookmark, until: int
    ) -> Iterator[LoggedTransaction]:
        """Return the transactions in order, beginning with that of the bookmark."""
        if self.is_numbered:
            sql = (
                "SELECT commit_order, number, principal, made_at FROM zapdb_transactions"
                f" WHERE tenant = {self.tenant} AND number >= ? AND number <= ?"
                " ORDER BY number LIMIT ?"
            )
            place = since.stamp
            while place <= until and (page := fetch(sql, (place, until, CHANGES_PAGE))):
                for row in page:
                    made_at = as_number(row[3])
                    yield LoggedTransaction.from_row(row, as_number(row[1]), made_at, made_at)
                place = page[-1][1] + 1
            return
        for found in self.list_stamps(fetch, since, until):
            place = since.commit_order if found.number == since.stamp else 0
            condition, parameters = found.condition
            sql = (
                "SELECT commit_order, number, principal, made_at FROM zapdb_transactions"
                f" WHERE tenant = {self.tenant} AND {condition} AND commit_order >= %s"
                " ORDER BY commit_order LIMIT %s"
            )
            while page := fetch(sql, (*parameters, place, TRANSACTIONS_PAGE)):
                for row in page:
                    yield LoggedTransaction.from_row(
                        row, found.number, found.visible_at, found.stamped_at
                    )
                if len(page) < TRANSACTIONS_PAGE:
                    break
                place = as_number(page[-1][0]) + 1

    def list_stamps(self, fetch: Fetch, since: Bookmark, until: int) -> Iterator[Stamp]:
        """Return the stamps, beginning with that of the bookmark."""
        sql = (
            f"SELECT {STAMP_COLUMNS} FROM zapdb_stamps WHERE tenant = {self.tenant}"
            " AND number >= %s AND number <= %s ORDER BY number LIMIT %s"
        )
        at, before = since.stamp - 1, None
        while page := fetch(sql, (at, until, STAMPS_PAGE)):
            for row in page:
                stamp = Stamp.from_row(row, before)
                if stamp.number >= since.stamp:
                    yield stamp
                before = stamp
                at = stamp.number + 1

    def _read_page(
        self, fetch: Fetch, transactions: Sequence[LoggedTransaction], since: Bookmark
    ) -> list[ChangeRow] | None:
        """Return the rows of some transactions; None if they are too many for one page."""
        mark = self.storage.placeholder
        marks = ", ".join([mark] * len(transactions))
        numbers = [made.number for made in transactions]
        rows = fetch(
            f"SELECT {_COLUMNS} FROM zapdb_changes WHERE tenant = {self.tenant}"
            f" AND transaction_number IN ({marks}) ORDER BY {ORDER} LIMIT {CHANGES_PAGE + 1}",
            numbers,
        )
        if len(rows) > CHANGES_PAGE:
            return None
        found: dict[int, list[Any]] = {number: [] for number in numbers}
        with reading(CHANGES.name):
            for row in rows:
                found[as_number(row[0])].append(row)
        return [
            made
            for transaction in transactions
            for made in (_row(transaction, row) for row in found[transaction.number])
            if made.bookmark > since
        ]

    def _read_large(
        self, fetch: Fetch, transaction: LoggedTransaction, since: Bookmark
    ) -> Iterator[list[ChangeRow]]:
        mark, place = self.storage.placeholder, (-1, b"")
        if (transaction.stamp, transaction.commit_order) == (
            since.stamp,
            since.commit_order,
        ):
            place = (since.table, since.key)
        sql = (
            f"SELECT {_COLUMNS} FROM zapdb_changes WHERE tenant = {self.tenant}"
            f" AND transaction_number = {int(transaction.number)}"
            f" AND (table_number, key) > ({mark}, {mark}) ORDER BY {ORDER} LIMIT {CHANGES_PAGE}"
        )
        while page := fetch(sql, place):
            yield [_row(transaction, row) for row in page]
            place = (as_number(page[-1][1]), as_bytes(page[-1][2]))

    # Lag

    def measure_lag(self, connection: Connection, since: Bookmark) -> Lag:
        """Return the lag of a bookmark: changes after it, with a stamp or without."""
        mark = self.storage.placeholder
        here = f"t.commit_order > {mark} OR (t.commit_order = {mark}"
        here += f" AND (c.table_number, c.key) > ({mark}, {mark}))"
        place: list[Any] = [since.commit_order, since.commit_order, since.table, since.key]
        if self.is_numbered:
            condition = f"t.number > ? OR (t.number = ? AND ({here}))"
            parameters = [since.stamp, since.stamp, *place]
        else:
            found = next(self.list_stamps(connection.fetch_all, since, since.stamp), None)
            if found is None:
                condition, parameters = not_in(EMPTY_SNAPSHOT)
            else:
                later, more = not_in(found.snapshot)
                inside, parameters = found.condition
                condition = f"({later}) OR ({inside} AND ({here}))"
                parameters = [*more, *parameters, *place]
        rows = (
            "SELECT t.made_at FROM zapdb_transactions AS t JOIN zapdb_changes AS c"
            " ON c.tenant = t.tenant AND c.transaction_number = t.number"
            f" WHERE t.tenant = {self.tenant} AND ({condition}) LIMIT {CHANGES_COUNTED_MAX}"
        )
        clock_sql = self.storage.dialect.clock_sql
        count, oldest, now = connection.fetch_one(
            f"SELECT count(*), min(made_at), ({clock_sql}) FROM ({rows}) AS behind",
            parameters,
        )
        waited = 0.0 if oldest is None else max(0.0, (now - as_number(oldest)) / 1e6)
        return Lag(as_number(count), waited)


def _row(transaction: LoggedTransaction, found: Any) -> ChangeRow:
    _, table, key, event, before, after, replaced, *archive = found
    return ChangeRow(
        transaction,
        as_number(table),
        as_bytes(key),
        None if event is None else as_text(event),
        None if before is None else as_bytes(before),
        None if after is None else as_bytes(after),
        bool(replaced),
        *(None if cell is None else as_bytes(cell) for cell in archive),
    )
