"""Every kind of job has its type, its work, its name for people and its row in the guide.

What differs between kinds is said by `JobType` and by methods of `Work`, which the type checker
requires; modules that compare kinds are listed here, with what for.
"""

from __future__ import annotations

import re
from inspect import signature
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, get_args

import pytest

from zapdb.catalog.row_kinds import Job, JobKind
from zapdb.cli.exclusive_jobs import ELSEWHERE
from zapdb.database.admin import DatabaseAdmin
from zapdb.jobs.job_planning import plan_jobs
from zapdb.jobs.job_types import CONVERT, JOB_TYPES, JobType, name_job
from zapdb.jobs.work_loading import WORK

ROOT: Final = Path(__file__).parents[3]
KINDS: Final = get_args(JobKind)
EXCLUSIVE: Final = {kind for kind, of in JOB_TYPES.items() if of.is_exclusive}
PLANNED: Final = {kind for kind, of in JOB_TYPES.items() if of.needed}

COMPARED: Final = {
    "zapdb/cli/exclusive_jobs.py": "what a command that was interrupted, or can't write, tells",
    "zapdb/jobs/job_run.py": "indexes that queries wait for",
    "zapdb/jobs/job_planning.py": "indexes that are rebuilt or rewritten",
    "zapdb/jobs/known_revisions.py": "conversions that are needed again",
}
"""The modules that compare the kind of a job with one of its own."""


def make_job(kind: JobKind) -> Job:
    return Job(
        f"{kind}/1/2/3", kind, 1, 2, "things", 3, 1, "", {}, "planned", 0, 0, 1, subject="there"
    )


def test_each_kind_has_a_type() -> None:
    assert set(JOB_TYPES) == set(KINDS)


def test_each_kind_that_is_divided_has_its_work() -> None:
    assert set(WORK) == set(KINDS) - EXCLUSIVE


def test_what_the_schema_needs_is_planned_unless_it_is_said_otherwise() -> None:
    for function in (plan_jobs, DatabaseAdmin.run_jobs):
        assert set(signature(function).parameters["kinds"].default) == PLANNED, function


def test_commands_of_exclusive_jobs_say_what_does_the_same_with_spark() -> None:
    assert set(ELSEWHERE) == EXCLUSIVE - {"repair"}  # `zapdb verify` runs on Spark, too


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_has_a_name_for_people(kind: JobKind) -> None:
    catalog: Any = SimpleNamespace(all_tables=[])
    name = name_job(catalog, make_job(kind))
    verb, _, what = name.doing.partition(" ")
    assert verb.endswith("ing")
    assert "things" in what or "there" in what
    assert name.done != name.doing


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_in_the_guide_to_jobs(kind: JobKind) -> None:
    of: JobType = JOB_TYPES[kind]
    text = (ROOT / "docs" / "guides" / "jobs.md").read_text()
    (row,) = re.findall(rf"^\| `{kind}` \|.*$", text, re.MULTILINE)
    _, _, _, commands, spark, _ = row.split("|")
    assert f"`{of.command}`" in commands or (of.command == CONVERT and "the same" in commands)
    assert spark.strip() == ("no" if of.is_exclusive else "yes")


def test_no_other_module_compares_kinds() -> None:
    kinds = "|".join(KINDS)
    compared = re.compile(
        rf"""\bkind\b[^\n]*(?:==|!=|(?:not )?in)\s*\(?\s*"(?:{kinds})"|case "(?:{kinds})" *:"""
    )
    found = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "zapdb").rglob("*.py")
        if compared.search(path.read_text())
    }
    assert found == set(COMPARED)
