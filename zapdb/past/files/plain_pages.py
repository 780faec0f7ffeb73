"""Pages of the change log that go into files as they are: changes of records that have the layout
of their table's era, and nothing else.

Such a page is taken in columns, without an object for each change. What else there is, as schema
events, and records of another layout, is looked at transaction by transaction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any, Final

from zapdb.limits import ARROW_BATCH_SIZE_BYTES
from zapdb.log.change_log import ChangeLog, Fetch
from zapdb.log.followed_moments import (
    DELETED,
    INSERTED,
    NOT_PLAIN,
    UPDATED,
    ChangePage,
    FollowedMoment,
    read_change_pages,
)
from zapdb.log.moments import LoggedMoment
from zapdb.past.files.file_columns import MadeColumns
from zapdb.past.files.history_manifest import HistoryEra
from zapdb.past.files.moment_rows import MomentCounts, TableCounts
from zapdb.past.files.table_revisions import TableRevisions
from zapdb.records import decode_prefix, encode_prefix
from zapdb.records.arrow import PackedRows

DELETION: Final = 0
"""In place of a revision: no record has it."""


@dataclass(frozen=True, slots=True)
class PlainRows:
    """Changes of one table whose records have one revision, or that are deletions."""

    table: int
    revision: int
    made: MadeColumns


@dataclass(frozen=True, slots=True)
class PlainPage:
    """Whole transactions with their changes. With `goes_on`, they are more changes of the
    transaction that the page before ends with."""

    moments: Sequence[FollowedMoment]
    rows: Sequence[PlainRows]
    counts: Mapping[tuple[int, int, int], int]
    """By transaction, table and operation."""
    goes_on: bool

    @property
    def last_touched(self) -> set[int]:
        """The tables that the last transaction changed."""
        last = self.moments[-1].moment.transaction
        return {table for transaction, table, _ in self.counts if transaction == last}

    def count_moments(self) -> list[MomentCounts]:
        """Return the moments, each with what its transaction did."""
        made = {found.moment.transaction: MomentCounts(found) for found in self.moments}
        for (transaction, table, operation), count in self.counts.items():
            _count(made[transaction], table, operation, count)
        return list(made.values())

    def count_into(self, made: MomentCounts) -> None:
        """Add what the transaction did to what it did on pages before."""
        for (_, table, operation), count in self.counts.items():
            _count(made, table, operation, count)


def _count(made: MomentCounts, table: int, operation: int, count: int) -> None:
    counted = made.tables.setdefault(table, TableCounts())
    if operation == INSERTED:
        counted.inserted += count
    elif operation == UPDATED:
        counted.updated += count
    else:
        counted.deleted += count


def _count_changes(page: ChangePage) -> Mapping[tuple[int, int, int], int]:
    """Return how many changes there are by transaction, table and operation."""
    tables, operations = {*page.tables}, {*page.operations}
    if len(tables) == len(operations) == 1:  # as most pages are
        (table,), (operation,) = tables, operations
        counted = Counter(page.transactions).items()
        return {(transaction, table, operation): count for transaction, count in counted}
    return Counter(zip(page.transactions, page.tables, page.operations, strict=True))


def read_plain(
    log: ChangeLog,
    fetch: Fetch,
    between: tuple[LoggedMoment, int],
    revisions: TableRevisions,
    eras: Mapping[int, HistoryEra],
) -> Iterator[PlainPage | ChangePage]:
    """Yield the pages after a moment up to a stamp: those that are not plain as whole transactions,
    whose changes are to be read again. Raises `ChangesPruned`."""
    known = _Known(revisions, eras)
    is_skipped = False
    for page in read_change_pages(log, fetch, *between):
        if page.part == 0:
            is_skipped = not known.is_plain_at_all(log, fetch, page)
            if is_skipped:
                yield page
        if page.part is not None and is_skipped:
            continue
        plain = known.sort(page)
        assert plain is not None or page.part is None, "it was looked at before"
        yield page if plain is None else plain


class _Known:
    """What records of the layouts of eras begin with."""

    def __init__(self, revisions: TableRevisions, eras: Mapping[int, HistoryEra]) -> None:
        self._revisions, self._eras = revisions, eras
        self._prefixes = dict[int, dict[bytes, int]]()

    def prefixes_of(self, table: int) -> dict[bytes, int]:
        """The revisions of a table that its era can have, by what their records begin with; none
        if it has no era."""
        found = self._prefixes.get(table)
        if found is None:
            era = self._eras.get(table)
            entries = [] if era is None else self._revisions.list_of(table)
            found = self._prefixes[table] = {
                encode_prefix(entry.revision): entry.revision
                for entry in entries
                if era is not None and entry.layout_revision == era.layout_revision
            }
        return found

    def sort(self, page: ChangePage) -> PlainPage | None:
        """Sort the changes of a page by table and revision; None if it is not plain."""
        if NOT_PLAIN in page.operations:
            return None
        found = list[PlainRows]()
        numbers = {one.moment.transaction: one.moment.number for one in page.moments}
        tables = {*page.tables}
        for table in tables:
            columns: Sequence[Any] = (page.keys, page.records, page.transactions, page.operations)
            if len(tables) > 1:
                mask = [one == table for one in page.tables]
                columns = [list(compress(cells, mask)) for cells in columns]
            keys, records, transactions, operations = columns
            moments = list(map(numbers.__getitem__, transactions))
            sorted_rows = self._sort(table, keys, records, moments, operations)
            if sorted_rows is None:
                return None
            found += sorted_rows
        return PlainPage(page.moments, found, _count_changes(page), goes_on=bool(page.part))

    def _sort(
        self, table: int, keys: Any, records: Any, moments: Any, operations: Any
    ) -> list[PlainRows] | None:
        prefixes = self.prefixes_of(table)
        if not prefixes:
            return None
        if DELETED not in operations and sum(map(len, records)) <= ARROW_BATCH_SIZE_BYTES:
            prefix = records[0][: decode_prefix(records[0], 0)[1]]
            packed = PackedRows.of_columns(keys, records)
            if prefix in prefixes and packed.values.begin_with(prefix).all():
                made = MadeColumns(keys, records, moments, operations, packed)
                return [PlainRows(table, prefixes[prefix], made)]
        rows = dict[int, list[int]]()
        for at, record in enumerate(records):
            if record is None:
                revision: int | None = DELETION
            else:
                revision = prefixes.get(record[: decode_prefix(record, 0)[1]])
            if revision is None:
                return None
            rows.setdefault(revision, []).append(at)
        return [
            PlainRows(
                table,
                revision,
                MadeColumns(
                    [keys[at] for at in places],
                    [records[at] or b"" for at in places],
                    [moments[at] for at in places],
                    [operations[at] for at in places],
                ),
            )
            for revision, places in rows.items()
        ]

    def is_plain_at_all(self, log: ChangeLog, fetch: Fetch, page: ChangePage) -> bool:
        """Whether all parts of a large transaction are plain, of which a page is the first."""
        mark, parameters = log.storage.placeholder, list[Any]()
        others = ["event IS NOT NULL", "replaced IS NOT NULL", "(before IS NULL AND after IS NULL)"]
        others.append(
            "(after IS NOT NULL AND (archive_before IS NOT NULL OR archive_after IS NOT NULL))"
        )
        tables = [table for table in self._eras if self.prefixes_of(table)]
        others.append(f"table_number NOT IN ({', '.join(map(str, [-1, *tables]))})")
        for table in tables:
            other = f"table_number = {int(table)} AND after IS NOT NULL"
            for prefix in self.prefixes_of(table):
                other += f" AND substr(after, 1, {len(prefix)}) <> {mark}"
                parameters.append(prefix)
            others.append(f"({other})")
        (moment,) = page.moments
        found = fetch(
            f"SELECT 1 FROM zapdb_changes WHERE tenant = {log.tenant}"
            f" AND transaction_number = {moment.moment.transaction}"
            f" AND ({' OR '.join(others)}) LIMIT 1",
            parameters,
        )
        return not found
