"""The Python prompt: on a terminal, and with a program piped in."""

from __future__ import annotations

import pytest

from tests.cli.program import Project, strip_ansi


def test_the_prompt_has_the_database_and_its_tables(current: Project) -> None:
    typed = "people.count()\n1 / 0\ndb.position\nprint(f'{zapdb.__name__}!')\nexit(3)\n"
    result = current.run_on_terminal("shell", typed=typed)
    assert result.status == 3
    shown = strip_ansi(result.out).replace("\r", "")
    for line in (
        "database  sqlite:///test.db",
        "tenant    default, position 0004",
        "tables    people",
        "`db` is the database; exit() or Ctrl-D ends.",
        ">>> people.count()\n20",
        "ZeroDivisionError: division by zero",
        ">>> db.position\n4",
        "\nzapdb!\n",
    ):
        assert line in shown
    assert current.sql("SELECT key FROM zapdb_catalog WHERE kind = 'node' AND value NOT NULL") == []


def test_a_prompt_that_reads_only_says_so_and_refuses_writes(current: Project) -> None:
    before = current.dump()
    typed = "people.delete(1)\nexit()\n"
    result = current.run_on_terminal("shell", "--read-only", typed=typed)
    assert result.status == 0
    shown = strip_ansi(result.out)
    assert "database  sqlite:///test.db, read-only" in shown
    assert "UsageError: the database was opened read-only" in shown
    assert current.dump() == before


@pytest.mark.parametrize(
    ("program", "status", "out", "err"),
    [
        ("print(people.count(), __name__)", 0, "20 __console__\n", ""),
        ("def f():\n    return db.position\n\nprint(f())\n", 0, "4\n", ""),
        ("", 0, "", ""),
        ("print(1)\npeople.get(77)\nprint(2)", 1, "1\n", "RecordNotFound"),
        ("def f(:", 1, "", "SyntaxError"),
        ("exit(5)", 5, "", ""),
        ("import sys; sys.exit('enough')", 1, "", "enough\n"),
    ],
)
def test_what_is_piped_in_is_run(
    current: Project, program: str, status: int, out: str, err: str
) -> None:
    result = current.run("shell", stdin=program)
    assert (result.status, result.out) == (status, out)
    assert err in result.err
    assert "shell.py" not in result.err
    assert result.err.startswith("Traceback") == ("Error" in err or "NotFound" in err) or (
        "SyntaxError" in err
    )


def test_what_was_written_before_an_error_stays(current: Project) -> None:
    assert current.run("shell", stdin="people.delete(1)\nraise SystemExit(1)").status == 1
    assert current.run("shell", stdin="print(people.exists(1))").out == "False\n"


def test_a_table_whose_name_means_something_is_not_set(project: Project) -> None:
    text = (
        "zapdb: 1\nsummary: Names\nchanges:\n"
        + "".join(
            f"  - create_table: {{table: {name}, key: [id], fields: [{{name: id, type: uuid}}]}}\n"
            for name in ("items", "class", "print", "db")
        )
        + "rollback: inferred\n"
    )
    project.file("0001_names").write_text(text)
    assert project.run("migrate", "up").status == 0
    result = project.run_on_terminal("shell", typed="db.table('class').count()\nexit()\n")
    shown = strip_ansi(result.out)
    assert "tables    items" in shown
    assert "and class, print, db, as db.table(name)" in shown
    assert "\n0" in shown.replace("\r", "")


def test_no_database_is_an_error(project: Project) -> None:
    assert project.run("shell", "-d", "sqlite:///none.db").status != 0
    assert not (project.directory / "none.db").exists()
