"""The numbers of time zones: appended when a process opens the database, never changed or reused.

A process that opens the database appends the zones of its time zone data that the table lacks, so
that no writing transaction has to draw a number
(docs/decisions/0006-zone-numbers-are-synchronised-when-opening.md). A process that reads an unknown
number loads the table again.
"""

from __future__ import annotations

from zapdb.catalog import rows
from zapdb.datasets import zone_names
from zapdb.storage import Connection, Storage, TransactionMode
from zapdb.storage.cells import as_number, as_text
from zapdb.values import Zones


def append_zones(storage: Storage) -> None:
    """Give numbers to the zones of this process's data that have none; several processes may do so
    at once."""
    if not _missing(storage.connection()):
        return
    with storage.transaction(TransactionMode.CATALOG) as connection:
        # Locks the counter, so that other processes read the table after this is committed.
        rows.draw(connection, "zone", 0)
        missing = _missing(connection)
        if missing:
            first = rows.draw(connection, "zone", len(missing))
            # Several statements: composing one with some 1,200 parameters takes a quarter of the
            # time of opening a new database.
            mark = storage.placeholder
            connection.run_many(
                f"INSERT INTO zapdb_zones (number, name) VALUES ({mark}, {mark})",
                list(enumerate(missing, first)),
            )


def _missing(connection: Connection) -> list[str]:
    return sorted(zone_names().difference(_read_names(connection).values()))


def load_zones(connection: Connection) -> Zones:
    """Return the zone numbers of the database; a thread that misses one reads them again."""
    storage = connection.storage
    return Zones(_read_names(connection), lambda: _read_names(storage.connection()))


def _read_names(connection: Connection) -> dict[int, str]:
    return {
        as_number(number): as_text(name)
        for number, name in connection.fetch_all("SELECT number, name FROM zapdb_zones")
    }
