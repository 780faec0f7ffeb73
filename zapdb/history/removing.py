"""Deleting the files of the stores of a tenant that is being removed."""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path

from zapdb.catalog import rows
from zapdb.catalog.kinds import DatabaseRow
from zapdb.errors import HistoryDamaged, HistoryUnreachable, MissingExtra
from zapdb.storage import Storage, TransactionMode
from zapdb.storage.database_place import read_place
from zapdb.storage.history_manifest import list_history_files, list_timelines

logger = logging.getLogger("zapdb.history")


def delete_store_files(storage: Storage, tenant: int) -> tuple[str, ...]:
    """Delete what this database has written in a tenant's directories, before its rows are deleted.

    The tenant is marked as removed, so nobody follows it any more. A directory that is not there is
    only told: it may be gone for good. If the last commit in a store's directory is not of this
    database at this place, it may be that of the original, of which this one is a copy: all is
    left then. Returns the tenant's directories that are not empty. Raises `HistoryUnreachable` for
    files that can't be deleted.
    """
    with storage.transaction(TransactionMode.READ) as connection:
        place, row = read_place(connection), rows.get(connection, DatabaseRow)
        database = "" if row is None else row.id
        stores = list_timelines(connection, tenant)
        directories = {store.directory for store in stores}
        for store in stores:
            files = list_history_files(connection, store, state=None)
            directories |= {file.directory for file in files if file.directory is not None}
    of_stores = {Path(store.directory) for store in stores}
    if not all(_is_own(directory, tenant, place) for directory in of_stores):
        left = [Path(directory) / str(tenant) for directory in sorted(directories)]
        return tuple(str(one) for one in left if one.is_dir())
    for directory in map(Path, sorted(directories)):
        if not directory.is_dir():
            logger.warning("the history files of a removed tenant are not there: %s", directory)
            continue
        try:
            _delete_own(directory / str(tenant), database)
        except OSError as error:
            raise HistoryUnreachable(
                "the history files of the tenant can't be deleted",
                directory=str(directory / str(tenant)),
                error=str(error),
                hint="remove the cause, and run the command again: the tenant is half removed",
            ) from error
    left = [Path(directory) / str(tenant) for directory in sorted(directories)]
    return tuple(str(one) for one in left if one.is_dir())


def _delete_own(own: Path, database: str) -> None:
    """Delete what this database has written in a tenant's directory, and the directories that are
    empty then: nothing else, whatever directory the rows name. Raises `OSError`."""
    from zapdb.history.cleaning import list_store_files
    from zapdb.history.files import delete_file, list_directory
    from zapdb.history.manifest_files import is_of_database, list_manifests

    files = [*list_store_files(own)]
    for path in files:
        if path.suffix == ".parquet":
            with suppress(HistoryDamaged):
                delete_file(path, database)
    if not any(path.exists() for path in files if path.suffix == ".parquet"):
        for path in files:  # what is unfinished says nothing of itself
            path.unlink(missing_ok=True)
    for path in list_manifests(own.parent, int(own.name)):
        if is_of_database(path, database):
            path.unlink()
    for inside in (*list_directory(own), own):
        if inside.is_dir():
            with suppress(OSError):  # it is not empty
                inside.rmdir()


def _is_own(directory: Path, tenant: int, place: str) -> bool:
    """Whether a database at this place has written what a directory has last; or nobody has.
    Raises `MissingExtra`."""
    try:
        from zapdb.history.manifest_files import list_manifests, read_manifest_file
    except ModuleNotFoundError as missing:
        raise MissingExtra.named("sql", "pyarrow") from missing
    try:
        found = [read_manifest_file(path) for path in list_manifests(directory, tenant)]
    except (HistoryDamaged, OSError):
        return False
    newest = max(found, key=lambda one: (one.store.timeline, one.order), default=None)
    return newest is None or newest.place == place
