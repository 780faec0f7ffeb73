"""A plan bound to a table as it is now: what reading its records needs, compiled once.

The table may change while a plan is read: fields get other names, records another revision. The
plan is then bound again; another one is made only if it was not read yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Final, NamedTuple
from weakref import proxy

from zapdb.errors import CatalogChanged, TransactionConflict, UsageError
from zapdb.records import PagedRows, Record, RecordReader, decoder_of
from zapdb.schema import Index, TableSchema
from zapdb.tables.indexes import BoundTable, IndexMaintainer, build_keys
from zapdb.tables.indexes.keys import INVERTED, NULL
from zapdb.tables.indexes.ordering import TotalOrder
from zapdb.tables.indexes.path_planning import QueryPlan
from zapdb.tables.indexes.predicates import (
    Matches,
    Predicate,
    comparisons_in,
    compile_predicate,
    find_field,
)
from zapdb.tables.iteration import Iteration, Owed, Reached, begin_iteration
from zapdb.tables.queries.cursors import QueryPlace
from zapdb.tables.session import Session

NULL_LAST: Final = b"\x02"
"""A null in the key of an order in which it comes last: behind `PRESENT`."""

Found = tuple[bytes, Record]
"""A record with its key."""
FoundPage = Iterable[Found]
"""The records of a page, each decoded when it is taken. Layers of a query pass pages, not records:
no Python runs for a record but its decoder and the query's conditions."""


class CheckedPage(list[Found]):
    """A page whose records are known to match."""


class Watched(NamedTuple):
    """What a plan is a branch of, by its number."""

    iteration: Iteration
    number: int
    predicate: Predicate
    """Of the whole query."""


@dataclass(slots=True)
class FirstPage:
    """Whether a first page was read yet, by any of the plans that are read together."""

    is_read: bool = False

    def require_unread(self) -> None:
        """Raise `CatalogChanged` if no page was read yet. The plan is for another schema than the
        active one, so the query is planned again."""
        if not self.is_read:
            raise CatalogChanged("the schema changed before the first page of a query was read")


class BoundPlan:
    """The filter, the order and the index of a plan for a table as it is now.

    With `fields`, the numbers of the requested fields, records have only these fields and the
    fields that the plan itself reads. The others are not decoded.
    """

    def __init__(
        self,
        plan: QueryPlan,
        bound: BoundTable,
        fields: frozenset[int] | None = None,
        first_page: FirstPage | None = None,
    ) -> None:
        self.plan = plan
        self.first_page = first_page or FirstPage(is_read=True)
        self.watched: Watched | None = None
        """The iteration that the plan is a branch of."""
        self.reached: Reached = None
        self.is_merged = False
        """Whether its records are merged with those of other plans."""
        self.moved = dict[bytes, bytes]()
        """The places in the order of records that come where they were, by their keys."""
        self._fields = None if fields is None else fields | fields_of(plan)
        self.bind(bound)

    def bind(self, bound: BoundTable) -> None:
        """Bind the plan to the current bound table.

        Raises `UnknownName`, `InvalidValue`, `UsageError` and `TransactionConflict` if the table
        has changed too much.
        """
        self.bound, plan = bound, self.plan
        self.index = self._find_index()
        for order in plan.order.fields:
            find_field(bound.adapter.schema, order.field, order.name)
        self.matches: Matches | None = None
        if plan.rechecked or plan.residual:
            self.matches = compile_predicate(plan.filter, bound.adapter.schema)
        self._reader = self._make_reader()
        self.read_one = self._reader.read
        self._build: Callable[[Record], bytes] | None = None

    def _find_index(self) -> IndexMaintainer | None:
        known = self.plan.path.keys
        if known is None:
            return None
        index = find_index(self.bound, known.index.number, known.index.name)
        if not index.keys.is_same_as(known):
            raise TransactionConflict(
                "the keys of the index changed during the read",
                index=index.name,
                hint="run the query again, or run it inside db.snapshot()",
            )
        return index

    def _make_reader(self) -> RecordReader:
        bound = self.bound
        if self._fields is None:
            return bound.adapter.reader
        return bound.field_readers.get(
            self._fields, partial(_make_field_reader, bound, self._fields)
        )

    def read(self, rows: PagedRows) -> FoundPage:
        """Return the records of a page, of any revision."""
        return self._reader.read_many(rows)

    def filter(self, page: FoundPage) -> FoundPage:
        """Return the records of a page that match the rest of the plan."""
        matches = self.matches
        if matches is None or isinstance(page, CheckedPage):
            return page
        return (found for found in page if matches(found[1]))

    # A branch of an iteration

    @property
    def is_by_key(self) -> bool:
        return self.plan.path.keys is None

    @property
    def is_reversed(self) -> bool:
        return self.plan.order.is_reversed

    def may_have(self, key: bytes) -> bool:
        return any(span.holds(key) for span in self.plan.spans)

    def find_place(self, key: bytes, stored: bytes) -> bytes | None:
        """Return where the records of the plan have this one, by its full key; None if it is none
        of them."""
        if self.index is None and not self.may_have(key):
            return None
        record = self.read_one(key, stored)
        full = key if self.index is None else self.index.keys.build(record)
        if not self.may_have(full) or not (self.matches is None or self.matches(record)):
            return None
        return full

    def read_at(self, owed: Owed) -> Found:
        """Return a record as it was at the beginning of the iteration."""
        return owed.key, owed.read(self.bound, self._reader)

    @property
    def build(self) -> Callable[[Record], bytes]:
        """record → its key in the order; compiled once for each order: many queries need none."""
        if self._build is None:
            table, order = self.bound.adapter.schema, self.plan.order
            kept = self.bound.adapter.order_keys
            self._build = kept.get(order.fields, lambda: _build_order(table, order))
        return self._build

    def place(self, found: Found) -> QueryPlace:
        return QueryPlace(self.build(found[1]), found[0])

    def sort_key(self, found: Found) -> bytes:
        """The place in the total order: no order's key is the beginning of another one."""
        if self.moved and found[0] in self.moved:
            return self.moved.pop(found[0])
        return self.position(self.place(found))

    def position(self, place: QueryPlace) -> bytes:
        return place.order_key + self._tie(place.record_key)

    def tie_key(self, found: Found) -> bytes:
        return self._tie(found[0])

    def order_key(self, found: Found) -> bytes:
        return self.build(found[1])

    def _tie(self, record_key: bytes) -> bytes:
        return record_key.translate(INVERTED) if self.plan.order.key_descending else record_key


def watch(
    session: Session, plans: Sequence[BoundPlan], predicate: Predicate, since: int | None = None
) -> bool:
    """Begin an iteration that reads these plans together, all records that match a predicate; see
    `begin_iteration`."""
    # The plans refer to it: it ends with them, at once, and not when garbage is collected.
    iteration = Iteration([proxy(plan) for plan in plans])
    for number, plan in enumerate(plans):
        plan.watched = Watched(iteration, number, predicate)
    return begin_iteration(session, plans[0].bound, iteration, since)


def _make_field_reader(bound: BoundTable, fields: frozenset[int]) -> RecordReader:
    decode = decoder_of(bound.adapter.schema, fields, bound.catalog.zones)
    return bound.make_field_reader(decode)


def find_index(bound: BoundTable, number: int, name: str) -> IndexMaintainer:
    """The index with this number; raises `UsageError` for one that was dropped since."""
    for index in bound.adapter.indexes:
        if index.descriptor.index.number == number:
            return index
    raise UsageError("the index was dropped", table=bound.adapter.schema.name, index=name)


def _build_order(table: TableSchema, order: TotalOrder) -> Callable[[Record], bytes]:
    if not order.fields:
        return lambda record: b""
    if not any(field.nulls_last for field in order.fields):
        return build_keys(table, order.index).build
    parts = [
        (build_keys(table, Index(0, "order", (component,))).build, field.nulls_last)
        for field, component in zip(order.fields, order.index.components, strict=True)
    ]

    def build(record: Record) -> bytes:
        key = b""
        for build_part, nulls_last in parts:
            part = build_part(record)
            key += NULL_LAST if nulls_last and part == NULL else part
        return key

    return build


def fields_of(plan: QueryPlan) -> frozenset[int]:
    """Return the numbers of the fields that a plan reads."""
    filtered = (comparison.field for comparison in comparisons_in(plan.filter))
    ordered = (order.field for order in plan.order.fields)
    return frozenset(chain(filtered, ordered, (c.field for c in plan.path.components)))
