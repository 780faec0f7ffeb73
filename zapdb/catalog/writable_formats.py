"""The formats that the cluster level allows this process to write."""

from __future__ import annotations

from zapdb.catalog import rows
from zapdb.formats import FormatName, newest
from zapdb.storage import Connection


def format_to_write(connection: Connection, name: FormatName) -> int:
    """Return the newest format that every process reads, at the cluster level of the connection's
    snapshot."""
    return newest(name, rows.level_to_write(connection))
