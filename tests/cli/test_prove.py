"""`zapdb migrate prove`, and the proofs of `check` and `up`."""

from __future__ import annotations

import pytest

from tests.cli.program import SPLIT_NAME, Project

EXACT_SPLIT = "".join(
    line
    for line in SPLIT_NAME.splitlines(keepends=True)
    if "reversibility" not in line and "because" not in line
)
FAILURE = (
    "error: migrations/0004_split_name.yaml:4:5: the rollback does not bring back what is claimed "
    "to be exact\n"
    "  migration: 0004_split_name\n"
    "  table: people\n"
    "  field: name\n"
    "  record: name=''\n"
    "  became: first='', last=''\n"
    "  back: name=' '\n"
    "  hint: correct down (and up), or, if the loss is meant, say reversibility: lossy and "
    "because: why\n"
)


@pytest.fixture
def files(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """Files, and no database that anything names."""
    project.write()
    monkeypatch.delenv("ZAPDB_DATABASE")
    return project


def claim_too_much(project: Project) -> None:
    project.file("0004_split_name").write_text(EXACT_SPLIT)


def test_prove_tells_what_is_lossy_and_why(files: Project) -> None:
    result = files.run("migrate", "prove")
    assert (result.status, result.err) == (0, "")
    head, _, row, blank, summary = result.out.splitlines()
    assert head.split() == ["migration", "field", "rollback", "records", "reason"]
    assert row.startswith("0004_split_name  people.name  lossy ")
    assert "transform: a single-word name gains a blank (" in row
    assert "; name='' comes back as name=' ')" in row
    assert (blank, summary) == ("", "4 migrations and 0 examples tried: every loss is declared")
    assert not files.database.exists()


def test_prove_tells_what_has_no_reason(files: Project) -> None:
    text = SPLIT_NAME.replace("      because: a single-word name gains a blank\n", "")
    drop = "  - drop_field: {table: people, field: fax, restore: {value: x}}\n"
    files.file("0004_split_name").write_text(text.replace("rollback:", f"{drop}rollback:"))
    out = files.run("migrate", "prove").out
    assert "  transform: no reason is given (" in out
    assert "  drop_field (" in out


def test_prove_without_anything_to_try(files: Project) -> None:
    for name in ("0002_add_age", "0003_index_age", "0004_split_name"):
        files.file(name).unlink()
    assert files.run("migrate", "prove").out == (
        "no migration changes the contents of records\n"
        "\n"
        "1 migration and 0 examples tried: every loss is declared\n"
    )


def test_prove_shows_a_counterexample(files: Project) -> None:
    claim_too_much(files)
    result = files.run("migrate", "prove")
    assert (result.status, result.err) == (1, FAILURE)
    assert "0004_split_name  people.name  not proven" in result.out
    assert result.out.endswith("4 migrations and 0 examples tried: 1 not proven\n")


def test_prove_as_json(files: Project) -> None:
    found = files.run("migrate", "prove", "--json").json
    assert found["sampled"] == []
    assert found["migrations"][0]["label"] == "0001_people"
    split = found["migrations"][3]
    (table,) = split["tables"]
    (loss,) = table["lossy"]
    assert 0 < loss.pop("unchanged") < loss.pop("records") == table["records"]
    assert loss == {
        "field": "name",
        "operation": "transform",
        "because": "a single-word name gains a blank",
    }
    assert (table["exact"], split["failures"], split["warnings"]) == ([], [], [])

    claim_too_much(files)
    result = files.run("migrate", "prove", "--json")
    assert (result.status, result.err) == (1, "")
    (failure,) = result.json["migrations"][3]["failures"]
    assert failure["code"] == "migration.rollback_not_proven"
    assert failure["location"] == {
        "file": "migrations/0004_split_name.yaml",
        "line": 4,
        "column": 5,
    }
    assert failure["context"]["back"] == "name=' '"


def test_prove_runs_examples(files: Project) -> None:
    examples = "examples:\n  - {table: people, before: {name: Ada}, after: {first: Ada, last: B}}\n"
    files.file("0004_split_name").write_text(SPLIT_NAME + examples)
    result = files.run("migrate", "prove")
    assert result.status == 1
    assert result.err == (
        "error: migrations/0004_split_name.yaml:14:68: an example comes out otherwise\n"
        "  migration: 0004_split_name\n"
        "  table: people\n"
        "  field: last\n"
        "  cause: last is '', not 'B'\n"
        "  record: name='Ada'\n"
        "  hint: correct the expression, or the example\n"
    )
    files.file("0004_split_name").write_text(SPLIT_NAME + examples.replace("last: B", 'last: ""'))
    result = files.run("migrate", "prove")
    assert result.status == 0
    assert "4 migrations and 1 example tried: every loss is declared\n" in result.out


def test_prove_shows_warnings(files: Project) -> None:
    files.file("0005_age").write_text(
        "zapdb: 1\nsummary: Age\nrollback: inferred\nchanges:\n"
        "  - drop_index: {table: people, index: by_age}\n"
        "  - change_type: {table: people, field: age, type: string, default: '7', up: text(age),\n"
        '      down: "integer(age, else=0)"}\n'
    )
    result = files.run("migrate", "prove")
    assert result.status == 0
    assert "0005_age         people.age   exact" in result.out
    assert "warning: migrations/0005_age.yaml:6:5: a record written after the " in result.out


def test_prove_refuses_files_that_are_not_valid(files: Project) -> None:
    files.file("0004_split_name").write_text("zapdb: 2\n")
    assert files.run("migrate", "prove").status == 1


# With a database


def test_prove_tries_real_records(project: Project) -> None:
    project.write("0001_people")
    project.run("migrate", "up")
    project.fill(20)
    project.write()
    before = project.dump()
    result = project.run("migrate", "prove")
    assert (result.status, result.err) == (0, "")
    assert result.out.endswith("people: 20 of 20 records tried: all came back\n")
    result = project.run("migrate", "prove", "--sample", "5", "--json")
    (table,) = result.json["sampled"]
    (loss,) = table.pop("losses")
    assert table == {
        "table": "people", "records": 20, "sampled": 5, "unchanged": 5, "failures": []
    }  # fmt: skip
    assert (loss["field"], loss["records"], loss["unchanged"], loss["example"]) == (
        "name",
        5,
        5,
        None,
    )
    found = project.run("migrate", "prove", "--sample", "0", "--json").json
    assert (found["sampled"], found["seed"]) == ([], None)
    assert project.dump() == before


def test_prove_counts_and_shows_what_real_records_lose(project: Project) -> None:
    project.write("0001_people")
    project.run("migrate", "up")
    project.fill(200, name="\x1b[2JOnce\u202e" + "x" * 99)
    project.write()
    result = project.run("migrate", "prove")
    assert (result.status, result.err) == (0, "")
    summary, loss = result.out.splitlines()[-2:]
    assert summary == "people: 200 of 200 records tried: 0 came back unchanged"
    assert loss == (
        "  0004_split_name  name  transform: a single-word name gains a blank (0 of 200 came back; "
        "(key)=80, name='\\x1b[2JOnce\\u202exxxxxxx'… (108 characters) comes back as "
        "name='\\x1b[2JOnce\\u202exxxxxxx'… (109 characters))"
    )
    (table,) = project.run("migrate", "prove", "--json").json["sampled"]
    (found,) = table["losses"]
    assert (table["sampled"], table["unchanged"]) == (200, 0)
    assert (found["migration"], found["field"], found["unchanged"]) == (
        "0004_split_name",
        "name",
        0,
    )
    assert found["example"]["back"]["name"].endswith("(109 characters)")


def test_prove_draws_the_same_records_by_the_same_seed(project: Project) -> None:
    project.write("0001_people")
    project.run("migrate", "up")
    project.fill(100, name="Once")
    project.write()
    first = project.run("migrate", "prove", "--sample", "5").out.splitlines()[-2:]
    seed = first[0].partition("--seed ")[2].partition(":")[0]
    again = project.run("migrate", "prove", "--sample", "5", "--seed", seed)
    assert again.out.splitlines()[-2:] == first
    others = {
        project.run("migrate", "prove", "--sample", "5", "--seed", str(n)).out.splitlines()[-1]
        for n in range(3)
    }
    assert len(others) > 1
    found = project.run("migrate", "prove", "--sample", "5", "--seed", seed, "--json").json
    assert found["seed"] == int(seed)


def test_prove_with_a_table_without_records(project: Project) -> None:
    project.write("0001_people")
    project.run("migrate", "up")
    project.write()
    out = project.run("migrate", "prove").out
    assert "people: 0 of 0 records tried: the table has no records\n" in out
    assert "came back" not in out.partition("people: 0 of 0")[2]


def test_prove_names_real_records_by_their_keys(project: Project) -> None:
    project.write("0001_people")
    project.run("migrate", "up")
    project.fill(3, fax="secret")
    project.write()
    claim_too_much(project)
    project.sql("UPDATE zapdb_records_1 SET value = value WHERE 0")
    text = EXACT_SPLIT.replace('down: {name: "join(', 'down: {name: "upper(join(').replace(
        'last)"}', 'last))"}'
    )
    project.file("0004_split_name").write_text(text)
    result = project.run("migrate", "prove")
    assert result.status == 1
    assert "people: 3 of 3 records tried: 1 not proven\n" in result.out
    made_up, real = result.err.split("error: ")[1:]
    assert "name=str of 6 characters" in real
    assert "(key)=80" in real
    assert "Ada L" not in real
    assert "(key)" not in made_up


def test_prove_with_everything_applied_and_without_a_database(people: Project) -> None:
    assert people.run("migrate", "prove", "--json").json["sampled"] == []
    found = people.run("migrate", "prove", "-d", "sqlite:///missing.db", "--json")
    assert (found.status, found.json["sampled"]) == (0, [])
    assert not (people.directory / "missing.db").exists()


# check and up


def test_check_and_up_refuse_what_is_not_proven(project: Project) -> None:
    project.write()
    claim_too_much(project)
    for command in (("check",), ("check", "--write"), ("up",)):
        result = project.run("migrate", *command)
        assert (result.status, result.out, result.err) == (1, "", FAILURE)
    assert not (project.migrations / "zapdb.lock").exists()
    assert not project.database.exists()
    assert project.run("migrate", "up", "--to", "3").status == 0
    before = project.dump()
    assert project.run("migrate", "up").err == FAILURE
    assert project.dump() == before
