"""The law of plans: in the spans, and true of the filter, is exactly what a condition is true of.

Against every index by itself, with values around the length at which keys are truncated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from tests.forms import cases
from zapdb.datasets import Collation
from zapdb.records.record import record_class
from zapdb.schema import Field, Index, IndexComponent, TableSchema
from zapdb.tables.indexes import build_keys
from zapdb.tables.indexes.choosing import Planner, UnionPlan, make_plan
from zapdb.tables.indexes.ordering import Order, Ordering
from zapdb.tables.indexes.path_planning import QueryPlan
from zapdb.tables.indexes.paths import list_paths
from zapdb.tables.indexes.predicates import (
    And,
    Comparison,
    Not,
    Operator,
    Or,
    Predicate,
    compile_predicate,
)
from zapdb.tables.queries.fields import FieldExpression, bind, make_field
from zapdb.values import Float, Integer, String

FIELDS = (
    Field(1, "id", Integer()),
    Field(2, "word", String(), optional=True),
    Field(3, "rank", Integer(), optional=True),
    Field(4, "size", Float(), optional=True),
)
TABLE = TableSchema(1, "words", (1,), FIELDS)
RECORD = record_class("words", tuple(f.name for f in FIELDS))
LONG = "ab" * 509

words = st.one_of(
    st.text(st.sampled_from("aAäbz\x00"), max_size=3),
    st.text(st.sampled_from("aAb\x00"), max_size=6).map(lambda end: LONG + end),
)
ranks = st.integers(-3, 3) | st.sampled_from([2**70, -(2**70)])
sizes = st.sampled_from([-1.0, 0.0, 1.5, float("inf"), float("nan")])
VALUES: dict[str, Any] = {"id": st.integers(-3, 3), "word": words, "rank": ranks, "size": sizes}


def comparisons() -> st.SearchStrategy[Predicate]:
    return unbound_comparisons().map(lambda condition: bind(TABLE, condition))


@st.composite
def unbound_comparisons(draw: st.DrawFn) -> Predicate:
    name = draw(st.sampled_from(["id", "word", "word", "rank", "size"]))
    field, value = make_field(TABLE, name), draw(VALUES[name])
    op = draw(st.sampled_from(get_args(Operator)))
    if draw(st.integers(0, 8)) == 0:
        return draw(st.sampled_from([field == None, field != None]))
    if name == "word" and op != "starts with" and draw(st.integers(0, 8)) == 0:
        field = field.collated("und", "primary")
    return MAKERS[op](field, value, draw(VALUES[name]))


MAKERS: dict[Operator, Callable[[FieldExpression, Any, Any], Predicate]] = {
    "==": lambda field, value, _: field == value,
    "in": lambda field, value, other: field.in_([value, other, None]),
    "<": lambda field, value, _: field < value,
    "<=": lambda field, value, _: field <= value,
    ">": lambda field, value, _: field > value,
    ">=": lambda field, value, _: field >= value,
    "starts with": lambda field, value, _: (
        field.startswith(value) if isinstance(value, str) else field == value
    ),
}
"""A condition with each operator, of a field and one or two values."""


conditions = st.recursive(
    comparisons(),
    lambda parts: st.one_of(
        st.tuples(parts, parts).map(lambda two: two[0] & two[1]),
        st.tuples(parts, parts).map(lambda two: two[0] & two[1]),
        st.tuples(parts, parts).map(lambda two: two[0] | two[1]),
        parts.map(lambda part: ~part),
    ),
    max_leaves=5,
)
indexes = st.lists(
    st.tuples(st.sampled_from([2, 3, 4]), st.booleans(), st.booleans()),
    min_size=1,
    max_size=3,
    unique_by=lambda component: component[0],
)
records = st.lists(
    st.tuples(VALUES["id"], st.none() | words, st.none() | ranks, st.none() | sizes), max_size=12
)


ORDERS: list[Ordering | None] = [
    None,
    *(
        Ordering.by(orders)
        for orders in (
            [Order(3, "rank")],
            [Order(3, "rank", nulls_last=True)],
            [Order(2, "word", descending=True), Order(3, "rank", descending=True)],
            [Order(4, "size", nulls_last=True), Order(3, "rank")],
        )
    ),
]


def revalue(draw: st.DrawFn, part: Predicate) -> Predicate:
    """The same condition with other values."""
    match part:
        case Comparison(_, name, "in", value):
            return structs.replace(
                part, value=tuple(v if v is None else draw(VALUES[name]) for v in value)
            )
        case Comparison(_, name, _, value) if value is not None:
            return structs.replace(part, value=draw(VALUES[name]))
        case And(parts) | Or(parts):
            return type(part)(tuple(revalue(draw, one) for one in parts))
        case Not(inner):
            return Not(revalue(draw, inner))
    return part


@st.composite
def alikes(draw: st.DrawFn) -> tuple[Predicate, Predicate]:
    one = draw(conditions)
    return one, revalue(draw, one)


def make_index(number: int, components: Any) -> Index:
    parts = (
        IndexComponent(n, Collation("und", "primary") if n == 2 and collated else None, down)
        for n, collated, down in components
    )
    return Index(number, f"index_{number}", tuple(parts))


def count_readings(plan: QueryPlan | UnionPlan, row: Any) -> int:
    """In how many branches of a plan a record is read, and not filtered out."""
    record, found = RECORD(*row), 0
    for branch in plan.branches:
        keys = branch.path.keys
        key = FIELDS[0].type.encode_key(row[0]) if keys is None else keys.build(record)
        is_read = sum(
            (span.lower or b"") <= key and (span.upper is None or key < span.upper)
            for span in branch.spans
        )
        assert is_read <= 1
        assert list(branch.spans) == sorted(branch.spans, key=lambda span: span.lower or b"")
        found += is_read and compile_predicate(branch.filter, TABLE)(record)
    return found


@settings(max_examples=cases(2_000), deadline=None)
@given(conditions, st.lists(indexes, min_size=1, max_size=2), records)
def test_rule_24_spans_and_filter_are_the_condition(
    condition: Predicate, many: Any, rows: Any
) -> None:
    keys = [build_keys(TABLE, make_index(at, c)) for at, c in enumerate(many, start=1)]
    plan = make_plan(TABLE, keys, condition, None)
    is_meant = compile_predicate(condition, TABLE)
    for row in rows:
        assert count_readings(plan, row) == is_meant(RECORD(*row)), (plan, row)


@settings(max_examples=cases(1_000), deadline=None)
@given(
    st.lists(
        comparisons() | st.tuples(comparisons(), comparisons()).map(And), min_size=2, max_size=4
    ),
    st.lists(comparisons(), max_size=1),
    st.lists(indexes, min_size=1, max_size=3),
    records,
)
def test_no_record_is_read_twice_for_conditions_under_or(
    some: Any, more: Any, many: Any, rows: Any
) -> None:
    keys = [build_keys(TABLE, make_index(at, c)) for at, c in enumerate(many, start=1)]
    condition = And((Or(tuple(some)), *more))
    plan = make_plan(TABLE, keys, condition, None)
    is_meant = compile_predicate(condition, TABLE)
    for row in rows:
        assert count_readings(plan, row) == is_meant(RECORD(*row)), (plan, row)


@settings(max_examples=cases(1_500), deadline=None)
@given(alikes(), st.sampled_from(ORDERS), st.lists(indexes, min_size=1, max_size=3))
def test_a_way_that_was_kept_is_the_one_that_would_be_found(
    alike: tuple[Predicate, Predicate], ordering: Ordering | None, many: Any
) -> None:
    keys = [build_keys(TABLE, make_index(at, c)) for at, c in enumerate(many, start=1)]
    planner = Planner(TABLE, list_paths(TABLE, keys))
    for condition in alike:
        assert planner.plan(condition, ordering) == make_plan(TABLE, keys, condition, ordering)
    assert len(planner._generic_plans) == 1
