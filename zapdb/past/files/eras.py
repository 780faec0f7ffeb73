"""Where eras end and begin: what a schema event makes of each table's history.

An era goes on as long as the columns of its files stay what they are. Else it ends, and the next
one begins with a checkpoint of the table as it is after the event's transaction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from zapdb.catalog.schema_history import SWITCHES, RevisionEntry
from zapdb.log.pending_changes import ARCHIVE_PRUNED, OF_TENANT
from zapdb.past.files.history_manifest import HistoryEra, HistoryStore
from zapdb.past.files.log_batches import LogBatch
from zapdb.past.files.table_revisions import EarlierTable, TableRevisions
from zapdb.records import decode_prefix
from zapdb.storage.fixed_tables import EraState


@dataclass(slots=True)
class EraPlan:
    """The eras that end, and those that begin; `missed` are those of them whose tables can't be
    rewound to their beginning any more, each with the one before."""

    closed: list[HistoryEra] = field(default_factory=list)
    begun: list[HistoryEra] = field(default_factory=list)
    missed: list[tuple[HistoryEra, HistoryEra]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class TableEvents:
    """What the last transaction of a batch did to tables, by number: which have schema events,
    whose recording was switched (0: that of all), and which have changes of records."""

    changed: frozenset[int] = frozenset()
    switched: frozenset[int] = frozenset()
    touched: frozenset[int] = frozenset()
    pruned: frozenset[tuple[int, int]] = frozenset()
    """Dropped fields whose archived values were pruned, by table and field."""

    @classmethod
    def of(cls, batch: LogBatch) -> Self:
        return cls(
            frozenset(event.table for event in batch.events),
            frozenset(event.table for event in batch.events if event.event in SWITCHES),
            frozenset(batch.touched),
            frozenset(
                (event.table, decode_prefix(event.key, 0)[0])
                for event in batch.events
                if event.event == ARCHIVE_PRUNED
            ),
        )

    def list_pruned(self, table: int) -> set[int]:
        """Return the fields of a table whose archived values were pruned."""
        return {field for of, field in self.pruned if of == table}

    def breaks(self, table: int) -> bool:
        """Whether the table's era ends, whatever its schema is now: an era has archived values as
        its changes tell them, and these do not tell what was pruned."""
        is_switched = bool(self.switched & {table, OF_TENANT})
        is_pruned = bool(self.list_pruned(table))
        return is_switched or is_pruned or table in self.changed & self.touched

    def hides(self, table: int) -> bool:
        """Whether the changes of its records are not all known."""
        return bool(self.switched & {table, OF_TENANT}) or table in self.touched

    def makes(self, table: int, entry: RevisionEntry) -> bool:
        """Whether the table was made, and is empty."""
        return entry.event == "create" and table in self.changed and table not in self.touched


@dataclass(frozen=True, slots=True)
class EraPlanner:
    """Plans the eras of a store: `eras` are the open ones, `last` the last of each table that ever
    had one."""

    store: HistoryStore
    revisions: TableRevisions
    eras: Mapping[int, HistoryEra]
    last: Mapping[int, HistoryEra]

    def plan(self, tables: Mapping[int, EarlierTable], events: TableEvents, moment: int) -> EraPlan:
        """Plan them at a moment, at which there are these tables."""
        plan = EraPlan()
        kept = set[int]()
        for table, era in self.eras.items():
            at = tables.get(table)
            if at is not None and not events.breaks(table) and self._goes_on(era, at.entry):
                kept.add(table)
            else:
                plan.closed.append(replace(era, last_moment=moment - 1))
        for table, at in tables.items():
            if table in kept:
                continue
            if events.makes(table, at.entry):
                plan.begun.append(self._begin(table, at.entry, moment, "open"))
            elif at.is_rewindable:
                plan.begun.append(self._begin(table, at.entry, moment, "baseline"))
            elif table in self.last and table in events.changed and not events.hides(table):
                era = self._begin(table, at.entry, moment, "baseline")
                plan.missed.append((self.last[table], era))
        return plan

    def _goes_on(self, era: HistoryEra, entry: RevisionEntry) -> bool:
        began = self.revisions.find(era.table_number, era.revision)
        return began is not None and self.revisions.goes_on(began, entry)

    def _begin(self, table: int, entry: RevisionEntry, moment: int, state: EraState) -> HistoryEra:
        return HistoryEra(
            tenant=self.store.tenant,
            timeline=self.store.timeline,
            table_number=table,
            era=self.last[table].era + 1 if table in self.last else 1,
            first_moment=moment,
            last_moment=None,
            revision=entry.revision,
            layout_revision=entry.layout_revision,
            live_rows=0,
            changes=0,
            state=state,
        )
