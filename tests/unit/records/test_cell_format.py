"""Records as JSON has them, field by field and as a whole."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests import strategies
from tests.forms import cases
from zapdb.records import record_class
from zapdb.records.cell_format import read_key, record_to_plain, to_cell, to_plain
from zapdb.schema import Field, TableSchema
from zapdb.values import Integer, Json, String


@settings(max_examples=cases(300))
@given(st.data())
def test_a_record_is_written_as_its_fields_are(data: st.DataObject) -> None:
    table = data.draw(strategies.tables())
    values: dict[str, Any] = data.draw(strategies.records_of(table))
    names = tuple(field.name for field in table.fields)
    record = record_class(table.name, names)(*(values.get(name) for name in names))
    assert list(record_to_plain(table, record).items()) == [
        (field.name, to_plain(field, getattr(record, field.name))) for field in table.fields
    ]
    fields = table.key_fields
    key = tuple(getattr(record, field.name) for field in fields)
    if None not in key:
        texts = [to_cell(field, value) for field, value in zip(fields, key, strict=True)]
        found = read_key(table, texts)
        assert all(f.type.is_same(a, b) for f, a, b in zip(fields, found, key, strict=True))


def test_a_table_of_one_field_and_nulls() -> None:
    one = TableSchema(1, "t", (1,), (Field(1, "id", Integer()),))
    assert record_to_plain(one, record_class("t", ("id",))(5)) == {"id": 5}
    fields = (Field(1, "id", Integer()), Field(2, "class", String(), optional=True))
    two = TableSchema(1, "t", (1,), (*fields, Field(3, "extra", Json())))
    record = record_class("t", ("id", "class", "extra"))(5, None, None)
    assert record_to_plain(two, record) == {"id": 5, "class": None, "extra": None}
