"""`zapdb init`: what a new project has, and what of an older one is kept."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import zapdb
from tests.cli.program import Project


@pytest.fixture
def project(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """Nothing names a database or migrations."""
    monkeypatch.delenv("ZAPDB_DATABASE", raising=False)
    monkeypatch.delenv("ZAPDB_MIGRATIONS", raising=False)
    return project


def test_a_new_project_runs(project: Project, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = project.run("init", "My-Shop")
    assert result.status == 0
    assert "created My-Shop/migrations/0001_notes.yaml" in result.out
    monkeypatch.chdir(tmp_path / "My-Shop")
    assert project.run("migrate", "check").status == 0
    assert project.run("migrate", "up").status == 0
    subprocess.run(["git", "init", "-q"], check=True)
    with zapdb.open("sqlite:///my_shop.db", migrations="migrations") as db:
        assert db.table("notes").insert(text="Hi").is_done is False
        others = subprocess.run(["git", "status", "--short"], check=True, capture_output=True)
    assert others.stdout.decode().split("\n") == [
        "?? .gitignore",
        "?? migrations/",
        "?? pyproject.toml",
        "",
    ]


@pytest.mark.parametrize("url", ["postgresql://host/shop", "sqlite:////elsewhere/shop.db"])
def test_what_lies_elsewhere_is_not_ignored(
    project: Project, tmp_path: Path, monkeypatch, url: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert project.run("init", "--database", url).status == 0
    assert not Path(".gitignore").exists()


def test_what_is_there_is_kept(project: Project, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("pyproject.toml").write_text('[project]\nname = "x"')
    Path(".gitignore").write_text("*.pyc")
    first = project.run("init", "--database", "sqlite:///here.db", "--json").json
    assert first["kept"] == []
    assert first["created"][:2] == ["pyproject.toml", ".gitignore"]
    assert Path(".gitignore").read_text() == "*.pyc\n/here.db*\n"
    settings = Path("pyproject.toml").read_text()
    assert settings.startswith('[project]\nname = "x"\n\n[tool.zapdb]\n')
    migration = Path("migrations/0001_notes.yaml")
    migration.write_text(migration.read_text() + "# changed\n")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for same in ((), ("--database", "sqlite:///here.db")):
        again = project.run("init", *same, "--json").json
        assert again == {"created": [], "kept": ["pyproject.toml", ".gitignore", "migrations"]}
    refused = project.run("init", "--database", "sqlite:///other.db")
    assert refused.status == 2
    assert 'write database = "sqlite:///other.db" under [tool.zapdb]' in refused.err
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("url", ["postgresql://a:secret@h/d", "postgresql://h/d?password=secret"])
def test_a_password_is_not_written_to_a_file(
    project: Project, tmp_path: Path, monkeypatch, url: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = project.run("init", "--database", url)
    assert result.status == 2
    assert "ZAPDB_DATABASE" in result.err
    assert "secret" not in result.err
    assert not Path("pyproject.toml").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("-d", "mysql://host/db"), "zapdb does not support this kind of database"),
        (("-d", "sqlite:///:memory:"), "a database in memory ends with its process"),
        (("-d", ""), "this is not a database address"),
        (("a_file",), "'a_file' is a file"),
        (("--name", "shop"), "zapdb init my_project"),
        (("--db", "x"), "give it as --database URL"),
        (("my", "shop"), "zapdb init 'my shop'"),
    ],
)
def test_what_is_wrong_is_refused_and_nothing_is_written(
    project: Project, tmp_path: Path, monkeypatch, arguments: tuple[str, ...], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a_file").touch()
    before = sorted(tmp_path.iterdir())
    result = project.run("init", *arguments)
    assert (result.status, words in result.err) == (2, True), result.err
    assert sorted(tmp_path.iterdir()) == before


def test_shells_complete_commands() -> None:
    """As the script of `--install-completion` asks, for a shell that is known."""
    asked = {"_ZAPDB_COMPLETE": "complete_bash", "COMP_WORDS": "zapdb migrate u", "COMP_CWORD": "2"}
    found = subprocess.run(
        [sys.executable, "-m", "zapdb"], env=os.environ | asked, capture_output=True, text=True
    )
    assert found.stdout.split() == ["up"]
