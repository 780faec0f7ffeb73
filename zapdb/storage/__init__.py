"""Storage engines behind one interface; `connect` chooses by the address."""

from __future__ import annotations

from sqlalchemy.engine import URL

from zapdb.errors import MissingExtra, UsageError
from zapdb.limits import CONNECTIONS_MAX
from zapdb.storage.addresses import find_engine, read_address
from zapdb.storage.archives import ArchiveStatements
from zapdb.storage.blobs import BlobStatements
from zapdb.storage.connection import Connection, PendingRows
from zapdb.storage.dialect import KeySample, LockedRecords, OfHeld
from zapdb.storage.driver_errors import (
    DuplicateKey,
    Explain,
    MissingTable,
    Refusal,
    RowsHeld,
    StatementRefused,
)
from zapdb.storage.entry_statements import EntryStatements
from zapdb.storage.private_file import PrivateFile, is_in_memory
from zapdb.storage.record_statements import RecordSource, RecordStatements
from zapdb.storage.sqlite import SQLite
from zapdb.storage.storage import Storage
from zapdb.storage.storage_version import STORAGE_VERSION, ensure_storage, read_storage_version
from zapdb.storage.transaction_modes import TransactionMode

__all__ = [
    "STORAGE_VERSION",
    "ArchiveStatements",
    "BlobStatements",
    "Connection",
    "DuplicateKey",
    "EntryStatements",
    "Explain",
    "KeySample",
    "LockedRecords",
    "MissingTable",
    "OfHeld",
    "PendingRows",
    "RecordSource",
    "RecordStatements",
    "Refusal",
    "RowsHeld",
    "StatementRefused",
    "Storage",
    "TransactionMode",
    "connect",
    "ensure_storage",
    "read_storage_version",
]


def connect(
    address: str | URL, *, read_only: bool = False, connections_max: int = CONNECTIONS_MAX
) -> Storage:
    """The storage at a SQLAlchemy address; nothing is read or written yet.

    `sqlite:///:memory:` is a new private file of this process, removed when the storage is closed.
    With `read_only`, connections are made that can't write, and other transactions than READ are
    refused. `connections_max` transactions and snapshots may be open at once. Raises `UsageError`
    for what is no address; it shows nothing of it.
    """
    url = read_address("sqlite:///:memory:" if address == ":memory:" else address)
    if find_engine(url) == "sqlite":
        if not is_in_memory(url):
            return Storage(SQLite(url, read_only=read_only), connections_max=connections_max)
        if read_only:
            raise UsageError(
                "a database in memory is empty at first, so read_only is of no use",
                hint="leave out read_only, or give a file: sqlite:///path/to/file.db",
            )
        private = PrivateFile()
        return Storage(SQLite(private.url, private=private), connections_max=connections_max)
    try:
        from zapdb.storage.postgresql import PostgreSQL
    except ImportError as missing:
        raise MissingExtra.named("postgres", "psycopg") from missing
    url = url.set(drivername="postgresql+psycopg")
    return Storage(PostgreSQL(url, read_only=read_only), connections_max=connections_max)
