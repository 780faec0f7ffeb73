"""Pruning the change log: an operator deletes its oldest part, unless a named follower needs it.

zapdb never prunes by itself. See `zapdb.log.change_log_pruning` for how pruning works while
other transactions read and write.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from zapdb.errors import UsageError
from zapdb.log.change_log import Bookmark
from zapdb.log.change_log_pruning import ChangeLogPruning, PrunedBatch
from zapdb.storage import Connection
from zapdb.tables.changes import find_newest_stamp, open_log, require_within_log
from zapdb.tables.session import Session
from zapdb.values.timestamp import EPOCH


@dataclass(frozen=True, slots=True)
class PrunedChanges:
    """What a pruning of the change log deleted, or would delete.

    `beginning` is the bookmark directly after the last deleted change, `changes` the number of
    deleted changes. With `dry_run`, `changes` is the number of changes that would be deleted,
    counted up to `CHANGES_COUNTED_MAX`. `behind` then names the followers that have not read all of
    them, and so prevent the pruning.
    """

    beginning: Bookmark
    changes: int
    behind: tuple[str, ...] = ()


def prune_changes(
    session: Session, before: datetime | Bookmark | str, *, dry_run: bool
) -> PrunedChanges:
    """See `DatabaseChangeLog.prune`."""
    limit = _read_limit(before)
    session.storage.require_writable()
    if session.storage.is_in_transaction:
        raise UsageError(
            "the change log cannot be pruned inside a transaction or a snapshot",
            hint="end it first; pruning runs short transactions of its own",
        )
    pruning = ChangeLogPruning(open_log(session))
    newest = find_newest_stamp(session, pruning.log)
    if isinstance(limit, Bookmark):
        require_within_log(session, limit, newest)
    with session.reading() as connection:
        place = _find_place(connection, pruning, limit)
        if dry_run:
            behind = tuple(pruning.list_behind(connection, place))
            return PrunedChanges(place, pruning.count(connection, place), behind)
    session.run(partial(_begin_behind, session, pruning, place))
    changes = after = 0
    while True:
        began = time.monotonic()
        batch = session.run(partial(_delete_some, session, pruning, after))
        changes, after = changes + batch.changes, batch.after
        if batch.is_last:
            return PrunedChanges(place, changes)
        # SQLite gives its single writer's place to waiting processes in no order: a process that
        # comes back at once keeps all others out.
        time.sleep(time.monotonic() - began)


def _read_limit(before: datetime | Bookmark | str) -> datetime | Bookmark:
    if not isinstance(before, datetime):
        return Bookmark.parse(str(before))
    if before.tzinfo is None:
        raise UsageError(
            "the time before which changes are pruned needs a time zone",
            before=before.isoformat(),
            hint="for example datetime(2026, 1, 1, tzinfo=UTC)",
        )
    return before


def _find_place(
    connection: Connection, pruning: ChangeLogPruning, limit: datetime | Bookmark
) -> Bookmark:
    """Behind the last change that is to go; what was pruned before is, too."""
    if isinstance(limit, Bookmark):
        found = pruning.find_last_up_to(connection, limit)
    else:
        moment_us = (limit - EPOCH) // timedelta(microseconds=1)
        found = pruning.find_last_made_before(connection, moment_us)
    timed = pruning.log.timed(connection, found)
    return max(timed, pruning.log.read_beginning(connection.fetch_all))


def _begin_behind(session: Session, pruning: ChangeLogPruning, place: Bookmark) -> None:
    with session.writing() as connection:
        behind = pruning.list_behind(connection, place)
        if behind:
            raise UsageError(
                "some followers have not read all changes that would be pruned",
                database=session.storage.shown_url,
                followers=", ".join(behind),
                hint="nothing was pruned; let them catch up, prune less, or remove a "
                f"dead one: `zapdb changes remove-follower {behind[0]}`",
            )
        pruning.write_beginning(connection, place)


def _delete_some(session: Session, pruning: ChangeLogPruning, after: int) -> PrunedBatch:
    with session.job_transaction() as connection:
        return pruning.delete_some(connection, after)
