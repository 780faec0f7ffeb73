"""What nothing in force uses any more: retired at once, deleted and dropped when nobody reads it.

The records of a table that a tenant discarded are deleted in batches, with what is archived beside
them; the physical table is dropped once no tenant has records in it. A change of state holds the
gate, and DROP TABLE waits for every open snapshot that read the table: inside the change it would
keep all writers out for as long. So the change only notes what is retired, and a sweep does the
rest later, as far as it can without waiting (rule 27).
"""

from __future__ import annotations

import logging

from zapdb.catalog import rows
from zapdb.catalog.history import read_entries
from zapdb.errors import ConcurrencyError, ZapdbError
from zapdb.limits import PAGE_RECORDS_MAX
from zapdb.storage import ArchiveTable, Connection, Mode, Storage
from zapdb.storage.physical import RecordTable, drop_index_table, drop_record_table_if_empty

logger = logging.getLogger("zapdb.retirement")

INDEX, RECORDS = "index", "records"


def retire_index_table(connection: Connection, physical: int) -> None:
    rows.put(connection, "retired", f"{INDEX}/{physical}", {})


def retire_record_table(connection: Connection, tenant: int, number: int) -> None:
    rows.put(connection, "retired", _records_key(tenant, number), {})


def is_retired(connection: Connection, tenant: int, number: int) -> bool:
    """Whether records of a table that the tenant discarded are still to be deleted."""
    return rows.get(connection, "retired", _records_key(tenant, number)) is not None


def _records_key(tenant: int, number: int) -> str:
    return f"{RECORDS}/{number}/{tenant}"


def sweep(storage: Storage) -> None:
    """Drop what is retired; what is still being read, or has records, stays for the next sweep."""
    try:
        for key in rows.list_rows(storage.connection(), "retired"):
            _drop(storage, key)
    except ZapdbError as error:
        logger.info("the sweep is left to the next one: %s", error)


def _drop(storage: Storage, key: str) -> None:
    kind, *numbers = key.split("/")
    try:
        if kind == RECORDS:
            number, tenant = map(int, numbers)
            delete_records(storage, tenant, number)
        with storage.transaction(Mode.ASIDE) as connection:
            if kind == INDEX:
                drop_index_table(connection, int(numbers[0]))
            else:
                drop_record_table_if_empty(connection, number)
            rows.delete(connection, "retired", key)
    except ConcurrencyError:
        logger.info("the table of %s is in use, and stays until the next sweep", key)


def delete_records(storage: Storage, tenant: int, number: int) -> int:
    """Delete all records of a tenant's table and what is archived beside them, in short
    transactions; returns how many records."""
    records, deleted = RecordTable(storage, number, tenant), 0
    fields = {
        archived.field.number
        for entry in read_entries(storage.connection(), tenant, number)
        for archived in entry.table.archived
    }
    while True:
        with storage.transaction(Mode.CATALOG) as connection:
            page = connection.fetch_all(records.page_sql, (b"", PAGE_RECORDS_MAX))
            keys = [bytes(key) for key, _ in page]
            connection.run_many(records.delete_sql, [(key,) for key in keys])
            ArchiveTable(records, fields).delete_many(connection, keys)
        if not keys:
            return deleted
        deleted += len(keys)
