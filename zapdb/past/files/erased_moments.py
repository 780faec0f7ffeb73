"""Taking the changes of an erased record out of the counts of moments.

Which they are is known by the change log, which tells the transactions, and by the rows of the
record, which tell the moments: the log may have been pruned, or have what is not in files yet. So
the one is kept with the erasure, and the other is read before the rows go. What a roll back or a
migration does to a record is in no file of its table: those of moments have its key. All files of
moments that count one of them are written anew, and take the place of the old ones in one
transaction, with which the erasure has this behind it: nothing is subtracted twice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pyarrow
from pyarrow import compute, parquet

from zapdb.past.files.directories import is_there, writing_to
from zapdb.past.files.file_columns import FROM, KEY, OPERATION, RowOperation
from zapdb.past.files.history_erasures import Erasure, write_proof
from zapdb.past.files.history_file import read_footer, reading_file, write_file
from zapdb.past.files.history_manifest import (
    NO_TABLE,
    HistoryFile,
    HistoryStore,
    list_history_files,
)
from zapdb.past.files.moment_rows import MOMENTS_SCHEMA
from zapdb.past.files.states import require_whole
from zapdb.past.files.store_changes import StoreChange, StoreCommit
from zapdb.past.files.working_store import StoreWriter, to_row
from zapdb.storage import TransactionMode

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
    key: bytes
    by_moment: dict[int, str]
    by_transaction: dict[int, str]
    log_ends: float

    def find(self, moment: int, transaction: int | None) -> str | None:
        counted = self.by_moment.get(moment)
        if counted is None and transaction is not None and moment <= self.log_ends:
            counted = self.by_transaction.get(transaction)
        return counted

    def find_unfiled(self, unfiled: Any) -> str | None:
        """Do the same by the keys of changes that are in no other file."""
        for one in unfiled:
            if one["table_number"] == self.table and self.key in one["keys"]:
                return COUNTED[RowOperation(one["operation"])]
        return None


def forget_in_moments(working: StoreWriter, erasure: Erasure, listed: Listed) -> Erasure:
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
        assert erasure.key is not None, "changes of a whole record are counted"
        changes = _Changes(erasure.table_number, erasure.key, in_files, logged, log_ends)
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


def _write_without(working: StoreWriter, store: HistoryStore, changes: _Changes) -> StoreChange:
    """Write the files of moments without these changes."""
    change = StoreChange()
    with working.storage.transaction(TransactionMode.READ) as connection:
        files = list_history_files(connection, store, table=NO_TABLE)
    for file in files:
        path = file.place_in(store.directory)
        if not is_there(store, file):
            continue
        require_whole(path, file)
        with reading_file(path, file):
            mine = _find_counted(path, store, changes)
            if not mine:
                continue
            rows = parquet.read_table(path, schema=MOMENTS_SCHEMA, partitioning=None).to_pylist()
            footer = replace(read_footer(path)[0], commit=store.commits + 1)
        for row in rows:
            if row["moment"] in mine:
                _subtract(row, mine[row["moment"]], changes)
        directory = Path(file.directory or store.directory)
        with writing_to(str(directory)):
            made = pyarrow.Table.from_pylist(rows, schema=MOMENTS_SCHEMA)
            written = write_file(directory, (footer, None), [made], working.require_lease)
        change.files.append(replace(to_row(footer, written), directory=file.directory))
        change.retired.append(file)
    return change


def _find_counted(path: Path, store: HistoryStore, changes: _Changes) -> dict[int, str]:
    """Return which moments of a file count a change of the record, and how."""
    columns = ["moment", "transaction", "unfiled"]
    rows = parquet.read_table(path, columns=columns, partitioning=None)
    moments, transactions = (rows.column(name).to_pylist() for name in columns[:2])
    mine = {
        moment: counted
        for moment, transaction in zip(moments, transactions, strict=True)
        if (counted := changes.find(moment, transaction)) is not None
    }
    lengths = compute.list_value_length(rows.column("unfiled"))
    for row in rows.filter(compute.greater(lengths, 0)).to_pylist():
        counted = changes.find_unfiled(row["unfiled"])
        if counted is not None:
            mine[row["moment"]] = counted
    return {moment: counted for moment, counted in mine.items() if moment > store.begins}


def _subtract(row: dict[str, Any], counted: str, changes: _Changes) -> None:
    row[counted] -= 1
    for one in row["changes"]:
        if one["table_number"] == changes.table:
            one[counted] -= 1
    for one in row["unfiled"]:
        if one["table_number"] == changes.table:
            one["keys"] = [key for key in one["keys"] if key != changes.key]
    row["changes"] = [
        one for one in row["changes"] if any(one[n] for n in one if n != "table_number")
    ]
