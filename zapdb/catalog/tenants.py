"""Tenants: each has its own position on the chain, its own records, archives and logs.

A tenant is a row with its position. It is migrated to the stored end when it is opened, or with all
other tenants by `zapdb migrate up --all-tenants`. Names are unique, because the name is the key of
a row of its own, and a constraint of the database keeps keys unique.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import sqlalchemy as sa

from zapdb.catalog import principal, rows
from zapdb.catalog.row_kinds import Tenant, TenantNameRow
from zapdb.errors import CorruptCatalog, TenantExists, UnknownName, UsageError, suggest
from zapdb.storage import Connection
from zapdb.storage.fixed_tables import CATALOG
from zapdb.storage.identities import first_identity

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,62}", re.ASCII)
_SHOWN_MAX: Final = 10


def require_tenant_name(name: str) -> None:
    """Raises `UsageError` for what can't be the name of a tenant."""
    if _NAME.fullmatch(name) is None:
        raise UsageError(
            "this is not a valid name of a tenant",
            name=name,
            hint="use up to 63 letters, digits and _ . @ -, beginning with a letter or digit",
        )


def add_tenant(
    connection: Connection, name: str, is_free: Callable[[int], bool] = lambda number: True
) -> Tenant:
    """Add a tenant at position 0, inside a CATALOG transaction; raises `TenantExists`. It gets the
    next number that `is_free`."""
    require_tenant_name(name)
    number = rows.draw(connection, "tenant")
    while not is_free(number):
        number = rows.draw(connection, "tenant")
    if not rows.put_if_absent(connection, TenantNameRow(name, number)):
        raise TenantExists("a tenant of this name already exists", tenant=name)
    now = connection.storage.now_us(connection)
    tenant = Tenant(number, name, 0, 0, now, principal.current(), removing=False)
    rows.put(connection, tenant)
    mark = connection.storage.placeholder
    connection.run(
        f"INSERT INTO zapdb_catalog_versions (tenant, version) VALUES ({mark}, {mark})",
        (number, first_identity()),
    )
    return tenant


def find_tenant(connection: Connection, name: str) -> Tenant:
    """Return a tenant by its name; raises `UnknownName`, which names some of the tenants."""
    tenant = find_tenant_row(connection, name)
    if tenant.removing:
        raise UnknownName(
            "the tenant is being removed",
            tenant=name,
            hint="if that was interrupted, finish it with `zapdb tenant remove`",
        )
    return tenant


def find_tenant_row(connection: Connection, name: str) -> Tenant:
    """Return a tenant by its name, also one that is being removed."""
    # An invalid name has no row, and PostgreSQL raises errors for some of them.
    is_name = isinstance(name, str) and _NAME.fullmatch(name) is not None
    row = rows.get(connection, TenantNameRow, name) if is_name else None
    if row is None:
        query = (
            sa.select(CATALOG.c.key)
            .where(CATALOG.c.kind == TenantNameRow.KIND, CATALOG.c.value.is_not(None))
            .order_by(CATALOG.c.key)
            .limit(_SHOWN_MAX + 1)
        )
        names = [key for (key,) in connection.core_execute(query)]
        shown = ", ".join(names[:_SHOWN_MAX]) + (" …" if len(names) > _SHOWN_MAX else "")
        raise UnknownName(
            "there is no such tenant",
            tenant=name,
            tenants=shown,
            hint=suggest(name, names)
            or "create it with `zapdb tenant create NAME`, or `db.admin.create_tenant(name)`",
        )
    tenant = rows.get(connection, Tenant, row.number)
    if tenant is None and rows.get(connection, TenantNameRow, name) != row:
        return find_tenant_row(connection, name)  # it was removed between the two statements
    return tenant or read_tenant(connection, row.number)


def read_tenant(connection: Connection, number: int) -> Tenant:
    """Return a tenant by its number; raises `CorruptCatalog` if the row is missing."""
    tenant = rows.get(connection, Tenant, number)
    if tenant is None:
        raise CorruptCatalog(
            "the tenant's row is missing",
            tenant=number,
            table="zapdb_catalog",
            hint="restore it from a backup",
        )
    return tenant


def list_tenants(connection: Connection) -> list[Tenant]:
    """Return all tenants, by number."""
    return sorted(rows.list_rows(connection, Tenant), key=lambda tenant: tenant.number)
