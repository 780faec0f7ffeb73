"""Deleting the files of the stores of a tenant that is being removed."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from zapdb.catalog import rows
from zapdb.catalog.row_kinds import DatabaseRow
from zapdb.errors import HistoryDamaged, HistoryUnreachable, MissingExtra
from zapdb.past.files.history_manifest import list_history_files, list_timelines
from zapdb.storage import Storage, TransactionMode
from zapdb.storage.database_place import read_place

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
            _load_files()[0].delete_own_files(directory, tenant, database)
        except OSError as error:
            raise HistoryUnreachable(
                "the history files of the tenant can't be deleted",
                directory=str(directory / str(tenant)),
                error=str(error),
                hint="remove the cause, and run the command again: the tenant is half removed",
            ) from error
    left = [Path(directory) / str(tenant) for directory in sorted(directories)]
    return tuple(str(one) for one in left if one.is_dir())


def _is_own(directory: Path, tenant: int, place: str) -> bool:
    """Whether a database at this place has written what a directory has last; or nobody has.
    Raises `MissingExtra`."""
    _, manifest_files = _load_files()
    try:
        paths = manifest_files.list_manifests(directory, tenant)
        found = [manifest_files.read_manifest_file(path) for path in paths]
    except (HistoryDamaged, OSError):
        return False
    newest = max(found, key=lambda one: (one.store.timeline, one.order), default=None)
    return newest is None or newest.place == place


def _load_files() -> tuple[Any, Any]:
    """The modules that read files of a store; raises `MissingExtra`."""
    try:
        from zapdb.past.files import cleaning, manifest_files
    except ModuleNotFoundError as missing:
        raise MissingExtra.named("sql", "pyarrow") from missing
    return cleaning, manifest_files
