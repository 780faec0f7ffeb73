"""The blob table: large values in chunks, shared by all tables and tenants (rule 28).

A blob is written once, in the transaction that writes the record which refers to it, and never
changed. Its id is a UUID of version 7, so it shows the blob's age.

Each chunk has a checksum, of the blob's id and of its own number, too, which is compared whenever
the chunk is read (decisions/0021). The record says how many bytes the blob has. So a chunk that was
changed, truncated, lost, or exchanged is always detected.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from typing import Any

from zapdb.errors import BlobMissing, CorruptBlob
from zapdb.limits import BLOB_CHUNK_SIZE_BYTES
from zapdb.storage.cells import as_bytes, as_number
from zapdb.storage.connection import Connection
from zapdb.storage.storage import Storage
from zapdb.values import Blob


class BlobStatements:
    """The statements on blobs. Reads use the calling thread's connection, and its transaction."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        mark = storage.placeholder
        self._insert_sql = (
            "INSERT INTO zapdb_blobs (id, chunk, checksum, data)"
            f" VALUES ({mark}, {mark}, {mark}, {mark})"
        )
        chunks = f"SELECT chunk, checksum, data FROM zapdb_blobs WHERE id = {mark}"
        self._load_sql = f"{chunks} ORDER BY chunk"
        self._chunk_sql = f"{chunks} AND chunk = {mark}"
        self._any_sql = f"SELECT 1 FROM zapdb_blobs WHERE id = {mark} LIMIT 1"
        self._delete_sql = f"DELETE FROM zapdb_blobs WHERE id = {mark}"
        # The chunks are 0, 1, 2 … if and only if the last number is one less than their count.
        self._measure_sql = (
            "SELECT coalesce(sum(length(data)), 0), count(*), coalesce(max(chunk), -1)"
            f" FROM zapdb_blobs WHERE id = {mark}"
        )

    def insert(self, connection: Connection, blobs: Mapping[bytes, bytes]) -> None:
        """Store new blobs by id, inside the transaction that stores what refers to them."""
        if blobs:
            connection.send_many(self._insert_sql, _chunks(blobs))

    def insert_chunk(self, connection: Connection, made: bytes, number: int, data: bytes) -> None:
        """Store one chunk of a streamed blob; all chunks but the last are full."""
        connection.run(self._insert_sql, (made, number, checksum(made, number, data), data))

    def load(self, blob: Blob) -> bytes:
        """Return all bytes of a blob; raises `BlobMissing`, and `CorruptBlob` if they are not the
        bytes that were written."""
        rows = self.storage.connection().fetch_all(self._load_sql, (blob.id,))
        if not rows:
            raise _missing(blob)
        parts = [
            _check(blob.id, blob.size, number, row)
            for number, row in zip(range(_count_chunks(blob.size)), rows, strict=False)
        ]
        if len(rows) < _count_chunks(blob.size):
            raise _corrupt(blob.id, len(rows), "lost")
        if len(rows) > len(parts):
            raise _corrupt(blob.id, len(parts), "more than the record says")
        return b"".join(parts)

    def read_chunk(self, blob: Blob, number: int) -> bytes:
        """Return the chunk with this number, from 0; raises `BlobMissing`, and `CorruptBlob` if it
        is not the chunk that was written."""
        connection = self.storage.connection()
        row = connection.fetch_one(self._chunk_sql, (blob.id, number))
        # All chunks of a blob are deleted at once, so if others remain, this one was lost.
        if row is None and connection.fetch_one(self._any_sql, (blob.id,)) is None:
            raise _missing(blob)
        return _check(blob.id, blob.size, number, row)

    # For the maintenance of all blobs

    def page_ids(
        self, connection: Connection, after: bytes, before: bytes | None, limit: int
    ) -> list[bytes]:
        """Return the next ids of blobs after an id, in order, and below `before` if it is given."""
        mark = self.storage.placeholder
        condition, parameters = f"id > {mark}", [after]
        if before is not None:
            condition += f" AND id < {mark}"
            parameters.append(before)
        rows = connection.fetch_all(
            f"SELECT DISTINCT id FROM zapdb_blobs WHERE {condition} ORDER BY id LIMIT {int(limit)}",
            parameters,
        )
        return [as_bytes(made) for (made,) in rows]

    def measure(self, connection: Connection, made: bytes) -> tuple[int, bool]:
        """Return a blob's size in bytes, 0 if it does not exist, and whether all chunks before its
        last one exist."""
        size, count, last = connection.fetch_one(self._measure_sql, (made,))
        return as_number(size), as_number(last) == as_number(count) - 1

    def check(self, connection: Connection, made: bytes, size: int) -> None:
        """Compare the checksums of all chunks, with one in memory at a time; raises `CorruptBlob`
        for the first corrupt chunk."""
        for number in range(_count_chunks(size)):
            _check(made, size, number, connection.fetch_one(self._chunk_sql, (made, number)))

    def delete(self, connection: Connection, made: bytes) -> bool:
        """Delete a blob; returns whether it existed."""
        return connection.run(self._delete_sql, (made,)) > 0


def checksum(made: bytes, number: int, data: bytes) -> int:
    """Return the CRC-32 of a blob's id, a chunk's number as eight bytes, and the chunk's bytes."""
    return zlib.crc32(data, zlib.crc32(made + number.to_bytes(8, "big")))


def _chunks(blobs: Mapping[bytes, bytes]) -> Iterator[tuple[bytes, int, int, bytes]]:
    for made, raw in blobs.items():
        for number, start in enumerate(range(0, len(raw), BLOB_CHUNK_SIZE_BYTES)):
            data = raw[start : start + BLOB_CHUNK_SIZE_BYTES]
            yield made, number, checksum(made, number, data), data


def _count_chunks(size: int) -> int:
    return -(-size // BLOB_CHUNK_SIZE_BYTES)


def _check(made: bytes, size: int, number: int, row: Any) -> bytes:
    """Return the bytes of a chunk from its row (number, checksum, bytes)."""
    if row is None or row[0] != number:
        raise _corrupt(made, number, "lost")
    if not isinstance(row[2], bytes | bytearray | memoryview):  # SQLite keeps values of any type
        raise _corrupt(made, number, "no bytes")
    data = bytes(row[2])
    if len(data) != min(BLOB_CHUNK_SIZE_BYTES, size - number * BLOB_CHUNK_SIZE_BYTES):
        raise _corrupt(made, number, f"of {len(data)} bytes, which is not its size")
    if row[1] != checksum(made, number, data):
        raise _corrupt(made, number, "not what was written: its checksum is another")
    return data


def _missing(blob: Blob) -> BlobMissing:
    return BlobMissing(
        "a large value is not in the blob table",
        blob=blob.id.hex(),
        size_bytes=blob.size,
        found_bytes=0,
        hint="its record changed or was deleted since it was read; read it again",
    )


def _corrupt(made: bytes, number: int, what: str) -> CorruptBlob:
    return CorruptBlob(
        "a large value does not match its checksum",
        what=f"chunk {number} of blob {made.hex()} is {what}",
        blob=made.hex(),
        chunk=number,
        hint="run `zapdb verify` for all such records; restore them from a backup, or delete "
        "them with `zapdb data discard`",
    )
