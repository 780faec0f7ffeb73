"""The files of one era as they are read: each is compared with its row of the manifest first.

A file that is not what the manifest says is never read: `HistoryDamaged` names it. All of its bytes
are compared when a process opens it first, and again if they were changed since.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow
from pyarrow import compute, parquet

from zapdb.errors import HistoryDamaged
from zapdb.past.files.directories import require_directory
from zapdb.past.files.file_columns import (
    FROM,
    KEY,
    OPERATION,
    OWN_FIELDS,
    UNTIL,
    find_columns,
    to_rows,
)
from zapdb.past.files.history_file import (
    OTHER_DIGEST,
    compare_footer,
    is_whole,
    make_damaged,
    read_digest,
    read_footer,
    reading_file,
)
from zapdb.past.files.history_manifest import HistoryFile
from zapdb.past.reading.state_sql import StoredRelation
from zapdb.past.reading.stored_state import StoredState
from zapdb.schema import TableSchema

OWN: Final = (KEY, FROM, UNTIL, OPERATION)
"""The columns that tell which rows hold at a moment."""
GROUPS_KEPT: Final = 4
"""Row groups of a table that are kept in memory after they were read."""


class RelationFiles(NamedTuple):
    """The files of a relation of SQL, and the name that each of its columns has in them."""

    paths: list[str]
    names: dict[str, str]


class EraFile:
    """One file of an era; raises `HistoryDamaged` if it is not that of its row."""

    def __init__(self, state: StoredState, row: HistoryFile, schema: TableSchema) -> None:
        self.row, self._place = row, row.place_in(state.directory)
        self._directory = row.directory or state.directory
        self.path = self._place.resolve()
        self._lock = threading.Lock()
        if not self.path.is_relative_to(Path(self._directory).resolve()):
            raise self.damaged("its path leaves the directory of the store")
        with reading_file(self._place, row):
            try:
                footer, _ = read_footer(self.path)
            except HistoryDamaged as error:
                raise self.damaged(error.message) from error
            self._file = parquet.ParquetFile(self.path, page_checksum_verification=True)
            problem, rows = compare_footer(footer, row), self._file.metadata.num_rows
            if problem is None and rows != row.rows:
                problem = f"it has {rows} rows instead of {row.rows}"
            if problem is not None:
                raise self.damaged(problem)
            self.require_whole()
            self._names = find_columns(self._file.schema_arrow, schema)
        own = {one.name for one in OWN_FIELDS}
        self.columns = tuple(name for name in self._names if name not in own)
        """The column of each field of the table in rows."""

    @property
    def names(self) -> dict[str, str]:
        """The name in the file of each column that SQL reads."""
        return {name: self._names[name] for name in (*OWN, *self.columns)}

    def damaged(self, problem: str) -> HistoryDamaged:
        return make_damaged(self._place, self.row, problem)

    def is_there(self) -> bool:
        return self.path.exists()

    def require_whole(self) -> None:
        """Compare all of its bytes with the digest of its row, if this process has not done it yet;
        raises `HistoryDamaged` and `OSError`."""
        if not is_whole(self.path, self.row.sha256):
            raise self.damaged(OTHER_DIGEST)

    def require_reachable(self) -> None:
        """Raise `HistoryUnreachable` if its directory is not there any more."""
        require_directory(self._directory, self.row.tenant)

    def find_damage(self) -> HistoryDamaged | None:
        """Compare all of its bytes with the digest of its row, whatever was compared before; raises
        `HistoryUnreachable`."""
        self.require_reachable()
        try:
            with reading_file(self._place, self.row):
                is_same = read_digest(self.path) == self.row.sha256
        except HistoryDamaged as damage:
            return damage
        return None if is_same else self.damaged(OTHER_DIGEST)

    @cached_property
    def bounds(self) -> list[tuple[bytes, bytes]]:
        """The least and the greatest key of each row group, or wider bounds."""
        metadata = self._file.metadata
        at = self._file.schema_arrow.names.index(KEY)
        found = []
        for number in range(metadata.num_row_groups):
            statistics = metadata.row_group(number).column(at).statistics
            if statistics is None or not statistics.has_min_max:
                assert self.row.key_lower is not None
                assert self.row.key_upper is not None
                found.append((self.row.key_lower, self.row.key_upper))
            else:
                found.append((bytes(statistics.min), bytes(statistics.max)))
        return found

    def read_group(self, number: int, moment: int) -> Any:
        """Return the rows of a row group that hold at a moment, as a `pyarrow.Table`."""
        with reading_file(self._place, self.row), self._lock:
            rows = self._file.read_row_group(number, [*self.names.values()])
        rows = to_rows(rows, self._names)
        until = rows.column(UNTIL)
        is_held = compute.or_kleene(compute.is_null(until), compute.greater(until, moment))
        mask = compute.and_(compute.less_equal(rows.column(FROM), moment), is_held)
        return rows.filter(mask)


class EraFiles:
    """The files of a table's era, read by keys; thread-safe."""

    def __init__(self, state: StoredState, schema: TableSchema) -> None:
        self.state = state
        self.files = [EraFile(state, row, schema) for row in state.files if row.rows]
        self.rows = sum(row.rows for row in state.files)
        self._groups: OrderedDict[tuple[int, int], Any] = OrderedDict()
        self._lock = threading.Lock()

    @cached_property
    def windows(self) -> list[bytes]:
        """Keys that cut the table into windows of about one row group each, in order: each is the
        last one of its window, and a window without end follows."""
        cuts = {upper for file in self.files for _, upper in file.bounds}
        most = max((len(file.bounds) for file in self.files), default=1)
        ordered = sorted(cuts)
        step = max(1, len(ordered) // most)
        return ordered[step - 1 : -1 : step]

    def read(self, lower: bytes, upper: bytes | None) -> Iterator[tuple[EraFile, Any]]:
        """Yield the rows that hold at the moment, with lower < key ≤ upper, file by file."""
        for at, file in enumerate(self.files):
            for number, (least, greatest) in enumerate(file.bounds):
                if greatest <= lower or (upper is not None and least > upper):
                    continue
                rows = self._read_group(at, number)
                keys = rows.column(KEY)
                mask = compute.greater(keys, pyarrow.scalar(lower, pyarrow.binary()))
                if upper is not None:
                    below = compute.less_equal(keys, pyarrow.scalar(upper, pyarrow.binary()))
                    mask = compute.and_(mask, below)
                yield file, rows.filter(mask)

    def read_keys(self, keys: Sequence[bytes]) -> Iterator[tuple[EraFile, Any]]:
        """Yield the rows that hold at the moment and have one of some keys, which are in order."""
        wanted = pyarrow.array(keys, pyarrow.binary())
        for at, file in enumerate(self.files):
            for number, (least, greatest) in enumerate(file.bounds):
                if any(least <= key <= greatest for key in keys):
                    rows = self._read_group(at, number)
                    yield file, rows.filter(compute.is_in(rows.column(KEY), wanted))

    def _read_group(self, at: int, number: int) -> Any:
        with self._lock:
            found = self._groups.pop((at, number), None)
            if found is not None:
                self._groups[at, number] = found
                return found
        found = self.files[at].read_group(number, self.state.moment)
        with self._lock:
            self._groups[at, number] = found
            while len(self._groups) > GROUPS_KEPT * max(1, len(self.files)):
                self._groups.popitem(last=False)
        return found


def relate_files(
    files: Iterable[EraFile], prefix: str, offered: dict[str, RelationFiles]
) -> list[StoredRelation]:
    """Make a relation of SQL of the files that have the same columns under the same names, and add
    it to those that are offered; their names have a prefix."""

    def names_of(file: EraFile) -> tuple[tuple[str, str], ...]:
        return tuple(file.names.items())

    found = []
    for names, same in groupby(sorted(files, key=names_of), names_of):
        related = list(same)
        name = f"{prefix}_{len(offered)}"
        offered[name] = RelationFiles([str(file.path) for file in related], dict(names))
        found.append(StoredRelation(name, related[0].columns))
    return found
