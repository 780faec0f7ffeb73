"""What a transaction makes of a history store: of its files, of its eras, and of where it ends."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from zapdb.past.files.history_manifest import HistoryEra, HistoryFile, HistoryStore


@dataclass(slots=True)
class StoreChange:
    """What one transaction does to a store, beside moving it on."""

    files: list[HistoryFile] = field(default_factory=list)
    eras: list[HistoryEra] = field(default_factory=list)
    retired: list[HistoryFile] = field(default_factory=list)
    dropped: list[HistoryEra] = field(default_factory=list)
    corrected: list[HistoryFile] = field(default_factory=list)
    """Rows of files that take the places of those with the same ids."""

    def apply_to(
        self, eras: Iterable[HistoryEra], files: Iterable[HistoryFile]
    ) -> tuple[list[HistoryEra], list[HistoryFile]]:
        """Return what becomes of a timeline's eras and live files."""
        kept = {era.place: era for era in (*eras, *self.eras)}
        for era in self.dropped:
            kept.pop(era.place, None)
        named = {file.id: file for file in (*files, *self.files, *self.corrected)}
        for file in self.retired:
            named.pop(file.id, None)
        return [*kept.values()], [*named.values()]


@dataclass(frozen=True, slots=True)
class TimelineRows:
    """The rows of a timeline in one snapshot: its own, those of its eras, and of its live files.
    `read_at` is when, in microseconds."""

    store: HistoryStore
    eras: list[HistoryEra]
    files: list[HistoryFile]
    read_at: int


@dataclass(frozen=True, slots=True)
class StoreCommit:
    """What one transaction makes of a timeline: of its row, and of its files and eras.

    `read` is what these were, if that was read under the lease, and nothing was committed since.
    """

    was: HistoryStore
    store: HistoryStore
    change: StoreChange
    read: TimelineRows | None = None


def count_changes_of(eras: Sequence[HistoryEra], changes: dict[int, int]) -> list[HistoryEra]:
    """Return the eras whose tables have changed, with these changes more."""
    return [
        replace(era, changes=era.changes + changes[era.table_number])
        for era in eras
        if changes.get(era.table_number)
    ]
