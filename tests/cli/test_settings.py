"""`zapdb settings`."""

from __future__ import annotations

import pytest

import zapdb
from tests.cli.program import Project
from zapdb.catalog.settings import SETTINGS


def test_a_setting_is_read_changed_and_read_by_applications(people: Project) -> None:
    assert people.run("settings", "get", "on_read").out == "leave\n"
    result = people.run("settings", "set", "on_read", "write_back")
    assert (result.status, result.out) == (0, "on_read is write_back\n")
    assert people.run("settings", "get", "on_read").out == "write_back\n"
    with zapdb.open("sqlite:///test.db", migrations="migrations") as db:
        assert db.admin.setting("on_read") == "write_back"
    assert people.run("settings", "unset", "on_read").out == "on_read is leave\n"


def test_rule_14_a_table_may_have_its_own(people: Project) -> None:
    run = people.run
    result = run("settings", "set", "on_read", "write_back", "--table", "people")
    assert result.out == "on_read of table people is write_back\n"
    assert run("settings", "get", "on_read").out == "leave\n"
    assert run("settings", "get", "on_read", "--table", "people").out == "write_back\n"
    of_tenant = ["--tenant", "default", "--table", "people"]
    run("settings", "set", "on_read", "leave", *of_tenant)
    assert run("settings", "get", "on_read", *of_tenant).out == "leave\n"
    run("settings", "unset", "on_read", *of_tenant)
    found = run("settings", "get", "on_read", *of_tenant, "--json").json
    assert (found["value"], found["from"]) == ("write_back", "table")


def test_rule_14_there_are_two_profiles(people: Project) -> None:
    assert people.run("settings", "get", "convert").out == "on_access\n"
    assert people.run("settings", "profile", "production").out == (
        "profile is production\n"
        "convert is background, unless it is set\n"
        "convert_after_seconds is 3600, unless it is set\n"
        "rolled_back_kept_seconds is 604800, unless it is set\n"
    )
    found = people.run("settings", "get", "convert", "--json").json
    assert (found["value"], found["from"]) == ("background", "profile")
    people.run("settings", "set", "convert", "on_access")
    assert people.run("settings", "get", "convert").out == "on_access\n"
    people.run("settings", "unset", "convert")
    assert people.run("settings", "profile", "development").out == "profile is development\n"
    assert people.run("settings", "get", "convert").out == "on_access\n"
    assert people.run("settings", "profile", "test").status == 2


def test_all_settings_are_listed_with_what_they_mean(people: Project) -> None:
    text = people.run("settings", "list").out
    for name, setting in SETTINGS.items():
        assert name in text
        assert setting.description in text
    found = people.run("settings", "list", "--json").json["settings"]
    assert [setting["name"] for setting in found] == list(SETTINGS)
    people.run("settings", "set", "on_read", "write_back", "--table", "people")
    found = people.run("settings", "list", "--table", "people", "--json").json["settings"]
    assert {s["name"] for s in found if s["from"] != "default"} == {"on_read"}


def test_as_json(people: Project) -> None:
    found = {
        "name": "on_read",
        "value": "leave",
        "from": "default",
        "default": "leave",
        "values": ["leave", "write_back"],
        "scopes": ["database", "tenant", "table"],
        "description": SETTINGS["on_read"].description,
    }
    assert people.run("settings", "get", "on_read", "--json").json == found
    changed = people.run("settings", "set", "on_read", "leave", "--json").json
    seq = changed.pop("seq")
    assert changed == found | {"from": "database", "refused": []}
    assert people.run("settings", "unset", "on_read", "--json").json["seq"] > seq


@pytest.mark.parametrize(
    ("arguments", "status", "error"),
    [
        (
            ["set", "on_read", "forget"],
            2,
            "error: the setting does not allow this value\n"
            "  setting: on_read\n"
            "  value: forget\n"
            "  values: leave, write_back\n",
        ),
        (
            ["set", "job_records_per_second", "0"],
            2,
            "error: the setting does not allow this value\n"
            "  setting: job_records_per_second\n"
            "  value: 0\n"
            "  values: none, 1 to 1000000000\n",
        ),
        (
            ["set", "raise_level", "auto", "--table", "people"],
            2,
            "error: the setting cannot be set for a table\n  setting: raise_level\n"
            "  scopes: database\n",
        ),
        (
            ["unset", "on_read", "--table", "people", "--field", "age"],
            2,
            "error: the setting cannot be set for a field\n"
            "  setting: on_read\n"
            "  scopes: database, tenant, table\n",
        ),
        (
            ["set", "on_read", "leave", "--field", "name"],
            2,
            "error: a field needs its table\n  field: name\n  hint: add --table, or table=\n",
        ),
        (
            ["get", "on_write"],
            1,
            "error: there is no such setting\n  setting: on_write\n  settings: prof",
        ),
        (["set", "on_write", "x"], 1, "error: there is no such setting\n  setting: on_write\n"),
        (["get", "on_read", "--table", "nobody"], 1, "error: no such table\n  table: nobody\n"),
        (
            ["get", "on_read", "--table", "people", "--field", "nothing"],
            1,
            "error: the table has no such field\n  table: people\n  field: nothing\n",
        ),
        (
            ["get", "on_read", "--tenant", "nobody"],
            1,
            "error: there is no such tenant\n  tenant: nobody\n",
        ),
    ],
)
def test_wrong_values_and_names_change_nothing(
    people: Project, arguments: list[str], status: int, error: str
) -> None:
    before = people.dump()
    result = people.run("settings", *arguments)
    assert (result.status, result.out) == (status, "")
    assert result.err.startswith(error)
    assert people.dump() == before
