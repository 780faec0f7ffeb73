"""The law of plans: in the spans, and true of the filter, is exactly what a condition is true of.

Against every index by itself, with values around the length at which keys are cut.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from zapdb.database.fields import make_field
from zapdb.datasets import Collation
from zapdb.indexes import build_keys
from zapdb.indexes.planning import make_plan
from zapdb.indexes.predicates import Predicate, compile_predicate
from zapdb.records.record import record_class
from zapdb.schema import Field, Index, IndexComponent, Table
from zapdb.values import Float, Integer, String

FIELDS = (
    Field(1, "id", Integer()),
    Field(2, "word", String(), optional=True),
    Field(3, "rank", Integer(), optional=True),
    Field(4, "size", Float(), optional=True),
)
TABLE = Table(1, "words", (1,), FIELDS)
RECORD = record_class("words", tuple(f.name for f in FIELDS))
LONG = "ab" * 509

words = st.one_of(
    st.text(st.sampled_from("aAäbz\x00"), max_size=3),
    st.text(st.sampled_from("aAb\x00"), max_size=6).map(lambda end: LONG + end),
)
ranks = st.integers(-3, 3) | st.sampled_from([2**70, -(2**70)])
sizes = st.sampled_from([-1.0, 0.0, 1.5, float("inf"), float("nan")])
VALUES: dict[str, Any] = {"id": st.integers(-3, 3), "word": words, "rank": ranks, "size": sizes}


@st.composite
def comparisons(draw: st.DrawFn) -> Predicate:
    name = draw(st.sampled_from(["id", "word", "word", "rank", "size"]))
    field, value = make_field(TABLE, name), draw(VALUES[name])
    kind = draw(st.sampled_from(["==", "<", "<=", ">", ">=", "in", "null", "text", "collated"]))
    if name == "word" and kind == "collated":
        field = field.collated("und", "primary")
        kind = draw(st.sampled_from(["==", "<", "<=", ">", ">=", "in"]))
    match kind:
        case "<":
            return field < value
        case "<=":
            return field <= value
        case ">":
            return field > value
        case ">=":
            return field >= value
        case "in":
            return field.in_([value, draw(VALUES[name]), None])
        case "null":
            return draw(st.sampled_from([field == None, field != None]))  # noqa: E711
        case "text" if name == "word":
            return field.startswith(value)
    return field == value


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


@settings(max_examples=400, deadline=None)
@given(conditions, indexes, records)
def test_rule_24_spans_and_filter_are_the_condition(
    condition: Predicate, components: Any, rows: Any
) -> None:
    parts = (
        IndexComponent(n, Collation("und", "primary") if n == 2 and collated else None, down)
        for n, collated, down in components
    )
    keys = build_keys(TABLE, Index(1, "index", tuple(parts)))
    plan = make_plan(TABLE, [keys], condition, (), total=False)
    is_meant = compile_predicate(condition, TABLE)
    is_left = compile_predicate(plan.filter, TABLE)
    for row in rows:
        record = RECORD(*row)
        key = FIELDS[0].type.encode_key(row[0]) if plan.path.keys is None else keys.build(record)
        is_read = any(
            (span.lower or b"") <= key and (span.upper is None or key < span.upper)
            for span in plan.spans
        )
        assert (is_read and is_left(record)) == is_meant(record), (plan, row)
