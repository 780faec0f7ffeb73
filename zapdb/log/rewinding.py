"""Rewinding: the records of a table at a moment are the present ones, and for those that were
changed since, what the first of these changes had before it.

So of each key one change is looked up, however many there are: by the index of changes by key,
from the first transaction on that may be after the moment. Records that are gone are found by the
index of deletions, key by key.

The changes of a key are in the order of their transactions' numbers, but for one thing. On
PostgreSQL a transaction may have its number for long when it inserts a record that another one,
with a higher number, has deleted meanwhile (decision 16). What updates or deletes a record has seen
all earlier changes of it before it had a number. So the first change of a key is the one with the
lowest number, unless that one is an insertion: then it is the one of the lowest commit order, among
the insertions up to the first other change, and that one.

The bytes are those of then only within a table's span: as long as no schema change has made other
bytes of them (see `zapdb.past.reading`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Self

from zapdb.log.moments import LaterTransactions, LoggedMoment, Moments
from zapdb.storage.cells import as_bytes, as_number, as_text, optional_bytes
from zapdb.storage.connection import Connection
from zapdb.storage.fixed_tables import IS_DELETION
from zapdb.storage.statements import VALUES_PER_STATEMENT

NET_CHANGES_PAGE: Final = 10_000
_NUMBERS_END: Final = 2**63 - 1
WINDOWS: Final = 64
"""PostgreSQL reads all changes of a key that an index page has, if only to take the first. So the
first one is looked for in the first of so many parts of the transactions since, and then in the
others."""

# Without statistics, SQLite would read all changes since for each key.
_BY_KEY: Final = "INDEXED BY zapdb_changes_by_key"
_DELETIONS: Final = "INDEXED BY zapdb_changes_deletions"

NOTHING: Final = {True: "x''", False: "''::bytea"}
"""An empty value, by whether transactions are numbered in order, as on SQLite. No record is
empty."""
SOMETHING: Final = {True: "x'01'", False: "'\\x01'::bytea"}


def find_newest_number(connection: Connection, tenant: int) -> int:
    """Return the highest number of a transaction of the log; 0 without any."""
    (newest,) = connection.fetch_one(
        f"SELECT max(number) FROM zapdb_transactions WHERE tenant = {int(tenant)}"
    )
    return as_number(newest or 0)


@dataclass(frozen=True, slots=True)
class Rewinding:
    """SQL on the changes of one table by the transactions that are `later`.

    `until` is the number of a late transaction; how late is a matter of speed alone.
    """

    tenant: int
    table: int
    later: LaterTransactions
    is_numbered: bool
    until: int = 0

    @property
    def nothing(self) -> str:
        return NOTHING[self.is_numbered]

    @property
    def something(self) -> str:
        """A value that is not empty."""
        return SOMETHING[self.is_numbered]

    def changes_sql(self) -> str:
        """Return the FROM and WHERE of the changes, as `c`."""
        by_key = _BY_KEY if self.is_numbered else ""
        return f"zapdb_changes AS c {by_key} WHERE {self._mine('c')} AND {self._is_later('c')}"

    def new_sql(self) -> str:
        """Return the query for (tenant, key, before, after) of the changes, by transactions."""
        order = "" if self.is_numbered else " ORDER BY c.transaction_number"
        return (
            "SELECT c.tenant AS tenant, c.key AS key, c.before AS before, c.after AS after"
            f" FROM zapdb_changes AS c WHERE {self._mine('c')} AND {self._is_later('c')}{order}"
        )

    def first_sql(self, key: str) -> str:
        """Return the expression for what the record with a key had before its first change: empty
        if there was none, null if it was not changed."""
        return self._first_sql(key, f"coalesce({{0}}.before, {self.nothing})")

    def was_there_sql(self, key: str) -> str:
        """Return the same as 1, 0 or null."""
        return self._first_sql(key, "CASE WHEN {0}.before IS NULL THEN 0 ELSE 1 END")

    def _first_sql(self, key: str, made: str) -> str:
        if self.is_numbered:
            return (
                f"(SELECT {made.format('c')} FROM {self.changes_sql()} AND c.key = {key}"
                f" ORDER BY {self.order} LIMIT 1)"
            )
        lowest, apart = self.later.lowest, f"(SELECT {made.format('i')} FROM {self._tied_sql(key)})"
        made = f"CASE WHEN c.before IS NULL THEN {apart} ELSE {made.format('c')} END"
        cut = lowest + max(0, self.until - lowest) // WINDOWS
        if cut == lowest:
            return f"(SELECT {made} FROM {self._lowest_sql('c', key, lowest)})"
        below = f" AND (c.key, c.transaction_number) < ({key}, {cut})"
        return (
            f"coalesce((SELECT {made} FROM {self._lowest_sql('c', key, lowest, below)}),"
            f" (SELECT {made} FROM {self._lowest_sql('c', key, cut)}))"
        )

    def _lowest_sql(self, name: str, key: str, lowest: int, more: str = "") -> str:
        """Return the FROM and more of the change of a key with the lowest number. It is in the
        order of the index by key, in which no other index has it: so whatever the planner thinks of
        how many changes there are, it takes that one."""
        return (
            f"zapdb_changes AS {name} WHERE {self._of_key(name, key, lowest)}{more}"
            f" AND {self._is_later(name)} ORDER BY {name}.key, {name}.transaction_number LIMIT 1"
        )

    def _tied_sql(self, key: str) -> str:
        """The first change where the one with the lowest number is an insertion."""
        lowest = self.later.lowest
        other = self._lowest_sql("u", key, lowest, " AND u.before IS NOT NULL")
        return (
            f"zapdb_changes AS i WHERE {self._of_key('i', key, lowest)} AND {self._is_later('i')}"
            " AND (i.key, i.transaction_number) <="
            f" ({key}, coalesce((SELECT u.transaction_number FROM {other}), {_NUMBERS_END}))"
            f" ORDER BY {_order('i')} LIMIT 1"
        )

    def _of_key(self, name: str, key: str, lowest: int) -> str:
        return (
            f"{self._mine(name)} AND ({name}.key, {name}.transaction_number) >= ({key}, {lowest})"
            f" AND {name}.key <= {key}"
        )

    def _mine(self, name: str) -> str:
        return (
            f"{name}.tenant = {int(self.tenant)} AND {name}.table_number = {int(self.table)}"
            f" AND {name}.event IS NULL"
        )

    def _is_later(self, name: str) -> str:
        return self.later(f"{name}.transaction_number")

    @property
    def order(self) -> str:
        """The order of the changes `c` of one key."""
        return "c.transaction_number" if self.is_numbered else _order("c")

    def deletions_sql(self) -> str:
        """Return the FROM and WHERE of all logged deletions of the table, as `c`."""
        by = _DELETIONS if self.is_numbered else ""
        is_deletion = " AND ".join(f"c.{part}" for part in IS_DELETION.split(" AND "))
        return (
            f"zapdb_changes AS c {by} WHERE c.tenant = {int(self.tenant)}"
            f" AND c.table_number = {int(self.table)} AND {is_deletion}"
        )

    def gone_sql(self, bounds: tuple[str, str], order: str) -> str:
        """Return the query for the keys within bounds that records were deleted with, in order, if
        the moment had a record: (key, record) rows.

        It steps from key to key, so it does not grow with how often a record was deleted. The
        bounds, on `c.key`, are those at the beginning and at the end in this order; the second one
        stands in it twice, after the first."""
        beyond, (begin, end) = ">" if order == "ASC" else "<", bounds
        gone = f"SELECT c.key FROM {self.deletions_sql()}"
        last = f"ORDER BY c.key {order} LIMIT 1"
        # So that no change is looked for twice.
        fence = "LIMIT -1" if self.is_numbered else "OFFSET 0"
        return (
            f"WITH RECURSIVE gone(key) AS (SELECT ({gone}{begin}{end} {last})"
            f" UNION ALL SELECT ({gone} AND c.key {beyond} gone.key{end} {last})"
            " FROM gone WHERE gone.key IS NOT NULL)"
            f" SELECT key, before FROM (SELECT gone.key AS key, {self.first_sql('gone.key')}"
            f" AS before FROM gone WHERE gone.key IS NOT NULL {fence}) AS found"
            f" WHERE before <> {self.nothing}"
        )

    def find_first(
        self, connection: Connection, keys: Sequence[bytes]
    ) -> dict[bytes, bytes | None]:
        """Return what records had before their first changes, None if there was none, by key, for
        those keys that have one."""
        found = dict[bytes, bytes | None]()
        first, part = self.first_sql("given.key"), VALUES_PER_STATEMENT
        for some in (keys[start : start + part] for start in range(0, len(keys), part)):
            if self.is_numbered:
                marks = ", ".join(["(?)"] * len(some))
                sql = f"WITH given(key) AS (VALUES {marks}) SELECT key, {first} FROM given"
                rows = connection.fetch_all(sql, some)
            else:
                sql = f"SELECT key, {first} FROM unnest(%s::bytea[]) AS given(key)"
                rows = connection.fetch_all(sql, (some,))
            found |= {
                as_bytes(key): as_bytes(before) or None
                for key, before in rows
                if before is not None
            }
        return found

    def find_archives(
        self, connection: Connection, keys: Sequence[bytes]
    ) -> dict[bytes, bytes | None]:
        """Return the cells of archived values before the first of the changes that gave a record
        others, by key, for those keys that have one."""
        found, mark = dict[bytes, bytes | None](), connection.storage.placeholder
        for start in range(0, len(keys), VALUES_PER_STATEMENT):
            some = keys[start : start + VALUES_PER_STATEMENT]
            marks = ", ".join([mark] * len(some))
            rows = connection.fetch_all(
                f"SELECT c.key, c.archive_before FROM {self.changes_sql()} AND c.key IN ({marks})"
                " AND (c.archive_before IS NOT NULL OR c.archive_after IS NOT NULL)"
                f" ORDER BY {self.order} DESC",
                some,
            )
            found |= {as_bytes(key): None if cell is None else as_bytes(cell) for key, cell in rows}
        return found


def _order(name: str) -> str:
    return (
        "(SELECT t.commit_order FROM zapdb_transactions AS t"
        f" WHERE t.tenant = {name}.tenant AND t.number = {name}.transaction_number)"
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
