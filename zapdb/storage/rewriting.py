"""Writing records converted, with what a conversion leaves beside them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from zapdb.limits import BATCH_BLOBS
from zapdb.records import Beside
from zapdb.records.beside import NOTHING
from zapdb.storage.archives import ArchiveRow, ArchiveTable, archive_rows
from zapdb.storage.blobs import BlobTable
from zapdb.storage.connection import Connection
from zapdb.storage.identifiers import make_uuid7
from zapdb.storage.statements import RecordTable

Convert = Callable[[bytes, bytes, Beside], bytes]
"""(key, record, its surroundings) → the record as it is to be written."""
Note = Callable[[Connection, bytes, bytes, bytes, Beside], None]
"""Called for each record before it is written: key, old, new and surroundings."""


def rewrite_records(
    connection: Connection,
    records: RecordTable,
    archives: ArchiveTable,
    batch: Sequence[tuple[bytes, bytes]],
    convert: Convert,
    note: Note | None = None,
    *,
    consumes: bool = False,
) -> int:
    """Write (key, record) rows converted, with new blobs and archived values; returns how many.

    The rows are locked, so they are what they were when they were read: to compare them again while
    they are written would take a fifth of a batch's time. With `consumes`, what is taken back from
    the archive is deleted there: nobody else reads it.
    """
    blobs = BlobTable(records.storage)
    beside = Beside(blobs.load, make_uuid7)
    kept = archives.load_many(connection, [key for key, _ in batch])
    written, archived = [], list[ArchiveRow]()
    consumed: list[tuple[int, bytes]] = []
    for key, value in batch:
        if archives.fields:
            made = beside.take_blobs()
            beside = Beside(blobs.load, make_uuid7, kept.get(key, NOTHING))
            beside.blobs = made
        new = convert(key, value, beside)
        if note is not None:
            note(connection, key, value, new, beside)
        written.append((key, new))
        if archives.fields:
            consumed += ((field, key) for field in beside.restored)
            archived += archive_rows(key, beside.archived)
        if len(beside.blobs) >= BATCH_BLOBS:
            blobs.insert(connection, beside.take_blobs())
    blobs.insert(connection, beside.take_blobs())
    if consumes:
        archives.consume(connection, consumed)
    archives.insert(connection, archived)
    records.storage.set_values(connection, records.name, records.tenant, written)
    return len(written)
