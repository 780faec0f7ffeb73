"""Laws of index keys: order, cuts, prefixes, what a search may find that was not meant.

Each property draws the definition of an index with a few records, whose long values are drawn
around the length at which keys are truncated. The oracle compares values, and strings as ICU does.
"""

from __future__ import annotations

import bisect
import datetime
import functools
import itertools
from typing import Any, NamedTuple

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.forms import cases, try_enough
from tests.lookups import before, behind, equal_to
from tests.strategies import INDEX_TYPES, collations, index_order_of, values_of
from zapdb.datasets import STRENGTHS, Collation, collator, sort_keys, zone
from zapdb.limits import INDEX_KEY_SIZE_BYTES_MAX
from zapdb.records.record import record_class
from zapdb.schema import Field, Index, IndexComponent, TableSchema
from zapdb.tables.indexes import build_keys, is_truncated, truncate_key
from zapdb.tables.indexes.choosing import Planner, UnionPlan
from zapdb.tables.indexes.keys import (
    UNIQUE_ORDERED_SIZE_BYTES,
    KeyBuilder,
    encode_component,
    truncate_unique_key,
)
from zapdb.tables.indexes.path_planning import QueryPlan
from zapdb.tables.indexes.paths import Path
from zapdb.tables.indexes.predicates import EVERYTHING, And, Predicate, compile_predicate
from zapdb.tables.indexes.prefixes import _root_contractions, _strings, encode_sort_key_prefix
from zapdb.tables.indexes.spans import Span, Ties
from zapdb.tables.queries.fields import bind, make_field
from zapdb.values import Binary, Integer, String, ValueType, ZonedTimestamp

many = settings(deadline=None, max_examples=cases(10_000))
unhurried = settings(
    deadline=None, max_examples=cases(1_000), suppress_health_check=[HealthCheck.too_slow]
)
"""For properties that look at all pairs of what is drawn, and count them."""

# --- drawing -------------------------------------------------------------------------------------

NOON = datetime.datetime(2000, 1, 1, 12, tzinfo=datetime.UTC)
UNITS = ["a", "long ", "é", "漢", "\x00", "\U0010ffff", "e\u0301", "7"]


@functools.cache
def count_to_limit(collation: Collation | None, unit: str) -> int:
    """How many times the unit fits into a component that is not truncated; it may have no
    weight."""
    component, field = IndexComponent(1, collation), Field(1, "f1", String())
    return bisect.bisect_left(
        range(INDEX_KEY_SIZE_BYTES_MAX),
        INDEX_KEY_SIZE_BYTES_MAX - 1,
        key=lambda count: len(encode_component(field, component, unit * count)),
    )


@st.composite
def long_strings(draw: st.DrawFn, collation: Collation | None) -> str:
    """Strings whose components have about the size of the limit; many begin alike."""
    unit = draw(st.sampled_from(UNITS))
    tail = draw(st.sampled_from(["", "", "a", "b", "B", "ä", "\x00", "c"]))
    return unit * (count_to_limit(collation, unit) + draw(st.integers(-3, 3))) + tail


@st.composite
def values_for(draw: st.DrawFn, kind: ValueType, collation: Collation | None) -> Any:
    if isinstance(kind, String) and draw(st.integers(0, 2)) == 0:
        return draw(long_strings(collation))
    if isinstance(kind, Binary) and draw(st.integers(0, 2)) == 0:
        return draw(long_strings(None)).encode()
    if isinstance(kind, String) and draw(st.booleans()):
        return draw(
            st.sampled_from(["", "a", "A", "á", "a\u0301", "ch", "cz", "c", "01", "1", "-"])
        )
    if isinstance(kind, ZonedTimestamp) and draw(st.booleans()):
        # Clocks of several zones at once: values that differ, with one key.
        return NOON.astimezone(zone(draw(st.sampled_from(["UTC", "Asia/Tehran", "Europe/Kyiv"]))))
    return draw(values_of(kind))


class Drawn(NamedTuple):
    keys: KeyBuilder
    rows: list[tuple[Any, ...]]
    """Values of the index's fields; each component is drawn from few, so that many are equal."""
    stored: list[tuple[bytes | None, ...]]
    """The rows' values as records hold them: by these values are the same or not."""
    full: list[bytes]
    """Full keys, one for each row."""
    table: TableSchema

    def distinct(self, count: int) -> list[int]:
        """The rows without those whose leading values another one has, too."""
        return list({row[:count]: at for at, row in enumerate(self.stored)}.values())

    def record(self, number: int) -> Any:
        names = tuple(field.name for field in self.keys.fields)
        return record_class("t", names)(*self.rows[number])

    def same_as(self, at: int, count: int) -> list[int]:
        """The rows whose leading values are those of one row."""
        wanted = self.stored[at][:count]
        return [number for number, row in enumerate(self.stored) if row[:count] == wanted]

    def compare(self, left: tuple[Any, ...], right: tuple[Any, ...]) -> int:
        """Independently of keys; as far as both go."""
        for field, component, one, other in zip(
            self.keys.fields, self.keys.index.components, left, right, strict=False
        ):
            if one is None or other is None:
                found = (one is not None) - (other is not None)
            elif component.collation is not None:
                found = collator(component.collation).compare(one, other)
            else:
                order = index_order_of(field.type)
                found = (order(one) > order(other)) - (order(one) < order(other))
            if found:
                return -found if component.descending else found
        return 0


PREFERRED = [String(), String(), Binary(), *INDEX_TYPES]


@st.composite
def indexes(draw: st.DrawFn, *, strings: bool = False) -> Drawn:
    """An index and six to nine records; `strings`: its last field is a string."""
    count = draw(st.integers(1, 3))
    fields, components, pools = [], [], []
    for number in range(1, count + 1):
        only = strings and number == count
        kind = String() if only else draw(st.sampled_from(PREFERRED))
        collation = draw(st.none() | collations()) if isinstance(kind, String) else None
        optional = draw(st.booleans())
        fields.append(Field(number, f"f{number}", kind, optional))
        components.append(IndexComponent(number, collation, draw(st.booleans())))
        value = values_for(kind, collation)
        pools.append(
            draw(st.lists(st.none() | value if optional else value, min_size=2, max_size=4))
        )
    table = TableSchema(1, "t", (9,), (*fields, Field(9, "id", Integer())))
    keys = build_keys(table, Index(1, "by_it", tuple(components)))
    rows = draw(st.lists(st.tuples(*map(st.sampled_from, pools)), min_size=6, max_size=9))
    stored = [
        tuple(
            None if value is None else field.type.encode(value)
            for field, value in zip(fields, row, strict=True)
        )
        for row in rows
    ]
    return Drawn(keys, rows, stored, [keys.encode(row) for row in rows], table)


def sign(left: Any, right: Any) -> int:
    return (left > right) - (left < right)


def plan_by(drawn: Drawn, *predicates: Predicate) -> QueryPlan | UnionPlan:
    """How a query that is pinned to the index is answered."""
    paths = (Path.by_index(drawn.keys),)
    parts = [part for p in predicates for part in (p.parts if isinstance(p, And) else (p,))]
    return Planner(drawn.table, paths).plan(bind(drawn.table, And(tuple(parts))), None)


def found_by(plan: QueryPlan | UnionPlan, drawn: Drawn) -> list[int]:
    """The rows whose entries lie between the bounds as entries hold them."""
    spans = [span for branch in plan.branches for span in branch.spans]
    bounds = [span.entry_bounds(unique=False) for span in spans]
    return [
        number
        for number, key in enumerate(map(truncate_key, drawn.full))
        if any((low is None or key >= low) and (high is None or key < high) for low, high in bounds)
    ]


def answer(plan: QueryPlan | UnionPlan, drawn: Drawn) -> list[int]:
    """The rows that reading the plan gives; none comes twice."""
    found = list[int]()
    for branch in plan.branches:
        matches = compile_predicate(branch.filter, drawn.table)
        for number, key in enumerate(drawn.full):
            if any(span.holds(key) for span in branch.spans) and matches(drawn.record(number)):
                found.append(number)
    assert set(found) <= set(found_by(plan, drawn))
    return sorted(found)


# --- keys ----------------------------------------------------------------------------------------


def test_rule_24_keys_compare_as_values_do_and_cutting_reverses_nothing() -> None:
    """For all pairs of the rows of an index: full keys, components, truncated keys, unique keys."""
    tried = 0

    @unhurried
    @given(indexes())
    def compare_all(drawn: Drawn) -> None:
        nonlocal tried
        assert [drawn.keys.build(drawn.record(at)) for at in range(len(drawn.rows))] == drawn.full
        for one, other in itertools.combinations(range(len(drawn.rows)), 2):
            tried += 1
            wanted = drawn.compare(drawn.rows[one], drawn.rows[other])
            check_cut_keys(drawn.full[one], drawn.full[other], wanted)
            check_components(drawn, one, other)
            check_unique_keys(drawn, one, other, wanted)

    try_enough(compare_all, lambda: tried >= cases(10_000))


def check_cut_keys(left: bytes, right: bytes, wanted: int) -> None:
    assert sign(left, right) == wanted
    assert sign(truncate_key(left), truncate_key(right)) in (0, wanted)
    if truncate_key(left) == truncate_key(right) and not is_truncated(truncate_key(left)):
        assert wanted == 0
    assert is_truncated(truncate_key(left)) == (len(left) >= INDEX_KEY_SIZE_BYTES_MAX)
    assert len(truncate_key(left)) == min(len(left), INDEX_KEY_SIZE_BYTES_MAX)


def check_components(drawn: Drawn, one: int, other: int) -> None:
    """None is a prefix of another."""
    components = zip(
        drawn.keys.fields,
        drawn.keys.index.components,
        drawn.rows[one],
        drawn.rows[other],
        strict=True,
    )
    for field, component, *values in components:
        left, right = (encode_component(field, component, value) for value in values)
        assert left == right or not (right.startswith(left) or left.startswith(right))


def check_unique_keys(drawn: Drawn, one: int, other: int, wanted: int) -> None:
    """Equal where values are and none is null; in order as far as they say they are."""
    ordered = UNIQUE_ORDERED_SIZE_BYTES
    keys, record_keys = [], []
    for at in (one, other):
        full, record_key, null = drawn.full[at], bytes([at]) * (at * 5), None in drawn.rows[at]
        key, told = truncate_unique_key(full, record_key, has_null=null), full + record_key * null
        assert is_truncated(key) == (len(told) >= INDEX_KEY_SIZE_BYTES_MAX)
        assert key == told or (is_truncated(key) and key[:ordered] == told[:ordered])
        keys.append(key)
        record_keys.append(record_key)
    assert (keys[0] == keys[1]) == (wanted == 0 and None not in drawn.rows[one])
    assert sign(keys[0][:ordered], keys[1][:ordered]) in (0, wanted or sign(*record_keys))


def test_rule_24_readers_put_ties_in_order() -> None:
    """What entries are sorted by, then settled, is the order of values, then of record keys."""
    tried = 0

    @unhurried
    @given(indexes(), st.booleans())
    def settle(drawn: Drawn, descending: bool) -> None:
        nonlocal tried
        tried += len(drawn.rows) * (len(drawn.rows) - 1) // 2
        stored = sorted(
            ((truncate_key(key), bytes([number]), number) for number, key in enumerate(drawn.full)),
            reverse=descending,
        )
        entries = [(drawn.full[number], key, b"") for _, key, number in stored]
        cut = len(entries) // 2  # a run of ties may begin on one page and end on the next
        ties = Ties(Span(None, None), unique=False, descending=descending)
        settled = ties.sort(entries[:cut], is_last=False) + ties.sort(entries[cut:], is_last=True)
        wanted = sorted(
            range(len(drawn.rows)),
            key=functools.cmp_to_key(
                lambda one, other: drawn.compare(drawn.rows[one], drawn.rows[other]) or one - other
            ),
            reverse=descending,
        )
        assert [record_key[0] for _, record_key, _ in settled] == wanted

    try_enough(settle, lambda: tried >= cases(10_000))


# --- searches ------------------------------------------------------------------------------------


def test_rule_24_an_exact_search_knows_whether_it_may_find_something_else() -> None:
    """For none, some and all of the leading values of each row of an index."""
    tried = 0

    @settings(unhurried, max_examples=cases(2_000))
    @given(indexes())
    def search_all(drawn: Drawn) -> None:
        nonlocal tried
        for count in range(len(drawn.keys.fields) + 1):
            for at in drawn.distinct(count):
                tried += 1
                check_exact_search(drawn, at, count)

    try_enough(search_all, lambda: tried >= cases(10_000))


def check_exact_search(drawn: Drawn, at: int, count: int) -> None:
    values, equal = drawn.rows[at][:count], drawn.same_as(at, count)
    plan = plan_by(drawn, equal_to(drawn.table, drawn.keys.index.components, values))
    assert isinstance(plan, QueryPlan)
    assert plan.residual == ()
    assert len(plan.spans) == 1
    assert answer(plan, drawn) == equal
    is_cut_off = len(drawn.keys.encode(values)) >= INDEX_KEY_SIZE_BYTES_MAX
    if not plan.rechecked:
        assert not is_cut_off
        assert found_by(plan, drawn) == equal
    elif not is_cut_off:
        kinds = (field.type for field in drawn.keys.fields)
        components = zip(values, kinds, drawn.keys.index.components, strict=False)
        assert any(
            value is not None and (c.collation is not None or isinstance(kind, ZonedTimestamp))
            for value, kind, c in components
        )


class Bound(NamedTuple):
    """Leading values of a row, or None, which is no bound."""

    values: tuple[Any, ...] | None
    size_bytes: int
    """Of their key."""
    signs: list[int]
    """How each row of the index compares with them."""


def bounds_of(drawn: Drawn, count: int) -> list[Bound]:
    """No bound, and the leading values of each row."""
    bounds = [Bound(None, 0, [])]
    for at in drawn.distinct(count):
        values = drawn.rows[at][:count]
        signs = [drawn.compare(row, values) for row in drawn.rows]
        bounds.append(Bound(values, len(drawn.keys.encode(values)), signs))
    return bounds


counts = st.integers(0, 3)


def test_rule_24_a_range_knows_whether_entries_tell_what_is_in_it() -> None:
    """Between the leading values of all pairs of rows of an index."""
    tried = 0

    @unhurried
    @given(indexes(), counts, counts)
    def search_all(drawn: Drawn, lower: int, upper: int) -> None:
        nonlocal tried
        lows, highs = bounds_of(drawn, lower), bounds_of(drawn, upper)
        for low, high, include_upper in itertools.product(lows, highs, (False, True)):
            tried += 1
            check_range(drawn, low, high, include_upper)

    try_enough(search_all, lambda: tried >= cases(10_000))


def check_range(drawn: Drawn, low: Bound, high: Bound, include_upper: bool) -> None:
    table, components = drawn.table, drawn.keys.index.components
    conditions = []
    if low.values is not None:
        conditions.append(behind(table, components, low.values, included=True))
    if high.values is not None:
        conditions.append(before(table, components, high.values, included=include_upper))
    plan = plan_by(drawn, *conditions)
    within = [
        number
        for number in range(len(drawn.rows))
        if (low.values is None or low.signs[number] >= 0)
        and (high.values is None or high.signs[number] < include_upper)
    ]
    assert answer(plan, drawn) == within
    if all(branch.filter == EVERYTHING for branch in plan.branches):
        assert found_by(plan, drawn) == within


ends = st.tuples(st.integers(0, 1100), st.sampled_from(["", "a"]))


def test_rule_24_a_search_by_prefix_finds_what_python_says_begins_with_it() -> None:
    """For parts of the last string of each row of an index, with another letter or without."""
    tried = 0

    @unhurried
    @given(indexes(strings=True), st.lists(ends, min_size=5, max_size=5))
    def search_all(drawn: Drawn, drawn_ends: list[tuple[int, str]]) -> None:
        nonlocal tried
        for at, (size, more) in itertools.product(
            drawn.distinct(len(drawn.keys.fields)), drawn_ends
        ):
            tried += 1
            check_prefix_search(drawn, at, (drawn.rows[at][-1] or "")[:size] + more)

    try_enough(search_all, lambda: tried >= cases(10_000))


def check_prefix_search(drawn: Drawn, at: int, prefix: str) -> None:
    *leading, _ = drawn.rows[at]
    components = drawn.keys.index.components
    last = make_field(drawn.table, drawn.keys.fields[-1].name)
    plan = plan_by(drawn, equal_to(drawn.table, components, leading), last.startswith(prefix))
    texts = [row[-1] for row in drawn.rows]
    wanted = [
        number
        for number in drawn.same_as(at, len(leading))
        if texts[number] is not None and texts[number].startswith(prefix)
    ]
    assert isinstance(plan, QueryPlan)
    assert plan.residual == ()
    assert answer(plan, drawn) == wanted
    if not plan.rechecked:
        assert found_by(plan, drawn) == wanted


LOCALES = [
    *("und", "cs", "sv", "de@collation=phonebook", "th", "da", "sk", "hu", "ja", "ko", "zh", "vi"),
    *("my", "ar", "ko@collation=search", "und@collation=emoji", "und@colAlternate=shifted"),
    *("de@colReorder=grek-digit", "fr@colBackwards=yes", "da@colCaseFirst=upper"),
    *("sv@colCaseLevel=yes", "hu@colNormalization=yes", "vi@colNormalization=no"),
]


@functools.cache
def pieces(locale: str) -> st.SearchStrategy[str]:
    """Text that acts on its neighbours: contractions and their parts, marks, digits, Hangul."""
    units = (*_root_contractions(), *_strings(collator(Collation(locale))))
    return st.one_of(
        st.sampled_from(units),
        st.sampled_from(units).map(lambda unit: unit[0]),
        st.sampled_from(units).map(lambda unit: unit[1:]),
        st.characters(categories=["Mn", "Mc"]),
        st.sampled_from("0129٣aoAOcsdzhlnyCHéåäöǎệÅ -.,\u00ad\u200d\x00\ufffe\uffff"),
        st.sampled_from("가각힣각カーゝヽガｶﾞ漢字"),
        st.sampled_from(["\u0301", "\u030a", "\u0323", "\u0327", "\u0f71", "\u0f73", "\u0e38"]),
        st.characters(exclude_categories=["Cs"]),
    )


def texts_of(locale: str) -> st.SearchStrategy[str]:
    return st.lists(pieces(locale), max_size=4).map("".join)


@many
@given(
    st.sampled_from(LOCALES).flatmap(
        lambda name: st.tuples(st.just(name), texts_of(name), texts_of(name))
    ),
    st.sampled_from(STRENGTHS),
    st.booleans(),
)
def test_rule_24_no_string_with_a_prefix_is_out_of_its_sort_key_prefix(
    drawn: tuple[str, str, str], strength: Any, numeric: bool
) -> None:
    locale, prefix, rest = drawn
    collation = Collation(locale, strength, numeric)
    assert (
        sort_keys(collation)
        .get(prefix + rest)
        .startswith(encode_sort_key_prefix(collation, prefix))
    )
