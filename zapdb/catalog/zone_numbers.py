"""The numbers of time zones: appended when a process opens the database, never changed or reused.

A process that opens the database appends the zones of its time zone data that the table lacks, so
that no writing transaction has to draw a number (decisions/0006). A process that reads an unknown
number loads the table again.
"""

from __future__ import annotations

from collections.abc import Mapping

from zapdb.catalog import rows
from zapdb.datasets import zone_names
from zapdb.storage import Connection, Storage, TransactionMode
from zapdb.storage.cells import as_number, as_text
from zapdb.values import Zones


def append_zones(storage: Storage) -> None:
    """Give numbers to the zones of this process's data that have none; several processes may do so
    at once."""
    # Nothing that was read once is ever taken back, so only what seems to lack is looked for again.
    zones = load_zones(storage.connection())
    if not _missing(zones.names):
        return
    with storage.transaction(TransactionMode.CATALOG) as connection:
        # Locks the counter, so that other processes read the table after this is committed.
        rows.draw(connection, "zone", 0)
        missing = _missing(_read_names(connection))
        if missing:
            first = rows.draw(connection, "zone", len(missing))
            # Several statements: composing one with some 1,200 parameters takes a quarter of the
            # time of opening a new database.
            mark = storage.placeholder
            connection.run_many(
                f"INSERT INTO zapdb_zones (number, name) VALUES ({mark}, {mark})",
                list(enumerate(missing, first)),
            )
    zones.reload()


def _missing(names: Mapping[int, str]) -> list[str]:
    return sorted(zone_names().difference(names.values()))


def load_zones(connection: Connection) -> Zones:
    """Return the zone numbers of the database, the same object at each call for a storage: it reads
    the table at the first one, and when a number or a name is missing."""
    storage = connection.storage
    if storage.zones is None:
        storage.zones = Zones(_read_names(connection), lambda: _read_names(storage.connection()))
    return storage.zones


def _read_names(connection: Connection) -> dict[int, str]:
    found = connection.fetch_all("SELECT number, name FROM zapdb_zones")
    names = dict(found)
    # Some 600, which each process reads: the types of all are looked at together.
    if set(map(type, names)) <= {int} and set(map(type, names.values())) <= {str}:
        return names
    return {as_number(number): as_text(name) for number, name in found}
