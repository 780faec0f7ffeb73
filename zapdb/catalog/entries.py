"""Which physical table holds the entries of a tenant's index (rules 23 and 27).

Tenants share the physical tables of an index. One that begins an index anew, while its old entries
are still there, gets another table of the same index, one that holds nothing of its own; a new one
is created only where there is none.
"""

from __future__ import annotations

import sqlalchemy as sa

from zapdb.catalog import rows
from zapdb.catalog.kinds import load_value
from zapdb.limits import PAGE_RECORDS_MAX
from zapdb.schema import Index
from zapdb.storage import Connection, Mode, Storage
from zapdb.storage.physical import create_index_table, delete_index_entries, drop_index_table
from zapdb.storage.tables import CATALOG


def assign(connection: Connection, tenant: int, index: Index) -> int:
    """The number of a physical table without entries of the tenant, inside a CHANGE transaction."""
    for key, row in rows.list_rows(connection, "physical", f"{index.number}/").items():
        physical = int(key.split("/")[1])
        is_waiting = rows.get(connection, "retired", retired_key(index.number, physical, tenant))
        if row["unique"] == index.unique and is_waiting is None:
            return physical
    physical = rows.draw(connection, "physical")
    create_index_table(connection, physical, unique=index.unique)
    key = f"{index.number}/{physical}"
    rows.put(connection, "physical", key, {"unique": index.unique})
    return physical


def retired_key(index: int, physical: int, tenant: int) -> str:
    return f"index/{index}/{physical}/{tenant}"


def retire(connection: Connection, tenant: int, index: int, physical: int) -> None:
    """Note that a tenant's entries are no longer needed."""
    rows.put(connection, "retired", retired_key(index, physical, tenant), {})


def sweep_entries(storage: Storage, tenant: int, index: int, physical: int) -> None:
    """Drop a physical table that nobody uses, or delete the tenant's entries where others do.

    Raises `ConcurrencyError` where somebody is still reading the table.
    """
    key = retired_key(index, physical, tenant)
    with storage.transaction(Mode.ASIDE) as connection:
        if rows.get(connection, "retired", key, lock=True) is None:
            return  # another sweep was faster
        if not _is_needed(connection, index, physical, key):
            drop_index_table(connection, physical)
            rows.delete(connection, "physical", f"{index}/{physical}")
            rows.delete(connection, "retired", key)
            return
    while True:
        with storage.transaction(Mode.CATALOG) as connection:
            # Once the row is gone, the tenant may have begun the index anew in this very table.
            if rows.get(connection, "retired", key, lock=True) is None:
                return
            if not delete_index_entries(connection, physical, tenant, PAGE_RECORDS_MAX):
                rows.delete(connection, "retired", key)
                return


def drop_unused_entry_tables(storage: Storage) -> None:
    """Drop the tables of entries that no tenant uses, and none has anything left in.

    Raises `ConcurrencyError` where somebody is still reading one.
    """
    for key in rows.list_rows(storage.connection(), "physical"):
        index, physical = map(int, key.split("/"))
        with storage.transaction(Mode.ASIDE) as connection:
            if not _is_needed(connection, index, physical):
                drop_index_table(connection, physical)
                rows.delete(connection, "physical", key)


def _is_needed(connection: Connection, index: int, physical: int, but: str = "") -> bool:
    """Whether a state of the index names the table, or entries in it are still to be deleted."""
    waiting = sa.select(CATALOG.c.key).where(
        CATALOG.c.kind == "retired",
        CATALOG.c.key.startswith(f"index/{index}/{physical}/", autoescape=True),
        CATALOG.c.key != but,
        CATALOG.c.value.is_not(None),
    )
    if connection.core_execute(waiting.limit(1)).first() is not None:
        return True
    states = sa.select(CATALOG.c.key, CATALOG.c.value).where(
        CATALOG.c.kind == "index",
        CATALOG.c.key.endswith(f"/{index}", autoescape=True),
        CATALOG.c.value.is_not(None),
    )
    return any(
        load_value("index", key, text)["entry_table"] == physical
        for key, text in connection.core_execute(states)
    )
