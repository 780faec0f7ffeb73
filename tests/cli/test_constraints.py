"""Unique indexes, checks and references in `convert run`, `convert status` and `catalog show`."""

from __future__ import annotations

import pytest

from tests.cli.program import Project

CONSTRAIN = """\
zapdb: 1
summary: What must be true of people
changes:
  - create_index: {table: people, index: one, unique: true, fields: [{field: fax}]}
  - add_check: {table: people, check: named, expression: "name != 'Ada L3'"}
  - add_field:
      table: people
      field: {name: boss, type: reference, to: people, optional: true, default: null}
  - create_index: {table: people, index: by_boss, fields: [{field: boss}]}
  - add_reference: {table: people, field: boss, on_delete: set_null}
rollback: inferred
"""


@pytest.fixture
def constrained(project: Project) -> Project:
    """Three people with one fax number, one of whom has a name that a check refuses."""
    project.write("0001_people")
    project.run("migrate", "up")
    project.fill(4)
    project.sql("DELETE FROM zapdb_records_1 WHERE key = (SELECT min(key) FROM zapdb_records_1)")
    project.file("0002_constrain").write_text(CONSTRAIN)
    assert project.run("migrate", "up").status == 1  # records are in the way of the unique index
    return project


def test_rule_25_what_is_in_the_way_is_listed(constrained: Project) -> None:
    result = constrained.run("convert", "run")
    assert result.status == 1
    lines = result.out.splitlines()
    assert lines[:4] == [
        "blocked building index one of people",
        "  2 records of people violate the index one:",
        "    2 has the values of 1: fax='1'",
        "    3 has the values of 1: fax='1'",
    ]
    # Validation comes before conversion.
    assert lines[4:7] == [
        "blocked validating people",
        "  1 record of people violates the check named:",
        "    3 has name='Ada L3'",
    ]
    assert lines[7].startswith("converted people to revision 2: 3 records")
    assert lines[8:] == [
        "change or delete these records, and run `zapdb convert run` again",
    ]
    result = constrained.run("convert", "status")
    assert result.status == 3
    assert (
        "\n"
        "table   not validated\n"
        "------  -------------\n"
        "people  check named\n"
        "\n"
        "blocked building index one of people\n"
        "  2 records of people violate the index one:\n"
    ) in result.out
    found = constrained.run("convert", "status", "--json").json
    assert found["tables"][0]["unvalidated"] == ["check named"]
    assert [(job["kind"], job["table"], job["findings"]) for job in found["blocked"]] == [
        (
            "index",
            "people",
            [
                {
                    "what": "index one",
                    "count": 2,
                    "examples": [
                        "2 has the values of 1: fax='1'",
                        "3 has the values of 1: fax='1'",
                    ],
                }
            ],
        ),
        (
            "validate",
            "people",
            [{"what": "check named", "count": 1, "examples": ["3 has name='Ada L3'"]}],
        ),
    ]
    jobs = constrained.run("convert", "run", "--json")
    assert jobs.status == 1
    assert [len(job["findings"]) for job in jobs.json["jobs"]] == [1, 1]
    entries = constrained.sql("SELECT count(*) FROM zapdb_entries_2")
    assert entries == [(3,)]
    constrained.sql(
        "DELETE FROM zapdb_records_1 WHERE key > (SELECT min(key) FROM zapdb_records_1)"
    )
    constrained.sql(
        "DELETE FROM zapdb_entries_2 WHERE record > (SELECT min(record) FROM zapdb_entries_2)"
    )
    assert constrained.run("convert", "run").status == 0
    assert constrained.run("convert", "status").status == 0
    assert constrained.run("verify").status == 0


def test_show_names_what_a_table_demands(constrained: Project) -> None:
    text = constrained.run("catalog", "show", "people").out
    assert (
        "index    fields       state     built with\n"
        "-------  -----------  --------  ----------\n"
        "one      fax; unique  building  -\n"
        "by_boss  boss         readable  -\n"
        "\n"
        "check  must be true      state\n"
        "-----  ----------------  -----------\n"
        "named  name != 'Ada L3'  unvalidated\n"
        "\n"
        "reference  to      on delete  state\n"
        "---------  ------  ---------  -----------\n"
        "boss       people  set null   unvalidated\n"
    ) in text
    constrained.run("convert", "run")
    found = constrained.run("catalog", "show", "people", "--json").json
    assert [index["unique"] for index in found["indexes"]] == [True, False]
    assert found["checks"] == [
        {
            "name": "named",
            "number": 1,
            "expression": "name != 'Ada L3'",
            "state": "unvalidated",
        }
    ]
    assert found["references"] == [
        {"field": "boss", "table": "people", "on_delete": "set_null", "state": "validated"}
    ]
    code = constrained.run("catalog", "show", "people", "--code").out
    assert "# The check named.\n\ndef holds(record):\n" in code.replace(".\ndef", ".\n\ndef")
