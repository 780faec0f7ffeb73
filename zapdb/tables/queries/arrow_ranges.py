"""Ranges of a table's keys that are read apart, as Arrow: how a cluster shares a table.

The ranges are planned and read through the handle of a snapshot, so each of them is as of one
moment. Ranges of several processes are as of the same moment only if their snapshots are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any, Final

from zapdb.limits import SPARK_BATCH_RECORDS
from zapdb.records.arrow import arrow_decoder, arrow_schema, decode_batches
from zapdb.storage import Connection
from zapdb.tables.arrow import WHOLE_TABLE, KeyRange, Wanted, read_batches, read_pages
from zapdb.tables.indexes import BoundTable
from zapdb.tables.indexes.choosing import UnionPlan
from zapdb.tables.indexes.path_planning import QueryPlan, plan_path
from zapdb.tables.indexes.paths import Path
from zapdb.tables.indexes.predicates import EVERYTHING, Predicate, compile_predicate
from zapdb.tables.queries.bound_plan import BoundPlan
from zapdb.tables.queries.explanation import count_spans
from zapdb.tables.queries.fields import bind, bind_all
from zapdb.tables.queries.selection import Selection
from zapdb.tables.table_reading import ReadableTable

_KEY_ONLY: Final = frozenset[int]()


@dataclass(frozen=True, slots=True)
class RangePlan:
    """How the records of a query are shared: each part is some ranges of keys.

    If an index answers the query, there are no parts; one reader reads by that index.
    """

    parts: tuple[tuple[KeyRange, ...], ...]
    index: str | None = None


def plan_ranges(
    table: ReadableTable,
    predicate: Predicate = EVERYTHING,
    *,
    part_records: int,
    parts: int | None = None,
    parts_max: int,
) -> RangePlan:
    """Share the records of a table that may match into parts of about equal size, by counting keys,
    or those of some blocks of a large table.

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


def bind_now(table: ReadableTable) -> BoundTable:
    """The table as the snapshot shows it."""
    session = table._session
    bound, _ = table._read_active(lambda c, _: (session.read_catalog_version(c), None))
    return bound


def _plan(bound: BoundTable, predicate: Predicate) -> QueryPlan | UnionPlan:
    return Selection(bind_all(bound.adapter.schema, (predicate,), {})).plan(bound, None)


def _matches_few(
    table: ReadableTable, bound: BoundTable, branches: Sequence[QueryPlan], records_max: int
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
    samples = [bound.sample_keys(connection, *one) for one in ranges]
    counts = [
        bound.count_keys(connection, *one) if sample is None else sample.records
        for one, sample in zip(ranges, samples, strict=True)
    ]
    total = sum(counts)
    count = parts if parts is not None else min(parts_max, -(-total // part_records))
    every = max(1, -(-total // max(1, count)))
    shared, waiting, waiting_records = list[tuple[KeyRange, ...]](), list[KeyRange](), 0
    for one, sample, records in zip(ranges, samples, counts, strict=True):
        if records <= every:
            if waiting and waiting_records + records > every:
                shared.append(tuple(waiting))
                waiting, waiting_records = [], 0
            waiting.append(one)
            waiting_records += records
            continue
        if sample is None:
            cuts = bound.records.slice_range(connection, *one, every)
        else:
            cuts = sample.cut(every)
        bounds = [one[0], *cuts, one[1]]
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


def read_ranges(
    table: ReadableTable, ranges: Sequence[KeyRange], query: RangeQuery
) -> Iterator[Any]:
    """Yield `pyarrow.RecordBatch`es of the matching records in some ranges of keys.

    The fields are in declared order. Raises what `Table.to_arrow` raises.
    """
    bound = bind_now(table)
    schema = bound.adapter.schema
    where = bind(schema, query.predicate)
    if where == EVERYTHING and query.limit is None:
        fields = arrow_schema(schema, query.fields, query.as_text)
        wanted = Wanted(fields, query.fields, query.as_text)
        for keys in ranges:
            yield from read_batches(table._session, table._read_active, bound, wanted, keys)
        return
    yield from decode_batches(
        arrow_decoder(schema, query.fields, query.as_text, bound.catalog.zones),
        islice(_read_matching(table, ranges, bound, where), query.limit),
        bound.make_attachments,
        bound.adapter.reader,
        batch_records=SPARK_BATCH_RECORDS,
    )


def _read_matching(
    table: ReadableTable, ranges: Sequence[KeyRange], bound: BoundTable, where: Predicate
) -> Iterator[tuple[bytes, bytes]]:
    plan = plan_path(bound.adapter.schema, Path.by_key(bound.adapter.schema), (where,), None)
    read = BoundPlan(plan, bound, _KEY_ONLY).read_one
    matches = compile_predicate(where, bound.adapter.schema)
    for keys in ranges:
        for page in read_pages(table._session, table._read_active, bound, keys):
            if where == EVERYTHING:
                yield from page.rows.rows()
            else:
                yield from (row for row in page.rows.rows() if matches(read(*row)))
