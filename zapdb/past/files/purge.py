"""Purging the oldest part of a history store: whole eras go, and earlier moments are refused.

One transaction says from which moment on the store answers, and takes the files of the eras before
that out of the manifest. They are deleted after the grace, when no reader has pinned them. Nothing
is written anew: the era of the first moment that is kept stays whole. An exact purge cuts that,
too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyarrow import compute

from zapdb.catalog.schema_events import append_purge_event
from zapdb.errors import UsageError
from zapdb.past.files.cutting import cut_era
from zapdb.past.files.history_manifest import (
    HistoryEra,
    HistoryFile,
    HistoryStore,
    list_history_files,
    list_timelines,
)
from zapdb.past.files.moment_rows import read_moments
from zapdb.past.files.store_changes import StoreChange, StoreCommit, TimelineRows
from zapdb.past.files.working_store import StoreWriter, read_timeline, require_format
from zapdb.storage import TransactionMode


@dataclass(frozen=True, slots=True)
class HistoryPurge:
    """What a purge takes out of a store: it keeps moments from `kept_from` on."""

    kept_from: int
    eras: int
    files: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class _Purged:
    """What goes of one timeline."""

    read: TimelineRows
    change: StoreChange


def purge_store(
    working: StoreWriter, kept_from: int, *, exact: bool = False, dry_run: bool = False
) -> HistoryPurge:
    """Purge the moments before one from all timelines of a tenant's store; `exact`, so that eras
    which go on after it lose what ended before it.

    Raises `UsageError` without a store, and for a moment that is not in files yet; if it is exact,
    `HistoryUnreachable`, `HistoryDamaged` and `DiskFull`.
    """
    with working.storage.transaction(TransactionMode.READ) as connection:
        if exact:  # the files that are cut need the schemas of their tables
            working.load_in(connection)
        timelines = list_timelines(connection, working.tenant)
        _require_stored(timelines, kept_from)
        require_format(timelines[0])
        working.read_database(connection)
        found = [
            _plan(read_timeline(connection, store), kept_from, is_over=at > 0)
            for at, store in enumerate(timelines)
        ]
    cut = [_find_cut(purged, kept_from) for purged in found] if exact else []
    for purged, eras in zip(found, cut, strict=False):
        for era, files in eras:
            purged.change.retired += files
            if not dry_run:
                made, era = cut_era(working, purged.read.store, era, files, kept_from)
                purged.change.files += made
                purged.change.eras.append(era)
    if not dry_run:
        commits = [_keep_from(purged, kept_from) for purged in found]
        with working.committing(commits, TransactionMode.JOB) as connection:
            append_purge_event(connection, working.tenant, kept_from)
            if working.held is not None:  # it is all that was to be done
                working.held.release_in(connection)
    files = [file for purged in found for file in purged.change.retired]
    return HistoryPurge(
        kept_from=kept_from,
        eras=sum(len(purged.change.dropped) for purged in found),
        files=len(files),
        size_bytes=sum(file.size_bytes for file in files),
    )


def _keep_from(purged: _Purged, moment: int) -> StoreCommit:
    store = purged.read.store
    later = replace(store, purged_before=max(store.purged_before, moment))
    return StoreCommit(store, later, purged.change, purged.read)


def _find_cut(purged: _Purged, kept_from: int) -> list[tuple[HistoryEra, list[HistoryFile]]]:
    """Return the eras that begin before the moment and go on after it, with their files."""
    gone = {era.place for era in purged.change.dropped}
    files = purged.read.files
    return [
        (era, [f for f in files if f.place == era.place])
        for era in purged.read.eras
        if era.first_moment < kept_from and era.state != "baseline" and era.place not in gone
    ]


def _require_stored(timelines: Sequence[HistoryStore], kept_from: int) -> None:
    if not timelines:
        raise UsageError(
            "the tenant has no history store",
            hint="`zapdb changes prune` deletes the oldest part of the change log",
        )
    if kept_from > timelines[0].ends:
        raise UsageError(
            "the moment is not in the files of the history store yet",
            moment=kept_from,
            ends=timelines[0].ends,
            hint="run `zapdb history flush` first, or purge up to an earlier moment",
        )


def _plan(read: TimelineRows, kept_from: int, *, is_over: bool) -> _Purged:
    """Plan what goes of a timeline; one that `is_over` ends with its last moment."""

    def find_end(era: HistoryEra) -> int:
        if era.last_moment is not None:
            return era.last_moment
        return read.store.ends if is_over else kept_from

    gone = [era for era in read.eras if find_end(era) < kept_from]
    numbers = {era.place for era in gone}
    retired = [
        file
        for file in read.files
        if file.place in numbers or (file.kind == "moments" and file.last_moment < kept_from)
    ]
    return _Purged(read, StoreChange(retired=retired, dropped=gone))


def find_stored_before(working: StoreWriter, time_us: int) -> int | None:
    """Return the last moment in files that was visible before a time; None if there is none.

    The files know it, however much of the change log was pruned. Raises `HistoryDamaged` and
    `HistoryUnreachable`.
    """
    with working.storage.transaction(TransactionMode.READ) as connection:
        timelines = list_timelines(connection, working.tenant)
        listed = [
            (store, file)
            for store in timelines
            for file in list_history_files(connection, store)
            if file.kind == "moments"
        ]
    for store, file in sorted(listed, key=lambda one: one[1].first_moment, reverse=True):
        rows = read_moments(store.directory, file, ["moment", "visible_at"])
        times = compute.fill_null(rows.column(1).cast("int64"), 0)
        before = rows.column(0).filter(compute.less(times, time_us))
        if len(before):
            return int(compute.max(before).as_py())
    return None
