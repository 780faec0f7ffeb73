"""Commands that other programs call otherwise, or that are misspelt."""

from __future__ import annotations

import pytest

from tests.cli.program import Project
from zapdb.cli.commands import COMMANDS, CommandGroup
from zapdb.cli.habits import ALIASES, HABITS


def find_command(words: list[str]) -> bool:
    """Whether a command, or a group, has this name."""
    found: object = CommandGroup("", COMMANDS)
    for word in words:
        if not isinstance(found, CommandGroup) or word not in found.commands:
            return False
        found = found.commands[word]
    return True


def test_habits_lead_to_commands_that_there_are() -> None:
    for typed, meant in HABITS.items():
        words = [word for word in meant.split() if not word.startswith("--")]
        assert find_command(words), meant
        assert not find_command(typed.split()), typed


def test_a_second_name_is_understood_and_not_listed(project: Project) -> None:
    for typed, meant in ALIASES.items():
        group, name = typed.split()
        assert find_command([group, meant])
        assert not find_command([group, name])
        assert project.run(group, name, "--help").out == project.run(group, meant, "--help").out
        assert f"│ {name} " not in project.run(group, "--help").out


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (
            ["migrate", "down"],
            "did you mean `zapdb migrate rollback`? `zapdb migrate --help` lists",
        ),
        (["upgrade"], "did you mean `zapdb migrate up`? `zapdb --help` lists the commands"),
        (["migrte", "up"], "did you mean 'migrate'?"),
        (["migrate", "stauts"], "did you mean 'status'?"),
        (["xyzzy"], "`zapdb --help` lists the commands"),
    ],
)
def test_a_command_that_is_called_otherwise_elsewhere(
    project: Project, arguments: list[str], hint: str
) -> None:
    result = project.run(*arguments)
    assert result.status == 2
    assert hint in result.err
