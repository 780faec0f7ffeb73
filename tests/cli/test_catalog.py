"""`zapdb catalog list`, `show` and `fingerprint`."""

from __future__ import annotations

import re

import zapdb
from tests.cli.program import Project
from tests.documents import document
from zapdb.past.files.wanted_stores import create_tenant


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
    project.run("migrate", "rollback", "--yes")
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
        "index   fields  state     built with\n"
        "------  ------  --------  ----------\n"
        "by_age  age     building  -\n"
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
        "left   date               optional\n"
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
    assert "default" not in found["fields"][4]  # null is what an optional field has anyway
    assert "default" not in found["fields"][0]
    (index,) = found["indexes"]
    (dataset,) = index.pop("built_with").items()
    assert dataset[0] == "collation:de/primary"
    assert set(dataset[1]) == {"version", "fingerprint"}
    assert index == {
        "name": "by_name",
        "number": 1,
        "unique": False,
        "state": "readable",
        "rewritten_from": {},
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
        "def encode(prefix, m, attachments):",
        "def encode_key(m):",
        "def key_of(v1):",
        "def decode(key, value, start, attachments):",
        "def decode_key(b):",
        "def skip(b, p):",
        "def build(record):",
        "def convert(key, value, start, prefix, attachments):",
        "def convert(key, value, start, prefix, attachments):",
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


def test_show_of_archived_fields(people: Project) -> None:
    people.file("0005_no_fax").write_text(
        document(
            "drop_field: {table: people, field: fax, restore: {archive: true, otherwise:"
            ' {value: ""}}}'
        )
    )
    assert people.run("migrate", "up").status == 0
    assert people.run("catalog", "show", "people").out.endswith(
        "\n\narchived  type    dropped by\n--------  ------  ----------\nfax       string  0005\n"
    )
    found = people.run("catalog", "show", "people", "--json").json
    assert found["archived"] == [
        {"field": "fax", "number": 3, "type": {"name": "string"}, "migration": 5}
    ]


def test_list_and_show_of_another_tenant(people: Project) -> None:
    with zapdb.open(f"sqlite:///{people.database}", migrations=people.migrations) as db:
        create_tenant(db._storage, "acme")
    assert people.run("catalog", "list", "--tenant", "acme").out == "no tables\n"
    result = people.run("catalog", "show", "people", "--tenant", "acme")
    assert (result.status, result.err.splitlines()[0]) == (1, "error: no such table")
    result = people.run("catalog", "list", "--tenant", "nobody")
    assert (result.status, result.err.splitlines()[0]) == (1, "error: there is no such tenant")


# fingerprint


def test_fingerprint(people: Project) -> None:
    result = people.run("catalog", "fingerprint", "people")
    assert result.status == 0
    listed = people.run("catalog", "list", "--json").json["tables"][0]["fingerprint"]
    assert result.out == f"{listed}\n"
    result = people.run("catalog", "fingerprint", "people", "--verbose")
    assert re.fullmatch(
        rf"{listed}  revision 4, 0004_split_name, \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d by \S+@\S+\n",
        result.out,
    )
    found = people.run("catalog", "fingerprint", "people", "--json").json
    assert re.fullmatch(r".+@.+", found.pop("migrated_by"))
    assert found.pop("migrated_at").endswith("+00:00")
    assert found == {
        "table": "people",
        "table_number": 1,
        "revision": 4,
        "fingerprint": listed,
        "migration": "0004_split_name",
        "event": "change",
    }


def test_find_a_fingerprint(people: Project) -> None:
    entries = people.run("catalog", "revisions", "--table", "people", "--json").lines
    prints = [entry["fingerprint"] for entry in entries]
    result = people.run("catalog", "fingerprint", "people", "--find", prints[1])
    assert result.status == 0
    assert result.out == (
        f"{prints[1]}  revision 2 of people; active is revision 4 ({prints[3]})\n"
        "+ field first (5): string\n"
        "+ field last (6): string\n"
        "- field name (2): string\n"
        "+ index by_age (1): age\n"
    )
    found = people.run("catalog", "fingerprint", "people", "--find", prints[1], "--json").json
    differences = found.pop("differences")
    assert found == {
        "table": "people",
        "table_number": 1,
        "fingerprint": prints[1],
        "revisions": [2],
        "active": {"revision": 4, "fingerprint": prints[3]},
    }
    assert [d["change"] for d in differences] == ["added", "added", "removed", "added"]

    result = people.run("catalog", "fingerprint", "people", "--find", prints[3])
    assert (result.status, result.out) == (0, f"{prints[3]}  revision 4 of people, active\n")

    # Status 1, and still an answer: it is what was asked for.
    result = people.run("catalog", "fingerprint", "people", "--find", "0x5")
    expected = "0x0000000000000005  never stamped on people\n"
    assert (result.status, result.out, result.err) == (1, expected, "")
    result = people.run("catalog", "fingerprint", "people", "--find", "0x5", "--json")
    assert (result.status, result.json["revisions"], result.json["differences"]) == (1, [], [])


def test_a_fingerprint_is_0x_and_digits(people: Project) -> None:
    for wrong in ("5", "0x", "0x12345678901234567", "0xg", ""):
        result = people.run("catalog", "fingerprint", "people", "--find", wrong)
        assert (result.status, result.out) == (2, "")
        assert result.err.startswith("error: this is not a fingerprint\n")


def test_fingerprint_of_a_table_that_is_gone(people: Project) -> None:
    pinned = people.run("catalog", "fingerprint", "people").out.strip()
    people.run("migrate", "rollback", "--to", "0", "--yes")
    result = people.run("catalog", "fingerprint", "people")
    assert (result.status, result.out) == (1, "")
    assert result.err.startswith("error: the table was dropped; only its schema history remains\n")
    result = people.run("catalog", "fingerprint", "people", "--find", pinned)
    assert result.status == 0
    assert result.out.startswith(f"{pinned}  revisions 4, 5 of people; dropped at revision 5")
    found = people.run("catalog", "fingerprint", "people", "--find", pinned, "--json").json
    assert found["active"] is None
    assert people.run("catalog", "fingerprint", "persons").status == 1
