"""An open database, as one tenant sees it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, TypeVar, overload

from zapdb.activation import TenantCatalog
from zapdb.activation.datasets import apply_dataset_policies
from zapdb.activation.up import AppliedMigration
from zapdb.catalog.cluster.node_registration import Heartbeat, deregister
from zapdb.catalog.cluster.stamping import give_stamp
from zapdb.catalog.row_kinds import KindName, TenantNameRow
from zapdb.catalog.stored_settings import read_settings
from zapdb.catalog.tenants import find_tenant
from zapdb.database.admin import DatabaseAdmin
from zapdb.database.catalog_watch import Callback
from zapdb.database.change_log_facet import DatabaseChangeLog
from zapdb.database.history_facet import DatabaseHistory
from zapdb.database.history_threads import HistoryThreads
from zapdb.database.job_control import DatabaseJobs
from zapdb.database.node_context import (
    NodeContext,
    PreparedTenant,
    check_pins,
    prepare_tenant,
    prepare_tenant_for_preview,
    prepare_tenant_read_only,
    rebuild,
)
from zapdb.database.past import Past
from zapdb.database.table_access import Access
from zapdb.database.tenant_refresh import TenantRefresher
from zapdb.database.transaction_blocks import Block, Snapshot, Transaction, takes_argument
from zapdb.errors import CatalogChanged, UsageError, ZapdbError
from zapdb.jobs.archive_pruning import drop_kept_tables
from zapdb.limits import CATALOG, WRITE
from zapdb.past.reading.audit import AuditEntry, list_audit
from zapdb.past.reading.difference import (
    RecordDifference,
    TableDifference,
    list_differences,
    list_schema_differences,
)
from zapdb.past.reading.listing import MomentSummary, list_moments
from zapdb.past.reading.moment import (
    Moment,
    When,
    find_before,
    find_moment,
    require_no_preview,
)
from zapdb.past.reading.versions import Version, list_named_versions
from zapdb.storage import TransactionMode
from zapdb.storage.retries import Beaten, retry
from zapdb.storage.transaction_owners import in_no_transaction
from zapdb.tables.change_decoding import RecordChange, SchemaEvent
from zapdb.tables.given_functions import require_no_coroutine, require_plain_function
from zapdb.tables.session import Session

T = TypeVar("T")


class Database(Access):
    """An open database, as one tenant sees it; a context manager; safe to share between threads.

    `zapdb.open` returns it. Closing it removes the process's registration as a node. `for_tenant`
    returns the same database for another tenant.
    """

    _facets: ClassVar[Mapping[str, type]] = {
        "admin": DatabaseAdmin,
        "change_log": DatabaseChangeLog,
        "history": DatabaseHistory,
        "jobs": DatabaseJobs,
    }

    def __init__(
        self,
        context: NodeContext,
        prepared: PreparedTenant,
        tenant: str,
        applied: tuple[AppliedMigration, ...] = (),
        *,
        shares: Database | None = None,
    ) -> None:
        self.applied = applied
        """The migrations that opening this database activated."""
        self._node_context = context
        self._tenant = tenant
        self._storage, self._node = context.storage, context.node
        catalog = prepared.catalog
        self._session = context.open_session(prepared)
        self._session.settings = read_settings(context.storage.connection(), catalog.tenant)
        self._subscriptions: list[Callable[[], None]] = []
        self._refresher = TenantRefresher(context.watcher, self._session)
        self._history_threads: HistoryThreads = (
            HistoryThreads(context.storage) if shares is None else shares._history_threads
        )
        self._owns_node = shares is None
        self._tenants: dict[str, Database] = {} if shares is None else shares._tenants
        self._tenant_seen_at = 0
        """The seq of the newest catalog cache that was seen to have this tenant under its name."""
        self._tenant_numbers: set[int] = set() if shares is None else shares._tenant_numbers
        self._tenant_numbers.add(catalog.tenant)
        self._heartbeat: Heartbeat | None = (
            _start_heartbeat(context) if shares is None else shares._heartbeat
        )

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = ", closed" if self._storage.pool.is_closed else ""
        return (
            f"<zapdb database {self._storage.shown_url}, tenant {self._tenant!r}, "
            f"position {self.position}{state}>"
        )

    def for_tenant(self, name: str) -> Database:
        """Return the database for another tenant, which is migrated first if it is behind.

        It shares this database's connections and registration, and is closed with it. Raises
        `UnknownName`, and `ActivationPending` if the tenant can't be migrated to the served
        position.
        """
        number = find_tenant(self._storage.connection(), name).number
        applied: list[AppliedMigration] = []
        files, known = self._node_context.files, self._session.catalog
        if self._node_context.preview is not None:
            prepared = prepare_tenant_for_preview(self._storage, number, known)
        elif self._node is None:
            prepared = prepare_tenant_read_only(self._storage, number, files, known)
        else:
            stored_only = replace(files, apply="never")
            agreed = PreparedTenant(known, self._session.served)
            prepare = partial(
                prepare_tenant, self._storage, number, stored_only, 0.0, applied, agreed
            )
            prepared = retry(CATALOG, prepare, on=CatalogChanged)
        check_pins(self._storage, prepared.catalog, self._node_context.pins)
        if self._node is not None:
            catalog = apply_dataset_policies(self._storage, prepared.catalog, self._node)
            prepared = replace(prepared, catalog=rebuild(self._storage, catalog))
        return Database(self._node_context, prepared, name, tuple(applied), shares=self)

    @property
    def position(self) -> int:
        """The number of the newest active migration."""
        return self._session.catalog.position

    @property
    def _catalog(self) -> TenantCatalog:
        """The tenant catalog that this process has loaded."""
        return self._session.catalog

    @property
    def admin(self) -> DatabaseAdmin:
        """Settings, tenants, the cluster, the catalog, metrics; running jobs, verifying."""
        return DatabaseAdmin(self._session, self._node_context, self._refresher, self._tenants)

    @property
    def jobs(self) -> DatabaseJobs:
        """The jobs of this tenant, of all processes: how far they are; pausing, throttling."""
        return DatabaseJobs(self._session)

    @property
    def change_log(self) -> DatabaseChangeLog:
        """The changes of records and schemas in order, if the setting `change_log` is on."""
        require_no_preview(self._session)
        return DatabaseChangeLog(self._session)

    @property
    def history(self) -> DatabaseHistory:
        """The history store: the past of the tables in files, written behind the change log."""
        require_no_preview(self._session)
        return DatabaseHistory(self._session, self._history_threads)

    def at(self, when: When) -> Past:
        """Return the database as it was at a moment, read by the change log: `db.at(yesterday)`.

        A moment is the state after one transaction of the log. `when` is a time with its zone, for
        the state after the last moment that was visible before it; or a `Moment` of `moments()`,
        its number, a change of `db.change_log.read()`, or a bookmark: the state directly after
        their whole transaction. The answer never changes.

        Raises `MomentInFuture` for a time that is not over within a second, `HistoryPurged` if
        changes since were pruned, `HistoryBehind` for a time above the log's watermark in a process
        that writes nothing, and `UsageError` inside a writing transaction.
        """
        return Past(self._session, find_moment(self._session, when))

    def before(self, change: RecordChange | SchemaEvent | Moment) -> Past:
        """Return the database as it was before the whole transaction of a change, or a moment."""
        return Past(self._session, find_before(self._session, change))

    def moments(
        self,
        *,
        since: When | None = None,
        until: When | None = None,
        principal: str | None = None,
        table: str | None = None,
    ) -> Iterator[MomentSummary]:
        """Iterate the moments after one up to another, newest first: who changed how many records
        of which tables, and when. Only those of a principal, or of a table, if they are given.

        Raises the errors of `at`, `UnknownName`, and `HistoryGap` if there is nothing to tell while
        the change log is off.
        """
        return list_moments(self._session, since, until, principal, table)

    def diff(
        self, first: When, second: When, *, tables: Collection[str] | None = None
    ) -> Iterator[RecordDifference]:
        """Iterate what differs between two moments, by table and key: the net change of each
        record, not step by step. Records are under the schemas of their moments.

        Fields that only one of the two schemas has are no differences of records: see
        `diff_schemas`. Raises the errors of `at` and of `past.table`, and `UnknownName`. If a
        migration between the moments has changed a table's stored values, all its records of both
        moments are compared, which needs the history store.
        """
        return list_differences(self._session, first, second, tables)

    def audit(
        self,
        *,
        since: When | None = None,
        until: When | None = None,
        principal: str | None = None,
        table: str | None = None,
        field: str | None = None,
    ) -> Iterator[AuditEntry]:
        """Iterate who changed what after one moment up to another, newest first: each change of a
        record with its values before and after, and each change of a schema.

        Only changes by a principal, of a table, or of a field, if they are given; tables and fields
        may have other names by now. What was pruned from the change log is told by the files of
        the history store. In SQL, what the log has is `zapdb_audit`. Raises the errors of `at`, of
        `past.table`, `UnknownName` and `UnknownField`, and `HistoryGap` if there is nothing to tell
        while the change log is off.
        """
        return list_audit(
            self._session, since, until, principal=principal, table=table, field=field
        )

    def versions(self, table: str, /, *key: Any) -> list[Version]:
        """Return the versions of the record with this key in the table with this name, and in
        dropped tables that had it, oldest first: as `db.table(name).history(key)`, also where there
        is no such table any more. Raises its errors, and `UnknownName`."""
        return list_named_versions(self._session, table, lambda _: key)

    def diff_schemas(self, first: When, second: When) -> list[TableDifference]:
        """Return how the schemas of tables differ between two moments; raises the errors of
        `at`."""
        return list_schema_differences(self._session, first, second)

    def transaction(self, *, token: bool = False) -> Block[Transaction]:
        """Begin a writing transaction: `with db.transaction() as tx`; rolled back if the block
        raises.

        `tx` is its handle: it has the same tables and queries as the database. All operations
        through the handle are part of the transaction, from any thread or task, one at a time.
        Operations through `db` of the task or thread that began it are part of it, too; others that
        inherit its context get `UsageError`. Inside another transaction it is a savepoint: if the
        block raises, only the block's operations are rolled back, and the outer transaction can
        continue.

        The block can't be retried automatically: if it conflicts with a concurrent transaction, it
        raises `TransactionConflict`; `run` retries. If COMMIT reports an error, `CommitUnknown`
        says that its outcome is not known. With `token`, a commit token tells the outcome, for one
        more statement: the block ends as usual if the COMMIT took effect, else with
        `TransactionConflict`. Raises `ConnectionsBusy` if `max_connections` transactions stay open
        for too long.
        """
        return Block(
            self._session, Transaction, TransactionMode.WRITE, self._session_for_tenant, token=token
        )

    def snapshot(self, *, serializable: bool = False) -> Block[Snapshot]:
        """Begin a snapshot: `with db.snapshot() as snap`. Reads through `snap`, or through `db` by
        the task or thread that began it, are as of one moment.

        On PostgreSQL, a snapshot may show concurrent transactions in an order that a later read
        contradicts (the read-only anomaly). A `serializable` one waits for a safe moment, 30 s at
        most, and then raises `TransactionConflict`. On SQLite every snapshot is serializable.
        """
        mode = TransactionMode.SERIAL if serializable else TransactionMode.READ
        return Block(self._session, Snapshot, mode, self._session_for_tenant)

    @overload
    def run(self, function: Callable[[], T], *, token: bool = False) -> T: ...

    @overload
    def run(self, function: Callable[[Transaction], T], *, token: bool = False) -> T: ...

    def run(self, function: Callable[..., T], *, token: bool = False) -> T:
        """Call `function` inside a transaction, and retry it after conflicts.

        The function gets the transaction's handle if it takes a positional argument: `db.run(lambda
        tx: tx.table("items").insert(title="Milk"))`. Returns the function's result. The function
        must not have other effects that can't be repeated. Inside another transaction it is called
        once, in a savepoint. `token` is as for `transaction`; a COMMIT that did not take effect is
        retried, too. On PostgreSQL, a function that short transactions of others have beaten six
        times may go alone: others wait for it, if none of its tries took as long as 1 s.
        """
        require_plain_function(function, "run", "db.run(lambda tx: …)")
        takes_handle, beaten = takes_argument(function), Beaten()

        def attempt() -> T:
            block = Block(
                self._session,
                Transaction,
                TransactionMode.WRITE,
                self._session_for_tenant,
                token=token,
                beaten=beaten,
            )
            with beaten.measured(), block as handle:
                made = function(handle) if takes_handle else function()
                require_no_coroutine(made, function, "run")
                return made

        if self._session.open_here() is not None:
            return attempt()
        return retry(WRITE, attempt, before_again=beaten.before_again)

    def _session_for_tenant(self, name: str) -> Session:
        """Return the session of another tenant, which is kept; it is outside any open
        transaction."""
        return self._open_for_tenant(name)._session

    def _open_for_tenant(self, name: str) -> Database:
        """Return the database of a tenant, which is kept."""
        found = self._tenants.get(name)
        if found is None or found._is_of_removed_tenant():
            found = in_no_transaction().run(self.for_tenant, name)
            self._tenants[name] = found
        return found

    def _is_of_removed_tenant(self) -> bool:
        """Return whether the catalog cache has another tenant under the name."""
        known = self._node_context.watcher.known
        if known is None or known.seq == self._tenant_seen_at:
            return False
        row = known.get(TenantNameRow, self._tenant)
        if row is not None and row.number != self._session.catalog.tenant:
            return True
        self._tenant_seen_at = known.seq
        return False

    def on_catalog_change(
        self,
        callback: Callback,
        *,
        kinds: Collection[KindName] | None = None,
        all_tenants: bool = False,
    ) -> Callable[[], None]:
        """Call `callback` with each `CatalogChange` that this process learns of: settings, tenants,
        jobs, processes, states of indexes and constraints; returns a function that ends this.

        `kinds` are the kinds of rows to hear of, all by default. Rows of other tenants than this
        one are left out, unless `all_tenants`. A schema change is one of `{"tenant", "index",
        "constraint"}`: the tenant's row has its position. It is called in its own thread, one
        change after the other, within about a second after it was made by any process, when this
        process works with it. An exception of the callback is logged. Raises `UnknownName` for a
        kind, and `UsageError` for an async function, which `zapdb.aio` awaits.
        """
        self._storage.require_open()
        require_plain_function(callback, "on_catalog_change", "db.on_catalog_change(tell)")
        chosen = (kinds,) if isinstance(kinds, str) else kinds
        tenant = None if all_tenants else self._session.catalog.tenant
        end = self._node_context.watcher.subscribe(callback, chosen, tenant)
        self._subscriptions.append(end)
        return end

    def close(self) -> None:
        """Remove this process's registration and close its connections; can be called again.

        Raises `UsageError` inside a transaction or a snapshot of this thread. Transactions of other
        threads are rolled back, and raise `UsageError`, too.
        """
        if self._storage.pool.is_closed or self._storage.pool.is_inherited:
            return  # in a forked process, the registration and the connections are the parent's
        self._require_no_transaction()
        for end in self._subscriptions:
            end()
        self._refresher.stop()
        self._history_threads.stop(None if self._owns_node else self._session.catalog.tenant)
        if not self._owns_node:
            return
        self._node_context.watcher.stop()
        if self._node is not None:
            with suppress(ZapdbError):  # or the next heartbeat of another process does it
                self._give_last_stamps()
        if self._heartbeat is not None:
            self._heartbeat.stop()
        if self._node is not None:
            with suppress(ZapdbError):  # if the server can't be reached, the lease expires
                deregister(self._storage, self._node)
                # Maybe a table was kept for this process alone.
                catalog = self._session.catalog
                drop_kept_tables(self._storage, catalog.tenant, catalog)
        self._storage.close()

    def _give_last_stamps(self) -> None:
        """Let processes that write nothing see what this one has written."""
        for tenant in sorted(self._tenant_numbers):
            give_stamp(self._storage, tenant)

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
