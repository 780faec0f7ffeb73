"""The tables that hold records and index entries, one each per zapdb table and index (rule 27).

Their names consist of numbers, so a user's names never become part of a statement. All tenants
share the tables.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

import sqlalchemy

from zapdb.storage.cells import as_number
from zapdb.storage.connection import Connection

RECORD_TABLE: Final = re.compile(r"zapdb_records_([1-9][0-9]*)")


def record_table_name(number: int) -> str:
    return f"zapdb_records_{int(number)}"


def index_table_name(entry_table: int) -> str:
    return f"zapdb_entries_{int(entry_table)}"


def create_record_table(connection: Connection, number: int) -> None:
    connection.run(connection.storage.dialect.create_record_table_sql(record_table_name(number)))


def create_index_table(connection: Connection, entry_table: int, *, unique: bool) -> None:
    name = index_table_name(entry_table)
    connection.run(connection.storage.dialect.create_index_table_sql(name, unique=unique))


def drop_index_table(connection: Connection, entry_table: int) -> None:
    connection.run(f"DROP TABLE IF EXISTS {index_table_name(entry_table)}")


def list_tenant_tables(connection: Connection) -> dict[str, list[str]]:
    """Return all tables with a column `tenant`, with the other columns of their keys."""
    found = {}
    inspector, schema = sqlalchemy.inspect(connection.core), connection.storage.dialect.home_name
    for name in connection.storage.dialect.table_names(connection):
        columns = [column["name"] for column in inspector.get_columns(name, schema)]
        if "tenant" in columns:
            key = inspector.get_pk_constraint(name, schema)["constrained_columns"]
            found[name] = [column for column in key if column != "tenant"]
    return found


def delete_of_tenant(
    connection: Connection, table: str, key: Sequence[str], tenant: int, limit: int
) -> int:
    """Delete some of a tenant's rows of any table, identified by `key`; returns their number."""
    mine = f"tenant = {int(tenant)}"
    if not key:
        return connection.run(f"DELETE FROM {table} WHERE {mine}")
    columns = ", ".join(key)
    return connection.run(
        f"DELETE FROM {table} WHERE {mine} AND ({columns}) IN"
        f" (SELECT {columns} FROM {table} WHERE {mine} LIMIT {int(limit)})"
    )


def delete_index_entries(connection: Connection, entry_table: int, tenant: int, limit: int) -> int:
    """Delete some of a tenant's entries; returns their number."""
    name, mark = index_table_name(entry_table), connection.storage.placeholder
    rows = connection.fetch_all(
        f"SELECT key, record FROM {name} WHERE tenant = {int(tenant)} LIMIT {int(limit)}"
    )
    connection.run_many(
        f"DELETE FROM {name} WHERE tenant = {int(tenant)} AND key = {mark} AND record = {mark}",
        rows,
    )
    return len(rows)


def list_record_tables(connection: Connection) -> list[int]:
    """Return the numbers of all existing record tables, also of retired ones."""
    found = (
        RECORD_TABLE.fullmatch(name) for name in connection.storage.dialect.table_names(connection)
    )
    return sorted(int(match[1]) for match in found if match)


def list_tenants_with_records(connection: Connection, number: int) -> Iterator[int]:
    """Return the tenants that have records in a table, by one search in its index for each."""
    name, mark = record_table_name(number), connection.storage.placeholder
    (tenant,) = connection.fetch_one(f"SELECT min(tenant) FROM {name}")
    while tenant is not None:
        yield as_number(tenant)
        (tenant,) = connection.fetch_one(
            f"SELECT min(tenant) FROM {name} WHERE tenant > {mark}", (tenant,)
        )


def drop_record_table_if_empty(connection: Connection, number: int) -> bool:
    """Drop the table if no tenant has records in it; returns whether it was dropped."""
    name = record_table_name(number)
    empty = connection.fetch_one(f"SELECT 1 FROM {name} LIMIT 1") is None
    if empty:
        connection.run(f"DROP TABLE {name}")
    return empty
