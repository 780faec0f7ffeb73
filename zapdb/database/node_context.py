"""What the databases of one process share, and how a tenant is prepared for the process.

The files are compared with the stored migrations; new ones are stored and activated, or refused. A
tenant that is behind is migrated. If it is ahead, zapdb checks whether it can serve the schema of
the process's files.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from zapdb.activation import (
    TableDescriptor,
    TenantCatalog,
    load_tenant_catalog,
    schema_history_recovery,
)
from zapdb.activation.file_comparison import compare_files
from zapdb.activation.pinned_fingerprints import NO_PINS, Pins
from zapdb.activation.preview import Preview, PreviewCatalog, has_no_table
from zapdb.activation.served_schema import (
    require_active,
    require_same_line,
    require_served,
)
from zapdb.activation.tenant_catalog import is_catalog_unchanged
from zapdb.activation.up import (
    AppliedMigration,
    await_activation,
    catch_up,
    migrate_up,
)
from zapdb.catalog.cache import CatalogCache
from zapdb.catalog.cluster.level import check_level
from zapdb.catalog.cluster.nodes import Node
from zapdb.catalog.stored_settings import read_settings
from zapdb.database.catalog_watch import CatalogWatcher
from zapdb.errors import (
    ActivationPending,
    CatalogChanged,
    PendingMigrations,
    SchemaChangesRefused,
    UsageError,
)
from zapdb.jobs.index_rebuilding import list_rebuilds, rebuild_when_opening
from zapdb.migrations import MigrationFile, NumberAllocator, list_files, resolve_files
from zapdb.migrations.operations.operation import PROVISIONAL
from zapdb.storage import Connection, RecordStatements, Storage, TransactionMode
from zapdb.tables.indexes import BoundTable
from zapdb.tables.session import Session

Apply = Literal["never", "auto"]


@dataclass(frozen=True, slots=True)
class MigrationFiles:
    """The migration files of a process; its served schema is the one at `served_position`.

    `apply` says whether files that are not stored yet are applied. A process without files works
    with the active schema.
    """

    directory: Path | None
    migrations: list[MigrationFile]
    served_position: int | None
    apply: Apply = "never"

    @property
    def end(self) -> int:
        return self.migrations[-1].number if self.migrations else 0


class PreviewSession(Session):
    """The session of a preview: reads records of now by the schema that files would lead to.

    It writes nothing. Whenever the catalog changes, the files are laid over the new one. `active`
    is the tenant catalog as it is.
    """

    shows_catalog = False
    has_revisions = False
    is_preview = True

    def __init__(
        self, storage: Storage, active: TenantCatalog, preview: Preview, served_position: int
    ) -> None:
        self._preview = preview
        super().__init__(storage, preview.over(active), None, served_position, NO_PINS)

    def _load_catalog(
        self, connection: Connection, known: TenantCatalog, cache: CatalogCache | None
    ) -> TenantCatalog:
        active = known.active if isinstance(known, PreviewCatalog) else known
        found = super()._load_catalog(connection, active, cache)
        return known if found is active else self._preview.over(found)

    def bind_numbered(self, number: int, name: str) -> BoundTable:
        """A table that a file creates has another number once the file is applied."""
        known = self._find_loaded().catalog
        if number >= PROVISIONAL and all(
            one.schema.number != number for one in known.tables.values()
        ):
            return self.bind_served(name)
        return super().bind_numbered(number, name)

    def _make_bound(self, catalog: TenantCatalog, descriptor: TableDescriptor) -> BoundTable:
        number = descriptor.schema.number
        if has_no_table(catalog, number):
            nothing = RecordStatements.of_no_table(self.storage, number, catalog.tenant)
            return BoundTable(self.storage, catalog, descriptor, self.served_position, nothing)
        return super()._make_bound(catalog, descriptor)


@dataclass(frozen=True, slots=True)
class NodeContext:
    """The parts that one process's databases of all tenants share. The process is one node, or none
    if it only reads."""

    storage: Storage
    node: Node | None
    files: MigrationFiles
    watcher: CatalogWatcher
    pins: Pins
    preview: Preview | None = None
    """The files that are not applied, over which the process looks."""

    def open_session(self, catalog: TenantCatalog) -> Session:
        files = self.files
        if self.preview is not None:
            assert files.served_position is not None
            return PreviewSession(self.storage, catalog, self.preview, files.served_position)
        return Session(self.storage, catalog, self.node, files.served_position, self.pins)


def prepare_tenant(
    storage: Storage,
    tenant: int,
    files: MigrationFiles,
    wait_seconds: float | None,
    applied: list[AppliedMigration],
    known: TenantCatalog | None = None,
) -> tuple[TenantCatalog, dict[int, str]]:
    """Store and activate migrations until a process with the files can work with a tenant.

    Returns the tenant catalog after that, and the digests of the files that are not stored, by
    number. The files are not compared again with the chain of `known`, which they agreed with.
    Without `wait_seconds`, a setting says how long it waits for other processes.

    Raises `CatalogChanged` if the function must be called again, with the catalog read anew.
    """
    served_position = files.served_position or 0
    catalog = load_checked(storage, tenant, known)
    pending: tuple[MigrationFile, ...] = ()
    if known is None or catalog.stored is not known.stored:
        pending = compare_files(files.migrations, catalog.stored, catalog.stored_chain).pending
    if pending and files.apply == "auto":
        assert files.directory is not None
        with suppress(ActivationPending):  # waited for below, if it is needed
            applied.extend(migrate_up(storage, tenant, files.directory))
        raise changed_while_opening(storage)
    if pending and served_position > catalog.stored_chain.end:
        raise _pending(pending[0].label, len(pending), storage)
    if catalog.migration != catalog.chain_state.newest_id:
        # If that is refused, the tenant stays where it is, which may be enough.
        with suppress(SchemaChangesRefused):
            applied.extend(catch_up(storage, tenant, known=catalog)[0])
        catalog = load_checked(storage, tenant, catalog)
    if catalog.is_due:
        require_same_line(catalog, served_position)
    if catalog.position < served_position:
        if wait_seconds is None:
            settings = read_settings(storage.connection(), tenant)
            wait_seconds = float(settings.get("activation_wait_seconds"))
        applied.extend(await_activation(storage, tenant, served_position, wait_seconds))
        raise changed_while_opening(storage)
    if files.served_position is not None and files.served_position < catalog.position:
        settings = read_settings(storage.connection(), tenant)
        require_served(catalog, files.served_position, settings.get("served_window"))
    catalog.read_branches()
    if not pending:
        return catalog, {}
    chain = catalog.stored_chain
    resolved = resolve_files(pending, chain, NumberAllocator.provisional())
    return catalog, {m.number: m.digest for m in resolved.after(chain.end)}


def changed_while_opening(storage: Storage) -> CatalogChanged:
    """Return the error that makes the caller read the catalog again."""
    return CatalogChanged(
        "the schema kept changing while the database was opened",
        database=storage.shown_url,
        hint="other processes are applying migrations; open the database again when they "
        "have finished",
    )


def prepare_tenant_read_only(
    storage: Storage, tenant: int, files: MigrationFiles, known: TenantCatalog | None = None
) -> TenantCatalog:
    """Return the tenant catalog if a process that has the files and writes nothing can use it."""
    with storage.transaction(TransactionMode.READ) as connection:
        check_level(connection)
        catalog = load_tenant_catalog(connection, tenant, known)
        settings = read_settings(connection, tenant)
    pending = compare_files(files.migrations, catalog.stored, catalog.stored_chain).pending
    if files.served_position is not None:
        if files.served_position > catalog.stored_chain.end:
            raise _pending(pending[0].label, len(pending), storage)
        require_same_line(catalog, files.served_position)
        require_active(catalog, files.served_position)
        require_served(catalog, files.served_position, settings.get("served_window"))
    catalog.read_branches()
    return catalog


def prepare_tenant_for_preview(
    storage: Storage, tenant: int, known: TenantCatalog | None = None
) -> TenantCatalog:
    """Return the active tenant catalog, over which files are laid."""
    active = known.active if isinstance(known, PreviewCatalog) else known
    with storage.transaction(TransactionMode.READ) as connection:
        check_level(connection)
        return load_tenant_catalog(connection, tenant, active)


def load_checked(
    storage: Storage, tenant: int, known: TenantCatalog | None = None
) -> TenantCatalog:
    if (
        known is not None
        and known.tenant == tenant
        and is_catalog_unchanged(storage.connection(), known)
    ):
        return known
    check_level(storage.connection())
    return schema_history_recovery.load_or_recover(storage, tenant, known)


def rebuild(storage: Storage, catalog: TenantCatalog) -> TenantCatalog:
    """Rebuild indexes whose datasets changed, for a limited time; return the tenant catalog
    then."""
    if not list_rebuilds(catalog):
        return catalog
    rebuild_when_opening(storage, catalog)
    return load_checked(storage, catalog.tenant, catalog)


def check_pins(storage: Storage, catalog: TenantCatalog, pins: Pins) -> None:
    if pins.by_table:
        with storage.transaction(TransactionMode.READ) as connection:
            pins.check(connection, catalog)


def read_files(migrations: str | Path | None, apply: Apply, serve_as: int | None) -> MigrationFiles:
    if apply not in get_args(Apply):
        raise UsageError("apply must be 'auto' or 'never'", apply=apply)
    if migrations is None:
        if apply != "never" or serve_as is not None:
            raise UsageError(
                "apply and serve_as need migration files, and none were given",
                hint="pass migrations=, the directory of the files",
            )
        return MigrationFiles(None, [], None)
    directory = Path(migrations)
    found = list_files(directory)
    if serve_as is not None and not found[0].number <= serve_as <= found[-1].number:
        raise UsageError(
            "serve_as must be the number of one of the migration files",
            serve_as=serve_as,
            first=found[0].number,
            last=found[-1].number,
        )
    return MigrationFiles(
        directory, found, found[-1].number if serve_as is None else serve_as, apply
    )


def _pending(first: str, count: int, storage: Storage) -> PendingMigrations:
    return PendingMigrations(
        "the files contain migrations that the database does not store yet",
        database=storage.shown_url,
        pending=count,
        first=first,
        hint="run `zapdb migrate up`, or open the database with apply='auto'"
        + (", once without read_only" if storage.read_only else ""),
    )
