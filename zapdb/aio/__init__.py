"""zapdb for asyncio: the same as the synchronous face, with what waits for the database awaited.

    async with zapdb.aio.open("sqlite:///items.db", migrations="migrations") as db:
        async with db.transaction() as tx:
            await tx.table("items").insert(title="Milk")

Nothing here waits on the event loop's thread: workers do (see `runtime`).
"""

from zapdb.aio.block import Block
from zapdb.aio.faces import (
    ChangeFollower,
    Database,
    DatabaseAdmin,
    DatabaseChangeLog,
    DatabaseHistory,
    DatabaseJobs,
    Past,
    PastTable,
    Query,
    Snapshot,
    Table,
    Transaction,
    open,
)
from zapdb.aio.file import BlobFile
from zapdb.aio.opening import OpeningBlock

__all__ = [
    "BlobFile",
    "Block",
    "ChangeFollower",
    "Database",
    "DatabaseAdmin",
    "DatabaseChangeLog",
    "DatabaseHistory",
    "DatabaseJobs",
    "OpeningBlock",
    "Past",
    "PastTable",
    "Query",
    "Snapshot",
    "Table",
    "Transaction",
    "open",
]
