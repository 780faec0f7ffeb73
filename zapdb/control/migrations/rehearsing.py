"""Trying the pending migrations on the records, before they are applied."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import nullcontext, suppress
from dataclasses import replace
from typing import Annotated

from zapdb.activation import TenantCatalog
from zapdb.activation.rollback import choose_end
from zapdb.activation.sent_files import read_given
from zapdb.catalog.tenants import list_tenants
from zapdb.control.bounds import Between, Number
from zapdb.control.target import Target
from zapdb.errors import UnknownName
from zapdb.jobs.rehearsal import (
    TRIED_RECORDS,
    Rehearsal,
    RehearsalChoice,
    RehearsalLook,
    rehearse_migrations,
    rehearse_nothing,
    rehearse_rolling_back,
)
from zapdb.jobs.sampling import SEED_BITS, draw_seed
from zapdb.limits import JOB_LATENCY_MS_MAX, PLAN_SAMPLE_RECORDS_MAX
from zapdb.migrations import GivenDirectory
from zapdb.schema import Schema

RehearsalEvent = RehearsalLook | Rehearsal
"""What `rehearse` tells while it works; at the end of each tenant's work comes its answer."""


def rehearse(
    target: Target,
    directory: GivenDirectory,
    sample: Annotated[int, Between(0, PLAN_SAMPLE_RECORDS_MAX)] = TRIED_RECORDS,
    all_records: bool = False,
    seed: Annotated[int, Between(0, 2**SEED_BITS - 1)] | None = None,
    max_latency_ms: Annotated[int, Between(1, JOB_LATENCY_MS_MAX)] | None = None,
    all_tenants: bool = False,
) -> Iterator[RehearsalEvent]:
    """What applying the pending migrations would do to the records of a tenant, or of each; yields
    how far it is, and at the end what was found. Nothing is stored.

    Conversions are tried on `sample` records of each table, drawn by `seed`, or on all records.
    `max_latency_ms` is the ceiling of what a small query beside it may take; else that of the
    settings. Raises the errors of `plan`, `NotProven`, and `ConcurrencyError` if the schema changes
    meanwhile.
    """
    catalog = target.catalog_if_any()
    given = read_given(directory, catalog, prove=True)
    if catalog is None:
        yield rehearse_nothing(target.tenant_name, given.chain)
        return
    seed = draw_seed() if seed is None else seed
    choice = RehearsalChoice(sample, all_records, seed, max_latency_ms)
    for one in _list_targets(target, all_tenants):
        with suppress(UnknownName) if all_tenants else nullcontext():  # it was removed meanwhile
            known = one.catalog()
            told = rehearse_migrations(one.storage, one.tenant_name, known, given.chain, choice)
            after = given.chain.schema_at(given.chain.end)
            yield from _without_values(one, known, after, told)


def rehearse_rollback(
    target: Target,
    to: Number | None = None,
    max_latency_ms: Annotated[int, Between(1, JOB_LATENCY_MS_MAX)] | None = None,
    all_tenants: bool = False,
) -> Iterator[RehearsalEvent]:
    """What rolling back all migrations above number `to`, or the newest one, would do to the
    records of a tenant, or of each; yields how far it is, and at the end what was found. Nothing is
    stored.

    Indexes and constraints that come back are tried on all records. `max_latency_ms` is as in
    `rehearse`. Raises `UsageError` as `rollback` does, and `ConcurrencyError` if the schema changes
    meanwhile.
    """
    to = choose_end(target.catalog(), to)
    choice = RehearsalChoice(seed=0, max_latency_ms=max_latency_ms)
    for one in _list_targets(target, all_tenants):
        with suppress(UnknownName) if all_tenants else nullcontext():
            known = one.catalog()
            told = rehearse_rolling_back(one.storage, one.tenant_name, known, to, choice)
            yield from _without_values(one, known, known.stored_chain.schema_at(to), told)


def _list_targets(target: Target, all_tenants: bool) -> list[Target]:
    if not all_tenants:
        return [target]
    with target.reading() as connection:
        tenants = list_tenants(connection)
    return [replace(target, tenant_name=one.name) for one in tenants if not one.removing]


def _without_values(
    target: Target,
    catalog: TenantCatalog,
    after: Schema,
    told: Generator[RehearsalLook, None, Rehearsal],
) -> Generator[RehearsalEvent, None, None]:
    """Pass on what a rehearsal tells, without the values of tables that the caller may not see."""
    found = yield from told
    before = catalog.chain.schema_at(catalog.position)
    tables = []
    for table in found.tables:
        then = after.table_named(table.table)
        now = None if then is None else before.table_active_or_archived(then.number)
        names = {table.table, table.table if now is None else now.name}
        tables.append(table if target.shows_values_of(*names) else table.without_values())
    yield replace(found, tables=tuple(tables))
