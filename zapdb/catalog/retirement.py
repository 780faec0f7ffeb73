"""What nothing in force uses any more: retired at once, deleted and dropped when nobody reads it.

The records of a table that a tenant discarded are deleted in batches, with what is archived beside
them; the physical table is dropped once no tenant has records in it. A change of state holds the
gate, and DROP TABLE waits for every open snapshot that read the table: inside the change it would
keep all writers out for as long. So the change only notes what is retired, and a sweep does the
rest later, as far as it can without waiting (rule 27).
"""

from __future__ import annotations

import logging
from typing import Final

import sqlalchemy as sa

from zapdb.catalog import changelog, entries, rows
from zapdb.catalog.history import read_entries
from zapdb.errors import ConcurrencyError, ZapdbError
from zapdb.limits import PAGE_RECORDS_MAX
from zapdb.storage import ArchiveTable, Connection, Mode, Storage
from zapdb.storage.cells import as_bytes
from zapdb.storage.physical import (
    RecordTable,
    drop_record_table_if_empty,
    list_record_tables,
)
from zapdb.storage.tables import FINGERPRINTS

logger = logging.getLogger("zapdb.retirement")

RECORDS: Final = "records"


def retire_record_table(connection: Connection, tenant: int, number: int) -> None:
    rows.put(connection, "retired", _records_key(tenant, number), {})


def is_retired(connection: Connection, tenant: int, number: int, *, lock: bool = False) -> bool:
    """Whether records of a table that the tenant discarded are still to be deleted."""
    return rows.get(connection, "retired", _records_key(tenant, number), lock=lock) is not None


def _records_key(tenant: int, number: int) -> str:
    return f"{RECORDS}/{number}/{tenant}"


def sweep_retired(storage: Storage) -> None:
    """Drop what is retired; what is still being read, or has records, stays for the next sweep."""
    try:
        for key in rows.list_rows(storage.connection(), "retired"):
            try:
                _sweep_one(storage, key)
            except ConcurrencyError:
                logger.info("the table of %s is in use, and stays until the next sweep", key)
        changelog.purge_if_long(storage)
    except ZapdbError as error:
        logger.info("the sweep is left to the next one: %s", error)


def _sweep_one(storage: Storage, key: str) -> None:
    kind, *parts = key.split("/")
    numbers = tuple(map(int, parts))
    if kind == RECORDS:
        number, tenant = numbers
        _sweep_records(storage, tenant, number, key)
    else:
        index, physical, tenant = numbers
        entries.sweep_entries(storage, tenant, index, physical)


def _sweep_records(storage: Storage, tenant: int, number: int, key: str) -> None:
    delete_records(storage, tenant, number, while_retired=True)
    with storage.transaction(Mode.ASIDE) as connection:
        if rows.get(connection, "retired", key, lock=True) is None:
            return  # another sweep was faster
        if not _is_in_force(connection, number):
            drop_record_table_if_empty(connection, number)
        rows.delete(connection, "retired", key)


def drop_unused_record_tables(storage: Storage) -> None:
    """Drop what a tenant that was removed was the last to use, as far as nobody is reading it."""
    try:
        for number in list_record_tables(storage.connection()):
            with storage.transaction(Mode.ASIDE) as connection:
                if not _is_in_force(connection, number):
                    drop_record_table_if_empty(connection, number)
        entries.drop_unused_entry_tables(storage)
    except ConcurrencyError as error:
        logger.info("tables that nobody uses stay for now: %s", error)


def _is_in_force(connection: Connection, number: int) -> bool:
    """Whether any tenant has the table: the last entry of its log there is not its drop."""
    last = (
        sa.select(FINGERPRINTS.c.tenant, sa.func.max(FINGERPRINTS.c.generation).label("generation"))
        .where(FINGERPRINTS.c.table_number == number)
        .group_by(FINGERPRINTS.c.tenant)
        .subquery()
    )
    query = (
        sa.select(FINGERPRINTS.c.tenant)
        .join(
            last,
            (FINGERPRINTS.c.tenant == last.c.tenant)
            & (FINGERPRINTS.c.generation == last.c.generation),
        )
        .where(FINGERPRINTS.c.table_number == number, FINGERPRINTS.c.event != "drop")
        .limit(1)
    )
    return connection.core_execute(query).first() is not None


def delete_records(
    storage: Storage, tenant: int, number: int, *, while_retired: bool = False
) -> int:
    """Delete all records of a tenant's table and what is archived beside them, in short
    transactions; returns how many records.

    With `while_retired`, ends where the table is not retired any more: another sweep was faster,
    and it may be in force again.
    """
    records, deleted = RecordTable(storage, number, tenant), 0
    fields = {
        archived.field.number
        for entry in read_entries(storage.connection(), tenant, number)
        for archived in entry.table.archived
    }
    while True:
        with storage.transaction(Mode.CATALOG) as connection:
            if while_retired and not is_retired(connection, tenant, number, lock=True):
                return deleted
            page = connection.fetch_all(records.page_sql, (b"", PAGE_RECORDS_MAX))
            keys = [as_bytes(key) for key, _ in page]
            connection.run_many(records.delete_sql, [(key,) for key in keys])
            ArchiveTable(records, fields).delete_many(connection, keys)
        if not keys:
            return deleted
        deleted += len(keys)
