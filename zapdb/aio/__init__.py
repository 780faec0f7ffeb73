"""zapdb for asyncio: the same as the synchronous library, with what waits for the database awaited.

    async with zapdb.aio.open("sqlite:///items.db", migrations="migrations") as db:
        async with db.transaction() as tx:
            await tx.table("items").insert(title="Milk")

Nothing here waits on the event loop's thread: workers do (see `runtime`).
"""

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
    "open",
]
