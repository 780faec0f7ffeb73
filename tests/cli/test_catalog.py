"""`zapdb catalog list`, `show` and `history`."""

from __future__ import annotations

import base64
import re
from datetime import UTC, datetime, timedelta

import pytest

from tests.cli.program import Project
from tests.documents import document
from zapdb.records import codec_for
from zapdb.schema import fingerprint, read_snapshot

RENAME = """\
zapdb: 1
summary: Members
changes:
  - rename_table: {table: people, to: members}
rollback: inferred
"""


def test_list(people: Project) -> None:
    result = people.run("catalog", "list")
    assert result.status == 0
    assert re.fullmatch(
        r"table   key  fields  indexes  revision  fingerprint\n"
        r"------  ---  ------  -------  --------  ------------------\n"
        r"people  id        5        1         4  0x[0-9a-f]{16}\n",
        result.out,
    )
    found = people.run("catalog", "list", "--json").json
    assert re.fullmatch("0x[0-9a-f]{16}", found["tables"][0].pop("fingerprint"))
    assert found == {
        "position": 4,
        "migration": "0004_split_name",
        "tables": [
            {
                "table": "people",
                "number": 1,
                "key": ["id"],
                "fields": ["id", "first", "last", "fax", "age"],
                "indexes": ["by_age"],
                "revision": 4,
                "layout_revision": 4,
            }
        ],
    }


def test_list_of_no_tables(project: Project) -> None:
    project.write("0001_people")
    project.run("migrate", "up")
    project.run("migrate", "forget", "--yes")
    assert project.run("catalog", "list").out == "no tables\n"
    found = project.run("catalog", "list", "--json").json
    assert found == {"position": 0, "migration": None, "tables": []}


def test_show(people: Project) -> None:
    result = people.run("catalog", "show", "people")
    assert result.status == 0
    first, _, rest = result.out.partition("\n")
    assert re.fullmatch(
        r"people  revision 4, layout of revision 4, fingerprint 0x[0-9a-f]{16}", first
    )
    assert rest == (
        "\n"
        "field  type     attributes\n"
        "-----  -------  ----------\n"
        "id     integer  key\n"
        "first  string\n"
        "last   string\n"
        "fax    string\n"
        "age    integer  default 7\n"
        "\n"
        "index   fields  state       built with\n"
        "------  ------  ----------  ----------\n"
        "by_age  age     write-only  -\n"
    )
    people.run("convert", "run")
    assert "by_age  age     readable  -\n" in people.run("catalog", "show", "people").out


def test_show_of_every_attribute(project: Project) -> None:
    project.file("0001_people").write_text(
        "zapdb: 1\nsummary: People\nrollback: inferred\nchanges:\n"
        "  - create_table:\n"
        "      table: people\n"
        "      key: [id, day]\n"
        "      fields:\n"
        "        - {name: day, type: date}\n"
        "        - {name: id, type: uuid, generated: true}\n"
        "        - {name: name, type: string}\n"
        '        - {name: paid, type: decimal, scale: 2, default: "0.50"}\n'
        "        - {name: left, type: date, optional: true, default: null}\n"
        "  - create_index:\n"
        "      table: people\n"
        "      index: by_name\n"
        "      fields: [{field: name, collation: {locale: de, strength: primary}},"
        " {field: paid, descending: true}]\n"
    )
    assert project.run("migrate", "up").status == 0
    text = project.run("catalog", "show", "people").out
    assert (
        "day    date               key 2\n"
        "id     uuid               key 1, generated\n"
        "name   string\n"
        'paid   decimal (scale 2)  default "0.50"\n'
        "left   date               optional, default null\n"
    ) in text
    assert "by_name  name (de/primary), paid descending  readable  collation:de/primary ICU" in text

    found = project.run("catalog", "show", "people", "--json").json
    assert found["key"] == ["id", "day"]
    assert found["fields"][3] == {
        "name": "paid",
        "number": 4,
        "type": {"name": "decimal", "scale": 2},
        "key": False,
        "optional": False,
        "generated": False,
        "default": "0.50",
    }
    assert found["fields"][4]["default"] is None
    assert "default" not in found["fields"][0]
    (index,) = found["indexes"]
    (dataset,) = index.pop("datasets").items()
    assert dataset[0] == "collation:de/primary"
    assert set(dataset[1]) == {"version", "fingerprint"}
    assert index == {
        "name": "by_name",
        "number": 1,
        "unique": False,
        "state": "readable",
        "fields": [
            {"field": "name", "collation": "de/primary", "descending": False},
            {"field": "paid", "collation": None, "descending": True},
        ],
    }


def test_show_the_code_of_a_table(people: Project) -> None:
    result = people.run("catalog", "show", "people", "--code")
    assert result.status == 0
    compile(result.out, "codec", "exec")
    assert [line for line in result.out.splitlines() if line.startswith("def ")] == [
        "def encode(prefix, m, beside):",
        "def encode_key(m):",
        "def decode(key, value, start, beside):",
        "def decode_key(b):",
        "def skip(b, p):",
        "def build(record):",
        "def convert(key, value, start, prefix, beside):",
        "def convert(key, value, start, prefix, beside):",
    ]
    headings = [line for line in result.out.splitlines() if line.startswith("# The")]
    assert headings == [
        "# The codec of people, revision 4.",
        "# The keys of the index by_age.",
        "# The conversion from revision 1 to revision 4.",
        "# The conversion from revision 2 to revision 4.",
    ]
    assert people.run("catalog", "show", "people", "--code", "--json").json["code"] in result.out


def test_show_of_an_unknown_table(people: Project) -> None:
    result = people.run("catalog", "show", "persons")
    assert (result.status, result.out) == (1, "")
    assert result.err == "error: no such table\n  table: persons\n  tables: people\n"


# history


@pytest.fixture
def rolled_back(people: Project) -> Project:
    """Three changes, of which the last was forgotten, applied again and forgotten again."""
    people.run("migrate", "forget", "--yes")
    people.run("migrate", "up")
    people.run("migrate", "forget", "--yes")
    return people


def test_history(rolled_back: Project) -> None:
    result = rolled_back.run("catalog", "history", "--table", "people")
    assert result.status == 0
    header, rule, *lines = result.out.splitlines()
    assert header.split() == [
        "gen", "fingerprint", "migrated_at", "migrated_by", "migration", "event",
    ]  # fmt: skip
    assert set(rule) == {"-", " "}
    row = re.compile(
        r" *(\d+)  (0x[0-9a-f]{16})  (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)  (\S+@\S+) +(\S+) +(.*)"
    )
    rows = [re.fullmatch(row, line) for line in lines]
    found = [match.groups() for match in rows if match]
    assert [(gen, migration, event) for gen, _, _, _, migration, event in found] == [
        ("1", "0001_people", "create"),
        ("2", "0002_add_age", "change"),
        ("3", "0003_index_age", "change"),
        ("4", "0004_split_name", "change"),
        ("5", "0003_index_age", "forget (rollback from gen 4)"),
        ("6", "0004_split_name", "change (rollback from gen 5)"),
        ("7", "0003_index_age", "forget (rollback from gen 6)"),
    ]
    prints = [fingerprint for _, fingerprint, *_ in found]
    assert prints[2] == prints[4] == prints[6]
    assert prints[3] == prints[5]
    assert len(set(prints)) == 4
    at = datetime.fromisoformat(found[-1][2]).replace(tzinfo=UTC)
    assert abs(datetime.now(UTC) - at) < timedelta(seconds=60)


def test_history_limited_and_turned_round(rolled_back: Project) -> None:
    def generations(*options: str) -> list[int]:
        result = rolled_back.run("catalog", "history", "--table", "people", "--json", *options)
        assert result.status == 0
        return [entry["gen"] for entry in result.lines]

    assert generations() == [1, 2, 3, 4, 5, 6, 7]
    assert generations("--limit", "2") == [1, 2]
    assert generations("--desc") == [7, 6, 5, 4, 3, 2, 1]
    assert generations("--desc", "--limit", "1") == [7]
    assert rolled_back.run("catalog", "history", "--table", "people", "--limit", "0").status == 2


def test_history_as_json_is_an_object_a_line(rolled_back: Project) -> None:
    entries = rolled_back.run("catalog", "history", "--table", "people", "--json").lines
    newest = entries[-1]
    assert re.fullmatch("0x[0-9a-f]{16}", newest.pop("fingerprint"))
    assert re.fullmatch(r".+@.+", newest.pop("migrated_by"))
    at = datetime.fromisoformat(newest.pop("migrated_at"))
    assert at.utcoffset() == timedelta(0)
    assert newest == {
        "table": "people",
        "table_number": 1,
        "gen": 7,
        "migration": "0003_index_age",
        "event": "forget",
        "rollback_from": 6,
        "layout_revision": 2,
    }
    assert [entry["rollback_from"] for entry in entries] == [None] * 4 + [4, 5, 6]


def test_history_with_snapshots(people: Project) -> None:
    command = ("catalog", "history", "--table", "people", "--json", "--with-snapshot")
    entries = people.run(*command).lines
    tables = [read_snapshot(base64.b64decode(entry["snapshot"])) for entry in entries]
    assert [f"0x{fingerprint(table):016x}" for table in tables] == [
        entry["fingerprint"] for entry in entries
    ]
    code = people.run("catalog", "show", "people", "--code", "--json").json["code"]
    assert codec_for(tables[-1]).source in code
    result = people.run("catalog", "history", "--table", "people", "--with-snapshot")
    assert result.status == 2
    assert result.err == (
        "error: a snapshot is bytes, and shown in JSON only\n  way out: add --json\n"
    )


def test_history_of_a_table_that_was_dropped(people: Project) -> None:
    people.run("migrate", "forget", "--to", "0", "--yes")
    result = people.run("catalog", "history", "--table", "people", "--json")
    assert result.status == 0
    assert result.lines[-1]["event"] == "drop"
    assert result.lines[-1]["migration"] is None
    assert people.run("catalog", "history", "--table", "people").out.endswith("-  drop\n") is False
    last = people.run("catalog", "history", "--table", "people").out.splitlines()[-1]
    assert re.search(r" -  +drop$", last)

    # Made again it is another table, with a history of its own.
    people.run("migrate", "up")
    again = people.run("catalog", "history", "--table", "people", "--json").lines
    assert {entry["table_number"] for entry in again} == {2}
    assert [entry["gen"] for entry in again] == [1, 2, 3, 4]
    people.run("migrate", "forget", "--to", "0", "--yes")
    newest = people.run("catalog", "history", "--table", "people", "--json").lines
    assert {entry["table_number"] for entry in newest} == {2}


def test_history_by_a_former_name(people: Project) -> None:
    people.file("0005_members").write_text(RENAME)
    people.run("migrate", "up")
    for name in ("people", "members"):
        entries = people.run("catalog", "history", "--table", name, "--json").lines
        assert [entry["table"] for entry in entries] == ["people"] * 4 + ["members"]


def test_history_of_an_unknown_table(people: Project) -> None:
    result = people.run("catalog", "history", "--table", "persons")
    assert (result.status, result.out) == (1, "")
    assert (
        result.err == "error: no table has or had this name\n  table: persons\n  tables: people\n"
    )


def test_show_types_in_words_and_as_json(project: Project) -> None:
    text = document(
        "create_type: {type: mood, enum: [a, b, c, d, e, f, g]}",
        "create_type: {type: place, struct: [{name: town, type: string, optional: true}]}",
        "create_table: {table: people, key: [id], fields: [{name: id, type: integer},"
        " {name: mood, type: mood}, {name: homes, type: list, of: place},"
        " {name: boss, type: reference, to: people}, {name: met, type: zoned_timestamp}]}",
    )
    path = project.file("0001_people")
    path.write_text(text)
    assert project.run("migrate", "up").status == 0
    shown = project.run("catalog", "show", "people")
    for line in (
        "mood   mood (a, b, c, d, e, f, …)",
        "homes  list of place (town)",
        "boss   reference to people",
        "met    zoned_timestamp",
    ):
        assert line in shown.out
    fields = project.run("catalog", "show", "people", "--json").json["fields"]
    types = {field["name"]: field["type"] for field in fields}
    assert types["mood"]["name"] == "mood"
    assert types["mood"]["enum"][6] == {"name": "g", "number": 7}
    assert types["homes"]["of"]["struct"] == [
        {"name": "town", "number": 1, "type": {"name": "string"}, "optional": True}
    ]
    assert types["boss"] == {
        "name": "reference", "to": "people", "number": 1, "key": [{"name": "integer"}]
    }  # fmt: skip
    assert "def encode(" in project.run("catalog", "show", "people", "--code").out
