"""Repairing a history store: what is wrong with its files is made anew, where that is understood.

    copy    another file has the bytes that were written: one that was moved, and is not deleted yet
    log     the change log has the moments of a segment, or of a file of moments
    era     the change log leads back to the beginning of an era: all of its files are made anew
    row     the file is what was written, but its row of the manifest says something else

What none of these can make is left as it is, and named.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal

from pyarrow import compute, parquet

from zapdb.catalog.schema_history import read_later_events
from zapdb.log.moments import LoggedMoment
from zapdb.past.files.baseline import read_checkpoint
from zapdb.past.files.directories import GONE, has_store
from zapdb.past.files.file_columns import FROM
from zapdb.past.files.file_verification import find_problem, read_timelines
from zapdb.past.files.history_file import compare_footer, find_keys, is_whole, read_footer
from zapdb.past.files.history_manifest import (
    HistoryEra,
    HistoryFile,
    HistoryStore,
    list_history_files,
)
from zapdb.past.files.log_batches import open_batches
from zapdb.past.files.moment_rows import make_baseline, to_arrow
from zapdb.past.files.moving import copy_file, plan_copy
from zapdb.past.files.store_changes import StoreChange, StoreCommit, TimelineRows
from zapdb.past.files.table_revisions import EarlierTable, read_tables_at
from zapdb.past.files.working_store import LoadedStore, StoreWriter
from zapdb.storage import Connection, TransactionMode

RepairWay = Literal["copy", "log", "era", "row"]
NOT_LOGGED: Final = "the change log does not lead back to it: restore it from a backup"
NOT_UNDERSTOOD: Final = "it is left as it is: restore it from a backup"


@dataclass(frozen=True, slots=True)
class RepairedFile:
    """A file that is repaired, what was wrong with it, and how: from a `copy`, from the change
    `log`, with all files of its `era` from the log, or its `row` of the manifest from the file."""

    path: str
    problem: str
    way: RepairWay


@dataclass(frozen=True, slots=True)
class HistoryRepair:
    """What is repaired of a store, and what is left: problems, with what can be done."""

    repaired: tuple[RepairedFile, ...]
    left: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Damaged:
    timeline: TimelineRows
    file: HistoryFile
    problem: str

    @property
    def store(self) -> HistoryStore:
        return self.timeline.store

    @property
    def path(self) -> Path:
        return self.file.place_in(self.store.directory)


def repair_store(working: StoreWriter, *, dry_run: bool = False) -> HistoryRepair:
    """Repair the files of a tenant's store, or say what would be.

    Raises `HistoryUnreachable`, `DiskFull`, `HistoryDamaged` and `ChangesPruned`: what was repaired
    before stays so.
    """
    repaired, left, done = list[RepairedFile](), list[str](), set[str]()
    with working.storage.transaction(TransactionMode.READ) as connection:
        loaded = working.load_in(connection)
        timelines = read_timelines(connection, working.tenant)
    for timeline in timelines:
        for file in timeline.files:
            problem = find_problem(file.place_in(timeline.store.directory), file)
            if problem is None:
                continue
            damaged = _Damaged(timeline, file, problem)
            repair = _Repair(working, loaded, damaged)
            way = repair.find_path()
            if way is None:
                left.append(f"{damaged.path}: {problem}; {repair.reason}")
                continue
            repaired.append(RepairedFile(str(damaged.path), problem, way))
            if not dry_run and file.id not in done:
                done |= repair.run(way)
    return HistoryRepair(tuple(repaired), tuple(left))


class _Repair:
    """The repair of one file."""

    def __init__(self, working: StoreWriter, loaded: LoadedStore | None, damaged: _Damaged) -> None:
        self._working, self._loaded, self._damaged = working, loaded, damaged
        self._file, self._store = damaged.file, damaged.store
        self.reason = NOT_LOGGED

    def find_path(self) -> RepairWay | None:
        """Return how the file can be repaired; None if it can't, for `reason`."""
        path, directory = self._damaged.path, self._file.directory or self._store.directory
        if not has_store(directory, self._file.tenant):
            self.reason = f"{GONE}: mount it, or put it back where it was"
            return None
        if path.is_file() and is_whole(path, self._file.sha256):
            self.reason = NOT_UNDERSTOOD
            return "row" if self._find_row() is not None else None
        if self._copy is not None:
            return "copy"
        loaded = self._loaded
        if loaded is None or loaded.store != self._store or self._store.state == "broken":
            return None
        with self._working.storage.transaction(TransactionMode.READ) as connection:
            beginning = self._working.moments.find_beginning(connection).number
            if self._is_apart and beginning < max(self._file.first_moment, 1):
                return "log"
            return "era" if self._find_table(connection, beginning) is not None else None

    def run(self, way: RepairWay) -> set[str]:
        """Repair it; returns the ids of the files that were made anew."""
        if way == "row":
            return self._write_row()
        change = StoreChange(retired=[self._file])
        if way == "copy":
            assert self._copy is not None
            directory = Path(self._file.directory or self._store.directory)
            made = plan_copy(self._store, self._file, directory)
            copy_file(self._working, self._store, self._copy, made)
            change.files.append(made)
        elif way == "log" and self._file.kind == "moments":
            change.files += self._read_moments()
        elif way == "log":
            file = self._file
            change.files += self._read_segments(self._era, file.first_moment - 1, file.last_moment)
        else:
            self._read_era(change)
        self._commit(change)
        return {file.id for file in change.retired}

    # The manifest's row

    def _find_row(self) -> HistoryFile | None:
        """Return the row by the file itself; None if it is another file."""
        path = self._damaged.path
        footer, _ = read_footer(path)
        said = replace(
            self._file,
            first_moment=footer.first_moment,
            last_moment=footer.last_moment,
            rows=parquet.read_metadata(path).num_rows,
            size_bytes=path.stat().st_size,
        )
        return None if compare_footer(footer, said) else find_keys(path, said)

    def _write_row(self) -> set[str]:
        row = self._find_row()
        assert row is not None
        self._commit(StoreChange(corrected=[row]))
        return {row.id}

    def _commit(self, change: StoreChange) -> None:
        with self._working.committing([StoreCommit(self._store, self._store, change)]):
            pass

    # Copies

    @cached_property
    def _copy(self) -> HistoryFile | None:
        with self._working.storage.transaction(TransactionMode.READ) as connection:
            files = list_history_files(connection, self._store, state=None)
        for one in files:
            path = one.place_in(self._store.directory)
            is_same = one.sha256 == self._file.sha256 and path != self._damaged.path
            if is_same and path.is_file() and is_whole(path, one.sha256):
                return one
        return None

    # The change log

    @property
    def _is_apart(self) -> bool:
        """Whether the file has all changes of its moments."""
        if self._file.kind == "moments":
            return True
        return self._file.kind == "segment" and not any(
            other.id != self._file.id
            and (other.kind, other.place) == (self._file.kind, self._file.place)
            and other.first_moment <= self._file.last_moment
            and self._file.first_moment <= other.last_moment
            for other in self._damaged.timeline.files
        )

    @property
    def _era(self) -> HistoryEra:
        return next(era for era in self._damaged.timeline.eras if era.place == self._file.place)

    def _find_table(self, connection: Connection, beginning: int) -> EarlierTable | None:
        """Return the table of the file's era at its beginning, if it can be rewound to that."""
        if self._file.kind == "moments" or beginning > self._era.first_moment:
            return None
        if self._era.state == "baseline":
            return None
        working = self._working
        first = working.moments.find_number(connection, self._era.first_moment)
        later = working.moments.find_later(connection, first)
        catalog = working.load_catalog(connection)
        at = read_tables_at(connection, catalog, working.revisions, later)
        found = at.get(self._era.table_number)
        if found is None or found.entry.layout_revision != self._era.layout_revision:
            return None
        return found if found.is_rewindable else None

    def _read_era(self, change: StoreChange) -> None:
        """Make all files of the era anew: its checkpoint, and its changes since."""
        working, era, loaded = self._working, self._era, self._loaded
        assert loaded is not None
        with working.storage.transaction(TransactionMode.READ) as connection:
            first = working.moments.find_number(connection, era.first_moment)
            checkpoint = read_checkpoint(working, connection, loaded, era, first)
        last = self._store.ends if era.last_moment is None else era.last_moment
        # A checkpoint that ended it has the changes of its own beginning here, too.
        last += era.state == "sealed"
        segments = self._read_segments(era, era.first_moment, last)
        change.files += [*checkpoint, *segments]
        change.retired = [
            file for file in self._damaged.timeline.files if file.place == self._file.place
        ]
        change.eras = [
            replace(
                era,
                live_rows=sum(file.rows for file in checkpoint),
                changes=sum(file.rows for file in segments),
            )
        ]

    def _read_segments(self, era: HistoryEra, after: int, last: int) -> list[HistoryFile]:
        """Write the changes behind a moment, up to the last one."""
        made = list[HistoryFile]()

        def take(of: HistoryEra, revision: int, until: LoggedMoment, rows: Any) -> None:
            assert self._loaded is not None
            kept = rows.filter(compute.less_equal(rows.column(FROM), last))
            if kept.num_rows:
                if until.number > last:
                    until = self._find_moment(last)
                made.append(self._working.write(self._loaded, "segment", of, revision, until, kept))

        self._read_log(after, last, {era.table_number: era}, take)
        return made

    def _read_moments(self) -> list[HistoryFile]:
        assert self._loaded is not None
        file, moments = self._file, list[Any]()
        after = file.first_moment - 1
        if file.first_moment == self._store.begins:
            moments, after = [self._make_baseline()], file.first_moment
        moments += self._read_log(after, file.last_moment, None, None)
        until = self._find_moment(file.last_moment)
        rows = [to_arrow(moments)]
        return [self._working.write_moments(self._loaded, file.first_moment, until, rows)]

    def _make_baseline(self) -> Any:
        working = self._working
        with working.storage.transaction(TransactionMode.READ) as connection:
            catalog = working.load_catalog(connection)
            moment = working.moments.find_number(connection, self._store.begins)
            later = working.moments.find_later(connection, moment)
            tables = read_tables_at(connection, catalog, working.revisions, later)
            events = read_later_events(connection, working.tenant, later)
        revisions = {number: at.entry.revision for number, at in tables.items()}
        return make_baseline(moment, revisions, events.find_migration(catalog.migration))

    def _read_log(
        self, after: int, last: int, eras: dict[int, HistoryEra] | None, take: Any
    ) -> list[Any]:
        """Read the transactions behind a moment up to another one, with the changes of some eras,
        or of those that were open then; returns their moments."""
        reader, found = open_batches(self._working), list[Any]()
        at, end = self._find_moment(after), self._find_moment(last)
        while at.number < last:
            wanted = self._find_open(at.number) if eras is None else eras
            batch = reader.read(at, end.stamp, wanted, take)
            if not batch.moments:
                break
            found += [one for one in batch.moments if one.found.moment.number <= last]
            at = batch.last
        return found

    def _find_open(self, moment: int) -> dict[int, HistoryEra]:
        eras = self._damaged.timeline.eras
        return {era.table_number: era for era in eras if era.holds(moment)}

    def _find_moment(self, number: int) -> LoggedMoment:
        with self._working.storage.transaction(TransactionMode.READ) as connection:
            return self._working.moments.find_number(connection, number)


def show_repair(found: Sequence[RepairedFile]) -> list[str]:
    """Return lines for people: each file, what was wrong, and how it is repaired."""
    ways = {
        "copy": "from a copy",
        "log": "from the change log",
        "era": "its era, from the change log",
        "row": "its row of the manifest, from the file",
    }
    return [f"{one.path}: {one.problem}; {ways[one.way]}" for one in found]
