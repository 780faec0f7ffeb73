"""Rolling back the newest migrations."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated

from zapdb.activation import TenantCatalog, load_tenant_catalog
from zapdb.answers import hidden
from zapdb.catalog.feed import read_seq
from zapdb.control.bounds import Between, Number
from zapdb.control.job_runs import JobLook, StoppableRunner, run_watched
from zapdb.control.migrations.applying import run_here
from zapdb.control.target import Target
from zapdb.errors import ConcurrencyError, UsageError
from zapdb.jobs import Job
from zapdb.jobs.job_run import JobReport
from zapdb.jobs.job_status import RollbackStep, TableRollbackPreview, preview_rollback
from zapdb.jobs.job_types import name_job
from zapdb.jobs.rollback_run import RollbackMark, roll_back_in_steps
from zapdb.jobs.waiting import SeenBy
from zapdb.limits import JOB_WORKERS_MAX, MIGRATIONS_MAX


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
    """What is rolled back, the newest first, and the newest migration that is active now."""

    newest: str | None
    steps: tuple[PreviewedRollback, ...]


@dataclass(frozen=True, slots=True)
class RollbackHeld:
    """A job of a rollback is paused or outside its window: it is waited for, and writes stay
    refused."""

    doing: str
    hold: str


@dataclass(frozen=True, slots=True)
class RolledBackStep:
    """A migration that was rolled back: what `PreviewedRollback` has of it, and how long it
    took."""

    number: int
    label: str
    tenants: int
    lossy: bool
    tables: tuple[TableRollbackPreview, ...]
    milliseconds: float
    position: int = hidden()
    seq: int = hidden()


@dataclass(frozen=True, slots=True)
class Rollback:
    """All that was rolled back, and where the tenant is now; a process whose catalog cache has the
    seq sees it."""

    position: int
    rolled_back: tuple[RolledBackStep, ...]
    seq: int


RollbackEvent = RollbackPlan | RollbackMark | JobLook | RollbackHeld | RolledBackStep | Rollback
"""What `rollback` tells while it works; the last one is the answer, the first one the plan."""


Digests = Annotated[Sequence[str], Between(0, MIGRATIONS_MAX)]


def rollback(
    target: Target,
    to: Number | None = None,
    evict: bool = False,
    digests: Digests = (),
    workers: Annotated[int, Between(1, JOB_WORKERS_MAX)] | None = None,
    dry_run: bool = False,
) -> Iterator[RollbackEvent]:
    """Roll back all migrations above number `to`, or the newest one, for every tenant for which
    they are active; yields what is done as it is done, and at last all of it.

    `digests` are those of the migrations whose rollback was confirmed, the newest first: no others
    are rolled back. None given confirms all. With `dry_run` the plan is the answer. A rollback that
    was interrupted is finished. What ends the iteration ends the work: writes stay refused until a
    rollback that has begun is finished by a further call.

    Raises `ConcurrencyError` if the newest ones are others than those that were confirmed, and
    `UsageError`, also while live processes use a migration, unless they are to be evicted
    (`evict`).
    """
    choice = RollbackChoice(to, evict, digests, dry_run)
    return run_rollback(target, choice, partial(run_here, workers=workers))


@dataclass(frozen=True, slots=True)
class RollbackChoice:
    """What `rollback` is asked."""

    to: Number | None = None
    evict: bool = False
    digests: Digests = ()
    dry_run: bool = False


def run_rollback(
    target: Target,
    choice: RollbackChoice,
    make_runner: StoppableRunner,
    seen_by: SeenBy = "worker",
) -> Iterator[RollbackEvent]:
    """The same, with a runner for the jobs that convert records back."""

    def run(job: Job) -> Generator[JobLook, None, JobReport | None]:
        doing = name_job(catalog, job).doing
        report, _ = yield from run_watched(storage, job, doing, make_runner, seen_by)
        return report

    storage, catalog = target.storage, target.catalog()
    steps = _preview(target, catalog, choice.to)
    plan = RollbackPlan(_newest(catalog), tuple(map(_describe_step, steps)))
    yield plan
    if choice.dry_run:
        return
    done = list[RolledBackStep]()
    for step in _list_confirmed(plan, choice.digests):
        began = time.perf_counter()
        for told in roll_back_in_steps(storage, run, digest=step.digest, evict=choice.evict):
            if isinstance(told, JobReport):
                yield RollbackHeld(name_job(catalog, told.job).doing, str(told.hold))
            else:
                yield told
        milliseconds = round((time.perf_counter() - began) * 1000, 1)
        catalog = target.catalog()
        done.append(
            RolledBackStep(
                step.number,
                step.label,
                step.tenants,
                step.lossy,
                step.tables,
                milliseconds,
                catalog.position,
                read_seq(storage.connection()),
            )
        )
        yield done[-1]
    yield Rollback(catalog.position, tuple(done), read_seq(storage.connection()))


def _preview(target: Target, catalog: TenantCatalog, to: int | None) -> list[RollbackStep]:
    """The migrations above `to`, newest first, each with the effects of its rollback."""
    with target.reading() as connection:
        catalog = load_tenant_catalog(connection, catalog.tenant, catalog)
        end = catalog.chain.end
        if not end:
            raise UsageError("no migration is stored, so there is nothing to roll back")
        if to is not None and to > end:
            raise UsageError(
                "no migration with this number is stored",
                number=to,
                newest=catalog.chain.migrations[-1].label,
            )
        return preview_rollback(connection, catalog, end - 1 if to is None else to)


def _newest(catalog: TenantCatalog) -> str | None:
    return catalog.chain.at(catalog.position).label if catalog.position else None


def _describe_step(step: RollbackStep) -> PreviewedRollback:
    one = step.migration
    return PreviewedRollback(
        one.number, one.label, one.summary, one.digest, step.tenants, step.lossy, step.tables
    )


def _list_confirmed(plan: RollbackPlan, digests: Sequence[str]) -> Sequence[PreviewedRollback]:
    """The steps of the plan that were confirmed; raises `ConcurrencyError` if others come first."""
    if not digests:
        return plan.steps
    steps = plan.steps[: len(digests)]
    if [step.digest for step in steps] != [*digests]:
        raise ConcurrencyError(
            "a newer migration was stored in the meantime",
            found=plan.steps[0].label if plan.steps else "(none)",
            hint="nothing was rolled back; see `zapdb migrate status`",
        )
    return steps
