"""A table at a moment that the history store has, bound as tables of the present are.

Its records have the layout of their era, and the names of its members. If a migration made another
layout since, which the files do not have yet, they are converted by the program of the chain, as
they would have been then. One that renamed members alone made no other records.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from zapdb.activation import TableDescriptor, TenantCatalog
from zapdb.activation.tenant_catalog import NOT_STORED
from zapdb.catalog.schema_history import RevisionEntry, read_entries
from zapdb.errors import HistoryBehind, HistoryDamaged
from zapdb.limits import PLANS_KEPT_MAX
from zapdb.memo import Memo
from zapdb.past.files.history_manifest import HistoryEra
from zapdb.past.files.states import read_archives
from zapdb.past.files.table_revisions import can_share_era
from zapdb.past.reading.rewound import PastAdapter
from zapdb.past.reading.schema_at import TableAt
from zapdb.past.reading.stored_columns import StoredColumns
from zapdb.past.reading.stored_files import EraFiles
from zapdb.past.reading.stored_records import HeldValue, RecordForm, StoredRecords, Tail
from zapdb.past.reading.stored_state import StoredState
from zapdb.records import (
    Attachments,
    Conversion,
    Decode,
    PagedRows,
    Record,
    RecordReader,
    codec_for,
    decode_prefix,
    encode_prefix,
)
from zapdb.records.archive_cells import decode_archive, extract_blobs, large_fields
from zapdb.records.derivation import restored_in
from zapdb.records.unreadable import name_record
from zapdb.storage import BlobStatements, Connection, Storage
from zapdb.storage.cells import reading
from zapdb.storage.fixed_tables import HISTORY_ERAS
from zapdb.storage.identifiers import make_uuid7
from zapdb.tables.changes import within_snapshot
from zapdb.tables.indexes import BoundTable
from zapdb.tables.indexes.bound_table import RecordArchive

if TYPE_CHECKING:
    from zapdb.past.reading.past_session import PastSession


class StoredReader(RecordReader):
    """Reads records of the store, whose large values are held with them."""

    def read(self, key: bytes, value: bytes) -> Record:
        if type(value) is not HeldValue:
            return super().read(key, value)
        converted = self.convert(key, value, value.attachments)
        _, start = decode_prefix(converted, 0)
        return self._decode(key, converted, start, value.attachments)

    def read_many(self, rows: PagedRows) -> Iterator[tuple[bytes, Record]]:
        return ((key, self.read(key, value)) for _, key, value in rows)


class StoredTable(BoundTable):
    """A table as the store has it at a moment, under its schema of then; read-only."""

    def __init__(
        self,
        storage: Storage,
        catalog: TenantCatalog,
        state: StoredState,
        then: TableAt,
        logged: dict[int, RevisionEntry],
        tail: Tail | None,
    ) -> None:
        self.storage, self.catalog, self.state = storage, catalog, state
        self.served = None
        self.schema = then.schema
        self.archived = then.schema.archived_cells
        self.descriptor = TableDescriptor(
            then.schema, then.revision, then.layout_revision, {}, {}, ()
        )
        self._programs = _Programs(catalog, then, logged)
        stored = then.revision if state.era is None else _find_stored(state.era, then, logged)
        self._is_stored_so = stored == then.revision
        schema = then.schema if self._is_stored_so else logged[stored].schema
        form = RecordForm(schema, encode_prefix(stored), catalog.zones)
        self.files = EraFiles(state, schema)
        self.tail = tail
        self.blobs = BlobStatements(storage)
        self.records: StoredRecords = StoredRecords(storage, catalog.tenant, self.files, form, tail)
        self.codec = codec_for(then.schema, catalog.zones)
        self.reader = self.make_field_reader(self.codec.decode)
        self.prefix = self.reader.prefix
        self.logs_changes = False
        self.is_bare = True
        self.indexes, self.checks, self.references = (), (), ()
        self.field_readers = Memo(PLANS_KEPT_MAX)
        self.adapter = PastAdapter(self, then.schema, self.reader)

    def make_attachments(self, key: bytes = b"", value: bytes = b"") -> Attachments:
        if type(value) is HeldValue:
            return value.attachments
        return Attachments(self.blobs.load, make_uuid7)

    def open_archives(
        self, connection: Connection, rows: Sequence[tuple[bytes, bytes]]
    ) -> list[RecordArchive]:
        """What a record had in the files, or behind the last change there that gave it archived
        values, it still has, and what migrations since have archived of it."""
        keys, state, large = [key for key, _ in rows], self.state, large_fields([self.schema])
        logged = {} if self.tail is None else self.tail.find_archives(connection, keys)
        kept = [key for key in keys if key not in logged]
        held = read_archives(state.directory, state.files, kept, state.moment)
        stored = self.records.find_in_files(kept)
        found = list[RecordArchive]()
        for key, value in rows:
            was, cell = logged.get(key, (stored.get(key), held.get(key)))
            attachments = Attachments(self.blobs.load, make_uuid7)
            for one in (value, was or b""):
                attachments.blobs |= self.make_attachments(key, one).blobs
            values = decode_archive(cell)
            if key not in logged:
                values = extract_blobs(values, large, attachments)
            attachments.archive = values
            if was is not None:
                self.reader.convert(key, was, attachments)
                values = {**values, **attachments.archived}
            found.append(RecordArchive(values, attachments))
        return found

    def make_field_reader(self, decode: Decode) -> RecordReader:
        return StoredReader(
            decode,
            self._programs.find,
            NOT_STORED,
            self.make_attachments,
            lambda error, key: name_record(error, self.schema.name, self.codec.decode_key, key),
        )

    def find_damage(self) -> HistoryDamaged | None:
        """Compare all bytes of its files with their digests."""
        found = (file.find_damage() for file in self.files.files)
        return next((damage for damage in found if damage is not None), None)

    def count_keys(self, _: Connection, lower: bytes | None, upper: bytes | None) -> int:
        return self.records.estimate_range(lower, upper)

    @property
    def row_count(self) -> int:
        """How many rows of files are read for all of it, and about how many changes behind them."""
        return self.files.rows + (0 if self.tail is None else self.tail.moments)

    @property
    def held_count(self) -> int:
        """About how many of these rows hold at the moment: between the records at the beginning of
        the era and those of its checkpoint, as many as its place among the moments says."""
        era, moment = self.state.era, self.state.moment
        if era is None:
            return self.row_count
        files = [file for file in self.state.files if file.kind == "checkpoint"]
        if not files:
            return era.live_rows
        last = max(file.last_moment for file in files)
        more = sum(file.rows for file in files) - era.live_rows
        passed, all_of = moment - era.first_moment, max(1, last - era.first_moment)
        return era.live_rows + more * min(passed, all_of) // all_of

    def open_columns(self) -> StoredColumns | None:
        """Return the columns of its files, for SQL; None if they have other values, or names of
        values, so that its records have to be read one by one."""
        return StoredColumns(self, self.files, self.tail) if self._is_stored_so else None


def open_stored_table(session: PastSession, then: TableAt, state: StoredState) -> StoredTable:
    """Bind a table at the session's moment; raises `HistoryDamaged`."""
    catalog, number = session.catalog, then.schema.number
    with within_snapshot(session) as connection:
        entries = read_entries(connection, catalog.tenant, number)
        logged = {entry.revision: entry for entry in entries}
    tail = None
    if state.tail is not None:
        tail = Tail(session.moments, (state.tail, session.moment), number)
    return StoredTable(session.storage, catalog, state, then, logged, tail)


def _find_stored(era: HistoryEra, then: TableAt, logged: dict[int, RevisionEntry]) -> int:
    """Return the newest revision up to that of the moment whose records can stand in the era."""
    with reading(HISTORY_ERAS.name):
        began = logged[era.revision]
        return max(
            revision
            for revision, entry in logged.items()
            if era.revision <= revision <= then.revision
            and can_share_era(began, entry.layout_revision, entry.schema)
        )


class _Programs:
    """Finds the program for records of a revision; their layouts are those of a past moment."""

    def __init__(
        self, catalog: TenantCatalog, then: TableAt, logged: dict[int, RevisionEntry]
    ) -> None:
        self._catalog, self._then, self._logged = catalog, then, logged

    def find(self, revision: int) -> Conversion | None:
        """Return the program to the layout of the moment; None if the records have it already.

        Raises `HistoryBehind` if it is not on the chain of now, or would take archived values,
        which may be gone: a checkpoint will have what became of them. So it does if a field was
        dropped and restored on the way, though the program from end to end needs no archive: its
        values may have been pruned in between.
        """
        then, catalog = self._then, self._catalog
        if self._logged[revision].layout_revision == then.layout_revision:
            return None
        number = then.schema.number
        found = next((t for t in catalog.tables.values() if t.schema.number == number), None)
        places = {} if found is None else found.origins
        way = [places[r] for r in sorted(places) if revision <= r <= then.revision]
        is_known = revision in places and then.revision in places
        if found is not None and found.is_reapplied_between(revision, then.revision):
            is_known = False
        if is_known and all(map(catalog.is_on_chain, way)):
            steps = [place.position for place in way]
            if not any(self._restores(number, *step) for step in pairwise(steps)):
                return catalog.chain.program(number, steps[0], steps[-1], catalog.zones)
        raise HistoryBehind(
            "a migration that the history store has not come to yet made the values of the table",
            table=then.schema.name,
            hint="ask again when it has: `zapdb history status` shows how far it is",
        )

    def _restores(self, table: int, earlier: int, later: int) -> bool:
        """Whether a migration takes archived values."""
        plan = self._catalog.chain.conversion_plan(table, earlier, later)
        return any(restored_in(derivation) for derivation in plan.derivations.values())
