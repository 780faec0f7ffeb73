"""Merging files, so that a query reads few of them, however long a history is.

    checkpoint   the records that there were at a moment, each with the moment since which
    ended        rows that a later one replaced, and deletions

Changes are merged with the checkpoint of their era: that reads it and the segments, and writes the
next checkpoint and what ended since the last merge; what ended before that stays where it is. So a
query of the newest moments reads no row that ended, and one of an earlier moment reads each row
once and compares no keys.

A table that has changed much begins another era. The last changes of an era are not merged: the
next one's checkpoint has them, and a query of an earlier moment compares keys, as before a merge.
So a query never reads more than one checkpoint, about as many rows that ended as the table has
records, and a part of that in changes whose keys have to be compared.

Small files of moments at the end become one as soon as there are many of about one size: so each
row is written again a few times at most. Files that are large enough stay as they are.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Any, Final

from zapdb.catalog.settings import HISTORY_CHECKPOINT_PERCENT, HISTORY_FLUSH_CHANGES, Scope
from zapdb.catalog.stored_settings import read_settings
from zapdb.errors import HistoryDamaged
from zapdb.past.files.history_manifest import NO_TABLE, HistoryEra, HistoryFile, list_history_files
from zapdb.past.files.layers import list_layers
from zapdb.past.files.moment_rows import read_moments
from zapdb.past.files.rewriting import Parts, write_era
from zapdb.past.files.states import EraContents
from zapdb.past.files.store_changes import StoreChange
from zapdb.past.files.table_revisions import read_tables_at
from zapdb.past.files.working_store import LoadedStore, StoreWriter
from zapdb.storage import TransactionMode
from zapdb.storage.fixed_tables import FileKind

logger = logging.getLogger("zapdb.history")

MERGED_PERCENT: Final = 33
"""Changes in segments, of the records in the checkpoint, from which on they are merged."""
SEALED_PERCENT: Final = 50
"""Changes in segments with which an era may end without merging them."""
MERGED_PART: Final = 5
"""They are so many times as many as changes that a batch waits for, however small the table."""
JOINED_RATIO: Final = 4
"""A segment is joined with the ones after it as long as it is less than so many times as large."""
MERGED_FILES: Final = 16
"""So many files of moments of about one size are merged."""
MERGED_ROWS_MAX: Final = 65_536
"""A file with so many moments is not merged any more."""


class CheckpointWriter:
    """Merges the files of eras that have enough changes, and ends those that have more."""

    def __init__(self, working: StoreWriter) -> None:
        self._working = working
        self._settled = dict[tuple[int, int], int]()
        """The eras whose files are as they should be, with the number of their changes."""

    def step(self, loaded: LoadedStore) -> bool:
        """Do the next merge, if it is time for one; returns whether it was."""
        working = self._working
        changed = [
            era
            for era in loaded.eras.values()
            if era.changes and self._settled.get(era.place) != era.changes
        ]
        if not changed:
            return False
        settings = read_settings(working.storage.connection(), working.tenant)
        scope = Scope(working.tenant)
        least = int(settings.find(HISTORY_FLUSH_CHANGES, scope)[0])
        percent = int(settings.find(HISTORY_CHECKPOINT_PERCENT, scope)[0])
        for era in changed:
            try:
                if self._work_on(loaded, era, least, percent):
                    return True
            except HistoryDamaged as error:
                logger.warning("files of the history store are not merged: %s", error)
            self._settled[era.place] = era.changes
        return False

    def _work_on(self, loaded: LoadedStore, era: HistoryEra, least: int, percent: int) -> bool:
        working, store, change = self._working, loaded.store, StoreChange()
        connection = working.storage.connection()
        files = list_history_files(connection, store, table=era.table_number, era=era.era)
        merger = _EraMerger(working, loaded, era, files)
        waiting = sum(file.rows for file in merger.segments)
        held = sum(file.rows for file in merger.checkpoint)
        ends_at = max(least, era.live_rows * percent // 100)
        merged_at = max(least // MERGED_PART, held * MERGED_PERCENT // 100, 1)
        if waiting > max(merged_at, held * SEALED_PERCENT // 100):
            merger.merge(change)
        elif era.changes >= ends_at:
            following = self._follow(loaded, era)
            if following is None:
                return False
            merger.write_end(change, following)
            live_rows = sum(file.rows for file in change.files)
            change.eras += [
                replace(era, last_moment=following.first_moment - 1, state="sealed"),
                replace(following, live_rows=live_rows),
            ]
        elif waiting >= merged_at:
            merger.merge(change)
        elif joined := merger.find_joined():
            merger.write_joined(change, joined)
        else:
            return False
        working.commit(store, replace(store, problem=None), change)
        return True

    def _follow(self, loaded: LoadedStore, era: HistoryEra) -> HistoryEra | None:
        """Return the era that begins at the store's end; None if the table was dropped, whose event
        is next."""
        working, until = self._working, loaded.moment
        with working.storage.transaction(TransactionMode.READ) as connection:
            catalog = working.load_catalog(connection)
            later = working.moments.find_later(connection, until)
            at = read_tables_at(connection, catalog, working.revisions, later).get(era.table_number)
        if at is None:
            return None
        return replace(
            era,
            era=era.era + 1,
            first_moment=until.number,
            revision=at.entry.revision,
            live_rows=0,
            changes=0,
            state="open",
        )


class _EraMerger:
    """Merges the files of one open era, as they are at the store's end. Raises `HistoryDamaged`,
    `HistoryUnreachable` and `DiskFull`."""

    def __init__(
        self,
        working: StoreWriter,
        loaded: LoadedStore,
        era: HistoryEra,
        files: Sequence[HistoryFile],
    ) -> None:
        self._working, self._loaded, self._era = working, loaded, era
        self.segments = [file for file in files if file.kind == "segment"]
        self.checkpoint = [file for file in files if file.kind == "checkpoint"]
        self._revision = max((file.revision for file in files), default=era.revision)

    def merge(self, change: StoreChange) -> None:
        """Write the next checkpoint, and what ended."""
        merged = [file for file in self.checkpoint if self._touches(file)] + self.segments
        change.files += self._write(self._era.first_moment, self._open(merged).read_divided())
        change.retired += merged

    def write_end(self, change: StoreChange, following: HistoryEra) -> None:
        """Write the checkpoint of the era that follows: what holds at the end of this one, whose
        files stay."""
        first = following.first_moment
        state = self._open([*self.checkpoint, *self.segments]).read_state(first)
        of, moments = (following, following.revision), (first, self._loaded.moment)
        parts = _all_of("checkpoint", state)
        change.files += write_era(self._working, self._loaded.store, of, moments, parts)

    def _touches(self, file: HistoryFile) -> bool:
        """Whether a segment may have keys between those of a file of the checkpoint."""
        lower, upper = file.key_lower, file.key_upper
        if lower is None or upper is None:
            return True  # it has no rows any more
        return any(
            one.key_lower is not None
            and one.key_upper is not None
            and one.key_lower <= upper
            and lower <= one.key_upper
            for one in self.segments
        )

    def find_joined(self) -> list[HistoryFile]:
        """Return the segments that should become one; none if all is well."""
        layers = list_layers(self.segments)
        start, count = len(layers), 0
        for layer in reversed(layers):
            rows = sum(file.rows for file in layer)
            if count and rows >= JOINED_RATIO * count:
                break
            start, count = start - 1, count + rows
        overlapping = [at for at, layer in enumerate(layers) if len(layer) > 1]
        joined = [file for layer in layers[min([start, *overlapping]) :] for file in layer]
        return joined if len(joined) > 1 else []

    def write_joined(self, change: StoreChange, files: Sequence[HistoryFile]) -> None:
        """Write one segment in place of the newest ones."""
        first = min(file.first_moment for file in files)
        change.files += self._write(first, _all_of("segment", self._open(files).read_all()))
        change.retired += files

    def _write(self, first: int, parts: Parts) -> list[HistoryFile]:
        of, moments = (self._era, self._revision), (first, self._loaded.moment)
        return write_era(self._working, self._loaded.store, of, moments, parts)

    def _open(self, files: Sequence[HistoryFile]) -> EraContents:
        store, schema = self._loaded.store, self._working.schema_of(self._era)
        return EraContents(Path(store.directory), files, schema)


def _all_of(kind: FileKind, rows: Iterable[Any]) -> Parts:
    return ((kind, one) for one in rows)


class MomentsMerger:
    """Merges the files of moments of a store."""

    def __init__(self, working: StoreWriter) -> None:
        self._working = working
        self._seen = -1

    def step(self, loaded: LoadedStore) -> bool:
        """Merge some files, if there are enough; returns whether it did."""
        working, store = self._working, loaded.store
        if self._seen == store.ends:
            return False
        self._seen = store.ends
        files = list_history_files(working.storage.connection(), store, table=NO_TABLE)
        chosen = choose_files(files)
        if not chosen:
            return False
        try:
            rows = (read_moments(store.directory, file) for file in chosen)
            merged = working.write_moments(loaded, chosen[0].first_moment, loaded.moment, rows)
        except HistoryDamaged as error:
            logger.warning("files of moments are not merged: %s", error)
            return False
        change = StoreChange(files=[merged], retired=[*chosen])
        working.commit(store, replace(store, problem=None), change)
        return True


def choose_files(files: Sequence[HistoryFile]) -> Sequence[HistoryFile]:
    """Return the files to merge into one, which are the last ones; none if it is not time to."""
    ordered = sorted(files, key=lambda file: file.first_moment)
    rows_max = MERGED_FILES
    while rows_max <= MERGED_ROWS_MAX:
        small = list(takewhile(lambda file: file.rows < rows_max, reversed(ordered)))  # noqa: B023 - used at once
        if len(small) >= MERGED_FILES:
            return small[::-1]
        rows_max *= MERGED_FILES
    return ()
