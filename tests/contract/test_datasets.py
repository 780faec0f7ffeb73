"""Collation data that differ from what an index was built with: nothing is ever missed silently."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from tests.contract.tables import INDEX_SIZE, INDEX_TITLE, ITEMS
from tests.lookups import between, find
from tests.support import Workspace, dump
from zapdb.activation.datasets import datasets_in_use
from zapdb.catalog import rows
from zapdb.catalog.cluster import (
    node_registration,
    nodes,
)
from zapdb.database import Database
from zapdb.errors import DatasetMismatch, ExecutorMismatch, InvalidCursor, LeaseLost
from zapdb.jobs import plan_jobs
from zapdb.jobs.work_loading import load_work
from zapdb.storage import TransactionMode
from zapdb.tables.queries.cursors import Data, decode_cursor, encode_cursor

TITLES = ["z", "a", "Ä", "ä", "ae", "b", "\u20a8", "500"]


@pytest.fixture
def db(workspace: Workspace) -> Database:
    workspace.write(1, ITEMS, INDEX_TITLE, INDEX_SIZE)
    db = workspace.open()
    db.table("items").insert_many(
        {"id": at, "title": title, "size": at} for at, title in enumerate(TITLES)
    )
    return db


def row_of(workspace: Workspace, index: int) -> dict[str, Any]:
    ((value,),) = workspace.execute(
        "SELECT value FROM zapdb_catalog WHERE kind = 'index' AND key = ?", (f"1/{index}",)
    )
    row: dict[str, Any] = json.loads(value)
    return row


def tamper(workspace: Workspace) -> None:
    """As if the index had been built by another ICU: its entries sort as they never did."""
    row = row_of(workspace, 1)
    (name,) = row["built_with"]
    row["built_with"][name] = {"version": "ICU 1.0", "fingerprint": "0" * 64}
    workspace.execute(
        "UPDATE zapdb_catalog SET value = ? WHERE kind = 'index' AND key = '1/1'",
        (json.dumps(row, sort_keys=True, separators=(",", ":")),),
    )
    # Other keys than this process makes: a lookup that used them would miss rows.
    function = "x'ff' || key" if workspace.engine == "sqlite" else "'\\xff'::bytea || key"
    cast = f"CAST({function} AS BLOB)" if workspace.engine == "sqlite" else function
    workspace.execute(f"UPDATE zapdb_entries_{row['entry_table']} SET key = {cast}")
    workspace.execute("UPDATE zapdb_catalog_versions SET version = version + 1")


def have_other_data(workspace: Workspace, db: Database) -> None:
    """As if the process that has the database open were the one with the other ICU."""
    where = f"WHERE kind = 'node' AND key = '{db._node.id}'"
    ((text,),) = workspace.execute(f"SELECT value FROM zapdb_catalog {where}")
    row = json.loads(text)
    row["datasets"] = {name: ["ICU 1.0", "0" * 64] for name in row["datasets"]}
    assert row["datasets"]
    workspace.execute(
        f"UPDATE zapdb_catalog SET value = ? {where}",
        (json.dumps(row, sort_keys=True, separators=(",", ":")),),
    )


def found(db: Database) -> list[str]:
    return [record.title for record in between(db.table("items"), "by_title", "a", "c")]


@pytest.fixture
def held_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is to be built again at once is left to others, as by a process that died."""
    monkeypatch.setattr("zapdb.jobs.index_rebuilding.REBUILD_WHEN_OPENING_SECONDS", 0.0)
    monkeypatch.setattr("zapdb.database.tenant_refresh.list_rebuilds", lambda catalog: frozenset())


@pytest.mark.usefixtures("held_back")
def test_rule_26_a_changed_dataset_starts_the_index_anew(
    workspace: Workspace, db: Database, caplog: pytest.LogCaptureFixture
) -> None:
    right = found(db)
    assert right == ["a", "ä", "Ä", "ae", "b"]
    before = row_of(workspace, 1), row_of(workspace, 2)
    db.close()
    tamper(workspace)
    with caplog.at_level(logging.WARNING, "zapdb.datasets"):
        db = workspace.open()
    assert (
        "the collation or time zone data changed: index 'by_title' of table 'items'" in caplog.text
    )
    assert "built with ICU 1.0" in caplog.text
    assert "by_title" not in db.table("items").readable_indexes()
    assert "by_size" in db.table("items").readable_indexes()
    assert found(db) == right
    assert [record.id for record in find(db.table("items"), "by_title", "Ä")] == [2]
    db.table("items").insert(id=8, title="abc")
    db.table("items").delete(1)
    assert found(db) == ["ä", "Ä", "abc", "ae", "b"]
    assert [report.job.kind for report in db.admin.run_jobs()] == ["index"]
    assert "by_title" in db.table("items").readable_indexes()
    assert found(db) == ["ä", "Ä", "abc", "ae", "b"]
    row = row_of(workspace, 1)
    assert row["built_with"] == before[0]["built_with"]
    assert row["entry_table"] > before[0]["entry_table"]
    assert row_of(workspace, 2) == before[1]
    (report,) = db.admin.verify()
    assert report.problems == ()
    names = db._storage.dialect.table_names(db._storage.connection())
    assert f"zapdb_entries_{before[0]['entry_table']}" not in names


def test_rule_26_a_cursor_names_the_collation_that_changed(db: Database) -> None:
    items = db.table("items")
    for query, name in (
        (items.order_by("title"), None),
        (items.order_by(items.f.title.collated("sv"), "size"), "collation:sv/tertiary"),
        (items.where(items.f.title.collated("und") > "a"), "collation:und/tertiary"),
    ):
        page = query.page(2)
        assert page.cursor is not None
        made = decode_cursor(page.cursor)
        assert len(made.mark.data) == (name is not None)
        if name is None:
            continue
        other = Data(b"\x00" * 8, b"ICU 1.0")
        cursor = encode_cursor(replace(made, mark=replace(made.mark, data=(other,))))
        with pytest.raises(InvalidCursor, match="other collation or time zone data") as caught:
            query.page(2, cursor)
        assert caught.value.context["dataset"] == name
        assert caught.value.context["made_with"] == "ICU 1.0 (fingerprint 0000000000000000)"
        assert caught.value.context["here"].startswith("ICU ")
        assert caught.value.hint.startswith("begin again without a cursor")
        assert query.page(2).cursor == page.cursor
        forged = encode_cursor(
            replace(made, mark=replace(made.mark, data=(replace(other, version=b"\nway out: x"),)))
        )
        with pytest.raises(InvalidCursor, match="this is not a cursor"):
            query.page(2, forged)


def test_rule_26_the_history_knows_nothing_of_it(workspace: Workspace, db: Database) -> None:
    history = db.admin.schema_history("items")
    db.close()
    tamper(workspace)
    with workspace.open() as again:
        assert again.admin.schema_history("items") == history
        assert again.admin.count_by_revision("items") == {1: len(TITLES)}


def test_rule_26_processes_with_other_data_are_refused_while_others_run(
    workspace: Workspace, db: Database
) -> None:
    tamper(workspace)
    have_other_data(workspace, db)
    before = dump(workspace)
    with pytest.raises(
        DatasetMismatch, match="other running processes use different collation or time zone data"
    ) as caught:
        workspace.open()
    context = caught.value.context
    assert (context["table"], context["index"]) == ("items", "by_title")
    assert context["built_with"] == "ICU 1.0"
    assert context["here"].startswith("ICU ")
    assert db._node.id in context["processes"]
    assert dump(workspace) == before
    assert [n.id for n, _ in nodes.list_nodes(workspace.control.connection())] == [db._node.id]
    db.close()
    assert found(workspace.open()) == ["a", "ä", "Ä", "ae", "b"]


def test_rule_26_processes_that_are_known_to_have_the_same_data_are_no_obstacle(
    workspace: Workspace, db: Database
) -> None:
    """They opened while the index still was as they would have it, and scan it since."""
    here = datasets_in_use(db._catalog)
    storage = workspace.connect()
    db.close()
    node_registration.register(storage, 1, datasets=here)
    tamper(workspace)
    with workspace.open() as again:
        again.admin.run_jobs()
        assert found(again) == ["a", "ä", "Ä", "ae", "b"]


def test_rule_26_a_silent_process_is_put_out_before_the_index_is_started_anew(
    workspace: Workspace, db: Database
) -> None:
    """It may have the other data, and would write keys of the old order when it wakes up."""
    tamper(workspace)
    workspace.execute(
        "UPDATE zapdb_leases SET expires_at = 1 WHERE name = ?",
        (f"node/{db._node.id}",),
    )
    other = workspace.open()
    with pytest.raises(LeaseLost):
        db.table("items").insert(id=8, title="abc")
    other.admin.run_jobs()
    (report,) = other.admin.verify()
    assert report.problems == ()


def test_rule_26_a_process_scans_an_index_of_other_data_and_does_not_write_it(
    workspace: Workspace, db: Database
) -> None:
    """One that was put out, and reads on, after others started the index anew."""
    items = db.table("items")
    assert "by_title" in items.readable_indexes()
    tamper(workspace)
    assert [record.title for record in between(items, "by_title", "a", "c")] == [
        "a",
        "ä",
        "Ä",
        "ae",
        "b",
    ]
    assert "by_title" not in items.readable_indexes()
    assert found(db) == ["a", "ä", "Ä", "ae", "b"]
    assert [record.id for record in find(items, "by_size", 3)] == [3]
    with pytest.raises(DatasetMismatch):
        items.insert(id=8, title="abc")
    with pytest.raises(DatasetMismatch):
        items.update(1, title="abc")
    assert items.count() == len(TITLES)
    assert items.get(1).title == "a"


def test_rule_26_an_executor_with_other_datasets_is_a_mismatch(workspace: Workspace) -> None:
    workspace.write(1, ITEMS)
    with workspace.open() as db:
        db.table("items").insert(id=1, title="a")
    workspace.write(2, INDEX_TITLE)
    db = workspace.open()
    (job,) = plan_jobs(db._storage, 1)
    (name,) = job.datasets
    with db._storage.transaction(TransactionMode.CATALOG) as connection:
        rows.put(connection, structs.replace(job, datasets={name: "0" * 64}))
    with pytest.raises(ExecutorMismatch, match="other collation or time zone data") as caught:
        load_work(db._storage, job.id)
    assert caught.value.context["dataset"] == name
    with db._storage.transaction(TransactionMode.READ):
        pass
