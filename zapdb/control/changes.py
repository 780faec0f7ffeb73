"""The change log: changes of records and schemas in order, and its followers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice

from zapdb.activation.inspection import read_log
from zapdb.answers import hidden
from zapdb.control.bounds import Count
from zapdb.control.records import (
    RecordShape,
    describe_archived,
    describe_record,
    key_to_plain,
    names_in,
)
from zapdb.control.target import Json, Target
from zapdb.database import Database, RecordChange, SchemaEvent
from zapdb.errors import UsageError
from zapdb.log.change_log import Bookmark, ChangeLog
from zapdb.past.reading.changed_fields import Sides
from zapdb.storage import TransactionMode
from zapdb.tables.changes import FollowerStatus, list_followers, measure_log, read_log_status


@dataclass(frozen=True, slots=True)
class ListedChange:
    """The change of one record by one transaction.

    `key`, `before` and `after` are as `--json` shows them: the values of the key's fields, and
    objects of the fields, or None where there is no record. `archived_before` and `archived_after`
    have the archived values of dropped fields, if one of them was changed. `unreadable` are the
    bytes of a record that could not be read when it was discarded, in place of `before`. `fields`
    are the names of the fields that differ.
    """

    table: str
    operation: str
    key: tuple[Json, ...]
    before: Json | None
    after: Json | None
    archived_before: Json | None
    archived_after: Json | None
    replaced: bool
    unreadable: bytes | None
    revision: int
    principal: str
    made_at: datetime
    transaction: int
    stamp: int
    stamped_at: datetime
    bookmark: str
    fields: tuple[str, ...] = hidden()
    shape_before: RecordShape | None = hidden()
    shape_after: RecordShape | None = hidden()


@dataclass(frozen=True, slots=True)
class ListedEvent:
    """An event of a schema, in order with the changes of records: see `SchemaEvent`."""

    table: str | None
    field: str | None
    event: str
    revision: int | None
    position: int | None
    principal: str
    made_at: datetime
    transaction: int
    stamp: int
    stamped_at: datetime
    bookmark: str


def list_changes(
    target: Target,
    since: str | None = None,
    table: str | None = None,
    newest: bool = False,
    limit: Count | None = None,
    for_text: bool = False,
) -> Iterator[ListedChange | ListedEvent]:
    """Changes of records and events of schemas: the oldest first, from the beginning of the log or
    after the bookmark `since`; with `newest`, from the end of the log back.

    Only those of the table that has the name `table`, or had it, and at most `limit`. A caller who
    may see some tables alone is told what the log has under their names.
    """
    if newest and since is not None:
        raise UsageError(
            "--newest begins at the end of the log, and --since at a bookmark",
            hint="leave out one of them",
        )
    db = target.open_database()
    found = db.change_log.read_back() if newest else iter(db.change_log.read(since))
    if table is not None:
        number = _find_table(db, table)
        found = (made for made in found if made.bookmark.table == number)
    shown = target.only_shown(found, _names_in)
    return (describe_change(made, for_text=for_text) for made in islice(shown, limit))


def _names_in(made: RecordChange | SchemaEvent) -> Iterator[str | None]:
    if isinstance(made, SchemaEvent):
        return names_in(made.table)
    return names_in(made.table, made.schema_before, made.schema_after)


def _find_table(db: Database, name: str) -> int:
    with db._storage.transaction(TransactionMode.READ) as connection:
        return read_log(connection, db._catalog.tenant, name)[-1].table_number


def describe_change(
    made: RecordChange | SchemaEvent, *, for_text: bool = False
) -> ListedChange | ListedEvent:
    """A change, or an event, as answers have it."""
    if isinstance(made, SchemaEvent):
        return ListedEvent(
            table=made.table,
            field=made.field,
            event=made.event,
            revision=made.revision,
            position=made.position,
            principal=made.principal,
            made_at=made.made_at,
            transaction=made.transaction,
            stamp=made.stamp,
            stamped_at=made.stamped_at,
            bookmark=str(made.bookmark),
        )
    before, shape_before = describe_record(made.schema_before, made.before, for_text=for_text)
    after, shape_after = describe_record(made.schema_after, made.after, for_text=for_text)
    was = describe_archived(made.schema_before, made.archived_before)
    has = describe_archived(made.schema_after, made.archived_after)
    is_archive_changed = bool(was or has)
    sides = Sides(made.schema_before, made.before, made.schema_after, made.after)
    return ListedChange(
        table=made.table,
        operation=made.operation,
        key=key_to_plain(made.schema_after or made.schema_before, made.key),
        before=before,
        after=after,
        archived_before=was if is_archive_changed else None,
        archived_after=has if is_archive_changed else None,
        replaced=made.replaced,
        unreadable=made.unreadable,
        revision=made.revision,
        principal=made.principal,
        made_at=made.made_at,
        transaction=made.transaction,
        stamp=made.stamp,
        stamped_at=made.stamped_at,
        bookmark=str(made.bookmark),
        fields=sides.fields if for_text else (),
        shape_before=shape_before,
        shape_after=shape_after,
    )


# Followers


@dataclass(frozen=True, slots=True)
class ListedFollower:
    """A follower: its bookmark, since when, and how far it is behind; changes are counted up to
    100,000."""

    name: str
    bookmark: str
    advanced_at: datetime
    changes_behind: int
    seconds_behind: float


@dataclass(frozen=True, slots=True)
class Followers:
    """The followers, and where the log begins and ends for a process that may only read.

    Nothing comes before `watermark` any more; it is None for an empty log. `changes_waiting` are
    behind `ends_at` until a process that writes has given them their place.
    """

    followers: tuple[ListedFollower, ...]
    begins_at: str
    ends_at: str
    watermark: datetime | None
    changes_waiting: int


def get_followers(target: Target) -> Followers:
    """The followers that ever advanced, by name, and how far each is behind. Bookmarks have keys of
    records for those who may see these; for others they are those in front of the table's changes
    in the same transaction."""
    log = ChangeLog(target.storage, target.tenant())
    with target.reading() as connection:
        status = measure_log(connection, log)
        return Followers(
            tuple(
                describe_follower(replace(one, bookmark=_shown(target, one.bookmark)))
                for one in list_followers(connection, log.tenant)
            ),
            str(_shown(target, log.read_beginning(connection.fetch_all))),
            str(status.end),
            status.watermark,
            status.waiting.changes,
        )


def _shown(target: Target, bookmark: Bookmark) -> Bookmark:
    return bookmark if target.shows_values("") else replace(bookmark, key=b"")


def describe_follower(status: FollowerStatus) -> ListedFollower:
    """A follower as answers have it."""
    return ListedFollower(
        status.name,
        str(status.bookmark),
        status.advanced_at,
        status.lag.changes,
        round(status.lag.seconds, 3),
    )


# What an answer may lack


@dataclass(frozen=True, slots=True)
class WaitingChanges:
    """Changes that answers lack, since only a process that writes gives them their place: behind
    `watermark`, and how many."""

    watermark: datetime
    changes: int


@dataclass(frozen=True, slots=True)
class LogStatus:
    """Whether changes of some table are recorded; and what answers lack, if the process may
    only read."""

    records: bool
    waiting: WaitingChanges | None


def get_status(target: Target) -> LogStatus:
    """Whether the change log is on, and what an answer given now lacks."""
    return look_at_log(target.open_database())


def look_at_log(db: Database) -> LogStatus:
    """The same of an open database."""
    waiting = None
    if db._session.is_read_only:
        status = read_log_status(db._session)
        if status.watermark is not None:
            waiting = WaitingChanges(status.watermark, status.waiting.changes)
    return LogStatus(any(table.logs_changes for table in db._catalog.tables.values()), waiting)
