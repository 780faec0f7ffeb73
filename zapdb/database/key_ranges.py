"""Ranges of a table's keys that are read apart, as Arrow: how a cluster shares a table.

The ranges are planned and read through the handle of a snapshot, so each of them is as of one
moment. Ranges of several processes are as of the same moment only if their snapshots are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice, pairwise
from typing import Any, Final

from zapdb.database.bound_plan import BoundPlan
from zapdb.database.explanation import count_spans
from zapdb.database.fields import bind
from zapdb.database.selection import Selection
from zapdb.database.table import Table
from zapdb.indexes import BoundTable
from zapdb.indexes.choosing import UnionPlan
from zapdb.indexes.paths import Path
from zapdb.indexes.planning import QueryPlan, plan_path
from zapdb.indexes.predicates import EVERYTHING, Predicate, compile_predicate
from zapdb.limits import PAGE_RECORDS_MAX, SPARK_BATCH_RECORDS
from zapdb.records.arrow import arrow_decoder, decode_batches
from zapdb.storage import Connection

KeyRange = tuple[bytes | None, bytes | None]
"""Encoded record keys: lower ≤ key < upper; None is no bound."""
WHOLE_TABLE: Final[KeyRange] = (None, None)
_KEY_ONLY: Final = frozenset[int]()


@dataclass(frozen=True, slots=True)
class RangePlan:
    """How the records of a query are shared: each part is some ranges of keys.

    If an index answers the query, there are no parts; one reader reads by that index.
    """

    parts: tuple[tuple[KeyRange, ...], ...]
    index: str | None = None


def plan_ranges(
    table: Table,
    predicate: Predicate = EVERYTHING,
    *,
    part_records: int,
    parts: int | None = None,
    parts_max: int,
) -> RangePlan:
    """Share the records of a table that may match into parts of about equal size, by counting keys.

    There are `parts`, or as many as give each about `part_records` records. An index is used if its
    ranges have at most `part_records` entries.
    """
    bound = bind_now(table)
    plan = _plan(bound, predicate)
    ranges: list[KeyRange] = [WHOLE_TABLE]
    if isinstance(plan, QueryPlan) and plan.path.keys is None:
        ranges = [(span.lower, span.upper) for span in plan.spans]
    elif _matches_few(table, bound, plan.branches, part_records):
        return RangePlan((), " and ".join(dict.fromkeys(b.path.name for b in plan.branches)))
    with table._session.connected() as connection:
        return RangePlan(_share(connection, bound, ranges, (part_records, parts, parts_max)))


def bind_now(table: Table) -> BoundTable:
    """The table as the snapshot shows it."""
    session = table._session
    bound, _ = table._read_active(lambda c, _: (session.read_catalog_version(c), None))
    return bound


def _plan(bound: BoundTable, predicate: Predicate) -> QueryPlan | UnionPlan:
    return Selection(predicate=bind(bound.adapter.schema, predicate)).plan(bound, None)


def _matches_few(
    table: Table, bound: BoundTable, branches: Sequence[QueryPlan], records_max: int
) -> bool:
    if any(branch.path.keys is None or branch.is_scan for branch in branches):
        return False
    left = records_max
    for branch in branches:
        counted = count_spans(table._session, bound, branch, left + 1)
        if counted is None or counted > left:
            return False
        left -= counted
    return True


def _share(
    connection: Connection,
    bound: BoundTable,
    ranges: Sequence[KeyRange],
    wanted: tuple[int, int | None, int],
) -> tuple[tuple[KeyRange, ...], ...]:
    part_records, parts, parts_max = wanted
    counts = [bound.records.count_range(connection, *one, None)[1] for one in ranges]
    total = sum(counts)
    count = parts if parts is not None else min(parts_max, -(-total // part_records))
    every = max(1, -(-total // max(1, count)))
    shared, waiting, waiting_records = list[tuple[KeyRange, ...]](), list[KeyRange](), 0
    for one, records in zip(ranges, counts, strict=True):
        if records <= every:
            if waiting and waiting_records + records > every:
                shared.append(tuple(waiting))
                waiting, waiting_records = [], 0
            waiting.append(one)
            waiting_records += records
            continue
        bounds = [one[0], *bound.records.slice_range(connection, *one, every), one[1]]
        shared += [((lower, upper),) for lower, upper in pairwise(bounds)]
    if waiting or not shared:
        shared.append(tuple(waiting))
    return tuple(shared)


@dataclass(frozen=True, slots=True)
class RangeQuery:
    """What is read of each range: the matching records, the named fields or all, up to a limit."""

    predicate: Predicate = EVERYTHING
    fields: Collection[str] | None = None
    as_text: Collection[str] = ()
    limit: int | None = None


def read_ranges(table: Table, ranges: Sequence[KeyRange], query: RangeQuery) -> Iterator[Any]:
    """Yield `pyarrow.RecordBatch`es of the matching records in some ranges of keys.

    The fields are in declared order. Raises what `Table.to_arrow` raises.
    """
    bound = bind_now(table)
    schema = bound.adapter.schema
    decoder = arrow_decoder(schema, query.fields, query.as_text, bound.catalog.zones)
    rows: Iterator[tuple[bytes, bytes]] = chain.from_iterable(
        _read_rows(table, one) for one in ranges
    )
    where = bind(schema, query.predicate)
    if where != EVERYTHING:
        plan = plan_path(schema, Path.by_key(schema), (where,), None)
        compared = BoundPlan(plan, bound, _KEY_ONLY)
        matches, read = compile_predicate(where, schema), compared.read
        rows = (row for row in rows if matches(read(*row)))
    yield from decode_batches(
        decoder,
        islice(rows, query.limit),
        bound.make_attachments,
        bound.adapter.reader,
        batch_records=SPARK_BATCH_RECORDS,
    )


def _read_rows(table: Table, keys: KeyRange) -> Iterator[tuple[bytes, bytes]]:
    after: tuple[bytes, bytes] | None = None
    is_last = False
    while not is_last:
        _, page = table._read_active(partial(_read_page, keys, after))
        for key, _, value in page:
            yield key, value
            after = (key, key)
        is_last = len(page) < PAGE_RECORDS_MAX


def _read_page(
    keys: KeyRange, after: tuple[bytes, bytes] | None, connection: Connection, bound: BoundTable
) -> tuple[int | None, list[tuple[bytes, bytes, bytes]]]:
    return bound.records.page(
        connection, keys[0], keys[1], after, PAGE_RECORDS_MAX, descending=False
    )
