"""All tenants at once: who is behind what is stored, and bringing them up, some at a time."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from zapdb.activation.up import catch_up
from zapdb.activation.view import View, load_view
from zapdb.catalog.kinds import Tenant
from zapdb.catalog.stored import read_chain_state
from zapdb.catalog.tenants import list_tenants
from zapdb.errors import ZapdbError
from zapdb.limits import TENANT_WORKERS
from zapdb.storage import Mode, Storage


@dataclass(frozen=True, slots=True)
class FleetStatus:
    """How many tenants are at each position, and those that are behind the stored `end`."""

    end: int
    tenants: int
    positions: dict[int, int]
    behind: tuple[Tenant, ...]


@dataclass(frozen=True, slots=True)
class Brought:
    """What became of one tenant: where it is now, or why it could not be brought further."""

    tenant: Tenant
    position: int
    error: ZapdbError | None = None


def read_fleet(storage: Storage) -> FleetStatus:
    with storage.transaction(Mode.READ) as connection:
        end = read_chain_state(connection).stored_end
        tenants = [tenant for tenant in list_tenants(connection) if not tenant.removing]
    positions: dict[int, int] = {}
    for tenant in tenants:
        positions[tenant.position] = positions.get(tenant.position, 0) + 1
    behind = tuple(tenant for tenant in tenants if tenant.position < end)
    return FleetStatus(end, len(tenants), dict(sorted(positions.items())), behind)


def bring_up_all(
    storage: Storage, on_brought: Callable[[Brought], None] = lambda brought: None
) -> list[Brought]:
    """Bring every tenant to the stored end, each in one jump; returns those that were behind.

    One that can't be brought there is reported, and the others go on. Safe to interrupt.
    """
    behind = read_fleet(storage).behind
    if not behind:
        return []
    with storage.transaction(Mode.READ) as connection:
        known = load_view(connection, behind[0].number)
    workers = 1 if storage.dialect == "sqlite" else min(TENANT_WORKERS, len(behind))
    if workers == 1:
        return [_report(_bring(storage, known, tenant), on_brought) for tenant in behind]
    with ThreadPoolExecutor(workers, thread_name_prefix="zapdb-fleet") as pool:

        def bring(tenant: Tenant) -> Brought:
            try:
                return _bring(storage, known, tenant)
            finally:
                storage.release_connection()

        try:
            return [_report(brought, on_brought) for brought in pool.map(bring, behind)]
        except BaseException:
            pool.shutdown(cancel_futures=True)  # Ctrl-C ends it with the tenants that it is at
            raise


def _report(brought: Brought, on_brought: Callable[[Brought], None]) -> Brought:
    on_brought(brought)
    return brought


def _bring(storage: Storage, known: View, tenant: Tenant) -> Brought:
    try:
        applied, blocked = catch_up(storage, tenant.number, known=known)
    except ZapdbError as error:
        return Brought(tenant, tenant.position, error)
    position = applied[-1].number if applied else tenant.position
    return Brought(tenant, position, None if blocked is None else blocked.error(position))
