"""The statements that read the records of a table as they were at a moment.

A page is read by two statements: the present records of a range of keys, and then what the first
change since had before it, of the keys in that range. They need no common snapshot. The second one
sees all that the first one saw, and rewinds it: a record that was written, inserted or deleted in
between has a change, too.

Each statement answers with the catalog version, or with none if the log was pruned since its
beginning was looked at: so the reader notices that changes may be missing, and looks again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from zapdb.errors import TransactionConflict
from zapdb.limits import PAGE_RECORDS_MAX
from zapdb.records.archive_cells import decode_archive
from zapdb.storage.archives import ArchiveStatements
from zapdb.storage.base import SIZE, JoinedRows, join_rows
from zapdb.storage.cells import as_number, require_bytes
from zapdb.storage.change_log import BEGINNING, START, ChangeLog
from zapdb.storage.connection import Connection
from zapdb.storage.logged_before import LoggedBefore
from zapdb.storage.moments import LaterSql, Moments
from zapdb.storage.record_statements import RecordStatements
from zapdb.storage.rewinding import (
    COMMIT_ORDER,
    changes_sql,
    find_archives_then,
    first_changes_sql,
    first_numbered_sql,
    rewound_sql,
)
from zapdb.storage.statements import between, bounds_behind, catalog_version_sql

NO_VERSION: Final = -1
"""No tenant has this catalog version."""


def read_beginning(log: ChangeLog, connection: Connection) -> str:
    """Return where the change log begins, nothing for its start."""
    beginning = log.read_beginning(connection.fetch_all)
    return str(beginning) if beginning > START else ""


class RewoundStatements(RecordStatements):
    """The statements on one table's records of one tenant before the transactions that are `later`,
    as long as the log begins at the bookmark `beginning`. They only read.

    Of a moment that is read more than once, or scanned, `after` is the number on SQLite."""

    def __init__(
        self,
        moments: Moments,
        number: int,
        later: LaterSql,
        beginning: str,
        after: int | None = None,
    ) -> None:
        log = moments.log
        storage, tenant, is_numbered = log.storage, log.tenant, log.is_numbered
        super().__init__(
            storage,
            number,
            tenant,
            rewound_sql(tenant, number, later, is_numbered=is_numbered),
            _version_sql(tenant, beginning),
        )
        self._changes = changes_sql(tenant, number, later, is_numbered=is_numbered)
        order = "c.transaction_number" if is_numbered else COMMIT_ORDER
        mark = storage.placeholder
        given = mark if is_numbered else f"{mark}::bytea"
        one = f"{self._changes} AND c.key = given.key"
        stored = f"SELECT value FROM {self.name} WHERE tenant = {tenant} AND key = given.key"
        self.find_sql = (
            f"SELECT CASE WHEN EXISTS (SELECT 1 FROM {one}) THEN"
            f" (SELECT c.before FROM {one} ORDER BY {order} LIMIT 1)"
            f" ELSE ({stored}) END AS value, a.version"
            f" FROM ({self.version_sql}) AS a, (SELECT {given} AS key) AS given"
        )
        self.get_sql = f"SELECT * FROM ({self.find_sql}) AS found WHERE value IS NOT NULL"
        self._held = None if after is None else LoggedBefore(log, number, after)
        self._present = RecordStatements(storage, number, tenant)
        self._is_numbered = is_numbered
        self._number = number

    def load_archives(
        self, connection: Connection, archives: ArchiveStatements, keys: Sequence[bytes]
    ) -> dict[bytes, dict[int, bytes]]:
        """Return what was archived of records, by key and field number; in one snapshot."""
        found = archives.load_many(connection, keys)
        then = find_archives_then(connection, self._changes, keys, is_numbered=self._is_numbered)
        return found | {key: decode_archive(cell) for key, cell in then.items()}

    def find_again(self, connection: Connection, key: bytes, stored: bytes | None) -> bytes | None:
        """The log has it as it was before it was changed. Raises `TransactionConflict` if that was
        pruned meanwhile."""
        version, found = self.find(connection, key)
        if version == NO_VERSION:
            raise TransactionConflict(
                "the change log was pruned while a past record was read",
                hint="read it again",
            )
        return found

    def scan_page(
        self, connection: Connection, after: bytes
    ) -> tuple[int | None, list[tuple[bytes, bytes]]]:
        version, rows = self._read(connection, after + b"\x00", None, PAGE_RECORDS_MAX, "ASC")
        return version, rows

    def page(
        self,
        connection: Connection,
        lower: bytes | None,
        upper: bytes | None,
        after: tuple[bytes, bytes] | None,
        limit: int,
        *,
        descending: bool,
    ) -> tuple[int, list[tuple[bytes, bytes, bytes]]]:
        lower, upper = bounds_behind(lower, upper, after, descending=descending)
        order = "DESC" if descending else "ASC"
        version, rows = self._read(connection, lower, upper, limit, order)
        return version, [(key, key, value) for key, value in rows]

    def joined_page(
        self, connection: Connection, lower: bytes | None, upper: bytes | None, limit: int
    ) -> tuple[int, JoinedRows | None]:
        version, joined = self._present.joined_page(connection, lower, upper, limit)
        if joined is None:
            return version, None
        size = len(joined.key_sizes)
        edge = None
        if size == limit * SIZE.size:
            (length,) = SIZE.unpack_from(joined.key_sizes, size - SIZE.size)
            edge = joined.keys[len(joined.keys) - length :]
        until = upper if edge is None else edge + b"\x00"
        version, before = self._read_before(connection, lower, until, limit, "ASC")
        if not before:
            return version, joined
        rows, edge = _rewind(joined.split(), before, edge, limit, "ASC")
        if edge is not None and len(rows) < limit and version != NO_VERSION:
            version, more = self._read(connection, edge + b"\x00", upper, limit - len(rows), "ASC")
            rows += more
        return version, join_rows(rows[:limit])

    def _read(
        self,
        connection: Connection,
        lower: bytes | None,
        upper: bytes | None,
        limit: int,
        order: str,
    ) -> tuple[int, list[tuple[bytes, bytes]]]:
        """Return the catalog version and the first records with lower ≤ key < upper: `limit` of
        them, or all."""
        found: list[tuple[bytes, bytes]] = []
        while True:
            version, rows, edge = self._read_some(connection, lower, upper, limit, order)
            found += rows
            if edge is None or len(found) >= limit or version == NO_VERSION:
                return version, found[:limit]
            if order == "ASC":
                lower = edge + b"\x00"
            else:
                upper = edge

    def _read_some(
        self,
        connection: Connection,
        lower: bytes | None,
        upper: bytes | None,
        limit: int,
        order: str,
    ) -> tuple[int, list[tuple[bytes, bytes]], bytes | None]:
        """Return the catalog version, the records up to a key, and that key; None for the end."""
        where, parameters = between(self.storage.placeholder, self.tenant, lower, upper)
        stored: list[tuple[bytes, bytes]] = connection.fetch_all(
            f"SELECT key, value FROM {self.name} WHERE {where}"
            f" ORDER BY key {order} LIMIT {int(limit)}",
            parameters,
        )
        require_bytes(stored)
        edge = stored[-1][0] if len(stored) == limit else None
        if edge is not None and order == "ASC":
            upper = edge + b"\x00"
        elif edge is not None:
            lower = edge
        version, before = self._read_before(connection, lower, upper, limit, order)
        if not before:
            return version, stored, edge
        return version, *_rewind(stored, before, edge, limit, order)

    def _read_before(
        self,
        connection: Connection,
        lower: bytes | None,
        upper: bytes | None,
        limit: int,
        order: str,
    ) -> tuple[int, dict[bytes, bytes | None]]:
        """Return the catalog version, and what the records that were changed since had before, of
        the first keys with lower ≤ key < upper: `limit` of them, or all."""
        if self._held is not None and limit >= PAGE_RECORDS_MAX:
            held = self._held.find(connection, lower, upper)
            if held is not None:
                return self.read_catalog_version(connection), held
        first, parameters = self._first_changes(lower, upper, order)
        first += f" LIMIT {int(limit)}"
        rows: list[Any]
        if not self.storage.is_remote:  # the version is read last: it is none after a pruning
            rows = connection.fetch_all(first, parameters)
            version = self.read_catalog_version(connection)
        else:
            rows = connection.fetch_all(
                f"SELECT a.version, first.key, first.before FROM ({self.version_sql}) AS a"
                f" LEFT JOIN ({first}) AS first ON TRUE",
                parameters,
            )
            version = as_number(rows[0][0]) if rows else 0  # the tenant was removed
        before = {row[-2]: row[-1] for row in rows if row[-2] is not None}
        values = tuple(value for value in before.values() if value is not None)
        require_bytes([tuple(before), values])
        return version, before

    def _first_changes(
        self, lower: bytes | None, upper: bytes | None, order: str
    ) -> tuple[str, list[bytes]]:
        """Return the query for the first changes of the keys with lower ≤ key < upper: (key,
        before) rows, and its parameters."""
        mark = self.storage.placeholder
        above = "" if lower is None else f" AND c.key >= {mark}"
        below = "" if upper is None else f" AND c.key < {mark}"
        given: tuple[bytes | None, ...] = (lower, upper)
        if not self._is_numbered:
            sql = first_changes_sql(self._changes + above + below, order)
        elif order == "ASC":
            bounds, given = (above, below), (lower, upper, upper)
            sql = first_numbered_sql(self.tenant, self._number, self._changes, bounds, order)
        else:
            bounds, given = (below, above), (upper, lower, lower)
            sql = first_numbered_sql(self.tenant, self._number, self._changes, bounds, order)
        return sql, [bound for bound in given if bound is not None]

    def count_range(
        self, connection: Connection, lower: bytes | None, upper: bytes | None, limit: int | None
    ) -> tuple[int, int]:
        """The present records are counted, and what the changed ones were adds to that, or takes
        from it."""
        first, parameters = self._first_changes(lower, upper, "ASC")
        where, mine = self._between(lower, upper)
        there = f"SELECT 1 FROM {self.name} WHERE tenant = {self.tenant} AND key = first.key"
        row = connection.fetch_one(
            f"SELECT a.version, (SELECT count(*) FROM {self.name} WHERE {where}),"
            " (SELECT coalesce(sum(CASE WHEN first.before IS NULL THEN 0 ELSE 1 END"
            f" - CASE WHEN EXISTS ({there}) THEN 1 ELSE 0 END), 0) FROM ({first}) AS first)"
            f" FROM ({self.version_sql}) AS a",
            [*mine, *parameters],
        )
        if row is None:
            return 0, 0  # the tenant was removed
        counted = as_number(row[1]) + int(row[2])
        return as_number(row[0]), counted if limit is None else min(counted, limit)


def _rewind(
    stored: list[tuple[bytes, bytes]],
    before: dict[bytes, bytes | None],
    edge: bytes | None,
    limit: int,
    order: str,
) -> tuple[list[tuple[bytes, bytes]], bytes | None]:
    """Return present records up to an edge, None for the end, with what changed records had before,
    and up to which key these are all."""
    rows: dict[bytes, bytes | None] = dict(stored)
    rows.update(before)
    keys = list(rows)
    if len(keys) > len(stored):  # some are not there any more
        keys.sort(reverse=order == "DESC")
    if len(before) == limit:
        last = max(before) if order == "ASC" else min(before)
        edge = last if edge is None else min(edge, last) if order == "ASC" else max(edge, last)
    if edge is not None and edge != keys[-1]:
        keys = keys[: keys.index(edge) + 1]
    return [(key, value) for key in keys if (value := rows[key]) is not None], edge


def _version_sql(tenant: int, beginning: str) -> str:
    """Return the query for the catalog version as long as the log begins there."""
    mine = f"tenant = {int(tenant)} AND name = '{BEGINNING}'"
    stored = f"SELECT bookmark FROM zapdb_followers WHERE {mine}"
    version = catalog_version_sql(tenant).removeprefix("SELECT version ")
    assert not set(beginning) - set("0123456789abcdef.")
    return (
        f"SELECT CASE WHEN coalesce(({stored}), '') = '{beginning}' THEN version"
        f" ELSE {NO_VERSION} END AS version {version}"
    )
