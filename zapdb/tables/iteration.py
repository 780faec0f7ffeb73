"""Iterations beside the writes of their own process.

Pages are read one after the other, and what is written in between may move a record to a place that
was not read yet, or away from one. So an iteration is told of the records that its process writes
(`storage.own_writes`), and marks those that would be met wrongly:

    the record was not reached, and moves    it comes at the place that it had
    it was reached, and moves                it does not come again
    it is new                                it does not come

The first write of a record decides. Inside a writing transaction a record that was not reached is
marked with its bytes, so that all records come as of the beginning of the iteration. Outside, a
record comes as it is when its page is read, if it still matches then. A record that keeps its place
needs no mark there, and one that was reached and keeps it needs none at all.

An iteration in the order of keys has no records that move; outside, only new ones are marked.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from operator import ge, le
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import msgspec

from zapdb.errors import StorageError, ZapdbError
from zapdb.limits import ITERATION_MARKS_SIZE_BYTES, PAGE_RECORDS_MAX
from zapdb.records import Attachments, PagedRows, Record, RecordReader
from zapdb.storage import Connection
from zapdb.storage.identifiers import make_uuid7
from zapdb.storage.own_writes import RecordWrite, TableId, to_tell_of
from zapdb.storage.statements import VALUES_PER_STATEMENT

if TYPE_CHECKING:
    from zapdb.tables.indexes import BoundTable
    from zapdb.tables.indexes.spans import Span
    from zapdb.tables.session import Session

Reached = tuple[bytes, bytes] | None
"""The key on the path and the record key of what was reached last."""


class PathPlace(NamedTuple):
    """Where a record comes: in a branch, by its full key there."""

    branch: int
    key: bytes


class Owed(NamedTuple):
    """A record that was moved before it was reached."""

    path_key: bytes
    key: bytes
    stored: bytes | None
    """Its bytes as of the beginning. Outside of transactions it comes as it is now, in the order of
    then."""
    archive: bytes | None
    """Its archived values of then, if its table has any."""

    def attachments(self, bound: BoundTable) -> Attachments:
        """Return those of then."""
        archive = msgspec.msgpack.decode(self.archive or b"\x80", type=dict[int, bytes])
        return Attachments(bound.blobs.load, make_uuid7, archive)

    def read(self, bound: BoundTable, reader: RecordReader) -> Record:
        """Return the record as it was at the beginning."""
        assert self.stored is not None
        if self.archive is None:
            return reader.read(self.key, self.stored)
        return reader.open(self.key, self.stored, self.attachments(bound))[0]


class Taken(NamedTuple):
    """The next records of an iteration, in order."""

    rows: PagedRows
    owed: list[Owed]
    waiting: PagedRows
    """What is behind them, to be taken next."""


class Branch(Protocol):
    """A part of an iteration: the records on a path in its order."""

    reached: Reached
    bound: BoundTable

    @property
    def is_by_key(self) -> bool:
        """Whether the path is that of the records' keys."""

    @property
    def is_reversed(self) -> bool: ...

    def find_place(self, key: bytes, stored: bytes) -> bytes | None:
        """Return the full key on the path; None if the branch does not have the record."""

    def may_have(self, key: bytes) -> bool:
        """Return whether a record with this key may be in a branch that is by key."""


class KeyBranch:
    """A range of keys of a table, of which nothing was reached yet."""

    is_by_key = True
    is_reversed = False

    def __init__(self, bound: BoundTable, span: Span) -> None:
        self.bound = bound
        self.span = span
        self.reached: Reached = None

    def may_have(self, key: bytes) -> bool:
        return self.span.holds(key)

    def find_place(self, key: bytes, _stored: bytes) -> bytes | None:
        return key if self.span.holds(key) else None


class Iteration:
    """One iteration of a table's records; it is told of writes as long as it is referred to, by
    those who read its branches."""

    def __init__(self, branches: Sequence[Branch]) -> None:
        self.is_inside = False
        """Whether it is inside a writing transaction."""
        self._branches = branches
        self._are_fixed = len(branches) == 1 and branches[0].is_by_key
        # Only the writer, or the reader, has it; what is done under it writes nothing.
        self._lock = threading.RLock()
        self._marks: Marks | None = None
        self._failure: sqlite3.Error | None = None
        self._serial = 0

    def tell(self, writes: Iterable[RecordWrite], *, is_sure: bool = True) -> None:
        with self._lock:
            self._note(None, writes, is_sure=is_sure)

    def tell_inside(
        self, connection: Connection, writes: Iterable[RecordWrite], serial: int
    ) -> None:
        with self._lock:
            self._serial = serial
            self._note(connection, writes)

    def _note(
        self,
        connection: Connection | None,
        writes: Iterable[RecordWrite],
        *,
        is_sure: bool = True,
    ) -> None:
        try:
            for key, before, after in writes:
                with suppress(ZapdbError):  # a record that can't be read does not come
                    self._mark(connection, (key, before, after), is_sure=is_sure)
        except sqlite3.Error as error:  # it is the iteration that can't go on, not the writer
            self._failure = error
        except ReferenceError:
            return  # another thread has ended it meanwhile

    def take_back(self, serial: int) -> None:
        with self._lock:
            if self._marks is not None:
                self._marks.remove_behind(serial)

    def _mark(self, connection: Connection | None, write: RecordWrite, *, is_sure: bool) -> None:
        key, before, after = write
        if self._are_fixed:
            branch = self._branches[0]
            if not branch.may_have(key) or self._has_reached(PathPlace(0, key), key):
                return
            if not self.is_inside and (before is not None or after is None):
                return
        if self._marks is not None and self._marks.has(key):
            return
        was = None if before is None else self._find(key, before)
        if was is None or self._has_reached(was, key):
            if is_sure and after is not None and self._comes_again(key, after):
                self._add(key, None)
        elif self.is_inside:
            self._add(key, was, before, self._load_archive(connection, key))
        elif after is not None and self._find_new(key, after) != was:
            self._add(key, was, before)

    def _comes_again(self, key: bytes, after: bytes) -> bool:
        place = self._find_new(key, after)
        return place is not None and not self._has_reached(place, key)

    def _find(self, key: bytes, stored: bytes) -> PathPlace | None:
        for number, branch in enumerate(self._branches):
            found = branch.find_place(key, stored)
            if found is not None:
                return PathPlace(number, found)
        return None

    def _find_new(self, key: bytes, stored: bytes) -> PathPlace | None:
        """Find the place of a record that is written now; a mark is never wrong for one that can't
        be read before it is committed, because of a large value."""
        try:
            return self._find(key, stored)
        except ZapdbError:
            return PathPlace(len(self._branches), b"")

    def _has_reached(self, place: PathPlace, key: bytes) -> bool:
        if place.branch == len(self._branches):
            return False
        branch = self._branches[place.branch]
        if branch.reached is None:
            return False
        at = (place.key, key)
        return at >= branch.reached if branch.is_reversed else at <= branch.reached

    def _load_archive(self, connection: Connection | None, key: bytes) -> bytes | None:
        archives = self._branches[0].bound.archives
        if connection is None or not archives.is_used:
            return None
        return msgspec.msgpack.encode(archives.load(connection, key)[1])

    def _add(
        self,
        key: bytes,
        place: PathPlace | None,
        stored: bytes | None = None,
        archive: bytes | None = None,
    ) -> None:
        if self._marks is None:
            self._marks = Marks()
        self._marks.add(key, place, (stored, archive), self._serial)

    def take(self, number: int, span: Span, waiting: PagedRows, *, is_last: bool) -> Taken:
        """Take the next of the rows that wait, which are in the order of a branch and in one span
        of it, and the marked records that come among them. `is_last` says that the span has no
        more rows."""
        with self._lock:
            if self._failure is not None:
                raise StorageError(
                    "what was written during an iteration can't be kept any more",
                    cause=self._failure,
                    hint="SQLite's directory for temporary files (SQLITE_TMPDIR) needs space; or "
                    "iterate inside db.snapshot()",
                ) from self._failure
            branch = self._branches[number]
            edge = waiting[-1][:2] if waiting else None
            if self._marks is None or (edge is None and not is_last):
                branch.reached = edge or branch.reached
                return Taken(waiting, [], [])
            between = branch.reached, None if is_last else edge
            owed = self._marks.list_owed(number, span, between, is_reversed=branch.is_reversed)
            rows, waiting = waiting, []
            if len(owed) == PAGE_RECORDS_MAX:  # there may be more of them before the other rows
                edge = owed[-1][:2]
                is_before = ge if branch.is_reversed else le
                rows, waiting = [r for r in rows if is_before(r[:2], edge)], rows
                waiting = waiting[len(rows) :]
            elif owed:
                ends = [owed[-1][:2], edge or owed[-1][:2]]
                edge = min(ends) if branch.is_reversed else max(ends)
            branch.reached = edge or branch.reached
            marked = self._marks.find([key for _, key, _ in rows])
            return Taken([row for row in rows if row[1] not in marked], owed, waiting)

    def take_all(
        self, number: int, span: Span, rows: PagedRows, *, is_last: bool
    ) -> Iterator[Taken]:
        """Take rows of a span until none waits, and, if it has no more, all marked records that
        come in it."""
        may_owe = True
        while may_owe:
            taken = self.take(number, span, rows, is_last=is_last)
            yield taken
            rows, may_owe = taken.waiting, len(taken.owed) == PAGE_RECORDS_MAX

    def take_unmarked(self, number: int, key: bytes) -> bool:
        """Take all rows up to a key in a branch that is by key, if no record is marked; returns
        whether that is so."""
        with self._lock:
            if self._marks is not None or self._failure is not None:
                return False
            self._branches[number].reached = key, key
            return True

    def find_at(self, keys: Sequence[bytes]) -> dict[bytes, Owed | None]:
        """Return what those of some records had at the beginning that were written since, of an
        iteration inside a transaction that reaches none; None if there was no such record."""
        with self._lock:
            return {} if self._marks is None else self._marks.find_owed(keys)

    @property
    def lock(self) -> AbstractContextManager[object]:
        """The lock under which branches are bound to another schema."""
        return self._lock


class Marks:
    """The records that an iteration must not take as it meets them, by key.

    SQLite keeps them: a temporary database has so much memory and no more, and finds the records
    that come in a range.
    """

    def __init__(self) -> None:
        self._db = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        for statement in _TABLE:
            self._db.execute(statement)

    def has(self, key: bytes) -> bool:
        return self._db.execute(_HAS, (key,)).fetchone() is not None

    def add(
        self,
        key: bytes,
        place: PathPlace | None,
        then: tuple[bytes | None, bytes | None],
        serial: int,
    ) -> None:
        branch, path_key = place or (None, None)
        self._db.execute(_ADD, (key, branch, path_key, *then, serial))

    def remove_behind(self, serial: int) -> None:
        self._db.execute(_REMOVE, (serial,))

    def find(self, keys: Sequence[bytes]) -> set[bytes]:
        """Return those of the keys that are marked."""
        found = set[bytes]()
        for start in range(0, len(keys), VALUES_PER_STATEMENT):
            some = keys[start : start + VALUES_PER_STATEMENT]
            marks = ", ".join("?" * len(some))
            found.update(key for (key,) in self._db.execute(f"{_FIND} ({marks})", some))
        return found

    def find_owed(self, keys: Sequence[bytes]) -> dict[bytes, Owed | None]:
        """Return what comes of those of the keys that are marked."""
        found = dict[bytes, Owed | None]()
        for key in keys:
            row = self._db.execute(_FIND_OWED, (key,)).fetchone()
            if row is not None:
                found[key] = None if row[0] is None else Owed(*row)
        return found

    def list_owed(
        self, branch: int, span: Span, between: tuple[Reached, Reached], *, is_reversed: bool
    ) -> list[Owed]:
        """Return what comes in a span of a branch, behind what was reached and up to an edge, or to
        the end, in the order of reading."""
        sql, parameters = _OWED, list[bytes | int]([branch])
        for operator, bound in ((">=", span.lower), ("<", span.upper)):
            if bound is not None:
                sql += f" AND path_key {operator} ?"
                parameters.append(bound)
        behind, up_to = ("<", ">=") if is_reversed else (">", "<=")
        for operator, edge in zip((behind, up_to), between, strict=True):
            if edge is not None:
                sql += f" AND (path_key, key) {operator} (?, ?)"
                parameters += edge
        way = "DESC" if is_reversed else "ASC"
        sql += f" ORDER BY path_key {way}, key {way} LIMIT {PAGE_RECORDS_MAX}"
        return [Owed(*row) for row in self._db.execute(sql, parameters)]


_TABLE: Final = (
    "PRAGMA journal_mode = OFF",
    f"PRAGMA cache_size = -{ITERATION_MARKS_SIZE_BYTES // 1024}",
    "CREATE TABLE marks (key BLOB PRIMARY KEY, branch INTEGER, path_key BLOB, stored BLOB,"
    " archive BLOB, serial INTEGER) WITHOUT ROWID",
    "CREATE INDEX owed ON marks (branch, path_key, key) WHERE branch IS NOT NULL",
    "BEGIN",  # and no end: it goes with its connection
)
_HAS: Final = "SELECT 1 FROM marks WHERE key = ?"
_ADD: Final = "INSERT INTO marks VALUES (?, ?, ?, ?, ?, ?)"
_REMOVE: Final = "DELETE FROM marks WHERE serial > ?"
_FIND: Final = "SELECT key FROM marks WHERE key IN"
_FIND_OWED: Final = "SELECT path_key, key, stored, archive FROM marks WHERE key = ?"
_OWED: Final = "SELECT path_key, key, stored, archive FROM marks WHERE branch = ?"


def begin_iteration(
    session: Session, bound: BoundTable, iteration: Iteration, since: int | None = None
) -> bool:
    """Let an iteration be told of writes: those of its transaction, or of this process, until it is
    dropped. It begins with this, before its first page is read; if it was read since there were so
    many `commits`, returns whether it must be read again."""
    if not session.sees_writes:
        return False
    table: TableId = bound.catalog.tenant, bound.schema.number
    connection = _transaction_of(session)
    if connection is None:
        return session.storage.own_writes.begin(iteration, table, since)
    if connection.mode is not None and not connection.mode.only_reads:
        iteration.is_inside = True
        to_tell_of(connection).inside[iteration] = table
    return False


def is_inside_writing(session: Session) -> bool:
    """Return whether the session reads inside a transaction that may write."""
    connection = _transaction_of(session) if session.sees_writes else None
    return connection is not None and connection.mode is not None and not connection.mode.only_reads


def _transaction_of(session: Session) -> Connection | None:
    begun = session.open_here()
    connection = session.storage.pool.known_connection() if begun is None else begun.connection
    return None if connection is None or connection.mode is None else connection
