"""What processes with older files read and write beside newer ones (rule 11)."""

from __future__ import annotations

import datetime
import io
import threading
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tests.contract.tables import ADD_COLOR, ADD_WEIGHT, ITEMS
from tests.lookups import find, starts_with
from tests.support import Workspace, error_of, finish
from zapdb.activation.rollback import roll_back
from zapdb.activation.up import migrate_up
from zapdb.catalog import DEFAULT_TENANT
from zapdb.database import Database
from zapdb.errors import (
    CheckViolation,
    InvalidValue,
    ReferenceViolation,
    ServedSchemaUnavailable,
    UniqueViolation,
    UnknownName,
    UsageError,
)
from zapdb.records import asdict
from zapdb.records.record import held
from zapdb.schema import fingerprint
from zapdb.values import Blob

pytestmark = pytest.mark.long_on("postgresql")

LARGE = "large " * 2_000

PEOPLE = """\
create_table: {table: people, key: [id], fields: [
      {name: id, type: integer},
      {name: name, type: string},
      {name: fax, type: string, default: none},
      {name: note, type: string, optional: true}]}"""
SPLIT = """\
transform:
      table: people
      from: {name: string}
      into: {first: string, last: string}
      up: {first: "before(name, ' ')", last: "after(name, ' ')"}
      down: {name: "join(' ', first, last)"}
      reversibility: lossy
      because: a name of one word gains a blank"""
DROP_FAX = """\
drop_field: {table: people, field: fax, restore: {archive: true, otherwise: {value: gone}}}"""
LOSE_FAX = "drop_field: {table: people, field: fax, restore: {value: gone}}"
RESTORE_FAX = """\
restore_field: {table: people, field: fax, archived_by: 2, otherwise: {value: never}}"""


def open_both(place: Workspace, first: str | tuple[str, ...], *later: str | tuple[str, ...]) -> Any:
    """A process whose files end at migration 1, and one that has the later ones, too."""
    place.write(1, *((first,) if isinstance(first, str) else first))
    older = place.open()
    for number, operations in enumerate(later, 2):
        place.write(number, *((operations,) if isinstance(operations, str) else operations))
    return older, place.open()


def assert_clean(*databases: Database) -> None:
    for db in databases:
        for report in db.admin.verify():
            assert report.problems == ()


def count_archives(place: Workspace) -> int:
    return int(place.execute("SELECT count(*) FROM zapdb_archives")[0][0])


# What it does not know


NEWER = (
    "alter_type: {type: size, add: [{name: huge, back: small}]}",
    "create_type: {type: place, struct: [{name: x, type: float}, {name: tag, type: string}]}",
    "add_field: {table: items, field: {name: text, type: string, optional: true}}",
    "add_field: {table: items, field: {name: raw, type: binary, optional: true}}",
    "add_field: {table: items, field: {name: more, type: json, optional: true}}",
    "add_field: {table: items, field: {name: sizes, type: list, of: size, optional: true}}",
    "add_field: {table: items, field: {name: at, type: place, optional: true}}",
    "add_field: {table: items, field: {name: met, type: zoned_timestamp, optional: true}}",
)


@pytest.mark.on_each_engine
def test_rule_11_what_an_older_process_does_not_know_survives_its_writes(
    workspace: Workspace,
) -> None:
    sized = (
        "create_type: {type: size, enum: [small, big]}",
        """create_table: {table: items, key: [id], fields: [
      {name: id, type: integer}, {name: title, type: string}, {name: size, type: size}]}""",
    )
    older, newer = open_both(workspace, sized, NEWER)
    met = datetime.datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Vienna"), fold=1)
    place = newer.table("items").insert(id=0, title="", size="big", at={"x": 1.5, "tag": "a"}).at
    unknown = {
        "text": LARGE,
        "raw": LARGE.encode(),
        "more": {"a": [1, {"b": LARGE}], "c": None},
        "sizes": ["huge", "small"],
        "at": place,
        "met": met,
    }
    newer.table("items").insert(id=1, title="Milk", size="huge", **unknown)
    stored = blobs_of(newer, 1)
    mine = older.table("items")
    assert (mine.get(1).title, mine.get(1).size) == ("Milk", "small")
    assert asdict(mine.update(1, title="Bread")) == {"id": 1, "title": "Bread", "size": "small"}
    found = newer.table("items").get(1)
    # The newer member, too: the field was not changed.
    assert (found.title, found.size) == ("Bread", "huge")
    for name, value in unknown.items():
        assert name == "met" or getattr(found, name) == value
    assert (found.met.isoformat(), found.met.fold) == (met.isoformat(), 1)
    assert blobs_of(newer, 1) == stored  # large values are not even read: still the same blobs
    mine.update(1, size="big")
    assert newer.table("items").get(1).size == "big"
    assert_clean(older, newer)


def blobs_of(db: Database, key: int) -> set[bytes]:
    values = held(db.table("items").get(key)).values()
    found = {value.id for value in values if isinstance(value, Blob)}
    assert len(found) == 2
    return found


def test_rule_11_saving_an_unchanged_record_back_changes_nothing(workspace: Workspace) -> None:
    """Not even what the older shape shows differently from what it is."""
    older, newer = open_both(
        workspace, PEOPLE, (SPLIT, DROP_FAX, ADD_COLOR.replace("items", "people"))
    )
    newer.table("people").insert(id=1, first="Plato", last="", color="blue", note=LARGE)
    before = workspace.execute("SELECT value FROM " + records_of(newer, "people"))
    seen = asdict(older.table("people").get(1))
    assert seen == {"id": 1, "name": "Plato ", "fax": "gone", "note": LARGE}
    assert asdict(older.table("people").update(1, **seen)) == seen
    assert workspace.execute("SELECT value FROM " + records_of(newer, "people")) == before
    assert count_archives(workspace) == 0
    # One that is changed takes those with it that are made of it, and no others.
    older.table("people").update(1, **seen | {"name": "Plato Aristonos"})
    found = newer.table("people").get(1)
    assert (found.first, found.last, found.color) == ("Plato", "Aristonos", "blue")
    assert count_archives(workspace) == 0


def records_of(db: Database, table: str) -> str:
    return f"zapdb_records_{db._catalog.tables[table].schema.number}"


@pytest.mark.on_each_engine
def test_rule_11_a_table_that_was_made_later_is_not_there(workspace: Workspace) -> None:
    later = ITEMS.replace("items", "later")
    older, newer = open_both(workspace, ITEMS, later)
    newer.table("later").insert(id=1, title="x")
    with pytest.raises(UnknownName) as caught:
        older.table("later")
    assert caught.value.context["tables"] == "items"


def test_rule_11_names_are_those_of_the_files(workspace: Workspace) -> None:
    """Also where another table has the old name now, and another field."""
    moved = (
        "rename_table: {table: items, to: goods}",
        "rename_field: {table: goods, field: title, to: label}",
        "rename_field: {table: goods, field: note, to: title}",
    )
    older, newer = open_both(
        workspace,
        ITEMS,
        moved,
        "create_table: {table: items, key: [k], fields: [{name: k, type: integer}]}",
    )
    newer.table("items").insert(k=5)
    mine = older.table("items")
    mine.insert(id=1, title="Milk", note="fresh")
    assert asdict(newer.table("goods").get(1)) == {
        "id": 1,
        "label": "Milk",
        "size": 0,
        "title": "fresh",
    }
    newer.table("goods").update(1, title=None)
    assert mine.update(1, title="Bread").note is None
    assert (mine.count(), newer.table("items").count()) == (1, 1)
    assert newer.table("goods").get(1).label == "Bread"
    assert repr(mine) == "<table 'items' (id, title, size, note)>"
    assert [entry.event for entry in older.admin.schema_history("items")] == ["create", "change"]


@pytest.mark.on_each_engine
def test_rule_11_key_fields_have_their_older_names(workspace: Workspace) -> None:
    older, newer = open_both(
        workspace, ITEMS, "rename_field: {table: items, field: id, to: number}"
    )
    mine = older.table("items")
    mine.insert(id=1, title="Milk")
    newer.table("items").insert(number=2, title="Bread")
    assert mine.insert_many([{"id": 3, "title": "Tea"}]) == 1
    assert [record.id for record in mine.scan()] == [1, 2, 3]
    assert mine.update(2, id=2, title="Rye").title == "Rye"
    refused = error_of(lambda: mine.update(2, id=7))
    assert isinstance(refused, UsageError)
    assert refused.context["field"] == "id"
    mine.delete(1)
    assert [record.number for record in newer.table("items").scan()] == [2, 3]


# What is not in force any more


def test_rule_11_dropped_fields_are_read_from_the_archive_and_written_to_it(
    workspace: Workspace,
) -> None:
    older, newer = open_both(workspace, PEOPLE, DROP_FAX)
    mine = older.table("people")
    mine.insert(id=1, name="Ada", fax=LARGE)
    newer.table("people").insert(id=2, name="Alan")
    assert (mine.get(1).fax, mine.get(2).fax) == (LARGE, "gone")
    mine.update(2, fax="22" + LARGE)
    mine.update(1, name="Ada King")
    assert (mine.get(1).fax, mine.get(2).fax) == (LARGE, "22" + LARGE)
    with mine.open(2, field="fax") as file:
        assert file.read() == b"22" + LARGE.encode()
    mine.insert_many([{"id": at, "name": "N", "fax": f"f{at}{LARGE}"} for at in (3, 4)])
    mine.delete(4)
    newer.admin.sweep(older_than_seconds=0)
    assert [record.fax for record in mine.scan()] == [LARGE, "22" + LARGE, "f3" + LARGE]
    assert count_archives(workspace) == 3
    assert_clean(older, newer)
    newer.close()
    roll_back(workspace.connect())
    assert [record.fax for record in mine.scan()] == [LARGE, "22" + LARGE, "f3" + LARGE]
    assert_clean(older)


def test_rule_11_without_an_archive_the_declared_value_is_read(workspace: Workspace) -> None:
    """And what is written to the field is not stored."""
    older, newer = open_both(workspace, PEOPLE, LOSE_FAX)
    mine = older.table("people")
    assert mine.insert(id=1, name="Ada", fax="1").fax == "gone"
    assert mine.update(1, fax="2", note="n").fax == "gone"
    assert asdict(newer.table("people").get(1)) == {"id": 1, "name": "Ada", "note": "n"}


@pytest.mark.on_each_engine
def test_rule_11_fields_restored_later_keep_what_they_have(workspace: Workspace) -> None:
    """A process between the drop and the restoration does not know of the field."""
    workspace.write(1, PEOPLE)
    with workspace.open() as db:
        db.table("people").insert(id=1, name="Ada", fax="archived")
    workspace.write(2, DROP_FAX)
    older = workspace.open()
    older.table("people").insert(id=2, name="Alan")
    contact = """\
transform:
      table: people
      from: {fax: string, name: string}
      into: {contact: string}
      up: {contact: "join('/', name, fax)"}
      down: {fax: "after(contact, '/')", name: "before(contact, '/')"}
      reversibility: lossy
      because: a name with a slash is cut"""
    workspace.write(3, RESTORE_FAX)
    newer = workspace.open()
    theirs = newer.table("people")
    assert [record.fax for record in theirs.scan()] == ["archived", "never"]
    older.table("people").insert(id=3, name="Grace")
    theirs.update(1, fax="changed")
    older.table("people").update(1, name="Ada King")
    assert (theirs.get(1).fax, theirs.get(1).name) == ("changed", "Ada King")
    workspace.write(4, contact)
    newest = workspace.open().table("people")
    # What is made of it and of another one follows, with what the field has now.
    older.table("people").update(1, name="Ada")
    assert [record.contact for record in newest.scan()] == [
        "Ada/changed",
        "Alan/never",
        "Grace/never",
    ]
    assert [record.name for record in older.table("people").scan()] == ["Ada", "Alan", "Grace"]
    assert_clean(older, newer)


# Values


@pytest.mark.on_each_engine
def test_rule_11_nulls_and_defaults_are_those_of_each_shape(workspace: Workspace) -> None:
    later = (
        "make_required: {table: people, field: note, fill: {value: filled}}",
        "change_default: {table: people, field: fax, default: changed}",
        "make_optional: {table: people, field: name, fill: {value: nobody}}",
    )
    older, newer = open_both(workspace, PEOPLE, later)
    mine, theirs = older.table("people"), newer.table("people")
    assert mine.insert(id=1, name="Ada").note == "filled"
    theirs.insert(id=2, note="here")
    assert asdict(theirs.get(1)) == {"id": 1, "name": "Ada", "fax": "none", "note": "filled"}
    assert asdict(mine.get(2)) == {"id": 2, "name": "nobody", "fax": "changed", "note": "here"}
    mine.update(2, note=None)
    assert (theirs.get(2).note, theirs.get(2).name) == ("filled", None)
    with pytest.raises(InvalidValue):
        mine.insert(id=3, note="the older shape needs a name")


def test_rule_11_a_type_that_changes_twice_is_followed(workspace: Workspace) -> None:
    to_text = """\
change_type:
      table: items
      field: size
      type: string
      up: text(size)
      down: integer(size, else=-1)
      default: "0\""""
    to_number = """\
change_type:
      table: items
      field: size
      type: decimal
      scale: 1
      up: decimal(size, 1, else=0)
      down: text(size)
      default: "0.0"
      reversibility: lossy
      because: not every text is a number"""
    older, newer = open_both(workspace, ITEMS, to_text, to_number)
    mine = older.table("items")
    mine.insert(id=1, title="Milk", size=12)
    assert str(newer.table("items").get(1).size) == "12.0"
    newer.table("items").update(1, size=Decimal("1.5"))
    # 1.5 is no integer, nor is the text "12.0".
    assert mine.get(1).size == -1
    mine.update(1, size=-1, title="Bread")
    assert str(newer.table("items").get(1).size) == "1.5"
    mine.update(1, size=3)
    assert str(newer.table("items").get(1).size) == "3.0"


TO_TEXT = """\
change_type:
      table: items
      field: size
      type: string
      up: text(size)
      down: integer(size, else=-1)
      default: "0\""""
TIMES_TEN = """\
change_type:
      table: items
      field: size
      type: integer
      up: integer(size, else=-1) * 10
      down: text(size // 10)
      default: 0
      reversibility: lossy
      because: not every text is a number"""


@pytest.mark.on_each_engine
def test_rule_11_the_same_table_may_hold_other_values(workspace: Workspace) -> None:
    """Its fields have the names and types of before; only that all sizes are ten times as large."""
    older, newer = open_both(workspace, ITEMS, TO_TEXT, TIMES_TEN)
    newer.table("items").insert(id=1, title="Milk", size=125)
    mine = older.table("items")
    assert mine.get(1).size == 12
    mine.insert(id=2, title="Bread", size=7)
    mine.update(1, title="Cream")
    assert [record.size for record in newer.table("items").scan()] == [125, 70]
    tables = [newer._catalog.chain.table_at(at, 1) for at in (1, 3)]
    assert fingerprint(tables[0]) == fingerprint(tables[1])
    assert tables[0].cells != tables[1].cells


def test_rule_06_a_jump_to_the_same_table_converts_its_values(workspace: Workspace) -> None:
    """Of a tenant that is brought over both migrations at once."""
    workspace.write(1, ITEMS)
    first = workspace.open()
    first.admin.create_tenant("acme")
    acme = first.for_tenant("acme")
    acme.table("items").insert(id=1, title="Milk", size=5)
    workspace.write(2, TO_TEXT)
    workspace.write(3, TIMES_TEN)
    newest = workspace.open().for_tenant("acme")
    newest.table("items").insert(id=2, title="Bread", size=70)
    assert [record.size for record in newest.table("items").scan()] == [50, 70]
    assert [record.size for record in acme.table("items").scan()] == [5, 7]
    newest.admin.run_jobs()
    assert [record.size for record in newest.table("items").scan()] == [50, 70]
    assert [entry.position for entry in newest.admin.schema_history("items")] == [1, 3]


def test_rule_11_large_values_that_the_way_back_makes_serve_the_way_forwards(
    workspace: Workspace,
) -> None:
    """A field that is made of a large one of the older shape and of another one that changes."""
    card = """\
transform:
      table: people
      from: {name: string, fax: string}
      into: {card: string}
      up: {card: "join('|', name, fax)"}
      down: {name: "before(card, '|')", fax: "after(card, '|')"}
      reversibility: lossy
      because: a name with a bar is cut"""
    older, newer = open_both(workspace, PEOPLE, card)
    newer.table("people").insert(id=1, card=f"{LARGE}|1")
    mine = older.table("people")
    assert mine.get(1).name == LARGE
    assert mine.update(1, fax="2").name == LARGE
    assert newer.table("people").get(1).card == f"{LARGE}|2"
    with mine.open(1, field="name") as file:
        assert file.read() == LARGE.encode()
    mine.update(1, name="short")
    newer.admin.sweep(older_than_seconds=0)
    assert newer.table("people").get(1).card == "short|2"
    assert_clean(older, newer)


@pytest.mark.on_each_engine
def test_rule_11_files_are_uploaded_into_older_fields(workspace: Workspace) -> None:
    documents = """\
create_table: {table: documents, key: [id], fields: [
      {name: id, type: integer}, {name: body, type: binary}, {name: scan, type: binary,
       optional: true}]}"""
    later = (
        "rename_field: {table: documents, field: body, to: content}",
        "drop_field: {table: documents, field: scan, restore: {archive: true}}",
    )
    older, newer = open_both(workspace, documents, later)
    body, scan = b"body" * 100_000, b"scan" * 90_000
    mine = older.table("documents")
    mine.insert(id=1, body=io.BytesIO(body), scan=io.BytesIO(scan))
    mine.insert(id=2, body=io.BytesIO(b"little"))
    mine.update(2, scan=io.BytesIO(scan), body=io.BytesIO(body[4:]))
    newer.admin.sweep(older_than_seconds=0)
    for at, wanted in ((1, body), (2, body[4:])):
        with newer.table("documents").open(at, field="content") as file:
            assert file.read() == wanted
        with mine.open(at, field="body") as file:
            assert file.read() == wanted
        with mine.open(at, field="scan") as file:
            assert file.read() == scan
    assert_clean(older, newer)


# Constraints of what is in force


@pytest.mark.on_each_engine
def test_rule_11_constraints_of_the_newest_position_bind_older_writers(
    workspace: Workspace,
) -> None:
    """The error says where they come from, since the older files do not have them."""
    towns = "create_table: {table: towns, key: [id], fields: [{name: id, type: integer}]}"
    people = """\
create_table: {table: people, key: [id], fields: [
      {name: id, type: integer}, {name: name, type: string}, {name: age, type: integer},
      {name: town, type: reference, to: towns, optional: true}]}"""
    workspace.write(1, towns, people)
    older = workspace.open()
    unique = "create_index: {table: people, index: one, unique: true, fields: [{field: name}]}"
    workspace.write(2, unique, name="unique")
    workspace.write(3, "add_check: {table: people, check: adult, expression: age >= 18}")
    workspace.write(
        4,
        "create_index: {table: people, index: by_town, fields: [{field: town}]}",
        "add_reference: {table: people, field: town, on_delete: restrict}",
    )
    workspace.write(5, "rename_index: {table: people, index: one, to: only}", name="names")
    newer = workspace.open()
    newer.table("towns").insert(id=1)
    mine = older.table("people")
    mine.insert(id=1, name="Ada", age=20, town=1)
    values = {"name": "Alan", "age": 20, "town": 1}
    for changes, kind, label in (
        ({"name": "Ada"}, UniqueViolation, "0002_unique"),
        ({"age": 17}, CheckViolation, "0003_test"),
        ({"town": 9}, ReferenceViolation, "0004_test"),
    ):
        refused = error_of(lambda c=changes: mine.insert(id=2, **values | c))
        assert type(refused) is kind
        assert refused.context["added_by"] == label
        many = error_of(lambda c=changes: mine.insert_many([{"id": 2, **values, **c}]))
        assert type(many) is kind
        theirs = error_of(lambda c=changes: newer.table("people").insert(id=2, **values | c))
        assert type(theirs) is kind
        assert "added_by" not in theirs.context
    mine.insert(id=2, **values)
    for changes, kind in (
        ({"name": "Ada"}, UniqueViolation),
        ({"age": 17}, CheckViolation),
        ({"town": 9}, ReferenceViolation),
    ):
        assert type(error_of(lambda c=changes: mine.update(2, **c))) is kind
    kept = error_of(lambda: older.table("towns").delete(1))
    assert type(kept) is ReferenceViolation
    assert kept.context["added_by"] == "0004_test"
    assert mine.get(2).name == "Alan"
    assert_clean(older, newer)


@pytest.mark.parametrize("on_delete", ["cascade", "set_null"])
def test_rule_11_a_deletion_goes_through_tables_that_the_shape_does_not_have(
    workspace: Workspace, on_delete: str
) -> None:
    visits = """\
create_table: {table: visits, key: [id], fields: [
      {name: id, type: integer}, {name: person, type: reference, to: people, optional: true}]}"""
    refer = f"add_reference: {{table: visits, field: person, on_delete: {on_delete}}}"
    by_person = "create_index: {table: visits, index: by_person, fields: [{field: person}]}"
    older, newer = open_both(workspace, PEOPLE, (SPLIT, visits, by_person, refer))
    older.table("people").insert(id=1, name="Ada Lovelace")
    newer.table("visits").insert(id=1, person=1)
    older.table("people").delete(1)
    left = [asdict(record) for record in newer.table("visits").scan()]
    assert left == ([] if on_delete == "cascade" else [{"id": 1, "person": None}])
    assert_clean(older, newer)


# While what is in force moves


@pytest.mark.on_each_engine
def test_rule_11_what_is_being_read_goes_on_in_its_shape(workspace: Workspace) -> None:
    workspace.write(
        1, PEOPLE, "create_index: {table: people, index: by_name, fields: [{field: name}]}"
    )
    older = workspace.open()
    mine = older.table("people")
    mine.insert_many({"id": at, "name": f"Ada {at:05}", "fax": str(at)} for at in range(2500))
    scan, lookup = mine.scan(), iter(starts_with(mine, "by_name", "Ada"))
    stream = mine.to_arrow()
    seen, found = [next(scan)], [next(lookup)]
    batches = [stream.read_next_batch()]
    workspace.write(2, DROP_FAX)
    newer = workspace.open()
    seen += [next(scan) for _ in range(1100)]
    found += [next(lookup) for _ in range(1100)]
    workspace.write(3, "rename_table: {table: people, to: persons}")
    newest = workspace.open()
    newest.table("persons").update(2400, note="changed")
    seen, found = seen + list(scan), found + list(lookup)
    batches += list(stream)
    for records in (seen, found):
        assert [(r.id, r.fax) for r in records] == [(at, str(at)) for at in range(2500)]
    assert [n for batch in batches for n in batch.column("id").to_pylist()] == list(range(2500))
    assert batches[-1].schema.names == ["id", "name", "fax", "note"]
    assert newer.table("people").get(2400).note == "changed"


def test_rule_11_an_index_that_goes_is_scanned_for_on(workspace: Workspace) -> None:
    by_name = "create_index: {table: people, index: by_name, fields: [{field: name}]}"
    workspace.write(1, PEOPLE, by_name)
    older = workspace.open()
    mine = older.table("people")
    mine.insert_many({"id": at, "name": f"Ada {at:05}"} for at in range(1500))
    lookup = iter(mine.using("by_name"))
    found = [next(lookup)]
    workspace.write(2, "drop_index: {table: people, index: by_name}", SPLIT)
    newer = workspace.open()
    newer.admin.run_jobs()
    found += list(lookup)
    assert [record.id for record in found] == list(range(1500))
    assert "by_name" not in mine.readable_indexes()
    assert [record.id for record in find(mine, "by_name", "Ada 00007")] == [7]
    newer.table("people").insert(id=1500, first="Ada", last="01500")
    assert [record.id for record in find(mine, "by_name", "Ada 01500")] == [1500]


def test_rule_11_a_snapshot_stays_where_it_began(workspace: Workspace) -> None:
    workspace.write(1, PEOPLE)
    older = workspace.open()
    mine = older.table("people")
    mine.insert(id=1, name="Ada Lovelace", fax="1")
    workspace.write(2, SPLIT, DROP_FAX)
    with older.snapshot():
        before = mine.get(1)
        newer = workspace.open()
        newer.table("people").update(1, first="Augusta")
        assert mine.get(1) == before
        assert list(mine.scan()) == [before]
        assert older.position == 1
    assert asdict(mine.get(1)) == asdict(before) | {"name": "Augusta Lovelace"}


@pytest.mark.on_each_engine
def test_rule_11_an_activation_waits_for_a_transaction_of_the_older(workspace: Workspace) -> None:
    workspace.write(1, PEOPLE)
    older = workspace.open()
    mine = older.table("people")
    workspace.write(2, SPLIT, DROP_FAX)
    storage = workspace.connect()
    thread = threading.Thread(
        target=migrate_up, args=(storage, DEFAULT_TENANT, workspace.directory)
    )
    with older.transaction():
        mine.insert(id=1, name="Ada Lovelace", fax="1")
        thread.start()
        thread.join(0.3)
        assert thread.is_alive()
        mine.update(1, note="n")
    finish(thread)
    with older.transaction():
        mine.insert(id=2, name="Alan Turing", fax="2")
        assert mine.update(1, name="Ada King").fax == "1"
    assert [(r.name, r.fax) for r in mine.scan()] == [("Ada King", "1"), ("Alan Turing", "2")]
    assert older.position == 2


def test_rule_11_every_tenant_is_served_the_shape(workspace: Workspace) -> None:
    workspace.write(1, PEOPLE)
    older = workspace.open()
    older.admin.create_tenant("acme")
    acme = older.for_tenant("acme")
    acme.table("people").insert(id=1, name="Ada Lovelace", fax="1")
    workspace.write(2, SPLIT, DROP_FAX)
    newer = workspace.open()
    # The other tenant is brought there when somebody opens it.
    assert {tenant.name: tenant.position for tenant in newer.admin.tenants()} == {
        "default": 2,
        "acme": 1,
    }
    assert acme.table("people").get(1).name == "Ada Lovelace"
    theirs = newer.for_tenant("acme").table("people")
    theirs.update(1, last="King")
    assert asdict(acme.table("people").update(1, fax="2")) == {
        "id": 1,
        "name": "Ada King",
        "fax": "2",
        "note": None,
    }
    assert older.for_tenant("acme").table("people").get(1).fax == "2"
    assert older.table("people").count() == 0
    assert_clean(older, acme, newer)


def test_rule_11_a_read_writes_back_what_is_in_force(workspace: Workspace) -> None:
    older = open_both(workspace, PEOPLE)[0]
    mine = older.table("people")
    mine.insert(id=1, name="Ada Lovelace", fax=LARGE)
    mine.insert(id=2, name="Alan Turing", fax="2")
    workspace.write(2, SPLIT, DROP_FAX)
    newer = workspace.open()
    older.admin.set_setting("on_read", "write_back")
    assert (mine.get(1).name, mine.get(1).fax) == ("Ada Lovelace", LARGE)
    assert newer.admin.count_by_revision("people") == {1: 1, 2: 1}
    assert mine.get(1).fax == LARGE
    assert newer.table("people").get(1).last == "Lovelace"
    assert_clean(older, newer)


# What is not served


def test_rule_11_serve_as_is_a_number_of_the_files(workspace: Workspace) -> None:
    workspace.write(1, ITEMS)
    workspace.write(2, ADD_COLOR)
    workspace.open().close()
    for wrong in (0, 3):
        refused = error_of(lambda n=wrong: workspace.open(serve_as=n))
        assert isinstance(refused, UsageError)
        assert refused.context == {"serve_as": wrong, "first": 1, "last": 2}
    older = workspace.open(serve_as=1)
    assert older.table("items").field_names == ("id", "title", "size", "note")
    assert older.position == 2


def test_rule_11_the_window_of_served_shapes_is_a_setting(workspace: Workspace) -> None:
    workspace.write(1, ITEMS)
    older = workspace.open()
    for number in range(2, 5):
        workspace.write(number, ADD_COLOR.replace("color", f"color{number}"))
    newer = workspace.open()
    newer.admin.set_setting("served_window", "2")
    assert workspace.open(serve_as=2).table("items").count() == 0
    refused = error_of(lambda: workspace.open(serve_as=1))
    assert isinstance(refused, ServedSchemaUnavailable)
    assert refused.context == {"files_end": 1, "position": 4, "served_window": "2"}
    assert "served_window" in refused.hint
    # One that is open already goes on.
    older.table("items").insert(id=1, title="Milk")
    newer.admin.create_tenant("acme")
    newer.admin.set_setting("served_window", "all", tenant="acme")
    assert workspace.open(serve_as=1, tenant="acme").position == 4
    newer.admin.set_setting("served_window", None)
    assert workspace.open(serve_as=1).table("items").get(1).title == "Milk"


@pytest.mark.on_each_engine
def test_rule_11_what_is_made_of_a_written_field_is_made_of_the_others_as_they_are(
    workspace: Workspace,
) -> None:
    """Also of those that the process does not know, whatever was declared for records of before."""
    workspace.write(1, ITEMS)
    old = workspace.open()
    old.table("items").insert(id=1, title="t", size=1)
    workspace.write(2, ADD_WEIGHT)
    workspace.write(
        3,
        "add_field: {table: items, field: {name: total, type: integer},"
        " fill: {expression: size + weight}}",
    )
    new = workspace.open()
    new.table("items").update(1, weight=50, total=51)
    old.table("items").update(1, size=2)
    assert (new.table("items").get(1).weight, new.table("items").get(1).total) == (50, 52)


@pytest.mark.on_each_engine
def test_rule_11_values_between_two_schemas_are_those_of_the_record(workspace: Workspace) -> None:
    """Also those of a field that has another type since: `total` was made of the weight as it was
    then, which is that of now converted back, and not what the migration filled in."""
    workspace.write(1, ITEMS)
    old = workspace.open()
    old.table("items").insert_many({"id": n, "title": "t", "size": 1} for n in range(3))
    workspace.write(
        2, "add_field: {table: items, field: {name: kilos, type: integer}, fill: {value: 7}}"
    )
    workspace.write(
        3,
        "add_field: {table: items, field: {name: total, type: integer},"
        " fill: {expression: size + kilos}}",
    )
    third = workspace.open()
    third.table("items").update(2, kilos=70)  # is not converted before it is changed
    workspace.write(
        4,
        "change_type: {table: items, field: kilos, type: decimal, scale: 1,"
        " up: 'decimal(kilos, 1, else=0)', down: 'integer(kilos, else=0)',"
        " reversibility: lossy, because: it is tried}",
    )
    new = workspace.open()
    new.table("items").update(1, kilos=Decimal("50.0"))
    for key in range(3):
        old.table("items").update(key, size=2)
    assert [one.total for one in new.table("items").scan()] == [9, 52, 72]
