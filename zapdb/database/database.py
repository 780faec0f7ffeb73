"""An open database, as one tenant sees it."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar, overload

from zapdb.catalog import TableState, View
from zapdb.catalog.changelog import read_token
from zapdb.catalog.datasets import settle_datasets
from zapdb.catalog.history import Entry, read_entries
from zapdb.catalog.localview import LocalView
from zapdb.catalog.nodes import Heartbeat, deregister, read_level
from zapdb.catalog.pinning import Stamped, find_fingerprint
from zapdb.catalog.settings import Scope, find_setting, resolve_scope
from zapdb.catalog.stored_settings import read_settings, unset_setting, write_setting
from zapdb.catalog.tenants import Tenant, create_tenant, find_tenant, list_tenants
from zapdb.catalog.up import Applied
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
from zapdb.database.models import Model, check_class, table_name
from zapdb.database.process import Process, check_pins, settle, settle_read_only
from zapdb.database.session import Session
from zapdb.database.table import Table
from zapdb.database.tokens import purge_tokens
from zapdb.database.upkeep import Upkeep
from zapdb.errors import TransactionConflict, UsageError, ZapdbError
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
from zapdb.limits import CATALOG_WAIT_SECONDS, SQL_MEMORY_SIZE_BYTES, SQL_ROWS, SQL_SECONDS
from zapdb.records import decode_prefix
from zapdb.storage import Storage
from zapdb.storage.log import Bookmark

if TYPE_CHECKING:
    from zapdb.database.sql import Result

T = TypeVar("T")
M = TypeVar("M")
"""A table as generated models declare it."""

BLOCK_HINT: Final = (
    "nothing was written; a with block can't be run again by itself: run it again, or put what it "
    "does into a function and call db.run(function)"
)


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
        return Database(self._process, view, tuple(applied), shares=self)

    def create_tenant(self, name: str) -> None:
        """Enter a new tenant; raises `TenantExists`. It begins when it is opened."""
        create_tenant(self._storage, name)

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

    @overload
    def table(self, name: str) -> Table: ...

    @overload
    def table(self, name: type[Model[M]]) -> M: ...

    def table(self, name: str | type[Model[Any]]) -> Any:
        """A table by its name, or by the class of its records in generated models.

        Raises `UnknownName`, naming the tables that there are, and `ModelsMismatch` for a class
        that is not that of the table's records.
        """
        table = Table(self._session, table_name(name))
        if not isinstance(name, str):
            check_class(name, self._session.live(table.name).shape.codec.record)
        return table

    @contextmanager
    def transaction(self, *, token: bool = False) -> Iterator[None]:
        """A writing transaction of this thread; rolled back if the block raises.

        Inside another one it is a savepoint: if the block raises, only what was done in it is
        undone, and the outer one can go on. Other threads have transactions of their own.

        It can't be repeated by itself: when it meets another transaction, `TransactionConflict` is
        raised. `run` repeats. If COMMIT reports an error, `CommitUnknown` says that it is not known
        whether it took effect; with `token`, that is found out: the block ends as usual if it did,
        and with `TransactionConflict` if it did not. That costs one statement more.
        """
        if self._storage.is_in_transaction:
            self._session.refuse_inner_token(token)
            with self._session.writing():
                yield
            return
        try:
            with self._session.settled(token):
                yield
        except TransactionConflict as conflict:
            conflict.hint = BLOCK_HINT
            raise

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """What this thread reads in the block, it reads as of one moment."""
        with self._session.snapshot():
            yield

    def run(self, function: Callable[[], T], *, token: bool = False) -> T:
        """Call `function` inside a transaction, again whenever it meets another transaction.

        Returns what it returned. It must not do anything else that can't be done twice. Inside
        another transaction it is called once, as a part of that one that is undone if it raises.
        `token` is as for `transaction`: a COMMIT that turns out not to have taken effect is
        repeated, too.
        """
        if self._storage.is_in_transaction:
            self._session.refuse_inner_token(token)

        def attempt() -> T:
            with self._session.settled(token):
                return function()

        return self._session.run(attempt, may_be_alone=False)

    def sql(
        self,
        statement: str,
        params: Sequence[Any] | Mapping[str, Any] | None = None,
        *,
        as_text: Collection[str] = (),
        max_memory: int = SQL_MEMORY_SIZE_BYTES,
        seconds: float = SQL_SECONDS,
        max_rows: int = SQL_ROWS,
        spill_to: str | os.PathLike[str] | None = None,
    ) -> Result:
        """The answer of one SQL SELECT over the tables, by DuckDB: read-only, as of one moment.

        That is the moment of the snapshot or transaction that this thread is in, or its own. The
        tables that are named are streamed, and of them the columns that are used; the answer is in
        memory. `params` are the values of `?` or `$1`, or by name of `$name`. The catalog is there
        as `zapdb_migrations`, `zapdb_nodes` and others: `show tables` lists all. Integers beyond 64
        bits, and decimals beyond 38 digits, raise `InvalidValue`, unless `as_text` makes strings of
        their field: `as_text=["orders.serial"]`.

        A statement runs in a process of its own, which opens no file and is killed when it takes
        longer than `seconds`, or more than `max_memory` bytes; `SqlLimitExceeded` says which, also
        of an answer of more than `max_rows`. Under the directory `spill_to` it may keep what it has
        no memory for, in one of its own that goes with it; without, it has no files at all.

        Raises `SqlError`, with the place in the statement, and `UsageError` for what is no SELECT.
        Needs the extra `sql`.
        """
        from zapdb.database.sql import Allowance, run_sql

        allowance = Allowance(max_memory, seconds, max_rows, spill_to)
        return run_sql(self._session, statement, params, as_text, allowance)

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
