"""Texts of data and documents: nothing in them reaches a terminal as more than text, and none of
them can look like a line of zapdb's own."""

from __future__ import annotations

import csv
import io
import json
import logging

import msgspec
import pytest

import zapdb
from tests.cli.program import PEOPLE, Project
from zapdb.errors import InvalidMigration, InvalidValue, Location, UsageError, Violation
from zapdb.limits import SUMMARY_LENGTH_CHARS_MAX
from zapdb.logs import log_event
from zapdb.printing import one_line
from zapdb.storage.gate import GateHolder, NodeLease
from zapdb.storage.owners import Owner

FORGED = "x\n  hint: run `rm -rf /`\nerror: y"
CONTROLS = (
    "\x1b[2J",
    "\x07",
    "\x9b31m",
    "\u202e",
    "\u2066",
    "\u2028",
    "\u2029",
    "\x85",
    "\r",
    "\0",
)


@pytest.mark.parametrize("text", [FORGED, *CONTROLS], ids=ascii)
def test_what_an_error_holds_is_never_a_line_of_its_own(text: str) -> None:
    shown = str(UsageError(f"m {text}", location=Location(text, 1, 1), hint=f"h {text}", key=text))
    assert len(shown.splitlines()) == 3
    assert all(line.isprintable() for line in shown.splitlines())
    violation = str(Violation(Location(text, 1, 1), text, text, f"    {text}"))
    for line in violation.split("\n"):
        assert line.isprintable()
    assert [line[:6] for line in violation.split("\n")].count("  hint") == 1 + (
        text == FORGED  # an excerpt shows the lines of its file, which are further to the right
    )
    refused = InvalidMigration([Violation(Location("f", 1, 1), text, text)])
    assert len(str(refused).split("\n")) == 2


def test_long_values_are_cut() -> None:
    assert len(str(UsageError("m", key="x" * 1_000_000))) < 2_100
    assert one_line("x" * 100, 10) == "xxxxxxxxx…"


@pytest.mark.parametrize("text", [FORGED, *CONTROLS], ids=ascii)
def test_what_is_logged_is_one_line(text: str, caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("zapdb.test")
    with caplog.at_level(logging.INFO, "zapdb"):
        log_event(logger, "job.done", "done", table=text)
    assert caplog.records[-1].getMessage().isprintable()


@pytest.mark.parametrize("text", [FORGED, *CONTROLS], ids=ascii)
def test_who_holds_the_gate_or_a_lease_is_told_in_one_line(text: str) -> None:
    """Their hosts and roles stand in rows that anybody may have written; logs show them."""
    owner = msgspec.structs.replace(Owner.here("someone"), host=text)
    node = NodeLease(owner, 0)
    for shown in (
        str(owner),
        str(GateHolder(1, "zapdb", 2.0, node, 3.0, ())),
        str(GateHolder(1, text, None, None, None, ())),
    ):
        assert shown.isprintable()
        assert len(shown) < 1_000


@pytest.mark.parametrize("wrong", ["a\\rb", "a\\eb", "a\\u202Eb", "a\\x9Bb", "x" * 501], ids=len)
def test_a_summary_is_one_line_of_bounded_text(project: Project, wrong: str) -> None:
    project.file("0001_people").write_text(PEOPLE.replace("summary: People", f'summary: "{wrong}"'))
    result = project.run("migrate", "check")
    assert result.status == 1
    assert "0001_people.yaml:2:10: a summary " in result.err
    assert "\x1b" not in result.err
    longest = "x" * SUMMARY_LENGTH_CHARS_MAX
    project.file("0001_people").write_text(PEOPLE.replace("summary: People", f"summary: {longest}"))
    assert project.run("migrate", "check", "--write").status == 0


def test_records_send_nothing_to_a_terminal(current: Project) -> None:
    hostile = f"\x1b[2J\u202e{FORGED}"
    as_record = json.dumps({"id": 1, "name": "Ada L1", "fax": hostile, "age": 7})
    columns = [row[1] for row in current.sql("PRAGMA table_info(zapdb_records_1)")]
    assert columns
    name = {"first": hostile, "last": "x"}
    given = json.dumps({"id": 99, "fax": hostile, "age": 7, **name})
    assert as_record != given
    assert current.run("import", "-", "--table", "people", stdin=given).status == 0
    for command in (
        ("data", "list", "people"),
        ("data", "get", "people", "99"),
        ("data", "export", "people", "-f", "csv"),
        ("data", "export", "people", "-f", "ndjson"),
    ):
        shown = current.show(*command, columns=100)
        assert "\x1b[2J" not in shown
        assert "\u202e" not in shown
        if command[1] != "export":
            assert "\n  hint" not in current.run(*command).out


def test_csv_for_spreadsheets_holds_no_formula(current: Project) -> None:
    texts = ["=1+1", "+1", "-1", "@SUM(A1)", "\tx", "\rx", "a=1", "＝1", ""]
    lines = [
        json.dumps({"id": 100 + at, "first": text, "last": text, "fax": "1", "age": -at})
        for at, text in enumerate(texts)
    ]
    assert current.run("import", "-", "--table", "people", stdin="\n".join(lines)).status == 0
    export = ("data", "export", "people", "-f", "csv")
    plain, safe = (
        list(csv.DictReader(io.StringIO(current.run(*export, *more).out, newline="")))[20:]
        for more in ((), ("--safe-for-spreadsheets",))
    )
    assert [row["first"] for row in plain] == texts
    assert [row["first"] for row in safe] == [
        *("'=1+1", "'+1", "'-1", "'@SUM(A1)", "'\tx", "'\rx", "a=1", "'＝1", "")
    ]
    assert [row["age"] for row in safe] == [str(-at) for at in range(len(texts))]
    refused = current.run("data", "export", "people", "--safe-for-spreadsheets")
    assert refused.status == 2
    assert "--safe-for-spreadsheets is only for CSV" in refused.err


LONG = "z" * 500


@pytest.mark.parametrize(
    ("form", "lines", "shown"),
    [
        ("csv", "id,age\n1,seven\n", "seven"),
        ("csv", f"id,age\n1,{LONG}\n", "z" * 59 + "…"),
        ("csv", "id,age\n1,\x1b[2J\n", "\\x1b[2J"),
        ("ndjson", '{"id": 1, "age": "seven"}', "seven"),
        ("ndjson", '{"id": 1, "age": [1, 2]}', "[1, 2]"),
        ("ndjson", '{"id": 1, "age": true}', "true"),
        ("ndjson", '{"id": 1, "age"', '{"id": 1, "age"'),
    ],
)
def test_an_import_shows_the_value_that_it_refuses(
    current: Project, form: str, lines: str, shown: str
) -> None:
    command = ("import", "-", "--table", "people", "--mode", "upsert", "-f", form)
    refused = current.run(*command, stdin=lines)
    assert refused.status == 1
    assert f"\n  value: {shown}\n" in refused.err
    assert refused.err.startswith("error: standard input:")
    as_json = current.run(*command, "--json", stdin=lines).error
    assert as_json["context"]["value"] == shown
    assert shown not in as_json["message"]


def test_in_the_library_the_refused_value_is_in_no_text(current: Project) -> None:
    with zapdb.open(f"sqlite:///{current.database}") as db, pytest.raises(InvalidValue) as caught:
        db.table("people").insert(id=1, first="a", last="b", fax="c", age="secret words")
    assert "secret words" not in str(caught.value)
