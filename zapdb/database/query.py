"""Queries: which records, in which order, how many; made step by step, each step a new query."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from zapdb.database.cursors import decode_cursor, encode_cursor, fingerprint_query
from zapdb.database.explanation import Explanation, count_spans, explain_plan
from zapdb.database.fields import as_order
from zapdb.database.reading import Found, Lens, read_plan
from zapdb.database.session import Session
from zapdb.errors import InvalidValue, RecordNotFound, SeveralRecords, UsageError
from zapdb.indexes import LiveTable
from zapdb.indexes.planning import Order, Plan, make_plan
from zapdb.indexes.predicates import EVERYTHING, Predicate, comparisons_in
from zapdb.limits import RETRIES_MAX
from zapdb.records import Record


@dataclass(frozen=True, slots=True)
class Page:
    """Some records of a query in order, and the cursor of the next page; None on the last one."""

    records: tuple[Record, ...]
    cursor: str | None

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)

    def __len__(self) -> int:
        return len(self.records)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Query:
    """Some records of one table: `items.where(items.done == False).order_by("due").limit(20)`.

    Immutable; nothing is read before it is iterated or asked. Iterating streams: only a query that
    `explain` says needs sorting holds records in memory, all that match, or as many as its limit.
    Each page that it reads is a snapshot of its own, unless it runs inside `db.snapshot()` or
    `db.transaction()`.
    """

    session: Session
    live: LiveTable
    predicate: Predicate = EVERYTHING
    orders: tuple[Order, ...] = ()
    size: int | None = None

    def __repr__(self) -> str:
        parts = [self.live.shape.table.name]
        if self.predicate != EVERYTHING:
            parts.append(f"where {self.predicate}")
        if self.orders:
            parts.append(f"order by {', '.join(map(str, self.orders))}")
        if self.size is not None:
            parts.append(f"limit {self.size}")
        return f"<query {' '.join(parts)}>"

    # Making

    def where(self, *predicates: Predicate) -> Query:
        """The records of this query for which all the conditions are true, too."""
        self._refuse_limit("where")
        return replace(self, predicate=join(self.live, self.predicate, predicates))

    def order_by(self, *fields: Any) -> Query:
        """In the order of these fields: a field, its name, or either with a minus: `"-due"`.

        Nulls come first, in falling order last. Records that are equal in all of them come in the
        order of their keys, in falling order where the first field falls. Raises `UnknownField`,
        and `UsageError` for a field without an order.
        """
        self._refuse_limit("order_by")
        table = self.live.shape.table
        return replace(self, orders=tuple(as_order(table, field) for field in fields))

    def limit(self, count: int) -> Query:
        """At most so many records: the first ones in order, that of keys where none is given."""
        size = _check_count(count, "limit", 0)
        return replace(self, size=size if self.size is None else min(size, self.size))

    # Asking

    def __iter__(self) -> Iterator[Record]:
        for _, record in self._read():
            yield record

    def first(self) -> Record | None:
        """The first record in order, that of keys where none is given; None if there is none."""
        return next(iter(self.limit(1)), None)

    def one(self) -> Record:
        """The only record; raises `RecordNotFound`, or `SeveralRecords`."""
        found = list(replace(self, size=2 if self.size is None else min(self.size, 2)))
        if len(found) == 1:
            return found[0]
        if found:
            raise SeveralRecords("several records match", query=self, hint="first() takes one")
        raise RecordNotFound("no record matches", query=self)

    def exists(self) -> bool:
        """Whether any record matches."""
        live, plan = self._plan(total=False)
        limit = 1 if self.size is None else min(self.size, 1)
        return next(read_plan(self.session, Lens(plan, live), limit=limit), None) is not None

    def count(self) -> int:
        """How many records match, up to the limit.

        Where an index answers all of the conditions, its entries are counted and no record is read.
        """
        for _ in range(RETRIES_MAX):
            live, plan = replace(self, orders=())._plan(total=False)
            if plan.filter != EVERYTHING:
                break
            counted = count_spans(self.session, live, plan, self.size)
            if counted is not None:
                return counted
            self.session.reload()
        return sum(1 for _ in read_plan(self.session, Lens(plan, live), limit=self.size))

    def page(self, size: int, cursor: str | None = None) -> Page:
        """The next `size` records behind those of the page that the cursor came with.

        The cursor names a place in the order, and not a number of records: what was inserted or
        deleted before it meanwhile neither repeats nor hides any. It stays good across restarts.
        Raises `InvalidCursor` for one of another query.
        """
        count = _check_count(size, "size", 1)
        self._refuse_limit("page")
        live, plan = self._plan(total=True)
        lens = Lens(plan, live)
        mark = fingerprint_query(live, self.predicate, plan.order)
        behind = None if cursor is None else decode_cursor(mark, cursor)
        found = list(read_plan(self.session, lens, limit=count + 1, behind=behind))
        if len(found) <= count:
            return Page(tuple(record for _, record in found), None)
        shown = found[:count]
        after = encode_cursor(mark, lens.place(shown[-1]))
        return Page(tuple(record for _, record in shown), after)

    def explain(self) -> Explanation:
        """How the query is answered now; `str()` says it in words, `to_json()` as data."""
        live, plan = self._plan(total=self.size is not None)
        orders = tuple(map(str, self.orders))
        return explain_plan(self.session, live, plan, orders, self.size)

    # How

    def _read(self) -> Iterator[Found]:
        if self.size == 0:
            return iter(())
        live, plan = self._plan(total=self.size is not None)
        return read_plan(self.session, Lens(plan, live), limit=self.size)

    def _plan(self, *, total: bool) -> tuple[LiveTable, Plan]:
        live, _ = self.session.ask(self.live, lambda c, _: (self.session.read_activation(c), None))
        shape = live.shape
        readable = [index.keys for index in shape.indexes if index.is_readable]
        return live, make_plan(shape.table, readable, self.predicate, self.orders, total=total)

    def _refuse_limit(self, step: str) -> None:
        if self.size is not None:
            raise UsageError(f"`limit` comes last, and not before `{step}`", query=self)


def join(live: LiveTable, predicate: Predicate, more: tuple[Any, ...]) -> Predicate:
    """All of the conditions; raises `UsageError` for what is none, or one on another table."""
    numbers = {field.number for field in live.shape.table.fields}
    for part in more:
        predicate = predicate & part
        for comparison in comparisons_in(part):
            if comparison.field not in numbers:
                raise UsageError(
                    "a condition on another table",
                    table=live.shape.table.name,
                    condition=comparison,
                )
    return predicate


def _check_count(count: Any, name: str, least: int) -> int:
    if not isinstance(count, int) or isinstance(count, bool) or count < least:
        raise InvalidValue.of(name, f"a number of records, at least {least}", count)
    return count
