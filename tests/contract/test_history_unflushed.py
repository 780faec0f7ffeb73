"""Pasts across migrations that the files of the history store have, or do not have yet."""

from __future__ import annotations

import math
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

import zapdb
from tests.support import Workspace
from zapdb.database import Database
from zapdb.errors import HistoryBehind

LARGE = "x" * 9_000

COLOR = "create_type: {type: color, enum: [red, green]}"
PLACE = (
    "create_type: {type: place, struct: [{name: shade, type: color}, {name: nr, type: integer}]}"
)
TABLE = """\
create_table:
      table: things
      key: [id]
      fields:
        - {name: id, type: integer}
        - {name: color, type: color}
        - {name: shades, type: list, of: color}
        - {name: place, type: place}
        - {name: text, type: string}
        - {name: weight, type: float, default: 0}
"""


def begin(workspace: Workspace, directory: Path) -> Database:
    workspace.write(1, COLOR, PLACE, TABLE)
    db = workspace.open()
    db.admin.set_setting("change_log", "on")
    db.history.start(directory)
    db.history.flush()
    for number in (1, 2):
        db.table("things").insert(**make_thing("green", "nr") | {"id": number})
    db.history.flush()
    return db


def make_thing(green: str, nr: str) -> dict[str, Any]:
    """The first record, under the names of two members."""
    return {
        "id": 1,
        "color": green,
        "shades": ["red", green],
        "place": {"shade": green, nr: 7},
        "text": LARGE,
        "weight": 0.0,
    }


def migrate(workspace: Workspace, db: Database, operation: str) -> Database:
    workspace.write(2, operation)
    db.close()
    return workspace.open()


@pytest.mark.parametrize("of", ["enum", "struct"])
def test_values_written_under_the_former_name_of_a_member_are_read(
    workspace: Workspace, tmp_path: Path, of: str
) -> None:
    """The migration makes no other records, but files have names: those of their era."""
    db = begin(workspace, tmp_path / "store")
    written = next(db.moments())
    rename = "color, rename: {green: verde}" if of == "enum" else "place, rename: {nr: number}"
    db = migrate(workspace, db, f"alter_type: {{type: {rename}}}")
    renamed = next(db.moments())
    db.table("things").update(2, weight=1.5)

    before = make_thing("green", "nr")
    after = make_thing("verde", "nr") if of == "enum" else make_thing("green", "number")
    newest = next(db.moments())

    def check() -> None:
        for moment, wanted in (written, before), (renamed, after), (newest, after):
            past = db.at(moment)
            assert zapdb.asdict(past.table("things").get(1)) == wanted
            for table in (
                past.table("things").to_arrow().read_all(),
                past.sql("SELECT * FROM things ORDER BY id").to_arrow(),
            ):
                first, second = table.to_pylist()
                assert first == wanted
                assert second == wanted | {"id": 2, "weight": 1.5 if moment is newest else 0.0}
        assert list(db.diff(written, renamed)) == []
        assert db.history.verify(sample=10).problems == ()

    versions = "SELECT id, place FROM zapdb_versions_things ORDER BY id, _from"
    check()
    with pytest.raises(HistoryBehind):
        db.at(renamed).sql(versions)
    db.history.flush()
    check()
    place = after["place"]
    assert db.at(newest).sql(versions).fetchall() == [(1, place), (2, place), (2, place)]
    db.change_log.prune(db.change_log.end())
    check()


MEETING = """\
create_type:
      type: meeting
      struct: [{name: nr, type: integer}, {name: met, type: zoned_timestamp, optional: true}]
"""
CALENDAR = """\
create_table:
      table: calendar
      key: [color]
      fields:
        - {name: color, type: color}
        - {name: first, type: meeting}
        - {name: others, type: list, of: meeting}
        - {name: after, type: reference, to: calendar, optional: true}
"""


def test_zoned_values_beside_renamed_members_are_no_changes(
    workspace: Workspace, tmp_path: Path
) -> None:
    workspace.write(1, COLOR, MEETING, CALENDAR)
    db = workspace.open()
    db.admin.set_setting("change_log", "on")
    db.history.start(tmp_path / "store")
    twice = datetime(2024, 10, 27, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"))
    meeting, unknown = {"nr": 1, "met": twice}, {"nr": 2, "met": None}
    for color in "red", "green":
        db.table("calendar").insert(
            color=color, first=meeting, others=[unknown, meeting], after="green"
        )
    written = next(db.moments())
    workspace.write(
        2,
        "alter_type: {type: meeting, rename: {nr: number}}",
        "alter_type: {type: color, rename: {green: verde}}",
        "rename_field: {table: calendar, field: others, to: rest}",
    )
    db.close()
    db = workspace.open()
    calendar = db.table("calendar")
    later = {"number": 1, "met": twice.replace(fold=1)}
    calendar.update("red", rest=[{"number": 2, "met": None}, later])
    newest = next(db.moments())

    def check() -> None:
        (made,) = db.diff(written, newest)
        assert (made.key, made.fields) == (("red",), ("rest",))
        (undone,) = db.diff(newest, written)
        assert (undone.key, undone.fields) == (("red",), ("others",))
        assert undone.after is not None
        assert len(undone.after.others) == 2
        (update,) = [made for made in db.audit() if made.operation == "update"]
        assert update.fields == ("rest",)
        assert [made.fields for made in calendar.history("red")][-1] == ("rest",)
        assert calendar.history("verde")[-1].operation == "insert"

    check()
    db.history.flush()
    db.change_log.prune(db.change_log.end())
    check()


def test_converted_records_with_large_values_are_read_in_columns(
    workspace: Workspace, tmp_path: Path
) -> None:
    db = begin(workspace, tmp_path / "store")
    written = next(db.moments())
    db.change_log.prune(db.change_log.end())
    db = migrate(
        workspace, db, "add_field: {table: things, field: {name: note, type: string, default: a}}"
    )
    past = db.at(next(db.moments()))
    wanted = [make_thing("green", "nr") | {"id": number, "note": "a"} for number in (1, 2)]
    assert [zapdb.asdict(one) for one in past.table("things").scan()] == wanted
    assert past.table("things").to_arrow().read_all().to_pylist() == wanted
    assert past.sql("SELECT * FROM things ORDER BY id").to_arrow().to_pylist() == wanted
    now = db.at(written).table("things", schema="now")
    assert now.to_arrow().read_all().to_pylist() == wanted


def test_large_values_that_stayed_are_no_changes(workspace: Workspace, tmp_path: Path) -> None:
    db = begin(workspace, tmp_path / "store")
    written = next(db.moments())
    db = migrate(
        workspace, db, "add_field: {table: things, field: {name: note, type: string, default: a}}"
    )
    things = db.table("things")
    things.update(1, weight=1.0)
    things.update(2, text=LARGE.upper())
    things.update(2, text=LARGE.upper(), weight=2.0)

    def check() -> None:
        found = [(made.key, made.fields) for made in db.diff(written, next(db.moments()))]
        assert found == [((1,), ("weight",)), ((2,), ("text", "weight"))]
        for number, wanted in (1, [("weight",)]), (2, [("text",), ("weight",)]):
            versions = things.history(number)
            assert [made.fields for made in versions if made.operation == "update"] == wanted
        audited = [made.fields for made in db.audit(table="things") if made.operation == "update"]
        assert audited == [("weight",), ("text",), ("weight",)]

    check()
    db.history.flush()
    check()
    db.change_log.prune(db.change_log.end())
    check()


def test_verify_knows_nan_as_nan(workspace: Workspace, tmp_path: Path) -> None:
    db = begin(workspace, tmp_path / "store")
    db.table("things").update(1, weight=math.nan)
    db.history.flush()
    assert db.history.verify(sample=10).problems == ()
