"""Checks compiled for records."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from zapdb.expressions import parse_expression, unparse
from zapdb.schema import Check, Field, TableSchema
from zapdb.tables.indexes.checks import compile_check
from zapdb.values import Boolean, Integer, String

TABLE = TableSchema(
    1,
    "items",
    (1,),
    (
        Field(1, "id", Integer()),
        Field(2, "class", String(), optional=True),
        Field(3, "size", Integer(), optional=True),
        Field(4, "on", Boolean()),
    ),
)


def compiled(text: str) -> Any:
    return compile_check(TABLE, Check(1, "test", unparse(parse_expression(text))))


@pytest.mark.parametrize(
    ("text", "fields", "values", "holds"),
    [
        ("on", ("on",), {"on": True}, True),
        ("on", ("on",), {"on": False}, False),
        ("on or id > 3", ("id", "on"), {"on": False, "id": 4}, True),
        ("coalesce(size, 0) >= 0", ("size",), {"size": None}, True),
        ("coalesce(size, 0) >= 0", ("size",), {"size": -1}, False),
        ("size is None", ("size",), {"size": 0}, False),
        ("1 < 2", (), {}, True),
    ],
)
def test_a_check_reads_its_fields_and_no_others(
    text: str, fields: tuple[str, ...], values: dict[str, Any], holds: bool
) -> None:
    check = compiled(text)
    assert check.fields == fields
    assert check.holds(SimpleNamespace(**values)) is holds


def test_a_field_is_looked_at_only_where_the_check_comes_to_it() -> None:
    assert compiled("on or id > 3").holds(SimpleNamespace(on=True))
