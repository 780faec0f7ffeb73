"""`zapdb convert run` and `status`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile

import pytest

from tests.cli.program import Project


def test_status_counts_records_by_revision(people: Project) -> None:
    result = people.run("convert", "status")
    assert result.status == 3
    assert result.out == (
        "table   records  stale  by revision  indexes to build\n"
        "------  -------  -----  -----------  ----------------\n"
        "people       20     20  1: 20        by_age\n"
        "\n"
        "pending: run `zapdb convert run`\n"
    )
    before = people.dump()
    assert people.run("convert", "status", "--json").json == {
        "pending": True,
        "tables": [
            {
                "table": "people",
                "records": 20,
                "stale": 20,
                "revision": 4,
                "layout_revision": 4,
                "by_revision": {"1": 20},
                "indexes_to_build": ["by_age"],
                "unvalidated": [],
            }
        ],
        "jobs": [],
        "blocked": [],
    }
    assert people.dump() == before


def test_rule_01_a_change_that_leaves_the_layout_makes_nothing_stale(project: Project) -> None:
    project.write("0001_people", "0002_add_age")
    project.run("migrate", "up")
    project.fill(20)
    project.write("0003_index_age")
    project.run("migrate", "up")
    result = project.run("convert", "status", "--json")
    assert result.status == 0
    (table,) = result.json["tables"]
    assert (table["revision"], table["layout_revision"], table["stale"]) == (3, 2, 0)
    assert table["by_revision"] == {"2": 20}


def test_run_builds_and_converts_everything(people: Project) -> None:
    result = people.run("convert", "run")
    assert (result.status, result.err) == (0, "")
    assert re.fullmatch(
        r"built index by_age of people: 20 records in [\d.]+ m?s \([\d,]+/s\)\n"
        r"converted people to revision 4: 20 records in [\d.]+ m?s \([\d,]+/s\)\n",
        result.out,
    )
    result = people.run("convert", "status")
    assert result.status == 0
    assert result.out == (
        "table   records  stale  by revision  indexes to build\n"
        "------  -------  -----  -----------  ----------------\n"
        "people       20      0  4: 20        -\n"
    )
    result = people.run("convert", "run")
    assert (result.status, result.out) == (
        0,
        "nothing to do: every index is built, and every record is current\n",
    )
    as_json = people.run("convert", "run", "--json").json
    assert as_json.pop("seq") > 0
    assert as_json == {"jobs": [], "lagging": None}
    assert people.run("verify").status == 0


def test_run_as_json(people: Project) -> None:
    jobs = people.run("convert", "run", "--workers", "2", "--json").json["jobs"]
    for job in jobs:
        assert job.pop("seconds") > 0
        assert job.pop("records_per_second") > 0
        assert job.pop("id").startswith(f"{job['kind']}/1/")
    counted = {
        "superseded": False,
        "held": None,
        "waits": [],
        "read": 20,
        "written": 20,
        "conflicts": 0,
        "table": "people",
    }
    counted |= {"findings": [], "quarantined": 0}
    assert jobs == [
        {"kind": "index", "target": 1} | counted,
        {"kind": "convert", "target": 4} | counted,
    ]


def test_status_shows_jobs_that_are_not_done(people: Project) -> None:
    people.run("convert", "run")
    people.sql("UPDATE zapdb_catalog SET value = replace(value, 'done', 'planned')")
    (first, second) = people.run("convert", "status", "--json").json["jobs"]
    assert (first["kind"], first["ranges"], first["ranges_done"]) == ("convert", 1, 1)
    assert second["kind"] == "index"
    assert set(first) == {
        "id", "kind", "table", "target", "records", "ranges", "ranges_done", "read", "written",
        "conflicts",
    }  # fmt: skip
    assert people.run("convert", "status").out.endswith(
        "\n"
        "job                              ranges done  read  written  conflicts\n"
        "-------------------------------  -----------  ----  -------  ---------\n"
        "converting people to revision 4       1 of 1    20       20          0\n"
        "building index by_age of people       1 of 1    20       20          0\n"
    )


def test_an_empty_database_has_nothing_to_convert(project: Project) -> None:
    project.write("0001_people")
    project.run("migrate", "up")
    project.run("migrate", "rollback", "--yes")
    result = project.run("convert", "status")
    assert (result.status, result.out) == (0, "no tables\n")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--master", "local[2]"], "error: --master needs Spark\n  hint: add --engine spark\n"),
        (
            ["--engine", "spark", "--workers", "3"],
            "error: --workers sets the threads of this process, which Spark does not "
            "use\n"
            "  hint: use --master 'local[3]'\n",
        ),
    ],
)
def test_options_of_the_other_engine_are_wrong_usage(
    people: Project, options: list[str], message: str
) -> None:
    before = people.dump()
    result = people.run("convert", "run", *options)
    assert (result.status, result.out, result.err) == (2, "", message)
    assert people.dump() == before


def test_a_missing_pyspark_is_an_error_that_names_the_extra(
    people: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [*sys.modules]:
        if name.startswith(("zapdb.spark", "pyspark")):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyspark", None)
    before = people.dump()
    result = people.run("convert", "run", "--engine", "spark")
    assert (result.status, result.out) == (1, "")
    assert result.err == (
        "error: an optional dependency is not installed\n"
        "  package: pyspark\n"
        "  hint: pip install 'zapdb[spark]'\n"
    )
    assert people.dump() == before


def test_the_spark_engine_is_given_the_job_and_the_master(people: Project) -> None:
    """What Spark itself does is tested in tests/spark; here a stand-in shows how it is called."""
    module = people.directory / "stand_in.zip"
    with zipfile.ZipFile(module, "w") as archive:
        archive.writestr(
            "sitecustomize.py",
            "import sys, types\n"
            "spark = types.ModuleType('zapdb.spark')\n"
            "def run_on_spark(storage, job, *, master='local[*]', batch_records_max=1):\n"
            "    print(master, job.kind, file=sys.stderr)\n"
            "    from zapdb.jobs.job_run import run_locally\n"
            "    run_locally(storage, job)\n"
            "spark.run_on_spark = run_on_spark\n"
            "sys.modules['zapdb.spark'] = spark\n",
        )
    path = [str(module), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path)}
    # A process that was forked would have passed the point where Python imports sitecustomize.
    done = subprocess.run(
        [
            *(sys.executable, "-m", "zapdb", "convert", "run"),
            "--engine",
            "spark",
            "--master",
            "local[2]",
        ],
        cwd=people.directory,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0
    assert done.stderr == "local[2] index\nlocal[2] convert\n"
    assert done.stdout.startswith("built index by_age of people: 20 records")
    assert people.run("convert", "status").status == 0


def test_a_dry_run_says_what_there_is_to_do_and_how_long_it_takes(people: Project) -> None:
    before = people.dump()
    result = people.run("convert", "run", "--dry-run")
    assert result.status == 3
    assert result.out == (
        "needed building index by_age of people: 20 records, about 1 s\n"
        "needed converting people to revision 4: 20 records, about 1 s\n"
    )
    jobs = people.run("convert", "run", "--dry-run", "--json").json["jobs"]
    assert [(job["kind"], job["records"]) for job in jobs] == [("index", 20), ("convert", 20)]
    assert all(0 <= job["seconds"] < 60 for job in jobs)
    refused = people.run("convert", "run", "--dry-run", "--plan-only")
    assert (refused.status, refused.out) == (2, "")
    assert people.dump() == before
    people.run("convert", "run")
    result = people.run("convert", "run", "--dry-run")
    assert (result.status, result.out[:14]) == (0, "nothing to do:")
