"""Whatever `db.sql` is given: an answer, or an error of zapdb; nothing else comes out of it."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterator
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import zapdb
from zapdb.database import Database
from zapdb.errors import InvalidValue, SqlError, UsageError, ZapdbError

UTC = datetime.UTC
SHOP = """\
zapdb: 1
summary: A shop
changes:
  - create_table:
      table: orders
      key: [id]
      fields:
        - {name: id, type: integer}
        - {name: title, type: string}
        - {name: total, type: decimal, scale: 2}
        - {name: made, type: timestamp}
        - {name: details, type: json}
rollback: inferred
"""


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    place = tmp_path_factory.mktemp("input")
    (place / "0001_shop.yaml").write_text(SHOP)
    with zapdb.open(f"sqlite:///{place}/shop.db", migrations=place, apply="auto") as opened:
        opened.table("orders").insert_many(
            {
                "id": n,
                "title": ("\0", "'\"", "é" * n)[n % 3],
                "total": Decimal(n),
                "made": (datetime.datetime.min, datetime.datetime.max)[n % 2].replace(tzinfo=UTC),
                "details": [None, {"a": [[[n]]]}][n % 2],
            }
            for n in range(20)
        )
        yield opened


STATEMENTS = [
    "",
    " ",
    ";",
    ";;;",
    "-- nothing",
    "/* nothing */",
    "/*",
    "SELECT",
    "SELECT 1;;",
    "SELECT 1; SELECT 2",
    "\ud800",
    "SELECT '\udfff'",
    'SELECT 1 AS "\ud800"',
    "SELECT '\0'",
    "\0",
    "SELECT 1 \0 garbage",
    "SELECT '\N{ZERO WIDTH SPACE}' AS \"\U0001f600\"",
    "SELECT $$ a $$",
    "UPDATE EXTENSIONS",
    "SUMMARIZE orders",
    "DESCRIBE orders",
    "SHOW orders",
    "SHOW",
    "EXPLAIN",
    "EXPLAIN EXPLAIN SELECT 1",
    "EXPLAIN ANALYZE SELECT * FROM orders",
    "PIVOT orders ON id",
    "PIVOT orders ON id IN (1, 2) USING max(total)",
    "UNPIVOT orders ON id",
    "FROM orders",
    "TABLE orders",
    "VALUES (1)",
    "LISTEN x",
    "SELECT " + "(" * 5_000 + "1" + ")" * 5_000,
    "SELECT " + "-" * 5_000 + "1",
    "SELECT " + "NOT " * 50_000 + "true",
    "SELECT " + " + ".join(["1"] * 20_000),
    "SELECT " + ", ".join(f"{n} AS c{n}" for n in range(5_000)),
    "SELECT " + "[" * 900 + "]" * 900,
    "SELECT * FROM " + "(SELECT * FROM " * 900 + "orders" + ")" * 900,
    "WITH " + ", ".join(f"t{n} AS (SELECT 1)" for n in range(900)) + " SELECT 1",
    "SELECT '" + "x" * 1_000_000 + "'",
    "SELECT 1 AS " + "x" * 100_000,
    "SELECT 1 AS a, 2 AS a, 3 AS A",
    'SELECT 1 AS ""',
    "SELECT 'a'::INT",
    "SELECT 1 / 0",
    "SELECT 1 // 0",
    "SELECT 9223372036854775807 + 1",
    "SELECT (10::HUGEINT ** 50)::HUGEINT",
    "SELECT error('x')",
    "SELECT made FROM orders",
    "SELECT made + INTERVAL 1 DAY FROM orders",
    "SELECT made AT TIME ZONE 'Asia/Tokyo' FROM orders",
    "SELECT made AT TIME ZONE 'nowhere' FROM orders",
    "SELECT '0001-01-01 00:00:00+14'::TIMESTAMPTZ",
    "SELECT date '99999-01-01', date 'infinity', time '24:00'",
    "SELECT (repeat('[', 10000) || repeat(']', 10000))::JSON",
    "SELECT from_json('[1]', '[\"nothing\"]')",
    "SELECT json('" + "[" * 60_000 + "')",
    "SELECT * FROM generate_series(1, 10, 0)",
    "SELECT * FROM range(NULL)",
    "SELECT * FROM unnest([])",
    "SELECT list_transform([1], x -> x)",
    "SELECT list_transform([1], lambda x: x + y)",
    "SELECT nextval('x')",
    "SELECT currval('x'), getvariable('x'), current_setting('nothing')",
    "SELECT regexp_matches('a', '(')",
    "SELECT regexp_matches('a', '(a{1000}){1000}')",
    "SELECT count(*) OVER (ROWS BETWEEN -1 PRECEDING AND CURRENT ROW) FROM orders",
    "SELECT * FROM orders ORDER BY 99",
    "SELECT * FROM orders LIMIT -1",
    "SELECT * FROM orders TABLESAMPLE 200%",
    "SELECT ?",
    "SELECT $1, $2",
    "SELECT $a",
    "SELECT ?, $1",
    "SELECT sum(title) FROM orders",
    "SELECT title::INT FROM orders",
    "SELECT orders FROM orders",
    "SELECT COLUMNS('(') FROM orders",
    "SELECT * EXCLUDE (nothing) FROM orders",
    "SELECT strftime(made, '%%%q') FROM orders",
    "SELECT make_timestamp(9223372036854775807)",
    "SELECT to_timestamp(1e300)",
    "SELECT chr(55296)",
    "SELECT '\\xF'::BLOB",
    "SELECT decode('\\xFF'::BLOB)",
    "SELECT setseed(2)",
    "SELECT * FROM test_all_types()",
    "SELECT * FROM duckdb_functions()",
    "SELECT x FROM (SELECT union_value(a := 1) AS x) GROUP BY x",
]


def answer(db: Database, statement: str, params: Any = None) -> Any:
    """All that an answer can be asked; raises errors of zapdb alone."""
    result = db.sql(statement, params, seconds=10, max_memory=256 * 1024 * 1024)
    for ask in (result.fetchall, result.to_pandas):
        try:
            ask()
        except ZapdbError:
            continue
    result.to_arrow()
    return result


def refusal(db: Database, statement: str, params: Any = None) -> str:
    """The text of the error that a statement ends with, or nothing; raises all others."""
    try:
        answer(db, statement, params)
    except ZapdbError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("part", range(4))
def test_statements_are_answered_or_refused(db: Database, part: int) -> None:
    for statement in STATEMENTS[part::4]:
        text = refusal(db, statement)
        assert "Traceback" not in text, statement[:100]
        text.encode()
    assert db.sql("SELECT count(*) FROM orders").fetchone() == (20,)


def test_statements_that_are_none(db: Database) -> None:
    for statement in (None, 1, b"SELECT 1", ["SELECT 1"], "SELECT '\ud800'"):
        with pytest.raises(InvalidValue):
            db.sql(statement)  # type: ignore[arg-type]  # it is what is tested
    with pytest.raises(UsageError) as caught:
        db.sql("UPDATE EXTENSIONS")
    assert caught.value.hint
    # A NUL ends nothing: what follows it is no second statement that nobody looked at
    with pytest.raises((SqlError, UsageError)):
        db.sql("SELECT 1 \0; DROP TABLE orders")


def nest(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


class Own(str):
    """A string of a program's own class."""


@pytest.mark.parametrize(
    "value",
    [
        *(None, True, 0, -(2**127), 2**127, 2**128 - 1, 0.1, math.inf, "", "a\0b", "\U0010ffff"),
        *(b"", b"\0\xff", UUID(int=0), UUID(int=2**128 - 1), Own("own")),
        *(Decimal("0.00"), Decimal("9" * 38), Decimal("-0." + "9" * 38), Decimal("1E+5")),
        *(datetime.date.min, datetime.date.max, datetime.time.max),
        *(datetime.datetime.min, datetime.datetime.max),
        datetime.datetime.max.replace(tzinfo=UTC),
        *([], [1, None], [["a"]], {"a": 1}, {"a": [{"b": None}]}, [2**127, 2**128 - 1]),
    ],
    ids=repr,
)
def test_a_parameter_comes_back_as_it_went(db: Database, value: Any) -> None:
    assert db.sql("SELECT ?", [value]).fetchall() == [(value,)]
    assert db.sql("SELECT $a", {"a": value}).fetchall() == [(value,)]


def test_an_instant_is_one_wherever_it_was(db: Database) -> None:
    made = datetime.datetime(2024, 10, 27, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Vienna"))
    assert db.sql("SELECT ?", [made]).fetchone() == (made.astimezone(UTC),)
    assert db.sql("SELECT ?", [datetime.timedelta(days=-1, microseconds=1)]).fetchone()


@pytest.mark.parametrize(
    "value",
    [
        *("\ud800", 2**128, -(2**127) - 1, 10**5000, Decimal("9" * 39), Decimal("1E+38")),
        *(Decimal("nan"), Decimal("1E-39"), Decimal("Infinity"), object(), 1j, {1}, int),
        *(["\ud800"], {"\ud800": 1}, {1: 2}, [object()], range(3), nest(100)),
        datetime.time(1, tzinfo=UTC),
        datetime.datetime.min.replace(tzinfo=ZoneInfo("Asia/Tokyo")),
        datetime.datetime.max.replace(tzinfo=datetime.timezone(datetime.timedelta(hours=-1))),
    ],
    ids=lambda value: f"{type(value).__name__}",
)
def test_a_parameter_that_can_not_go_is_named(db: Database, value: Any) -> None:
    with pytest.raises(InvalidValue) as caught:
        db.sql("SELECT ?", [value])
    assert caught.value.context["field"].startswith("params[0]")
    with pytest.raises(InvalidValue):
        db.sql("SELECT $a", {"a": value})


def test_parameters_that_are_none(db: Database) -> None:
    for params in ("a", b"a", 1, {1}, iter([1])):
        with pytest.raises(InvalidValue):
            db.sql("SELECT ?", params)  # type: ignore[arg-type]  # it is what is tested
    with pytest.raises(InvalidValue):
        db.sql("SELECT $a", {"\ud800": 1})
    for given_too in ([], [1, 2], {"a": 1}):
        with pytest.raises(SqlError):
            db.sql("SELECT ?", given_too)


FRAGMENTS = [
    *("SELECT", "FROM", "WHERE", "GROUP BY ALL", "ORDER BY", "LIMIT", "UNION ALL", "WITH", "AS"),
    *("orders", "zapdb_tables", "id", "title", "total", "made", "details", "*", "t", "x", "1"),
    *("(", ")", "[", "]", "{", "}", ",", ";", ".", "::", "->>", "||", "+", "/", "=", "<", "--"),
    *("/*", "*/", "'", "''", '"', "$$", "?", "$1", "$a", "\0", "\ud800", "é", "\n", "\\", "%"),
    *(
        "NULL",
        "'a'",
        "'infinity'",
        "-1",
        "1e999",
        "0.1",
        "9" * 40,
        "INTERVAL",
        "DATE",
        "TIMESTAMPTZ",
    ),
    *("JSON", "UHUGEINT", "MAP", "UNION", "STRUCT", "ENUM", "BIT", "BIGNUM", "VARIANT", "INT[]"),
    *("count(*)", "sum(", "list(", "range(3)", "unnest(", "max(", "OVER ()", "CASE WHEN", "END"),
    *("EXPLAIN", "ANALYZE", "PIVOT", "DESCRIBE", "SUMMARIZE", "SHOW", "COPY", "ATTACH", "SET"),
    *("read_text('/etc/passwd')", "'/etc/passwd'", "query('SELECT 1')", "lambda x:", "RECURSIVE"),
]
GIVEN = st.one_of(
    st.none(),
    st.lists(
        st.one_of(
            st.none(),
            st.integers(),
            st.floats(),
            st.text(st.characters(), max_size=5),
            st.decimals(),
            st.datetimes(timezones=st.sampled_from([None, UTC])),
            st.dates(),
            st.binary(max_size=5),
        ),
        max_size=2,
    ),
)
WHOLE = st.builds(
    "SELECT {}::{} FROM orders {}".format,
    st.sampled_from(
        ["id", "title", "total", "made", "details", "orders", "[id]", "MAP {id: made}"]
    ),
    st.sampled_from(
        ["VARCHAR", "INT", "JSON", "TIMESTAMP_NS", "TIMETZ", "BIT", "UHUGEINT", "UUID"]
    ),
    st.sampled_from(["", "ORDER BY ALL", "WHERE id = $1", "LIMIT 3", "GROUP BY ALL"]),
)
ANY = st.lists(st.sampled_from(FRAGMENTS), max_size=12).map(" ".join)
HALF = ANY.map(lambda text: "SELECT " + text)


@settings(max_examples=60, deadline=None)
@given(statement=st.one_of(ANY, HALF, WHOLE), params=GIVEN)
def test_made_of_fragments_they_are_answered_or_refused(
    db: Database, statement: str, params: Any
) -> None:
    assert "root:" not in refusal(db, statement, params)


@pytest.mark.long
@settings(max_examples=5_000, deadline=None)
@given(statement=st.one_of(ANY, HALF, WHOLE), params=GIVEN)
def test_made_of_many_fragments_they_are_answered_or_refused(
    db: Database, statement: str, params: Any
) -> None:
    assert "root:" not in refusal(db, statement, params)
