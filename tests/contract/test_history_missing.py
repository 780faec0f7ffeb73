"""Tables without a schema history: it begins anew where nothing is lost by it, or not."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.contract.tables import ADD_COLOR, ADD_WEIGHT, INDEX_SIZE, ITEMS, RENAME_SIZE
from tests.support import Workspace, dump, error_of
from zapdb.activation import load_tenant_catalog
from zapdb.activation.rollback import roll_back
from zapdb.activation.schema_history_recovery import (
    load_or_recover,
    recover_all_tenants,
    recover_schema_histories,
)
from zapdb.activation.up import migrate_up
from zapdb.catalog import DEFAULT_TENANT
from zapdb.catalog.cluster import ensure_database
from zapdb.catalog.schema_history import RevisionEntry, read_entries
from zapdb.database import RecordChange
from zapdb.errors import CorruptCatalog, MissingSchemaHistory
from zapdb.past.files.wanted_stores import create_tenant
from zapdb.records import asdict
from zapdb.storage import TransactionMode
from zapdb.storage.identities import count_of

pytestmark = pytest.mark.long_on("sqlite")


COUNT = 30
TAGS = "create_table: {table: tags, key: [name], fields: [{name: name, type: string}]}"
LENGTHS = (
    "transform: {table: items, from: {title: string}, into: {title: {type: integer, default: 0}},"
    ' up: {title: "length(title)"}, down: {title: "text(title)"}, reversibility: lossy}'
)


def up(place: Workspace, number: int, *operations: str, tenant: int = DEFAULT_TENANT) -> None:
    place.write(number, *operations)
    ensure_database(place.control, create=True)
    migrate_up(place.control, tenant, place.directory)


def log(place: Workspace, tenant: int = DEFAULT_TENANT) -> list[RevisionEntry]:
    with place.control.transaction(TransactionMode.READ) as connection:
        return list(read_entries(connection, tenant))


def stamps(place: Workspace, tenant: int = DEFAULT_TENANT) -> list[tuple[str, int, str]]:
    return [(e.schema.name, e.revision, e.event) for e in log(place, tenant)]


def lose(place: Workspace, tenant: int = DEFAULT_TENANT) -> None:
    place.execute("DELETE FROM zapdb_schema_history WHERE tenant = ?", (tenant,))


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
        pytest.raises(MissingSchemaHistory),
        workspace.control.transaction(TransactionMode.READ) as connection,
    ):
        load_tenant_catalog(connection, DEFAULT_TENANT)
    catalog = load_or_recover(workspace.control, DEFAULT_TENANT)
    # From here on all is written under a number that nobody has used.
    new = count_of(catalog.version)
    assert {(state.schema.name, state.revision) for state in catalog.tables.values()} == {
        ("items", new), ("tags", new)
    }  # fmt: skip
    items, items_new, tags = log(workspace)
    assert (items.revision, items.event, items.layout_revision) == (3, "recovered", 3)
    assert (items_new.revision, items_new.layout_revision) == (new, 3)
    assert (tags.revision, tags.event, tags.layout_revision) == (new, "recovered", new)
    for entry in (items, items_new, tags):
        assert (entry.migrated_at, entry.migrated_by, entry.position) == (0, "<system>", 3)
        assert entry.event == "recovered"
    for entry in (items, items_new):
        assert entry.schema_bytes == whole[2].schema_bytes
        assert entry.fingerprint == whole[2].fingerprint
    # A second time there is nothing to do; and all goes on from there.
    assert recover_schema_histories(workspace.control, DEFAULT_TENANT) == []
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
        assert db._catalog.table("items").revision == new + 1
        db.table("tags").insert(name="new")
        assert db.table("tags").get("new").rank == 1
        assert db.admin.count_by_revision("tags") == {new + 1: 1}
        for report in db.admin.verify():
            assert report.problems == ()


def test_rule_01_records_of_several_revisions_are_refused(workspace: Workspace) -> None:
    up(workspace, 1, ITEMS)
    insert(workspace)
    up(workspace, 2, ADD_COLOR, TAGS)
    insert(workspace, COUNT)
    lose(workspace)
    before = dump(workspace)
    error = error_of(lambda: load_or_recover(workspace.control, DEFAULT_TENANT))
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
    error = error_of(lambda: recover_schema_histories(workspace.control, DEFAULT_TENANT))
    assert isinstance(error, CorruptCatalog)
    assert "do not fit the active schema" in error.message
    assert dump(workspace) == before


@pytest.mark.on_each_engine
def test_rule_01_many_find_at_once_that_a_history_is_missing(workspace: Workspace) -> None:
    up(workspace, 1, ITEMS, TAGS)
    insert(workspace)
    lose(workspace)
    begun: list[list[str]] = []
    errors: list[BaseException] = []

    def look() -> None:
        storage = workspace.connect()
        try:
            begun.append(recover_schema_histories(storage, DEFAULT_TENANT))
            load_or_recover(storage, DEFAULT_TENANT)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=look) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert sorted(begun) == [[], [], [], [], ["items", "tags"]]
    new = count_of(workspace.open()._catalog.version)
    assert stamps(workspace) == [
        ("items", 1, "recovered"), ("items", new, "recovered"), ("tags", new, "recovered")
    ]  # fmt: skip


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
        recover_schema_histories(workspace.control, DEFAULT_TENANT)
        db.table("items").insert(id=2, title="t")
        (revision,) = db.admin.count_by_revision("items")
        assert revision == db._catalog.table("items").revision > 3


def test_rule_01_numbers_of_a_lost_history_are_not_used_again(workspace: Workspace) -> None:
    """Changes in the change log are read by the shape of their time, or not at all."""
    up(workspace, 1, ITEMS)
    with workspace.open() as db:
        db.admin.set_setting("change_log", "on")
        db.table("items").insert(id=1, title="first")
        db.table("items").delete(1)
    up(workspace, 2, LENGTHS)
    with workspace.open() as db:
        db.table("items").insert(id=2, title=5)
        before = [
            (c.operation, c.revision) for c in db.change_log.read() if isinstance(c, RecordChange)
        ]
        assert before == [("insert", 1), ("delete", 1), ("insert", 2)]
        lose(workspace)  # and the record goes, so that nothing says that 2 was used
        workspace.execute("DELETE FROM zapdb_records_1")
    with workspace.open() as db:
        behind = db.change_log.end()
        with pytest.raises(CorruptCatalog, match="has a revision that the schema history"):
            list(db.change_log.read())
        db.table("items").insert(id=3, title=9)
        (made,) = db.change_log.read(behind)
        assert isinstance(made, RecordChange)
        assert made.after is not None
        assert (made.after.title, made.revision) == (9, db._catalog.table("items").revision)
        assert made.revision > 2


def test_rule_01_records_of_before_do_not_bring_the_last_number_back(workspace: Workspace) -> None:
    """The records are of revision 1 and stay so; 2 was used as well, and changes are of it."""
    up(workspace, 1, ITEMS)
    with workspace.open() as db:
        db.admin.set_setting("change_log", "on")
        db.table("items").insert(id=1, title="first")
    up(workspace, 2, INDEX_SIZE)
    with workspace.open() as db:
        db.table("items").insert(id=2, title="second")
        db.table("items").delete(2)
    lose(workspace)
    recover_schema_histories(workspace.control, DEFAULT_TENANT)
    up(workspace, 3, ADD_COLOR)
    with workspace.open() as db:
        assert db.table("items").get(1).title == "first"
        with pytest.raises(CorruptCatalog, match="has a revision that the schema history"):
            list(db.change_log.read())
        assert 2 not in [entry.revision for entry in db.admin.schema_history("items")]


def test_rule_01_no_revision_is_above_the_activation_number(workspace: Workspace) -> None:
    """What `schema_history_recovery` relies on, after all that appends to a log."""
    up(workspace, 1, ITEMS)
    up(workspace, 2, ADD_COLOR, TAGS)
    up(workspace, 3, "drop_table: {table: items, records: archive}")
    up(workspace, 4, "restore_table: {table: items, archived_by: 3}")
    for number in (4, 3, 2):
        roll_back(workspace.control)
        workspace.remove(number)
    up(workspace, 2, "drop_table: {table: items, records: archive}")
    for _ in range(2):
        with workspace.control.transaction(TransactionMode.READ) as connection:
            catalog = load_tenant_catalog(connection, DEFAULT_TENANT)
        assert max(entry.revision for entry in log(workspace)) <= count_of(catalog.version)
        lose(workspace)
        recover_schema_histories(workspace.control, DEFAULT_TENANT)


@pytest.mark.parametrize("engine", ["sqlite"])
def test_an_archived_table_gets_its_history_back(workspace: Workspace) -> None:
    up(workspace, 1, ITEMS, TAGS)
    records = insert(workspace)
    up(workspace, 2, "drop_table: {table: items, records: archive}")
    lose(workspace)
    assert recover_schema_histories(workspace.control, DEFAULT_TENANT) == ["tags", "items"]
    up(workspace, 3, "restore_table: {table: items, archived_by: 2}")
    with workspace.open() as db:
        assert [asdict(record) for record in db.table("items").scan()] == records
        first, new, last = [(e.revision, e.event) for e in db.admin.schema_history("items")]
        assert (first, new[1]) == ((1, "recovered"), "recovered")
        assert last == (new[0] + 1, "restore")


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
    assert recover_all_tenants(workspace.control, lambda: True) == {}
    # What is refused for one tenant is done for the others; the last has no tables yet.
    assert recover_all_tenants(workspace.control) == {numbers[0]: ["items"]}
    ((_, revision, event),) = stamps(workspace, numbers[0])  # it has no records
    assert (revision > 1, event) == (True, "recovered")
    assert stamps(workspace, numbers[1]) == [("items", 1, "create")]
    assert stamps(workspace) == stamps(workspace, numbers[2]) == []
    assert recover_all_tenants(workspace.control) == {}


def test_rule_13_a_rollback_after_a_history_began_anew(workspace: Workspace) -> None:
    up(workspace, 1, ITEMS)
    up(workspace, 2, ADD_COLOR)
    records = insert(workspace)
    lose(workspace)
    recover_schema_histories(workspace.control, DEFAULT_TENANT)
    roll_back(workspace.control)
    workspace.remove(2)
    with workspace.open() as db:
        found = [asdict(record) for record in db.table("items").scan()]
        assert found == [{k: v for k, v in r.items() if k != "color"} for r in records]
        first, new, last = [(e.revision, e.event) for e in db.admin.schema_history("items")]
        assert (first, new[1]) == ((2, "recovered"), "recovered")
        assert last == (new[0] + 1, "rollback")
