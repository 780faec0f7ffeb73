"""Incarnations: on PostgreSQL, the servers that a database has lived on, one after the other.

The change log numbers transactions by the server's ids, and compares them with the server's
snapshots. Where a dump is loaded into another server, ids begin anew, or are those of others. So
each server is an incarnation, and the number of a transaction is made of both: the incarnation in
the upper bits, the id in the lower 48. All that another server did before has lower numbers, and
every snapshot of this one shows it. The first incarnation is 0, and its numbers are the ids.

A server is recognised by the row of its incarnation, which names the transaction that wrote it.
PostgreSQL knows which one did (`xmin`): of a row that was loaded from a dump, it is another one, so
nothing is numbered by that row. Replicas, base backups and `pg_upgrade` copy the row together with
the server's ids. Two new servers may have used the same id. So the row also has the server's system
identifier, which is compared when a process opens the database. It would not do alone: servers that
were made of one image have the same.
"""

from __future__ import annotations

from typing import Final

from zapdb.errors import CorruptCatalog
from zapdb.storage.cells import as_number, as_text, reading
from zapdb.storage.connection import Connection
from zapdb.storage.database_place import read_server
from zapdb.storage.driver_errors import not_numbered
from zapdb.storage.fixed_tables import INCARNATIONS
from zapdb.storage.storage import Storage
from zapdb.storage.transaction_modes import TransactionMode

ID_BITS: Final = 48
"""Of a server's transaction id: at 100,000 a second they last for 89 years. An incarnation has the
15 bits above, which leaves the sign."""
NUMBER_MAX: Final = (1 << 63 - ID_BITS) - 1

_IS_NUMBER: Final = f"number BETWEEN 0 AND {NUMBER_MAX}"
"""Rows with another number are refused where a process opens the database, and count for none."""

# xmin has the lower 32 bits. The row of another server has another one's.
_XMIN: Final = 4294967295
_HERE: Final = (
    f"SELECT max(number) << {ID_BITS} FROM zapdb_incarnations"
    f" WHERE xmin::text::bigint = began_by & {_XMIN} AND {_IS_NUMBER}"
)
_ID: Final = "pg_current_xact_id()::text::bigint"
_TABLE: Final = "'zapdb_incarnations'::regclass::oid"
FIRST_NUMBER_SQL: Final = (
    f"coalesce(({_HERE}), (SELECT (coalesce(max(number), -1) + 1) << {ID_BITS}"
    f" FROM zapdb_incarnations WHERE {_IS_NUMBER}))"
)
"""What the numbers of this server's transactions are above, even before its incarnation began."""


def transaction_number_sql(connection: Connection) -> str:
    """Return the expression for the number of a transaction, null on another server.

    What it needs is read once, not by each transaction: a dump makes another table, whose OID the
    expression compares; the planner does so, once. Raises `TransactionConflict` on a server without
    an incarnation.
    """
    storage = connection.storage
    if storage.incarnation is None:
        oid, begun = connection.fetch_one(f"SELECT {_TABLE}, ({_HERE})")
        if begun is None:
            raise not_numbered(storage.shown_url)
        storage.incarnation = (as_number(oid), as_number(begun))
    table, first = storage.incarnation
    return f"CASE WHEN {_TABLE} = {table} THEN {first} + {_ID} END"


def ensure_incarnation(storage: Storage) -> None:
    """See that this server has an incarnation: two queries, unless the database was moved to it."""
    if storage.dialect.name == "sqlite" or storage.read_only:
        return
    storage.incarnation = None  # to be read again
    server = read_server(storage.connection())
    if _is_here(storage.connection(), server):
        return
    with storage.transaction(TransactionMode.DDL) as connection:  # beside no writer
        if not _is_here(connection, server):
            _begin_incarnation(connection, server)


def _is_here(connection: Connection, server: str) -> bool:
    # Compared as by `_HERE`, which takes a new session five times as long to plan.
    found = connection.fetch_all(
        "SELECT number, server, began_by, xmin::text FROM zapdb_incarnations"
    )
    with reading(INCARNATIONS.name):
        for number, *_ in found:
            if not 0 <= as_number(number) <= NUMBER_MAX:
                raise ValueError(f"number is {number}, and not from 0 to {NUMBER_MAX}")
        here = [
            (number, as_text(name))
            for number, name, began_by, xmin in found
            if int(xmin) == as_number(began_by) & _XMIN
        ]
    if not here:
        return False
    _, name = max(here)
    return not name or not server or name == server


def _begin_incarnation(connection: Connection, server: str) -> None:
    mark = connection.storage.placeholder
    clock_sql = connection.storage.dialect.clock_sql
    connection.run(
        "INSERT INTO zapdb_incarnations (number, server, began_by, began_at)"
        f" SELECT coalesce(max(number), -1) + 1, {mark}, {_ID}, ({clock_sql})"
        " FROM zapdb_incarnations",
        (server,),
    )
    if not _is_here(connection, server):
        raise CorruptCatalog(
            "the row of the new incarnation is not of this transaction",
            database=connection.storage.shown_url,
            table=INCARNATIONS.name,
            hint="the table must have no triggers and rules: drop them",
        )
    # A dump has its sequences, but other ways of copying tables leave them behind.
    connection.run(
        "SELECT setval('zapdb_commit_order', greatest(nextval('zapdb_commit_order'),"
        " (SELECT max(commit_order) FROM zapdb_transactions)))"
    )
