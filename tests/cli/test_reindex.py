"""`zapdb reindex`."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing

import pytest

import zapdb
from tests.cli.program import Project

NAMES = """\
zapdb: 1
summary: People by name
changes:
  - create_table:
      table: people
      key: [id]
      fields:
        - {name: id, type: integer}
        - {name: name, type: string}
        - {name: age, type: integer, default: 7}
  - create_index: {table: people, index: by_name, fields: [
        {field: name, collation: {locale: und}}]}
  - create_index: {table: people, index: by_age, fields: [{field: age}]}
rollback: inferred
"""


@pytest.fixture
def names(project: Project) -> Project:
    """Some people, with an index by name that a process of now built."""
    (project.migrations / "0001_people.yaml").write_text(NAMES)
    assert project.run("migrate", "up").status == 0
    with zapdb.open("sqlite:///test.db", migrations="migrations") as db:
        db.table("people").insert_many({"id": n, "name": f"name {n}"} for n in range(10))
    return project


def have_changed(project: Project) -> None:
    """As if the index by name had been built with other collation data."""
    with closing(sqlite3.connect(project.database)) as connection:
        where = "WHERE kind = 'index' AND key = '1/1'"
        ((text,),) = connection.execute(f"SELECT value FROM zapdb_catalog {where}")
        row = json.loads(text)
        for name in row["built_with"]:
            row["built_with"][name] = {"version": "ICU 1.0", "fingerprint": "0" * 64}
        connection.execute(f"UPDATE zapdb_catalog SET value = ? {where}", (json.dumps(row),))
        connection.commit()


def reopen() -> None:
    zapdb.open("sqlite:///test.db", migrations="migrations").close()


def states(project: Project, status: int) -> list[tuple[str, str, str | None, bool]]:
    result = project.run("reindex", "status", "--json")
    assert (result.status, result.json["pending"]) == (status, status == 3)
    assert [one["table"] for one in result.json["indexes"]] == ["people"] * 2
    return [(i["index"], i["state"], i["policy"], i["matches"]) for i in result.json["indexes"]]


def test_rule_26_an_operator_rebuilds_what_nobody_keeps(names: Project) -> None:
    assert states(names, 0) == [
        ("by_name", "readable", "rebuild", True),
        ("by_age", "readable", None, True),
    ]
    assert names.run("reindex", "run").out == (
        "nothing to do: every index matches this process's collation and time zone data\n"
    )
    set_it = (
        "settings",
        "set",
        "on_dataset_change",
        "scan",
        "--table",
        "people",
        "--index",
        "by_name",
    )
    assert names.run(*set_it).out == "on_dataset_change of table people of index by_name is scan\n"
    have_changed(names)
    assert states(names, 3)[0] == ("by_name", "readable", "scan", False)
    reopen()
    assert states(names, 3)[0] == ("by_name", "disabled", "scan", False)
    header, _, row, *_ = names.run("reindex", "status").out.splitlines()
    assert header.split() == [
        "table",
        "index",
        "state",
        "policy",
        "built",
        "with",
        "this",
        "process",
    ]
    assert row.split()[:6] == ["people", "by_name", "disabled", "scan", "ICU", "1.0"]
    assert names.run("convert", "status").status == 0  # it is not to be built by itself
    assert names.run("convert", "run").out.startswith("nothing to do")
    found = names.run("catalog", "show", "people", "--json").json["indexes"][0]
    assert found["state"] == "disabled"
    done = names.run("reindex", "run", "--json").json
    assert done["indexes"] == [{"table": "people", "index": "by_name"}]
    assert [(job["kind"], job["written"]) for job in done["jobs"]] == [("index", 10)]
    assert states(names, 0)[0] == ("by_name", "readable", "scan", True)
    assert names.run("verify").status == 0


def test_an_index_or_all_of_a_table_are_built_anew(names: Project) -> None:
    def rebuilt(*arguments: str) -> list[str]:
        done = names.run("reindex", "run", "--json", *arguments).json
        assert len(done["jobs"]) == len(done["indexes"])
        return [one["index"] for one in done["indexes"]]

    assert rebuilt() == []
    assert rebuilt("--table", "people") == ["by_name", "by_age"]
    assert rebuilt("--table", "people", "--index", "by_age") == ["by_age"]
    out = names.run("reindex", "run", "--table", "people", "--index", "by_name").out
    assert out.startswith("built index by_name of people: 10 records")
    assert names.run("verify").status == 0


def test_what_is_not_there_is_said(names: Project) -> None:
    for arguments, status, text in (
        (("--index", "by_age"), 2, "an index needs its table"),
        (("--table", "nothing"), 1, "no such table"),
        (("--table", "people", "--index", "none"), 1, "there is no such index"),
    ):
        result = names.run("reindex", "run", *arguments)
        assert (result.status, result.out) == (status, "")
        assert text in result.err


def test_rule_26_a_rewriting_is_run_as_any_job(names: Project) -> None:
    names.run("settings", "set", "on_dataset_change", "rewrite")
    have_changed(names)
    reopen()
    assert states(names, 3)[0] == ("by_name", "rewriting", "rewrite", True)
    found = names.run("catalog", "show", "people", "--json").json["indexes"][0]
    assert found["state"] == "rewriting"
    assert list(found["built_with"]) == list(found["rewritten_from"]) == ["collation:und/tertiary"]
    assert names.run("convert", "status").status == 3
    out = names.run("convert", "run").out
    assert out.startswith("rewrote index by_name of people: 10 records")
    assert states(names, 0)[0] == ("by_name", "readable", "rewrite", True)
    assert names.run("verify").status == 0


def test_rule_26_a_unique_index_keeps_background_away(names: Project) -> None:
    (names.migrations / "0002_unique.yaml").write_text(
        "zapdb: 1\nsummary: One\nchanges:\n"
        "  - create_index: {table: people, index: one_name, unique: true, fields: [\n"
        "        {field: name, collation: {locale: und}}]}\nrollback: inferred\n"
    )
    assert names.run("migrate", "up").status == 0
    result = names.run("settings", "set", "on_dataset_change", "rewrite")
    assert result.status == 2
    assert result.err.startswith("error: a unique index cannot be rewritten in the background\n")
    assert names.run("settings", "get", "on_dataset_change").out == "rebuild\n"
