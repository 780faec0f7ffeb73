"""Under the policy `block` an index whose data changed is built again at once, and goes forward
only.

Who has data that it was built with before scans, and leaves it alone, until an operator says so.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.contract.tables import INDEX_SIZE, INDEX_TITLE, ITEMS
from tests.contract.test_dataset_policies import (
    OLD,
    RIGHT,
    Elsewhere,
    change_data,
    check_whole,
    fill,
    state_of,
)
from tests.contract.test_datasets import (  # noqa: F401 - the fixture is used by its name
    found,
    held_back,
    row_of,
)
from tests.contract.test_zones import INDEX_ID, INDEX_MET, MET, VISITS, in_order, local
from tests.contract.test_zones import open_elsewhere as ask_elsewhere
from tests.support import Workspace, wait_until
from zapdb.activation.datasets import needs_rebuilding, restart_indexes
from zapdb.activation.tenant_catalog import load_tenant_catalog
from zapdb.database import Database
from zapdb.errors import DatasetMismatch
from zapdb.jobs import plan_jobs
from zapdb.jobs.index_rebuilding import list_rebuilds
from zapdb.limits import FORMER_DATASETS_MAX
from zapdb.storage import TransactionMode

NOT_AT_ONCE = "zapdb.jobs.index_rebuilding.REBUILD_WHEN_OPENING_SECONDS"


@pytest.fixture
def changed(workspace: Workspace) -> Workspace:
    """A database in the default profile, whose index on titles other data made."""
    workspace.write(1, ITEMS, INDEX_TITLE, INDEX_SIZE)
    with workspace.open() as db:
        fill(db)
        assert db.admin.setting("convert") == "on_access"
    change_data(workspace, 2)
    return workspace


def reindex(workspace: Workspace) -> None:
    """As `zapdb reindex run` begins, with the data of this process."""
    storage = workspace.connect()
    with storage.transaction(TransactionMode.READ) as connection:
        catalog = load_tenant_catalog(connection, 1)
    restart_indexes(storage, catalog, lambda _, found: needs_rebuilding(found), None)


# At once


def test_rule_26_block_rebuilds_while_opening(changed: Workspace) -> None:
    db = changed.open()
    assert state_of(db) == "readable"
    (name,) = row_of(changed, 1)["built_with"]
    assert row_of(changed, 1)["former"] == {name: [OLD]}
    assert row_of(changed, 2)["former"] == {}
    assert found(db) == RIGHT
    check_whole(db)
    assert plan_jobs(db._storage, 1) == []


def test_rule_26_block_rebuilds_beside_the_use_what_takes_longer(
    changed: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(NOT_AT_ONCE, 0.0)
    db = changed.open()
    assert found(db) == RIGHT  # by a scan, or by the index
    db.table("items").insert(id=30, title="abc")
    wait_until(lambda: state_of(db) == "readable", "the index is built")
    check_whole(db)
    assert list_rebuilds(db._catalog) == frozenset()


@pytest.mark.usefixtures("held_back")
def test_rule_26_a_rebuild_comes_before_all_other_jobs(workspace: Workspace) -> None:
    by_note = "create_index: {table: aside, index: by_note, fields: [{field: note}]}"
    workspace.write(1, ITEMS.replace("items", "aside"), ITEMS, INDEX_TITLE)
    with workspace.open() as db:
        fill(db)
        db.table("aside").insert(id=1, title="x", note="y")
    workspace.write(2, by_note, "add_field: {table: aside, field: {name: rank, type: integer,"
                    " default: 1}}")  # fmt: skip
    change_data(workspace, 1)
    db = workspace.open()
    (rebuilt,) = list_rebuilds(db._catalog)
    jobs = plan_jobs(db._storage, 1)
    assert [job.kind for job in jobs] == ["index", "index", "convert"]
    assert jobs[0].target == rebuilt


@pytest.mark.usefixtures("held_back")
def test_rule_26_the_next_who_opens_goes_on_with_a_rebuild(
    changed: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed.open().close()
    assert row_of(changed, 1)["state"] == "building"
    monkeypatch.undo()
    with changed.open() as db:
        assert state_of(db) == "readable"
        check_whole(db)


def test_rule_26_the_index_of_another_tenant_is_rebuilt_when_it_is_opened(
    workspace: Workspace,
) -> None:
    workspace.write(1, ITEMS, INDEX_TITLE)
    with workspace.open() as db:
        db.admin.create_tenant("acme")
        fill(db.for_tenant("acme"))
    where = "WHERE kind = 'index' AND key = '2/1'"
    ((text,),) = workspace.execute(f"SELECT value FROM zapdb_catalog {where}")
    (name,) = row_of(workspace, 1)["built_with"]
    here = row_of(workspace, 1)["built_with"][name]["fingerprint"]
    workspace.execute(f"UPDATE zapdb_catalog SET value = ? {where}", (text.replace(here, OLD),))
    workspace.execute("UPDATE zapdb_catalog_versions SET version = version + 1")
    with workspace.open() as db:
        acme = db.for_tenant("acme")
        assert state_of(acme) == "readable"
        assert found(acme) == RIGHT
        check_whole(acme)


def test_rule_26_an_index_remembers_so_many_data_and_no_more(changed: Workspace) -> None:
    with changed.open() as db:
        index = db._catalog.tables["items"].indexes[0]
    ((name, dataset),) = index.built_with.items()
    here, newest = dataset.fingerprint, replace(dataset, fingerprint="f" * 64)
    many = tuple(f"{at:064x}" for at in range(FORMER_DATASETS_MAX))
    known = {name: (here, *many)}
    ahead = replace(index, built_with={name: newest}, former=known)
    assert ahead.is_ahead
    assert ahead.find_former() == {name: (*many[1:], "f" * 64)}
    assert not replace(ahead, former={name: many}).is_ahead


# Two releases of the time zone data


@pytest.fixture
def visits(workspace: Workspace) -> Database:
    workspace.write(1, VISITS, INDEX_MET, INDEX_ID)
    db = workspace.open()
    db.table("visits").insert_many({"id": at, "met": met} for at, met in reversed(MET.items()))
    return db


THERE = "1 2 3 4 6 5 7"
"""The order by the data of 2023.2; by those of this process it is another."""


def index_row(workspace: Workspace) -> dict[str, Any]:
    row = row_of(workspace, 1)
    return {name: row[name] for name in ("state", "entry_table", "build", "built_with", "former")}


@pytest.mark.long_on("sqlite")
def test_rule_26_data_used_in_turn_do_not_throw_each_others_index_away(
    workspace: Workspace, visits: Database
) -> None:
    visits.close()
    shown = ask_elsewhere(workspace, "2023.2", "readable", "order", "query")
    assert shown[1:] == ["reopened", "by_met True, by_id True", THERE, THERE]
    moved = index_row(workspace)
    for _ in range(2):
        with workspace.open() as db:  # with the former data
            table = db.table("visits")
            assert "by_met" not in table.readable_indexes()
            assert "by_id" in table.readable_indexes()
            assert in_order(db) == [*MET] == [r.id for r in table.where().order_by("met")]
            for write in (
                lambda table=table: table.insert(id=8, met=local("UTC", 2023, 3, 26, 9)),
                lambda table=table: table.delete(1),
            ):
                with pytest.raises(DatasetMismatch, match="other collation") as caught:
                    write()
                assert "zapdb reindex run" in caught.value.hint
            assert db.admin.run_jobs() == []
        assert index_row(workspace) == moved
        shown = ask_elsewhere(workspace, "2023.2", "readable", "order", "verify")
        assert shown == ["reopened", "by_met True, by_id True", THERE, "ok by_met by_id"]
        assert index_row(workspace) == moved


@pytest.mark.long_on("postgresql")
def test_rule_26_an_operator_makes_former_data_the_newest(
    workspace: Workspace, visits: Database
) -> None:
    visits.close()
    ask_elsewhere(workspace, "2023.2")
    with workspace.open() as db:
        reindex(workspace)
        db.admin.run_jobs()
        table = db.table("visits")
        assert "by_met" in table.readable_indexes()
        table.upsert(id=8, met=local("UTC", 2023, 3, 26, 9))
        table.delete(8)
    row = index_row(workspace)
    shown = ask_elsewhere(workspace, "2023.2", "readable", "order")
    assert "was built with the data of here before: it stays as it is" in shown[0]
    assert shown[1:] == ["reopened", "by_met False, by_id True", THERE]
    assert index_row(workspace) == row


def test_rule_26_former_data_are_refused_while_a_process_has_the_newer_ones(
    workspace: Workspace, visits: Database
) -> None:
    visits.close()
    other = Elsewhere.with_release(workspace, "2023.2", "wait", "order")
    try:
        assert other.read()[-1] == "reopened"
        row = index_row(workspace)
        with pytest.raises(DatasetMismatch, match="other running processes use different"):
            workspace.open()
        assert index_row(workspace) == row
        assert other.go_on() == [THERE]
    finally:
        other.end()
