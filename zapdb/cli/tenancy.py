"""Which tenant a command is about."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from zapdb.catalog import DEFAULT_TENANT, ensure_rows
from zapdb.catalog.nodes import check_level
from zapdb.catalog.tenants import find_tenant
from zapdb.cli.opening import connected
from zapdb.storage import Mode, Storage, ensure_layout

TenantOption = Annotated[
    str | None,
    typer.Option("--tenant", "-t", metavar="NAME", help="The tenant; else the default one."),
]


@contextmanager
def opened_for(database: str | None, tenant: str | None) -> Iterator[tuple[Storage, int]]:
    """A database with migrations, and the number of the tenant; nothing is read of what is in force
    for it. Raises `PendingMigrations` for a database that is empty or missing, and `UnknownName`.
    """
    with connected(database) as storage:
        ensure_layout(storage, create=False)
        ensure_rows(storage)
        with storage.transaction(Mode.READ) as connection:
            check_level(connection)
            number = DEFAULT_TENANT if tenant is None else find_tenant(connection, tenant).number
        yield storage, number
