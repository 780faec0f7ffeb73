"""Declared types, references, lists and structs: from documents to records, keys and indexes."""

from __future__ import annotations

import datetime
import math
import uuid
from collections.abc import Callable
from decimal import Decimal
from importlib import resources
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tests.lookups import find
from tests.support import Workspace
from zapdb.activation.rollback import roll_back
from zapdb.database import Database
from zapdb.datasets import zone_version
from zapdb.errors import InvalidValue
from zapdb.records import asdict, held

STATE = "create_type: {type: item_state, enum: [waiting, open, done]}"
ADDRESS = """\
create_type: {type: address, struct: [
      {name: street, type: list, of: string},
      {name: town, type: string, optional: true}]}"""
SIZE = """\
create_type: {type: size, struct: [
      {name: height, type: integer}, {name: unit, type: string, optional: true}]}"""
PEOPLE = """\
create_table: {table: people, key: [country, number], fields: [
      {name: country, type: string}, {name: number, type: integer},
      {name: home, type: address, optional: true}]}"""
ITEMS = """\
create_table: {table: items, key: [state, id], fields: [
      {name: state, type: item_state},
      {name: id, type: uuid, generated: true},
      {name: owner, type: reference, to: people, optional: true},
      {name: size, type: size, default: {height: 1}},
      {name: tags, type: list, of: {type: decimal, scale: 2}, default: []},
      {name: parent, type: reference, to: items, optional: true},
      {name: mood, type: item_state, default: open},
      {name: price, type: decimal, scale: 2, default: "0.00"},
      {name: seen, type: timestamp, optional: true},
      {name: due, type: zoned_timestamp, optional: true},
      {name: extra, type: json, optional: true},
      {name: address, type: address, default: {street: []}}]}"""
INDEXES = [
    "create_index: {table: items, index: by_mood, fields: [{field: mood}]}",
    "create_index: {table: items, index: by_owner, fields: [{field: owner, descending: true}]}",
    "create_index: {table: items, index: by_size, fields: [{field: size}]}",
]
OPERATIONS = (STATE, ADDRESS, SIZE, PEOPLE, ITEMS, *INDEXES)


@pytest.fixture
def db(workspace: Workspace) -> Database:
    workspace.write(1, *OPERATIONS)
    return workspace.open()


def test_values_of_all_kinds_come_back(db: Database) -> None:
    people, items = db.table("people"), db.table("items")
    ada = people.insert(country="gb", number=1, home={"street": ["St James's Sq", "12"]})
    assert ada.home.street == ["St James's Sq", "12"]
    assert ada.home.town is None
    first = items.insert(state="open", owner=("gb", 1), tags=[Decimal("1.5"), 2])
    second = items.insert(
        state="done", parent=("open", first.id), size={"height": 2, "unit": "m"}, mood="waiting"
    )
    assert first.tags == [Decimal("1.50"), Decimal("2.00")]
    assert asdict(first)["size"] == {"height": 1, "unit": None}
    found = items.get("done", second.id)
    assert found == second
    assert items.get(*found.parent) == first
    assert found.size.unit == "m"
    changed = items.update("done", second.id, size=found.size, owner=["gb", 1])
    assert changed.owner == ("gb", 1)
    assert [report.problem_count for report in db.admin.verify()] == [0, 0]


def test_enums_sort_as_declared_in_indexes_and_keys_are_read_back(db: Database) -> None:
    items = db.table("items")
    for state, mood in (("done", "waiting"), ("waiting", "done"), ("open", "open")):
        items.insert(state=state, mood=mood)
    assert [r.mood for r in items.using("by_mood")] == ["waiting", "open", "done"]
    assert [r.state for r in items.scan()] == ["waiting", "open", "done"]  # by member id
    assert [r.state for r in find(items, "by_mood", "done")] == ["waiting"]


def test_structs_and_references_are_indexed_part_by_part(db: Database) -> None:
    items = db.table("items")
    sizes = [(2, "m"), (2, None), (-300, "m"), (2, "cm")]
    for at, (height, unit) in enumerate(sizes):
        owner = None if at == 0 else ("de", at)
        items.insert(state="open", size={"height": height, "unit": unit}, owner=owner)
    found = [(r.size.height, r.size.unit) for r in items.using("by_size")]
    assert found == [(-300, "m"), (2, None), (2, "cm"), (2, "m")]
    owners = [r.owner for r in items.using("by_owner")]
    assert owners == [("de", 3), ("de", 2), ("de", 1), None]
    assert [r.owner for r in find(items, "by_owner", ("de", 2))] == [("de", 2)]
    exact = find(items, "by_size", {"height": 2, "unit": "m"})
    assert [(r.size.height, r.size.unit) for r in exact] == [(2, "m")]


def test_a_renamed_target_is_renamed_in_its_references(workspace: Workspace) -> None:
    workspace.write(1, *OPERATIONS)
    workspace.write(2, "rename_table: {table: people, to: persons}")
    with workspace.open() as db:
        owner = db._catalog.table("items").schema.field_named("owner")
        assert owner is not None
        assert str(owner.type) == "reference(persons)"
        # Their bytes are what they were: nothing is stale.
        assert db._catalog.table("items").layout_revision == 1


def test_declared_types_are_taken_back_with_their_migration(workspace: Workspace) -> None:
    workspace.write(1, PEOPLE.replace("{name: home, type: address, optional: true}", ""))
    workspace.write(2, STATE, "add_field: {table: people, field: {name: mood, type: item_state, "
                    "default: done}}")  # fmt: skip
    with workspace.open() as db:
        assert db.table("people").insert(country="de", number=1).mood == "done"
    workspace.remove(2)
    roll_back(workspace.connect())
    with workspace.open(apply="never") as db:
        assert asdict(db.table("people").get("de", 1)) == {"country": "de", "number": 1}


NAIVE = datetime.datetime(2026, 11, 20)


def zone_of_nowhere() -> ZoneInfo:
    """A zone that other data than ours might have."""
    with (resources.files("tzdata.zoneinfo") / "UTC").open("rb") as file:
        return ZoneInfo.from_file(file, key="Atlantis/Main")


ATLANTIS = NAIVE.replace(tzinfo=zone_of_nowhere())
ZONED = "a datetime in a named time zone (such as tzinfo=ZoneInfo('Europe/Paris'))"
CYCLE: dict[str, Any] = {}
CYCLE["self"] = [CYCLE]

BAD: list[tuple[dict[str, Any], str, str, str]] = [
    ({"mood": "closed"}, "items.mood", "one of waiting, open, done", "str of 6 characters"),
    ({"price": 1.5}, "items.price", "a decimal", "float"),
    (
        {"price": Decimal("0.001")},
        "items.price",
        "a decimal with at most 2 digits after the point",
        "Decimal of 1 digits, 3 after the point",
    ),
    (
        {"tags": [Decimal(1), "x"]},
        "items.tags[1]",
        "a decimal",
        "str of 1 characters",
    ),
    (
        {"address": {"street": ["a", "b", "c", 4]}},
        "items.address.street[3]",
        "a string of valid Unicode, at most 4194304 bytes of UTF-8",
        "int of 3 bits",
    ),
    (
        {"address": {"street": ["\ud800"]}},
        "items.address.street[0]",
        "a string of valid Unicode, at most 4194304 bytes of UTF-8",
        "str of 1 characters",
    ),
    (
        {"owner": ("de", "x")},
        "items.owner[1]",
        "an integer of at most 63 bytes",
        "str of 1 characters",
    ),
    ({"seen": NAIVE}, "items.seen", "a datetime with a time zone", "datetime with no time zone"),
    ({"due": NAIVE}, "items.due", ZONED, "datetime with no time zone"),
    ({"due": ATLANTIS}, "items.due", ZONED,
     f"datetime in the zone 'Atlantis/Main', which {zone_version()} lacks"),
    ({"size": 5}, "items.size", "a mapping or object with height, unit", "int of 3 bits"),
    ({"size": {"height": 2**504}}, "items.size.height", "an integer of at most 63 bytes",
     "int of 505 bits"),
    (
        {"extra": {"a": [1, math.nan]}},
        "items.extra.a[1]",
        "null, a boolean, number, string, list, or object with string keys",
        "float nan",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("values", "path", "expected", "got"), BAD, ids=[b[1] for b in BAD])
def test_a_bad_value_names_the_path_what_was_expected_and_what_came(
    db: Database, values: dict[str, Any], path: str, expected: str, got: str
) -> None:
    items = db.table("items")
    kept = items.insert(state="open")
    attempts: list[Callable[[], Any]] = [
        lambda: items.insert(state="open", **values),
        lambda: items.insert_many([{"state": "done"}, {"state": "done", **values}]),
        lambda: items.update("open", kept.id, **values),
    ]
    for attempt in attempts:
        with pytest.raises(InvalidValue) as caught:
            attempt()
        assert caught.value.message == "a value does not fit its field"
        context = {**caught.value.context, "refused": ""}
        assert context == {"field": path, "expected": expected, "got": got, "refused": ""}
        assert [held(record) for record in items.scan()] == [held(kept)]


def test_a_struct_with_an_unknown_or_missing_member_is_refused(db: Database) -> None:
    items = db.table("items")
    with pytest.raises(InvalidValue) as caught:
        items.insert(state="open", address={"street": [], "colour": "red"})
    assert caught.value.message == "the struct has no such member"
    assert caught.value.context["field"] == "items.address.colour"
    with pytest.raises(InvalidValue) as caught:
        items.insert(state="open", address={"town": "Berlin"})
    assert caught.value.message == "a required member is missing"
    assert caught.value.context["field"] == "items.address.street"
    assert items.count() == 0


def test_a_cycle_in_json_is_refused(db: Database) -> None:
    with pytest.raises(InvalidValue) as caught:
        db.table("items").insert(state="open", extra=CYCLE)
    assert str(caught.value.context["field"]).startswith("items.extra.self[0].self[0]")
    assert caught.value.context["expected"] == "JSON nested at most 64 deep"
    assert db.table("items").count() == 0


def test_a_key_of_another_shape_is_refused(db: Database) -> None:
    with pytest.raises(InvalidValue) as caught:
        db.table("items").find("closed", uuid.UUID(int=1))
    assert caught.value.context["field"] == "items.state"
