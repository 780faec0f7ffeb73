"""What the transactions of this process write, told to the iterations that are under way.

An iteration reads page by page. What is written between two pages may move a record to another
place, where the iteration would meet it again, or not at all. It is told of each record that this
process writes:

    inside a writing transaction    by the transaction itself, before each write
    outside of transactions         by each transaction that commits, before its COMMIT;
                                    of new records after it, since it may be refused

Before that a transaction sends all its statements: one that has changed a record knows what it was,
since it holds it until it ends. An iteration that begins while a transaction is committing is told
of its writes, too, but not for sure: it is unknown whether the first page sees them, and whether
they are not refused. One that has read a page before it could register compares
`commits` from before that page. Other processes tell nothing.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from zapdb.limits import ITERATION_TOLD_WRITES_MAX

if TYPE_CHECKING:
    from zapdb.storage.connection import Connection

TableId = tuple[int, int]
"""Tenant, and number of the table."""
RecordWrite = tuple[bytes, bytes | None, bytes | None]
"""The key of a record, and its bytes before and after a write; None if there is no record."""


class Listener(Protocol):
    """An iteration that is told of writes. It has a lock of its own."""

    def tell(self, writes: Iterable[RecordWrite], *, is_sure: bool = True) -> None:
        """Take note of writes of its table that a transaction is about to commit. Raises
        nothing."""

    def tell_inside(
        self, connection: Connection, writes: Iterable[RecordWrite], serial: int
    ) -> None:
        """The same for writes that its own transaction is about to do."""

    def take_back(self, serial: int) -> None:
        """Forget what was told behind a serial: it was rolled back."""


Listeners = weakref.WeakKeyDictionary[Listener, TableId]


class WritesToTell:
    """What a transaction has written so far, to be told when it commits."""

    def __init__(self) -> None:
        self._batches: list[tuple[int, TableId, Sequence[RecordWrite]]] = []
        self._count = 0
        self.is_full = False
        """Whether it is so much that it is to be told early."""
        self.serial = 0
        """Of the newest batch."""
        self.inside: Listeners = weakref.WeakKeyDictionary()
        """The iterations inside the transaction."""

    @property
    def tables(self) -> set[TableId]:
        return {table for _, table, _ in self._batches}

    def add(self, table: TableId, writes: Sequence[RecordWrite]) -> None:
        self.serial += 1
        self._batches.append((self.serial, table, writes))
        self._count += len(writes)
        self.is_full = self._count >= ITERATION_TOLD_WRITES_MAX

    def roll_back(self, serial: int) -> None:
        """Drop the batches behind a serial, which a savepoint undoes."""
        for iteration in list(self.inside):
            iteration.take_back(serial)
        self._batches = [batch for batch in self._batches if batch[0] <= serial]
        self._count = sum(len(writes) for _, _, writes in self._batches)
        self.is_full = self._count >= ITERATION_TOLD_WRITES_MAX

    def take(self) -> WritesToTell:
        """Return what is to be told early, because it is much."""
        early = WritesToTell()
        early._batches, self._batches, self._count = self._batches, [], 0
        self.is_full = False
        return early

    def list_net(self, table: TableId, *, of_new: bool) -> list[RecordWrite]:
        """Return what the transaction has made of each record of a table that was there before, or
        of each that was not."""
        joined = dict[bytes, tuple[bytes | None, bytes | None]]()
        for _, one, writes in self._batches:
            if one == table:
                for key, before, after in writes:
                    joined[key] = joined[key][0] if key in joined else before, after
        return [(key, *pair) for key, pair in joined.items() if (pair[0] is None) == of_new]


class OwnWrites:
    """The iterations outside of transactions, and the transactions that are committing, of all
    that this process has opened of one database."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._iterations: Listeners = weakref.WeakKeyDictionary()
        self._committing: set[WritesToTell] = set()
        self.commits = 0
        """How many transactions that wrote have ended their COMMIT, whatever came of it."""

    def begin(self, iteration: Listener, table: TableId, since: int | None = None) -> bool:
        """Tell an iteration of all writes of a table from now on, until it is dropped; returns
        whether a page that it has read before may have others or not: some are being committed, or
        were since there were so many `commits`."""
        with self._lock:
            self._iterations[iteration] = table
            committing = list(self._committing)
        found = [written.list_net(table, of_new=False) for written in committing]
        for writes in found:
            iteration.tell(writes, is_sure=False)
        return any(found) or since not in (None, self.commits)

    def begin_commit(self, written: WritesToTell) -> bool:
        """Begin to commit what a transaction has written; returns whether there is an iteration
        that is to be told of it before."""
        with self._lock:
            self._committing.add(written)
            told = self._iterations
            return bool(told) and not written.tables.isdisjoint(told.values())

    def end_commit(self, written: WritesToTell, *, is_committed: bool) -> None:
        with self._lock:
            self._committing.discard(written)
            self.commits += 1
        if is_committed and self._iterations:
            self.tell(written, of_new=True)

    def tell(self, written: WritesToTell, *, of_new: bool = False) -> None:
        """Tell the iterations what a transaction has written so far."""
        with self._lock:
            told = list(self._iterations.items())
        for table in {table for _, table in told}:
            writes = written.list_net(table, of_new=of_new)
            for iteration, of in told if writes else ():
                if of == table:
                    iteration.tell(writes)


def note_writes(connection: Connection, table: TableId, writes: Sequence[RecordWrite]) -> None:
    """Note records that a transaction is about to write, and tell the iterations inside it."""
    transaction = connection.transaction
    assert transaction is not None
    written = transaction.to_tell
    if written is None:
        written = transaction.to_tell = WritesToTell()
    if written.is_full:  # who begins later is not told of these: see the limit
        early = written.take()
        connection.flush()
        connection.storage.own_writes.tell(early)
    written.add(table, writes)
    if written.inside:
        connection.flush()  # what was to be true before these writes
        for iteration, of in list(written.inside.items()):
            if of == table:
                iteration.tell_inside(connection, writes, written.serial)


def to_tell_of(connection: Connection) -> WritesToTell:
    """Return what the transaction of a connection has to tell."""
    transaction = connection.transaction
    assert transaction is not None
    if transaction.to_tell is None:
        transaction.to_tell = WritesToTell()
    return transaction.to_tell


_lock: Final = threading.Lock()
_by_database: Final = weakref.WeakValueDictionary[str, OwnWrites]()


def own_writes_of(database: str) -> OwnWrites:
    """Return what all that have opened a database in this process share."""
    name = f"{os.getpid()} {database}"  # a forked process may have inherited a lock that is held
    with _lock:
        found = _by_database.get(name)
        if found is None:
            found = _by_database[name] = OwnWrites()
        return found
