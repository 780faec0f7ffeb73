"""An open database, as one tenant sees it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import ClassVar, TypeVar, overload

from zapdb.activation import TenantCatalog
from zapdb.activation.datasets import apply_dataset_policies
from zapdb.activation.up import AppliedMigration
from zapdb.catalog.kinds import TenantNameRow
from zapdb.catalog.stored_settings import read_settings
from zapdb.catalog.tenants import find_tenant
from zapdb.cluster.registration import Heartbeat, deregister
from zapdb.database.access import Access
from zapdb.database.admin import DatabaseAdmin
from zapdb.database.catalog_watch import Callback
from zapdb.database.change_log import DatabaseChangeLog
from zapdb.database.node_context import (
    NodeContext,
    check_pins,
    prepare_tenant,
    prepare_tenant_read_only,
    rebuild,
)
from zapdb.database.session import Session
from zapdb.database.tenant_refresh import TenantRefresher
from zapdb.database.transactions import Block, Snapshot, Transaction, takes_argument
from zapdb.errors import CatalogChanged, UsageError, ZapdbError
from zapdb.limits import CATALOG
from zapdb.storage import TransactionMode
from zapdb.storage.retries import retry
from zapdb.storage.transaction_owners import in_no_transaction

T = TypeVar("T")


class Database(Access):
    """An open database, as one tenant sees it; a context manager; safe to share between threads.

    `zapdb.open` makes it. Closing it ends the process's registration as a node. `for_tenant` gives
    the same database as another tenant sees it.
    """

    _facets: ClassVar[Mapping[str, type]] = {
        "admin": DatabaseAdmin,
        "change_log": DatabaseChangeLog,
    }

    def __init__(
        self,
        context: NodeContext,
        catalog: TenantCatalog,
        tenant: str,
        applied: tuple[AppliedMigration, ...] = (),
        *,
        shares: Database | None = None,
    ) -> None:
        self.applied = applied
        """The migrations that opening this database put in force."""
        self._node_context = context
        self._tenant = tenant
        self._storage, self._node = context.storage, context.node
        served_position = context.files.served_position
        self._session = Session(
            context.storage, catalog, context.node, served_position, context.pins
        )
        self._session.settings = read_settings(context.storage.connection(), catalog.tenant)
        self._refresher = TenantRefresher(context.watcher, self._session)
        self._owns_node = shares is None
        self._tenants: dict[str, Database] = {} if shares is None else shares._tenants
        self._heartbeat: Heartbeat | None = (
            _start_heartbeat(context) if shares is None else shares._heartbeat
        )

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = ", closed" if self._storage.is_closed else ""
        return (
            f"<zapdb database {self._storage.shown_url}, tenant {self._tenant!r}, "
            f"position {self.position}{state}>"
        )

    def for_tenant(self, name: str) -> Database:
        """The database as another tenant sees it; brings it to what is stored, if it is behind.

        It shares the connections and the registration of this one, and ends with it. Raises
        `UnknownName`, and `ActivationPending` where it can't be brought far enough.
        """
        number = find_tenant(self._storage.connection(), name).number
        applied: list[AppliedMigration] = []
        files, known = self._node_context.files, self._session.catalog
        if self._node is None:
            catalog = prepare_tenant_read_only(self._storage, number, files, known)
        else:
            stored_only = replace(files, apply="never")
            prepare = partial(
                prepare_tenant, self._storage, number, stored_only, 0.0, applied, known
            )
            catalog, _ = retry(CATALOG, prepare, on=CatalogChanged)
        check_pins(self._storage, catalog, self._node_context.pins)
        if self._node is not None and catalog.chain_state.rolling_back is None:
            catalog = apply_dataset_policies(self._storage, catalog, self._node)
            catalog = rebuild(self._storage, catalog)
        return Database(self._node_context, catalog, name, tuple(applied), shares=self)

    @property
    def position(self) -> int:
        """The number of the newest migration in force."""
        return self._session.catalog.position

    @property
    def _catalog(self) -> TenantCatalog:
        """What is in force, as far as this process knows."""
        return self._session.catalog

    @property
    def admin(self) -> DatabaseAdmin:
        """Jobs, settings, tenants, the cluster, the catalog and metrics."""
        return DatabaseAdmin(self._session, self._node_context, self._refresher, self._tenants)

    @property
    def change_log(self) -> DatabaseChangeLog:
        """What became of records and schemas, in order, where the setting `change_log` is on."""
        return DatabaseChangeLog(self._session)

    def transaction(self, *, token: bool = False) -> Block[Transaction]:
        """A writing transaction: `with db.transaction() as tx`; rolled back if the block raises.

        `tx` is its handle: it has the same tables and queries as the database, and what is done
        through it is part of the transaction, from whatever thread or task, one at a time. What
        the task or thread that began it does through `db` is part of it, too; others that inherit
        its context get `UsageError`. Inside another transaction it is a savepoint: if the block
        raises, only what was done in it is undone, and the outer one can go on.

        It can't be repeated by itself: when it meets another transaction, `TransactionConflict` is
        raised. `run` repeats. If COMMIT reports an error, `CommitUnknown` says that it is not known
        whether it took effect; with `token`, that is found out: the block ends as usual if it did,
        and with `TransactionConflict` if it did not. That costs one statement more. Raises
        `ConnectionsBusy` where `max_connections` transactions are open for too long.
        """
        return Block(
            self._session, Transaction, TransactionMode.WRITE, self._session_for_tenant, token=token
        )

    def snapshot(self, *, serializable: bool = False) -> Block[Snapshot]:
        """`with db.snapshot() as snap`: what is read through `snap`, or through `db` by the task or
        thread that began it, is read as of one moment.

        On PostgreSQL, what several transactions wrote beside each other may be seen in an order
        that later contradicts itself (the read-only anomaly), unless it is `serializable`: it waits
        then for a moment at which that can't be, 30 s at most, and raises `TransactionConflict`.
        On SQLite each snapshot is.
        """
        mode = TransactionMode.SERIAL if serializable else TransactionMode.READ
        return Block(self._session, Snapshot, mode, self._session_for_tenant)

    @overload
    def run(self, function: Callable[[], T], *, token: bool = False) -> T: ...

    @overload
    def run(self, function: Callable[[Transaction], T], *, token: bool = False) -> T: ...

    def run(self, function: Callable[..., T], *, token: bool = False) -> T:
        """Call `function` inside a transaction, again whenever it meets another transaction.

        It is given the transaction's handle if it takes a positional argument: `db.run(lambda tx:
        tx.table("items").insert(title="Milk"))`. Returns what it returned. It must not do anything
        else that can't be done twice. Inside another transaction it is called once, as a part of
        that one that is undone if it raises. `token` is as for `transaction`: a COMMIT that turns
        out not to have taken effect is repeated, too.
        """
        takes_handle = takes_argument(function)

        def attempt() -> T:
            block = Block(
                self._session,
                Transaction,
                TransactionMode.WRITE,
                self._session_for_tenant,
                token=token,
                is_repeated=True,
            )
            with block as handle:
                return function(handle) if takes_handle else function()

        if self._session.open_here() is not None:
            return attempt()
        return self._session.repeat(attempt, may_be_exclusive=False)

    def _session_for_tenant(self, name: str) -> Session:
        """The session of another tenant, kept; no open transaction has to do with it."""
        found = self._tenants.get(name)
        if found is None or found._is_of_removed_tenant():
            found = in_no_transaction().run(self.for_tenant, name)
            self._tenants[name] = found
        return found._session

    def _is_of_removed_tenant(self) -> bool:
        """Whether another tenant has the name by now, as far as this process knows."""
        known = self._node_context.watcher.known
        row = None if known is None else known.get(TenantNameRow, self._tenant)
        return row is not None and row.number != self._session.catalog.tenant

    def on_schema_change(self, callback: Callback) -> Callable[[], None]:
        """Call `callback` with each `SchemaChange` of this tenant; returns what ends that.

        It is called in a thread of its own, within about a second after the change, in whichever
        process that was made. What it raises is logged.
        """
        return self._node_context.watcher.on_schema_change(self._session.catalog.tenant, callback)

    def close(self) -> None:
        """End this process's registration and close its connections; safe to repeat.

        Raises `UsageError` inside a transaction or a snapshot of this thread. Those of other
        threads are undone: they get `UsageError`, too.
        """
        if self._storage.is_closed or self._storage.is_inherited:
            return  # where it was forked, the registration and the connections are the parent's
        self._require_no_transaction()
        self._refresher.stop()
        if not self._owns_node:
            return
        self._node_context.watcher.stop()
        if self._heartbeat is not None:
            self._heartbeat.stop()
        if self._node is not None:
            with suppress(ZapdbError):  # if the server is gone, the lease ends by itself
                deregister(self._storage, self._node)
        self._storage.close()

    def _require_no_transaction(self) -> None:
        if self._owns_node and self._storage.is_in_transaction:
            raise UsageError(
                "this thread has an open transaction or snapshot",
                database=self._storage.shown_url,
                hint="leave its with block first; the end of the block commits it, and "
                "an error rolls it back",
            )


def _start_heartbeat(context: NodeContext) -> Heartbeat | None:
    return None if context.node is None else Heartbeat(context.storage, context.node)
