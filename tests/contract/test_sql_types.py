"""Every type of DuckDB at its bounds: exactly the value, or an error that names its column."""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import pyarrow
import pytest

import zapdb
from zapdb.database import Database
from zapdb.errors import SqlError, ZapdbError

UTC = datetime.UTC
REFUSED: Final = "refused"


def at(*parts: int) -> datetime.datetime:
    return datetime.datetime(*parts)  # type: ignore[arg-type]  # year to microsecond


def offset(time: datetime.time, **parts: int) -> datetime.time:
    return time.replace(tzinfo=datetime.timezone(datetime.timedelta(**parts)))


def interval(*parts: int) -> Any:
    return pyarrow.MonthDayNano(parts)


# The id of a type in `duckdb_types`, and expressions of it with their values.
VALUES: dict[str, list[tuple[str, Any]]] = {
    "NULL": [("NULL", None), ("[]", []), ("[NULL]", [None])],
    "BOOLEAN": [("true", True), ("false", False), ("NULL::BOOLEAN", None)],
    "TINYINT": [("(-128)::TINYINT", -128), ("127::TINYINT", 127)],
    "SMALLINT": [("(-32768)::SMALLINT", -32768), ("32767::SMALLINT", 32767)],
    "INTEGER": [("(-2147483648)::INTEGER", -(2**31)), ("2147483647::INTEGER", 2**31 - 1)],
    "BIGINT": [(f"({-(2**63)})::BIGINT", -(2**63)), (f"{2**63 - 1}::BIGINT", 2**63 - 1)],
    "HUGEINT": [
        (f"({-(2**127)})::HUGEINT", -(2**127)),
        (f"{2**127 - 1}::HUGEINT", 2**127 - 1),
        (f"{10**38}::HUGEINT", 10**38),
        ("sum(1::BIGINT)", 1),
    ],
    "UTINYINT": [("255::UTINYINT", 255)],
    "USMALLINT": [("65535::USMALLINT", 65535)],
    "UINTEGER": [("4294967295::UINTEGER", 2**32 - 1)],
    "UBIGINT": [(f"{2**64 - 1}::UBIGINT", 2**64 - 1)],
    "UHUGEINT": [
        (f"{2**127 - 1}::UHUGEINT", 2**127 - 1),
        (f"{2**127}::UHUGEINT", 2**127),
        (f"{2**128 - 1}::UHUGEINT", 2**128 - 1),
        ("0::UHUGEINT", 0),
        ("NULL::UHUGEINT", None),
        (f"[{2**127}::UHUGEINT, NULL]", [2**127, None]),
        (f"{{'a': {2**127}::UHUGEINT}}", {"a": 2**127}),
        (f"MAP {{{2**127}::UHUGEINT: {2**127}::UHUGEINT}}", {2**127: 2**127}),
        (f"[{2**127}::UHUGEINT]::UHUGEINT[1]", [2**127]),
        (f"union_value(a := {2**127}::UHUGEINT)", 2**127),
        (f"row({2**127}::UHUGEINT, 'a')", (2**127, "a")),
    ],
    "BIGNUM": [
        (f"'{10**60}'::BIGNUM", 10**60),
        (f"'{-(10**60)}'::BIGNUM", -(10**60)),
        ("0::BIGNUM", 0),
        (f"'{'9' * 4000}'::BIGNUM", 10**4000 - 1),
        (f"'{'9' * 5000}'::BIGNUM", REFUSED),  # as Python refuses it
    ],
    "DECIMAL": [
        ("1.5::DECIMAL(4, 1)", Decimal("1.5")),
        (f"{'9' * 38}::DECIMAL(38, 0)", Decimal("9" * 38)),
        (f"-{'9' * 38}::DECIMAL(38, 0)", Decimal("-" + "9" * 38)),
        (f"'0.{'9' * 38}'::DECIMAL(38, 38)", Decimal("0." + "9" * 38)),
        ("0::DECIMAL(9, 3)", Decimal("0.000")),
    ],
    "FLOAT": [
        ("0.1::FLOAT", 0.10000000149011612),
        ("'nan'::FLOAT", math.nan),
        ("'-inf'::FLOAT", -math.inf),
        ("3.4028234663852886e38::FLOAT", 3.4028234663852886e38),
    ],
    "DOUBLE": [
        ("'nan'::DOUBLE", math.nan),
        ("'inf'::DOUBLE", math.inf),
        ("'-0.0'::DOUBLE", -0.0),
        ("1.7976931348623157e308::DOUBLE", 1.7976931348623157e308),
        ("5e-324::DOUBLE", 5e-324),
    ],
    "DATE": [
        ("'0001-01-01'::DATE", datetime.date.min),
        ("'9999-12-31'::DATE", datetime.date.max),
        ("'0001-12-31 (BC)'::DATE", REFUSED),
        ("'10000-01-01'::DATE", REFUSED),
        ("'5877642-06-25 (BC)'::DATE", REFUSED),
        ("'5881580-07-10'::DATE", REFUSED),
        ("'infinity'::DATE", REFUSED),
        ("['-infinity'::DATE]", REFUSED),
    ],
    "TIME": [
        ("'00:00:00'::TIME", datetime.time.min),
        ("'23:59:59.999999'::TIME", datetime.time.max),
        ("'24:00:00'::TIME", REFUSED),
    ],
    "TIME_NS": [
        ("'23:59:59.999999'::TIME_NS", datetime.time.max),
        ("'12:34:56.123456789'::TIME_NS", REFUSED),
        ("'24:00:00'::TIME_NS", REFUSED),
    ],
    "TIME WITH TIME ZONE": [
        ("'12:30:00+02'::TIMETZ", offset(datetime.time(12, 30), hours=2)),
        ("'00:00:00-15:59:59'::TIMETZ", offset(datetime.time(), seconds=-57599)),
        ("'23:59:59.999999+15:59:59'::TIMETZ", offset(datetime.time.max, seconds=57599)),
        ("'00:00:00.000001+00:00:01'::TIMETZ", offset(datetime.time(0, 0, 0, 1), seconds=1)),
        ("'24:00:00-15:59:59'::TIMETZ", REFUSED),
    ],
    "TIMESTAMP": [
        ("'0001-01-01 00:00:00'::TIMESTAMP", datetime.datetime.min),
        ("'9999-12-31 23:59:59.999999'::TIMESTAMP", datetime.datetime.max),
        ("'290309-12-22 (BC) 00:00:00'::TIMESTAMP", REFUSED),
        ("'294247-01-10 04:00:54.775806'::TIMESTAMP", REFUSED),
        ("'infinity'::TIMESTAMP", REFUSED),
        ("'-infinity'::TIMESTAMP", REFUSED),
    ],
    "TIMESTAMP_S": [
        ("'2020-01-01 00:00:01'::TIMESTAMP_S", at(2020, 1, 1, 0, 0, 1)),
        ("'0001-01-01 00:00:00'::TIMESTAMP_S", datetime.datetime.min),
        ("'290309-12-22 (BC) 00:00:00'::TIMESTAMP_S", REFUSED),
        ("'infinity'::TIMESTAMP_S", REFUSED),
    ],
    "TIMESTAMP_MS": [
        ("'9999-12-31 23:59:59.999'::TIMESTAMP_MS", at(9999, 12, 31, 23, 59, 59, 999_000)),
        ("'-infinity'::TIMESTAMP_MS", REFUSED),
    ],
    "TIMESTAMP_NS": [
        ("'2262-04-11 23:47:16.854775'::TIMESTAMP_NS", at(2262, 4, 11, 23, 47, 16, 854_775)),
        ("'1677-09-22 00:00:00'::TIMESTAMP_NS", at(1677, 9, 22)),
        ("'2262-04-11 23:47:16.854775806'::TIMESTAMP_NS", REFUSED),
        ("'infinity'::TIMESTAMP_NS", REFUSED),
    ],
    "TIMESTAMP WITH TIME ZONE": [
        ("'2020-01-01 00:00:00+02'::TIMESTAMPTZ", at(2019, 12, 31, 22).replace(tzinfo=UTC)),
        ("'0001-01-01 00:00:00+00'::TIMESTAMPTZ", datetime.datetime.min.replace(tzinfo=UTC)),
        (
            "'9999-12-31 23:59:59.999999+00'::TIMESTAMPTZ",
            datetime.datetime.max.replace(tzinfo=UTC),
        ),
        ("'0001-01-01 00:00:00+01'::TIMESTAMPTZ", REFUSED),
        ("'9999-12-31 23:59:59-01'::TIMESTAMPTZ", REFUSED),
        ("'infinity'::TIMESTAMPTZ", REFUSED),
        ("['-infinity'::TIMESTAMPTZ]", REFUSED),
    ],
    "TIMESTAMPTZ_NS": [
        (
            "'2020-01-01 00:00:00.5+00'::TIMESTAMPTZ_NS",
            at(2020, 1, 1, 0, 0, 0, 500_000).replace(tzinfo=UTC),
        ),
        ("'2020-01-01 00:00:00.123456789+00'::TIMESTAMPTZ_NS", REFUSED),
    ],
    "INTERVAL": [
        ("INTERVAL '1 month 2 days 3 microseconds'", interval(1, 2, 3_000)),
        ("INTERVAL '-14 months 1 hour'", interval(-14, 0, 3_600_000_000_000)),
        ("INTERVAL 2147483647 MONTH", interval(2147483647, 0, 0)),
        ("to_days(2147483647)", interval(0, 2147483647, 0)),
        ("to_days(-2147483647)", interval(0, -2147483647, 0)),
        ("INTERVAL '0 seconds'", interval(0, 0, 0)),
        ("INTERVAL '-0.000001 seconds'", interval(0, 0, -1_000)),
        ("to_microseconds(9223372036854775)", interval(0, 0, 9223372036854775_000)),
        ("to_microseconds(9223372036854775807)", interval(0, 0, (2**63 - 1) * 1_000)),
    ],
    "UUID": [
        ("'00000000-0000-0000-0000-000000000000'::UUID", UUID(int=0)),
        ("'ffffffff-ffff-ffff-ffff-ffffffffffff'::UUID", UUID(int=2**128 - 1)),
    ],
    "VARCHAR": [("''", ""), ("'a' || chr(0) || chr(1114111)", "a\0\U0010ffff")],
    "BLOB": [("'\\x00\\xFF'::BLOB", b"\0\xff"), ("''::BLOB", b"")],
    "BIT": [("'1'::BIT", "1"), ("'0000000011'::BIT", "0000000011")],
    "ENUM": [("'b'::ENUM('a', 'b')", "b"), ("'c\"d'::ENUM('a''b', 'c\"d')", 'c"d')],
    "LIST": [("[[1], NULL, []]", [[1], None, []]), ("NULL::INT[]", None)],
    "ARRAY": [
        ("[1, NULL]::INT[2]", [1, None]),
        ("NULL::INT[2]", None),
        ("[[1, 2]::INT[2], NULL]", [[1, 2], None]),
    ],
    "STRUCT": [
        ("{'a': 1, 'b\"c': NULL}", {"a": 1, 'b"c': None}),
        ("NULL::STRUCT(a INT)", None),
        ("[{'a': [1]}, NULL]", [{"a": [1]}, None]),
    ],
    "TUPLE": [("row(1, 'x')", (1, "x"))],
    "MAP": [
        ("MAP {1: 'a', 2: NULL}", {1: "a", 2: None}),
        ("MAP {}", {}),
        ("NULL::MAP(INT, INT)", None),
        ("[MAP {1: 2}, NULL, MAP {3: 4, 5: 6}]", [{1: 2}, None, {3: 4, 5: 6}]),
        ("MAP {[1]: 2}", REFUSED),
        ("MAP {{'a': 1}: 2}", REFUSED),
    ],
    "UNION": [
        ("union_value(a := 1)", 1),
        ("'x'::UNION(a INT, b VARCHAR)", "x"),
        ("NULL::UNION(a INT)", None),
        ("['x'::UNION(a DATE, b VARCHAR), '2020-01-01'::DATE]", ["x", datetime.date(2020, 1, 1)]),
        ("union_value(a := 'infinity'::DATE)", REFUSED),
    ],
    "JSON": [
        ('\'{"a": [1, null, "x"]}\'::JSON', {"a": [1, None, "x"]}),
        ("'null'::JSON", None),
        (f"'{2**64}'::JSON", 2**64),
        ("[('[1]'::JSON)]", [[1]]),
        ('\'{"a": 1, "a": 2}\'::JSON', REFUSED),
        ("'[1e999]'::JSON", REFUSED),
        ("(repeat('[', 100000) || repeat(']', 100000))::JSON", REFUSED),
        (f"'{'9' * 5000}'::JSON", REFUSED),
    ],
    "GEOMETRY": [
        ("'POINT(1 2)'::GEOMETRY", bytes.fromhex("0101000000000000000000f03f0000000000000040"))
    ],
    "VARIANT": [("1::VARIANT", REFUSED), ("[1::VARIANT]", REFUSED)],
    "TYPE": [("get_type(1)", REFUSED)],
}


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """One for all, since values of statements are looked at, and not of records."""
    place = tmp_path_factory.mktemp("types")
    text = "zapdb: 1\nsummary: none\nchanges: [{create_table: {table: items, key: [id], fields: "
    (place / "0001_none.yaml").write_text(
        text + "[{name: id, type: integer}]}}]\nrollback: inferred\n"
    )
    with zapdb.open(f"sqlite:///{place}/types.db", migrations=place, apply="auto") as opened:
        yield opened


def test_every_type_is_among_them(db: Database) -> None:
    """A later DuckDB has others: add what they are."""
    found = db.sql("SELECT DISTINCT logical_type FROM duckdb_types()").fetchall()
    assert {name for (name,) in found} | {"JSON"} == set(VALUES)


@pytest.mark.parametrize("kind", VALUES)
def test_values_are_exact_or_refused(db: Database, kind: str) -> None:
    kept = [expression for expression, value in VALUES[kind] if value is not REFUSED]
    if kept:
        # All at once, three times and among nulls, as columns of one answer
        names = ", ".join(f"{expression} AS c{n}" for n, expression in enumerate(kept))
        nulls = ", ".join("NULL" for _ in kept)
        one = f"(SELECT {names})"
        result = db.sql(f"FROM {one} UNION ALL FROM {one} UNION ALL SELECT {nulls}")
        wanted = [value for _, value in VALUES[kind] if value is not REFUSED]
        rows = result.fetchall()
        assert repr(rows) == repr([tuple(wanted), tuple(wanted), (None,) * len(wanted)])
        assert result.to_arrow().num_rows == 3
        result.to_pandas()
    for expression, value in VALUES[kind]:
        if value is not REFUSED:
            continue
        result = db.sql(f"SELECT 1 AS one, {expression} AS it")
        with pytest.raises(SqlError) as caught:
            result.fetchall()
        assert caught.value.context["column"] == "it", expression
        assert caught.value.hint
        (as_text,) = db.sql(f"SELECT ({expression})::VARCHAR").fetchone() or (None,)
        assert as_text
        try:
            frame = result.to_pandas()
        except ZapdbError:
            continue
        assert kind.startswith("TIME"), expression  # pandas has nanoseconds, and far years
        assert str(frame["it"].dtype).startswith("datetime64"), expression


def test_what_is_shown_is_one_line_for_a_row(
    db: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    db.sql("SELECT 'a\n\x1b[31m' AS \"b\x1b[2J\", 'infinity'::DATE, MAP {[1]: 2}, NULL").show()
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "a\\n\\x1b[31m" in shown
    assert len(shown.splitlines()) == 5
    db.sql("SELECT * FROM range(100) t(n)").show(5)
    shown = capsys.readouterr().out
    assert [line.strip() for line in shown.splitlines()[3:9]] == ["0", "1", "2", "·", "98", "99"]
    assert shown.endswith("100 rows (5 shown)\n")


def test_json_is_as_it_was_read(db: Database) -> None:
    value = {"a": [1, 2.5, None, True, "ü\u2028"], "b": {"": -(2**63)}}
    assert db.sql("SELECT $1::JSON", [json.dumps(value)]).fetchone() == (value,)
