"""The changes of a transaction, kept until it ends, and the statements of the change log.

A transaction appends one change for each key that it wrote, with the record before its first write
and after its last one (rule 29):

    insert + update = insert        delete + insert = update
    update + update = update        insert + delete = nothing

An update whose record was deleted and inserted again on the way is marked as `replaced`.

What belongs to a record beside its bytes is a part of the change: its blobs, by their ids in the
bytes, and its archived values of dropped fields, all of them before and after, where the
transaction changed one. So a reader of the log knows all of a record, whatever becomes of the
archive later.

They are kept in memory for each open savepoint: rolling it back drops its changes, releasing it
joins them to those of the savepoint below. If a savepoint has many changes, they are written early;
later changes of the same keys then update the written rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from zapdb.errors import CorruptCatalog
from zapdb.limits import (
    CHANGES_PENDING_MAX,
    CHANGES_PENDING_SIZE_BYTES_MAX,
    PAGE_RECORDS_MAX,
)
from zapdb.log.incarnations import transaction_number_sql
from zapdb.records import UNREADABLE_MARK
from zapdb.storage.cells import as_bytes, as_number, wrong_counter
from zapdb.storage.driver_errors import DuplicateKey
from zapdb.storage.statements import PREFIX_PARAMETERS, prefix_sql

if TYPE_CHECKING:
    from zapdb.storage.connection import Connection

ChangeKey = tuple[int, int, bytes]
"""Tenant, table and key."""


class LoggedChange(NamedTuple):
    """A record before and after, None if there is no record; and all of its archived values before
    and after, None if there are none. If both are None, they are what they were."""

    before: bytes | None
    after: bytes | None
    archive_before: bytes | None = None
    archive_after: bytes | None = None

    @property
    def has_archive(self) -> bool:
        """Whether archived values came, changed or went."""
        return self.archive_before is not None or self.archive_after is not None

    @property
    def size_bytes(self) -> int:
        return sum(len(part) for part in self if part is not None)

    def followed_by(self, later: LoggedChange) -> LoggedChange:
        """Both as one change."""
        archive_before, archive_after = self.archive_before, later.archive_after
        if not self.has_archive and self.before is not None:
            archive_before = later.archive_before
        if not later.has_archive and self.after is not None:
            archive_after = self.archive_after
        return LoggedChange(self.before, later.after, archive_before, archive_after)


LogEvent = tuple[int, int, bytes, str, bytes | None, bytes]
"""Tenant, table (0 for the tenant itself), key, event, before and after."""

OF_TENANT: Final = 0
"""The table number of events about a tenant."""
MOVED_HINT: Final = (
    "its rows were brought here by something else than a backup: empty zapdb_transactions, "
    "zapdb_changes, zapdb_stamps and zapdb_followers, and begin followers anew"
)
CHANGE_LOG_ON: Final = "change_log_on"
CHANGE_LOG_OFF: Final = "change_log_off"
"""Events: from here on, changes are recorded, or are not."""
ARCHIVE_PRUNING: Final = "archive_pruning"
ARCHIVE_PRUNED: Final = "archive_pruned"
"""Events: archived values begin to be deleted by an operator; all are deleted."""
HISTORY_PURGED: Final = "history_purged"
HISTORY_ERASED: Final = "history_erased"
HISTORY_FIELD_ERASED: Final = "history_field_erased"
"""Events: earlier moments were deleted from the history store; a record, or the values of a field,
were erased from the past."""

_COLUMNS: Final = (
    "tenant, transaction_number, table_number, key, event, before, after, replaced,"
    " archive_before, archive_after"
)
_HAD_ARCHIVE: Final = (
    "zapdb_changes.archive_before IS NOT NULL OR zapdb_changes.archive_after IS NOT NULL"
)
_HAS_ARCHIVE: Final = "excluded.archive_before IS NOT NULL OR excluded.archive_after IS NOT NULL"
# As `LoggedChange.followed_by`.
_COALESCE: Final = (
    " ON CONFLICT (tenant, transaction_number, table_number, key) DO UPDATE SET"
    " after = excluded.after, replaced = CASE WHEN zapdb_changes.before IS NOT NULL"
    " AND excluded.after IS NOT NULL AND (zapdb_changes.after IS NULL"
    " OR zapdb_changes.replaced OR excluded.replaced) THEN TRUE END,"
    f" archive_before = CASE WHEN {_HAD_ARCHIVE} OR zapdb_changes.before IS NULL"
    " THEN zapdb_changes.archive_before ELSE excluded.archive_before END,"
    f" archive_after = CASE WHEN {_HAS_ARCHIVE} OR zapdb_changes.after IS NULL"
    " THEN excluded.archive_after ELSE zapdb_changes.archive_after END"
)
# No record is empty, and no archive: an empty value means that there is none, and arrays need no
# nulls.
_CHANGES_POSTGRESQL: Final = (
    f"INSERT INTO zapdb_changes ({_COLUMNS}) SELECT given.tenant, {{number}}, given.number,"
    " given.key, NULL, nullif(given.old, ''::bytea), nullif(given.new, ''::bytea),"
    " nullif(given.replaced, FALSE), nullif(given.old_archive, ''::bytea),"
    " nullif(given.new_archive, ''::bytea) FROM unnest(%b::bigint[], %b::bigint[], %b::bytea[],"
    " %b::bytea[], %b::bytea[], %b::boolean[], %b::bytea[], %b::bytea[])"
    " AS given(tenant, number, key, old, new, replaced, old_archive, new_archive)"
)
_TRANSACTION_POSTGRESQL: Final = (
    "INSERT INTO zapdb_transactions (tenant, number, commit_order, principal, made_at)"
    " SELECT given.tenant, {number}, nextval('zapdb_commit_order'), %s, ({clock})"
    " FROM unnest(%b::bigint[]) AS given(tenant)"
)
# The usual transaction of one operation: values are planned and executed faster than arrays.
_ONE_CHANGE_POSTGRESQL: Final = (
    "WITH made AS ("
    "INSERT INTO zapdb_transactions (tenant, number, commit_order, principal, made_at)"
    " VALUES (%s, {number}, nextval('zapdb_commit_order'), %s, ({clock})))"
    f" INSERT INTO zapdb_changes ({_COLUMNS}) VALUES (%s, {{number}}, %s, %b, NULL, %b, %b, NULL,"
    " %b, %b)"
)
_CHANGES_SQLITE: Final = (
    f"INSERT INTO zapdb_changes ({_COLUMNS}) VALUES (?, ?, ?, ?, NULL, ?, ?, ?, ?, ?)"
)
_TRANSACTION_SQLITE: Final = (
    "INSERT INTO zapdb_transactions (tenant, number, commit_order, principal, made_at)"
    " VALUES (?, ?, ?, ?, ?)"
)
# The clock row: transactions are numbered in the order of their commits, and time never goes back.
_TICK: Final = (
    "UPDATE zapdb_counters SET value = CASE name WHEN 'change' THEN value + 1"
    " ELSE max(value, ({clock})) END WHERE name IN ('change', 'change_at') RETURNING name, value"
)


@dataclass(slots=True)
class _SavepointChanges:
    """The changes since a savepoint, or since the transaction began.

    `replaced` are keys whose records were deleted and inserted again. `taken` are keys whose
    changes in lower savepoints were written together with those of this one; `ticked` says that
    this savepoint drew the transaction's number.
    """

    changes: dict[ChangeKey, LoggedChange] = field(default_factory=dict)
    events: list[LogEvent] = field(default_factory=list)
    size_bytes: int = 0
    replaced: set[ChangeKey] = field(default_factory=set)
    taken: set[ChangeKey] = field(default_factory=set)
    ticked: bool = False


class PendingChanges:
    """The changes of one transaction by `principal`, until they are written at its end."""

    def __init__(self, principal: str) -> None:
        self.principal = principal
        self._savepoints = [_SavepointChanges()]
        self._spilled: set[int] = set()
        """The tenants with changes that were written early, whose rows may need an update."""
        self._tick: tuple[int, int] | None = None

    def add(
        self,
        connection: Connection,
        tenant: int,
        table: int,
        key: bytes,
        change: LoggedChange,
    ) -> None:
        """Add the change of a record."""
        made, name = self._savepoints[-1], (tenant, table, key)
        self._join(made, name, change)
        made.size_bytes += change.size_bytes + len(key)
        self._spill_if_full(connection)

    def add_event(self, event: LogEvent) -> None:
        self._savepoints[-1].events.append(event)

    def _join(
        self,
        made: _SavepointChanges,
        name: ChangeKey,
        later: LoggedChange,
        *,
        is_replaced: bool = False,
    ) -> None:
        earlier = made.changes.get(name)
        joined = later if earlier is None else earlier.followed_by(later)
        if None in joined[:2]:
            made.replaced.discard(name)
        elif is_replaced or (earlier is not None and earlier.after is None):
            made.replaced.add(name)
        if joined[:2] == (None, None):  # there was no record, and there is none
            made.changes.pop(name, None)
        else:
            made.changes[name] = joined

    # Savepoints

    def begin_savepoint(self) -> None:
        self._savepoints.append(_SavepointChanges())

    def roll_back_savepoint(self) -> None:
        """Drop the changes of a savepoint; the database rolls back the written ones."""
        if self._savepoints.pop().ticked:
            self._tick = None

    def release_savepoint(self, connection: Connection) -> None:
        top = self._savepoints.pop()
        below = self._savepoints[-1]
        for name in top.taken:
            below.changes.pop(name, None)
            below.replaced.discard(name)
            if any(name in made.changes for made in self._savepoints[:-1]):
                below.taken.add(name)
        for name, change in top.changes.items():
            self._join(below, name, change, is_replaced=name in top.replaced)
        below.events += top.events
        below.size_bytes += top.size_bytes
        below.ticked = below.ticked or top.ticked
        self._spill_if_full(connection)

    # Writing

    def _spill_if_full(self, connection: Connection) -> None:
        made = self._savepoints[-1]
        is_full = made.size_bytes >= CHANGES_PENDING_SIZE_BYTES_MAX
        if is_full or len(made.changes) >= CHANGES_PENDING_MAX:
            self._spill(connection)

    def _spill(self, connection: Connection) -> None:
        """Write the changes of the topmost savepoint early.

        Changes of the same keys in lower savepoints are written with them, and also stay there:
        they must be written if the savepoint is rolled back.
        """
        top = self._savepoints[-1]
        for name in top.changes:
            for made in reversed(self._savepoints[:-1]):
                earlier = made.changes.get(name)
                if earlier is not None:
                    if name in made.replaced or earlier.after is None:
                        top.replaced.add(name)
                    top.changes[name] = earlier.followed_by(top.changes[name])
                    top.taken.add(name)
            if None in top.changes[name][:2]:
                top.replaced.discard(name)
        self._write(connection, top)
        self._spilled.update(tenant for tenant, _, _ in top.changes)
        top.changes, top.replaced, top.size_bytes = {}, set(), 0

    def flush(self, connection: Connection) -> None:
        """Write the remaining changes and the row of the transaction, at its end.

        Its commit order is drawn only now: the transactions that it waited for drew theirs before
        (rule 29).
        """
        (made,) = self._savepoints
        tenants = {tenant for tenant, _, _ in made.changes} | self._spilled
        tenants |= {event[0] for event in made.events}
        if not tenants:
            return
        try:
            self._write(connection, made, sorted(tenants))
        except DuplicateKey as error:
            raise _moved_here(connection) from error
        if made.events:
            mark = connection.storage.placeholder
            connection.run_many(
                f"INSERT INTO zapdb_changes ({_COLUMNS}) VALUES ({mark},"
                f" {self._number(connection)}, {mark}, {mark}, {mark}, {mark}, {mark}, NULL, NULL,"
                " NULL)",
                made.events,
            )
        for tenant in self._spilled:  # a record that was inserted and deleted left a row
            connection.run(
                f"DELETE FROM zapdb_changes WHERE tenant = {int(tenant)}"
                f" AND transaction_number = {self._number(connection)}"
                " AND before IS NULL AND after IS NULL"
            )

    def _write(
        self, connection: Connection, made: _SavepointChanges, tenants: Sequence[int] = ()
    ) -> None:
        """Write the changes of a savepoint; at the end, the transaction, too."""
        coalesce = _COALESCE if self._spilled else ""
        if connection.storage.dialect.name == "sqlite":
            self._write_sqlite(connection, made, tenants, coalesce)
        else:
            self._write_postgresql(connection, made, tenants, coalesce)

    def _write_sqlite(
        self,
        connection: Connection,
        made: _SavepointChanges,
        tenants: Sequence[int],
        coalesce: str,
    ) -> None:
        number, now = self._ticked(connection)
        rows = [
            (*name[:1], number, *name[1:], *change[:2], name in made.replaced or None, *change[2:])
            for name, change in made.changes.items()
        ]
        connection.run_many(_CHANGES_SQLITE + coalesce, rows)
        transactions = [(tenant, number, number, self.principal, now) for tenant in tenants]
        connection.run_many(_TRANSACTION_SQLITE, transactions)

    def _write_postgresql(
        self,
        connection: Connection,
        made: _SavepointChanges,
        tenants: Sequence[int],
        coalesce: str,
    ) -> None:
        clock, refused = connection.storage.dialect.clock_sql, partial(_moved_here, connection)
        number = self._number(connection)
        if len(tenants) == len(made.changes) == 1 and not (self._spilled or made.replaced):
            (((tenant, table, key), change),) = made.changes.items()
            connection.send(
                _ONE_CHANGE_POSTGRESQL.format(clock=clock, number=number),
                (tenant, self.principal, tenant, table, key, *change),
                refused,
            )
            return
        columns = [
            [tenant for tenant, _, _ in made.changes],
            [table for _, table, _ in made.changes],
            [key for _, _, key in made.changes],
            [change.before or b"" for change in made.changes.values()],
            [change.after or b"" for change in made.changes.values()],
            [name in made.replaced for name in made.changes],
            [change.archive_before or b"" for change in made.changes.values()],
            [change.archive_after or b"" for change in made.changes.values()],
        ]
        changes = _CHANGES_POSTGRESQL.format(number=number) + coalesce
        if not tenants:
            connection.send(changes, columns, refused)
            return
        transaction = _TRANSACTION_POSTGRESQL.format(clock=clock, number=number)
        connection.send(
            f"WITH made AS ({transaction}) {changes}",
            (self.principal, list(tenants), *columns),
            refused,
        )

    def _number(self, connection: Connection) -> str:
        """Return the transaction's number as an SQL expression."""
        if connection.storage.dialect.name == "sqlite":
            return str(self._ticked(connection)[0])
        return transaction_number_sql(connection)

    def _ticked(self, connection: Connection) -> tuple[int, int]:
        """Return the transaction's number and time on SQLite, drawn once for each transaction."""
        if self._tick is None:
            sql = _TICK.format(clock=connection.storage.dialect.clock_sql)
            found = dict(connection.fetch_all(sql))
            for counter in ("change", "change_at"):
                if counter not in found:
                    raise wrong_counter(counter)
            self._tick = (as_number(found["change"]), as_number(found["change_at"]))
            self._savepoints[-1].ticked = True
        return self._tick


def _moved_here(connection: Connection) -> CorruptCatalog:
    return CorruptCatalog(
        "the change log already has a transaction of this number",
        database=connection.storage.shown_url,
        hint=MOVED_HINT,
    )


# Filling it


def append_change(
    connection: Connection, principal: str, key: ChangeKey, change: LoggedChange
) -> None:
    """Add a record's change inside a transaction; it is written at the transaction's end."""
    _pending_of(connection, principal).add(connection, *key, change)


def append_event(connection: Connection, principal: str, event: LogEvent) -> None:
    """Add a schema event, inside a DDL transaction."""
    _pending_of(connection, principal).add_event(event)


def _pending_of(connection: Connection, principal: str) -> PendingChanges:
    transaction = connection.transaction
    assert transaction is not None
    pending = transaction.pending
    if pending is None:
        pending = transaction.pending = PendingChanges(principal)
    assert isinstance(pending, PendingChanges)
    return pending


# For the maintenance of stored changes


def _place_of(row: Any) -> tuple[int, int, int, bytes]:
    tenant, transaction, table, key, *_ = row
    return as_number(tenant), as_number(transaction), as_number(table), as_bytes(key)


def iter_changes(
    connection: Connection, size_bytes_min: int, *, archives: bool = False
) -> Iterator[list[tuple[int, int, bytes]]]:
    """Yield tenant, table and bytes of every record in the log of at least this size, page by page;
    with `archives` every cell of archived values instead."""
    mark = connection.storage.placeholder
    names = "tenant, transaction_number, table_number, key"
    before, after = ("archive_before", "archive_after") if archives else ("before", "after")
    sql = (
        f"SELECT {names}, {before}, {after} FROM zapdb_changes WHERE event IS NULL AND"
        f" (length({before}) >= {int(size_bytes_min)} OR length({after}) >= {int(size_bytes_min)})"
        f" AND ({names}) > ({mark}, {mark}, {mark}, {mark}) ORDER BY {names}"
        f" LIMIT {int(PAGE_RECORDS_MAX)}"
    )
    place: tuple[int, int, int, bytes] = (0, 0, 0, b"")
    while page := connection.fetch_all(sql, place):
        yield [
            (as_number(tenant), as_number(table), as_bytes(cell))
            for tenant, _, table, _, *cells in page
            for cell in cells
            if cell is not None and len(as_bytes(cell)) >= size_bytes_min
        ]
        place = _place_of(page[-1])


def count_changes(connection: Connection, tenant: int, table: int) -> list[tuple[bytes, int]]:
    """Return the number of changes of a table with each revision, before or after, by its encoded
    prefix."""
    mark, of = connection.storage.placeholder, "FROM zapdb_changes"
    mine = f"tenant = {int(tenant)} AND table_number = {int(table)}"
    # Events of tenants have no table, and those of the change log's switch no revision.
    sides = " UNION ALL ".join(
        f"SELECT {prefix_sql(mark, 'logged')} AS prefix FROM (SELECT CASE"
        # A record that could not be read has the table's revision of that time behind the mark.
        f" WHEN substr({side}, 1, 1) = {mark} THEN substr({side}, 2) ELSE {side} END AS logged"
        f" {of} WHERE {mine} AND length({side}) > 0) AS {side}_records"
        for side in ("before", "after")
    )
    rows = connection.fetch_all(
        f"SELECT prefix, count(*) FROM ({sides}) AS prefixes GROUP BY prefix ORDER BY prefix",
        (*PREFIX_PARAMETERS, UNREADABLE_MARK) * 2,
    )
    return [(as_bytes(prefix), as_number(count)) for prefix, count in rows]
