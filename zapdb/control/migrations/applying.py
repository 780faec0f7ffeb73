"""Applying pending migrations, and building their indexes."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated

from zapdb.activation.sent_files import GivenFiles, read_given
from zapdb.activation.up import (
    AppliedMigration,
    MigrationChoice,
    TenantResult,
    apply_files,
    migrate_each_tenant,
    read_all_tenants,
)
from zapdb.answers import hidden
from zapdb.catalog.cluster import ensure_database
from zapdb.catalog.feed import read_seq
from zapdb.catalog.tenants import find_tenant
from zapdb.control.bounds import Between, Number
from zapdb.control.job_runs import JobLook, JobOutcome, run_planned
from zapdb.control.migrations.planning import SAMPLE_RECORDS, Plan, plan_files
from zapdb.control.target import Target
from zapdb.errors import ActivationPending, UsageError, ZapdbError
from zapdb.jobs import plan_jobs
from zapdb.jobs.archive_pruning import sweep_chain_state
from zapdb.jobs.findings import without_examples
from zapdb.jobs.job_run import Runner, run_locally
from zapdb.limits import UP_WAIT_SECONDS_MAX
from zapdb.migrations import GivenDirectory
from zapdb.storage import Storage


@dataclass(frozen=True, slots=True)
class UpBegun:
    """All files are checked and proven; these migrations are applied, by their labels."""

    migrations: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Applied:
    """Migrations that were put in force at once, by the newest; one that is not `active` is stored,
    and waits for running processes."""

    number: int
    label: str
    active: bool
    tables: tuple[str, ...]
    milliseconds: float
    seq: int = hidden()


@dataclass(frozen=True, slots=True)
class TenantsMigrated:
    """How many of the other tenants that were behind are done, well or not."""

    done: int
    behind: int


@dataclass(frozen=True, slots=True)
class TenantFailure:
    """A tenant that could not be migrated, where it is, and why."""

    tenant: str
    position: int
    error: ZapdbError


@dataclass(frozen=True, slots=True)
class TenantsUp:
    """What became of the other tenants."""

    migrated: int
    failed: tuple[TenantFailure, ...]


@dataclass(frozen=True, slots=True)
class Up:
    """All that was done, and where the tenant is now; a process whose catalog cache has the seq
    sees it. `all_tenants` is None if they were not migrated, too.

    Findings are without examples of records: a service keeps an answer for those who ask again, and
    what is kept has no values, which an erasure would have to reach. The outcomes that were told
    before it have them.
    """

    position: int
    applied: tuple[Applied, ...]
    built: tuple[JobOutcome, ...]
    all_tenants: TenantsUp | None
    seq: int
    newest: str | None = hidden()


UpEvent = UpBegun | Plan | Applied | TenantsMigrated | TenantsUp | JobLook | JobOutcome | Up
"""What `up` tells while it works; the last one is the answer."""


def up(
    target: Target,
    directory: GivenDirectory,
    to: Number | None = None,
    all_tenants: bool = False,
    wait_seconds: Annotated[float, Between(0.0, UP_WAIT_SECONDS_MAX)] = 0.0,
    no_build: bool = False,
    dry_run: bool = False,
    again: bool = False,
) -> Iterator[UpEvent]:
    """Apply the pending migrations up to number `to`, then build their indexes; yields what is done
    as it is done, and at last all of it.

    All files are checked, and their rollbacks proven, before anything is changed. With
    `all_tenants`, every other tenant is then migrated to the stored end. With `dry_run` nothing is
    changed, and the answer is the plan. Migrations that were rolled back are applied only `again`;
    those that are kept are what they were, and their values come back. What ends the iteration ends
    the work: what was applied stays so, and nothing is half done.

    Raises the errors of `plan`, `NotProven`, `PendingMigrations` for a migration that was rolled
    back, and `ActivationPending` if running processes lack the file of a migration that waits for
    them for longer than `wait_seconds`.
    """
    if all_tenants and to is not None:
        raise every_tenant_to_the_end()
    catalog = target.catalog_if_any()
    given = read_given(directory, catalog, to=to, prove=True)
    yield UpBegun(tuple(file.label for file in given.wanted))
    if dry_run:
        yield plan_files(target, catalog, given, SAMPLE_RECORDS)
        return
    storage, applied, built = target.storage, list[Applied](), list[JobOutcome]()
    # With all tenants, one that waits is reported, and migrated as far as possible.
    with suppress(ActivationPending) if all_tenants else nullcontext():
        for one in _apply(target, given, MigrationChoice(to, again), wait_seconds):
            applied.append(one)
            yield one
    if again:
        sweep_chain_state(storage)
    others = None
    if all_tenants:
        others = yield from _migrate_others(storage)
        yield others
    if not no_build:
        for event in _build_indexes(target):
            if isinstance(event, JobOutcome):
                built.append(event)
            yield event
    yield _answer(target, applied, built, others)


def every_tenant_to_the_end() -> UsageError:
    """The error for one tenant or a number, and all tenants."""
    return UsageError(
        "--all-tenants migrates all tenants to the stored end, so it cannot be "
        "combined with a tenant or --to",
        hint="leave out --tenant, ZAPDB_TENANT and --to",
    )


def _apply(
    target: Target, given: GivenFiles, choice: MigrationChoice, wait_seconds: float
) -> Iterator[Applied]:
    storage = target.storage
    ensure_database(storage, create=True)
    number = find_tenant(storage.connection(), target.tenant_name).number
    for one in apply_files(storage, number, given.files, choice, wait_seconds):
        yield _describe_applied(one, read_seq(storage.connection()))


def _describe_applied(one: AppliedMigration, seq: int) -> Applied:
    milliseconds = round(one.seconds * 1000, 1)
    return Applied(one.number, one.label, one.active, one.tables, milliseconds, seq)


def _migrate_others(storage: Storage) -> Generator[TenantsMigrated, None, TenantsUp]:
    """Migrate the other tenants."""
    behind = read_all_tenants(storage).behind
    yield TenantsMigrated(0, len(behind))
    results = list[TenantResult]()
    for result in migrate_each_tenant(storage, behind):
        results.append(result)
        yield TenantsMigrated(len(results), len(behind))
    failed = [
        TenantFailure(one.tenant.name, one.position, one.error)
        for one in results
        if one.error is not None
    ]
    return TenantsUp(len(results) - len(failed), tuple(failed))


def _build_indexes(target: Target) -> Iterator[JobLook | JobOutcome]:
    storage, catalog = target.storage, target.catalog()
    if not any(index.needs_build for state in catalog.tables.values() for index in state.indexes):
        return
    jobs = plan_jobs(storage, catalog.tenant, kinds=["index"])
    yield from run_planned(storage, catalog, jobs, run_here, target.shows_values)


def run_here(should_stop: Callable[[], bool], workers: int | None = None) -> Runner:
    """A runner in threads of this process."""
    return partial(run_locally, workers=workers, should_stop=should_stop)


def _answer(
    target: Target, applied: list[Applied], built: list[JobOutcome], others: TenantsUp | None
) -> Up:
    catalog = target.catalog()
    position = catalog.position
    return Up(
        position,
        tuple(applied),
        tuple(replace(one, findings=without_examples(one.findings)) for one in built),
        others,
        read_seq(target.storage.connection()),
        catalog.chain.at(position).label if position else None,
    )
