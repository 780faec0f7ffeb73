"""Large values as binary files: read from a record and written into one, a chunk at a time.

Nothing here holds more than a chunk of a value in memory.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from zapdb.errors import UsageError
from zapdb.limits import BLOB_CHUNK_SIZE_BYTES, INLINE_SIZE_BYTES_MAX
from zapdb.records import Record, raw_value
from zapdb.storage import BlobStatements, Connection
from zapdb.storage.identifiers import make_uuid7
from zapdb.tables.indexes import BoundTable
from zapdb.values import Binary, Blob

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


ReadChunk = Callable[[Blob, int], bytes]


class BlobStream(io.RawIOBase):
    """A stored blob as a file: seekable, read-only; holds the chunk that was read last.

    It reads by the connection of the thread that calls, as of its snapshot if it is in one. A blob
    never changes, but it may go: `BlobMissing` is raised then.
    """

    def __init__(self, read_chunk: ReadChunk, blob: Blob) -> None:
        self._read_chunk = read_chunk
        self._blob = blob
        self._position = 0
        self._number = -1
        self._chunk = b""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        self._check_open()
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        self._check_open()
        if whence not in (io.SEEK_SET, io.SEEK_CUR, io.SEEK_END):
            raise ValueError(f"whence must be 0, 1 or 2, not {whence}")
        position = (0, self._position, self._blob.size)[whence] + offset
        if position < 0:
            raise ValueError(f"a position cannot be negative: {position}")
        self._position = position
        return position

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        self._check_open()
        target = memoryview(buffer).cast("B")
        if self._position >= self._blob.size or not target:
            return 0
        number, start = divmod(self._position, BLOB_CHUNK_SIZE_BYTES)
        if number != self._number:
            self._chunk = self._read_chunk(self._blob, number)
            self._number = number
        part = memoryview(self._chunk)[start : start + len(target)]
        target[: len(part)] = part
        self._position += len(part)
        return len(part)

    def close(self) -> None:
        self._chunk, self._number = b"", -1
        super().close()

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")


def open_field(
    record: Record, name: str, blobs: BlobStatements, reading_in: Callable[[ReadChunk], ReadChunk]
) -> io.BufferedReader | None:
    """The bytes of a string or binary field as a file; None if the field is null.

    Chunks are read by what `reading_in` makes of how they are read.
    """
    value, attachments = raw_value(record, name)
    if value is None:
        return None
    if isinstance(value, Blob):
        assert attachments is not None
        # What a conversion has just made of a stale record is stored nowhere.
        if value.id not in attachments.blobs:
            return io.BufferedReader(BlobStream(reading_in(blobs.read_chunk), value))
        value = attachments.load(value)
    return io.BufferedReader(io.BytesIO(value.encode() if isinstance(value, str) else value))


class StreamedValues:
    """Open binary files among the values of one record; stores what is in them.

    An operation that conflicts with a concurrent transaction is repeated: each file is then read
    again from its first position.
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._starts: dict[str, int | None] = {}
        for name, value in values.items():
            if hasattr(value, "read"):
                is_seekable = hasattr(value, "seekable") and value.seekable()
                self._starts[name] = value.tell() if is_seekable else None
        self._is_repeated = False

    @property
    def are_any(self) -> bool:
        return bool(self._starts)

    def store(
        self,
        bound: BoundTable,
        connection: Connection,
        values: Mapping[str, Any],
    ) -> Mapping[str, Any]:
        """Return the values with blobs, or bytes if they are short, in the places of files.

        To be called in the transaction that stores the record. Files for fields that are not
        binary are left for the encoder to refuse.
        """
        if not self._starts:
            return values
        is_repeated, self._is_repeated = self._is_repeated, True
        stored = {}
        for name, start in self._starts.items():
            if name not in bound.adapter.file_kinds:
                continue
            file, path = values[name], f"{bound.adapter.schema.name}.{name}"
            if start is not None:
                file.seek(start)
            elif is_repeated:
                raise UsageError(
                    "the transaction conflicted with a concurrent one, and the file "
                    "cannot be read a second time",
                    field=path,
                    hint="pass a seekable file, or repeat the call with a new file",
                )
            stored[name] = _store(
                bound.blobs, connection, bound.adapter.file_kinds[name], path, file
            )
        return {**values, **stored}


def _store(
    blobs: BlobStatements, connection: Connection, kind: Binary, path: str, file: Any
) -> bytes | Blob:
    """Store the rest of a file as a blob, unless it is small enough for the record."""
    made, number, size = make_uuid7(), 0, 0
    while chunk := _read_chunk(file, kind, path):
        size += len(chunk)
        if size <= INLINE_SIZE_BYTES_MAX:
            return chunk
        if size > kind.size_bytes_max:
            raise kind.refuse(file, path)
        blobs.insert_chunk(connection, made, number, chunk)
        number += 1
    return Blob(made, size, kind) if size else b""


def _read_chunk(file: Any, kind: Binary, path: str) -> bytes:
    """As many bytes as a chunk has, fewer at the end of the file alone."""
    parts, missing = [], BLOB_CHUNK_SIZE_BYTES
    while missing:
        part = file.read(missing)
        if not isinstance(part, bytes | bytearray | memoryview) or len(part) > missing:
            raise kind.refuse(part, path)  # a file of text, or one that does not block
        if not part:
            break
        parts.append(bytes(part))
        missing -= len(part)
    return b"".join(parts)
