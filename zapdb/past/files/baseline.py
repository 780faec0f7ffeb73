"""The first checkpoint of a table whose records were there before its history began.

The table is read range by range, each in a short snapshot, and each rewound to the one moment at
which the era begins: so all ranges together are the table as it was then, however long it takes.
The greatest key that is in a file is where the next process goes on.

The change log must still have all that happened since. So the follower's bookmark stays at that
moment until all checkpoints are complete.

If a migration makes other values of the records meanwhile, they can't be rewound any more. Then the
checkpoint is made of the era before, if there is one, by the conversion of the migration with which
this one begins; else there is a gap (decision 57).

A record that could not be read at that moment, and was discarded since, can be in no file. So the
history of its table begins with a later batch, and has a gap before.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from zapdb.activation import TenantCatalog
from zapdb.errors import CorruptRecord
from zapdb.limits import ARROW_PAGE_RECORDS, HISTORY_RANGE_RECORDS
from zapdb.log.moments import LaterSql, LoggedMoment
from zapdb.log.rewound_records import RewoundStatements, read_beginning
from zapdb.past.files.file_columns import HistoryRows, MadeRow, RowOperation
from zapdb.past.files.history_manifest import (
    HistoryEra,
    HistoryFile,
    list_eras,
    list_history_files,
)
from zapdb.past.files.state_conversion import StateConverter
from zapdb.past.files.store_changes import StoreChange
from zapdb.past.files.table_revisions import read_tables_at
from zapdb.past.files.working_store import LoadedStore, StoreWriter
from zapdb.records import UNREADABLE_MARK, Attachments
from zapdb.records.archive_cells import (
    embed_blobs,
    encode_archive,
    large_fields,
)
from zapdb.records.arrow import PackedRows
from zapdb.storage import Connection, TransactionMode
from zapdb.storage.identifiers import make_uuid7
from zapdb.tables.indexes import BoundTable

logger = logging.getLogger("zapdb.history")


@dataclass(slots=True)
class _Range:
    """The files that hold the records of one range."""

    files: list[HistoryFile] = field(default_factory=list)
    is_last: bool = True

    @property
    def count(self) -> int:
        return sum(file.rows for file in self.files)


class BaselineWriter:
    """Completes the checkpoints of a store, a range at a time."""

    def __init__(self, working: StoreWriter) -> None:
        self._working = working
        self._bound: dict[int, BoundTable] = {}

    def step(self, loaded: LoadedStore) -> None:
        """Write the next range of an unfinished checkpoint."""
        era, working, can_convert = loaded.unfinished[0], self._working, True
        with working.storage.transaction(TransactionMode.READ) as connection:
            catalog = working.load_catalog(connection)
            later = working.moments.find_later(connection, loaded.moment)
            tables = read_tables_at(connection, catalog, working.revisions, later)
            at = tables.get(era.table_number)
            found = None
            if at is not None and at.is_rewindable and at.entry.revision >= era.revision:
                after = self._find_place(connection, loaded, era)
                beginning = read_beginning(working.log, connection)
                records = RewoundStatements(working.moments, era.table_number, later, beginning)
                place = era, loaded.moment
                try:
                    found = self.read_range(connection, loaded, place, records, after)
                except CorruptRecord as error:
                    if not self._has_discarded(connection, era.table_number, later):
                        raise
                    logger.warning("the history of a table begins later: %s", error)
                    can_convert = False
        if found is None:
            made = self._convert_former(loaded, era, catalog) if can_convert else None
            self._give_up(loaded, era, made)
        else:
            self._store(loaded, era, found)

    def _has_discarded(self, connection: Connection, table: int, later: LaterSql) -> bool:
        """Whether a record that could not be read was discarded from a table after the moment."""
        found = connection.fetch_one(
            f"SELECT 1 FROM zapdb_changes WHERE tenant = {self._working.tenant}"
            f" AND table_number = {int(table)} AND event IS NULL AND {later('transaction_number')}"
            f" AND substr(before, 1, 1) = {connection.storage.placeholder} LIMIT 1",
            (UNREADABLE_MARK,),
        )
        return found is not None

    def _find_place(self, connection: Connection, loaded: LoadedStore, era: HistoryEra) -> bytes:
        files = list_history_files(connection, loaded.store, table=era.table_number, era=era.era)
        return max((file.key_upper or b"" for file in files), default=b"")

    def read_range(
        self,
        connection: Connection,
        loaded: LoadedStore,
        of: tuple[HistoryEra, LoggedMoment],
        records: RewoundStatements,
        after: bytes,
    ) -> _Range:
        """Write the records behind a key into files of the checkpoint of an era, which begins at a
        moment."""
        (era, until), working, found = of, self._working, _Range()
        bound = self._bind(connection, era.table_number)
        schema = working.schema_of(era)

        def write(rows: Any) -> None:
            found.files.append(working.write(loaded, "checkpoint", era, era.revision, until, rows))

        rows = HistoryRows(schema, bound.catalog.zones, write)
        made = era.first_moment, RowOperation.CHECKPOINT
        for page in _list_pages(connection, records, after):
            if bound.archived:
                kept = _with_archives(connection, bound, records, page, made)
                rows.add_records(schema, kept, bound.make_attachments, bound.reader)
            else:
                rows.add_page(schema, page, made, bound.make_attachments, bound.reader)
            if found.files or rows.count >= HISTORY_RANGE_RECORDS:
                found.is_last = False
                break
        if rows.count:
            write(rows.take())
        return found

    def _bind(self, connection: Connection, number: int) -> BoundTable:
        """The table as it is now, whose reader converts stale records."""
        catalog = self._working.load_catalog(connection)
        known = self._bound.get(number)
        if known is None or known.catalog is not catalog:
            known = BoundTable(
                self._working.storage, catalog, catalog.table_numbered(number, str(number))
            )
            self._bound[number] = known
        return known

    def _store(self, loaded: LoadedStore, era: HistoryEra, found: _Range) -> None:
        working = self._working
        made = replace(
            era,
            live_rows=era.live_rows + found.count,
            state="open" if found.is_last else "baseline",
        )
        change = StoreChange(files=found.files, eras=[made])
        is_done = found.is_last and len(loaded.unfinished) == 1
        working.commit(
            loaded.store,
            replace(loaded.store, state="follows" if is_done else loaded.store.state, problem=None),
            change,
        )

    def _convert_former(
        self, loaded: LoadedStore, era: HistoryEra, catalog: TenantCatalog
    ) -> tuple[HistoryEra, list[HistoryFile]] | None:
        """Make the checkpoint of an era that a migration began, as the follower makes those of
        migrations that it passes late: of the records at the end of the era before."""
        entry = self._working.revisions.find(era.table_number, era.revision)
        with self._working.storage.transaction(TransactionMode.READ) as connection:
            eras = list_eras(connection, loaded.store, era.table_number)
        former = [one for one in eras if one.era < era.era and one.state != "baseline"]
        if not former or entry is None:
            return None
        begun = replace(era, live_rows=0)
        converter = StateConverter(self._working, loaded, catalog, begun, loaded.moment)
        return converter.convert(former[-1])

    def _give_up(
        self,
        loaded: LoadedStore,
        era: HistoryEra,
        made: tuple[HistoryEra, list[HistoryFile]] | None,
    ) -> None:
        """The era has the checkpoint that was made otherwise, if it could be; else the table begins
        with the event that is in the way: until then its history has a gap."""
        working, store = self._working, loaded.store
        is_done = len(loaded.unfinished) == 1
        with working.changing() as connection:
            files = list_history_files(connection, store, table=era.table_number, era=era.era)
        if made is None:
            change = StoreChange(retired=files, dropped=[era])
        else:
            change = StoreChange(retired=files, files=made[1], eras=[made[0]])
        working.commit(store, replace(store, state="follows" if is_done else store.state), change)


def read_checkpoint(
    working: StoreWriter,
    connection: Connection,
    loaded: LoadedStore,
    era: HistoryEra,
    first: LoggedMoment,
) -> list[HistoryFile]:
    """Write the checkpoint of an era whose table can be rewound to its first moment; in one
    snapshot."""
    later = working.moments.find_later(connection, first)
    beginning = read_beginning(working.log, connection)
    records = RewoundStatements(working.moments, era.table_number, later, beginning)
    writer, files, is_last = BaselineWriter(working), list[HistoryFile](), False
    while not is_last:
        after = files[-1].key_upper if files else b""
        found = writer.read_range(connection, loaded, (era, first), records, after or b"")
        files += found.files
        is_last = found.is_last
    return files


def _with_archives(
    connection: Connection,
    bound: BoundTable,
    records: RewoundStatements,
    page: PackedRows,
    made: tuple[int, RowOperation],
) -> list[MadeRow]:
    """Return records with their archived values of then, those that are still in stale bytes
    among them."""
    keys, values = page.keys.pieces(), page.values.pieces()
    stored = records.load_archives(connection, bound.archives, keys)
    large, load, found = large_fields([bound.schema]), bound.blobs.load, list[MadeRow]()
    for key, value in zip(keys, values, strict=True):
        archive = stored.get(key, {})
        attachments = Attachments(load, make_uuid7, archive)
        bound.reader.convert(key, value, attachments)
        archive = {**archive, **attachments.archived}
        kept = {number: archive[number] for number in bound.archived & archive.keys()}
        cell = encode_archive(embed_blobs(kept, large, attachments.load))
        found.append(MadeRow(key, value, *made, cell))
    return found


def _list_pages(
    connection: Connection, records: RewoundStatements, after: bytes
) -> Iterator[PackedRows]:
    """Yield the rows behind a key, as many at a time as columns are made of together, but no more
    than a range has."""
    limit = min(ARROW_PAGE_RECORDS, HISTORY_RANGE_RECORDS)
    are_short = True
    while True:
        page: PackedRows | None = None
        if are_short:
            _, joined = records.joined_page(connection, after + b"\x00", None, limit)
            if joined is not None:
                page = PackedRows.joined(
                    joined.keys, joined.key_sizes, joined.values, joined.value_sizes
                )
        if page is None:  # a record is long, and others behind it may be
            are_short = False
            page = PackedRows.of(records.scan_page(connection, after)[1])
        if not len(page):
            return
        yield page
        after = page.last_key
