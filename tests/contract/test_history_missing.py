"""Tables without a fingerprint history: it begins anew where nothing is lost by it, or not."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.contract.tables import ADD_COLOR, ADD_WEIGHT, ITEMS, RENAME_SIZE
from tests.support import Workspace, dump, error_of
from zapdb.catalog import DEFAULT_TENANT, ensure_rows, load_view
from zapdb.catalog.history import Entry, read_entries
from zapdb.catalog.prehistory import ensure_histories, load, walk
from zapdb.catalog.tenants import create_tenant
from zapdb.catalog.up import migrate_up
from zapdb.errors import CorruptCatalog, MissingHistory
from zapdb.jobs import Job, forget_newest
from zapdb.records import asdict
from zapdb.storage import Mode, Storage, ensure_layout

pytestmark = pytest.mark.long_on("sqlite")


COUNT = 30
TAGS = "create_table: {table: tags, key: [name], fields: [{name: name, type: string}]}"


def up(place: Workspace, number: int, *operations: str, tenant: int = DEFAULT_TENANT) -> None:
    place.write(number, *operations)
    ensure_layout(place.control, create=True)
    ensure_rows(place.control)
    migrate_up(place.control, tenant, place.directory)


def log(place: Workspace, tenant: int = DEFAULT_TENANT) -> list[Entry]:
    with place.control.transaction(Mode.READ) as connection:
        return list(read_entries(connection, tenant))


def stamps(place: Workspace, tenant: int = DEFAULT_TENANT) -> list[tuple[str, int, str]]:
    return [(e.table.name, e.generation, e.event) for e in log(place, tenant)]


def lose(place: Workspace, tenant: int = DEFAULT_TENANT) -> None:
    place.execute("DELETE FROM zapdb_fingerprints WHERE tenant = ?", (tenant,))


def insert(place: Workspace, start: int = 0) -> list[dict[str, Any]]:
    with place.open() as db:
        db.table("items").insert_many(
            {"id": at, "title": f"title {at}"} for at in range(start, start + COUNT)
        )
        return [asdict(record) for record in db.table("items").scan()]


def test_rule_01_a_lost_history_begins_at_the_revision_that_the_records_have(
    workspace: Workspace,
) -> None:
    up(workspace, 1, ITEMS)
    up(workspace, 2, ADD_COLOR, TAGS)
    up(workspace, 3, ADD_WEIGHT)
    records = insert(workspace)
    whole = log(workspace)
    lose(workspace)
    with (
        pytest.raises(MissingHistory),
        workspace.control.transaction(Mode.READ) as connection,
    ):
        load_view(connection, DEFAULT_TENANT)
    view = load(workspace.control, DEFAULT_TENANT)
    assert {state.table.name: state.revision for state in view.tables.values()} == {
        "items": 3,
        "tags": 1,
    }
    items, tags = log(workspace)
    assert (items.generation, items.event, items.layout_revision) == (3, "pre-history", 3)
    assert (tags.generation, tags.event, tags.layout_revision) == (1, "pre-history", 1)
    for entry in (items, tags):
        assert (entry.migrated_at, entry.migrated_by, entry.position) == (0, "<system>", 3)
    assert items.snapshot == whole[2].snapshot
    assert items.fingerprint == whole[2].fingerprint
    # A second time there is nothing to do; and all goes on from there.
    assert ensure_histories(workspace.control, DEFAULT_TENANT) == []
    up(
        workspace,
        4,
        RENAME_SIZE,
        "add_field: {table: tags, field: {name: rank, type: integer, default: 1}}",
    )
    with workspace.open() as db:
        found = [asdict(record) for record in db.table("items").scan()]
        assert [r | {"extent": r["size"]} for r in records] == [
            r | {"size": r["extent"]} for r in found
        ]
        assert db.view.table("items").revision == 4
        db.table("tags").insert(name="new")
        assert db.table("tags").get("new").rank == 1
        assert db.count_by_revision("tags") == {2: 1}
        for report in db.verify():
            assert report.problems == ()


def test_rule_01_records_of_several_revisions_are_refused(workspace: Workspace) -> None:
    up(workspace, 1, ITEMS)
    insert(workspace)
    up(workspace, 2, ADD_COLOR, TAGS)
    insert(workspace, COUNT)
    lose(workspace)
    before = dump(workspace)
    error = error_of(lambda: load(workspace.control, DEFAULT_TENANT))
    assert isinstance(error, CorruptCatalog)
    assert error.context["table"] == "items"
    assert error.context["records"] == f"{COUNT} of revision 1, {COUNT} of revision 2"
    assert "backup" in error.hint
    assert dump(workspace) == before


@pytest.mark.parametrize("engine", ["sqlite"])
def test_rule_01_records_of_another_shape_than_the_one_in_force_are_refused(
    workspace: Workspace,
) -> None:
    up(workspace, 1, ITEMS)
    insert(workspace)
    up(workspace, 2, ADD_COLOR)
    lose(workspace)
    before = dump(workspace)
    error = error_of(lambda: ensure_histories(workspace.control, DEFAULT_TENANT))
    assert isinstance(error, CorruptCatalog)
    assert "not of the shape in force" in error.message
    assert dump(workspace) == before


@pytest.mark.parametrize("engine", ["sqlite"])
def test_a_history_that_is_lost_while_a_forget_is_under_way_is_refused(
    workspace: Workspace,
) -> None:
    up(workspace, 1, ITEMS)
    up(workspace, 2, ADD_COLOR)
    insert(workspace)

    class Stopped(Exception):
        pass

    def stop(storage: Storage, job: Job) -> None:
        raise Stopped

    with pytest.raises(Stopped):
        forget_newest(workspace.control, runner=stop)
    lose(workspace)
    error = error_of(lambda: ensure_histories(workspace.control, DEFAULT_TENANT))
    assert isinstance(error, CorruptCatalog)
    assert "a forget is under way" in error.message
    assert log(workspace) == []


def test_rule_01_many_find_at_once_that_a_history_is_missing(workspace: Workspace) -> None:
    up(workspace, 1, ITEMS, TAGS)
    insert(workspace)
    lose(workspace)
    begun: list[list[str]] = []
    errors: list[BaseException] = []

    def look() -> None:
        storage = workspace.connect()
        try:
            begun.append(ensure_histories(storage, DEFAULT_TENANT))
            load(storage, DEFAULT_TENANT)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=look) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert sorted(begun) == [[], [], [], [], ["items", "tags"]]
    assert stamps(workspace) == [("items", 1, "pre-history"), ("tags", 1, "pre-history")]


def test_rule_01_an_open_process_learns_of_a_history_that_begins_anew(
    workspace: Workspace,
) -> None:
    """It knew a revision that the new log has not: what it writes must not be of that one."""
    up(workspace, 1, ITEMS)
    up(workspace, 2, ADD_COLOR)
    up(workspace, 3, RENAME_SIZE)
    with workspace.open() as db:
        db.table("items").insert(id=1, title="t")
        db.table("items").delete(1)
        lose(workspace)
        ensure_histories(workspace.control, DEFAULT_TENANT)
        db.table("items").insert(id=2, title="t")
        assert db.count_by_revision("items") == {1: 1}


@pytest.mark.parametrize("engine", ["sqlite"])
def test_an_archived_table_gets_its_history_back(workspace: Workspace) -> None:
    up(workspace, 1, ITEMS, TAGS)
    records = insert(workspace)
    up(workspace, 2, "drop_table: {table: items, records: archive}")
    lose(workspace)
    assert ensure_histories(workspace.control, DEFAULT_TENANT) == ["tags", "items"]
    up(workspace, 3, "restore_table: {table: items, archived_by: 2}")
    with workspace.open() as db:
        assert [asdict(record) for record in db.table("items").scan()] == records
        assert [(e.generation, e.event) for e in db.history("items")] == [
            (1, "pre-history"),
            (2, "restore"),
        ]


@pytest.mark.parametrize("engine", ["sqlite"])
def test_the_walk_looks_at_all_tenants(workspace: Workspace) -> None:
    up(workspace, 1, ITEMS)
    insert(workspace)
    numbers = [create_tenant(workspace.control, name).number for name in ("a", "b", "c")]
    up(workspace, 2, ADD_COLOR)  # the default tenant has stale records from here on
    for number in numbers[:2]:
        migrate_up(workspace.control, number, workspace.directory)
    lose(workspace)
    lose(workspace, numbers[0])
    assert walk(workspace.control, lambda: True) == {}
    # What is refused for one tenant is done for the others; the last has no tables yet.
    assert walk(workspace.control) == {numbers[0]: ["items"]}
    assert stamps(workspace, numbers[0]) == [("items", 1, "pre-history")]
    assert stamps(workspace, numbers[1]) == [("items", 1, "create")]
    assert stamps(workspace) == stamps(workspace, numbers[2]) == []
    assert walk(workspace.control) == {}


def test_rule_13_a_forget_after_a_history_began_anew(workspace: Workspace) -> None:
    up(workspace, 1, ITEMS)
    up(workspace, 2, ADD_COLOR)
    records = insert(workspace)
    lose(workspace)
    ensure_histories(workspace.control, DEFAULT_TENANT)
    forget_newest(workspace.control)
    workspace.remove(2)
    with workspace.open() as db:
        found = [asdict(record) for record in db.table("items").scan()]
        assert found == [{k: v for k, v in r.items() if k != "color"} for r in records]
        assert [(e.generation, e.event) for e in db.history("items")] == [
            (2, "pre-history"),
            (3, "forget"),
        ]
