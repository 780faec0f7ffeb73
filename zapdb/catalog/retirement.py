"""Physical tables that nothing in force uses any more: retired at once, dropped when nobody reads.

A change of state holds the gate, and DROP TABLE waits for every open snapshot that read the table:
inside the change it would keep all writers out for as long. So the change only notes the table, and
a sweep drops it later, if it can do so without waiting (rule 27).
"""

from __future__ import annotations

import logging

from zapdb.catalog import rows
from zapdb.errors import ConcurrencyError, ZapdbError
from zapdb.storage import Connection, Mode, Storage
from zapdb.storage.physical import drop_index_table, drop_record_table_if_empty

logger = logging.getLogger("zapdb.retirement")

INDEX, RECORDS = "index", "records"


def retire_index_table(connection: Connection, physical: int) -> None:
    rows.put(connection, "retired", f"{INDEX}/{physical}", {})


def retire_record_table(connection: Connection, number: int) -> None:
    rows.put(connection, "retired", f"{RECORDS}/{number}", {})


def sweep(storage: Storage) -> None:
    """Drop what is retired; what is still being read, or has records, stays for the next sweep."""
    try:
        for key in rows.list_rows(storage.connection(), "retired"):
            _drop(storage, key)
    except ZapdbError as error:
        logger.info("the sweep is left to the next one: %s", error)


def _drop(storage: Storage, key: str) -> None:
    kind, _, number = key.partition("/")
    try:
        with storage.transaction(Mode.ASIDE) as connection:
            if kind == INDEX:
                drop_index_table(connection, int(number))
            elif not drop_record_table_if_empty(connection, int(number)):
                return
            rows.delete(connection, "retired", key)
    except ConcurrencyError:
        logger.info("the table of %s is in use, and stays until the next sweep", key)
