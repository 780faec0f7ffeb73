"""Project directories: an empty one, and two with a database, each made once and copied."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cli.program import Project


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """No database, and no migrations; `ZAPDB_DATABASE` and `ZAPDB_MIGRATIONS` are set."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ZAPDB_DATABASE", "sqlite:///test.db")
    monkeypatch.setenv("ZAPDB_MIGRATIONS", "migrations")
    return Project(tmp_path)


@pytest.fixture
def people(project: Project, stale_people: Path) -> Project:
    """Twenty people that were written before all but the first migration; an index is not built."""
    shutil.copytree(stale_people, project.directory, dirs_exist_ok=True)
    return project


@pytest.fixture
def current(project: Project, current_people: Path) -> Project:
    """The same people, converted, and the index is built."""
    shutil.copytree(current_people, project.directory, dirs_exist_ok=True)
    return project


@pytest.fixture(scope="session")
def stale_people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = Project(tmp_path_factory.mktemp("stale_people"))
    given = ("-d", f"sqlite:///{made.database}", "-m", str(made.migrations))
    made.write("0001_people")
    run_well(made, "migrate", "up", *given)
    made.fill(20)
    made.write()
    run_well(made, "migrate", "up", "--no-build", *given)
    return made.directory


@pytest.fixture(scope="session")
def current_people(stale_people: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("current_people")
    shutil.copytree(stale_people, directory, dirs_exist_ok=True)
    made = Project(directory)
    run_well(made, "convert", "run", "-d", f"sqlite:///{made.database}")
    return directory


def run_well(project: Project, *arguments: str) -> None:
    result = project.run(*arguments)
    assert (result.status, result.err) == (0, "")
