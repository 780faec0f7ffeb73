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
from zapdb.storage import Connection, LockedRecords
from zapdb.tables.indexes import BoundTable
from zapdb.tables.writes.execution import execute
from zapdb.tables.writes.write_plan import Stored, WritePlan

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
                _set_values(connection, bound, rows, values)
    if left:
        archive = bound.archives.load_many(connection, [key for key, _ in left])
        for plan in plan_conversions(bound, left, archive, conversion):
            execute(connection, plan)
    return len(batch)


def _set_values(
    connection: Connection, bound: BoundTable, before: Sequence[Stored], after: list[bytes]
) -> None:
    """Give locked records other bytes, from which nothing else follows: most conversions are so.
    They are rows of the server, if they are `LockedRecords`."""
    if isinstance(before, LockedRecords):
        bound.statements.set_locked(connection, before, after)
    else:
        bound.statements.set_many(connection, [key for key, _ in before], after)


def plan_conversions(
    bound: BoundTable,
    batch: Sequence[Stored],
    archive: Mapping[bytes, Mapping[int, bytes]],
    conversion: BatchConversion,
) -> Iterator[WritePlan]:
    """Plan the conversions of records, in parts: no more than some new blobs are held at once.

    `archive` has their archived values, by key and cell.
    """
    convert, find_change = conversion.convert, conversion.find_change
    attachments = bound.make_attachments()
    plan = WritePlan(bound, is_locked=True)
    for key, value in batch:
        attachments.archive = archive.get(key, NO_ARCHIVE)
        new = convert(key, value, attachments)
        change = None if find_change is None else find_change(key, value, new, attachments)
        plan.convert(key, value, new, attachments, change)
        if not attachments.is_unused:
            attachments = bound.make_attachments()  # these are the record's
        if len(plan.blobs) >= BATCH_BLOBS:
            yield plan
            plan = WritePlan(bound, is_locked=True)
    yield plan
