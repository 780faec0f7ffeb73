"""The change log as applications see it: what became of records and schemas, in order (rule 29).

Whoever reads gives what became visible a stamp (a logical timestamp) first, if nobody did; see
`zapdb.storage.change_log`. A change is decoded under the schema of its time, which the schema
history keeps. Bookmarks are places in the order, and stay good until what is behind them was
pruned; those of named followers are rows.
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
    """What one transaction did to one record, all its writes taken together.

    `before` and `after` are records of the table as it was then, None where there was none. `key`
    are the values of the key's fields. `transaction` is equal for all that one transaction did,
    `stamp` for all that became visible together; `stamped_at`, its time, never decreases from
    change to change. `made_at` is when the transaction wrote its changes, by the database's clock.
    `schema_before` and `schema_after` are the table's schema at each side: one, but for a rollback.
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
    """What became of a schema, among the changes of records.

    Of a table, `event` is `create`, `change`, `drop`, `restore` or `rollback`, `revision` what it
    is from then on, as in `db.admin.schema_history`. Where `table` is None it is about all of them:
    `activation` or `rollback`, which bring the tenant to `position`. `change_log_on` and
    `change_log_off`, of a table or of all, say that changes are recorded from there on, or are
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
    """Which transaction made it, when and by whom."""
    at, by = show_moment(made.made_at), one_line(made.principal)
    return f"transaction {made.transaction}, {at} by {by}"


def read_changes(session: Session, since: Bookmark | None) -> Iterator[RecordChange | SchemaEvent]:
    """What is behind a bookmark now, or in the log at all, page by page; ends there.

    Raises `UsageError` inside a writing transaction, and for a bookmark that lies beyond the log;
    `ChangesPruned` where something behind the bookmark is gone, and where that happens meanwhile.
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
    """Raises `UsageError` for a bookmark that is none of this database."""
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
    """The place behind all that is there now."""
    return Bookmark.behind(find_newest_stamp(session, open_log(session)))


def find_log_begin(session: Session) -> Bookmark:
    """The place in front of all that is still there."""
    return open_log(session).read_beginning(session.storage.connection().fetch_all)


def open_log(session: Session) -> ChangeLog:
    """Raises `UsageError` inside a writing transaction: what it has not committed is in no order
    yet."""
    connection = session.storage.connection()
    if connection.mode is not None and not connection.mode.only_reads:
        raise UsageError(
            "the change log cannot be read inside a writing transaction",
            hint="read the changes first, then write and advance the follower in db.transaction()",
        )
    return ChangeLog(session.storage, session.catalog.tenant)


def find_newest_stamp(session: Session, log: ChangeLog) -> int:
    """The newest stamp, once what is visible now has one.

    A snapshot, a read-only process, and whoever reads during a rollback see what has one already.
    """
    connection = session.storage.connection()
    if connection.mode is None and not session.is_read_only and log.needs_stamp(connection):
        try:
            with session.job_transaction() as begun:
                log.add_stamp(begun)
        except (DuplicateKey, RollbackInProgress):
            pass  # another process was faster; or what was done to the records is not over
    return log.read_newest(session.storage.connection())


def _fetch(session: Session, sql: str, parameters: Sequence[Any]) -> list[Any]:
    connection = session.storage.connection()
    if connection.mode is not None:
        return connection.fetch_all(sql, parameters)
    with session.reading() as begun:
        return begun.fetch_all(sql, parameters)


class _Reader:
    """Decodes rows of the log by the schema history."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._tenant = session.catalog.tenant
        self._entries: dict[int, dict[int, RevisionEntry]] = {}
        self._codecs: dict[tuple[int, int], tuple[TableSchema, Codec]] = {}
        self._attachments = Attachments(BlobStatements(session.storage).load, make_uuid7)

    def decode(self, row: ChangeRow) -> RecordChange | SchemaEvent | None:
        """None for a record of a revision that is not in force yet: a rollback is under way."""
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
        assert opened is not None, "what a rollback goes back from has been in force"
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
        elif row.table:  # history was switched for it
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
        is_rolling_back = read_chain_state(connection).rolling_back is not None  # looked at first
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
    """What changes and events have in common."""
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
    """A named follower: where it stands, since when, and what it has not seen."""

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
    """Somebody who follows the change log under a name; the bookmark is kept in the database.

    One that never advanced stands where the log began, and keeps nobody from pruning it.
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
        """What the bookmark may be, unless another process advances it."""
        open_log(session)

    def __repr__(self) -> str:
        return f"<follower {self.name!r} of the change log>"

    @property
    def bookmark(self) -> Bookmark:
        """Where it stands, as stored."""
        stored = self._read(self._session.storage.connection())
        self._known = {str(stored)}
        return stored

    def changes(self) -> Iterator[RecordChange | SchemaEvent]:
        """What it has not seen, in order, up to now; the follower does not advance itself."""
        return read_changes(self._session, self.bookmark)

    def advance(self, bookmark: Bookmark | str) -> None:
        """Store that everything up to a bookmark is done with.

        Inside `db.transaction()` it is part of it: what the follower writes there is written once,
        and no change is lost. Raises `ConcurrencyError` where another process has advanced it, and
        `ChangesPruned` for a place from which it could not go on.
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
        """What it has not seen."""
        connection = self._session.storage.connection()
        log = ChangeLog(self._session.storage, self._session.catalog.tenant)
        return log.measure_lag(connection, self._read(connection))

    def remove(self) -> None:
        """Forget the bookmark; who follows under the name again begins anew."""

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
    """Those that ever advanced, by name."""
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
