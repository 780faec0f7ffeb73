"""Where the history store has a table at a moment: one era, its files, and the tail behind them.

What the store has not put into files yet is in the change log; so there is no lag to see. Outside
of what it has, it says why, and what there is instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from zapdb.activation import TenantCatalog
from zapdb.catalog.schema_history import read_entries, read_later_events
from zapdb.errors import (
    HistoryBehind,
    HistoryGap,
    HistoryNotStored,
    HistoryPurged,
    HistoryUnavailable,
)
from zapdb.log.moments import LoggedMoment, Moments
from zapdb.past.files.history_manifest import (
    Doubt,
    HistoryEra,
    HistoryFile,
    HistoryStore,
    list_eras,
    list_history_files,
    list_timelines,
)
from zapdb.past.files.layers import is_needed
from zapdb.past.reading.moment import require_kept
from zapdb.past.reading.schema_at import TableAt, read_schema_then
from zapdb.storage import Connection

MADE_ANEW: Final = ("drop", "restore", "recovered")
"""Events of the schema history behind which a table's records may be others."""


@dataclass(frozen=True, slots=True)
class StoredState:
    """A table at a moment, as the store has it.

    `moment` is what is read of the files: the moment itself, or the store's end. In the second case
    the changes since that end, `tail`, are in the log. Without an era the table is younger than the
    files.
    """

    store: HistoryStore
    era: HistoryEra | None
    files: tuple[HistoryFile, ...]
    moment: int
    tail: LoggedMoment | None

    @property
    def directory(self) -> Path:
        return Path(self.store.directory)

    @property
    def doubt(self) -> Doubt | None:
        return None if self.era is None else self.era.doubt


def find_stored(
    connection: Connection,
    catalog: TenantCatalog,
    moments: Moments,
    then: TableAt,
    moment: LoggedMoment,
) -> StoredState | None:
    """Return where the store has a table at a moment, in one snapshot; None if there is no store.

    Raises `HistoryPurged`, `HistoryGap`, `HistoryNotStored` for a moment before the store began,
    and `HistoryBehind` while the first checkpoint of the table is written, or where changes behind
    the files were not recorded.
    """
    timelines = list_timelines(connection, catalog.tenant)
    if not timelines:
        return None
    store = _find_timeline(timelines, then, moment.number)
    eras = list_eras(connection, store, then.schema.number)
    at = min(moment.number, store.ends)
    era = next((era for era in reversed(eras) if era.holds(at)), None)
    tail = None
    if moment.number > store.ends:
        tail = moments.find_bookmark(connection, store.ends_bookmark)
        require_kept(moments, connection, tail)
        later = moments.find_later(connection, tail)
        ends = read_schema_then(connection, catalog, at, later).numbered(then.schema.number)
        if ends is None and not eras:
            return StoredState(store, None, (), at, tail)
        if ends is None or _is_made_anew(connection, catalog.tenant, ends, then):
            raise _make_behind(
                "a migration that the history store has not come to yet made the values of the"
                " table",
                then,
                store,
                moment.number,
            )
        if _is_switched(connection, moments, (tail, moment), then.schema.number):
            raise _make_behind(
                "the table's changes were not recorded all the time since the last moment in files",
                then,
                store,
                moment.number,
            )
    if era is None:
        raise _make_gap(eras, then, store, moment.number)
    if era.state == "baseline":
        raise HistoryBehind(
            "the first checkpoint of the table is still being written",
            table=then.schema.name,
            store=store.directory,
            hint="ask again later",
        )
    files = list_history_files(connection, store, table=era.table_number, era=era.era)
    kept = (file for file in files if is_needed(file, at))
    return StoredState(store, era, tuple(kept), at, tail)


def _is_made_anew(connection: Connection, tenant: int, ends: TableAt, then: TableAt) -> bool:
    """Whether the table was dropped and came back behind the files."""
    entries = read_entries(connection, tenant, then.schema.number)
    return any(
        entry.event in MADE_ANEW and ends.revision < entry.revision <= then.revision
        for entry in entries
    )


def _is_switched(
    connection: Connection,
    moments: Moments,
    between: tuple[LoggedMoment, LoggedMoment],
    table: int,
) -> bool:
    """Whether recording the table's changes was switched on or off between two moments."""
    since, until = (moments.find_later(connection, one) for one in between)
    events = read_later_events(
        connection,
        moments.log.tenant,
        lambda column: f"({since(column)} AND NOT {until(column)})",
    )
    return events.switches(table)


def _find_timeline(timelines: list[HistoryStore], then: TableAt, moment: int) -> HistoryStore:
    """Return the newest timeline with a moment; the newest one of all goes on in the log."""
    for store in timelines:
        if store.begins <= moment and (store is timelines[0] or moment <= store.ends):
            if moment < store.purged_before:
                raise HistoryPurged(
                    "the moment was purged from the history store",
                    table=then.schema.name,
                    moment=moment,
                    kept_from=store.purged_before,
                    hint=f"ask for moment #{store.purged_before} or a later one",
                )
            return store
    begins = min(store.begins for store in timelines if store.begins > moment)
    if any(store.begins < moment for store in timelines):
        raise HistoryGap(
            "the history store has a gap there: it began anew, since the change log had been pruned"
            " in front of it",
            table=then.schema.name,
            moment=moment,
            recorded_from=begins,
            hint=f"ask for moment #{begins} or a later one",
        )
    raise HistoryNotStored(
        "the history store begins after the moment",
        table=then.schema.name,
        moment=moment,
        begins=begins,
        hint=f"ask for moment #{begins} or a later one",
    )


def _make_gap(
    eras: list[HistoryEra], then: TableAt, store: HistoryStore, moment: int
) -> HistoryUnavailable:
    later = [era.first_moment for era in eras if era.first_moment > moment]
    return HistoryGap(
        "the history store has a gap there: the changes of the table were not recorded, a migration"
        " changed its values before its first checkpoint was complete, or a rollback brought back"
        " records that were purged, older than the store, or maybe converted",
        table=then.schema.name,
        moment=moment,
        recorded_from=min(later, default=None),
        hint=f"ask for moment #{min(later)} or a later one" if later else "ask for another moment",
    )


def _make_behind(why: str, then: TableAt, store: HistoryStore, moment: int) -> HistoryBehind:
    return HistoryBehind(
        why,
        table=then.schema.name,
        moment=moment,
        stored_until=store.ends,
        hint="ask again when it has the moment: `zapdb history status` shows how far it is",
    )
