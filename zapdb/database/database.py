"""An open database, and how it is opened.

Opening verifies every stored migration against itself and against the files, brings the tenant to
where the files end, and registers this process as a node. Whatever is wrong is refused before
anything is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from zapdb.catalog import DEFAULT_TENANT_NAME, TableState, View, ensure_rows, prehistory
from zapdb.catalog.changelog import read_token
from zapdb.catalog.datasets import datasets_in_use, settle_datasets
from zapdb.catalog.history import Entry, read_entries
from zapdb.catalog.localview import LocalView
from zapdb.catalog.nodes import Heartbeat, Node, check_level, deregister, read_level, register
from zapdb.catalog.pinning import Stamped, check_pins, find_fingerprint, list_fingerprints
from zapdb.catalog.retirement import sweep
from zapdb.catalog.serving import refuse_unserved
from zapdb.catalog.settings import (
    Scope,
    read_settings,
    resolve_scope,
    unset_setting,
    write_setting,
)
from zapdb.catalog.stored import provisional_numbers
from zapdb.catalog.tenants import Tenant, create_tenant, find_tenant, list_tenants
from zapdb.catalog.up import (
    Applied,
    await_activation,
    catch_up,
    migrate_up,
    refuse_changes_while_forgetting,
)
from zapdb.catalog.verification import compare_files
from zapdb.catalog.zones import append_zones
from zapdb.database.following import Callback, Follower
from zapdb.database.metrics import render as render_metrics
from zapdb.database.session import Session
from zapdb.database.table import Table
from zapdb.database.upkeep import Upkeep
from zapdb.errors import (
    ActivationPending,
    PendingMigrations,
    SchemaFrozen,
    UsageError,
    ZapdbError,
)
from zapdb.jobs import (
    JobReport,
    Runner,
    SweepReport,
    TableReport,
    plan_jobs,
    run_job,
    run_locally,
    sweep_blobs,
    verify,
)
from zapdb.jobs.job import JobKind
from zapdb.limits import CATALOG_WAIT_SECONDS
from zapdb.migrations import MigrationFile, list_files, resolve_files
from zapdb.records import decode_prefix
from zapdb.storage import Mode, Storage, connect, ensure_layout

Apply = Literal["never", "auto"]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Files:
    """The migration files of a process; `serves` is the position whose shapes it works with.

    A process without files works with whatever is in force.
    """

    directory: Path | None
    found: list[MigrationFile]
    serves: int | None

    @property
    def end(self) -> int:
        return self.found[-1].number if self.found else 0


@dataclass(frozen=True, slots=True)
class Process:
    """What the databases of one process share, whatever their tenants: it is one node."""

    storage: Storage
    node: Node
    files: Files
    follower: Follower
    pins: Mapping[str, int]
    """By table: the fingerprint that the program was built for."""


@dataclass(frozen=True, slots=True)
class Catalog:
    """What a process knows of the catalog: all of its rows as of one token, and the tables that
    are in force for its tenant."""

    rows: LocalView
    view: View

    @property
    def token(self) -> int:
        return self.rows.token

    @property
    def position(self) -> int:
        return self.view.position

    @property
    def tables(self) -> tuple[TableState, ...]:
        return tuple(self.view.tables.values())


class Database:
    """An open database, as one tenant sees it; a context manager; safe to share between threads.

    `zapdb.open` makes it. Closing it ends the process's registration as a node. `for_tenant` gives
    the same database as another tenant sees it.
    """

    def __init__(
        self,
        process: Process,
        view: View,
        applied: tuple[Applied, ...] = (),
        *,
        heartbeat: Heartbeat | None = None,
    ) -> None:
        self.applied = applied
        """The migrations that opening this database put in force."""
        self._process = process
        self._storage, self._node = process.storage, process.node
        self._session = Session(process.storage, view, process.node, process.files.serves)
        self._session.settings = read_settings(process.storage.connection(), view.tenant)
        self._upkeep = Upkeep(process.follower, self._session)
        self._owns_process = heartbeat is None
        self._heartbeat = heartbeat or Heartbeat(process.storage, process.node)

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<zapdb database {self._storage.shown_url} at migration {self.position}>"

    def for_tenant(self, name: str) -> Database:
        """The database as another tenant sees it; brings it to what is stored, if it is behind.

        It shares the connections and the registration of this one, and ends with it. Raises
        `UnknownName`, and `ActivationPending` where it can't be brought far enough.
        """
        number = find_tenant(self._storage.connection(), name).number
        applied: list[Applied] = []
        files = self._process.files
        view, _ = _settle(self._storage, number, files, "never", 0.0, applied, self.view)
        _check_pins(self._storage, view, files, self._process.pins)
        view = settle_datasets(self._storage, view, self._node)
        return Database(self._process, view, tuple(applied), heartbeat=self._heartbeat)

    def create_tenant(self, name: str) -> None:
        """Enter a new tenant; raises `TenantExists`. It begins when it is opened."""
        create_tenant(self._storage, name)

    def tenants(self) -> list[Tenant]:
        """All tenants, by number."""
        with self._storage.transaction(Mode.READ) as connection:
            return list_tenants(connection)

    @property
    def storage(self) -> Storage:
        return self._storage

    @property
    def position(self) -> int:
        """The number of the newest migration in force."""
        return self._session.view.position

    @property
    def view(self) -> View:
        """What is in force, as far as this process knows."""
        return self._session.view

    def table(self, name: str) -> Table:
        """Raises `UnknownName`, naming the tables that there are."""
        return Table(self._session, name)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """A writing transaction of this thread; rolled back if the block raises.

        It can't be repeated by itself: when it meets another transaction, `TransactionConflict` is
        raised. `run` repeats.
        """
        with self._session.writing():
            yield

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """What this thread reads in the block, it reads as of one moment."""
        with self._session.snapshot():
            yield

    def run(self, function: Callable[[], T]) -> T:
        """Call `function` inside a transaction, again whenever it meets another transaction."""

        def attempt() -> T:
            with self._session.writing():
                return function()

        return self._session.run(attempt)

    def cluster_level(self) -> int:
        """The capability level of the cluster, as of now or of the snapshot."""
        return read_level(self._storage.connection())

    def setting(self, name: str, *, table: str | None = None, field: str | None = None) -> str:
        """What a setting is for this tenant, or for a table or field of it, as of now."""
        scope = self._scope(self.view.tenant, table, field)
        settings = read_settings(self._storage.connection(), self.view.tenant)
        return settings.find(name, scope)[0]

    def set_setting(
        self,
        name: str,
        value: str | None,
        *,
        tenant: str | None = None,
        table: str | None = None,
        field: str | None = None,
    ) -> int:
        """Set a setting for the whole database, or what is named of it; None takes it back.

        Returns the change's token, for `wait_for_catalog` in other processes. Raises `UnknownName`,
        and `UsageError` for a value or a scope that the setting can't have.
        """
        with self._storage.transaction(Mode.CATALOG) as connection:
            number = None if tenant is None else find_tenant(connection, tenant).number
            scope = self._scope(number, table, field)
            if value is None:
                token = unset_setting(connection, name, scope)
            else:
                token = write_setting(connection, name, value, scope)
        self._upkeep.use(read_settings(self._storage.connection(), self.view.tenant))
        return token

    def _scope(self, tenant: int | None, table: str | None, field: str | None) -> Scope:
        schema = self.view.chain.schema_at(self.view.position)
        return resolve_scope(schema, tenant, table, field)

    def catalog(self) -> Catalog:
        """The catalog as this process knows it, from memory; about a second old at most."""
        return Catalog(self._process.follower.view(CATALOG_WAIT_SECONDS), self.view)

    def catalog_token(self) -> int:
        """The token of the newest change of the catalog, of whatever process."""
        return read_token(self._storage.connection())

    def wait_for_catalog(
        self, token: int, timeout_seconds: float = CATALOG_WAIT_SECONDS
    ) -> Catalog:
        """The catalog once this process has seen the change with a token; raises
        `CatalogBehind`."""
        return Catalog(self._process.follower.wait(token, timeout_seconds), self.view)

    def metrics(self, *, count_records: bool = True) -> str:
        """What an operator must see of the database and this process, as Prometheus text.

        Counting records and stale ones reads all of them: leave that out where it is asked often.
        """
        known = self._process.follower.known
        return render_metrics(
            self._storage,
            self.view,
            view_token=None if known is None else known.token,
            count_records=count_records,
        )

    def on_schema_change(self, callback: Callback) -> Callable[[], None]:
        """Call `callback` with each `SchemaChange` of this tenant; returns what ends that.

        It is called in a thread of its own, within about a second after the change, in whichever
        process that was made. What it raises is logged.
        """
        return self._process.follower.on_schema_change(self.view.tenant, callback)

    def run_jobs(
        self,
        runner: Runner = run_locally,
        kinds: Collection[JobKind] = ("index", "convert", "validate"),
    ) -> list[JobReport]:
        """Build the indexes that are not built yet, convert all stale records, and look whether
        the records that are there keep to new checks and references."""
        reports = []
        for job in plan_jobs(self._storage, self.view.tenant, kinds):
            report = run_job(self._storage, job, runner)
            if report is not None:
                reports.append(report)
        return reports

    def count_by_revision(self, table: str) -> dict[int, int]:
        """How many records of a table have each schema index."""
        live = self._session.live(table)
        counts = live.records.count_by_prefix(self._storage.connection())
        return {decode_prefix(prefix, 0)[0]: count for prefix, count in counts}

    def history(self, table: str) -> list[Entry]:
        """The fingerprint history of a table, oldest first."""
        number = self._session.live(table).table.number
        with self._storage.transaction(Mode.READ) as connection:
            return list(read_entries(connection, self.view.tenant, number))

    def find_fingerprint(self, table: str, fingerprint: int) -> Stamped:
        """Whether a fingerprint was ever stamped on a table, and what changed since.

        Raises `UnknownName` where no table ever had the name.
        """
        with self._storage.transaction(Mode.READ) as connection:
            return find_fingerprint(connection, self.view.tenant, table, fingerprint)

    def verify(self) -> list[TableReport]:
        """Check that every record decodes, and that indexes and blobs hold what they must."""
        return verify(self._storage, self.view.tenant)

    def sweep(
        self, *, older_than_seconds: float | None = None, dry_run: bool = False
    ) -> SweepReport:
        """Delete the large values that no record has any more; safe beside everything else.

        Changing and deleting records leaves theirs to it. Younger ones than the given age, or than
        the setting `blob_sweep_age_seconds`, are left alone. With `dry_run` they are counted only.
        """
        if older_than_seconds is None:
            older_than_seconds = float(self.setting("blob_sweep_age_seconds"))
        return sweep_blobs(self._storage, older_than_seconds=older_than_seconds, dry_run=dry_run)

    def close(self) -> None:
        """End this process's registration and close its connections; safe to repeat."""
        if self._storage.is_closed:
            return
        self._upkeep.stop()
        if not self._owns_process:
            return
        self._process.follower.stop()
        self._heartbeat.stop()
        with suppress(ZapdbError):  # if the server is gone, the lease ends by itself
            deregister(self._storage, self._node)
        self._storage.close()


def open(
    url: str,
    *,
    migrations: str | Path | None = None,
    apply: Apply = "never",
    tenant: str = DEFAULT_TENANT_NAME,
    serve_as: int | None = None,
    pin: Mapping[str, int] | None = None,
    wait_seconds: float | None = None,
) -> Database:
    """Open a database with the migrations of a directory, for one of its tenants.

    With `apply="auto"`, migrations that the database does not store yet are applied; with "never",
    they are refused, naming the command that applies them. A tenant that is behind what is stored
    is brought up to it. Where the database is ahead of the files, or of `serve_as`, the number of
    one of them, what the application sees has the shape that it had there (rule 11). Where it may
    not take force yet, since running processes do not have the file, that is waited for.

    Without `migrations`, the database is opened as it is, and its shapes are those in force at any
    moment: for tools and prompts, whose code is not written for one shape.

    `pin` maps names of tables to the fingerprint that the program was built for: one whose schema
    by now is none that the files lead to is refused, and so is one that never had the fingerprint.

    Raises `MigrationConflict` where a file differs from what is stored, `InvalidMigration`,
    `NotProven`, `PendingMigrations`, `ActivationPending` after `wait_seconds`,
    `ServedShapeUnavailable`, `FingerprintUnknown`, `UnknownName` for a tenant, `CorruptCatalog`,
    `NotZapdb`, `NewerLayout` and `IncompatibleVersion`.
    """
    files = _read_files(migrations, apply, serve_as)
    storage = connect(url)
    try:
        ensure_layout(storage, create=apply == "auto")
        ensure_rows(storage)
        append_zones(storage)
        number = find_tenant(storage.connection(), tenant).number
        wait = wait_seconds
        if wait is None:
            settings = read_settings(storage.connection(), number)
            wait = float(settings.get("activation_wait_seconds"))
        applied: list[Applied] = []
        while True:
            view, pending = _settle(storage, number, files, apply, wait, applied)
            node = register(
                storage,
                files.end,
                serves=files.serves,
                pending=pending,
                datasets=datasets_in_use(view),
            )
            try:
                # Only now do others know of this process: a forget, or the activation of a
                # migration that waits for processes, may have been faster.
                current = _load(storage, number, view)
                if (current.chain_state, current.position) == (view.chain_state, view.position):
                    _check_pins(storage, current, files, pin or {})
                    current = settle_datasets(storage, current, node)
                    sweep(storage)
                    process = Process(storage, node, files, Follower(storage), pin or {})
                    return Database(process, current, tuple(applied))
            except BaseException:
                with suppress(ZapdbError):
                    deregister(storage, node)
                raise
            deregister(storage, node)
    except BaseException:
        storage.close()
        raise


def _settle(
    storage: Storage,
    tenant: int,
    files: Files,
    apply: Apply,
    wait_seconds: float,
    applied: list[Applied],
    known: View | None = None,
) -> tuple[View, dict[int, str]]:
    """Store and activate what is to be, until a tenant can be served to a process with the files.

    Returns what is in force then, and the digests of the files that are not stored, by number. The
    files are not compared again with a chain that they agreed with: that of `known`.
    """
    serves = files.serves or 0
    while True:
        view = _load(storage, tenant, known)
        refuse_changes_while_forgetting(view)
        pending: tuple[MigrationFile, ...] = ()
        if known is None or view.stored is not known.stored:
            pending = compare_files(files.found, list(view.stored), view.chain).pending
        if pending and apply == "auto":
            assert files.directory is not None
            with suppress(ActivationPending):  # waited for below, where it is needed
                applied += migrate_up(storage, tenant, files.directory)
            continue
        if pending and serves > view.chain.end:
            raise _pending(pending[0].label, len(pending), storage)
        if view.position < view.chain.end:
            with suppress(SchemaFrozen):  # it stays where it is, as far as that can be served
                applied += catch_up(storage, tenant, known=view)[0]
            view = _load(storage, tenant, view)
        if view.position < serves:
            applied += await_activation(storage, tenant, serves, wait_seconds)
            continue
        if files.serves is not None:
            settings = read_settings(storage.connection(), tenant)
            refuse_unserved(view, files.serves, settings.get("served_window"))
        resolved = resolve_files(pending, view.chain, provisional_numbers())
        return view, {m.number: m.digest for m in resolved.after(view.chain.end)}


def _load(storage: Storage, tenant: int, known: View | None = None) -> View:
    check_level(storage.connection())
    return prehistory.load(storage, tenant, known)


def _check_pins(storage: Storage, view: View, files: Files, pins: Mapping[str, int]) -> None:
    if not pins:
        return
    if not files.found:
        raise UsageError(
            "pins are checked against migration files, and none are given",
            hint="give migrations=, the directory of the files",
        )
    known = list_fingerprints(view.chain, files.end)
    with storage.transaction(Mode.READ) as connection:
        check_pins(connection, view.tenant, pins, known)


def _read_files(migrations: str | Path | None, apply: Apply, serve_as: int | None) -> Files:
    if migrations is None:
        if apply != "never" or serve_as is not None:
            raise UsageError(
                "apply and serve_as are about migration files, and none are given",
                hint="give migrations=, the directory of the files",
            )
        return Files(None, [], None)
    directory = Path(migrations)
    found = list_files(directory)
    if serve_as is not None and not found[0].number <= serve_as <= found[-1].number:
        raise UsageError(
            "serve_as is the number of one of the migration files",
            serve_as=serve_as,
            first=found[0].number,
            last=found[-1].number,
        )
    return Files(directory, found, found[-1].number if serve_as is None else serve_as)


def _pending(first: str, count: int, storage: Storage) -> PendingMigrations:
    return PendingMigrations(
        "the files hold migrations that the database does not store yet",
        database=storage.shown_url,
        pending=count,
        first=first,
        hint="run `zapdb migrate up`, or open the database with apply='auto'",
    )


__all__ = ["Applied", "Apply", "Database", "open"]
