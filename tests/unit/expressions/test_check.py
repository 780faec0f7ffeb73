"""Types: what each expression is, and what is refused at which column."""

from __future__ import annotations

import pytest

from zapdb.expressions import ExpressionError, Type, check, check_as, parse
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
    ZonedTimestamp,
)

STATE = Enum("state", 1, ((3, "open"), (1, "done"), (2, "dropped")))
MOOD = Enum("mood", 2, ((1, "open"), (2, "calm")))

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
    "od": Type(Decimal(2), optional=True),
    "d40": Type(Decimal(40)),
    "bin": Type(Binary()),
    "t": Type(Timestamp()),
    "z": Type(ZonedTimestamp()),
    "e": Type(STATE),
    "m": Type(MOOD),
    "oe": Type(STATE, optional=True),
    "es": Type(List(STATE)),
    "ds": Type(List(Decimal(2))),
    "zs": Type(List(ZonedTimestamp())),
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
        ("i + 1", "integer"),
        ("-i * i - 3", "integer"),
        ("i // 7 + i % -7", "integer"),
        ("i + d", "decimal(2)"),
        ("d - d40", "decimal(40)"),
        ("d * d40", "decimal(42)"),
        ("d * i * 5", "decimal(2)"),
        ("-d", "decimal(2)"),
        ("x * x - x", "float"),
        ("-x", "float"),
        ("abs(i)", "integer"),
        ("abs(d)", "decimal(2)"),
        ("abs(x)", "float"),
        ("min(i, 1, -1)", "integer"),
        ("max(d, 0)", "decimal(2)"),
        ("max(0, d, d)", "decimal(2)"),
        ("min(x, x)", "float"),
        ("round(d * d, 2)", "decimal(2)"),
        ("truncate(d, 0)", "decimal(0)"),
        ("quotient(i, i, else=0)", "integer"),
        ("remainder(i, i, else=None)", "optional integer"),
        ("divide(i, d, 5, else=0)", "decimal(5)"),
        ("divide(i, 3, 2, else=d)", "decimal(2)"),
        ("length(bin) + length(es)", "integer"),
        ("contains(es, 'open')", "boolean"),
        ("contains(es, e)", "boolean"),
        ("contains(es, member(s, else='open'))", "boolean"),
        ("contains(ds, 0)", "boolean"),
        ("float(d, else=x)", "float"),
        ("timestamp(s, else=t)", "timestamp"),
        ("date_of(t)", "date"),
        ("local_date(z)", "date"),
        ("zone_name(z)", "string"),
        ("uuid(s, else=None)", "optional uuid"),
        ("unhex(s, else=bin)", "binary"),
        ("text(e)", "string"),
        ("e == 'open'", "boolean"),
        ("'open' != e", "boolean"),
        ("e == ('open' if b else 'done')", "boolean"),
        ("member(s, else='done') == e", "boolean"),
        ("e == member(s, else=member(s, else='done'))", "boolean"),
        ("'open' if b else e", "state"),
        ("'calm' if b else m", "mood"),
        ("('open' if b else 'done') if b else e", "state"),
        ("coalesce(oe, 'done')", "state"),
        ("coalesce(oe, member(s, else=None))", "optional state"),
        ("member(s, else=e)", "state"),
        ("'open'", "string"),
        ("e if b else None", "optional state"),
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
        ("text(j)", 6, "text() takes integer or decimal or boolean or date or uuid or string"),
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
        ("s + s", 1, "`+` takes numbers, this is string"),
        ("i + 's'", 5, "`+` takes numbers, this is string"),
        ("'a' * 5", 1, "`*` takes numbers, this is string"),
        ("i + b", 5, "`+` takes numbers, this is boolean"),
        ("True + 1", 1, "`+` takes numbers, this is boolean"),
        ("-s", 2, "`-` takes numbers, this is string"),
        ("day - day", 1, "`-` takes numbers, this is date"),
        ("i + oi", 5, "`+` takes no null, and this may be one"),
        ("-oi", 2, "`-` takes no null, and this may be one"),
        ("i + None", 5, "`+` takes no null, and this may be one"),
        ("i + x", 1, "`+` doesn't mix integer and float"),
        ("x * d", 1, "`*` doesn't mix float and decimal(2)"),
        ("x - 1", 1, "`-` doesn't mix float and integer"),
        ("d40 * d40", 1, "the product has the scale 80, and a scale is 0 to 64"),
        ("i // 0", 6, "`//` divides by an integer literal that is not 0"),
        ("i // i", 6, "`//` divides by an integer literal that is not 0"),
        ("i % (1 + 1)", 6, "`%` divides by an integer literal that is not 0"),
        ("i % -0", 5, "`%` divides by an integer literal that is not 0"),
        ("d // 2", 1, "`//` takes integers, this is decimal(2)"),
        ("i % d", 5, "`%` takes integers, this is decimal(2)"),
        ("x % x", 1, "`%` takes integers, this is float"),
        ("'%s' % s", 1, "`%` takes numbers, this is string"),
        ("i // True", 6, "`//` takes numbers, this is boolean"),
        ("min(i)", 1, "min() takes 2 arguments, not 1"),
        ("min(i, x)", 5, "min() takes float here, this is integer"),
        ("min(i, d)", 5, "min() takes decimal(2) here, this is integer"),
        ("max(d, d40)", 8, "max() takes decimal(2) here, this is decimal(40)"),
        ("max(s, s)", 5, "max() takes integer or decimal or float here, this is string"),
        (f"max(d, {256**63 - 1})", 8, f"{256**63 - 1} is too large"),
        ("round(i, 2)", 7, "round() takes decimal here, this is integer"),
        ("round(d, i)", 10, "the scale must be a literal"),
        ("round(d, 65)", 10, "a scale is 0 to 64"),
        ("divide(i, i, 2)", 1, "divide() can fail"),
        ("divide(i, i, 2, else=i)", 1, "both branches need one type: decimal(2) and integer"),
        ("quotient(d, 1, else=0)", 10, "quotient() takes integer here, this is decimal(2)"),
        ("contains(s, i)", 13, "contains() takes string here, this is integer"),
        ("contains(es, s)", 14, "contains() takes state here, this is string"),
        ("contains(es, 'shut')", 14, "state has no member 'shut'"),
        ("contains(ds, i)", 14, "contains() takes decimal(2) here, this is integer"),
        ("contains(ds, None)", 14, "contains() takes no null, and this may be one"),
        ("contains(zs, z)", 1, "zoned_timestamp can't be compared"),
        ("length(i)", 8, "length() takes string or binary or list here, this is integer"),
        ("date_of(day)", 9, "date_of() takes timestamp here, this is date"),
        ("date_of(z)", 9, "date_of() takes timestamp here, this is zoned_timestamp"),
        ("year(t)", 6, "year() takes date here, this is timestamp"),
        ("integer(b, else=0)", 9, "integer() takes string or decimal here, this is boolean"),
        ("float(i)", 1, "float() can fail"),
        ("e == 'shut'", 6, "state has no member 'shut'"),
        ("e == s", 1, "state and string can't be compared"),
        ("e == m", 1, "state and mood can't be compared"),
        ("e < 'open'", 1, "state has no order"),
        ("oe == 'open'", 1, "one side may be null"),
        ("'shut' if b else e", 1, "state has no member 'shut'"),
        ("s if b else e", 1, "both branches need one type: string and state"),
        ("e if b else m", 1, "both branches need one type: state and mood"),
        ("member(s, else='open')", 1, "member() makes a member of an enum, and none is wanted"),
        ("member(s, else=None) is None", 1, "member() makes a member of an enum, and none is"),
        ("lower(member(s, else='open'))", 7, "member() makes a member of an enum, and none is"),
        ("e == member(s)", 6, "member() can fail"),
        ("e == member(i, else='open')", 13, "member() takes string here, this is integer"),
        ("e == member(os, else='open')", 13, "member() takes no null, and this may be one"),
        ("e == member(else='open')", 6, "member() takes 1 arguments, not 0"),
        ("e == member(s, else=m)", 6, "both branches need one type: state and mood"),
        ("lower(e)", 7, "lower() takes string here, this is state"),
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


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("'open'", Type(STATE)),
        ("'open'", Type(MOOD)),
        ("'open'", Type(String())),
        ("None", Type(STATE, True)),
        ("'open' if b else 'done'", Type(STATE)),
        ("'open' if b else None", Type(STATE, True)),
        ("'open' if s == 'shut' else 'done'", Type(STATE)),
        ("member(s, else='open')", Type(STATE)),
        ("member(s, else='calm')", Type(MOOD)),
        ("member(s, else=None)", Type(MOOD, True)),
        ("member(text(e), else='calm')", Type(MOOD)),
        ("member(s, else='calm') if e == 'done' else m", Type(MOOD)),
        ("coalesce(oe, 'open')", Type(STATE)),
        ("e == 'open'", Type(Boolean())),
        ("i + 1", Type(Integer(), True)),
    ],
)
def test_this_is_what_is_wanted(text: str, wanted: Type) -> None:
    check_as(parse(text), FIELDS, wanted)


@pytest.mark.parametrize(
    ("text", "wanted", "column", "message"),
    [
        ("'calm'", Type(STATE), 1, "state has no member 'calm'"),
        ("'open' if b else 'calm'", Type(STATE), 18, "state has no member 'calm'"),
        ("member(s, else='calm')", Type(STATE), 16, "state has no member 'calm'"),
        ("s", Type(STATE), 1, "the result must be state, this is string"),
        ("lower('open')", Type(STATE), 1, "the result must be state, this is string"),
        ("m", Type(STATE), 1, "the result must be state, this is mood"),
        ("None", Type(STATE), 1, "the result must be state, this is None"),
        (
            "member(s, else=None)",
            Type(STATE),
            1,
            "the result must be state, this is optional state",
        ),
        ("member(s, else='open')", Type(String()), 1, "member() makes a member of an enum"),
        ("d * d", Type(Decimal(2)), 1, "the result must be decimal(2), this is decimal(4)"),
        ("0", Type(Decimal(2)), 1, "the result must be decimal(2), this is integer"),
    ],
)
def test_this_is_not_what_is_wanted(text: str, wanted: Type, column: int, message: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        check_as(parse(text), FIELDS, wanted)
    assert (caught.value.column, caught.value.message[: len(message)]) == (column, message)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("s + s", "texts are put together by join('', a, b)"),
        ("i // i", "write quotient(a, b, else=…)"),
        ("i % i", "write remainder(a, b, else=…)"),
        ("d // 2", "write divide(a, b, scale, else=…)"),
        ("e == 'shut'", "it has one of open, done, dropped"),
        ("i + oi", "give it coalesce(…, a value for null)"),
    ],
)
def test_hints_name_the_way_out(text: str, hint: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        check(parse(text), FIELDS)
    assert caught.value.hint == hint
