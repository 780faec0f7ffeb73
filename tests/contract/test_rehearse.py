"""`zapdb migrate rehearse`: what it says is refused is refused or listed afterwards, by `migrate
up` and the jobs after it; and what it says is fine is fine. Nothing is stored.

The same is shown of random lives in `test_machine`.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st
from sqlalchemy import make_url

import zapdb
import zapdb.aio
from tests.cli.program import run_here
from tests.contract.rollbacks import leave_tenants_due
from tests.contract.tables import ADD_COLOR, DROP_NOTE, INDEX_SIZE, INDEX_TITLE, ITEMS
from tests.contract.test_unreadable import damage
from tests.services import make_keys, served, token_for
from tests.support import PostgresServer, Workspace, dump, finish, make_place, wait_until
from zapdb import release
from zapdb.activation.rollback import roll_back
from zapdb.activation.sent_files import read_given
from zapdb.cli.program import run_program
from zapdb.database import Database
from zapdb.errors import (
    EXIT_PENDING,
    ActivationPending,
    ConcurrencyError,
    IncompatibleVersion,
    InvalidMigration,
    InvalidValue,
    MigrationConflict,
    NotProven,
    PendingMigrations,
    SchemaChangesRefused,
    StorageError,
    UsageError,
)
from zapdb.jobs import rehearsal
from zapdb.jobs.latency import THREAD_NAME
from zapdb.jobs.rehearsal import Rehearsal, RehearsalLook, RehearsedTable
from zapdb.limits import ESTIMATE
from zapdb.records import held
from zapdb.service.client import connect
from zapdb.service.principals import Grant
from zapdb.storage import Storage, TransactionMode

COUNT = 300
UNIQUE_SIZE = "create_index: {table: items, index: by_size, unique: true, fields: [{field: size}]}"
SMALL = 'add_check: {table: items, check: small, expression: "size < 100"}'
REQUIRE_NOTE = "make_required: {table: items, field: note, fill: {value: none}}"
TAGS = """\
create_table: {table: tags, key: [id], fields: [
      {name: id, type: integer},
      {name: item, type: reference, to: items, optional: true}]}"""
BY_ITEM = "create_index: {table: tags, index: by_item, fields: [{field: item}]}"
REFERENCE = "add_reference: {table: tags, field: item, on_delete: restrict}"
SIZE_AS_TEXT = """\
change_type: {table: items, field: size, type: string, default: "0",
      up: "text(size)", down: "integer(size, else=0)"}"""
ARCHIVE_NOTE = "drop_field: {table: items, field: note, restore: {archive: true}}"
DISCARD = "drop_table: {table: items, records: discard}"


def fill(db: Database) -> None:
    """Sizes come three times, each third item has a note, and each tag refers to the next item."""
    db.table("items").insert_many(
        {"id": at, "title": f"t{at}", "size": at // 3, "note": f"n{at}" if at % 3 == 0 else None}
        for at in range(COUNT)
    )
    db.table("tags").insert_many({"id": at, "item": at + 1} for at in range(COUNT))


@pytest.fixture
def place(workspace: Workspace) -> Workspace:
    workspace.write(1, ITEMS, TAGS, BY_ITEM)
    with workspace.open() as db:
        fill(db)
    return workspace


def rehearse(place: Workspace, **options: Any) -> Rehearsal:
    with zapdb.open(place.address) as db:
        return db.admin.rehearse(place.directory, **options)


def only_table(found: Rehearsal, name: str = "items") -> RehearsedTable:
    (table,) = (table for table in found.tables if table.table == name)
    return table


def count_refused(found: Rehearsal) -> Counter[tuple[str, str]]:
    return Counter(
        {
            (table.table, finding.what): finding.count
            for table in found.tables
            for finding in table.refused
        }
    )


def count_found(db: Database) -> Counter[tuple[str, str]]:
    """What the jobs after a migration say of the records."""
    return Counter(
        {
            (report.job.table_name, finding.what): finding.count
            for report in db.admin.run_jobs()
            for finding in report.job.findings
        }
    )


# The law


def test_what_would_be_refused_is_what_is_listed_afterwards(place: Workspace) -> None:
    place.write(2, UNIQUE_SIZE, "add_check: {table: items, check: small, expression: size < 90}")
    place.write(3, REFERENCE)
    found = rehearse(place)
    assert (found.refused, found.lost) == (True, False)
    assert found.migrations == ("0002_test", "0003_test")
    assert count_refused(found) == {
        ("items", "index by_size"): COUNT * 2 // 3,
        ("items", "check small"): 30,
        ("tags", "reference item"): 1,
    }
    told = {one.what: one.examples for table in found.tables for one in table.refused}
    with place.open() as db:
        listed = [one for report in db.admin.run_jobs() for one in report.job.findings]
    assert {one.what: one.count for one in listed} == {
        what: count for (_, what), count in count_refused(found).items()
    }
    assert {one.what: one.examples for one in listed} == told


def test_what_would_not_be_refused_is_fine(place: Workspace) -> None:
    place.write(
        2,
        "create_index: {table: items, index: by_two, unique: true, fields: [\
 {field: size}, {field: title}]}",
        "create_index: {table: items, index: by_note, unique: true, fields: [{field: note}]}",
        "add_check: {table: items, check: small, expression: size < 100}",
    )
    with place.open("never", serve_as=1, preview=True) as seen:
        assert seen.admin.rehearse().migrations == ("0002_test",)
    found = rehearse(place)
    assert (found.refused, found.lost) == (False, False)
    assert {index.index: index.records for index in only_table(found).indexes} == {
        "by_two": COUNT,
        "by_note": COUNT,
    }
    assert all(index.seconds for index in only_table(found).indexes)
    with place.open() as db:
        assert count_found(db) == {}
        assert db.table("items").readable_indexes() == ("by_two", "by_note")


MADE = """\
create_table: {table: items, key: [id], fields: [
      {name: id, type: integer},
      {name: a, type: integer, optional: true},
      {name: b, type: string, optional: true},
      {name: tint, type: tint},
      {name: boss, type: reference, to: items, optional: true}]}"""
CHANGES = (
    "create_index: {table: items, index: by_a, unique: true, fields: [{field: a}]}",
    "create_index: {table: items, index: by_b, unique: true, fields: ["
    " {field: b, collation: {locale: und, strength: primary}}]}",
    "create_index: {table: items, index: by_two, unique: true, fields: ["
    " {field: tint, descending: true}, {field: a}]}",
    "create_index: {table: items, index: by_tint, unique: true, fields: [{field: tint}]}",
    "create_index: {table: items, index: by_boss, fields: [{field: boss}]}",
    "add_reference: {table: items, field: boss, on_delete: restrict}",
    "add_check: {table: items, check: low, expression: 'a is None or a < 2'}",
    "add_check: {table: items, check: some, expression: 'a is not None or b is not None'}",
    "make_required: {table: items, field: a, fill: {value: 1}}",
    "make_required: {table: items, field: b, fill: {expression: text(id)}}",
    "drop_field: {table: items, field: b, restore: {archive: true}}",
    "drop_field: {table: items, field: b, restore: {value: a}}",
    "alter_type: {type: tint, remove: {blue: {to: red}}}",
    "alter_type: {type: tint, add: [{name: pink, back: red}]}",
    "add_field: {table: items, field: {name: c, type: integer, default: 3}}",
    "create_index: {table: items, index: by_c, unique: true, fields: [{field: c}]}",
    "add_check: {table: items, check: of_c, expression: 'c > 3'}",
    "change_type: {table: items, field: a, type: string, up: text(a), down: 'integer(a, else=0)'}",
    "change_type: {table: items, field: b, type: integer, up: length(b), down: text(b),"
    " reversibility: lossy, because: only how long it is}",
    "transform: {table: items, from: {a: integer}, into: {half: {type: integer, optional: true}},"
    " up: {half: a // 2}, down: {a: half * 2}, reversibility: lossy, because: halves}",
    "rename_field: {table: items, field: b, to: bb}",
    "rename_table: {table: items, to: things}",
)
PROPERTY_RUNS = {"sqlite": 15, "postgresql": 5}


@st.composite
def rows_of(draw: st.DrawFn) -> list[dict[str, Any]]:
    count = draw(st.integers(0, 7))
    return [
        {
            "id": at,
            "a": draw(st.none() | st.integers(0, 3)),
            "b": draw(st.sampled_from([None, "a", "A", "b", "\u00e4", "x" * 1_100, ""])),
            "tint": draw(st.sampled_from(["red", "green", "blue"])),
            "boss": draw(st.none() | st.integers(0, count)),
        }
        for at in range(count)
    ]


def test_whatever_the_migrations_are(engine: str, request: pytest.FixtureRequest) -> None:
    """What is refused is what is listed; and what is not lost is there after rolling back."""
    server = request.getfixturevalue("postgres") if engine == "postgresql" else None
    chosen = st.lists(st.sampled_from(CHANGES), min_size=1, max_size=3, unique=True)

    @settings(
        max_examples=PROPERTY_RUNS[engine],
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(rows=rows_of(), migrations=st.lists(chosen, min_size=1, max_size=2))
    def check(rows: list[dict[str, Any]], migrations: list[list[str]]) -> None:
        assume(are_valid(migrations))
        with ExitStack() as resources:
            address, directory = make_place(resources, server, "drawn")
            place = resources.enter_context(Workspace(engine, address, directory))
            place.write(1, "create_type: {type: tint, enum: [red, green, blue]}", MADE)
            with place.open() as db:
                db.table("items").insert_many(rows)
            for number, operations in enumerate(migrations, 2):
                place.write(number, *operations)
            check_what_follows(place, rows, rehearse(place, all_records=True))

    check()


def are_valid(migrations: list[list[str]]) -> bool:
    with tempfile.TemporaryDirectory() as name, Workspace("sqlite", "", Path(name)) as place:
        place.write(1, "create_type: {type: tint, enum: [red, green, blue]}", MADE)
        for number, operations in enumerate(migrations, 2):
            place.write(number, *operations)
        try:
            read_given(name, None, prove=True)
        except (InvalidMigration, NotProven):
            return False
    return True


def check_what_follows(place: Workspace, rows: list[dict[str, Any]], found: Rehearsal) -> None:
    event(f"refused: {found.refused}, lost: {found.lost}")
    with place.open() as db:
        listed = count_found(db)
    assert listed == count_refused(found)
    assert found.refused == bool(listed)
    storage = place.connect()
    for _ in found.migrations:
        roll_back(storage)
    with place.follow() as db:
        left = [held(record) for record in db.table("items").scan()]
    if not found.lost:
        assert left == rows
    elif len(found.migrations) == 1:
        assert left != rows


def test_what_is_found_is_found_in_small_batches_too(
    place: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rehearsal, "BATCH_RECORDS_FIRST", 7)
    monkeypatch.setattr("zapdb.jobs.throttle.BATCH_RECORDS_MAX", 7)
    place.write(2, UNIQUE_SIZE, SMALL.replace("100", "90"))
    assert count_refused(rehearse(place)) == {
        ("items", "index by_size"): COUNT * 2 // 3,
        ("items", "check small"): 30,
    }


def test_records_are_tried_as_the_migrations_make_them(place: Workspace) -> None:
    """A key is that of the converted record: a conversion, too, makes two of them one."""
    place.write(
        2, UNIQUE_SIZE.replace("by_size", "by_title").replace("field: size", "field: title")
    )
    with place.open() as db:
        assert count_found(db) == {}
    place.write(
        3,
        "change_type: {table: items, field: title, type: integer, up: 'length(title)',\
 down: 'text(title)', reversibility: lossy, because: only their length}",
    )
    found = rehearse(place)
    assert count_refused(found) == {("items", "index by_title"): COUNT - 3}
    assert (found.refused, found.lost) == (True, True)
    with place.open() as db:
        assert count_found(db) == count_refused(found)


def test_what_is_open_already_is_told_of_the_tables_that_change(place: Workspace) -> None:
    """The jobs after the migration list it, too; other tables are not read."""
    place.write(2, UNIQUE_SIZE, SMALL.replace("100", "90"), REFERENCE)
    with place.open() as db:
        before = count_found(db)
    place.write(3, "add_field: {table: tags, field: {name: more, type: integer, default: 1}}")
    found = rehearse(place)
    assert count_refused(found) == {("tags", "reference item"): 1}
    place.write(3, ADD_COLOR)
    found = rehearse(place)
    assert count_refused(found) == {
        ("items", "index by_size"): COUNT * 2 // 3,
        ("items", "check small"): 30,
    }
    assert only_table(found).indexes == ()  # none is built anew
    with zapdb.open(place.address) as db:
        for at in range(270, COUNT):
            db.table("items").update(at, size=-at)
        db.admin.run_jobs(kinds=["validate"])
    assert count_refused(rehearse(place)) == {("items", "index by_size"): 180}
    with place.open() as db:
        mended = Counter({("items", "check small"): 30, ("items", "index by_size"): 20})
        assert count_found(db) == before - mended


def test_a_table_that_comes_back_is_checked_again(place: Workspace) -> None:
    place.write(2, REFERENCE)
    place.write(3, "drop_table: {table: tags, records: archive}")
    place.open().close()
    place.write(4, "restore_table: {table: tags, archived_by: 3}", UNIQUE_SIZE)
    found = rehearse(place)
    assert only_table(found, "tags").action == "restored"
    assert count_refused(found) == {
        ("items", "index by_size"): COUNT * 2 // 3,
        ("tags", "reference item"): 1,
    }
    with place.open() as db:
        assert count_found(db) == count_refused(found)


def test_a_reference_to_a_table_that_a_file_creates(place: Workspace) -> None:
    """Nothing is in it, so that whatever refers to it refers to nothing."""
    place.write(2, "drop_table: {table: tags, records: discard}")
    place.write(
        3,
        "create_table: {table: kinds, key: [id], fields: [{name: id, type: integer}]}",
        "add_field: {table: items, field: {name: kind, type: reference, to: kinds, default: 7}}",
        "create_index: {table: items, index: by_kind, fields: [{field: kind}]}",
        "add_reference: {table: items, field: kind, on_delete: restrict}",
    )
    found = rehearse(place)
    assert {table.table: table.action for table in found.tables} == {
        "items": "changed",
        "kinds": "created",
        "tags": "discarded",
    }
    assert count_refused(found) == {("items", "reference kind"): COUNT}
    assert found.lost  # the tags
    with place.open() as db:
        assert count_found(db) == count_refused(found)


def test_a_record_that_moves_between_two_batches_is_no_violation(
    place: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rehearsal, "BATCH_RECORDS_FIRST", 1)
    monkeypatch.setattr("zapdb.jobs.throttle.BATCH_RECORDS_MAX", 1)
    monkeypatch.setattr(rehearsal, "LOOK_SECONDS", 0.0)
    place.write(2, UNIQUE_SIZE.replace("size", "title"))
    with place.follow() as db, zapdb.open(place.address) as other:
        looks = begin(db, place)
        while next(looks).read < 2:
            pass
        other.table("items").update(0, title="x")
        other.table("items").update(9, title="t0")
        (found,) = [one for one in looks if isinstance(one, Rehearsal)]
    assert count_refused(found) == {}


# What is lost


def test_fields_that_become_required(place: Workspace) -> None:
    place.write(2, REQUIRE_NOTE)
    found = rehearse(place)
    assert (found.refused, found.lost) == (False, True)
    assert rehearse(place, sample=0).lost
    (note,) = only_table(found).filled
    assert (note.what, note.count) == ("field note", COUNT * 2 // 3)
    assert note.examples[:2] == (
        "1 has no note, and gets note='none'",
        "2 has no note, and gets note='none'",
    )
    place.write(2, "add_field: {table: items, field: {name: more, type: string, optional: true}}")
    place.write(3, "rename_field: {table: items, field: more, to: most}")
    place.write(4, "make_required: {table: items, field: most, fill: {expression: title}}")
    (most,) = only_table(rehearse(place)).filled
    assert (most.count, most.examples[0]) == (COUNT, "0 has no most, and gets most='t0'")


def test_a_required_field_without_nulls_is_fine(place: Workspace) -> None:
    with place.open() as db:
        for at in range(COUNT):
            db.table("items").update(at, note="x")
    place.write(2, REQUIRE_NOTE)
    found = rehearse(place)
    assert (found.refused, found.lost) == (False, False)


def test_decimals_lose_digits(workspace: Workspace) -> None:
    workspace.write(
        1,
        "create_table: {table: items, key: [id], fields: [\
 {name: id, type: integer}, {name: price, type: decimal, scale: 4}]}",
    )
    with workspace.open() as db:
        prices = [Decimal("1.0000"), Decimal("1.2345"), Decimal("2.5000")]
        db.table("items").insert_many({"id": at, "price": one} for at, one in enumerate(prices))
    workspace.write(
        2,
        "change_type: {table: items, field: price, type: decimal, scale: 2, up: 'round(price, 2)',\
 down: \"decimal(price, 4, else=decimal('0', 4))\", reversibility: lossy, because: cents}",
    )
    (loss,) = only_table(rehearse(workspace)).losses
    assert (loss.records, loss.unchanged) == (3, 2)
    assert (loss.key, loss.value, loss.back) == ("1", "1.2345", "1.2300")


@pytest.mark.parametrize("unique", [False, True])
def test_enums_lose_members(workspace: Workspace, unique: bool) -> None:
    workspace.write(1, "create_type: {type: tint, enum: [red, green, blue]}")
    workspace.write(
        2,
        "create_table: {table: items, key: [id], fields: [\
 {name: id, type: integer}, {name: tint, type: tint}]}",
        "create_index: {table: items, index: by_tint, unique: "
        f"{str(unique).lower()}, fields: [{{field: tint}}]}}",
    )
    with workspace.open() as db:
        tints = ["red", "green", "blue"]
        db.table("items").insert_many({"id": at, "tint": one} for at, one in enumerate(tints))
    workspace.write(3, "alter_type: {type: tint, remove: {blue: {to: red}}}")
    found = rehearse(workspace)
    (loss,) = only_table(found).losses
    assert (loss.unchanged, loss.key, loss.value, loss.back) == (2, "2", "'blue'", "'red'")
    assert found.refused is unique
    with workspace.open() as db:
        assert count_found(db) == count_refused(found)


def test_dropped_fields(place: Workspace) -> None:
    place.write(2, ARCHIVE_NOTE)
    found = rehearse(place)
    assert (found.refused, found.lost) == (False, False)
    assert (only_table(found).tried, only_table(found).unchanged) == (COUNT, COUNT)
    place.write(2, DROP_NOTE)
    found = rehearse(place)
    assert (found.refused, found.lost) == (False, True)
    (loss,) = only_table(found).losses
    assert (loss.field, loss.unchanged, loss.back) == ("note", 0, "'dropped'")


def test_dropped_tables(place: Workspace) -> None:
    place.write(2, "drop_table: {table: tags, records: archive}")
    assert not rehearse(place).lost
    place.write(2, "drop_table: {table: tags, records: discard}")
    assert rehearse(place).lost
    with zapdb.open(place.address) as db:
        db.table("tags").where().delete()
    assert not rehearse(place).lost


def test_a_sample_or_all(place: Workspace) -> None:
    place.write(2, SIZE_AS_TEXT)
    with zapdb.open(place.address) as db:
        db.table("items").update(17, title="x")
        first, again, other = (
            db.admin.rehearse(place.directory, sample=20, seed=seed) for seed in (1, 1, 2)
        )
        assert only_table(first).tried == 20
        assert first.seed == again.seed == 1
        assert other.seed == 2
        assert only_table(db.admin.rehearse(place.directory, sample=0)).tried == 0
        assert only_table(db.admin.rehearse(place.directory, all_records=True)).tried == COUNT
    place.write(2, SIZE_AS_TEXT, SMALL.replace("size < 100", "length(title) < 9"))
    assert only_table(rehearse(place, sample=20)).tried == 20  # beside a pass over all


def test_what_no_migration_declares_is_a_failure(
    place: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Boundary values did not show it, but the records do: here, since they were not tried."""
    place.write(
        2,
        "change_type: {table: items, field: size, type: integer, default: 0,\
 up: 'size', down: 'size'}".replace("type: integer", "type: string")
        .replace(
            "up: 'size', down: 'size'",
            'up: "text(size)", down: "integer(after(size, \'1\'), else=0)"',
        )
        .replace("default: 0", "default: '0'"),
    )
    monkeypatch.setattr("zapdb.activation.sent_files.require_proven", lambda migrations: [])
    found = rehearse(place)
    assert found.lost
    (failure,) = only_table(found).failures
    assert failure.code == "migration.rollback_not_proven"
    assert only_table(found).unchanged < COUNT


# Odd records


def test_keys_of_several_parts_and_large_values(workspace: Workspace) -> None:
    workspace.write(
        1,
        "create_table: {table: items, key: [shop, number], fields: [\
 {name: shop, type: string}, {name: number, type: integer},\
 {name: text, type: string, optional: true}, {name: blob, type: binary, optional: true}]}",
    )
    long = "é" * 40_000
    with workspace.open() as db:
        items = db.table("items")
        items.insert(shop="a", number=1, text=long + "1", blob=b"\x00" * 300_000)
        items.insert(shop="a", number=2, text=long + "2", blob=b"\x01" * 300_000)
        items.insert(shop="b", number=1, text=long + "1")
        items.insert(shop="b", number=2)
        items.insert(shop="b", number=3)
    workspace.write(
        2,
        "create_index: {table: items, index: by_text, unique: true, fields: [{field: text}]}",
        "add_check: {table: items, check: short,\
 expression: 'text is None or length(text) < 40002'}",
        "add_check: {table: items, check: no_blob, expression: 'blob is None'}",
    )
    found = rehearse(workspace)
    assert count_refused(found) == {
        ("items", "index by_text"): 1,
        ("items", "check no_blob"): 2,
    }
    shown = {one.what: one.examples for one in only_table(found).refused}
    assert shown["index by_text"][0].startswith("'b', 1 has the values of 'a', 1: text='éé")
    assert all(len(text) < 300 for texts in shown.values() for text in texts)
    with workspace.open() as db:
        assert count_found(db) == count_refused(found)


def test_nulls_never_collide_and_collated_texts_do(workspace: Workspace) -> None:
    workspace.write(
        1,
        "create_table: {table: items, key: [id], fields: [\
 {name: id, type: integer}, {name: one, type: string, optional: true},\
 {name: two, type: string, optional: true}]}",
    )
    rows = [("Ada", "x"), ("ada", "x"), (None, "x"), (None, "x"), ("Ada", None), ("ada", None)]
    with workspace.open() as db:
        db.table("items").insert_many(
            {"id": at, "one": one, "two": two} for at, (one, two) in enumerate(rows)
        )
    index = "create_index: {table: items, index: by, unique: true, fields: [\
 {field: one, collation: {locale: und%s}}, {field: two, descending: true}]}"
    for strength, expected in (("", 0), (", strength: primary", 1)):
        workspace.write(2, index % strength)
        found = rehearse(workspace)
        assert sum(count_refused(found).values()) == expected
    with workspace.open() as db:
        assert count_found(db) == count_refused(found)


def test_records_that_can_not_be_read_are_counted(place: Workspace) -> None:
    damage(place, 5)
    damage(place, 250, b"")
    place.write(2, SIZE_AS_TEXT)
    for options in ({}, {"all_records": True}, {"sample": COUNT - 1, "seed": 1}):
        found = rehearse(place, **options)
        table = only_table(found)
        assert table.unreadable_count == 2 or options.get("seed")
        assert found.refused
    assert table.unreadable[0].startswith("5 (85): ")
    place.write(2, UNIQUE_SIZE)
    assert only_table(rehearse(place)).unreadable_count == 2
    place.write(2, UNIQUE_SIZE, REQUIRE_NOTE)
    table = only_table(rehearse(place))
    assert table.unreadable_count == 2
    assert [text.partition(" (")[0] for text in table.unreadable] == ["5", "250"]
    assert sum(one.count for one in table.refused) == COUNT * 2 // 3 - 2
    with place.open() as db:
        (report, *_) = db.admin.run_jobs(kinds=["index"])
        assert report.progress.quarantined == 2


@pytest.mark.parametrize("engine", ["sqlite"])
def test_a_cell_that_is_no_record(place: Workspace) -> None:
    place.execute("UPDATE zapdb_records_1 SET value = 'x' WHERE key = ?", (b"\x85",))
    for operation in (SIZE_AS_TEXT, UNIQUE_SIZE):
        place.write(2, operation)
        assert only_table(rehearse(place)).unreadable_count == 1


def test_an_empty_table(workspace: Workspace) -> None:
    workspace.write(1, ITEMS)
    workspace.open().close()
    workspace.write(2, UNIQUE_SIZE, SIZE_AS_TEXT, REQUIRE_NOTE)
    found = rehearse(workspace)
    assert (found.refused, found.lost) == (False, False)
    assert only_table(found).records == 0


# Nothing is stored


def test_nothing_is_stored_or_registered(place: Workspace) -> None:
    place.write(
        2, UNIQUE_SIZE, INDEX_TITLE, SMALL, REQUIRE_NOTE, SIZE_AS_TEXT.replace("size", "id")
    )
    place.write(2, UNIQUE_SIZE, INDEX_TITLE, REQUIRE_NOTE, ADD_COLOR, REFERENCE)
    before = dump(place)
    options = ["-d", place.address, "-m", str(place.directory)]
    result = run_here(["migrate", "rehearse", "--max-latency", "1000", "--all", *options])
    assert result.status == 1, result.err
    assert dump(place) == before
    with zapdb.open(place.address, migrations=place.directory, preview=True) as db:
        found = db.admin.rehearse()
        assert not db.admin.nodes()
    assert found.refused
    assert found.lost
    assert only_table(found).indexes[0].seconds is None  # it may not even try to write
    assert dump(place) == before


def test_the_ceiling_of_latency_is_that_of_jobs(
    place: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It measures beside it, writes nothing for it, and ends with it; the setting holds, too."""
    begun = list[str]()
    start = threading.Thread.start
    monkeypatch.setattr(
        threading.Thread, "start", lambda thread: (begun.append(thread.name), start(thread))[1]
    )
    place.write(2, UNIQUE_SIZE)
    rehearse(place)
    assert THREAD_NAME not in begun
    rehearse(place, max_latency_ms=60_000)
    assert begun.count(THREAD_NAME) == 1
    with zapdb.open(place.address) as db:
        db.admin.set_setting("job_max_latency_ms", "60000", table="items")
    rehearse(place)
    assert begun.count(THREAD_NAME) == 2
    assert THREAD_NAME not in [thread.name for thread in threading.enumerate()]
    assert place.execute("SELECT * FROM zapdb_probes") == []


def test_beside_writers(place: Workspace) -> None:
    """A database under load: what is not written to is told exactly, and writers go on."""
    place.write(2, UNIQUE_SIZE, SMALL.replace("100", "90"), ADD_COLOR)
    stop, written = threading.Event(), list[int]()

    def write() -> None:
        with zapdb.open(place.address) as db:
            while not stop.is_set():
                written.append(len(written))
                db.table("items").upsert(id=1_000 + len(written) % 5, title="w", size=-len(written))
                db.table("items").update(0, title=f"w{len(written)}")

    threads = [threading.Thread(target=write) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        wait_until(lambda: len(written) > 10, "they write")
        for _ in range(3):
            found = rehearse(place, max_latency_ms=10_000)
            assert count_refused(found)["items", "check small"] == 30
            assert count_refused(found)["items", "index by_size"] >= COUNT * 2 // 3
            assert only_table(found).unreadable_count == 0
    finally:
        stop.set()
        for thread in threads:
            finish(thread)


def test_a_schema_that_changes_meanwhile(place: Workspace, tmp_path: Path) -> None:
    place.write(2, UNIQUE_SIZE)
    with place.follow() as db:
        looks = begin(db, place)
        next(looks)
        place.open().close()
        with pytest.raises(ConcurrencyError, match="schema has changed"):
            list(looks)


def test_jobs_that_end_meanwhile_change_nothing(
    place: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rehearsal, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(rehearsal, "BATCH_RECORDS_FIRST", 50)
    monkeypatch.setattr("zapdb.jobs.throttle.BATCH_RECORDS_MAX", 50)
    place.write(2, INDEX_SIZE, ADD_COLOR)
    place.open().close()
    place.write(3, UNIQUE_SIZE.replace("by_size", "by_size2"))
    with place.follow() as db:
        looks = begin(db, place)
        next(looks)
        next(looks)
        db.admin.run_jobs()
        (found,) = [one for one in looks if isinstance(one, Rehearsal)]
    assert count_refused(found) == {("items", "index by_size2"): COUNT * 2 // 3}


def begin(db: Database, place: Workspace) -> Iterator[RehearsalLook | Rehearsal]:
    """The looks of a rehearsal, and at last its answer."""
    from zapdb.control import LocalControl, Target
    from zapdb.control.migrations.rehearsing import rehearse

    control = LocalControl(Target(db._storage, db._tenant, lambda: db))
    return control.call(rehearse, str(place.directory))


# Bad input


@pytest.mark.parametrize(
    ("number", "operation", "error"),
    [
        (1, ITEMS.replace("size", "extent"), MigrationConflict),
        (2, SIZE_AS_TEXT.replace("else=0)", "else=0) + 1"), NotProven),
        (2, "rename_table: {table: nothing, to: something}", InvalidMigration),
    ],
)
def test_files_that_can_not_be_applied(
    place: Workspace, number: int, operation: str, error: type[Exception]
) -> None:
    place.write(number, operation)
    with pytest.raises(error):
        rehearse(place)
    result = run_here(["migrate", "rehearse", "-d", place.address, "-m", str(place.directory)])
    assert result.status == 1
    assert "hint:" in result.err
    assert "Traceback" not in result.err


def test_nothing_is_pending(place: Workspace) -> None:
    found = rehearse(place)
    assert (found.migrations, found.tables, found.position, found.target) == ((), (), 1, 1)
    assert (found.refused, found.lost) == (False, False)
    result = run_here(["migrate", "rehearse", "-d", place.address, "-m", str(place.directory)])
    assert (result.status, result.out) == (0, "nothing is pending\n")
    with zapdb.open(place.address) as db, pytest.raises(UsageError, match="needs migration files"):
        db.admin.rehearse()


def test_a_squash_has_nothing_to_rehearse(place: Workspace) -> None:
    place.write(2, ADD_COLOR)
    place.open().close()
    given = ["-m", str(place.directory)]
    assert run_program(["migrate", "check", "--write", *given]) == 0
    assert run_program(["migrate", "squash", "--to", "2", "--yes", *given]) == 0
    assert rehearse(place).migrations == ()
    place.write(3, UNIQUE_SIZE)
    found = rehearse(place)
    assert (found.migrations, found.refused) == (("0003_test",), True)


def test_a_database_that_is_empty_or_missing(workspace: Workspace, tmp_path: Path) -> None:
    workspace.write(1, ITEMS)
    missing = tmp_path / "missing.db"
    for address in (workspace.address, f"sqlite:///{missing}"):
        options = ["-d", address, "-m", str(workspace.directory)]
        told = json.loads(run_here(["migrate", "rehearse", "--json", *options]).out)
        assert [(one["table"], one["action"]) for one in told["tables"]] == [("items", "created")]
        assert (told["refused"], told["lost"]) == (False, False)
        assert told["migrations"] == ["0001_test"]
    assert not missing.exists()


def test_tables_that_a_file_creates_have_nothing_to_rehearse(workspace: Workspace) -> None:
    workspace.write(1, ITEMS)
    workspace.open().close()
    workspace.write(2, TAGS, BY_ITEM, REFERENCE)
    (table,) = rehearse(workspace).tables
    assert (table.table, table.action, table.records) == ("tags", "created", 0)


def test_a_tenant_that_has_not_followed_a_rollback(place: Workspace) -> None:
    """What comes next does not lead from where it is."""
    place.write(2, ADD_COLOR)
    place.open().close()
    leave_tenants_due(place)
    with zapdb.open(place.address, read_only=True) as db:
        assert db.position == 2
        with pytest.raises(PendingMigrations, match="that was rolled back") as caught:
            db.admin.rehearse(place.directory)
    assert caught.value.context == {"migration": "0002_test"}
    result = run_here(["migrate", "rehearse", "-d", place.address, "-m", str(place.directory)])
    assert result.status == EXIT_PENDING
    place.remove(2)
    place.open().close()  # the tenant follows
    place.write(2, ADD_COLOR)
    assert rehearse(place).migrations == ("0002_test",)


def test_a_setting_refuses_schema_changes(place: Workspace) -> None:
    place.write(2, ADD_COLOR)
    with zapdb.open(place.address) as db:
        db.admin.set_setting("schema_changes", "refuse")
    found = rehearse(place)
    (obstacle,) = found.obstacles
    assert isinstance(obstacle, SchemaChangesRefused)
    assert (found.refused, found.lost) == (True, False)
    assert run_here(
        ["migrate", "rehearse", "-d", place.address, "-m", str(place.directory)]
    ).out.count("a setting refuses schema changes")


def test_a_level_that_is_not_reached(place: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    place.write(2, ADD_COLOR)
    level = release.LEVEL
    with zapdb.open(place.address):
        monkeypatch.setattr(release, "OPERATION_LEVELS", {"add_field": level + 1})
        found = rehearse_read_only(place)
        (obstacle,) = found.obstacles
        assert isinstance(obstacle, IncompatibleVersion)
        assert "needs a newer release" in obstacle.message
        monkeypatch.setattr(release, "LEVEL", level + 1)
        found = rehearse_read_only(place)
        (obstacle,) = found.obstacles
        assert "some running processes do not support" in obstacle.message
        assert found.refused
    found = rehearse_read_only(place)
    assert (found.obstacles, found.raised_level, found.refused) == ((), level + 1, False)


def rehearse_read_only(place: Workspace) -> Rehearsal:
    with zapdb.open(place.address, read_only=True) as db:
        return db.admin.rehearse(place.directory)


def test_who_is_connected_and_who_is_waited_for(place: Workspace) -> None:
    options = ["-d", place.address, "-m", str(place.directory)]
    with place.open() as older, zapdb.open(place.address) as tool:
        place.write(2, ADD_COLOR + "\nactivation: wait_for_nodes")
        path = place.write(2, ADD_COLOR)
        path.write_text(path.read_text() + "activation: wait_for_nodes\n")
        found = rehearse_read_only(place)
        assert [(one.process, one.files_end, one.blocks) for one in found.processes] == [
            (str(older._node), 1, "0002_test"),
            (str(tool._node), 0, None),
        ]
        (obstacle,) = found.obstacles
        assert isinstance(obstacle, ActivationPending)
        assert (found.refused, found.lost) == (False, False)
        result = run_here(["migrate", "rehearse", *options])
        assert result.status == 3
        assert "0002_test waits until it has the file" in result.out
    result = run_here(["migrate", "rehearse", *options])
    assert (result.status, "no process has the database open" in result.out) == (0, True)


@contextmanager
def as_role(place: Workspace, postgres: PostgresServer, *grants: str) -> Iterator[str]:
    postgres.execute("DROP ROLE IF EXISTS zapdb_rehearser")
    postgres.execute("CREATE ROLE zapdb_rehearser LOGIN")
    try:
        for grant in grants:
            place.execute(f"{grant} zapdb_rehearser")
        url = make_url(place.address).set(username="zapdb_rehearser")
        yield url.render_as_string(hide_password=False)
    finally:
        place.execute("DROP OWNED BY zapdb_rehearser")
        postgres.execute("DROP ROLE zapdb_rehearser")


@pytest.mark.parametrize("engine", ["postgresql"])
def test_reading_is_enough_and_needed(place: Workspace, postgres: PostgresServer) -> None:
    place.write(2, UNIQUE_SIZE, ADD_COLOR)
    reading = "GRANT SELECT ON ALL TABLES IN SCHEMA public TO"
    with as_role(place, postgres, reading) as address:
        options = ["-d", address, "-m", str(place.directory)]
        result = run_here(["migrate", "rehearse", "--json", *options])
        assert result.status == 1, result.err
        (table,) = json.loads(result.out)["tables"]
        assert table["refused"][0]["count"] == COUNT * 2 // 3
        assert table["indexes"][0]["seconds"] is None
        assert table["includes_writing"] is False
    revoked = "REVOKE SELECT ON zapdb_records_1 FROM"
    with as_role(place, postgres, reading, revoked) as address:
        options = ["-d", address, "-m", str(place.directory)]
        result = run_here(["migrate", "rehearse", *options])
        assert result.status == 1
        assert "permission denied for table zapdb_records_1" in result.err
        assert "Traceback" not in result.err
        with pytest.raises(StorageError), zapdb.open(address, read_only=True) as db:
            db.admin.rehearse(place.directory)


def test_wrong_arguments(place: Workspace) -> None:
    with zapdb.open(place.address) as db:
        for options in ({"sample": -1}, {"sample": "x"}, {"max_latency_ms": 0}):
            with pytest.raises(InvalidValue):
                db.admin.rehearse(place.directory, **options)
    options = ["-d", place.address, "-m", str(place.directory)]
    assert run_here(["migrate", "rehearse", "--max-latency", "0", *options]).status == 2
    both = ["migrate", "rehearse", "--all-tenants", "--tenant", "default", *options]
    assert run_here(both).status == 2


# Every way in


def test_tenants(place: Workspace) -> None:
    with zapdb.open(place.address) as db:
        db.admin.create_tenant("acme")
        db.for_tenant("acme").table("items").insert_many(
            {"id": at, "title": "x", "size": 4} for at in range(4)
        )
    place.write(2, UNIQUE_SIZE)
    with zapdb.open(place.address, tenant="acme") as db:
        found = db.admin.rehearse(place.directory)
    assert (found.tenant, count_refused(found)) == ("acme", {("items", "index by_size"): 3})
    options = ["--json", "-d", place.address, "-m", str(place.directory)]
    told = json.loads(run_here(["migrate", "rehearse", "--tenant", "acme", *options]).out)
    assert (told["tenant"], told["tables"][0]["records"]) == ("acme", 4)
    (main, acme) = json.loads(run_here(["migrate", "rehearse", "--all-tenants", *options]).out)[
        "tenants"
    ]
    assert (main["tables"][0]["records"], acme) == (
        COUNT,
        told | {"seed": acme["seed"]} | {"tables": acme["tables"]},
    )
    assert acme["tables"][0]["refused"] == told["tables"][0]["refused"]


def test_a_tenant_that_is_behind(place: Workspace) -> None:
    with zapdb.open(place.address) as db:
        db.admin.create_tenant("behind")
        db.for_tenant("behind").table("items").insert_many(
            {"id": at, "title": "x", "size": 4} for at in range(4)
        )
    place.write(2, UNIQUE_SIZE)
    storage = place.connect()
    assert run_here(["migrate", "up", "-d", place.address, "-m", str(place.directory)]).status == 1
    place.write(3, SMALL.replace("100", "1"))
    options = ["--json", "-d", place.address, "-m", str(place.directory), "--tenant", "behind"]
    told = json.loads(run_here(["migrate", "rehearse", *options]).out)
    assert told["migrations"] == ["0002_test", "0003_test"]
    (table,) = told["tables"]
    assert {one["what"]: one["count"] for one in table["refused"]} == {
        "index by_size": 3,
        "check small": 4,
    }
    storage.close()


def test_tasks_have_the_same(place: Workspace) -> None:
    place.write(2, UNIQUE_SIZE)

    async def ask() -> Rehearsal:
        async with zapdb.aio.open(place.address) as db:
            return await db.admin.rehearse(place.directory)

    assert asyncio.run(ask()).refused


def test_a_process_with_older_files_rehearses_the_whole(place: Workspace) -> None:
    place.write(2, ADD_COLOR)
    place.open().close()
    with place.open("never", serve_as=1) as older:
        place.write(3, UNIQUE_SIZE)
        found = older.admin.rehearse(place.directory)
    assert (found.position, found.migrations) == (2, ("0003_test",))


def test_over_a_service(place: Workspace, tmp_path: Path) -> None:
    place.write(2, UNIQUE_SIZE, REQUIRE_NOTE, DROP_NOTE.replace("note", "title"))
    place.write(2, UNIQUE_SIZE, REQUIRE_NOTE)
    tokens = make_keys(tmp_path)
    with served(place.address, tokens) as service:
        address = f"grpc://{service.address}"
        for name, grants, sees in (
            ("all", (), True),
            ("planner", (Grant("default", frozenset({"migrate:plan"})),), False),
        ):
            token = tmp_path / name
            token.write_text(token_for(tokens, name, *grants))
            token.chmod(0o600)
            with connect(address, token_file=token) as client:
                *looks, found = client.migrations.rehearse(str(place.directory), seed=1)
            assert looks
            assert all(isinstance(look, RehearsalLook) for look in looks)
            assert isinstance(found, Rehearsal)
            with zapdb.open(place.address) as db:
                here = db.admin.rehearse(place.directory, seed=1)
            assert count_refused(found) == count_refused(here)
            (table,) = found.tables
            assert bool(table.refused[0].examples) is sees
            assert bool(table.filled[0].examples) is sees
            assert (table.losses[0].key is not None) is sees


def test_the_command(place: Workspace) -> None:
    place.write(2, UNIQUE_SIZE, REQUIRE_NOTE)
    options = ["-d", place.address, "-m", str(place.directory)]
    result = run_here(["migrate", "rehearse", *options])
    assert result.status == 1
    for line in (
        "rehearsed 1 migration: 0002_test",
        "would be refused:",
        "  items: index by_size: 200 records",
        "    1 has the values of 0: size=0",
        "    … and 190 more",
        "would be lost, and no rollback brings it back:",
        "  items: field note becomes required: 200 records",
        "something would be refused and something would be lost",
    ):
        assert line in result.out.splitlines()
    told = json.loads(run_here(["migrate", "rehearse", "--json", *options]).out)
    assert told["refused"] is told["lost"] is True
    place.write(2, INDEX_SIZE)
    result = run_here(["migrate", "rehearse", *options])
    assert result.status == 0
    assert "nothing would be refused or lost" in result.out


@pytest.mark.on_each_engine
def test_a_writer_that_holds_the_database_is_not_waited_for(
    place: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All is told but the times of writing, where one writer keeps out all others."""
    begun = list[TransactionMode]()
    begin = Storage.transaction

    def note(storage: Storage, mode: TransactionMode, *rest: Any, **named: Any) -> Any:
        begun.append(mode)
        return begin(storage, mode, *rest, **named)

    monkeypatch.setattr("zapdb.jobs.estimate.ESTIMATE", ESTIMATE.within(0.01))
    place.write(2, UNIQUE_SIZE, ADD_COLOR)
    with zapdb.open(place.address) as writer, writer.transaction() as held_open:
        held_open.table("items").update(1, title="held")
        monkeypatch.setattr(Storage, "transaction", note)
        result = run_here(
            ["migrate", "rehearse", "--json", "-d", place.address, "-m", str(place.directory)]
        )
    (table,) = json.loads(result.out)["tables"]
    assert table["refused"][0]["count"] == COUNT * 2 // 3
    is_alone = place.engine == "sqlite"
    assert (table["indexes"][0]["seconds"] is None) is is_alone
    assert table["includes_writing"] is not is_alone
    assert (TransactionMode.JOB in begun) is not is_alone


# Rolling back

BY_TITLE = "create_index: {table: items, index: by_title, unique: true, fields: [{field: title}]}"
HAS_SIZE = "add_check: {table: items, check: has_size, expression: size >= 0}"
LOOSEN = (
    "drop_index: {table: items, index: by_title}",
    "drop_check: {table: items, check: has_size}",
)


@pytest.mark.on_each_engine
def test_what_a_rollback_brings_back_is_tried_on_all_records(workspace: Workspace) -> None:
    workspace.write(1, ITEMS)
    workspace.write(2, BY_TITLE, HAS_SIZE)
    with workspace.open() as db:
        db.table("items").insert_many({"id": at, "title": f"t{at}"} for at in range(40))
    workspace.write(3, *LOOSEN, ADD_COLOR)
    with workspace.open() as db:
        for at in (3, 4, 5):
            db.table("items").update(at, title="same", size=-at, color="blue")
    before = dump(workspace)
    with workspace.follow() as db:
        found = db.admin.rehearse_rollback()
        assert db.admin.rehearse_rollback(3).migrations == ()
    (table,) = found.tables
    assert (found.is_rollback, found.migrations, found.target) == (True, ("0003_test",), 2)
    assert [(one.what, one.count) for one in table.refused] == [
        ("check has_size", 3),
        ("index by_title", 2),
    ]
    (index,) = table.indexes
    assert (index.index, index.unique, index.records) == ("by_title", True, 40)
    assert [(loss.field, loss.records) for loss in table.losses] == [("color", 3)]
    assert (found.refused, found.lost, found.obstacles) == (True, True, ())
    after = dump(workspace)
    for of_nodes in ("zapdb_catalog", "zapdb_counters", "zapdb_leases"):
        del before[of_nodes], after[of_nodes]
    assert after == before
    roll_back(workspace.connect())
    workspace.remove(3)
    with workspace.open() as db:
        reports = {report.job.kind: report.job for report in db.admin.run_jobs()}
        assert {kind: job.state for kind, job in reports.items()} == {
            "index": "blocked",
            "validate": "blocked",
            "convert": "done",
        }
        counted = [(one.what, one.count) for job in reports.values() for one in job.findings]
        assert sorted(counted) == [("check has_size", 3), ("index by_title", 2)]


def test_what_keeps_a_rollback_from_it_is_told(workspace: Workspace) -> None:
    workspace.write(1, ITEMS)
    workspace.write(2, ITEMS.replace("items", "others"))
    command = ["migrate", "rehearse", "--rollback", "-d", workspace.address]
    with workspace.open() as db:
        db.admin.set_setting("schema_changes", "refuse")
        result = run_here(command)
    assert result.status == 1
    assert "rehearsed rolling back 1 migration: 0002_test" in result.out
    assert result.out.count("`zapdb migrate rollback` would end with:") == 1
    assert "a setting refuses schema changes" in result.out
    found = json.loads(run_here([*command, "--to", "0", "--json", "--all-tenants"]).out)["tenants"]
    assert [(one["migrations"], one["is_rollback"]) for one in found] == [
        (["0002_test", "0001_test"], True)
    ]
    for wrong in (["--all"], ["--seed", "1"], ["-m", str(workspace.directory)], ["--to", "9"]):
        assert run_here([*command, *wrong]).status == 2
    assert run_here(["migrate", "rehearse", "--to", "1", "-d", workspace.address]).status == 2
