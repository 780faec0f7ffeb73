"""The numbers of time zones: appended before anything else is done, never changed, never reused.

A process appends the names that its time zone data know and the table lacks when it opens the
database, so that a writing transaction never has to draw a number
(docs/decisions/0006-zone-numbers-are-synchronised-when-opening.md). A process that reads a number
that was appended later loads the table again.
"""

from __future__ import annotations

from zapdb.catalog import rows
from zapdb.datasets import zone_names
from zapdb.storage import Connection, Storage, TransactionMode
from zapdb.storage.cells import as_number, as_text
from zapdb.values import Zones


def append_zones(storage: Storage) -> None:
    """Give numbers to the zones of this process's data that have none; safe to race."""
    if not _missing(storage.connection()):
        return
    with storage.transaction(TransactionMode.CATALOG) as connection:
        # Locks the counter: who came later reads the table only when this is committed.
        rows.draw(connection, "zone", 0)
        missing = _missing(connection)
        if missing:
            first = rows.draw(connection, "zone", len(missing))
            # Not one statement with some 1,200 parameters: to compose that takes a quarter of the
            # time in which a new database is opened.
            mark = storage.placeholder
            connection.run_many(
                f"INSERT INTO zapdb_zones (number, name) VALUES ({mark}, {mark})",
                list(enumerate(missing, first)),
            )


def _missing(connection: Connection) -> list[str]:
    return sorted(zone_names().difference(_read_names(connection).values()))


def load_zones(connection: Connection) -> Zones:
    """The numbers that the database has; they are read again by whatever thread needs a new one."""
    storage = connection.storage
    return Zones(_read_names(connection), lambda: _read_names(storage.connection()))


def _read_names(connection: Connection) -> dict[int, str]:
    return {
        as_number(number): as_text(name)
        for number, name in connection.fetch_all("SELECT number, name FROM zapdb_zones")
    }
