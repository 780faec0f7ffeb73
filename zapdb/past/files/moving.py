"""Moving a history store to another directory: old eras, such as to a cheaper disk, or all of it.

Each file is copied, compared with its digest, and flushed; then one transaction puts the row of the
copy in the place of the old one, which is deleted after the grace. So a reader finds one or the
other, and a move that was killed goes on where it was. Before a copy is made, it has a row as a
retired file: so it is deleted after the grace if nothing comes of it, and an erasure finds it.

A store that moves as a whole goes on where it is then: the live files that the newest manifest of
each timeline names are copied, with a manifest of the copies, of which the rows are made anew. The
former directory stays as it is: it may be that of the database that this one is a copy of, and
which may have moved the store on since. What that alone has is cut off then, as where a database
was restored from a backup.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from zapdb.errors import UsageError
from zapdb.past.files.cleaning import delete_files
from zapdb.past.files.directories import writing_to
from zapdb.past.files.history_file import (
    OTHER_DIGEST,
    UNFINISHED,
    find_keys,
    list_directory,
    make_damaged,
    reading_file,
    writing_new,
)
from zapdb.past.files.history_manifest import (
    HistoryFile,
    HistoryStore,
    insert_files,
    list_eras,
    list_history_files,
    list_timelines,
)
from zapdb.past.files.manifest_files import ManifestFile, list_manifests, write_manifest
from zapdb.past.files.manifest_rebuilding import find_manifests, rebuild_manifest
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
        era.place
        for era in list_eras(connection, store)
        if (open_until if era.last_moment is None else era.last_moment) < before
    }
    for file in list_history_files(connection, store):
        if file.place in ended:
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
    with reading_file(source, file):
        reader = source.open("rb")
    with (
        reader,
        writing_to(copy.directory or store.directory),
        writing_new(path, working.require_lease) as writer,
    ):
        digest = hashlib.sha256()
        while data := reader.read(COPIED_BYTES):
            digest.update(data)
            writer.write(data)
        if digest.digest() != file.sha256:
            raise make_damaged(source, file, OTHER_DIGEST)


def move_store(working: StoreWriter, directory: Path) -> HistoryMove:
    """Copy all files of a tenant's store, those too that were moved elsewhere, to a new directory,
    and follow there from now on.

    Raises `UsageError` as `prepare_directory` does, without a store, and for a directory that is
    its own or has files of a store; `HistoryDamaged` for files that are missing, or not what was
    written; `HistoryUnreachable` and `DiskFull`.
    """
    require_store(working.storage.connection(), working.tenant)
    directory = prepare_directory(working.storage, working.tenant, directory)
    with working.storage.transaction(TransactionMode.READ) as connection:
        working.load_in(connection)
        timelines = list_timelines(connection, working.tenant)
    _make_free(working, timelines, directory)
    known = {one.timeline for one in timelines}
    found = list[ManifestFile]()
    for source in sorted({one.directory for one in timelines}):
        with writing_to(source):
            manifests = find_manifests(working, Path(source))
        found += [one for one in manifests if one.store.timeline in known]
    moved = [file for one in found for file in _copy(working, one, directory)]
    rebuild_manifest(working, directory)
    return HistoryMove(str(directory), len(moved), sum(file.size_bytes for file in moved))


def _make_free(working: StoreWriter, timelines: list[HistoryStore], directory: Path) -> None:
    """Delete what a copying that was killed has left in the directory; raise `UsageError` for one
    that has anything else."""
    if str(directory) in {one.directory for one in timelines}:
        raise UsageError(
            "the history store is in this directory already",
            directory=str(directory),
            hint="give another directory, which may not be there yet",
        )
    if any(list_manifests(directory, working.tenant)):
        raise UsageError(
            "the directory has a history store",
            directory=str(directory),
            hint="give a new one; if a move to it was interrupted, or if it is a copy of the "
            "store's, `zapdb history rebuild-manifest DIRECTORY` goes on with it",
        )
    with working.storage.transaction(TransactionMode.READ) as connection:
        retired = [
            (store, file)
            for store in timelines
            for file in list_history_files(connection, store, state="retired")
            if file.directory == str(directory)
        ]
    delete_files(working, retired, strict=True)
    own = directory / str(working.tenant)
    with writing_to(str(directory)):
        for store in timelines:
            for unfinished in own.glob(f"manifest-{store.timeline}-*{UNFINISHED}"):
                unfinished.unlink(missing_ok=True)
    left = [
        path
        for inside in list_directory(own)
        for path in (list_directory(inside) or [inside])
        if path.is_file()
    ]
    if left:
        raise UsageError(
            "the directory has files already",
            path=str(left[0]),
            hint="give a new directory",
        )


def _copy(working: StoreWriter, one: ManifestFile, directory: Path) -> list[HistoryFile]:
    """Copy the files of a timeline, and write the manifest of the copies."""
    files = [find_keys(file.place_in(one.store.directory), file) for file in one.files]
    copies = [plan_copy(one.store, file, directory) for file in files]
    with working.changing() as connection:
        now = working.storage.now_us(connection)
        planned = [replace(copy, state="retired", retired_at=now) for copy in copies]
        insert_files(connection, planned)
    for file, copy in zip(files, copies, strict=True):
        copy_file(working, one.store, file, copy)
    former = {*one.store.former_directories, one.store.directory} - {str(directory)}
    store = replace(one.store, directory=str(directory), former_directories=tuple(sorted(former)))
    placed = [replace(copy, directory=None) for copy in copies]
    made = replace(one, store=store, files=placed, place=working.place)
    with writing_to(str(directory)):
        write_manifest(made)
    return copies
