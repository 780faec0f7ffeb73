"""The checkpoint of an era whose table can't be rewound: the last state in files, converted.

When the follower passes a migration, a later one may already have made other records of the table.
What it was between the two is told by the state before it, and by zapdb's own conversion on the
chain as it was then, migrations included that were rolled back since. A record is its bytes and its
archived values: files have both, so a conversion takes from the archive, and adds to it, what the
database's own did.

Behind a rollback, a record is as it was before the migration, unless it was changed or converted
since: then its values are converted back. Where that is not one and the same, and the record was
not changed, no file tells which of both it is: there is a gap.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import Any, Final

from zapdb.activation import TenantCatalog
from zapdb.errors import HistoryDamaged
from zapdb.log.moments import LoggedMoment
from zapdb.log.pending_changes import ARCHIVE_PRUNED
from zapdb.past.files.file_columns import (
    HistoryRows,
    MadeRow,
    RowOperation,
    has_same_columns,
)
from zapdb.past.files.history_manifest import Doubt, HistoryEra, HistoryFile
from zapdb.past.files.states import as_checkpoint
from zapdb.past.files.stored_eras import (
    UNSTORED,
    EraPath,
    Range,
    StoredEra,
    StoredRecord,
    TableEras,
)
from zapdb.past.files.working_store import LoadedStore, StoreWriter
from zapdb.records import Attachments, Conversion, codec_for, encode_prefix
from zapdb.records.archive_cells import embed_blobs, encode_archive, large_fields
from zapdb.records.derivation import restored_in
from zapdb.schema import TableSchema
from zapdb.storage.identifiers import make_uuid7
from zapdb.values import is_same_held

logger = logging.getLogger("zapdb.history")

_PREFIX: Final = encode_prefix(UNSTORED)
OF_THE_TABLE: Final = 0
"""In place of a field: the records of a table that was dropped."""
_NOT_STORED: Final = "the migrations of then are not stored"
_NOT_BEFORE: Final = "no file has the records to which a rollback went back"
_NOT_KEPT: Final = (
    "no file has the values of a migration that was rolled back, kept, and applied again"
)
_NOT_TOLD: Final = "no file tells which records were converted before a rollback that lost values"


class _NotKnown(Exception):
    """No file and no conversion tells what the records were: says why."""


class StateConverter:
    """Makes the checkpoint of an era that begins at a moment of the state at the end of an earlier
    one."""

    def __init__(
        self,
        working: StoreWriter,
        loaded: LoadedStore,
        catalog: TenantCatalog,
        begun: HistoryEra,
        moment: LoggedMoment,
        pruned: Set[int] = frozenset(),
    ) -> None:
        """`pruned` are fields whose archived values the moment itself has pruned."""
        self._working, self._loaded, self._catalog = working, loaded, catalog
        self._begun, self._moment = begun, moment
        entry = working.revisions.find(begun.table_number, begun.revision)
        assert entry is not None, "the era's revision is in the schema history"
        self._entry = entry
        self._schema: TableSchema = working.revisions.schema_of(entry)
        self._eras = TableEras(working, loaded, catalog, begun.table_number)
        self._pruned = pruned
        self._archived = self._schema.archived_cells
        self._large = large_fields([self._schema])
        self._files: list[HistoryFile] = []
        self._doubt: Doubt | None = None
        self._blobs: dict[bytes, bytes] = {}

    def convert(self, ended: HistoryEra) -> tuple[HistoryEra, list[HistoryFile]] | None:
        """Write the checkpoint from the end of an era; returns the new one with its files. None if
        that can't be done: it logs why."""
        try:
            return self._convert_from(self._eras.find(ended.era))
        except (HistoryDamaged, _NotKnown) as error:
            logger.warning(
                "the history of table %s has a gap from moment #%d on: %s",
                self._schema.name,
                self._begun.first_moment,
                error,
            )
            return None

    def _convert_from(self, source: StoredEra) -> tuple[HistoryEra, list[HistoryFile]]:
        ended, is_dropped = source.era, self._eras.is_dropped_after(source)
        is_next = ended.last_moment in (None, self._begun.first_moment - 1)
        if not (is_next or is_dropped):
            raise _NotKnown("its changes were not all recorded since the last state in files")
        self._doubt = ended.doubt
        is_back = self._entry.event == "rollback" and not is_dropped
        # Where archived values were pruned, an era begins whose records are the same.
        if is_dropped and self._are_discarded(source):
            pass  # it came back empty
        elif is_back and not self._has_same_records(source):
            self._convert_back(source)
        else:
            self._convert_forwards(source)
        live_rows = sum(file.rows for file in self._files)
        made = replace(self._begun, live_rows=live_rows, doubt=self._doubt, state="open")
        return made, self._files

    def _write(self, rows: Any) -> None:
        if rows.num_rows:
            begun = self._begun
            self._files.append(
                self._working.write(
                    self._loaded, "checkpoint", begun, begun.revision, self._moment, rows
                )
            )

    def _read_end(self, source: StoredEra, within: Range, pruned: Set[int]) -> list[StoredRecord]:
        """Return the records at the end of an era, without archived values that were pruned."""
        attachments = self._attach({})
        found = source.encode_end(within, attachments, self._catalog)
        if not pruned:
            return found
        return [
            StoredRecord(key, value, {n: v for n, v in archive.items() if n not in pruned})
            for key, value, archive in found
        ]

    def _attach(self, archive: Mapping[int, bytes]) -> Attachments:
        """The attachments of a record with these archived values; large ones are kept together."""
        made = Attachments(self._working.blobs.load, make_uuid7, archive)
        made.blobs = self._blobs
        return made

    def _row(self, key: bytes, value: bytes, archive: Mapping[int, bytes]) -> MadeRow:
        kept = {number: archive[number] for number in self._archived & archive.keys()}
        cell = encode_archive(embed_blobs(kept, self._large, self._attach({}).load))
        return MadeRow(key, value, self._moment.number, RowOperation.CHECKPOINT, cell)

    def _convert(self, record: StoredRecord, program: Conversion) -> MadeRow:
        key, value, archive = record
        attachments = self._attach(archive)
        made = program.convert(key, value, len(_PREFIX), _PREFIX, attachments)
        return self._row(key, made, {**archive, **attachments.archived})

    def _add(self, rows: HistoryRows, schema: TableSchema, made: Sequence[MadeRow]) -> None:
        rows.add_records(schema, made, lambda key, value: self._attach({}))

    # After a migration, or the restoring of a table

    def _convert_forwards(self, source: StoredEra) -> None:
        way = self._eras.find_path(source.entry, self._entry)
        if way is None:
            raise _NotKnown(_NOT_STORED)
        if self._entry.event == "reapply" and (way.is_back or way.makes_values):
            raise _NotKnown(_NOT_KEPT)
        pruned = self._find_pruned(source, way)
        if OF_THE_TABLE in pruned:
            return  # it came back empty
        rows = HistoryRows(self._schema, self._catalog.zones, self._write)
        for within in source.contents.list_ranges():
            self._blobs = {}
            if way.program is None and not pruned:
                self._write(as_checkpoint(source.read_end(within), self._moment.number))
                continue
            records = self._read_end(source, within, pruned)
            if way.program is None:
                made = [self._row(*record) for record in records]
            else:
                made = [self._convert(record, way.program) for record in records]
            self._add(rows, self._schema, made)
            self._write(rows.take())

    def _are_discarded(self, source: StoredEra) -> bool:
        found = self._eras.are_discarded_after(source)
        if found is None:
            raise _NotKnown(_NOT_STORED)
        return found

    def _find_pruned(self, source: StoredEra, way: EraPath) -> set[int]:
        """Return the fields whose archived values were pruned since the end of an era, 0 for the
        records of the table; where the pruning did not end, what was left is not known."""
        ended, pruned = source.era.last_moment, self._list_pruned(source)
        begun = {
            number
            for number, event in self._eras.list_prunings(self._eras.find_archiving(source)).items()
            if not _is_done(event)
        }
        taken = {*_list_taken(way)}
        if ended is not None and self._eras.is_dropped_after(source):
            taken.add(OF_THE_TABLE)
        if begun & taken:
            self._doubt = Doubt.ARCHIVE_PRUNING
        return pruned

    def _list_pruned(self, era: StoredEra) -> set[int]:
        """Return the fields whose archived values were pruned since the end of an era."""
        ended = era.era.last_moment
        since = self._begun.first_moment - 1 if ended is None else ended
        prunings = self._eras.list_prunings(since)
        return {number for number, event in prunings.items() if _is_done(event)} | self._pruned

    # After a rollback

    def _convert_back(self, source: StoredEra) -> None:
        """Whether a record was converted before the rollback, nothing tells: it is what it was, or
        what the way forth and back makes of that. Where these are one and the same, it is known."""
        way = self._eras.find_path(source.entry, self._entry)
        known = self._eras.list_until(source)
        before = [one for one in known[:-1] if self._had_same_records(one)]
        if way is None or way.program is None:
            raise _NotKnown("the migration that was rolled back is not stored")
        between = known[known.index(before[-1]) + 1 :] if before else []
        goes_on = self._working.revisions.goes_on
        if not before or not all(goes_on(one.entry, source.entry) for one in between):
            self._convert_all_back(source, way.program)
            return
        base, pruned = before[-1], self._find_pruned(source, way)
        pruned_since = self._list_pruned(base)
        # What is pruned was archived of every record, so all were converted.
        are_all_converted = not pruned_since.isdisjoint(_list_taken(way))
        rows = HistoryRows(self._schema, self._catalog.zones, self._write)
        for within in source.contents.list_ranges():
            self._blobs = {}
            changed = set[bytes]().union(*(era.read_changed(within) for era in between))
            made = list[MadeRow]()
            was = {record.key: record for record in self._read_end(base, within, pruned_since)}
            for record in self._read_end(source, within, pruned):
                key, row = record.key, self._convert(record, way.program)
                is_converted = are_all_converted or key in changed or key not in was
                if not is_converted and not self._is_same(row, self._row(*was[key])):
                    raise _NotKnown(_NOT_TOLD)
                made.append(row)
            self._add(rows, self._schema, made)
            self._write(rows.take())

    def _is_same(self, one: MadeRow, other: MadeRow) -> bool:
        """Whether two rows have the same values: a large one may stand in another blob."""
        if one == other:
            return True
        if one.archive != other.archive:
            return False
        codec, attachments = codec_for(self._schema, self._catalog.zones), self._attach({})
        ours, theirs = (
            codec.decode(row.key, row.value, len(_PREFIX), attachments) for row in (one, other)
        )
        return all(
            is_same_held(field.type, getattr(ours, field.name), getattr(theirs, field.name))
            for field in self._schema.value_fields
        )

    def _convert_all_back(self, source: StoredEra, back: Conversion) -> None:
        """Convert all records back, where no era tells what they were before the migrations: these
        must have kept all values, and converting forwards again must give the same record."""
        way = self._eras.find_forwards(source.entry, self._entry)
        if way is None or way.program is None or way.plan is None:
            raise _NotKnown("the migration that was rolled back is not stored")
        keeps_all = way.plan.keeps_all({field.number for field in self._schema.value_fields})
        rows = HistoryRows(self._schema, self._catalog.zones, self._write)
        pruned = self._find_pruned(source, way)
        for within in source.contents.list_ranges():
            self._blobs = {}
            made = list[MadeRow]()
            for record in self._read_end(source, within, pruned):
                row = self._convert(record, back)
                again = way.program.convert(
                    record.key, row.value, len(_PREFIX), _PREFIX, self._attach(record.archive)
                )
                if not keeps_all or again != record.value:
                    raise _NotKnown(_NOT_BEFORE)
                made.append(row)
            self._add(rows, self._schema, made)
            self._write(rows.take())

    def _has_same_records(self, era: StoredEra) -> bool:
        """Whether records of an earlier era have the bytes and columns that this one has."""
        return self._working.revisions.goes_on(era.entry, self._entry)

    def _had_same_records(self, era: StoredEra) -> bool:
        """The same, whatever layouts there were in between."""
        first = era.entry.first_layout_revision, self._entry.first_layout_revision
        return first[0] == first[1] and has_same_columns(era.schema, self._schema)


def _is_done(event: str) -> bool:
    return event == ARCHIVE_PRUNED


def _list_taken(way: EraPath) -> list[int]:
    """Return the fields whose archived values a way takes."""
    if way.plan is None:
        return []
    derivations = way.plan.derivations.values()
    return sorted({one.slot.number for made in derivations for one in restored_in(made)})
