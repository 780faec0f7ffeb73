"""Where a database is, by which an original is told from its copy: a copy has every row of it.

Of SQLite, the path and the inode; of PostgreSQL, the server, the database and the table, by the
numbers that the server gave them. It changes where a database is moved or restored, and is the same
for a server whose disk was cloned. So another place means "perhaps a copy", and what depends on it
is left undone and told.
"""

from __future__ import annotations

import hashlib
import os
from typing import Final

from zapdb.storage.connection import Connection
from zapdb.storage.storage import Storage

_NUMBERS: Final = (
    "SELECT oid, 'zapdb_history_stores'::regclass::oid FROM pg_database"
    " WHERE datname = current_database()"
)
DIGITS: Final = 32


def read_place(connection: Connection) -> str:
    """Return a digest of where the database of a connection is."""
    storage: Storage = connection.storage
    if storage.dialect.name == "sqlite":
        ((_, _, path), *_) = connection.fetch_all("PRAGMA database_list")
        parts = [os.path.realpath(path), os.stat(path).st_ino]  # noqa: PTH116 - of a text
    else:
        parts = [read_server(connection), *connection.fetch_one(_NUMBERS)]
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:DIGITS]


def read_server(connection: Connection) -> str:
    """Return a PostgreSQL server's system identifier; nothing where that is not allowed."""
    (is_allowed,) = connection.fetch_one(
        "SELECT has_function_privilege('pg_control_system()', 'EXECUTE')"
    )
    if not is_allowed:
        return ""
    return str(connection.fetch_one("SELECT system_identifier FROM pg_control_system()")[0])
