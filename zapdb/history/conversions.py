"""The checkpoint of an era whose table can't be rewound: the last state in files, converted.

When the follower passes a migration, a later one may already have made other records of the table.
What it was between the two is told by the state before it, and by zapdb's own conversion on the
chain as it was then, migrations included that were rolled back since. Archived values that it takes
are those of earlier eras.

A rollback brings a record back as it was before the migration, unless that was changed since: then
its values are converted back. Where both differ, nobody knows whether the record had been converted
when the rollback came; the era is not exact then. What loses a value is in the change log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from zapdb.activation import TenantCatalog
from zapdb.history.columns import HistoryRows, MadeRow, RowOperation
from zapdb.history.earlier_archive import EarlierArchive
from zapdb.history.states import as_checkpoint
from zapdb.history.stored_eras import UNSTORED, Range, StoredEra, TableEras
from zapdb.history.working_store import LoadedStore, WorkingStore
from zapdb.records import Attachments, Conversion, asdict, codec_for, encode_prefix
from zapdb.schema import TableSchema
from zapdb.storage import TransactionMode
from zapdb.storage.history_manifest import HistoryEra, HistoryFile
from zapdb.storage.identifiers import make_uuid7
from zapdb.storage.moments import LoggedMoment
from zapdb.storage.pending_changes import ARCHIVE_PRUNED
from zapdb.storage.rewinding import NetChange, list_net_changes

_PREFIX = encode_prefix(UNSTORED)


class _Converter:
    """Converts records from one position of the chain to another."""

    prefix = encode_prefix(UNSTORED + 1)

    def __init__(self, program: Conversion) -> None:
        self._convert = program.convert

    def convert(self, key: bytes, value: bytes, attachments: Attachments) -> bytes:
        return self._convert(key, value, len(_PREFIX), self.prefix, attachments)


class StateConverter:
    """Makes the checkpoint of an era that begins at a moment of the state at the end of an earlier
    one."""

    def __init__(
        self,
        working: WorkingStore,
        loaded: LoadedStore,
        catalog: TenantCatalog,
        begun: HistoryEra,
        moment: LoggedMoment,
    ) -> None:
        self._working, self._loaded, self._catalog = working, loaded, catalog
        self._begun, self._moment = begun, moment
        entry = working.revisions.find(begun.table_number, begun.revision)
        assert entry is not None, "the era's revision is in the schema history"
        self._entry = entry
        self._schema: TableSchema = working.revisions.schema_of(entry)
        self._eras = TableEras(working, loaded, catalog, begun.table_number)
        self._files: list[HistoryFile] = []
        self._is_exact = True
        self._blobs: dict[bytes, bytes] = {}

    def convert(self, ended: HistoryEra) -> tuple[HistoryEra, list[HistoryFile]] | None:
        """Write the checkpoint from the end of an era; returns the new one with its files, None if
        there is no way. Raises `HistoryDamaged`."""
        source = self._eras.find(ended.era)
        is_dropped = self._eras.is_dropped_after(source)
        is_next = ended.last_moment in (None, self._begun.first_moment - 1)
        if not (is_next or is_dropped):
            return None  # its changes were not all recorded
        self._is_exact = ended.exact
        if self._entry.event == "rollback" and not is_dropped:
            is_made = self._convert_back(source)
        else:
            is_made = self._convert_forwards(source)
        if not is_made:
            return None
        live_rows = sum(file.rows for file in self._files)
        made = replace(self._begun, live_rows=live_rows, exact=self._is_exact, state="open")
        return made, self._files

    def _write(self, rows: Any) -> None:
        if rows.num_rows:
            begun = self._begun
            self._files.append(
                self._working.write(
                    self._loaded, "checkpoint", begun, begun.revision, self._moment, rows
                )
            )

    # After a migration, or the restoring of a table

    def _convert_forwards(self, source: StoredEra) -> bool:
        way = self._eras.find_way(source.entry, self._entry)
        if way is None:
            return False
        if source.era.last_moment is not None:
            pruning = self._eras.find_pruning(0, source.era.last_moment)
            if pruning == ARCHIVE_PRUNED:
                return True  # it came back empty
            self._is_exact = self._is_exact and pruning is None
        ranges = source.contents.list_ranges()
        if way.program is None:
            for within in ranges:
                self._write(as_checkpoint(source.read_end(within), self._moment.number))
            return True
        archived = self._open_archive(source, way)
        rows = HistoryRows(self._schema, self._catalog.zones, self._write)
        for within in ranges:
            stored = source.encode_end(within, self._open_attachments(), self._catalog)
            self._add(rows, stored, archived, within, way.program)
            self._write(rows.take())
        self._is_exact = self._is_exact and archived.is_exact
        return True

    def _open_archive(self, source: StoredEra, way: Any) -> EarlierArchive:
        known, load = self._eras.list_until(source), self._working.blobs.load
        return EarlierArchive(self._eras, known, way, self._catalog, load)

    def _open_attachments(self) -> Attachments:
        self._blobs = {}
        made = Attachments(self._working.blobs.load, make_uuid7)
        made.blobs = self._blobs
        return made

    def _add(
        self,
        rows: HistoryRows,
        stored: Iterable[tuple[bytes, bytes]],
        archived: EarlierArchive,
        within: Range,
        program: Conversion,
    ) -> None:
        values = archived.read(within)
        self._blobs |= archived.blobs
        made = [self._row(key, value) for key, value in stored]
        rows.add_records(self._schema, made, partial(self._attach, values), _Converter(program))

    def _row(self, key: bytes, value: bytes) -> MadeRow:
        return MadeRow(key, value, self._moment.number, RowOperation.CHECKPOINT)

    def _attach(
        self, values: dict[bytes, dict[int, bytes]], key: bytes, value: bytes
    ) -> Attachments:
        made = Attachments(self._working.blobs.load, make_uuid7, values.get(key, {}))
        made.blobs = self._blobs
        return made

    # After a rollback

    def _convert_back(self, source: StoredEra) -> bool:
        way = self._eras.find_way(source.entry, self._entry)
        known = self._eras.list_until(source)
        before = [one for one in known[:-1] if self._goes_back_to(one)]
        if way is None or way.program is None or not before:
            return False
        base, archived = before[-1], self._open_archive(source, way)
        between = known[known.index(base) + 1 :]
        rows = HistoryRows(self._schema, self._catalog.zones, self._write)
        lost = self._list_lost()
        waiting = next(lost, None)
        for within in source.contents.list_ranges():
            changed = set[bytes]()
            for era in between:
                changed |= era.read_changed(within).keys()
            told = dict[bytes, bytes | None]()
            while waiting is not None and (within[1] is None or waiting.key <= within[1]):
                told[waiting.key] = waiting.after
                waiting = next(lost, None)
            attachments = self._open_attachments()
            was = dict(base.encode_end(within, attachments, self._catalog))
            now = source.encode_end(within, attachments, self._catalog)
            back, values = _Converter(way.program), archived.read(within)
            self._blobs |= archived.blobs
            kept, made = list[MadeRow](), list[MadeRow]()
            for key, value in now:
                if key in told:
                    continue
                if key in changed or key not in was:
                    made.append(self._row(key, value))
                    continue
                kept.append(self._row(key, was[key]))
                if self._is_exact:
                    attach = self._attach(values, key, value)
                    self._is_exact = self._is_same(
                        key, was[key], back.convert(key, value, attach), attach
                    )
            rows.add_records(self._schema, made, partial(self._attach, values), back)
            rows.add_records(base.schema, kept, partial(self._attach, {}))
            there = [self._row(key, value) for key, value in told.items() if value is not None]
            rows.add_records(self._schema, there, partial(self._attach, {}))
            self._write(rows.take())
        self._is_exact = self._is_exact and archived.is_exact
        return True

    def _goes_back_to(self, era: StoredEra) -> bool:
        return self._working.revisions.goes_on(era.entry, self._entry)

    def _list_lost(self) -> Iterator[NetChange]:
        """Yield what the rollback has changed in the log, by key: its transactions are those of the
        batch that ends at the moment."""
        page = self._read_lost(b"")
        while page:
            yield from page
            page = self._read_lost(page[-1].key)

    def _read_lost(self, behind: bytes) -> list[NetChange]:
        working, between = self._working, (self._loaded.moment, self._moment)
        table = self._begun.table_number
        with working.storage.transaction(TransactionMode.READ) as connection:
            return list_net_changes(connection, working.moments, between, table, behind)

    def _is_same(self, key: bytes, one: bytes, other: bytes, attachments: Attachments) -> bool:
        """Whether two records of the schema have the same values."""
        if one[len(_PREFIX) :] == other[len(_Converter.prefix) :]:
            return True
        codec = codec_for(self._schema, self._catalog.zones)
        first, second = (
            asdict(codec.decode(key, value, len(_PREFIX), attachments)) for value in (one, other)
        )
        return repr(first) == repr(second)
