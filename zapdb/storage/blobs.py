"""The blob table: large values in chunks, shared by all tables and tenants (rule 28).

A blob is written once, in the transaction that writes the record which refers to it, and never
changed. Its id is a UUID of version 7, so its age can be told from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from zapdb.errors import BlobMissing
from zapdb.limits import BLOB_CHUNK_SIZE_BYTES
from zapdb.storage.base import Storage
from zapdb.storage.connection import Connection
from zapdb.values import Blob


class BlobTable:
    """The statements on blobs. Reads use the calling thread's connection, and its transaction."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        mark = storage.mark
        self._insert_sql = f"INSERT INTO zapdb_blobs VALUES ({mark}, {mark}, {mark})"
        self._load_sql = f"SELECT data FROM zapdb_blobs WHERE id = {mark} ORDER BY chunk"
        self._chunk_sql = f"SELECT data FROM zapdb_blobs WHERE id = {mark} AND chunk = {mark}"
        self._delete_sql = f"DELETE FROM zapdb_blobs WHERE id = {mark}"
        # Its chunks are 0, 1, 2 … exactly if the last number is one less than their count.
        self._measure_sql = (
            "SELECT coalesce(sum(length(data)), 0), count(*), coalesce(max(chunk), -1)"
            f" FROM zapdb_blobs WHERE id = {mark}"
        )

    def insert(self, connection: Connection, blobs: Mapping[bytes, bytes]) -> None:
        """Store new blobs by id, inside the transaction that stores what refers to them."""
        if blobs:
            connection.run_many(self._insert_sql, _chunks(blobs))

    def insert_chunk(self, connection: Connection, made: bytes, number: int, data: bytes) -> None:
        """Store one chunk of a blob whose bytes come bit by bit; all but the last are full."""
        connection.run(self._insert_sql, (made, number, data))

    def load(self, blob: Blob) -> bytes:
        """All bytes of a blob; raises `BlobMissing`."""
        rows = self.storage.connection().fetch_all(self._load_sql, (blob.id,))
        raw = b"".join(bytes(data) for (data,) in rows)
        if len(raw) != blob.size:
            raise _missing(blob, len(raw))
        return raw

    def read_chunk(self, blob: Blob, number: int) -> bytes:
        """The chunk with this number, from 0; raises `BlobMissing`."""
        row = self.storage.connection().fetch_one(self._chunk_sql, (blob.id, number))
        start = number * BLOB_CHUNK_SIZE_BYTES
        data = b"" if row is None else bytes(row[0])
        if len(data) != min(BLOB_CHUNK_SIZE_BYTES, blob.size - start):
            raise _missing(blob, start + len(data))
        return data

    # For those who look after all blobs

    def page_ids(
        self, connection: Connection, after: bytes, before: bytes | None, limit: int
    ) -> list[bytes]:
        """The next blobs' ids behind one, in order; those below `before` if it is given."""
        mark = self.storage.mark
        condition, parameters = f"id > {mark}", [after]
        if before is not None:
            condition += f" AND id < {mark}"
            parameters.append(before)
        rows = connection.fetch_all(
            f"SELECT DISTINCT id FROM zapdb_blobs WHERE {condition} ORDER BY id LIMIT {int(limit)}",
            parameters,
        )
        return [bytes(made) for (made,) in rows]

    def measure(self, connection: Connection, made: bytes) -> tuple[int, bool]:
        """A blob's size in bytes, 0 if it is not there, and whether no chunk is missing before
        its last one."""
        size, count, last = connection.fetch_one(self._measure_sql, (made,))
        return int(size), int(last) == int(count) - 1

    def delete(self, connection: Connection, made: bytes) -> bool:
        """Delete a blob; returns whether it was there."""
        return connection.run(self._delete_sql, (made,)) > 0


def _chunks(blobs: Mapping[bytes, bytes]) -> Iterator[tuple[bytes, int, bytes]]:
    for made, raw in blobs.items():
        for number, start in enumerate(range(0, len(raw), BLOB_CHUNK_SIZE_BYTES)):
            yield made, number, raw[start : start + BLOB_CHUNK_SIZE_BYTES]


def _missing(blob: Blob, found: int) -> BlobMissing:
    return BlobMissing(
        "a large value is not in the blob table",
        blob=blob.id.hex(),
        size_bytes=blob.size,
        found_bytes=found,
        hint="its record was changed or deleted since it was read: read it again",
    )
