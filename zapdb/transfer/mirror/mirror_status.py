"""The status of a mirror: its tables, and how far it is behind."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from zapdb.database import Database
from zapdb.errors import UsageError
from zapdb.log.change_log import Bookmark, ChangeLog, Lag
from zapdb.storage.cells import as_time
from zapdb.transfer.mirror.mirror import read_source
from zapdb.transfer.mirror.mirror_constraints import find_lacking
from zapdb.transfer.mirror.mirror_structure import find_broken
from zapdb.transfer.mirror.state import AT_ONCE, MirroredTable, MirrorState, read_state
from zapdb.transfer.mirror.target import (
    Constraint,
    MirrorTarget,
    TargetBusy,
    TargetFailed,
    TargetSession,
    explain,
)


@dataclass(frozen=True, slots=True)
class MirrorTableStatus:
    """A table of a mirror; it is broken if others changed its columns or the number of rows.

    `problem` says what is in the way of keeping it, `filling` names columns that get their values
    anew, and `checked_at` is when all rows were last compared with the records. `lacking` says
    which constraints it is to have and has not.
    """

    name: str
    rows: int
    is_broken: bool
    problem: str = ""
    filling: tuple[str, ...] = ()
    is_stale: bool = False
    checked_at: datetime | None = None
    lacking: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MirrorStatus:
    """All changes up to `bookmark` are applied, the last ones at `updated_at`."""

    target: str
    bookmark: Bookmark
    updated_at: datetime
    lag: Lag
    tables: tuple[MirrorTableStatus, ...]


def read_mirror_status(db: Database, target: MirrorTarget) -> MirrorStatus:
    """Raises `UsageError` for a target that is not this database's mirror, and `StorageError`."""
    try:
        require_place(target)
        with target.transaction() as session:
            state = require_mirror(session, target, db)
            broken = set(find_broken(session, state))
            lacking = find_lacking(session, state, db._session.catalog).constraints
    except (TargetBusy, TargetFailed) as error:
        raise explain(target, error, "the mirror's target can't be read") from error
    with db._session.reading() as connection:
        log = ChangeLog(db._storage, state.source.tenant)
        lag = log.measure_lag(connection, state.bookmark)
    tables = tuple(
        _status_of(table, table.number in broken, lacking)
        for table in sorted(state.tables.values(), key=lambda table: table.name)
    )
    return MirrorStatus(target.shown, state.bookmark, as_time(state.updated_at), lag, tables)


def require_place(target: MirrorTarget) -> None:
    """Raise `UsageError` if there is no file or schema, and make none."""
    if not target.is_there():
        raise _no_mirror(target)


def _no_mirror(target: MirrorTarget) -> UsageError:
    return UsageError(
        "the target is not a mirror of this database and tenant",
        target=target.shown,
        hint="begin one: `zapdb mirror run --to TARGET`",
    )


def require_mirror(session: TargetSession, target: MirrorTarget, db: Database) -> MirrorState:
    """The state of a target; raises `UsageError` if it is not this database's mirror."""
    state = read_state(session)
    if state is None or state.source != read_source(db):
        raise _no_mirror(target)
    return state


def _status_of(
    table: MirroredTable, is_broken: bool, lacking: Iterable[Constraint]
) -> MirrorTableStatus:
    return MirrorTableStatus(
        table.name,
        table.rows,
        is_broken,
        table.problem,
        table.filling.columns if table.filling else (),
        table.is_stale,
        as_time(table.checked_at) if table.checked_at != AT_ONCE else None,
        tuple(one.shown for one in lacking if one.table == table.name),
    )
