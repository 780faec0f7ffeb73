"""Conversions as writes: stored records become what a program makes of them (rules 18 to 20).

A conversion leaves what an application sees of a record as it was, so a record keeps its index
entries, and neither checks nor references are looked at. What it makes beside the record, it stores
with it: new blobs, and the archived values of dropped fields.

The caller has locked the records, so they are what it read until its transaction ends (rule 17).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from zapdb.limits import BATCH_BLOBS
from zapdb.log.pending_changes import LoggedChange
from zapdb.records import Attachments
from zapdb.records.attachments import NO_ARCHIVE
from zapdb.storage import Connection
from zapdb.storage.archives import archive_rows
from zapdb.tables.indexes import BoundTable
from zapdb.tables.writes.execution import execute, execute_conversions
from zapdb.tables.writes.write import NO_BLOBS, ConvertedRecords, Write
from zapdb.tables.writes.write_planning import Stored

Convert = Callable[[bytes, bytes, Attachments], bytes]
"""(key, record, attachments) → the record as it is to be stored."""
ConvertMany = Callable[[Sequence[Stored]], Iterable[tuple[Sequence[Stored], list[bytes] | None]]]
"""Many records → in parts, the records and their new bytes; None if each has to be converted by
itself."""
FindChange = Callable[[bytes, bytes, bytes, Attachments], LoggedChange | None]
"""(key, old record, new record, attachments) → what the change log keeps of a conversion."""


@dataclass(frozen=True, slots=True)
class BatchConversion:
    """The conversion of a batch of a table's records."""

    convert: Convert
    convert_rows: ConvertMany | None = None
    """Converts many records in less time."""
    find_change: FindChange | None = None
    """Most conversions leave nothing in the change log (rule 22)."""
    consumes: bool = False
    """Whether restored values are deleted from the archive, because nobody else reads them."""


def convert_records(
    connection: Connection, bound: BoundTable, batch: Sequence[Stored], conversion: BatchConversion
) -> int:
    """Write records converted, which are locked; returns how many."""
    left = batch
    if conversion.convert_rows is not None and conversion.find_change is None:
        left = []
        for rows, values in conversion.convert_rows(batch):
            if values is None:
                left += rows
            else:
                execute_conversions(connection, bound, ConvertedRecords(rows, values))
    if left:
        archive = bound.archives.load_many(connection, [key for key, _ in left])
        for writes in plan_conversions(bound, left, archive, conversion):
            execute(connection, bound, writes)
    return len(batch)


def plan_conversions(
    bound: BoundTable,
    batch: Sequence[Stored],
    archive: Mapping[bytes, Mapping[int, bytes]],
    conversion: BatchConversion,
) -> Iterator[list[Write]]:
    """Plan the conversions of records, in parts: no more than some new blobs are held at once.

    `archive` has their archived values, by key and field number.
    """
    convert, find_change = conversion.convert, conversion.find_change
    attachments = bound.make_attachments()
    writes, blob_count = list[Write](), 0
    for key, value in batch:
        attachments.archive = archive.get(key, NO_ARCHIVE)
        new = convert(key, value, attachments)
        change = None if find_change is None else find_change(key, value, new, attachments)
        write = plan_conversion(key, value, new, attachments, change, consumes=conversion.consumes)
        writes.append(write)
        blob_count += len(attachments.blobs)
        if attachments.blobs or attachments.archived or attachments.restored:
            attachments = bound.make_attachments()  # these are the record's
        if blob_count >= BATCH_BLOBS:
            yield writes
            writes, blob_count = [], 0
    yield writes


def plan_discard(bound: BoundTable, key: bytes, stored: bytes) -> Write:
    """A locked record that goes with its whole table, as its index entries do."""
    change = LoggedChange(stored, None) if bound.logs_changes else None
    return Write(key, stored, None, change=change, is_locked=True)


def plan_conversion(
    key: bytes,
    old: bytes,
    new: bytes,
    attachments: Attachments,
    change: LoggedChange | None = None,
    *,
    consumes: bool = False,
) -> Write:
    """A locked record that becomes what its conversion made of it, with these attachments."""
    archived, restored = attachments.archived, attachments.restored
    return Write(
        key,
        old,
        new,
        blobs=attachments.blobs or NO_BLOBS,
        archived=tuple(archive_rows(key, archived)) if archived else (),
        restored=tuple(restored) if consumes and restored else (),
        change=change,
        converted=archived,
        is_locked=True,
    )
