"""Taking the changes of an erased record out of the counts of moments.

The rows of the record say at which moments it was changed, so they are counted before they go. All
files of moments that count one of them are written anew, and take the place of the old ones in one
transaction, with which the erasure has this behind it: nothing is subtracted twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pyarrow
from pyarrow import parquet

from zapdb.history.columns import FROM, KEY, OPERATION, RowOperation
from zapdb.history.files import read_footer, reading_file, write_file
from zapdb.history.moment_rows import MOMENTS_SCHEMA
from zapdb.history.states import require_whole
from zapdb.history.store_changes import StoreChange, StoreCommit
from zapdb.history.working_store import WorkingStore, is_there, to_row, writing_to
from zapdb.storage import TransactionMode
from zapdb.storage.history_erasures import Erasure, write_proof
from zapdb.storage.history_manifest import (
    NO_TABLE,
    HistoryFile,
    HistoryStore,
    list_history_files,
)

COUNTED: Final = {
    RowOperation.INSERT: "inserted",
    RowOperation.UPDATE: "updated",
    RowOperation.DELETE: "deleted",
    RowOperation.REPLACE: "updated",
}
"""What counts a change; the rows of a checkpoint are none."""

Listed = Sequence[tuple[HistoryStore, Sequence[HistoryFile]]]
"""Timelines, and those of their files that may have the record."""


def forget_in_moments(working: WorkingStore, erasure: Erasure, listed: Listed) -> Erasure:
    """Take an erased record out of the counts of moments, if that is not done; returns the erasure
    as it is stored then. Raises `HistoryUnreachable`, `HistoryDamaged` and `DiskFull`."""
    if erasure.resume_after is None:
        return erasure
    changes = list[tuple[HistoryStore, StoreChange]]()
    for store, files in listed:
        found = _find_changes(store, files, erasure)
        if found:
            changes.append((store, _write_without(working, store, found, erasure.table_number)))
    erasure = replace(erasure, resume_after=None)
    commits = [StoreCommit(store, store, change) for store, change in changes]
    with working.committing(commits) as connection:
        write_proof(connection, erasure)
    return erasure


def _find_changes(
    store: HistoryStore, files: Sequence[HistoryFile], erasure: Erasure
) -> dict[int, str]:
    """Return at which moments the record was changed, and how."""
    found = dict[int, str]()
    key = pyarrow.scalar(erasure.key, pyarrow.binary())
    for file in files:
        path = file.place_in(store.directory)
        if not is_there(store, file):
            continue  # nothing can be read there; `verify` tells
        require_whole(path, file)
        with reading_file(path, file):
            columns = [KEY, FROM, OPERATION]
            rows = parquet.read_table(
                path, columns=columns, filters=[(KEY, "==", key)], partitioning=None
            )
        for row in rows.to_pylist():
            counted = COUNTED.get(row[OPERATION])
            if counted is not None:
                found[row[FROM]] = counted
    return found


def _write_without(
    working: WorkingStore, store: HistoryStore, found: dict[int, str], table: int
) -> StoreChange:
    """Write the files of moments without these changes."""
    change = StoreChange()
    with working.storage.transaction(TransactionMode.READ) as connection:
        files = list_history_files(connection, store, table=NO_TABLE)
    for file in files:
        mine = {n for n in found if file.first_moment <= n <= file.last_moment}
        path = file.place_in(store.directory)
        if not mine or not is_there(store, file):
            continue
        require_whole(path, file)
        with reading_file(path, file):
            rows = parquet.read_table(path, schema=MOMENTS_SCHEMA, partitioning=None).to_pylist()
            footer = replace(read_footer(path)[0], commit=store.commits + 1)
        for row in rows:
            if row["moment"] in mine:
                _subtract(row, found[row["moment"]], table)
        directory = Path(file.directory or store.directory)
        with writing_to(str(directory)):
            made = pyarrow.Table.from_pylist(rows, schema=MOMENTS_SCHEMA)
            written = write_file(directory, footer, None, [made])
        change.files.append(replace(to_row(footer, written), directory=file.directory))
        change.retired.append(file)
    return change


def _subtract(row: dict[str, Any], counted: str, table: int) -> None:
    row[counted] -= 1
    for one in row["changes"]:
        if one["table_number"] == table:
            one[counted] -= 1
    row["changes"] = [
        one for one in row["changes"] if any(one[n] for n in one if n != "table_number")
    ]
