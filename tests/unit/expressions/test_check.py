"""Types: what each expression is, and what is refused at which column."""

from __future__ import annotations

import pytest

from zapdb.expressions import ExpressionError, Type, check, parse
from zapdb.values import Boolean, Date, Decimal, Float, Integer, Json, String, Uuid

FIELDS = {
    "s": Type(String()),
    "i": Type(Integer()),
    "d": Type(Decimal(2)),
    "b": Type(Boolean()),
    "day": Type(Date()),
    "u": Type(Uuid()),
    "x": Type(Float()),
    "j": Type(Json()),
    "os": Type(String(), optional=True),
    "oi": Type(Integer(), optional=True),
    "ob": Type(Boolean(), optional=True),
}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("s", "string"),
        ("os", "optional string"),
        ("d", "decimal(2)"),
        ("'x'", "string"),
        ("1", "integer"),
        ("True", "boolean"),
        ("None", "None"),
        ("s if b else 'x'", "string"),
        ("s if b else None", "optional string"),
        ("None if b else s", "optional string"),
        ("None if b else None", "None"),
        ("os if b else s", "optional string"),
        ("i == d", "boolean"),
        ("d < 5", "boolean"),
        ("s < 'x'", "boolean"),
        ("b == True", "boolean"),
        ("day >= day", "boolean"),
        ("j == j", "boolean"),
        ("x != x", "boolean"),
        ("os is None", "boolean"),
        ("(s if b else None) is not None", "boolean"),
        ("b and not b or i == 1", "boolean"),
        ("lower(s)", "string"),
        ("join(' ', s, s, s, s)", "string"),
        ("length(s)", "integer"),
        ("contains(s, 'x')", "boolean"),
        ("text(i)", "string"),
        ("text(u)", "string"),
        ("coalesce(os, 'x')", "string"),
        ("coalesce(os, os)", "optional string"),
        ("coalesce(os, None)", "optional string"),
        ("integer(s, else=0)", "integer"),
        ("integer(d, else=None)", "optional integer"),
        ("integer(s, else=oi)", "optional integer"),
        ("decimal(s, 2, else=0)", "decimal(2)"),
        ("decimal(i, 3, else=None)", "optional decimal(3)"),
        ("decimal(d, 2, else=d)", "decimal(2)"),
    ],
)
def test_this_expression_has_this_type(text: str, shown: str) -> None:
    assert str(check(parse(text), FIELDS)) == shown


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("nobody", 1, "no field 'nobody' here"),
        ("lower(nobody)", 7, "no field 'nobody' here"),
        ("lowest(s)", 1, "no function 'lowest'"),
        ("__import__('os')", 1, "no function '__import__'"),
        ("exec(s)", 1, "no function 'exec'"),
        ("s if i else s", 6, "boolean is needed here, this is integer"),
        ("s if ob else s", 6, "boolean is needed here, this is optional boolean"),
        ("s if None else s", 6, "boolean is needed here, this is None"),
        ("s if b else i", 1, "both branches need one type: string and integer"),
        ("d if b else 0", 1, "both branches need one type: decimal(2) and integer"),
        ("not i", 5, "boolean is needed here, this is integer"),
        ("b and i", 7, "boolean is needed here, this is integer"),
        ("s == i", 1, "string and integer can't be compared"),
        ("b == 1", 1, "boolean and integer can't be compared"),
        ("i < x", 1, "integer and float can't be compared"),
        ("j < j", 1, "json has no order"),
        ("os == s", 1, "one side may be null"),
        ("s == None", 1, "one side may be null"),
        ("s is None", 1, "this is never null"),
        ("lower(i)", 7, "lower() takes string here, this is integer"),
        ("lower(os)", 7, "lower() takes no null, and this may be one"),
        ("lower(None)", 7, "lower() takes no null, and this may be one"),
        ("lower()", 1, "lower() takes 1 arguments, not 0"),
        ("lower(s, s)", 1, "lower() takes 1 arguments, not 2"),
        ("join(s)", 1, "join() takes 2 arguments, not 1"),
        ("join(s, s, i)", 12, "join() takes string here, this is integer"),
        ("text(x)", 6, "text() takes integer or decimal or boolean or date or uuid or string"),
        ("lower(s, else='')", 1, "lower() never fails: else= has no use"),
        ("integer(s)", 1, "integer() can fail"),
        ("integer(s, else='x')", 1, "both branches need one type: integer and string"),
        ("decimal(s, 2)", 1, "decimal() can fail"),
        ("decimal(s, i, else=0)", 12, "the scale must be a literal"),
        ("decimal(s, 65, else=0)", 12, "a scale is 0 to 64"),
        ("decimal(s, -1, else=0)", 12, "a scale is 0 to 64"),
        ("decimal(s, True, else=0)", 12, "decimal() takes integer here, this is boolean"),
        ("decimal(s, 3, else=d)", 1, "both branches need one type: decimal(3) and decimal(2)"),
        ("decimal(s, 2, else=i)", 1, "both branches need one type: decimal(2) and integer"),
        (f"decimal(s, 2, else={256**63 - 1})", 20, f"{256**63 - 1} is too large"),
        ("coalesce(s, 'x')", 10, "this is never null"),
        ("coalesce(os, 1)", 1, "both branches need one type: optional string and integer"),
        ("coalesce(os)", 1, "coalesce() takes a value and what stands for null"),
        ("coalesce(os, s, s)", 1, "coalesce() takes a value and what stands for null"),
        ("coalesce(os, s, else=s)", 1, "coalesce() takes a value and what stands for null"),
    ],
)
def test_this_expression_is_refused_at_this_column(text: str, column: int, message: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        check(parse(text), FIELDS)
    assert caught.value.column == column
    assert caught.value.message.startswith(message)


def test_an_optional_value_fits_optional_places_only() -> None:
    required, optional, null = Type(String()), Type(String(), True), Type(None, True)
    assert required.fits(required)
    assert required.fits(optional)
    assert optional.fits(optional)
    assert not optional.fits(required)
    assert null.fits(optional)
    assert not null.fits(required)
    assert not Type(Integer()).fits(required)
    assert not Type(Decimal(2)).fits(Type(Decimal(3)))
