"""The formats in which the cluster's level lets this process write."""

from __future__ import annotations

from zapdb.catalog import rows
from zapdb.formats import FormatName, newest
from zapdb.storage import Connection


def format_to_write(connection: Connection, name: FormatName) -> int:
    """The newest number that every process reads, at the level in the connection's snapshot."""
    return newest(name, rows.level_to_write(connection))
