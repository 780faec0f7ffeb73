"""The statements that read the records of a table as they were at a moment.

A short page is read by two statements: the present records of a range of keys, each with what its
first change since had before it; and then the records of that range that were deleted since. They
need no common snapshot: a record that is deleted in between has a deletion, which the second one
sees.

Where many records are read, the first changes since the moment are read at once and held: see
`logged_before`. Then only those records are looked up that they do not have; and none, nor
deletions, if they are all changes that there are. There, too, present records are read first.

Each statement that comes last answers with the catalog version, or with none if the log was pruned
since its beginning was looked at: so the reader notices that changes may be missing, and looks
again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from zapdb.errors import TransactionConflict
from zapdb.limits import PAGE_RECORDS_MAX
from zapdb.log.change_log import BEGINNING, START, ChangeLog
from zapdb.log.logged_before import (
    HELD_CHANGES_MAX,
    Before,
    LoggedBefore,
    count_later,
    worth_holding,
)
from zapdb.log.moments import LaterTransactions, Moments
from zapdb.log.rewinding import Rewinding
from zapdb.records.archive_cells import decode_archive
from zapdb.storage.archives import ArchiveStatements
from zapdb.storage.cells import as_bytes, as_number, optional_bytes, require_bytes
from zapdb.storage.connection import Connection
from zapdb.storage.dialect import SIZE, JoinedRows, KeySample, join_rows
from zapdb.storage.record_statements import RecordStatements
from zapdb.storage.statements import (
    VALUES_PER_STATEMENT,
    bounds_behind,
    catalog_version_sql,
)

NO_VERSION: Final = -1
"""No tenant has this catalog version."""
HOLDING_PAYS: Final = PAGE_RECORDS_MAX // 4
"""From so many records on, the first changes are held."""


class _Wanted(NamedTuple):
    """The first records with lower ≤ key < upper in an order: up to `limit` of them."""

    lower: bytes | None
    upper: bytes | None
    limit: int
    order: str

    def find_edge(self, rows: Sequence[tuple[bytes, Any]]) -> tuple[_Wanted, bytes | None]:
        """Return what is wanted up to the last of some rows, and their last key; None if they are
        all."""
        if len(rows) < self.limit:
            return self, None
        edge = rows[-1][0]
        if self.order == "ASC":
            return self._replace(upper=edge + b"\x00"), edge
        return self._replace(lower=edge), edge

    def behind(self, key: bytes) -> _Wanted:
        if self.order == "ASC":
            return self._replace(lower=key + b"\x00")
        return self._replace(upper=key)


def read_beginning(log: ChangeLog, connection: Connection) -> str:
    """Return where the change log begins, nothing for its start."""
    beginning = log.read_beginning(connection.fetch_all)
    return str(beginning) if beginning > START else ""


class RewoundStatements(RecordStatements):
    """The statements on one table's records of one tenant before the transactions that are `later`,
    as long as the log begins at the bookmark `beginning`. They only read. `until` is the number of
    a late transaction."""

    def __init__(
        self,
        moments: Moments,
        number: int,
        later: LaterTransactions,
        beginning: str,
        until: int = 0,
    ) -> None:
        log = moments.log
        storage, tenant, is_numbered = log.storage, log.tenant, log.is_numbered
        super().__init__(storage, number, tenant, _version_sql(tenant, beginning))
        self._of_one = Rewinding(tenant, int(number), later, is_numbered)
        self._of_many = Rewinding(tenant, int(number), later, is_numbered, until)
        self._given = storage.placeholder if is_numbered else f"{storage.placeholder}::bytea"
        self._is_numbered = is_numbered
        of_given = f"(SELECT {self._given} AS key) AS given"
        self.find_sql = (
            f"SELECT {self._then_sql('given.key')} AS value, a.version"
            f" FROM ({self.version_sql}) AS a, {of_given}"
        )
        self.get_sql = f"SELECT * FROM ({self.find_sql}) AS found WHERE value IS NOT NULL"
        self._held = LoggedBefore(log, number, later)
        self._present = RecordStatements(storage, number, tenant)

    def _then_sql(self, key: str) -> str:
        """The expression for the record with a key at the moment, or null."""
        stored = f"SELECT value FROM {self.name} WHERE tenant = {self.tenant} AND key = {key}"
        first, nothing = self._of_one.first_sql(key), self._of_one.nothing
        return f"nullif(coalesce({first}, ({stored})), {nothing})"

    def load_archives(
        self, connection: Connection, archives: ArchiveStatements, keys: Sequence[bytes]
    ) -> dict[bytes, dict[int, bytes]]:
        """Return what was archived of records, by key and cell; in one snapshot."""
        found = archives.load_many(connection, keys)
        then = self._of_one.find_archives(connection, keys)
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

    def find_many(
        self, connection: Connection, keys: Sequence[bytes]
    ) -> tuple[int, dict[bytes, bytes]]:
        found = dict[bytes, bytes]()
        for start in range(0, len(keys), VALUES_PER_STATEMENT):
            some = keys[start : start + VALUES_PER_STATEMENT]
            marks = ", ".join([f"({self._given})"] * len(some))
            rows = connection.fetch_all(
                f"WITH given(key) AS (VALUES {marks})"
                f" SELECT given.key, {self._then_sql('given.key')} FROM given",
                some,
            )
            found |= {as_bytes(key): as_bytes(value) for key, value in rows if value is not None}
        return self.read_catalog_version(connection), found

    def has(self, connection: Connection, key: bytes) -> tuple[int, bool]:
        there = f"SELECT 1 FROM {self.name} WHERE tenant = {self.tenant} AND key = given.key"
        then = self._of_one.was_there_sql("given.key")
        row = connection.fetch_one(
            f"SELECT a.version, coalesce({then}, CASE WHEN EXISTS ({there}) THEN 1 ELSE 0 END)"
            f" FROM ({self.version_sql}) AS a, (SELECT {self._given} AS key) AS given",
            (key,),
        )
        return (0, False) if row is None else (as_number(row[0]), bool(row[1]))

    def count(self, connection: Connection) -> int:
        return self.count_range(connection, None, None, None)[1]

    def scan_page(
        self, connection: Connection, after: bytes
    ) -> tuple[int | None, list[tuple[bytes, bytes]]]:
        return self._read(connection, _Wanted(after + b"\x00", None, PAGE_RECORDS_MAX, "ASC"))

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
        wanted = _Wanted(lower, upper, limit, "DESC" if descending else "ASC")
        version, rows = self._read(connection, wanted)
        return version, [(key, key, value) for key, value in rows]

    def joined_page(
        self, connection: Connection, lower: bytes | None, upper: bytes | None, limit: int
    ) -> tuple[int, JoinedRows | None]:
        wanted = _Wanted(lower, upper, limit, "ASC")
        if not self._holds(limit):
            version, records = self._read(connection, wanted)
            return version, join_rows(records)
        version, joined = self._present.joined_page(connection, lower, upper, limit)
        if joined is None:
            return version, None
        count, edge = len(joined.key_sizes) // SIZE.size, None
        if count == limit:
            (length,) = SIZE.unpack_from(joined.key_sizes, (count - 1) * SIZE.size)
            edge = joined.keys[len(joined.keys) - length :]
        is_complete = self._hold(connection, count, lambda: [key for key, _ in joined.split()])
        until = upper if edge is None else edge + b"\x00"
        if is_complete and not self._held.list_between(lower, until):
            return self.read_catalog_version(connection), joined
        rows = joined.split()
        version, found, edge = self._rewind_held(connection, rows, wanted, is_complete=is_complete)
        if edge is not None and len(found) < limit and version != NO_VERSION:
            left = wanted.behind(edge)._replace(limit=limit - len(found))
            version, more = self._read(connection, left)
            found += more
        return version, join_rows(found[:limit])

    def _read(
        self, connection: Connection, wanted: _Wanted, value: str = "r.value"
    ) -> tuple[int, list[tuple[bytes, bytes]]]:
        """Return the catalog version and all records that are wanted. `value` is an expression for
        present records, which are not empty."""
        found: list[tuple[bytes, bytes]] = []
        left = wanted
        while True:
            version, rows, edge = self._read_some(connection, left, value)
            found += rows
            if edge is None or len(found) >= wanted.limit or version == NO_VERSION:
                return version, found[: wanted.limit]
            left = left.behind(edge)

    def _holds(self, count: int) -> bool:
        """Whether to hold changes, for so many records of a page."""
        return count >= HOLDING_PAYS or self._held.is_complete

    def _hold(
        self, connection: Connection, count: int, list_keys: Callable[[], list[bytes]]
    ) -> bool:
        """Hold more changes, for so many present records. Returns whether these are all there are
        by now."""
        return self._holds(count) and self._held.read_on(connection, count, list_keys)

    def _read_some(
        self, connection: Connection, wanted: _Wanted, value: str
    ) -> tuple[int, list[tuple[bytes, bytes]], bytes | None]:
        """Return the catalog version, the records up to a key, and that key; None for the end."""
        if self._holds(wanted.limit):
            rows = self._read_stored(connection, wanted, value)
            keys = [key for key, _ in rows]
            is_complete = self._hold(connection, len(rows), lambda: keys)
            return self._rewind_held(connection, rows, wanted, is_complete=is_complete)
        first, nothing = self._of_many.first_sql("r.key"), self._of_many.nothing
        then = f"nullif(coalesce({first}, {value}), {nothing})"
        rows = self._read_stored(connection, wanted, then)
        inner, edge = wanted.find_edge(rows)
        version, gone = self._read_gone(connection, inner)
        return version, *_rewind(rows, gone, edge, wanted.limit, wanted.order)

    def _rewind_held(
        self,
        connection: Connection,
        stored: Sequence[tuple[bytes, bytes]],
        wanted: _Wanted,
        *,
        is_complete: bool,
    ) -> tuple[int, list[tuple[bytes, bytes]], bytes | None]:
        """As `_read_some`, of present records, by the changes that are held."""
        inner, edge = wanted.find_edge(stored)
        if is_complete:
            held = self._held.list_between(inner.lower, inner.upper)
            version = self.read_catalog_version(connection)
            return version, *_rewind(stored, held, edge, None, wanted.order)
        keys = [key for key, _ in stored]
        before = self._held.find(keys)
        before |= self._of_many.find_first(connection, [key for key in keys if key not in before])
        version, gone = self._read_gone(connection, inner)
        rows = [(key, before.get(key, value)) for key, value in stored]
        return version, *_rewind(rows, gone, edge, wanted.limit, wanted.order)

    def _read_stored(
        self, connection: Connection, wanted: _Wanted, value: str
    ) -> list[tuple[bytes, Any]]:
        """Return the keys of the first present records `r`, and an expression of each."""
        where, parameters = self._between(wanted.lower, wanted.upper)
        order = f"ORDER BY key {wanted.order} LIMIT {int(wanted.limit)}"
        some = f"SELECT key, value FROM {self.name} WHERE {where} {order}"
        rows: list[tuple[bytes, Any]] = connection.fetch_all(
            f"SELECT r.key, {value} FROM ({some}) AS r ORDER BY r.key {wanted.order}", parameters
        )
        require_bytes([tuple(key for key, _ in rows)])
        require_bytes([tuple(one for _, one in rows if one is not None)])
        return rows

    def _read_gone(self, connection: Connection, wanted: _Wanted) -> tuple[int, Before]:
        """Return the catalog version, and those records of then that are wanted and were deleted
        since."""
        gone, parameters = self._gone_sql(wanted)
        if not self.storage.dialect.is_remote:
            # The version is read last: it is none after a pruning.
            local = connection.fetch_all(gone, parameters)
            version = self.read_catalog_version(connection)
            return version, {as_bytes(key): as_bytes(before) for key, before in local}
        rows = connection.fetch_all(
            f"SELECT a.version, gone.key, gone.before FROM ({self.version_sql}) AS a"
            f" LEFT JOIN ({gone}) AS gone ON TRUE",
            parameters,
        )
        version = as_number(rows[0][0]) if rows else 0  # the tenant was removed
        found = {optional_bytes(key): optional_bytes(before) for _, key, before in rows}
        return version, {key: before for key, before in found.items() if key is not None}

    def _gone_sql(self, wanted: _Wanted) -> tuple[str, list[bytes]]:
        """Return the query for them, and its parameters."""
        lower, upper, limit, order = wanted
        mark = self.storage.placeholder
        above = "" if lower is None else f" AND c.key >= {mark}"
        below = "" if upper is None else f" AND c.key < {mark}"
        bounds, given = (above, below), (lower, upper, upper)
        if order == "DESC":
            bounds, given = (below, above), (upper, lower, lower)
        sql = f"{self._of_many.gone_sql(bounds, order)} LIMIT {int(limit)}"
        return sql, [one for one in given if one is not None]

    def count_range(
        self, connection: Connection, lower: bytes | None, upper: bytes | None, limit: int | None
    ) -> tuple[int, int]:
        """Where little was changed since, each insertion takes one from the present records, and
        each deletion adds one. Else keys are read as records are."""
        if self._is_little_changed(connection, lower, upper):
            version, counted = self._count_net(connection, lower, upper)
            return version, counted if limit is None else min(counted, limit)
        counted = 0
        while True:
            most = PAGE_RECORDS_MAX if limit is None else min(limit - counted, PAGE_RECORDS_MAX)
            there = self._of_many.something
            version, rows = self._read(connection, _Wanted(lower, upper, most, "ASC"), there)
            counted += len(rows)
            if len(rows) < most or counted == limit or version == NO_VERSION:
                return version, counted
            lower = rows[-1][0] + b"\x00"

    def _count_net(
        self, connection: Connection, lower: bytes | None, upper: bytes | None
    ) -> tuple[int, int]:
        where, parameters = self._between(lower, upper)
        row = connection.fetch_one(
            f"SELECT a.version, (SELECT count(*) FROM {self.name} WHERE {where})"
            " + (SELECT coalesce(sum(CASE WHEN c.before IS NULL THEN 0 ELSE 1 END"
            " - CASE WHEN c.after IS NULL THEN 0 ELSE 1 END), 0)"
            f" FROM ({self._of_one.new_sql()}) AS c WHERE {where})"
            f" FROM ({self.version_sql}) AS a",
            [*parameters, *parameters],
        )
        # None: the tenant was removed.
        return (0, 0) if row is None else (as_number(row[0]), int(row[1]))

    def _is_little_changed(
        self, connection: Connection, lower: bytes | None, upper: bytes | None
    ) -> bool:
        _, records = self._present.count_range(connection, lower, upper, HELD_CHANGES_MAX)
        later = self._of_one.later
        return worth_holding(count_later(connection, self.tenant, later, records + 1), records)

    def count_lookups(self, connection: Connection, most: int) -> int:
        """Return how many present records and logged deletions there are, which are looked up where
        all is read: up to a number."""
        _, records = self._present.count_range(connection, None, None, most)
        (deletions,) = connection.fetch_one(
            f"SELECT count(*) FROM (SELECT 1 FROM {self._of_one.deletions_sql()}"
            f" LIMIT {max(0, most - records)}) AS counted"
        )
        return records + as_number(deletions)

    def sample_keys(
        self, connection: Connection, lower: bytes | None, upper: bytes | None
    ) -> KeySample | None:
        """None: all of them have to be counted."""
        return None

    def slice_range(
        self, connection: Connection, lower: bytes | None, upper: bytes | None, every: int
    ) -> list[bytes]:
        found, counted, edge = list[bytes](), 0, lower
        while True:
            _, rows = self._read(connection, _Wanted(edge, upper, PAGE_RECORDS_MAX, "ASC"))
            found += [key for at, (key, _) in enumerate(rows, counted) if at and not at % every]
            if len(rows) < PAGE_RECORDS_MAX:
                return found
            counted, edge = counted + len(rows), rows[-1][0] + b"\x00"


def _rewind(
    stored: Sequence[tuple[bytes, bytes | None]],
    before: Before,
    edge: bytes | None,
    limit: int | None,
    order: str,
) -> tuple[list[tuple[bytes, bytes]], bytes | None]:
    """Return records up to an edge, None for the end, with what others had before, of which there
    may be more behind the first `limit`; and up to which key these are all."""
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
