"""Which entry table holds the entries of a tenant's index, and tables that no active schema uses.

Tenants share the entry tables of an index (rules 23 and 27). A tenant that rebuilds an index while
its old entries still exist gets another entry table of the same index, without entries of this
tenant; a new one is created only if there is none.

DROP TABLE waits for every open snapshot that has read the table. Inside a schema change, which
holds the gate, it would block all writers for as long. So the change only marks the table as
retired. A sweep later deletes the records in batches, with their archived values, and drops the
record table when no tenant has records in it. The sweep skips tables that it would have to wait for
(rule 27).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial

import sqlalchemy as sa

from zapdb.catalog import feed, rows
from zapdb.catalog.cache import SomeRows
from zapdb.catalog.row_kinds import EntryTableRow, IndexRow, RetiredEntries, RetiredRecords
from zapdb.catalog.rows import load_row
from zapdb.errors import ConcurrencyError, ZapdbError
from zapdb.limits import PAGE_RECORDS_MAX
from zapdb.schema import Index
from zapdb.storage import Connection, Storage, TransactionMode
from zapdb.storage.archives import delete_archives_of
from zapdb.storage.cells import as_bytes
from zapdb.storage.data_tables import (
    create_index_table,
    delete_index_entries,
    drop_index_table,
    drop_record_table_if_empty,
    list_record_tables,
)
from zapdb.storage.fixed_tables import CATALOG, SCHEMA_HISTORY
from zapdb.storage.record_statements import RecordStatements

logger = logging.getLogger("zapdb.retirement")


Retired = RetiredEntries | RetiredRecords


def retire_record_table(connection: Connection, tenant: int, number: int) -> None:
    rows.put(connection, RetiredRecords(number, tenant))


def is_retired(connection: Connection, tenant: int, number: int, *, lock: bool = False) -> bool:
    """Return whether records of a table that the tenant discarded are still to be deleted."""
    return rows.get(connection, RetiredRecords, number, tenant, lock=lock) is not None


def list_retired(connection: Connection) -> list[Retired]:
    """Return the retired tables, which the next sweep deletes."""
    found = SomeRows.read(connection, [RetiredEntries, RetiredRecords])
    return [*found.list(RetiredEntries), *found.list(RetiredRecords)]


def sweep_retired(storage: Storage) -> None:
    """Drop retired tables; tables that are still being read, or have records, stay for the next
    sweep."""
    try:
        for retired in list_retired(storage.connection()):
            try:
                _sweep_one(storage, retired)
            except ConcurrencyError:
                logger.info("a retired table is in use; the next sweep drops it: %s", retired)
        feed.purge_if_long(storage)
    except ZapdbError as error:
        logger.info("the sweep of retired tables stopped; the next one continues: %s", error)


def _sweep_one(storage: Storage, retired: Retired) -> None:
    if isinstance(retired, RetiredEntries):
        sweep_retired_entries(storage, retired)
    else:
        _sweep_records(storage, retired)


def _sweep_records(storage: Storage, retired: RetiredRecords) -> None:
    with suppress(_NotRetired):  # another sweep was faster, and the table may be active again
        begin = partial(_begin_sweeping, storage, retired)
        delete_records(storage, retired.tenant, retired.table, begin)
    with storage.transaction(TransactionMode.NOWAIT) as connection:
        if rows.get(connection, RetiredRecords, retired.key, lock=True) is None:
            return  # another sweep was faster
        if not _is_active(connection, retired.table):
            drop_record_table_if_empty(connection, retired.table)
        rows.delete(connection, RetiredRecords, retired.key)


class _NotRetired(Exception):
    """A table is no longer retired."""


@contextmanager
def _begin_sweeping(storage: Storage, retired: RetiredRecords) -> Iterator[Connection]:
    with storage.transaction(TransactionMode.CATALOG) as connection:
        if not is_retired(connection, retired.tenant, retired.table, lock=True):
            raise _NotRetired
        yield connection


def drop_unused_record_tables(storage: Storage) -> None:
    """Drop the tables that only a removed tenant used, except those that are being read."""
    try:
        for number in list_record_tables(storage.connection()):
            with storage.transaction(TransactionMode.NOWAIT) as connection:
                if not _is_active(connection, number):
                    drop_record_table_if_empty(connection, number)
        drop_unused_entry_tables(storage)
    except ConcurrencyError as error:
        logger.info("unused tables could not be locked; a later sweep drops them: %s", error)


def _is_active(connection: Connection, number: int) -> bool:
    """Return whether any tenant has the table: the newest entry of its schema history there is not
    its drop."""
    last = (
        sa.select(SCHEMA_HISTORY.c.tenant, sa.func.max(SCHEMA_HISTORY.c.revision).label("revision"))
        .where(SCHEMA_HISTORY.c.table_number == number)
        .group_by(SCHEMA_HISTORY.c.tenant)
        .subquery()
    )
    query = (
        sa.select(SCHEMA_HISTORY.c.tenant)
        .join(
            last,
            (SCHEMA_HISTORY.c.tenant == last.c.tenant)
            & (SCHEMA_HISTORY.c.revision == last.c.revision),
        )
        .where(SCHEMA_HISTORY.c.table_number == number, SCHEMA_HISTORY.c.event != "drop")
        .limit(1)
    )
    return connection.core_execute(query).first() is not None


def delete_records(
    storage: Storage,
    tenant: int,
    number: int,
    begin: Callable[[], AbstractContextManager[Connection]],
) -> int:
    """Delete all records of a tenant's table and their archived values, in short transactions;
    returns the number of records. `begin` begins a transaction, and raises to end it all: the table
    may be active again."""
    records, deleted = RecordStatements(storage, number, tenant), 0
    while True:
        with begin() as connection:
            page = connection.fetch_all(records.page_sql, (b"", PAGE_RECORDS_MAX))
            keys = [as_bytes(key) for key, _ in page]
            connection.run_many(records.delete_sql, [(key,) for key in keys])
            # The cells of migrations that were rolled back are in no schema.
            delete_archives_of(connection, records, keys)
        if not keys:
            return deleted
        deleted += len(keys)


def assign_entry_table(connection: Connection, tenant: int, index: Index) -> int:
    """Return the number of an entry table without entries of the tenant, inside a DDL
    transaction."""
    for row in rows.list_rows(connection, EntryTableRow, index.number):
        waiting = rows.get(connection, RetiredEntries, index.number, row.entry_table, tenant)
        if row.unique == index.unique and waiting is None:
            return row.entry_table
    entry_table = rows.draw(connection, "entry_table")
    create_index_table(connection, entry_table, unique=index.unique)
    rows.put(connection, EntryTableRow(index.number, entry_table, index.unique))
    return entry_table


def retire_entries(connection: Connection, tenant: int, index: int, entry_table: int) -> None:
    """Note that a tenant's entries are no longer needed."""
    rows.put(connection, RetiredEntries(index, entry_table, tenant))


def sweep_retired_entries(storage: Storage, retired: RetiredEntries) -> None:
    """Drop an entry table that no tenant uses, or delete the tenant's entries if others use it.

    Raises `ConcurrencyError` while a transaction is still reading the table.
    """
    index, entry_table = retired.index, retired.entry_table
    with storage.transaction(TransactionMode.NOWAIT) as connection:
        if rows.get(connection, RetiredEntries, retired.key, lock=True) is None:
            return  # another sweep was faster
        if not _is_needed(connection, index, entry_table, but=retired):
            drop_index_table(connection, entry_table)
            rows.delete(connection, EntryTableRow, index, entry_table)
            rows.delete(connection, RetiredEntries, retired.key)
            return
    while True:
        with storage.transaction(TransactionMode.CATALOG) as connection:
            # Once the row is deleted, the tenant may rebuild the index in this table.
            if rows.get(connection, RetiredEntries, retired.key, lock=True) is None:
                return
            if not delete_index_entries(connection, entry_table, retired.tenant, PAGE_RECORDS_MAX):
                rows.delete(connection, RetiredEntries, retired.key)
                return


def drop_unused_entry_tables(storage: Storage) -> None:
    """Drop the entry tables that no tenant uses or has entries in.

    Raises `ConcurrencyError` while a transaction is still reading one.
    """
    for row in rows.list_rows(storage.connection(), EntryTableRow):
        with storage.transaction(TransactionMode.NOWAIT) as connection:
            if not _is_needed(connection, row.index, row.entry_table):
                drop_index_table(connection, row.entry_table)
                rows.delete(connection, EntryTableRow, row.key)


def _is_needed(
    connection: Connection, index: int, entry_table: int, but: RetiredEntries | None = None
) -> bool:
    """Return whether a state of the index names the table, or it has entries to be deleted."""
    if any(row != but for row in rows.list_rows(connection, RetiredEntries, index, entry_table)):
        return True
    states = sa.select(CATALOG.c.key, CATALOG.c.value).where(
        CATALOG.c.kind == IndexRow.KIND,
        CATALOG.c.key.endswith(f"/{index}", autoescape=True),
        CATALOG.c.value.is_not(None),
    )
    return any(
        load_row(IndexRow, key, text).entry_table == entry_table
        for key, text in connection.core_execute(states)
    )
