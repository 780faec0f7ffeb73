"""How commands get at a database: connected only, or with the view of what is in force."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from zapdb.catalog import DEFAULT_TENANT, View, ensure_rows, load_view
from zapdb.catalog.nodes import check_level
from zapdb.cli.configuration import find_database
from zapdb.storage import Mode, Storage, connect, ensure_layout, read_layout


@contextmanager
def connected(database: str | None) -> Iterator[Storage]:
    """The storage of the database that a command is about, whatever is in it; closed at the end."""
    storage = connect(find_database(database))
    try:
        yield storage
    finally:
        storage.close()


@contextmanager
def opened(database: str | None) -> Iterator[tuple[Storage, View]]:
    """A database with migrations; raises `PendingMigrations` for one that is empty or missing."""
    with connected(database) as storage:
        ensure_layout(storage, create=False)
        ensure_rows(storage)
        yield storage, read_view(storage)


def read_view(storage: Storage) -> View:
    """What is in force now."""
    with storage.transaction(Mode.READ) as connection:
        check_level(connection)
        return load_view(connection, DEFAULT_TENANT)


def read_view_if_any(storage: Storage) -> View | None:
    """What is in force, or None for a database that is empty or missing; both stay so."""
    if read_layout(storage) is None:
        return None
    ensure_layout(storage, create=False)
    ensure_rows(storage)
    return read_view(storage)
