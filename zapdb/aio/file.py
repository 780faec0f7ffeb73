"""Large values as files, for tasks."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from typing import Self

from zapdb.aio.records import Carry
from zapdb.limits import BLOB_CHUNK_SIZE_BYTES


class BlobFile:
    """A string or binary field as a file: `async with items.open(1, field="picture") as f`.

    Read-only and seekable; `async for chunk in f` gives it chunk by chunk.
    """

    def __init__(self, carry: Carry, file: io.BufferedReader) -> None:
        self._carry = carry
        self._file = file

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while chunk := await self.read(BLOB_CHUNK_SIZE_BYTES):
            yield chunk

    async def read(self, size: int = -1) -> bytes:
        """Read `size` bytes, fewer only at the end; by default, all the rest."""
        read: bytes = await self._carry(lambda: self._file.read(size))
        return read

    async def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Where it is read next; as for any file."""
        moved: int = await self._carry(lambda: self._file.seek(offset, whence))
        return moved

    def tell(self) -> int:
        """Where it is read next."""
        return self._file.tell()

    async def close(self) -> None:
        self._file.close()
