"""What the databases of one process share, and how a tenant is prepared for the process.

The files are compared with the stored migrations; new ones are stored and activated, or refused. A
tenant that is behind is migrated. If it is ahead, zapdb checks whether it can serve the schema of
the process's files.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from zapdb.activation import (
    TableDescriptor,
    TenantCatalog,
    load_tenant_catalog,
    schema_history_recovery,
)
from zapdb.activation.file_comparison import compare_files, find_kept_place
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
from zapdb.catalog.settings import SERVE_ROLLED_BACK
from zapdb.catalog.stored_migrations import ChainPlace
from zapdb.catalog.stored_settings import read_settings
from zapdb.database.catalog_watch import CatalogWatcher
from zapdb.errors import (
    ActivationPending,
    CatalogChanged,
    PendingMigrations,
    SchemaChangesRefused,
    ServedSchemaUnavailable,
    UsageError,
)
from zapdb.jobs.index_rebuilding import list_rebuilds, rebuild_when_opening
from zapdb.logs import log_event
from zapdb.migrations import (
    Chain,
    Migration,
    MigrationFile,
    NumberAllocator,
    list_files,
    resolve_files,
)
from zapdb.migrations.chain import find_parting
from zapdb.migrations.operations.operation import PROVISIONAL
from zapdb.storage import Connection, RecordStatements, Storage, TransactionMode
from zapdb.storage.statements import raise_catalog_version
from zapdb.tables.indexes import BoundTable
from zapdb.tables.session import LoadedCatalog, Session

logger = logging.getLogger("zapdb.nodes")

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
        self._served_position = served_position
        over = preview.over(active)
        super().__init__(storage, over, None, ChainPlace.on(over.chain, served_position), NO_PINS)

    def _load_catalog(
        self, connection: Connection, known: TenantCatalog, cache: CatalogCache | None
    ) -> TenantCatalog:
        active = known.active if isinstance(known, PreviewCatalog) else known
        found = super()._load_catalog(connection, active, cache)
        return known if found is active else self._preview.over(found)

    def _find_served(
        self, connection: Connection, catalog: TenantCatalog, known: TenantCatalog
    ) -> ChainPlace | None:
        return ChainPlace.on(catalog.chain, self._served_position)

    def bind_numbered(self, number: int, name: str) -> BoundTable:
        """A table that a file creates has another number once the file is applied."""
        known = self._find_loaded().catalog
        if number >= PROVISIONAL and all(
            one.schema.number != number for one in known.tables.values()
        ):
            return self.bind_served(name)
        return super().bind_numbered(number, name)

    def _make_bound(self, loaded: LoadedCatalog, descriptor: TableDescriptor) -> BoundTable:
        catalog, number = loaded.catalog, descriptor.schema.number
        if has_no_table(catalog, number):
            nothing = RecordStatements.of_no_table(self.storage, number, catalog.tenant)
            return BoundTable(self.storage, catalog, descriptor, loaded.served, nothing)
        return super()._make_bound(loaded, descriptor)


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

    def open_session(self, prepared: PreparedTenant) -> Session:
        files, catalog = self.files, prepared.catalog
        if self.preview is not None:
            assert files.served_position is not None
            return PreviewSession(self.storage, catalog, self.preview, files.served_position)
        return Session(self.storage, catalog, self.node, prepared.served, self.pins)


@dataclass(frozen=True, slots=True)
class PreparedTenant:
    """A tenant that a process can work with."""

    catalog: TenantCatalog
    served: ChainPlace | None = None
    """The place whose schema the process is served; None if it has no files."""
    pending: Mapping[int, str] = field(default_factory=dict)
    """The digests of its files that are not stored, by number."""

    @property
    def line(self) -> Chain:
        """The migrations that lead to the served schema."""
        catalog, served = self.catalog, self.served
        return catalog.chain if served is None else catalog.line_to(served)


def prepare_tenant(
    storage: Storage,
    tenant: int,
    files: MigrationFiles,
    wait_seconds: float | None,
    applied: list[AppliedMigration],
    known: PreparedTenant | None = None,
) -> PreparedTenant:
    """Store and activate migrations until a process with the files can work with a tenant.

    The files are not compared again with the chain of `known`, which they agreed with. Without
    `wait_seconds`, a setting says how long it waits for other processes.

    Raises `CatalogChanged` if the function must be called again, with the catalog read anew.
    """
    served_position = files.served_position or 0
    catalog = load_checked(storage, tenant, None if known is None else known.catalog)
    running = None if known is None else known.served
    is_known = known is not None and _is_as_before(catalog, known)
    if catalog.chain_state.kept:
        rolled_back = _find_rolled_back(catalog, files, running if is_known else None)
        if rolled_back is not None:
            return _prepare_rolled_back(storage, catalog, rolled_back, running)
    pending: tuple[MigrationFile, ...] = ()
    if not is_known:
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
        applied.extend(_await_files(storage, tenant, served_position, wait_seconds))
        raise changed_while_opening(storage)
    served = _find_served(storage, catalog, files)
    catalog.read_branches()
    if not pending:
        return PreparedTenant(catalog, served)
    chain = catalog.stored_chain
    resolved = resolve_files(pending, chain, NumberAllocator.provisional())
    return PreparedTenant(catalog, served, _digests_of(resolved.after(chain.end)))


def _is_as_before(catalog: TenantCatalog, known: PreparedTenant) -> bool:
    """Whether the files, which agreed with what was stored, still do: nothing else is stored since,
    or what they lead to still is. They may be others by now."""
    served = known.served
    if catalog.chain_state == known.catalog.chain_state:
        return True
    if served is None or not served.migration:
        return False
    chain = catalog.stored_chain
    return served in catalog.list_kept_places() or ChainPlace.on(chain, served.position) == served


def _find_rolled_back(
    catalog: TenantCatalog, files: MigrationFiles, running: ChainPlace | None
) -> ChainPlace | None:
    """The place of the kept migration that the files lead to, if it is one; `running` is what the
    process is served already, if that is stored as before."""
    if running is not None:
        return running if running in catalog.list_kept_places() else None
    return find_kept_place(files.migrations, catalog, files.served_position or 0)


def _await_files(
    storage: Storage, tenant: int, position: int, wait_seconds: float | None
) -> list[AppliedMigration]:
    if wait_seconds is None:
        settings = read_settings(storage.connection(), tenant)
        wait_seconds = float(settings.get("activation_wait_seconds"))
    return await_activation(storage, tenant, position, wait_seconds)


def _digests_of(migrations: Iterable[Migration]) -> dict[int, str]:
    return {migration.number: migration.digest for migration in migrations}


def _find_served(
    storage: Storage, catalog: TenantCatalog, files: MigrationFiles
) -> ChainPlace | None:
    """The place on the tenant's line whose schema a process with the files is served; raises
    `ServedSchemaUnavailable`."""
    if files.served_position is None:
        return None
    if files.served_position == catalog.position:
        return catalog.place  # which takes no look at the migrations
    served = ChainPlace.on(catalog.chain, files.served_position)
    settings = read_settings(storage.connection(), catalog.tenant)
    require_served(catalog, served, settings.get("served_window"))
    return served


def _prepare_rolled_back(
    storage: Storage,
    catalog: TenantCatalog,
    served: ChainPlace,
    running: ChainPlace | None = None,
) -> PreparedTenant:
    """Prepare a tenant for a process whose files lead to a migration that was rolled back and is
    kept: it is served the schema that it was written for. `running` is what the process is served
    already, for another tenant."""
    is_writer = not storage.read_only
    if is_writer and catalog.migration != catalog.chain_state.newest_id:
        with suppress(SchemaChangesRefused):
            catch_up(storage, catalog.tenant, known=catalog)
        catalog = load_checked(storage, catalog.tenant, catalog)
    line = catalog.line_to(served)
    parting = find_parting(line, catalog.stored_chain)
    if catalog.position < parting:  # by a setting, or since others have yet to get its files
        raise PendingMigrations(
            "the files contain a migration that is not active for this tenant",
            files_end=served.position,
            position=catalog.position,
            hint="run `zapdb migrate up`; `zapdb settings get schema_changes` says whether it may",
        )
    settings = read_settings(storage.connection(), catalog.tenant)
    if served != running and settings.get(SERVE_ROLLED_BACK) == "refuse":
        raise ServedSchemaUnavailable(
            "the files end at a migration that was rolled back",
            files_end=served.position,
            position=catalog.position,
            hint="start the code of before it, with its files; or set `serve_rolled_back` to allow",
        )
    require_served(catalog, served, settings.get("served_window"))
    if is_writer and not catalog.has_been_at(served):
        # Those that have the tenant open may have loaded it before the rollback, which concerned
        # others: they have to know which values are archived from now on.
        with storage.transaction(TransactionMode.DDL) as connection:
            raise_catalog_version(connection, catalog.tenant)
        catalog = load_checked(storage, catalog.tenant, catalog)
    catalog.read_branches()
    log_event(
        logger,
        "node.serves_rolled_back",
        "the files of this process end at a migration that was rolled back: it is served the "
        "schema of that one",
        level=logging.WARNING,
        tenant=catalog.tenant,
        files_end=served.position,
        position=catalog.position,
    )
    return PreparedTenant(catalog, served, _digests_of(line.after(parting)))


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
) -> PreparedTenant:
    """Return the tenant if a process that has the files and writes nothing can use it."""
    with storage.transaction(TransactionMode.READ) as connection:
        check_level(connection)
        catalog = load_tenant_catalog(connection, tenant, known)
    rolled_back = _find_rolled_back(catalog, files, None)
    if rolled_back is not None:
        return _prepare_rolled_back(storage, catalog, rolled_back)
    pending = compare_files(files.migrations, catalog.stored, catalog.stored_chain).pending
    if files.served_position is not None:
        if files.served_position > catalog.stored_chain.end:
            raise _pending(pending[0].label, len(pending), storage)
        require_same_line(catalog, files.served_position)
        require_active(catalog, ChainPlace.on(catalog.stored_chain, files.served_position))
    served = _find_served(storage, catalog, files)
    catalog.read_branches()
    return PreparedTenant(catalog, served)


def prepare_tenant_for_preview(
    storage: Storage, tenant: int, known: TenantCatalog | None = None
) -> PreparedTenant:
    """Return the active tenant catalog, over which files are laid."""
    active = known.active if isinstance(known, PreviewCatalog) else known
    with storage.transaction(TransactionMode.READ) as connection:
        check_level(connection)
        return PreparedTenant(load_tenant_catalog(connection, tenant, active))


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
