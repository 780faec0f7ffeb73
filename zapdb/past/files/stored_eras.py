"""What the files of a table's eras tell of the time between them: the records at the end of each,
which records changed in it, and how records of one era become those of a later one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from zapdb.activation import TenantCatalog
from zapdb.catalog.schema_history import RevisionEntry
from zapdb.catalog.stored_migrations import read_line
from zapdb.errors import CatalogChanged
from zapdb.log.pending_changes import ARCHIVE_PRUNED, ARCHIVE_PRUNING
from zapdb.migrations import Chain
from zapdb.migrations.chain import find_parting, program_between
from zapdb.past.files.file_columns import ARCHIVE, KEY, RowOperation, column_name
from zapdb.past.files.history_manifest import (
    NO_TABLE,
    HistoryEra,
    HistoryFile,
    list_eras,
    list_history_files,
)
from zapdb.past.files.moment_rows import list_stored_events
from zapdb.past.files.states import EraContents, holds_at_end, read_operations
from zapdb.past.files.working_store import LoadedStore, StoreWriter
from zapdb.records import (
    Attachments,
    Conversion,
    ConversionPlan,
    decode_prefix,
    encode_prefix,
)
from zapdb.records.archive_cells import decode_archive, extract_blobs, large_fields
from zapdb.records.arrow import encode_batch
from zapdb.schema import TableSchema
from zapdb.storage import TransactionMode

UNSTORED = 1
"""The revision of records that are encoded only to be converted."""

Range = tuple[bytes, bytes | None]
"""Keys above the first one, up to the second one; None: all others."""


class StoredRecord(NamedTuple):
    """A record as files tell it: its key, its bytes, and its archived values by cell."""

    key: bytes
    value: bytes
    archive: dict[int, bytes]


@dataclass(frozen=True)
class StoredEra:
    """An era with its files, and the schema whose columns they have."""

    era: HistoryEra
    entry: RevisionEntry
    schema: TableSchema
    directory: Path
    files: Sequence[HistoryFile]

    @cached_property
    def contents(self) -> EraContents:
        return EraContents(self.directory, self.files, self.schema)

    def read_end(self, within: Range) -> Any:
        """Return the records at its end, as rows."""
        rows = self.contents.read(within)
        return rows.filter(holds_at_end(rows))

    def encode_end(
        self, within: Range, attachments: Attachments, catalog: TenantCatalog
    ) -> list[StoredRecord]:
        """Return the records at its end, with the prefix of `UNSTORED`; their large values are
        added to `attachments`."""
        rows, encoded = self.read_end(within), list[tuple[bytes, bytes]]()
        for batch in _rename(rows, self.schema).to_batches():
            prefix = encode_prefix(UNSTORED)
            encoded += encode_batch(self.schema, batch, prefix, attachments, catalog.zones)
        large, cells = large_fields([self.schema]), rows.column(ARCHIVE).to_pylist()
        return [
            StoredRecord(key, value, extract_blobs(decode_archive(cell), large, attachments))
            for (key, value), cell in zip(encoded, cells, strict=True)
        ]

    def read_changed(self, within: Range) -> set[bytes]:
        """Return the keys of records that changed in it."""
        operations = read_operations(self.directory, self.files, within)
        return {key for key, operation in operations if operation != RowOperation.CHECKPOINT}


@dataclass(frozen=True, slots=True)
class EraPath:
    """How records of one entry of the schema history become those of another; without a program,
    they stay what they are."""

    program: Conversion | None = None
    plan: ConversionPlan | None = None
    is_back: bool = False
    """Whether it leads back over a migration."""
    makes_values: bool = False
    """Whether a migration that it leads to gives a field values of its own."""


class TableEras:
    """The eras of one table in a store, the oldest first, as of one snapshot."""

    def __init__(
        self, working: StoreWriter, loaded: LoadedStore, catalog: TenantCatalog, table: int
    ) -> None:
        self._working, self._catalog, self.table = working, catalog, table
        store, directory = loaded.store, Path(loaded.store.directory)
        with working.storage.transaction(TransactionMode.READ) as connection:
            eras = list_eras(connection, store, table)
            files = list_history_files(connection, store, table=table)
            moments = list_history_files(connection, store, table=NO_TABLE)
        self.all = [self._open(era, directory, files) for era in eras]
        self._events = [
            (moment, made)
            for moment, made in list_stored_events(directory, moments)
            if made.table == table
        ]

    def _open(self, era: HistoryEra, directory: Path, files: list[HistoryFile]) -> StoredEra:
        entry = self._working.revisions.find(era.table_number, era.revision)
        assert entry is not None, "the era's revision is in the schema history"
        mine = [file for file in files if file.era == era.era]
        schema = self._working.revisions.schema_of(entry)
        return StoredEra(era, entry, schema, directory, mine)

    def find(self, number: int) -> StoredEra:
        return next(one for one in self.all if one.era.era == number)

    def list_until(self, last: StoredEra) -> list[StoredEra]:
        """Return the eras up to one that follow one another without a gap: between two of them, the
        table was not there, or nothing changed that is not known."""
        found = [last]
        for one in reversed(self.all[: self.all.index(last)]):
            ended = one.era.last_moment
            assert ended is not None, "only the last era goes on"
            is_next = ended + 1 == found[0].era.first_moment
            if one.era.state == "baseline" or not (is_next or self.is_dropped_after(one)):
                break
            found.insert(0, one)
        return found

    def is_dropped_after(self, era: StoredEra) -> bool:
        """Whether an era ended since the table was dropped, or a rollback took it away."""
        ended = era.era.last_moment
        return ended is not None and any(
            made.event == "drop" and moment == ended + 1 for moment, made in self._events
        )

    def are_discarded_after(self, era: StoredEra) -> bool | None:
        """Whether the drop of the table behind an era discarded its records: then it came back
        empty. None if the migrations of then are not stored."""
        later = self._working.revisions.list_of(self.table)
        behind = (one for one in later if one.revision > era.entry.revision)
        drop = next((one for one in behind if one.event == "drop"), None)
        if drop is None:
            return False
        chain = self._read_line(drop)
        if chain is None:
            return None
        return self._find_in(chain) is None

    def find_archiving(self, era: StoredEra) -> int:
        """Return the moment since which what an era has archived was archived, as far as the eras
        before it tell: behind the last one with another list of archived fields."""
        archived, first = era.schema.archived, era.era.first_moment
        for one in reversed(self.list_until(era)):
            if one.schema.archived != archived:
                break
            first = one.era.first_moment
        return first - 1

    def list_prunings(self, after: int) -> dict[int, str]:
        """Return the last event of pruning the archive of each field, or of the table itself (0),
        behind a moment."""
        names = (ARCHIVE_PRUNING, ARCHIVE_PRUNED)
        return {
            decode_prefix(made.key, 0)[0]: made.event
            for at, made in self._events
            if made.event in names and at > after
        }

    def find_path(self, earlier: RevisionEntry, later: RevisionEntry) -> EraPath | None:
        """Return the way of records from one entry to another, over the migrations that are, or
        were, between them; None if their schemas are not those that the migrations make."""
        if self._working.revisions.goes_on(earlier, later):
            return EraPath()
        return self._find_path(earlier, later)

    def find_forwards(self, later: RevisionEntry, back: RevisionEntry) -> EraPath | None:
        """Return the way that a rollback to an entry has undone."""
        return self._find_path(back, later)

    def _find_path(self, source: RevisionEntry, target: RevisionEntry) -> EraPath | None:
        lines = self._read_line(source), self._read_line(target)
        for line, entry in zip(lines, (source, target), strict=True):
            if line is None or self._find_in(line) != self._working.revisions.schema_of(entry):
                return None
        there, here = lines
        assert there is not None
        assert here is not None
        same = find_parting(there, here)
        return EraPath(
            *program_between(there, here, self.table, self._catalog.zones),
            is_back=same < there.end,
            makes_values=any(m.list_made(self.table) for m in here.after(same)),
        )

    def _find_in(self, line: Chain) -> TableSchema | None:
        """Return the table, active or archived, at the end of a chain."""
        return line.schema_at(line.end).table_active_or_archived(self.table)

    def _read_line(self, entry: RevisionEntry) -> Chain | None:
        """Return the migrations up to that of an entry; None if they are of another history."""
        if not entry.migration:
            return Chain()
        with self._working.storage.transaction(TransactionMode.READ) as connection:
            try:
                return read_line(connection, entry.migration, self._catalog.chain)
            except CatalogChanged:
                return None


def _rename(state: Any, schema: TableSchema) -> Any:
    """Return the values of rows by the names of the schema's fields."""
    columns = {}
    for f in schema.fields:
        name = column_name(f)
        columns[f.name] = state.column(
            name if name in state.column_names else column_name(f, as_text=True)
        )
    assert KEY in state.column_names
    return type(state).from_pydict(columns)
