"""Tables that are not active any more, and that processes with other files go on with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import zapdb
from tests.cli.program import run_here
from tests.contract.tables import ITEMS
from tests.contract.test_kept_migrations import keep, up
from tests.support import Workspace
from zapdb.activation import rollback
from zapdb.catalog import DEFAULT_TENANT
from zapdb.database import Database
from zapdb.errors import (
    PendingMigrations,
    ReferenceViolation,
    ServedSchemaUnavailable,
    UniqueViolation,
    UnknownName,
    UsageError,
)
from zapdb.jobs.archive_pruning import prune_archives
from zapdb.records import asdict

TAGS = """\
create_table: {table: tags, key: [id], fields: [
      {name: id, type: integer}, {name: name, type: string},
      {name: item, type: reference, to: items, optional: true}]}"""
NAMES = "create_index: {table: tags, index: names, fields: [{field: name}], unique: true}"
DROP = "drop_table: {table: tags, records: archive}"
DISCARD = "drop_table: {table: tags, records: discard}"
BY_ITEM = "create_index: {table: tags, index: by_item, fields: [{field: item}]}"
REFERS = "add_reference: {table: tags, field: item, on_delete: restrict}"
COLOR = "add_field: {table: tags, field: {name: color, type: string}, fill: {value: red}}"


@pytest.fixture
def old(workspace: Workspace) -> Database:
    """A process that knows no files."""
    workspace.write(1, ITEMS)
    with workspace.open() as db:
        db.table("items").insert_many({"id": n, "title": f"title {n}", "size": n} for n in range(3))
    return open_plain(workspace)


def open_plain(workspace: Workspace) -> Database:
    found = zapdb.open(workspace.address)
    workspace._opened.append(found)
    return found


def open_before_the_drop(workspace: Workspace, drop: str) -> Database:
    """A process whose code uses the table, and whose files drop it."""
    workspace.write(2, TAGS, NAMES)
    with workspace.open() as db:
        db.table("tags").insert(id=1, name="one")
    workspace.write(3, drop)
    return workspace.open(serve_as=2, apply="never")


def rows(db: Database, name: str = "tags") -> dict[int, dict[str, Any]]:
    return {one.id: asdict(one) for one in db.table(name).scan()}


def names(db: Database) -> dict[int, str]:
    return {key: row["name"] for key, row in rows(db).items()}


def list_events(workspace: Workspace) -> list[str]:
    """What the schema history has of the table."""
    found = workspace.execute(
        "SELECT event FROM zapdb_schema_history WHERE table_number > 1 ORDER BY revision"
    )
    return [event for (event,) in found]


@pytest.mark.on_each_engine
def test_a_table_of_a_rolled_back_migration(workspace: Workspace, old: Database) -> None:
    workspace.write(2, TAGS, NAMES)
    new = workspace.open()
    new.table("tags").insert(id=1, name="one", item=1)
    rollback.roll_back(workspace.connect())
    with pytest.raises(UnknownName):
        open_plain(workspace).table("tags")
    new.table("tags").insert(id=2, name="two")
    new.table("tags").update(1, name="first")
    with pytest.raises(UniqueViolation):
        new.table("tags").insert(id=3, name="two")
    assert names(new) == {1: "first", 2: "two"}
    assert [one.id for one in new.table("tags").where(name="two")] == [2]
    old.table("items").update(1, title="changed")
    up(workspace)
    assert names(open_plain(workspace)) == {1: "first", 2: "two"}
    assert not [report for report in old.admin.verify() if report.problems]
    rollback.roll_back(workspace.connect())
    new.close()
    old.admin.forget_rolled_back()
    up(workspace)
    assert names(open_plain(workspace)) == {}


@pytest.mark.on_each_engine
@pytest.mark.parametrize("drop", [DROP, DISCARD])
def test_code_of_before_goes_on_with_a_table_that_is_dropped(
    workspace: Workspace, old: Database, drop: str
) -> None:
    before = open_before_the_drop(workspace, drop)
    up(workspace)
    after = workspace.open()
    with pytest.raises(UnknownName):
        after.table("tags")
    before.table("tags").insert(id=2, name="two")
    before.table("tags").update(1, name="first")
    with pytest.raises(UniqueViolation):
        before.table("tags").insert(id=3, name="two")
    with workspace.open(serve_as=2) as other:
        assert names(other) == {1: "first", 2: "two"}
    after.table("items").delete(2)
    if drop == DROP:
        with pytest.raises(UsageError, match="is still used"):
            prune_archives(workspace.connect(), DEFAULT_TENANT)
    rollback.roll_back(workspace.connect())
    workspace.remove(3)
    assert names(open_plain(workspace)) == {1: "first", 2: "two"}
    assert not [report for report in old.admin.verify() if report.problems]


@pytest.mark.on_each_engine
def test_it_is_dropped_when_nobody_uses_it(workspace: Workspace, old: Database) -> None:
    before = open_before_the_drop(workspace, DROP)
    up(workspace)
    old.admin.run_jobs()
    assert names(before) == {1: "one"}
    before.close()
    old.admin.run_jobs()
    with pytest.raises(ServedSchemaUnavailable, match="was dropped"):
        workspace.open(serve_as=2)
    assert list_events(workspace) == ["create", "drop"]
    rollback.roll_back(workspace.connect())
    workspace.remove(3)
    with workspace.open() as again:
        assert names(again) == {1: "one"}


def test_what_nobody_uses_is_dropped_at_once(workspace: Workspace, old: Database) -> None:
    workspace.write(2, TAGS)
    workspace.open().close()
    rollback.roll_back(workspace.connect())
    up(workspace)
    assert list_events(workspace) == ["create", "create", "drop"]


def test_it_is_there_for_those_that_are_started(workspace: Workspace, old: Database) -> None:
    keep(workspace)
    workspace.write(2, TAGS)
    with workspace.open() as new:
        new.table("tags").insert(id=1, name="one")
    rollback.roll_back(workspace.connect())
    with workspace.open() as new:
        assert names(new) == {1: "one"}
    assert old.admin.forget_rolled_back() == 1
    with pytest.raises(PendingMigrations):
        workspace.open()
    up(workspace)
    assert names(open_plain(workspace)) == {}


@pytest.mark.on_each_engine
def test_references_of_a_kept_table_bind(workspace: Workspace, old: Database) -> None:
    workspace.write(2, TAGS, BY_ITEM, REFERS)
    new = workspace.open()
    new.table("tags").insert(id=1, name="one", item=1)
    rollback.roll_back(workspace.connect())
    with pytest.raises(ReferenceViolation):
        old.table("items").delete(1)
    old.table("items").delete(2)
    with pytest.raises(ReferenceViolation):
        new.table("tags").insert(id=2, name="two", item=2)
    new.table("tags").delete(1)
    old.table("items").delete(1)


@pytest.mark.on_each_engine
def test_processes_of_two_versions_of_it(workspace: Workspace, old: Database) -> None:
    workspace.write(2, TAGS)
    first = workspace.open()
    first.table("tags").insert(id=1, name="one")
    workspace.write(3, COLOR)
    second = workspace.open()
    second.table("tags").update(1, color="blue")
    rollback.roll_back(workspace.connect(), 2)
    rollback.roll_back(workspace.connect(), 1)
    first.table("tags").insert(id=2, name="two")
    second.table("tags").insert(id=3, name="three", color="green")
    assert names(first) == names(second) == {1: "one", 2: "two", 3: "three"}
    colors = {key: row["color"] for key, row in rows(second).items()}
    assert colors == {1: "blue", 2: "red", 3: "green"}
    up(workspace)
    plain = open_plain(workspace)
    assert {key: row["color"] for key, row in rows(plain).items()} == colors
    assert not [report for report in old.admin.verify() if report.problems]


def test_each_tenant_by_itself(workspace: Workspace, old: Database) -> None:
    old.admin.create_tenant("acme")
    workspace.write(2, TAGS)
    new = workspace.open()
    for db in (new, new.for_tenant("acme")):
        db.table("tags").insert(id=1, name="one")
    rollback.roll_back(workspace.connect())
    new.for_tenant("acme").table("tags").insert(id=2, name="two")
    assert names(new) == {1: "one"}
    assert names(new.for_tenant("acme")) == {1: "one", 2: "two"}
    new.close()
    old.admin.forget_rolled_back()
    up(workspace)
    assert names(open_plain(workspace)) == {}
    with workspace.open() as again:
        assert names(again.for_tenant("acme")) == {}


def test_another_table_gets_its_name(workspace: Workspace, old: Database) -> None:
    workspace.write(2, TAGS)
    new = workspace.open()
    new.table("tags").insert(id=1, name="one")
    rollback.roll_back(workspace.connect())
    workspace.write(2, TAGS.replace("name: name", "name: label"))
    other = workspace.open()
    other.table("tags").insert(id=5, label="five")
    new.table("tags").insert(id=2, name="two")
    assert names(new) == {1: "one", 2: "two"}
    assert [asdict(one)["label"] for one in other.table("tags").scan()] == ["five"]
    new.close()
    old.admin.forget_rolled_back()
    assert [asdict(one)["label"] for one in other.table("tags").scan()] == ["five"]
    assert not [report for report in old.admin.verify() if report.problems]


def test_its_past(workspace: Workspace, old: Database, tmp_path: Path) -> None:
    """As long as it is kept, it is a table of the past, too."""
    old.admin.set_setting("change_log", "on")
    old.history.start(tmp_path / "past")
    old.history.flush()
    workspace.write(2, TAGS)
    new = workspace.open()
    states = list[tuple[int, dict[int, str]]]()

    def note() -> None:
        states.append((old.change_log.end(), names(new)))
        old.history.flush()

    new.table("tags").insert(id=1, name="one")
    note()
    rollback.roll_back(workspace.connect())
    note()
    new.table("tags").insert(id=2, name="two")
    note()
    up(workspace)
    new.table("tags").update(1, name="first")
    note()
    rollback.roll_back(workspace.connect())
    new.table("tags").delete(2)
    note()
    for moment, state in states:
        past = {one.id: one.name for one in old.at(moment).table("tags").scan()}
        assert past == state
    new.close()
    old.admin.forget_rolled_back()
    old.history.flush()
    with pytest.raises(UnknownName):
        old.at(old.change_log.end()).table("tags")
    for moment, state in states:
        past = {one.id: one.name for one in old.at(moment).table("tags").scan()}
        assert past == state
    assert not old.history.verify(sample=3).problems


def test_status_and_rehearsals_say_so(workspace: Workspace, old: Database) -> None:
    workspace.write(2, TAGS)
    new = workspace.open()
    new.table("tags").insert(id=1, name="one")
    place = ["-d", workspace.address]
    done = run_here(["migrate", "rollback", "--yes", *place])
    assert "goes on with its schema" in done.out
    assert names(new) == {1: "one"}
