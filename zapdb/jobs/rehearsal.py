"""A rehearsal: what applying migrations would do to the records of one tenant, tried on them.

The records are read under the tenant catalog that the migrations would make (`activation.preview`).
So what is found is what the jobs after `zapdb migrate up` would find. Constraints and indexes are
looked at that are open then, and those of tables alone that the migrations change. A table that has
none of them is not read as a whole: a sample of its records tells what conversions lose.

Nothing is stored. A table is read in batches, each in a snapshot of its own, and no faster than the
ceiling of latency lets a job go; what is written meanwhile behind the place that is read is not
seen. Times are measured in transactions that are rolled back, as for a plan.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Container, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, NamedTuple

from zapdb.activation import TableDescriptor, TenantCatalog, load_tenant_catalog
from zapdb.activation.preview import catalog_at
from zapdb.activation.rollback import find_rollback_obstacles
from zapdb.activation.served_schema import require_not_due
from zapdb.activation.tenant_catalog import is_catalog_unchanged
from zapdb.activation.up import require_none_rolled_back
from zapdb.catalog.cluster.level import level_of, read_level, require_reachable
from zapdb.catalog.cluster.nodes import find_reachable_position
from zapdb.catalog.row_kinds import ConstraintFinding, Job, JobThrottle
from zapdb.catalog.stored_migrations import rolled_back_digests
from zapdb.catalog.stored_settings import require_schema_changes_allowed
from zapdb.errors import (
    EXIT_PENDING,
    ConcurrencyError,
    IncompatibleVersion,
    InvalidValue,
    PendingMigrations,
    SchemaChangesRefused,
    ZapdbError,
)
from zapdb.errors.zapdb_error import describe_error
from zapdb.jobs.building import IndexWork
from zapdb.jobs.estimate import SAMPLE_RECORDS, measure_work
from zapdb.jobs.findings import EXAMPLES_MAX, without_examples
from zapdb.jobs.future_checks import FutureChecks
from zapdb.jobs.job_status import list_losses
from zapdb.jobs.migration_plan import (
    ProcessPlan,
    TableAction,
    TablePlan,
    list_processes,
    make_migration_plan,
)
from zapdb.jobs.quarantine import QuarantinedRecord
from zapdb.jobs.sampling import RecordTrial, draw_places, draw_seed, list_converting, read_places
from zapdb.jobs.throttle import Throttle, read_throttle, wait
from zapdb.jobs.work import Work
from zapdb.limits import BATCH_RECORDS_FIRST, JOB_LATENCY_MS_MAX
from zapdb.migrations import Chain, Migration
from zapdb.migrations.proof_findings import LossyField
from zapdb.records import CANNOT_BE_READ, codec_for
from zapdb.records.unreadable import DecodeKey, show_stored_key
from zapdb.storage import Connection, RecordStatements, Storage, TransactionMode
from zapdb.storage.cells import as_bytes
from zapdb.storage.data_tables import create_index_table
from zapdb.tables.indexes import BoundTable, IndexMaintainer

TRIED_RECORDS: Final = 1_000
"""Records of each table whose conversion is tried, if nothing is said."""
LOOK_SECONDS: Final = 0.5
"""How often it is told how far a rehearsal is."""
OF_A_RECORD: Final = frozenset({"record", "became", "back"})
"""What the context of a failure has of the record that showed it."""


@dataclass(frozen=True, slots=True)
class RehearsalChoice:
    """How a rehearsal goes. Conversions are tried on `sample` records of each table, which are
    drawn by `seed`, or on all. `max_latency_ms` is the ceiling of what a small query beside it may
    take; None is that of the settings."""

    sample: int = TRIED_RECORDS
    all_records: bool = False
    seed: int = field(default_factory=draw_seed)
    max_latency_ms: int | None = None

    def __post_init__(self) -> None:
        if type(self.sample) is not int or self.sample < 0:
            raise InvalidValue.of("sample", "a number, at least 0", self.sample)
        latency = self.max_latency_ms
        is_bounded = type(latency) is int and 0 < latency <= JOB_LATENCY_MS_MAX
        if latency is not None and not is_bounded:
            wanted = f"a number of milliseconds, 1 to {JOB_LATENCY_MS_MAX:,}"
            raise InvalidValue.of("max_latency_ms", wanted, latency)


@dataclass(frozen=True, slots=True)
class RehearsalLook:
    """How far a rehearsal is: so many of the records of a table are read, of `total` to read."""

    tenant: str
    table: str
    read: int
    total: int


@dataclass(frozen=True, slots=True)
class RehearsedIndex:
    """An index that would be built from so many records. One worker takes about so many seconds;
    None if that can't be measured: this process may not write, or no record can be read."""

    index: str
    unique: bool
    records: int
    seconds: float | None


@dataclass(frozen=True, slots=True)
class RehearsedLoss:
    """A field that rolling a migration back would not bring back, as the migration declares.

    `unchanged` of the `records` that were tried came back as they were in it. Of the first one that
    did not, `key` is the key, `value` what it has in the field, and `back` what came back, all of
    them shortened.
    """

    migration: str
    field: str
    operation: str
    because: str | None
    records: int
    unchanged: int
    key: str | None
    value: str | None
    back: str | None


@dataclass(frozen=True, slots=True)
class RehearsedTable:
    """What would become of one table; its first fields are those of `TablePlan`.

    `refused` are violations of unique indexes, checks and references, as the jobs would find them;
    `filled` are fields that become required, with the records that have no value there. The
    conversion was tried on `tried` records, of which `unchanged` came back from all the migrations
    as they were; `failures` are errors that it showed, which no migration declares. `unreadable`
    are the first of the `unreadable_count` records that could not be read.
    """

    table: str
    action: TableAction
    records: int
    converted: int
    seconds: float | None
    includes_writing: bool
    indexes: tuple[RehearsedIndex, ...] = ()
    refused: tuple[ConstraintFinding, ...] = ()
    filled: tuple[ConstraintFinding, ...] = ()
    tried: int = 0
    unchanged: int = 0
    losses: tuple[RehearsedLoss, ...] = ()
    failures: tuple[ZapdbError, ...] = ()
    unreadable_count: int = 0
    unreadable: tuple[str, ...] = ()

    @property
    def is_refused(self) -> bool:
        """Whether jobs would not come to their end."""
        return bool(self.refused or self.unreadable_count)

    @property
    def is_lost(self) -> bool:
        """Whether values would be gone after a rollback, or with the table."""
        is_discarded = self.action == "discarded" and self.records > 0
        is_lossy = any(loss.unchanged < loss.records for loss in self.losses)
        return is_discarded or is_lossy or bool(self.filled or self.failures)

    def without_values(self) -> RehearsedTable:
        """The same for those who may not see records: how many, and not which."""
        return replace(
            self,
            refused=without_examples(self.refused),
            filled=without_examples(self.filled),
            losses=tuple(replace(loss, key=None, value=None, back=None) for loss in self.losses),
            failures=tuple(map(_without_record, self.failures)),
            unreadable=(),
        )


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """What applying the pending migrations, by their labels, would do to a tenant's records; or, if
    it `is_rollback`, what rolling them back would do.

    `refused` says whether anything would be refused, `lost` whether values would be lost.
    `obstacles` are the errors that `zapdb migrate up` would end with now; `raised_level` is the
    level that it would raise the database to, if it has to. `processes` are all live ones. The
    sample is drawn again with the same `seed`.
    """

    tenant: str
    position: int
    target: int
    refused: bool
    lost: bool
    migrations: tuple[str, ...]
    tables: tuple[RehearsedTable, ...]
    processes: tuple[ProcessPlan, ...]
    obstacles: tuple[ZapdbError, ...]
    raised_level: int | None
    seed: int
    is_rollback: bool = False


def rehearse_migrations(
    storage: Storage, tenant: str, catalog: TenantCatalog, chain: Chain, choice: RehearsalChoice
) -> Generator[RehearsalLook, None, Rehearsal]:
    """Rehearse what leads a tenant from the tenant catalog's position to the end of the chain;
    yields how far it is.

    Raises `ConcurrencyError` if the tenant gets another schema meanwhile, and `PendingMigrations`
    if it has yet to follow a rollback.
    """
    require_not_due(catalog)
    pending, tables = chain.after(catalog.position), list[RehearsedTable]()
    with storage.transaction(TransactionMode.READ) as connection:
        processes = tuple(list_processes(connection, pending))
        obstacles = tuple(_find_obstacles(connection, catalog, chain))
        needed = level_of(chain.after(catalog.stored_chain.end))
        raised = needed if pending and read_level(connection) < needed else None
    if pending:
        tables = yield from _rehearse_tables(storage, tenant, catalog, chain, choice)
    is_up_refused = any(error.exit_status != EXIT_PENDING for error in obstacles)
    return Rehearsal(
        tenant,
        catalog.position,
        chain.end if pending else catalog.position,
        is_up_refused or any(table.is_refused for table in tables),
        any(table.is_lost for table in tables),
        tuple(migration.label for migration in pending),
        tuple(tables),
        processes,
        obstacles,
        raised,
        choice.seed,
    )


def rehearse_rolling_back(
    storage: Storage, tenant: str, catalog: TenantCatalog, to: int, choice: RehearsalChoice
) -> Generator[RehearsalLook, None, Rehearsal]:
    """Rehearse rolling back the migrations above `to`, as far as they are active for a tenant:
    indexes and constraints that come back are tried on all records. The `processes` are those whose
    files contain one of the migrations.

    Raises as `rehearse_migrations` does.
    """
    require_not_due(catalog)
    chain, tables = catalog.stored_chain, list[RehearsedTable]()
    going = tuple(reversed(chain.after(to)))
    with storage.transaction(TransactionMode.READ) as connection:
        live = list_processes(connection, ())
        obstacles = tuple(find_rollback_obstacles(connection, going))
        losses = _list_losses(connection, catalog, to)
    if to < catalog.position:
        kept = chain.up_to(to)
        found = yield from _rehearse_tables(storage, tenant, catalog, kept, choice)
        tables = [replace(one, losses=tuple(losses.get(one.table, ()))) for one in found]
    return Rehearsal(
        tenant,
        catalog.position,
        min(to, catalog.position),
        bool(obstacles) or any(table.is_refused for table in tables),
        any(table.is_lost for table in tables),
        tuple(migration.label for migration in going),
        tuple(tables),
        tuple(one for one in live if one.files_end > to),
        obstacles,
        None,
        choice.seed,
        is_rollback=True,
    )


def _list_losses(
    connection: Connection, catalog: TenantCatalog, to: int
) -> dict[str, list[RehearsedLoss]]:
    """The fields whose values a rollback loses, by the names of their tables."""
    found: dict[str, list[RehearsedLoss]] = {}
    for migration, losses in list_losses(connection, catalog, to):
        for loss in losses:
            found.setdefault(loss.table, []).extend(
                RehearsedLoss(
                    migration.label, name, "rollback", None, loss.records, 0, None, None, None
                )
                for name in loss.fields
            )
    return found


def _rehearse_tables(
    storage: Storage, tenant: str, catalog: TenantCatalog, chain: Chain, choice: RehearsalChoice
) -> Generator[RehearsalLook, None, list[RehearsedTable]]:
    plan = make_migration_plan(storage, catalog, chain, SAMPLE_RECORDS)
    future = catalog_at(storage, catalog, chain, chain.end)
    catalogs = _Catalogs(storage, catalog, future, chain.after(catalog.position))
    tables = list[RehearsedTable]()
    for table in plan.tables:
        look = partial(RehearsalLook, tenant, table.table)
        tables.append((yield from _rehearse_table(catalogs, table, choice, look)))
    return tables


def run_rehearsal(rehearsal: Generator[RehearsalLook, None, Rehearsal]) -> Rehearsal:
    """Run a rehearsal, and look at nothing but its end."""
    found = list[Rehearsal]()

    def run() -> Iterator[RehearsalLook]:
        found.append((yield from rehearsal))

    for _ in run():
        pass  # nobody looks
    return found[0]


def rehearse_nothing(tenant: str, chain: Chain) -> Rehearsal:
    """The same for a database that is empty or missing: its tables are created."""
    tables = (
        RehearsedTable(table.name, "created", 0, 0, None, False)
        for table in chain.schema_at(chain.end)
    )
    labels = tuple(migration.label for migration in chain.migrations)
    return Rehearsal(tenant, 0, chain.end, False, False, labels, tuple(tables), (), (), None, 0)


def _find_obstacles(
    connection: Connection, catalog: TenantCatalog, chain: Chain
) -> Iterator[ZapdbError]:
    """The errors that `zapdb migrate up` would end with, whatever the records are."""
    added = chain.after(catalog.stored_chain.end)
    if chain.end == catalog.position:
        return
    try:
        require_schema_changes_allowed(connection, catalog.tenant, also_of_chain=bool(added))
    except SchemaChangesRefused as error:
        yield error
    try:
        require_reachable(connection, level_of(added))
    except IncompatibleVersion as error:
        yield error
    try:
        require_none_rolled_back(added, rolled_back_digests(connection))
    except PendingMigrations as error:
        yield error
    _, blocked = find_reachable_position(connection, chain, catalog.position, chain.end)
    if blocked is not None:
        yield blocked.error(blocked.migration.number - 1)


@dataclass(frozen=True, slots=True)
class _Catalogs:
    """What is active, and what the pending migrations would make of it."""

    storage: Storage
    active: TenantCatalog
    future: TenantCatalog
    pending: tuple[Migration, ...]

    def find_active(self, number: int) -> TableDescriptor | None:
        """The active table with a number, if there is one."""
        found = (one for one in self.active.tables.values() if one.schema.number == number)
        return next(found, None)


def _rehearse_table(
    catalogs: _Catalogs,
    plan: TablePlan,
    choice: RehearsalChoice,
    look: Callable[[int, int], RehearsalLook],
) -> Generator[RehearsalLook, None, RehearsedTable]:
    if not plan.records or plan.action == "discarded":
        return _as_planned(plan)  # nothing would be built, since there is nothing
    with closing(_TableRun(catalogs, plan, choice)) as run:
        yield look(0, run.total)
        indexes, looked_at = run.measure_indexes(), time.monotonic()
        while run.read_batch():
            if time.monotonic() - looked_at >= LOOK_SECONDS:
                looked_at = time.monotonic()
                yield look(run.read, run.total)
        return run.report(indexes)


class _TableRun:
    """Reads the records of one table, and notes what would become of them. To be closed."""

    def __init__(self, catalogs: _Catalogs, plan: TablePlan, choice: RehearsalChoice) -> None:
        is_archived = plan.action == "archived"
        descriptor = (catalogs.active if is_archived else catalogs.future).tables[plan.table]
        storage, number = catalogs.storage, descriptor.schema.number
        self._catalogs, self._plan, self._known = catalogs, plan, catalogs.active
        self._trial: RecordTrial | None = None
        now, converting = catalogs.find_active(number), list_converting(catalogs.pending, number)
        if now is not None and converting:
            self._trial = RecordTrial(BoundTable(storage, catalogs.active, now), converting)
        self._job = _like_a_job(catalogs.active.tenant, descriptor, choice)
        self._checks: FutureChecks | None = None
        if not is_archived:
            future, pending = catalogs.future, catalogs.pending
            self._checks = FutureChecks(storage, future, descriptor, pending)
        self._decode_key = codec_for(descriptor.schema, catalogs.future.zones).decode_key
        records = RecordStatements(storage, number, catalogs.active.tenant)
        self._source = self._choose_source(records, choice)
        self.total, self.read = self._source.total, 0
        self._limit = BATCH_RECORDS_FIRST
        self._unreadable_count, self._unreadable = 0, list[QuarantinedRecord]()
        self._throttle = Throttle(storage, self._job.id)
        with storage.transaction(TransactionMode.READ) as connection:
            self._throttle.keep_to(self._job, read_throttle(connection, self._job))

    def _choose_source(self, records: RecordStatements, choice: RehearsalChoice) -> _Scan | _Drawn:
        count, is_read = self._plan.records, self._checks is not None and self._checks.is_needed
        if self._trial is None:
            return _Scan(records, count, ()) if is_read else _Drawn(records, [])
        if choice.all_records or choice.sample >= count:
            return _Scan(records, count, range(sys.maxsize))
        draw = random.Random(f"{choice.seed}/{self._job.table}").random  # noqa: S311 - no secret
        places = draw_places(count, choice.sample, draw)
        return _Scan(records, count, set(places)) if is_read else _Drawn(records, places)

    def close(self) -> None:
        self._throttle.close()
        if self._checks is not None:
            self._checks.close()

    def measure_indexes(self) -> tuple[RehearsedIndex, ...]:
        """The indexes that are to be built, and how long one worker takes."""
        if self._checks is None:
            return ()
        rehearsed, count = list[RehearsedIndex](), self._plan.records
        for index in self._checks.bound.indexes:
            if index.name in self._plan.indexes:
                work = _IndexTrial(self._checks.bound, self._job, index)
                record_seconds = measure_work(work.storage, work, SAMPLE_RECORDS, work.prepare)
                seconds = None if record_seconds is None else round(record_seconds * count, 3)
                unique = index.descriptor.index.unique
                rehearsed.append(RehearsedIndex(index.name, unique, count, seconds))
        return tuple(rehearsed)

    def read_batch(self) -> bool:
        """Read the next records, and wait until others may be read; false at the end."""
        began = time.monotonic()
        with self._catalogs.storage.transaction(TransactionMode.READ) as connection:
            self._require_same_schema(connection)
            started = time.perf_counter()
            rows = self._source.fetch(connection, self._limit)
            self._look_at(connection, rows)
            seconds = time.perf_counter() - started
        if not rows:
            return False
        self.read += len(rows)
        throttle = self._throttle
        self._limit = throttle.adapt(self._limit, seconds, throttle.batch_records_max)
        throttle.note(len(rows), 0, began)
        wait(throttle.count_seconds_left(), lambda: False)
        return True

    def _require_same_schema(self, connection: Connection) -> None:
        """Raise `ConcurrencyError` if the schema is another one by now. Jobs may have come to their
        end: that changes nothing here."""
        if is_catalog_unchanged(connection, self._known):
            return
        before, now = self._known, load_tenant_catalog(connection, self._known.tenant, self._known)
        if (now.place, now.chain_state) != (before.place, before.chain_state):
            raise ConcurrencyError(
                "the schema has changed while the migrations were rehearsed",
                before=before.position,
                now=now.position,
                hint="run the command again",
            )
        self._known = now

    def _look_at(self, connection: Connection, rows: Sequence[_Row]) -> None:
        readable, unreadable = list[tuple[bytes, bytes]](), dict[bytes, str]()
        for row in rows:
            try:
                value = as_bytes(row.cell)
                if row.is_tried and self._trial is not None:
                    self._trial.try_record(row.key, value)
            except CANNOT_BE_READ as error:
                unreadable[row.key] = describe_error(error)
            else:
                readable.append((row.key, value))
        if self._checks is not None and self._checks.is_needed:
            unreadable |= self._checks.look_at(connection, readable)
        self._unreadable_count += len(unreadable)
        for key, reason in sorted(unreadable.items()):
            if len(self._unreadable) < EXAMPLES_MAX:
                self._unreadable.append(QuarantinedRecord(key, reason, 0))

    def report(self, indexes: tuple[RehearsedIndex, ...]) -> RehearsedTable:
        found, checks = _as_planned(self._plan), self._checks
        if checks is not None:
            refused, filled = checks.refused.findings(), checks.filled.findings()
            found = replace(found, indexes=indexes, refused=refused, filled=filled)
        if self._trial is not None:
            sample = self._trial.report(self._plan.records)
            found = replace(
                found,
                tried=sample.sampled,
                unchanged=sample.returned,
                losses=tuple(_describe_loss(*loss, self._decode_key) for loss in sample.losses),
                failures=tuple(finding.to_error() for finding in sample.failures),
            )
        unreadable = tuple(one.show(self._decode_key) for one in self._unreadable)
        return replace(found, unreadable_count=self._unreadable_count, unreadable=unreadable)


def _as_planned(plan: TablePlan) -> RehearsedTable:
    return RehearsedTable(
        plan.table,
        plan.action,
        plan.records,
        plan.converted,
        None if plan.seconds is None else round(plan.seconds, 3),
        plan.includes_writing,
    )


def _describe_loss(migration: str, loss: LossyField, decode_key: DecodeKey) -> RehearsedLoss:
    found, example = None, loss.example
    if example is not None:
        key = show_stored_key(decode_key, example.key)
        found = key, example.record[loss.field], example.back[loss.field]
    return RehearsedLoss(
        migration,
        loss.field,
        loss.operation,
        loss.because or None,
        loss.tried,
        loss.returned,
        *(found or (None, None, None)),
    )


def _without_record(error: ZapdbError) -> ZapdbError:
    """A failure that does not say which record showed it."""
    kept = {name: value for name, value in error.context.items() if name not in OF_A_RECORD}
    return type(error)(error.message, hint=error.hint, location=error.location, **kept)


class _Row(NamedTuple):
    """A record as it is stored, and whether its conversion is tried."""

    key: bytes
    cell: Any
    is_tried: bool


class _Scan:
    """All records of a table in the order of their keys; those at some places are tried."""

    def __init__(self, records: RecordStatements, total: int, tried: Container[int]) -> None:
        self.total = total
        self._records, self._tried = records, tried
        self._after, self._at = b"", 0

    def fetch(self, connection: Connection, limit: int) -> list[_Row]:
        rows = connection.fetch_all(self._records.page_sql, (self._after, limit))
        found = [
            _Row(key, cell, at in self._tried) for at, (key, cell) in enumerate(rows, self._at)
        ]
        if found:
            self._after, self._at = found[-1].key, self._at + len(found)
        return found


class _Drawn:
    """The records at some places alone."""

    def __init__(self, records: RecordStatements, places: Sequence[int]) -> None:
        self.total = len(places)
        self._records, self._places = records, places
        self._last = b"", -1

    def fetch(self, connection: Connection, limit: int) -> list[_Row]:
        wanted, self._places = self._places[:limit], self._places[limit:]
        rows = list(read_places(connection, self._records, wanted, self._last))
        if rows:
            self._last = rows[-1][0], wanted[len(rows) - 1]
        return [_Row(key, cell, True) for key, cell in rows]


class _IndexTrial(IndexWork):
    """The build of an index that is not there yet: its entries go into a table that is rolled back
    with them."""

    def __init__(self, bound: BoundTable, job: Job, index: IndexMaintainer) -> None:
        Work.__init__(self, bound.storage, bound.catalog, job)
        self.bound, self.index, self.read = bound, index, bound.index_reader.read

    def prepare(self, connection: Connection) -> None:
        index = self.index.descriptor
        if not index.entry_table:  # no index has the table 0
            create_index_table(connection, index.entry_table, unique=index.index.unique)


def _like_a_job(tenant: int, descriptor: TableDescriptor, choice: RehearsalChoice) -> Job:
    """What says how fast a table is read, as of a job that reads it all; nobody stores it."""
    table, throttle = descriptor.schema, JobThrottle(max_latency_ms=choice.max_latency_ms)
    name = f"rehearsal/{tenant}/{table.number}"
    return Job(
        name,
        "verify",
        tenant,
        table.number,
        table.name,
        0,
        0,
        0,
        {},
        "planned",
        0,
        0,
        0,
        throttle=throttle,
    )
