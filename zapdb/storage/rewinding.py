"""The records of a table as they were at a moment: the present ones, rewound by the change log.

For each key that was changed since, the record is what the first of these changes had before it;
all other records are as they are now. It is one subquery, so each statement that reads it sees both
in one snapshot: what is written meanwhile is rewound, too.

The bytes are those of then only within a table's span: as long as no schema change has made other
bytes of them (see `zapdb.database.history`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Self

from zapdb.storage.cells import as_bytes, as_number, as_text, optional_bytes
from zapdb.storage.connection import Connection
from zapdb.storage.data_tables import record_table_name
from zapdb.storage.moments import LaterSql, LoggedMoment, Moments
from zapdb.storage.statements import VALUES_PER_STATEMENT

NET_CHANGES_PAGE: Final = 10_000

# Without statistics, SQLite would read all changes since for each key.
_BY_KEY: Final = "INDEXED BY zapdb_changes_by_key"
_FIRST_SQLITE: Final = (
    f"SELECT c.tenant, c.key, c.before FROM zapdb_changes AS c {_BY_KEY}"
    " WHERE {changes} AND c.before IS NOT NULL"
    f" AND NOT EXISTS (SELECT 1 FROM zapdb_changes AS e {_BY_KEY}"
    " WHERE {earlier} AND e.key = c.key AND e.transaction_number < c.transaction_number)"
)


# The changes of one key are in the commit order of their transactions, whatever their stamps.
COMMIT_ORDER: Final = (
    "(SELECT t.commit_order FROM zapdb_transactions AS t"
    " WHERE t.tenant = c.tenant AND t.number = c.transaction_number)"
)
"""Of a change `c`, on PostgreSQL."""


def changes_sql(tenant: int, table: int, later: LaterSql, *, is_numbered: bool) -> str:
    """Return the FROM and WHERE of the changes `c` of a table's records by the transactions that
    fulfil a condition."""
    by_key = _BY_KEY if is_numbered else ""
    return f"zapdb_changes AS c {by_key} WHERE {_condition('c', tenant, table, later)}"


def first_changes_sql(changes: str, order: str = "ASC") -> str:
    """Return the first of the changes `c` of each key, by key, on PostgreSQL: (tenant, key, before)
    rows. Only for keys that changed more than once, the transactions are looked up: for all keys,
    that takes longer than everything else."""
    return (
        "SELECT DISTINCT ON (key) tenant, key, before FROM (SELECT c.tenant, c.key, c.before,"
        f" c.transaction_number, count(*) OVER (PARTITION BY c.key) AS many FROM {changes}) AS c"
        f" ORDER BY key {order}, CASE WHEN many > 1 THEN {COMMIT_ORDER} END"
    )


def first_numbered_sql(
    tenant: int, table: int, changes: str, bounds: tuple[str, str], order: str
) -> str:
    """Return the first of the changes `c` of each key within bounds on `c.key`, by key, on SQLite:
    (key, before) rows. It steps from key to key, and to the first change of each, so it does not
    grow with how often a record was changed. The bounds are those at the beginning and at the end
    in this order; the second one stands in it twice, after the first."""
    beyond, (begin, end) = ">" if order == "ASC" else "<", bounds
    logged = (
        f"SELECT c.key FROM zapdb_changes AS c {_BY_KEY}"
        f" WHERE c.tenant = {int(tenant)} AND c.table_number = {int(table)}"
    )
    last = f"ORDER BY c.key {order} LIMIT 1"
    # No record is empty: without bytes there was none, and null is a key without such a change. The
    # LIMIT keeps SQLite from looking for each change twice.
    return (
        f"WITH RECURSIVE logged(key) AS (SELECT ({logged}{begin}{end} {last})"
        f" UNION ALL SELECT ({logged} AND c.key {beyond} logged.key{end} {last})"
        " FROM logged WHERE logged.key IS NOT NULL)"
        " SELECT key, nullif(before, x'') AS before FROM (SELECT logged.key AS key,"
        f" (SELECT coalesce(c.before, x'') FROM {changes} AND c.key = logged.key"
        " ORDER BY c.transaction_number LIMIT 1) AS before"
        " FROM logged WHERE logged.key IS NOT NULL LIMIT -1) WHERE before IS NOT NULL"
    )


def _condition(name: str, tenant: int, table: int, later: LaterSql) -> str:
    return (
        f"{name}.tenant = {int(tenant)} AND {name}.table_number = {int(table)}"
        f" AND {name}.event IS NULL AND {later(f'{name}.transaction_number')}"
    )


def find_archives_then(
    connection: Connection, changes: str, keys: Sequence[bytes], *, is_numbered: bool
) -> dict[bytes, bytes | None]:
    """Return the cells of archived values before the first of the changes `c` that gave a record
    others, by key, for those keys that have one."""
    found, mark = dict[bytes, bytes | None](), connection.storage.placeholder
    order = "c.transaction_number" if is_numbered else COMMIT_ORDER
    for start in range(0, len(keys), VALUES_PER_STATEMENT):
        some = keys[start : start + VALUES_PER_STATEMENT]
        marks = ", ".join([mark] * len(some))
        rows = connection.fetch_all(
            f"SELECT c.key, c.archive_before FROM {changes} AND c.key IN ({marks})"
            " AND (c.archive_before IS NOT NULL OR c.archive_after IS NOT NULL)"
            f" ORDER BY {order} DESC",
            some,
        )
        found |= {as_bytes(key): None if cell is None else as_bytes(cell) for key, cell in rows}
    return found


def rewound_sql(tenant: int, table: int, later: LaterSql, *, is_numbered: bool) -> str:
    """Return a subquery for the (tenant, key, value) rows of a table before the transactions that
    fulfil a condition."""

    def changes(name: str) -> str:
        return _condition(name, tenant, table, later)

    if is_numbered:
        by_key, first = _BY_KEY, _FIRST_SQLITE.format(changes=changes("c"), earlier=changes("e"))
    else:
        logged = first_changes_sql(changes_sql(tenant, table, later, is_numbered=False))
        by_key, first = "", f"SELECT tenant, key, before FROM ({logged}) AS first"
        first += " WHERE before IS NOT NULL"
    return (
        f"SELECT r.tenant, r.key, r.value FROM {record_table_name(table)} AS r"
        # Not NOT EXISTS, which PostgreSQL makes a join of: of each record with each change.
        f" WHERE r.tenant = {int(tenant)} AND (SELECT 1 FROM zapdb_changes AS c {by_key}"
        f" WHERE {changes('c')} AND c.key = r.key LIMIT 1) IS NULL"
        f" UNION ALL {first}"
    )


class LoggedVersion(NamedTuple):
    """What one transaction made of a record; times in microseconds since 1970-01-01 UTC."""

    before: bytes | None
    after: bytes | None
    principal: str
    made_at: int
    archive_before: bytes | None
    archive_after: bytes | None

    @classmethod
    def from_row(cls, row: Sequence[Any]) -> Self:
        before, after, principal, made_at, *archives = row
        return cls(
            optional_bytes(before),
            optional_bytes(after),
            as_text(principal),
            as_number(made_at),
            *map(optional_bytes, archives),
        )


def list_of_record(
    connection: Connection, moments: Moments, table: int, key: bytes
) -> list[tuple[LoggedMoment, LoggedVersion]]:
    """Return the changes of one record that have a stamp, in order, with their moments."""
    tenant, mark = moments.log.tenant, connection.storage.placeholder
    later = moments.find_later(connection, moments.find_newest(connection))
    rows = connection.fetch_all(
        "SELECT t.number, c.before, c.after, t.principal, t.made_at, c.archive_before,"
        " c.archive_after FROM zapdb_changes AS c"
        " JOIN zapdb_transactions AS t ON t.tenant = c.tenant AND t.number = c.transaction_number"
        f" WHERE c.tenant = {tenant} AND c.table_number = {int(table)} AND c.key = {mark}"
        f" AND c.event IS NULL AND NOT {later('c.transaction_number')} ORDER BY t.commit_order",
        (key,),
    )
    return [
        (moments.find_transaction(connection, as_number(number)), LoggedVersion.from_row(row))
        for number, *row in rows
    ]


def find_drop(
    connection: Connection, moments: Moments, table: int
) -> tuple[LoggedMoment, str, int] | None:
    """Return the moment at which a table was dropped for the last time, by whom, and when, if the
    log has it with a stamp."""
    tenant = moments.log.tenant
    later = moments.find_later(connection, moments.find_newest(connection))
    found = connection.fetch_one(
        "SELECT t.number, t.principal, t.made_at FROM zapdb_changes AS c"
        " JOIN zapdb_transactions AS t ON t.tenant = c.tenant AND t.number = c.transaction_number"
        f" WHERE c.tenant = {tenant} AND c.table_number = {int(table)} AND c.event = 'drop'"
        f" AND NOT {later('c.transaction_number')} ORDER BY t.commit_order DESC LIMIT 1"
    )
    if found is None:
        return None
    number, principal, made_at = found
    moment = moments.find_transaction(connection, as_number(number))
    return moment, as_text(principal), as_number(made_at)


class NetChange(NamedTuple):
    """What became of a record between two moments."""

    key: bytes
    before: bytes | None
    after: bytes | None
    archive_after: bytes | None
    """All archived values then, if the last change gave it others."""


def list_net_changes(
    connection: Connection,
    moments: Moments,
    between: tuple[LoggedMoment, LoggedMoment],
    table: int,
    behind: bytes,
) -> list[NetChange]:
    """Return one page of the records of a table that changed after the first moment and not after
    the second, by their keys behind one; none ends it."""
    since, until = (moments.find_later(connection, moment) for moment in between)
    column, mark = "c.transaction_number", connection.storage.placeholder
    rows = connection.fetch_all(
        "SELECT key, before, after, archive_after FROM (SELECT c.key,"
        " first_value(c.before) OVER forwards AS before,"
        " first_value(c.after) OVER backwards AS after,"
        " first_value(c.archive_after) OVER backwards AS archive_after,"
        " row_number() OVER forwards AS place"
        " FROM zapdb_changes AS c JOIN zapdb_transactions AS t"
        " ON t.tenant = c.tenant AND t.number = c.transaction_number"
        f" WHERE c.tenant = {moments.log.tenant} AND c.table_number = {int(table)}"
        f" AND c.event IS NULL AND {since(column)} AND NOT {until(column)} AND c.key > {mark}"
        " WINDOW forwards AS (PARTITION BY c.key ORDER BY t.commit_order), backwards AS"
        " (PARTITION BY c.key ORDER BY t.commit_order DESC)) AS changed"
        f" WHERE place = 1 ORDER BY key LIMIT {NET_CHANGES_PAGE}",
        (behind,),
    )
    return [NetChange(as_bytes(key), *map(optional_bytes, rest)) for key, *rest in rows]
