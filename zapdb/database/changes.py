"""The change log as applications see it: changes of records and schemas, in order (rule 29).

A reader first gives newly visible changes a stamp (a logical timestamp), if they have none yet; see
`zapdb.storage.change_log`. A change is decoded under the schema of its time, which the schema
history keeps. A bookmark is a place in the order, and stays valid until changes after it are
pruned; followers' bookmarks are rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any, Literal

from zapdb.catalog.schema_history import RevisionEntry, read_entries
from zapdb.catalog.stored import read_chain_state
from zapdb.database.session import Session
from zapdb.errors import ConcurrencyError, CorruptCatalog, RollbackInProgress, UsageError
from zapdb.limits import NAME_LENGTH_MAX
from zapdb.printing import one_line, show_moment
from zapdb.records import Attachments, Codec, Record, codec_for, decode_prefix
from zapdb.schema import TableSchema
from zapdb.storage import BlobStatements, Connection, DuplicateKey
from zapdb.storage.cells import as_time, empty_change
from zapdb.storage.change_log import BEGINNING, START, Bookmark, ChangeLog, ChangeRow, Lag
from zapdb.storage.identifiers import make_uuid7

Operation = Literal["insert", "update", "delete"]


@dataclass(frozen=True, slots=True)
class RecordChange:
    """The change of one record by one transaction, all its writes taken together.

    `before` and `after` are records under the table's schema of that time, or None. `key` are the
    values of the key's fields. `transaction` is the same for all changes of one transaction,
    `stamp` for all changes that became visible together; `stamped_at`, its time, never decreases
    from change to change. `made_at` is when the transaction wrote its changes, by the database's
    clock. `schema_before` and `schema_after` are the table's schema before and after; they differ
    only for a rollback.
    """

    table: str
    operation: Operation
    key: tuple[Any, ...]
    before: Record | None
    after: Record | None
    revision: int
    principal: str
    made_at: datetime
    transaction: int
    stamp: int
    stamped_at: datetime
    bookmark: Bookmark
    schema_before: TableSchema | None = field(repr=False)
    schema_after: TableSchema | None = field(repr=False)

    def __repr__(self) -> str:
        values = f"{self.before!r} → {self.after!r}" if self.before and self.after else ""
        return (
            f"<{self.operation} in {self.table!r}, key {self.key!r}: "
            f"{values or repr(self.after or self.before)}, {_repr_made(self)}>"
        )


@dataclass(frozen=True, slots=True)
class SchemaEvent:
    """The change of a schema, in order with the changes of records.

    For a table, `event` is `create`, `change`, `drop`, `restore` or `rollback`, and `revision` the
    table's revision from then on, as in `db.admin.schema_history`. If `table` is None, the event is
    for all tables: `activation` or `rollback`, after which the tenant is at `position`. After
    `change_log_on`, for one table or all, changes are recorded; after `change_log_off` they are
    missing.
    """

    event: str
    table: str | None
    revision: int | None
    position: int | None
    principal: str
    made_at: datetime
    transaction: int
    stamp: int
    stamped_at: datetime
    bookmark: Bookmark

    def __repr__(self) -> str:
        table = "" if self.table is None else f" of {self.table!r}"
        revision = "" if self.revision is None else f", revision {self.revision}"
        position = "" if self.position is None else f", position {self.position}"
        return f"<{self.event}{table}{revision}{position}, {_repr_made(self)}>"


def _repr_made(made: RecordChange | SchemaEvent) -> str:
    """Return the text for the transaction, its time and its principal."""
    at, by = show_moment(made.made_at), one_line(made.principal)
    return f"transaction {made.transaction}, {at} by {by}"


def read_changes(session: Session, since: Bookmark | None) -> Iterator[RecordChange | SchemaEvent]:
    """Yield the changes after a bookmark, or all, page by page, up to the present end of the log.

    Raises `UsageError` inside a writing transaction, and for a bookmark beyond the log's end;
    `ChangesPruned` if changes after the bookmark were pruned, before or during the reading.
    """
    log, fetch = open_log(session), partial(_fetch, session)
    until = find_newest_stamp(session, log)
    if since is None:
        since = log.read_beginning(fetch)
    require_within_log(session, since, until)
    reader = _Reader(session)
    for row in log.read(fetch, since, until):
        found = reader.decode(row)
        if found is None:
            return
        yield found


def require_within_log(session: Session, bookmark: Bookmark, newest: int) -> None:
    """Raise `UsageError` for a bookmark that can't be of this database."""
    if bookmark.stamp > newest:
        raise UsageError(
            "the bookmark is beyond the end of the change log",
            database=session.storage.shown_url,
            bookmark_stamp=bookmark.stamp,
            newest_stamp=newest,
            hint="the bookmark belongs to another database, or this one was restored "
            "from an older backup; begin again from db.change_log.begin()",
        )


def find_log_end(session: Session) -> Bookmark:
    """Return the bookmark after all changes in the log."""
    return Bookmark.behind(find_newest_stamp(session, open_log(session)))


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

    A snapshot, a read-only process, and a reader during a rollback see only changes that have one.
    """
    connection = session.storage.connection()
    if connection.mode is None and not session.is_read_only and log.needs_stamp(connection):
        try:
            with session.job_transaction() as begun:
                log.add_stamp(begun)
        except (DuplicateKey, RollbackInProgress):
            pass  # another process was faster, or the rollback is not finished
    return log.read_newest(session.storage.connection())


def _fetch(session: Session, sql: str, parameters: Sequence[Any]) -> list[Any]:
    connection = session.storage.connection()
    if connection.mode is not None:
        return connection.fetch_all(sql, parameters)
    with session.reading() as begun:
        return begun.fetch_all(sql, parameters)


class _Reader:
    """A decoder of the log's rows by the schema history."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._tenant = session.catalog.tenant
        self._entries: dict[int, dict[int, RevisionEntry]] = {}
        self._codecs: dict[tuple[int, int], tuple[TableSchema, Codec]] = {}
        self._attachments = Attachments(BlobStatements(session.storage).load, make_uuid7)

    def decode(self, row: ChangeRow) -> RecordChange | SchemaEvent | None:
        """Decode a row; None for a record of a revision that is not active yet, during a
        rollback."""
        if row.event is not None:
            return self._decode_event(row, row.event)
        value = row.before if row.after is None else row.after
        if value is None:
            raise empty_change(row.table, row.transaction.number)
        revision, _ = decode_prefix(value, 0)
        opened = self._open(row.table, revision)
        if opened is None:
            return None
        schema, codec = opened
        schema_before, before = self._read(row, row.before)
        schema_after, after = self._read(row, row.after)
        return RecordChange(
            table=schema.name,
            operation=_name_operation(row),
            key=codec.decode_key(row.key),
            before=before,
            after=after,
            revision=revision,
            schema_before=schema_before,
            schema_after=schema_after,
            **_common_members(row),
        )

    def _read(
        self, row: ChangeRow, value: bytes | None
    ) -> tuple[TableSchema | None, Record | None]:
        if value is None:
            return None, None
        revision, start = decode_prefix(value, 0)
        opened = self._open(row.table, revision)
        assert opened is not None, "the revision before a rollback has been active"
        schema, codec = opened
        return schema, codec.decode(row.key, value, start, self._attachments)

    def _decode_event(self, row: ChangeRow, event: str) -> SchemaEvent | None:
        table = revision = position = None
        if row.table and row.after:  # a new revision
            revision, _ = decode_prefix(row.after, 0)
            entry = self._find_entry(row.table, revision)
            if entry is None:
                return None
            table, position = entry.schema.name, entry.position
        elif row.table:  # the setting change_log was changed for it
            entries = self._load_entries(row.table)
            table = entries[max(entries)].schema.name if entries else None
        elif row.after:
            position, _ = decode_prefix(row.after, 0)
        return SchemaEvent(
            event=event, table=table, revision=revision, position=position, **_common_members(row)
        )

    def _open(self, table: int, revision: int) -> tuple[TableSchema, Codec] | None:
        opened = self._codecs.get((table, revision))
        if opened is None:
            entry = self._find_entry(table, revision)
            if entry is None:
                return None
            schema = entry.schema
            opened = (schema, codec_for(schema, self._session.catalog.zones))
            self._codecs[table, revision] = opened
        return opened

    def _find_entry(self, table: int, revision: int) -> RevisionEntry | None:
        found = self._entries.get(table, {}).get(revision)
        if found is not None:
            return found
        connection = self._session.storage.connection()
        is_rolling_back = read_chain_state(connection).rolling_back is not None  # read first
        found = self._load_entries(table).get(revision)
        if found is None and not is_rolling_back:
            raise CorruptCatalog(
                "the change log has a revision that the schema history lacks",
                table=table,
                revision=revision,
                hint="restore zapdb_schema_history from a backup, or prune the earlier "
                "changes with `zapdb changes prune`",
            )
        return found

    def _load_entries(self, table: int) -> dict[int, RevisionEntry]:
        connection = self._session.storage.connection()
        found = {e.revision: e for e in read_entries(connection, self._tenant, table)}
        self._entries[table] = found
        return found


def _name_operation(row: ChangeRow) -> Operation:
    if row.before is None:
        return "insert"
    return "delete" if row.after is None else "update"


def _common_members(row: ChangeRow) -> dict[str, Any]:
    """Return the members that changes and events share."""
    made = row.transaction
    return {
        "principal": made.principal,
        "made_at": to_time(made.made_at),
        "transaction": made.number,
        "stamp": made.stamp,
        "stamped_at": to_time(made.stamped_at),
        "bookmark": row.bookmark,
    }


def to_time(microseconds: int) -> datetime:
    return as_time(microseconds)


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
        ChangeLog(storage, tenant).require_unpruned(connection.fetch_all, target)
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
        return None if row is None else Bookmark.parse(row[0])


def list_followers(connection: Connection, tenant: int) -> list[FollowerStatus]:
    """Return the followers that ever advanced, by name."""
    log = ChangeLog(connection.storage, tenant)
    rows = connection.fetch_all(
        "SELECT name, bookmark, advanced_at FROM zapdb_followers"
        f" WHERE tenant = {int(tenant)} AND name <> '{BEGINNING}' ORDER BY name"
    )
    found = []
    for name, text, advanced_at in rows:
        bookmark = Bookmark.parse(text)
        lag = log.measure_lag(connection, bookmark)
        found.append(FollowerStatus(name, bookmark, to_time(advanced_at), lag))
    return found
