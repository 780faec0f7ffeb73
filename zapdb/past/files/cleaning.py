"""Deleting files that nothing needs any more: retired ones, and those of work that did not end.

A retired file goes after the grace, unless a reader that began before has pinned the files of then.
A file that no row names goes when it is a day old and says that it belongs to one of this tenant's
timelines, and only from a directory where no file belongs to another database.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Final, get_args

from zapdb.catalog.cluster.leases import list_leases
from zapdb.catalog.settings import HISTORY_GRACE_SECONDS, Scope
from zapdb.catalog.stored_settings import read_settings
from zapdb.errors import HistoryDamaged, HistoryUnreachable, StorageError, UsageError
from zapdb.limits import HISTORY_ORPHAN_SECONDS
from zapdb.past.files.directories import require_directory, writing_to
from zapdb.past.files.history_file import (
    UNFINISHED,
    delete_file,
    delete_file_of_row,
    list_directory,
    read_footer,
    unfinished_of,
)
from zapdb.past.files.history_manifest import (
    NAMED,
    PIN_PREFIX,
    HistoryFile,
    HistoryStore,
    delete_file_rows,
    list_history_files,
    list_timelines,
)
from zapdb.past.files.manifest_files import is_of_database, list_manifests
from zapdb.past.files.working_store import StoreWriter
from zapdb.storage import Connection, TransactionMode
from zapdb.storage.fixed_tables import FileKind

logger = logging.getLogger("zapdb.history")

_KINDS: Final = "|".join(get_args(FileKind))
_UNFINISHED_FILE: Final = re.compile(rf"({_KINDS})-[0-9a-f]+\.parquet{re.escape(UNFINISHED)}")
_UNFINISHED_MANIFEST: Final = re.compile(
    rf"manifest-{NAMED.pattern}-[0-9]+-[0-9a-f]+\.json{re.escape(UNFINISHED)}"
)
"""What is unfinished says nothing of itself: it is known by its name."""


def delete_retired(working: StoreWriter) -> int:
    """Delete the retired files whose grace is over, and then their rows; return how many. None is
    deleted while another database has moved a timeline on, whose readers may need them."""
    storage, tenant = working.storage, working.tenant
    with storage.transaction(TransactionMode.READ) as connection:
        working.read_database(connection)
        now = storage.now_us(connection)
        grace = int(read_settings(connection, tenant).find(HISTORY_GRACE_SECONDS, Scope(tenant))[0])
        limit = min(now - grace * 1_000_000, find_first_pin(connection, tenant, now))
        stores = list_timelines(connection, tenant)
    if not _may_delete(working, stores, strict=False):
        return 0
    with storage.transaction(TransactionMode.READ) as connection:
        gone = [
            (store, file)
            for store in stores
            for file in list_history_files(connection, store, state="retired")
            if file.retired_at is not None and file.retired_at <= limit
        ]
    return delete_files(working, gone)


def delete_files(
    working: StoreWriter, gone: Iterable[tuple[HistoryStore, HistoryFile]], *, strict: bool = False
) -> int:
    """Delete retired files, and then their rows; return how many. What can't be deleted now keeps
    its row, by which it is found again; with `strict`, it raises `HistoryUnreachable` or
    `HistoryDamaged`."""
    deleted = list[HistoryFile]()
    for store, file in gone:
        directory = file.directory or store.directory
        try:
            with writing_to(directory):
                require_directory(directory, store.tenant)
                delete_file_of_row(store.directory, file, working.database)
                unfinished_of(file.place_in(store.directory)).unlink(missing_ok=True)
        except (StorageError, HistoryDamaged) as error:
            if strict:
                raise
            logger.warning("a retired file of the history store is not deleted: %s", error)
        else:
            deleted.append(file)
    if deleted:
        with working.changing() as connection:
            delete_file_rows(connection, deleted)
    return len(deleted)


def find_first_pin(connection: Connection, tenant: int, now: int) -> int:
    """Return since when the longest reader has pinned the files of then; `now` without one."""
    pins = [
        lease
        for lease in list_leases(connection, f"{PIN_PREFIX}{tenant}/")
        if not lease.is_over(now)
    ]
    return min((pin.since for pin in pins), default=now)


def delete_orphans(
    working: StoreWriter, *, age_seconds: float = HISTORY_ORPHAN_SECONDS, strict: bool = False
) -> int:
    """Delete the old files of this tenant's timelines that no row names; return how many.

    A directory that is not there, or has files that are not of this database, is left as it is;
    with `strict`, it raises `HistoryUnreachable` or `HistoryDamaged`. None is deleted while another
    database has moved a timeline on; with `strict`, that raises `UsageError`.
    """
    with working.storage.transaction(TransactionMode.READ) as connection:
        working.load_in(connection)
        stores = list_timelines(connection, working.tenant)
        files = {store: list_history_files(connection, store, state=None) for store in stores}
    if not _may_delete(working, stores, strict=strict):
        return 0
    named = {file.place_in(store.directory) for store in stores for file in files[store]}
    directories = {Path(store.directory) for store in stores}
    directories |= {
        Path(file.directory)
        for store in stores
        for file in files[store]
        if file.directory is not None
    }
    timelines = {store.timeline for store in stores}
    deleted = 0
    for directory in sorted(directories):
        leniently = nullcontext() if strict else suppress(HistoryUnreachable, HistoryDamaged)
        with leniently, writing_to(str(directory)):
            for path in list(_find_orphans(working, directory, timelines, named)):
                if time.time() - path.stat().st_mtime > age_seconds:
                    path.unlink()
                    deleted += 1
    return deleted


def _may_delete(working: StoreWriter, stores: list[HistoryStore], *, strict: bool) -> bool:
    """Whether no other database has moved a timeline on, whose later files no row names here."""
    for store in stores:
        try:
            working.require_not_superseded(store)
        except HistoryUnreachable:  # nothing can be deleted there
            if strict:
                raise
        except UsageError:
            if strict:
                raise
            return False
    return True


def _find_orphans(
    working: StoreWriter, directory: Path, timelines: set[str], named: set[Path]
) -> Iterator[Path]:
    """Yield this tenant's files that no row names; raises `HistoryDamaged` before, if a file is not
    of this database."""
    own = directory / str(working.tenant)
    found = [path for path in list_store_files(own) if path not in named]
    footers = {path: read_footer(path)[0] for path in found if path.suffix == ".parquet"}
    for path, footer in footers.items():
        if footer.database != working.database:
            raise HistoryDamaged(
                "the directory of the history store has files of another database",
                path=str(path),
                hint="move them away: nothing is deleted beside them",
            )
    for path in found:
        if path not in footers or footers[path].timeline in timelines:
            yield path


def list_store_files(directory: Path) -> Iterator[Path]:
    """Yield the files in a tenant's directory, also those that are not complete; raises `OSError`
    for what can't be looked through."""
    for path in list_directory(directory):
        for inside in list_directory(path):
            if inside.suffix == ".parquet" or _UNFINISHED_FILE.fullmatch(inside.name):
                yield inside
        if _UNFINISHED_MANIFEST.fullmatch(path.name):
            yield path


def delete_own_files(directory: Path, tenant: int, database: str) -> None:
    """Delete what a database has written for a tenant in a directory, and the directories that are
    empty then: nothing else, whatever directory the rows name. Raises `OSError`."""
    own = directory / str(tenant)
    files = list(list_store_files(own))
    whole = [path for path in files if path.suffix == ".parquet"]
    for path in whole:
        with suppress(HistoryDamaged):
            delete_file(path, database)
    if not any(path.exists() for path in whole):
        for path in files:  # what is unfinished says nothing of itself
            path.unlink(missing_ok=True)
    for path in list_manifests(directory, tenant):
        if is_of_database(path, database):
            path.unlink()
    for inside in (*list_directory(own), own):
        if inside.is_dir():
            with suppress(OSError):  # it is not empty
                inside.rmdir()
