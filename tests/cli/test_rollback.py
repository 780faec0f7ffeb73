"""`zapdb migrate rollback`: what it shows, asks, does, and finishes."""

from __future__ import annotations

import re
import shutil

import pytest

import zapdb
from tests.cli.program import Project
from zapdb.activation.rollback import roll_back
from zapdb.cli.connecting import ServedDatabaseOptions
from zapdb.control.migrations.rolling_back import RollbackPlan, rollback
from zapdb.errors import ConcurrencyError
from zapdb.storage import connect

PREVIEW_4 = (
    "0004_split_name: First and last names\n"
    "  it is declared lossy: not every value is restored exactly\n"
    "  people: 20 records are converted back\n"
)
PREVIEW_3 = (
    "0003_index_age: Find people by age\n  people: no record changes; the index by_age is dropped\n"
)
PREVIEW_2 = (
    "0002_add_age: How old they are\n"
    "  people: 20 records are converted back; the values of age are lost\n"
)
PREVIEW_1 = "0001_people: People\n  people: the table is deleted with its 20 records\n"


def without_times(text: str) -> str:
    return re.sub(r", [\d.]+ m?s$", ", 0 ms", text, flags=re.MULTILINE)


def test_it_shows_what_is_lost_and_asks(current: Project) -> None:
    before = current.dump()
    for answer in ("n\n", "\n", "no\n", "maybe\n"):
        result = current.run("migrate", "rollback", stdin=answer)
        assert result.status == 1
        assert result.out == PREVIEW_4 + "nothing was changed\n"
        assert result.err == "roll back 0004_split_name? [y/N] \n"
    assert current.dump() == before

    result = current.run("migrate", "rollback", stdin="y\n")
    assert result.status == 0
    assert without_times(result.out) == (
        PREVIEW_4 + "rolled back 0004_split_name, 0 ms\n"
        "records are converted back when they are read, or by `zapdb convert run`\n"
    )
    assert current.run("migrate", "status", "--json").json["position"] == 3
    with zapdb.open("sqlite:///test.db", migrations=only(current, 3)) as db:
        assert db.table("people").get(7).name == "Ada L7"
        assert {db.table("people").get(7).age} == {7}


def only(project: Project, count: int) -> str:
    """A directory with the first files only."""
    directory = project.directory / f"only_{count}"
    directory.mkdir()
    for path in sorted(project.migrations.iterdir())[:count]:
        shutil.copy(path, directory)
    return str(directory)


def test_nobody_there_to_ask_is_wrong_usage(current: Project) -> None:
    before = current.dump()
    result = current.run("migrate", "rollback", stdin="")
    assert result.status == 2
    assert result.err.endswith(
        "error: a rollback needs confirmation, and standard input is not a terminal\n"
        "  hint: add --yes\n"
    )
    result = current.run("migrate", "rollback", "--json", stdin="y\n")
    assert (result.status, result.out) == (2, "")
    assert result.error["message"] == "--json does not ask for confirmation"
    assert current.dump() == before


def test_it_rolls_back_several_newest_first(current: Project) -> None:
    result = current.run("migrate", "rollback", "--to", "0", stdin="yes\n")
    assert result.status == 0
    assert result.err == "roll back these 4 migrations? [y/N] \n"
    assert without_times(result.out) == (
        PREVIEW_4 + PREVIEW_3 + PREVIEW_2 + PREVIEW_1 + "rolled back 0004_split_name, 0 ms\n"
        "rolled back 0003_index_age, 0 ms\n"
        "rolled back 0002_add_age, 0 ms\n"
        "rolled back 0001_people, 0 ms\n"
    )
    assert current.run("catalog", "list", "--json").json["tables"] == []


def test_what_it_shows_is_counted_by_the_ages_of_the_records(people: Project) -> None:
    """Records that were never converted are of the first layout, and need not go back."""
    result = people.run("migrate", "rollback", "--to", "1", stdin="n")
    assert result.out == (
        PREVIEW_4.replace("20 records are converted back", "no record changes")
        + PREVIEW_3
        + PREVIEW_2.replace("20 records are converted back", "no record changes")
        + "nothing was changed\n"
    )
    with zapdb.open("sqlite:///test.db", migrations="migrations") as db:
        db.table("people").update(7, fax="2")
    result = people.run("migrate", "rollback", "--to", "1", stdin="n")
    assert "people: 1 record is converted back; the values of age are lost\n" in result.out


def test_it_works_without_the_files(current: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.rmtree(current.migrations)
    monkeypatch.delenv("ZAPDB_MIGRATIONS")
    assert current.run("migrate", "rollback", "--to", "2", "--yes").status == 0
    assert current.run("verify").status == 0


def test_as_json(current: Project) -> None:
    result = current.run("migrate", "rollback", "--to", "2", "--yes", "--json")
    assert result.status == 0
    found = result.json
    assert all(len(one.pop("digest")) > 60 for one in found["rolled_back"])
    assert found.pop("milliseconds") > 0
    assert found.pop("are_kept") is False
    assert found.pop("seq") > 0
    assert found == {
        "position": 2,
        "rolled_back": [
            {
                "number": 4,
                "label": "0004_split_name",
                "summary": "First and last names",
                "tenants": 1,
                "lossy": True,
                "tables": [
                    {
                        "table": "people",
                        "action": "converted",
                        "records": 20,
                        "fields": [],
                        "indexes": [],
                        "built": [],
                        "constraints": [],
                    }
                ],
            },
            {
                "number": 3,
                "label": "0003_index_age",
                "summary": "Find people by age",
                "tenants": 1,
                "lossy": False,
                "tables": [
                    {
                        "table": "people",
                        "action": "kept",
                        "records": 0,
                        "fields": [],
                        "indexes": ["by_age"],
                        "built": [],
                        "constraints": [],
                    }
                ],
            },
        ],
    }


def test_nothing_to_roll_back(current: Project) -> None:
    result = current.run("migrate", "rollback", "--to", "4")
    assert (result.status, result.out) == (
        0,
        "nothing to roll back: the newest migration is 0004_split_name\n",
    )
    as_json = current.run("migrate", "rollback", "--to", "4", "--json").json
    assert as_json.pop("seq") > 0
    assert as_json.pop("milliseconds") > 0
    assert as_json == {"position": 4, "rolled_back": [], "are_kept": False}
    result = current.run("migrate", "rollback", "--to", "5")
    assert result.status == 2
    assert result.err == (
        "error: no migration with this number is stored\n  number: 5\n  newest: 0004_split_name\n"
    )
    current.run("migrate", "rollback", "--to", "0", "--yes")
    result = current.run("migrate", "rollback", "--yes")
    assert result.status == 2
    assert result.err == ("error: no migration is stored, so there is nothing to roll back\n")


def test_rule_13_a_process_goes_on_until_its_migration_is_forgotten(current: Project) -> None:
    with zapdb.open("sqlite:///test.db", migrations="migrations") as db:
        db.table("people").update(7, first="Ada King", last="Lovelace")
        result = current.run("migrate", "rollback", "--yes")
        assert f"  {db._node} has its file, and goes on with its schema\n" in result.out
        assert (result.status, result.err) == (0, "")
        assert db.table("people").get(7).first == "Ada King"
        assert current.run("convert", "run").status == 0
        assert current.run("data", "get", "people", "7", "--json").json["name"] == (
            "Ada King Lovelace"
        )
        assert db.table("people").get(7).first == "Ada King"
        kept = current.run("migrate", "status", "--json").json["kept"]
        assert [(one["label"], one["processes"]) for one in kept] == [
            ("0004_split_name", [str(db._node)])
        ]
        shown = current.run("migrate", "status").out
        assert "0004_split_name: rolled back 20" in shown
        assert f"  {db._node} is served its schema\n" in shown
        assert "4, rolled back" in current.run("cluster", "nodes").out
        assert current.run("cluster", "nodes", "--json").json["nodes"][0]["rolled_back"]
        planned = current.run("migrate", "plan").out
        assert f"  {db._node}: schema 0004, rolled back, files end at 0004" in planned
        refused = current.run("migrate", "forget", "--yes")
        assert refused.status == 2
        assert refused.err.startswith(
            "error: running processes are served the schema of the migration\n"
        )
        again = current.run("migrate", "up")
        assert again.status == 3
        assert "run `zapdb migrate up --again` to apply it again" in again.err
    assert current.run("migrate", "forget", stdin="n").status == 1
    found = current.run("migrate", "forget", "--yes", "--json").json
    assert found.pop("seq") > 0
    assert found["values"] == 2
    assert [one["label"] for one in found["forgotten"]] == ["0004_split_name"]
    result = current.run("migrate", "forget")
    assert result.out == "nothing to forget: no migration that was rolled back is kept\n"
    assert current.run("migrate", "up", "--again").status == 0


def test_rule_13_an_interrupted_one_is_finished(
    current: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise RuntimeError("interrupted")

    with monkeypatch.context() as patch:
        patch.setattr("zapdb.activation.rollback.migrate_each_tenant", stop)
        storage = connect("sqlite:///test.db")
        with pytest.raises(RuntimeError):
            roll_back(storage)
        storage.close()

    result = current.run("migrate", "status")
    assert result.status == 3
    assert result.out.endswith(
        "\n0004 was rolled back, and is active for this tenant until it follows: "
        "run `zapdb migrate up`\n"
    )
    assert current.run("migrate", "status", "--json").json["is_due"] is True
    assert current.run("verify").status == 0

    result = current.run("migrate", "rollback", "--yes")
    assert result.out == ("an earlier rollback is not finished for 1 tenant: this finishes it\n")
    assert current.run("verify").status == 0
    found = current.run("migrate", "status", "--json").json
    assert (found["is_due"], found["position"]) == (False, 3)


def test_it_does_not_roll_back_what_was_not_asked_for(current: Project) -> None:
    """Another operator was faster: the newest migration is not the one that was shown."""
    with ServedDatabaseOptions("sqlite:///test.db").control() as control:
        (plan,) = control.call(rollback, dry_run=True)
        assert isinstance(plan, RollbackPlan)
        current.run("migrate", "rollback", "--yes")
        before = current.dump()
        with pytest.raises(ConcurrencyError) as caught:
            list(control.call(rollback, digests=[step.digest for step in plan.steps]))
    assert str(caught.value) == (
        "a newer migration was stored in the meantime\n"
        "  found: 0003_index_age\n"
        "  hint: nothing was rolled back; see `zapdb migrate status`"
    )
    after = current.dump()
    for table in ("zapdb_catalog", "zapdb_counters", "zapdb_leases"):  # the process was a node
        del before[table], after[table]
    assert after == before


VISITS = """\
zapdb: 1
summary: Visits
changes:
  - create_table:
      table: visits
      key: [id]
      fields:
        - {name: id, type: integer}
        - {name: person, type: reference, to: people}
        - {name: note, type: string}
  - create_table: {table: notes, key: [id], fields: [{name: id, type: integer}]}
  - create_index: {table: visits, index: by_note, fields: [{field: note}]}
  - create_index: {table: visits, index: by_person, fields: [{field: person}]}
  - add_check: {table: visits, check: has_note, expression: "note != ''"}
  - add_reference: {table: visits, field: person, on_delete: cascade}
rollback: inferred
"""
LESS = """\
zapdb: 1
summary: Less
changes:
  - drop_reference: {table: visits, field: person}
  - drop_check: {table: visits, check: has_note}
  - drop_index: {table: visits, index: by_note}
  - drop_table: {table: notes, records: discard}
rollback: inferred
"""


def test_it_says_what_comes_back(current: Project) -> None:
    """Indexes that queries miss until they are built, constraints that bind again, tables."""
    current.file("0005_visits").write_text(VISITS)
    assert current.run("migrate", "up").status == 0
    with zapdb.open("sqlite:///test.db") as db:
        key = db.table("people").all()[0].id
        db.table("visits").insert_many({"id": at, "person": key, "note": "x"} for at in range(3))
    current.file("0006_less").write_text(LESS)
    assert current.run("migrate", "up").status == 0
    with zapdb.open("sqlite:///test.db", migrations="migrations") as db:
        result = current.run("migrate", "rollback", stdin="n")
        assert f"  {db._node} has its file, and goes on with its schema\n" in result.out
        assert "which records break them: `zapdb migrate rehearse --rollback`\n" in result.out
        result = current.run("migrate", "rollback", "--evict", stdin="n")
        assert f"  {db._node} is evicted\n" in result.out
    assert result.out.splitlines()[1:3] == [
        "  visits: no record changes; queries scan until the index by_note is built;"
        " check has_note, reference person bind again",
        "  notes: the table comes back empty",
    ]
    found = current.run("migrate", "rollback", "--yes", "--json").json["rolled_back"][0]["tables"]
    assert [(one["table"], one["action"], one["built"], one["constraints"]) for one in found] == [
        ("visits", "kept", ["by_note"], ["check has_note", "reference person"]),
        ("notes", "restored", [], []),
    ]


def test_it_says_what_is_kept(current: Project) -> None:
    """Of a migration that a live process has, nothing is lost yet."""
    with zapdb.open("sqlite:///test.db", migrations="migrations"):
        asked = current.run("migrate", "rollback", "--to", "0", stdin="n").out
        assert "the values of age are kept" in asked
        assert "people: the table is kept with its 20 records\n" in asked
        asked = current.run("migrate", "rollback", "--to", "0", "--evict", stdin="n").out
        assert "the values of age are lost" in asked
        assert "the table is deleted with its 20 records\n" in asked
        done = current.run("migrate", "rollback", "--to", "1", "--yes")
        said = "kept: `zapdb migrate up --again` brings it back, until it is forgotten\n"
        assert done.out.endswith(said)
        again = current.run("migrate", "up", "--again", "--json")
        assert again.status == 0
    gone = current.run("migrate", "rollback", "--to", "1", "--yes", "--json").json
    assert gone["are_kept"] is False
