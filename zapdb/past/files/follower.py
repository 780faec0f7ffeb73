"""The follower: takes a tenant's change log into files, batch by batch, each change once.

    stamp       what became visible gets its place in the log
    baseline    checkpoints that are not complete, range by range, before anything else
    checkpoint  an era with as many changes as records ends, and the next begins
    moments     many small files of moments become one
    batch       whole transactions behind the store's end, into a segment for each table
    event       the transaction of a schema event alone: eras end and begin

Each step ends with one transaction of the database. It can be killed anywhere: the next process
goes on from the store's row. Its lease keeps two from doing the same work; that nothing is stored
twice does not depend on it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any, Final

from zapdb.catalog.settings import HISTORY_FLUSH_CHANGES, HISTORY_FLUSH_SECONDS, Scope
from zapdb.catalog.stored_settings import read_settings
from zapdb.errors import ChangesPruned
from zapdb.log.moments import LoggedMoment
from zapdb.past.files.baseline import BaselineWriter
from zapdb.past.files.eras import EraPlanner, TableEvents
from zapdb.past.files.history_manifest import FOLLOWED, HistoryEra, list_eras, with_end
from zapdb.past.files.log_batches import LogBatch, open_batches
from zapdb.past.files.merging import CheckpointWriter, MomentsMerger
from zapdb.past.files.moment_rows import to_arrow
from zapdb.past.files.state_conversion import StateConverter
from zapdb.past.files.store_changes import StoreChange, count_changes_of
from zapdb.past.files.table_revisions import read_tables_at
from zapdb.past.files.working_store import LoadedStore, StoreWriter
from zapdb.storage import Connection, TransactionMode

LOOK_SECONDS: Final = 5.0
"""How often the changes that wait are counted."""


@dataclass(frozen=True, slots=True)
class FollowerStep:
    """What a step did: how many changes and records it put into files, and whether there is more to
    do at once."""

    is_any: bool = False
    changes: int = 0
    records: int = 0


NOTHING_TO_DO: Final = FollowerStep()


class HistoryFollower:
    """Moves one store on, under the lease of this process."""

    def __init__(self, working: StoreWriter) -> None:
        self.working = working
        self._baseline = BaselineWriter(working)
        self._checkpoints = CheckpointWriter(working)
        self._moments = MomentsMerger(working)
        self._seen = -1
        self._look_at = 0.0

    def step(self, *, flush: bool = False, until: int | None = None) -> FollowerStep:
        """Do the next piece of work, if there is one; with `flush`, a batch need not be large. It
        goes no further than to a stamp; None: to the newest.

        Raises `HistoryUnreachable`, `DiskFull`, `LeaseLost`, and `ChangesPruned` if the log was
        pruned in front of it, which breaks the store.
        """
        working = self.working
        newest = working.find_newest_stamp() if until is None else until
        loaded = working.load()
        if loaded is None or loaded.store.state not in FOLLOWED:
            return NOTHING_TO_DO
        try:
            connection = working.storage.connection()
            working.log.require_unpruned(connection.fetch_all, loaded.store.ends_bookmark)
            return self._go_on(loaded, newest, is_flushed=flush)
        except ChangesPruned:
            self._note_broken(loaded)
            raise

    def _go_on(self, loaded: LoadedStore, newest: int, *, is_flushed: bool) -> FollowerStep:
        if loaded.unfinished:
            self._baseline.step(loaded)
            return FollowerStep(is_any=True)
        if self._checkpoints.step(loaded) or self._moments.step(loaded):
            return FollowerStep(is_any=True)
        if newest <= loaded.moment.stamp and self._is_at_end(loaded, newest):
            return NOTHING_TO_DO
        if not is_flushed and not self._is_due(loaded, newest):
            return NOTHING_TO_DO
        return self._take_batch(loaded, newest)

    def _is_at_end(self, loaded: LoadedStore, newest: int) -> bool:
        """Whether no transaction follows, where the newest stamp is the one of the store's end."""
        return newest < loaded.moment.stamp or self.working.log.is_numbered

    def _is_due(self, loaded: LoadedStore, newest: int) -> bool:
        """Whether enough changes wait, or one for long enough, or a schema event."""
        now = time.monotonic()
        if newest == self._seen and now < self._look_at:
            return False
        working, connection = self.working, self.working.storage.connection()
        settings, scope = read_settings(connection, working.tenant), Scope(working.tenant)
        self._seen, self._look_at = newest, now + LOOK_SECONDS
        if self._has_event(connection, loaded):
            return True
        lag = working.log.measure_lag(connection, loaded.store.ends_bookmark)
        return lag.changes >= int(
            settings.find(HISTORY_FLUSH_CHANGES, scope)[0]
        ) or lag.seconds >= int(settings.find(HISTORY_FLUSH_SECONDS, scope)[0])

    def _has_event(self, connection: Connection, loaded: LoadedStore) -> bool:
        later = self.working.moments.find_later(connection, loaded.moment)
        found = connection.fetch_one(
            f"SELECT 1 FROM zapdb_changes WHERE tenant = {self.working.tenant}"
            f" AND event IS NOT NULL AND {later('transaction_number')} LIMIT 1"
        )
        return found is not None

    # Batches

    def _take_batch(self, loaded: LoadedStore, newest: int) -> FollowerStep:
        working, change = self.working, StoreChange()
        reader = open_batches(working)

        def take(era: HistoryEra, revision: int, until: LoggedMoment, rows: Any) -> None:
            change.files.append(working.write(loaded, "segment", era, revision, until, rows))

        batch = reader.read(loaded.moment, newest, loaded.eras, take)
        if not batch.moments:
            return NOTHING_TO_DO
        change.files.append(
            working.write_moments(
                loaded, loaded.store.ends + 1, batch.last, [to_arrow(batch.moments)]
            )
        )
        eras = {
            era.table_number: era
            for era in count_changes_of(list(loaded.eras.values()), batch.changes)
        }
        # A table with changes has no era where the beginning of one was given up.
        if batch.events or any(made.unfiled for made in batch.moments):
            self._plan_eras(loaded, eras, batch, change)
        change.eras = [*eras.values(), *change.eras]
        self._commit(loaded, batch.last, change)
        return FollowerStep(is_any=True, changes=sum(batch.changes.values()))

    def _plan_eras(
        self,
        loaded: LoadedStore,
        counted: dict[int, HistoryEra],
        batch: LogBatch,
        change: StoreChange,
    ) -> None:
        working = self.working
        with working.storage.transaction(TransactionMode.READ) as connection:
            catalog = working.load_catalog(connection)
            later = working.moments.find_later(connection, batch.last)
            tables = read_tables_at(connection, catalog, working.revisions, later)
            last = {era.table_number: era for era in list_eras(connection, loaded.store)}
        eras = {**loaded.eras, **counted}
        planner = EraPlanner(loaded.store, working.revisions, eras, last)
        events = TableEvents.of(batch)
        plan = planner.plan(tables, events, batch.last.number)
        for era in plan.closed:
            counted.pop(era.table_number, None)
        change.eras += [*plan.closed, *plan.begun]
        for ended, begun in plan.missed:
            if ended.state == "baseline":
                continue
            pruned = events.list_pruned(begun.table_number)
            converter = StateConverter(working, loaded, catalog, begun, batch.last, pruned)
            made = converter.convert(ended)
            if made is not None:
                change.eras.append(made[0])
                change.files += made[1]

    def _commit(self, loaded: LoadedStore, last: LoggedMoment, change: StoreChange) -> None:
        working = self.working
        now = working.storage.now_us(working.storage.connection())
        store = with_end(loaded.store, last.number, last.bookmark, last.visible_at, now)
        is_unfinished = any(era.state == "baseline" for era in change.eras)
        store = replace(store, state="baseline" if is_unfinished else "follows", problem=None)
        working.commit(loaded.store, store, change)

    def _note_broken(self, loaded: LoadedStore) -> None:
        store = replace(
            loaded.store,
            state="broken",
            problem="the change log was pruned in front of the store",
        )
        with self.working.changing() as connection:
            self.working.update(connection, loaded.store, store)
