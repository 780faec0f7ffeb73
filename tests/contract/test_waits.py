"""What a job waits for, as the one sees it who runs it, and which process is in the way."""

from __future__ import annotations

import os

import pytest

from tests.contract.tables import ADD_COLOR, ADD_WEIGHT, ITEMS
from tests.contract.test_conversion import db as db
from tests.contract.test_conversion import only_job
from tests.contract.test_watch import watching
from tests.support import Workspace
from zapdb.activation import load_tenant_catalog
from zapdb.catalog.cluster.leases import Owner
from zapdb.cli.program import run_program
from zapdb.database import Database
from zapdb.jobs.job import claim
from zapdb.jobs.progress import record_totals
from zapdb.jobs.waiting import find_lagging, find_waits
from zapdb.storage import Storage, TransactionMode

WAITING = "activation: wait_for_nodes\n"


def test_a_range_that_another_process_has_is_what_a_worker_waits_for(db: Database) -> None:
    job, storage = only_job(db._storage), db._storage
    elsewhere = Owner("worker", "another-host", 4711)
    claimed = claim(storage, job.id, elsewhere)
    assert claimed is not None
    with storage.transaction(TransactionMode.READ) as connection:
        catalog = load_tenant_catalog(connection, job.tenant)
        (reason,) = find_waits(connection, catalog, job, "worker")
        assert find_waits(connection, catalog, job, "driver") == ()
        assert find_waits(connection, catalog, job) == ()
    assert reason.startswith(
        "another process holds the lease of what is left: range 0 (worker (host another-host, "
        "process 4711) has it, for "
    )
    with storage.transaction(TransactionMode.CATALOG) as connection:
        record_totals(connection, claimed, 0, 0, done=True)
    with storage.transaction(TransactionMode.READ) as connection:
        assert find_waits(connection, catalog, job, "driver") == ()
        (reason,) = find_waits(connection, catalog, job)
    assert reason.startswith("all its ranges are done")


def test_a_worker_does_not_wait_for_itself(db: Database) -> None:
    job, storage = only_job(db._storage), db._storage
    with storage.transaction(TransactionMode.READ) as connection:
        catalog = load_tenant_catalog(connection, job.tenant)
        assert find_waits(connection, catalog, job, "worker") == ()
    assert claim(storage, job.id, Owner.here()) is not None
    with storage.transaction(TransactionMode.READ) as connection:
        assert find_waits(connection, catalog, job, "worker") == ()


def lagging(storage: Storage) -> str | None:
    with storage.transaction(TransactionMode.READ) as connection:
        return find_lagging(connection, load_tenant_catalog(connection, 1))


def test_rule_12_a_process_with_older_files_is_named_with_its_host_and_number(
    workspace: Workspace, capfd: pytest.CaptureFixture[str]
) -> None:
    workspace.write(1, ITEMS)
    old = workspace.open()
    assert lagging(old._storage) is None
    path = workspace.write(2, ADD_COLOR)
    path.write_text(path.read_text().replace("rollback:", f"{WAITING}rollback:"))
    here = f"process {os.getpid()})"
    with watching(workspace) as process:
        assert run_program(
            ["migrate", "up", "-d", workspace.address, "-m", str(workspace.directory)]
        ) in (0, 1, 3)
        said = lagging(old._storage)
        assert said is not None
        assert said.startswith("0002_test is not active until these have its file: ")
        assert said.endswith(here)
        assert process.stderr is not None
        assert process.stderr.readline() == f"waiting: {said}\n"
    for command in (["convert", "run"], ["jobs", "list"]):
        run_program([*command, "-d", workspace.address])
    out, _ = capfd.readouterr()
    assert out.count(f"waiting {said}\n") == 2
    old.close()
    workspace.write(3, ADD_WEIGHT)
    with workspace.open() as db:
        assert lagging(db._storage) is None
