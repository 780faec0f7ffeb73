"""Migrations that were rolled back and are kept: processes whose files have them go on."""

from __future__ import annotations

import json
import logging
import shutil
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import zapdb
from tests.cli.program import Result, run_here
from tests.contract.rollbacks import begin_with_three
from tests.contract.tables import ADD_COLOR, ADD_WEIGHT
from tests.support import Workspace, count_statements
from zapdb.activation import rollback
from zapdb.activation.up import MigrationChoice, migrate_up
from zapdb.catalog import DEFAULT_TENANT
from zapdb.database import Database
from zapdb.errors import (
    ActivationPending,
    LeaseLost,
    PendingMigrations,
    ServedSchemaUnavailable,
    UsageError,
)
from zapdb.records import asdict

LENGTH = """\
add_field: {table: items, field: {name: length, type: integer}, fill: {expression: size * 2}}"""


def contents(db: Database) -> dict[int, dict[str, Any]]:
    return {record.id: asdict(record) for record in db.table("items").scan()}


def values(db: Database, field: str) -> dict[int, Any]:
    return {key: record[field] for key, record in contents(db).items()}


@pytest.fixture
def old(workspace: Workspace) -> Database:
    return begin_with_three(workspace)


@pytest.mark.on_each_engine
def test_a_process_goes_on_with_its_schema(workspace: Workspace, old: Database) -> None:
    workspace.write(2, ADD_COLOR)
    new = workspace.open()
    new.table("items").update(1, color="blue")
    rollback.roll_back(workspace.connect())
    assert "color" not in contents(old)[1]
    assert values(new, "color") == {0: "red", 1: "blue", 2: "red"}
    old.table("items").update(1, title="changed")
    assert contents(new)[1] | {"title": "changed", "color": "blue"} == contents(new)[1]
    new.table("items").update(2, color="green")
    new.table("items").insert(id=3, title="new", color="black")
    old.table("items").insert(id=4, title="old")
    assert values(new, "color") == {0: "red", 1: "blue", 2: "green", 3: "black", 4: "red"}
    assert list(contents(old)) == [0, 1, 2, 3, 4]
    new.table("items").update(2, color="red")
    new.table("items").delete(3)
    new.table("items").insert(id=3, title="again")
    assert values(new, "color") == {0: "red", 1: "blue", 2: "red", 3: "red", 4: "red"}
    assert workspace.execute("SELECT count(*) FROM zapdb_archives") == [(1,)]


def keep(workspace: Workspace, seconds: int = 3600) -> None:
    with workspace.follow() as db:
        db.admin.set_setting("rolled_back_kept_seconds", str(seconds))


def test_a_process_may_be_started_while_the_migration_is_kept(
    workspace: Workspace, old: Database, caplog: pytest.LogCaptureFixture
) -> None:
    workspace.write(2, ADD_COLOR)
    with workspace.open() as new:
        new.table("items").update(1, color="blue")
    keep(workspace)
    rollback.roll_back(workspace.connect())
    old.admin.run_jobs()
    with caplog.at_level(logging.WARNING, "zapdb.nodes"):
        new = workspace.open()
    events = [getattr(one, "zapdb_event", None) for one in caplog.records]
    assert "node.serves_rolled_back" in events
    assert values(new, "color") == {0: "red", 1: "blue", 2: "red"}
    with workspace.open(apply="never", read_only=True) as reader:
        assert values(reader, "color") == {0: "red", 1: "blue", 2: "red"}
    old.admin.set_setting("serve_rolled_back", "refuse")
    with pytest.raises(ServedSchemaUnavailable, match="a migration that was rolled back"):
        workspace.open()
    new.table("items").update(0, color="green")  # running ones go on
    old.admin.set_setting("serve_rolled_back", "allow")
    workspace.write(3, ADD_WEIGHT)
    with pytest.raises(PendingMigrations):
        workspace.open()  # it leads on from the migration, and was never stored
    workspace.remove(3)
    with pytest.raises(UsageError, match="are served the schema of the migration"):
        old.admin.forget_rolled_back()
    new.close()
    assert old.admin.forget_rolled_back() == 1
    assert workspace.execute("SELECT count(*) FROM zapdb_archives") == [(0,)]
    with pytest.raises(PendingMigrations):
        workspace.open()


def test_it_is_kept_for_as_long_as_the_setting_says(workspace: Workspace, old: Database) -> None:
    workspace.write(2, ADD_COLOR)
    workspace.open().close()
    keep(workspace)
    storage = workspace.connect()
    rollback.roll_back(storage)
    assert rollback.forget(storage) == ()
    workspace.execute("UPDATE zapdb_migrations SET rolled_back_at = rolled_back_at - 3600000000")
    assert [one.label for one in rollback.forget(storage)] == ["0002_test"]
    assert rollback.forget(storage) == ()


def test_what_follows_from_a_written_field_is_made_again(
    workspace: Workspace, old: Database
) -> None:
    workspace.write(2, LENGTH)
    new = workspace.open()
    new.table("items").update(1, length=100)
    new.table("items").update(2, length=100)
    rollback.roll_back(workspace.connect())
    old.admin.run_jobs()
    old.table("items").update(1, size=7)
    old.table("items").update(2, title="else", size=2)  # as it was
    assert values(new, "length") == {0: 0, 1: 14, 2: 100}
    new.table("items").update(2, size=9, length=5)
    new.table("items").update(1, size=8)  # its own schema derives nothing
    assert values(new, "length") == {0: 0, 1: 14, 2: 5}
    assert values(old, "size") == {0: 0, 1: 8, 2: 9}


def test_another_migration_with_its_number_is_stored_beside_it(
    workspace: Workspace, old: Database
) -> None:
    workspace.write(2, ADD_COLOR)
    new = workspace.open()
    rollback.roll_back(workspace.connect())
    files = shutil.copytree(workspace.directory, workspace.directory.parent / "files")
    workspace.write(2, ADD_WEIGHT)
    newer = workspace.open()
    newer.table("items").update(1, weight=70)
    new.table("items").update(1, color="blue")
    with zapdb.open(workspace.address, migrations=files) as other:
        other.table("items").update(2, color="green")
    assert values(new, "color") == {0: "red", 1: "blue", 2: "green"}
    assert values(newer, "weight") == {0: 7, 1: 70, 2: 7}


def test_tenants_for_which_it_was_never_active(workspace: Workspace, old: Database) -> None:
    """Processes that have such a tenant open have not heard of the rollback."""
    old.admin.create_tenant("acme")
    acme = old.for_tenant("acme")
    acme.table("items").insert(id=1, title="a", size=1)
    old.admin.set_setting("schema_changes", "refuse", tenant="acme")
    workspace.write(2, LENGTH)
    new = workspace.open()
    rollback.roll_back(workspace.connect())
    there = new.for_tenant("acme")
    there.table("items").update(1, length=50)
    assert values(there, "length") == {1: 50}
    acme.table("items").update(1, title="b")
    assert values(there, "length") == {1: 50}
    acme.table("items").update(1, size=4)
    assert values(there, "length") == {1: 8}


def test_a_sequence_goes_on(workspace: Workspace, old: Database) -> None:
    workspace.write(
        2,
        "add_field: {table: items, field: {name: serial, type: integer, generated: sequence},"
        " fill: {value: 0}}",
    )
    new = workspace.open()
    made = [new.table("items").insert(id=10 + at, title="x").serial for at in range(2)]
    rollback.roll_back(workspace.connect())
    made += [new.table("items").insert(id=20 + at, title="x").serial for at in range(2)]
    assert made == [1, 2, 3, 4]


def test_the_past_is_that_of_the_active_schema(
    workspace: Workspace, old: Database, tmp_path: Path
) -> None:
    old.admin.set_setting("change_log", "on")
    old.history.start(tmp_path / "past")
    workspace.write(2, LENGTH)
    new = workspace.open()
    new.table("items").update(1, length=100)
    rollback.roll_back(workspace.connect())
    states = list[tuple[int, dict[int, Any]]]()
    for at, write in enumerate(
        (
            lambda: new.table("items").update(1, length=5),
            lambda: new.table("items").update(2, title="new", length=9),
            lambda: old.table("items").update(2, size=3),
            old.admin.run_jobs,
            lambda: new.table("items").insert(id=7, title="x", length=1),
            lambda: new.table("items").delete(1),
        )
    ):
        write()
        states.append((old.change_log.end(), contents(old)))
        if at % 2:
            old.history.flush()
    for moment, state in states:
        past = {one.id: asdict(one) for one in old.at(moment).table("items").scan()}
        assert past == state
    assert not old.history.verify(sample=3).problems


@pytest.mark.on_each_engine
def test_writes_take_one_statement_more_only_where_kept_values_follow(
    workspace: Workspace, old: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def count(field: str, value: object) -> int:
        with monkeypatch.context() as patched:
            sent = count_statements(patched, old._storage, of_this_thread=True)
            old.table("items").update(1, **{field: value})
            return sent()

    count("title", "the first one opens a connection")
    before = count("title", "a"), count("size", 11)
    workspace.write(2, LENGTH)
    new = workspace.open()
    rollback.roll_back(workspace.connect())
    old.admin.run_jobs()
    old.table("items").count()  # it has heard of it
    after = count("title", "b"), count("size", 12)
    assert (after[0] - before[0], after[1] - before[1]) == (0, 1)
    assert values(new, "length")[1] == 24


OTHERS = "create_table: {table: others, key: [id], fields: [{name: id, type: integer}]}"
BODY = "add_field: {table: items, field: {name: body, type: string, optional: true}}"


def up(workspace: Workspace) -> None:
    storage = workspace.connect()
    migrate_up(storage, DEFAULT_TENANT, workspace.directory, MigrationChoice(again=True))


@pytest.mark.on_each_engine
def test_one_rollback_after_the_other(workspace: Workspace, old: Database) -> None:
    """The process is served neither of the migrations of the second one, and has them all."""
    workspace.write(2, ADD_COLOR)
    workspace.write(3, ADD_WEIGHT)
    new = workspace.open()
    new.table("items").update(1, color="blue", weight=1)
    rollback.roll_back(workspace.connect(), 2)
    new.table("items").update(2, color="green")
    rollback.roll_back(workspace.connect(), 1)
    old.table("items").update(1, title="x")
    new.table("items").update(0, color="black")
    assert values(new, "color") == {0: "black", 1: "blue", 2: "green"}
    assert values(new, "weight") == {0: 7, 1: 1, 2: 7}


def test_an_evicted_process_keeps_no_table(workspace: Workspace, old: Database) -> None:
    workspace.write(2, OTHERS)
    workspace.write(3, ADD_WEIGHT)
    new = workspace.open()
    rollback.roll_back(workspace.connect(), 2)
    new.table("others").insert(id=1)
    rollback.roll_back(workspace.connect(), 1, evict=True)
    with pytest.raises(LeaseLost):
        new.table("items").update(1, weight=1)
    up(workspace)
    with workspace.open() as again:
        assert again.table("others").count() == 0


def test_a_process_without_the_table_does_not_hinder(workspace: Workspace, old: Database) -> None:
    workspace.write(2, ADD_COLOR)
    two = workspace.open()
    workspace.write(3, OTHERS)
    up(workspace)
    rollback.roll_back(workspace.connect(), 1)
    two.table("items").update(1, color="blue")
    assert values(two, "color") == {0: "red", 1: "blue", 2: "red"}


def test_large_values_of_a_tenant_that_was_never_there_stay(
    workspace: Workspace, old: Database
) -> None:
    workspace.write(2, BODY)
    new = workspace.open()
    rollback.roll_back(workspace.connect())
    old.admin.create_tenant("acme")
    old.for_tenant("acme").table("items").insert(id=1, title="t", size=1)
    there, large = new.for_tenant("acme"), "x" * 10_000
    for db in (new, there):
        db.table("items").update(1, body=large)
    old.admin.sweep(older_than_seconds=0)
    for db in (new, there):
        assert db.table("items").get(1).body == large
        assert not [report for report in db.admin.verify() if report.problems]


def test_a_process_that_only_reads_follows_a_migration_that_is_applied_again(
    workspace: Workspace, old: Database
) -> None:
    workspace.write(2, ADD_COLOR)
    workspace.open().close()
    reader = workspace.open(apply="never", read_only=True)
    assert values(reader, "color")[1] == "red"
    rollback.roll_back(workspace.connect())  # which nobody keeps
    with pytest.raises(PendingMigrations):
        reader.table("items").count()
    up(workspace)
    workspace.open(apply="never").table("items").update(1, color="blue")
    assert values(reader, "color")[1] == "blue"


def test_what_waits_for_processes_waits_for_those_with_other_files(
    workspace: Workspace, old: Database
) -> None:
    workspace.write(2, ADD_COLOR)
    new = workspace.open()
    rollback.roll_back(workspace.connect())
    path = workspace.write(2, ADD_WEIGHT)
    path.write_text(path.read_text() + "activation: wait_for_nodes\n")
    for _ in range(2):
        with pytest.raises(ActivationPending, match="waits until every running process"):
            up(workspace)
        assert old.position == 1
        rollback.roll_back(workspace.connect())
    new.close()
    up(workspace)
    assert workspace.open(apply="never").position == 2


def test_of_equal_migrations_a_process_gets_the_newest(workspace: Workspace, old: Database) -> None:
    keep(workspace)
    workspace.write(2, ADD_COLOR)
    workspace.open().close()
    rollback.roll_back(workspace.connect())
    up(workspace)
    second = workspace.open(apply="never")
    second.table("items").update(1, color="blue")
    rollback.roll_back(workspace.connect())
    assert values(workspace.open(apply="never"), "color") == values(second, "color")
    assert values(second, "color") == {0: "red", 1: "blue", 2: "red"}


def test_a_tenant_that_may_not_come_as_far_is_refused(workspace: Workspace, old: Database) -> None:
    old.admin.create_tenant("acme")
    old.admin.set_setting("schema_changes", "refuse", tenant="acme")
    workspace.write(2, OTHERS)
    workspace.write(3, ADD_WEIGHT)
    new = workspace.open()
    rollback.roll_back(workspace.connect(), 2)
    for read_only in (False, True):
        with pytest.raises(PendingMigrations, match="not active for this tenant"):
            workspace.open(apply="never", tenant="acme", read_only=read_only)
    with pytest.raises(PendingMigrations):
        new.for_tenant("acme")


def test_a_running_process_does_not_look_at_its_files_again(
    workspace: Workspace, old: Database
) -> None:
    """After a rollback, they are removed or replaced."""
    for name in ("acme", "zeta"):
        old.admin.create_tenant(name)
        old.for_tenant(name).table("items").insert(id=1, title="x", size=1)
    workspace.write(2, ADD_COLOR)
    new = workspace.open()
    rollback.roll_back(workspace.connect())
    workspace.remove(2)
    up(workspace)
    new.for_tenant("acme").table("items").update(1, color="blue")
    workspace.write(2, LENGTH)
    up(workspace)
    new.for_tenant("zeta").table("items").update(1, color="blue")
    assert values(new.for_tenant("acme"), "color") == {1: "blue"}


def test_erasing_a_fields_past_leaves_what_processes_have_now(
    workspace: Workspace, old: Database, tmp_path: Path
) -> None:
    workspace.write(2, ADD_COLOR)
    new = workspace.open()
    old.admin.set_setting("change_log", "on")
    old.history.start(tmp_path / "past")
    new.table("items").update(1, color="before")
    rollback.roll_back(workspace.connect())
    new.table("items").update(1, color="now")
    old.history.flush()
    old.history.erase_fields("items", "color")
    assert values(new, "color") == {0: "red", 1: "now", 2: "red"}


def test_files_lead_on_from_what_is_stored_again(workspace: Workspace, old: Database) -> None:
    keep(workspace)
    workspace.write(2, ADD_COLOR)
    path = workspace.write(3, ADD_WEIGHT)
    whole = path.read_text()
    workspace.open().close()
    rollback.roll_back(workspace.connect(), 1)
    workspace.remove(3)
    up(workspace)
    path.write_text(whole)
    assert workspace.open(apply="never")._session.served.position == 3
    workspace.write(2, ADD_COLOR.replace("red", "blue"))
    rollback.roll_back(workspace.connect(), 1)
    workspace.remove(3)
    up(workspace)
    path.write_text(whole)
    with pytest.raises(PendingMigrations):  # and not what is kept behind the former one
        workspace.open(apply="never")


def test_files_of_a_longer_line_are_told_by_all_of_it(workspace: Workspace, old: Database) -> None:
    keep(workspace)
    workspace.write(2, ADD_COLOR)
    workspace.write(3, ADD_WEIGHT)
    new = workspace.open()
    files = shutil.copytree(workspace.directory, workspace.directory.parent / "files")
    rollback.roll_back(workspace.connect(), 1)
    workspace.remove(3)
    workspace.write(2, LENGTH)
    up(workspace)
    workspace.write(3, ADD_WEIGHT)
    up(workspace)  # the same file as the kept one's, in another place
    new.table("items").update(1, color="blue", weight=1)
    with zapdb.open(workspace.address, migrations=files) as other:
        assert values(other, "weight") == {0: 7, 1: 1, 2: 7}
    assert values(workspace.open(apply="never"), "weight") == {0: 7, 1: 7, 2: 7}


@pytest.mark.on_each_engine
@pytest.mark.parametrize("what", ["list_kept", "move_end_back"])
def test_a_process_that_opens_meanwhile_finds_what_is_kept_then(
    workspace: Workspace, old: Database, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Nobody goes on with a migration that was forgotten, or rolled back for nobody."""
    if workspace.engine == "sqlite":
        pytest.skip("there is one writer")
    if what == "list_kept":
        keep(workspace)
    workspace.write(2, ADD_COLOR)
    workspace.open().close()
    opened, threads = list[Database](), list[threading.Thread]()
    original = getattr(rollback, what)

    def open_beside(*arguments: Any, **named: Any) -> Any:
        def go() -> None:
            with suppress(PendingMigrations):
                opened.append(workspace.open(apply="never"))

        threads.append(threading.Thread(target=go))
        threads[-1].start()
        threads[-1].join(1)
        return original(*arguments, **named)

    if what == "list_kept":
        rollback.roll_back(workspace.connect())
    with monkeypatch.context() as patched:
        patched.setattr(rollback, what, open_beside)
        with suppress(UsageError):  # it came first
            if what == "list_kept":
                rollback.forget(workspace.connect(), now=True)
            else:
                rollback.roll_back(workspace.connect())
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    for db in opened:
        with suppress(LeaseLost):
            db.table("items").update(1, color="mine")
            old.admin.run_jobs()
            assert values(db, "color")[1] == "mine"


def test_a_sequence_of_a_due_tenant_goes_on(
    workspace: Workspace, old: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(workspace)
    workspace.write(
        2,
        "add_field: {table: items, field: {name: serial, type: integer, generated: sequence},"
        " fill: {value: 0}}",
    )
    workspace.open().close()
    with monkeypatch.context() as patched:
        patched.setattr(rollback, "find_due", lambda _: [])
        rollback.roll_back(workspace.connect())
    items = old.table("items")
    assert [items.insert(id=20 + at, title="x").serial for at in range(2)] == [1, 2]
    items.delete(21)
    with pytest.raises(UsageError, match="have yet to follow"):
        old.admin.forget_rolled_back()
    assert items.insert(id=22, title="y").serial == 3
    rollback.roll_back(workspace.connect())
    assert old.admin.forget_rolled_back() == 1


def test_plans_and_rehearsals_name_what_is_in_the_way(workspace: Workspace, old: Database) -> None:
    workspace.write(2, ADD_COLOR)
    new = workspace.open()
    rollback.roll_back(workspace.connect())
    options = ["-d", workspace.address, "-m", str(workspace.directory)]
    rehearsed = run_here(["migrate", "rehearse", *options])
    assert rehearsed.status == 3
    assert "was rolled back, and is not applied again automatically" in rehearsed.out
    path = workspace.write(2, ADD_WEIGHT)
    path.write_text(path.read_text() + "activation: wait_for_nodes\n")
    planned = run_here(["migrate", "plan", *options]).out
    assert f"{new._node}: schema 0002, rolled back, files end at 0002" in planned
    assert "0002_test waits until it has the file" in planned


def test_whoever_reads_behind_forgetting_is_told(workspace: Workspace, old: Database) -> None:
    keep(workspace)
    workspace.write(2, ADD_COLOR)
    new = workspace.open()
    reader = workspace.open(apply="never", read_only=True)
    rollback.roll_back(workspace.connect())
    assert values(reader, "color")[1] == "red"
    old.admin.create_tenant("acme")
    old.admin.forget_rolled_back(evict=True)
    with pytest.raises(PendingMigrations):
        new.for_tenant("acme")
    with pytest.raises(PendingMigrations):
        reader._session.reload()


def test_an_export_has_the_chain_and_says_what_it_leaves_out(
    workspace: Workspace, old: Database, tmp_path: Path
) -> None:
    """One of a moment at which the migration was active leaves nothing out."""
    old.admin.set_setting("change_log", "on")
    old.history.start(tmp_path / "past")
    workspace.write(2, ADD_COLOR)
    workspace.open().table("items").update(1, color="blue")
    moment = old.change_log.end()
    old.history.flush()
    rollback.roll_back(workspace.connect())
    note = "left out: 0002_test, which was rolled back and is kept"

    def call(*command: str, database: str = workspace.address) -> Result:
        done = run_here([*command, "-d", database])
        assert done.status == 0, done.err
        return done

    assert note in call("export", str(tmp_path / "now")).err
    assert note in call("export", str(tmp_path / "all"), "--all-tenants").err
    told = json.loads(call("export", str(tmp_path / "told"), "--json").out)
    assert told["left_out"] == ["0002_test"]
    then = call("history", "export", str(tmp_path / "then"), "--at", str(moment))
    assert "left out" not in then.err
    for name, is_left_out in (("now", True), ("all", True), ("then", False)):
        other = f"sqlite:///{tmp_path}/{name}.db"
        loaded = call("import", str(tmp_path / name), database=other)
        assert (note in loaded.err) == is_left_out
        with zapdb.open(other) as db:
            assert ("color" in contents(db)[1]) != is_left_out


def test_equal_tables_may_have_been_left_in_other_ways(workspace: Workspace, old: Database) -> None:
    """Two migrations drop a field, and say in other ways what older code is to find."""
    drop = (
        "drop_field: {{table: items, field: size,"
        " restore: {{archive: true, otherwise: {{value: {}}}}}}}"
    )
    first = workspace.open(serve_as=1)
    workspace.write(2, drop.format(6))
    kept = workspace.open()
    rollback.roll_back(workspace.connect())
    workspace.write(2, drop.format(7))
    active = workspace.open()
    kept.table("items").insert(id=8, title="kept")
    active.table("items").insert(id=9, title="active")
    assert values(first, "size") == {0: 0, 1: 1, 2: 2, 8: 6, 9: 7}
    old.admin.run_jobs()
    rollback.roll_back(workspace.connect())
    assert values(old, "size") == {0: 0, 1: 1, 2: 2, 8: 6, 9: 7}
