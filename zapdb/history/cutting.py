"""Cutting an era: what ended before a moment goes; what held at it is the checkpoint of then."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow
from pyarrow import compute

from zapdb.history.columns import FROM, OPERATION, UNTIL, RowOperation
from zapdb.history.files import read_footer, reading_file
from zapdb.history.merging import EraOutput
from zapdb.history.states import EraContents, holds_at_end
from zapdb.history.working_store import LoadedStore, WorkingStore
from zapdb.storage.change_log import Bookmark
from zapdb.storage.history_manifest import FileKind, HistoryEra, HistoryFile, HistoryStore
from zapdb.storage.moments import LoggedMoment


def cut_era(
    working: WorkingStore,
    store: HistoryStore,
    era: HistoryEra,
    files: list[HistoryFile],
    first: int,
) -> tuple[list[HistoryFile], HistoryEra]:
    """Write the files of an era anew from a moment on; returns them, and the era as it is then.

    Raises `HistoryUnreachable`, `HistoryDamaged` and `DiskFull`.
    """
    revision = max((file.revision for file in files), default=era.revision)
    schema = working.schema_of(era, revision)
    loaded, until = LoadedStore(store, {}), _find_end(store, era, files)
    made, live_rows, changes = list[HistoryFile](), 0, 0

    def begin(kind: FileKind) -> EraOutput:
        footer = working.make_footer(loaded, kind, (era, revision), (first, until))
        return EraOutput(store.directory, footer, schema, is_split=True)

    with ExitStack() as stack:
        held, ended = stack.enter_context(begin("checkpoint")), stack.enter_context(begin("ended"))
        contents = EraContents(Path(store.directory), files, schema, with_ended=True)
        for rows in contents.read_all():
            kept = _cut(rows, first)
            holds = holds_at_end(kept)
            held.write(kept.filter(holds))
            ended.write(kept.filter(compute.invert(holds)))
            begun = compute.sum(compute.equal(kept.column(FROM), first)).as_py() or 0
            live_rows, changes = live_rows + begun, changes + kept.num_rows - begun
        for output in (held, ended):
            output.finish()
            made += output.files
    return made, replace(era, first_moment=first, live_rows=live_rows, changes=changes)


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
    last = max(files, key=lambda file: file.last_moment, default=None)
    if last is not None:
        path = last.place_in(store.directory)
        with reading_file(path, last):
            place = Bookmark.parse(read_footer(path)[0].bookmark)
    return LoggedMoment(era.last_moment, place.stamp, place.commit_order, store.visible_at, None)
