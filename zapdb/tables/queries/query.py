"""Queries: which records, in which order, how many. Each method returns a new query."""

from __future__ import annotations

import decimal
import math
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn

import msgspec

from zapdb.errors import RecordNotFound, SeveralRecords, UsageError
from zapdb.limits import PAGE_RECORDS_MAX, READ
from zapdb.records import Record
from zapdb.schema import Field
from zapdb.storage.retries import attempts
from zapdb.tables.bulk import change_all, remove_all
from zapdb.tables.dataset_warnings import list_warnings
from zapdb.tables.did_you_mean import Uncounted, no_attribute, no_place, not_a_record
from zapdb.tables.eager_loading import add_include, load_included
from zapdb.tables.generated_values import note_given
from zapdb.tables.indexes import BoundTable
from zapdb.tables.indexes.choosing import UnionPlan, without_ties
from zapdb.tables.indexes.ordering import BY_KEY, Ordering
from zapdb.tables.indexes.path_planning import QueryPlan
from zapdb.tables.indexes.predicates import EVERYTHING, Comparison, Not, Predicate, order_value
from zapdb.tables.queries.cursors import Cursor, Mark, decode_cursor, encode_cursor, mark_query
from zapdb.tables.queries.explanation import Explanation, count_spans, explain_plan
from zapdb.tables.queries.fields import FieldOrder, as_field, as_order, bind_all
from zapdb.tables.queries.page import Page, R, check_count, order_of_pages
from zapdb.tables.queries.plan_execution import PlanExecution
from zapdb.tables.queries.quick_reads import read_quickly
from zapdb.tables.queries.selection import (
    EVERY_RECORD,
    OrderingOf,
    Planning,
    Selection,
    any_order,
    pin_index,
)
from zapdb.tables.queries.typed_fields import TypedField, TypedOrderedField
from zapdb.tables.session import Session
from zapdb.values import Decimal, Float, Integer

_NO_FIELDS: Final = frozenset[int]()
"""For reading only the keys of records."""
_record_of: Final = itemgetter(1)


class Query(Uncounted, msgspec.Struct, Generic[R], eq=False):
    """Some records of one table: `items.where(items.f.done == False).order_by("due").limit(20)`.

    Immutable; nothing is read before it is iterated or a reading method is called. Iterating
    streams records. Only a query that `explain` says needs sorting holds records in memory: all
    that match, or as many as its limit. Inside `db.snapshot()` or `db.transaction()` records come
    as of the beginning. Elsewhere each page is a snapshot of its own; whatever this process writes
    meanwhile, a record comes at most once, and each that matches throughout comes.

    Without `order_by` and `using`, the order is that of the index that `explain` names, or of keys.
    It is not guaranteed: it may change when an index is created or dropped.
    """

    _session: Session
    _bound: BoundTable
    _selection: Selection = EVERY_RECORD

    def __repr__(self) -> str:
        return f"<query {self._bound.adapter.schema.name}{self._selection}>"

    # Making

    def where(self, /, *predicates: Predicate, **values: Any) -> Query[R]:
        """Add conditions, which must all be true: `items.f.due < 3`, or a field's value,
        `done=False`.

        Raises `UnknownField`, `InvalidValue` for a value that does not fit its field, and
        `UsageError` for an argument that is not a condition.
        """
        more = bind_all(self._bound.adapter.schema, predicates, values)
        return self._with(predicate=self._selection.predicate & more)

    def order_by(self, *fields: str | FieldOrder | TypedOrderedField[Any]) -> Query[R]:
        """Order by these fields: a field, its name, or either with a minus: `"-due"`.

        Nulls come first, in descending order last; `items.f.due.nulls_last()` has them last in
        ascending order, too. Records with equal values in all fields are ordered by their keys,
        descending if the first field is. Raises `UnknownField`, and `UsageError` for a field
        without an order.
        """
        table = self._bound.adapter.schema
        orders = tuple(as_order(table, field) for field in fields)
        return self._with(orders=orders, is_reversed=False)

    def using(self, index: str) -> Query[R]:
        """Read by this index only, in its order unless `order_by` gives another.

        Conditions keep their meaning: a string is compared under the collation of the index only
        with `collated()` or `matches`. If the index can't be read, because it is being built or has
        other collation or time zone data, the table is scanned, with the same result. Raises
        `UnknownName`.
        """
        session, bound = self._session, self._bound
        if bound.adapter.index(index) is None and not session.storage.pool.local.only_builds:
            self._look()  # it may be new
            bound = session.rebind(bound)
        return self._with(pinned=pin_index(bound, index))

    def reverse(self) -> Query[R]:
        """Reverse the order that `order_by` or `using` gives.

        Raises `UsageError` without such an order, and for an order with `nulls_last()`.
        """
        return self._but(self._selection.reversed(self._bound))

    def limit(self, count: int) -> Query[R]:
        """Return at most `count` records: the first in the given order, or any.

        As in SQL, the limit is applied after all conditions and orders, even those added later. A
        later limit replaces an earlier one.
        """
        return self._with(limit=check_count(count, "limit", 0))

    def include(self, *references: str | TypedField[Any]) -> Query[R]:
        """Load the records that these reference fields refer to, together with the query's records.

            for post in posts.where(…).include("author.city", "topic"):
                post.follow("author").name, post.follow("author.city"), post.author

        `record.follow(name)` returns the loaded record, or None if the reference is null or its
        target is missing; `record.author` stays the target's key (see `zapdb.records.follow`). Dots
        follow references of the loaded records. One statement per reference loads the targets of
        some hundred records, and the query still streams. Raises `UnknownField`, and `UsageError`
        for a field that is not a reference.
        """
        includes, table = self._selection.includes, self._bound.adapter.schema
        for path in references:
            names = path.split(".") if isinstance(path, str) else [as_field(table, path)[0].name]
            includes = add_include(self._session, table, includes, names)
        return self._with(includes=includes)

    def _with(self, **changes: Any) -> Query[R]:
        return self._but(self._selection.replace(**changes))

    def _but(self, selection: Selection) -> Query[R]:
        return Query(self._session, self._bound, selection)

    # Asking

    def __iter__(self) -> Iterator[R]:
        return self._read_records()

    def __contains__(self, record: object) -> bool:
        """Return whether the query has a record that is equal to this one: `record in query`.

        The record is looked up by its key; a query with a limit is read. Raises
        `UnsupportedOperation` for anything but a record.
        """
        schema = self._bound.adapter.schema
        names = [field.name for field in schema.key_fields]
        if not isinstance(record, Record):
            raise not_a_record(self, schema.name, names)
        if self._selection.limit is not None:
            return any(one == record for one in self)
        if not {*names} <= {*record._fields}:
            return False
        anywhere = self._with(orders=(), is_reversed=False, pinned=None, includes=())
        return anywhere.where(**{name: getattr(record, name) for name in names}).first() == record

    def all(self) -> list[R]:
        """Return all records as a list; iterating the query holds at most one page in memory."""
        return [*self._read_records()]

    def first(self) -> R | None:
        """Return the first record in the given order, or any; None if no record matches."""
        return next(self._read_records(1), None)

    def one(self) -> R:
        """Return the only record; raises `RecordNotFound` or `SeveralRecords`."""
        found = list(self._read_records(2))
        if len(found) == 1:
            return found[0]
        if found:
            raise SeveralRecords(
                "several records match", query=self, hint="use first() for any one of them"
            )
        raise RecordNotFound("no record matches", query=self)

    def exists(self) -> bool:
        """Return whether any record matches."""
        limit = self._selection.at_most(1)
        return next(self._read(any_order, _NO_FIELDS).read(limit=limit), None) is not None

    def count(self) -> int:
        """Return how many records match, up to the limit.

        If an index answers all conditions, its entries are counted and no record is read.
        """
        limit = self._selection.limit
        for _ in attempts(READ):
            bound = self._session.rebind(self._bound)
            plan = self._selection.plan(bound, None)
            if isinstance(plan, UnionPlan) or plan.filter != EVERYTHING:
                break
            if plan.is_scan and limit is None:
                bound = self._session.bind_whole(bound)
            counted = count_spans(self._session, bound, plan, limit)
            if counted is not None:
                self._selection.warn(bound, None)
                return counted
            self._session.reload()
        execution = self._read(any_order, _NO_FIELDS, is_whole=limit is None)
        return sum(1 for _ in execution.read(limit=limit))

    def min(self, field: str | TypedOrderedField[Any]) -> Any:
        """Return the least value of a field, given as for `order_by`; None if there are only nulls.

        If an index orders the field, its first entry is read. Else all matching records are read,
        with only the needed fields decoded.
        """
        return self._find_end(field, descending=False)

    def max(self, field: str | TypedOrderedField[Any]) -> Any:
        """Return the greatest value of a field, as `min`. NaN is greater than all other floats."""
        return self._find_end(field, descending=True)

    def sum(self, field: str | TypedOrderedField[Any]) -> Any:
        """Return the sum of a field of integers, decimals or floats, without nulls; 0 if there is
        none.

        The sum is exact: decimals keep all their digits, and floats are rounded once at the end.
        Only the needed fields are decoded. Raises `UsageError` for other types.
        """
        table = self._bound.adapter.schema
        found, _ = as_field(table, field)
        require_summable(table.name, found)
        return add_up(found, self._values(found))

    def page(self, size: int, cursor: str | None = None) -> Page[R]:
        """Return the first `size` records, or the next ones after the page that the cursor is from.

        The cursor holds a place in the order, not an offset: records inserted or deleted before it
        neither repeat nor hide others. It stays valid across restarts. Without `order_by` and
        `using`, the order is that of the index that the first page was read by, for later pages
        too; it is that of keys if several indexes answer the query together.

        Raises `InvalidCursor` for a cursor of another query, or one made with other collation or
        time zone data, or, without a given order, one whose index was dropped.
        """
        return self._page(size, cursor)

    def _page(
        self,
        size: int,
        cursor: str | None,
        measure: Callable[[Any], int] | None = None,
        size_bytes_max: int = 0,
    ) -> Page[R]:
        """The same; if records are measured, a page ends with the record before the one with which
        it would have more bytes, but never before its first."""
        count = check_count(size, "size", 1)
        if self._selection.limit is not None:
            raise UsageError(
                "a page has a size, so it takes no limit",
                query=self,
                hint="leave out limit(…), and pass the size to page(…)",
            )
        known = None if cursor is None else decode_cursor(cursor)
        ordering, index = self._order_pages(known)
        is_watched = count >= PAGE_RECORDS_MAX  # fewer are read at once
        execution = self._read(ordering, is_watched=is_watched)
        mark = self._mark(execution)
        if known is not None and known.mark != mark:
            self._look()  # an older tenant catalog may have made the difference
            execution = self._read(ordering, is_watched=is_watched)
            mark = self._mark(execution)
            known.check(mark)
        bound, behind = execution.bound, None if known is None else known.place
        belong, includes = self._session.belong, self._selection.includes
        found = []
        for one in execution.read(limit=count + 1, behind=behind):
            found.append(one)
            if measure is not None and len(found) <= count:
                size_bytes_max -= measure(belong(one[1]))
                if size_bytes_max < 0 and len(found) > 1:
                    count = len(found) - 1
                    break
        if execution.bound is not bound:
            mark = self._mark(execution)
            if known is not None:
                known.check(mark)
        shown, after = found[:count], None
        if len(found) > count:
            after = encode_cursor(Cursor(mark, execution.place(shown[-1]), index))
        records = iter([belong(record) for _, record in shown])
        records = load_included(self._session, self._bound, includes, records)
        return Page(tuple(records), after)  # type: ignore[arg-type]  # a model's class is that of its table's records

    def explain(self) -> Explanation:
        """Return how the query is answered now; `str()` has it as text, `to_json()` as data."""
        self._look()
        bound, limit = self._session.rebind(self._bound), self._selection.limit
        ordering = self._selection.ordering(bound)
        plan = self._selection.plan(bound, ordering)
        orders = () if ordering is None else tuple(map(str, ordering.fields))
        alternative = None
        if plan.sorting == "all" and limit is not None:
            alternative = self._selection.plan_in_order(bound, ordering)
        found = explain_plan(self._session, bound, plan, orders, limit, alternative)
        past = self._session.find_reading(bound, is_whole=plan.is_scan and limit is None)
        return replace(found, warnings=list_warnings(bound), past=past)

    def to_arrow(self, fields: Collection[str] | None = None, as_text: Collection[str] = ()) -> Any:
        """Return the records in order as a `pyarrow.RecordBatchReader`, read as iterating reads
        them; the arguments are those of `Table.to_arrow`. Needs the extra `sql`."""
        from zapdb.tables.arrow import open_found

        limit = self._selection.limit
        execution = self._execution(is_whole=limit is None)
        found = execution.read(limit=limit)
        return open_found(self._session, execution.bound, found, fields, as_text)

    def to_pandas(
        self, fields: Collection[str] | None = None, as_text: Collection[str] = ()
    ) -> Any:
        """Return the records as a `pandas.DataFrame` in memory: see `Table.to_pandas`."""
        from zapdb.tables.pandas_frames import table_frame

        held = self.to_arrow(fields, as_text).read_all()
        return table_frame(self._bound.adapter.schema, held, as_text)

    # Writing

    def update(self, /, **changes: Any) -> int:
        """Change fields of the query's records; returns how many it had.

        All or nothing: one transaction, retried after conflicts, or part of `db.transaction()`. The
        keys are read first and held in memory, so a record is changed once, even if it matches
        again afterwards. Raises the errors of `Table.update`.
        """

        def update() -> int:
            with self._session.writing() as connection:
                execution = self._execution(_NO_FIELDS)
                keys = (key for key, _ in execution.read(limit=self._selection.limit))
                note_given(self._session, connection, execution.bound, changes)
                return change_all(connection, execution.bound, keys, changes)

        return self._session.run(update)

    def delete(self) -> int:
        """Delete the query's records, and apply their references' `on_delete`; returns how many it
        had.

        All or nothing: one transaction, retried after conflicts, or part of `db.transaction()`.
        Records are read and deleted some hundred at a time; if other tables refer to this one, the
        keys of deleted records are held in memory. References are checked after all records are
        deleted, so the query's records may refer to each other. Raises `ReferenceViolation` if
        another record's reference restricts the deletion.
        """

        def delete() -> int:
            with self._session.writing() as connection:
                # What it deletes it has read, so that nothing comes wrongly.
                execution = self._execution(_NO_FIELDS, is_watched=False)
                keys = (key for key, _ in execution.read(limit=self._selection.limit))
                return remove_all(self._session, connection, execution.bound, keys)

        return self._session.run(delete)

    # How

    def _read_records(self, most: int | None = None) -> Iterator[R]:
        """Return the records, of which the caller takes so many at most."""
        session, asked = self._session, self._selection
        limit = asked.at_most(most)
        has_ways = session.has_ways and limit is None  # of which one is chosen
        found = None if has_ways else read_quickly(session, self._bound, asked, limit)
        if found is None:
            execution = self._execution(is_whole=limit is None)
            found = execution.read(limit=limit)
            self._bound = execution.bound  # the table as it is now, so that the next one is quick
        records: Iterator[Record] = map(_record_of, found)
        if asked.includes:
            records = load_included(session, self._bound, asked.includes, records)
        return session.guard(records)  # type: ignore[return-value]  # a model's class is that of its table's records

    def _execution(
        self,
        fields: frozenset[int] | None = None,
        *,
        is_watched: bool = True,
        is_whole: bool = False,
    ) -> PlanExecution:
        """Return an execution that reads the records in the query's order."""
        ordering = self._selection.ordering
        return self._read(ordering, fields, is_watched=is_watched, is_whole=is_whole)

    def _read(
        self,
        ordering: OrderingOf,
        fields: frozenset[int] | None = None,
        change: Callable[[QueryPlan | UnionPlan], QueryPlan | UnionPlan] | None = None,
        *,
        is_watched: bool = True,
        is_whole: bool = False,
    ) -> PlanExecution:
        """`is_whole` says that all records are wanted that match."""
        planning = Planning(self._selection, ordering, change)
        bound = self._session.rebind(self._bound)
        if is_whole and self._session.has_ways and planning.plan(bound).is_scan:
            bound = self._session.bind_whole(bound)
        return PlanExecution(self._session, bound, planning, fields, is_watched=is_watched)

    def _look(self) -> None:
        """Load the active catalog, before a step that reads no page."""
        self._session.read_active(
            self._bound, lambda c, _: (self._session.read_catalog_version(c), None)
        )

    def _mark(self, execution: PlanExecution) -> Mark:
        return mark_query(execution.bound, self._selection.predicate, execution.plan.order)

    def _order_pages(self, cursor: Cursor | None) -> tuple[OrderingOf, int | None]:
        """Return the order of pages, and the number of its index if no order is given."""
        asked = self._selection
        if cursor is not None and (cursor.index is None) != asked.is_ordered:
            cursor.check(None)
        if asked.is_ordered:
            return asked.ordering, None
        self._look()
        bound = self._session.rebind(self._bound)
        if cursor is None:
            plan = asked.plan(bound, None)
            keys = plan.path.keys if isinstance(plan, QueryPlan) else None
            index = 0 if keys is None else keys.index.number
        else:
            index = cursor.index or 0
        ordering = BY_KEY if index == 0 else order_of_pages(bound, index)
        return lambda _: ordering, index

    def _values(self, field: Field) -> Iterator[Any]:
        """Yield the values of a field, with nulls; in any order unless there is a limit."""
        fields, limit = frozenset((field.number,)), self._selection.limit
        if limit is None:
            execution = self._read(any_order, fields, is_whole=True)
        else:
            execution = self._execution(fields)
        for _, record in execution.read(limit=limit):
            # A migration may rename the field meanwhile.
            name = field.name if field.name in record._fields else execution.name_of(field)
            yield getattr(record, name)

    def _find_end(self, given: Any, *, descending: bool) -> Any:
        table, asked = self._bound.adapter.schema, self._selection
        field, collation = as_field(table, given)
        if asked.limit is None:
            order = msgspec.structs.replace(as_order(table, given), descending=descending)
            is_null = Comparison(field.number, field.name, "==", None)
            query = self._with(predicate=asked.predicate & Not(is_null))
            ordering = Ordering.by((order,))
            execution = query._read(lambda _: ordering, frozenset((field.number,)), without_ties)
            alternative = query._selection.plan_in_order(execution.bound, ordering)
            if execution.plan.sorting != "all" or alternative is not None:
                found = next(execution.read(limit=1), None)
                return None if found is None else getattr(found[1], execution.name_of(field))
        by = order_value(field, collation)
        present = (value for value in self._values(field) if value is not None)
        return (max if descending else min)(present, key=by, default=None)

    if not TYPE_CHECKING:  # to a type checker, a class with `__getattr__` has every attribute

        def __getitem__(self, place: object) -> NoReturn:
            raise no_place(self, place)

        def __getattr__(self, name: str) -> NoReturn:
            if name.startswith("_"):
                raise AttributeError(name)
            table = object.__getattribute__(self, "_bound").adapter.schema
            raise no_attribute(self, name, table.name, ())


FLOAT_UNITS: Final = 2**1074
"""So many of the smallest float make 1: every finite float is a whole number of them."""


def require_summable(table: str, field: Field) -> None:
    """Raises `UsageError` unless the values of a field can be added."""
    if not isinstance(field.type, Integer | Decimal | Float):
        raise UsageError(
            "only integers, decimals and floats can be summed",
            field=f"{table}.{field.name}",
            type=field.type,
        )


def add_up(field: Field, values: Iterable[Any]) -> Any:
    """The sum of checked values, nulls left out; 0 of the field's type if there are none.

    Integers and decimals of any size are added exactly, floats exactly and then rounded once.
    """
    present = (value for value in values if value is not None)
    if isinstance(field.type, Float):
        return _add_floats(present)
    if isinstance(field.type, Decimal):
        scale = field.type.scale
        total = sum(field.type.to_number(value, field.name) for value in present)
        digits = tuple(map(int, str(abs(total))))
        return decimal.Decimal((int(total < 0), digits, -scale))
    return sum(present)


def _add_floats(values: Iterable[float]) -> float:
    total, special = 0, 0.0
    for value in values:
        if math.isfinite(value):
            numerator, denominator = value.as_integer_ratio()
            total += numerator * (FLOAT_UNITS // denominator)
        else:
            special += value
    if special != 0:  # NaN, too
        return special
    try:
        return total / FLOAT_UNITS
    except OverflowError:
        return math.inf if total > 0 else -math.inf
