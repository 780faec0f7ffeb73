"""An open database, as one tenant sees it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar, overload

from zapdb.activation import TableState, View
from zapdb.activation.datasets import settle_datasets
from zapdb.activation.pinning import Stamped, find_fingerprint
from zapdb.activation.up import Applied
from zapdb.catalog.changelog import read_token
from zapdb.catalog.history import Entry, read_entries
from zapdb.catalog.localview import LocalView
from zapdb.catalog.settings import Scope, find_setting, resolve_scope
from zapdb.catalog.stored_settings import read_settings, unset_setting, write_setting
from zapdb.catalog.tenants import Tenant, create_tenant, find_tenant, list_tenants
from zapdb.cluster.nodes import Heartbeat, deregister, read_level
from zapdb.database.access import Access
from zapdb.database.changes import (
    Change,
    ChangeFollower,
    FollowerStatus,
    SchemaEvent,
    find_beginning,
    find_bookmark,
    list_followers,
    read_changes,
)
from zapdb.database.changes_pruning import PrunedChanges, prune_changes
from zapdb.database.following import Callback
from zapdb.database.metrics import render as render_metrics
from zapdb.database.process import Process, check_pins, rebuild, settle, settle_read_only
from zapdb.database.session import Session
from zapdb.database.tokens import purge_tokens
from zapdb.database.transactions import Block, Snapshot, Transaction, takes_argument
from zapdb.database.upkeep import Upkeep
from zapdb.errors import UsageError, ZapdbError
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
from zapdb.records import decode_prefix
from zapdb.storage import Mode, Storage
from zapdb.storage.log import Bookmark
from zapdb.storage.transaction_owners import in_no_transaction

if TYPE_CHECKING:
    pass

T = TypeVar("T")


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


class Database(Access):
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
        shares: Database | None = None,
    ) -> None:
        self.applied = applied
        """The migrations that opening this database put in force."""
        self._process = process
        self._storage, self._node = process.storage, process.node
        serves = process.files.serves
        self._session = Session(process.storage, view, process.node, serves, process.pins)
        self._session.settings = read_settings(process.storage.connection(), view.tenant)
        self._upkeep = Upkeep(process.follower, self._session)
        self._owns_process = shares is None
        self._tenants: dict[str, Database] = {} if shares is None else shares._tenants
        self._heartbeat: Heartbeat | None = (
            _start_heartbeat(process) if shares is None else shares._heartbeat
        )

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
        if self._node is None:
            view = settle_read_only(self._storage, number, files, self.view)
        else:
            view, _ = settle(self._storage, number, files, "never", 0.0, applied, self.view)
        check_pins(self._storage, view, self._process.pins)
        if self._node is not None and view.chain_state.forgetting is None:
            view = settle_datasets(self._storage, view, self._node)
            view = rebuild(self._storage, view)
        return Database(self._process, view, tuple(applied), shares=self)

    def create_tenant(self, name: str) -> int:
        """Enter a new tenant; raises `TenantExists`. It begins when it is opened.

        Returns a token for `wait_for_catalog` in other processes, which covers the change.
        """
        create_tenant(self._storage, name)
        return self.catalog_token()

    def tenants(self) -> list[Tenant]:
        """All tenants, by number."""
        with self._session.reading() as connection:
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
        return Block(self._session, Transaction, Mode.WRITE, self._session_for_tenant, token=token)

    def snapshot(self, *, serializable: bool = False) -> Block[Snapshot]:
        """`with db.snapshot() as snap`: what is read through `snap`, or through `db` by the task or
        thread that began it, is read as of one moment.

        On PostgreSQL, what several transactions wrote beside each other may be seen in an order
        that later contradicts itself (the read-only anomaly), unless it is `serializable`: it waits
        then for a moment at which that can't be, 30 s at most, and raises `TransactionConflict`.
        On SQLite each snapshot is.
        """
        mode = Mode.SERIAL if serializable else Mode.READ
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
                Mode.WRITE,
                self._session_for_tenant,
                token=token,
                is_repeated=True,
            )
            with block as handle:
                return function(handle) if takes_handle else function()

        if self._session.open_here() is not None:
            return attempt()
        return self._session.repeat(attempt, may_be_alone=False)

    def _session_for_tenant(self, name: str) -> Session:
        """The session of another tenant, kept; no open transaction has to do with it."""
        found = self._tenants.get(name)
        if found is None:
            found = in_no_transaction().run(self.for_tenant, name)
            self._tenants[name] = found
        return found._session

    def cluster_level(self) -> int:
        """The capability level of the cluster, as of now or of the snapshot."""
        return read_level(self._storage.connection())

    def setting(
        self,
        name: str,
        *,
        table: str | None = None,
        field: str | None = None,
        index: str | None = None,
    ) -> str:
        """What a setting is for this tenant, or for a table, field or index of it, as of now."""
        scope = self._scope(self.view.tenant, table, field, index)
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
        index: str | None = None,
    ) -> int:
        """Set a setting for the whole database, or what is named of it; None takes it back.

        Returns the change's token, for `wait_for_catalog` in other processes. Raises `UnknownName`,
        `UsageError` for a value or a scope that the setting can't have, and `IncompatibleVersion`
        where the database needs `zapdb cluster upgrade` for it.
        """
        with self._storage.transaction(find_setting(name).mode) as connection:
            number = None if tenant is None else find_tenant(connection, tenant).number
            scope = self._scope(number, table, field, index)
            if value is None:
                token = unset_setting(connection, name, scope)
            else:
                token = write_setting(connection, name, value, scope)
        self._upkeep.use(read_settings(self._storage.connection(), self.view.tenant))
        return token

    def _scope(
        self, tenant: int | None, table: str | None, field: str | None, index: str | None
    ) -> Scope:
        schema = self.view.chain.schema_at(self.view.position)
        return resolve_scope(schema, tenant, table, field, index)

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
        self._storage.refuse_write()
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
        with self._session.reading() as connection:
            return list(read_entries(connection, self.view.tenant, number))

    def changes(self, since: Bookmark | str | None = None) -> Iterator[Change | SchemaEvent]:
        """What became of records and schemas since a bookmark, or ever, as far as it was recorded;
        in order, and up to now.

        Changes are recorded where the setting `history` is on. Those of one `timestamp` became
        visible together. Each has a `bookmark` to go on from, whose text can be kept anywhere;
        `follower` keeps it in the database. Raises `UsageError` for what is no bookmark of this
        database, and inside `db.transaction()`; `ChangesPruned` where changes behind the bookmark
        are not there any more; `IncompatibleVersion` where `zapdb cluster upgrade` has to make room
        for the log.
        """
        place = None if since is None else Bookmark.parse(str(since))
        return read_changes(self._session, place)

    def change_bookmark(self) -> Bookmark:
        """The bookmark behind all changes that there are now: to follow from now on."""
        return find_bookmark(self._session)

    def change_beginning(self) -> Bookmark:
        """The bookmark in front of all changes that are still there: to go on with a gap."""
        return find_beginning(self._session)

    def prune_changes(
        self, before: datetime | Bookmark | str, *, dry_run: bool = False
    ) -> PrunedChanges:
        """Delete the changes before a moment or a bookmark for good: whole transactions, from the
        oldest on, up to the first that was made at the moment or later.

        They go in short transactions beside those who write. If that is interrupted, the next call
        goes on with it. With `dry_run` it is said what would go. Raises `UsageError`, and deletes
        nothing, while a named follower has not seen all of it, and `ForgetInProgress`.
        """
        return prune_changes(self._session, before, dry_run=dry_run)

    def follower(self, name: str) -> ChangeFollower:
        """Whoever follows the changes under a name, from where that name has come to."""
        return ChangeFollower(self._session, name)

    def followers(self) -> list[FollowerStatus]:
        """The named followers of this tenant's changes, and what each has not seen."""
        with self._session.reading() as connection:
            return list_followers(connection, self.view.tenant)

    def find_fingerprint(self, table: str, fingerprint: int) -> Stamped:
        """Whether a fingerprint was ever stamped on a table, and what changed since.

        Raises `UnknownName` where no table ever had the name.
        """
        with self._session.reading() as connection:
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
        Tokens of commits that settle nothing any more are deleted, too.
        """
        if older_than_seconds is None:
            older_than_seconds = float(self.setting("blob_sweep_age_seconds"))
        report = sweep_blobs(self._storage, older_than_seconds=older_than_seconds, dry_run=dry_run)
        if not dry_run:
            purge_tokens(self._storage)
        return report

    def close(self) -> None:
        """End this process's registration and close its connections; safe to repeat.

        Raises `UsageError` inside a transaction or a snapshot of this thread. Those of other
        threads are undone: they get `UsageError`, too.
        """
        if self._storage.is_closed or self._storage.is_inherited:
            return  # where it was forked, the registration and the connections are the parent's
        self._refuse_open_transaction()
        self._upkeep.stop()
        if not self._owns_process:
            return
        self._process.follower.stop()
        if self._heartbeat is not None:
            self._heartbeat.stop()
        if self._node is not None:
            with suppress(ZapdbError):  # if the server is gone, the lease ends by itself
                deregister(self._storage, self._node)
        self._storage.close()

    def _refuse_open_transaction(self) -> None:
        if self._owns_process and self._storage.is_in_transaction:
            raise UsageError(
                "this thread has a transaction or a snapshot open",
                database=self._storage.shown_url,
                hint="leave its with block first: it is committed at its end, or undone by an "
                "error",
            )


def _start_heartbeat(process: Process) -> Heartbeat | None:
    return None if process.node is None else Heartbeat(process.storage, process.node)
