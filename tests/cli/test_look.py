"""`zapdb migrate diff` and `graph`."""

from __future__ import annotations

from tests.cli.program import MIGRATIONS, Project

# diff


def test_diff_of_what_is_alike(project: Project) -> None:
    project.write()
    result = project.run("migrate", "diff")
    assert (result.status, result.out, result.err) == (
        0,
        "0 migrations the same, 4 not stored\n",
        "",
    )
    assert not project.database.exists()
    project.run("migrate", "up", "--to", "3")
    project.file("0002_add_age").write_text("# why\n" + MIGRATIONS["0002_add_age"])
    assert project.run("migrate", "diff").out == "3 migrations the same, 1 not stored\n"
    project.run("migrate", "up")
    project.file("0004_split_name").unlink()
    result = project.run("migrate", "diff")
    assert (result.status, result.out) == (0, "3 migrations the same, 1 without a file\n")


def test_diff_shows_every_migration_that_differs(project: Project) -> None:
    project.write()
    project.run("migrate", "up")
    for name, old, new in (
        ("0002_add_age", "default: 7", "default: 8"),
        ("0004_split_name", "', first", "-', first"),
    ):
        project.file(name).write_text(MIGRATIONS[name].replace(old, new))
    before = project.dump()
    result = project.run("migrate", "diff")
    assert (result.status, result.err) == (1, "")
    assert result.out == (
        "0002_add_age\n"
        "  people.age: default 7 stored, 8 in the file\n"
        "0004_split_name\n"
        "  rollback of people: up.name \"join(' ', first, last)\" stored, "
        "\"join(' -', first, last)\" in the file\n"
        "2 migrations the same, 2 different\n"
    )
    assert project.dump() == before


def test_diff_as_json(project: Project) -> None:
    project.write("0001_people", "0002_add_age")
    project.run("migrate", "up")
    stored = project.run("migrate", "check", "--write", "--json").json["migrations"][1]["digest"]
    text = MIGRATIONS["0002_add_age"].replace("default: 7", "default: 8")
    project.file("0002_add_age").write_text(text)
    found = project.run("migrate", "check", "--write", "--json").json["migrations"][1]["digest"]
    result = project.run("migrate", "diff", "--json")
    assert result.status == 1
    assert result.json == {
        "differences": [
            {
                "number": 2,
                "name": "add_age",
                "stored": stored,
                "file": found,
                "lines": ["people.age: default 7 stored, 8 in the file"],
                "error": None,
            }
        ],
        "not_stored": 0,
        "without_file": 0,
    }


def test_diff_of_a_file_that_is_no_migration_any_more(project: Project) -> None:
    project.write()
    project.run("migrate", "up")
    project.file("0003_index_age").write_text("zapdb: [")
    result = project.run("migrate", "diff")
    assert result.status == 1
    assert result.out.startswith("0003_index_age\n  migrations/0003_index_age.yaml:")
    (one,) = project.run("migrate", "diff", "--json").json["differences"]
    assert (one["file"], one["lines"]) == (None, [])
    assert one["error"].startswith("migrations/0003_index_age.yaml:")


# graph


def test_graph_as_text(project: Project) -> None:
    project.write()
    result = project.run("migrate", "graph")
    assert (result.status, result.err) == (0, "")
    assert result.out == (
        "migration        changes         depends on\n"
        "---------------  --------------  --------------\n"
        "0001_people      creates people\n"
        "0002_add_age     changes people  0001_people\n"
        "0003_index_age   changes people  0002_add_age\n"
        "0004_split_name  changes people  0003_index_age\n"
        "\n"
        "name    kind   refers to  types\n"
        "------  -----  ---------  -----\n"
        "people  table\n"
    )
    assert not project.database.exists()


def test_graph_as_mermaid(project: Project) -> None:
    project.write("0001_people", "0002_add_age")
    assert project.run("migrate", "graph", "--format", "mermaid").out == (
        "flowchart LR\n"
        '    m1["0001_people"]\n'
        '    m2["0002_add_age"]\n'
        '    t1[("people")]\n'
        "    m1 -. creates .-> t1\n"
        "    m1 --> m2\n"
        "    m2 -. changes .-> t1\n"
    )


def test_graph_as_json(project: Project) -> None:
    project.write("0001_people", "0002_add_age")
    for flags in (("--json",), ("--format", "json")):
        assert project.run("migrate", "graph", *flags).json == {
            "migrations": [
                {
                    "number": 1,
                    "label": "0001_people",
                    "after": [],
                    "changes": [{"verb": "creates", "kind": "table", "name": "people"}],
                },
                {
                    "number": 2,
                    "label": "0002_add_age",
                    "after": [1],
                    "changes": [{"verb": "changes", "kind": "table", "name": "people"}],
                },
            ],
            "tables": [{"name": "people", "references": [], "types": []}],
            "types": [],
        }


def test_graph_refuses_files_that_are_not_valid(project: Project) -> None:
    project.write()
    project.file("0004_split_name").write_text("zapdb: 2\n")
    assert project.run("migrate", "graph").status == 1
    assert project.run("migrate", "graph", "--format", "xml").status == 2
