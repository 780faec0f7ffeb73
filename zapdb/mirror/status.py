"""The status of a mirror: its tables, and how far it is behind."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from zapdb.database import Database
from zapdb.errors import StorageError, UsageError
from zapdb.mirror.mirror import find_broken, read_source
from zapdb.mirror.target import MirrorTarget, TargetBusy, TargetFailed
from zapdb.storage.cells import as_time
from zapdb.storage.change_log import Bookmark, ChangeLog, Lag


@dataclass(frozen=True, slots=True)
class MirrorTableStatus:
    """A table of a mirror; it is broken if others changed its columns or the number of rows."""

    name: str
    rows: int
    is_broken: bool


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
        with target.transaction() as session:
            state = session.read_state()
            broken = set() if state is None else set(find_broken(session, state))
    except (TargetBusy, TargetFailed) as error:
        raise StorageError(
            "the mirror's target can't be read", target=target.shown, error=str(error)
        ) from error
    if state is None or state.source != read_source(db):
        raise UsageError(
            "the target is not a mirror of this database and tenant",
            target=target.shown,
            hint="begin one: `zapdb mirror run --to TARGET`",
        )
    with db._session.reading() as connection:
        log = ChangeLog(db._storage, state.source.tenant)
        lag = log.measure_lag(connection, state.bookmark)
    tables = tuple(
        MirrorTableStatus(table.name, table.rows, table.number in broken)
        for table in sorted(state.tables.values(), key=lambda table: table.name)
    )
    return MirrorStatus(target.shown, state.bookmark, as_time(state.updated_at), lag, tables)
