"""What processes of Spark keep open between tasks, and what tasks prove before they read."""

from __future__ import annotations

import gc
import multiprocessing
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.contract.tables import ADD_COLOR, ITEMS
from tests.support import Workspace, lose_connections, wait_until
from zapdb.activation.rollback import roll_back
from zapdb.activation.up import MigrationChoice, migrate_up
from zapdb.catalog import DEFAULT_TENANT
from zapdb.database import Database
from zapdb.errors import ExecutorMismatch
from zapdb.spark import kept_open as module
from zapdb.spark.driver import DriverContext
from zapdb.spark.kept_open import DatabaseOpening, KeptOpen
from zapdb.spark.options import ReadOptions
from zapdb.spark.reading import ZapdbReader, read_spark_schema


@pytest.fixture
def kept() -> Iterator[KeptOpen]:
    kept = KeptOpen()
    yield kept
    kept.close()


@pytest.fixture
def opening(workspace: Workspace) -> DatabaseOpening:
    workspace.write(1, ITEMS)
    workspace.open().table("items").insert(id=1, title="one")
    return DatabaseOpening(workspace.address, "default", read_only=True)


def test_tasks_one_after_another_share_a_database_and_two_at_once_do_not(opening, kept):
    with kept.using(opening) as first, first.snapshot() as snap:
        assert snap.table("items").count() == 1
        with kept.using(opening) as second:
            assert second is not first
    assert len(kept) == 2
    with kept.using(opening) as again:
        assert again in (first, second)
    with kept.using(replace(opening, read_only=False)) as writer:
        assert writer is not again
        writer.table("items").insert(id=2, title="two")
    with kept.using(opening) as again, again.snapshot() as snap:
        assert snap.table("items").count() == 2


def test_what_failed_or_was_read_in_part_is_known(opening, kept):
    with pytest.raises(ZeroDivisionError), kept.using(opening):
        raise ZeroDivisionError
    assert len(kept) == 0

    def read() -> Iterator[Database]:
        with kept.using(opening) as db, db.snapshot():
            yield db

    rows = read()
    db = next(rows)
    rows.close()  # Spark has enough
    assert len(kept) == 1
    with kept.using(opening) as again:
        assert again is db


def test_a_lost_connection_and_a_replaced_file_are_found(workspace, opening, kept, tmp_path):
    with kept.using(opening) as db:
        pass
    if workspace.engine == "postgresql":
        lose_connections(workspace, db._storage)
    else:
        path = tmp_path / "test.db"
        shutil.copy(path, tmp_path / "other.db")
        Path(tmp_path / "other.db").replace(path)
    with kept.using(opening) as again, again.snapshot() as snap:
        assert snap.table("items").count() == 1
    assert len(kept) == 1


@pytest.mark.parametrize("engine", ["sqlite"])
def test_a_forked_process_has_none_and_idle_ones_are_closed(opening, kept):
    with kept.using(opening):
        pass
    context = multiprocessing.get_context("fork")
    found = context.SimpleQueue()

    def look() -> None:
        with kept.using(opening) as db, db.snapshot() as snap:
            found.put((snap.table("items").count(), len(kept)))

    process = context.Process(target=look)
    process.start()
    assert found.get() == (1, 0)
    process.join()
    closed = KeptOpen(idle_seconds=0.01)
    with closed.using(opening) as db:
        pass
    wait_until(lambda: db._storage.pool.is_closed, "it was closed")
    assert len(closed) == 0
    with closed.using(opening) as other:
        assert other is not db
    closed.close()


def test_rule_32_readers_prove_their_database_and_its_migrations(workspace, opening):
    options = ReadOptions.parse({"database": opening.address, "table": "items"})
    schema = read_spark_schema(DriverContext(), options)
    reader = ZapdbReader(DriverContext(), options, schema)
    (partition,) = reader.partitions()
    assert sum(batch.num_rows for batch in reader.read(partition)) == 1

    workspace.write(2, ADD_COLOR)
    workspace.open().close()
    assert sum(batch.num_rows for batch in reader.read(partition)) == 1, "later ones are no reason"
    (later,) = reader.partitions()
    workspace.remove(2)
    roll_back(workspace.connect())
    assert sum(batch.num_rows for batch in reader.read(partition)) == 1
    with pytest.raises(ExecutorMismatch, match="another chain of migrations"):
        next(reader.read(later))
    workspace.write(2, ADD_COLOR)
    migrate_up(
        workspace.connect(), DEFAULT_TENANT, workspace.directory, MigrationChoice(again=True)
    )
    with pytest.raises(ExecutorMismatch, match="another chain of migrations"):
        next(reader.read(later))  # an equal file, but another migration
    proof = replace(partition.proof, database="another one")
    with pytest.raises(ExecutorMismatch, match="leads this process to another database"):
        next(reader.read(replace(partition, proof=proof)))
    module.KEPT_OPEN.close()


def test_only_processes_of_spark_set_aside_what_they_imported(opening, kept, monkeypatch):
    """Spark collects all garbage after each task."""
    gc.unfreeze()  # what the tests have set aside
    with kept.using(opening):
        assert gc.get_freeze_count() == 0
    kept.close()
    spec = SimpleNamespace(name=module.DAEMON)
    monkeypatch.setitem(sys.modules, "__main__", SimpleNamespace(__spec__=spec))
    try:
        with kept.using(opening):
            assert gc.get_freeze_count() > 10_000
    finally:
        gc.freeze()
