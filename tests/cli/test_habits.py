"""Commands that other programs call otherwise, or that are misspelt."""

from __future__ import annotations

import pytest

from tests.cli.program import Project
from zapdb.cli.commands import COMMANDS, CommandGroup
from zapdb.cli.did_you_mean_command import (
    ALIASES,
    COMMAND_OPTIONS,
    HABITS,
    NOTES,
    OPTION_ALIASES,
)


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
    for typed in NOTES:
        assert not find_command(typed.split()), typed


def test_a_second_name_is_understood_and_not_listed(project: Project) -> None:
    for typed, meant in ALIASES.items():
        group, name = typed.split()
        assert find_command([group, meant])
        assert not find_command([group, name])
        assert project.run(group, name, "--help").out == project.run(group, meant, "--help").out
        assert f"│ {name} " not in project.run(group, "--help").out


def test_a_second_name_of_an_option_leads_to_one_that_there_is(project: Project) -> None:
    for command, options in OPTION_ALIASES.items():
        shown = project.run(*command.split(), "--help").out
        assert all(f"{meant} " in shown for meant in options.values())
        assert not any(typed in shown for typed in options)
    for typed, (option, meant) in COMMAND_OPTIONS.items():
        group, _ = typed.split()
        assert option in OPTION_ALIASES[f"{group} {meant}"]


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
        (["migrate", "makemigrations"], "did you mean `zapdb migrate new`?"),
        (["migrate", "0001"], "`zapdb migrate up` applies all pending ones, `zapdb migrate rollb"),
        (["data", "delete"], "`zapdb shell` can delete records: items.delete(key)"),
        (["version"], "`zapdb --version` shows the version; `zapdb --help`"),
    ],
)
def test_a_command_that_is_called_otherwise_elsewhere(
    project: Project, arguments: list[str], hint: str
) -> None:
    result = project.run(*arguments)
    assert result.status == 2
    assert hint in result.err


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (
            "migrate rollback 0001",
            "(0001)",
            "rollback --to 1` keeps migration 1 and rolls back all",
        ),
        ("migrate rollback 0012_x", "(0012_x)", "rollback --to 12` keeps migration 12 and rolls"),
        ("migrate rollback zero", "(zero)", "`zapdb migrate rollback --to 0` rolls back all"),
        ("migrate rollback -1", "no such option: -1", "rolls back the newest migration, --to N"),
        ("migrate rollback --to 0001_x", "'--to': a number is needed", "such as --to 1; --to 0"),
        ("migrate up head", "(head)", "the command applies all pending migrations"),
        ("migrate new", "'summary'", 'zapdb migrate new "Split the name"'),
        ("migrate new add a field", "(a field)", "in quotes: zapdb migrate new 'add a field'"),
        ("migrate new x --autogenerate", "--autogenerate", "--add-field people.fax:string? writes"),
        (
            "data put people id=1 -m migrations",
            "no such option: -m",
            "leave it out: the command uses",
        ),
        ("data list people name=Ada", "(name=Ada)", "--where \"name == 'Ada'\""),
        ("data get people --id 7", "--id", "zapdb data get TABLE KEY"),
        ("sql select 1", "(1)", "in quotes: zapdb sql 'select 1'"),
        ("verify people", "(people)", "the command is about all tables"),
        ("catalog show", "'table'", "write `zapdb catalog show [OPTIONS] TABLE`"),
        ("-v", "no such option: -v", "`zapdb --version` shows the version"),
    ],
)
def test_arguments_of_other_programs(
    project: Project, arguments: str, message: str, hint: str
) -> None:
    result = project.run(*arguments.split())
    assert (result.status, result.out) == (2, "")
    first, *_, last = result.err.splitlines()
    assert message in first
    assert hint in last
