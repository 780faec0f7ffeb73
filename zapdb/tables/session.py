"""What the tables of one open database share: the catalog as it is cached, and the transactions.

A session works in the open transaction that it is bound to, else in that of the calling task or
thread, else in none. A snapshot keeps the tenant catalog of its moment.

A writing transaction takes the gate, then reads in one statement its node's epoch and the tenant's
catalog version; if the version changed, the tenant catalog is loaded again inside the transaction.
So what it writes matches the schema that is active when it commits (rules 7 and 8).
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Self, TypeVar

from zapdb.activation import TableDescriptor, TenantCatalog, load_tenant_catalog
from zapdb.activation.pinned_fingerprints import NO_PINS, Pins, Violations
from zapdb.activation.served_schema import (
    find_served_again,
    find_served_fingerprints,
    find_served_table,
    may_use,
    require_active,
    served_names,
)
from zapdb.catalog.cache import CatalogCache
from zapdb.catalog.cluster.level import check_level
from zapdb.catalog.cluster.node_registration import refuse_lost_lease
from zapdb.catalog.cluster.nodes import Node
from zapdb.catalog.settings import Settings
from zapdb.catalog.stored_migrations import ChainPlace
from zapdb.errors import (
    CatalogChanged,
    CommitUnknown,
    TransactionConflict,
    UnknownName,
    UsageError,
    ZapdbError,
)
from zapdb.limits import READ, WRITE
from zapdb.records import Record, load_through
from zapdb.storage import (
    Connection,
    MissingTable,
    Refusal,
    StatementRefused,
    Storage,
    TransactionMode,
)
from zapdb.storage.cells import as_number
from zapdb.storage.connection import TransactionState
from zapdb.storage.open_transaction import OpenTransaction
from zapdb.storage.own_lease import OwnLease
from zapdb.storage.retries import Again, goes_alone, retry
from zapdb.storage.statements import catalog_version_sql
from zapdb.storage.transaction_owners import Caller, has_begun
from zapdb.tables.commit_tokens import (
    CommitToken,
    CommitTokenPurger,
    resolve_commit,
    send_commit_token,
    write_commit_token,
)
from zapdb.tables.generated_values import REFUSED, OperationNumbers, Sequences
from zapdb.tables.indexes import BoundTable, IncomingReference
from zapdb.tables.queries.past_ways import PastReading

T = TypeVar("T")

TableRead = Callable[[Connection, BoundTable], tuple[int | None, T]]
"""A query: the catalog version that it saw, or None if none matters, and the answer."""


def changed_while_read(bound: BoundTable) -> CatalogChanged:
    """A table was read as it is not any more."""
    return CatalogChanged(
        "the schema of the table changed while it was read",
        table=bound.schema.name,
        hint="run the query again, or run it inside db.snapshot()",
    )


def _transaction_of(connection: Connection) -> TransactionState:
    """Return the transaction that a connection is in."""
    assert connection.transaction is not None
    return connection.transaction


class _GuardRefused(StatementRefused):
    """The guard of a transaction of one call refused it, maybe while operations inside it send
    their statements."""


def _refuse(numbers: OperationNumbers | None, error: Exception) -> None:
    if numbers is not None and isinstance(error, REFUSED):
        numbers.refuse(error)


class _Local(threading.local):
    exclusive = False
    """Whether the next transaction of this thread keeps all other writers out."""


class LoadedCatalog:
    """A tenant catalog and the tables that were made of it so far; replaced as a whole."""

    def __init__(
        self,
        catalog: TenantCatalog,
        served: ChainPlace | None,
        violations: Violations,
        serial: int = 0,
    ) -> None:
        self.catalog = catalog
        self.served = served
        """The place whose schema is served; None if the application works with the active one."""
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


class _CatalogReloaded(Again):
    """The schema moved before anything was done in an open transaction, which knows it now."""


class _Shared:
    """What a session has cached, shared with the sessions that are bound to its open
    transactions."""

    def __init__(self, catalog: TenantCatalog, served: ChainPlace | None) -> None:
        self.lock = threading.Lock()
        self.loaded = LoadedCatalog(catalog, served, {})
        self.settings = _CachedSettings(Settings(catalog.tenant, {}))


class Session:
    """Thread-safe; one per open database, and one for each of its open transactions."""

    sees_writes = True
    """Whether what is written shows in what it reads later."""
    has_revisions = True
    """Whether what is known of ranges of keys, as of now, is true of the records that it reads."""
    has_ways = False
    """Whether tables may be read in several ways: those of a past."""
    shows_catalog = True
    """Whether SQL may read the catalog, which is that of now."""
    is_preview = False
    """Whether it has migrations that are not applied: then it has no past."""

    def __init__(
        self,
        storage: Storage,
        catalog: TenantCatalog,
        node: Node | None,
        served: ChainPlace | None = None,
        pins: Pins = NO_PINS,
    ) -> None:
        self.storage = storage
        self.is_read_only = node is None
        """Whether this process is no node: it checks the cluster level itself, and writes
        nothing."""
        self.open: OpenTransaction | None = None
        """The transaction that this session is bound to; None if each call finds its own."""
        self._served_fingerprints = find_served_fingerprints(catalog, served)
        self._pins = pins
        self._shared = _Shared(catalog, served)
        self.node = node
        self.sequences = Sequences(catalog.tenant, are_exact=storage.pool.turn is not None)
        self._local = _Local()
        self.catalog_version_sql = catalog_version_sql(catalog.tenant)
        self._token_purger = CommitTokenPurger(storage)
        self._check_sql = self._guard_sql = ""
        if node is not None:
            epoch = node.own.epoch_sql
            self._check_sql = f"SELECT ({self.catalog_version_sql}), ({epoch})"
            mark = storage.placeholder
            self._guard_sql = f"({self.catalog_version_sql}) = {mark} AND ({epoch}) >= {mark}"

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

    def _find_loaded(self, connection: Connection | None = None) -> LoadedCatalog:
        if connection is None:
            begun = self.open
            connection = self.storage.pool.known_connection() if begun is None else begun.connection
        transaction = None if connection is None else connection.transaction
        if transaction is None or not transaction.pinned:
            return self._shared.loaded
        pinned: LoadedCatalog | None = transaction.pinned.get(self._shared)
        return pinned or self._shared.loaded

    @property
    def catalog(self) -> TenantCatalog:
        """The tenant catalog that this process has cached; in a snapshot, the snapshot's."""
        return self._find_loaded().catalog

    @property
    def served(self) -> ChainPlace | None:
        """The place whose schema is served; None if the application works with the active one."""
        return self._find_loaded().served

    @property
    def table_names(self) -> tuple[str, ...]:
        """The names of the tables as the application knows them."""
        loaded = self._find_loaded()
        return served_names(loaded.catalog, loaded.served)

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
        descriptor = find_served_table(loaded.catalog, loaded.served, name)
        if loaded.violations:
            return self.bind_numbered(descriptor.schema.number, name)
        return self._open(loaded, descriptor)

    def bind_numbered(self, number: int, name: str) -> BoundTable:
        """The table with this number; `name` is what it was called. Raises `UnknownName`."""
        loaded = self._require_pins(number)
        found = loaded.catalog.table_numbered(number, name)
        if not may_use(loaded.catalog, loaded.served, found):
            raise UnknownName("the table was dropped", table=name)
        return self._open(loaded, found)

    def bind_referring(self, incoming: IncomingReference) -> BoundTable:
        """The table that has a reference, also where it is kept for others."""
        loaded = self._find_loaded()
        return self._open(loaded, loaded.catalog.table_numbered(incoming.number, incoming.table))

    def rebind(self, bound: BoundTable, connection: Connection | None = None) -> BoundTable:
        """Return the same table, even under another name, in the present tenant catalog, as the
        `connection` has it, if that is known; raises `UnknownName`."""
        if bound.catalog is self._find_loaded(connection).catalog:
            return bound
        return self.bind_numbered(bound.schema.number, bound.schema.name)

    def _require_pins(self, table: str | int) -> LoadedCatalog:
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

    def _open(self, loaded: LoadedCatalog, descriptor: TableDescriptor) -> BoundTable:
        number = descriptor.schema.number
        bound = loaded.tables.get(number)
        if bound is None:
            bound = self._make_bound(loaded, descriptor)
            loaded.tables[number] = bound
        return bound

    def _make_bound(self, loaded: LoadedCatalog, descriptor: TableDescriptor) -> BoundTable:
        return BoundTable(self.storage, loaded.catalog, descriptor, loaded.served)

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
            loaded.catalog.read_branches()
        else:
            loaded = self._load(connection, known, None)
        catalog = loaded.catalog
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
    ) -> LoadedCatalog:
        catalog = self._load_catalog(connection, known, cache)
        served = self._find_served(connection, catalog, known)
        violations = self._pins.find_violations(connection, catalog)
        assert connection.transaction is not None
        return LoadedCatalog(catalog, served, violations, connection.transaction.serial)

    def _find_served(
        self, connection: Connection, catalog: TenantCatalog, known: TenantCatalog
    ) -> ChainPlace | None:
        """The place whose schema is served, in a catalog that was loaded behind a known one."""
        served = self._shared.loaded.served
        if served is None or served == catalog.place:
            return served
        if catalog.chain_state != known.chain_state:
            served = find_served_again(connection, catalog, served, self._served_fingerprints)
        if self.is_read_only:
            require_active(catalog, served)
        return served

    def _load_catalog(
        self, connection: Connection, known: TenantCatalog, cache: CatalogCache | None
    ) -> TenantCatalog:
        return load_tenant_catalog(connection, known.tenant, known, cache)

    def _flush_beginning(self, connection: Connection) -> None:
        """Before questions: begin a transaction whose beginning still waits."""
        try:
            connection.flush()
        except StatementRefused as refused:
            error = refused.explain(connection)
            if not isinstance(error, _CatalogReloaded):
                raise error from None

    @property
    def own_lease(self) -> OwnLease:
        """The lease of this process's node, which writes."""
        assert self.node is not None
        return self.node.own

    def idle_connection(self) -> Connection | None:
        """Return this thread's connection if what is read now belongs to no transaction and to no
        snapshot, and needs none."""
        if self.is_read_only or self.open is not None or has_begun():
            return None
        if self.storage.pool.local.active is not None:
            return None
        connection = self.storage.own_connection()
        return connection if connection.transaction is None else None

    def read_catalog_version(self, connection: Connection) -> int:
        """Return the catalog version now; 0, which no tenant has, if the tenant was removed."""
        row = connection.fetch_one(self.catalog_version_sql)
        return 0 if row is None else as_number(row[0])

    def bind_whole(self, bound: BoundTable) -> BoundTable:
        """Return the table as it is read where all of it is read: those of a past have two ways."""
        return bound

    def find_reading(self, bound: BoundTable, *, is_whole: bool) -> PastReading | None:
        """Return how a table of a past is read; None in the present."""
        return None

    def read_active(self, bound: BoundTable, read: TableRead[T]) -> tuple[BoundTable, T]:
        """Read a table, and read it again by its new schema if that changed meanwhile (rule 8).

        Returns the bound table that the answer was read with, and the answer.
        """
        begun = self.open_here()
        if begun is not None:
            with begun.use() as connection:
                self._flush_beginning(connection)
                return self._read_active(bound, read)
        if self.is_read_only and not self.storage.is_in_transaction:
            return self.run(lambda: self._read_active_at_once(bound, read))
        return self._read_active(bound, read)

    def _read_active(self, bound: BoundTable, read: TableRead[T]) -> tuple[BoundTable, T]:
        def read_once() -> tuple[BoundTable, T]:
            found = self.rebind(bound)
            connection = self.storage.connection()
            try:
                version, answer = read(connection, found)
            except MissingTable as error:
                if connection.transaction is None:
                    raise
                raise TransactionConflict(
                    "a table that the snapshot reads was removed",
                    table=found.schema.name,
                    hint="read again in a new snapshot",
                ) from error
            if version is None or version == found.catalog.version:
                return found, answer
            raise changed_while_read(found)

        stale = (CatalogChanged, MissingTable)
        return retry(READ, read_once, on=stale, before_again=lambda _: self.reload())

    def require_pinned(self) -> None:
        """Raise `HistoryErased` if files are gone that this session has pinned."""

    def _read_active_at_once(self, bound: BoundTable, read: TableRead[T]) -> tuple[BoundTable, T]:
        """Do the same, but check the cluster level in the very snapshot that is read."""
        with self.snapshot():
            return self._read_active(bound, read)

    @contextmanager
    def writing(self, numbers: OperationNumbers | None = None) -> Iterator[Connection]:
        """A transaction of its own, or a savepoint in the one that this thread is in.

        In both cases an operation is done completely or not at all: if the application catches an
        error and continues the transaction, no record may lack its entries. If it is refused, so
        are the `numbers` that it drew.
        """
        connection = self.storage.connection()
        transaction = connection.transaction
        is_inside = transaction is not None and transaction.mode is TransactionMode.WRITE
        try:
            if transaction is not None and is_inside:
                if self._shared not in transaction.checked:  # another tenant's has begun it
                    self.check_writer(connection)
                with self.storage.savepoint(connection), self._recheck_after_error(connection):
                    yield connection
            elif transaction is not None:
                self.storage.require_writable()
                raise UsageError(
                    "a snapshot is read-only",
                    hint="write after the snapshot, or use db.transaction()",
                )
            elif connection.queue is not None:
                with self._writing_together() as begun:
                    yield begun
            else:
                with self.storage.transaction(
                    TransactionMode.WRITE, connection, exclusive=self._local.exclusive
                ) as begun:
                    self.check_writer(begun)
                    yield begun
        except StatementRefused as refused:
            if is_inside and isinstance(refused, _GuardRefused):
                raise  # nothing can be asked before the whole transaction is rolled back
            reason = refused.explain(self.storage.connection())
            try:
                _refuse(numbers, reason)
                raise reason from None
            finally:
                del reason  # which refers to this frame
        except REFUSED as error:
            _refuse(numbers, error)
            raise

    @contextmanager
    def _writing_together(self) -> Iterator[Connection]:
        """A transaction of its own, whose statements travel together with its COMMIT."""
        token: CommitToken | None = None
        self._token_purger.run_if_due()
        try:
            with self.storage.transaction(
                TransactionMode.WRITE, exclusive=self._local.exclusive
            ) as begun:
                self._require_current(begun, partial(_GuardRefused, self._explain_refusal))
                begun.note_begun()
                with self._recheck_after_error(begun):
                    yield begun
                token = self._send_token(begun)
        except CommitUnknown as unknown:
            if token is None:
                raise
            resolve_commit(self.storage, token, unknown)

    def _require_current(self, connection: Connection, refused: Refusal) -> None:
        """Check what a writing transaction checks first. If statements travel together, send a
        statement that fails if this process's cached values are not current. `refused` makes the
        error then."""
        catalog, node = self._shared.loaded.catalog, self.node
        if not connection.is_pipelined or node is None:
            self.check_writer(connection)
            return
        epoch = node.own.epoch
        connection.require(self._guard_sql, (catalog.version, epoch), refused)
        _transaction_of(connection).checked[self._shared] = epoch

    @contextmanager
    def _recheck_after_error(self, connection: Connection) -> Iterator[None]:
        """Check the catalog version before an error of the block is raised, if nothing was read
        yet. A call that is wrong by the cached catalog may be right by the active one."""
        try:
            yield
        except ZapdbError:
            if connection.is_unbegun:
                connection.flush()
            raise

    def _explain_refusal(self, connection: Connection) -> Exception:
        """Return the error to raise after the rollback: why the guard stopped a transaction."""
        try:
            self.check_writer(connection)
        except ZapdbError as error:
            return error
        return CatalogChanged(
            "the schema changed since the operation was planned",
            hint="run it again, or use db.run(function), which repeats it",
        )

    def _restart(self, connection: Connection) -> Exception:
        """The same for a transaction that stays open: nothing was done in it, so that it is begun
        again, and what was to be done first is done again."""
        transaction = _transaction_of(connection)
        transaction.checked.pop(self._shared, None)
        try:
            self.storage.begin_again(connection)
            self.check_writer(connection)
            if transaction.token is not None and self.node is not None:
                transaction.token = write_commit_token(connection, self.node.id)
        except ZapdbError as error:
            return error
        return _CatalogReloaded()

    def _send_token(self, connection: Connection) -> CommitToken | None:
        """Send the commit token of a COMMIT that travels with its statements: its outcome is
        unknown from the first byte on."""
        clock_us, node = self._token_purger.clock_us, self.node
        if not connection.is_pipelined or connection.is_unused or clock_us is None or node is None:
            return None
        return send_commit_token(connection, node.id, clock_us)

    @contextmanager
    def job_transaction(self) -> Iterator[Connection]:
        """Open a transaction of zapdb's own, apart from the application's. Each statement sees what
        is committed, and no other transaction must be repeated because of it."""
        with self.storage.transaction(TransactionMode.JOB) as connection:
            self.check_writer(connection)
            yield connection

    def begin(
        self,
        mode: TransactionMode,
        *,
        token: bool = False,
        exclusive: bool = False,
        lent: Connection | None = None,
        caller: Caller | None = None,
    ) -> OpenTransaction:
        """Begin a transaction or a snapshot that stays open: see `Storage.begin_open`."""
        if lent is None:
            self.storage.require_open()
        begun = self.storage.begin_open(mode, lent, caller, exclusive=exclusive)
        try:
            with begun.use() as connection:
                self.prepare(connection, token=token)
        except BaseException:
            self.storage.undo_open(begun)
            raise
        return begun

    def prepare(self, connection: Connection, *, token: bool = False) -> None:
        """The first statements of a transaction or snapshot of an application."""
        transaction = _transaction_of(connection)
        if transaction.mode.only_reads:
            if self.is_read_only:
                check_level(connection)
            self.pin(connection)
            return
        if not connection.is_pipelined:
            self.check_writer(connection)
        else:
            self._require_current(connection, partial(StatementRefused, self._restart))
        connection.note_begun()
        if token:
            assert self.node is not None  # it would not write
            clock_us = self._token_purger.clock_us
            if connection.is_pipelined and clock_us is not None:
                transaction.token = send_commit_token(connection, self.node.id, clock_us)
            else:
                self._flush_beginning(connection)  # it may begin again, for a schema of now
                transaction.token = write_commit_token(connection, self.node.id)

    def before_commit(self, begun: OpenTransaction) -> None:
        """A transaction that has nothing but its token may have to begin again, as others do with
        their first question, for a schema of now."""
        transaction = begun.connection.transaction
        has_token = transaction is not None and transaction.token is not None
        if has_token and begun.connection.is_unbegun:
            with begun.use() as connection:
                self._flush_beginning(connection)

    def commit(self, begun: OpenTransaction) -> None:
        """Commit a transaction that stayed open. If COMMIT reports an error, its commit token tells
        whether it took effect."""
        transaction = begun.connection.transaction
        token = None if transaction is None else transaction.token
        try:
            self.storage.commit_open(begun)
        except CommitUnknown as unknown:
            if token is None:
                raise
            resolve_commit(self.storage, token, unknown)
        if token is not None:
            self._token_purger.run_if_due()

    def require_outermost_token(self, token: bool) -> None:
        if token:
            raise UsageError(
                "a commit token belongs to a whole transaction, and this one is nested",
                hint="pass token=True to the outermost transaction",
            )

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """Open a snapshot for one call; in the block, this thread reads as of the snapshot."""
        with self.reading() as connection:
            self.pin(connection)
            yield connection

    def pin(self, connection: Connection) -> None:
        """Pin the tenant catalog as of a snapshot for all reads in it, unless it is pinned."""
        pinned = _transaction_of(connection).pinned
        if self._shared in pinned:
            return
        row = connection.fetch_one(self.catalog_version_sql)
        loaded = self._shared.loaded
        pinned[self._shared] = loaded
        if row is None or row[0] != loaded.catalog.version:
            self.reload()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Open a READ transaction; in a process that is no node, check the cluster level first.
        Raises `IncompatibleVersion` then."""
        with self.storage.transaction(TransactionMode.READ) as connection:
            if self.is_read_only:
                check_level(connection)
            yield connection

    def check_writer(self, connection: Connection) -> None:
        """Check what a writing transaction checks first: the node's lease, and the catalog
        version."""
        assert self.node is not None  # else it is read-only, and there is no such transaction
        # Of another tenant's session, what it knew when the transaction began.
        transaction, epoch = connection.transaction, self.node.own.epoch
        if transaction is not None and transaction.checked:
            epoch = next(iter(transaction.checked.values()))
        version, found = connection.fetch_one(self._check_sql)
        stored = None if found is None else as_number(found)
        if stored is None or stored < epoch:
            refuse_lost_lease(connection, self.node, stored)
        if version != self._shared.loaded.catalog.version:
            self.reload()
        if transaction is not None:
            transaction.checked[self._shared] = epoch

    def run(self, action: Callable[[], T]) -> T:
        """Run a single operation; repeat it after a conflict, unless it is inside a transaction,
        and wherever it is, if it raises `Again`.

        Of conflicting transactions, the database lets the one continue that ends first. A long one,
        such as a deletion with all its referencing records, could fail for ever because of short
        ones. After several conflicts it takes the gate exclusively (decision 17).
        """
        known = None if self.open is not None else self.storage.pool.known_connection()
        if self.open is None and (known is None or known.transaction is None):
            try:
                return retry(WRITE, action, before_again=self._before_again)
            finally:
                self._local.exclusive = False
        begun = self.open_here()
        if begun is None:  # a part of an operation
            return retry(WRITE, action, on=())
        with begun.use():
            return retry(WRITE, action, on=())

    def _before_again(self, made: int) -> None:
        self._local.exclusive = goes_alone(made)
