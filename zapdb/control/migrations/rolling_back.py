"""Rolling back the newest migrations, and forgetting those that were rolled back."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

from zapdb.activation import TenantCatalog, load_tenant_catalog
from zapdb.activation.rollback import choose_end, list_users_of, roll_back, will_keep
from zapdb.activation.up import find_due
from zapdb.catalog.feed import read_seq
from zapdb.control.bounds import Between, Number
from zapdb.control.migrations.comparing import KeptStatus, list_kept_migrations
from zapdb.control.target import Target
from zapdb.jobs.archive_pruning import forget_migrations, sweep_chain_state
from zapdb.jobs.job_status import RollbackStep, TableRollbackPreview, preview_rollback
from zapdb.limits import MIGRATIONS_MAX


@dataclass(frozen=True, slots=True)
class PreviewedRollback:
    """What rolling back one migration does; see `RollbackStep`. `tenants` are those for which it is
    active, as a count, and records are counted over all of them."""

    number: int
    label: str
    summary: str
    digest: str
    tenants: int
    lossy: bool
    tables: tuple[TableRollbackPreview, ...]


@dataclass(frozen=True, slots=True)
class RollbackPlan:
    """What is rolled back, the newest first, and the newest migration that is active now. `due` is
    how many tenants have yet to follow a rollback that was interrupted; `processes` are live ones
    that are served the schema of one of the migrations: they go on with it, unless they are
    evicted. If they `are_kept`, nothing is lost before they are forgotten: `migrate up --again`
    brings it back."""

    newest: str | None
    steps: tuple[PreviewedRollback, ...]
    due: int
    processes: tuple[str, ...]
    are_kept: bool


@dataclass(frozen=True, slots=True)
class Rollback:
    """What was rolled back, the newest first, whether it is kept, how long that took, and where the
    tenant is now; a process whose catalog cache has the seq sees it. Records are converted when
    they are read, or by jobs."""

    position: int
    rolled_back: tuple[PreviewedRollback, ...]
    are_kept: bool
    milliseconds: float
    seq: int


RollbackEvent = RollbackPlan | Rollback
"""What `rollback` tells: the plan, and what was done."""


Digests = Annotated[Sequence[str], Between(0, MIGRATIONS_MAX)]


def rollback(
    target: Target,
    to: Number | None = None,
    evict: bool = False,
    digests: Digests = (),
    dry_run: bool = False,
) -> Iterator[RollbackEvent]:
    """Roll back all migrations above number `to`, or the newest one, for every tenant for which
    they are active; yields the plan, and what was done.

    `digests` are those of the migrations whose rollback was confirmed, the newest first: no others
    are rolled back. None given confirms all. With `dry_run` the plan is the answer. Where an
    earlier rollback was interrupted, before all tenants had followed, that is finished, and without
    `to` nothing else is done.

    Raises `UsageError`, and `ConcurrencyError` if the newest ones are others than those that were
    confirmed.
    """
    storage, catalog = target.storage, target.catalog()
    plan = _plan(target, catalog, to, evict=evict)
    yield plan
    if dry_run:
        return
    began = time.perf_counter()
    last = to if plan.steps else catalog.stored_chain.end
    done = roll_back(storage, last, digests=digests, evict=evict)
    forget_migrations(storage)
    sweep_chain_state(storage)
    milliseconds = round((time.perf_counter() - began) * 1000, 1)
    gone = {one.digest for one in done.migrations}
    catalog = target.catalog()
    kept = {id for _, id in catalog.chain_state.kept}
    yield Rollback(
        catalog.position,
        tuple(step for step in plan.steps if step.digest in gone),
        any(one.id in kept for one in done.migrations),
        milliseconds,
        read_seq(storage.connection()),
    )


def _plan(target: Target, catalog: TenantCatalog, to: int | None, *, evict: bool) -> RollbackPlan:
    """The migrations above `to`, newest first, each with the effects of its rollback."""
    with target.reading() as connection:
        catalog = load_tenant_catalog(connection, catalog.tenant, catalog)
        due = len(find_due(connection))
        end, steps = choose_end(catalog, to), list[RollbackStep]()
        if to is not None or not due:
            steps = preview_rollback(connection, catalog, end)
        going = [step.migration for step in steps]
        users = tuple(str(node) for node in list_users_of(connection, going))
        are_kept = will_keep(connection, going, evict=evict)
    newest = catalog.chain.at(catalog.position).label if catalog.position else None
    return RollbackPlan(newest, tuple(map(_describe_step, steps)), due, users, are_kept)


def _describe_step(step: RollbackStep) -> PreviewedRollback:
    one = step.migration
    return PreviewedRollback(
        one.number, one.label, one.summary, one.digest, step.tenants, step.lossy, step.tables
    )


@dataclass(frozen=True, slots=True)
class Forgetting:
    """The migrations that were forgotten, the newest first; `values` is how many archived values
    were deleted that only they had made. A process whose catalog cache has the seq sees it."""

    forgotten: tuple[KeptStatus, ...]
    values: int
    seq: int


def forget(target: Target, evict: bool = False, dry_run: bool = False) -> Forgetting:
    """Forget all migrations that were rolled back and are kept: nobody is served the schemas that
    they lead to any more, and the values that only they made are deleted. With `dry_run`, only
    answers which these are.

    Raises `UsageError` while live processes are served one of them, unless they are to be evicted
    (`evict`).
    """
    target.require_rows()
    storage = target.storage
    with target.reading() as connection:
        known = list_kept_migrations(connection)
    gone, values = known, 0
    if not dry_run:
        done, values = forget_migrations(storage, now=True, evict=evict)
        forgotten = {(one.number, one.digest) for one in done}
        gone = tuple(one for one in known if (one.number, one.digest) in forgotten)
    return Forgetting(gone, values, read_seq(storage.connection()))
