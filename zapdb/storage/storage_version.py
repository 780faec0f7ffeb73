"""The storage version: zapdb's own tables are recognised, created, upgraded by Alembic, or refused.

The version is recorded, never guessed from the tables. A new release works on the storage version
of the release before, until every live process supports the level that the new version needs (rule
10); `zapdb.catalog.cluster.level` decides when. Alembic is loaded only to create or upgrade:
opening a database that is up to date costs one query.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sqlalchemy.exc import DBAPIError

from zapdb.errors import (
    CorruptCatalog,
    IncompatibleVersion,
    NewerStorageVersion,
    NotZapdb,
    PendingMigrations,
)
from zapdb.limits import CATALOG
from zapdb.release import __version__
from zapdb.storage.connection import Connection
from zapdb.storage.fixed_tables import VERSION_TABLE
from zapdb.storage.retries import retry
from zapdb.storage.statements import raise_catalog_version
from zapdb.storage.storage import Storage
from zapdb.storage.transaction_modes import TransactionMode

if TYPE_CHECKING:
    from alembic.config import Config

FIRST_STORAGE_VERSION: Final = "0032"
"""The oldest revision under `migrations/versions`. Until the first release it is changed in place
and takes the next number; databases with a lower one are refused."""

STORAGE_VERSION: Final = "0032"
"""The newest revision under `migrations/versions`; this code works on it and on those before it."""

_REVISION: Final = re.compile(r'^revision = "(\d+)"$', re.MULTILINE)
_LEVEL: Final = re.compile(r"^LEVEL = (\d+)$", re.MULTILINE)


def upgrades_directory() -> Path:
    """Return the directory of the Alembic revisions: inside an installed package, or beside it in a
    checkout."""
    package = Path(__file__).parent
    installed = package / "storage_upgrades"
    return installed if installed.is_dir() else package.parent.parent / "migrations"


def read_storage_version(storage: Storage) -> str | None:
    """Return the storage version of a database, or None for an empty database.

    Raises `NotZapdb` for a database with other contents, `NewerStorageVersion` for one that a later
    release upgraded, `IncompatibleVersion` for one from before the first release.
    """
    if storage.engine.is_absent():
        return None
    connection = storage.connection()
    if not storage.dialect.find_home(connection):
        tables = storage.dialect.table_names(connection)
        if not tables:
            return None
        shown = ", ".join(tables[:5]) + (" …" if len(tables) > 5 else "")
        raise NotZapdb(
            "the database contains tables of something else",
            database=storage.shown_url,
            tables=shown,
            hint="give zapdb a database of its own, or on PostgreSQL a schema of its own "
            "(…?schema=zapdb)",
        )
    row = connection.fetch_one(f"SELECT version_num FROM {VERSION_TABLE}")
    if row is None:
        raise CorruptCatalog(
            "the storage version is missing",
            database=storage.shown_url,
            table=VERSION_TABLE,
            hint="restore the table from a backup",
        )
    version = str(row[0])
    if version > STORAGE_VERSION:
        raise NewerStorageVersion(
            "the database has a newer storage version than this release knows",
            database=storage.shown_url,
            storage_version=version,
            known=STORAGE_VERSION,
            release=__version__,
            hint=f"use a zapdb release that knows storage version {version}",
        )
    if version < FIRST_STORAGE_VERSION:
        raise IncompatibleVersion(
            "the database was made by an unreleased version of zapdb, whose tables are not read",
            database=storage.shown_url,
            storage_version=version,
            first=FIRST_STORAGE_VERSION,
            release=__version__,
            hint="make a new database; the version that made this one takes its records along with"
            " `zapdb data export`",
        )
    return version


def ensure_storage(storage: Storage, *, create: bool) -> None:
    """Create zapdb's own tables if there are none; with `create` false, refuse an empty database.

    An older storage version stays and is used; `upgrade_storage` upgrades it.
    """
    version = read_storage_version(storage)
    if version is None and not create:
        raise empty_database(storage, "run `zapdb migrate up`, or open it with apply='auto'")
    storage.engine.prepare(storage.connection)
    if version is None:
        _create(storage)


def empty_database(storage: Storage, hint: str) -> PendingMigrations:
    """Return the error for a database without tables of zapdb's, where they were looked for."""
    elsewhere = (
        [] if storage.engine.is_absent() else storage.dialect.find_elsewhere(storage.connection())
    )
    if elsewhere:
        hint = f"name the schema in the address: …?schema={elsewhere[0]}; or {hint}"
    error = PendingMigrations(
        "the database is empty: no migration was ever applied",
        database=storage.shown_url,
        hint=hint,
    )
    if elsewhere:
        error.context["schemas_with_tables"] = ", ".join(elsewhere)
    return error


def _create(storage: Storage) -> None:
    # Before the transaction, which keeps others waiting and may not do nothing for long.
    from alembic import command  # noqa: F401 - imported ahead

    # The server may end the session all the same, or another process may be faster.
    retry(CATALOG, partial(_create_tables, storage))


def _create_tables(storage: Storage) -> None:
    with storage.transaction(TransactionMode.CATALOG) as connection:
        storage.dialect.lock_storage_version(connection)
        if read_storage_version(storage) is None:
            with storage.dialect.making_home(connection):
                storage.engine.check_capabilities(connection)
                _run_revisions(connection)


@dataclass(frozen=True, slots=True)
class StorageUpgrade:
    """A storage version, and the level that every live process must support before it."""

    version: str
    level: int


def pending_upgrades(storage: Storage) -> list[StorageUpgrade]:
    """Return the upgrades that the database lacks, oldest first; none for an empty database."""
    current = read_storage_version(storage)
    if current in (None, STORAGE_VERSION):
        return []
    return [upgrade for upgrade in list_upgrades() if upgrade.version > str(current)]


def list_upgrades() -> list[StorageUpgrade]:
    """Return all storage versions that this code knows, oldest first; without Alembic, which takes
    longer to find them than zapdb to write the first rows of a database."""
    texts = [path.read_text() for path in (upgrades_directory() / "versions").glob("*.py")]
    return sorted(map(_read_upgrade, texts), key=lambda upgrade: upgrade.version)


def _read_upgrade(text: str) -> StorageUpgrade:
    version, level = _REVISION.search(text), _LEVEL.search(text)
    assert version is not None
    assert level is not None
    return StorageUpgrade(version[1], int(level[1]))


def upgrade_storage(connection: Connection) -> None:
    """Run the pending upgrades, inside a DDL transaction, if the cluster's level allows them.

    Every process then reloads its tenant catalogs, as after an activation.
    """
    connection.storage.dialect.lock_storage_version(connection)
    if read_storage_version(connection.storage) != STORAGE_VERSION:
        _run_revisions(connection)
        raise_catalog_version(connection)


def _config() -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(upgrades_directory()).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def _run_revisions(connection: Connection) -> None:
    from alembic import command

    config = _config()
    config.attributes["connection"] = connection.core
    config.attributes["schema"] = connection.storage.dialect.home_name
    try:
        command.upgrade(config, STORAGE_VERSION)
    except DBAPIError as error:  # as where the server ended the session
        raise connection.meaning(error) from error
