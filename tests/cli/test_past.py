"""`zapdb history`: the database at past moments, and what changed between them."""

from __future__ import annotations

from contextlib import closing

import pytest

import zapdb
from tests.cli.program import Project
from zapdb.catalog import DEFAULT_TENANT, principal
from zapdb.jobs import (
    archive_pruning,
)
from zapdb.storage import connect


@pytest.fixture
def logged(project: Project) -> Project:
    """Two people, of whom ada changes one and deletes the other."""
    project.write("0001_people")
    with zapdb.open("sqlite:///test.db", migrations="migrations", apply="auto") as db:
        db.admin.set_setting("change_log", "on")
        people = db.table("people")
        people.insert_many(
            [{"id": 1, "name": "Ada", "fax": "1"}, {"id": 2, "name": "Bo", "fax": "9"}]
        )
        with principal.acting_as("ada"), db.transaction():
            people.update(1, fax="2")
            people.delete(2)
    return project


def test_moments(logged: Project) -> None:
    result = logged.run("history", "moments")
    assert (result.status, result.err) == (0, "")
    rows = [line.split() for line in result.out.splitlines()[2:]]
    assert [(row[0], row[3], row[4:]) for row in rows[:2]] == [
        ("#3", "ada", ["people", "~1", "-1"]),
        ("#2", rows[1][3], ["people", "+2"]),
    ]
    assert logged.run("history", "moments", "-n", "1").err == (
        "there are earlier moments: --until '#2'\n"
    )
    (made,) = logged.run("history", "moments", "--principal", "ada", "--json").lines
    assert made["moment"] == 3
    assert made["changes"] == [
        {"table": "people", "inserted": 0, "updated": 1, "deleted": 1, "events": 0}
    ]


def test_audit(logged: Project) -> None:
    result = logged.run("history", "audit")
    assert (result.status, result.err) == (0, "")
    rows = [line.split() for line in result.out.splitlines()[2:]]
    assert [(row[0], row[3], *row[4:]) for row in rows[:3]] == [
        ("#3", "ada", "people", "2", "delete", "name=Bo,", "fax=9"),
        ("#3", "ada", "people", "1", "update", "fax:", "1", "→", "2"),
        ("#2", rows[2][3], "people", "2", "insert", "name=Bo,", "fax=9"),
    ]
    few = logged.run("history", "audit", "--table", "people", "--field", "fax", "-n", "1")
    assert few.err == "there are earlier changes: --limit shows more, --until earlier ones\n"
    (_, made) = logged.run("history", "audit", "--principal", "ada", "--json").lines
    assert (made["moment"], made["key"], made["fields"]) == (3, [1], ["fax"])
    assert (made["before"]["fax"], made["after"]["fax"]) == ("1", "2")
    assert logged.run("history", "audit", "--until", "#0").out == "no changes\n"
    wrong = logged.run("history", "audit", "--field", "fx")
    assert (wrong.status, "did you mean 'fax'" in wrong.err) == (1, True)


def test_a_past_is_read_by_sql_as_a_table_and_as_a_record(logged: Project) -> None:
    (_, bookmark) = (
        made["bookmark"] for made in logged.run("history", "moments", "--json").lines[:2]
    )
    for moment in ("#2", bookmark):
        result = logged.run("history", "query", "SELECT name FROM people", "--at", moment, "--json")
        assert result.json["rows"] == [["Ada"], ["Bo"]]
    result = logged.run("history", "table", "people", "--at", "#2", "--where", "id > 1", "--json")
    assert [record["name"] for record in result.json["records"]] == ["Bo"]
    result = logged.run("history", "table", "people", "--at", "#2", "--order-by=-name", "-n", "1")
    assert "Bo" in result.out
    assert result.err.startswith("more: --cursor ")
    assert logged.run("history", "row", "people", "1", "--at", "#2", "--json").json["fax"] == "1"
    assert "fax   1" in logged.run("history", "row", "people", "1", "--at", "#2").out


def test_values_that_are_not_exact_are_told(
    logged: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A field is dropped, the pruning of its archive is broken off, it is restored, and its table
    changes again before the store comes to it."""
    assert logged.run("history", "start", "past").status == 0
    assert logged.run("history", "run", "--once").status == 0
    moments = []
    for number, change in enumerate(
        (
            "drop_field: {table: people, field: fax,"
            " restore: {archive: true, otherwise: {value: lost}}}",
            "restore_field: {table: people, field: fax, archived_by: 2, otherwise: {value: never}}",
            "add_field: {table: people, field: {name: age, type: integer, default: 7}}",
        ),
        2,
    ):
        if number == 3:
            assert logged.run("convert", "run").status == 0
            with monkeypatch.context() as patched:
                patched.setattr(archive_pruning, "delete_archives", _break_off)
                with (
                    pytest.raises(KeyboardInterrupt),
                    closing(connect("sqlite:///test.db")) as storage,
                ):
                    archive_pruning.prune_archives(storage, DEFAULT_TENANT)
        text = f"zapdb: 1\nsummary: A change\nchanges:\n  - {change}\nrollback: inferred\n"
        logged.file(f"000{number}_change").write_text(text, encoding="utf-8")
        assert logged.run("migrate", "up").status == 0
        (made,) = logged.run("history", "moments", "-n", "1", "--json").lines
        moments.append(f"#{made['moment']}")
    assert logged.run("history", "flush").status == 0
    for command in (
        ("query", "SELECT fax FROM people", "--at"),
        ("table", "people", "--at"),
        ("row", "people", "1", "--at"),
    ):
        notes = ["not exact" in logged.run("history", *command, at).err for at in moments[1:]]
        assert notes == [True, False]
    for at in moments[1:]:
        made = logged.run("history", "export", f"out{at[1:]}", "--at", at, "--json")
        doubts = {"people": "archive_pruning"} if at == moments[1] else {}
        assert made.json["moment"]["doubts"] == doubts
        assert ("not exact" in made.err) == bool(doubts)
    verified = logged.run("history", "verify", "--json")
    assert verified.json["doubts"] == {"people": "archive_pruning"}
    assert "prune-archive` was deleting them" in verified.err


def _break_off(*_: object) -> int:
    raise KeyboardInterrupt


def test_the_versions_of_a_record_and_what_differs(logged: Project) -> None:
    result = logged.run("history", "row", "people", "1")
    assert [line.split("  ")[-1].strip() for line in result.out.splitlines()[2:]] == [
        "name=Ada, fax=1",
        "fax: 1 → 2",
    ]
    told = logged.run("history", "row", "people", "2", "--json").lines
    assert [(one["operation"], one["record"] and one["record"]["name"]) for one in told] == [
        ("insert", "Bo"),
        ("delete", None),
    ]
    told = logged.run("history", "diff", "#2", "#3", "--json").lines
    assert [(one["key"], one["after"] and one["after"]["fax"]) for one in told] == [
        ([1], "2"),
        ([2], None),
    ]
    result = logged.run("history", "diff", "#3", "#2", "--table", "people")
    lines = [line.split() for line in result.out.splitlines()[2:]]
    assert [(one[2], " ".join(one[3:])) for one in lines] == [
        ("update", "fax: 2 → 1"),
        ("insert", "name=Bo, fax=9"),
    ]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("table", "people", "--at", "yesterday"), "this names no moment"),
        (("table", "people", "--at", "2026-01-01T00:00"), "give 2026-01-01T00:00:00Z"),
        (("table", "people", "--at", "2126-01-01T00:00Z"), "the time is not over yet"),
        (("table", "people", "--at", "#9"), "there is no such moment yet"),
        (("table", "people", "--at", "#0"), "not recorded all the time"),
        (("table", "persons", "--at", "#2"), "no such table"),
        (("query", "DELETE FROM people", "--at", "#2"), "error: "),
        (("row", "people", "7"), "the change log has no record with this key"),
        (("row", "people", "7", "--at", "#2"), "no record with this key at moment #2"),
        (("row", "people", "1", "2"), "one value for each field of the key"),
        (("row", "people"), "missing argument 'key'"),
        (("diff", "#2", "soon"), "this names no moment"),
        (("moments", "--table", "persons"), "no such table"),
    ],
)
def test_wrong_input(logged: Project, arguments: tuple[str, ...], says: str) -> None:
    result = logged.run("history", *arguments)
    assert result.status != 0
    assert says in result.err
    assert "Traceback" not in result.err


def test_a_name_of_another_time_is_told(logged: Project) -> None:
    change = "{table: people, to: persons}\n  - rename_field: {table: persons, field: fax, to: tel}"
    text = f"zapdb: 1\nsummary: Names\nchanges:\n  - rename_table: {change}\nrollback: inferred\n"
    logged.file("0002_names").write_text(text, encoding="utf-8")
    assert logged.run("migrate", "up").status == 0
    for says, *arguments in (
        ("the table is called 'persons' now", "row", "people", "1"),
        ("the table was called 'people'", "row", "persons", "1", "--at", "#2"),
        ("the table was called 'people'", "query", "FROM persons", "--at", "#2"),
        ("the field was called 'fax'", "query", "SELECT tel FROM people", "--at", "#2"),
        ("the field was called 'fax'", "table", "people", "--at", "#2", "--where", "tel == '1'"),
        ("the field was called 'fax'", "table", "people", "--at", "#2", "--order-by", "tel"),
    ):
        assert says in logged.run("history", *arguments).err, arguments


def test_a_record_that_was_never_recorded_says_so(logged: Project) -> None:
    """What is there and has not changed is no error; with the change log off, nothing is known."""
    assert logged.run("settings", "set", "change_log", "off").status == 0
    assert logged.run("data", "put", "people", "id=8", "name=Cy", "fax=1").status == 0
    result = logged.run("history", "row", "people", "8")
    assert (result.status, "the change log is off, and it has nothing" in result.err) == (1, True)
    assert logged.run("history", "row", "people", "1").status == 0
    assert logged.run("settings", "set", "change_log", "on").status == 0
    result = logged.run("history", "row", "people", "8")
    assert (result.status, result.out) == (0, "no changes since the change log was switched on\n")


def test_a_record_of_a_dropped_table_is_told(logged: Project) -> None:
    """By the name that it had, also where another table has that name now."""
    before = logged.run("history", "row", "people", "1").out
    head = "zapdb: 1\nsummary: People\nrollback: inferred\nchanges:\n"
    text = "  - drop_table: {table: people, records: archive}\n"
    logged.file("0002_gone").write_text(head + text, encoding="utf-8")
    assert logged.run("migrate", "up").status == 0
    told = logged.run("history", "row", "people", "1")
    assert told.status == 0
    assert told.out.split("\n")[2:-2] == before.split("\n")[2:-1]
    assert " drop " in told.out.split("\n")[-2]
    found = logged.run("history", "row", "people", "1", "--json").lines
    assert [one["operation"] for one in found][-1] == "drop"
    assert found[-1]["record"] is None
    fields = "[{name: id, type: integer}, {name: town, type: string}]"
    text = f"  - create_table: {{table: people, key: [id], fields: {fields}}}\n"
    logged.file("0003_again").write_text(head + text, encoding="utf-8")
    assert logged.run("migrate", "up").status == 0
    assert logged.run("data", "put", "people", "id=1", "town=Rome").status == 0
    lines = logged.run("history", "row", "people", "1").out.split("\n")
    assert lines[-3] == told.out.split("\n")[-2]
    assert lines[-2].endswith("insert     town=Rome")
    missing = logged.run("history", "row", "people", "77")
    assert (missing.status, "has no record with this key" in missing.err) == (1, True)
    missing = logged.run("history", "row", "peopel", "1")
    assert (missing.status, "hint" in missing.err) == (1, True)
