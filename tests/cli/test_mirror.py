"""`zapdb mirror run` and `status`."""

from __future__ import annotations

import sqlite3
from contextlib import closing

from tests.cli.program import Project


def test_a_mirror_is_kept_and_shown(current: Project) -> None:
    to = ("--to", "sqlite:///mirror.db")
    early = current.run("mirror", "status", *to)
    assert early.status == 2
    assert "not a mirror of this database" in early.err
    made = current.run("mirror", "run", *to, "--once")
    assert (made.status, made.out) == (0, "made people\n")
    assert "the change log was off and is switched on for this tenant" in made.err
    assert current.run("data", "put", "people", "id=1", "age=99").status == 0
    behind = current.run("mirror", "status", *to, "--json")
    assert (behind.status, behind.json["changes_behind"]) == (3, 1)
    done = current.run("mirror", "run", *to, "--once", "--json")
    assert (done.json["changes"], done.json["made"], done.err) == (1, [], "")
    with closing(sqlite3.connect("mirror.db")) as connection:
        assert connection.execute("SELECT age FROM people WHERE id = 1").fetchall() == [(99,)]
        connection.execute("DELETE FROM people WHERE id = 2")
        connection.commit()
    broken = current.run("mirror", "status", *to)
    assert (broken.status, "broken" in broken.out) == (1, True)
    again = current.run("mirror", "run", *to, "--once")
    assert again.out == "made people\n"
    assert "people was changed by others: it is made again" in again.err
    shown = current.run("mirror", "status", *to)
    assert (shown.status, "nothing is behind" in shown.out) == (0, True)


def test_wrong_targets_are_explained(current: Project) -> None:
    for target, words in {
        "sqlite:///test.db": "tables that are no mirror's",
        "schema:reporting": "for databases in PostgreSQL",
        "postgresql://postgres@localhost/x": "has no schema",
        "mysql://root@localhost/x": "no mirror can be kept there",
        "duckdb:.": "is no file",
        "nonsense": "not a database address",
    }.items():
        result = current.run("mirror", "run", "--to", target, "--once")
        assert (result.status, words in result.err) == (2, True), (target, result.err)
        assert "hint:" in result.err
    unreachable = "postgresql://postgres@localhost:1/x?schema=a"
    result = current.run("mirror", "run", "--to", unreachable, "--once")
    assert (result.status, "can't be reached" in result.err) == (1, True)
    assert current.run("mirror", "run", "--to", "sqlite:///m.db", "--json").status == 2
