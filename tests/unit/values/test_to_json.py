"""Records as JSON: by one call, and by what web frameworks do with what they are given."""

from __future__ import annotations

import datetime
import decimal
import json
import uuid

import pytest
from flask import Flask, jsonify
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter, ValidationError

import zapdb
from tests.forms import cases
from tests.strategies import records_of, tables
from zapdb.datasets import zone
from zapdb.records import codec_for, record_class, to_json

Item = record_class("items", ("id", "price", "tags"))
Place = record_class("places", ("city",))
MILK = Item(1, decimal.Decimal("1.20"), ["a"])
NOON = datetime.datetime(2024, 5, 31, 12, 0)


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (None, None),
        (True, True),
        (2**70, 2**70),
        ("Ärger\n", "Ärger\n"),
        (1.5, 1.5),
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
        (decimal.Decimal("1.20"), "1.20"),
        (decimal.Decimal("1E+3"), "1000"),
        (decimal.Decimal(-10) ** 60, "1" + "0" * 60),
        (datetime.date(2024, 5, 31), "2024-05-31"),
        (datetime.date.min, "0001-01-01"),
        (NOON.replace(tzinfo=datetime.UTC), "2024-05-31T12:00:00+00:00"),
        (NOON.replace(tzinfo=zone("Europe/Vienna")), "2024-05-31T12:00:00+02:00[Europe/Vienna]"),
        (
            datetime.datetime(2024, 10, 27, 2, 30, tzinfo=zone("Europe/Vienna"), fold=1),
            "2024-10-27T02:30:00+01:00[Europe/Vienna]",
        ),
        (
            datetime.datetime.min.replace(tzinfo=zone("Asia/Tokyo")),
            "0001-01-01T00:00:00+09:18:59[Asia/Tokyo]",
        ),
        (
            datetime.datetime(9999, 12, 31, 23, tzinfo=zone("America/New_York")),
            "9999-12-31T23:00:00-05:00[America/New_York]",
        ),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (b"\x00\xff>?", "AP8+Pw=="),
        ((1, "a"), [1, "a"]),
        ({"a": [1.0, None]}, {"a": [1.0, None]}),
        (MILK, {"id": 1, "price": "1.20", "tags": ["a"]}),
        ([Item(1, Place("Bern"), [])], [{"id": 1, "price": {"city": "Bern"}, "tags": []}]),
    ],
)
def test_each_value_has_a_form_in_json(value: object, plain: object) -> None:
    assert zapdb.to_json(value) == plain
    assert type(zapdb.to_json(value)) is type(plain)
    assert json.loads(json.dumps(zapdb.to_json(value), allow_nan=False)) == plain


@settings(deadline=None, max_examples=cases(600), suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_every_record_becomes_json(drawer: st.DataObject) -> None:
    table = drawer.draw(tables())
    drawn = drawer.draw(records_of(table))
    record = codec_for(table).record(*(drawn[f.name] for f in table.fields))
    text = json.dumps(to_json(record), allow_nan=False)
    assert list(json.loads(text)) == [f.name for f in table.fields]
    assert json.dumps(record, default=to_json) == text
    assert TypeAdapter(type(record)).dump_python(record, mode="json") == json.loads(text)


def test_what_is_no_value_is_refused() -> None:
    for wrong in (object(), {1, 2}, to_json, range(3)):
        with pytest.raises(TypeError, match=r"zapdb\.to_json takes records"):
            to_json(wrong)
    with pytest.raises(TypeError):
        json.dumps([MILK, {1}], default=to_json)


def test_what_is_made_of_a_record_belongs_to_its_caller() -> None:
    to_json(MILK)["tags"].append("b")
    vars(MILK)["tags"].append("b")
    assert MILK.tags == ["a"]


def test_pydantic_takes_records_and_writes_them() -> None:
    class Answer(BaseModel):
        item: Item  # type: ignore[valid-type]  # a class, made at run time
        others: list[zapdb.Record] = []
        maybe: Place | None = None  # type: ignore[valid-type]  # a class, made at run time

    answer = Answer(item=MILK, others=[Place("Bern"), MILK])
    assert answer.item is MILK
    plain = {"id": 1, "price": "1.20", "tags": ["a"]}
    written = {"item": plain, "others": [{"city": "Bern"}, plain], "maybe": None}
    assert json.loads(answer.model_dump_json()) == written
    assert answer.model_dump(mode="json") == written
    assert answer.model_dump()["item"] == zapdb.asdict(MILK)
    for wrong in (Place("Bern"), plain, None):
        with pytest.raises(ValidationError):
            Answer(item=wrong)
    schema = Answer.model_json_schema()["properties"]
    assert schema["item"]["required"] == ["id", "price", "tags"]
    assert list(schema["item"]["properties"]) == ["id", "price", "tags"]
    assert schema["others"]["items"] == {"type": "object"}


def test_pydantic_writes_records_that_it_was_told_nothing_of() -> None:
    plain = {"id": 1, "price": "1.20", "tags": ["a"]}
    for value, written in ((MILK, plain), ({"a": [MILK]}, {"a": [plain]})):
        kind = TypeAdapter(object)
        assert kind.dump_python(value, mode="json") == written
        assert json.loads(kind.dump_json(value)) == written


def test_flask_writes_records_with_one_setting() -> None:
    app = Flask(__name__)
    app.json.default = zapdb.to_json
    with app.app_context():
        assert jsonify(MILK).json == zapdb.to_json(MILK)
        assert jsonify({"items": [MILK]}).json == {"items": [zapdb.to_json(MILK)]}
