"""Plans: which index, what of it, what is left to compare and to sort."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from zapdb.datasets import Collation
from zapdb.limits import PLAN_BRANCHES_MAX, PLAN_SPANS_MAX, PLANS_KEPT_MAX
from zapdb.schema import Field, Index, IndexComponent, TableSchema
from zapdb.tables.indexes import build_keys, is_truncated
from zapdb.tables.indexes.choosing import Planner, UnionPlan
from zapdb.tables.indexes.choosing import make_plan as make_bound_plan
from zapdb.tables.indexes.ordering import Ordering, order_of_index
from zapdb.tables.indexes.path_planning import QueryPlan
from zapdb.tables.indexes.paths import KEY_NAME, list_paths
from zapdb.tables.indexes.predicates import EVERYTHING, And, Comparison, Predicate
from zapdb.tables.indexes.spans import Span
from zapdb.tables.queries.fields import as_order, bind, make_field
from zapdb.values import Boolean, Integer, String, ZonedTimestamp

ROOT = Collation("und")
FIELDS = (
    Field(1, "id", Integer()),
    Field(2, "part", Integer()),
    Field(3, "done", Boolean()),
    Field(4, "due", Integer(), optional=True),
    Field(5, "title", String(), optional=True),
    Field(6, "other", Integer()),
)
NAMES = {field.name: field.number for field in FIELDS}


def index(name: str, *fields: str) -> Index:
    """`-due` is descending, `~title` collated."""
    components = [
        IndexComponent(NAMES[f.strip("-~")], ROOT if "~" in f else None, "-" in f) for f in fields
    ]
    return Index(len(name), name, tuple(components))


INDEXES = (
    index("due", "due"),
    index("done_due", "done", "due"),
    index("title_due", "~title", "-due"),
    index("code", "title"),
)
TABLE = TableSchema(1, "items", (1, 2), FIELDS, INDEXES)


def make_plan(table: TableSchema, keys: Any, predicate: Predicate, ordering: Any) -> Any:
    return make_bound_plan(table, keys, bind(table, predicate), ordering)


def field(name: str) -> Any:
    return make_field(TABLE, name)


def plan(*parts: Any, order: tuple[Any, ...] | None = None, without: str = "") -> Any:
    keys = [build_keys(TABLE, i) for i in INDEXES if i.name not in without.split()]
    predicate = EVERYTHING
    for part in parts:
        predicate = predicate & part
    orders = None if order is None else Ordering.by([as_order(TABLE, o) for o in order])
    return make_plan(TABLE, keys, predicate, orders)


def seen(found: QueryPlan | UnionPlan) -> tuple[str, int, str, bool]:
    names = "+".join(dict.fromkeys(branch.path.name for branch in found.branches))
    spans = sum(len(branch.spans) for branch in found.branches)
    return names, spans, found.sorting, found.branches[0].order.is_reversed


DONE, DUE, TITLE, OTHER = field("done"), field("due"), field("title"), field("other")

CASES: list[tuple[str, tuple[Any, ...], tuple[Any, ...], tuple[str, int, str, bool]]] = [
    ("nothing fits", (OTHER == 1,), (), (KEY_NAME, 1, "none", False)),
    ("the key", (field("id") == 1, field("part") > 2), (), (KEY_NAME, 1, "none", False)),
    ("the key's beginning", (field("id").in_([1, 2]),), (), (KEY_NAME, 2, "none", False)),
    ("the key backwards", (), ("-id", "-part"), (KEY_NAME, 1, "none", True)),
    ("the key, other ties", (), ("id", "-part"), (KEY_NAME, 1, "all", False)),
    ("one field", (DUE == 1,), (), ("due", 1, "none", False)),
    ("null is a value", (DUE.is_null(),), (), ("due", 1, "none", False)),
    ("not null is a range", (~DUE.is_null(),), (), ("due", 1, "none", False)),
    ("two fields", (DONE == True, DUE == 1), (), ("done_due", 1, "none", False)),
    ("a field and bounds", (DONE == True, DUE < 1), ("due",), ("done_due", 1, "none", False)),
    ("several values", (DONE.in_([True, False]), DUE < 1), (), ("done_due", 2, "none", False)),
    ("an order that skips the fixed", (DONE == True,), ("-due",), ("done_due", 1, "none", True)),
    ("values, their order", (DONE.in_([True, False]),), ("due",), ("done_due", 2, "none", False)),
    ("values, no order", (DONE.in_([True, False]),), ("other",), ("done_due", 2, "all", False)),
    ("an order alone", (), ("-due",), ("due", 1, "none", True)),
    ("the key decides ties anyhow", (), ("due", "id", "part"), ("due", 1, "none", False)),
    ("an order's first fields", (), ("done",), ("done_due", 1, "ties", False)),
    ("mixed", (), (TITLE.collated(), "-due"), ("title_due", 1, "none", False)),
    ("mixed, backwards", (), (-TITLE.collated(), "due"), ("title_due", 1, "none", True)),
    ("mixed the other way", (), (TITLE.collated(), "due"), (KEY_NAME, 1, "all", False)),
    ("code points", (TITLE < "b",), (), ("code", 1, "none", False)),
    ("a collation", (TITLE.collated() < "b",), (), ("title_due", 1, "none", False)),
    ("no such collation", (TITLE.collated("sv") < "b",), (), (KEY_NAME, 1, "none", False)),
    ("a choice is two ranges", ((DUE == 1) | (DUE == 3),), (), ("due", 2, "none", False)),
    ("ranges that meet are one", ((DUE < 3) | (DUE > 1),), (), ("due", 1, "none", False)),
    ("in order, too", ((DUE < 1) | (DUE > 2),), ("-due",), ("due", 2, "none", True)),
    ("a choice of two indexes", ((DUE == 1) | (TITLE == "a"),), (), ("due+code", 2, "none", False)),
    ("merged", ((DONE == True) | (DUE == 2),), ("due",), ("done_due+due", 2, "none", False)),
    ("one without an index", ((DUE == 1) | (OTHER == 2),), (), (KEY_NAME, 1, "none", False)),
    ("no better than without", (DUE == 1, (DUE > 0) | (OTHER == 2)), (), ("due", 1, "none", False)),
    ("bounds that exclude each other", (DUE > 3, DUE < 2), (), ("due", 0, "none", False)),
    ("no values", (DUE.in_([]),), (), ("due", 0, "none", False)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("parts", "order", "wanted"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_a_plan(parts: Any, order: Any, wanted: Any) -> None:
    assert seen(plan(*parts, order=order or None)) == wanted


def test_records_in_the_order_of_keys_are_sorted_out_of_a_range() -> None:
    assert plan(DUE > 1, order=()).sorting == "all"
    assert plan(DUE == 1, order=()).sorting == "none"


def test_the_order_of_an_index_tells_places_in_it() -> None:
    for parts in ((), (DUE > 1,), (DONE == True, DUE < 3), (TITLE.matches("a"),)):
        keys = plan(*parts).path.keys
        if keys is None:
            continue
        indexes, predicate = [build_keys(TABLE, i) for i in INDEXES], EVERYTHING
        for part in parts:
            predicate = predicate & part
        ordering = order_of_index(keys.fields, keys.index.components)
        found = make_plan(TABLE, indexes, predicate, ordering)
        assert (found.path.name, found.sorting) == (keys.index.name, "none")
        assert found.order.is_full
        assert not found.order.is_reversed


def test_components_that_are_the_key_order_ties() -> None:
    for names, order, wanted in (
        (("due", "id", "part"), "due", "none"),
        (("due", "id"), "-due", "none"),
        (("due", "-id"), "due", "ties"),
        (("due", "part"), "due", "ties"),
        (("-due", "-id"), "-due", "ties"),
    ):
        keys = [build_keys(TABLE, index("keyed", *names))]
        ordering = Ordering.by([as_order(TABLE, order)])
        assert make_plan(TABLE, keys, EVERYTHING, ordering).sorting == wanted, names


def test_what_is_read_by_one_branch_is_left_out_by_the_next() -> None:
    found = plan((DUE == 1) | (TITLE == "a") | (DONE == True))
    assert isinstance(found, UnionPlan)
    assert [list(map(str, branch.residual)) for branch in found.branches] == [
        [],
        ["due != 1"],
        ["not (due == 1 or title == 'a')"],
    ]
    mixed = plan(((DUE == 1) & (OTHER == 2)) | (DUE > 5), OTHER < 9)
    assert (len(mixed.spans), mixed.path.name) == (2, "due")
    assert [str(part) for part in mixed.residual] == [
        "(due == 1 and other == 2) or due > 5",
        "other < 9",
    ]
    choice = TITLE == "a"
    for number in range(PLAN_BRANCHES_MAX):
        choice = choice | (number == DUE)
    assert plan(choice).is_scan


def test_what_the_ranges_of_a_branch_exclude_is_not_compared() -> None:
    found = plan(field("other").in_([3, 4]), DONE == True, order=("due",))
    assert isinstance(found, QueryPlan)  # by done, due
    by_other = [*INDEXES, index("other_due", "other", "due")]
    keys = [build_keys(TABLE, i) for i in by_other]
    ordering = Ordering.by([as_order(TABLE, "due")])
    found = make_plan(TABLE, keys, OTHER.in_([3, 4, 5]), ordering)
    assert isinstance(found, UnionPlan)
    assert [branch.residual for branch in found.branches] == [(), (), ()]
    for other, residual in (
        (OTHER > 3, []),
        (OTHER < 4, ["not (other < 4)"]),
        (OTHER.in_([4, 5]), []),
        ((OTHER == 4) & (DUE == 1), []),
        (DUE == 1, ["due != 1"]),
        (~(OTHER < 4), []),
        ((OTHER > 2) | (DUE == 1), ["not (other > 2 or due == 1)"]),
    ):
        mixed = make_plan(TABLE, keys, other | (OTHER == 3), ordering)
        if isinstance(mixed, UnionPlan):
            assert [str(part) for part in mixed.branches[-1].residual] == residual, other


def test_one_value_is_an_equality() -> None:
    assert str(bind(TABLE, DUE.in_([7]))) == "due == 7"
    assert str(bind(TABLE, DUE.in_([7, 7]))) == "due == 7"
    assert str(bind(TABLE, DUE.in_([None]))) == "due is null"
    assert str(bind(TABLE, DUE.in_([7, 8, 7]))) == "due in (7, 8)"
    assert seen(plan(DONE.in_([True]), order=("due",))) == ("done_due", 1, "none", False)


def test_a_way_is_kept_for_each_shape_of_query() -> None:
    keys = [build_keys(TABLE, i) for i in INDEXES]
    planner = Planner(TABLE, list_paths(TABLE, keys))
    by_due = Ordering.by([as_order(TABLE, "due")])
    for number in range(5):
        both = And((field("done") == bool(number % 2), field("due") >= number))
        assert planner.plan(bind(TABLE, both), by_due) == make_plan(TABLE, keys, both, by_due)
    assert len(planner._generic_plans) == 1
    planner.plan(bind(TABLE, And((DONE == True, DUE >= 1))), None)
    planner.plan(bind(TABLE, And((DONE == True, DUE == None))), None)
    assert len(planner._generic_plans) == 3
    for one, order in (
        (~(DUE == 1), None),
        (~DUE.is_null(), None),
        (TITLE == "a", None),
        (TITLE.matches("a"), None),
        *((DONE.in_([True, False]) & DUE.in_(range(n)), by_due) for n in (2, 400, 600)),
        *((DUE.in_(range(n)) & (OTHER == 1), by_due) for n in (16, 17)),
        (DUE > 1, by_due),
        (DUE > 1, Ordering.by([as_order(TABLE, "-due")])),
    ):
        assert planner.plan(bind(TABLE, one), order) == make_plan(TABLE, keys, one, order), one
    for count in range(PLANS_KEPT_MAX * 2):
        planner.plan(bind(TABLE, DUE.in_(range(count + 2))), None)
    assert len(planner._generic_plans) <= PLANS_KEPT_MAX
    kept = len(planner._generic_plans)
    planner.plan(bind(TABLE, DUE.in_(range(PLAN_SPANS_MAX + 1))), None)
    assert len(planner._generic_plans) == kept  # that hangs on the values


def test_what_the_spans_do_not_answer_is_compared() -> None:
    found = plan(DUE == 1, OTHER == 2, ~(DONE == True))
    assert [str(p) for p in found.index_conditions] == ["due == 1"]
    assert [str(p) for p in found.residual] == ["other == 2", "done != True"]
    assert found.rechecked == ()


def test_what_names_no_value_is_not_compared() -> None:
    """Two zones may mean one instant, so values of equal keys differ; null has a key of its own."""
    at = Field(7, "at", ZonedTimestamp(), optional=True)
    by_at = Index(1, "by_at", (IndexComponent(7),))
    table = TableSchema(1, "items", (1, 2), (*FIELDS, at), (by_at,))
    planner = Planner(table, list_paths(table, [build_keys(table, by_at)]))
    moment = datetime(2024, 5, 31, 12, tzinfo=ZoneInfo("Europe/Vienna"))
    later = moment.replace(year=2025)
    found = make_field(table, "at")
    for condition, is_compared in (
        (found.in_([]), False),
        (found.in_([None]), False),
        (found.in_([None, None]), False),
        (found == None, False),
        (found.in_([moment, later]), True),
        (found.in_([None, moment]), True),
        (found.in_([moment]), True),
        (found == moment, True),
        (found.in_([]), False),
    ):
        made = planner.plan(bind(table, condition), None)
        assert made.path.name == "by_at", condition
        assert bool(made.rechecked) == is_compared, condition


def test_rule_24_a_recheck_is_decided_from_the_value() -> None:
    assert plan(TITLE == "a").rechecked == ()
    assert plan(TITLE == "a" * 2_000).rechecked != ()
    # Equal under a collation is not equal; the same under it is.
    assert plan(TITLE == "a", without="code").rechecked != ()
    assert plan(TITLE.matches("a")).rechecked == ()
    assert plan(TITLE.startswith("a")).rechecked == ()
    assert plan(TITLE.startswith("a"), without="code").rechecked != ()
    assert plan(TITLE.startswith("a"), without="code").path.name == "title_due"


def test_spans_hold_exactly_the_keys_that_are_meant() -> None:
    keys = build_keys(TABLE, INDEXES[0])
    values = [None, -300, -1, 0, 1, 2, 3, 400]
    for condition, meant in (
        (DUE > 1, [2, 3, 400]),
        (DUE >= 1, [1, 2, 3, 400]),
        (DUE < 1, [-300, -1, 0]),
        (DUE <= 1, [-300, -1, 0, 1]),
        (DUE.between(0, 2), [0, 1, 2]),
        (DUE.is_null(), [None]),
        (DUE != None, values[1:]),
        (DUE.in_([3, None, 3]), [None, 3]),
    ):
        spans = plan(condition).spans
        assert [v for v in values if any(_holds(s, keys.encode([v])) for s in spans)] == meant
    down = build_keys(TABLE, INDEXES[2])
    spans = plan(TITLE.matches("a"), DUE > 1, DUE <= 3).spans
    assert [v for v in values if any(_holds(s, down.encode(["a", v])) for s in spans)] == [2, 3]


def _holds(span: Span, key: bytes) -> bool:
    assert not is_truncated(key)
    return (span.lower or b"") <= key and (span.upper is None or key < span.upper)


def test_more_values_than_a_query_reads_ranges_are_compared() -> None:
    assert len(plan(DUE.in_(range(PLAN_SPANS_MAX))).spans) == PLAN_SPANS_MAX
    assert plan(DUE.in_(range(PLAN_SPANS_MAX + 1))).is_scan
    both = plan(DUE.in_(range(PLAN_SPANS_MAX)), DONE.in_([True, False]), without="due")
    assert len(both.spans) == 2


def test_conditions_combine_flat_and_are_shown() -> None:
    three = bind(TABLE, (DUE == 1) & (OTHER == 2) & (DONE == True))
    assert isinstance(three, And)
    assert all(isinstance(part, Comparison) for part in three.parts)
    both = bind(TABLE, (three | (DUE != None)) & ~(OTHER < 3))
    assert str(both) == (
        "((due == 1 and other == 2 and done == True) or due is not null) and not (other < 3)"
    )
    assert str(bind(TABLE, ~(OTHER != 1))) == "other == 1"
    assert repr(~(OTHER != 1)) == "items.other == 1"
