"""The options that say which database a command is about, and how the command opens it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import zapdb
from zapdb.activation import TenantCatalog, schema_history_recovery
from zapdb.activation.file_comparison import find_chain_before
from zapdb.catalog import DEFAULT_TENANT_NAME
from zapdb.catalog.cluster import ensure_database
from zapdb.catalog.cluster.level import check_level
from zapdb.catalog.tenants import find_tenant
from zapdb.cli.addresses import DatabaseAddress, ServedDatabaseAddress, is_service
from zapdb.cli.commands import load_function
from zapdb.cli.configuration import (
    MigrationsOption,
    find_database,
    find_migrations,
    find_tenant_name,
)
from zapdb.control import Control, LocalControl, Target
from zapdb.errors import UsageError
from zapdb.migrations import Chain, list_files
from zapdb.storage import Storage, TransactionMode, connect, read_storage_version

if TYPE_CHECKING:
    from zapdb.database import Database


def refuse_service(address: str) -> str:
    """The address of a database; raises `UsageError` for that of a service, which lists the
    commands that a service answers."""
    if not is_service(address):
        return address
    served = load_function("served_commands.list_served_commands")
    raise UsageError(
        "this command needs the database itself, and this is the address of a service",
        service=address,
        hint=f"a service answers: {', '.join(served())}",
    )


@dataclass(frozen=True)
class DatabaseOptions(DatabaseAddress):
    """The database that a command is about."""

    @property
    def address(self) -> str:
        """Raises `UsageError` if none is given, and for that of a service."""
        return refuse_service(find_database(self.database))

    @property
    def tenant_name(self) -> str:
        return find_tenant_name(None)

    @contextmanager
    def target(self) -> Iterator[Target]:
        """The database, for methods of the control plane that no service has."""
        address = self.address
        with ExitStack() as ended, self.connected() as storage:

            @cache
            def open_database() -> Database:
                from zapdb.database.opening import open_to_read

                return ended.enter_context(open_to_read(address, self.tenant_name))

            yield Target(storage, self.tenant_name, open_database)

    def read_before(self, directory: Path) -> Chain | None:
        """The stored migrations that a directory begins after, as its lock file says; None if it
        has all files, or if no database is given. Raises `MigrationConflict` if the database
        stores others, or nothing."""
        first = list_files(directory)[0]
        if first.follows is None or not self.is_given:
            return None
        with self.connected() as storage:
            return find_chain_before(first, self.read_catalog_if_any(storage))

    @contextmanager
    def connected(self) -> Iterator[Storage]:
        """The storage of the database, whatever is in it; closed at the end."""
        storage = connect(self.address)
        try:
            yield storage
        finally:
            storage.close()

    @contextmanager
    def with_rows(self) -> Iterator[Storage]:
        """The storage of a database with migrations.

        Raises `PendingMigrations` for one that is empty or missing.
        """
        with self.connected() as storage:
            ensure_database(storage, create=False)
            yield storage

    @contextmanager
    def opened(self) -> Iterator[tuple[Storage, TenantCatalog]]:
        """A database with migrations, as the tenant sees it; raises `PendingMigrations`."""
        with self.with_rows() as storage:
            yield storage, self.read_catalog(storage)

    def read_catalog(self, storage: Storage) -> TenantCatalog:
        """The tenant catalog of the tenant that the command is about."""
        return read_tenant_catalog(storage, self.tenant_name)

    def read_catalog_if_any(self, storage: Storage) -> TenantCatalog | None:
        """The same, or None if the database is empty or missing; nothing is created."""
        if read_storage_version(storage) is None:
            return None
        ensure_database(storage, create=False)
        return self.read_catalog(storage)


@dataclass(frozen=True)
class TenantOptions(DatabaseOptions):
    """The database and the tenant that a command is about."""

    tenant: Annotated[
        str | None,
        typer.Option(
            "--tenant",
            metavar="NAME",
            envvar="ZAPDB_TENANT",
            help="The tenant; else `tenant` under `[tool.zapdb]` in ./pyproject.toml, else "
            f"`{DEFAULT_TENANT_NAME}`.",
        ),
    ] = None

    @property
    def tenant_name(self) -> str:
        return find_tenant_name(self.tenant)

    def open(self, *, read_only: bool = False) -> Database:
        """The database as applications open it."""
        return zapdb.open(self.address, tenant=self.tenant_name, read_only=read_only)

    @contextmanager
    def opened_for(self) -> Iterator[tuple[Storage, int]]:
        """A database with migrations, and the number of the tenant; no missing history begins.

        Raises `PendingMigrations` for a database that is empty or missing, and `UnknownName`.
        """
        with self.with_rows() as storage:
            with storage.transaction(TransactionMode.READ) as connection:
                check_level(connection)
                number = find_tenant(connection, self.tenant_name).number
            yield storage, number


@dataclass(frozen=True)
class PreviewOptions(TenantOptions):
    """The database and the tenant that a command reads from, maybe as migration files that are not
    applied would make them."""

    preview: Annotated[
        bool,
        typer.Option(
            "--preview",
            help="Read the records by the schema that the migration files would lead to; nothing "
            "is applied.",
        ),
    ] = False
    migrations: MigrationsOption = None

    def open(self, *, read_only: bool = False) -> Database:
        if not self.preview:
            return super().open(read_only=read_only)
        directory = find_migrations(self.migrations)
        return zapdb.open(self.address, tenant=self.tenant_name, migrations=directory, preview=True)


@dataclass(frozen=True)
class ServedDatabaseOptions(ServedDatabaseAddress, DatabaseOptions):
    """The database that a command is about, which may be behind a service (`grpcs://host:port`):
    what the command does are methods of the control plane."""

    @property
    def key(self) -> str | None:
        """The idempotency key of the call that changes something."""
        return None

    @contextmanager
    def control(self) -> Iterator[Control]:
        """Whom the methods of the control plane are called on: the database, or a service if the
        address is that of one. Raises `UsageError` for a key without a service."""
        address = find_database(self.database)
        if self.key is not None and not is_service(address):
            raise UsageError(
                "a database keeps no answers: --idempotency-key is for calls of a service",
                hint="leave it out: when a command of this database ends, what it did is known",
            )
        if is_service(address):
            from zapdb.service.addresses import ServiceAccess
            from zapdb.service.client import connected_control

            access = ServiceAccess(None, self.token_file, self.tls_ca, self.tls_cert, self.tls_key)
            with connected_control(address, self.tenant_name, access, self.key) as control:
                yield control
            return
        with self.target() as target:
            yield LocalControl(target)


@dataclass(frozen=True)
class ServedTenantOptions(ServedDatabaseOptions, TenantOptions):
    """The same with the tenant."""


@dataclass(frozen=True)
class KeyedDatabaseOptions(ServedDatabaseOptions):
    """The same for a command that changes something, and may be repeated as the same call."""

    idempotency_key: Annotated[
        str | None,
        typer.Option(
            "--idempotency-key",
            metavar="KEY",
            help="For a service: within 24 hours, the same command with the same key is the same "
            "call, and is answered as before.",
        ),
    ] = None

    @property
    def key(self) -> str | None:
        return self.idempotency_key


@dataclass(frozen=True)
class KeyedTenantOptions(KeyedDatabaseOptions, ServedTenantOptions):
    """The same with the tenant."""


def read_tenant_catalog(storage: Storage, name: str | None = None) -> TenantCatalog:
    """The tenant catalog of the tenant with the name, with its migrations: commands name them,
    also when the database is closed."""
    connection = storage.connection()
    check_level(connection)
    number = find_tenant(connection, find_tenant_name(name)).number
    catalog = schema_history_recovery.load_or_recover(storage, number)
    catalog.read_whole()
    return catalog
