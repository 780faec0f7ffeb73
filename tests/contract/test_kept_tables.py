"""Tables that are not active any more, and that processes with other files go on with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import zapdb
from tests.cli.program import run_here
from tests.contract.rollbacks import begin_with_three
from tests.contract.test_kept_migrations import keep, up
from tests.support import Workspace
from zapdb.activation import rollback
from zapdb.catalog import DEFAULT_TENANT
from zapdb.database import Database, opening
from zapdb.errors import (
    PendingMigrations,
    ReferenceViolation,
    ServedSchemaUnavailable,
    UniqueViolation,
    UnknownName,
    UsageError,
)
from zapdb.jobs.archive_pruning import forget_migrations, prune_archives
from zapdb.records import asdict
from zapdb.schema import fingerprint

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
NUMBER = """\
add_field: {table: tags, field: {name: number, type: integer, generated: sequence},
            fill: {expression: id * 10}}"""


@pytest.fixture
def old(workspace: Workspace) -> Database:
    return begin_with_three(workspace)


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
        workspace.follow().table("tags")
    new.table("tags").insert(id=2, name="two")
    new.table("tags").update(1, name="first")
    with pytest.raises(UniqueViolation):
        new.table("tags").insert(id=3, name="two")
    assert names(new) == {1: "first", 2: "two"}
    assert [one.id for one in new.table("tags").where(name="two")] == [2]
    old.table("items").update(1, title="changed")
    up(workspace)
    assert names(workspace.follow()) == {1: "first", 2: "two"}
    assert not [report for report in old.admin.verify() if report.problems]
    rollback.roll_back(workspace.connect())
    new.close()
    old.admin.forget_rolled_back()
    up(workspace)
    assert names(workspace.follow()) == {}


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
    assert names(workspace.follow()) == {1: "first", 2: "two"}
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
    assert names(workspace.follow()) == {}


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
    plain = workspace.follow()
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
    assert names(workspace.follow()) == {}
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


THINGS = "create_table: {table: things, key: [id], fields: [{name: id, type: integer}]}"
REFERS_TO_THINGS = (
    "add_field: {table: tags, field: {name: thing, type: reference, to: things, optional: true}}",
    "create_index: {table: tags, index: by_thing, fields: [{field: thing}]}",
    "add_reference: {table: tags, field: thing, on_delete: restrict}",
)
SWAP = (
    "rename_table: {table: tags, to: labels}",
    TAGS.replace("{name: name, type: string}", "{name: text, type: string}"),
)


def problems(db: Database) -> list[Any]:
    return [report for report in db.admin.verify() if report.problems]


@pytest.mark.on_each_engine
def test_a_tenant_that_has_yet_to_come_to_it_keeps_it(workspace: Workspace, old: Database) -> None:
    old.admin.create_tenant("acme")
    keep(workspace)
    workspace.write(2, TAGS)
    with workspace.open() as new:
        new.for_tenant("acme").table("tags").insert(id=1, name="one")
    rollback.roll_back(workspace.connect())
    acme = old.for_tenant("acme")
    up(workspace)  # for the default tenant
    acme.admin.run_jobs()
    with workspace.open() as again:
        assert names(again.for_tenant("acme")) == {1: "one"}


def test_what_is_kept_is_not_erased(workspace: Workspace, old: Database, tmp_path: Path) -> None:
    old.admin.set_setting("change_log", "on")
    old.history.start(tmp_path / "past")
    workspace.write(2, TAGS, NAMES)
    new = workspace.open()
    new.table("tags").insert(id=1, name="one", item=1)
    new.table("tags").update(1, name="first")
    old.history.flush()
    rollback.roll_back(workspace.connect())
    old.history.flush()
    with pytest.raises(UsageError, match="still in the table"):
        old.history.erase("tags", 1)
    old.history.erase_fields("tags", "name", "item")
    assert names(new) == {1: "first"}
    assert [one.id for one in new.table("tags").where(name="first")] == [1]
    assert not problems(old)


@pytest.mark.on_each_engine
def test_what_it_refers_to_is_kept_with_it(workspace: Workspace, old: Database) -> None:
    """Also where no process has that."""
    workspace.write(2, TAGS)
    first = workspace.open()
    first.table("tags").insert(id=1, name="one")
    workspace.write(3, THINGS, *REFERS_TO_THINGS)
    with workspace.open() as new:
        new.table("things").insert(id=7)
        new.table("tags").update(1, thing=7)
    rollback.roll_back(workspace.connect(), 1)
    forget_migrations(workspace.connect())  # the third; nobody has things
    old.admin.run_jobs()
    old.table("items").delete(2)
    first.table("tags").insert(id=2, name="two")
    assert names(first) == {1: "one", 2: "two"}
    assert not problems(old)
    first.close()
    old.admin.forget_rolled_back()
    with workspace.follow() as plain:
        assert plain._catalog.kept_tables == {}


@pytest.mark.on_each_engine
def test_the_active_table_is_meant_by_its_name(
    workspace: Workspace, old: Database, tmp_path: Path
) -> None:
    old.admin.set_setting("change_log", "on")
    old.history.start(tmp_path / "past")
    workspace.write(2, TAGS)
    first = workspace.open()
    first.table("tags").insert(id=1, name="one")
    expected = fingerprint(first._catalog.table("tags").schema)
    workspace.write(3, *SWAP)
    second = workspace.open()
    second.table("tags").insert(id=1, text="of the second")
    rollback.roll_back(workspace.connect())
    plain = workspace.follow()
    plain.table("tags").insert(id=2, name="two")
    moment = plain.change_log.end()
    old.history.flush()
    plain.table("tags").delete(1)
    old.history.flush()
    assert {one.id: one.name for one in plain.at(moment).table("tags").scan()} == {
        1: "one",
        2: "two",
    }
    with zapdb.open(workspace.address, pin={"tags": expected}) as pinned:
        assert names(pinned) == {2: "two"}
    plain.history.erase("tags", 1)
    assert [asdict(one)["text"] for one in second.table("tags").scan()] == ["of the second"]
    assert 1 not in {one.id for one in plain.at(moment).table("tags").scan()}


def test_its_last_user_drops_it(workspace: Workspace, old: Database) -> None:
    before = open_before_the_drop(workspace, DISCARD)
    up(workspace)
    before.table("tags").insert(id=2, name="two")
    before.close()
    assert list_events(workspace) == ["create", "drop"]
    assert workspace.follow()._catalog.kept_tables == {}


def test_another_tenant_drops_it_when_it_is_opened(workspace: Workspace, old: Database) -> None:
    old.admin.create_tenant("acme")
    workspace.write(2, TAGS, NAMES)
    with workspace.open() as db:
        db.for_tenant("acme").table("tags").insert(id=1, name="one")
    workspace.write(3, DISCARD)
    before = workspace.open(serve_as=2, apply="never")
    with workspace.open() as after:
        after.for_tenant("acme")
    before.close()
    workspace.open(tenant="acme")
    assert list_events(workspace) == ["create", "create", "drop", "drop"]


def test_it_is_verified(workspace: Workspace, old: Database) -> None:
    workspace.write(2, TAGS, NAMES)
    new = workspace.open()
    new.table("tags").insert(id=1, name="one")
    rollback.roll_back(workspace.connect())
    number = workspace.follow()._catalog.kept_tables[2].indexes[0].entry_table
    workspace.execute(f"DELETE FROM zapdb_entries_{number}")
    (found,) = problems(old)
    assert found.table == "tags"


@pytest.mark.on_each_engine
def test_its_unique_index_is_built(workspace: Workspace, old: Database) -> None:
    workspace.write(2, TAGS)
    new = workspace.open()
    new.table("tags").insert_many({"id": n, "name": f"n{n}"} for n in range(3))
    workspace.write(3, NAMES)
    newest = workspace.open()
    rollback.roll_back(workspace.connect(), 1)
    old.admin.run_jobs()
    with pytest.raises(UniqueViolation):
        newest.table("tags").insert(id=9, name="n1")
    assert [one.id for one in newest.table("tags").where(name="n1")] == [1]
    assert not problems(old)


def test_who_opens_while_it_is_dropped(
    workspace: Workspace, old: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = open_before_the_drop(workspace, DROP)
    up(workspace)
    real = opening.register

    def register(*arguments: Any, **options: Any) -> Any:
        before.close()
        return real(*arguments, **options)

    monkeypatch.setattr(opening, "register", register)
    with pytest.raises(ServedSchemaUnavailable):
        workspace.open(serve_as=2, apply="never")


def test_an_archive_is_pruned_when_nobody_uses_it(workspace: Workspace, old: Database) -> None:
    before = open_before_the_drop(workspace, DROP)
    up(workspace)
    before.close()
    prune_archives(workspace.connect(), DEFAULT_TENANT)


def test_a_process_that_has_it_no_more_writes_nothing(workspace: Workspace, old: Database) -> None:
    workspace.write(2, TAGS)
    new = workspace.open()
    table = workspace.follow().table("tags")
    table.insert(id=1, name="one")
    rollback.roll_back(workspace.connect())
    with pytest.raises(UnknownName):
        table.insert(id=2, name="two")
    assert names(new) == {1: "one"}


def test_a_history_that_begins_while_it_is_kept(
    workspace: Workspace, old: Database, tmp_path: Path
) -> None:
    old.admin.set_setting("change_log", "on")
    workspace.write(2, TAGS)
    new = workspace.open()
    new.table("tags").insert(id=1, name="one")
    rollback.roll_back(workspace.connect())
    old.history.start(tmp_path / "past")
    old.history.flush()
    new.table("tags").insert(id=2, name="two")
    moment = old.change_log.end()
    old.history.flush()
    new.close()
    old.admin.forget_rolled_back()
    old.history.flush()
    past = {one.id: one.name for one in old.at(moment).table("tags").scan()}
    assert past == {1: "one", 2: "two"}


def test_a_preview_has_it(workspace: Workspace, old: Database) -> None:
    workspace.write(2, TAGS, NAMES)
    new = workspace.open()
    new.table("tags").insert(id=1, name="one")
    rollback.roll_back(workspace.connect())
    new.table("tags").insert(id=2, name="two")
    with workspace.open(apply="never", preview=True) as future:
        assert names(future) == {1: "one", 2: "two"}
        assert [one.id for one in future.table("tags").where(name="two")] == [2]


@pytest.mark.on_each_engine
def test_its_sequence_goes_on_behind_older_records(workspace: Workspace, old: Database) -> None:
    workspace.write(2, TAGS)
    with workspace.open() as db:
        db.table("tags").insert(id=5, name="five")
    workspace.write(3, NUMBER)
    up(workspace)
    workspace.write(4, DISCARD)
    before = workspace.open(serve_as=3, apply="never")
    up(workspace)
    assert before.table("tags").insert(id=1, name="one").number == 51


def test_an_error_says_what_brought_its_constraint(workspace: Workspace, old: Database) -> None:
    workspace.write(2, TAGS)
    workspace.write(3, NAMES)
    second, first = workspace.open(), workspace.open(serve_as=2)
    second.table("tags").insert(id=1, name="one")
    rollback.roll_back(workspace.connect(), 1)
    with pytest.raises(UniqueViolation) as refused:
        first.table("tags").insert(id=2, name="one")
    assert refused.value.context["added_by"] == "0003_test"
