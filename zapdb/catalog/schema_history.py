"""The schema history: one append-only log per (tenant, table).

An entry's revision is the prefix of the records that were written under it. It only rises and is
never used again. `layout_revision` is the revision since which the table has had the same layout,
and `first_layout_revision` the lowest one that ever had it; a record is stale if and only if that
of its revision is another one than the newest entry's (rule 1).

Table schemas are stored compressed, because a log is kept for ever. They are compared by their
canonical bytes.

The change log has an event for each entry of a recorded table, in one order with the changes of
records. So the entry at a moment is the last one whose event is not after it.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, get_args

import sqlalchemy as sa

from zapdb.catalog import principal, rows
from zapdb.catalog.schema_events import append_revision_event
from zapdb.catalog.stored_migrations import ChainPlace
from zapdb.errors import CorruptCatalog
from zapdb.formats import FormatName, newest
from zapdb.limits import SCHEMA_NAMES_KEPT_MAX
from zapdb.log.moments import LaterSql
from zapdb.log.pending_changes import CHANGE_LOG_OFF, CHANGE_LOG_ON, OF_TENANT
from zapdb.memo import Memo
from zapdb.migrations import Chain
from zapdb.printing import one_line, show_moment
from zapdb.records import CurrentRevisions, decode_prefix
from zapdb.schema import TableSchema, canonical_bytes, fingerprint, read_canonical_bytes
from zapdb.storage import Connection
from zapdb.storage.cells import as_bytes, as_number, checked
from zapdb.storage.fixed_tables import (
    CHANGES,
    SCHEMA_HISTORY,
    RevisionEvent,
    TenantEvent,
)

COMPRESSION_LEVEL: Final = 9
_NAMES: Final = Memo[bytes, str](SCHEMA_NAMES_KEPT_MAX)
"""The names of tables by the bytes of their schemas, as they are stored."""
ENTRY_COLUMNS: Final = (
    SCHEMA_HISTORY.c.tenant,
    SCHEMA_HISTORY.c.table_number,
    SCHEMA_HISTORY.c.revision,
    SCHEMA_HISTORY.c.event,
    SCHEMA_HISTORY.c.fingerprint,
    SCHEMA_HISTORY.c.migrated_at,
    SCHEMA_HISTORY.c.migrated_by,
    SCHEMA_HISTORY.c.position,
    SCHEMA_HISTORY.c.migration,
    SCHEMA_HISTORY.c.record_format,
    SCHEMA_HISTORY.c.layout_revision,
    SCHEMA_HISTORY.c.first_layout_revision,
    SCHEMA_HISTORY.c.table_schema,
)
"""The columns of a `RevisionEntry`, in its order."""
_ENTRY_COLUMNS: Final = ", ".join(column.name for column in ENTRY_COLUMNS)
_NEWEST_COLUMNS: Final = ", ".join(f"h.{column.name}" for column in ENTRY_COLUMNS)


@dataclass(frozen=True, slots=True)
class RevisionEntry:
    """One schema change of one table; `position` and `migration` are the number and the id of its
    newest migration, 0 if there was none.

    `migrated_at` is in microseconds since 1970-01-01 UTC by the database's clock, 0 for an entry of
    `recovered`. `packed` holds the canonical bytes of the schema, compressed.
    """

    tenant: int
    table_number: int
    revision: int
    event: str
    fingerprint: int
    migrated_at: int
    migrated_by: str
    position: int
    migration: int
    record_format: int
    layout_revision: int
    first_layout_revision: int
    packed: bytes

    def __repr__(self) -> str:
        return (
            f"<revision {self.revision} of table {self.table_number}: {self.event}, position "
            f"{self.position}, fingerprint {format_fingerprint(self.fingerprint)}, "
            f"{show_moment(self.migrated_at)} by {one_line(self.migrated_by)}>"
        )

    @property
    def place(self) -> ChainPlace:
        """Where in the tree of stored migrations the tenant was from then on."""
        return ChainPlace(self.position, self.migration)

    @property
    def schema_bytes(self) -> bytes:
        """Return the canonical bytes of the schema; raises `CorruptCatalog`."""
        try:
            return zlib.decompress(self.packed)
        except zlib.error as error:
            raise CorruptCatalog(
                "the bytes of a table schema can't be read",
                table=self.table_number,
                revision=self.revision,
                cause=repr(error),
                hint="restore this row of zapdb_schema_history from a backup",
            ) from error

    @property
    def schema(self) -> TableSchema:
        return read_canonical_bytes(self.schema_bytes)

    @property
    def table_name(self) -> str:
        """The table's name in the schema. It is asked of whole logs, and reading a schema takes
        long."""
        return _NAMES.get(self.packed, lambda: self.schema.name)

    def is_named(self, name: str) -> bool:
        """Whether the table has the name in the schema."""
        known = _NAMES.find(self.packed)
        if known is not None:
            return known == name
        # Few schemas hold the text at all.
        return name.encode() in self.schema_bytes and self.table_name == name


def is_on_chain(entry: RevisionEntry, chain: Chain) -> bool:
    """Whether a chain has the migration of an entry: not another one with its number."""
    at = entry.position
    return chain.start < at <= chain.end and chain.at(at).id == entry.migration


class KnownLayout(NamedTuple):
    """A layout that a table has, or had: the revision since which it has it, and the lowest one
    that ever had it; None where it is new."""

    since: int | None = None
    first: int | None = None


NEW_LAYOUT: Final = KnownLayout()


@dataclass(frozen=True, slots=True)
class NewRevision:
    """The content of a table's next revision."""

    tenant: int
    schema: TableSchema
    event: RevisionEvent
    place: ChainPlace
    layout: KnownLayout = NEW_LAYOUT


def list_stale_layouts(connection: Connection) -> list[tuple[int, int, int]]:
    """Return (tenant, table, layout revision) of the tables, of all tenants, whose log has earlier
    layouts than that of the newest entry: records may have these."""
    log = SCHEMA_HISTORY.c
    newest = (
        sa.select(
            log.tenant,
            log.table_number,
            sa.func.max(log.revision).label("revision"),
            sa.func.min(log.layout_revision).label("first_layout"),
        )
        .group_by(log.tenant, log.table_number)
        .subquery()
    )
    query = sa.select(log.tenant, log.table_number, log.layout_revision).where(
        log.tenant == newest.c.tenant,
        log.table_number == newest.c.table_number,
        log.revision == newest.c.revision,
        log.layout_revision > newest.c.first_layout,
        log.event != "drop",
    )
    return [(row[0], row[1], row[2]) for row in connection.core_execute(query)]


def append_revision(connection: Connection, made: NewRevision) -> int:
    """Append an entry, inside a DDL transaction, so that no other transaction appends meanwhile.

    Returns its revision, one above the newest. The newest entry of a log is never deleted.
    """
    (newest,) = connection.fetch_one(
        f"SELECT max(revision) FROM zapdb_schema_history WHERE tenant = {int(made.tenant)}"
        f" AND table_number = {int(made.schema.number)}"
    )
    revision = as_number(newest or 0) + 1
    insert_revision(connection, made, revision, connection.storage.now_us(connection))
    return revision


def insert_revision(
    connection: Connection, made: NewRevision, revision: int, migrated_at: int
) -> None:
    """Write one entry, with the acting principal."""
    since, first = made.layout
    marks = ", ".join([connection.storage.placeholder] * len(ENTRY_COLUMNS))
    connection.run(
        f"INSERT INTO zapdb_schema_history ({_ENTRY_COLUMNS}) VALUES ({marks})",
        (
            made.tenant,
            made.schema.number,
            revision,
            made.event,
            fingerprint(made.schema).to_bytes(8, "big"),
            migrated_at,
            principal.current(),
            made.place.position,
            made.place.migration,
            format_to_write(connection, "record"),
            revision if since is None else since,
            revision if first is None else first,
            zlib.compress(canonical_bytes(made.schema), COMPRESSION_LEVEL),
        ),
    )
    if made.event != "recovered":
        append_revision_event(connection, made.tenant, made.schema.number, made.event, revision)


def read_entries(
    connection: Connection, tenant: int, table_number: int | None = None
) -> Iterator[RevisionEntry]:
    """Return the entries of a tenant's tables, or of one table, by table and revision."""
    condition = f"tenant = {int(tenant)}"
    if table_number is not None:
        condition += f" AND table_number = {int(table_number)}"
    found = connection.fetch_all(
        f"SELECT {_ENTRY_COLUMNS} FROM zapdb_schema_history WHERE {condition}"
        " ORDER BY table_number, revision"
    )
    return _as_entries(checked(ENTRY_COLUMNS, found))


def read_migrated_at(connection: Connection, tenant: int, table: int, revision: int) -> int | None:
    """Return when a table has got a revision, in microseconds since 1970 UTC; None if its entry was
    pruned."""
    found = connection.fetch_one(
        "SELECT migrated_at FROM zapdb_schema_history"
        f" WHERE tenant = {int(tenant)} AND table_number = {int(table)}"
        f" AND revision = {int(revision)}"
    )
    return None if found is None else as_number(found[0])


def read_newest(connection: Connection, tenant: int) -> dict[int, RevisionEntry]:
    """Return the newest entry of each of a tenant's tables, by table number."""
    found = connection.fetch_all(
        f"SELECT {_NEWEST_COLUMNS} FROM zapdb_schema_history AS h"
        " JOIN (SELECT table_number, max(revision) AS revision"
        f" FROM zapdb_schema_history WHERE tenant = {int(tenant)} GROUP BY table_number) AS newest"
        " ON h.table_number = newest.table_number AND h.revision = newest.revision"
        f" WHERE h.tenant = {int(tenant)}"
    )
    return {entry.table_number: entry for entry in _as_entries(checked(ENTRY_COLUMNS, found))}


def read_other_layouts(
    connection: Connection, tenant: int, newest: Iterable[RevisionEntry]
) -> dict[int, tuple[tuple[int, int], ...]]:
    """Return the `others` of `CurrentRevisions` of tables, by number, given their newest entries;
    none for most. The drop of a table is no layout: no record has its revision."""
    layouts = {one.table_number: one.first_layout_revision for one in newest if _has_others(one)}
    if not layouts:
        return {}
    found: dict[int, list[tuple[int, int]]] = {number: [] for number in layouts}
    numbers = ", ".join(map(str, layouts))
    rows = connection.fetch_all(
        "SELECT table_number, revision, first_layout_revision FROM zapdb_schema_history"
        f" WHERE tenant = {int(tenant)} AND table_number IN ({numbers})"
        " AND event <> 'drop' ORDER BY revision"
    )
    for number, revision, layout in rows:
        if as_number(revision) > layouts[as_number(number)]:
            found[as_number(number)].append((as_number(revision), as_number(layout)))
    return {
        number: CurrentRevisions.of(layouts[number], entries).others
        for number, entries in found.items()
    }


def _has_others(entry: RevisionEntry) -> bool:
    """Whether a table had other layouts since it had that of an entry for the first time."""
    return entry.first_layout_revision < entry.layout_revision


def _as_entries(found: Iterable[Any]) -> Iterator[RevisionEntry]:
    for row in found:
        values = [*row]
        values[4] = int.from_bytes(values[4], "big")
        yield RevisionEntry(*values)


def read_logged_tables(connection: Connection, tenant: int) -> set[int]:
    """Return the numbers of the tables that have a log."""
    query = sa.select(SCHEMA_HISTORY.c.table_number).where(SCHEMA_HISTORY.c.tenant == tenant)
    return {int(number) for (number,) in connection.core_execute(query.distinct())}


def delete_revisions(
    connection: Connection, tenant: int, table_number: int, revisions: Sequence[int]
) -> None:
    """Delete entries of a log, but never its newest, which determines the next revision."""
    connection.run_many(
        f"DELETE FROM zapdb_schema_history WHERE tenant = {int(tenant)}"
        f" AND table_number = {int(table_number)} AND revision = {connection.storage.placeholder}",
        [(revision,) for revision in revisions],
    )


def find_rollbacks(entries: Sequence[RevisionEntry]) -> list[int | None]:
    """Return for each entry of a log the revision that it rolled back, or None.

    An entry is a rollback if an earlier entry has its fingerprint and the entry directly before it
    has another one. It rolls back the entry directly before it, which was active until then.
    """
    seen: set[int] = set()
    found: list[int | None] = []
    last: RevisionEntry | None = None
    for entry in entries:
        is_back = last is not None and last.fingerprint != entry.fingerprint
        is_back = is_back and entry.fingerprint in seen
        found.append(last.revision if last is not None and is_back else None)
        seen.add(entry.fingerprint)
        last = entry
    return found


def find_revisions(entries: Sequence[RevisionEntry], wanted: int) -> list[int]:
    """Return the table's revisions with a fingerprint, lowest first."""
    return [entry.revision for entry in entries if entry.fingerprint == wanted]


def format_fingerprint(value: int) -> str:
    """Return a fingerprint as people and JSON see it."""
    return f"0x{value:016x}"


def format_to_write(connection: Connection, name: FormatName) -> int:
    """Return the newest format that every process reads, at the cluster level of the connection's
    snapshot."""
    return newest(name, rows.level_to_write(connection))


SWITCHES: Final = frozenset({CHANGE_LOG_OFF, CHANGE_LOG_ON})
"""Events that say where the recording of changes begins or ends."""
REVISIONS: Final = frozenset(get_args(RevisionEvent))
"""Events of a table's new revision."""
POSITIONS: Final = frozenset(get_args(TenantEvent))
"""Events of a tenant's new position."""


_EVENT_COLUMNS: Final = tuple(
    CHANGES.c[name] for name in ("table_number", "event", "before", "after")
)
EventRow = tuple[int, str, Any, Any]
"""Table, event, before and after, as the log has them."""


@dataclass(frozen=True, slots=True)
class LaterEvents:
    """The events after a moment: the first new revision of each table, and the tables (0: all)
    whose recording was switched on or off."""

    revisions: dict[int, int]
    switched: frozenset[int]
    migration: int | None
    """The id of the newest migration that was active at the moment, if that changed since."""

    def list_earlier(self, table: int, entries: Sequence[RevisionEntry]) -> list[RevisionEntry]:
        """Return those entries of a table that it had at the moment; the last one counts."""
        limit = self.revisions.get(table)
        return [entry for entry in entries if limit is None or entry.revision < limit]

    def find_migration(self, now: int) -> int:
        """Return the id of the newest migration that was active at the moment, given that of
        now."""
        return now if self.migration is None else self.migration

    def switches(self, table: int) -> bool:
        """Whether the recording of a table's changes was switched on or off."""
        return not self.switched.isdisjoint((table, OF_TENANT))


def read_later_events(
    connection: Connection, tenant: int, later_sql: LaterSql, stored: Iterable[EventRow] = ()
) -> LaterEvents:
    """Read the events of the transactions of a condition; `stored` are known ones before them."""
    rows = connection.fetch_all(
        "SELECT table_number, event, before, after FROM zapdb_changes"
        f" WHERE tenant = {int(tenant)} AND event IS NOT NULL AND {later_sql('transaction_number')}"
        " ORDER BY transaction_number"
    )
    revisions: dict[int, int] = {}
    switched, migrations = set[int](), list[int]()
    for number, event, before, after in (*stored, *checked(_EVENT_COLUMNS, rows)):
        if event in SWITCHES:
            switched.add(number)
        elif number == OF_TENANT and event in POSITIONS:
            migrations.append(decode_prefix(as_bytes(before), 0)[0])
        elif number != OF_TENANT and event in REVISIONS:
            revision, _ = decode_prefix(as_bytes(after), 0)
            revisions[number] = min(revision, revisions.get(number, revision))
    return LaterEvents(revisions, frozenset(switched), migrations[0] if migrations else None)


def makes_other_bytes(then: RevisionEntry, entry: RevisionEntry) -> bool:
    """Whether a later entry is in the way of rewinding records to the bytes of `then`."""
    return entry.revision > then.revision and (
        entry.layout_revision != then.layout_revision or entry.event in ("drop", "recovered")
    )
