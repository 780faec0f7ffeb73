"""What the change log has of one record, for erasing it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from zapdb.log.change_log import START, Bookmark, ChangeLog
from zapdb.log.moments import Moments
from zapdb.log.pending_changes import LoggedChange
from zapdb.records import decode_prefix
from zapdb.storage.cells import as_bytes, as_number, optional_bytes
from zapdb.storage.connection import Connection

VERSIONS_PAGE: Final = 500


def list_versions_of(
    connection: Connection, tenant: int, table: int, key: bytes
) -> Iterator[list[tuple[int, LoggedChange]]]:
    """Yield the logged changes of a record, page by page, with the numbers of their
    transactions."""
    mark, after = connection.storage.placeholder, 0
    sql = (
        "SELECT transaction_number, before, after, archive_before, archive_after FROM zapdb_changes"
        f" WHERE {_of(tenant, table, mark)} AND transaction_number > {mark}"
        f" ORDER BY transaction_number LIMIT {VERSIONS_PAGE}"
    )
    while page := connection.fetch_all(sql, (key, after)):
        yield [(as_number(row[0]), LoggedChange(*map(optional_bytes, row[1:]))) for row in page]
        after = as_number(page[-1][0])


def list_logged_keys(
    connection: Connection, place: tuple[int, int], after: bytes, limit: int
) -> list[bytes]:
    """Return the first keys behind one that have logged changes, by tenant and table."""
    (tenant, table), mark = place, connection.storage.placeholder
    rows = connection.fetch_all(
        f"SELECT DISTINCT key FROM zapdb_changes WHERE tenant = {int(tenant)}"
        f" AND table_number = {int(table)} AND event IS NULL AND key > {mark}"
        f" ORDER BY key LIMIT {int(limit)}",
        (after,),
    )
    return [as_bytes(key) for (key,) in rows]


def list_logged_revisions(connection: Connection, tenant: int, table: int) -> list[tuple[int, int]]:
    """Return the numbers of the transactions that gave a table another revision, each with that
    revision, the oldest first."""
    rows = connection.fetch_all(
        f"SELECT transaction_number, after FROM zapdb_changes WHERE tenant = {int(tenant)}"
        f" AND table_number = {int(table)} AND event IS NOT NULL AND length(after) > 0"
        " ORDER BY transaction_number"
    )
    return [(as_number(number), decode_prefix(as_bytes(made), 0)[0]) for number, made in rows]


def delete_versions(connection: Connection, tenant: int, table: int, key: bytes) -> int:
    """Delete all logged changes of a record; returns how many. Their transactions stay, which
    number the moments."""
    mark = connection.storage.placeholder
    return connection.run(f"DELETE FROM zapdb_changes WHERE {_of(tenant, table, mark)}", (key,))


def replace_version(
    connection: Connection,
    place: tuple[int, int, int, bytes],
    change: LoggedChange,
) -> None:
    """Store a logged change as another one, by tenant, table, transaction's number and key."""
    tenant, table, transaction, key = place
    mark = connection.storage.placeholder
    connection.run(
        f"UPDATE zapdb_changes SET before = {mark}, after = {mark}, archive_before = {mark},"
        f" archive_after = {mark}"
        f" WHERE {_of(tenant, table, mark)} AND transaction_number = {int(transaction)}",
        (*change, key),
    )


def is_changed_behind(
    connection: Connection, moments: Moments, place: Bookmark, table: int, key: bytes
) -> bool:
    """Return whether a record has a logged change behind a place in the log."""
    log, mark = moments.log, connection.storage.placeholder
    later = moments.find_later(connection, moments.find_bookmark(connection, place))
    changes = f"SELECT 1 FROM zapdb_changes AS c WHERE {_of(log.tenant, table, mark)}"
    if connection.fetch_one(f"{changes} AND {later('c.transaction_number')} LIMIT 1", (key,)):
        return True
    if (table, key) <= (place.table, place.key):
        return False
    inside = f"{changes} AND transaction_number = ({_transaction_sql(log, place)})"
    return connection.fetch_one(inside, (key,)) is not None


def _transaction_sql(log: ChangeLog, place: Bookmark) -> str:
    """Return the SELECT of the number of the transaction that a place is in, or behind."""
    is_it = f"number = {int(place.stamp)}"
    if not log.is_numbered:
        is_it = f"commit_order = {int(place.commit_order)}"
    return f"SELECT number FROM zapdb_transactions WHERE tenant = {log.tenant} AND {is_it}"


def find_place_before(connection: Connection, log: ChangeLog, place: Bookmark) -> Bookmark:
    """Return a bookmark of the same meaning that does not name the record of its change: behind
    the change before it in its transaction, or in front of the transaction's first."""
    mark = connection.storage.placeholder
    row = connection.fetch_one(
        f"SELECT table_number, key FROM zapdb_changes WHERE tenant = {log.tenant}"
        f" AND transaction_number = ({_transaction_sql(log, place)})"
        f" AND (table_number, key) < ({mark}, {mark})"
        " ORDER BY table_number DESC, key DESC LIMIT 1",
        (place.table, place.key),
    )
    table, key = (START.table, START.key) if row is None else (as_number(row[0]), as_bytes(row[1]))
    return Bookmark(place.stamp, place.commit_order, table, key)


def _of(tenant: int, table: int, mark: str) -> str:
    mine = f"tenant = {int(tenant)} AND table_number = {int(table)}"
    return f"{mine} AND key = {mark} AND event IS NULL"
