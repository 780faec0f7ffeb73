"""Expressions: canonical text, types, and values, against an evaluator that walks the tree."""

from __future__ import annotations

import decimal
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.forms import cases
from tests.oracle import evaluate
from tests.strategies import STATE, TYPES, WORDS, expressions, values_of
from tests.zoned import ZONES
from zapdb.expressions import (
    FUNCTIONS,
    SPECIAL,
    Emitter,
    Expression,
    ExpressionError,
    Type,
    check_assignable,
    infer_type,
    names_in,
    parse_expression,
    unparse,
)
from zapdb.expressions.tree import (
    Arithmetic,
    Call,
    Compare,
    Conditional,
    IsNull,
    Literal,
    Logic,
    LogicalNot,
    Name,
    Negate,
)
from zapdb.limits import EXPRESSION_CANONICAL_LENGTH_CHARS_MAX
from zapdb.values import (
    Binary,
    Boolean,
    Date,
    Decimal,
    Enum,
    Float,
    Integer,
    Json,
    List,
    String,
    Timestamp,
    Uuid,
    ValueType,
    ZonedTimestamp,
)
from zapdb.values.generated_source import Namespace, compile_function
from zapdb.values.varint import INTEGER_MAX, INTEGER_MIN

identifiers = st.sampled_from(["a", "b_1", "_", "lower", "integer", "match", "x" * 63])
leaves: st.SearchStrategy[Expression] = st.one_of(
    st.builds(Name, identifiers),
    st.builds(Literal, st.none() | st.booleans()),
    st.builds(Literal, st.integers(-5, 5) | st.sampled_from([INTEGER_MAX, INTEGER_MIN])),
    st.builds(Literal, st.text(max_size=6) | st.text(alphabet="'\"\\\n\r\t\x00{}#ä", max_size=5)),
)


def combine(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    several = st.lists(inner, min_size=2, max_size=3).map(tuple)
    return st.one_of(
        st.builds(Call, identifiers, st.lists(inner, max_size=3).map(tuple), st.none() | inner),
        st.builds(Conditional, inner, inner, inner),
        st.builds(Compare, st.sampled_from(["==", "!=", "<", "<=", ">", ">="]), inner, inner),
        st.builds(IsNull, inner, st.booleans()),
        st.builds(Logic, st.sampled_from(["and", "or"]), several),
        st.builds(LogicalNot, inner),
        st.builds(negate, inner),
        st.builds(Arithmetic, st.sampled_from(["+", "-", "*", "//", "%"]), inner, inner),
    )


def negate(operand: Expression) -> Expression:
    """A sign before a number makes another literal of it, and none is before a boolean."""
    value = operand.value if isinstance(operand, Literal) else None
    if isinstance(value, bool):
        return LogicalNot(operand)
    return Literal(-value) if isinstance(value, int) and value >= 0 else Negate(operand)


trees = st.recursive(leaves, combine, max_leaves=12)


@settings(deadline=None, max_examples=cases(4_000))
@given(trees)
def test_canonical_text_reads_as_its_tree(tree: Expression) -> None:
    text = unparse(tree)
    assume(len(text) <= EXPRESSION_CANONICAL_LENGTH_CHARS_MAX)
    assert parse_expression(text) == tree
    assert unparse(parse_expression(text)) == text
    if len(text) < 1_900:
        assert parse_expression(f"\t {text}  # why") == tree


@settings(deadline=None, max_examples=cases(4_000))
@given(st.text(max_size=40) | st.text(alphabet="abelse=(),.'\" \\0_[]{}:<>!-+*/%é", max_size=40))
def test_any_text_is_an_expression_or_an_expression_error(text: str) -> None:
    column = 1
    try:
        tree = parse_expression(text)
        assert parse_expression(unparse(tree)) == tree
    except ExpressionError as error:
        column = error.column
    assert 1 <= column <= len(text) + 2


MOOD = Enum("mood", 9, ((1, "open"), (2, "a"), (3, "nan")))
TIMES: list[ValueType] = [Date(), Timestamp(), ZonedTimestamp(ZONES)]
KINDS = [
    *(*TYPES, *TIMES, *TIMES, MOOD, Binary()),
    *map(List, (STATE, Decimal(2), Json(), Float(), String())),
]
MADE = [Integer(), Decimal(2), Decimal(9), Boolean(), Float(), String(), Date()] * 3
"""Types with many operators and functions."""
EXPRESSIONS, RECORDS = cases(420), 25
"""How many expressions are drawn, and how many records each is evaluated for."""


@st.composite
def typed(draw: st.DrawFn) -> tuple[dict[str, Type], list[list[Any]], Expression, Type]:
    """Fields, a few values of each, an expression over them, and the type wanted of it."""
    drawn = draw(st.lists(st.sampled_from(WORDS), max_size=8, unique=True))
    is_optional = st.sampled_from([False, False, True])
    fields = {name: Type(draw(st.sampled_from(KINDS)), draw(is_optional)) for name in drawn}
    wanted = Type(draw(st.sampled_from(KINDS + MADE)), draw(st.booleans()))
    tree = draw(expressions(wanted, fields, depth=3, told=True, members=True))
    assume(tree is not None)
    values = []
    for kind in fields.values():
        assert kind.kind is not None
        held = values_of(kind.kind)
        values.append(
            draw(st.lists(st.none() | held if kind.optional else held, min_size=4, max_size=4))
        )
    return fields, values, tree, wanted


def compile_expression(
    tree: Expression, fields: Mapping[str, Type], wanted: Type
) -> Callable[..., Any]:
    names = Namespace()
    variables = {name: f"f{at}" for at, name in enumerate(fields)}
    source = Emitter(fields, variables, names, "x").emit(tree, wanted)
    lines = [f"def run({', '.join(variables.values())}):", f"    return {source}"]
    return compile_function("run", lines, names, "test expression")[0]


@settings(deadline=None, max_examples=EXPRESSIONS, suppress_health_check=list(HealthCheck))
@given(typed(), st.randoms(use_true_random=False))
def test_rule_18_compiled_expressions_are_total_and_do_what_the_tree_says(
    drawn: tuple[dict[str, Type], list[list[Any]], Expression, Type], random: Random
) -> None:
    fields, values, tree, wanted = drawn
    assert parse_expression(unparse(tree)) == tree
    check_assignable(tree, fields, wanted)
    assert names_in(tree) <= fields.keys()
    run = compile_expression(tree, fields, wanted)
    for _ in range(RECORDS):
        record = [random.choice(choices) for choices in values]
        result = run(*record)
        expected = evaluate(tree, dict(zip(fields, record, strict=True)), fields, wanted.kind)
        assert (type(result), str(result)) == (type(expected), str(expected))
        if result is None:
            assert wanted.optional or wanted.kind == Json()
            continue
        kind = wanted.kind
        assert kind is not None
        assert kind.is_same(result, expected)
        checked = kind.check(result, "p")
        assert str(checked) == str(result)
        encoded = kind.encode(checked)
        assert kind.is_same(kind.decode(encoded, 0)[0], result)


def test_ten_thousand_cases_are_tried() -> None:
    assert cases(10_000) <= EXPRESSIONS * RECORDS


# --- every operator and function by itself ---

INT, D2, D64, X, S, B = Integer(), Decimal(2), Decimal(64), Float(), String(), Binary()
SHORT: list[tuple[str, list[ValueType]]] = [
    *(
        (f"a {operator} b", [left, right])
        for operator in "+-*"
        for left, right in [(INT, INT), (X, X)]
    ),
    *(
        (f"a {operator} b", [left, right])
        for operator in "+-*"
        for left, right in [(INT, D2), (D2, D2)]
    ),
    *((f"a {operator} b", [left, right]) for operator in "+-" for left, right in [(D2, D64)]),
    ("a * b", [D64, INT]),
    *((f"{form}", [kind]) for form in ("-a", "abs(a)", "abs(-a)") for kind in (INT, D2, D64, X)),
    *(
        (f"{form}", [kind] * 3)
        for form in ("min(a, b, c)", "max(a, b, c)")
        for kind in (INT, D2, X)
    ),
    *((f"a {operator} {by}", [INT]) for operator in ("//", "%") for by in (1, -1, 7, -7, 10**60)),
    ("max(a, 0)", [D2]),
    *((f"round(a, {scale})", [kind]) for scale in (0, 1, 64) for kind in (D2, D64)),
    *((f"truncate(a, {scale})", [kind]) for scale in (0, 1, 64) for kind in (D2, D64)),
    ("round(divide(a, 1000, 5, else=0), 1)", [INT]),
    ("quotient(a, b, else=7)", [INT, INT]),
    ("remainder(a, b, else=7)", [INT, INT]),
    *(
        (f"divide(a, b, {scale}, else=7)", [D2, kind])
        for scale in (0, 2, 64)
        for kind in (INT, D64)
    ),
    ("a == b", [INT, D2]),
    ("a <= b", [D64, D2]),
    ("a < b", [X, X]),
    *(("a == b", [kind, kind]) for kind in KINDS if kind.comparable),
    *((f"{name}(a, b)", [S, S]) for name in ("before", "after", "join", "contains", "starts_with")),
    ("ends_with(a, b)", [S, S]),
    ("replace(a, b, c)", [S, S, S]),
    ("part(a, b, c)", [S, S, INT]),
    ("substring(a, b, c)", [S, INT, INT]),
    *((f"{name}(a)", [S]) for name in ("lower", "upper", "strip", "length", "bytes_of")),
    *(("length(a)", [kind]) for kind in (B, List(INT))),
    *(("contains(a, b)", [List(kind), kind]) for kind in (INT, D2, X, Json(), STATE)),
    *(("text(a)", [kind]) for kind in (INT, D2, D64, Boolean(), Date(), Timestamp(), X, B, MOOD)),
    ("text(a)", [Uuid()]),
    *((f"{name}(a)", [Date()]) for name in ("year", "month", "day", "timestamp_of")),
    ("days_between(a, b)", [Date(), Date()]),
    ("add_days(a, b, else=a)", [Date(), INT]),
    ("date_of(a)", [Timestamp()]),
    *((f"{name}(a)", [ZonedTimestamp(ZONES)]) for name in ("local_date", "zone_name")),
    *(("integer(a, else=7)", [kind]) for kind in (S, D2)),
    *(("decimal(a, 2, else=7)", [kind]) for kind in (S, INT, D64)),
    *(("float(a, else=b)", [kind, X]) for kind in (S, INT, D2, D64)),
    ("float(text(a), else=a)", [X]),
    *((f"{name}(a, else=None)", [S]) for name in ("date", "timestamp", "uuid", "unhex")),
    ("utf8(a, else='no')", [B]),
    ("utf8(bytes_of(a), else='no')", [S]),
    ("unhex(hex(a), else=a)", [B]),
    ("coalesce(a if b else None, a)", [S, Boolean()]),
    ("member(a, else='dropped') == b", [S, STATE]),
    ("b == a or a != b", [Json(), Json()]),
]

spelled = st.one_of(
    st.integers().map(str),
    st.decimals(allow_nan=False, allow_infinity=False, places=2).map(str),
    st.floats().map(repr),
    st.dates().map(str),
    st.datetimes().map(lambda instant: f"{instant.isoformat()}Z"),
    st.uuids().map(str),
    st.binary(max_size=4).map(bytes.hex),
    st.sampled_from(["open", "done", "a", ",", ""]),
)
"""Texts that some function takes."""


@st.composite
def nearly_spelled(draw: st.DrawFn) -> str:
    """One of them, or with one character in another's place."""
    text = draw(spelled)
    if not text or draw(st.booleans()):
        return text
    at = draw(st.integers(0, len(text) - 1))
    return (
        text[:at]
        + draw(st.sampled_from(["", " ", "0", "-", "+", ".", "e", "Z", "٣"]))
        + text[at + 1 :]
    )


def arguments_of(kind: ValueType) -> st.SearchStrategy[Any]:
    if isinstance(kind, String):
        return values_of(kind) | nearly_spelled()
    if isinstance(kind, Integer):
        return st.integers(-3, 10) | values_of(kind)
    if isinstance(kind, Float):
        return st.floats().map(lambda value: kind.check(value, "p"))
    if isinstance(kind, Decimal):
        halves = st.integers(-40, 40).map(lambda n: kind.check(decimal.Decimal(n) / 4, "p"))
        return halves | values_of(kind) if kind.scale >= 2 else values_of(kind)
    return values_of(kind)


@pytest.mark.parametrize(("text", "kinds"), SHORT, ids=lambda part: str(part)[:60])
@settings(deadline=None, max_examples=cases(100), suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_every_operator_and_function_does_what_the_oracle_says(
    text: str, kinds: list[ValueType], data: st.DataObject
) -> None:
    tree = parse_expression(text)
    fields = {name: Type(kind) for name, kind in zip("abc", kinds, strict=False)}
    found = infer_type(tree, fields)
    assert found.kind is not None
    record = [data.draw(arguments_of(kind)) for kind in kinds]
    expected = evaluate(tree, dict(zip(fields, record, strict=True)), fields)
    result = compile_expression(tree, fields, found)(*record)
    assert (type(result), str(result)) == (type(expected), str(expected))
    if result is not None:
        assert str(found.kind.check(result, "p")) == str(result)
        encoded = found.kind.encode(result)
        assert found.kind.is_same(found.kind.decode(encoded, 0)[0], result)


def test_every_function_is_among_them() -> None:
    for name in (*FUNCTIONS, *SPECIAL):
        assert any(f"{name}(" in text for text, _ in SHORT), name
