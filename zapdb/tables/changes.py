"""The change log as applications see it: changes of records and schemas, in order (rule 29).

A reader first gives newly visible changes a stamp (a logical timestamp), if they have none yet; see
`zapdb.log.change_log`. A change is decoded under the schema of its time, which the schema
history keeps. A bookmark is a place in the order, and stays valid until changes after it are
pruned; followers' bookmarks are rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from zapdb.errors import ConcurrencyError, HistoryBehind, UsageError
from zapdb.limits import NAME_LENGTH_MAX, NODE_HEARTBEAT_SECONDS
from zapdb.log.change_log import BEGINNING, START, Bookmark, ChangeLog, Lag
from zapdb.log.moments import moments_of
from zapdb.log.stamps import add_stamp
from zapdb.printing import show_moment
from zapdb.storage import Connection, DuplicateKey
from zapdb.storage.cells import as_text, as_time
from zapdb.tables.change_decoding import ChangeDecoder, RecordChange, SchemaEvent
from zapdb.tables.session import Session


def read_changes(session: Session, since: Bookmark | None) -> Iterator[RecordChange | SchemaEvent]:
    """Yield the changes after a bookmark, or all, page by page, up to the present end of the log.

    Raises `UsageError` inside a writing transaction, and for a bookmark beyond the log's end;
    `HistoryBehind` if no change has a place in the order yet, where none can be given one;
    `ChangesPruned` if changes after the bookmark were pruned, before or during the reading.
    """
    log, fetch = open_log(session), partial(fetch_logged, session)
    until = find_newest_stamp(session, log)
    if since is None:
        since = log.read_beginning(fetch)
    require_within_log(session, since, until)
    reader = ChangeDecoder(session)
    for row in log.read(fetch, since, until):
        yield reader.decode(row)


def require_within_log(session: Session, bookmark: Bookmark, newest: int) -> None:
    """Raise `UsageError` for a bookmark that is not of this database, or of another history of
    it."""
    if bookmark.stamp > newest:
        raise UsageError(
            "the bookmark is beyond the end of the change log",
            database=session.storage.shown_url,
            bookmark_stamp=bookmark.stamp,
            newest_stamp=newest,
            hint="the bookmark belongs to another database, or this one was restored "
            "from an older backup; begin again from db.change_log.begin()",
        )
    with within_snapshot(session) as connection:
        open_log(session).require_own(connection, bookmark)


def find_log_end(session: Session) -> Bookmark:
    """Return the bookmark after all changes in the log."""
    log = open_log(session)
    end = Bookmark.behind(find_newest_stamp(session, log))
    return log.timed(session.storage.connection(), end)


def find_log_begin(session: Session) -> Bookmark:
    """Return the bookmark before all changes in the log."""
    return open_log(session).read_beginning(session.storage.connection().fetch_all)


def open_log(session: Session) -> ChangeLog:
    """Open the log; raises `UsageError` inside a writing transaction, whose changes have no order
    yet."""
    connection = session.storage.connection()
    if connection.mode is not None and not connection.mode.only_reads:
        raise UsageError(
            "the change log cannot be read inside a writing transaction",
            hint="read the changes first, then write and advance the follower in db.transaction()",
        )
    return ChangeLog(session.storage, session.catalog.tenant)


def find_newest_stamp(session: Session, log: ChangeLog) -> int:
    """Give all visible changes a stamp, and return the newest stamp.

    A snapshot and a read-only process see only changes that have one. Raises `HistoryBehind`
    there, if there are changes and none of them has one.
    """
    connection = session.storage.connection()
    if connection.mode is None and not session.is_read_only and log.needs_stamp(connection):
        with session.job_transaction() as begun:
            add_stamp(begun, log.tenant)
    connection = session.storage.connection()
    newest = log.read_newest(connection)
    if not newest and log.needs_stamp(connection):
        raise HistoryBehind(
            "the changes of the change log have no place in its order yet",
            database=session.storage.shown_url,
            changes_waiting=log.measure_lag(connection, START).changes,
            hint="a process that has the database open to write gives them one within "
            f"{NODE_HEARTBEAT_SECONDS:g} s; read them there, or again after that",
        )
    return newest


@dataclass(frozen=True, slots=True)
class ChangeLogStatus:
    """How far the change log can be read in this process, and what it can't read yet.

    `end` is the bookmark behind all changes that it can read, and `watermark` the time before which
    no other change becomes visible any more; None if there never was a change. `waiting` are the
    changes behind `end`: a process that writes gives them their place in the order.
    """

    end: Bookmark
    watermark: datetime | None
    waiting: Lag

    def __repr__(self) -> str:
        until = "empty" if self.watermark is None else f"up to {show_moment(self.watermark)}"
        return f"<change log {until}, {self.waiting.changes} changes waiting>"


def read_log_status(session: Session) -> ChangeLogStatus:
    """Return how far the log can be read; gives visible changes a stamp first, where it can."""
    log = open_log(session)
    with suppress(HistoryBehind):
        find_newest_stamp(session, log)
    with within_snapshot(session) as connection:
        return measure_log(connection, log)


def measure_log(connection: Connection, log: ChangeLog) -> ChangeLogStatus:
    """Return how far the log can be read as it is; what has no stamp yet gets none."""
    end = log.timed(connection, Bookmark.behind(log.read_newest(connection)))
    watermark = moments_of(log).read_watermark(connection)
    known = as_time(watermark) if watermark and end != START else None
    return ChangeLogStatus(end, known, log.measure_lag(connection, end))


@contextmanager
def within_snapshot(session: Session) -> Iterator[Connection]:
    """The snapshot that this thread is in, or one of its own."""
    connection = session.storage.connection()
    if connection.mode is not None:
        yield connection
        return
    with session.reading() as begun:
        yield begun


def fetch_logged(session: Session, sql: str, parameters: Sequence[Any]) -> list[Any]:
    """Run one statement of a reader of the log, as `Fetch`."""
    with within_snapshot(session) as connection:
        return connection.fetch_all(sql, parameters)


# Followers


@dataclass(frozen=True, slots=True)
class FollowerStatus:
    """A follower: its bookmark, since when, and how far it is behind."""

    name: str
    bookmark: Bookmark
    advanced_at: datetime
    lag: Lag

    def __repr__(self) -> str:
        return (
            f"<follower {self.name!r}: {self.lag.changes} changes behind, "
            f"{self.lag.seconds:.1f} s, advanced {show_moment(self.advanced_at)}>"
        )


class ChangeFollower:
    """A named reader of the change log; its bookmark is kept in the database.

    A follower that never advanced is at the beginning of the log, and does not prevent pruning.
    """

    def __init__(self, session: Session, name: str) -> None:
        if not 0 < len(name) <= NAME_LENGTH_MAX or not name.isprintable():
            raise UsageError(
                "this is not a valid name of a follower",
                length=len(name),
                longest=NAME_LENGTH_MAX,
                hint="give printable characters, at least one",
            )
        self.name = name
        self._session = session
        self._known: set[str] = set()
        """The stored bookmark is one of these, unless another process advances the follower."""
        open_log(session)

    def __repr__(self) -> str:
        return f"<follower {self.name!r} of the change log>"

    @property
    def bookmark(self) -> Bookmark:
        """The stored bookmark."""
        stored = self._read(self._session.storage.connection())
        self._known = {str(stored)}
        return stored

    @property
    def _is_stored(self) -> bool:
        """Whether it ever advanced, and was not removed since."""
        return self._find(self._session.storage.connection()) is not None

    def changes(self) -> Iterator[RecordChange | SchemaEvent]:
        """Iterate the changes after the bookmark, in order, up to now; does not advance the
        follower."""
        return read_changes(self._session, self.bookmark)

    def advance(self, bookmark: Bookmark | str) -> None:
        """Store that all changes up to a bookmark are processed.

        Inside `db.transaction()` it is part of the transaction, so the follower's own writes there
        happen once for each change. Raises `ConcurrencyError` if another process has advanced the
        follower, and `ChangesPruned` for a bookmark from which it could not continue.
        """
        target = Bookmark.parse(str(bookmark))
        if not self._known:
            self._known = {str(self._read(self._session.storage.connection()))}

        def advance() -> None:
            with self._session.writing() as connection:
                self._store(connection, target)

        self._session.run(advance)
        self._known.add(str(target))

    def _store(self, connection: Connection, target: Bookmark) -> None:
        storage, tenant = self._session.storage, self._session.catalog.tenant
        mark, now = storage.placeholder, storage.now_us(connection)
        log = ChangeLog(storage, tenant)
        log.require_unpruned(connection.fetch_all, target)
        log.require_own(connection, target)
        stored = self._find(connection)
        if str(stored or START) not in self._known:
            raise self._advanced_elsewhere(stored)
        if stored is not None:
            connection.run(
                f"UPDATE zapdb_followers SET bookmark = {mark}, advanced_at = {mark}"
                f" WHERE tenant = {tenant} AND name = {mark}",
                (str(target), now, self.name),
            )
            return
        try:
            connection.run(
                f"INSERT INTO zapdb_followers VALUES ({tenant}, {mark}, {mark}, {mark})",
                (self.name, str(target), now),
            )
        except DuplicateKey:
            raise self._advanced_elsewhere(None) from None

    def _advanced_elsewhere(self, stored: Bookmark | None) -> ConcurrencyError:
        return ConcurrencyError(
            "another process follows under this name, and has advanced",
            follower=self.name,
            bookmark=stored or "just stored",
            hint="nothing was written; read changes() again, or give each process a name "
            "of its own",
        )

    def measure_lag(self) -> Lag:
        """Return how far the follower is behind."""
        connection = self._session.storage.connection()
        log = ChangeLog(self._session.storage, self._session.catalog.tenant)
        return log.measure_lag(connection, self._read(connection))

    def remove(self) -> None:
        """Delete the bookmark; a later follower with the name starts again."""

        def remove() -> None:
            with self._session.writing() as connection:
                connection.run(
                    f"DELETE FROM zapdb_followers WHERE tenant = {self._session.catalog.tenant}"
                    f" AND name = {connection.storage.placeholder}",
                    (self.name,),
                )

        self._session.run(remove)
        self._known = set()

    def _read(self, connection: Connection) -> Bookmark:
        return self._find(connection) or START

    def _find(self, connection: Connection) -> Bookmark | None:
        row = connection.fetch_one(
            f"SELECT bookmark FROM zapdb_followers WHERE tenant = {self._session.catalog.tenant}"
            f" AND name = {connection.storage.placeholder}",
            (self.name,),
        )
        return None if row is None else Bookmark.stored(row[0])


def list_followers(connection: Connection, tenant: int) -> list[FollowerStatus]:
    """Return the followers that ever advanced, by name."""
    log = ChangeLog(connection.storage, tenant)
    rows = connection.fetch_all(
        "SELECT name, bookmark, advanced_at FROM zapdb_followers"
        f" WHERE tenant = {int(tenant)} AND name <> '{BEGINNING}' ORDER BY name"
    )
    found = []
    for name, text, advanced_at in rows:
        bookmark = Bookmark.stored(text)
        lag = log.measure_lag(connection, bookmark)
        found.append(FollowerStatus(as_text(name), bookmark, as_time(advanced_at), lag))
    return found
