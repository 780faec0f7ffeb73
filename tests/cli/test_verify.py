"""`zapdb verify`: what is whole is said to be, and what is broken is found."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

from tests.cli.program import MIGRATIONS, Project


def data_of(project: Project) -> dict[str, Any]:
    """Everything but the jobs, which verification leaves."""
    of_jobs = ("zapdb_catalog", "zapdb_counters", "zapdb_ranges", "zapdb_quarantine")
    return {name: rows for name, rows in project.dump().items() if name not in of_jobs}


def test_what_is_whole(current: Project) -> None:
    before = data_of(current)
    result = current.run("verify")
    assert (result.status, result.err) == (0, "")
    assert result.out == (
        "table   records  index entries  not built  problems\n"
        "------  -------  -------------  ---------  --------\n"
        "people       20  by_age: 20     -                 0\n"
        "\n"
        "ok: 4 migrations match their digests and the files; history, records, indexes, "
        "constraints and blobs are intact\n"
    )
    assert data_of(current) == before
    assert current.run("verify", "--json").json == {
        "ok": True,
        "migrations": 4,
        "files_compared": True,
        "blobs": {"blobs": 0, "unowned": 0},
        "tables": [
            {
                "table": "people",
                "records": 20,
                "revisions": {"4": 20},
                "entries": {"by_age": 20},
                "building": [],
                "problem_count": 0,
                "problems": [],
            }
        ],
        "held": [],
        "schemas_repaired": False,
        "repairs": None,
    }


def test_an_index_that_is_not_built_is_no_problem(people: Project) -> None:
    result = people.run("verify")
    assert result.status == 0
    assert "people       20  -              by_age            0\n" in result.out


def test_one_migration_matches_its_digest(project: Project) -> None:
    project.write("0001_people")
    assert project.run("migrate", "up").status == 0
    assert "ok: 1 migration matches its digest and the files; " in project.run("verify").out


def test_it_works_without_the_files(current: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ZAPDB_MIGRATIONS")
    shutil.rmtree(current.migrations)
    result = current.run("verify")
    assert result.status == 0
    assert "ok: 4 migrations match their digests; history, records" in result.out
    assert current.run("verify", "--json").json["files_compared"] is False


def test_a_record_that_does_not_decode(current: Project) -> None:
    # Bytes joined with bytes are text to SQLite.
    current.sql("UPDATE zapdb_records_1 SET value = CAST(value || x'00' AS BLOB) WHERE key = x'87'")
    result = current.run("verify")
    assert result.status == 1
    assert "people: record 7 (87): " in result.out
    assert result.out.endswith("\n1 problem\n")
    found = current.run("verify", "--json")
    assert found.status == 1
    assert found.json["ok"] is False
    assert found.json["tables"][0]["problem_count"] == 1


def test_an_index_entry_that_is_missing(current: Project) -> None:
    current.sql("DELETE FROM zapdb_entries_1 WHERE record = x'87'")
    result = current.run("verify")
    assert result.status == 1
    assert "people: record 7 (87): no entry in 'by_age'\n" in result.out
    assert "people: index 'by_age': 19 entries for 20 records\n" in result.out
    assert result.out.endswith("\n2 problems\n")


def test_a_file_that_differs_from_what_is_stored(current: Project) -> None:
    current.file("0002_add_age").write_text(
        MIGRATIONS["0002_add_age"].replace("default: 7", "default: 8")
    )
    result = current.run("verify")
    assert (result.status, result.out) == (1, "")
    assert result.err.startswith("error: migrations/0002_add_age.yaml:1:1: the file differs from")


def test_index_entries_are_repaired_after_asking(current: Project) -> None:
    before = data_of(current)
    current.sql("DELETE FROM zapdb_entries_1 WHERE record = x'87'")
    damaged = data_of(current)
    asked = current.run("verify", "--repair")
    assert asked.status != 0
    assert asked.out.startswith(
        "table   index   entries to add  entries to remove\n"
        "------  ------  --------------  -----------------\n"
        "people  by_age               1                  0\n"
    )
    assert "a repair needs confirmation, and standard input is not a terminal" in asked.err
    assert current.run("verify", "--repair", "--dry-run").status == 1
    assert data_of(current) == damaged

    repaired = current.run("verify", "--repair", "--yes")
    assert (repaired.status, repaired.err) == (0, "")
    assert "\nrepaired index entries of by_age: 1 added, 0 removed\n" in repaired.out
    assert data_of(current) == before
    again = current.run("verify", "--repair", "--yes", "--json")
    assert (again.status, again.json["repairs"]) == (0, [])


def test_schemas_are_repaired_where_the_database_does_not_open(current: Project) -> None:
    before = data_of(current)
    current.sql("UPDATE zapdb_schemas SET content = x'00' WHERE table_number = 1")
    refused = current.run("verify")
    assert refused.status == 1
    assert "the tables that a stored migration leads to can't be read" in refused.err
    assert "run `zapdb verify --repair`" in refused.err
    dry = current.run("verify", "--repair", "--dry-run")
    assert dry.out == "schemas have to be made anew of the stored migrations\n"
    repaired = current.run("verify", "--repair", "--yes")
    assert repaired.status == 0
    assert repaired.out.startswith("made schemas anew of the stored migrations\n")
    after = data_of(current)
    assert after.pop("zapdb_catalog_versions") > before.pop("zapdb_catalog_versions")
    assert after == before
    again = current.run("verify", "--repair", "--yes", "--json").json
    assert (again["ok"], again["schemas_repaired"]) == (True, False)


def test_dry_run_and_yes_belong_to_repair(current: Project) -> None:
    assert current.run("verify", "--dry-run").err.startswith(
        "error: --dry-run and --yes belong to --repair"
    )


def test_a_verification_is_a_job(current: Project) -> None:
    """Planned, paused, gone on with, and begun anew."""
    assert current.run("verify").status == 0
    assert current.run("jobs", "list").out == "no jobs\n"
    assert "verifying people" in current.run("jobs", "list", "--all").out
    current.sql("DELETE FROM zapdb_entries_1 WHERE record = x'87'")
    assert current.run("verify").status == 1
    shown = current.run("jobs", "show", "verify").out
    assert "  state: blocked\n" in shown
    assert "no entry in 'by_age'" in shown
    assert "Traceback" not in current.run("jobs", "pause", "verify").err
    assert "run `zapdb verify`" in current.run("jobs", "pause", "verify").err
    assert current.run("convert", "status").status == 0

    refused = current.run("verify", "--workers", "2", "--engine", "spark")
    assert (refused.status, "--workers sets the threads" in refused.err) == (2, True)
    refused = current.run("verify", "--master", "local[2]")
    assert "--master needs Spark" in refused.err
