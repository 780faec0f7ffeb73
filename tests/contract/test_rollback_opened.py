"""Opening while a migration is forgotten, or after that was interrupted: reading goes on."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import zapdb
from tests.contract.tables import ADD_COLOR, INDEX_TITLE, ITEMS
from tests.support import Workspace, dump
from zapdb.catalog.row_kinds import Job
from zapdb.database import Database
from zapdb.errors import PendingMigrations, RollbackInProgress
from zapdb.jobs.job_run import run_locally
from zapdb.jobs.rollback_run import roll_back_newest
from zapdb.records import asdict
from zapdb.storage import Storage

COUNT = 120
DROP_SIZE = (
    "drop_field: {table: items, field: size, restore: {archive: true, otherwise: {value: 1}}}"
)


class Interrupted(Exception):
    pass


def run_a_part(storage: Storage, job: Job) -> None:
    """Take some records back, and end there."""
    steps = iter([False] * 2)
    should_stop = lambda: next(steps, True)
    run_locally(storage, job, workers=1, batch_records_max=8, should_stop=should_stop)
    raise Interrupted


def contents(db: Database) -> list[dict[str, Any]]:
    return [asdict(record) for record in db.table("items").scan()]


@pytest.fixture
def base(workspace: Workspace) -> list[dict[str, Any]]:
    """Records of migrations 1 and 2, and the forget of 2 interrupted; what they were before it."""
    workspace.write(1, ITEMS, INDEX_TITLE)
    with workspace.open() as db:
        db.table("items").insert_many(
            {"id": at, "title": f"title {at}", "size": at % 7} for at in range(COUNT)
        )
        shutil.copytree(workspace.directory, older(workspace))
    workspace.write(2, ADD_COLOR, DROP_SIZE)
    with workspace.open() as db:
        for at in range(0, COUNT, 2):
            db.table("items").update(at, color="blue")
    with zapdb.open(workspace.address, migrations=older(workspace)) as db:
        before = contents(db)
    with pytest.raises(Interrupted):
        roll_back_newest(workspace.connect(), runner=run_a_part)
    return before


def older(place: Workspace) -> Any:
    return place.directory.parent / "older"


@contextmanager
def opened(place: Workspace, *, ahead: bool = False, **options: Any) -> Iterator[Database]:
    directory = place.directory if ahead else older(place)
    with zapdb.open(place.address, migrations=directory, **options) as db:
        yield db


@pytest.mark.parametrize("apply", ["never", "auto"])
def test_rule_13_a_process_with_older_files_opens_and_reads_meanwhile(
    workspace: Workspace, base: list[dict[str, Any]], apply: str
) -> None:
    with opened(workspace, apply=apply) as db:
        items = db.table("items")
        assert contents(db) == base
        assert items.get(3).size == 3
        assert [r.id for r in items.where(items.f.title == "title 7")] == [7]
        with db.snapshot():
            assert items.get(4).size == 4
        for write in (
            lambda: items.insert(id=-1, title="new"),
            lambda: items.update(1, size=9),
            lambda: items.delete(1),
        ):
            with pytest.raises(RollbackInProgress):
                write()
        with pytest.raises(RollbackInProgress), db.transaction():
            items.delete(2)
        assert db.admin.run_jobs() == []
        # Its files end before the migration, so it does not keep the forget from being finished.
        assert roll_back_newest(workspace.connect()).number == 2
        items.update(1, size=9)
        assert contents(db)[2:] == base[2:]
        assert items.get(1).size == 9


def test_rule_13_a_process_whose_files_hold_the_migration_is_refused(
    workspace: Workspace, base: list[dict[str, Any]]
) -> None:
    before = dump(workspace)
    for options in ({}, {"serve_as": 1}, {"apply": "auto"}):
        with (
            pytest.raises(RollbackInProgress, match="being rolled back") as caught,
            opened(workspace, ahead=True, **options),
        ):
            pass
        assert "read_only=True" in caught.value.hint
    assert dump(workspace) == before
    roll_back_newest(workspace.connect())


@pytest.mark.parametrize("ahead", [False, True])
def test_rule_13_everybody_reads_meanwhile_with_read_only(
    workspace: Workspace, base: list[dict[str, Any]], ahead: bool
) -> None:
    with opened(workspace, ahead=ahead, read_only=True) as db:
        found = contents(db)
        if ahead:
            # Of those that were taken back already, it reads what going up again makes of them.
            assert {r["color"] for r in found} == {"red", "blue"}
            assert 0 < sum(r["color"] == "blue" for r in found) < COUNT / 2
            assert "size" not in found[0]
        else:
            assert found == base
        roll_back_newest(workspace.connect())
        if ahead:  # what it reads is not in force any more
            with pytest.raises(PendingMigrations):
                contents(db)
        else:
            assert contents(db) == base


def test_rule_13_a_process_without_files_reads_what_is_in_force(
    workspace: Workspace, base: list[dict[str, Any]]
) -> None:
    with zapdb.open(workspace.address) as db:
        assert len(contents(db)) == COUNT
        assert db.table("items").get(COUNT - 2).color == "blue"
        with pytest.raises(RollbackInProgress):
            db.table("items").delete(0)
        roll_back_newest(workspace.connect())
        assert contents(db) == base


def test_rule_13_tenants_that_would_have_to_be_brought_up_wait(
    workspace: Workspace, base: list[dict[str, Any]]
) -> None:
    """Those that need nothing are opened, and those that the forget is not about are written to."""
    with opened(workspace) as db:
        db.admin.create_tenant("new")
        with pytest.raises(RollbackInProgress):
            db.for_tenant("new")
        with pytest.raises(RollbackInProgress):
            zapdb.open(workspace.address, migrations=older(workspace), tenant="new")
        assert contents(db.for_tenant("default")) == base
        roll_back_newest(workspace.connect())
        new = db.for_tenant("new")
        new.table("items").insert(id=1, title="x")
