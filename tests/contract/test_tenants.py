"""Tenants: each at its own position, with its own records, indexes, archives, logs and settings."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import zapdb
from tests.contract.rollbacks import leave_tenants_due
from tests.contract.tables import ADD_COLOR, ADD_WEIGHT, INDEX_SIZE, ITEMS, RENAME_SIZE
from tests.lookups import find
from tests.support import GUARD_SECONDS, LIVE, Workspace, count_statements, dump, finish
from zapdb.activation import activate as activation
from zapdb.activation import load_tenant_catalog
from zapdb.activation.rollback import roll_back
from zapdb.activation.tenant_removal import remove_tenant
from zapdb.activation.up import (
    MigrationChoice,
    catch_up,
    migrate_all_tenants,
    migrate_up,
    read_all_tenants,
)
from zapdb.catalog import DEFAULT_TENANT, retired_tables, rows, tenants
from zapdb.catalog.cluster.cluster_status import read_leases
from zapdb.catalog.row_kinds import IndexRow, SettingRow, Tenant
from zapdb.catalog.tenants import find_tenant
from zapdb.database import Database
from zapdb.errors import (
    MigrationConflict,
    SchemaChangesRefused,
    TenantExists,
    UniqueViolation,
    UnknownName,
    UsageError,
)
from zapdb.jobs.job_run import run_locally
from zapdb.past.files.wanted_stores import create_tenant
from zapdb.records import asdict
from zapdb.storage import Storage, TransactionMode
from zapdb.storage.data_tables import list_tenant_tables

pytestmark = pytest.mark.long_on("postgresql")


UNIQUE_TITLE = (
    "create_index: {table: items, index: by_title, unique: true, fields: [{field: title}]}"
)
ARCHIVE_NOTE = (
    "drop_field: {table: items, field: note, restore: {archive: true, otherwise: {value: lost}}}"
)
DROP_ITEMS = "drop_table: {table: items, records: discard}"
TAGS = "create_table: {table: tags, key: [name], fields: [{name: name, type: string}]}"
BLOB = "x" * 10_000
COUNT = 20


def fill(db: Database, word: str, count: int = COUNT) -> list[dict[str, Any]]:
    db.table("items").insert_many(
        {"id": at, "title": f"{word} {at}", "size": at % 5, "note": f"{word} note"}
        for at in range(count)
    )
    return contents(db)


def contents(db: Database, table: str = "items") -> list[dict[str, Any]]:
    return [asdict(record) for record in db.table(table).scan()]


def assert_clean(db: Database) -> None:
    for report in db.admin.verify():
        assert report.problems == ()


def log(db: Database, table: str = "items") -> list[tuple[int, str, int, int]]:
    return [
        (entry.revision, entry.event, entry.position, entry.first_layout_revision)
        for entry in db.admin.schema_history(table)
    ]


def number_of(place: Workspace, name: str) -> int:
    return find_tenant(place.control.connection(), name).number


def position_of(place: Workspace, name: str) -> int:
    return find_tenant(place.control.connection(), name).position


def retired(place: Workspace) -> list[Any]:
    return place.execute(
        "SELECT key FROM zapdb_catalog WHERE substr(kind, 1, 7) = 'retired'" + LIVE
    )


def physical_tables(place: Workspace) -> list[str]:
    """The tables of records and entries that there are."""
    names = place.control.dialect.table_names(place.control.connection())
    return [n for n in names if n.startswith(("zapdb_entries_", "zapdb_records_"))]


def up(place: Workspace, tenant: str = "default", to: int | None = None) -> None:
    migrate_up(place.connect(), number_of(place, tenant), place.directory, MigrationChoice(to=to))


@pytest.fixture
def db(workspace: Workspace) -> Database:
    """The default tenant at migration 1, and `acme`, which is at 0."""
    workspace.write(1, ITEMS)
    db = workspace.open()
    db.admin.create_tenant("acme")
    return db


# Apart


@pytest.mark.short
@pytest.mark.on_each_engine
def test_rule_27_two_tenants_share_tables_and_nothing_else(
    workspace: Workspace, db: Database
) -> None:
    workspace.write(2, UNIQUE_TITLE, INDEX_SIZE)
    workspace.write(3, ARCHIVE_NOTE)
    up(workspace, to=2)
    db.close()
    db = workspace.follow()
    acme = db.for_tenant("acme")
    assert (db.position, acme.position) == (2, 2)
    mine, theirs = fill(db, "mine"), fill(acme, "theirs")
    up(workspace)
    assert (db.admin.setting("on_read"), acme.admin.setting("on_read")) == ("leave", "leave")
    db.admin.set_setting("on_read", "write_back", tenant="acme")
    assert (db.admin.setting("on_read"), acme.admin.setting("on_read")) == ("leave", "write_back")
    for one, records in ((db, mine), (acme, theirs)):
        items = one.table("items")
        assert items.count() == COUNT
        assert [r.title for r in items.using("by_title")] == sorted(r["title"] for r in records)
        assert [r.id for r in find(items, "by_size", 3)] == [3, 8, 13, 18]
        # Equal keys, and equal values of a unique index, belong to each tenant alone.
        items.insert(id=100, title="the same")
        with pytest.raises(UniqueViolation):
            items.insert(id=101, title="the same")
    assert "note" not in db.table("items").field_names
    assert acme.table("items").get(3).note == "theirs note"
    db.admin.run_jobs()
    archived = workspace.execute("SELECT DISTINCT tenant FROM zapdb_archives")
    assert archived == [(DEFAULT_TENANT,)]
    assert log(db) == [(1, "create", 1, 1), (2, "change", 2, 1), (3, "change", 3, 3)]
    assert log(acme) == [(1, "create", 2, 1)]
    assert workspace.execute("SELECT count(*) FROM zapdb_catalog WHERE kind = 'entry-table'") == [
        (2,)
    ]
    for at in range(COUNT):
        db.table("items").delete(at)
    assert contents(acme)[:COUNT] == theirs
    assert_clean(db)
    assert_clean(acme)


def test_rule_28_a_sweep_walks_the_records_of_all_tenants(
    workspace: Workspace, db: Database
) -> None:
    acme = db.for_tenant("acme")
    db.table("items").insert(id=1, title=BLOB)
    acme.table("items").insert(id=1, title=BLOB + "acme")
    assert db.admin.sweep(older_than_seconds=0).deleted == 0
    db.table("items").delete(1)
    assert db.admin.sweep(older_than_seconds=0).deleted == 1
    assert acme.table("items").get(1).title == BLOB + "acme"
    assert_clean(acme)


def test_rule_14_jobs_are_those_of_one_tenant(workspace: Workspace, db: Database) -> None:
    acme = db.for_tenant("acme")
    fill(db, "mine")
    fill(acme, "theirs")
    db.close()
    workspace.write(2, ADD_COLOR, INDEX_SIZE)
    db = workspace.open()
    acme = db.for_tenant("acme")
    assert [report.job.tenant for report in acme.admin.run_jobs()] == [
        number_of(workspace, "acme")
    ] * 2
    assert acme.admin.count_by_revision("items") == {2: COUNT}
    assert db.admin.count_by_revision("items") == {1: COUNT}
    assert "by_size" in acme.table("items").readable_indexes()
    assert "by_size" not in db.table("items").readable_indexes()
    assert [report.job.tenant for report in db.admin.run_jobs()] == [DEFAULT_TENANT] * 2
    assert_clean(db)
    assert_clean(acme)


@pytest.mark.on_each_engine
def test_rule_23_one_tenant_builds_an_index_anew_in_a_table_of_others(
    workspace: Workspace, db: Database
) -> None:
    db.close()
    workspace.write(2, INDEX_SIZE)
    db = workspace.open()
    acme = db.for_tenant("acme")
    fill(db, "mine")
    fill(acme, "theirs")
    db.admin.run_jobs()
    acme.admin.run_jobs()

    def entry_table(one: Database) -> int:
        (row,) = rows.list_rows(workspace.control.connection(), IndexRow, one._catalog.tenant)
        return row.entry_table

    assert entry_table(db) == entry_table(acme)
    with db._storage.transaction(TransactionMode.DDL) as connection:
        catalog = load_tenant_catalog(connection, acme._catalog.tenant)
        state = catalog.table("items")
        activation.rebuild_index(connection, catalog.tenant, state, state.indexes[0].index)
    acme.table("items").insert(id=100, title="new", size=3)
    assert entry_table(db) != entry_table(acme)
    for one, extra in ((db, []), (acme, [100])):
        assert [r.id for r in find(one.table("items"), "by_size", 3)] == [3, 8, 13, 18, *extra]
    retired_tables.sweep_retired(workspace.connect())
    assert retired(workspace) == []
    acme.admin.run_jobs()
    assert_clean(db)
    assert_clean(acme)
    # Again: the first table has nothing of its own any more, and is taken instead of a third.
    before = entry_table(acme)
    with db._storage.transaction(TransactionMode.DDL) as connection:
        catalog = load_tenant_catalog(connection, acme._catalog.tenant)
        state = catalog.table("items")
        activation.rebuild_index(connection, catalog.tenant, state, state.indexes[0].index)
    acme.admin.run_jobs()
    assert entry_table(acme) == entry_table(db)
    retired_tables.sweep_retired(workspace.connect())
    names = workspace.control.dialect.table_names(workspace.control.connection())
    assert f"zapdb_entries_{before}" not in names
    assert_clean(acme)


# Catching up


def test_rule_06_a_tenant_that_is_behind_catches_up_in_one_jump(
    workspace: Workspace, db: Database
) -> None:
    acme = db.for_tenant("acme")
    before = fill(acme, "theirs")
    db.close()
    for number, operation in enumerate((TAGS, ADD_COLOR, RENAME_SIZE, ADD_WEIGHT), 2):
        workspace.write(number, operation)
    db = workspace.open()
    assert position_of(workspace, "acme") == 1
    acme = zapdb.open(
        workspace.address, migrations=workspace.directory, apply="never", tenant="acme"
    )
    with acme:
        assert acme.position == 5
        assert [(one.number, one.tables) for one in acme.applied] == [(5, ("items", "tags"))]
        assert log(acme) == [(1, "create", 1, 1), (2, "change", 5, 2)]
        assert log(acme, "tags") == [(1, "create", 5, 1)]
        assert len(log(db)) == 4
        wanted = [
            {"id": r["id"], "title": r["title"], "extent": r["size"], "note": r["note"]}
            | {"color": "red", "weight": 7}
            for r in before
        ]
        assert contents(acme) == wanted
        assert_clean(acme)
    assert db.for_tenant("acme").applied == ()


@pytest.mark.short
@pytest.mark.on_each_engine
def test_rule_06_two_processes_that_open_a_tenant_bring_it_up_once(
    workspace: Workspace, db: Database
) -> None:
    db.close()
    workspace.write(2, ADD_COLOR)
    workspace.open().close()
    storages = [workspace.connect() for _ in range(6)]
    barrier, brought = threading.Barrier(6), list[int]()

    def bring(storage: Storage) -> None:
        barrier.wait()
        brought.append(len(catch_up(storage, number_of_acme)[0]))
        storage.release_connection()

    number_of_acme = number_of(workspace, "acme")
    threads = [threading.Thread(target=bring, args=(storage,)) for storage in storages]
    for thread in threads:
        thread.start()
    for thread in threads:
        finish(thread)
    assert sorted(brought) == [0, 0, 0, 0, 0, 1]
    with workspace.connect().transaction(TransactionMode.READ) as connection:
        assert not any(lease.is_held for lease in read_leases(connection))
    acme = workspace.open().for_tenant("acme")
    assert log(acme) == [(1, "create", 2, 1)]


def test_rule_06_one_file_that_conflicts_conflicts_for_all_tenants(
    workspace: Workspace, db: Database
) -> None:
    db.close()
    workspace.write(1, ITEMS.replace("title", "name"))
    before = dump(workspace)
    with pytest.raises(MigrationConflict):
        zapdb.open(workspace.address, migrations=workspace.directory, tenant="acme")
    assert dump(workspace) == before


# Names


def test_names_of_tenants(workspace: Workspace, db: Database) -> None:
    for name in ("a", "A", "x" * 63, "7", "a.b@c-d_e", "zapdb_records_1", "null"):
        db.admin.create_tenant(name)
        assert db.for_tenant(name).position == 1
    before = dump(workspace)
    hostile = [
        "",
        " ",
        "a b",
        "-a",
        ".a",
        "x" * 64,
        "é",
        "a\n",
        "a/b",
        "1/2",
        "a%",
        "*",
        "a'--",
        "\0",
    ]
    for name in hostile:
        with pytest.raises(UsageError, match="not a valid name of a tenant") as caught:
            db.admin.create_tenant(name)
        assert caught.value.context["name"] == name
        with pytest.raises(UnknownName, match="there is no such tenant") as unknown:
            db.for_tenant(name.replace("\0", "?"))
        assert "acme" in unknown.value.context["tenants"]
    for name in ("acme", "default"):
        with pytest.raises(TenantExists) as taken:
            db.admin.create_tenant(name)
        assert taken.value.context == {"tenant": name}
    assert dump(workspace) == before


@pytest.mark.on_each_engine
def test_a_name_is_given_to_one_tenant(workspace: Workspace, db: Database) -> None:
    barrier, made = threading.Barrier(6), list[int]()

    def create(storage: Storage) -> None:
        barrier.wait()
        try:
            made.append(create_tenant(storage, "wanted").number)
        except TenantExists:
            made.append(0)
        storage.release_connection()

    threads = [threading.Thread(target=create, args=(workspace.connect(),)) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        finish(thread)
    assert sorted(made) == [0, 0, 0, 0, 0, number_of(workspace, "wanted")]
    assert [t.name for t in db.admin.tenants()] == ["default", "acme", "wanted"]


# Frozen


def freeze(db: Database, tenant: str | None = None) -> None:
    db.admin.set_setting("schema_changes", "refuse", tenant=tenant)


def test_rule_06_a_database_that_refuses_schema_changes_stores_and_rolls_back_nothing(
    workspace: Workspace, db: Database
) -> None:
    freeze(db)
    db.close()
    workspace.write(2, ADD_COLOR)
    before = dump(workspace)
    for action in (
        workspace.open,
        lambda: up(workspace),
        lambda: roll_back(workspace.connect()),
    ):
        with pytest.raises(
            SchemaChangesRefused, match="a setting refuses schema changes"
        ) as caught:
            action()
        assert "`zapdb settings set schema_changes allow`" in caught.value.hint
    assert dump(workspace) == before
    workspace.remove(2)
    db = workspace.open()  # nothing to do
    # A tenant that is behind stays where it is, and can't be served a shape that it has not.
    with pytest.raises(SchemaChangesRefused):
        db.for_tenant("acme")
    with workspace.follow() as tool:
        assert tool.for_tenant("acme").position == 0
    (brought,) = migrate_all_tenants(workspace.connect())
    assert isinstance(brought.error, SchemaChangesRefused)
    assert dump(workspace) == before
    db.admin.set_setting("schema_changes", None)
    assert db.for_tenant("acme").position == 1


def test_rule_06_a_tenant_that_refuses_schema_changes_stays_where_it_is(
    workspace: Workspace, db: Database
) -> None:
    acme = db.for_tenant("acme")
    records = fill(acme, "theirs")
    freeze(db, "acme")
    db.admin.create_tenant("other")
    workspace.write(2, ADD_COLOR)
    up(workspace)
    assert db.position == 1 or contents(db) == []
    with pytest.raises(SchemaChangesRefused) as caught:
        zapdb.open(workspace.address, migrations=workspace.directory, tenant="acme")
    assert "--tenant" in caught.value.hint
    again = db.for_tenant("acme")  # this process's files end at 1
    assert again.position == 1
    assert contents(again) == records
    found = {one.tenant.name: one.error for one in migrate_all_tenants(workspace.connect())}
    assert isinstance(found.pop("acme"), SchemaChangesRefused)
    assert found == {"other": None}
    # What never took force for it is forgotten; what has, is not.
    assert roll_back(workspace.connect()).migrations[0].number == 2
    before = dump(workspace)
    with pytest.raises(SchemaChangesRefused):
        roll_back(workspace.connect(), evict=True)
    assert {k: v for k, v in dump(workspace).items() if k != "zapdb_catalog_versions"} == {
        k: v for k, v in before.items() if k != "zapdb_catalog_versions"
    }


def test_rule_13_a_tenant_that_may_not_follow_a_rollback_stays_where_it_is(
    workspace: Workspace, db: Database
) -> None:
    """The setting refuses changes since the end of the chain was moved."""
    fill(db, "mine")
    db.close()
    workspace.write(2, ADD_COLOR)
    with workspace.open() as db:
        db.table("items").update(1, color="blue")
    leave_tenants_due(workspace)
    with workspace.control.transaction(TransactionMode.CATALOG) as connection:
        rows.put(connection, SettingRow("*/*/*", "schema_changes", "refuse"))
    with pytest.raises(SchemaChangesRefused):
        roll_back(workspace.connect())
    with workspace.follow() as tool:
        assert tool.position == 2
        tool.table("items").update(2, color="green")
        assert [record.color for record in tool.table("items").scan()][:3] == [
            "red",
            "blue",
            "green",
        ]
        tool.admin.set_setting("schema_changes", None)
    assert (roll_back(workspace.connect()).migrations, workspace.follow().position) == ((), 1)


# Rolling back


@pytest.fixture
def spread(workspace: Workspace) -> dict[str, Any]:
    """Five tenants, and what each had before migration 3 took force for some of them.

    `default` went step by step, `jumped` from 1 to 3, `fresh` from 0 to 3; `behind` is at 2 and
    `none` at 0. Some records of each were written under every revision that it had.
    """
    workspace.write(1, ITEMS)
    db = workspace.open()
    for name in ("jumped", "fresh", "behind", "none"):
        db.admin.create_tenant(name)
    before: dict[str, Any] = {"none": None}
    jumped = db.for_tenant("jumped")
    fill(db, "default")
    of_jumped = fill(jumped, "jumped")
    db.close()
    workspace.write(2, ADD_WEIGHT)
    db = workspace.open()
    behind = db.for_tenant("behind")
    fill(behind, "behind")
    db.table("items").update(3, weight=1)
    before["default"], before["behind"] = contents(db), contents(behind)
    before["jumped"] = [record | {"weight": 7} for record in of_jumped]
    before["fresh"] = []
    db.close()
    workspace.write(3, ADD_COLOR, ARCHIVE_NOTE, INDEX_SIZE, TAGS)
    db = workspace.open()
    for name in ("default", "jumped", "fresh"):
        one = db.for_tenant(name)
        if name == "fresh":
            one.table("items").insert(id=1, title="fresh", size=2)
            before["fresh"] = [{"id": 1, "title": "fresh", "size": 2, "note": "lost", "weight": 7}]
        for at in (1, 2, 3) if name != "fresh" else ():
            one.table("items").update(at, color=name)
        one.table("tags").insert(name=name)
        one.admin.run_jobs() if name == "jumped" else None
    assert position_of(workspace, "behind") == 2
    db.close()
    return before


def check_forgotten(place: Workspace, before: dict[str, Any]) -> None:
    """Every tenant has what it had, in what it has now."""
    place.remove(3)
    assert [(t.name, t.position) for t in tenants.list_tenants(place.control.connection())] == [
        ("default", 2),
        ("jumped", 2),
        ("fresh", 2),
        ("behind", 2),
        ("none", 0),
    ]
    with place.open() as db:
        for name in ("default", "jumped", "fresh", "behind"):
            one = db.for_tenant(name)
            assert one.applied == ()
            assert contents(one) == before[name], name
            one.admin.run_jobs()
            assert contents(one) == before[name], name
            assert list(one._catalog.tables) == ["items"]
            assert_clean(one)
            fingerprints = {entry.fingerprint for entry in db.admin.schema_history("items")[1:2]}
            assert one.admin.schema_history("items")[-1].fingerprint in fingerprints
        assert log(db) == [
            (1, "create", 1, 1),
            (2, "change", 2, 2),
            (3, "change", 3, 3),
            (4, "rollback", 2, 2),
        ]
        # One that jumped over has no revision for what it goes back to, and gets one.
        assert log(db.for_tenant("jumped")) == [
            (1, "create", 1, 1),
            (2, "change", 3, 2),
            (3, "rollback", 2, 3),
        ]
        assert log(db.for_tenant("fresh")) == [(1, "create", 3, 1), (2, "rollback", 2, 2)]
        assert log(db.for_tenant("behind")) == [(1, "create", 2, 1)]
        assert physical_tables(place) == ["zapdb_records_1"]
    assert place.execute("SELECT count(*) FROM zapdb_archives") == [(0,)]
    assert retired(place) == []


@pytest.mark.short
def test_rule_13_a_rollback_goes_through_all_tenants_that_reached_it(
    workspace: Workspace, spread: dict[str, Any]
) -> None:
    assert roll_back(workspace.connect()).migrations[0].number == 3
    check_forgotten(workspace, spread)


@pytest.mark.on_each_engine
def test_rule_13_a_rollback_that_is_killed_between_tenants_goes_on(
    workspace: Workspace, spread: dict[str, Any]
) -> None:
    workspace.execute("DELETE FROM zapdb_catalog WHERE kind = 'node'")
    tool = workspace.follow()
    tool.admin.set_setting(
        "schema_changes", "refuse", tenant="behind"
    )  # or opening would bring it up
    behind, default = tool.for_tenant("behind"), tool.for_tenant("default")
    killed = workspace.run("rollback_dying", "up", "_migrate_tenant", "2")
    assert killed.returncode == -9, killed.stderr
    positions = [position_of(workspace, name) for name in ("default", "jumped", "fresh")]
    # One or the other has followed, and all go on.
    assert sorted(positions) in ([2, 3, 3], [2, 2, 3], [3, 3, 3])
    for one in (behind, default):
        one.table("items").update(1, size=5)
        one.table("items").update(1, size=1)
    assert [position_of(workspace, name) for name in ("default", "jumped", "fresh")] == positions
    tool.close()
    assert roll_back(workspace.connect()).migrations == ()
    check_forgotten(workspace, spread)


@pytest.mark.on_each_engine
def test_rule_02_another_migration_under_the_same_number_for_two_tenants(
    workspace: Workspace,
) -> None:
    """Fields of one size at one place, archived values of both, and an older process beside."""
    workspace.write(1, ITEMS)
    db = workspace.open()
    db.admin.create_tenant("acme")
    old = {name: db.for_tenant(name) for name in ("default", "acme")}
    records = {name: fill(one, name, 12) for name, one in old.items()}
    variants = [
        ("width", 3, "{name: width, type: integer, default: 1}", 1),
        ("paid", True, "{name: paid, type: boolean, default: false}", False),
        ("height", -3, "{name: height, type: integer, default: 5}", 5),
    ]
    for turn, (field, value, shape, default) in enumerate(variants):
        workspace.write(
            2, f"add_field: {{table: items, field: {shape}}}", ARCHIVE_NOTE if turn != 1 else TAGS
        )
        up(workspace)
        if turn:  # in the first, the second tenant is behind, and nothing of it is there
            up(workspace, "acme")
        tool = workspace.follow()
        reached = ["default", "acme"] if turn else ["default"]
        for name in reached:
            new, wrote = tool.for_tenant(name), old[name].table("items")
            for at in range(turn, 12, 4):
                new.table("items").update(at, **{field: value})
            wrote.update(turn + 1, size=99)  # by the older process, which does not know the field
            if turn == 2:
                new.admin.run_jobs()
            for record in contents(new):
                at = record["id"]
                assert record[field] == (value if at % 4 == turn else default), (name, at)
                assert record["size"] == (99 if at == turn + 1 else records[name][at]["size"])
            assert_clean(new)
            assert contents(old[name]) == [
                r | {"size": 99} if r["id"] == turn + 1 else r for r in records[name]
            ]
            wrote.update(turn + 1, size=records[name][turn + 1]["size"])
            with pytest.raises(zapdb.errors.UnknownField):
                wrote.update(0, **{field: value})
        tool.close()
        assert roll_back(workspace.connect()).migrations[0].number == 2
        for name, one in old.items():
            assert contents(one) == records[name], (turn, name)
            assert_clean(one)
            if turn == 2:
                one.admin.run_jobs()
                assert contents(one) == records[name], name
    assert workspace.execute("SELECT count(*) FROM zapdb_archives") == [(0,)]
    assert [entry[1] for entry in log(old["acme"])] == ["create", *["change", "rollback"] * 2]
    assert [entry[1] for entry in log(old["default"])] == ["create", *["change", "rollback"] * 3]


# What is discarded


@pytest.mark.short
@pytest.mark.on_each_engine
def test_rule_27_a_discarded_table_stays_while_another_tenant_has_it(
    workspace: Workspace, db: Database
) -> None:
    acme = db.for_tenant("acme")
    fill(db, "mine")
    records = fill(acme, "theirs")
    db.close()
    workspace.write(2, TAGS, INDEX_SIZE)
    workspace.write(3, DROP_ITEMS)
    up(workspace)
    assert retired(workspace) == []
    assert workspace.execute("SELECT DISTINCT tenant FROM zapdb_records_1") == [
        (number_of(workspace, "acme"),)
    ]
    up(workspace, "acme", to=2)
    acme = workspace.follow().for_tenant("default")
    number = number_of(workspace, "acme")
    with workspace.control.transaction(TransactionMode.READ) as connection:
        assert load_tenant_catalog(connection, number).table("items").schema.name == "items"
    assert workspace.execute("SELECT count(*) FROM zapdb_records_1") == [(COUNT,)]
    # The forget brings the table back, empty for the process that discarded it.
    workspace.execute("DELETE FROM zapdb_catalog WHERE kind = 'node'")
    assert roll_back(workspace.connect()).migrations[0].number == 3
    workspace.remove(3)
    db = workspace.open()
    assert contents(db) == []
    acme = db.for_tenant("acme")
    assert contents(acme) == records
    acme.admin.run_jobs()
    assert_clean(acme)
    db.close()
    # Once nobody has it any more, it goes.
    workspace.write(3, DROP_ITEMS)
    migrate_up(
        workspace.connect(), DEFAULT_TENANT, workspace.directory, MigrationChoice(again=True)
    )
    names = workspace.control.dialect.table_names(workspace.control.connection())
    assert "zapdb_records_1" in names
    migrate_all_tenants(workspace.connect())
    retired_tables.sweep_retired(workspace.connect())
    assert physical_tables(workspace) == ["zapdb_records_2"]


def test_rule_27_a_discarded_table_stays_for_a_tenant_that_has_no_records_yet(
    workspace: Workspace, db: Database
) -> None:
    acme = db.for_tenant("acme")
    fill(db, "mine", 3)
    workspace.execute("DELETE FROM zapdb_catalog WHERE kind = 'node'")
    workspace.write(2, DROP_ITEMS)
    up(workspace)
    assert retired(workspace) == []
    assert physical_tables(workspace) == ["zapdb_records_1"]
    assert contents(acme) == []


@pytest.mark.short
@pytest.mark.on_each_engine
def test_rule_27_a_sweep_leaves_a_table_alone_that_is_in_force_again(
    workspace: Workspace, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that sweeps is suspended; another finishes the sweep and takes the drop back."""
    fill(db, "mine", 5)
    db.close()
    workspace.write(2, INDEX_SIZE)
    with workspace.open() as db:
        db.admin.run_jobs()
    workspace.write(3, DROP_ITEMS)
    monkeypatch.setattr("zapdb.activation.up.sweep_retired", lambda storage: None)
    up(workspace)
    monkeypatch.undo()
    assert len(retired(workspace)) == 2
    reached, go_on = threading.Event(), threading.Event()
    slow, list_retired = workspace.connect(), retired_tables.list_retired

    def wait(connection: Any) -> Any:
        found = list_retired(connection)
        if connection.storage is slow:
            reached.set()
            go_on.wait(GUARD_SECONDS)
        return found

    monkeypatch.setattr(retired_tables, "list_retired", wait)

    def sweep() -> None:
        retired_tables.sweep_retired(slow)
        slow.release_connection()

    sweeper = threading.Thread(target=sweep)
    sweeper.start()
    assert reached.wait(GUARD_SECONDS)
    workspace.execute("DELETE FROM zapdb_catalog WHERE kind = 'node'")
    assert roll_back(workspace.connect()).migrations[0].number == 3
    workspace.remove(3)
    db = workspace.open()
    records = fill(db, "new", 5)
    db.admin.run_jobs()
    go_on.set()
    finish(sweeper)
    assert contents(db) == records
    assert "by_size" in db.table("items").readable_indexes()
    assert_clean(db)


# Removal


def mentions(place: Workspace, number: int, name: str) -> list[str]:
    """Where a tenant is still found: in any table with a column for it, in any row of the
    catalog, and in the ranges of jobs."""
    connection = place.control.connection()
    found = [
        table
        for table in list_tenant_tables(connection)
        if place.execute(f"SELECT 1 FROM {table} WHERE tenant = {number} LIMIT 1")
    ]
    for kind, key, value in place.execute(
        "SELECT kind, key, value FROM zapdb_catalog WHERE value IS NOT NULL"
    ):
        says = f'"tenant":{number},' in value or name in key or name in value
        of_kind = {
            "tenant": key == str(number),
            "tenant-name": f'"number":{number}}}' in value,
            "index": key.startswith(f"{number}/"),
            "constraint": key.startswith(f"{number}/"),
            "setting": key.startswith(f"{number}/"),
            "retired-entries": key.endswith(f"/{number}"),
            "retired-records": key.endswith(f"/{number}"),
            "job": key.split("/")[1:2] == [str(number)],
            "finding": key.split("/")[1:2] == [str(number)],
        }
        if says or of_kind.get(kind, False):
            found.append(f"{kind} {key}")
    held = place.execute(f"SELECT name FROM zapdb_leases WHERE name = 'catalog/tenant/{number}'")
    found += [name for (name,) in held]
    jobs = place.execute("SELECT DISTINCT job FROM zapdb_ranges")
    return found + [job for (job,) in jobs if job.split("/")[1] == str(number)]


def of_others(place: Workspace, number: int) -> dict[str, list[Any]]:
    """All rows but those of a tenant, and what counts changes."""
    found = dump(place)
    tables = list_tenant_tables(place.control.connection())
    others = {
        table: [row for row in found[table] if table not in tables or row[0] != number]
        for table in found
        if table not in ("zapdb_counters", "zapdb_catalog", "zapdb_ranges", "zapdb_blobs")
    }
    others["catalog"] = [
        row
        for row in found["zapdb_catalog"]
        if row[0] != "entry-table" and not mentioned(row, number)
    ]
    return others


def mentioned(row: Any, number: int) -> bool:
    kind, key, value = row[0], row[1], row[3]
    return (
        str(number) in key.split("/")
        or f'"tenant":{number},' in value
        or (kind == "tenant-name" and f'"number":{number}}}' in value)
    )


@pytest.fixture
def full(workspace: Workspace) -> Database:
    """Two tenants that both have something everywhere."""
    workspace.write(1, ITEMS, "add_check: {table: items, check: sized, expression: 'size >= 0'}")
    workspace.write(2, INDEX_SIZE, TAGS)
    with workspace.open() as db:
        with db._storage.transaction(TransactionMode.CATALOG) as connection:
            rows.draw(connection, "tenant", 4711)  # so that its number is no part of others
        db.admin.create_tenant("acme")
        for name in ("default", "acme"):
            one = db.for_tenant(name)
            fill(one, name)
            one.table("items").insert(id=-1, title=BLOB, size=0, note=BLOB)
            db.admin.set_setting("on_read", "leave", tenant=name)
            db.admin.set_setting("on_read", "leave", tenant=name, table="items")
            one.admin.run_jobs()
    workspace.write(3, ARCHIVE_NOTE)
    workspace.write(4, "drop_table: {table: tags, records: discard}", ADD_COLOR, UNIQUE_TITLE)
    db = workspace.open()
    acme = db.for_tenant("acme")
    for one in (db, acme):
        one.admin.run_jobs()
    retired_tables.sweep_retired(db._storage)
    return db


@pytest.mark.short
def test_a_tenant_that_is_removed_leaves_nothing(workspace: Workspace, full: Database) -> None:
    number = number_of(workspace, "acme")
    acme = full.for_tenant("acme")
    tables = mentions(workspace, number, "acme")
    assert {
        "zapdb_archives",
        "zapdb_schema_history",
        "zapdb_catalog_versions",
        "zapdb_records_1",
    } <= set(tables)
    before = of_others(workspace, number)
    assert str(number) not in "".join(str(row[1]) for row in before["catalog"]).split("/")
    removed = remove_tenant(workspace.connect(), "acme")
    assert removed.tenant.number == number
    assert removed.rows["zapdb_records_1"] == COUNT + 1
    assert removed.rows["zapdb_archives"] == COUNT + 1
    assert mentions(workspace, number, "acme") == []
    assert of_others(workspace, number) == before
    gone: list[Callable[[], object]] = [
        lambda: acme.table("items").insert(id=500, title="late"),
        lambda: acme.table("items").get(1),
        lambda: acme.table("items").find(1),
        lambda: list(acme.table("items").scan()),
        lambda: list(find(acme.table("items"), "by_size", 1)),
        lambda: acme.admin.run_jobs(),
        lambda: acme.run(lambda: acme.table("items").delete(1)),
        lambda: acme.admin.verify(),
        lambda: full.for_tenant("acme"),
        lambda: remove_tenant(workspace.connect(), "acme"),
    ]
    for action in gone:
        with pytest.raises(UnknownName, match=r"removed|no such tenant"):
            action()
    with pytest.raises(UnknownName), acme.snapshot():
        pass
    assert of_others(workspace, number) == before
    assert full.admin.sweep(older_than_seconds=0).deleted == 2
    assert len(full.table("items").get(-1).title) == len(BLOB)
    assert_clean(full)
    # The name is free, the number never again.
    full.admin.create_tenant("acme")
    assert number_of(workspace, "acme") > number
    assert contents(full.for_tenant("acme")) == []


@pytest.mark.on_each_engine
def test_the_default_tenant_stays(workspace: Workspace, db: Database) -> None:
    before = dump(workspace)
    with pytest.raises(UsageError, match="the default tenant cannot be removed"):
        remove_tenant(workspace.connect(), "default")
    assert dump(workspace) == before


@pytest.mark.on_each_engine
def test_a_removal_that_is_killed_is_finished(workspace: Workspace, full: Database) -> None:
    number = number_of(workspace, "acme")
    acme = full.for_tenant("acme")
    before = of_others(workspace, number)
    for function, kill_at in [("delete_of_tenant", 3), ("_delete_states", 1)]:
        killed = workspace.run("remove_dying", "acme", function, str(kill_at))
        assert killed.returncode == -9, killed.stderr
        assert mentions(workspace, number, "acme") != []
        with pytest.raises(UnknownName, match="being removed") as caught:
            full.for_tenant("acme")
        assert "zapdb tenant remove" in caught.value.hint
        with pytest.raises(UnknownName, match="the tenant was removed"):
            acme.table("items").insert(id=500, title="late")
        # The others go on: nothing that goes through all tenants stumbles over it.
        assert_clean(full)
        assert full.admin.sweep(older_than_seconds=0).deleted <= 2
        assert [b.tenant.name for b in migrate_all_tenants(workspace.connect()) if b.error] == []
        retired_tables.sweep_retired(full._storage)
        # Its process goes on following the catalog, for its other tenants.
        seq = full.admin.set_setting("on_read", "leave")
        full.admin.wait_for_catalog(seq)
    remove_tenant(workspace.connect(), "acme")
    assert mentions(workspace, number, "acme") == []
    after = of_others(workspace, number)
    after["catalog"] = [row for row in after["catalog"] if row[1] != "*/*/*/on_read"]
    changed = ("catalog", "zapdb_schema_history", "zapdb_catalog_versions")
    assert {table for table in after if after[table] != before[table]} <= set(changed)
    workspace.execute("DELETE FROM zapdb_catalog WHERE kind = 'node'")
    assert full.admin.sweep(older_than_seconds=0).blobs == 2


def test_a_rollback_goes_past_a_tenant_that_is_half_removed(
    workspace: Workspace, db: Database
) -> None:
    fill(db.for_tenant("acme"), "theirs")
    db.close()
    workspace.write(2, ADD_COLOR)
    with workspace.open() as db:
        db.for_tenant("acme").table("items").update(1, color="blue")
    killed = workspace.run("remove_dying", "acme", "_delete_rows", "1")
    assert killed.returncode == -9, killed.stderr
    assert roll_back(workspace.connect()).migrations[0].number == 2
    workspace.remove(2)
    with workspace.open() as db:
        number = db.admin.tenants()[1].number
        remove_tenant(workspace.connect(), "acme")
        assert mentions(workspace, number, "acme") == []
        assert db.position == 1


@pytest.mark.on_each_engine
def test_a_tenant_is_removed_while_its_jobs_run(workspace: Workspace, db: Database) -> None:
    acme = db.for_tenant("acme")
    fill(acme, "theirs", 300)
    db.close()
    workspace.write(2, ADD_COLOR, INDEX_SIZE)
    db = workspace.open()
    acme = db.for_tenant("acme")
    number = number_of(workspace, "acme")

    def remove_first(storage: Storage, job: Any) -> None:
        remove_tenant(workspace.connect(), "acme")
        run_locally(storage, job, workers=1)

    with pytest.raises(UnknownName, match=r"removed|no such job"):
        acme.admin.run_jobs(runner=remove_first)
    assert mentions(workspace, number, "acme") == []
    assert_clean(db)


def test_a_table_that_only_a_removed_tenant_had_goes_with_it(
    workspace: Workspace, db: Database
) -> None:
    workspace.write(2, INDEX_SIZE)
    workspace.write(3, DROP_ITEMS)
    up(workspace, to=2)
    db.close()
    db = workspace.follow()
    fill(db.for_tenant("acme"), "theirs")
    db.close()
    up(workspace)
    assert workspace.execute("SELECT count(*) FROM zapdb_records_1") == [(COUNT,)]
    remove_tenant(workspace.connect(), "acme")
    assert physical_tables(workspace) == []
    workspace.write(4, ITEMS)
    up(workspace)


# The fleet


def test_a_fleet_with_nothing_to_do_costs_no_statement_per_tenant(
    workspace: Workspace, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = workspace.connect()
    counts = []
    for more in (3, 30):
        with storage.transaction(TransactionMode.CATALOG) as connection:
            for at in range(more):
                tenants.add_tenant(connection, f"t{more}-{at}")
        migrate_all_tenants(storage)
        sent = count_statements(monkeypatch, storage)
        assert migrate_all_tenants(storage) == []
        status = read_all_tenants(storage)
        assert status.behind == ()
        assert status.positions == {1: status.tenants}
        counts.append(sent())
        # Nor does opening one of them read the others.
        listed: list[str] = []
        with monkeypatch.context() as patched:
            patched.setattr(rows, "list_rows", partial(note_listed, rows.list_rows, listed))
            patched.setattr(rows, "read_texts", partial(note_texts, rows.read_texts, listed))
            zapdb.open(workspace.address, tenant=f"t{more}-1").close()
        assert listed
        assert not [kind for kind in listed if kind.startswith("tenant")]
        monkeypatch.undo()
    assert counts[0] == counts[1] > 0


def note_texts(
    read_texts: Any, listed: list[str], connection: Any, kinds: Any, *within: Any
) -> Any:
    listed += [kind.KIND for kind in kinds]
    return read_texts(connection, kinds, *within)


def note_listed(list_rows: Any, listed: list[str], connection: Any, kind: Any, *within: Any) -> Any:
    listed.append(kind.KIND)
    return list_rows(connection, kind, *within)


@pytest.mark.on_each_engine
def test_a_fleet_goes_on_where_one_tenant_fails(workspace: Workspace, db: Database) -> None:
    for name in ("b", "c", "d"):
        db.admin.create_tenant(name)
    db.admin.set_setting("schema_changes", "refuse", tenant="b")
    position = number_of(workspace, "c")
    workspace.execute(
        "UPDATE zapdb_catalog_versions SET tenant = 999 WHERE tenant = ?", (position,)
    )
    heard: list[str] = []
    brought = migrate_all_tenants(workspace.connect(), lambda one: heard.append(one.tenant.name))
    assert heard == ["acme", "b", "c", "d"]
    assert [(one.position, type(one.error).__name__) for one in brought] == [
        (1, "NoneType"),
        (0, "SchemaChangesRefused"),
        (0, "CorruptCatalog"),
        (1, "NoneType"),
    ]
    status = read_all_tenants(workspace.connect())
    assert (status.end, status.tenants, status.positions) == (1, 5, {0: 2, 1: 3})
    assert [tenant.name for tenant in status.behind] == ["b", "c"]


@pytest.mark.parametrize("by", ["this process", "another"])
@pytest.mark.on_each_engine
def test_a_name_that_was_freed_is_the_new_tenants(workspace: Workspace, by: str) -> None:
    workspace.write(
        1, "create_table: {table: items, key: [id], fields: [{name: id, type: integer}]}"
    )
    db = workspace.open()
    admin = (db if by == "this process" else workspace.open()).admin

    def write(number: int) -> int:
        with db.transaction() as tx:
            items = tx.for_tenant("acme").table("items")
            items.insert(id=number)
            return items.count()

    db.admin.create_tenant("acme")
    db.for_tenant("acme")
    assert write(1) == 1
    admin.remove_tenant("acme")
    admin.create_tenant("acme")
    db.admin.wait_for_catalog(admin.catalog_seq())
    db.for_tenant("acme")
    assert write(2) == 1


@pytest.mark.on_each_engine
def test_a_tenant_that_goes_while_it_is_looked_up_is_not_there(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name is read before its row, each by itself; that it is gone then is no corruption."""
    workspace.write(1, ITEMS)
    db, other = workspace.open(), workspace.open()
    db.admin.create_tenant("acme")
    read, removed = rows.get, list[object]()

    def get(connection: Any, kind: Any, *key: Any, **options: Any) -> Any:
        if kind is Tenant and not removed and connection.storage is db._storage:
            removed.append(other.admin.remove_tenant("acme"))
        return read(connection, kind, *key, **options)

    monkeypatch.setattr(rows, "get", get)
    with pytest.raises(UnknownName, match="there is no such tenant"):
        db.for_tenant("acme")
    assert removed
