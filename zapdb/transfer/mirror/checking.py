"""Mirrored rows compared with the records, page by page, and repaired where others changed them.

A page is read from a snapshot while no mirror writes. What was changed after the mirror's bookmark
is left out: the change log has it. All other rows must be those of the records, so a row that is
not is written again. When all pages are done, rows that no record has are found by their number.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from zapdb.database import Database, RecordChange
from zapdb.schema import TableSchema
from zapdb.transfer.mirror.batch import BATCH_CHANGES_MAX, name_key, rows_of, take_keys
from zapdb.transfer.mirror.source_rows import plan_of, read_page, reading_table
from zapdb.transfer.mirror.state import AT_ONCE, MirroredTable, MirrorState, save_table
from zapdb.transfer.mirror.target import TargetSession
from zapdb.transfer.plain_tables import PlainTable


class FarBehind(Exception):
    """More changes are waiting than can be left out of a comparison."""


@dataclass
class CheckPass:
    """One comparison of a table: how far it has come, and what it found."""

    repairs: bool = True
    after: bytes = b""
    compared: int = 0
    damaged: int = 0
    """Rows that were missing, or had other values."""
    foreign: int = 0
    """Rows of no record."""
    is_done: bool = False

    @property
    def found(self) -> int:
        return self.damaged + self.foreign


def check_page(
    db: Database, session: TargetSession, state: MirrorState, number: int, done: CheckPass
) -> None:
    """Compare the next page of a table. Raises `SchemaMoved`, `FarBehind` and `LongField`."""
    mirrored = state.tables[number]
    with reading_table(db, mirrored) as source:
        page = read_page(source.table, done.after, session.page_rows)
        plain = plan_of(source.schema, session, mirrored)
        rows = list(rows_of((record for _, record in page), plain, number))
        schema = source.schema
    pending = read_pending(db, state, number)
    compared = [row for (key, _), row in zip(page, rows, strict=True) if key not in pending]
    places = session.find_damage(mirrored.name, plain, compared) if compared else []
    if places and done.repairs:
        damaged = [compared[at] for at in set(places)]
        session.delete(mirrored.name, plain, [_key_in(row, plain) for row in damaged])
        session.insert(mirrored.name, plain, damaged)
    done.compared += len(page)
    done.damaged += len(set(places))
    if len(page) == session.page_rows:
        done.after = page[-1][0]
        return
    done.is_done = True
    _finish(db, session, state, schema, plain, done)


def _finish(
    db: Database,
    session: TargetSession,
    state: MirrorState,
    schema: TableSchema,
    plain: PlainTable,
    done: CheckPass,
) -> None:
    mirrored = state.tables[schema.number]
    count = session.count(mirrored.name)
    if done.repairs and count == mirrored.rows:
        _save(db, session, state, mirrored)
        return
    keys = _all_keys(db, state, mirrored, schema, plain)
    done.foreign = session.delete_others(mirrored.name, plain, keys, is_dry=not done.repairs)
    if not done.repairs:
        return
    rows = session.count(mirrored.name)
    # Without a key in the target, a row can be there twice.
    is_stale = rows != mirrored.rows and not session.has_keys
    _save(db, session, state, replace(mirrored, rows=rows, is_stale=is_stale))


def _save(
    db: Database, session: TargetSession, state: MirrorState, mirrored: MirroredTable
) -> None:
    now = db._storage.now_us(db._storage.connection())
    save_table(session, state, replace(mirrored, checked_at=max(now, AT_ONCE + 1)))


def _key_in(row: tuple[Any, ...], plain: PlainTable) -> tuple[Any, ...]:
    return tuple([row[at] for at in plain.key])


def read_pending(db: Database, state: MirrorState, number: int) -> dict[bytes, tuple[Any, ...]]:
    """The records of a table that were changed after the bookmark: their keys, encoded and by
    field. Raises `FarBehind`."""
    changes = islice(db.change_log.read(state.bookmark), BATCH_CHANGES_MAX + 1)
    found, count = dict[bytes, tuple[Any, ...]](), 0
    for change in changes:
        count += 1
        if isinstance(change, RecordChange) and change.bookmark.table == number:
            found[change.bookmark.key] = change.key
    if count > BATCH_CHANGES_MAX:
        raise FarBehind
    return found


def _all_keys(
    db: Database,
    state: MirrorState,
    mirrored: MirroredTable,
    schema: TableSchema,
    plain: PlainTable,
) -> Iterator[tuple[Any, ...]]:
    """The keys of all records, and then of those that were changed after the bookmark."""
    with reading_table(db, mirrored) as source:
        yield from take_keys(source.table.scan(), plain, mirrored.number)
    pending = read_pending(db, state, mirrored.number).values()
    yield from take_keys((name_key(schema, key) for key in pending), plain, mirrored.number)
