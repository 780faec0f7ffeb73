"""Archived values of dropped fields, as the files tell them.

Nothing is stored for them: a value was archived when its migration was passed, and is that of the
record at the end of the era before. It stays until its record is deleted, or the archive is pruned.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from zapdb.activation import TenantCatalog
from zapdb.history.stored_eras import UNSTORED, Range, StoredEra, TableEras, Way
from zapdb.records import Attachments, encode_prefix
from zapdb.records.attachments import Load
from zapdb.records.derivation import restored_in
from zapdb.storage.identifiers import make_uuid7
from zapdb.storage.pending_changes import ARCHIVE_PRUNED

Archived = dict[bytes, dict[int, bytes]]
"""Value encodings by key and field number."""

_PREFIX = encode_prefix(UNSTORED)


class _Source(NamedTuple):
    """Where a field's values were archived: between an era and the later ones; by which way."""

    era: StoredEra
    later: Sequence[StoredEra]
    way: Way


class EarlierArchive:
    """The archived values that a way takes, at the end of the last of some eras.

    `is_exact` is false if the files don't tell all of them.
    """

    def __init__(
        self,
        eras: TableEras,
        known: Sequence[StoredEra],
        way: Way,
        catalog: TenantCatalog,
        load: Load,
    ) -> None:
        self._eras, self._known, self._catalog, self._load = eras, known, catalog, load
        self.is_exact = True
        self.blobs: dict[bytes, bytes] = {}
        """Large values among them, by id."""
        self._sources: dict[int, _Source] = {}
        for field in _list_taken(way):
            source = self._find(field)
            if source is not None:
                self._sources[field] = source

    def _find(self, field: int) -> _Source | None:
        for at in range(len(self._known) - 2, -1, -1):
            era, later = self._known[at], self._known[at + 1 :]
            way = self._eras.find_way(era.entry, later[0].entry)
            if way is None or way.plan is None:
                continue
            if field not in {slot.number for slot in way.plan.archives}:
                continue
            pruning = self._eras.find_pruning(field, later[0].era.first_moment)
            if pruning is None:
                self.is_exact = self.is_exact and not _list_taken(way)
                return _Source(era, later, way)
            self.is_exact = self.is_exact and pruning == ARCHIVE_PRUNED
            return None
        self.is_exact = False
        return None

    def read(self, within: Range) -> Archived:
        """Return the values of a range of keys."""
        found: Archived = {}
        for field, source in self._sources.items():
            gone = set[bytes]()
            for later in source.later:
                changed = later.read_changed(within)
                gone |= {key for key, is_gone in changed.items() if is_gone}
            attachments = Attachments(self._load, make_uuid7)
            attachments.blobs = self.blobs
            for key, value in source.era.encode_end(within, attachments, self._catalog):
                made = Attachments(self._load, make_uuid7)
                made.blobs = self.blobs
                assert source.way.program is not None
                source.way.program.convert(key, value, len(_PREFIX), _PREFIX, made)
                if field in made.archived and key not in gone:
                    found.setdefault(key, {})[field] = made.archived[field]
        return found


def _list_taken(way: Way) -> list[int]:
    """Return the fields whose archived values a way takes."""
    if way.plan is None:
        return []
    derivations = way.plan.derivations.values()
    return sorted({one.slot.number for made in derivations for one in restored_in(made)})
