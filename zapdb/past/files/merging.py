"""Merging the files of an era: what holds at a moment apart from what ended before it.

    checkpoint   the records that there were at the moment, each with the moment since which
    ended        rows that a later one replaced, and deletions

A merge reads the era's checkpoint and segments, and writes the next checkpoint and what ended
since the last merge; what ended before that stays where it is. So a query of the newest moments
reads no row that ended, and one of an earlier moment reads each row once and compares no keys.

All files are sorted by key, and are read range by range, so memory is bounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, Final, Self

from zapdb.limits import HISTORY_FILE_SIZE_BYTES
from zapdb.past.files.directories import writing_to
from zapdb.past.files.history_file import FileFooter, FileWriter
from zapdb.past.files.history_manifest import FileKind, HistoryEra, HistoryFile
from zapdb.past.files.layers import list_layers
from zapdb.past.files.states import EraContents
from zapdb.past.files.store_changes import StoreChange
from zapdb.past.files.working_store import (
    LoadedStore,
    StoreWriter,
    to_row,
)
from zapdb.schema import TableSchema

JOINED_RATIO: Final = 4
"""A segment is joined with the ones after it as long as it is less than so many times as large."""


class EraOutput(AbstractContextManager["EraOutput"]):
    """Files of one kind that rows are written to, in order; with `is_split`, a large one is
    followed by another."""

    def __init__(
        self,
        working: StoreWriter,
        directory: str,
        described: tuple[FileFooter, TableSchema],
        *,
        is_split: bool,
    ) -> None:
        self.files: list[HistoryFile] = []
        self._working, self._directory = working, directory
        self._footer, self._schema = described
        self._is_split = is_split
        self._open = ExitStack()
        self._writer: FileWriter | None = None
        self._size_bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def write(self, rows: Any) -> None:
        """Raises `HistoryUnreachable` and `DiskFull`."""
        if not rows.num_rows:
            return
        with writing_to(self._directory):
            if self._writer is None:
                place, require_lease = Path(self._directory), self._working.require_lease
                writer = FileWriter(place, self._footer, self._schema, require_lease)
                self._writer = self._open.enter_context(writer)
            self._writer.write(rows)
        self._size_bytes += rows.nbytes
        if self._is_split and self._size_bytes >= HISTORY_FILE_SIZE_BYTES:
            self.finish()

    def finish(self) -> None:
        if self._writer is not None:
            with writing_to(self._directory):
                self.files.append(to_row(self._footer, self._writer.finish()))
        self._writer, self._size_bytes = None, 0


class EraMerger:
    """Merges the files of one open era, as they are at the store's end."""

    def __init__(
        self,
        working: StoreWriter,
        loaded: LoadedStore,
        era: HistoryEra,
        files: Sequence[HistoryFile],
    ) -> None:
        self._working, self._loaded, self.era = working, loaded, era
        self.segments = [file for file in files if file.kind == "segment"]
        self.checkpoint = [file for file in files if file.kind == "checkpoint"]
        self._schema = working.schema_of(era)
        self.revision = max((file.revision for file in files), default=era.revision)

    def merge(self, change: StoreChange) -> None:
        """Write the next checkpoint, and what ended. Raises `HistoryDamaged`, `HistoryUnreachable`
        and `DiskFull`."""
        merged = [file for file in self.checkpoint if self._touches(file)] + self.segments
        with self._begin("checkpoint", self.era) as held, self._begin("ended", self.era) as ended:
            for there, gone in self._open(merged).read_divided():
                held.write(there)
                ended.write(gone)
            for output in (held, ended):
                output.finish()
                change.files += output.files
        change.retired += merged

    def write_end(self, change: StoreChange, following: HistoryEra) -> None:
        """Write the checkpoint of the era that follows: what holds at the end of this one, whose
        files stay. Raises as `merge` does."""
        with self._begin("checkpoint", following) as output:
            files = [*self.checkpoint, *self.segments]
            for rows in self._open(files).read_state(following.first_moment):
                output.write(rows)
            output.finish()
            change.files += output.files

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

    def join(self, change: StoreChange, files: Sequence[HistoryFile]) -> None:
        """Write one segment in place of the newest ones; raises as `merge` does."""
        first = min(file.first_moment for file in files)
        with self._begin("segment", self.era, first=first) as output:
            for rows in self._open(files).read_all():
                output.write(rows)
            output.finish()
            change.files += output.files
        change.retired += files

    def _begin(self, kind: FileKind, era: HistoryEra, *, first: int | None = None) -> EraOutput:
        revision = self.revision if era is self.era else era.revision
        moments = (era.first_moment if first is None else first, self._loaded.moment)
        footer = self._working.make_footer(self._loaded, kind, (era, revision), moments)
        schema = self._working.schema_of(era)
        directory = self._loaded.store.directory
        return EraOutput(self._working, directory, (footer, schema), is_split=kind != "segment")

    def _open(self, files: Sequence[HistoryFile]) -> EraContents:
        return EraContents(Path(self._loaded.store.directory), files, self._schema)
