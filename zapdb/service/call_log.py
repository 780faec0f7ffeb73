"""The call log: written in batches, beside the calls.

A call waits for nobody: what the database does not take now is written later, and what is more than
memory should hold is lost, and the log of the service says so.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from zapdb.catalog.calls import PAGE_CALLS, LoggedCall, prune_calls, write_calls
from zapdb.catalog.settings import CALL_LOG_RETENTION, EVERYWHERE
from zapdb.catalog.stored_settings import read_settings
from zapdb.errors import NotAllowed, ZapdbError
from zapdb.limits import (
    CALL_LOG_FLUSH_SECONDS,
    CALL_LOG_PRUNE_SECONDS,
    CALL_LOG_TABLES_LENGTH_MAX,
    CALL_LOG_TEXT_LENGTH_MAX,
    CALL_LOG_WAITING_MAX,
)
from zapdb.service.guard import IncomingCall
from zapdb.service.principals import SHOWS_DATA
from zapdb.storage import Connection, Storage, TransactionMode
from zapdb.storage.identifiers import make_many_uuid7

logger = logging.getLogger("zapdb.service")

Do = Callable[[Callable[[], Any]], Awaitable[Any]]
WRITTEN_AT_ONCE: Final = PAGE_CALLS
CLOCK_NOISE_US: Final = 500_000
"""A clock that seems to have gone back by less has not: its answer came late."""


def is_logged(call: IncomingCall) -> bool:
    """Whether a call belongs into the call log: it changed something, read records, or was refused
    to a known principal."""
    if call.caller is None:
        return False
    method = call.method
    if method is None or call.status == NotAllowed.rpc_status:
        return call.status == NotAllowed.rpc_status
    return method.changes or method.scope == SHOWS_DATA


@dataclass(frozen=True, slots=True)
class NotedCall:
    """What a row needs of a call that has ended, and nothing else of it: a request may have
    megabytes of names. `ended` is by `time.perf_counter`."""

    ended: float
    seconds: float
    principal: str
    method: str
    tenant: str
    tables: tuple[str, ...]
    status: str

    @classmethod
    def of(cls, call: IncomingCall) -> NotedCall:
        assert call.caller is not None
        now = time.perf_counter()
        return cls(
            now,
            now - call.begun,
            call.caller.name,
            _short(call.path),
            _short(call.tenant),
            _shorten_tables(call.tables),
            call.status,
        )

    def row(self, id: bytes, offset_us: int) -> LoggedCall:
        """The clock of the database is `offset_us` ahead of `time.perf_counter`."""
        return LoggedCall(
            id,
            offset_us + int((self.ended - self.seconds) * 1e6),
            self.principal,
            self.method,
            self.tenant,
            self.tables,
            self.status,
            int(self.seconds * 1e6),
        )


class CallLog:
    """Of one server. `do` lets a worker of its database do something."""

    def __init__(self, storage: Storage, do: Do) -> None:
        self._storage = storage
        self._do = do
        self._waiting = deque[NotedCall]()
        self._lost = 0
        self._pruned_at = -CALL_LOG_PRUNE_SECONDS
        self._offset_us = 0
        """How far the clock of the database is ahead of `time.perf_counter`."""

    def note(self, call: IncomingCall) -> None:
        """Take a call that has ended, on the event loop."""
        if self._storage.read_only or not is_logged(call):
            return
        if len(self._waiting) >= CALL_LOG_WAITING_MAX:
            self._lost += 1
            return
        self._waiting.append(NotedCall.of(call))

    async def keep_writing(self) -> None:
        """Write what waits, until this task is cancelled."""
        while True:
            await asyncio.sleep(CALL_LOG_FLUSH_SECONDS)
            try:
                await self.flush()
                if time.monotonic() - self._pruned_at >= CALL_LOG_PRUNE_SECONDS:
                    self._pruned_at = time.monotonic()
                    await self._do(self._prune)
            except ZapdbError as error:
                logger.warning("the call log was not written, which is tried again: %s", error)
                await asyncio.sleep(CALL_LOG_FLUSH_SECONDS * 8)

    async def flush(self) -> None:
        """Write what waits; what is not written waits on."""
        while self._waiting:
            batch = [self._waiting[at] for at in range(min(WRITTEN_AT_ONCE, len(self._waiting)))]
            await self._do(lambda: self._write(batch))  # noqa: B023 - awaited before the next one
            for _ in batch:
                self._waiting.popleft()
        if self._lost:
            lost, self._lost = self._lost, 0
            logger.error("%d calls are not in the call log: the database took none", lost)

    def _write(self, batch: list[NotedCall]) -> None:
        with self._storage.transaction(TransactionMode.CATALOG) as connection:
            offset_us = self._storage.now_us(connection) - int(time.perf_counter() * 1e6)
            # The answer takes a while to come, longer on a loaded machine: what was found before is
            # nearer, and keeps the order of calls that are written at different times.
            if not 0 <= self._offset_us - offset_us < CLOCK_NOISE_US:
                self._offset_us = offset_us
            ids = make_many_uuid7(len(batch))
            rows = [one.row(id, self._offset_us) for id, one in zip(ids, batch, strict=True)]
            write_calls(connection, rows)

    def _prune(self) -> None:
        if self._storage.read_only:
            return
        with self._storage.transaction(TransactionMode.CATALOG) as connection:
            prune_calls(connection, _read_retention(connection), self._storage.now_us(connection))


def _read_retention(connection: Connection) -> int:
    return int(read_settings(connection, 0).find(CALL_LOG_RETENTION, EVERYWHERE)[0])


def _shorten_tables(tables: tuple[str, ...]) -> tuple[str, ...]:
    """The first names, and how many more there are, if all are longer than a row should be."""
    found, length = list[str](), 0
    for name in map(_short, islice(tables, CALL_LOG_TABLES_LENGTH_MAX)):
        length += len(name)
        if length > CALL_LOG_TABLES_LENGTH_MAX:
            break
        found.append(name)
    left = len(tables) - len(found)
    return (*found, f"… and {left:,} more") if left else tuple(found)


def _short(text: str) -> str:
    """A name as a column can hold it (PostgreSQL takes no NUL) and a line can show it."""
    cut = text[:CALL_LOG_TEXT_LENGTH_MAX]
    return cut if cut.isprintable() else "".join(c if c.isprintable() else "\ufffd" for c in cut)
