"""Blocks of transactions and snapshots: `async with db.transaction() as tx`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, TypeVar

from zapdb.aio.runtime import Runtime
from zapdb.database import transactions as sync

H = TypeVar("H")


class Block(AbstractAsyncContextManager[H]):
    """What begins a transaction or a snapshot, or inside a transaction a savepoint, and ends it.

    Like the block of the synchronous face, it does not keep the handle.
    """

    def __init__(
        self, runtime: Runtime, block: sync.Block[Any], face: Callable[[Runtime, Any], H]
    ) -> None:
        self._runtime = runtime
        self._block = block
        self._face = face

    async def __aenter__(self) -> H:
        return self._face(self._runtime, await self._runtime.enter(self._block))

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._runtime.leave(self._block, error)
