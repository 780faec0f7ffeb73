"""`zapdb migrate plan` on what older processes lose and hold up, and `migrate up --wait`."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

import zapdb
from tests.cli.program import Project
from zapdb.database import Database


def open_database(project: Project, **options: Any) -> Database:
    address = f"sqlite:///{project.database}"
    return zapdb.open(address, migrations=project.migrations, **options)


@pytest.fixture
def current(project: Project) -> Project:
    project.write()
    assert project.run("migrate", "up").status == 0
    return project


@pytest.fixture
def older(current: Project) -> Iterator[Database]:
    with open_database(current) as db:
        yield db


def write_changes(project: Project, extra: str = "", known: bool = True) -> None:
    drop = "  - drop_field: {table: people, field: fax, restore: {value: none}}\n"
    archive = "restore: {archive: true, otherwise: {value: 0}}"
    kept = f"  - drop_field: {{table: people, field: last, {archive.replace('0', 'x')}}}\n"
    text = f"zapdb: 1\nsummary: Less of them\nchanges:\n{drop}{kept}{extra}rollback: inferred\n"
    project.file("0005_less").write_text(text + ("activation: wait_for_nodes\n" if known else ""))


def test_a_plan_says_what_older_processes_go_without(current: Project) -> None:
    write_changes(current)
    result = current.run("migrate", "plan")
    assert result.status == 3
    lines = result.out.splitlines()
    assert lines[:2] == [
        "0005_less: Less of them",
        "  is activated when all live processes have its file",
    ]
    at = lines.index("what processes with older code lose:")
    # What is archived is read and written as before.
    assert lines[at + 1 : at + 3] == [
        "  people: fax: they read the rollback's value",
        "  people: fax: their writes are dropped",
    ]
    document = current.run("migrate", "plan", "--json").json
    assert [m["waits_for_nodes"] for m in document["migrations"]] == [True]
    (table,) = document["tables"]
    assert (table["declared"], table["dropped_writes"]) == (["fax"], ["fax"])
    assert document["processes"] == []


def test_a_plan_tells_values_that_are_stored_and_not_read_back(current: Project) -> None:
    """Reading and writing need not go together: a field whose rollback is a constant."""
    one_way = """\
  - transform:
      table: people
      from: {first: string}
      into: {letters: integer}
      up: {letters: length(first)}
      down: {first: "'?'"}
      reversibility: lossy
      because: letters are only counted
"""
    write_changes(current, one_way, known=False)
    document = current.run("migrate", "plan", "--json").json
    assert [m["waits_for_nodes"] for m in document["migrations"]] == [False]
    (table,) = document["tables"]
    assert (table["declared"], table["dropped_writes"]) == (["fax", "first"], ["fax"])


def test_what_a_plan_says_is_lost_is_lost(current: Project, older: Database) -> None:
    people = older.table("people")
    people.insert(id=1, first="Ada", last="King", fax="1")
    write_changes(current, known=False)
    assert current.run("migrate", "up").status == 0
    people.update(1, fax="2", last="Lovelace", first="Augusta")
    found = people.get(1)
    assert (found.first, found.last, found.fax) == ("Augusta", "Lovelace", "none")


def test_a_plan_names_processes_by_what_they_serve(current: Project, older: Database) -> None:
    write_changes(current)
    tool = zapdb.open(f"sqlite:///{current.database}")
    with open_database(current, serve_as=4) as shipped, tool:
        result = current.run("migrate", "plan")
        lines = result.out.splitlines()
        at = lines.index("live processes that will be served an older schema:")
        told = lines[at + 1 :]
        assert len(told) == 3  # the tool without files works with whatever is in force
        assert told[0] == (
            f"  {older._node}: schema 0004, files end at 0004, release {zapdb.__version__}"
        )
        assert told[1] == "    0005_less waits until it has the file"
        assert f"  {shipped._node}: schema 0004, files end at 0005" in told[2]
        found = current.run("migrate", "plan", "--json").json["processes"]
        assert [(p["files_end"], p["served_position"], p["blocks"]) for p in found] == [
            (4, 4, "0005_less"),
            (5, 4, None),
        ]


def test_up_waits_for_running_processes(current: Project, older: Database) -> None:
    write_changes(current)
    result = current.run("migrate", "up")
    assert result.status == 3
    assert result.out.startswith("stored  0005_less")
    assert f"nodes: {older._node}" in result.err
    # What is stored and waits is still in the plan, and asking again waits for it.
    assert current.run("migrate", "plan").out.startswith("0005_less")
    assert current.run("migrate", "up").status == 3
    timer = threading.Timer(0.5, older.close)
    timer.start()
    result = current.run("migrate", "up", "--wait", "20")
    timer.join()
    assert (result.status, result.err) == (0, "")
    assert result.out.startswith("applied 0005_less")
    assert current.run("migrate", "plan").status == 0
