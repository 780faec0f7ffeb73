"""The formats in which the cluster's level lets this process write."""

from __future__ import annotations

from zapdb.catalog import rows
from zapdb.catalog.kinds import LevelRow
from zapdb.formats import FormatName, newest
from zapdb.storage import Connection


def format_to_write(connection: Connection, name: FormatName) -> int:
    """The newest number that every process reads, at the level in the connection's snapshot."""
    row = rows.get(connection, LevelRow)
    return newest(name, 1 if row is None else row.level)
