"""Migrations that were rolled back, are kept, and are applied again: what they made comes back."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from tests.cli.program import run_here
from tests.contract.mirrors import Place
from tests.contract.mirrors import check as check_mirror
from tests.contract.mirrors import keep as mirror
from tests.contract.mirrors import place as place
from tests.contract.rollbacks import begin_with_three, leave_tenants_due
from tests.contract.tables import ADD_COLOR, ADD_WEIGHT
from tests.contract.test_kept_migrations import LENGTH, contents, keep, up, values
from tests.support import WAYS, Faults, Way, Workspace, count_statements, error_of
from zapdb.activation import rollback
from zapdb.activation.up import MigrationChoice, migrate_up
from zapdb.catalog import DEFAULT_TENANT
from zapdb.catalog.stored_migrations import read_chain_state
from zapdb.database import Database
from zapdb.errors import (
    HistoryBehind,
    HistoryGap,
    PendingMigrations,
    ServedSchemaUnavailable,
    UniqueViolation,
    UsageError,
)
from zapdb.jobs.archive_pruning import forget_migrations, sweep_chain_state
from zapdb.records import asdict

OTHERS = "create_table: {table: others, key: [id], fields: [{name: id, type: integer}]}"
OTHERS_X = "add_field: {table: others, field: {name: x, type: string, default: none}}"


@pytest.fixture
def old(workspace: Workspace) -> Database:
    return begin_with_three(workspace)


@pytest.fixture
def first(workspace: Workspace, old: Database) -> Database:
    """A process whose files end at the first migration, also where there are others."""
    return workspace.open(serve_as=1)


def roll_back_blue(workspace: Workspace) -> Database:
    """Add a color, which is blue in one record, and roll it back; the process goes on with it."""
    workspace.write(2, ADD_COLOR)
    new = workspace.open()
    new.table("items").update(1, color="blue")
    rollback.roll_back(workspace.connect())
    return new


def is_swept(workspace: Workspace) -> bool:
    """Whether nothing is left of what was kept."""
    storage = workspace.connect()
    forget_migrations(storage)
    sweep_chain_state(storage)
    state = read_chain_state(storage.connection())
    rows = workspace.execute("SELECT count(*) FROM zapdb_archives")
    return not (state.reapplied or state.forgotten) and rows == [(0,)]


@pytest.mark.on_each_engine
def test_its_values_come_back(workspace: Workspace, old: Database) -> None:
    new = roll_back_blue(workspace)
    old.admin.run_jobs()
    new.table("items").update(2, color="green")
    old.table("items").update(1, title="changed")
    up(workspace)
    expected = {0: "red", 1: "blue", 2: "green"}
    assert values(old, "color") == values(new, "color") == expected
    old.table("items").update(0, color="black")
    new.table("items").update(2, title="changed")
    assert not is_swept(workspace)
    old.admin.run_jobs()
    assert is_swept(workspace)
    assert values(old, "color") == values(workspace.open(), "color") == expected | {0: "black"}
    assert not [report for report in old.admin.verify() if report.problems]


def test_what_was_not_converted_is_as_it_was(workspace: Workspace, old: Database) -> None:
    """A rollback that is taken back soon costs no conversion."""
    keep(workspace)
    workspace.write(2, ADD_COLOR)
    new = workspace.open()
    new.table("items").update(1, color="blue")
    new.admin.run_jobs()
    new.close()
    rollback.roll_back(workspace.connect())
    up(workspace)
    assert [report.progress.written for report in old.admin.run_jobs()] == [0]
    assert is_swept(workspace)
    assert values(old, "color") == {0: "red", 1: "blue", 2: "red"}


def test_back_and_forth(workspace: Workspace, old: Database) -> None:
    """An archived value of the first time is no value of the second one."""
    workspace.write(2, ADD_COLOR)
    new = workspace.open()
    for color in "blue", "red", "green", "red":
        new.table("items").update(1, color=color)
        rollback.roll_back(workspace.connect())
        old.admin.run_jobs()
        assert values(new, "color")[1] == color
        up(workspace)
        assert values(old, "color")[1] == color


def test_pipelines_do_not_take_it_back(workspace: Workspace, old: Database) -> None:
    new = roll_back_blue(workspace)
    options = ["-d", workspace.address, "-m", str(workspace.directory)]
    refused = run_here(["migrate", "up", *options])
    assert refused.status == 3
    assert "0002_test" in refused.err
    assert "`zapdb migrate up --again`" in refused.err
    done = run_here(["migrate", "up", "--again", *options])
    assert done.status == 0
    assert "applied 0002_test" in done.out
    assert values(old, "color")[1] == "blue"
    assert "rolled back" not in run_here(["migrate", "status", *options]).out
    assert "rolled back" not in run_here(["cluster", "nodes", "-d", workspace.address]).out
    new.table("items").update(1, color="green")


def test_what_is_not_kept_is_stored_anew(workspace: Workspace, old: Database) -> None:
    workspace.write(2, ADD_COLOR)
    with workspace.open() as new:
        new.table("items").update(1, color="blue")
    rollback.roll_back(workspace.connect())
    with pytest.raises(PendingMigrations):
        migrate_up(workspace.connect(), DEFAULT_TENANT, workspace.directory)
    up(workspace)
    assert values(old, "color") == {0: "red", 1: "blue", 2: "red"} | {1: "red"}


def test_others_are_stored_behind_it(workspace: Workspace, old: Database) -> None:
    new = roll_back_blue(workspace)
    workspace.write(3, ADD_WEIGHT)
    up(workspace)
    assert values(old, "weight") == {0: 7, 1: 7, 2: 7}
    assert values(new, "color") == values(old, "color") == {0: "red", 1: "blue", 2: "red"}


def test_several_come_back_in_their_order(workspace: Workspace, old: Database) -> None:
    workspace.write(2, LENGTH)
    workspace.write(3, LENGTH.replace("length", "area").replace("size * 2", "length * 10"))
    new = workspace.open()
    new.table("items").update(1, length=50)
    new.table("items").update(2, area=7)
    rollback.roll_back(workspace.connect(), 1)
    old.admin.run_jobs()
    up(workspace)
    assert values(old, "length") == {0: 0, 1: 50, 2: 4}
    assert values(old, "area") == {0: 0, 1: 20, 2: 7}


def test_older_code_makes_again_what_follows(
    workspace: Workspace, old: Database, first: Database
) -> None:
    workspace.write(2, LENGTH)
    new = workspace.open()
    for key in range(3):
        new.table("items").update(key, length=100)
    rollback.roll_back(workspace.connect())
    old.admin.run_jobs()
    up(workspace)
    first.table("items").update(1, size=11)
    first.table("items").update(2, title="x")
    assert values(old, "length") == values(new, "length") == {0: 100, 1: 22, 2: 100}


def test_a_tenant_that_has_yet_to_come_to_it(workspace: Workspace, old: Database) -> None:
    """Its values are kept as long as the tenant stays where it is."""
    old.admin.create_tenant("acme")
    acme = old.for_tenant("acme")
    acme.table("items").insert(id=1, title="a", size=1)
    workspace.write(2, ADD_COLOR)
    new = workspace.open()
    there = new.for_tenant("acme")
    there.table("items").update(1, color="blue")
    rollback.roll_back(workspace.connect())
    acme.admin.run_jobs()
    old.admin.set_setting("schema_changes", "refuse", tenant="acme")
    up(workspace)
    assert not is_swept(workspace)
    assert values(there, "color") == {1: "blue"}
    there.table("items").update(1, color="green")
    acme.table("items").update(1, title="b")
    assert "color" not in contents(acme)[1]
    assert values(there, "color") == {1: "green"}
    old.admin.set_setting("schema_changes", None, tenant="acme")
    assert (
        run_here(
            [
                "migrate",
                "up",
                "-m",
                str(workspace.directory),
                "-d",
                workspace.address,
                "--tenant",
                "acme",
            ]
        ).status
        == 0
    )
    assert values(acme, "color") == values(there, "color") == {1: "green"}
    acme.admin.run_jobs()
    old.admin.run_jobs()
    assert is_swept(workspace)


def test_a_tenant_that_is_due_at_another_one(workspace: Workspace, old: Database) -> None:
    """It has the number of the one that is applied again, and has yet to come to it."""
    old.admin.create_tenant("acme")
    acme = old.for_tenant("acme")
    acme.table("items").insert(id=1, title="a", size=1)
    color = workspace.write(2, ADD_COLOR)
    text = color.read_text()
    new = workspace.open()
    there = new.for_tenant("acme")
    rollback.roll_back(workspace.connect())
    workspace.write(2, ADD_WEIGHT)
    workspace.open().for_tenant("acme").close()
    leave_tenants_due(workspace)
    color.write_text(text)
    up(workspace)
    assert not is_swept(workspace)
    there.table("items").update(1, color="blue")
    assert values(there, "color") == {1: "blue"}
    assert "color" not in contents(acme)[1]
    rollback.roll_back(workspace.connect(), 2)
    assert values(acme, "color") == {1: "blue"}


def test_a_due_tenant_reads_what_came_back(workspace: Workspace, old: Database) -> None:
    """It has values in the archive when the migration is rolled back again."""
    new = roll_back_blue(workspace)
    old.admin.run_jobs()
    new.close()
    up(workspace)
    leave_tenants_due(workspace)
    assert values(old, "color") == {0: "red", 1: "blue", 2: "red"}
    forget_migrations(workspace.connect())
    assert values(old, "color") == {0: "red", 1: "blue", 2: "red"}
    with pytest.raises(UsageError, match="have yet to follow"):
        old.admin.forget_rolled_back()
    rollback.roll_back(workspace.connect())
    assert old.admin.forget_rolled_back() == 1
    old.admin.run_jobs()
    assert is_swept(workspace)


def test_what_is_forgotten_goes_with_its_record(workspace: Workspace, old: Database) -> None:
    new = roll_back_blue(workspace)
    old.table("items").update(1, title="x")
    new.close()
    rollback.forget(workspace.connect(), now=True)  # a sweep has yet to come
    old.table("items").delete(1)
    assert workspace.execute("SELECT count(*) FROM zapdb_archives") == [(0,)]
    assert is_swept(workspace)


def test_a_table_comes_back(workspace: Workspace, old: Database) -> None:
    keep(workspace)
    workspace.write(2, OTHERS)
    with workspace.open() as new:
        new.table("others").insert(id=1)
    rollback.roll_back(workspace.connect())
    up(workspace)
    with workspace.open() as new:
        assert new.table("others").count() == 1


def test_a_unique_index_is_built_again(workspace: Workspace, old: Database) -> None:
    workspace.write(
        2,
        "add_field: {table: items, field: {name: code, type: integer}, fill: {expression: id}}",
        "create_index: {table: items, index: codes, fields: [{field: code}], unique: true}",
    )
    new = workspace.open()
    rollback.roll_back(workspace.connect())
    new.table("items").update(1, code=100)
    new.table("items").update(2, code=100)  # nobody is bound
    assert values(new, "code") == {0: 0, 1: 100, 2: 100}
    options = ["-d", workspace.address, "-m", str(workspace.directory)]
    rehearsed = run_here(["migrate", "rehearse", *options])
    assert rehearsed.status == 1
    assert "codes" in rehearsed.out
    done = run_here(["migrate", "up", "--again", *options])
    assert done.status == 1
    with pytest.raises(UniqueViolation):
        old.table("items").update(0, code=100)
    new.table("items").update(2, code=2)
    new.admin.run_jobs()
    assert [one.id for one in old.table("items").where(code=100)] == [1]


def test_a_preview_has_the_values(workspace: Workspace, old: Database) -> None:
    roll_back_blue(workspace)
    old.admin.run_jobs()
    workspace.write(3, ADD_WEIGHT)
    with workspace.open(apply="never", preview=True) as future:
        assert values(future, "color") == {0: "red", 1: "blue", 2: "red"}
        assert values(future, "weight") == {0: 7, 1: 7, 2: 7}


def test_erasing_a_fields_past_leaves_what_is_there_now(
    workspace: Workspace, old: Database, tmp_path: Path
) -> None:
    old.admin.set_setting("change_log", "on")
    old.history.start(tmp_path / "past")
    roll_back_blue(workspace)
    old.admin.run_jobs()
    up(workspace)
    old.history.flush()
    old.history.erase_fields("items", "color")
    assert values(old, "color") == {0: "red", 1: "blue", 2: "red"}


@pytest.mark.on_each_engine
@pytest.mark.parametrize("is_followed", [True, False])
def test_its_past(workspace: Workspace, old: Database, tmp_path: Path, is_followed: bool) -> None:
    """What was kept is in no change: a history that follows in time reads it from the records. By
    the log alone, a moment is told back to when the migration was applied again."""
    old.admin.set_setting("change_log", "on")
    if is_followed:
        old.history.start(tmp_path / "past")
    workspace.write(2, LENGTH)
    new = workspace.open()
    states = list[tuple[int, dict[int, Any]]]()

    def note() -> None:
        states.append((old.change_log.end(), contents(old)))
        if is_followed:
            old.history.flush()

    new.table("items").update(1, length=100)
    note()
    rollback.roll_back(workspace.connect())
    old.admin.run_jobs()
    new.table("items").update(2, length=7)
    old.table("items").update(1, title="x")
    note()
    since = len(states)
    up(workspace)
    for write in (
        lambda: old.table("items").update(0, title="y"),
        lambda: new.table("items").update(1, length=5),
        lambda: new.table("items").update(2, size=8),
        old.admin.run_jobs,
        lambda: new.table("items").delete(1),
    ):
        note()
        write()
    note()
    for moment, state in states[0 if is_followed else since :]:
        past = {one.id: asdict(one) for one in old.at(moment).table("items").scan()}
        assert past == state
    if is_followed:
        assert not old.history.verify(sample=3).problems


def test_a_history_that_comes_late_has_a_gap(
    workspace: Workspace, old: Database, tmp_path: Path
) -> None:
    old.admin.set_setting("change_log", "on")
    old.history.start(tmp_path / "past")
    workspace.write(2, LENGTH)
    new = workspace.open()
    new.table("items").update(1, length=100)
    rollback.roll_back(workspace.connect())
    old.admin.run_jobs()
    old.history.flush()
    up(workspace)
    again = old.change_log.end()
    new.table("items").update(2, title="x")
    workspace.write(3, LENGTH.replace("length", "area"))
    up(workspace)
    old.history.flush()
    with pytest.raises(HistoryGap):
        list(old.at(again).table("items").scan())
    past = {one.id: asdict(one) for one in old.at(old.change_log.end()).table("items").scan()}
    assert past == contents(old)
    assert past[1]["length"] == 100


@pytest.mark.long_on("postgresql")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.on_each_engine
def test_a_fault_at_each_statement(
    workspace: Workspace, old: Database, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything is as it was, and nothing is in the way of trying again."""
    new = roll_back_blue(workspace)
    old.admin.run_jobs()
    expected = {0: "red", 1: "blue", 2: "red"}
    storage, struck = workspace.connect(), list[str]()
    faults = Faults(workspace, storage, way, lasting=False)
    faults.install(monkeypatch)
    choice = MigrationChoice(again=True)
    for call in itertools.count(1):
        faults.arm(call)
        error = error_of(lambda: migrate_up(storage, DEFAULT_TENANT, workspace.directory, choice))
        if error is None:
            break
        struck.append(faults.struck[0])
        workspace.execute("DELETE FROM zapdb_leases WHERE substr(name, 1, 8) = 'catalog/'")
        assert values(new, "color") == expected
    faults.arm(0)
    assert len(struck) > 15
    assert values(old, "color") == values(new, "color") == expected
    old.admin.run_jobs()
    assert is_swept(workspace)


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_a_mirror_that_comes_when_all_is_swept(
    workspace: Workspace, old: Database, place: Place
) -> None:
    old.admin.set_setting("change_log", "on")
    roll_back_blue(workspace)
    old.admin.run_jobs()
    mirror(workspace.follow(), place)
    up(workspace)
    old.admin.run_jobs()
    assert is_swept(workspace)
    db = workspace.follow()
    mirror(db, place)
    check_mirror(db, place)


def test_a_past_that_is_read_when_all_is_swept(
    workspace: Workspace, old: Database, tmp_path: Path
) -> None:
    old.admin.set_setting("change_log", "on")
    old.history.start(tmp_path / "past")
    roll_back_blue(workspace)
    old.admin.run_jobs()
    old.history.flush()
    up(workspace)
    old.admin.run_jobs()
    assert is_swept(workspace)
    moment, state = old.change_log.end(), contents(old)
    workspace.write(3, ADD_WEIGHT)
    up(workspace)
    try:
        past = {one.id: asdict(one) for one in old.at(moment).table("items").scan()}
    except (HistoryBehind, HistoryGap):
        return
    assert past == state


def test_a_past_by_the_schema_of_now(workspace: Workspace, old: Database) -> None:
    """It is refused, whatever is swept: the values that came back are none of then."""
    old.admin.set_setting("change_log", "on")
    old.history.start(workspace.directory.parent / "past")
    roll_back_blue(workspace)
    old.admin.run_jobs()
    old.history.flush()
    moment = old.change_log.end()
    up(workspace)
    old.history.flush()
    answers = list[object]()
    for _ in range(2):
        db = workspace.open()
        try:
            found = db.at(moment).table("items", schema="now").scan()
            answers.append({one.id: one.color for one in found})
        except UsageError as error:
            answers.append(type(error))
        old.admin.run_jobs()
        assert is_swept(workspace)
    assert answers == [UsageError, UsageError]


def test_what_is_kept_of_a_discarded_table_goes_with_it(
    workspace: Workspace, old: Database
) -> None:
    keep(workspace)
    workspace.write(2, OTHERS)
    workspace.write(3, OTHERS_X)
    with workspace.open() as new:
        new.table("others").insert(id=1, x="secret")
    rollback.roll_back(workspace.connect(), 2)
    old.admin.run_jobs()
    rollback.roll_back(workspace.connect(), 1)
    assert old.admin.forget_rolled_back() == 2
    workspace.follow().close()
    old.admin.run_jobs()
    assert is_swept(workspace)


def test_a_due_tenant_keeps_its_table(workspace: Workspace, old: Database) -> None:
    keep(workspace)
    old.admin.create_tenant("acme")
    workspace.write(2, OTHERS)
    with workspace.open() as new:
        new.table("others").insert(id=1)
        new.for_tenant("acme").table("others").insert(id=1)
    leave_tenants_due(workspace)
    up(workspace)
    with workspace.open() as new:
        assert new.for_tenant("acme").table("others").count() == 1
        assert new.table("others").count() == 1


def test_nobody_goes_on_archiving_what_was_forgotten(workspace: Workspace, old: Database) -> None:
    new = roll_back_blue(workspace)
    other = workspace.follow()
    other.table("items").insert(id=9, title="y")  # it has heard of the rollback
    new.close()
    forget_migrations(workspace.connect(), now=True)
    other.table("items").update(1, title="y")
    with workspace.follow() as third:
        third.table("items").delete(1)
        assert workspace.execute("SELECT count(*) FROM zapdb_archives") == [(0,)]
        assert not [report for report in third.admin.verify() if report.problems]


def test_a_new_tenant_has_nothing_that_was_kept(workspace: Workspace, old: Database) -> None:
    roll_back_blue(workspace)
    old.admin.run_jobs()
    up(workspace)
    old.admin.create_tenant("late")
    old.admin.run_jobs()
    assert is_swept(workspace)


def test_sweeping_the_chain_costs_the_same_with_many_tenants(
    workspace: Workspace, old: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(12):
        old.admin.create_tenant(f"t{number}")
    roll_back_blue(workspace)
    old.admin.run_jobs()
    up(workspace)
    storage = workspace.connect()
    sent = count_statements(monkeypatch, storage)
    sweep_chain_state(storage)
    assert sent() < 12


def test_a_reader_of_a_tenant_that_has_yet_to_come_to_it(
    workspace: Workspace, old: Database
) -> None:
    keep(workspace)
    old.admin.create_tenant("acme")
    old.for_tenant("acme")
    old.admin.set_setting("schema_changes", "refuse", tenant="acme")
    workspace.write(2, OTHERS)
    workspace.open().close()
    rollback.roll_back(workspace.connect())
    up(workspace)
    with pytest.raises(PendingMigrations):
        workspace.open(tenant="acme", apply="never", read_only=True)


def test_processes_that_are_not_let_in(workspace: Workspace, old: Database) -> None:
    """`serve_rolled_back` says nothing of a migration that is on the chain again."""
    keep(workspace)
    workspace.write(2, ADD_COLOR)
    workspace.open().close()
    rollback.roll_back(workspace.connect())
    old.admin.set_setting("serve_rolled_back", "refuse")
    with pytest.raises(ServedSchemaUnavailable):
        workspace.open()
    choice = MigrationChoice(again=True)
    migrate_up(workspace.connect(), DEFAULT_TENANT, workspace.directory, choice)
    assert values(workspace.open(), "color") == {0: "red", 1: "red", 2: "red"}
