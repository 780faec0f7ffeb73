"""The registry of functions: pure, total, and dependent on their arguments' bytes alone (rule 18).

A function gets arguments that are not null. One that can fail for some arguments is marked
`partial`: its call must say `else=`, and it returns `FAILED` then. Case mapping is ASCII's only; no
function consults Unicode tables, the clock, tz data or ICU, so a conversion gives the same bytes on
every machine and for ever.
"""

from __future__ import annotations

import decimal
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from zapdb.limits import DECIMAL_SCALE_MAX, VALUE_SIZE_BYTES_MAX
from zapdb.values import Boolean, Date, Decimal, Integer, String, Uuid, ValueType
from zapdb.values.decimal import EXACT, with_scale
from zapdb.values.varint import INTEGER_MAX, INTEGER_MIN


class _Failed:
    """What a partial function returns where it has no result."""

    def __repr__(self) -> str:
        return "FAILED"


FAILED: Final = _Failed()

STRING: Final = String()
INTEGER: Final = Integer()
BOOLEAN: Final = Boolean()

LOWER = {**{c: c + 32 for c in range(ord("A"), ord("Z") + 1)}}
UPPER = {**{c: c - 32 for c in range(ord("a"), ord("z") + 1)}}
INTEGER_TEXT = re.compile(r"-?[0-9]{1,152}", re.ASCII)
DECIMAL_TEXT = re.compile(r"-?[0-9]{1,152}(\.[0-9]{1,64})?", re.ASCII)

Kinds = tuple[type[ValueType], ...]


@dataclass(frozen=True, slots=True)
class Function:
    """One function of the language.

    `parameters` lists which types each argument may have; the last repeats if `variadic`. `result`
    is the type of the value, or computes it from the literal scale of `decimal(x, scale)`.
    """

    name: str
    parameters: tuple[Kinds, ...]
    result: ValueType | None
    apply: Callable[..., Any]
    says: str
    variadic: bool = False
    partial: bool = False


def _before(text: str, separator: str) -> str:
    return text.partition(separator)[0] if separator else text


def _after(text: str, separator: str) -> str:
    return text.partition(separator)[2] if separator else ""


def _join(separator: str, *texts: str) -> str:
    return bound(separator.join(texts))


def bound(text: str) -> str:
    """Cut at the size limit of a string, so that no chain of conversions can pass it."""
    if len(text) * 4 <= VALUE_SIZE_BYTES_MAX:
        return text
    return text.encode()[:VALUE_SIZE_BYTES_MAX].decode(errors="ignore")


def _lower(text: str) -> str:
    return text.translate(LOWER)


def _upper(text: str) -> str:
    return text.translate(UPPER)


def _strip(text: str) -> str:
    return text.strip(" \t\r\n")


def _text(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case decimal.Decimal():
            return format(value, "f")
        case _:
            return str(value)


def _integer(value: Any) -> Any:
    if isinstance(value, decimal.Decimal):
        whole = int(value)
        return whole if whole == value else FAILED
    if not INTEGER_TEXT.fullmatch(value):
        return FAILED
    number = int(value)
    return number if INTEGER_MIN <= number <= INTEGER_MAX else FAILED


def _decimal(value: Any, scale: int) -> Any:
    """Exact or nothing: digits that the scale has no room for make the call fail."""
    if isinstance(value, str):
        if not DECIMAL_TEXT.fullmatch(value):
            return FAILED
        value = decimal.Decimal(value)
    try:
        scaled = EXACT.to_integral_exact(EXACT.scaleb(value, scale))
    except (decimal.Inexact, decimal.Overflow, decimal.InvalidOperation):
        return FAILED
    if not INTEGER_MIN <= scaled <= INTEGER_MAX:
        return FAILED
    return with_scale(int(scaled), scale)


TEXT: Final[Kinds] = (String,)
FUNCTIONS: Final[dict[str, Function]] = {
    function.name: function
    for function in (
        Function(
            "before",
            (TEXT, TEXT),
            STRING,
            _before,
            "The text before the first separator; all of it where there is none.",
        ),
        Function(
            "after",
            (TEXT, TEXT),
            STRING,
            _after,
            "The text after the first separator; empty where there is none.",
        ),
        Function(
            "join",
            (TEXT, TEXT),
            STRING,
            _join,
            "The texts, with the first argument between them.",
            variadic=True,
        ),
        Function("lower", (TEXT,), STRING, _lower, "A to Z as a to z; all else as it is."),
        Function("upper", (TEXT,), STRING, _upper, "a to z as A to Z; all else as it is."),
        Function("strip", (TEXT,), STRING, _strip, "Without ASCII white space at both ends."),
        Function("length", (TEXT,), INTEGER, len, "The number of code points."),
        Function(
            "contains",
            (TEXT, TEXT),
            BOOLEAN,
            str.__contains__,
            "Whether the second text occurs in the first.",
        ),
        Function(
            "starts_with",
            (TEXT, TEXT),
            BOOLEAN,
            str.startswith,
            "Whether the first text begins with the second.",
        ),
        Function(
            "text",
            ((Integer, Decimal, Boolean, Date, Uuid, String),),
            STRING,
            _text,
            "The value as text: digits, `true` or `false`, an ISO date.",
        ),
        Function(
            "integer",
            ((String, Decimal),),
            INTEGER,
            _integer,
            "The integer that the text spells in ASCII digits, or that the decimal equals.",
            partial=True,
        ),
        Function(
            "decimal",
            ((String, Integer, Decimal), (Integer,)),
            None,
            _decimal,
            f"The decimal of that value, exactly, with the literal scale 0 to {DECIMAL_SCALE_MAX}.",
            partial=True,
        ),
    )
}
