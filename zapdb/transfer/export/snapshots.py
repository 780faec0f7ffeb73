"""What exports share: what is active in a snapshot, and damage that is met while it is read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from zapdb.activation import TenantCatalog
from zapdb.activation.served_schema import sees_active
from zapdb.errors import CorruptionError, UsageError
from zapdb.tables.session import Session


def read_catalog(session: Session) -> TenantCatalog:
    """What is active in a snapshot; raises `UsageError` if the database was opened with files that
    lead to another schema."""
    with session.using():
        catalog, served = session.catalog, session.served
    if served is not None and not sees_active(catalog, served):
        raise UsageError(
            "the database was opened with migration files that do not end at the active migration",
            served=served.position,
            active=catalog.position,
            hint="open it without migrations: zapdb.open(url)",
        )
    return catalog


@contextmanager
def naming_table(name: str) -> Iterator[None]:
    """Add the table to errors about stored bytes."""
    try:
        yield
    except CorruptionError as error:
        error.context.setdefault("table", name)
        raise
