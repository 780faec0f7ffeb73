"""`zapdb changes`: the change log, its followers, and pruning it."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import zapdb
from tests.cli.program import Project
from zapdb.catalog import principal


@pytest.fixture
def logged(project: Project) -> Project:
    """Three transactions of ada, then a new field; `search` has seen the first."""
    project.write("0001_people")
    with (
        zapdb.open("sqlite:///test.db", migrations="migrations", apply="auto") as db,
        principal.acting_as("ada"),
    ):
        db.admin.set_setting("change_log", "on")
        people = db.table("people")
        people.insert(id=1, name="Ada", fax="1")
        db.change_log.follower("search").advance(db.change_log.end())
        people.update(1, name="Ada Lovelace", fax="2\n" + "x" * 80)
        with db.transaction():
            people.insert(id=2, name="Bo", fax="x" * 9_000)
            people.delete(1)
    project.write("0001_people", "0002_add_age")
    assert project.run("migrate", "up").status == 0
    return project


def run_json(project: Project, *arguments: str) -> Any:
    result = project.run("changes", *arguments, "--json")
    assert result.err == ""
    return result.json


def bookmarks(project: Project) -> list[str]:
    return [made["bookmark"] for made in project.run("changes", "list", "--json").lines]


def test_list(logged: Project) -> None:
    result = logged.run("changes", "list")
    assert (result.status, result.err) == (0, "")
    header, rule, *lines = result.out.splitlines()
    assert header.split() == ["made", "at", "principal", "operation", "table", "key", "change"]
    assert set(rule) == {"-", " "}
    rows = [re.split(r"  +", line) for line in lines]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", row[0]) for row in rows)
    assert [row[1] for row in rows[:5]] == ["ada"] * 5
    assert [row[2:] for row in rows] == [
        ["change_log_on"],
        ["insert", "people", "1", "name=Ada, fax=1"],
        ["update", "people", "1", f"name: Ada → Ada Lovelace, fax: 1 → 2\\n{'x' * 27}…"],
        ["delete", "people", "1", f"name=Ada Lovelace, fax=2\\n{'x' * 27}…"],
        ["insert", "people", "2", "name=Bo, fax=<string of 9,000 bytes>"],
        ["activation", "migration 2"],
        ["change", "people", "revision 2, migration 2"],
    ]


def test_list_the_newest_first(logged: Project) -> None:
    oldest = logged.run("changes", "list", "--json").lines
    assert logged.run("changes", "list", "--json", "--newest").lines == oldest[::-1]
    shown = logged.run("changes", "list", "--newest", "--limit", "2")
    assert "there are more changes: a higher --limit shows them" in shown.err
    both = logged.run("changes", "list", "--newest", "--since", oldest[0]["bookmark"])
    assert both.status == 2
    assert "leave out one of them" in both.err


def test_list_as_json_is_an_object_a_line(logged: Project) -> None:
    lines = logged.run("changes", "list", "--json").lines
    assert len(lines) == 7
    update = lines[2]
    for name in ("made_at", "stamped_at"):
        at = datetime.fromisoformat(update.pop(name))
        assert abs(datetime.now(UTC) - at) < timedelta(seconds=60)
    assert re.fullmatch(r"1\.3\.\d{16}\.3\.1\.81", update.pop("bookmark"))
    assert update == {
        "table": "people",
        "operation": "update",
        "key": [1],
        "before": {"id": 1, "name": "Ada", "fax": "1"},
        "after": {"id": 1, "name": "Ada Lovelace", "fax": "2\n" + "x" * 80},
        "archived_before": None,
        "archived_after": None,
        "replaced": False,
        "unreadable": None,
        "revision": 1,
        "principal": "ada",
        "transaction": 3,
        "stamp": 3,
    }
    assert lines[4]["after"]["fax"] == "x" * 9_000
    assert (lines[3]["after"], lines[4]["before"]) == (None, None)
    event = lines[6]
    assert {name: event[name] for name in ("table", "event", "revision", "position")} == {
        "table": "people",
        "event": "change",
        "revision": 2,
        "position": 2,
    }


def test_list_some(logged: Project) -> None:
    places = bookmarks(logged)

    def listed(*options: str) -> list[str]:
        result = logged.run("changes", "list", "--json", *options)
        assert result.status == 0
        return [made["bookmark"] for made in result.lines]

    assert listed("--since", places[3]) == places[4:]
    assert listed("--table", "people") == [*places[1:5], places[6]]
    assert listed("--since", places[3], "--table", "people", "-n", "1") == [places[4]]
    result = logged.run("changes", "list", "--limit", "2")
    assert result.err == f"there are more changes: --since {places[1]}\n"
    assert len(result.out.splitlines()) == 4
    assert logged.run("changes", "list", "--limit", "7").err == ""
    assert logged.run("changes", "list", "--since", places[-1]).out == "no changes\n"
    for options, status in (
        (("--table", "nobody"), 1),
        (("--since", "x"), 2),
        (("--since", "1.99.0.1.1.80"), 2),
        (("--limit", "0"), 2),
    ):
        assert logged.run("changes", "list", *options).status == status


def test_followers(logged: Project) -> None:
    result = logged.run("changes", "followers")
    header, _, row = result.out.splitlines()
    assert header.split() == ["follower", "advanced", "at", "changes", "behind", "lag", "bookmark"]
    assert re.fullmatch(
        r"search +\d{4}\S+ [\d:]{8} +5 +\d+s +1\.2\.\d{16}\.9223372036854775807\.0\.", row
    )
    shown = run_json(logged, "followers")
    (follower,) = shown["followers"]
    assert shown["begins_at"] == "1.0.0.0.0."
    assert follower.keys() == {
        "name", "bookmark", "advanced_at", "changes_behind", "seconds_behind",
    }  # fmt: skip
    assert (follower["name"], follower["changes_behind"]) == ("search", 5)
    assert 0 < follower["seconds_behind"] < 60
    assert datetime.fromisoformat(follower["advanced_at"]).utcoffset() == timedelta(0)


def test_a_follower_is_removed(logged: Project) -> None:
    result = logged.run("changes", "remove-follower", "serch")
    assert result.status == 1
    assert "did you mean 'search'?" in result.err
    before = logged.dump()["zapdb_followers"]
    for stdin, status in (("", 2), ("n\n", 1)):
        result = logged.run("changes", "remove-follower", "search", stdin=stdin)
        assert result.status == status
        assert "remove search, which is 5 changes behind? [y/N]" in result.err
    assert logged.run("changes", "remove-follower", "search", "--json").status == 2
    assert logged.dump()["zapdb_followers"] == before
    result = logged.run("changes", "remove-follower", "search", stdin="y\n")
    assert (result.status, result.out) == (0, "removed search\n")
    assert logged.run("changes", "followers").out == "no followers\n"


def test_prune(logged: Project) -> None:
    places = bookmarks(logged)
    prune = ("changes", "prune", "--before")
    result = logged.run(*prune, places[1], "--dry-run")
    assert (result.status, result.out) == (0, "2 changes would be deleted\n")
    for stdin, status in (("", 2), ("n\n", 1)):
        result = logged.run(*prune, places[1], stdin=stdin)
        assert result.status == status
        assert result.err.startswith("delete 2 changes for good? [y/N]")
    assert logged.run(*prune, places[1], "--json").status == 2
    assert bookmarks(logged) == places
    result = logged.run(*prune, places[1], stdin="y\n")
    assert (result.status, result.out) == (0, "pruned 2 changes\n")
    assert bookmarks(logged) == places[2:]
    assert run_json(logged, "followers")["begins_at"] == places[1]
    result = logged.run("changes", "list", "--since", places[0])
    assert result.status == 1
    assert "changes after the bookmark were pruned" in result.err
    assert logged.run(*prune, places[1], "--yes").out == "nothing to prune\n"


def test_prune_what_a_follower_has_not_seen(logged: Project) -> None:
    places = bookmarks(logged)
    result = logged.run("changes", "prune", "--older-than", "0s", "--dry-run")
    assert result.status == 1
    assert result.out == "7 changes would be deleted\nsearch has not read all of these changes\n"
    result = logged.run("changes", "prune", "--older-than", "0s", "--yes")
    assert result.status == 2
    assert "followers: search" in result.err
    assert "`zapdb changes remove-follower search`" in result.err
    assert bookmarks(logged) == places
    assert run_json(logged, "prune", "--older-than", "0s", "--dry-run") == {
        "changes": 7,
        "begins_at": places[-1],
        "behind": ["search"],
        "done": False,
    }
    logged.run("changes", "remove-follower", "search", "--yes")
    assert run_json(logged, "prune", "--before", "2100-01-01T00:00+02:00", "--yes") == {
        "changes": 7,
        "begins_at": places[-1],
        "behind": [],
        "done": True,
    }
    assert bookmarks(logged) == []


def test_prune_by_age(logged: Project) -> None:
    assert run_json(logged, "prune", "--older-than", "1h", "--yes")["changes"] == 0
    logged.sql("UPDATE zapdb_transactions SET made_at = made_at - 7200000000 WHERE number < 2")
    assert run_json(logged, "prune", "--older-than", "3h", "--yes")["changes"] == 0
    assert run_json(logged, "prune", "--older-than", "1h", "--yes")["changes"] == 1
    assert len(bookmarks(logged)) == 6


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--before", "2026-01-01T00:00Z", "--older-than", "3d"),
        ("--before", "2026-01-01"),
        ("--before", "yesterday"),
        ("--before", "1.99.0.1.1.80"),
        ("--older-than", "long"),
    ],
)
def test_prune_what_can_not_be_meant(logged: Project, options: tuple[str, ...]) -> None:
    result = logged.run("changes", "prune", "--yes", *options)
    assert (result.status, result.out) == (2, "")
    assert len(bookmarks(logged)) == 7


def test_a_log_that_was_never_switched_on_says_so(project: Project) -> None:
    project.write("0001_people")
    assert project.run("migrate", "up").status == 0
    result = project.run("changes", "list")
    assert (result.status, result.out) == (0, "no changes\n")
    assert "zapdb settings set change_log on" in result.err
