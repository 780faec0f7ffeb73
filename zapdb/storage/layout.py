"""zapdb's own layout in a database: recognised, created, upgraded by Alembic, or refused.

The layout's revision is recorded, never guessed from the tables that are there. Alembic is loaded
only to create or upgrade: opening a database that is up to date costs one query.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from zapdb.errors import CorruptCatalog, NewerLayout, NotZapdb, PendingMigrations
from zapdb.release import __version__
from zapdb.storage.base import Connection, Mode, Storage

LAYOUT_REVISION: Final = "0001"
"""The newest revision under `migrations/versions`, and the one that this code works on."""

VERSION_TABLE: Final = "zapdb_layout"


def revisions_directory() -> Path:
    """Where the Alembic revisions are: inside an installed package, or beside it in a checkout."""
    package = Path(__file__).parent
    installed = package / "layout_revisions"
    return installed if installed.is_dir() else package.parent.parent / "migrations"


def read_layout(storage: Storage) -> str | None:
    """The database's layout revision, or None for an empty database.

    Raises `NotZapdb` for a database that holds something else, `NewerLayout` for one that a later
    release upgraded.
    """
    if storage.is_absent():
        return None
    connection = storage.connection()
    tables = storage.table_names(connection)
    if VERSION_TABLE not in tables:
        if not tables:
            return None
        shown = ", ".join(tables[:5]) + (" …" if len(tables) > 5 else "")
        raise NotZapdb(
            "the database holds tables, and none of them are zapdb's",
            database=storage.shown_url,
            tables=shown,
            hint="give a database of its own, or on PostgreSQL a schema of its own "
            "(…?options=-csearch_path%3Dzapdb)",
        )
    row = connection.fetch_one(f"SELECT version_num FROM {VERSION_TABLE}")
    if row is None:
        raise CorruptCatalog(
            "the layout's revision is missing",
            database=storage.shown_url,
            table=VERSION_TABLE,
            hint="restore the table from a backup",
        )
    revision = str(row[0])
    if revision > LAYOUT_REVISION:
        raise NewerLayout(
            "the database has a newer layout than this release knows",
            database=storage.shown_url,
            layout=revision,
            known=LAYOUT_REVISION,
            release=__version__,
            hint=f"use a zapdb release that knows layout {revision}",
        )
    return revision


def ensure_layout(storage: Storage, *, create: bool) -> None:
    """Bring the layout up to date; with `create` false, refuse a database that has none."""
    revision = read_layout(storage)
    if revision == LAYOUT_REVISION:
        storage.prepare()
        return
    if revision is None and not create:
        raise PendingMigrations(
            "the database is empty: no migration was ever applied to it",
            database=storage.shown_url,
            hint="run `zapdb migrate up`, or open it with apply='auto'",
        )
    storage.prepare()
    with storage.transaction(Mode.CATALOG) as connection:
        storage.lock_layout(connection)
        if read_layout(storage) != LAYOUT_REVISION:  # another process may have been faster
            _upgrade(connection)


def _upgrade(connection: Connection) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(revisions_directory()).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection.core
    command.upgrade(config, "head")
