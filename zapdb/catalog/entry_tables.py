"""Which entry table holds the entries of a tenant's index (rules 23 and 27).

Tenants share the entry tables of an index. A tenant that rebuilds an index while its old entries
still exist gets another entry table of the same index, without entries of this tenant; a new one is
created only if there is none.
"""

from __future__ import annotations

import sqlalchemy as sa

from zapdb.catalog import rows
from zapdb.catalog.row_kinds import EntryTableRow, IndexRow, RetiredEntries
from zapdb.catalog.row_values import load_row
from zapdb.limits import PAGE_RECORDS_MAX
from zapdb.schema import Index
from zapdb.storage import Connection, Storage, TransactionMode
from zapdb.storage.data_tables import create_index_table, delete_index_entries, drop_index_table
from zapdb.storage.fixed_tables import CATALOG


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
