"""Time between two builds of indexes that queries wait for, in whatever process the jobs run."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec import structs

from tests.contract.tables import ADD_COLOR, INDEX_SIZE, INDEX_TITLE, ITEMS
from tests.support import Workspace
from zapdb.cli.program import run_program
from zapdb.database import Database
from zapdb.database.tenant_refresh import run_all
from zapdb.jobs import job_run, plan_jobs
from zapdb.jobs.job_planning import REBUILT_PRIORITY
from zapdb.jobs.job_run import BuildPauses
from zapdb.limits import BUILD_PAUSE_SECONDS_MAX

RUNNERS: dict[str, Callable[[Workspace, Database], object]] = {
    "run_jobs": lambda workspace, db: db.admin.run_jobs(),
    "background": lambda workspace, db: run_all(db._storage, 1, lambda: False),
    "convert run": lambda workspace, db: run_program(["convert", "run", "-d", workspace.address]),
    "convert watch": lambda workspace, db: run_program(
        ["convert", "watch", "--for", "0.1", "-d", workspace.address]
    ),
}


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds of each pause, which are not waited for."""
    found = list[float]()
    monkeypatch.setattr(job_run, "wait", lambda seconds, should_stop: found.append(seconds))
    return found


@pytest.fixture
def db(workspace: Workspace) -> Database:
    """Two indexes to build, and records to convert."""
    workspace.write(1, ITEMS)
    with workspace.open() as db:
        db.table("items").insert_many({"id": at, "title": f"title {at}"} for at in range(50))
    workspace.write(2, INDEX_SIZE, INDEX_TITLE, ADD_COLOR)
    return workspace.open()


@pytest.mark.parametrize("engine", ["sqlite"])
@pytest.mark.parametrize("runner", RUNNERS)
def test_the_second_of_two_urgent_builds_begins_later(
    workspace: Workspace, db: Database, pauses: list[float], runner: str
) -> None:
    first, second, conversion = plan_jobs(db._storage, 1)
    assert [job.kind for job in (first, second, conversion)] == ["index", "index", "convert"]
    for job in (first, second):
        db.jobs.set_priority(job.id, REBUILT_PRIORITY)
    RUNNERS[runner](workspace, db)
    assert plan_jobs(db._storage, 1) == []
    assert len(pauses) == 1
    assert 0 < pauses[0] <= BUILD_PAUSE_SECONDS_MAX


def test_other_builds_follow_at_once(db: Database, pauses: list[float]) -> None:
    assert len(db.admin.run_jobs()) == 3
    assert pauses == []


def test_a_pause_is_a_part_of_the_build_and_bounded(db: Database, pauses: list[float]) -> None:
    job, *_ = plan_jobs(db._storage, 1)
    urgent = db.jobs.set_priority(job.id, REBUILT_PRIORITY)
    taken = BuildPauses()
    taken.note(urgent, 4.0)
    taken.wait_before(urgent)
    assert pauses == []  # it was not done
    for seconds in (4.0, 1_000.0):
        taken.note(structs.replace(urgent, state="done"), seconds)
        taken.wait_before(urgent)
    assert pauses == [1.0, BUILD_PAUSE_SECONDS_MAX]
    taken.note(structs.replace(urgent, state="superseded"), 4.0)
    taken.wait_before(urgent)
    assert len(pauses) == 2
