"""`zapdb mirror run` and `status`."""

from __future__ import annotations

import sqlite3
from contextlib import closing

from tests.cli.program import Project

NO_FAX = """\
zapdb: 1
summary: Nobody has a fax
changes:
  - drop_field: {table: people, field: fax, restore: {value: ""}}
rollback: inferred
"""


def test_a_mirror_is_kept_and_shown(current: Project) -> None:
    to = ("--to", "sqlite:///mirror.db")
    early = current.run("mirror", "status", *to)
    assert early.status == 2
    assert "not a mirror of this database" in early.err
    assert not (current.directory / "mirror.db").exists()
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
    assert (again.status, again.out) == (0, "")
    assert "people was changed by others: it is put right" in again.err
    assert "1 row that others had changed: put right" in again.err
    shown = current.run("mirror", "status", *to)
    assert (shown.status, "nothing is behind" in shown.out) == (0, True)


def test_a_mirror_is_checked(current: Project) -> None:
    to = ("--to", "sqlite:///mirror.db")
    current.run("mirror", "run", *to, "--once")
    whole = current.run("mirror", "check", *to, "--json")
    assert (whole.status, whole.json["tables"][0]["damaged"]) == (0, 0)
    with closing(sqlite3.connect("mirror.db")) as connection:
        connection.execute("UPDATE people SET age = 77 WHERE id = 1")
        connection.execute("CREATE TEMPORARY TABLE foreigner AS SELECT * FROM people WHERE id = 1")
        connection.execute("UPDATE foreigner SET id = -7")
        connection.execute("INSERT INTO people SELECT * FROM foreigner")
        connection.commit()
    found = current.run("mirror", "check", *to, "--json")
    table = found.json["tables"][0]
    assert (found.status, table["damaged"], table["foreign"]) == (1, 1, 1)
    repaired = current.run("mirror", "check", *to, "--repair")
    assert (repaired.status, "repaired" in repaired.out) == (0, True)
    assert current.run("mirror", "check", *to).status == 0


def test_a_view_in_the_way_is_told(current: Project) -> None:
    to = ("--to", "sqlite:///mirror.db")
    current.run("mirror", "run", *to, "--once")
    with closing(sqlite3.connect("mirror.db")) as connection:
        connection.execute("CREATE VIEW old AS SELECT fax FROM people")
    current.file("0005_no_fax").write_text(NO_FAX)
    assert current.run("migrate", "up").status == 0
    done = current.run("mirror", "run", *to, "--once")
    assert (done.status, "error in view old" in done.err, "hint: drop" in done.err) == (
        1,
        True,
        True,
    )
    shown = current.run("mirror", "status", *to)
    assert (shown.status, "not kept: error in view old" in shown.out) == (1, True)
    with closing(sqlite3.connect("mirror.db")) as connection:
        connection.execute("DROP VIEW old")
    again = current.run("mirror", "run", *to, "--once")
    assert (again.status, again.out) == (0, "altered people\nmade people\n")


def test_wrong_targets_are_explained(current: Project) -> None:
    for target, words in {
        "sqlite:///test.db": "tables that are no mirror's",
        "schema:reporting": "for databases in PostgreSQL",
        "postgresql://postgres@localhost/x": "has no schema",
        "mysql://root@localhost/x": "no mirror can be kept there",
        "duckdb:.": "is no file",
        "sqlite:///no/such/mirror.db": "directory of the mirror's target does not exist",
        "nonsense": "not a database address",
    }.items():
        result = current.run("mirror", "run", "--to", target, "--once")
        assert (result.status, words in result.err) == (2, True), (target, result.err)
        assert "hint:" in result.err
    unreachable = "postgresql://postgres@localhost:1/x?schema=a"
    result = current.run("mirror", "run", "--to", unreachable, "--once")
    assert (result.status, "can't be reached" in result.err) == (1, True)
    assert "switched on" not in result.err
    assert current.run("mirror", "run", "--to", "sqlite:///m.db", "--json").status == 2


def test_a_process_that_has_used_duckdb_ends_without_a_word(current: Project) -> None:
    """DuckDB lists what it calls leaks if garbage is left when the process ends."""
    to = ("--to", "duckdb:mirror.duckdb")
    assert current.run_process("mirror", "run", "--once", *to).status == 0
    result = current.run_process("mirror", "status", *to)
    assert (result.out[:5], result.err) == ("table", "")
