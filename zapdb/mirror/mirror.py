"""A mirror: plain tables of a tenant's current state, each change in them once.

    baseline   a table is made from a snapshot; which transactions that has seen is kept with it
    batch      changes after the bookmark that the baselines have not seen, and the new bookmark

Each is one transaction of the target, so that a mirror that dies goes on where its tables are. A
table whose schema changed is made again from a snapshot, and so is one that is not as the mirror
left it: its columns, how many rows it has, or the rows that a batch changes. Changes that the new
baseline has seen are skipped when their turn comes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field

from zapdb.catalog import rows
from zapdb.catalog.kinds import DatabaseRow
from zapdb.catalog.settings import CHANGE_LOG, Scope
from zapdb.catalog.stored_settings import read_settings
from zapdb.database import ChangeFollower, Database, Snapshot
from zapdb.errors import ChangesPruned, CorruptCatalog, StorageError, UsageError
from zapdb.export.plain_tables import PlainTable, plan_plain_table
from zapdb.export.snapshots import read_catalog
from zapdb.limits import COMPILED_MAX
from zapdb.memo import Memo
from zapdb.mirror.batch import ChangeBatch, LongField, RowChange, collect_batch, rows_of
from zapdb.mirror.shapes import list_mirrored, shape_of
from zapdb.mirror.state import MirroredTable, MirrorSource, MirrorState
from zapdb.mirror.target import MirrorTarget, TargetBusy, TargetFailed, TargetSession
from zapdb.storage.change_log import Bookmark, ChangeLog, LogSnapshot


class BrokenTable(Exception):
    """A table of the target is not as the mirror left it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@dataclass
class MirrorReport:
    """What one run has done: changes applied, batches, and the tables that were made, by name."""

    changes: int = 0
    batches: int = 0
    made: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    """Those that were found changed by others, and made again."""


@dataclass(frozen=True, slots=True)
class _Work:
    """What one transaction has done."""

    bookmark: Bookmark
    changes: int = 0
    built: frozenset[int] | set[int] = frozenset()
    rebuild: frozenset[int] | set[int] = frozenset()
    broken: list[str] = field(default_factory=list)

    @property
    def is_any(self) -> bool:
        return bool(self.changes or self.built or self.rebuild)


class Mirror:
    """Keeps a target like the tenant of an open database; not safe to share between threads."""

    def __init__(self, db: Database, target: MirrorTarget) -> None:
        self.db = db
        self.target = target
        self.report = MirrorReport()
        self.source = read_source(db)
        self._shapes: Memo[tuple[int, int], str] = Memo(COMPILED_MAX)
        self._plain: dict[tuple[int, str, tuple[str, ...]], PlainTable] = {}
        self._rebuild: set[int] = set()
        """The tables that have to be made again, by number."""
        self._just_made: set[int] = set()
        self._long: dict[int, set[str]] = {}
        self._follower: ChangeFollower | None = None
        self._is_checked = False
        self._version = 0

    # The change log

    def switch_on(self) -> bool:
        """Switch the change log on for the tenant, those of its tables that come later too, unless
        that is configured; return whether it was off. Raises `UsageError` if it is configured as
        off for the tenant."""
        session = self.db._session
        with session.reading() as connection:
            settings = read_settings(connection, session.catalog.tenant)
        value, origin = settings.find(CHANGE_LOG, Scope(session.catalog.tenant))
        if value == "on":
            return False
        if origin == "tenant":
            raise UsageError(
                "the change log is switched off for the tenant, and a mirror needs it",
                tenant=self.db._tenant,
                hint="`zapdb settings set change_log on`, with --tenant",
            )
        self.db.admin.set_setting(CHANGE_LOG, "on", tenant=self.db._tenant)
        session.reload()
        return True

    def _follow(self, bookmark: Bookmark) -> None:
        """Keep the changes after a bookmark from being pruned."""
        if self._follower is None:
            self._follower = self.db.change_log.follower(name_follower(self.target))
        if self._follower.bookmark != bookmark:
            self._follower.advance(bookmark)

    # Steps

    def step(self) -> bool:
        """Do the next piece of work in one transaction of the target; False if there is none.

        Raises `TargetBusy` if the target can't be reached now, and `UsageError` for one that is no
        place for this mirror.
        """
        if self.db._session.catalog.rolling_back is not None:
            return False
        try:
            with self.target.transaction() as session:
                state = session.read_state() or self._begin(session)
                self._require_own(state)
                done = self._work(session, state)
        except BrokenTable as found:
            self._note_broken(found.number)
            return True
        except LongField as found:
            self._long.setdefault(found.number, set()).add(found.field)
            self._rebuild.add(found.number)
            return True
        except TargetBusy:
            self._is_checked = False
            raise
        except TargetFailed:
            if not self._is_checked:
                raise
            self._is_checked = False  # a table may have been changed while the mirror ran
            return True
        self._note(done)
        self._follow(done.bookmark)
        return done.is_any

    def _note(self, done: _Work) -> None:
        self._is_checked = True
        self._just_made = set(done.built)
        self._rebuild = (self._rebuild - done.built) | done.rebuild
        self.report.changes += done.changes
        self.report.batches += bool(done.changes)
        self.report.broken += done.broken

    def _note_broken(self, number: int) -> None:
        """Have a table made again; raise `StorageError` if it was made a moment ago."""
        descriptor = list_mirrored(self.db._session.catalog).get(number)
        name = str(number) if descriptor is None else descriptor.schema.name
        self._rebuild.add(number)
        self.report.broken.append(name)
        if number in self._just_made:
            self._just_made.discard(number)
            raise StorageError(
                "a table of the mirror was changed as soon as it was made",
                target=self.target.shown,
                table=name,
                hint="another program writes to it: let it read only",
            )

    def _begin(self, session: TargetSession) -> MirrorState:
        bookmark = self.db.change_log.end()
        self._follow(bookmark)
        return session.begin_state(self.source, bookmark, self._now())

    def _require_own(self, state: MirrorState) -> None:
        if state.source != self.source:
            raise UsageError(
                "the target is the mirror of another database, or of another tenant",
                target=self.target.shown,
                hint="give each mirror a schema or a file of its own, or drop this one first",
            )

    def _work(self, session: TargetSession, state: MirrorState) -> _Work:
        broken = set[int]() if self._is_checked else set(find_broken(session, state))
        wanted = list_mirrored(self.db._session.catalog)
        stale = {
            number
            for number, descriptor in wanted.items()
            if number not in state.tables
            or state.tables[number].name != descriptor.schema.name
            or state.tables[number].shape != shape_of(descriptor.schema)
        }
        again = broken | stale | self._rebuild
        if again or state.tables.keys() - wanted.keys():
            self._build(session, state, again)
            return _Work(state.bookmark, built=again or {0}, broken=_names_of(broken, state))
        try:
            batch = collect_batch(self.db.change_log.read(state.bookmark), state, self._shapes)
        except (ChangesPruned, UsageError):  # or the database is an older copy of itself
            bookmark = self.db.change_log.end()
            self._follow(bookmark)
            self._build(session, state, set(state.tables))
            session.save_bookmark(bookmark, self._now())
            return _Work(bookmark, built=set(state.tables))
        if batch.changes:
            self._apply(session, state, batch)
            session.save_bookmark(batch.bookmark, self._now())
        return _Work(batch.bookmark, batch.changes, rebuild=batch.rebuild)

    def _now(self) -> int:
        storage = self.db._storage
        return storage.now_us(storage.connection())

    def has_other_tables(self) -> bool:
        """Whether the tables may be others than after the last step, though nothing changed in
        them."""
        version = self.db._session.catalog.version
        has_moved, self._version = version != self._version, version
        return has_moved

    # Baselines

    def _build(self, session: TargetSession, state: MirrorState, numbers: set[int]) -> None:
        """Make tables from one snapshot, and drop those that are no more."""
        with self.db.snapshot() as snap:
            snap._session.reload()
            wanted = list_mirrored(read_catalog(snap._session))
            baseline = _read_baseline(snap)
            for number in state.tables.keys() - wanted.keys():
                session.drop(state.tables[number].name)
                session.forget_table(number)
                self.report.dropped.append(state.tables[number].name)
            made = [number for number in wanted if number in numbers]
            made += [number for number in wanted if number not in {*state.tables, *numbers}]
            waiting = {
                number: self._fill(session, state, snap, number, wanted[number].schema.name)
                for number in made
            }
            for number in waiting:
                if number in state.tables:
                    session.drop(state.tables[number].name)
            for number, count in waiting.items():
                schema = wanted[number].schema
                self._require_free(session, schema.name)
                session.rename(_waiting_name(number), schema.name)
                columns, long = session.observe(schema.name), tuple(self._long_of(state, number))
                session.save_table(
                    MirroredTable(
                        number, schema.name, shape_of(schema), baseline, count, columns, long
                    )
                )
                self.report.made.append(schema.name)

    def _require_free(self, session: TargetSession, name: str) -> None:
        if session.describe_columns(name):
            raise UsageError(
                "the target has a table of this name that is not the mirror's",
                target=self.target.shown,
                table=name,
                hint="rename or drop it, or give the mirror a place of its own",
            )

    def _fill(
        self, session: TargetSession, state: MirrorState, snap: Snapshot, number: int, name: str
    ) -> int:
        """Make a table under a name of its own and return how many rows it has."""
        schema = snap._session.catalog.table(name).schema
        plain = plan_plain_table(schema, session.engine, self._long_of(state, number))
        session.drop(_waiting_name(number))
        session.create(_waiting_name(number), plain)
        records = snap.table(name).scan()
        return session.insert(_waiting_name(number), plain, rows_of(records, plain, number))

    def _long_of(self, state: MirrorState, number: int) -> list[str]:
        known = state.tables[number].long if number in state.tables else ()
        return sorted({*known, *self._long.get(number, ())})

    # Batches

    def _apply(self, session: TargetSession, state: MirrorState, batch: ChangeBatch) -> None:
        for number, changed in batch.changed.items():
            if number in batch.rebuild:
                continue
            table = state.tables[number]
            plain = self._plain_of(table, next(iter(changed.values())), session)
            gone = [row for row in changed.values() if row.was_there]
            keys = [_key_of(row, plain) for row in gone]
            if session.delete(table.name, plain, keys) != len(keys):
                raise BrokenTable(number)
            records = (row.record for row in changed.values() if row.is_there)
            inserted = session.insert(table.name, plain, rows_of(records, plain, number))
            session.save_rows(number, table.rows + inserted - len(keys))

    def _plain_of(self, table: MirroredTable, row: RowChange, session: TargetSession) -> PlainTable:
        key = (table.number, table.shape, table.long)
        if key not in self._plain:
            self._plain[key] = plan_plain_table(row.table, session.engine, table.long)
        return self._plain[key]


def _key_of(row: RowChange, plain: PlainTable) -> tuple[object, ...]:
    return tuple([plain.columns[at].take(row.record) for at in plain.key])


def _names_of(numbers: set[int], state: MirrorState) -> list[str]:
    return [state.tables[number].name for number in sorted(numbers)]


def _waiting_name(number: int) -> str:
    return f"zapdb_mirror_new_{number}"


def name_follower(target: MirrorTarget) -> str:
    """The name of a mirror's follower, such as `mirror sqlite 3f7a90c2d1`."""
    return f"mirror {target.engine} {hashlib.sha256(target.shown.encode()).hexdigest()[:10]}"


def read_source(db: Database) -> MirrorSource:
    """Which database and tenant an open database is."""
    with db._session.reading() as connection:
        row = rows.get(connection, DatabaseRow)
    if row is None:
        raise CorruptCatalog(
            "the catalog's `database` row is missing", hint="restore it from a backup"
        )
    return MirrorSource(row.id, db._session.catalog.tenant)


def find_broken(session: TargetSession, state: MirrorState) -> Iterable[int]:
    """The tables whose columns or number of rows are not as the mirror left them."""
    for number, table in state.tables.items():
        columns = session.observe(table.name)
        if columns != table.columns or session.count(table.name) != table.rows:
            yield number


def _read_baseline(snap: Snapshot) -> LogSnapshot:
    """Which transactions a snapshot sees."""
    session = snap._session
    with session.connected() as connection:
        if session.storage.dialect == "postgresql":
            (text,) = connection.fetch_one("SELECT pg_current_snapshot()::text")
            return LogSnapshot.parse(text)
        newest = ChangeLog(session.storage, session.catalog.tenant).read_newest(connection)
        return LogSnapshot(newest + 1, ())
