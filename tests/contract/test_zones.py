"""Local times in time zones: stored numbers, indexes of instants, and data that change."""

from __future__ import annotations

import datetime
import json
import os
from dataclasses import replace
from typing import Any

import pytest

from tests import processes
from tests.lookups import between, find
from tests.support import GUARD_SECONDS, ROOT, Workspace, dump
from tests.timezones import release
from zapdb.catalog.cluster import ensure_database
from zapdb.catalog.zone_numbers import append_zones, load_zones
from zapdb.database import Database
from zapdb.datasets import TimeZones, dataset_of, zone, zone_names
from zapdb.errors import CorruptRecord, DatasetMismatch, InvalidValue
from zapdb.tables.queries.cursors import decode_cursor, encode_cursor

VISITS = """\
create_table: {table: visits, key: [id], fields: [
      {name: id, type: integer},
      {name: met, type: zoned_timestamp},
      {name: left, type: zoned_timestamp, optional: true}]}"""
INDEX_MET = "create_index: {table: visits, index: by_met, fields: [{field: met}]}"
INDEX_ID = "create_index: {table: visits, index: by_id, fields: [{field: id}]}"


def local(name: str, *parts: int, fold: int = 0) -> datetime.datetime:
    return datetime.datetime(*parts, tzinfo=zone(name), fold=fold)


# In the order of their instants. Under tzdata 2023.2 Beirut kept winter time until 20 April 2023,
# so there 5 comes after 6.
MET = {
    1: local("Pacific/Apia", 2011, 12, 31, 0, 30),
    2: local("America/New_York", 2022, 11, 6, 1, 30),
    3: local("Europe/Berlin", 2022, 11, 6, 7, 15),
    4: local("America/New_York", 2022, 11, 6, 1, 30, fold=1),
    5: local("Asia/Beirut", 2023, 3, 26, 12, 0),
    6: local("UTC", 2023, 3, 26, 9, 30),
    7: local("Australia/Lord_Howe", 2024, 4, 7, 1, 45, fold=1),
}


@pytest.fixture
def db(workspace: Workspace) -> Database:
    workspace.write(1, VISITS, INDEX_MET, INDEX_ID)
    db = workspace.open()
    db.table("visits").insert_many({"id": at, "met": met} for at, met in reversed(MET.items()))
    return db


def in_order(db: Database) -> list[int]:
    return [record.id for record in db.table("visits").using("by_met")]


def open_elsewhere(workspace: Workspace, version: str, *commands: str) -> list[str]:
    """What another process prints that has another release of the time zone data."""
    ran = processes.run(
        workspace.command("zoned", *commands),
        cwd=ROOT,
        env=os.environ | {"ZAPDB_TZDATA": str(release(version))},
        capture_output=True,
        text=True,
        timeout=GUARD_SECONDS,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()


def test_values_come_back_as_they_were_meant(db: Database) -> None:
    visits = db.table("visits")
    for at, met in MET.items():
        assert repr(visits.get(at).met) == repr(met)
        assert visits.get(at).left is None
    visits.update(1, left=MET[4])
    assert repr(visits.get(1).left) == repr(MET[4])
    with pytest.raises(InvalidValue):
        visits.insert(id=9, met=datetime.datetime(2024, 1, 1))


def test_an_index_has_the_order_of_instants(db: Database) -> None:
    assert "by_met" in db.table("visits").readable_indexes()
    assert in_order(db) == [*MET]
    assert [r.id for r in between(db.table("visits"), "by_met", MET[3], MET[5])] == [3, 4]
    assert [r.id for r in db.table("visits").using("by_met").reverse()] == [*reversed(MET)]
    (report,) = db.admin.verify()
    assert (report.problems, report.entries) == ((), {"by_met": 7, "by_id": 7})


def test_a_lookup_finds_what_was_meant_and_nothing_else_of_that_instant(db: Database) -> None:
    for at, met in MET.items():
        assert [record.id for record in find(db.table("visits"), "by_met", met)] == [at]
        folded = [
            record.id
            for record in find(db.table("visits"), "by_met", met.replace(fold=1 - met.fold))
        ]
        assert folded == {2: [4], 4: [2]}.get(at, [])
        assert [*find(db.table("visits"), "by_met", met.astimezone(zone("Asia/Kathmandu")))] == []
    assert MET[2] == MET[4]  # to Python, which passes over the fold within one zone


def test_a_struct_is_compared_by_what_its_members_mean(workspace: Workspace) -> None:
    workspace.write(
        1,
        "create_type: {type: span, struct: [{name: since, type: zoned_timestamp}]}",
        "create_table: {table: stays, key: [id], fields: [{name: id, type: integer}, "
        "{name: span, type: span}, {name: all, type: list, of: zoned_timestamp}]}",
        "create_index: {table: stays, index: by_span, fields: [{field: span}]}",
    )
    db = workspace.open()
    stays = db.table("stays")
    for at in (2, 4):
        stays.insert(id=at, span={"since": MET[at]}, all=[MET[at], MET[1]])
        assert repr(stays.get(at).all) == repr([MET[at], MET[1]])
    for at in (2, 4):
        assert [r.id for r in find(stays, "by_span", {"since": MET[at]})] == [at]
    (state,) = db._catalog.tables["stays"].indexes
    assert state.dependencies == (TimeZones(),)


def test_added_fields_have_defaults_in_zones(workspace: Workspace, db: Database) -> None:
    default = "2022-11-06T01:30:00 America/New_York fold=1"
    workspace.write(
        2,
        f"add_field: {{table: visits, field: {{name: due, type: zoned_timestamp, default: "
        f"'{default}'}}}}",
    )
    db.close()
    db = workspace.open()
    assert repr(db.table("visits").get(1).due) == repr(MET[4])
    db.admin.run_jobs()
    assert repr(db.table("visits").get(1).due) == repr(MET[4])
    (report,) = db.admin.verify()
    assert report.problems == ()


# --- numbers --------------------------------------------------------------------------------------


def numbers_of(workspace: Workspace) -> dict[int, str]:
    return dict(map(tuple, workspace.execute("SELECT number, name FROM zapdb_zones")))


@pytest.mark.long_on("postgresql")
@pytest.mark.empty
def test_opening_appends_the_zones_that_are_missing(workspace: Workspace) -> None:
    workspace.write(1, VISITS)
    assert open_elsewhere(workspace, "2025.1") == ["reopened"]
    before = numbers_of(workspace)
    assert sorted(before) == list(range(1, len(before) + 1))
    assert set(before.values()) == zone_names() - {"America/Coyhaique"}
    db = workspace.open()
    after = numbers_of(workspace)
    assert after == before | {len(before) + 1: "America/Coyhaique"}
    db.table("visits").insert(id=1, met=local("America/Coyhaique", 2025, 7, 1))
    assert open_elsewhere(workspace, "2025.1") == ["reopened"]
    workspace.open()
    assert numbers_of(workspace) == after


def test_opening_again_writes_no_numbers(workspace: Workspace, db: Database) -> None:
    before = dump(workspace)
    append_zones(db._storage)
    assert dump(workspace) == before


def test_numbers_are_never_used_again(workspace: Workspace) -> None:
    workspace.write(1, VISITS)
    workspace.open().close()
    before = numbers_of(workspace)
    gone = next(number for number, name in before.items() if name == "UTC")
    # Nothing in zapdb deletes one. If it is gone, old records must not change their meaning.
    workspace.execute("DELETE FROM zapdb_zones WHERE number = ?", (gone,))
    db = workspace.open()
    after = numbers_of(workspace)
    assert gone not in after
    assert after[max(before) + 1] == "UTC"
    assert db._catalog.zones.name_of(max(before) + 1) == "UTC"


@pytest.mark.empty
@pytest.mark.on_each_engine
def test_processes_that_open_at_once_agree_on_the_numbers(workspace: Workspace) -> None:
    ensure_database(workspace.connect(), create=True)
    printed = workspace.run("append_together", "6").stdout.splitlines()
    assert len(printed) == 6
    assert len(set(printed)) == 1
    numbers = numbers_of(workspace)
    assert set(numbers.values()) == zone_names()
    assert sorted(numbers) == list(range(1, len(numbers) + 1))
    first, last = sorted(numbers.items())[:3], max(numbers.items())
    assert json.loads(printed[0]) == [list(pair) for pair in (*first, last)]


@pytest.mark.on_each_engine
def test_a_process_that_meets_a_later_number_reads_the_table_again(
    workspace: Workspace, db: Database
) -> None:
    """The number comes from a process that was opened later, with newer data."""
    last = max(numbers_of(workspace))
    known = db._catalog.zones
    workspace.execute("INSERT INTO zapdb_zones VALUES (?, ?)", (last + 1, "Later/Zone"))
    workspace.execute("INSERT INTO zapdb_zones VALUES (?, ?)", (last + 3, "Later/Other"))
    with db.snapshot():
        assert known.name_of(last + 1) == "Later/Zone"
    with db.transaction():
        assert known.name_of(last + 3) == "Later/Other"
    with pytest.raises(KeyError):
        known.name_of(last + 2)
    assert load_zones(workspace.control.connection()).name_of(last + 1) == "Later/Zone"


def test_a_number_that_the_table_lacks_is_corruption(workspace: Workspace, db: Database) -> None:
    workspace.execute("DELETE FROM zapdb_zones WHERE name = 'Asia/Beirut'")
    db.close()
    db = workspace.open()  # Beirut has a new number now, and the record has the old one
    with pytest.raises(CorruptRecord) as caught:
        db.table("visits").get(5)
    assert caught.value.context["what"] == "time zone number"
    assert db.table("visits").get(6).id == 6
    (report,) = db.admin.verify()
    assert report.problem_count > 0


# --- other data -----------------------------------------------------------------------------------


def index_row(workspace: Workspace) -> dict[str, Any]:
    ((value,),) = workspace.execute(
        "SELECT value FROM zapdb_catalog WHERE kind = 'index' AND key = '1/1'"
    )
    row: dict[str, Any] = json.loads(value)
    return row


def test_rule_26_an_index_is_rebuilt_under_other_data_and_has_the_order_of_the_new_instants(
    workspace: Workspace, db: Database
) -> None:
    here = dataset_of(TimeZones())
    assert index_row(workspace)["built_with"] == {
        "time zones": {"version": here.version, "fingerprint": here.fingerprint}
    }
    built = index_row(workspace)["entry_table"]
    assert in_order(db) == [1, 2, 3, 4, 5, 6, 7]
    db.close()
    shown = open_elsewhere(workspace, "2023.2", "readable", "order", "run", "verify")
    assert shown == [
        "warned: the collation or time zone data changed: index 'by_met' of table 'visits' is"
        " built again, and queries on it scan until then (built with"
        f" {here.version}, here tz database 2023b)",
        "reopened",
        "by_met True, by_id True",
        "1 2 3 4 6 5 7",
        "ran",
        "ok by_met by_id",
    ]
    row = index_row(workspace)
    assert row["entry_table"] > built
    assert row["built_with"]["time zones"]["version"] == "tz database 2023b"
    assert row["former"] == {"time zones": [here.fingerprint]}
    again = workspace.open()
    assert in_order(again) == [1, 2, 3, 4, 5, 6, 7]
    for at, met in MET.items():  # what is stored is what was meant, whatever the data
        assert repr(again.table("visits").get(at).met) == repr(met)


def test_rule_26_a_cursor_names_the_data_that_changed(workspace: Workspace, db: Database) -> None:
    query = db.table("visits").order_by("met")
    first = query.page(3)
    assert [record.id for record in query.page(2, first.cursor)] == [4, 5]
    here = dataset_of(TimeZones())
    db.close()
    shown = open_elsewhere(workspace, "2023.2", f"page {first.cursor}")
    other = index_row(workspace)["built_with"]["time zones"]["fingerprint"][:16]
    assert shown[-5:] == [
        "the cursor was made with other collation or time zone data, which sort differently",
        "  dataset: time zones",
        f"  made_with: {here.version} (fingerprint {here.fingerprint[:16]})",
        f"  here: tz database 2023b (fingerprint {other})",
        "  hint: begin again without a cursor; if it happens often, give all processes "
        "the same ICU and time zone data",
    ]


def test_rule_26_data_that_do_the_same_keep_a_cursor(workspace: Workspace) -> None:
    workspace.write(1, VISITS, INDEX_MET)
    with workspace.open() as db:
        db.table("visits").insert_many({"id": at, "met": met} for at, met in MET.items())
    with workspace.open() as db:
        cursor = db.table("visits").order_by("met").page(3).cursor
        mark = decode_cursor(cursor or "")
    (data,) = mark.mark.data
    renamed = replace(mark, mark=replace(mark.mark, data=(replace(data, version=b"2099z"),)))
    page = workspace.open().table("visits").order_by("met").page(2, encode_cursor(renamed))
    assert [record.id for record in page] == [4, 5]


@pytest.mark.long_on("postgresql")
def test_rule_26_data_that_do_the_same_need_no_rebuild(workspace: Workspace) -> None:
    workspace.write(1, VISITS, INDEX_MET)
    assert open_elsewhere(workspace, "2022.2", "readable") == ["reopened", "by_met True"]
    before = index_row(workspace)
    assert open_elsewhere(workspace, "2022.3", "readable") == ["reopened", "by_met True"]
    assert index_row(workspace) == before


@pytest.mark.on_each_engine
def test_rule_26_processes_with_other_time_zones_are_refused_while_others_run(
    workspace: Workspace, db: Database
) -> None:
    error = open_elsewhere(workspace, "2023.2")
    assert error[0] == DatasetMismatch.__name__
    assert "other running processes use different collation or time zone data" in error[1]
    assert "  here: tz database 2023b" in error
    assert in_order(db) == [*MET]


def test_a_zone_that_older_data_lack_hides_its_own_records_only(
    workspace: Workspace, db: Database
) -> None:
    db.table("visits").insert(id=8, met=local("America/Coyhaique", 2025, 7, 1, 12))
    db.close()
    shown = open_elsewhere(workspace, "2025.1", "get 7", "get 8", "get 1", "verify")
    assert shown[0].startswith("warned: the collation or time zone data changed")
    assert shown[1:] == [
        "warned: an index could not be built again yet: the time zone data in use lack a zone",
        "reopened",
        "7 2024-04-07T01:45:00 Australia/Lord_Howe 1",
        "UnknownZone America/Coyhaique tz database 2025a",
        "1 2011-12-31T00:30:00 Pacific/Apia 0",
        "1 problem: time zone America/Coyhaique is not in tz database 2025a",
    ]
