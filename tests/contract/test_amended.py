"""The newest migration's file is edited, and amended: what both texts make is the same."""

from __future__ import annotations

import itertools
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.cli.program import Result, run_here
from tests.contract.tables import ITEMS
from tests.contract.test_kept_migrations import contents, values
from tests.support import WAYS, Faults, Way, Workspace, error_of
from zapdb.activation import load_tenant_catalog, rollback
from zapdb.activation.amending import amend as amend_migration
from zapdb.activation.amending import find_amendment
from zapdb.catalog import DEFAULT_TENANT
from zapdb.database import Database
from zapdb.errors import UsageError
from zapdb.migrations import list_files
from zapdb.records import asdict
from zapdb.storage import TransactionMode

COLOR = "add_field: {table: items, field: {name: color, type: string}, fill: {value: red}}"
WEIGHT = "add_field: {table: items, field: {name: weight, type: integer}, fill: {value: 7}}"
TWICE = (
    "add_field: {table: items, field: {name: twice, type: integer}, fill: {expression: size * 2}}"
)
TO_DECIMAL = (
    "change_type: {table: items, field: size, type: decimal, scale: 1, default: '0.0',"
    " up: 'decimal(size, 1, else=0)', down: 'integer(size, else=0)', reversibility: lossy,"
    " because: it is tried}"
)


@pytest.fixture
def old(workspace: Workspace) -> Database:
    """A process that knows no files, with three records of before any other migration."""
    workspace.write(1, ITEMS.replace(", check: size >= 0", ""))
    with workspace.open() as db:
        db.table("items").insert_many({"id": n, "title": f"title {n}", "size": n} for n in range(3))
    return workspace.follow()


def amend(workspace: Workspace, *more: str) -> Result:
    place = ["-m", str(workspace.directory), "-d", workspace.address]
    return run_here(["migrate", "amend", *place, *more])


def done(workspace: Workspace, *operations: str) -> Result:
    workspace.write(2, *operations)
    result = amend(workspace, "--yes")
    assert result.status == 0, result.err
    return result


@pytest.mark.on_each_engine
@pytest.mark.parametrize("converted", [True, False])
def test_fields_that_both_make_keep_their_values(
    workspace: Workspace, old: Database, converted: bool
) -> None:
    workspace.write(2, COLOR, TWICE)
    new = workspace.open()
    new.table("items").update(1, color="blue", twice=9)
    new.close()
    if converted:
        old.admin.run_jobs()
    said = done(workspace, WEIGHT, COLOR).out
    assert "the values of twice are lost" in said
    assert "color" not in said.split("lost")[1]
    assert values(old, "color") == {0: "red", 1: "blue", 2: "red"}
    assert values(old, "weight") == {0: 7, 1: 7, 2: 7}
    assert "twice" not in contents(old)[1]
    old.table("items").update(2, color="green")
    done(workspace, TWICE, WEIGHT, COLOR)
    assert values(old, "color") == {0: "red", 1: "blue", 2: "green"}
    assert values(old, "twice") == {0: 0, 1: 2, 2: 4}
    old.admin.run_jobs()
    assert values(workspace.open(), "color") == {0: "red", 1: "blue", 2: "green"}
    assert not [report for report in old.admin.verify() if report.problems]
    assert workspace.execute("SELECT count(*) FROM zapdb_archives") == [(0,)]


@pytest.mark.on_each_engine
def test_running_processes_go_on(workspace: Workspace, old: Database) -> None:
    """A server that has not loaded its code again shares what both texts make."""
    workspace.write(2, COLOR, TWICE)
    server = workspace.open()
    done(workspace, COLOR, WEIGHT)
    server.table("items").update(1, color="blue", twice=9)
    assert values(old, "color") == values(server, "color") == {0: "red", 1: "blue", 2: "red"}
    old.table("items").update(2, color="green", weight=1)
    assert values(server, "color") == {0: "red", 1: "blue", 2: "green"}
    assert values(server, "twice") == {0: 0, 1: 9, 2: 4}
    server.table("items").insert(id=3, title="x", color="black", twice=1)
    assert contents(old)[3] | {"color": "black", "weight": 7} == contents(old)[3]
    old.table("items").update(1, size=50)
    assert values(server, "twice")[1] == 100
    server.close()
    with workspace.open() as server:
        assert values(server, "weight") == {0: 7, 1: 7, 2: 1, 3: 7}


def test_a_type_that_changes_in_both(workspace: Workspace, old: Database) -> None:
    workspace.write(2, TO_DECIMAL)
    new = workspace.open()
    new.table("items").update(1, size=Decimal("1.5"))
    new.close()
    done(workspace, TO_DECIMAL, COLOR)
    assert str(values(old, "size")[1]) == "1.5"
    done(workspace, TO_DECIMAL.replace("else=0)', down", "else=1)', down"))
    assert str(values(old, "size")[1]) == "0.0"  # made anew, of what the way back gives


def test_what_both_declare(workspace: Workspace, old: Database) -> None:
    kinds = "create_type: {type: kind, enum: [tea, coffee]}"
    field = "add_field: {table: items, field: {name: kind, type: kind}, fill: {value: tea}}"
    workspace.write(2, kinds, field)
    new = workspace.open()
    new.table("items").update(1, kind="coffee")
    new.close()
    done(workspace, kinds, field, WEIGHT)
    assert [str(one) for one in values(old, "kind").values()] == ["tea", "coffee", "tea"]
    said = done(workspace, kinds.replace("coffee]", "coffee, milk]"), field, WEIGHT).out
    assert "the values of kind, weight are lost" in said
    assert [str(one) for one in values(old, "kind").values()] == ["tea", "tea", "tea"]


def test_back_to_the_former_text(workspace: Workspace, old: Database) -> None:
    """It is what it was, if it is kept."""
    workspace.write(2, COLOR, TWICE)
    server = workspace.open()
    server.table("items").update(1, twice=9, color="blue")
    done(workspace, COLOR)
    old.table("items").update(2, color="green")
    done(workspace, COLOR, TWICE)
    assert values(old, "twice") == values(server, "twice") == {0: 0, 1: 9, 2: 4}
    assert values(old, "color") == {0: "red", 1: "blue", 2: "green"}


def test_a_table_is_made_anew(workspace: Workspace, old: Database) -> None:
    others = "create_table: {table: others, key: [id], fields: [{name: id, type: integer}]}"
    workspace.write(2, others, COLOR)
    with workspace.open() as new:
        new.table("others").insert(id=1)
        new.table("items").update(1, color="blue")
    said = done(workspace, others, COLOR, WEIGHT).out
    assert "others: the table is made anew: its records are lost" in said
    assert values(old, "color") == {0: "red", 1: "blue", 2: "red"}
    with workspace.open() as new:
        assert new.table("others").count() == 0
        server = workspace.open()
    workspace.write(2, others, COLOR)
    server.table("others").insert(id=2)
    assert amend(workspace, "--yes").status == 0
    assert values(server, "weight") == {0: 7, 1: 7, 2: 7}
    assert [one.id for one in server.table("others").scan()] == [2]


def test_indexes_and_checks_are_made_anew(workspace: Workspace, old: Database) -> None:
    index = "create_index: {table: items, index: by_size, fields: [{field: size}]}"
    check = "add_check: {table: items, check: small, expression: size < 10}"
    workspace.write(2, index, check)
    workspace.open().close()
    done(workspace, check.replace("10", "100"), index)
    old.admin.run_jobs()
    assert [one.id for one in old.table("items").where(size=1)] == [1]
    old.table("items").update(1, size=50)
    assert not [report for report in old.admin.verify() if report.problems]


def test_what_comes_back_from_before(workspace: Workspace, old: Database) -> None:
    """Values in the archive, of records that were converted back and not forward again."""
    workspace.write(2, COLOR)
    server = workspace.open()
    server.table("items").update(1, color="blue")
    rollback.roll_back(workspace.connect())
    old.admin.run_jobs()
    place = ["-m", str(workspace.directory), "-d", workspace.address]
    assert run_here(["migrate", "up", "--again", *place]).status == 0
    server.close()
    done(workspace, COLOR, WEIGHT)
    assert values(old, "color") == {0: "red", 1: "blue", 2: "red"}
    old.admin.run_jobs()
    assert values(old, "color") == {0: "red", 1: "blue", 2: "red"}


def test_tenants_follow(workspace: Workspace, old: Database) -> None:
    old.admin.create_tenant("acme")
    acme = old.for_tenant("acme")
    acme.table("items").insert(id=1, title="a", size=1)
    workspace.write(2, COLOR)
    with workspace.open() as new:
        new.for_tenant("acme").table("items").update(1, color="blue")
    done(workspace, COLOR, WEIGHT)
    assert contents(acme)[1] | {"color": "blue", "weight": 7} == contents(acme)[1]


def test_its_past(workspace: Workspace, old: Database, tmp_path: Path) -> None:
    old.admin.set_setting("change_log", "on")
    old.history.start(tmp_path / "past")
    old.history.flush()
    states = list[tuple[int, dict[int, Any]]]()

    def note() -> None:
        states.append((old.change_log.end(), contents(old)))
        old.history.flush()

    workspace.write(2, COLOR, TWICE)
    server = workspace.open()
    for act in (
        lambda: server.table("items").update(1, color="blue", twice=9),
        lambda: done(workspace, COLOR, WEIGHT),
        lambda: server.table("items").update(2, color="green", twice=9),
        old.admin.run_jobs,
        lambda: old.table("items").update(0, weight=1),
        lambda: done(workspace, WEIGHT, TWICE, COLOR),
        lambda: old.table("items").update(1, twice=1),
    ):
        act()
        note()
    for moment, state in states:
        past = {one.id: asdict(one) for one in old.at(moment).table("items").scan()}
        assert past == state
    assert not old.history.verify(sample=3).problems


@pytest.mark.long_on("postgresql")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.on_each_engine
def test_a_fault_at_each_statement(
    workspace: Workspace, old: Database, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Either text is there, and never none."""
    workspace.write(2, COLOR, TWICE)
    server = workspace.open()
    server.table("items").update(1, color="blue")
    workspace.write(2, COLOR, WEIGHT)
    files = list_files(workspace.directory)
    expected = {0: "red", 1: "blue", 2: "red"}
    storage, struck = workspace.connect(), list[str]()
    faults = Faults(workspace, storage, way, lasting=False)
    faults.install(monkeypatch)

    def run() -> None:
        with storage.transaction(TransactionMode.READ) as connection:
            catalog = load_tenant_catalog(connection, DEFAULT_TENANT)
        with suppress(UsageError):  # it is amended
            amend_migration(storage, DEFAULT_TENANT, find_amendment(catalog, files))

    for call in itertools.count(1):
        faults.arm(call)
        error = error_of(run)
        if error is None:
            break
        struck.append(faults.struck[0])
        workspace.execute("DELETE FROM zapdb_leases WHERE substr(name, 1, 8) = 'catalog/'")
        assert values(server, "color") == values(old, "color") == expected
    faults.arm(0)
    assert len(struck) > 20
    rollback.lead_due_tenants(storage)
    assert values(old, "weight") == {0: 7, 1: 7, 2: 7}
    assert values(old, "color") == values(server, "color") == expected


def test_it_is_asked_and_told(workspace: Workspace, old: Database) -> None:
    workspace.write(2, COLOR, TWICE)
    new = workspace.open()
    new.close()
    nothing = amend(workspace, "--yes")
    assert nothing.status == 2
    assert "there is nothing to amend" in nothing.err
    path = workspace.write(2, COLOR)
    asked = amend(workspace)
    assert asked.status == 2
    assert "an amendment needs confirmation" in asked.err
    answer = amend(workspace, "--yes", "--json").json
    assert answer["lost"] == [{"table": "items", "fields": ["twice"]}]
    assert answer["label"] == path.stem
    workspace.write(2, COLOR, "add_field: {table: nothing, field: {name: a, type: integer}}")
    assert amend(workspace, "--yes").status == 1
    workspace.write(2, COLOR, WEIGHT)
    named = amend(workspace, "0001_test.yaml", "--yes")
    assert named.status == 2
    assert "only the newest stored migration can be amended" in named.err
    old.admin.set_setting("profile", "production")
    refused = amend(workspace, "--yes")
    assert refused.status == 2
    assert "migrations are amended in development only" in refused.err
    assert "weight" not in contents(old)[1]


def test_a_conflict_names_it(workspace: Workspace, old: Database) -> None:
    workspace.write(2, COLOR)
    workspace.open().close()
    workspace.write(2, COLOR, WEIGHT)
    place = ["-m", str(workspace.directory), "-d", workspace.address]
    assert "`zapdb migrate amend`" in run_here(["migrate", "up", *place]).err
