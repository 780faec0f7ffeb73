"""Taking the changes of an erased record out of the counts of moments.

Which they are is known by the change log, which tells the transactions, and by the rows of the
record, which tell the moments: the log may have been pruned, and what a roll back or a migration
does to a record is in no file. So the one is kept with the erasure, and the other is read before
the rows go. All files of moments that count one of them are written anew, and take the place of the
old ones in one transaction, with which the erasure has this behind it: nothing is subtracted twice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
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


@dataclass(frozen=True, slots=True)
class _Changes:
    """The changes of a record that a timeline may count, and how: by moment, as its files tell, and
    by transaction, as the log had them.

    The log is that of the newest timeline, from whose beginning on a former one has other
    transactions: those up to the moment `log_ends` are the same."""

    table: int
    by_moment: dict[int, str]
    by_transaction: dict[int, str]
    log_ends: float

    def find(self, moment: int, transaction: int | None) -> str | None:
        counted = self.by_moment.get(moment)
        if counted is None and transaction is not None and moment <= self.log_ends:
            counted = self.by_transaction.get(transaction)
        return counted


def forget_in_moments(working: WorkingStore, erasure: Erasure, listed: Listed) -> Erasure:
    """Take an erased record out of the counts of moments, if that is not done; returns the erasure
    as it is stored then. `listed` has the newest timeline first. Raises `HistoryUnreachable`,
    `HistoryDamaged` and `DiskFull`."""
    if erasure.counted is None:
        return erasure
    logged = {
        transaction: counted
        for counted in ("inserted", "updated", "deleted")
        for transaction in getattr(erasure.counted, counted)
    }
    commits, log_ends = list[StoreCommit](), math.inf
    for store, files in listed:
        in_files = _find_changes(store, files, erasure)
        changes = _Changes(erasure.table_number, in_files, logged, log_ends)
        change = _write_without(working, store, changes)
        if change.files:
            commits.append(StoreCommit(store, store, change))
        log_ends = min(log_ends, store.begins)
    erasure = replace(erasure, counted=None)
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


def _write_without(working: WorkingStore, store: HistoryStore, changes: _Changes) -> StoreChange:
    """Write the files of moments without these changes."""
    change = StoreChange()
    if not changes.by_moment and not changes.by_transaction:
        return change
    with working.storage.transaction(TransactionMode.READ) as connection:
        files = list_history_files(connection, store, table=NO_TABLE)
    for file in files:
        path = file.place_in(store.directory)
        if not is_there(store, file):
            continue
        require_whole(path, file)
        with reading_file(path, file):
            places = parquet.read_table(path, columns=["moment", "transaction"], partitioning=None)
            mine = {
                moment: counted
                for moment, transaction in zip(*places.to_pydict().values(), strict=True)
                if moment > store.begins
                if (counted := changes.find(moment, transaction)) is not None
            }
            if not mine:
                continue
            rows = parquet.read_table(path, schema=MOMENTS_SCHEMA, partitioning=None).to_pylist()
            footer = replace(read_footer(path)[0], commit=store.commits + 1)
        for row in rows:
            if row["moment"] in mine:
                _subtract(row, mine[row["moment"]], changes.table)
        directory = Path(file.directory or store.directory)
        with writing_to(str(directory)):
            made = pyarrow.Table.from_pylist(rows, schema=MOMENTS_SCHEMA)
            written = write_file(directory, (footer, None), [made], working.require_lease)
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
