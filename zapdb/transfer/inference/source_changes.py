"""Which rows of a PostgreSQL source have changed since an earlier moment, by any program.

A transaction that runs at a moment may commit later, and its rows show then as of its beginning.
So a moment is read before the snapshot that rows are read from, and what is asked for the next time
lies behind the oldest transaction that ran at that moment (`pg_snapshot_xmin`): passes overlap.

    moment 1   snapshot 1 ─ pass 1     since moment 0
         moment 2   snapshot 2 ─ pass 2     since moment 1: also what snapshot 1 did not show

A row has the number of the transaction that wrote it, its `xmin`, so nothing is missed; the table
is scanned for it. Where a table has an index that begins with `updated_at`, that is asked instead,
unless a foreign key may change its rows (`ON UPDATE CASCADE`, `ON DELETE SET NULL`), which leaves
`updated_at` as it is. Who else changes a row without it is found when the tables are compared.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

STAMP: Final = "updated_at"
OVERLAP_SECONDS: Final = 10.0
"""How much earlier rows are asked for by their `updated_at`: clocks of applications differ."""
MARKS_MAX: Final = 1_000
_XIDS: Final = 1 << 32

_MOMENT: Final = sa.text(
    "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS xmin,"
    " pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS xmax, clock_timestamp() AS now,"
    " (SELECT min(xact_start) FROM pg_stat_activity"
    "  WHERE datname = current_database() AND pid <> pg_backend_pid()) AS started,"
    " (SELECT min(prepared) FROM pg_prepared_xacts WHERE database = current_database()) AS prepared"
)


@dataclass(frozen=True, slots=True)
class SourceMoment:
    """`xmin` is the lowest transaction that ran; all that began before `time` had ended, None if
    that is not known. `marks` are earlier moments, each with the first transaction after it."""

    xmin: int
    time: datetime.datetime | None
    marks: tuple[tuple[datetime.datetime, int], ...]

    def to_plain(self) -> dict[str, Any]:
        return {
            "xmin": self.xmin,
            "time": None if self.time is None else self.time.isoformat(),
            "marks": [[at.isoformat(), xmax] for at, xmax in self.marks],
        }

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> SourceMoment:
        read = datetime.datetime.fromisoformat
        time = None if plain["time"] is None else read(plain["time"])
        return cls(plain["xmin"], time, tuple((read(at), xmax) for at, xmax in plain["marks"]))


def read_moment(engine: sa.Engine, before: SourceMoment | None = None) -> SourceMoment:
    """The moment now, in a transaction of its own, which ends before the next snapshot begins."""
    with engine.connect() as connection:
        row = connection.execute(_MOMENT).one()
    marks = [*(before.marks if before else ()), (row.now, row.xmax)][-MARKS_MAX:]
    # A transaction that had a number at a mark has ended if all numbers below the mark's have.
    ended = [at for at, xmax in marks if xmax <= row.xmin]
    # One without a number can be seen by its session; by others only if they may.
    running = [at for at in (row.started, row.prepared) if at is not None]
    time = min([ended[-1], *running]) if ended else None
    kept = [mark for mark in marks if time is None or mark[0] >= time] or marks[-1:]
    return SourceMoment(row.xmin, time, tuple(kept))


def changed_since(table: sa.Table, moment: SourceMoment) -> sa.ColumnElement[bool]:
    """The condition for rows that a transaction wrote which was not seen to its end before a
    moment; also true for some others."""
    stamp = find_stamp(table)
    if stamp is not None:
        if moment.time is None:
            return sa.true()
        return stamp >= moment.time - datetime.timedelta(seconds=OVERLAP_SECONDS)
    written = sa.cast(sa.cast(sa.literal_column("xmin"), sa.Text), sa.BigInteger)
    # Numbers of transactions are compared as on a circle, as the server does.
    distance = sa.func.mod(written - moment.xmin % _XIDS + _XIDS, _XIDS)
    return distance < _XIDS // 2


def find_stamp(table: sa.Table) -> sa.Column[Any] | None:
    """The column that says when a row was changed, if the rows can be found by it."""
    if any(_changes_rows(key) for key in table.foreign_key_constraints):
        return None
    column = table.c.get(STAMP)
    if column is None or column.nullable or not getattr(column.type, "timezone", False):
        return None
    leading = [next(iter(index.columns), None) for index in table.indexes]
    return column if any(first is column for first in leading) else None


def _changes_rows(key: sa.ForeignKeyConstraint) -> bool:
    """Whether a change of the row that is referred to changes the referring row."""
    actions = {(action or "").upper() for action in (key.ondelete, key.onupdate)}
    on_update = (key.onupdate or "").upper() == "CASCADE"
    return on_update or any(action.startswith("SET ") for action in actions)
