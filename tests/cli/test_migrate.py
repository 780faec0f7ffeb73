"""`zapdb migrate new`, `check`, `up` and `status`."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest

from tests.cli.program import MIGRATIONS, Project
from tests.documents import document
from zapdb.activation.inspection import list_migration_states
from zapdb.cli.connecting import read_tenant_catalog
from zapdb.cli.scaffold import make_slug, render_migration
from zapdb.migrations import OPERATIONS, NumberAllocator, list_files, resolve
from zapdb.migrations.document import DocumentText, Mapping, Scalar, read_document
from zapdb.migrations.parsed_migration import parse_document
from zapdb.schema import Schema
from zapdb.storage import connect

MILLISECONDS = re.compile(r"\d+\.\d ms")


def without_times(text: str) -> str:
    text = MILLISECONDS.sub("0.0 ms", text)
    return re.sub(r"in [\d.]+ m?s \([\d,]+/s\)", "in 0 ms (0/s)", text)


def test_a_table_that_takes_the_name_of_a_dropped_one_is_named_once(project: Project) -> None:
    table = "create_table: {table: tags, key: [id], fields: [{name: id, type: %s}]}"
    project.file("0001_tags").write_text(document(table % "integer"))
    drop = "drop_table: {table: tags, records: discard}"
    project.file("0002_others").write_text(document(drop, table % "uuid"))
    out = without_times(project.run("migrate", "up").out)
    assert "applied 0002_others  tags  0.0 ms\n" in out


# new


def test_new_writes_the_next_file_and_says_what_comes_next(project: Project) -> None:
    project.migrations.rmdir()
    result = project.run("migrate", "new", "Split the name: first, last")
    assert (result.status, result.err) == (0, "")
    assert result.out == (
        "migrations/0001_split_the_name_first_last.yaml\n"
        "next: write its changes, then `zapdb migrate check --write` and `zapdb migrate up`\n"
    )
    text = project.file("0001_split_the_name_first_last").read_text(encoding="utf-8")
    head = "# yaml-language-server: $schema=zapdb.schema.json\nzapdb: 1\n"
    assert text.startswith(f'{head}summary: "Split the name: first, last"\nchanges:\n')
    assert text.endswith("\nrollback: inferred\n")


def test_new_counts_on_and_never_overwrites(project: Project) -> None:
    project.write()
    before = {path: path.read_bytes() for path in project.migrations.iterdir()}
    assert project.run("migrate", "new", "Split name", "--json").json == {
        "path": "migrations/0005_split_name.yaml",
        "number": 5,
        "name": "split_name",
    }
    assert project.run("migrate", "new", "Split name", "--json").json["number"] == 6
    assert {path: path.read_bytes() for path in before} == before


def test_new_never_overwrites_what_another_process_wrote_meanwhile(project: Project) -> None:
    project.write("0001_people")
    with patch("zapdb.cli.scaffold._next_number", return_value=1):
        result = project.run("migrate", "new", "People")
    assert result.status == 1
    assert result.err == (
        "error: the operating system reported an error: File exists\n"
        "  file: migrations/0001_people.yaml\n"
    )
    assert project.file("0001_people").read_text() == MIGRATIONS["0001_people"]


def test_new_is_refused_while_the_numbers_are_wrong(project: Project) -> None:
    project.write("0001_people", "0003_index_age")
    before = sorted(project.migrations.iterdir())
    result = project.run("migrate", "new", "More")
    assert result.status == 1
    assert result.err.startswith(
        "error: migrations/0003_index_age.yaml: migration 2 is missing before this one\n"
    )
    assert sorted(project.migrations.iterdir()) == before


@pytest.mark.parametrize("summary", ["", "   ", "a\x1bb", "a\udcffb"])
def test_new_refuses_what_is_no_line_of_text(project: Project, summary: str) -> None:
    project.migrations.rmdir()
    result = project.run("migrate", "new", summary)
    assert result.status == 2
    assert result.err.startswith("error: a summary must be one line of text\n")
    assert not project.migrations.exists()


def test_a_new_migration_is_refused_until_its_changes_are_written(project: Project) -> None:
    project.run("migrate", "new", "People")
    result = project.run("migrate", "check")
    assert result.status == 1
    assert result.err == (
        "error: migrations/0001_people.yaml:4:9: a list of operations is needed here\n"
        "    changes:\n"
        "            ^\n"
        "  hint: take the # from one of the examples, or write your changes below `changes:`\n"
    )


@pytest.mark.parametrize(
    ("summary", "slug"),
    [
        ("People", "people"),
        ("Drop `fax`; add e-mail", "drop_fax_add_e_mail"),
        ("What's Émilie's naïve Größe?", "whats_emilies_naive_groe"),
        ("a/b\\c..d", "a_b_c_d"),
        ("東京", "migration"),
        ("!", "migration"),
        ("x" * 99, "x" * 40),
        ("one two three four five six seven eight nine", "one_two_three_four_five_six_seven_eight"),
        ("Version 2", "version_2"),
    ],
)
def test_the_name_of_a_file_is_made_of_the_summary(summary: str, slug: str) -> None:
    assert make_slug(summary) == slug
    assert re.fullmatch("[a-z0-9_]{1,40}", slug)


@pytest.mark.parametrize(
    "summary",
    ["People", "no", "1e3", "2024-01-01", "a: b", "a #b", "#", "- x", "'", '"', "\\", "{x}", "*a",
     "東京: «ö»", "true", "~", "x:", "%", "@", "`", "null"],
)  # fmt: skip
def test_the_summary_is_read_back_as_it_was_given(summary: str) -> None:
    for first in (True, False):
        node = read_document(DocumentText("x", render_migration(summary, first=first).encode()))
        assert isinstance(node, Mapping)
        found = node.entries["summary"]
        assert isinstance(found, Scalar)
        assert found.value == summary


def test_the_examples_of_a_new_file_are_those_of_every_operation() -> None:
    """Which resolve: see the tests of the examples."""
    shown = {}
    for first in (True, False):
        text = render_migration("X", first=first)
        examples = re.findall(r"^  # (.*)", text.partition("#\n")[2], re.MULTILINE)
        changes = "".join(f"  {line}\n" for line in examples)
        document = f"zapdb: 1\nsummary: X\nchanges:\n{changes}rollback: inferred\n"
        source = DocumentText("x", document.encode())
        parsed = parse_document(read_document(source), source, 1, "x")
        shown[first] = [operation.keyword for operation in parsed.changes]
        if first:
            assert resolve(parsed, Schema(), NumberAllocator()).rollback
    assert shown == {True: ["create_table"], False: list(OPERATIONS)}


# check


def test_check_wants_a_lock_file_and_writes_it(project: Project) -> None:
    project.write()
    result = project.run("migrate", "check")
    assert (result.status, result.out) == (1, "")
    assert result.err == (
        "error: there is no lock file\n"
        "  file: migrations/zapdb.lock\n"
        "  hint: if the files are right, run `zapdb migrate check --write`\n"
    )
    result = project.run("migrate", "check", "--write")
    assert (result.status, result.err) == (0, "")
    assert result.out == (
        "ok: 4 migrations, all valid and exhaustive, and as in zapdb.lock (4 lines written)\n"
    )
    result = project.run("migrate", "check")
    assert result.status == 0
    assert result.out == "ok: 4 migrations, all valid and exhaustive, and as in zapdb.lock\n"
    assert not project.database.exists()


def test_check_finds_a_file_that_is_not_as_locked(project: Project) -> None:
    project.write()
    project.run("migrate", "check", "--write")
    locked = (project.migrations / "zapdb.lock").read_bytes()
    text = MIGRATIONS["0002_add_age"]
    project.file("0002_add_age").write_text(f"# only a comment\n{text}")
    assert project.run("migrate", "check").status == 0

    project.file("0002_add_age").write_text(text.replace("default: 7", "default: 8"))
    result = project.run("migrate", "check")
    assert result.status == 1
    assert result.err.startswith(
        "error: a migration differs from its locked digest\n"
        "  file: migrations/zapdb.lock\n"
        "  migration: 0002_add_age\n"
    )
    assert (project.migrations / "zapdb.lock").read_bytes() == locked
    result = project.run("migrate", "check", "--write", "--json")
    assert result.json["lock_lines_written"] == 1


def test_check_writes_nothing_for_files_that_are_not_valid(project: Project) -> None:
    project.write()
    project.file("0004_split_name").write_text("zapdb: 2\n")
    assert project.run("migrate", "check", "--write").status == 1
    assert not (project.migrations / "zapdb.lock").exists()


def test_check_as_json(project: Project) -> None:
    project.write("0001_people")
    found = project.run("migrate", "check", "--write", "--json").json
    (migration,) = found.pop("migrations")
    assert found == {"lock_lines_written": 1}
    assert re.fullmatch("z1:[0-9a-f]{64}", migration.pop("digest"))
    assert migration == {"number": 1, "name": "people", "summary": "People"}


# up


def test_up_creates_the_database_and_applies_what_is_pending(project: Project) -> None:
    project.write()
    result = project.run("migrate", "up")
    assert (result.status, result.err) == (0, "")
    assert without_times(result.out) == (
        "applied 0001_people      people  0.0 ms\n"
        "applied 0002_add_age     people  0.0 ms\n"
        "applied 0003_index_age   people  0.0 ms\n"
        "applied 0004_split_name  people  0.0 ms\n"
        "4 migrations applied; now at 0004_split_name\n"
    )
    before = project.dump()
    result = project.run("migrate", "up")
    assert (result.status, result.out) == (
        0,
        "nothing to apply: the database is at 0004_split_name\n",
    )
    for table in ("zapdb_catalog", "zapdb_counters", "zapdb_leases"):  # the process was a node
        del before[table]
    assert before.items() <= project.dump().items()


def test_up_builds_the_indexes_that_it_began(people: Project) -> None:
    assert people.run("convert", "status", "--json").json["tables"][0]["indexes_to_build"] == [
        "by_age"
    ]
    result = people.run("migrate", "up", "--json")
    assert result.status == 0
    (built,) = result.json["built"]
    assert (built["kind"], built["table"], built["read"]) == ("index", "people", 20)
    status = people.run("convert", "status", "--json").json["tables"][0]
    assert status["indexes_to_build"] == []
    assert status["stale"] == 20  # converting is another command's


def test_up_to_a_number(project: Project) -> None:
    project.write()
    result = project.run("migrate", "up", "--to", "2", "--json")
    assert result.status == 0
    assert result.json["position"] == 2
    assert [one["label"] for one in result.json["applied"]] == ["0001_people", "0002_add_age"]
    assert project.run("migrate", "up", "--to", "2", "--json").json["applied"] == []
    result = project.run("migrate", "up", "--to", "9")
    assert result.status == 1
    assert result.err == ("error: there is no migration with this number\n  number: 9\n  last: 4\n")


def test_up_as_json(project: Project) -> None:
    project.write("0001_people")
    found = project.run("migrate", "up", "--json").json
    (applied,) = found["applied"]
    assert applied.pop("milliseconds") > 0
    assert found.pop("seq") > 0
    assert found == {
        "position": 1,
        "applied": [{"number": 1, "label": "0001_people", "active": True, "tables": ["people"]}],
        "built": [],
        "all_tenants": None,
    }


def test_rule_13_up_applies_again_what_was_rolled_back(project: Project) -> None:
    project.write()
    project.run("migrate", "up")
    project.run("migrate", "rollback", "--yes")
    assert project.run("migrate", "up", "--json").status == 3
    result = project.run("migrate", "up", "--again", "--json")
    assert result.status == 0
    assert [one["label"] for one in result.json["applied"]] == ["0004_split_name"]


def test_up_is_refused_before_anything_is_changed(project: Project) -> None:
    """A later file that can't be applied keeps the earlier ones from being applied, too."""
    project.write()
    project.file("0004_split_name").write_text(
        MIGRATIONS["0004_split_name"].replace("table: people", "table: persons")
    )
    result = project.run("migrate", "up")
    assert result.status == 1
    assert result.err == (
        "error: migrations/0004_split_name.yaml:4:5: there is no table 'persons' here\n"
        "      - transform:\n"
        "        ^\n"
        "  hint: available: people\n"
    )
    assert not project.database.exists()
    assert project.run("migrate", "up", "--to", "1").status == 0
    before = project.dump()
    assert project.run("migrate", "up").status == 1
    assert project.dump() == before


# status


def states(project: Project) -> list[str]:
    found = project.run("migrate", "status", "--json").json
    return [state["state"] for state in found["migrations"]]


def test_status_of_every_state(project: Project) -> None:
    project.write()
    result = project.run("migrate", "status")
    assert result.status == 3
    assert result.out == (
        "number  name        state\n"
        "------  ----------  -------\n"
        "0001    people      pending\n"
        "0002    add_age     pending\n"
        "0003    index_age   pending\n"
        "0004    split_name  pending\n"
    )
    assert not project.database.exists()

    project.run("migrate", "up", "--to", "3")
    assert states(project) == ["applied", "applied", "applied", "pending"]
    assert project.run("migrate", "status").status == 3

    project.run("migrate", "up")
    assert states(project) == ["applied"] * 4
    assert project.run("migrate", "status").status == 0

    project.file("0004_split_name").unlink()
    assert states(project) == ["applied", "applied", "applied", "stored-only"]
    assert project.run("migrate", "status").status == 0

    text = MIGRATIONS["0002_add_age"]
    project.file("0002_add_age").write_text(text.replace("default: 7", "default: 8"))
    assert states(project) == ["applied", "conflict", "applied", "stored-only"]
    result = project.run("migrate", "status")
    assert result.status == 1
    assert "0002    add_age     conflict\n" in result.out
    assert result.err.startswith("error: migrations/0002_add_age.yaml:1:1: the file differs from ")
    assert "people.age: default 7 stored, 8 in the file\n" in result.err
    assert project.run("migrate", "status", "--json").error["code"] == "migration.conflict"


def test_status_as_json(project: Project) -> None:
    project.write("0001_people", "0002_add_age")
    project.run("migrate", "up", "--to", "1")
    assert project.run("migrate", "status", "--json").json == {
        "position": 1,
        "pending": 1,
        "is_due": False,
        "migrations": [
            {"number": 1, "name": "people", "state": "applied"},
            {"number": 2, "name": "add_age", "state": "pending"},
        ],
        "kept": [],
        "all_tenants": None,
    }


def test_a_stored_file_that_is_no_migration_any_more_is_a_conflict(project: Project) -> None:
    project.write()
    project.run("migrate", "up")
    project.file("0003_index_age").write_text("zapdb: [")
    assert states(project) == ["applied", "applied", "conflict", "applied"]
    result = project.run("migrate", "status")
    assert result.status == 1
    assert result.err.startswith("error: migrations/0003_index_age.yaml:")


def test_what_is_stored_and_not_in_force_is_pending(current: Project) -> None:
    storage = connect("sqlite:///test.db")
    catalog = read_tenant_catalog(storage)
    storage.close()
    files = list_files(current.migrations)
    behind = list_migration_states(files[:3], replace(catalog, position=2))
    assert [state.phase for state in behind] == ["applied", "applied", "pending", "stored-only"]


def test_status_changes_nothing(project: Project) -> None:
    project.write()
    for file in ("missing.db", "empty.db"):
        path = Path(file)
        if file == "empty.db":
            path.touch()
        assert project.run("migrate", "status", "-d", f"sqlite:///{file}").status == 3
    assert not Path("missing.db").exists()
    assert Path("empty.db").read_bytes() == b""
    project.run("migrate", "up", "--to", "2")
    before = project.dump()
    for flags in itertools.chain([()], [("--json",)]):
        project.run("migrate", "status", *flags)
    assert project.dump() == before
