"""Merges files of moments, so that a long history has few of them.

Small files at the end become one as soon as there are many of about one size: so each row is
written again a few times at most. Files that are large enough stay as they are.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Any, Final

from pyarrow import parquet

from zapdb.errors import HistoryDamaged
from zapdb.past.files.history_manifest import NO_TABLE, HistoryFile, list_history_files
from zapdb.past.files.moment_rows import MOMENTS_SCHEMA
from zapdb.past.files.states import require_whole
from zapdb.past.files.store_changes import StoreChange
from zapdb.past.files.working_store import LoadedStore, StoreWriter

logger = logging.getLogger("zapdb.history")

MERGED_FILES: Final = 16
"""So many files of about one size are merged."""
MERGED_ROWS_MAX: Final = 65_536
"""A file with so many rows is not merged any more."""


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
            rows = _read(Path(store.directory), chosen)
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


def _read(directory: Path, files: Sequence[HistoryFile]) -> Iterator[Any]:
    for file in files:
        path = file.place_in(directory)
        require_whole(path, file)
        yield parquet.read_table(path, schema=MOMENTS_SCHEMA, partitioning=None)
