"""Where commands learn which database and which migrations they are about."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.program import Project

PYPROJECT = '[tool.zapdb]\ndatabase = "sqlite:///test.db"\nmigrations = "migrations"\n'


@pytest.fixture
def bare(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project whose environment names nothing."""
    monkeypatch.delenv("ZAPDB_DATABASE")
    monkeypatch.delenv("ZAPDB_MIGRATIONS")
    project.write("0001_people")
    return project


def test_nothing_given_is_wrong_usage_that_names_all_three_ways(bare: Project) -> None:
    result = bare.run("migrate", "status")
    assert result.status == 2
    assert result.out == ""
    assert result.err == (
        "error: no migration directory was given\n"
        "  hint: give --migrations DIRECTORY, or set ZAPDB_MIGRATIONS, or write "
        'migrations = "DIRECTORY" under [tool.zapdb] in pyproject.toml\n'
    )
    result = bare.run("migrate", "status", "-m", "migrations")
    assert result.status == 2
    assert result.err == (
        "error: no database was given\n"
        '  hint: give --database URL, or set ZAPDB_DATABASE, or write database = "URL" '
        "under [tool.zapdb] in pyproject.toml\n"
    )


def test_options_come_before_the_environment_before_pyproject(
    bare: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("pyproject.toml").write_text(PYPROJECT.replace("test.db", "from_pyproject.db"))
    assert bare.run("migrate", "up").status == 0
    assert Path("from_pyproject.db").exists()

    monkeypatch.setenv("ZAPDB_DATABASE", "sqlite:///from_environment.db")
    assert bare.run("migrate", "up").status == 0
    assert Path("from_environment.db").exists()

    assert bare.run("migrate", "up", "--database", "sqlite:///from_option.db").status == 0
    assert Path("from_option.db").exists()

    monkeypatch.setenv("ZAPDB_MIGRATIONS", "elsewhere")
    assert bare.run("migrate", "check").status == 2
    assert bare.run("migrate", "check", "--write", "-m", "migrations").status == 0


def test_an_empty_variable_is_as_good_as_none(
    bare: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("pyproject.toml").write_text(PYPROJECT)
    monkeypatch.setenv("ZAPDB_DATABASE", "")
    assert bare.run("migrate", "up").status == 0


def test_a_pyproject_that_is_not_asked_is_not_read(bare: Project) -> None:
    Path("pyproject.toml").write_text("this is not TOML")
    given = ("-d", "sqlite:///test.db", "-m", "migrations", "--tenant", "default")
    assert bare.run("migrate", "up", *given).status == 0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            b"[tool.zapdb]\ndatabase = sqlite",
            "error: pyproject.toml:2:12: not TOML: Invalid value\n",
        ),
        (
            b'[tool.zapdb]\ndatabse = "x"',
            "error: pyproject.toml: unknown key 'databse' under [tool.zapdb]\n"
            "  hint: available: database, migrations, tenant\n",
        ),
        (
            b"[tool.zapdb]\ndatabase = 7",
            "error: pyproject.toml: database under [tool.zapdb] must be text\n",
        ),
        (b"[tool]\nzapdb = 7", "error: pyproject.toml: [tool.zapdb] must be a table\n"),
        (b"# \xff", "error: pyproject.toml: pyproject.toml is not UTF-8\n"),
    ],
    ids=["not-toml", "unknown-key", "not-text", "not-a-table", "not-utf-8"],
)
def test_a_wrong_pyproject_is_wrong_usage(bare: Project, content: bytes, message: str) -> None:
    Path("pyproject.toml").write_bytes(content)
    result = bare.run("catalog", "list")
    assert (result.status, result.out, result.err) == (2, "", message)


def test_a_pyproject_without_zapdb_says_nothing(bare: Project) -> None:
    Path("pyproject.toml").write_text('[project]\nname = "x"\n')
    assert "no database was given" in bare.run("catalog", "list").err


@pytest.mark.parametrize("address", ["test.db", "mysql://root@localhost/x", "sqlite://"])
def test_an_address_that_is_none_is_wrong_usage(bare: Project, address: str) -> None:
    result = bare.run("catalog", "list", "-d", address)
    assert result.status == 2
    assert "  hint: " in result.err
    assert "sqlite:///path/to/file.db" in result.err


def test_a_database_in_memory_makes_no_sense_to_a_command(project: Project) -> None:
    project.write("0001_people")
    result = project.run("migrate", "up", "--database", "sqlite:///:memory:")
    assert result.status == 2
    assert "a database in memory ends with its process" in result.err
