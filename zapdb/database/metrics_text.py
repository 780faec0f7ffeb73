"""Metrics in Prometheus's text format: the state of a database, read on each request, and the
counters of this process (`zapdb.metrics`).

Labels are bounded: tenants are named up to a limit, those furthest behind first, and only counted
beyond it. Processes and leases are counted by state.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from zapdb import metrics as counted
from zapdb.activation import TenantCatalog, load_tenant_catalog
from zapdb.activation.preview import PreviewCatalog
from zapdb.catalog.cluster.leases import list_leases
from zapdb.catalog.cluster.level import read_level
from zapdb.catalog.cluster.nodes import list_nodes
from zapdb.catalog.feed import read_horizon, read_seq
from zapdb.catalog.row_kinds import Tenant
from zapdb.catalog.tenants import list_tenants
from zapdb.jobs.job import OPEN_STATES, list_jobs
from zapdb.jobs.job_status import read_table_statuses
from zapdb.limits import METRICS_TENANTS_MAX
from zapdb.log.change_log import ChangeLog
from zapdb.past.files.history_manifest import read_store
from zapdb.printing import ShownText
from zapdb.storage import Connection, Storage, TransactionMode
from zapdb.storage.identities import count_of
from zapdb.tables.changes import list_followers

if TYPE_CHECKING:
    from prometheus_client.core import Metric

Sample = tuple[tuple[str, ...], float]


@dataclass(frozen=True, slots=True)
class Gauge:
    """A family of values that may rise and fall: the labels' names, and a value for each
    combination of the labels' values."""

    name: str
    description: str
    labels: tuple[str, ...]
    samples: tuple[Sample, ...]


def _gauge(name: str, description: str, *labels: str) -> _Family:
    return _Family(f"zapdb_{name}", description, labels)


@dataclass(frozen=True, slots=True)
class _Family:
    name: str
    description: str
    labels: tuple[str, ...]

    def of(self, value: float) -> Gauge:
        return Gauge(self.name, self.description, self.labels, (((), value),))

    def each(self, samples: Iterable[Sample]) -> Gauge:
        return Gauge(self.name, self.description, self.labels, tuple(samples))


_LEVEL = _gauge("cluster_level", "The cluster level, which every process must support.")
STORED_END = _gauge("stored_end", "The number of the newest stored migration.")
_TENANTS = _gauge("tenants", "The number of tenants.")
BEHIND = _gauge(
    "tenants_behind",
    "The number of tenants for which another migration is active than the newest stored one.",
)
POSITION = _gauge(
    "tenant_position", "The number of the newest migration that is active for a tenant.", "tenant"
)
SEQ = _gauge("catalog_seq", "The seq of the newest catalog write.")
CACHE_SEQ = _gauge("catalog_cache_seq", "The seq of this process's catalog cache.")
CACHE_LAG = _gauge(
    "catalog_cache_lag", "The number of catalog writes that this process's catalog cache lacks."
)
HORIZON = _gauge("catalog_horizon", "The seq up to which tombstones may be purged.")
NODES = _gauge("nodes", "Processes that have the database open, by state: live or dead.", "state")
_LEASES = _gauge("leases", "Leases by state: held or expired.", "state")
JOBS = _gauge("jobs", "Jobs of the tenant, by kind and state.", "kind", "state")
RECORDS = _gauge("records", "Records of a table.", "tenant", "table")
STALE = _gauge(
    "stale_records",
    "Records of a table that are stale: written under an earlier layout.",
    "tenant",
    "table",
)
INDEXES = _gauge(
    "index_state", "1 for the state that an index is in.", "tenant", "table", "index", "state"
)
UNVALIDATED = _gauge(
    "unvalidated_constraints",
    "Checks and references that are not validated for all records yet.",
    "tenant",
    "table",
)

JOB_WAITS = _gauge(
    "job_waits",
    "Whether a job's process waits for something outside of the database: a mirror whose target "
    "can't be reached, or has tables that are not kept, or an import whose source is away.",
    "tenant",
    "kind",
    "subject",
)
FOLLOWER_LAG = _gauge(
    "follower_lag_seconds",
    "The age of the oldest change that a follower of the change log has not read.",
    "tenant",
    "follower",
)
FOLLOWER_BEHIND = _gauge(
    "follower_changes_behind",
    "Changes that a follower of the change log has not read, counted up to a limit.",
    "tenant",
    "follower",
)
LOG_CHANGES = _gauge(
    "change_log_changes",
    "Changes that are in the change log, counted up to a limit.",
    "tenant",
)
LOG_AGE = _gauge(
    "change_log_seconds",
    "The age of the oldest change in the change log.",
    "tenant",
)
STORE_PROBLEM = _gauge(
    "history_store_problem",
    "Whether something is in the way of a tenant's history store, or it is broken.",
    "tenant",
)
STORE_SECONDS = _gauge(
    "history_store_flushed_seconds",
    "How long ago the history store took changes into files.",
    "tenant",
)


FAMILIES: Final = (
    _LEVEL,
    STORED_END,
    _TENANTS,
    BEHIND,
    POSITION,
    SEQ,
    CACHE_SEQ,
    CACHE_LAG,
    HORIZON,
    NODES,
    _LEASES,
    JOBS,
    RECORDS,
    STALE,
    INDEXES,
    UNVALIDATED,
    JOB_WAITS,
    FOLLOWER_LAG,
    FOLLOWER_BEHIND,
    LOG_CHANGES,
    STORE_PROBLEM,
    STORE_SECONDS,
    LOG_AGE,
)


def render_metrics(
    storage: Storage,
    catalog: TenantCatalog,
    *,
    cache_seq: int | None = None,
    count_records: bool = True,
) -> str:
    """Return the text for the tenant catalog's tenant; `cache_seq` is the seq of the process's
    catalog cache, if it has one.

    Counting reads all records, so `count_records=False` leaves the counts of records out.
    """
    return ShownText(
        _to_text(read_gauges(storage, catalog, cache_seq=cache_seq, count_records=count_records))
    )


def read_gauges(
    storage: Storage,
    catalog: TenantCatalog,
    *,
    cache_seq: int | None = None,
    count_records: bool = True,
) -> list[Gauge]:
    """Return the state of the database as of one moment."""
    with storage.transaction(TransactionMode.READ) as connection:
        known = catalog.active if isinstance(catalog, PreviewCatalog) else catalog
        catalog = load_tenant_catalog(connection, catalog.tenant, known)
        return list(_read(connection, catalog, cache_seq, count_records))


def _read(
    connection: Connection, catalog: TenantCatalog, cache_seq: int | None, count_records: bool
) -> Iterator[Gauge]:
    seq, end = read_seq(connection), catalog.stored_chain.end
    yield _LEVEL.of(read_level(connection))
    yield STORED_END.of(end)
    yield SEQ.of(seq)
    yield HORIZON.of(read_horizon(connection))
    if cache_seq is not None:
        yield CACHE_SEQ.of(cache_seq)
        yield CACHE_LAG.of(max(0, count_of(seq) - count_of(cache_seq)))
    tenants = sorted(list_tenants(connection), key=lambda tenant: (tenant.position, tenant.number))
    yield _TENANTS.of(len(tenants))
    newest = catalog.chain_state.newest_id
    yield BEHIND.of(sum(tenant.migration != newest for tenant in tenants))
    named = tenants[:METRICS_TENANTS_MAX]
    yield POSITION.each(((tenant.name,), tenant.position) for tenant in named)
    yield from _read_cluster(connection)
    jobs = list_jobs(connection, catalog.tenant)
    yield JOBS.each(sorted(Tally((job.kind, job.state) for job in jobs).items()))
    name = next((t.name for t in tenants if t.number == catalog.tenant), str(catalog.tenant))
    yield JOB_WAITS.each(
        ((name, job.kind, job.subject), job.waits_for != "")
        for job in jobs
        if job.subject and job.state in OPEN_STATES
    )
    followers = list_followers(connection, catalog.tenant)
    yield FOLLOWER_LAG.each(((name, f.name), f.lag.seconds) for f in followers)
    yield FOLLOWER_BEHIND.each(((name, f.name), f.lag.changes) for f in followers)
    log = ChangeLog(connection.storage, catalog.tenant)
    held = log.measure_lag(connection, log.read_beginning(connection.fetch_all))
    yield LOG_CHANGES.each([((name,), held.changes)])
    yield LOG_AGE.each([((name,), held.seconds)])
    yield from _read_stores(connection, named)
    yield from _read_tables(connection, catalog, name, count_records)


def _read_stores(connection: Connection, tenants: Sequence[Tenant]) -> Iterator[Gauge]:
    found = ((tenant.name, read_store(connection, tenant.number)) for tenant in tenants)
    stores = [(name, store) for name, store in found if store is not None]
    now = connection.storage.now_us(connection)
    yield STORE_PROBLEM.each(
        ((name,), store.problem is not None or store.state == "broken") for name, store in stores
    )
    yield STORE_SECONDS.each(((name,), (now - store.flushed_at) / 1e6) for name, store in stores)


def _read_cluster(connection: Connection) -> Iterator[Gauge]:
    nodes = Tally("live" if alive else "dead" for _, alive in list_nodes(connection))
    yield NODES.each(((state,), nodes[state]) for state in ("live", "dead"))
    now = connection.storage.now_us(connection)
    leases = Tally(
        "expired" if lease.is_over(now) else "held"
        for lease in list_leases(connection)
        if lease.expires_at  # else it was given back
    )
    yield _LEASES.each(((state,), leases[state]) for state in ("held", "expired"))


def _read_tables(
    connection: Connection, catalog: TenantCatalog, tenant: str, count_records: bool
) -> Iterator[Gauge]:
    states = catalog.tables.values()
    yield INDEXES.each(
        ((tenant, state.schema.name, index.index.name, index.state), 1)
        for state in states
        for index in state.indexes
    )
    yield UNVALIDATED.each(
        ((tenant, state.schema.name), len(state.unvalidated)) for state in states
    )
    if count_records:
        statuses = read_table_statuses(connection, catalog)
        yield RECORDS.each(((tenant, status.table), status.records) for status in statuses)
        yield STALE.each(((tenant, status.table), status.stale) for status in statuses)


def _to_text(gauges: list[Gauge]) -> str:
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(gauges))
    return generate_latest(registry).decode()


class _Collector:
    """A collector that passes the gauges and this process's counters to prometheus_client."""

    def __init__(self, gauges: list[Gauge]) -> None:
        self.gauges = gauges

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.core import (
            CounterMetricFamily,
            GaugeMetricFamily,
            HistogramMetricFamily,
        )

        for gauge in self.gauges:
            family = GaugeMetricFamily(gauge.name, gauge.description, labels=gauge.labels)
            for labels, value in gauge.samples:
                family.add_metric(labels, value)
            yield family
        for counter in counted.COUNTERS:
            sums = CounterMetricFamily(counter.name, counter.description, labels=counter.labels)
            for labels, value in sorted(counter.read().items()):
                sums.add_metric(labels, value)
            yield sums
        for histogram in counted.HISTOGRAMS:
            waits = HistogramMetricFamily(
                histogram.name, histogram.description, labels=histogram.labels
            )
            bounds = [*map(str, histogram.bounds), "+Inf"]
            for labels, (counts, total) in sorted(histogram.read().items()):
                waits.add_metric(labels, list(zip(bounds, counts, strict=True)), total)
            yield waits
