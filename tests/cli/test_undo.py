"""`zapdb migrate new` with `--add-field` and `--undo`, `plan`, and `prune-archive`."""

from __future__ import annotations

import json
import re
from decimal import Decimal

import jsonschema
import pytest
import yaml

import zapdb
from tests.cli.program import Project
from zapdb.cli.scaffold import SCHEMA_FILE

ADDRESS = "sqlite:///test.db"
DROP_FAX = """\
zapdb: 1
summary: No fax
changes:
  - drop_field:
      table: people
      field: fax
      restore: {archive: true, otherwise: {value: none}}
rollback: inferred
"""


def write_changes(project: Project, name: str, text: str) -> None:
    (project.migrations / f"{name}.yaml").write_text(text)


def changes_of(project: Project, number: int) -> list[dict[str, object]]:
    (path,) = project.migrations.glob(f"{number:04d}_*.yaml")
    changes: list[dict[str, object]] = yaml.safe_load(path.read_text())["changes"]
    return changes


# --add-field

SHAPE = "write a field to add as table.field:type"


def test_a_file_begins_with_the_fields_that_are_given(people: Project) -> None:
    result = people.run(
        "migrate",
        "new",
        "More of them",
        "--add-field",
        "people.email:string?",
        "--add-field",
        "people.price:decimal(2)",
        "--add-field",
        "people.tags:list(string)?",
        "--add-field",
        "people.friend:reference(people)?",
        "--add-field",
        "people.number:integer?=sequence",
        "--add-field",
        "people.joined:zoned_timestamp?=now Europe/Vienna",
    )
    assert (result.status, result.err) == (0, "")
    fields = [change["add_field"]["field"] for change in changes_of(people, 5)]
    assert fields == [
        {"name": "email", "type": "string", "optional": True},
        {"name": "price", "type": "decimal", "scale": 2},
        {"name": "tags", "type": "list", "of": "string", "optional": True},
        {"name": "friend", "type": "reference", "to": "people", "optional": True},
        {"name": "number", "type": "integer", "optional": True, "generated": "sequence"},
        {
            "name": "joined",
            "type": "zoned_timestamp",
            "optional": True,
            "default": "now Europe/Vienna",
        },
    ]
    refused = people.run("migrate", "check", "--write")
    assert refused.status == 1
    assert "'price' is required and can't be null" in refused.err  # it has to be filled in
    path = people.migrations / "0005_more_of_them.yaml"
    path.write_text(path.read_text().replace("value: null", 'value: "1.50"'))
    assert people.run("migrate", "check", "--write").status == 0
    assert people.run("migrate", "up").status == 0
    with zapdb.open(ADDRESS, migrations="migrations") as db:
        assert db.table("people").get(3).price == Decimal("1.50")


@pytest.mark.parametrize(
    ("given", "message", "hint"),
    [
        ("people.email", SHAPE, "for example people.fax:string?"),
        ("email:string", SHAPE, "for example people.fax:string?"),
        ("people.email:string; drop", SHAPE, "for example people.fax:string?"),
        ("people.é:string", SHAPE, "for example people.fax:string?"),
        ("people.email: string", SHAPE, "did you mean 'people.email:string'?"),
        ("People.Email:String", SHAPE, "did you mean 'people.email:string'?"),
        ("people.email=string", SHAPE, "did you mean 'people.email:string'?"),
        ("people.email:string|null", SHAPE, "did you mean 'people.email:string?'?"),
        ("people.at:timestamp=tomorrow", SHAPE, "only =sequence, =now and =now ZONE go here"),
        ("people.email:text", "there is no type 'text'", "did you mean 'string'?"),
        ("people.email:varchar(50)", "there is no type 'varchar'", "did you mean 'string'?"),
        ("people.nr:serial", "there is no type 'serial'", "with generated: sequence?"),
        ("people.email:strin", "there is no type 'strin'", "did you mean 'string'?"),
        ("people.friend:people", "there is no type 'people'", "type: reference, to: people"),
        ("people.tags:list(text)", "there is no type 'text'", "did you mean 'string'?"),
        ("people.friend:reference(poeple)", "there is no table 'poeple'", "did you mean 'people'?"),
        ("people.friend:reference", "this type needs a parameter", "write reference(people)"),
        ("people.price:decimal", "this type needs a parameter", "write decimal(2)"),
        ("people.price:decimal(x)", "an integer is needed here", ""),
        ("people.price:decimal(99)", "scale must be", ""),
        ("people.email:string(3)", "this type has no parameters", "strings have no maximum"),
        ("people.nr:integer(3)", "this type has no parameters", "write integer alone"),
        ("people.nr:string=sequence", "type string can't be a sequence", "type: integer"),
        (
            "people.at:zoned_timestamp=now Europe/Viena",
            "no zone 'Europe/Viena'",
            "correct the name",
        ),
        ("people.born:date=now", "'now' is no default of 'born'", "the day depends on the zone"),
        ("poeple.email:string", "there is no table 'poeple' here", "did you mean 'people'?"),
        ("people.id:string", "there is a field 'id' in 'people' already", ""),
        ("people.zapdb:string", "", ""),
    ],
)
def test_a_wrong_field_is_refused_and_nothing_is_written(
    people: Project, given: str, message: str, hint: str
) -> None:
    before = sorted(people.migrations.iterdir())
    result = people.run("migrate", "new", "X", "--add-field", given)
    assert result.status == 2
    assert message in result.err.splitlines()[0]
    assert hint in result.err
    assert f"given: {given}" in result.err
    assert sorted(people.migrations.iterdir()) == before


def test_fields_are_checked_in_order_after_the_files(project: Project) -> None:
    project.write("0001_people")
    twice = project.run(
        "migrate", "new", "X", "--add-field", "people.a:uuid?", "--add-field", "people.a:uuid?"
    )
    assert twice.err.startswith("error: there is a field 'a' in 'people' already\n")
    (project.migrations / "0002_broken.yaml").write_text("zapdb: 1\n")
    broken = project.run("migrate", "new", "X", "--add-field", "people.a:uuid?")
    assert (broken.status, "0002_broken.yaml" in broken.err) == (1, True)


def test_a_summary_that_is_too_long_is_refused(project: Project) -> None:
    project.write("0001_people")
    result = project.run("migrate", "new", "x" * 501)
    assert (result.status, "at most 500 characters" in result.err) == (2, True)


def test_the_json_schema_lies_beside_the_file_and_accepts_it(project: Project) -> None:
    project.write("0001_people")
    project.run("migrate", "new", "Age", "--add-field", "people.age:integer?")
    path = project.migrations / "0002_age.yaml"
    first = path.read_text().splitlines()[0]
    assert first == f"# yaml-language-server: $schema={SCHEMA_FILE}"
    schema = json.loads((project.migrations / SCHEMA_FILE).read_text())
    jsonschema.validate(yaml.safe_load(path.read_text()), schema)
    (project.migrations / SCHEMA_FILE).write_text("{}")  # of another release
    project.run("migrate", "new", "Size", "--add-field", "people.size:integer?")
    assert json.loads((project.migrations / SCHEMA_FILE).read_text()) == schema


# --undo


def test_an_undo_takes_a_transform_back_and_can_be_undone_itself(current: Project) -> None:
    with zapdb.open(ADDRESS, migrations="migrations") as db:
        assert db.table("people").get(7).last == "L7"
    assert current.run("migrate", "new", "Names again", "--undo", "4").status == 0
    assert [list(change) for change in changes_of(current, 5)] == [["transform"]]
    assert current.run("migrate", "up").status == 0
    with zapdb.open(ADDRESS, migrations="migrations") as db:
        assert db.table("people").get(7).name == "Ada L7"
    assert current.run("migrate", "new", "Split again", "--undo", "5").status == 0
    assert current.run("migrate", "up").status == 0
    with zapdb.open(ADDRESS, migrations="migrations") as db:
        assert (db.table("people").get(7).first, db.table("people").get(7).last) == ("Ada", "L7")


def test_an_undo_restores_what_was_archived_and_archives_what_it_drops(current: Project) -> None:
    write_changes(current, "0005_no_fax", DROP_FAX)
    assert current.run("migrate", "up").status == 0
    assert current.run("convert", "run").status == 0
    with zapdb.open(ADDRESS, migrations="migrations") as db:
        db.table("people").insert(id=99, age=1, first="New", last="One")
    assert current.run("migrate", "new", "Fax again", "--undo", "5").status == 0
    (change,) = changes_of(current, 6)
    assert change == {
        "restore_field": {
            "table": "people",
            "field": "fax",
            "archived_by": 5,
            "otherwise": {"value": "none"},
            "position": 3,
        }
    }
    assert current.run("migrate", "new", "No age", "--undo", "2").status == 2  # an index is on it
    assert current.run("migrate", "up").status == 0
    with zapdb.open(ADDRESS, migrations="migrations") as db:
        assert db.table("people").get(7).fax == "1"
        assert db.table("people").get(99).fax == "none"


def test_an_undo_that_later_migrations_rest_on_is_refused(people: Project) -> None:
    before = sorted(people.migrations.iterdir())
    result = people.run("migrate", "new", "X", "--undo", "2")
    assert result.status == 2
    assert result.err == (
        "error: the migration cannot be undone directly: later migrations depend on it\n"
        "  migration: 0002_add_age\n"
        "  problem: the index 'by_age' uses 'age'\n"
        "  hint: put a drop_index of 'by_age' before this change; or write the change "
        "with `migrate new`\n"
    )
    assert sorted(people.migrations.iterdir()) == before
    result = people.run("migrate", "new", "X", "--undo", "9")
    assert result.err.startswith("error: there is no migration with this number\n")


def test_an_undone_table_is_archived_with_its_records(current: Project) -> None:
    write_changes(
        current,
        "0005_notes",
        "zapdb: 1\nsummary: Notes\nchanges:\n  - create_table: {table: notes, key: [id], "
        "fields: [{name: id, type: integer}]}\nrollback: inferred\n",
    )
    current.run("migrate", "up")
    with zapdb.open(ADDRESS, migrations="migrations") as db:
        db.table("notes").insert(id=5)
    current.run("migrate", "new", "No notes", "--undo", "5")
    assert changes_of(current, 6) == [{"drop_table": {"table": "notes", "records": "archive"}}]
    current.run("migrate", "up")
    current.run("migrate", "new", "Notes again", "--undo", "6")
    assert current.run("migrate", "up").status == 0
    with zapdb.open(ADDRESS, migrations="migrations") as db:
        assert [record.id for record in db.table("notes").scan()] == [5]


# plan


def test_a_plan_says_what_will_happen_and_changes_nothing(current: Project) -> None:
    write_changes(current, "0005_no_fax", DROP_FAX)
    before = current.dump()
    result = current.run("migrate", "plan")
    assert result.status == 3
    lines = result.out.splitlines()
    assert lines[0] == "0005_no_fax: No fax"
    assert "    - drop_field:" in lines
    assert any(line.startswith("    - restore_field:") for line in lines)
    (row,) = (line for line in lines if line.startswith("people "))
    assert re.fullmatch(r"people  changed +20 +20 +[\d.]+ m?s *", row)
    assert lines[-1] == "every live process has the pending files"
    assert current.dump() == before

    document = current.run("migrate", "plan", "--json").json
    assert document["position"] == 4
    assert [m["label"] for m in document["migrations"]] == ["0005_no_fax"]
    (table,) = document["tables"]
    assert table["seconds"] >= 0
    assert {k: v for k, v in table.items() if k != "seconds"} == {
        "table": "people",
        "action": "changed",
        "records": 20,
        "converted": 20,
        "indexes": [],
        "includes_writing": True,
        "declared": [],
        "dropped_writes": [],
    }


def test_a_plan_names_live_processes_with_older_files(current: Project) -> None:
    with zapdb.open(ADDRESS, migrations="migrations"):
        write_changes(current, "0005_no_fax", DROP_FAX)
        result = current.run("migrate", "plan")
        assert "live processes that will be served an older schema:" in result.out
        assert "files end at 0004" in result.out
        (process,) = current.run("migrate", "plan", "--json").json["processes"]
        assert process["files_end"] == 4


def test_a_plan_for_a_new_database_and_for_one_that_is_up_to_date(project: Project) -> None:
    project.write("0001_people")
    result = project.run("migrate", "plan")
    assert result.status == 3
    assert re.search(r"^people  created +0 +0", result.out, re.MULTILINE)
    assert not project.database.exists()
    project.run("migrate", "up")
    result = project.run("migrate", "plan")
    assert (result.status, result.out) == (0, "nothing is pending\n")


# prune-archive


def test_pruning_shows_asks_converts_and_deletes(current: Project) -> None:
    nothing = current.run("migrate", "prune-archive", "--yes")
    assert (nothing.status, nothing.out) == (0, "nothing is archived\n")
    write_changes(current, "0005_no_fax", DROP_FAX)
    current.run("migrate", "up")
    with zapdb.open(ADDRESS, migrations="migrations") as db:
        db.table("people").update(3, age=8)
    before = current.dump()
    shown = current.run("migrate", "prune-archive", "--dry-run")
    assert re.search(r"^people\.fax  0005 +1 value$", shown.out, re.MULTILINE)
    refused = current.run("migrate", "prune-archive", stdin="n\n")
    assert (refused.status, refused.out.splitlines()[-1]) == (1, "nothing was changed")
    assert current.run("migrate", "prune-archive", "--json").status == 2
    assert current.dump() == before
    done = current.run("migrate", "prune-archive", "--yes", "--json")
    assert done.status == 0
    assert done.json == {
        "archived": [{"table": "people", "field": "fax", "migration": 5, "count": 1}],
        "pruned": 20,
        "seq": done.json["seq"],
    }
    with zapdb.open(ADDRESS) as db:
        assert 0 < done.json["seq"] <= db.admin.catalog_seq()
    assert current.run("migrate", "rollback", "--yes").status == 0
    (current.migrations / "0005_no_fax.yaml").unlink()
    with zapdb.open(ADDRESS, migrations="migrations") as db:
        assert {record.fax for record in db.table("people").scan()} == {"none"}
