"""Writing records converted, with what a conversion leaves beside them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from zapdb.limits import BATCH_BLOBS
from zapdb.records import Attachments
from zapdb.records.attachments import NO_ARCHIVE
from zapdb.storage.archives import ArchiveRow, ArchiveStatements, archive_rows
from zapdb.storage.blobs import BlobStatements
from zapdb.storage.connection import Connection
from zapdb.storage.identifiers import make_uuid7
from zapdb.storage.record_statements import RecordStatements

ConvertRecord = Callable[[bytes, bytes, Attachments], bytes]
"""(key, record, its surroundings) → the record as it is to be written."""
Note = Callable[[Connection, bytes, bytes, bytes, Attachments], None]
"""Called for each record before it is written: key, old, new and surroundings."""


def rewrite_records(
    connection: Connection,
    records: RecordStatements,
    archives: ArchiveStatements,
    batch: Sequence[tuple[bytes, bytes]],
    convert: ConvertRecord,
    note: Note | None = None,
    *,
    consumes: bool = False,
) -> int:
    """Write (key, record) rows converted, with new blobs and archived values; returns how many.

    The rows are locked, so they are what they were when they were read: to compare them again while
    they are written would take a fifth of a batch's time. With `consumes`, restored values are
    deleted from the archive, because no other transaction reads them.
    """
    blobs = BlobStatements(records.storage)
    attachments = Attachments(blobs.load, make_uuid7)
    kept = archives.load_many(connection, [key for key, _ in batch])
    written, archived = [], list[ArchiveRow]()
    consumed: list[tuple[int, bytes]] = []
    for key, value in batch:
        if archives.fields:
            made = attachments.take_blobs()
            attachments = Attachments(blobs.load, make_uuid7, kept.get(key, NO_ARCHIVE))
            attachments.blobs = made
        new = convert(key, value, attachments)
        if note is not None:
            note(connection, key, value, new, attachments)
        written.append((key, new))
        if archives.fields:
            consumed += ((field, key) for field in attachments.restored)
            archived += archive_rows(key, attachments.archived)
        if len(attachments.blobs) >= BATCH_BLOBS:
            blobs.insert(connection, attachments.take_blobs())
    blobs.insert(connection, attachments.take_blobs())
    if consumes:
        archives.consume(connection, consumed)
    archives.insert(connection, archived)
    records.storage.set_values(connection, records.name, records.tenant, written)
    return len(written)
