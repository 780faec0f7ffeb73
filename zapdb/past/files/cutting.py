"""Cutting an era: what ended before a moment goes, and what held at it is the checkpoint of then;
or what came after a moment goes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow
from pyarrow import compute

from zapdb.log.change_log import Bookmark
from zapdb.log.moments import LoggedMoment
from zapdb.past.files.file_columns import FROM, OPERATION, UNTIL, RowOperation, with_until
from zapdb.past.files.history_file import read_footer, reading_file
from zapdb.past.files.history_manifest import HistoryEra, HistoryFile, HistoryStore
from zapdb.past.files.rewriting import write_era
from zapdb.past.files.states import EraContents, holds_at_end
from zapdb.past.files.working_store import StoreWriter
from zapdb.storage.fixed_tables import FileKind


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
    cut = _Cut(_open(working, store, era, files), first, lambda rows: _cut(rows, first))
    revision = max((file.revision for file in files), default=era.revision)
    moments = first, _find_end(store, era, files)
    made = write_era(working, store, (era, revision), moments, cut)
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

    cut = _Cut(_open(working, store, era, files), era.first_moment, cut_rows)
    # The revisions of later rows may be others in this database, or none; the layout is the same.
    of, moments = (era, era.revision), (era.first_moment, last)
    made = write_era(working, store, of, moments, cut)
    return made, replace(era, last_moment=None, changes=cut.rows - cut.begun, state="open")


class _Cut:
    """The rows of an era that are left, by the kind of file that they go into: what holds at its
    end, and what ended. Counts them, and those of the first moment."""

    def __init__(self, contents: EraContents, first: int, cut: Callable[[Any], Any]) -> None:
        self._contents, self._first, self._cut = contents, first, cut
        self.rows = self.begun = 0

    def __iter__(self) -> Iterator[tuple[FileKind, Any]]:
        for rows in self._contents.read_all():
            kept = self._cut(rows)
            holds = holds_at_end(kept)
            yield "checkpoint", kept.filter(holds)
            yield "ended", kept.filter(compute.invert(holds))
            self.rows += kept.num_rows
            is_first = compute.equal(kept.column(FROM), self._first)
            self.begun += compute.sum(is_first).as_py() or 0


def _open(
    working: StoreWriter, store: HistoryStore, era: HistoryEra, files: list[HistoryFile]
) -> EraContents:
    schema = working.schema_of(era)
    return EraContents(Path(store.directory), files, schema, with_ended=True)


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
