"""`zapdb catalog revisions` and `zapdb catalog prune`."""

from __future__ import annotations

import base64
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import zapdb
from tests.cli.program import Project
from tests.documents import document
from zapdb.past.files.wanted_stores import create_tenant
from zapdb.records import codec_for
from zapdb.schema import fingerprint, read_canonical_bytes

RENAME = """\
zapdb: 1
summary: Members
changes:
  - rename_table: {table: people, to: members}
rollback: inferred
"""


@pytest.fixture
def rolled_back(people: Project) -> Project:
    """Three changes, of which the last was forgotten, applied again and forgotten again."""
    people.run("migrate", "rollback", "--yes")
    people.run("migrate", "up", "--again")
    people.run("migrate", "rollback", "--yes")
    return people


def test_history(rolled_back: Project) -> None:
    result = rolled_back.run("catalog", "revisions", "--table", "people")
    assert result.status == 0
    header, rule, *lines = result.out.splitlines()
    assert header.split() == [
        "revision", "fingerprint", "migrated_at", "migrated_by", "migration", "event",
    ]  # fmt: skip
    assert set(rule) == {"-", " "}
    row = re.compile(
        r" *(\d+)  (0x[0-9a-f]{16})  (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)  (\S+@\S+) +(\S+) +(.*)"
    )
    rows = [re.fullmatch(row, line) for line in lines]
    found = [match.groups() for match in rows if match]
    assert [(revision, migration, event) for revision, _, _, _, migration, event in found] == [
        ("1", "0001_people", "create"),
        ("2", "0002_add_age", "change"),
        ("3", "0003_index_age", "change"),
        ("4", "0004_split_name", "change"),
        ("5", "0003_index_age", "rollback (back from revision 4)"),
        ("6", "0004_split_name", "change (back from revision 5)"),
        ("7", "0003_index_age", "rollback (back from revision 6)"),
    ]
    prints = [fingerprint for _, fingerprint, *_ in found]
    assert prints[2] == prints[4] == prints[6]
    assert prints[3] == prints[5]
    assert len(set(prints)) == 4
    at = datetime.fromisoformat(found[-1][2]).replace(tzinfo=UTC)
    assert abs(datetime.now(UTC) - at) < timedelta(seconds=60)


def test_history_limited_and_turned_round(rolled_back: Project) -> None:
    def revisions(*options: str) -> list[int]:
        result = rolled_back.run("catalog", "revisions", "--table", "people", "--json", *options)
        assert result.status == 0
        return [entry["revision"] for entry in result.lines]

    assert revisions() == [1, 2, 3, 4, 5, 6, 7]
    assert revisions("--limit", "2") == [1, 2]
    assert revisions("--desc") == [7, 6, 5, 4, 3, 2, 1]
    assert revisions("--desc", "--limit", "1") == [7]
    assert rolled_back.run("catalog", "revisions", "--table", "people", "--limit", "0").status == 2


def test_history_as_json_is_an_object_a_line(rolled_back: Project) -> None:
    entries = rolled_back.run("catalog", "revisions", "--table", "people", "--json").lines
    newest = entries[-1]
    assert re.fullmatch("0x[0-9a-f]{16}", newest.pop("fingerprint"))
    assert re.fullmatch(r".+@.+", newest.pop("migrated_by"))
    at = datetime.fromisoformat(newest.pop("migrated_at"))
    assert at.utcoffset() == timedelta(0)
    assert newest == {
        "table": "people",
        "table_number": 1,
        "revision": 7,
        "migration": "0003_index_age",
        "event": "rollback",
        "rollback_from": 6,
        "rollback_to": 5,
        "layout_revision": 7,
    }
    assert [entry["rollback_from"] for entry in entries] == [None] * 4 + [4, 5, 6]
    assert [entry["rollback_to"] for entry in entries[:-1]] == [None] * 4 + [3, 4]


def test_revisions_with_schemas(people: Project) -> None:
    command = ("catalog", "revisions", "--table", "people", "--json", "--with-schema")
    entries = people.run(*command).lines
    tables = [read_canonical_bytes(base64.b64decode(entry["schema"])) for entry in entries]
    assert [f"0x{fingerprint(table):016x}" for table in tables] == [
        entry["fingerprint"] for entry in entries
    ]
    code = people.run("catalog", "show", "people", "--code", "--json").json["code"]
    assert codec_for(tables[-1]).source in code
    result = people.run("catalog", "revisions", "--table", "people", "--with-schema")
    assert result.status == 2
    assert result.err == (
        "error: a table schema is binary, so it is shown in JSON only\n  hint: add --json\n"
    )


def test_history_of_a_table_that_was_dropped(people: Project) -> None:
    people.run("migrate", "rollback", "--to", "0", "--yes")
    result = people.run("catalog", "revisions", "--table", "people", "--json")
    assert result.status == 0
    assert result.lines[-1]["event"] == "drop"
    assert result.lines[-1]["migration"] is None
    assert (
        people.run("catalog", "revisions", "--table", "people").out.endswith("-  drop\n") is False
    )
    last = people.run("catalog", "revisions", "--table", "people").out.splitlines()[-1]
    assert re.search(r" -  +drop$", last)

    # Made again it is another table, with a history of its own.
    people.run("migrate", "up", "--again")
    again = people.run("catalog", "revisions", "--table", "people", "--json").lines
    assert {entry["table_number"] for entry in again} == {2}
    assert [entry["revision"] for entry in again] == [1, 2, 3, 4]
    people.run("migrate", "rollback", "--to", "0", "--yes")
    newest = people.run("catalog", "revisions", "--table", "people", "--json").lines
    assert {entry["table_number"] for entry in newest} == {2}


def test_history_by_a_former_name(people: Project) -> None:
    people.file("0005_members").write_text(RENAME)
    people.run("migrate", "up", "--again")
    for name in ("people", "members"):
        entries = people.run("catalog", "revisions", "--table", name, "--json").lines
        assert [entry["table"] for entry in entries] == ["people"] * 4 + ["members"]


def test_history_of_an_unknown_table(people: Project) -> None:
    result = people.run("catalog", "revisions", "--table", "persons")
    assert (result.status, result.out) == (1, "")
    assert (
        result.err == "error: no table has or ever had this name\n"
        "  table: persons\n"
        "  tables: people\n"
    )


HISTORY = ("catalog", "revisions", "--table", "people")


def test_history_by_number(people: Project) -> None:
    people.run("migrate", "rollback", "--to", "0", "--yes")
    people.run("migrate", "up", "--again")
    by_number = people.run("catalog", "revisions", "--table-number", "1", "--json").lines
    assert [entry["event"] for entry in by_number][-1] == "drop"
    assert {entry["table_number"] for entry in people.run(*HISTORY, "--json").lines} == {2}
    result = people.run("catalog", "revisions", "--table-number", "9")
    assert (result.status, result.err) == (
        1,
        "error: no table has or ever had this number\n"
        "  number: 9\n"
        "  tables: 1 (people), 2 (people)\n",
    )
    for options in ((), ("--table", "people", "--table-number", "1")):
        result = people.run("catalog", "revisions", *options)
        assert (result.status, result.out) == (2, "")
        assert result.err.startswith("error: give exactly one of the table's name and its number\n")


def test_history_since(rolled_back: Project) -> None:
    def since(value: str, *options: str) -> list[int]:
        result = rolled_back.run(*HISTORY, "--json", "--since", value, *options)
        assert result.status == 0, result.err
        return [entry["revision"] for entry in result.lines]

    assert since("5") == [5, 6, 7]
    assert since("8") == []  # the next one, when it is there
    assert since("0") == [1, 2, 3, 4, 5, 6, 7]
    for duration in ("1w", "7d", "12h", "30m", "600s"):
        assert since(duration) == [1, 2, 3, 4, 5, 6, 7]
    rolled_back.sql(
        "UPDATE zapdb_schema_history SET migrated_at = migrated_at - ? WHERE revision < 6",
        3 * 3_600_000_000,
    )
    assert since("2h") == [6, 7]
    assert since("4h", "--desc", "--limit", "2") == [7, 6]
    entries = rolled_back.run(*HISTORY, "--json").lines
    prints = [entry["fingerprint"] for entry in entries]
    assert since(prints[1]) == [3, 4, 5, 6, 7]
    assert since(prints[3].upper().replace("X", "x")) == [7]  # it was stamped last as revision 6
    assert since(prints[6]) == []
    # What is marked as a rollback depends on the whole log, not on what is shown.
    (entry,) = rolled_back.run(*HISTORY, "--json", "--since", "7").lines
    assert entry["rollback_from"] == 6

    result = rolled_back.run(*HISTORY, "--since", "0x5")
    assert (result.status, result.err) == (
        1,
        "error: the table's schema history has no such fingerprint\n"
        "  table: people\n"
        "  fingerprint: 0x0000000000000005\n"
        f"  fingerprints: {', '.join(dict.fromkeys(prints))}\n",
    )
    for wrong in ("9", "99999999999999999999", "yesterday", "7 d", "-1", "0x", "\u0667"):
        result = rolled_back.run(*HISTORY, f"--since={wrong}")
        assert (result.status, result.out) == (2, ""), wrong


def test_history_of_a_tenant(people: Project) -> None:
    with zapdb.open(f"sqlite:///{people.database}", migrations=people.migrations) as db:
        create_tenant(db._storage, "acme")
    result = people.run(*HISTORY, "--tenant", "acme")
    assert (result.status, result.err) == (
        1, "error: no table has or ever had this name\n"
           "  table: people\n"
           "  tables: (none)\n"
    )  # fmt: skip
    zapdb.open(f"sqlite:///{people.database}", migrations=people.migrations, tenant="acme").close()
    entries = people.run(*HISTORY, "--tenant", "acme", "--json").lines
    # It went to the end in one jump.
    assert [(entry["revision"], entry["migration"]) for entry in entries] == [
        (1, "0004_split_name")
    ]


def test_history_that_was_lost_begins_anew(current: Project) -> None:
    current.sql("DELETE FROM zapdb_schema_history")
    result = current.run(*HISTORY)
    assert result.status == 0
    *lines, new = result.out.splitlines()
    rest = r"  0x[0-9a-f]{16}  -            <system>     0004_split_name  recovered"
    assert re.fullmatch(f" +4{rest}", lines[2])
    assert re.fullmatch(f" *[0-9]+{rest}", new)
    first, second = current.run(*HISTORY, "--json").lines
    assert first["migrated_at"] == second["migrated_at"] == "1970-01-01T00:00:00+00:00"
    assert second["revision"] > first["revision"] == 4
    assert first["fingerprint"] == second["fingerprint"]


def test_history_that_was_lost_with_stale_records_is_refused(people: Project) -> None:
    with zapdb.open(f"sqlite:///{people.database}", migrations=people.migrations) as db:
        db.table("people").update(1, age=3)
    people.sql("DELETE FROM zapdb_schema_history")
    result = people.run(*HISTORY)
    assert (result.status, result.out) == (1, "")
    assert "19 of revision 1, 1 of revision 4" in result.err


# --diff


def test_the_difference_of_two_revisions(people: Project) -> None:
    people.file("0005_more").write_text(
        document(
            "rename_field: {table: people, field: age, to: years}",
            "change_type: {table: people, field: years, type: decimal, scale: 2,"
            " up: 'decimal(years, 2, else=0)', down: 'integer(years, else=0)',"
            " reversibility: lossy, default: '7.00'}",
            "make_optional: {table: people, field: fax, fill: {value: ''}}",
            "add_check: {table: people, check: grown, expression: years > 0}",
            "rename_table: {table: people, to: members}",
        )
    )
    result = people.run("migrate", "up", "--no-build")
    assert result.status == 0, result.err
    result = people.run(*HISTORY, "--diff", "4", "5")
    assert result.status == 0
    first, *rest = result.out.splitlines()
    assert re.fullmatch(
        r"members  revision 4 \(0x[0-9a-f]{16}\) → revision 5 \(0x[0-9a-f]{16}\)", first
    )
    assert rest == [
        "~ table members (1): name people → members",
        "~ field fax (3): optional no → yes",
        '~ field years (4): name age → years; type integer → decimal (scale 2); default 7 → "7.00"',
        "+ check grown (1): years > 0",
    ]
    backwards = people.run(*HISTORY, "--diff", "5", "1").out.splitlines()[1:]
    assert backwards == [
        "~ table people (1): name members → people",
        "+ field name (2): string",
        "~ field fax (3): optional yes → no",
        "- field first (5): string",
        "- field last (6): string",
        '- field years (4): decimal (scale 2); default "7.00"',
        "- index by_age (1): years",
        "- check grown (1): years > 0",
    ]
    assert people.run(*HISTORY, "--diff", "4", "4").out.splitlines()[1:] == ["no difference"]

    found = people.run(*HISTORY, "--diff", "4", "5", "--json").json
    assert (found["table"], found["table_number"]) == ("members", 1)
    assert (found["from"]["revision"], found["to"]["revision"]) == (4, 5)
    assert found["differences"][2] == {
        "part": "field",
        "number": 4,
        "name": "years",
        "change": "changed",
        "before": {"name": "age", "type": {"name": "integer"}, "default": 7},
        "after": {"name": "years", "type": {"name": "decimal", "scale": 2}, "default": "7.00"},
    }
    assert found["differences"][3]["before"] is None

    result = people.run(*HISTORY, "--diff", "4", "9")
    assert (result.status, result.err) == (
        1,
        "error: the table's schema history has no such revision\n"
        "  table: members\n"
        "  revision: 9\n"
        "  revisions: 1, 2, 3, 4, 5\n",
    )


# prune


def prune(project: Project, *options: str, stdin: str = "") -> Any:
    return project.run("catalog", "prune", "--table", "people", *options, stdin=stdin)


def revisions(project: Project) -> list[int]:
    return [entry["revision"] for entry in project.run(*HISTORY, "--json").lines]


def test_prune(current: Project) -> None:
    result = prune(current, "--keep-last", "1", "--dry-run")
    assert result.status == 0
    header, _, *lines = result.out.splitlines()
    assert header.split() == ["revision", "fingerprint", "migrated_at", "event", "needed", "by"]
    assert [line.split()[0] for line in lines] == ["1", "2", "3"]
    assert {line.split()[-1] for line in lines} == {"-"}
    assert revisions(current) == [1, 2, 3, 4]

    result = prune(current, "--keep-last", "1", stdin="n\n")
    assert result.status == 1
    assert result.out.endswith("nothing was changed\n")
    assert result.err == "delete 3 entries for good? [y/N] \n"
    result = prune(current, "--before", "2", stdin="y\n")
    assert result.status == 0
    assert result.out.endswith("pruned 1 entry\n")
    assert revisions(current) == [2, 3, 4]
    result = prune(current, "--older-than", "1h", "--yes")
    assert (result.status, result.out) == (0, "nothing to prune\n")
    result = prune(current, "--older-than", "0s", "--yes", "--json")
    assert result.json == {
        "table": "people",
        "table_number": 1,
        "pruned": [2, 3],
        "kept_for_layout": [],
        "in_use": [],
        "newest": 4,
        "done": True,
    }
    assert revisions(current) == [4]
    assert current.run("verify").status == 0
    current.file("0005_members").write_text(RENAME)
    assert current.run("migrate", "up").status == 0
    assert [e["revision"] for e in current.run(*HISTORY, "--json").lines] == [4, 5]
    result = prune(current, "--keep-last", "1", "--yes")
    assert result.out == "nothing to prune\nrevision 4 stays: later ones have its layout\n"


def test_the_names_that_others_have_for_revisions_and_pruning(current: Project) -> None:
    """`catalog history` is `catalog revisions`, and prunes with one of its options."""
    table = ("--table", "people")
    snapshots = current.run("catalog", "history", *table, "--json", "--with-snapshot").lines
    ours = current.run("catalog", "revisions", *table, "--json", "--with-schema")
    assert snapshots == ours.lines
    assert all(line["schema"] for line in snapshots)
    for word in ("--prune-older-than", "--with-snapshot"):
        for command in ("revisions", "prune"):
            assert word not in current.run("catalog", command, "--help").out
    old = current.run(
        "catalog", "history", *table, "--prune-older-than", "2026-01-31T00:00Z", "--yes"
    )
    assert (old.status, old.out) == (0, "nothing to prune\n")
    asked = "--prune-older-than=2999-01-31T00:00+01:00"
    assert current.run("catalog", "history", *table, asked, "--dry-run").status == 0
    assert revisions(current) == [1, 2, 3, 4]
    done = current.run("catalog", "history", *table, asked, "--yes", "--json").json
    assert done == prune(current, "--keep-last", "1", "--yes", "--json").json | {
        "pruned": [1, 2, 3],
        "done": True,
    }
    assert revisions(current) == [4]
    naive = prune(current, "--older-than", "2026-01-31T00:00", "--yes")
    assert (naive.status, naive.out) == (2, "")
    assert "if it is UTC, give 2026-01-31T00:00:00Z" in naive.err


def test_prune_is_refused_while_records_need_it(people: Project) -> None:
    result = prune(people, "--keep-last", "1", "--dry-run")
    assert result.status == 1
    assert result.out.splitlines()[2].endswith("create  20 records")
    result = prune(people, "--keep-last", "1", "--yes")
    assert result.status == 2
    assert result.err == (
        "error: stored data need the revisions that would be pruned\n"
        "  table: people\n"
        "  needed: revision 1: 20 records\n"
        "  hint: convert stale records with `zapdb convert run`, delete archived values "
        "with `zapdb migrate prune-archive`, or prune less; revisions that the change "
        "log or the history store needs always stay\n"
    )
    found = prune(people, "--keep-last", "1", "--dry-run", "--json").json
    assert found["in_use"] == [{"revision": 1, "by": "20 records"}]
    assert (found["done"], revisions(people)) == (False, [1, 2, 3, 4])


def test_prune_has_to_be_told_what(people: Project) -> None:
    for options in ((), ("--keep-last", "1", "--before", "2"), ("--keep-last", "0")):
        assert prune(people, *options, "--yes").status == 2
    for wrong in ("1", "1y", "d", "-1d", "1.5d"):
        result = prune(people, f"--older-than={wrong}", "--yes")
        assert (result.status, result.out) == (2, "")
        assert result.err.startswith("error: this is not a duration\n")
    people.run("convert", "run")
    result = prune(people, "--keep-last", "1")
    assert result.status == 2
    assert "standard input is not a terminal" in result.err
    result = prune(people, "--keep-last", "1", "--json")
    assert (result.status, result.out) == (2, "")
    assert revisions(people) == [1, 2, 3, 4]


def test_prune_begins_no_history(current: Project) -> None:
    current.sql("DELETE FROM zapdb_schema_history")
    result = prune(current, "--keep-last", "1", "--yes")
    assert (result.status, result.out) == (1, "")
    assert current.sql("SELECT count(*) FROM zapdb_schema_history") == [(0,)]


def test_a_long_history_is_read_in_several_requests(current: Project) -> None:
    """A request has 1,024 entries at most; neither a limit nor the order shows where one ended."""
    (columns,) = current.sql(
        "SELECT group_concat(name) FROM pragma_table_info('zapdb_schema_history')"
        " WHERE name NOT IN ('revision', 'layout_revision')"
    )
    current.sql(
        "WITH RECURSIVE more(revision) AS (SELECT 5 UNION ALL SELECT revision + 1 FROM more WHERE"
        f" revision < 2060) INSERT INTO zapdb_schema_history ({columns[0]}, revision,"
        f" layout_revision) SELECT {columns[0]}, more.revision, 4 FROM more,"
        " zapdb_schema_history AS known WHERE known.revision = 4"
    )

    def revisions(*given: str) -> list[int]:
        found = current.run("catalog", "revisions", "--table", "people", "--json", *given)
        return [line["revision"] for line in found.lines]

    assert revisions() == [*range(1, 2061)]
    assert revisions("--desc", "--limit", "1100") == [*range(2060, 960, -1)]
    assert revisions("--since", "7", "--limit", "3") == [7, 8, 9]
