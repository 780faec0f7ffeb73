"""Opening a database.

It verifies the digest of every stored migration and compares it with the files, activates the
files' migrations for the tenant, and registers this process as a node. Any error is raised before
anything is changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType

from zapdb.activation import TenantCatalog
from zapdb.activation.datasets import apply_dataset_policies, datasets_in_use
from zapdb.activation.pinned_fingerprints import Pins
from zapdb.activation.preview import Preview
from zapdb.activation.up import AppliedMigration
from zapdb.catalog import DEFAULT_TENANT_NAME, rows
from zapdb.catalog.cluster import ensure_database
from zapdb.catalog.cluster.node_registration import Heartbeat, deregister, register
from zapdb.catalog.cluster.nodes import Node
from zapdb.catalog.retired_tables import sweep_retired
from zapdb.catalog.row_kinds import DatabaseRow
from zapdb.catalog.tenants import find_tenant
from zapdb.catalog.zone_numbers import append_zones
from zapdb.database.catalog_watch import CatalogWatcher
from zapdb.database.database import Database
from zapdb.database.node_context import (
    Apply,
    MigrationFiles,
    NodeContext,
    PreparedTenant,
    changed_while_opening,
    check_pins,
    load_checked,
    prepare_tenant,
    prepare_tenant_for_preview,
    prepare_tenant_read_only,
    read_files,
    rebuild,
)
from zapdb.errors import (
    CatalogChanged,
    InvalidValue,
    UsageError,
    WritesRefused,
    ZapdbError,
)
from zapdb.jobs.archive_pruning import drop_kept_tables
from zapdb.jobs.index_rebuilding import list_rebuilds
from zapdb.limits import CATALOG, CONNECTIONS_MAX
from zapdb.storage import Storage, connect
from zapdb.storage.addresses import name_schema
from zapdb.storage.retries import retry
from zapdb.storage.storage_version import empty_database
from zapdb.typed.model_classes import check_models, find_models


def open(
    url: str,
    *,
    migrations: str | Path | None = None,
    apply: Apply = "never",
    tenant: str = DEFAULT_TENANT_NAME,
    serve_as: int | None = None,
    pin: Mapping[str, int] | None = None,
    wait_seconds: float | None = None,
    read_only: bool = False,
    preview: bool = False,
    models: ModuleType | None = None,
    max_connections: int = CONNECTIONS_MAX,
    schema: str | None = None,
) -> Database:
    """Open a database with the migrations of a directory, for one of its tenants.

    With `apply="auto"`, migrations that the database does not store yet are applied; with "never",
    `PendingMigrations` names the command that applies them. A tenant that is behind the stored
    migrations is migrated. If the database is ahead of the files, or of `serve_as` (the number of
    one of them), the application sees the schema at that position (rule 11). If a migration can't
    be activated yet because running processes lack its file, opening waits for them.

    Without `migrations`, the application always sees the active schema: for tools and prompts,
    whose code does not depend on one schema.

    `pin` maps names of tables to the fingerprint that the program was built for. A table that never
    had the fingerprint is refused, and so is one whose present schema is not made by the files;
    without files, only the pinned schema is accepted. If the table gets an unknown schema while the
    database is open, every use of it raises `FingerprintUnknown`, until its schema is a known one
    again.

    At most `max_connections` transactions and snapshots can be open at the same time, each with its
    own connection; the next one waits for 5 s, and then raises `ConnectionsBusy`. Each thread that
    uses the database also keeps a connection for single operations.

    On PostgreSQL, zapdb's tables are in one schema: the one that the address names,
    `postgresql://user@host/database?schema=app`, which is made if it is missing; else the one on
    the search path that has them, or its first one for a database that is new. `schema` is the same
    as in the address. Raises `UsageError` if several schemas of the path have zapdb's tables.

    `models` is a module that `zapdb codegen models` wrote; `ModelsMismatch` is raised if its tables
    differ from the served schema.

    With `read_only`, this process is not a node and writes nothing, not even zone numbers, leases
    or records that a read converted. The files are still compared, and a pending migration is
    refused. Reading needs SELECT on all tables, or a readable SQLite file. Every write raises
    `UsageError`.

    With `preview`, the database is seen as it would be if the files were applied, or those up to
    `serve_as`: a look into the future, over the records of now. The files are proven; nothing is
    stored, no process is registered, and every write raises `UsageError`. Records are converted
    when they are read; what an index of theirs would find is scanned for, and constraints that they
    add bind nothing yet. A preview has no past.

    Raises `MigrationConflict` if a file differs from the stored migration, `InvalidMigration`,
    `NotProven`, `PendingMigrations`, `ActivationPending` after
    `wait_seconds`, `ServedSchemaUnavailable`, `FingerprintUnknown`, `UnknownName` for a tenant,
    `CorruptCatalog`, `NotZapdb`, `NewerStorageVersion`, `IncompatibleVersion` and `ModelsMismatch`.
    """
    files = read_files(migrations, apply, serve_as)
    pins = Pins(pin or {}, None if files.directory is None else files.end)
    find_models(models, files.served_position)
    if read_only and apply == "auto":
        raise UsageError(
            "read_only and apply='auto' cannot be combined",
            hint="leave out one of them",
        )
    if preview:
        _check_preview(files, pins)
    address = url if schema is None else name_schema(url, schema)
    connections_max = _check_count(max_connections)
    storage = connect(address, read_only=read_only or preview, connections_max=connections_max)
    opening = _Opening(storage, files, pins, tenant, models)
    try:
        if read_only or preview:
            return _open_read_only(opening, preview=preview)
        ensure_database(storage, create=apply == "auto")
        append_zones(storage)
        number = find_tenant(storage.connection(), tenant).number
        applied: list[AppliedMigration] = []

        def open_node() -> Database:
            prepared = prepare_tenant(storage, number, files, wait_seconds, applied)
            if models is not None:
                check_models(models, prepared.line, files.served_position)
            return _open_as_node(opening, prepared, applied)

        return retry(CATALOG, open_node, on=CatalogChanged)
    except BaseException:
        storage.close()
        raise


def open_to_read(url: str, tenant: str = DEFAULT_TENANT_NAME) -> Database:
    """Open a database to read its change log up to now: as a node, which gives changes their place
    in the order; read-only where this process may write nothing. Raises the errors of `open`."""
    try:
        return open(url, tenant=tenant)
    except WritesRefused:
        return open(url, tenant=tenant, read_only=True)


@dataclass(frozen=True, slots=True)
class _Opening:
    """The arguments of `open` that its steps share."""

    storage: Storage
    files: MigrationFiles
    pins: Pins
    tenant: str
    models: ModuleType | None

    def make(
        self,
        node: Node | None,
        prepared: PreparedTenant,
        applied: Sequence[AppliedMigration] = (),
        preview: Preview | None = None,
    ) -> Database:
        watcher = CatalogWatcher(self.storage)
        context = NodeContext(self.storage, node, self.files, watcher, self.pins, preview)
        try:
            return Database(context, prepared, self.tenant, tuple(applied))
        except BaseException:
            watcher.stop()
            raise


def _open_as_node(
    opening: _Opening, prepared: PreparedTenant, applied: list[AppliedMigration]
) -> Database:
    """Register this process, and open. Other processes see it only from then on, so a rollback, or
    an activation that waits for processes, may have happened before: then raises
    `CatalogChanged`."""
    storage, files, catalog = opening.storage, opening.files, prepared.catalog
    node = register(
        storage,
        files.end,
        served=prepared.served,
        pending=dict(prepared.pending),
        datasets=datasets_in_use(catalog),
    )
    try:
        current = load_checked(storage, catalog.tenant, catalog)
        if (current.chain_state, current.place) != (catalog.chain_state, catalog.place):
            raise changed_while_opening(storage)
        if current.kept_tables.keys() != catalog.kept_tables.keys():
            raise changed_while_opening(storage)
        if current.kept_tables:
            drop_kept_tables(storage, current.tenant)
            current = load_checked(storage, current.tenant, current)
        check_pins(storage, current, opening.pins)
        current = apply_dataset_policies(storage, current, node)
        sweep_retired(storage)
        if list_rebuilds(current):
            current = _rebuild_alive(storage, current, node)
        return opening.make(node, replace(prepared, catalog=current), applied)
    except BaseException:
        with suppress(ZapdbError):
            deregister(storage, node)
        raise


def _rebuild_alive(storage: Storage, catalog: TenantCatalog, node: Node) -> TenantCatalog:
    """Rebuild indexes while a heartbeat renews the node's lease."""
    heartbeat = Heartbeat(storage, node)
    try:
        return rebuild(storage, catalog)
    finally:
        heartbeat.stop()


def _open_read_only(opening: _Opening, *, preview: bool) -> Database:
    """Open without a node; if it fails, the caller closes the storage."""
    storage, files = opening.storage, opening.files
    ensure_database(storage, create=False)
    connection = storage.connection()
    if rows.get(connection, DatabaseRow) is None:
        raise empty_database(storage, "run `zapdb migrate up`")
    number = find_tenant(connection, opening.tenant).number
    if preview:
        assert files.served_position is not None
        over = Preview(storage, files.migrations, files.served_position)
        active = prepare_tenant_for_preview(storage, number)
        check_models(opening.models, over.over(active.catalog).chain, files.served_position)
        return opening.make(None, active, preview=over)
    prepared = prepare_tenant_read_only(storage, number, files)
    check_pins(storage, prepared.catalog, opening.pins)
    check_models(opening.models, prepared.line, files.served_position)
    return opening.make(None, prepared)


def _check_preview(files: MigrationFiles, pins: Pins) -> None:
    if files.directory is None:
        raise UsageError(
            "a preview needs migration files, and none were given",
            hint="pass migrations=, the directory of the files",
        )
    if files.apply == "auto" or pins.by_table:
        raise UsageError(
            "a preview applies no migrations, and its schema is not one that a program can pin",
            hint="leave out apply='auto' and pin",
        )


def _check_count(connections: int) -> int:
    if not isinstance(connections, int) or isinstance(connections, bool) or connections < 1:
        raise InvalidValue.of("max_connections", "a number, at least 1", connections)
    return connections
