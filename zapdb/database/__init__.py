"""What an application imports: open a database, use its tables."""

from zapdb.database.database import Database
from zapdb.database.opening import open
from zapdb.database.table import Table
from zapdb.database.transaction_blocks import Snapshot, Transaction
from zapdb.tables.change_decoding import RecordChange, SchemaEvent
from zapdb.tables.changes import ChangeFollower
from zapdb.tables.discarding import DiscardedRecord
from zapdb.tables.queries.page import Page
from zapdb.tables.queries.query import Query

__all__ = [
    "ChangeFollower",
    "Database",
    "DiscardedRecord",
    "Page",
    "Query",
    "RecordChange",
    "SchemaEvent",
    "Snapshot",
    "Table",
    "Transaction",
    "open",
]
