"""`zapdb migrate lint`, also against revisions of a real git repository."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cli.program import SPLIT_NAME, Project

NO_REASON = "".join(line for line in SPLIT_NAME.splitlines(True) if "because" not in line)
ALLOWED = SPLIT_NAME.replace(
    "  - transform:", "  # zapdb: allow ZL009 because old ones are gone\n  - transform:"
)


@pytest.fixture
def repository(project: Project) -> Project:
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    git(project, "init", "--quiet")
    project.write("0001_people", "0002_add_age", "0003_index_age")
    commit(project)
    return project


def git(project: Project, *arguments: str) -> None:
    identity = ("-c", "user.name=Test", "-c", "user.email=test@example.org")
    subprocess.run(["git", *identity, *arguments], cwd=project.directory, check=True)


def commit(project: Project) -> None:
    git(project, "add", ".")
    git(project, "commit", "--quiet", "--message", "x")


def looked_at(project: Project, base: str) -> tuple[int, list[str]]:
    found = project.run("migrate", "lint", "--base", base, "--json").json
    return found["files"], [one["migration"] for one in found["findings"]]


def test_lint_shows_places_reasons_and_ways_out(project: Project) -> None:
    project.write()
    result = project.run("migrate", "lint")
    assert (result.status, result.err) == (0, "")
    assert result.out == (
        "migrations/0003_index_age.yaml:4:5: note ZL010: an index is built on existing records: "
        "'by_age' is built on the records of people\n"
        "  why: The index is built in the background, and queries scan until it is readable. On a "
        "large table this takes a while.\n"
        "  hint: run the build at a suitable time: `zapdb migrate up --no-build`, then `zapdb "
        "convert run`\n"
        "migrations/0004_split_name.yaml:4:5: note ZL009: older processes don't read the exact "
        "values: older processes don't get the exact values of name of people\n"
        "  why: A process whose files end before this migration reads records through the "
        "rollback, which does not restore every value.\n"
        "  hint: deploy code that does not use the field before this migration, or archive the "
        "field\n"
        "4 files: 2 notes\n"
    )
    assert not project.database.exists()


def test_lint_without_findings(project: Project) -> None:
    project.write("0001_people")
    assert project.run("migrate", "lint").out == "1 file: no findings\n"


def test_an_error_is_a_failure(project: Project) -> None:
    project.write()
    project.file("0004_split_name").write_text(NO_REASON)
    result = project.run("migrate", "lint")
    assert result.status == 1
    assert ":4:5: error ZL011: a lossy rollback has no reason: " in result.out
    assert result.out.endswith("4 files: 1 error, 2 notes\n")


def test_what_is_allowed_is_counted(project: Project) -> None:
    project.write("0001_people", "0002_add_age", "0003_index_age")
    project.file("0004_split_name").write_text(ALLOWED)
    result = project.run("migrate", "lint")
    assert "ZL009" not in result.out
    assert result.out.endswith("4 files: 1 note, 1 suppressed\n")
    found = project.run("migrate", "lint", "--json").json["findings"]
    assert [(one["code"], one["suppressed_because"]) for one in found] == [
        ("ZL010", None),
        ("ZL009", "old ones are gone"),
    ]


@pytest.mark.parametrize("flags", [("--json",), ("--format", "json")])
def test_lint_as_json(project: Project, flags: tuple[str, ...]) -> None:
    project.write("0001_people", "0002_add_age", "0003_index_age")
    assert project.run("migrate", "lint", *flags).json == {
        "files": 3,
        "findings": [
            {
                "code": "ZL010",
                "severity": "note",
                "file": "migrations/0003_index_age.yaml",
                "line": 4,
                "column": 5,
                "migration": "0003_index_age",
                "message": "an index is built on existing records: 'by_age' is built on the "
                "records of people",
                "description": "The index is built in the background, and queries scan until it "
                "is readable. On a large table this takes a while.",
                "fix": "run the build at a suitable time: `zapdb migrate up --no-build`, then "
                "`zapdb convert run`",
                "suppressed_because": None,
            }
        ],
    }


def test_lint_refuses_files_that_are_not_valid(project: Project) -> None:
    project.write()
    project.file("0004_split_name").write_text("zapdb: 2\n")
    assert project.run("migrate", "lint").status == 1
    assert project.run("migrate", "lint", "--format", "xml").status == 2


# Against a revision


def test_only_new_files_are_looked_at(repository: Project) -> None:
    assert looked_at(repository, "HEAD") == (0, [])
    repository.write("0004_split_name")
    assert looked_at(repository, "HEAD") == (1, ["0004_split_name"])
    git(repository, "add", ".")
    assert looked_at(repository, "HEAD") == (1, ["0004_split_name"])
    commit(repository)
    assert looked_at(repository, "HEAD") == (0, [])
    assert looked_at(repository, "HEAD~1") == (1, ["0004_split_name"])


def test_a_file_that_is_other_than_there_is_looked_at(repository: Project) -> None:
    path = repository.file("0003_index_age")
    path.write_text(f"# {path.read_text()}".replace("# zapdb", "zapdb") + "# more\n")
    assert looked_at(repository, "HEAD") == (1, ["0003_index_age"])


def test_a_file_that_is_renumbered_is_looked_at(repository: Project) -> None:
    old = repository.file("0003_index_age")
    old.rename(repository.file("0003_age_index"))
    assert looked_at(repository, "HEAD") == (1, ["0003_age_index"])


def test_the_directory_may_lie_anywhere_in_the_repository(repository: Project) -> None:
    (repository.directory / "deep").mkdir()
    git(repository, "mv", "migrations", "deep/migrations")
    commit(repository)
    flags = ("-m", "deep/migrations", "--base", "HEAD", "--json")
    assert repository.run("migrate", "lint", *flags).json["files"] == 0
    assert repository.run("migrate", "lint", *flags[:3], "HEAD~1", "--json").json["files"] == 3


@pytest.mark.parametrize("revision", ["nowhere", "--all", "", "HEAD:migrations"])
def test_a_revision_that_is_not_there_is_refused(repository: Project, revision: str) -> None:
    result = repository.run("migrate", "lint", f"--base={revision}")
    assert result.status == 2
    assert result.err.startswith("error: git does not know this revision\n")
    assert "hint: give a branch, tag or commit" in result.err


def test_a_directory_outside_of_version_control_is_refused(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(project.directory.parent))
    project.write()
    result = project.run("migrate", "lint", "--base", "HEAD")
    assert result.status == 2
    assert result.err == (
        "error: the migrations are not in a git repository\n"
        "  directory: migrations\n"
        "  hint: lint without --base\n"
    )


def test_git_has_to_be_there(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.write()
    empty = project.directory / "bin"
    empty.mkdir()
    monkeypatch.setenv("PATH", str(Path(empty)))
    result = project.run("migrate", "lint", "--base", "HEAD")
    assert (result.status, result.err) == (
        2,
        "error: git is not installed\n  hint: install it, or lint without --base\n",
    )
