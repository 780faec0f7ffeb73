"""A batch of the change log: whole transactions, sorted into the rows of files.

A schema event ends the batch in front of it, and is the next batch alone with the rest of its
transaction. So all transactions of one batch are of the same schemas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Protocol

from zapdb.catalog.schema_history import REVISIONS
from zapdb.limits import HISTORY_BATCH_CHANGES_MAX
from zapdb.log.change_log import ChangeLog, ChangeRow, Fetch
from zapdb.log.followed_moments import FollowedMoment, follow_changes
from zapdb.log.moments import LoggedMoment
from zapdb.past.files.file_columns import DECODED_ROWS, HistoryRows, MadeRow, RowOperation
from zapdb.past.files.history_manifest import HistoryEra
from zapdb.past.files.moment_rows import MomentCounts, to_events
from zapdb.past.files.plain_pages import DELETION, PlainPage, PlainRows, read_plain
from zapdb.past.files.table_revisions import TableRevisions
from zapdb.past.files.working_store import StoreWriter
from zapdb.records import Attachments, MakeAttachments, decode_prefix
from zapdb.records.archive_cells import (
    decode_archive,
    embed_blobs,
    encode_archive,
    large_fields,
)
from zapdb.schema import TableSchema
from zapdb.storage.cells import as_word, empty_change
from zapdb.storage.fixed_tables import CHANGES
from zapdb.storage.identifiers import make_uuid7
from zapdb.values import Zones


class TakeRows(Protocol):
    """Takes the rows of one file: the table's era, the newest revision among them, the moment up to
    which they are, and the rows."""

    def __call__(
        self, era: HistoryEra, revision: int, until: LoggedMoment, rows: Any
    ) -> object: ...


@dataclass(slots=True)
class LogBatch:
    """What a batch has read: its moments, and the schema events of the last of them, if that has
    any. `changes` counts the stored rows by table."""

    moments: list[MomentCounts] = field(default_factory=list)
    events: list[ChangeRow] = field(default_factory=list)
    changes: dict[int, int] = field(default_factory=dict)
    touched: set[int] = field(default_factory=set)
    """The tables whose records the last transaction changed."""

    @property
    def last(self) -> LoggedMoment:
        return self.moments[-1].found.moment


class _TableBatch:
    """The changes of one table, decoded some thousands at a time."""

    def __init__(
        self, era: HistoryEra, schema: TableSchema, reader: BatchReader, files: BatchTables
    ) -> None:
        self.era = era
        self.revision = era.revision
        self._reader = reader
        self._files = files
        self._rows = HistoryRows(schema, reader.zones, self._take_rows)
        self._waiting: list[tuple[int, MadeRow]] = []

    def _take_rows(self, rows: Any) -> None:
        assert self._files.take is not None
        self._files.take(self.era, self.revision, self._files.batch.last, rows)

    def add(self, revision: int, row: MadeRow) -> None:
        if self._files.take is None:
            return
        self._waiting.append((revision, row))
        if len(self._waiting) >= DECODED_ROWS:
            self.decode()

    def decode(self) -> None:
        waiting, self._waiting = sorted(self._waiting, key=lambda made: made[0]), []
        for revision, group in groupby(waiting, key=lambda made: made[0]):
            rows = [row for _, row in group]
            if revision == DELETION:
                self._rows.add_deletions(rows)
                continue
            self.revision = max(self.revision, revision)
            schema = self._reader.find_schema(self.era.table_number, revision)
            self._rows.add_records(schema, rows, self._reader.make_attachments)

    def add_plain(self, rows: PlainRows) -> None:
        """Add the changes of the table on a page."""
        if self._files.take is None:
            return
        if rows.revision == DELETION:
            self._rows.add_deleted(rows.made)
            return
        self.revision = max(self.revision, rows.revision)
        schema = self._reader.find_schema(self.era.table_number, rows.revision)
        self._rows.add_columns(schema, rows.made, self._reader.make_attachments)

    def finish(self) -> None:
        self.decode()
        if self._rows.count:
            self._take_rows(self._rows.take())


@dataclass(frozen=True)
class BatchReader:
    """Reads batches of one tenant's log."""

    log: ChangeLog
    fetch: Fetch
    revisions: TableRevisions
    reload: Callable[[], object]
    """Reads the schema history again."""
    make_attachments: MakeAttachments
    zones: Zones | None

    def read(
        self,
        after: LoggedMoment,
        until: int,
        eras: Mapping[int, HistoryEra],
        take: TakeRows | None,
        changes_max: int = HISTORY_BATCH_CHANGES_MAX,
    ) -> LogBatch:
        """Read whole transactions after a moment, up to a stamp, and give the rows of tables with
        an era to `take`, if that is wanted. The batch has no moments if there are none. Raises
        `ChangesPruned`."""
        batch, count = LogBatch(), 0
        files = BatchTables(batch, eras, take)
        for one in self._list_pages(after, until, eras):
            if isinstance(one, PlainPage):
                if batch.moments and count >= changes_max and not one.goes_on:
                    break
                count += self._add_plain(batch, one, files)
                continue
            found, rows = one
            if self._ends_before(batch, rows, is_full=count >= changes_max):
                break
            self._load_revisions(rows)
            count += self._add_transaction(batch, found, rows, files)
            if batch.events:
                break
        files.finish()
        return batch

    def _ends_before(self, batch: LogBatch, rows: list[ChangeRow], *, is_full: bool) -> bool:
        """Whether a batch ends in front of a transaction."""
        has_events = any(row.event is not None for row in rows)
        return bool(batch.moments) and (has_events or is_full)

    def _add_transaction(
        self,
        batch: LogBatch,
        found: FollowedMoment,
        rows: list[ChangeRow],
        files: BatchTables,
    ) -> int:
        """Add a transaction; return how many changes it has."""
        events = [row for row in rows if row.event is not None]
        made = MomentCounts(found, to_events(events))
        batch.moments.append(made)
        batch.events = events
        batch.touched = {row.table for row in rows if row.event is None}
        for row in rows:
            made.add(row)
            if row.event is None:
                self.add(batch, made, row, files)
        return len(rows)

    def _list_pages(
        self, after: LoggedMoment, until: int, eras: Mapping[int, HistoryEra]
    ) -> Iterator[PlainPage | tuple[FollowedMoment, list[ChangeRow]]]:
        """Yield transactions, most of them in pages of changes that need no closer look."""
        for page in read_plain(self.log, self.fetch, (after, until), self.revisions, eras):
            if isinstance(page, PlainPage):
                yield page
                continue
            for found, rows in follow_changes(self.log, self.fetch, page.before, until):
                if found.moment.number > page.last.number:
                    break
                yield found, list(rows)

    def _add_plain(self, batch: LogBatch, page: PlainPage, files: BatchTables) -> int:
        """Add the transactions of a page; return how many changes they have."""
        if not page.goes_on:
            batch.moments += page.count_moments()
            batch.events, batch.touched = [], set()
        else:
            page.count_into(batch.moments[-1])
        batch.touched |= page.last_touched
        count = 0
        for rows in page.rows:
            table = files.open(rows.table, rows.revision, self)
            assert table is not None, "the rows of a plain page are of an era"
            table.add_plain(rows)
            made = len(rows.made)
            batch.changes[rows.table] = batch.changes.get(rows.table, 0) + made
            count += made
        return count

    def _load_revisions(self, rows: list[ChangeRow]) -> None:
        """Read the schema history again if it lacks a revision of a transaction's rows. Raises
        `IncompatibleVersion` for an unknown event."""
        wanted = set[tuple[int, int]]()
        for row in rows:
            if row.event is not None:
                as_word(row.event, CHANGES.c.event)
            if row.table and row.after and (row.event is None or row.event in REVISIONS):
                wanted.add((row.table, decode_prefix(row.after, 0)[0]))
        if not all(self.revisions.find(*one) for one in wanted):
            self.reload()

    def find_schema(self, table: int, revision: int) -> TableSchema:
        entry = self.revisions.find(table, revision)
        assert entry is not None, "the transaction's revisions are known"
        return self.revisions.schema_of(entry)

    def find_era(self, table: int, revision: int, files: BatchTables) -> HistoryEra | None:
        """Return the era that a table's changes of a revision belong to; None if to none.

        The event of a table whose records the same transaction changed begins another era.
        """
        era = files.eras.get(table)
        if era is None or any(event.table == table for event in files.batch.events):
            return None
        if revision == DELETION:
            return era
        entry = self.revisions.find(table, revision)
        assert entry is not None, "the transaction's revisions are known"
        return era if entry.layout_revision == era.layout_revision else None

    def add(self, batch: LogBatch, made: MomentCounts, row: ChangeRow, files: BatchTables) -> None:
        """Add a change of a record to the file of its table."""
        if row.after is None:
            operation = RowOperation.DELETE
        elif row.before is None:
            operation = RowOperation.INSERT
        elif row.is_replaced:
            operation = RowOperation.REPLACE
        else:
            operation = RowOperation.UPDATE
        revision = DELETION
        if row.after is not None:
            revision, _ = decode_prefix(row.after, 0)
        elif row.before is None:
            raise empty_change(row.table, row.transaction.number)
        table = files.open(row.table, revision, self)
        if table is None:
            made.unfiled.setdefault((row.table, int(operation)), []).append(row.key)
        else:
            batch.changes[row.table] = batch.changes.get(row.table, 0) + 1
            archive = self._embed(row, revision)
            number = made.found.moment.number
            stored = MadeRow(row.key, row.after or b"", number, operation, archive)
            table.add(revision, stored)

    def _embed(self, row: ChangeRow, revision: int) -> bytes | None:
        """Return the archived values after a change as files have them; None if it left them."""
        if row.after is None or row.archive_after is None:
            return None
        large = large_fields([self.find_schema(row.table, revision)])
        load = self.make_attachments(row.key, row.after).load
        return encode_archive(embed_blobs(decode_archive(row.archive_after), large, load))


class BatchTables:
    """The files that a batch fills, by table."""

    def __init__(
        self, batch: LogBatch, eras: Mapping[int, HistoryEra], take: TakeRows | None
    ) -> None:
        self.batch = batch
        self.eras = eras
        self.take = take
        self._tables: dict[int, _TableBatch] = {}
        self._places: dict[tuple[int, int], _TableBatch | None] = {}

    def open(self, number: int, revision: int, reader: BatchReader) -> _TableBatch | None:
        """Return what takes a table's changes of a revision; None if they belong to no era."""
        key = number, revision
        if key not in self._places or self.batch.events:
            self._places[key] = self._open(reader.find_era(number, revision, self), reader)
        return self._places[key]

    def _open(self, era: HistoryEra | None, reader: BatchReader) -> _TableBatch | None:
        if era is None:
            return None
        found = self._tables.get(era.table_number)
        if found is None:
            schema = reader.find_schema(era.table_number, era.revision)
            found = self._tables[era.table_number] = _TableBatch(era, schema, reader, self)
        return found

    def finish(self) -> None:
        for table in self._tables.values():
            table.finish()


def open_batches(working: StoreWriter) -> BatchReader:
    """Return the reader of batches of a store's tenant."""
    return BatchReader(
        working.log,
        lambda sql, parameters: working.storage.connection().fetch_all(sql, parameters),
        working.revisions,
        working.reload_revisions,
        lambda key, value: Attachments(working.blobs.load, make_uuid7),
        working.zones,
    )
