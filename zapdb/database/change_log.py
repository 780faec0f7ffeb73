"""The change log of an open database: `db.change_log`; see `zapdb.database.changes`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from zapdb.database.changes import (
    ChangeFollower,
    FollowerStatus,
    RecordChange,
    SchemaEvent,
    find_log_begin,
    find_log_end,
    list_followers,
    read_changes,
)
from zapdb.database.changes_pruning import PrunedChanges, prune_changes
from zapdb.database.session import Session
from zapdb.storage.change_log import Bookmark


class DatabaseChangeLog:
    """What became of records and schemas, in order, where the setting `change_log` is on.

    `db.change_log` makes it, for the tenant of that database.
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    def __repr__(self) -> str:
        return f"<change log of {self._session.storage.shown_url}>"

    def read(self, since: Bookmark | str | None = None) -> Iterator[RecordChange | SchemaEvent]:
        """What became of records and schemas since a bookmark, or ever, as far as it was recorded;
        in order, and up to now.

        Changes are recorded where the setting `change_log` is on. Those of one `stamp` became
        visible together. Each has a `bookmark` to go on from, whose text can be kept anywhere;
        `follower` keeps it in the database. Raises `UsageError` for what is no bookmark of this
        database, and inside `db.transaction()`; `ChangesPruned` where changes behind the bookmark
        are not there any more; `IncompatibleVersion` where `zapdb cluster upgrade` has to make room
        for the log.
        """
        place = None if since is None else Bookmark.parse(str(since))
        return read_changes(self._session, place)

    def begin(self) -> Bookmark:
        """The bookmark in front of all changes that are still there: to go on with a gap."""
        return find_log_begin(self._session)

    def end(self) -> Bookmark:
        """The bookmark behind all changes that there are now: to follow from now on."""
        return find_log_end(self._session)

    def prune(self, before: datetime | Bookmark | str, *, dry_run: bool = False) -> PrunedChanges:
        """Delete the changes before a moment or a bookmark for good: whole transactions, from the
        oldest on, up to the first that was made at the moment or later.

        They go in short transactions beside those who write. If that is interrupted, the next call
        goes on with it. With `dry_run` it is said what would go. Raises `UsageError`, and deletes
        nothing, while a named follower has not seen all of it, and `RollbackInProgress`.
        """
        return prune_changes(self._session, before, dry_run=dry_run)

    def follower(self, name: str) -> ChangeFollower:
        """Whoever follows the changes under a name, from where that name has come to."""
        return ChangeFollower(self._session, name)

    def followers(self) -> list[FollowerStatus]:
        """The named followers of this tenant's changes, and what each has not seen."""
        with self._session.reading() as connection:
            return list_followers(connection, self._session.catalog.tenant)
