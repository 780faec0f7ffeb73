"""A store while it is worked on: what is known of it, and the transactions that move it on.

Whatever is written to its directory counts only when a transaction of the database says so. Each
such transaction checks the follower's lease, and that the store is where it was when the work
began. So a process that was killed, or replaced, or whose COMMIT was in doubt, leaves files that no
row names, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from pyarrow import compute

from zapdb.activation import TenantCatalog, load_tenant_catalog
from zapdb.catalog import rows
from zapdb.catalog.cluster import leases
from zapdb.catalog.cluster.leases import HeldLeases, Lease
from zapdb.catalog.cluster.stamping import give_stamp
from zapdb.catalog.row_kinds import DatabaseRow
from zapdb.errors import CommitUnknown, ConcurrencyError, UsageError
from zapdb.log.change_log import ChangeLog
from zapdb.log.moments import LoggedMoment, Moments, moments_of
from zapdb.past.files.directories import require_directory, writing_to
from zapdb.past.files.file_columns import FROM
from zapdb.past.files.history_file import FileFooter, write_file
from zapdb.past.files.history_manifest import (
    HISTORY_FORMAT,
    HistoryEra,
    HistoryFile,
    HistoryStore,
    delete_eras,
    delete_file_rows,
    insert_files,
    list_eras,
    list_history_files,
    list_timelines,
    read_store,
    retire_files,
    save_era,
    update_store,
)
from zapdb.past.files.manifest_files import (
    ManifestFile,
    delete_former_manifests,
    require_not_superseded,
    write_manifest,
)
from zapdb.past.files.store_changes import StoreChange, StoreCommit, TimelineRows
from zapdb.past.files.table_revisions import TableRevisions
from zapdb.schema import TableSchema
from zapdb.storage import BlobStatements, Connection, Storage, TransactionMode
from zapdb.storage.database_place import read_place
from zapdb.storage.fixed_tables import FileKind
from zapdb.values import Zones

FOLLOWER: Final = "zapdb.history"
"""The name of the follower row that keeps the change log from being pruned in front of a store."""


def lease_of(tenant: int) -> str:
    """Return the name of the lease of a tenant's follower."""
    return f"history/{tenant}"


def upkeep_lease_of(tenant: int) -> str:
    """Return the name of the lease of who flushes, erases, purges or moves: the follower gives its
    own away while that is held."""
    return f"history-upkeep/{tenant}"


@dataclass(frozen=True, slots=True)
class LoadedStore:
    """A store as of one snapshot: its row, and the last era of each table that has an open one."""

    store: HistoryStore
    eras: dict[int, HistoryEra]

    @property
    def moment(self) -> LoggedMoment:
        """The moment up to which it has files."""
        place = self.store.ends_bookmark
        return LoggedMoment(
            self.store.ends, place.stamp, place.commit_order, self.store.visible_at, None
        )

    @property
    def unfinished(self) -> list[HistoryEra]:
        """The eras whose checkpoint is not complete."""
        return [era for era in self.eras.values() if era.state == "baseline"]


class StoreWriter:
    """One tenant's store under the lease of this process."""

    def __init__(
        self, storage: Storage, tenant: int, lease: Lease, held: HeldLeases | None = None
    ) -> None:
        self.storage = storage
        self.tenant = tenant
        self.lease = lease
        self.held = held
        """All leases of who has taken the store over from its follower."""
        self.log = ChangeLog(storage, tenant)
        self.moments: Moments = moments_of(self.log)
        self.blobs = BlobStatements(storage)
        self.revisions = TableRevisions(tenant)
        self._catalog: TenantCatalog | None = None
        self.database = self.place = ""

    # Reading

    def load(self) -> LoadedStore | None:
        """Read the store in one snapshot; None if there is none."""
        with self.storage.transaction(TransactionMode.READ) as connection:
            return self.load_in(connection)

    def load_in(self, connection: Connection) -> LoadedStore | None:
        self.read_database(connection)
        self.load_catalog(connection)
        store = read_store(connection, self.tenant)
        if store is None:
            return None
        require_format(store)
        eras = {era.table_number: era for era in list_eras(connection, store, is_last=True)}
        return LoadedStore(store, eras)

    def read_database(self, connection: Connection) -> None:
        """Read the id of the database, which each manifest and file has, and its place."""
        if not self.database:
            row = rows.get(connection, DatabaseRow)
            self.database = "" if row is None else row.id
            self.place = read_place(connection)

    def load_catalog(self, connection: Connection) -> TenantCatalog:
        """Read the tenant's catalog and the revisions of its tables, if they have changed."""
        catalog = load_tenant_catalog(connection, self.tenant, self._catalog)
        if catalog is not self._catalog:
            self.revisions.reload(connection)
        self._catalog = catalog
        return catalog

    def reload_revisions(self) -> None:
        with self.storage.transaction(TransactionMode.READ) as connection:
            self.load_catalog(connection)
            self.revisions.reload(connection)

    def find_newest_stamp(self) -> int:
        """Give what became visible a stamp; return the newest."""
        give_stamp(self.storage, self.tenant)
        return self.log.read_newest(self.storage.connection())

    # Files

    def write(
        self,
        loaded: LoadedStore,
        kind: FileKind,
        era: HistoryEra,
        revision: int,
        until: LoggedMoment,
        rows: Any,
    ) -> HistoryFile:
        """Write a file of rows of an era up to a moment; raises `HistoryUnreachable` and
        `DiskFull`."""
        first = compute.min(rows.column(FROM)).as_py()
        footer = self.make_footer(loaded.store, kind, era, revision, (first, until))
        return self._write(loaded, footer, self.schema_of(era), [rows])

    def write_moments(
        self, loaded: LoadedStore, since: int, until: LoggedMoment, tables: Iterable[Any]
    ) -> HistoryFile:
        """Write a file of all moments from a number on up to a moment, of many tables; raises
        `HistoryUnreachable` and `DiskFull`.

        `since` need not be the number of a moment: on SQLite, other tenants have numbers between.
        """
        footer = FileFooter.of_moments(self.database, loaded.store, since, until)
        return self._write(loaded, footer, None, tables)

    def _write(
        self,
        loaded: LoadedStore,
        footer: FileFooter,
        schema: TableSchema | None,
        tables: Iterable[Any],
    ) -> HistoryFile:
        directory, described = Path(loaded.store.directory), (footer, schema)
        with writing_to(loaded.store.directory):
            _require_begun(loaded.store)
            return write_file(directory, described, tables, self.require_lease)

    def make_footer(
        self,
        store: HistoryStore,
        kind: FileKind,
        era: HistoryEra,
        revision: int,
        moments: tuple[int, LoggedMoment],
    ) -> FileFooter:
        """Return what a file of an era says of itself, whose newest rows are of a revision, with
        the moments from the first to the last."""
        entry = self.revisions.find(era.table_number, revision)
        return replace(
            FileFooter.of_moments(self.database, store, *moments),
            kind=kind,
            table=era.table_number,
            name=self.schema_of(era).name,
            era=era.era,
            revision=revision,
            position=0 if entry is None else entry.position,
            migration=0 if entry is None else entry.migration,
        )

    def schema_of(self, era: HistoryEra) -> TableSchema:
        """Return the schema that an era's table had when it began: that of its files."""
        entry = self.revisions.find(era.table_number, era.revision)
        assert entry is not None, "the revision is in the schema history"
        return self.revisions.schema_of(entry)

    # Transactions

    def require_lease(self) -> None:
        """Raise `LeaseLost` if another process has taken over, whatever a snapshot sees."""
        if self.storage.is_in_transaction:
            self.storage.read_in_own_transaction(
                lambda connection: leases.check(connection, self.lease)
            )
        else:
            leases.check(self.storage.connection(), self.lease)

    @contextmanager
    def changing(self, mode: TransactionMode = TransactionMode.CATALOG) -> Iterator[Connection]:
        """A transaction under the lease; raises `LeaseLost`."""
        with self.storage.transaction(mode) as connection:
            leases.check(connection, self.lease, lock=True)
            yield connection

    def commit(self, was: HistoryStore, store: HistoryStore, change: StoreChange) -> None:
        """Store what was done since the store was read, and the follower's bookmark; all or
        nothing.

        Raises `LeaseLost`, and `ConcurrencyError` if the store was moved on meanwhile. An unknown
        COMMIT is settled by reading the store. See `committing` for the rest.
        """
        try:
            with self.committing([StoreCommit(was, store, change)]) as connection:
                write_follower(connection, self.log, store)
        except CommitUnknown:
            found = self.load()
            if found is None or found.store != replace(store, commits=was.commits + 1):
                raise
            if not self._has(change):
                raise

    @contextmanager
    def committing(
        self, commits: Sequence[StoreCommit], mode: TransactionMode = TransactionMode.CATALOG
    ) -> Iterator[Connection]:
        """A transaction that stores changes of timelines, with what is done in the block; each has
        a manifest in its directory before, and no earlier one behind it.

        Raises `LeaseLost`, `ConcurrencyError` if a timeline was moved on since it was read,
        `UsageError` if another database has moved it on, `HistoryUnreachable` and `DiskFull`. The
        new files are deleted then: they may have what the other process has erased.
        """
        try:
            numbered = [self._write_manifest(commit) for commit in commits]
        except UsageError:
            _delete_files(commits)
            raise
        try:
            with self.changing(mode) as connection:
                for commit, _ in numbered:
                    self._apply(connection, commit)
                yield connection
        except ConcurrencyError as error:
            if not isinstance(error, CommitUnknown):
                _delete_written(numbered)
            raise
        for commit, path in numbered:
            delete_former_manifests(commit.store, self.database, path)

    def _write_manifest(self, commit: StoreCommit) -> tuple[StoreCommit, Path]:
        """Write the manifest behind a commit; returns the commit with its number."""
        rows = commit.read or self._read_rows(commit.was)
        self.require_not_superseded(rows.store)
        was = replace(commit.was, commits=rows.store.commits)
        store = replace(commit.store, commits=was.commits + 1)
        eras, files = commit.change.apply_to(rows.eras, rows.files)
        made = ManifestFile(
            HISTORY_FORMAT, self.database, rows.read_at, store, eras, files, self.place
        )
        with writing_to(store.directory):
            return replace(commit, was=was, store=store), write_manifest(made)

    def _read_rows(self, was: HistoryStore) -> TimelineRows:
        """Read what a timeline is now, of which only its number is taken from what it was."""
        with self.storage.transaction(TransactionMode.READ) as connection:
            self.read_database(connection)
            now = {one.timeline: one for one in list_timelines(connection, self.tenant)}
            return read_timeline(connection, now.get(was.timeline, replace(was, commits=0)))

    def require_not_superseded(self, store: HistoryStore) -> None:
        """See `manifest_files`; raises `UsageError`."""
        with writing_to(store.directory):
            _require_begun(store)
            require_not_superseded(self.storage, store)

    def _apply(self, connection: Connection, commit: StoreCommit) -> None:
        change = commit.change
        if not update_store(connection, commit.was, commit.store):
            raise ConcurrencyError(
                "another process has moved the history store on",
                tenant=self.tenant,
                hint="nothing was stored; the other process goes on",
            )
        retire_files(connection, change.corrected)
        delete_file_rows(connection, change.corrected)
        insert_files(connection, [*change.files, *change.corrected])
        for era in change.eras:
            save_era(connection, era)
        delete_eras(connection, change.dropped)
        retire_files(connection, change.retired)

    def _has(self, change: StoreChange) -> bool:
        """Return whether the files of a change are stored."""
        names = [file.id for file in change.files]
        if not names:
            return True
        mark = self.storage.placeholder
        found = self.storage.connection().fetch_one(
            f"SELECT 1 FROM zapdb_history_files WHERE tenant = {self.tenant} AND id = {mark}",
            (names[0],),
        )
        return found is not None

    def update(self, connection: Connection, was: HistoryStore, store: HistoryStore) -> None:
        """Store what became of the store's row alone, unless somebody else has moved it on."""
        update_store(connection, was, store)

    @property
    def zones(self) -> Zones | None:
        """The time zones of the database, as of the last reading of the catalog."""
        return None if self._catalog is None else self._catalog.zones


def read_timeline(connection: Connection, store: HistoryStore) -> TimelineRows:
    """Return the rows of a timeline, whose own was just read."""
    eras, files = list_eras(connection, store), list_history_files(connection, store)
    return TimelineRows(store, eras, files, connection.storage.now_us(connection))


def write_follower(connection: Connection, log: ChangeLog, store: HistoryStore) -> None:
    """Keep the changes behind a store's end from being pruned; raises `ChangesPruned`."""
    log.require_unpruned(connection.fetch_all, store.ends_bookmark)
    mark = connection.storage.placeholder
    connection.run(
        "INSERT INTO zapdb_followers"
        f" VALUES ({log.tenant}, {mark}, {mark}, ({connection.storage.dialect.clock_sql}))"
        " ON CONFLICT (tenant, name)"
        " DO UPDATE SET bookmark = excluded.bookmark, advanced_at = excluded.advanced_at",
        (FOLLOWER, str(store.ends_bookmark)),
    )


def _require_begun(store: HistoryStore) -> None:
    """Raise `HistoryUnreachable` if a store that has files has none where it is: an empty directory
    is all that there is of a file system that is not mounted."""
    if store.commits:
        require_directory(store.directory, store.tenant)


def _delete_written(commits: Iterable[tuple[StoreCommit, Path]]) -> None:
    """Delete the files of commits that did not happen, and their manifests."""
    made = list(commits)
    _delete_files(commit for commit, _ in made)
    for _, manifest in made:
        with suppress(OSError):
            manifest.unlink()


def _delete_files(commits: Iterable[StoreCommit]) -> None:
    for commit in commits:
        for file in commit.change.files:
            with suppress(OSError):
                file.place_in(commit.store.directory).unlink()


def require_format(store: HistoryStore) -> None:
    """Raise `UsageError` for a store that a newer release has written."""
    if store.format > HISTORY_FORMAT:
        raise UsageError(
            "the history store has a newer format than this release knows",
            directory=store.directory,
            format=store.format,
            known=HISTORY_FORMAT,
            hint="use a newer release of zapdb",
        )
