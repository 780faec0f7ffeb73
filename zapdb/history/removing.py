"""Deleting the files of the stores of a tenant that is being removed."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

from zapdb.errors import HistoryUnreachable
from zapdb.storage import Storage, TransactionMode
from zapdb.storage.history_manifest import list_history_files, list_timelines

logger = logging.getLogger("zapdb.history")


def delete_store_files(storage: Storage, tenant: int) -> None:
    """Delete all that is in a tenant's directories, before its rows are deleted.

    The tenant is marked as removed, so nobody follows it any more. A directory that is not there is
    only told: it may be gone for good. Raises `HistoryUnreachable` for files that can't be deleted.
    """
    with storage.transaction(TransactionMode.READ) as connection:
        stores = list_timelines(connection, tenant)
        directories = {store.directory for store in stores}
        for store in stores:
            files = list_history_files(connection, store, state=None)
            directories |= {file.directory for file in files if file.directory is not None}
    for directory in map(Path, sorted(directories)):
        if not directory.is_dir():
            logger.warning("the history files of a removed tenant are not there: %s", directory)
            continue
        try:
            if (directory / str(tenant)).is_dir():
                shutil.rmtree(directory / str(tenant))
        except OSError as error:
            raise HistoryUnreachable(
                "the history files of the tenant can't be deleted",
                directory=str(directory / str(tenant)),
                error=str(error),
                hint="remove the cause, and run the command again: the tenant is half removed",
            ) from error
