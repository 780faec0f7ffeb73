"""The moments of a tenant, newest first: who changed how much of which tables, and when."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from zapdb.catalog.schema_history import read_entries
from zapdb.errors import HistoryDamaged, HistoryReplaced, UnknownName
from zapdb.log.change_log import ChangeRow
from zapdb.log.moments import LoggedMoment, Moments
from zapdb.log.pending_changes import OF_TENANT
from zapdb.past.files.history_manifest import list_timelines
from zapdb.past.reading.moment import (
    Moment,
    When,
    find_moment,
    find_newest_moment,
    open_moments,
    place_before,
    to_moment,
)
from zapdb.past.reading.recorded import require_recorded
from zapdb.past.reading.replaced_files import explain_missing
from zapdb.printing import one_line, show_moment
from zapdb.schema import TableSchema
from zapdb.storage import Connection
from zapdb.storage.cells import as_number, as_time
from zapdb.tables.change_decoding import ChangeDecoder, RecordChange, SchemaEvent
from zapdb.tables.changes import fetch_logged, within_snapshot
from zapdb.tables.session import Session

if TYPE_CHECKING:
    from zapdb.past.reading.stored_moments import StoredMoment

MOMENTS_PAGE = 100


@dataclass(frozen=True, slots=True)
class ChangeCounts:
    """How many records of a table one transaction inserted, updated and deleted, and how many
    schema events it has."""

    table: str
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    events: int = 0


@dataclass(frozen=True, slots=True)
class MomentSummary(Moment):
    """A moment with its transaction: who made it, when, and what it changed, by table.

    `made_at` is when the transaction wrote its changes, by the database's clock.
    """

    principal: str
    made_at: datetime
    changes: tuple[ChangeCounts, ...]

    def __repr__(self) -> str:
        tables = ", ".join(made.table for made in self.changes)
        at, by = show_moment(self.made_at), one_line(self.principal)
        return f"<moment {self.number}, {at} by {by}: {tables}>"


def list_moments(
    session: Session,
    since: When | None,
    until: When | None,
    principal: str | None,
    table: str | None,
) -> Iterator[MomentSummary]:
    """Yield the moments after `since` up to `until`, newest first: see `Database.moments`."""
    names = TableNames(session)
    numbers = None if table is None else names.find(table)
    found = list_with_tables(session, since, until, principal, numbers, names)
    for one, _ in require_recorded(session, found, numbers, until):
        yield one


def list_with_tables(
    session: Session,
    since: When | None,
    until: When | None,
    principal: str | None,
    numbers: frozenset[int] | None,
    names: TableNames,
) -> Iterator[tuple[MomentSummary, Collection[int]]]:
    """Yield them with the numbers of the tables that they changed, whose names others may have."""
    moments = open_moments(session)
    first = 0 if since is None else find_moment(session, since).number
    last = find_newest_moment(session) if until is None else find_moment(session, until)
    for found, tables in _list_found(session, moments, last, names):
        if found.number <= first:
            return
        if principal in (None, found.principal) and (
            numbers is None or not numbers.isdisjoint(tables)
        ):
            yield found, tables


def _list_found(
    session: Session, moments: Moments, last: LoggedMoment, names: TableNames
) -> Iterator[tuple[MomentSummary, Collection[int]]]:
    """Yield the moments up to one, with the numbers of their tables: of the log, and those in front
    of it that files have."""
    until = last.number
    while True:
        with within_snapshot(session) as connection:
            beginning = moments.find_beginning(connection)
            page = moments.list_back(connection, last, MOMENTS_PAGE)
            kept = [row for row in page if row[0].number > beginning.number]
            changes = _count_changes(connection, moments, [made for made, _, _ in kept], names)
        for made, by, made_at in kept:
            assert made.transaction is not None
            yield _summarize(made, by, made_at, changes.get(made.transaction, {}))
            until = made.number - 1
        if len(kept) < MOMENTS_PAGE:
            break
        with within_snapshot(session) as connection:
            last = moments.find_bookmark(connection, place_before(kept[-1][0].bookmark))
    if beginning.number:
        for one in _list_stored(session, moments, min(until, beginning.number)):
            counts = {t: ChangeCounts(names[t], *counted) for t, counted in one.counts.items()}
            yield _summarize(one.moment, one.principal, one.made_at, counts)


def _list_stored(session: Session, moments: Moments, until: int) -> Iterator[StoredMoment]:
    """Yield the moments up to a number that files have, newest first."""
    while True:
        with within_snapshot(session) as connection:
            if not list_timelines(connection, moments.log.tenant):
                return
            from zapdb.past.reading.stored_moments import StoredMoments

            stored = StoredMoments(connection, moments)
        try:
            for one in stored.list_back(until):
                until = one.moment.number - 1
                yield one
            return
        except HistoryDamaged as damaged:
            missed = explain_missing(session, damaged)
            if session.storage.is_in_transaction or not isinstance(missed, HistoryReplaced):
                raise missed from damaged.__cause__


def _summarize(
    made: LoggedMoment, by: str, made_at: int, changes: dict[int, ChangeCounts]
) -> tuple[MomentSummary, Collection[int]]:
    moment = to_moment(made)
    counts, at = tuple(changes.values()), as_time(made_at)
    made_moment = MomentSummary(moment.number, moment.visible_at, moment.bookmark, by, at, counts)
    return made_moment, changes.keys()


def read_back(session: Session, until: When | None) -> Iterator[RecordChange | SchemaEvent]:
    """Yield the changes from the newest on, or from a moment: see `DatabaseChangeLog.read_back`."""
    moments, decoder = open_moments(session), ChangeDecoder(session)
    last = find_newest_moment(session)
    if until is not None:
        last = find_moment(session, until, only_logged=True)
    while True:
        with within_snapshot(session) as connection:
            beginning = moments.find_beginning(connection)
            page = moments.list_back(connection, last, MOMENTS_PAGE)
        for made, _, _ in page:
            if made.number <= beginning.number:
                return
            yield from reversed(_read_one(session, moments, decoder, made))
        if len(page) < MOMENTS_PAGE:
            return
        with within_snapshot(session) as connection:
            last = moments.find_bookmark(connection, place_before(page[-1][0].bookmark))


def read_one_moment(session: Session, when: When) -> list[RecordChange | SchemaEvent]:
    """Return the changes of the transaction of a moment, in order."""
    moments, made = open_moments(session), find_moment(session, when, only_logged=True)
    with within_snapshot(session) as connection:
        if made.number <= moments.find_beginning(connection).number:
            return []
    return _read_one(session, moments, ChangeDecoder(session), made)


def _read_one(
    session: Session, moments: Moments, decoder: ChangeDecoder, made: LoggedMoment
) -> list[RecordChange | SchemaEvent]:
    return [decoder.decode(row) for row in iterate_rows(session, moments, made)]


def iterate_rows(session: Session, moments: Moments, made: LoggedMoment) -> Iterator[ChangeRow]:
    """Yield the rows of the transaction of a moment, in order."""
    before = replace(made.bookmark, commit_order=made.commit_order - 1)
    for row in moments.log.read(partial(fetch_logged, session), before, made.stamp):
        if row.transaction.number != made.transaction:
            break
        yield row


class TableNames:
    """The names of tables by number, the newest that they had."""

    def __init__(self, session: Session) -> None:
        self._schemas: dict[int, TableSchema] = {}
        self._names: dict[int, set[str]] = {}
        self._newest: dict[int, str] = {OF_TENANT: ""}
        self._dropped = set[int]()
        with within_snapshot(session) as connection:
            for entry in read_entries(connection, session.catalog.tenant):
                name = entry.schema.name
                self._names.setdefault(entry.table_number, set()).add(name)
                self._newest[entry.table_number] = name
                self._schemas[entry.table_number] = entry.schema
                if entry.event == "drop":
                    self._dropped.add(entry.table_number)
                else:
                    self._dropped.discard(entry.table_number)

    def __getitem__(self, number: int) -> str:
        return self._newest.get(number, str(number))

    def find_dropped(self, name: str) -> list[int]:
        """Return the tables that had a name when they were dropped, in the order of their
        creation."""
        return sorted(number for number in self._dropped if self._newest[number] == name)

    def is_dropped(self, number: int) -> bool:
        return number in self._dropped

    def schema(self, number: int) -> TableSchema:
        """Return the newest schema of a table."""
        return self._schemas[number]

    def find(self, name: str) -> frozenset[int]:
        """Return the tables that have a name, or had it when they were dropped: one may have been
        made again. If there are none, the last one that ever had it; raises `UnknownName`."""
        found = {number for number in self._names if self._newest[number] == name}
        had = [number for number, names in self._names.items() if name in names]
        if found or had:
            return frozenset(found or {max(had, key=lambda one: (one not in self._dropped, one))})
        raise UnknownName.of_table(name, [name for name in self._newest.values() if name])


def _count_changes(
    connection: Connection, moments: Moments, page: list[LoggedMoment], names: TableNames
) -> dict[int, dict[int, ChangeCounts]]:
    """Return the changes of transactions by their numbers, for each table."""
    if not page:
        return {}
    numbers = ", ".join(str(made.transaction) for made in page)
    rows = connection.fetch_all(
        "SELECT transaction_number, table_number,"
        " sum(CASE WHEN event IS NULL AND before IS NULL THEN 1 ELSE 0 END),"
        " sum(CASE WHEN before IS NOT NULL AND after IS NOT NULL AND event IS NULL"
        " THEN 1 ELSE 0 END),"
        " sum(CASE WHEN event IS NULL AND after IS NULL THEN 1 ELSE 0 END),"
        " sum(CASE WHEN event IS NULL THEN 0 ELSE 1 END)"
        f" FROM zapdb_changes WHERE tenant = {moments.log.tenant}"
        f" AND transaction_number IN ({numbers})"
        " GROUP BY transaction_number, table_number ORDER BY transaction_number, table_number"
    )
    found: dict[int, dict[int, ChangeCounts]] = {}
    for transaction, table, *counts in rows:
        number = as_number(table)
        made = ChangeCounts(names[number], *map(int, counts))
        found.setdefault(as_number(transaction), {})[number] = made
    return found
