"""What every function of the language gives, compiled as conversions compile it."""

from __future__ import annotations

import datetime
import uuid
from decimal import Decimal as D
from typing import Any

import pytest

from zapdb.expressions import FUNCTIONS, Emitter, Type, check, parse
from zapdb.expressions.functions import FAILED
from zapdb.limits import VALUE_SIZE_BYTES_MAX
from zapdb.values import Boolean, Date, Decimal, Integer, String, Uuid
from zapdb.values.source import Namespace, compile_function
from zapdb.values.varint import INTEGER_MAX, INTEGER_MIN

FIELDS: dict[str, tuple[Type, Any]] = {
    "s": (Type(String()), "Ada Lovelace"),
    "i": (Type(Integer()), -12),
    "d": (Type(Decimal(2)), D("3.50")),
    "whole": (Type(Decimal(2)), D("-4.00")),
    "t": (Type(Boolean()), True),
    "f": (Type(Boolean()), False),
    "day": (Type(Date()), datetime.date(33, 4, 3)),
    "u": (Type(Uuid()), uuid.UUID(int=255)),
    "null": (Type(String(), True), None),
    "some": (Type(String(), True), "some"),
    "nothing": (Type(Integer(), True), None),
}


def run(text: str, **given: tuple[Type, Any]) -> Any:
    """The value of an expression over FIELDS and whatever else is given."""
    fields = FIELDS | given
    types = {name: kind for name, (kind, _) in fields.items()}
    tree, names = parse(text), Namespace()
    check(tree, types)
    variables = {name: f"v_{name}" for name in fields}
    emitted = Emitter(types, variables, names, "x").emit(tree)
    parameters = ", ".join(variables.values())
    lines = [f"def evaluate({parameters}):", f"    return {emitted}"]
    function, _ = compile_function("evaluate", lines, names, "test expression")
    return function(*(value for _, value in fields.values()))


def string(value: str) -> tuple[Type, Any]:
    return Type(String()), value


CASES: list[tuple[str, Any]] = [
    ("s", "Ada Lovelace"),
    ("'it\\'s'", "it's"),
    ("-5", -5),
    ("None", None),
    ("True", True),
    ("before(s, ' ')", "Ada"),
    ("before(s, 'x')", "Ada Lovelace"),
    ("before(s, '')", "Ada Lovelace"),
    ("before('a b c', ' ')", "a"),
    ("after(s, ' ')", "Lovelace"),
    ("after(s, 'x')", ""),
    ("after(s, '')", ""),
    ("after('a b c', ' ')", "b c"),
    ("join(', ', 'a', '', 'b')", "a, , b"),
    ("join('', s)", "Ada Lovelace"),
    ("lower('ABZÄ[@İ')", "abzÄ[@İ"),
    ("upper('abzäß`{ı')", "ABZäß`{ı"),
    ("strip(' \\t\\r\\na\\u00a0 ')", "a\u00a0"),
    ("strip('\\x0b')", "\x0b"),
    ("length('ä😀')", 2),
    ("length('')", 0),
    ("contains(s, 'Love')", True),
    ("contains(s, 'love')", False),
    ("contains(s, '')", True),
    ("starts_with(s, 'Ada')", True),
    ("starts_with(s, 'da')", False),
    ("text(i)", "-12"),
    ("text(d)", "3.50"),
    ("text(t)", "true"),
    ("text(f)", "false"),
    ("text(day)", "0033-04-03"),
    ("text(u)", "00000000-0000-0000-0000-0000000000ff"),
    ("text(s)", "Ada Lovelace"),
    ("integer('12', else=0)", 12),
    ("integer('-012', else=0)", -12),
    ("integer('-0', else=1)", 0),
    ("integer('+1', else=0)", 0),
    ("integer('1 ', else=0)", 0),
    ("integer('1_0', else=0)", 0),
    ("integer('٣', else=0)", 0),
    ("integer('', else=0)", 0),
    ("integer('1.0', else=0)", 0),
    ("integer('x', else=None)", None),
    ("integer('x', else=i)", -12),
    ("integer(d, else=0)", 0),
    ("integer(whole, else=0)", -4),
    ("decimal('1.5', 2, else=0)", D("1.50")),
    ("decimal('1.555', 2, else=0)", D("0.00")),
    ("decimal('1.550', 2, else=0)", D("1.55")),
    ("decimal('1e2', 2, else=0)", D("0.00")),
    ("decimal('.5', 2, else=0)", D("0.00")),
    ("decimal('5.', 2, else=0)", D("0.00")),
    ("decimal('-0', 2, else=1)", D("0.00")),
    ("decimal(i, 2, else=0)", D("-12.00")),
    ("decimal(d, 1, else=0)", D("3.5")),
    ("decimal(d, 0, else=7)", D("7")),
    ("decimal('x', 2, else=5)", D("5.00")),
    ("decimal('x', 2, else=d)", D("3.50")),
    ("decimal('x', 2, else=None)", None),
    ("coalesce(null, 'x')", "x"),
    ("coalesce(some, 'x')", "some"),
    ("coalesce(null, null)", None),
    ("coalesce(null, coalesce(some, 'x'))", "some"),
    ("s if t else 'x'", "Ada Lovelace"),
    ("s if f else 'x'", "x"),
    ("null is None", True),
    ("null is not None", False),
    ("some is None", False),
    ("not t", False),
    ("t and f", False),
    ("t or f", True),
    ("f or f or t", True),
    ("i < d", True),
    ("d == 3", False),
    ("whole == -4", True),
    ("i != -12", False),
    ("i >= -12 and i <= -12", True),
    ("s > 'Ad'", True),
    ("'\\uffff' < '\\U0001f600'", True),
    ("f < t", True),
    ("integer(before('7,8', ','), else=0) == 7 and integer(after('7,8', ','), else=0) == 8", True),
]


@pytest.mark.parametrize(("text", "value"), CASES)
def test_this_expression_has_this_value(text: str, value: Any) -> None:
    found = run(text)
    assert (found, type(found)) == (value, type(value))
    assert str(found) == str(value)  # decimals with all their digits


def test_every_function_is_tried_here() -> None:
    for name in (*FUNCTIONS, "coalesce"):
        assert any(f"{name}(" in text for text, _ in CASES), name


def test_a_part_that_is_not_needed_is_not_computed_twice() -> None:
    """The result of a partial function is held, and its fallback looked at only if it failed."""
    assert run("integer(s, else=integer(s, else=length(s)))") == 12


def test_rule_18_integers_end_where_the_varint_does() -> None:
    for bound in (INTEGER_MAX, INTEGER_MIN):
        outside = bound + (1 if bound > 0 else -1)
        assert run("integer(n, else=0)", n=string(str(bound))) == bound
        assert run("integer(n, else=0)", n=string(str(outside))) == 0
        assert run("decimal(n, 0, else=0)", n=string(str(bound))) == D(bound)
        assert run("decimal(n, 0, else=7)", n=string(str(outside))) == 7
        assert run("decimal(n, 1, else=7)", n=string(str(bound))) == 7
    assert run("integer(n, else=7)", n=string("9" * 10_000)) == 7
    assert run("decimal(n, 64, else=7)", n=string("0." + "1" * 65)) == 7
    assert run("decimal(n, 64, else=7)", n=string("0." + "1" * 64)) == D("0." + "1" * 64)


def test_rule_18_joined_text_is_cut_at_the_limit_between_characters() -> None:
    half = "ä" * (VALUE_SIZE_BYTES_MAX // 4)
    assert run("join('', n, n)", n=string(half)) == half * 2
    joined = run("join('x', n, n)", n=string(half))
    assert joined == half + "x" + half[:-1]
    assert len(joined.encode()) == VALUE_SIZE_BYTES_MAX - 1
    assert String().check(joined, "p") == joined


def test_a_failure_is_no_value_that_a_field_could_have() -> None:
    assert repr(FAILED) == "FAILED"
    assert run("integer('0', else=1)") == 0  # 0 is no failure
    assert run("decimal('0', 2, else=1)") == 0
