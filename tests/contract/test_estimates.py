"""How long jobs will take: measured by writing a sample, of which nothing is left."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.tables import ADD_COLOR, INDEX_SIZE, ITEMS
from tests.contract.test_conversion import COUNT
from tests.contract.test_conversion import db as db
from tests.support import Workspace, dump
from zapdb.database import Database
from zapdb.jobs import migration_plan
from zapdb.jobs.estimate import estimate_jobs
from zapdb.migrations import NumberAllocator, list_files, resolve_files
from zapdb.storage import Connection
from zapdb.tables.writes import convert_records

ARCHIVE = (
    "drop_field: {table: items, field: color, restore: {archive: true, otherwise: {value: x}}}"
)


def test_what_jobs_will_take_is_measured_and_nothing_is_left(
    db: Database, workspace: Workspace
) -> None:
    workspace.write(5, INDEX_SIZE)
    workspace.open().close()
    before = dump(workspace)
    index, conversion = estimate_jobs(db._storage, 1)
    assert (index.job.kind, conversion.job.kind) == ("index", "convert")
    assert (index.records, conversion.records) == (COUNT, COUNT)
    assert index.seconds is not None
    assert index.seconds > 0
    assert conversion.seconds is not None
    assert conversion.seconds > 0
    assert dump(workspace) == before
    db.admin.run_jobs()
    assert estimate_jobs(db._storage, 1) == []


def test_a_throttled_job_takes_as_long_as_its_rate_lets_it(db: Database) -> None:
    db.admin.set_setting("job_records_per_second", "10")
    (found,) = estimate_jobs(db._storage, 1)
    assert found.seconds is not None
    assert found.seconds >= COUNT / 10


def test_a_plan_includes_writing_and_leaves_nothing(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace.write(1, ITEMS)
    workspace.write(2, ADD_COLOR)
    db = workspace.open()
    db.table("items").insert_many({"id": at, "title": f"title {at}"} for at in range(COUNT))
    workspace.write(3, ARCHIVE)
    storage, catalog = db._storage, db._catalog
    files = list_files(workspace.directory)[2:]
    chain = resolve_files(files, catalog.chain, NumberAllocator.provisional())
    before, seen = dump(workspace), list[tuple[int, int]]()

    def write(connection: Connection, *rest: Any) -> int:
        count = convert_records(connection, *rest)
        (archived,) = connection.fetch_one("SELECT count(*) FROM zapdb_archives")
        seen.append((count, archived))
        return count

    monkeypatch.setattr(migration_plan, "convert_records", write)
    (table,) = migration_plan.make_migration_plan(storage, catalog, chain, 200).tables
    assert seen == [(100, 100), (100, 100)]  # in two transactions, each of which is rolled back
    assert table.includes_writing
    assert table.seconds is not None
    assert table.seconds > 0
    assert dump(workspace) == before


@pytest.mark.parametrize("engine", ["postgresql"])
def test_a_plan_waits_for_no_writer(workspace: Workspace) -> None:
    """Records that a writer holds are left out of the sample."""
    workspace.write(1, ITEMS)
    db = workspace.open()
    db.table("items").insert_many({"id": at, "title": f"title {at}"} for at in range(50))
    workspace.write(2, ADD_COLOR)
    chain = resolve_files(
        list_files(workspace.directory)[1:], db._catalog.chain, NumberAllocator.provisional()
    )
    other = workspace.connect()
    with db.transaction():
        for at in range(0, 50, 2):
            db.table("items").update(at, size=1)
        (table,) = migration_plan.make_migration_plan(other, db._catalog, chain, 50).tables
    assert table.includes_writing
