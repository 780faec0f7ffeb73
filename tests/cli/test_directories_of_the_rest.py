"""Commands on a directory that begins after a stored migration."""

from __future__ import annotations

import pytest

from tests.cli.program import MIGRATIONS, Project

NAMES = [*MIGRATIONS]


@pytest.fixture
def rest(current: Project) -> Project:
    """The database is at the end of the files, of which the first two are gone."""
    assert current.run("migrate", "check", "--write").status == 0
    for name in NAMES[:2]:
        current.file(name).unlink()
    return current


def test_check_and_prove_need_a_database_that_stores_what_is_before(rest: Project) -> None:
    lock = rest.file(NAMES[2]).parent / "zapdb.lock"
    before = lock.read_text()
    checked = rest.run("migrate", "check")
    assert (
        checked.out
        == f"ok: 2 migrations after {NAMES[1]}, all valid and exhaustive, and as in zapdb.lock\n"
    )
    assert rest.run("migrate", "prove").status == 0
    written = rest.run("migrate", "check", "--write", "--json")
    assert written.json["lock_lines_written"] == 0
    assert lock.read_text() == "".join(
        line for line in before.splitlines(keepends=True) if not line.startswith(NAMES[0])
    )
    assert rest.run("migrate", "check").status == 0


def test_other_commands_have_what_they_need_of_the_database(rest: Project) -> None:
    assert rest.run("migrate", "up").out == f"nothing to apply: the database is at {NAMES[-1]}\n"
    assert rest.run("migrate", "status").status == 0
    assert rest.run("migrate", "plan").status == 0
    assert rest.run("migrate", "diff").status == 0
    assert rest.run("verify").status == 0
    made = rest.run("migrate", "new", "More")
    assert f"/{len(NAMES) + 1:04d}_more.yaml" in made.out


@pytest.mark.parametrize(
    "command", [("migrate", "lint"), ("migrate", "graph"), ("codegen", "models")]
)
def test_commands_without_a_database_say_what_they_lack(
    rest: Project, command: tuple[str, ...]
) -> None:
    result = rest.run(*command)
    assert result.status == 2
    assert result.err.startswith(
        "error: the directory begins after a migration that only databases"
    )
    assert f"after: {NAMES[1]}\n" in result.err
