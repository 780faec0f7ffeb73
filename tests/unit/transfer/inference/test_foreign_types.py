"""Types of MySQL, of which no server runs in the tests, and values that have no equivalent."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from sqlalchemy.dialects import mysql

from zapdb.transfer.inference.column_types import map_type_of
from zapdb.transfer.inference.table_rows import foreign_text


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (mysql.TINYINT(display_width=1), "boolean"),
        (mysql.TINYINT(display_width=4), "integer"),
        (mysql.YEAR(), "integer"),
        (mysql.BIT(8), "binary"),
        (mysql.TIME(), "string"),
    ],
)
def test_types_of_mysql(kind: Any, name: str) -> None:
    assert str(map_type_of(kind).parameters["type"]) == name


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, None),
        ("x", "x"),
        (2001, "2001"),
        (b"\x00\xff", "00ff"),
        (-datetime.timedelta(hours=13, minutes=5, seconds=6), "-13:05:06"),
        (datetime.timedelta(hours=838, microseconds=5), "838:00:00.000005"),
        (datetime.time(20), "20:00:00"),
    ],
)
def test_the_text_of_a_value_without_an_equivalent(value: Any, text: str | None) -> None:
    assert foreign_text(value) == text
