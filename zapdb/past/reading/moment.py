"""Moments as applications name them, and how they are found in the change log."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from time import sleep
from typing import NamedTuple

from zapdb.errors import (
    HistoryBehind,
    HistoryPurged,
    MomentInFuture,
    UsageError,
)
from zapdb.limits import MOMENT_WAIT_SECONDS
from zapdb.log.change_log import BOOKMARK_TEXT, Bookmark
from zapdb.log.moments import LoggedMoment, Moments, moments_of
from zapdb.past.files.history_manifest import list_timelines
from zapdb.past.reading.replaced_files import retry_if_compacted
from zapdb.printing import show_moment
from zapdb.storage import Connection
from zapdb.storage.cells import as_number, as_time
from zapdb.tables.change_decoding import RecordChange, SchemaEvent
from zapdb.tables.changes import (
    find_newest_stamp,
    open_log,
    within_snapshot,
)
from zapdb.tables.session import Session
from zapdb.values.timestamp import EPOCH


@dataclass(frozen=True, slots=True)
class Moment:
    """The state directly after one transaction of the change log.

    Moments are numbered in the order of the log, for each tenant apart; on SQLite numbers may be
    left out. From `visible_at` on, readers could see it: this never decreases from moment to
    moment, and is None for the state before the log began. `bookmark` is its place in the log.
    """

    number: int
    visible_at: datetime | None
    bookmark: Bookmark

    def __repr__(self) -> str:
        since = "" if self.visible_at is None else f", visible {show_moment(self.visible_at)}"
        return f"<moment {self.number}{since}>"


class Time(NamedTuple):
    """A time in microseconds since 1970-01-01 UTC."""

    us: int


When = Moment | int | datetime | Bookmark | RecordChange | SchemaEvent
"""What names a moment: see `Database.at`."""


def parse_moment(text: str) -> datetime | int | Bookmark | None:
    """Read what names a moment in a text: `#12`, a time with its UTC offset, or a bookmark; None
    for anything else."""
    if re.fullmatch(r"#[0-9]{1,18}", text):
        return int(text[1:])
    if BOOKMARK_TEXT.fullmatch(text):
        return Bookmark.parse(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return None if time.tzinfo is None else time


def to_moment(found: LoggedMoment) -> Moment:
    visible_at = as_time(found.visible_at) if found.visible_at else None
    return Moment(found.number, visible_at, found.bookmark)


def require_no_preview(session: Session) -> None:
    """Raise `UsageError` in a database that was opened with migrations that are not applied."""
    if session.is_preview:
        raise UsageError(
            "a preview has no past: the schema that it shows was never active",
            hint="open the database without preview",
        )


def open_moments(session: Session) -> Moments:
    """Open the log's moments; raises `UsageError` inside a writing transaction, and in a
    preview."""
    require_no_preview(session)
    return moments_of(open_log(session))


def find_moment(session: Session, when: When, *, only_logged: bool = False) -> LoggedMoment:
    """Find the moment that is meant, in the change log or, where that was pruned, in the files of
    the history store, unless `only_logged`.

    Raises `MomentInFuture`, `HistoryBehind`, `HistoryPurged`, and `UsageError` for what names none.
    """
    moments, named = open_moments(session), when
    if isinstance(when, RecordChange | SchemaEvent | Moment):
        when = when.bookmark
    wanted: int | Bookmark | Time
    if isinstance(when, datetime):
        wanted = Time(_to_microseconds(when))
        _reach(session, moments, wanted.us, when)
    elif not isinstance(when, Bookmark) and (isinstance(when, bool) or not isinstance(when, int)):
        raise UsageError(
            "this names no moment",
            got=type(when).__name__,
            hint="give a time with its zone, a moment of db.moments(), its number, a change of "
            "db.change_log.read(), or a bookmark",
        )
    else:
        wanted = when
        find_newest_stamp(session, moments.log)
    found = retry_if_compacted(
        session, lambda: _find(session, moments, wanted, only_logged=only_logged)
    )
    _require_own(session, named, found)
    return found


def _require_own(session: Session, named: When, found: LoggedMoment) -> None:
    """Raise `UsageError` if another moment is at the place of the one that is meant."""
    if isinstance(named, Moment):
        made = to_moment(found)
        is_own = (named.number, named.visible_at) == (made.number, made.visible_at)
    elif isinstance(named, RecordChange | SchemaEvent):
        with within_snapshot(session) as connection:
            made_at = connection.fetch_one(
                f"SELECT made_at FROM zapdb_transactions WHERE tenant = {session.catalog.tenant}"
                f" AND number = {int(named.transaction)}"
            )
        is_own = found.transaction in (None, named.transaction) and (
            made_at is None or as_time(as_number(made_at[0])) == named.made_at
        )
    else:
        return
    if not is_own:
        raise UsageError(
            "this database has another moment there",
            given=repr(named),
            found=repr(to_moment(found)),
            hint="it belongs to another database, or this one was restored from an older backup",
        )


def _find(
    session: Session, moments: Moments, wanted: int | Bookmark | Time, *, only_logged: bool
) -> LoggedMoment:
    with within_snapshot(session) as connection:
        if isinstance(wanted, Time):
            found = moments.find_before(connection, wanted.us)
        elif isinstance(wanted, Bookmark):
            found = _find_bookmark(moments, connection, wanted)
        else:
            found = _find_number(moments, connection, wanted)
        if only_logged:
            require_kept(moments, connection, found)
        return _find_stored(connection, moments, found, wanted)


def _find_stored(
    connection: Connection, moments: Moments, found: LoggedMoment, wanted: int | Bookmark | Time
) -> LoggedMoment:
    """Find what is meant in the files of the store, if the log was pruned there."""
    if not is_pruned(connection, moments, found):
        return found
    if not list_timelines(connection, moments.log.tenant):
        raise make_pruned(connection, moments, found.number)
    from zapdb.past.reading.stored_moments import StoredMoments

    stored = StoredMoments(connection, moments)
    if isinstance(wanted, Time):
        return stored.find_before(wanted.us)
    if isinstance(wanted, Bookmark):
        return stored.find_bookmark(wanted)
    return stored.find_number(wanted)


def find_newest_moment(session: Session) -> LoggedMoment:
    """Find the last moment of the log as it is now."""
    moments = open_moments(session)
    find_newest_stamp(session, moments.log)
    with within_snapshot(session) as connection:
        return moments.find_newest(connection)


def find_before(session: Session, change: RecordChange | SchemaEvent | Moment) -> LoggedMoment:
    """Find the moment in front of that of a change; raises `UsageError` for what is none."""
    if not isinstance(change, RecordChange | SchemaEvent | Moment):
        raise UsageError(
            "this is no change",
            got=type(change).__name__,
            hint="give a change of db.change_log.read(), or a moment of db.moments()",
        )
    moments, place = open_moments(session), place_before(change.bookmark)

    def find() -> LoggedMoment:
        with within_snapshot(session) as connection:
            found = moments.find_bookmark(connection, place)
            return _find_stored(connection, moments, found, place)

    return retry_if_compacted(session, find)


def place_before(bookmark: Bookmark) -> Bookmark:
    """Return the place in front of the transaction of a bookmark."""
    return Bookmark(bookmark.stamp, bookmark.commit_order - 1, 0, b"")


def require_kept(moments: Moments, connection: Connection, moment: LoggedMoment) -> None:
    """Raise `HistoryPurged` if changes after a moment were pruned."""
    if is_pruned(connection, moments, moment):
        raise make_pruned(connection, moments, moment.number)


def is_pruned(connection: Connection, moments: Moments, moment: LoggedMoment) -> bool:
    """Whether changes after a moment were pruned from the change log."""
    return moment.number < moments.find_beginning(connection).number


def make_pruned(connection: Connection, moments: Moments, number: int) -> HistoryPurged:
    return HistoryPurged(
        "changes after the moment were pruned from the change log",
        moment=number,
        log_begins_behind=moments.find_beginning(connection).number,
        database=moments.log.storage.shown_url,
        hint="ask for a later moment: `zapdb history moments` lists them",
    )


def _find_number(moments: Moments, connection: Connection, number: int) -> LoggedMoment:
    require_come(number, moments.find_newest(connection).number)
    if number < 0:
        raise UsageError(
            "moments are numbered from 0, the state before the change log began",
            moment=number,
            hint="db.at(db.moments()[n]) goes back by n transactions",
        )
    return moments.find_number(connection, number)


def require_come(number: int, newest: int) -> None:
    """Raise `MomentInFuture` for a number above that of the newest moment."""
    if number > newest:
        raise MomentInFuture(
            "there is no such moment yet",
            moment=number,
            newest=newest,
            hint="give the number of an earlier moment",
        )


def _find_bookmark(moments: Moments, connection: Connection, bookmark: Bookmark) -> LoggedMoment:
    newest = moments.find_newest(connection)
    if bookmark.stamp > newest.stamp:
        raise UsageError(
            "the bookmark is beyond the end of the change log",
            bookmark_stamp=bookmark.stamp,
            newest_stamp=newest.stamp,
            hint="it belongs to another database, or this one was restored from an older backup",
        )
    moments.log.require_own(connection, bookmark)
    return moments.find_bookmark(connection, bookmark)


def _to_microseconds(time: datetime) -> int:
    if time.tzinfo is None:
        raise UsageError(
            "a time that names a moment needs a time zone",
            time=time.isoformat(),
            hint="for example datetime(2026, 1, 1, tzinfo=UTC)",
        )
    return (time - EPOCH) // timedelta(microseconds=1)


def _reach(session: Session, moments: Moments, time_us: int, time: datetime) -> None:
    """See that nothing can become visible before a time any more."""
    connection = session.storage.connection()
    if time_us <= moments.read_watermark(connection):
        return
    now = session.storage.now_us(connection)
    is_able = connection.mode is None and not session.is_read_only
    if is_able and now < time_us <= now + MOMENT_WAIT_SECONDS * 1e6:
        # The database's clock may round down by half a millisecond, before and afterwards.
        sleep((time_us - now) / 1e6 + 0.001)
        now = session.storage.now_us(connection)
    if time_us > now:
        raise MomentInFuture(
            "the time is not over yet",
            time=time.isoformat(),
            now=as_time(now).isoformat(),
            hint="give an earlier time; the database's clock counts",
        )
    if not is_able:
        raise HistoryBehind(
            "the watermark of the change log has not reached this time",
            time=time.isoformat(),
            watermark=as_time(moments.read_watermark(connection)).isoformat(),
            hint="ask outside of a snapshot, by a process that is not read-only; or ask for an "
            "earlier time",
        )
    with session.job_transaction() as begun:
        moments.raise_watermark(begun)
