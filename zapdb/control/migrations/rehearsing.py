"""Trying the pending migrations on the records, before they are applied."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Annotated

from zapdb.activation import TenantCatalog
from zapdb.activation.sent_files import read_given
from zapdb.catalog.tenants import list_tenants
from zapdb.control.bounds import Between
from zapdb.control.target import Target
from zapdb.errors import UnknownName
from zapdb.jobs.rehearsal import (
    TRIED_RECORDS,
    Rehearsal,
    RehearsalChoice,
    RehearsalLook,
    rehearse_migrations,
    rehearse_nothing,
)
from zapdb.jobs.sampling import SEED_BITS, draw_seed
from zapdb.limits import JOB_LATENCY_MS_MAX, PLAN_SAMPLE_RECORDS_MAX
from zapdb.migrations import Chain, GivenDirectory

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
    if not all_tenants:
        yield from _rehearse_tenant(target, catalog, given.chain, choice)
        return
    with target.reading() as connection:
        tenants = list_tenants(connection)
    for tenant in tenants:
        if tenant.removing:
            continue
        other = replace(target, tenant_name=tenant.name)
        with suppress(UnknownName):  # it was removed meanwhile
            yield from _rehearse_tenant(other, other.catalog(), given.chain, choice)


def _rehearse_tenant(
    target: Target, catalog: TenantCatalog, chain: Chain, choice: RehearsalChoice
) -> Generator[RehearsalEvent, None, None]:
    found = yield from rehearse_migrations(
        target.storage, target.tenant_name, catalog, chain, choice
    )
    before, after = catalog.chain.schema_at(catalog.position), chain.schema_at(chain.end)
    tables = []
    for table in found.tables:
        then = after.table_named(table.table)
        now = None if then is None else before.table_active_or_archived(then.number)
        names = {table.table, table.table if now is None else now.name}
        tables.append(table if target.shows_values_of(*names) else table.without_values())
    yield replace(found, tables=tuple(tables))
