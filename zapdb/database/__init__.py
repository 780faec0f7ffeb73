"""What an application imports: open a database, use its tables."""

from zapdb.database.change_decoding import RecordChange, SchemaEvent
from zapdb.database.changes import ChangeFollower
from zapdb.database.database import Database
from zapdb.database.opening import open
from zapdb.database.page import Page
from zapdb.database.query import Query
from zapdb.database.table import Table
from zapdb.database.transactions import Snapshot, Transaction
from zapdb.database.unreadable import DiscardedRecord

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
