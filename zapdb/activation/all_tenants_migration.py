"""All tenants at once: list the tenants behind the stored end, and migrate several at a time."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from zapdb.activation.tenant_catalog import TenantCatalog, load_tenant_catalog
from zapdb.activation.up import catch_up
from zapdb.catalog.row_kinds import Tenant
from zapdb.catalog.stored_migrations import read_chain_state
from zapdb.catalog.tenants import list_tenants
from zapdb.errors import ZapdbError
from zapdb.limits import TENANT_WORKERS
from zapdb.storage import Storage, TransactionMode


@dataclass(frozen=True, slots=True)
class AllTenantsStatus:
    """The number of tenants at each position, and the tenants behind the stored `end`."""

    end: int
    tenants: int
    positions: dict[int, int]
    behind: tuple[Tenant, ...]


@dataclass(frozen=True, slots=True)
class TenantResult:
    """The result of one tenant: its position now, or the error that stopped it."""

    tenant: Tenant
    position: int
    error: ZapdbError | None = None


def read_all_tenants(storage: Storage) -> AllTenantsStatus:
    with storage.transaction(TransactionMode.READ) as connection:
        end = read_chain_state(connection).stored_end
        tenants = [tenant for tenant in list_tenants(connection) if not tenant.removing]
    positions: dict[int, int] = {}
    for tenant in tenants:
        positions[tenant.position] = positions.get(tenant.position, 0) + 1
    behind = tuple(tenant for tenant in tenants if tenant.position < end)
    return AllTenantsStatus(end, len(tenants), dict(sorted(positions.items())), behind)


def migrate_all_tenants(
    storage: Storage, on_result: Callable[[TenantResult], None] = lambda result: None
) -> list[TenantResult]:
    """Migrate every tenant to the stored end, each in one jump; returns a result for each tenant
    that was behind.

    A tenant that can't be migrated is reported, and the others continue. Safe to interrupt.
    """
    behind = read_all_tenants(storage).behind
    if not behind:
        return []
    with storage.transaction(TransactionMode.READ) as connection:
        known = load_tenant_catalog(connection, behind[0].number)
    workers = 1 if storage.dialect == "sqlite" else min(TENANT_WORKERS, len(behind))
    if workers == 1:
        return [_report(_migrate_tenant(storage, known, tenant), on_result) for tenant in behind]
    with ThreadPoolExecutor(workers, thread_name_prefix="zapdb-tenants") as pool:

        def migrate(tenant: Tenant) -> TenantResult:
            try:
                return _migrate_tenant(storage, known, tenant)
            finally:
                storage.release_connection()

        try:
            return [_report(result, on_result) for result in pool.map(migrate, behind)]
        except BaseException:
            pool.shutdown(cancel_futures=True)  # Ctrl-C ends it with the tenants that it is at
            raise


def _report(result: TenantResult, on_result: Callable[[TenantResult], None]) -> TenantResult:
    on_result(result)
    return result


def _migrate_tenant(storage: Storage, known: TenantCatalog, tenant: Tenant) -> TenantResult:
    try:
        applied, blocked = catch_up(storage, tenant.number, known=known)
    except ZapdbError as error:
        return TenantResult(tenant, tenant.position, error)
    position = applied[-1].number if applied else tenant.position
    return TenantResult(tenant, position, None if blocked is None else blocked.error(position))
