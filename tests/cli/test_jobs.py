"""`zapdb jobs`: listing, showing and changing them."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest

from tests.cli.program import Project
from zapdb.cli.exclusive_jobs import JobCounter


@pytest.fixture
def planned(people: Project) -> Project:
    """Its jobs are planned: building an index, and a conversion that was paused first."""
    people.run("convert", "run")
    people.sql(
        "UPDATE zapdb_catalog SET value = replace(value, 'done', 'planned') WHERE kind = 'job'"
    )
    return people


def test_jobs_are_listed_with_what_they_wait_for(planned: Project) -> None:
    result = planned.run("jobs", "list")
    assert result.status == 0
    lines = result.out.splitlines()
    assert lines[0].split() == ["job", "work", "state", "priority", "ranges", "done", "waits"]
    assert re.match(r"index/1/1/1  +building index by_age of people  planned  ", lines[2])
    assert re.match(r"convert/1/1/4  converting people to revision 4 +planned  ", lines[3])
    jobs = planned.run("jobs", "list", "--json").json["jobs"]
    assert [(job["kind"], job["priority"]) for job in jobs] == [("index", 600), ("convert", 200)]
    (wait,) = jobs[1]["waits"]
    assert wait.startswith("all its ranges are done; it is counted and published by its next run")


def test_a_job_is_shown(planned: Project) -> None:
    result = planned.run("jobs", "show", "convert")
    assert re.fullmatch(
        r"convert/1/1/4: converting people to revision 4\n"
        r"  state: planned\n"
        r"  priority: 200, throttle: none\n"
        r"  records: 20 read of 20, 20 written, 0 conflicts\n"
        r"  ranges: 1 done of 1\n"
        r"  waits: all its ranges are done; .*\n",
        result.out,
    )
    found = planned.run("jobs", "show", "convert", "--json").json
    assert (found["reads"], found["workers"], found["records_per_second"]) == (20, [], None)


def test_a_job_is_paused_resumed_and_cancelled(planned: Project) -> None:
    result = planned.run("jobs", "pause", "convert")
    assert (result.status, result.out) == (0, "paused converting people to revision 4\n")
    assert "state: paused, changed by " in planned.run("jobs", "show", "convert").out
    result = planned.run("convert", "run")
    assert result.status == 3
    assert "waiting converting people to revision 4: paused by " in result.out
    result = planned.run("jobs", "resume", "convert")
    assert (result.status, result.out) == (0, "resumed converting people to revision 4\n")
    result = planned.run("jobs", "cancel", "convert")
    assert result.out == (
        "cancelled converting people to revision 4\n"
        "  what it has done stays done; `zapdb convert run` plans it again, if it is still needed\n"
    )
    result = planned.run("jobs", "resume", "convert")
    assert result.status == 2
    assert "hint: `zapdb convert run` plans it again, if it is still needed" in result.err
    as_json = planned.run("jobs", "cancel", "convert", "--json").json
    assert (as_json["state"], as_json["id"][:8]) == ("cancelled", "convert/")
    assert planned.run("jobs", "show", "convert", "--json").json["state"] == "cancelled"


def test_a_throttle_changes_what_is_given_only(planned: Project) -> None:
    result = planned.run("jobs", "throttle", "convert", "--records-per-second", "1000")
    assert result.out == "throttled converting people to revision 4: 1,000 records/s\n"
    window = ("--window", "22:00-06:00", "--zone", "Europe/Amsterdam")
    result = planned.run("jobs", "throttle", "convert", *window)
    assert result.out == (
        "throttled converting people to revision 4: 1,000 records/s, "
        "in the window 22:00-06:00 Europe/Amsterdam\n"
    )
    none = ("--window", "none", "--records-per-second", "none", "--bytes-per-second", "5")
    result = planned.run("jobs", "throttle", "convert", *none)
    assert result.out == "throttled converting people to revision 4: 5 bytes/s\n"
    none = ("--bytes-per-second", "none", "--max-latency", "20")
    result = planned.run("jobs", "throttle", "convert", *none)
    assert result.out == "throttled converting people to revision 4: queries below 20 ms\n"
    result = planned.run("jobs", "priority", "convert", "700")
    assert result.out == "priority 700 for converting people to revision 4\n"
    jobs = planned.run("jobs", "list", "--json").json["jobs"]
    assert [job["kind"] for job in jobs] == ["convert", "index"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["show", "verify"], "there is no such job"),
        (["pause", ""], "there is no such job"),
        (["throttle", "convert"], "there is nothing to change"),
        (["throttle", "convert", "--records-per-second", "fast"], "takes a whole number above 0"),
        (["throttle", "convert", "--max-latency", "0.5"], "takes a whole number above 0"),
        (["throttle", "convert", "--window", "9-17"], "this is not a daily window"),
        (["throttle", "convert", "--window", "09:00-17:00", "--zone", "CEST+1"], "lack a zone"),
        (["priority", "convert", "5000"], "this is not a priority"),
    ],
)
def test_wrong_input_is_refused(planned: Project, arguments: list[str], said: str) -> None:
    before = planned.dump()
    result = planned.run("jobs", *arguments)
    assert result.status in (1, 2)
    assert said in result.err
    assert "hint: " in result.err
    assert planned.dump() == before


def test_records_that_can_not_be_read_are_listed(people: Project) -> None:
    ((key, value),) = people.sql("SELECT key, value FROM zapdb_records_1 ORDER BY key LIMIT 1")
    broken = bytes(value)[:4]
    people.sql("UPDATE zapdb_records_1 SET value = ? WHERE key = ?", broken, key)
    for _ in range(2):  # the second time it is told, and not tried
        result = people.run("convert", "run")
        assert result.status == 1
        assert re.search(
            r"blocked converting people to revision 4\n"
            r"  1 record of people can't be read: `zapdb jobs show convert/1/1/4`\n",
            result.out,
        )
        assert result.out.endswith(
            "restore or delete these records, and run `zapdb convert run --retry-quarantined`\n"
        )
    shown = people.run("jobs", "show", "convert")
    named = f"record 0 ({bytes(key).hex()})"
    assert f"  can't be read: {named}: stored bytes can't be decoded" in shown.out
    assert "  waits: 1 record is in quarantine, " in shown.out
    (found,) = people.run("jobs", "show", "convert", "--json").json["quarantine"]
    assert found["key"] == bytes(key).hex()
    blocked = people.run("convert", "status", "--json").json["blocked"]
    assert {(one["kind"], one["quarantined"]) for one in blocked} == {("convert", 1), ("index", 1)}
    people.sql("UPDATE zapdb_records_1 SET value = ? WHERE key = ?", value, key)
    result = people.run("convert", "run", "--retry-quarantined")
    assert result.status == 0
    assert "converted people to revision 4: " in result.out
    assert people.run("jobs", "list").out == "no jobs\n"
    assert people.run("verify").status == 0


def test_the_counter_of_an_import_says_how_long_it_takes() -> None:
    counter = JobCounter("row")
    job: Any = SimpleNamespace(left=None)
    counter.job = job
    assert counter._describe(0.0) == ""
    counter.count, job.left = 100, 500
    assert counter._describe(1.0) == " of about 600, ETA 5 s"
    assert counter._describe(7.0) == ""  # nothing came
