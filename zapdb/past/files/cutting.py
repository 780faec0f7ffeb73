"""Cutting an era: what ended before a moment goes, and what held at it is the checkpoint of then;
or what came after a moment goes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow
from pyarrow import compute

from zapdb.log.change_log import Bookmark
from zapdb.log.moments import LoggedMoment
from zapdb.past.files.file_columns import FROM, OPERATION, UNTIL, RowOperation, with_until
from zapdb.past.files.history_file import read_footer, reading_file
from zapdb.past.files.history_manifest import FileKind, HistoryEra, HistoryFile, HistoryStore
from zapdb.past.files.merging import EraOutput
from zapdb.past.files.states import EraContents, holds_at_end
from zapdb.past.files.working_store import LoadedStore, StoreWriter
from zapdb.schema import TableSchema


def cut_era(
    working: StoreWriter,
    store: HistoryStore,
    era: HistoryEra,
    files: list[HistoryFile],
    first: int,
) -> tuple[list[HistoryFile], HistoryEra]:
    """Write the files of an era anew from a moment on; returns them, and the era as it is then.

    Raises `HistoryUnreachable`, `HistoryDamaged` and `DiskFull`.
    """
    revision = max((file.revision for file in files), default=era.revision)
    cut = _Cut(working, store, era, revision, (first, _find_end(store, era, files)))
    made = cut.write(files, lambda rows: _cut(rows, first))
    live_rows, changes = cut.begun, cut.rows - cut.begun
    return made, replace(era, first_moment=first, live_rows=live_rows, changes=changes)


def cut_end(
    working: StoreWriter,
    store: HistoryStore,
    era: HistoryEra,
    files: list[HistoryFile],
    last: LoggedMoment,
) -> tuple[list[HistoryFile], HistoryEra]:
    """Write the files of an era anew up to a moment; returns them, and the era, which is open.

    Raises as `cut_era` does.
    """

    def cut_rows(rows: Any) -> Any:
        return with_until(rows.filter(compute.less_equal(rows.column(FROM), last.number)))

    # The revisions of later rows may be others in this database, or none; the layout is the same.
    cut = _Cut(working, store, era, era.revision, (era.first_moment, last))
    made = cut.write(files, cut_rows)
    return made, replace(era, last_moment=None, changes=cut.rows - cut.begun, state="open")


class _Cut:
    """Writes the rows of an era anew: what holds at its end as the checkpoint, and what ended.
    Counts the rows, and those of the first moment."""

    def __init__(
        self,
        working: StoreWriter,
        store: HistoryStore,
        era: HistoryEra,
        revision: int,
        moments: tuple[int, LoggedMoment],
    ) -> None:
        self._working, self._loaded, self._of = working, LoadedStore(store, {}), (era, revision)
        self._moments = moments
        self.rows = self.begun = 0

    def write(self, files: list[HistoryFile], cut: Callable[[Any], Any]) -> list[HistoryFile]:
        schema, made = self._working.schema_of(self._of[0]), list[HistoryFile]()
        directory = Path(self._loaded.store.directory)
        with ExitStack() as stack:
            held, ended = (
                stack.enter_context(self._begin(kind, schema)) for kind in ("checkpoint", "ended")
            )
            for rows in EraContents(directory, files, schema, with_ended=True).read_all():
                kept = cut(rows)
                holds = holds_at_end(kept)
                held.write(kept.filter(holds))
                ended.write(kept.filter(compute.invert(holds)))
                self.rows += kept.num_rows
                is_first = compute.equal(kept.column(FROM), self._moments[0])
                self.begun += compute.sum(is_first).as_py() or 0
            for output in (held, ended):
                output.finish()
                made += output.files
        return made

    def _begin(self, kind: FileKind, schema: TableSchema) -> EraOutput:
        footer = self._working.make_footer(self._loaded, kind, self._of, self._moments)
        directory = self._loaded.store.directory
        return EraOutput(self._working, directory, (footer, schema), is_split=True)


def _cut(rows: Any, first: int) -> Any:
    """Return the rows that hold at a moment or later; those of then as rows of its checkpoint."""
    is_later = compute.greater(rows.column(FROM), first)
    is_there = compute.fill_null(compute.greater(rows.column(UNTIL), first), True)
    is_record = compute.not_equal(rows.column(OPERATION), int(RowOperation.DELETE))
    kept = rows.filter(compute.or_(is_later, compute.and_(is_there, is_record)))
    is_later = compute.greater(kept.column(FROM), first)
    for name, value in (
        (FROM, pyarrow.scalar(first, pyarrow.int64())),
        (OPERATION, pyarrow.scalar(int(RowOperation.CHECKPOINT), pyarrow.int8())),
    ):
        at = kept.column_names.index(name)
        column = compute.if_else(is_later, kept.column(at), value)
        kept = kept.set_column(at, kept.schema.field(at), column)
    return kept


def _find_end(store: HistoryStore, era: HistoryEra, files: list[HistoryFile]) -> LoggedMoment:
    """Return the moment up to which the era has files, which the log need not have any more."""
    place = store.ends_bookmark
    if era.last_moment is None:
        return LoggedMoment(store.ends, place.stamp, place.commit_order, store.visible_at, None)
    number = era.last_moment
    last = max(files, key=lambda file: file.last_moment, default=None)
    if last is not None:
        # One that another followed has changes of that one's first moment, too.
        number = max(number, last.last_moment)
        path = last.place_in(store.directory)
        with reading_file(path, last):
            place = Bookmark.parse(read_footer(path)[0].bookmark)
    return LoggedMoment(number, place.stamp, place.commit_order, store.visible_at, None)
