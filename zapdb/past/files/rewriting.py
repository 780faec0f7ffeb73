"""New files of a history store from old ones: whoever merges, cuts or erases says which rows there
are to be, and this writes them.

Nothing counts before a transaction of the manifest says so: see `working_store`. Rows are read and
written part by part, so memory is bounded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from zapdb.limits import HISTORY_FILE_SIZE_BYTES
from zapdb.log.moments import LoggedMoment
from zapdb.past.files.directories import require_directory, writing_to
from zapdb.past.files.history_file import FileFooter, FileWriter, read_footer
from zapdb.past.files.history_manifest import HistoryEra, HistoryFile, HistoryStore
from zapdb.past.files.states import FileReader
from zapdb.past.files.working_store import StoreWriter
from zapdb.schema import TableSchema
from zapdb.storage.fixed_tables import FileKind

Parts = Iterable[tuple[FileKind, Any]]
"""Rows, and the kind of file that they go into, each kind in the order of its files."""


class RowsChange(Protocol):
    """What becomes of the rows of a file."""

    @property
    def columns(self) -> Sequence[str]:
        """Those that tell which rows are changed."""

    def count(self, rows: Any) -> int:
        """Return how many of some rows are deleted, or lose a value."""

    def apply(self, rows: Any) -> Any:
        """Return what is left of the same rows with all their columns."""


def write_era(
    working: StoreWriter,
    store: HistoryStore,
    of: tuple[HistoryEra, int],
    moments: tuple[int, LoggedMoment],
    parts: Parts,
) -> list[HistoryFile]:
    """Write rows of an era into new files; `of` is the era with the newest revision among them,
    `moments` the first and the last one. A large file is followed by another, but for segments.
    Raises `HistoryUnreachable` and `DiskFull`."""
    footer = working.make_footer(store, "checkpoint", *of, moments)
    described = footer, working.schema_of(of[0])
    return _write(working, store.directory, described, parts, is_split=True)


def rewrite_file(
    working: StoreWriter, store: HistoryStore, reader: FileReader, change: RowsChange
) -> tuple[int, list[HistoryFile]]:
    """Write a file anew where it is, if that changes a row; return how many it changes, and the new
    file, of which there is none if no row is left. Raises `HistoryDamaged`, `HistoryUnreachable`
    and `DiskFull`."""
    count = sum(change.count(rows) for rows in reader.read_groups(change.columns))
    if not count:
        return 0, []
    file = reader.file
    footer, schema = read_footer(reader.path)
    described = replace(footer, commit=store.commits + 1), schema
    parts = ((file.kind, change.apply(rows)) for rows in reader.read_groups())
    directory = file.directory or store.directory
    made = _write(working, directory, described, parts, is_split=False)
    return count, [replace(one, directory=file.directory) for one in made]


def _write(
    working: StoreWriter,
    directory: str,
    described: tuple[FileFooter, TableSchema | None],
    parts: Parts,
    *,
    is_split: bool,
) -> list[HistoryFile]:
    footer, schema = described
    made, writers = list[HistoryFile](), dict[FileKind, FileWriter]()

    def finish(kind: FileKind) -> None:
        made.append(writers.pop(kind).finish())

    with writing_to(directory), ExitStack() as opened:
        require_directory(directory, footer.tenant)
        for kind, rows in parts:
            if not rows.num_rows:
                continue
            if kind not in writers:
                its = replace(footer, kind=kind)
                writer = FileWriter(Path(directory), its, schema, working.require_lease)
                writers[kind] = opened.enter_context(writer)
            writers[kind].write(rows)
            is_large = writers[kind].size_bytes >= HISTORY_FILE_SIZE_BYTES
            if is_split and is_large and kind != "segment":
                finish(kind)
        for kind in [*writers]:
            finish(kind)
    return made
