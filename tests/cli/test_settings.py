"""`zapdb settings`."""

from __future__ import annotations

import pytest

import zapdb
from tests.cli.program import Project
from zapdb.database.settings import SETTINGS


def test_a_setting_is_read_changed_and_read_by_applications(people: Project) -> None:
    assert people.run("settings", "get", "on_read").out == "leave\n"
    result = people.run("settings", "set", "on_read", "write_back")
    assert (result.status, result.out) == (0, "on_read is write_back\n")
    assert people.run("settings", "get", "on_read").out == "write_back\n"
    with zapdb.open("sqlite:///test.db", migrations="migrations") as db:
        assert db.setting("on_read") == "write_back"


def test_all_settings_are_listed_with_what_they_mean(people: Project) -> None:
    text = people.run("settings", "list").out
    for name, setting in SETTINGS.items():
        assert name in text
        assert setting.says in text
    found = people.run("settings", "list", "--json").json["settings"]
    assert [setting["name"] for setting in found] == list(SETTINGS)


@pytest.mark.parametrize("command", [["get", "on_read"], ["set", "on_read", "leave"]])
def test_as_json(people: Project, command: list[str]) -> None:
    setting = SETTINGS["on_read"]
    assert people.run("settings", *command, "--json").json == {
        "name": "on_read",
        "value": "leave",
        "default": "leave",
        "choices": ["leave", "write_back"],
        "says": setting.says,
    }


def test_wrong_values_and_names_change_nothing(people: Project) -> None:
    before = people.dump()
    result = people.run("settings", "set", "on_read", "forget")
    assert (result.status, result.out) == (2, "")
    assert result.err == (
        "error: the setting has no such value\n"
        "  setting: on_read\n"
        "  value: forget\n"
        "  values: leave, write_back\n"
    )
    for command in (["get", "on_write"], ["set", "on_write", "x"]):
        result = people.run("settings", *command)
        assert (result.status, result.out) == (1, "")
        assert result.err == "error: no such setting\n  setting: on_write\n  settings: on_read\n"
    assert people.dump() == before
