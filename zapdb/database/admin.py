"""Operations for operators and tools on an open database: `db.admin`.

Running jobs, verifying, settings, tenants, the cluster, the catalog and metrics, for the tenant of
the database.
Applications don't need it to read and write.
"""

from __future__ import annotations

from collections.abc import Collection, MutableMapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from zapdb.activation import TableDescriptor, TenantCatalog, load_tenant_catalog
from zapdb.activation.pinned_fingerprints import FingerprintMatch, find_fingerprint
from zapdb.activation.preview import PreviewCatalog
from zapdb.activation.rollback import choose_end
from zapdb.activation.sent_files import read_given
from zapdb.activation.tenant_removal import Removed, remove_tenant
from zapdb.catalog import rows
from zapdb.catalog.cache import CatalogCache
from zapdb.catalog.cluster.cluster_status import NodeStatus, read_nodes
from zapdb.catalog.cluster.level import read_level
from zapdb.catalog.feed import read_seq
from zapdb.catalog.row_kinds import JobKind, Tenant
from zapdb.catalog.schema_history import RevisionEntry, read_entries
from zapdb.catalog.settings import SETTINGS, Scope, find_setting, resolve_scope
from zapdb.catalog.stored_settings import read_settings, unset_setting, write_setting
from zapdb.catalog.tenants import find_tenant, list_tenants
from zapdb.database.metrics_text import render_metrics
from zapdb.database.node_context import NodeContext
from zapdb.database.tenant_refresh import TenantRefresher
from zapdb.errors import UsageError
from zapdb.jobs import plan_jobs
from zapdb.jobs.archive_pruning import drop_kept_tables, forget_migrations
from zapdb.jobs.blob_sweep import SweepReport, sweep_blobs
from zapdb.jobs.index_rebuilding import plan_reindexing
from zapdb.jobs.job_run import JobReport, Runner, run_each, run_locally
from zapdb.jobs.known_revisions import forget_wrong_ranges
from zapdb.jobs.rehearsal import (
    TRIED_RECORDS,
    Rehearsal,
    RehearsalChoice,
    rehearse_migrations,
    rehearse_rolling_back,
    run_rehearsal,
)
from zapdb.jobs.repair import IndexRepair, repair_indexes
from zapdb.jobs.sampling import draw_seed
from zapdb.jobs.tenant_verification import TableReport, verify_by_jobs, verify_tenant
from zapdb.limits import CATALOG_WAIT_SECONDS
from zapdb.past.files.removing import delete_store_files
from zapdb.past.files.wanted_stores import (
    claim_directory,
    create_tenant,
    refuse_unless_all,
    start_wanted_stores,
)
from zapdb.records import group_by_revision
from zapdb.tables.commit_tokens import purge_tokens
from zapdb.tables.did_you_mean import Facet
from zapdb.tables.session import Session


@dataclass(frozen=True, slots=True, repr=False)
class Catalog:
    """A process's copy of the catalog: all rows as of one seq, and the active tables of its
    tenant."""

    cache: CatalogCache
    tenant: TenantCatalog

    def __repr__(self) -> str:
        tables = ", ".join(self.tenant.tables) or "no tables"
        return f"<zapdb catalog at seq {self.seq}: migration {self.position}, {tables}>"

    @property
    def seq(self) -> int:
        return self.cache.seq

    @property
    def position(self) -> int:
        return self.tenant.position

    @property
    def tables(self) -> tuple[TableDescriptor, ...]:
        return tuple(self.tenant.tables.values())


class DatabaseAdmin(Facet):
    """Operations on an open database: running jobs, verifying and repairing, settings, tenants, the
    cluster, the catalog, metrics.

    `db.admin` returns it.
    """

    def __init__(
        self,
        session: Session,
        context: NodeContext,
        refresher: TenantRefresher,
        opened: MutableMapping[str, Any],
    ) -> None:
        self._session = session
        self._storage = session.storage
        self._node_context = context
        self._refresher = refresher
        self._opened = opened
        """The databases of other tenants that this process has open, by name."""

    def __repr__(self) -> str:
        return f"<admin of {self._storage.shown_url}>"

    # Jobs

    def run_jobs(
        self,
        runner: Runner = run_locally,
        kinds: Collection[JobKind] = ("index", "convert", "validate"),
        *,
        retry_quarantined: bool = False,
    ) -> list[JobReport]:
        """Build indexes, validate checks and references, and convert stale records.

        Cancelled jobs that are still needed are planned again. Paused jobs are left out; what is
        paused meanwhile, or outside its window, has a report with `hold`. Records that can't be
        read are put in quarantine and block their job at its end; `retry_quarantined` tries them
        again.
        """
        self._storage.require_writable()
        drop_kept_tables(self._storage, self._tenant)
        jobs = plan_jobs(
            self._storage,
            self._tenant,
            kinds,
            is_by_hand=True,
            retries_quarantined=retry_quarantined,
        )
        return list(run_each(self._storage, jobs, runner))

    def reindex(
        self, table: str | None = None, index: str | None = None, *, runner: Runner = run_locally
    ) -> list[JobReport]:
        """Rebuild indexes with this process's collation and time zone data: those of a table, or
        one of them; without a table, those that this process can't use as they are.

        Meanwhile, queries do without them. If it is interrupted, `run_jobs` goes on. Raises
        `DatasetMismatch` while other processes have other data, and `UnknownName`.
        """
        self._storage.require_writable()
        planned = plan_reindexing(
            self._storage, self._session.catalog, table, index, self._node_context.node
        )
        return list(run_each(self._storage, planned.jobs, runner))

    def count_by_revision(self, table: str) -> dict[int, int]:
        """Return how many records of a table have each revision, 0 if it can't be read."""
        bound = self._session.bind_served(table)
        with self._session.connected() as connection:
            counts = bound.statements.count_by_prefix(connection)
        return group_by_revision(counts)

    def verify(self, runner: Runner | None = None) -> list[TableReport]:
        """Check that every record decodes, that indexes have exactly their entries, and that no
        blob is missing; archived values and the schema history, too.

        All of it is read in one snapshot, and nothing is written. With a runner (`run_locally`, or
        `zapdb.spark.run_on_spark`), it is the work of jobs, in batches, as for `zapdb verify`:
        raises `JobError` if an operator holds one back.
        """
        if runner is None:
            return verify_tenant(self._storage, self._tenant)
        self._storage.require_writable()
        return verify_by_jobs(self._storage, self._tenant, runner)

    def repair(self, *, dry_run: bool = False) -> list[IndexRepair]:
        """Make missing index entries anew, and remove those that no record has; with `dry_run`,
        only count them.

        Returns a report for each index that has something wrong. What is noted about the revisions
        of a table's records is forgotten if it is wrong. Records are never changed. Safe beside
        readers and writers. A repair is a job of `db.jobs`, a dry run is none: raises `LeaseHeld`
        while another process repairs, and `JobError` if the job is cancelled.
        """
        if not dry_run:
            self._storage.require_writable()
            forget_wrong_ranges(self._storage, self._tenant)
        return repair_indexes(self._storage, self._tenant, dry_run=dry_run)

    def sweep(
        self, *, older_than_seconds: float | None = None, dry_run: bool = False
    ) -> SweepReport:
        """Delete large values that no record owns; can run at the same time as any other operation.

        Changing or deleting a record leaves its large values in the database. Values younger than
        the given age, or than the setting `blob_sweep_age_seconds`, are left alone. With `dry_run`
        they are only counted. Expired commit tokens are deleted, too.
        """
        if older_than_seconds is None:
            older_than_seconds = float(self.setting("blob_sweep_age_seconds"))
        report = sweep_blobs(self._storage, older_than_seconds=older_than_seconds, dry_run=dry_run)
        if not dry_run:
            purge_tokens(self._storage)
        return report

    def rehearse(
        self,
        migrations: str | Path | None = None,
        *,
        sample: int = TRIED_RECORDS,
        all_records: bool = False,
        seed: int | None = None,
        max_latency_ms: int | None = None,
    ) -> Rehearsal:
        """Try on this tenant's records what applying the pending migrations of a directory would do
        to them: what would be refused, and what would be lost. Nothing is stored.

        Without `migrations`, the files that the database was opened with are rehearsed, as with
        `preview=True`. All records are read of tables that get unique indexes, checks, references
        or required fields; conversions are tried on `sample` records of each table, drawn by
        `seed`, or on all. While a small query beside it takes longer than `max_latency_ms`, or than
        the setting `job_max_latency_ms`, it slows down.

        Raises `MigrationConflict`, `InvalidMigration`, `NotProven`, `UsageError`, and
        `ConcurrencyError` if the schema changes meanwhile.
        """
        directory = self._node_context.files.directory if migrations is None else Path(migrations)
        if directory is None:
            raise UsageError(
                "a rehearsal needs migration files, and none were given",
                hint="pass migrations=, the directory of the files",
            )
        known = self._session.catalog
        known = known.active if isinstance(known, PreviewCatalog) else known
        seed = draw_seed() if seed is None else seed
        choice = RehearsalChoice(sample, all_records, seed, max_latency_ms)
        with self._session.reading() as connection:
            catalog = load_tenant_catalog(connection, self._tenant, known)
            row = rows.get(connection, Tenant, catalog.tenant)
        assert row is not None, "its catalog was loaded"
        chain = read_given(directory, catalog, prove=True).chain
        return run_rehearsal(rehearse_migrations(self._storage, row.name, catalog, chain, choice))

    def rehearse_rollback(
        self, to: int | None = None, *, max_latency_ms: int | None = None
    ) -> Rehearsal:
        """Try on this tenant's records what rolling back all migrations above number `to`, or the
        newest one, would do: indexes and constraints that come back are tried on all records.
        Nothing is stored. `max_latency_ms` is as in `rehearse`.

        Raises `UsageError` where there is nothing to roll back, and `ConcurrencyError` if the
        schema changes meanwhile.
        """
        choice = RehearsalChoice(seed=0, max_latency_ms=max_latency_ms)
        with self._session.reading() as connection:
            known = self._session.catalog
            known = known.active if isinstance(known, PreviewCatalog) else known
            catalog = load_tenant_catalog(connection, self._tenant, known)
            row = rows.get(connection, Tenant, catalog.tenant)
        assert row is not None, "its catalog was loaded"
        end = choose_end(catalog, to)
        return run_rehearsal(rehearse_rolling_back(self._storage, row.name, catalog, end, choice))

    def forget_rolled_back(self, *, evict: bool = False) -> int:
        """Forget all migrations that were rolled back and are kept: nobody is served the schemas
        that they lead to any more, and the values that only they made are deleted; returns how many
        migrations these were.

        Raises `UsageError` while running processes are served one of them, unless they are to be
        evicted (`evict`).
        """
        return len(forget_migrations(self._storage, now=True, evict=evict)[0])

    # Settings

    def setting(
        self,
        name: str,
        *,
        table: str | None = None,
        field: str | None = None,
        index: str | None = None,
    ) -> str:
        """Return a setting's present value for this tenant, or for a table, field or index of
        it."""
        scope = self._scope(self._tenant, table, field, index)
        with self._session.connected() as connection:
            return read_settings(connection, self._tenant).find(name, scope)[0]

    def settings(
        self, *, table: str | None = None, field: str | None = None, index: str | None = None
    ) -> dict[str, str]:
        """Return all settings by name for this tenant, or for a table, field or index of it.

        `zapdb settings list` describes them, and shows where each value is set.
        """
        scope = self._scope(self._tenant, table, field, index)
        with self._session.connected() as connection:
            settings = read_settings(connection, self._tenant)
        return {name: settings.find(name, scope)[0] for name in SETTINGS}

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
        """Change a setting for the whole database, or for the named part of it; None unsets it.

        Returns the change's seq, for `wait_for_catalog` in other processes. Raises `UnknownName`,
        `UsageError` for a value or a scope that the setting can't have, and `IncompatibleVersion`
        if the setting needs `zapdb cluster upgrade`.

        `history_store` begins a history store for each tenant; raises `UsageError` for a directory
        in which none can be, and, with the setting stored, if some tenants refuse.
        """
        setting = find_setting(name)
        is_of_all = (tenant, table, field, index) == (None, None, None, None)
        if setting.takes_directory and value is not None and is_of_all:
            self._storage.require_writable()
            claim_directory(self._storage, value)
        with self._storage.transaction(setting.mode) as connection:
            number = None if tenant is None else find_tenant(connection, tenant).number
            scope = self._scope(number, table, field, index)
            if value is None:
                seq = unset_setting(connection, name, scope)
            else:
                seq = write_setting(connection, name, value, scope)
        self._refresher.use(read_settings(self._storage.connection(), self._tenant))
        if setting.takes_directory and value is not None:
            refuse_unless_all(start_wanted_stores(self._storage))
        return seq

    # Tenants

    def tenants(self) -> list[Tenant]:
        """Return all tenants, by number."""
        with self._session.reading() as connection:
            return list_tenants(connection)

    def create_tenant(self, name: str) -> int:
        """Create a tenant; raises `TenantExists`. Its tables are created when it is opened.

        With the setting `history_store`, its history store begins with it, or neither is made:
        raises `HistoryUnreachable`, `DiskFull` and `UsageError`.

        Returns a seq for `wait_for_catalog` in other processes, which covers the change.
        """
        create_tenant(self._storage, name)
        return self.catalog_seq()

    def remove_tenant(self, name: str) -> Removed:
        """Delete a tenant with all its data for good.

        Returns how many rows were deleted from each table of the database. A removal that was
        interrupted is finished by the next call. The files of its history store are deleted, too,
        unless another database may use them, of which this one is a copy: `history_left` has these.
        Raises `UnknownName`, `UsageError` for the default tenant, and `HistoryUnreachable`.
        """
        removed = remove_tenant(self._storage, name, partial(delete_store_files, self._storage))
        self._opened.pop(name, None)  # the name is free for another tenant
        return removed

    # The cluster and the catalog

    def cluster_level(self) -> int:
        """Return the cluster level, as of now or of the snapshot."""
        with self._session.connected() as connection:
            return read_level(connection)

    def nodes(self) -> list[NodeStatus]:
        """Return the processes that have the database open, the oldest first."""
        with self._session.reading() as connection:
            return list(read_nodes(connection))

    def catalog(self) -> Catalog:
        """Return the catalog from this process's memory; it is at most about a second old."""
        return Catalog(
            self._node_context.watcher.cache(CATALOG_WAIT_SECONDS), self._session.catalog
        )

    def catalog_seq(self) -> int:
        """Return the seq of the newest catalog write, by any process."""
        with self._session.connected() as connection:
            return read_seq(connection)

    def wait_for_catalog(self, seq: int, timeout_seconds: float = CATALOG_WAIT_SECONDS) -> Catalog:
        """Wait until this process's catalog cache has a seq, and return the catalog; raises
        `CatalogBehind`."""
        known = self._node_context.watcher.wait(seq, timeout_seconds)
        return Catalog(known, self._session.catalog)

    def schema_history(self, table: str) -> list[RevisionEntry]:
        """Return the schema history of a table: an entry for each of its revisions, oldest
        first."""
        number = self._session.bind_served(table).schema.number
        with self._session.reading() as connection:
            return list(read_entries(connection, self._tenant, number))

    def find_fingerprint(self, table: str, fingerprint: int) -> FingerprintMatch:
        """Return whether a table ever had a fingerprint, and what changed since.

        Raises `UnknownName` if no table ever had the name.
        """
        with self._session.reading() as connection:
            return find_fingerprint(connection, self._tenant, table, fingerprint)

    def metrics(self, *, count_records: bool = True) -> str:
        """Return metrics of the database and of this process, as Prometheus text.

        Counting records reads all of them: pass `count_records=False` for frequent calls.
        """
        known = self._node_context.watcher.known
        return render_metrics(
            self._storage,
            self._session.catalog,
            cache_seq=None if known is None else known.seq,
            count_records=count_records,
        )

    @property
    def _tenant(self) -> int:
        return self._session.catalog.tenant

    def _scope(
        self, tenant: int | None, table: str | None, field: str | None, index: str | None
    ) -> Scope:
        catalog = self._session.catalog
        schema = catalog.chain.schema_at(catalog.position)
        return resolve_scope(schema, tenant, table, field, index)
