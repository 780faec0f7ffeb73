"""Queries: which records, in which order, how many; made step by step, each step a new query."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from zapdb.database.aggregates import add_up, refuse_sum
from zapdb.database.cursors import Cursor, Mark, decode_cursor, encode_cursor, mark_query
from zapdb.database.explanation import Explanation, count_spans, explain_plan
from zapdb.database.fields import as_field, as_order, hint_at_hidden
from zapdb.database.including import Include, add_include, load_included, names_of
from zapdb.database.many import remove_all
from zapdb.database.reading import Reading
from zapdb.database.rewriting import list_warnings, warn_if_affected
from zapdb.database.session import Session
from zapdb.errors import (
    InvalidCursor,
    InvalidValue,
    RecordNotFound,
    SeveralRecords,
    UsageError,
)
from zapdb.indexes import LiveTable
from zapdb.indexes.choosing import Union, make_plan, without_ties
from zapdb.indexes.ordering import BY_KEY, Order, Ordering, order_of_index
from zapdb.indexes.planning import Plan
from zapdb.indexes.predicates import (
    EVERYTHING,
    Comparison,
    Not,
    Predicate,
    comparisons_in,
    order_value,
)
from zapdb.limits import READ
from zapdb.records import Record
from zapdb.schema import Field
from zapdb.storage.retries import attempts

NO_FIELDS: Final = frozenset[int]()
"""Of records whose keys are all that is asked for."""


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

    Without `order_by`, records come in the order in which they are read: that of the index that
    `explain` names, or of keys. It is the same as long as the query is answered the same way, and
    not promised: an index that is created or dropped may change it.
    """

    session: Session
    live: LiveTable
    predicate: Predicate = EVERYTHING
    orders: tuple[Order, ...] = ()
    size: int | None = None
    includes: tuple[Include, ...] = ()

    def __repr__(self) -> str:
        parts = [self.live.shape.table.name]
        if self.predicate != EVERYTHING:
            parts.append(f"where {self.predicate}")
        if self.orders:
            parts.append(f"order by {', '.join(map(str, self.orders))}")
        if self.size is not None:
            parts.append(f"limit {self.size}")
        if self.includes:
            parts.append(f"with {', '.join(names_of(self.includes))}")
        return f"<query {' '.join(parts)}>"

    # Making

    def where(self, *predicates: Predicate) -> Query:
        """The records of this query for which all the conditions are true, too."""
        self._refuse_limit("where")
        return replace(self, predicate=join(self.live, self.predicate, predicates))

    def order_by(self, *fields: Any) -> Query:
        """In the order of these fields: a field, its name, or either with a minus: `"-due"`.

        Nulls come first, in falling order last; `items.due.nulls_last()` has them last in rising
        order, too. Records that are equal in all fields come in the order of their keys, in falling
        order where the first field falls. Raises `UnknownField`, and `UsageError` for a field
        without an order.
        """
        self._refuse_limit("order_by")
        table = self.live.shape.table
        return replace(self, orders=tuple(as_order(table, field) for field in fields))

    def limit(self, count: int) -> Query:
        """At most so many records: the first ones in the order that is given, or any."""
        size = _check_count(count, "limit", 0)
        return replace(self, size=size if self.size is None else min(size, self.size))

    def include(self, *references: str) -> Query:
        """Load the records that these reference fields lead to together with those of the query.

            for post in posts.where(…).include("author.city", "topic"):
                post.follow("author").name, post.follow("author.city"), post.author

        `record.follow(name)` gives the loaded record, None where the reference is null or its
        target is not there; `record.author` stays the target's key (see `zapdb.records.follow`).
        Dots lead on from what was loaded. Some hundred records are included with one statement for
        each reference, and the query streams as it does without. Raises `UnknownField`, and
        `UsageError` for a field that is no reference.
        """
        includes, table = self.includes, self.live.shape.table
        for path in references:
            if not isinstance(path, str):
                raise UsageError("a reference is included by its name", got=type(path).__name__)
            includes = add_include(self.session, table, includes, path.split("."))
        return replace(self, includes=includes)

    # Asking

    def __iter__(self) -> Iterator[Record]:
        found = self._read(self._ordering).read(limit=self.size)
        records = (record for _, record in found)
        included = load_included(self.session, self.live, self.includes, records)
        return self.session.guard(included)

    def first(self) -> Record | None:
        """The first record in the order that is given, or any; None if there is none."""
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
        limit = 1 if self.size is None else min(self.size, 1)
        return next(self._read(None, NO_FIELDS).read(limit=limit), None) is not None

    def count(self) -> int:
        """How many records match, up to the limit.

        Where an index answers all of the conditions, its entries are counted and no record is read.
        """
        for _ in attempts(READ):
            live, plan = self._plan(None)
            if isinstance(plan, Union) or plan.filter != EVERYTHING:
                break
            counted = count_spans(self.session, live, plan, self.size)
            if counted is not None:
                self._warn(live, None)
                return counted
            self.session.reload()
        return sum(1 for _ in self._read(None, NO_FIELDS).read(limit=self.size))

    def min(self, field: Any) -> Any:
        """The least value of a field, given as for `order_by`; None if there is none but nulls.

        It is the first one in an index, where one has the field in order. Else all records that
        match are read, of each no more than the fields that are needed.
        """
        return self._find_end(field, descending=False)

    def max(self, field: Any) -> Any:
        """The greatest value of a field: as `min`. NaN is greater than all other floats."""
        return self._find_end(field, descending=True)

    def sum(self, field: Any) -> Any:
        """The sum of a field of integers, decimals or floats, nulls left out; 0 if there is none.

        Exact: decimals keep all their digits, floats are rounded once at the end. Of each record,
        no more than the fields that are needed is decoded. Raises `UsageError` for other types.
        """
        found, _ = as_field(self.live.shape.table, field)
        refuse_sum(self.live.shape.table.name, found)
        return add_up(found, self._values(found))

    def page(self, size: int, cursor: str | None = None) -> Page:
        """The next `size` records behind those of the page that the cursor came with.

        The cursor names a place in the order, and not a number of records: what was inserted or
        deleted before it meanwhile neither repeats nor hides any. It stays good across restarts.
        Without `order_by`, the order is that of the index that the first page was read by, and
        later pages keep it; that of keys where several indexes answer the query together.

        Raises `InvalidCursor` for a cursor of another query or one that was made with other
        collation or time zone data, and where no order is given, for one whose index was dropped.
        """
        count = _check_count(size, "size", 1)
        self._refuse_limit("page")
        known = None if cursor is None else decode_cursor(cursor)
        ordering, index = self._order_pages(known)
        reading = self._read(ordering)
        mark = self._mark(reading)
        if known is not None and known.mark != mark:
            self._look()  # what was known before may have made the difference
            reading = self._read(ordering)
            mark = self._mark(reading)
            known.check(mark)
        live, behind = reading.live, None if known is None else known.place
        found = list(reading.read(limit=count + 1, behind=behind))
        if reading.live is not live:
            mark = self._mark(reading)
            if known is not None:
                known.check(mark)
        shown, after = found[:count], None
        if len(found) > count:
            after = encode_cursor(Cursor(mark, reading.place(shown[-1]), index))
        records = iter([self.session.belong(record) for _, record in shown])
        return Page(tuple(load_included(self.session, self.live, self.includes, records)), after)

    def explain(self) -> Explanation:
        """How the query is answered now; `str()` says it in words, `to_json()` as data."""
        self._look()
        live, plan = self._plan(self._ordering)
        orders, rival = tuple(map(str, self.orders)), None
        if plan.sorting == "all" and self.size is not None:
            rival = self._find_rival(live, self._ordering)
        found = explain_plan(self.session, live, plan, orders, self.size, rival)
        return replace(found, warnings=list_warnings(live))

    def to_arrow(self, fields: Collection[str] | None = None, as_text: Collection[str] = ()) -> Any:
        """The records in order as a `pyarrow.RecordBatchReader`, read as iterating reads them; the
        arguments are those of `Table.to_arrow`. Needs the extra `sql`."""
        from zapdb.database.arrow import open_found

        reading = self._read(self._ordering)
        found = reading.read(limit=self.size)
        return open_found(self.session, reading.live, found, fields, as_text)

    def to_pandas(
        self, fields: Collection[str] | None = None, as_text: Collection[str] = ()
    ) -> Any:
        """The same as a `pandas.DataFrame`, all of it in memory: see `Table.to_pandas`."""
        from zapdb.database.frames import table_frame

        held = self.to_arrow(fields, as_text).read_all()
        return table_frame(self.live.shape.table, held, as_text)

    # Writing

    def delete(self) -> int:
        """Delete the records of the query, and what refers to them as the references say; returns
        how many records the query had.

        All or nothing: one transaction, which is repeated when it meets another one, or part of
        `db.transaction()`. Records are read and deleted some hundred at a time; where others refer
        to the table, the keys of deleted records are held in memory. Who refers to them is looked
        at once all of them are gone, so records of the query may refer to each other. Raises
        `ReferenceViolation` where another record keeps one of them.
        """

        def delete() -> int:
            with self.session.writing() as connection:
                reading = self._read(self._ordering, NO_FIELDS)
                keys = (key for key, _ in reading.read(limit=self.size))
                return remove_all(self.session, connection, reading.live, keys)

        return self.session.run(delete)

    # How

    @property
    def _ordering(self) -> Ordering | None:
        return Ordering.by(self.orders) if self.orders else None

    def _read(
        self,
        ordering: Ordering | None,
        fields: frozenset[int] | None = None,
        turn: Callable[[Plan | Union], Plan | Union] | None = None,
    ) -> Reading:
        def make_plan(live: LiveTable) -> Plan | Union:
            self._warn(live, ordering)
            plan = live.shape.planner.plan(self.predicate, ordering)
            return plan if turn is None else turn(plan)

        def make_rival(live: LiveTable) -> Plan | None:
            return self._find_rival(live, ordering)

        live = self.session.find_again(self.live)
        return Reading(self.session, live, make_plan, fields, make_rival)

    def _find_rival(self, live: LiveTable, ordering: Ordering | None) -> Plan | None:
        planner = live.shape.planner
        return None if ordering is None else planner.plan_in_order(self.predicate, ordering)

    def _plan(self, ordering: Ordering | None) -> tuple[LiveTable, Plan | Union]:
        """The plan for what this process knows to be in force."""
        live = self.session.find_again(self.live)
        return live, live.shape.planner.plan(self.predicate, ordering)

    def _warn(self, live: LiveTable, ordering: Ordering | None) -> None:
        """Of a query that would be read by an index that can't be."""
        table = live.shape.table
        warn_if_affected(live, lambda keys: make_plan(table, keys, self.predicate, ordering))

    def _look(self) -> None:
        """Learn what is in force now, where no page that is read tells it."""
        self.session.ask(self.live, lambda c, _: (self.session.read_activation(c), None))

    def _mark(self, reading: Reading) -> Mark:
        return mark_query(reading.live, self.predicate, reading.plan.order)

    def _order_pages(self, cursor: Cursor | None) -> tuple[Ordering, int | None]:
        """The order of pages, and the number of the index that it is of where none is named."""
        if cursor is not None and (cursor.index is None) != bool(self.orders):
            cursor.check(None)
        if self.orders:
            return Ordering.by(self.orders), None
        self._look()
        if cursor is None:
            live, plan = self._plan(None)
            keys = plan.path.keys if isinstance(plan, Plan) else None
            index = 0 if keys is None else keys.index.number
        else:
            live, index = self.session.find_again(self.live), cursor.index or 0
        for found in live.shape.indexes if index else ():
            if found.descriptor.index.number == index:
                return order_of_index(found.keys.fields, found.keys.index.components), index
        if index:
            raise InvalidCursor(
                "the index whose order the pages have was dropped",
                table=live.shape.table.name,
                hint="begin again without a cursor; pages of a query with order_by need no index",
            )
        return BY_KEY, 0

    def _values(self, field: Field) -> Iterator[Any]:
        """The values of a field, with nulls, in any order unless there is a limit."""
        ordering = None if self.size is None else self._ordering
        reading = self._read(ordering, frozenset((field.number,)))
        for _, record in reading.read(limit=self.size):
            # Under way, the field may get another name.
            name = field.name if field.name in record._fields else reading.name_of(field)
            yield getattr(record, name)

    def _find_end(self, given: Any, *, descending: bool) -> Any:
        field, collation = as_field(self.live.shape.table, given)
        order = replace(as_order(self.live.shape.table, given), descending=descending)
        if self.size is None:
            is_null = Comparison(field.number, field.name, "==", None)
            query = replace(self, predicate=self.predicate & Not(is_null))
            ordering = Ordering.by((order,))
            reading = query._read(ordering, frozenset((field.number,)), without_ties)
            rival = query._find_rival(reading.live, ordering)
            if reading.plan.sorting != "all" or rival is not None:
                found = next(reading.read(limit=1), None)
                return None if found is None else getattr(found[1], reading.name_of(field))
        by = order_value(field, collation)
        present = (value for value in self._values(field) if value is not None)
        return (max if descending else min)(present, key=by, default=None)

    def _refuse_limit(self, step: str) -> None:
        if self.size is not None:
            raise UsageError(f"`limit` comes last, and not before `{step}`", query=self)


def join(live: LiveTable, predicate: Predicate, more: tuple[Any, ...]) -> Predicate:
    """All of the conditions; raises `UsageError` for what is none, or one on another table."""
    numbers = {field.number for field in live.shape.table.fields}
    for part in more:
        if isinstance(part, bool):
            raise UsageError(
                "a condition on records is expected",
                got=part,
                table=live.shape.table.name,
                hint=hint_at_hidden(live.shape.table, part)
                or "compare a field of the table: items.due == 3",
            )
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
