"""What becomes of a table's files as it changes: changes are merged with the checkpoint, and a
table that has changed much begins another era. The last changes of an era are not merged: the next
one's checkpoint has them, and a query of an earlier moment compares keys, as before a merge.

So a query never reads more than one checkpoint, about as many rows that ended as the table has
records, and a part of that in changes whose keys have to be compared.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Final

from zapdb.catalog.settings import HISTORY_CHECKPOINT_PERCENT, HISTORY_FLUSH_CHANGES, Scope
from zapdb.catalog.stored_settings import read_settings
from zapdb.errors import HistoryDamaged
from zapdb.past.files.history_manifest import HistoryEra, list_history_files
from zapdb.past.files.merging import EraMerger
from zapdb.past.files.store_changes import StoreChange
from zapdb.past.files.table_revisions import read_tables_at
from zapdb.past.files.working_store import LoadedStore, StoreWriter
from zapdb.storage import TransactionMode

logger = logging.getLogger("zapdb.history")

MERGED_PERCENT: Final = 33
"""Changes in segments, of the records in the checkpoint, from which on they are merged."""
SEALED_PERCENT: Final = 50
"""Changes in segments with which an era may end without merging them."""
MERGED_PART: Final = 5
"""They are so many times as many as changes that a batch waits for, however small the table."""


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
            if era.changes and self._settled.get(_name_of(era)) != era.changes
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
            self._settled[_name_of(era)] = era.changes
        return False

    def _work_on(self, loaded: LoadedStore, era: HistoryEra, least: int, percent: int) -> bool:
        working, store, change = self._working, loaded.store, StoreChange()
        connection = working.storage.connection()
        files = list_history_files(connection, store, table=era.table_number, era=era.era)
        merger = EraMerger(working, loaded, era, files)
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
            merger.join(change, joined)
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


def _name_of(era: HistoryEra) -> tuple[int, int]:
    return era.table_number, era.era
