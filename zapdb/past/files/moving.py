"""Moving old eras of a history store to another directory, such as one on a cheaper disk.

Each file is copied, compared with its digest, and flushed; then one transaction puts the row of the
copy in the place of the old one, which is deleted after the grace. So a reader finds one or the
other, and a move that was killed goes on where it was. Before a copy is made, it has a row as a
retired file: so it is deleted after the grace if nothing comes of it, and an erasure finds it.
"""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Final

from zapdb.errors import HistoryDamaged
from zapdb.past.files.directories import writing_to
from zapdb.past.files.history_file import UNFINISHED, make_directory, reading_file, sync_directory
from zapdb.past.files.history_manifest import (
    HistoryFile,
    HistoryStore,
    insert_files,
    list_eras,
    list_history_files,
    list_timelines,
)
from zapdb.past.files.store_changes import StoreChange, StoreCommit
from zapdb.past.files.stores import prepare_directory, require_store
from zapdb.past.files.working_store import StoreWriter
from zapdb.storage import Connection, TransactionMode

COPIED_BYTES: Final = 1 << 20
"""How much of a file is in memory while it is copied."""


@dataclass(frozen=True, slots=True)
class HistoryMove:
    """What was moved to a directory: `files` of eras that ended before a moment, or all."""

    directory: str
    files: int
    size_bytes: int


def move_eras(working: StoreWriter, before: int, directory: Path) -> HistoryMove:
    """Move the files of all eras that ended before a moment, in each timeline.

    Files of moments stay. Raises `UsageError` as `prepare_directory` does, `HistoryUnreachable`,
    `DiskFull`, and `HistoryDamaged` for a file that is not what was written.
    """
    require_store(working.storage.connection(), working.tenant)
    directory = prepare_directory(working.storage, working.tenant, directory)
    with working.storage.transaction(TransactionMode.READ) as connection:
        timelines = list_timelines(connection, working.tenant)
        found = [
            (store, file)
            for at, store in enumerate(timelines)
            for file in _list_ended(connection, store, before, is_over=at > 0)
        ]
    moved = [file for store, file in found if Path(file.directory or store.directory) != directory]
    for store, file in found:
        if file in moved:
            copy = plan_copy(store, file, directory)
            with working.changing() as connection:
                now = working.storage.now_us(connection)
                insert_files(connection, [replace(copy, state="retired", retired_at=now)])
            copy_file(working, store, file, copy)
            change = StoreChange(retired=[file], corrected=[copy])
            with working.committing([StoreCommit(store, store, change)]):
                pass
    return HistoryMove(str(directory), len(moved), sum(file.size_bytes for file in moved))


def _list_ended(
    connection: Connection, store: HistoryStore, before: int, *, is_over: bool
) -> Iterator[HistoryFile]:
    """Yield the files of a timeline's eras that ended before a moment; one that `is_over` ends with
    its last moment."""
    open_until = store.ends if is_over else before
    ended = {
        (era.table_number, era.era)
        for era in list_eras(connection, store)
        if (open_until if era.last_moment is None else era.last_moment) < before
    }
    for file in list_history_files(connection, store):
        if (file.table_number, file.era) in ended:
            yield file


def plan_copy(store: HistoryStore, file: HistoryFile, directory: Path) -> HistoryFile:
    """Return the row of a copy of a file in a directory, under another id."""
    name = uuid.uuid4().hex
    place = None if str(directory) == store.directory else str(directory)
    return replace(file, id=name, directory=place)


def copy_file(
    working: StoreWriter, store: HistoryStore, file: HistoryFile, copy: HistoryFile
) -> None:
    """Copy a file to where the row of its copy says. Raises `HistoryUnreachable`, `DiskFull`,
    `HistoryDamaged` and `LeaseLost`."""
    source, path = file.place_in(store.directory), copy.place_in(store.directory)
    unfinished = path.with_name(path.name + UNFINISHED)
    with reading_file(source, file):
        reader = source.open("rb")
    try:
        with reader, writing_to(copy.directory or store.directory):
            make_directory(path.parent)
            digest = _copy_bytes(reader, unfinished, working.require_lease)
            if digest != file.sha256:
                raise HistoryDamaged(
                    "a file of the history store is not what was written",
                    path=str(source),
                    table=file.table_number,
                    moments=f"{file.first_moment} to {file.last_moment}",
                    hint="restore it from a backup; files before it were moved",
                )
            unfinished.rename(path)
            sync_directory(path.parent)
    finally:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)


def _copy_bytes(reader: BinaryIO, path: Path, require_lease: Callable[[], None]) -> bytes:
    digest = hashlib.sha256()
    with path.open("wb") as writer:
        require_lease()
        while data := reader.read(COPIED_BYTES):
            digest.update(data)
            writer.write(data)
        writer.flush()
        os.fsync(writer.fileno())
    return digest.digest()
