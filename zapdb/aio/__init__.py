"""zapdb for asyncio: the same as the synchronous library, with what waits for the database awaited.

    async with zapdb.aio.open("sqlite:///items.db", migrations="migrations") as db:
        async with db.transaction() as tx:
            await tx.table("items").insert(title="Milk")

Nothing here waits on the event loop's thread: workers do (see `runtime`).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from zapdb.aio.proxies import (
    AsyncBlock,
    AsyncChangeFollower,
    AsyncDatabase,
    AsyncDatabaseAdmin,
    AsyncDatabaseChangeLog,
    AsyncDatabaseHistory,
    AsyncDatabaseJobs,
    AsyncPast,
    AsyncPastTable,
    AsyncQuery,
    AsyncSnapshot,
    AsyncTable,
    AsyncTransaction,
    OpeningBlock,
    open,
)
from zapdb.aio.records import AsyncFile

if TYPE_CHECKING:
    from zapdb.service.aio_client import connect as connect

_HOMES: Final = {"connect": "zapdb.service.aio_client"}
"""What is imported when it is first used, since it needs an extra."""

__all__ = [
    "AsyncBlock",
    "AsyncChangeFollower",
    "AsyncDatabase",
    "AsyncDatabaseAdmin",
    "AsyncDatabaseChangeLog",
    "AsyncDatabaseHistory",
    "AsyncDatabaseJobs",
    "AsyncFile",
    "AsyncPast",
    "AsyncPastTable",
    "AsyncQuery",
    "AsyncSnapshot",
    "AsyncTable",
    "AsyncTransaction",
    "OpeningBlock",
    "connect",
    "open",
]


if not TYPE_CHECKING:  # to a type checker, a module with `__getattr__` has every name

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
        found = globals()[name] = getattr(import_module(_HOMES[name]), name)
        return found
