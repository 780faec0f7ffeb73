"""Hostile texts: refused with an `ExpressionError`, or bounded in time and in what they give."""

from __future__ import annotations

import ast
import datetime
import sys
import time
from decimal import Decimal as D
from typing import Any

import pytest

from tests.expressions.hostile import HARMLESS, REFUSED
from zapdb.expressions import Emitter, ExpressionError, Type, infer_type, parse_expression, unparse
from zapdb.limits import VALUE_SIZE_BYTES_MAX
from zapdb.values import (
    Binary,
    Boolean,
    Date,
    Decimal,
    Enum,
    Float,
    Integer,
    Json,
    String,
    Timestamp,
)
from zapdb.values.generated_source import Namespace, compile_function
from zapdb.values.varint import INTEGER_MAX

pytestmark = pytest.mark.usefixtures("no_collection")
SECONDS_MAX = 2.0
FIELDS: dict[str, tuple[Type, Any]] = {
    "s": (Type(String()), "x" * VALUE_SIZE_BYTES_MAX),
    "i": (Type(Integer()), INTEGER_MAX),
    "d": (Type(Decimal(8)), D((0, tuple(map(int, str(INTEGER_MAX))), -8))),
    "x": (Type(Float()), 1.7976931348623157e308),
    "b": (Type(Boolean()), True),
    "bin": (Type(Binary()), b"\xff" * VALUE_SIZE_BYTES_MAX),
    "day": (Type(Date()), datetime.date.max),
    "t": (Type(Timestamp()), datetime.datetime.max.replace(tzinfo=datetime.UTC)),
    "j": (Type(Json()), ["x" * 100_000] * 8),
    "e": (Type(Enum("state", 1, ((1, "open"), (2, "done")))), "open"),
}
TYPES = {name: kind for name, (kind, _) in FIELDS.items()}
HOSTILE = [text for texts in REFUSED.values() for text in texts]


def test_there_are_many_and_none_twice() -> None:
    assert len(HOSTILE) > 200
    assert len(set(HOSTILE + HARMLESS)) == len(HOSTILE + HARMLESS)


def shorten(text: str) -> str:
    return ascii(text[:40])


@pytest.mark.parametrize("text", HOSTILE, ids=shorten)
def test_hostile_text_is_refused_in_time(text: str) -> None:
    started = time.process_time()
    with pytest.raises(ExpressionError) as caught:
        infer_type(parse_expression(text), TYPES)
    assert time.process_time() - started < SECONDS_MAX
    assert 1 <= caught.value.column <= len(text) + 1
    assert caught.value.message


@pytest.mark.parametrize("text", HARMLESS, ids=shorten)
def test_harmless_text_gives_a_bounded_value_in_time(text: str) -> None:
    started = time.process_time()
    tree = parse_expression(text)
    kind = infer_type(tree, TYPES).kind
    assert parse_expression(unparse(tree)) == tree
    names = Namespace()
    source = Emitter(TYPES, {name: name for name in FIELDS}, names, "x").emit(tree)
    lines = [f"def run({', '.join(FIELDS)}):", f"    return {source}"]
    run, _ = compile_function("run", lines, names, "test expression")
    value = run(*(value for _, value in FIELDS.values()))
    assert time.process_time() - started < SECONDS_MAX
    if value is not None:
        assert kind is not None
        assert kind.encode(kind.check(value, "p"))


@pytest.mark.parametrize("text", ["i" + "+i" * 999, "(" * 250 + "i" + ")" * 250, "-" * 1_998 + "i"])
def test_a_deep_stack_below_makes_no_other_error(text: str) -> None:
    """What Python's parser raises for want of stack is an `ExpressionError`, too."""

    def descend(levels: int) -> None:
        if levels:
            descend(levels - 1)
            return
        with pytest.raises(ExpressionError):
            infer_type(parse_expression(text), TYPES)

    here, frame = 0, sys._getframe()
    while frame.f_back is not None:
        here, frame = here + 1, frame.f_back
    descend(sys.getrecursionlimit() - here - 250)


@pytest.mark.parametrize("error", [RecursionError, MemoryError, ValueError])
def test_whatever_python_raises_is_an_expression_error(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(ast, "parse", fail)
        with pytest.raises(ExpressionError, match="this is not a valid expression"):
            parse_expression("s")


def test_the_text_is_never_compiled() -> None:
    """What runs names bound objects, variables and operators: strings of the author are bound."""
    tree = parse_expression("join('__import__', s, 'os') if s == 'exec' else replace(s, 'a', 'b')")
    source = Emitter({"s": Type(String())}, {"s": "v"}, Namespace(), "x").emit(tree)
    assert not {"import", "os", "exec"} & set(source.replace("(", " ").replace(",", " ").split())
    assert "'" not in source
