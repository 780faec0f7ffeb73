"""Which revisions the records of a key range may have: the lowest one, for each range of a table.

A row says: no record whose key is above `lower`, up to `upper`, has a revision below `revision`. A
job writes it when it has found a range so, in the transaction that marks the range as done. It
stays true from then on: a record is never written with a lower revision than the active one, nor
with a lower one than it had: processes with older files, and imports, too, write a table's newest
revision (rule 1). So rows are facts that no writer has to look at. They may
overlap: for each key, the highest revision counts.

What no row says is what the schema history says: no record has a lower revision than its first
entry. Readers never use any of this (rule 8): they look at each record's prefix.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any

from zapdb.storage import Connection
from zapdb.storage.cells import as_bytes, as_number

Bounds = tuple[bytes | None, bytes | None]
"""Keys above the first one, up to the second one; None has no bound."""


@dataclass(frozen=True, slots=True)
class RangeRevision:
    """No record with a key above `lower`, up to `upper`, has a revision below `revision`."""

    lower: bytes | None
    upper: bytes | None
    revision: int


def note_range_revision(
    connection: Connection, tenant: int, table: int, bounds: Bounds, revision: int
) -> None:
    """Store the fact about a range, united with those of its neighbours that say the same.

    What two transactions add at the same time about neighbours stays two rows, until
    `note_table_revision` unites them.
    """
    lower, upper = bounds
    mine, mark = _condition(tenant, table), connection.storage.placeholder
    if lower is not None:
        # Before the row on the other side: all transactions lock neighbours in one order.
        found = connection.fetch_one(
            f"DELETE FROM zapdb_range_revisions WHERE {mine} AND revision = {mark}"
            f" AND upper = {mark} RETURNING lower",
            (revision, lower),
        )
        lower = lower if found is None else as_bytes(found[0])
    if upper is not None:
        found = connection.fetch_one(
            f"DELETE FROM zapdb_range_revisions WHERE {mine} AND revision = {mark}"
            f" AND lower = {mark} RETURNING upper",
            (revision, upper),
        )
        upper = upper if found is None else None if found[0] is None else as_bytes(found[0])
    _insert(connection, tenant, table, RangeRevision(lower or None, upper, revision))


def note_table_revision(connection: Connection, tenant: int, table: int, revision: int) -> None:
    """Store that no record of a table has a lower revision, in place of all that says less."""
    connection.run(
        f"DELETE FROM zapdb_range_revisions WHERE {_condition(tenant, table)}"
        f" AND revision <= {int(revision)}"
    )
    _insert(connection, tenant, table, RangeRevision(None, None, revision))


def forget_range_revisions(connection: Connection, tenant: int, table: int) -> None:
    """Delete what is known of a table: somebody changed records beside zapdb."""
    connection.run(f"DELETE FROM zapdb_range_revisions WHERE {_condition(tenant, table)}")


def read_range_revisions(
    connection: Connection, tenant: int, table: int, first: int
) -> list[RangeRevision]:
    """What is known of all keys of a table, in their order; neighbours differ in their revisions.

    `first` is the revision of the first entry in the table's schema history.
    """
    rows = connection.fetch_all(
        "SELECT lower, upper, revision FROM zapdb_range_revisions"
        f" WHERE {_condition(tenant, table)}"
    )
    facts = [
        RangeRevision(
            as_bytes(lower) or None,
            None if upper is None else as_bytes(upper),
            as_number(revision),
        )
        for lower, upper, revision in rows
    ]
    return list(unite(facts, first))


def read_table_revisions(connection: Connection) -> dict[tuple[int, int], int]:
    """The lowest revision that a record may have, by tenant and table, where one fact says it of
    all keys: so it is once a conversion has ended."""
    rows = connection.fetch_all(
        "SELECT tenant, table_number, max(revision) FROM zapdb_range_revisions"
        f" WHERE lower = {connection.storage.placeholder} AND upper IS NULL"
        " GROUP BY tenant, table_number",
        (b"",),
    )
    return {
        (as_number(tenant), as_number(table)): as_number(revision)
        for tenant, table, revision in rows
    }


def find_ranges_below(
    connection: Connection, tenant: int, table: int, revision: int
) -> list[Bounds]:
    """The ranges in which records may have a lower revision, as far as is known; in order."""
    return [
        (found.lower, found.upper)
        for found in read_range_revisions(connection, tenant, table, 0)
        if found.revision < revision
    ]


def unite(facts: Iterable[RangeRevision], first: int) -> Iterator[RangeRevision]:
    """What facts say of all keys: adjacent ranges with different revisions, none below `first`."""
    ordered = sorted(facts, key=lambda fact: fact.lower or b"")
    ends = {_end(fact.upper) for fact in ordered} | {_end(None)}
    ends |= {_end(fact.lower) for fact in ordered if fact.lower is not None}
    valid: list[tuple[int, tuple[bool, bytes], int]] = []  # the highest revision first
    lower, at, pending = None, 0, None
    for end in sorted(ends):
        while at < len(ordered) and (ordered[at].lower or b"") <= (lower or b""):
            heappush(valid, (-ordered[at].revision, _end(ordered[at].upper), at))
            at += 1
        while valid and valid[0][1] < end:
            heappop(valid)
        revision = max(first, -valid[0][0]) if valid else first
        upper = None if end[0] else end[1]
        if pending is not None and pending.revision == revision:
            pending = RangeRevision(pending.lower, upper, revision)
        else:
            if pending is not None:
                yield pending
            pending = RangeRevision(lower, upper, revision)
        lower = upper
    if pending is not None:
        yield pending


def intersect(ranges: Sequence[Bounds], others: Sequence[Bounds]) -> list[Bounds]:
    """The keys that are in a range of both, as ranges; both are in order, and disjoint."""
    found, one, other = list[Bounds](), 0, 0
    while one < len(ranges) and other < len(others):
        (lower, upper), (low, up) = ranges[one], others[other]
        start, end = max(lower or b"", low or b""), min(_end(upper), _end(up))
        if end[0] or start < end[1]:
            found.append((start or None, None if end[0] else end[1]))
        if _end(upper) <= _end(up):
            one += 1
        else:
            other += 1
    return found


def _end(upper: bytes | None) -> tuple[bool, bytes]:
    """An upper bound as something that is ordered."""
    return upper is None, upper or b""


def _condition(tenant: int, table: int) -> str:
    return f"tenant = {int(tenant)} AND table_number = {int(table)}"


def _insert(connection: Connection, tenant: int, table: int, fact: RangeRevision) -> None:
    mark = connection.storage.placeholder
    values: tuple[Any, ...] = (fact.revision, fact.lower or b"", fact.upper)
    connection.run(
        "INSERT INTO zapdb_range_revisions (tenant, table_number, revision, lower, upper)"
        f" VALUES ({int(tenant)}, {int(table)}, {mark}, {mark}, {mark})"
        " ON CONFLICT (tenant, table_number, revision, lower) DO UPDATE SET upper ="
        " CASE WHEN excluded.upper IS NULL OR excluded.upper > zapdb_range_revisions.upper"
        " THEN excluded.upper ELSE zapdb_range_revisions.upper END",
        values,
    )
