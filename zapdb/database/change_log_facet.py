"""The change log of an open database: `db.change_log`; see `zapdb.tables.changes`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from zapdb.log.change_log import Bookmark
from zapdb.past.reading.listing import read_back, read_one_moment
from zapdb.past.reading.moment import When
from zapdb.tables.change_decoding import RecordChange, SchemaEvent
from zapdb.tables.changes import (
    ChangeFollower,
    ChangeLogStatus,
    FollowerStatus,
    find_log_begin,
    find_log_end,
    list_followers,
    read_changes,
    read_log_status,
)
from zapdb.tables.changes_pruning import PrunedChanges, prune_changes
from zapdb.tables.did_you_mean import Facet
from zapdb.tables.session import Session


class DatabaseChangeLog(Facet):
    """The changes of records and schemas in order, if the setting `change_log` is on.

    `db.change_log` returns it, for the tenant of that database.
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    def __repr__(self) -> str:
        return f"<change log of {self._session.storage.shown_url}>"

    def read(self, since: Bookmark | str | None = None) -> Iterator[RecordChange | SchemaEvent]:
        """Iterate the recorded changes of records and schemas after a bookmark, or all, in order,
        up to now.

        Changes are recorded while the setting `change_log` is on. Changes with one `stamp` became
        visible together. Each has a `bookmark` to continue from, whose text can be stored anywhere;
        a `follower` keeps it in the database. Raises `UsageError` for a bookmark of another
        database, and inside `db.transaction()`; `ChangesPruned` if changes after the bookmark were
        pruned; `IncompatibleVersion` if `zapdb cluster upgrade` has to make room for the log.

        A process that was opened with `read_only=True`, and a snapshot, read up to the newest stamp
        that some other process gave: `status` says of when that is, and how many changes wait for
        the next one. Raises `HistoryBehind` if there was none yet.
        """
        place = None if since is None else Bookmark.parse(str(since))
        return read_changes(self._session, place)

    def read_back(self, until: When | None = None) -> Iterator[RecordChange | SchemaEvent]:
        """Iterate the recorded changes from the newest on, or from a moment as `db.at` takes it,
        back to the beginning of the log. Raises the errors of `db.at`."""
        return read_back(self._session, until)

    def read_moment(self, moment: When) -> list[RecordChange | SchemaEvent]:
        """Return the changes of one transaction, that of a moment as `db.at` takes it, in order;
        raises the errors of `db.at`."""
        return read_one_moment(self._session, moment)

    def begin(self) -> Bookmark:
        """Return the bookmark before all changes in the log, to continue after a gap."""
        return find_log_begin(self._session)

    def end(self) -> Bookmark:
        """Return the bookmark after all changes in the log, to follow from now on."""
        return find_log_end(self._session)

    def status(self) -> ChangeLogStatus:
        """Return how far the log can be read here, and how many changes can't be read yet."""
        return read_log_status(self._session)

    def prune(self, before: datetime | Bookmark | str, *, dry_run: bool = False) -> PrunedChanges:
        """Delete the changes before a time or a bookmark for good: whole transactions, from the
        oldest to the first that was made at that time or later.

        They are deleted in short transactions that don't block writers. After an interruption, the
        next call continues. With `dry_run`, only returns what would be deleted. Raises
        `UsageError`, and deletes nothing, if a follower has not read all of these changes.
        """
        return prune_changes(self._session, before, dry_run=dry_run)

    def follower(self, name: str) -> ChangeFollower:
        """Return the follower with this name, at its stored bookmark."""
        return ChangeFollower(self._session, name)

    def followers(self) -> list[FollowerStatus]:
        """Return the followers of this tenant's changes, and how far each is behind."""
        with self._session.reading() as connection:
            return list_followers(connection, self._session.catalog.tenant)
