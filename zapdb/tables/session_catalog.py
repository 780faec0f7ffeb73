"""What a session has cached of the catalog: the tenant catalog, its tables, the settings.

It works in the open transaction that it is bound to, else in that of the calling task or thread,
else in none. A snapshot keeps the tenant catalog of its moment.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Self, TypeVar

from zapdb.activation import TableDescriptor, TenantCatalog, load_tenant_catalog
from zapdb.activation.pinning import Pins, Violations
from zapdb.activation.served_schema import (
    find_served_fingerprints,
    find_served_table,
    require_active,
    require_served_schema,
    served_names,
)
from zapdb.catalog.cache import CatalogCache
from zapdb.catalog.settings import Settings
from zapdb.errors import UnknownName
from zapdb.records import Record, load_through
from zapdb.storage import Connection, StatementRefused, Storage, TransactionMode
from zapdb.storage.open_transaction import OpenTransaction
from zapdb.storage.retries import Again
from zapdb.tables.indexes import BoundTable

T = TypeVar("T")


class _LoadedCatalog:
    """A tenant catalog and the tables that were made of it so far; replaced as a whole."""

    def __init__(self, catalog: TenantCatalog, violations: Violations, serial: int = 0) -> None:
        self.catalog = catalog
        self.serial = serial
        """That of the transaction which has loaded it (`TransactionState`): of two, the one that
        began later in this process has loaded the newer one. The versions of two histories of the
        database have no order."""
        self.violations = violations
        """The pinned tables that the program can't know as they are."""
        self.tables: dict[int, BoundTable] = {}


class _CachedSettings:
    """The settings, and what they say of each table that was asked about; replaced as a whole."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.writes_back: dict[int, bool] = {}


class CatalogReloaded(Again):
    """The schema moved before anything was done in an open transaction, which knows it now."""


class _Shared:
    """What a session has cached, shared with the sessions that are bound to its open
    transactions."""

    def __init__(self, catalog: TenantCatalog) -> None:
        self.lock = threading.Lock()
        self.loaded = _LoadedCatalog(catalog, {})
        self.settings = _CachedSettings(Settings(catalog.tenant, {}))


class SessionCatalog:
    """Thread-safe: cached values are replaced as a whole."""

    shows_catalog = True
    """Whether SQL may read the catalog, which is that of now."""

    def __init__(
        self,
        storage: Storage,
        catalog: TenantCatalog,
        served_position: int | None,
        pins: Pins,
        *,
        is_read_only: bool,
    ) -> None:
        self.storage = storage
        self.served_position = served_position
        """The position of the served schema; None if the application works with the active one."""
        self.is_read_only = is_read_only
        """Whether this process is no node: it checks the cluster level itself, and writes
        nothing."""
        self.open: OpenTransaction | None = None
        """The transaction that this session is bound to; None if each call finds its own."""
        self._served = find_served_fingerprints(catalog, served_position)
        self._pins = pins
        self._shared = _Shared(catalog)

    def bind(self, begun: OpenTransaction) -> Self:
        """Return the same session for an open transaction, usable from any thread or task."""
        bound = object.__new__(type(self))
        bound.__dict__.update(self.__dict__, open=begun)
        return bound

    def open_here(self) -> OpenTransaction | None:
        """The open transaction that it works in here; raises `UsageError` for one that is over, and
        if the caller has only inherited it."""
        return self.storage.pool.open_here() if self.open is None else self.open

    @contextmanager
    def using(self) -> Iterator[OpenTransaction | None]:
        """What this thread does in the block, it does in the open transaction, if there is one."""
        begun = self.open_here()
        if begun is None:
            yield None
            return
        with begun.use() as connection:
            self._flush_beginning(connection)
            yield begun

    @contextmanager
    def connected(self) -> Iterator[Connection]:
        """The connection of the open transaction, if there is one, which no other thread uses
        meanwhile; else the thread's own."""
        with self.using():
            yield self.storage.connection()

    def reading_in(self, read: Callable[..., T]) -> Callable[..., T]:
        """The same function, in the open transaction that the session is bound to, if it is."""
        return read if self.open is None else self.open.reading(read)

    def guard(self, records: Iterator[Record]) -> Iterator[Record]:
        """Records as the application gets them: those of an open transaction end with it."""
        return records if self.open is None else self._guard(self.open, records)

    def _guard(self, begun: OpenTransaction, records: Iterator[Record]) -> Iterator[Record]:
        for record in records:
            yield self.belong(record)
            begun.require_open()

    def belong(self, record: Record) -> Record:
        """A record that was read in an open transaction: its blobs are, too, until that ends."""
        begun = self.open
        if begun is not None:
            load_through(record, begun.reading)
        return record

    @property
    def settings(self) -> Settings:
        """The tenant's settings as this process has them cached."""
        return self._shared.settings.settings

    @settings.setter
    def settings(self, settings: Settings) -> None:
        self._shared.settings = _CachedSettings(settings)

    def writes_back(self, bound: BoundTable) -> bool:
        """Whether stale records of a table that were read are written back converted."""
        if self.is_read_only:
            return False
        known, number = self._shared.settings, bound.schema.number
        found = known.writes_back.get(number)
        if found is None:
            found = known.writes_back[number] = known.settings.writes_back(number)
        return found

    def _find_loaded(self, connection: Connection | None = None) -> _LoadedCatalog:
        if connection is None:
            begun = self.open
            connection = self.storage.pool.known_connection() if begun is None else begun.connection
        transaction = None if connection is None else connection.transaction
        if transaction is None or not transaction.pinned:
            return self._shared.loaded
        pinned: _LoadedCatalog | None = transaction.pinned.get(self._shared)
        return pinned or self._shared.loaded

    @property
    def catalog(self) -> TenantCatalog:
        """The tenant catalog that this process has cached; in a snapshot, the snapshot's."""
        return self._find_loaded().catalog

    @property
    def table_names(self) -> tuple[str, ...]:
        """The names of the tables as the application knows them."""
        return served_names(self.catalog, self.served_position)

    def bind_served(self, name: str) -> BoundTable:
        """The table that the application calls so; raises `UnknownName`."""
        try:
            return self._bind_served(name)
        except UnknownName:
            begun = self.open_here()
            if begun is None or not begun.connection.is_unbegun:
                raise
        with self.using():  # which checks the catalog version
            return self._bind_served(name)

    def _bind_served(self, name: str) -> BoundTable:
        loaded = self._require_pins(name)
        descriptor = find_served_table(loaded.catalog, self.served_position, name)
        if loaded.violations:
            return self.bind_numbered(descriptor.schema.number, name)
        return self._open(loaded, descriptor)

    def bind_active(self, name: str) -> BoundTable:
        """Return the table with this name in the active schema."""
        loaded = self._find_loaded()
        return self._open(loaded, loaded.catalog.table(name))

    def bind_numbered(self, number: int, name: str) -> BoundTable:
        """The table with this number; `name` is what it was called. Raises `UnknownName`."""
        loaded = self._require_pins(number)
        return self._open(loaded, loaded.catalog.table_numbered(number, name))

    def rebind(self, bound: BoundTable, connection: Connection | None = None) -> BoundTable:
        """Return the same table, even under another name, in the present tenant catalog, as the
        `connection` has it, if that is known; raises `UnknownName`."""
        if bound.catalog is self._find_loaded(connection).catalog:
            return bound
        return self.bind_numbered(bound.schema.number, bound.schema.name)

    def _require_pins(self, table: str | int) -> _LoadedCatalog:
        """Return the loaded catalog; raise `FingerprintUnknown` for a table whose pin is
        violated."""
        loaded = self._find_loaded()
        if table in loaded.violations:
            if not (self.storage.pool.local.only_builds or self.storage.is_in_transaction):
                self.reload()  # it may match again, which only its uses notice
                loaded = self._find_loaded()
            if table in loaded.violations:
                raise copy.copy(loaded.violations[table])  # each with a traceback of its own
        return loaded

    def _open(self, loaded: _LoadedCatalog, descriptor: TableDescriptor) -> BoundTable:
        number = descriptor.schema.number
        bound = loaded.tables.get(number)
        if bound is None:
            bound = BoundTable(self.storage, loaded.catalog, descriptor, self.served_position)
            loaded.tables[number] = bound
        return bound

    def reload(self, cache: CatalogCache | None = None) -> None:
        """Load the tenant catalog, as this thread's transaction sees it if it has one.

        In no transaction, its rows are those of the `cache`, if that is given and still as new as
        the database.

        A snapshot may be older than what other threads work with: it keeps its tenant catalog, too.
        """
        with self.using():
            self._reload(cache)

    def _reload(self, cache: CatalogCache | None) -> None:
        connection = self.storage.connection()
        known = self._shared.loaded.catalog
        if connection.transaction is None:
            with self.storage.transaction(TransactionMode.READ):  # all of it as of one moment
                loaded = self._load(connection, known, cache)
        else:
            loaded = self._load(connection, known, None)
        catalog = loaded.catalog
        if self.served_position is not None:
            if self.is_read_only:
                require_active(catalog, self.served_position)
            if catalog.stored is not known.stored:
                require_served_schema(catalog, self.served_position, self._served)
        transaction = connection.transaction
        if transaction is not None and transaction.mode.only_reads:
            transaction.pinned[self._shared] = loaded
        with self._shared.lock:
            last = self._shared.loaded
            if catalog is not last.catalog and loaded.serial >= last.serial:
                self._pins.log_new(self._shared.loaded.violations, loaded.violations)
                self._shared.loaded = loaded

    def _load(
        self, connection: Connection, known: TenantCatalog, cache: CatalogCache | None
    ) -> _LoadedCatalog:
        catalog = load_tenant_catalog(connection, known.tenant, known, cache)
        violations = self._pins.find_violations(connection, catalog)
        assert connection.transaction is not None
        return _LoadedCatalog(catalog, violations, connection.transaction.serial)

    def _flush_beginning(self, connection: Connection) -> None:
        """Before questions: begin a transaction whose beginning still waits."""
        try:
            connection.flush()
        except StatementRefused as refused:
            error = refused.explain(connection)
            if not isinstance(error, CatalogReloaded):
                raise error from None
