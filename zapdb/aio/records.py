"""What is handed out to tasks: whole records, iterators of them, and large values as files.

Looking at a field never reads: the large values of a record are loaded by the worker that read it.
An iterator fetches some records at a time, as many as the synchronous one reads at a time.
"""

from __future__ import annotations

import io
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from itertools import islice
from typing import Any, Self, TypeVar

from zapdb.errors import UsageError
from zapdb.limits import ASYNC_LOADED_SIZE_BYTES, BLOB_CHUNK_SIZE_BYTES
from zapdb.records import Record, load_all
from zapdb.storage.open_transaction import ONE_AT_A_TIME_HINT
from zapdb.tables.change_decoding import RecordChange
from zapdb.tables.queries.page import Page
from zapdb.tables.queries.paging import page_sizes

T = TypeVar("T")

Carry = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Has a worker do something."""


def load_large_values(found: object) -> int:
    """Load the large values of what an operation returned; returns how many bytes they have."""
    if isinstance(found, Record):
        return load_all(found)
    if isinstance(found, Page):
        return load_large_values(found.records)
    if isinstance(found, RecordChange):
        return load_large_values(found.before) + load_large_values(found.after)
    if isinstance(found, list | tuple):
        return sum(load_large_values(one) for one in found)
    return 0


def loaded(found: T) -> T:
    load_large_values(found)
    return found


class AsyncRecords(AsyncIterator[T]):
    """The results of an iterator that a worker goes on with when there are no more of them here.

    To be used by one task at a time.
    """

    def __init__(
        self, carry: Carry, make: Callable[[], Iterator[T]], require_open: Callable[[], None]
    ) -> None:
        self._carry = carry
        self._make = make
        self._require_alive = require_open
        self._sizes = page_sizes(None)
        self._iterator: Iterator[T] | None = None
        self._here = deque[T]()
        self._is_over = False
        self._failure: Exception | None = None
        self._is_fetching = False

    def __aiter__(self) -> AsyncRecords[T]:
        return self

    async def __anext__(self) -> T:
        self._require_alive()
        while not self._here:
            failure, self._failure = self._failure, None
            if failure is not None:
                self._require_alive()  # closing may have made it fail
                raise failure
            if self._is_over:
                raise StopAsyncIteration
            await self._fetch()
        return self._here.popleft()

    async def aclose(self) -> None:
        """Read no more of it."""
        self._is_over = True
        self._here.clear()
        self._iterator = None

    async def _fetch(self) -> None:
        if self._is_fetching:
            raise UsageError("another task is using the iterator", hint=ONE_AT_A_TIME_HINT)
        self._is_fetching = True
        try:
            self._here.extend(await self._carry(self._take_some))
        except BaseException:
            self._is_over = True
            raise
        finally:
            self._is_fetching = False

    def _take_some(self) -> Sequence[T]:
        """In a worker. What is had before something fails is handed out before it is raised."""
        taken, size_bytes, count = list[T](), 0, next(self._sizes)
        try:
            if self._iterator is None:
                self._iterator = iter(self._make())
            for one in islice(self._iterator, count):
                size_bytes += load_large_values(one)
                taken.append(one)
                if size_bytes > ASYNC_LOADED_SIZE_BYTES:
                    return taken
        except Exception as error:
            self._failure = error
        self._is_over = len(taken) < count
        return taken


class AsyncFile:
    """A string or binary field as a file: `async with await items.open(1, field="picture") as f`.

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
