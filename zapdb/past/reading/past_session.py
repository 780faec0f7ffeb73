"""The session that all that reads a past moment works in.

It binds tables to their schemas of then, and to their records of then: rewound, or those of the
history store. Above it, queries, SQL and Arrow are those of the present. It reads the catalog of
now, and looks at what is in the way again whenever that changes, or the beginning of the log: what
could be rewound yesterday may be out of reach today.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar

from zapdb.activation import TableDescriptor, TenantCatalog
from zapdb.catalog.cache import CatalogCache
from zapdb.errors import (
    HistoryBehind,
    HistoryDamaged,
    HistoryPurged,
    HistoryUnavailable,
    HistoryUnreachable,
    UsageError,
)
from zapdb.limits import READ
from zapdb.log.moments import LaterTransactions, LoggedMoment
from zapdb.log.rewinding import find_newest_number
from zapdb.log.rewound_records import RewoundStatements, read_beginning
from zapdb.past.files.history_erasures import Erasure
from zapdb.past.files.history_manifest import Doubt
from zapdb.past.reading.moment import is_pruned, open_moments, require_kept
from zapdb.past.reading.replaced_files import FilesPin, make_unpinned, retry_if_compacted
from zapdb.past.reading.rewound import RewoundTable
from zapdb.past.reading.schema_at import SchemaAt, TableAt, read_schema_at
from zapdb.past.reading.stored_state import StoredState, find_stored
from zapdb.records.derivation import restored_in
from zapdb.storage import Connection
from zapdb.storage.retries import attempts
from zapdb.tables.changes import within_snapshot
from zapdb.tables.generated_values import OperationNumbers
from zapdb.tables.indexes import BoundTable
from zapdb.tables.queries.past_ways import PastReading, choose_way, most_lookups
from zapdb.tables.session import Session, TableRead

if TYPE_CHECKING:
    from zapdb.past.reading.stored_columns import StoredColumns
    from zapdb.past.reading.stored_table import StoredTable

T = TypeVar("T")

FILES_FAIL: Final = (HistoryUnavailable, HistoryDamaged, HistoryUnreachable)
"""What files raise that can't be read."""
SCHEMA_HINT: Final = "read it in its schema of then: leave out `schema`"


class PastSession(Session):
    """A session that reads a past moment, and writes nothing.

    It has a tenant catalog of its own. In a snapshot it reads as of that, and refuses a moment that
    is later. To rewind it needs none of its own: whenever a moment is read, it is the same.
    """

    shows_catalog = False
    sees_writes = False
    has_revisions = False
    has_ways = True

    def __init__(self, session: Session, moment: LoggedMoment) -> None:
        super().__init__(session.storage, session.catalog, session.node)
        self.moment = moment
        self.moments = open_moments(session)
        self._beginning = ""
        self._later: LaterTransactions | None = None
        self._then: tuple[TenantCatalog, SchemaAt] | None = None
        self._rewound: dict[tuple[int, str], RewoundTable] = {}
        self._stored: dict[int, StoredTable] = {}
        self._readings: dict[int, PastReading] = {}
        """How tables are read as a whole, by their numbers."""
        self.file_pins: list[FilesPin | None] = (
            session.file_pins if isinstance(session, PastSession) else []
        )
        self._broken: tuple[FilesPin, Erasure] | None = None
        with within_snapshot(session) as connection:
            self._look(connection)
            self._look_at_pins(connection)

    def require_pinned(self) -> None:
        """Raise `HistoryErased` if an erasure has deleted files that are pinned."""
        with within_snapshot(self) as connection:
            self._look_at_pins(connection)
        self._require_unbroken()

    def _look_at_pins(self, connection: Connection) -> None:
        self._broken = None
        for pin in filter(None, self.file_pins):
            erasure = pin.find_breaker(connection)
            if erasure is not None:
                self._broken = pin, erasure

    def _require_unbroken(self) -> None:
        if self._broken is not None and self._broken[0] in self.file_pins:
            raise make_unpinned(self._broken[1])

    def _look(self, connection: Connection) -> None:
        """Look where the change log begins: in front of it, no table can be rewound."""
        self._beginning = read_beginning(self.moments.log, connection)
        was, self._later = self._later, None
        if not is_pruned(connection, self.moments, self.moment):
            self._later = was or self.moments.find_later(connection, self.moment)
        elif was is not None:
            self._then, self._rewound = None, {}

    @property
    def then(self) -> SchemaAt:
        """The tables at the moment, by what is known now."""
        catalog, known = self.catalog, self._then
        if known is not None and known[0] is catalog:
            return known[1]
        self._then = retry_if_compacted(self, self._read_at)
        return self._then[1]

    def _read_at(self) -> tuple[TenantCatalog, SchemaAt]:
        with within_snapshot(self) as connection:
            self._require_visible(connection)
            self.pin(connection)  # another process may have changed what is recorded
            self._look(connection)
            catalog = self.catalog
            return catalog, read_schema_at(connection, catalog, self.moments, self.moment)

    @property
    def table_names(self) -> tuple[str, ...]:
        return tuple(self.then.tables)

    def bind_served(self, name: str) -> BoundTable:
        return self._bind(self.then.find(name))

    def bind_numbered(self, number: int, name: str) -> BoundTable:
        return self._bind(self.then.find_numbered(number, name))

    def _bind(self, then: TableAt) -> BoundTable:
        """The one rule: a table is rewound where that is exact, else it is read as the history
        store has it, if there is one."""
        if then.obstacle is None:
            try:
                return self._rewind(then)
            except HistoryPurged:  # since it was looked at
                with within_snapshot(self) as connection:
                    self._look(connection)
                then = self.then.find_numbered(then.schema.number, then.schema.name)
        stored = self._open_stored(then)
        if stored is None:
            assert then.obstacle is not None
            raise copy.copy(then.obstacle)  # each with a traceback of its own
        return stored

    def bind_both(self, name: str) -> tuple[BoundTable, BoundTable] | None:
        """Bind a table rewound, and as the store has it; None if only one of the two is there."""
        then = self.then.find(name)
        stored = None if then.obstacle is not None else self._open_stored(then)
        return None if stored is None else (self._rewind(then), stored)

    def bind_whole(self, bound: BoundTable) -> BoundTable:
        """A table that can be rewound is read from files where that is cheaper. The past decides it
        once for each table."""
        if not isinstance(bound, RewoundTable):
            return bound
        number = bound.schema.number
        known = self._readings.get(number)
        if known is None:
            known = self._readings[number] = self._choose(bound)
        if known.way == "rewound":
            return bound
        return self._open_exact(bound) or bound

    def find_reading(self, bound: BoundTable, *, is_whole: bool) -> PastReading | None:
        number = bound.schema.number
        if not isinstance(bound, RewoundTable):
            stored = self._stored.get(number)
            rows = None if stored is None else stored.row_count
            return self._readings.get(number) or PastReading("files", None, rows)
        if not is_whole:
            return PastReading("rewound", None, None)
        self.bind_whole(bound)
        return self._readings[number]

    def _choose(self, bound: RewoundTable) -> PastReading:
        most = most_lookups(0, 0)
        lookups = bound.records.count_lookups(self.storage.connection(), max(0, most) + 1)
        stored = None if lookups <= most else self._open_exact(bound)
        if stored is None:
            return PastReading("rewound", lookups, None)
        rows = stored.row_count
        most = max(0, most_lookups(rows, stored.held_count))
        lookups = bound.records.count_lookups(self.storage.connection(), most + 1)
        return PastReading(choose_way(lookups, most), lookups, rows)

    def _open_exact(self, bound: RewoundTable) -> StoredTable | None:
        """Return a table that can be rewound as files have it, if they give the same records."""
        then = self.then.find_numbered(bound.schema.number, bound.schema.name)
        try:
            stored = self._open_stored(then)
            columns = None if stored is None else stored.open_columns()
            if stored is None or columns is None or stored.state.doubt is not None:
                return None
            columns.require_reachable()
        except FILES_FAIL:
            return None
        return stored

    def _read_in(self, then: TableAt) -> TableAt:
        """Return the schema, with its revision, in which a table is read."""
        return then

    def list_doubts(self) -> dict[str, Doubt]:
        """Return why values may not be those of then, by the names of the tables."""
        found = dict[str, Doubt]()
        for name, then in self.then.tables.items():
            if then.obstacle is not None:
                with suppress(HistoryUnavailable):
                    state = self.find_stored(then)
                    if state is not None and state.doubt is not None:
                        found[name] = state.doubt
        return found

    def open_columns(self, name: str) -> StoredColumns | None:
        """SQL reads columns, so it prefers the store's to records that are rewound; where it can't
        have them, these are as good."""
        then = self.then.find(name)
        try:
            stored = self._open_stored(then)
            columns = None if stored is None else stored.open_columns()
            if columns is not None:
                columns.require_reachable()
        except (HistoryUnavailable, HistoryUnreachable):
            if then.obstacle is None:
                return None
            raise
        return columns

    def _open_stored(self, then: TableAt) -> StoredTable | None:
        self._require_unbroken()
        catalog, number = self.catalog, then.schema.number
        known = self._stored.get(number)
        if known is not None and known.catalog is catalog:
            return known
        made = retry_if_compacted(self, lambda: self._open_files(then))
        if made is not None:
            self._stored[number] = made
        return made

    def _open_files(self, then: TableAt) -> StoredTable | None:
        state = self.find_stored(then)
        if state is None:
            return None
        from zapdb.past.reading.stored_table import open_stored_table

        return open_stored_table(self, self._read_in(then), state)

    def find_stored(self, then: TableAt) -> StoredState | None:
        """Find where the history store has a table at the moment: see `stored_state`."""
        self._require_unbroken()
        with within_snapshot(self) as connection:
            self._require_visible(connection)
            return find_stored(connection, self.catalog, self.moments, then, self.moment)

    def renew_columns(self) -> bool:
        known = list(self._stored.values())
        renewed = [self._renew(stored) for stored in known]
        return any(renewed)

    def _renew(self, stored: StoredTable) -> bool:
        """Find out anew where the store has a table; returns whether that is in other files.

        Raises `HistoryDamaged` if it is in the same ones, and one is not what was written.
        """
        self._stored.pop(stored.schema.number, None)
        if self.find_stored(self.then.find(stored.schema.name)) != stored.state:
            return True
        try:
            damage = stored.find_damage()
        except HistoryUnreachable:  # the next time, its columns are not there
            return True
        if damage is not None:
            raise damage
        return False

    def _rewind(self, then: TableAt) -> BoundTable:
        catalog, number, beginning = self.catalog, then.schema.number, self._beginning
        known = self._rewound.get((number, beginning))
        if known is not None and known.catalog is catalog:
            return known
        with within_snapshot(self) as connection:
            require_kept(self.moments, connection, self.moment)
            until = find_newest_number(connection, self.catalog.tenant)
        assert self._later is not None, "the log leads back to the moment"
        records = RewoundStatements(self.moments, number, self._later, beginning, until)
        descriptor = catalog.table_numbered(number, then.schema.name)
        schema = self._read_in(then).schema
        made = RewoundTable(self.storage, catalog, descriptor, schema, records)
        self._rewound = {key: one for key, one in self._rewound.items() if key[1] == beginning}
        self._rewound[number, beginning] = made
        return made

    def rebind(self, bound: BoundTable, connection: Connection | None = None) -> BoundTable:
        if not isinstance(bound, RewoundTable):
            self._require_unbroken()
            return super().rebind(bound, connection)
        return self.bind_numbered(bound.schema.number, bound.schema.name)

    def writes_back(self, _: BoundTable) -> bool:
        return False

    def reload(self, cache: CatalogCache | None = None) -> None:
        super().reload(cache)
        with within_snapshot(self) as connection:
            self._look(connection)
            self._look_at_pins(connection)

    def idle_connection(self) -> None:
        """Return None: each read of a past also checks that its moment is still kept."""

    def read_active(self, bound: BoundTable, read: TableRead[T]) -> tuple[BoundTable, T]:
        if isinstance(bound, RewoundTable) or self.storage.is_in_transaction:
            active = super().read_active
            return retry_if_compacted(self, lambda: active(bound, read))
        return retry_if_compacted(
            self, lambda: self.run(lambda: self._read_active_at_once(bound, read))
        )

    def _read_active(self, bound: BoundTable, read: TableRead[T]) -> tuple[BoundTable, T]:
        if not isinstance(bound, RewoundTable):
            return self._read_stored(bound, read)

        def read_checked(connection: Connection, found: BoundTable) -> tuple[int | None, T]:
            version, answer = read(connection, found)
            if version is None:
                require_kept(self.moments, connection, self.moment)
            return version, answer

        try:
            answered = super()._read_active(bound, read_checked)
        except HistoryPurged:
            found = self.bind_numbered(bound.schema.number, bound.schema.name)
            if isinstance(found, RewoundTable):
                raise
            return self._read_stored(found, read)
        connection = self.storage.connection()
        if connection.mode is not None:
            self._require_visible(connection)
        return answered

    def _read_stored(self, bound: BoundTable, read: TableRead[T]) -> tuple[BoundTable, T]:
        """Files are replaced by others while one reads, and the log is pruned behind them. What was
        read from files because that is cheaper is rewound if they fail."""
        number, name = bound.schema.number, bound.schema.name
        reading = self._readings.get(number)
        if reading is None or reading.way == "rewound":
            return self._read_files(bound, read)
        try:
            return self._read_files(bound, read)
        except FILES_FAIL:
            self._readings[number] = replace(reading, way="rewound")
            return super()._read_active(self.bind_numbered(number, name), read)

    def _read_files(self, bound: BoundTable, read: TableRead[T]) -> tuple[BoundTable, T]:
        number, name = bound.schema.number, bound.schema.name
        for _ in attempts(READ):
            current = self._stored.get(number)
            if current is None:
                break
            try:
                return super()._read_active(current, read)
            except (HistoryDamaged, HistoryPurged):
                if not self._renew(current):
                    raise
                self.bind_numbered(number, name)
        return super()._read_active(self.bind_numbered(number, name), read)

    def _require_visible(self, connection: Connection) -> None:
        """Raise `HistoryBehind` in a snapshot that is earlier than the moment."""
        if self.moments.find_newest(connection).number < self.moment.number:
            raise HistoryBehind(
                "the moment is later than the snapshot in which it is read",
                moment=self.moment.number,
                hint="read it outside of the snapshot",
            )

    @contextmanager
    def writing(self, numbers: OperationNumbers | None = None) -> Iterator[Connection]:
        raise UsageError(
            "the past can't be changed",
            moment=self.moment.number,
            hint="write through db.table(…); the change is another moment",
        )
        yield


class CurrentSchemaSession(PastSession):
    """A past whose tables are read in the schema of now, `past.table(name, schema="now")`: converts
    records of then as the migrations since would have converted them."""

    def _read_in(self, then: TableAt) -> TableAt:
        number, name = then.schema.number, then.schema.name
        now = self.catalog.table_numbered(number, name)
        if now.layout_revision != then.layout_revision:
            self._require_way(then, now)
        return TableAt(
            now.schema, now.revision, now.layout_revision, then.is_recorded, then.obstacle
        )

    def _require_way(self, then: TableAt, now: TableDescriptor) -> None:
        """Raise `UsageError` if a migration between then and now takes what was archived, which
        depends on when it was active."""
        start = now.origins[then.revision]
        if now.is_reapplied_between(then.revision):
            raise UsageError(
                "a migration was applied again since then, with values that the records of then do "
                "not have",
                table=then.schema.name,
                hint=SCHEMA_HINT,
            )
        for migration, plan in self.catalog.list_steps(then.schema.number, start):
            if any(restored_in(derivation) for derivation in plan.derivations.values()):
                raise UsageError(
                    "a migration since then has restored archived values, which the records of "
                    "then do not have",
                    table=then.schema.name,
                    migration=migration.label,
                    hint=SCHEMA_HINT,
                )
