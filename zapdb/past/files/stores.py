"""Beginning, stopping and looking at a tenant's history store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Final

from zapdb.activation import load_tenant_catalog
from zapdb.catalog import rows
from zapdb.catalog.cluster import leases
from zapdb.catalog.cluster.leases import Owner
from zapdb.catalog.row_kinds import DatabaseRow
from zapdb.catalog.schema_history import read_later_events
from zapdb.errors import HistoryDamaged, UsageError
from zapdb.files import mode_of_directory, require_path
from zapdb.limits import HISTORY_LEASE_SECONDS, HISTORY_UPKEEP_WAIT_SECONDS
from zapdb.log.change_log import ChangeLog, Lag
from zapdb.log.moments import BEFORE_ALL, LoggedMoment
from zapdb.past.files.directories import GONE, has_store, writing_to
from zapdb.past.files.eras import EraPlanner, TableEvents
from zapdb.past.files.history_erasures import list_unfinished
from zapdb.past.files.history_file import (
    FileFooter,
    list_directory,
    make_directory,
    read_footer,
    sync_directory,
    write_file,
)
from zapdb.past.files.history_manifest import (
    HISTORY_FORMAT,
    HistoryStore,
    insert_files,
    insert_store,
    list_eras,
    measure_files,
    read_store,
    save_era,
    stop_following,
    update_store,
)
from zapdb.past.files.manifest_files import (
    LATER,
    ManifestFile,
    is_superseded,
    list_manifests,
    write_manifest,
)
from zapdb.past.files.moment_rows import make_baseline, to_arrow
from zapdb.past.files.table_revisions import read_tables_at
from zapdb.past.files.working_store import (
    LoadedStore,
    StoreWriter,
    lease_of,
    upkeep_lease_of,
    write_follower,
)
from zapdb.storage import Connection, Storage, TransactionMode
from zapdb.storage.cells import as_time
from zapdb.storage.database_place import read_place
from zapdb.storage.fixed_tables import StoreState
from zapdb.storage.identifiers import make_uuid7

PATTERN_MARKS: Final = ("*", "?", "[")
START_HINT = "begin one: `zapdb history start DIRECTORY`, or db.history.start(directory)"


@dataclass(frozen=True, slots=True)
class HistoryStatus:
    """A history store: the moments that its files hold, and how far they are behind.

    `state` is `baseline` while tables are read for the first time (`unfinished` names them),
    `follows`, `stopped`, or `broken`; `problem` says what is in the way, if something is. Without
    `is_followed`, no process is at work on it. Moments before `purged_before` were purged, and
    `unfinished_erasures` records are not erased from all files yet.
    """

    directory: str
    state: StoreState
    begins: int
    ends: int
    visible_at: datetime | None
    flushed_at: datetime
    lag: Lag
    files: int
    size_bytes: int
    unfinished: tuple[str, ...]
    is_followed: bool
    purged_before: int
    unfinished_erasures: int
    problem: str | None = None


@contextmanager
def hold_store(
    storage: Storage, tenant: int, owner: Owner, wait_seconds: float = 0.0
) -> Iterator[StoreWriter]:
    """Work on a tenant's store in the block, as the only process; raises `LeaseHeld`."""
    name = lease_of(tenant)
    with leases.hold_lease(storage, name, owner, HISTORY_LEASE_SECONDS, wait_seconds) as lease:
        yield StoreWriter(storage, tenant, lease)


@contextmanager
def take_over_store(
    storage: Storage, tenant: int, wait_seconds: float = HISTORY_UPKEEP_WAIT_SECONDS
) -> Iterator[StoreWriter]:
    """Work on a tenant's store in the block, while its follower pauses; raises `LeaseHeld` if that
    does not come to the end of its present step within `wait_seconds`, or somebody else is at work
    for as long."""
    names, owner = [upkeep_lease_of(tenant), lease_of(tenant)], Owner.here()
    with leases.hold_leases(storage, names, owner, HISTORY_LEASE_SECONDS, wait_seconds) as held:
        yield StoreWriter(storage, tenant, held.leases[-1], held)


def is_wanted(connection: Connection, tenant: int) -> bool:
    """Return whether somebody waits for the follower to pause."""
    lease = leases.read_lease(connection, upkeep_lease_of(tenant))
    return lease is not None and not lease.is_over(connection.storage.now_us(connection))


def start_store(working: StoreWriter, directory: Path | None) -> HistoryStore:
    """Begin a tenant's store in a directory, or go on with a stopped one.

    A broken store is left as it is: a new timeline begins beside it. Raises `UsageError` as
    `check_directory` does.
    """
    chosen = check_directory(working.storage, working.tenant, directory)
    found = read_store(working.storage.connection(), working.tenant)
    if found is not None and found.state != "broken":
        return _go_on(working, found)
    working.load()
    return _begin(working, chosen)


def check_directory(storage: Storage, tenant: int, directory: Path | None) -> Path:
    """Return the directory in which `start_store` would begin a tenant's store, or go on with it; a
    new one is made.

    Raises `UsageError` without a directory for a new store, for a store that is in another one, and
    for a directory that is another database's, or whose path has characters of a pattern.
    """
    with storage.transaction(TransactionMode.READ) as connection:
        found = read_store(connection, tenant)
    if found is not None and found.state != "broken":
        _require_same(found, directory)
        return Path(found.directory)
    if directory is None:
        if found is None:
            raise UsageError(
                "a new history store needs a directory",
                hint="`zapdb history start DIRECTORY`: files of each tenant get a directory in it",
            )
        directory = Path(found.directory)
    return prepare_directory(storage, tenant, directory)


def prepare_directory(storage: Storage, tenant: int, directory: Path) -> Path:
    """Return the full path of a directory in which a tenant's files can be written; a new one is
    made.

    Raises `UsageError` for one that is another database's, or whose path has characters of a
    pattern, or such as can't be printed; `HistoryUnreachable` and `DiskFull`.
    """
    row = rows.get(storage.connection(), DatabaseRow)
    require_path(directory)
    directory = directory.resolve()
    require_plain(directory)
    mode = mode_of_directory(storage.engine.file_mode)
    make_store_directory(directory, mode)
    own = directory / str(tenant)
    with writing_to(str(directory)):
        _require_own(own, "" if row is None else row.id)
        with suppress(FileExistsError):
            own.mkdir(mode)  # the files are in it
    return directory


def _require_same(found: HistoryStore, directory: Path | None) -> None:
    if directory is not None and str(directory.resolve()) != found.directory:
        raise UsageError(
            "the tenant has a history store in another directory",
            directory=found.directory,
            given=str(directory.resolve()),
            hint="`zapdb history start` without a directory goes on with it; `zapdb history move "
            "--to DIRECTORY` gives it another one",
        )


def _go_on(working: StoreWriter, found: HistoryStore) -> HistoryStore:
    if found.state != "stopped":
        return found
    with working.changing() as connection:
        unfinished = list_eras(connection, found, state="baseline")
        state: StoreState = "baseline" if unfinished else "follows"
        store = replace(found, state=state, problem=None)
        write_follower(connection, working.log, store)
        update_store(connection, found, store)
    return store


def require_plain(directory: Path) -> Path:
    """Return it; raises `UsageError` for a path that DuckDB would take as a pattern, as it has no
    way to escape one that works where a statement may read some files only; and for one that a
    line can't show as it is."""
    if not str(directory).isprintable():
        raise UsageError(
            "the path of the history store can't have characters that are not printable",
            directory=str(directory),
            hint="give a directory whose full path has no line ends, other control characters or "
            "bytes that are no text",
        )
    found = [mark for mark in PATTERN_MARKS if mark in str(directory)]
    if found:
        raise UsageError(
            "the path of the history store can't have characters of a pattern",
            directory=str(directory),
            characters=" ".join(found),
            hint="give a directory whose full path has none of them: SQL would take it as a "
            "pattern for other files",
        )
    return directory


def make_store_directory(directory: Path, mode: int) -> None:
    """Make the directory of stores; raises `UsageError`."""
    if directory.exists() and not directory.is_dir():
        raise UsageError(
            "the history store needs a directory, and this is a file",
            path=str(directory),
            hint="give a directory, which may not be there yet",
        )
    try:
        make_directory(directory.parent)
        directory.mkdir(mode, exist_ok=True)
        sync_directory(directory.parent)
    except OSError as error:
        raise UsageError(
            "the directory of the history store can't be made",
            directory=str(directory),
            error=str(error),
            hint="give a directory in which this process may write",
        ) from error


def _require_own(directory: Path, database: str) -> None:
    """Raise `UsageError` if there are files of another database's store."""
    for path in sorted(directory.glob("*/*.parquet"))[:1]:
        try:
            footer, _ = read_footer(path)
        except HistoryDamaged as error:
            raise UsageError(
                "the directory has files that are no history store's",
                path=str(path),
                hint="give the store a directory of its own",
            ) from error
        if footer.database != database:
            raise UsageError(
                "the directory has the history store of another database",
                path=str(path),
                hint="give each database a directory of its own",
            )


def require_own_files(directory: Path, database: str) -> None:
    """Raise `UsageError` if there are files of another database's stores, of whatever tenant."""
    for inside in list_directory(directory):
        if inside.is_dir():
            _require_own(inside, database)


def require_no_unknown_store(directory: Path, tenant: int) -> None:
    """Raise `UsageError` if a directory has a store of a tenant of which the database has no
    rows."""
    if any(list_manifests(directory, tenant)):
        raise UsageError(
            "the directory has a history store of the tenant which the database does not know",
            directory=str(directory / str(tenant)),
            hint="if the database was restored from a backup, `zapdb history rebuild-manifest` "
            "goes on with it; else move it away",
        )


def make_tenant_directory(storage: Storage, tenant: int, directory: Path) -> Path:
    """Make the directory of a new tenant's files; raises `HistoryUnreachable` and `DiskFull`, also
    if it is there already."""
    own = directory.resolve() / str(tenant)
    with writing_to(str(directory)):
        own.mkdir(mode_of_directory(storage.engine.file_mode))
    return own


def begin_new_store(connection: Connection, tenant: int, directory: Path) -> None:
    """Begin the store of a tenant in the transaction that makes the tenant, which has no table and
    no change yet. Raises `HistoryUnreachable` and `DiskFull`."""
    storage, now = connection.storage, connection.storage.now_us(connection)
    row = rows.get(connection, DatabaseRow)
    database = "" if row is None else row.id
    resolved = directory.resolve()
    store = replace(_make_row(tenant, resolved, BEFORE_ALL, now), state="follows")
    footer = FileFooter.of_moments(database, store, BEFORE_ALL.number, BEFORE_ALL)
    store = replace(store, commits=footer.commit)
    baseline = to_arrow([make_baseline(BEFORE_ALL, {}, 0)])
    with writing_to(store.directory):
        file = write_file(resolved, (footer, None), [baseline], lambda: None)
        place = read_place(connection)
        write_manifest(ManifestFile(HISTORY_FORMAT, database, now, store, [], [file], place))
    insert_store(connection, store)
    insert_files(connection, [file])
    write_follower(connection, ChangeLog(storage, tenant), store)


def _make_row(tenant: int, directory: Path, moment: LoggedMoment, now: int) -> HistoryStore:
    """Return the row of a timeline that begins at a moment."""
    return HistoryStore(
        tenant=tenant,
        timeline=make_uuid7().hex(),
        directory=str(directory),
        format=HISTORY_FORMAT,
        state="baseline",
        begins=moment.number,
        ends=moment.number,
        ends_bookmark=moment.bookmark,
        visible_at=moment.visible_at,
        purged_before=0,
        started_at=now,
        flushed_at=now,
    )


def _begin(working: StoreWriter, directory: Path) -> HistoryStore:
    """Begin a timeline at the newest moment: each table that is recorded gets a checkpoint of
    then."""
    storage, tenant = working.storage, working.tenant
    working.find_newest_stamp()
    with storage.transaction(TransactionMode.READ) as connection:
        catalog = working.load_catalog(connection)
        moment = working.moments.find_newest(connection)
        later = working.moments.find_later(connection, moment)
        tables = read_tables_at(connection, catalog, working.revisions, later)
        events = read_later_events(connection, tenant, later)
        migration = events.find_migration(catalog.migration)
        now = storage.now_us(connection)
        store = _make_row(tenant, directory, moment, now)
        planner = EraPlanner(store, working.revisions, {}, {})
        plan = planner.plan(tables, TableEvents(), moment.number)
    if not plan.begun:
        store = replace(store, state="follows")
    revisions = {number: at.entry.revision for number, at in tables.items()}
    baseline = to_arrow([make_baseline(moment, revisions, migration)])
    file = working.write_moments(LoadedStore(store, {}), moment.number, moment, [baseline])
    store = replace(store, commits=1)
    described = HISTORY_FORMAT, working.database, now, store
    made = ManifestFile(*described, plan.begun, [file], working.place)
    with writing_to(str(directory)):
        write_manifest(made)
    with working.changing() as connection:
        insert_store(connection, store)
        insert_files(connection, [file])
        for era in plan.begun:
            save_era(connection, era)
        write_follower(connection, working.log, store)
    return store


def stop_store(storage: Storage, tenant: int) -> None:
    """Stop following, in whatever process; the store goes on where it is when it is started again.

    Its bookmark stays, so that the change log keeps what it lacks. Raises `UsageError` without a
    store.
    """
    with storage.transaction(TransactionMode.CATALOG) as connection:
        stop_following(connection, require_store(connection, tenant))


def require_store(connection: Connection, tenant: int) -> HistoryStore:
    """Return the tenant's newest timeline; raises `UsageError` if there is none."""
    found = read_store(connection, tenant)
    if found is None:
        raise UsageError("the tenant has no history store", hint=START_HINT)
    return found


def read_history_status(connection: Connection, tenant: int) -> HistoryStatus:
    """Read the status of a tenant's store, in a snapshot; raises `UsageError` without a store."""
    store = require_store(connection, tenant)
    storage, files = connection.storage, measure_files(connection, store)
    eras = list_eras(connection, store, state="baseline")
    lag = ChangeLog(storage, tenant).measure_lag(connection, store.ends_bookmark)
    lease = leases.read_lease(connection, lease_of(tenant))
    names = dict[int, str]()
    if eras:  # a catalog takes longer to load than all the rest
        tables = load_tenant_catalog(connection, tenant).tables
        names = {descriptor.schema.number: name for name, descriptor in tables.items()}
    return HistoryStatus(
        directory=store.directory,
        state=store.state,
        begins=store.begins,
        ends=store.ends,
        visible_at=as_time(store.visible_at) if store.visible_at else None,
        flushed_at=as_time(store.flushed_at),
        lag=lag,
        files=sum(count for count, _ in files.values()),
        size_bytes=sum(size for _, size in files.values()),
        unfinished=tuple(names.get(era.table_number, str(era.table_number)) for era in eras),
        is_followed=lease is not None and not lease.is_over(storage.now_us(connection)),
        purged_before=store.purged_before,
        unfinished_erasures=len(list_unfinished(connection, tenant)),
        problem=_find_absent(store, {None, *files}) or _find_later(storage, store) or store.problem,
    )


def _find_later(storage: Storage, store: HistoryStore) -> str | None:
    """Return what is to be said of files that are newer than the database."""
    try:
        is_later = is_superseded(storage, store)
    except OSError:  # of a disk, or a network
        return None
    if not is_later:
        return None
    return (
        f"{LATER}: if this one was restored from a backup, run `zapdb history rebuild-manifest`; "
        "until then, nothing is written"
    )


def _find_absent(store: HistoryStore, directories: set[str | None]) -> str | None:
    """Return what is to be said of directories of a store that are not there."""
    absent = [
        place
        for place in sorted(directory or store.directory for directory in directories)
        if not has_store(place, store.tenant)
    ]
    if not absent:
        return None
    return (
        f"{GONE}: {', '.join(absent)}; mount it, or put it back where it was: until then, the "
        "change log keeps what the store lacks, and moments that it leads back to can be read"
    )
