"""Archives: dropped values are kept beside their records, and come back where they belong."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from tests.contract.tables import ITEMS, RENAME_SIZE
from tests.lookups import find
from tests.support import Workspace
from zapdb.activation import load_tenant_catalog, rollback
from zapdb.activation.up import migrate_up
from zapdb.catalog import DEFAULT_TENANT
from zapdb.database import Database, SchemaEvent
from zapdb.errors import ConcurrencyError, UnknownName, UsageError
from zapdb.jobs import (
    archive_pruning,
)
from zapdb.jobs.archive_pruning import list_archived, prune_archives
from zapdb.records import asdict
from zapdb.storage import TransactionMode, connect

COUNT = 300
LARGE = "x" * 9_000
DROP = """\
drop_field: {table: items, field: title,
      restore: {archive: true, otherwise: {expression: "text(id)"}}}"""
RESTORE = """\
restore_field: {table: items, field: title, archived_by: 2, position: 1,
      otherwise: {value: new}}"""
DROP_TABLE = "drop_table: {table: items, records: archive}"
RESTORE_TABLE = "restore_table: {table: items, archived_by: 2}"
INDEX = "create_index: {table: items, index: by_size, fields: [{field: size}]}"


def title_of(at: int) -> str:
    return f"{LARGE}{at}" if at % 50 == 0 else f"title {at}"


@pytest.fixture
def base(workspace: Workspace) -> list[dict[str, Any]]:
    """A database at migration 1, with records, some of them with blobs; returns them."""
    workspace.write(1, ITEMS)
    with workspace.open() as db:
        db.table("items").insert_many(
            {"id": at, "title": title_of(at), "size": at % 7} for at in range(COUNT)
        )
        return contents(db)


def contents(db: Database, table: str = "items") -> list[dict[str, Any]]:
    return [asdict(record) for record in db.table(table).scan()]


def roll_back(place: Workspace, number: int) -> None:
    storage = connect(place.address)
    try:
        assert rollback.roll_back(storage).migrations[0].number == number
    finally:
        storage.close()
    place.remove(number)


def count_archives(place: Workspace) -> int:
    return int(place.execute("SELECT count(*) FROM zapdb_archives")[0][0])


def assert_clean(db: Database) -> None:
    for report in db.admin.verify():
        assert report.problems == ()


def without_title(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{k: v for k, v in record.items() if k != "title"} for record in records]


@pytest.mark.parametrize("converted", [0, 1, 2])
def test_rule_19_a_rollback_brings_archived_values_back_exactly(
    workspace: Workspace, base: list[dict[str, Any]], converted: int
) -> None:
    """Whether no record, some or all were converted in between."""
    workspace.write(2, DROP)
    with workspace.open() as db:
        items = db.table("items")
        assert contents(db) == without_title(base)
        assert count_archives(workspace) == 0  # reading archives nothing
        if converted:
            for at in range(0, COUNT, 3):
                items.update(at, note="touched")
                base[at]["note"] = "touched"
            assert count_archives(workspace) == COUNT // 3
        if converted == 2:
            db.admin.run_jobs()
            assert count_archives(workspace) == COUNT
            assert db.admin.sweep(older_than_seconds=0).deleted == 0  # the archive owns its blobs
        items.insert(id=COUNT, size=1)
        items.delete(1)
        items.delete(3)
        if converted:
            assert (
                count_archives(workspace) == (COUNT if converted == 2 else COUNT // 3) - converted
            )
        assert_clean(db)
    roll_back(workspace, 2)
    expected = [record for record in base if record["id"] not in (1, 3)]
    expected.append({"id": COUNT, "title": str(COUNT), "size": 1, "note": None})
    with workspace.open() as db:
        assert contents(db) == expected
        db.admin.run_jobs()
        assert contents(db) == expected
        assert count_archives(workspace) == 0  # taken back, and swept
        assert_clean(db)
        db.admin.sweep(older_than_seconds=0)
        assert contents(db) == expected


def test_rule_19_what_a_rollback_has_taken_from_the_archive_is_no_other_records(
    workspace: Workspace, base: list[dict[str, Any]]
) -> None:
    """It stays there until all records are converted: neither a record that was changed since, nor
    a new one with its key, nor one of a later migration gets it."""
    workspace.write(2, DROP)
    with workspace.open() as db:
        db.admin.run_jobs()
        assert count_archives(workspace) == COUNT
    roll_back(workspace, 2)
    with workspace.open() as db:
        items = db.table("items")
        items.update(0, title="changed")
        items.delete(1)
        items.insert(id=1, title="anew")
        items.delete(2)
        assert contents(db)[:2] == [
            base[0] | {"title": "changed"},
            {"id": 1, "title": "anew", "size": 0, "note": None},
        ]
        assert contents(db)[2:] == base[3:]
        assert count_archives(workspace) == COUNT - 2
    workspace.write(
        2, DROP, "add_field: {table: items, field: {name: more, type: integer, default: 1}}"
    )
    with workspace.open() as db:
        db.table("items").update(3, size=77)
    roll_back(workspace, 2)
    with workspace.open() as db:
        titles = {record["id"]: record["title"] for record in contents(db)}
        assert (titles[0], titles[1], titles[3]) == ("changed", "anew", title_of(3))
        assert_clean(db)
        db.admin.run_jobs()
        assert {record["id"]: record["title"] for record in contents(db)} == titles
        assert count_archives(workspace) == 0


def test_rule_19_a_restored_field_has_its_archived_values(
    workspace: Workspace, base: list[dict[str, Any]]
) -> None:
    workspace.write(2, DROP)
    with workspace.open() as db:
        db.table("items").update(5, size=100)
        db.admin.run_jobs()
        db.table("items").insert(id=COUNT, size=1)
        db.table("items").delete(7)
    workspace.write(3, RESTORE)
    expected = [r | {"size": 100} if r["id"] == 5 else r for r in base if r["id"] != 7]
    expected.append({"id": COUNT, "title": "new", "size": 1, "note": None})
    with workspace.open() as db:
        items = db.table("items")
        assert contents(db) == expected
        assert items.get(0).title == title_of(0)
        assert count_archives(workspace) == COUNT - 1
        items.update(9, title="changed")
        expected[8]["title"] = "changed"
        assert contents(db) == expected
        db.admin.run_jobs()
        assert contents(db) == expected
        assert count_archives(workspace) == 0
        assert_clean(db)
        assert db.admin.sweep(older_than_seconds=0).deleted == 0
    roll_back(workspace, 3)
    with workspace.open() as db:
        assert contents(db) == without_title(expected)
        db.admin.run_jobs()
        # The values went back to where they had come from: into the archive of migration 2.
        assert count_archives(workspace) == len(expected)
    roll_back(workspace, 2)
    with workspace.open() as db:
        assert contents(db) == expected
        db.admin.run_jobs()
        assert contents(db) == expected
        assert count_archives(workspace) == 0
        assert_clean(db)


def test_rule_19_both_in_one_jump_archive_nothing(
    workspace: Workspace, base: list[dict[str, Any]]
) -> None:
    """Records that cross the drop and the restore at once keep their values."""
    workspace.write(2, DROP)
    workspace.write(3, RESTORE)
    with workspace.open() as db:
        assert contents(db) == base
        db.admin.run_jobs()
        assert contents(db) == base
        assert count_archives(workspace) == 0


def test_rule_19_pruning_leaves_what_is_declared(
    workspace: Workspace, base: list[dict[str, Any]]
) -> None:
    workspace.write(2, DROP)
    db = workspace.open()
    storage = workspace.connect()
    with pytest.raises(UsageError, match="not converted yet"):
        prune_archives(storage, DEFAULT_TENANT)
    db.admin.run_jobs()
    with storage.transaction(TransactionMode.READ) as connection:
        (listed,) = list_archived(connection, load_tenant_catalog(connection, DEFAULT_TENANT))
    assert (listed.table, listed.field, listed.archived_by, listed.count) == (
        "items",
        "title",
        2,
        COUNT,
    )
    assert prune_archives(storage, DEFAULT_TENANT) == COUNT
    assert count_archives(workspace) == 0
    assert db.admin.sweep(older_than_seconds=0).deleted == COUNT // 50
    db.close()
    roll_back(workspace, 2)
    with workspace.open() as db:
        assert contents(db) == [record | {"title": str(record["id"])} for record in base]


def test_rule_29_pruning_archives_is_told_by_the_change_log(
    workspace: Workspace, base: list[dict[str, Any]]
) -> None:
    storage = workspace.connect()
    workspace.write(2, DROP, ITEMS.replace("items", "others"))
    with workspace.open() as db:
        db.admin.set_setting("change_log", "on")
        db.table("others").insert(id=1, title="kept")
    workspace.write(3, DROP_TABLE.replace("items", "others"))
    with workspace.open() as db:
        db.admin.run_jobs()
        start = db.change_log.end()
        assert prune_archives(storage, DEFAULT_TENANT) == COUNT + 1
        made = [m for m in db.change_log.read(start) if isinstance(m, SchemaEvent)]
        assert [(m.event, m.table, m.field) for m in made] == [
            ("archive_pruning", "items", "title"),
            ("archive_pruning", "others", None),
            ("archive_pruned", "items", "title"),
            ("archive_pruned", "others", None),
        ]
        assert repr(made[0]).startswith("<archive_pruning of 'items.title', transaction")
        assert db.at(start).tables == ("items",)
        before = [asdict(record) for record in db.at(start).table("items").scan()]
        assert before == without_title(base)


def test_rule_19_pruning_ends_when_the_schema_changes(
    workspace: Workspace, base: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise it would delete what a restore needs, or the records of a restored table."""
    workspace.write(2, DROP, ITEMS.replace("items", "others"))
    workspace.write(3, DROP_TABLE.replace("items", "others"))
    with workspace.open() as db:
        db.admin.set_setting("change_log", "on")
        db.admin.run_jobs()
    delete, storage = archive_pruning.delete_archives, workspace.connect()

    def delete_and_restore(*given: Any) -> int:
        monkeypatch.setattr(archive_pruning, "delete_archives", delete)
        return delete(*given, 10)

    workspace.write(4, RESTORE, RESTORE_TABLE.replace("items", "others").replace("2", "3"))
    begin = archive_pruning._begin_deleting
    begun = itertools.count()

    def begin_pruning(*given: Any) -> Any:
        if next(begun) == 2:
            workspace.open().close()
        return begin(*given)

    monkeypatch.setattr(archive_pruning, "_begin_deleting", begin_pruning)
    monkeypatch.setattr(archive_pruning, "delete_archives", delete_and_restore)
    with pytest.raises(ConcurrencyError, match="schema changed while"):
        prune_archives(storage, DEFAULT_TENANT)
    with workspace.open() as db:
        restored = [r["title"] for r in contents(db)]
        assert restored.count("new") == 10
        assert sorted(t for t in restored if t != "new") == sorted(
            record["title"] for record in base[10:]
        )
        events = [m.event for m in db.change_log.read() if isinstance(m, SchemaEvent)]
        assert (events.count("archive_pruning"), events.count("archive_pruned")) == (2, 0)


def test_rule_19_pruning_goes_on_beside_an_index_a_setting_and_an_erasure(
    workspace: Workspace,
    base: list[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Each raises the version of the catalog, and none of them changes the schema."""
    workspace.write(2, DROP)
    with workspace.open() as db:
        db.admin.set_setting("change_log", "on")
        db.admin.run_jobs()
        db.history.start(tmp_path / "past")
        db.history.flush()
    workspace.write(3, INDEX)
    storage, begin = workspace.connect(), archive_pruning._begin_deleting
    with workspace.open() as db:
        meanwhile = iter(
            [
                lambda: db.admin.set_setting("history_grace_seconds", "0"),
                lambda: db.admin.run_jobs(),
                lambda: db.history.erase("items", 7, now=True),
            ]
        )
        versions = set[int]()

        def begin_pruning(*given: Any) -> Any:
            next(meanwhile, lambda: None)()
            with storage.transaction(TransactionMode.READ) as connection:
                versions.add(load_tenant_catalog(connection, DEFAULT_TENANT).version)
            return begin(*given)

        db.table("items").delete(7)
        monkeypatch.setattr(archive_pruning, "_begin_deleting", begin_pruning)
        assert prune_archives(storage, DEFAULT_TENANT) == COUNT - 1
        assert (next(meanwhile, None), len(versions)) == (None, 3)
        assert count_archives(workspace) == 0
        events = [m.event for m in db.change_log.read() if isinstance(m, SchemaEvent)]
        assert (events.count("archive_pruning"), events.count("archive_pruned")) == (1, 1)
        assert_clean(db)


def test_rule_19_an_archived_table_comes_back_with_its_records(
    workspace: Workspace, base: list[dict[str, Any]]
) -> None:
    workspace.write(1, ITEMS)
    workspace.write(2, DROP_TABLE)
    with workspace.open() as db:
        with pytest.raises(UnknownName):
            db.table("items")
        assert (
            db.admin.sweep(older_than_seconds=0).deleted == 0
        )  # its records own their blobs still
    workspace.write(3, RESTORE_TABLE, INDEX)
    with workspace.open() as db:
        assert contents(db) == base
        db.admin.run_jobs()
        assert [r.id for r in find(db.table("items"), "by_size", 3)] == [
            r["id"] for r in base if r["size"] == 3
        ]
        db.table("items").insert(id=COUNT, title="t", size=3)
        base.append({"id": COUNT, "title": "t", "size": 3, "note": None})
        assert_clean(db)
        assert [e.event for e in db.admin.schema_history("items")] == ["create", "drop", "restore"]
        assert len({e.fingerprint for e in db.admin.schema_history("items")}) == 2
    roll_back(workspace, 3)
    with workspace.open() as db:
        assert db._catalog.tables == {}
    roll_back(workspace, 2)
    with workspace.open() as db:
        assert contents(db) == base
        assert_clean(db)
        events = [e.event for e in db.admin.schema_history("items")]
        assert events == ["create", "drop", "restore", "drop", "rollback"]
        assert (
            db.admin.schema_history("items")[-1].fingerprint
            == db.admin.schema_history("items")[0].fingerprint
        )


def test_rule_27_a_discarded_table_is_deleted_and_comes_back_empty(
    workspace: Workspace, base: list[dict[str, Any]]
) -> None:
    workspace.write(2, INDEX, "drop_index: {table: items, index: by_size}", DROP)
    with workspace.open() as db:
        db.admin.run_jobs()
    workspace.write(3, "drop_table: {table: items, records: discard}")
    with workspace.open() as db:
        names = db._storage.dialect.table_names(db._storage.connection())
        assert "zapdb_records_1" not in names
        assert count_archives(workspace) == 0
        assert db.admin.sweep(older_than_seconds=0).deleted == COUNT // 50
    roll_back(workspace, 3)
    with workspace.open() as db:
        assert contents(db) == []
        db.table("items").insert(id=1, size=2)
        assert_clean(db)
    roll_back(workspace, 2)
    with workspace.open() as db:
        assert contents(db) == [{"id": 1, "title": "1", "size": 2, "note": None}]


EMPTY = "create_table: {table: others, key: [id], fields: [{name: id, type: integer}]}"


def bring(place: Workspace) -> None:
    """Apply what is new for the default tenant: the other one jumps over it when it is opened."""
    place.open().close()


def begin_other(place: Workspace) -> list[dict[str, Any]]:
    """Another tenant at migration 1, with records."""
    place.write(1, ITEMS)
    with place.open() as db:
        db.admin.create_tenant("other")
    with place.open(tenant="other") as db:
        db.table("items").insert_many(
            {"id": at, "title": title_of(at), "size": 1} for at in range(20)
        )
        return contents(db)


def convert_half(db: Database) -> None:
    for at in range(0, 20, 2):
        db.table("items").update(at, size=2)


@pytest.mark.on_each_engine
@pytest.mark.parametrize("jumped", [EMPTY, RENAME_SIZE])
def test_rule_13_a_rollback_of_what_a_tenant_jumped_to_keeps_archived_values(
    workspace: Workspace, jumped: str
) -> None:
    """The tenant jumped to the migration, over that which restored the field."""
    base = begin_other(workspace)
    workspace.write(2, DROP)
    bring(workspace)
    with workspace.open(tenant="other") as db:
        convert_half(db)
    workspace.write(3, RESTORE)
    bring(workspace)
    workspace.write(4, jumped)
    bring(workspace)
    with workspace.open(tenant="other") as db:
        assert db.position == 4
        db.table("items").insert(id=20, title="last")
    roll_back(workspace, 4)
    wanted = [{**one, "size": 1 + (one["id"] + 1) % 2} for one in base]
    wanted.append({"id": 20, "title": "last", "size": 0, "note": None})
    with workspace.open(tenant="other") as db:
        assert contents(db) == wanted
        db.admin.run_jobs()
        assert contents(db) == wanted
        assert_clean(db)
    workspace.write(4, "add_field: {table: items, field: {name: color, type: string, default: a}}")
    with workspace.open(tenant="other") as db:
        assert contents(db) == [{**one, "color": "a"} for one in wanted]


@pytest.mark.on_each_engine
def test_rule_01_records_of_a_migration_that_was_rolled_back_and_left_them_alone_are_whole(
    workspace: Workspace,
) -> None:
    base = begin_other(workspace)
    workspace.write(2, DROP)
    bring(workspace)
    workspace.write(3, EMPTY)
    bring(workspace)
    with workspace.open(tenant="other") as db:
        assert db.position == 3
        convert_half(db)
    roll_back(workspace, 3)
    workspace.write(3, RESTORE)
    bring(workspace)
    wanted = [{**one, "size": 1 + (one["id"] + 1) % 2} for one in base]
    with workspace.open(tenant="other") as db:
        assert contents(db) == wanted
        db.admin.run_jobs()
        assert count_archives(workspace) == 0
        assert contents(db) == wanted
        assert_clean(db)


def test_a_table_that_is_restored_needs_no_conversion(
    workspace: Workspace, base: list[dict[str, Any]]
) -> None:
    workspace.write(2, DROP_TABLE)
    bring(workspace)
    workspace.write(3, RESTORE_TABLE)
    with workspace.open() as db:
        assert contents(db) == base
        assert db.admin.run_jobs() == []


def test_rule_19_archived_values_of_a_field_with_another_type_are_its_own(
    workspace: Workspace, base: list[dict[str, Any]]
) -> None:
    """Its cell is another number then: what is told, counted, erased and pruned goes by it."""
    workspace.write(
        2,
        "change_type: {table: items, field: size, type: string, default: '', up: text(size), "
        "down: 'integer(size, else=0)'}",
    )
    workspace.write(
        3,
        "drop_field: {table: items, field: size, restore: {archive: true, otherwise: {value: x}}}",
    )
    with workspace.open() as db:
        db.admin.set_setting("change_log", "on")
        db.admin.run_jobs()
        (archived,) = (one.field for one in db._catalog.tables["items"].schema.archived)
        assert archived.cell != archived.number
        cells = workspace.execute("SELECT cell, count(*) FROM zapdb_archives GROUP BY cell")
        assert cells == [(archived.cell, COUNT)]
        assert_clean(db)
        prune_archives(db._storage, DEFAULT_TENANT)
        assert count_archives(workspace) == 0
        events = [one for one in db.change_log.read() if isinstance(one, SchemaEvent)]
        told = [(one.event, one.table, one.field) for one in events]
        assert told[-2:] == [
            ("archive_pruning", "items", "size"),
            ("archive_pruned", "items", "size"),
        ]


@pytest.mark.on_each_engine
@pytest.mark.parametrize("is_converted", [True, False])
def test_another_migration_makes_the_layout_of_a_rolled_back_one(
    workspace: Workspace, is_converted: bool
) -> None:
    """Records that were written under that are converted all the same: what is declared for those
    without an archived value may be another one."""
    workspace.write(1, ITEMS)
    older = workspace.open()
    older.table("items").insert_many({"id": n, "title": f"title {n}", "size": n} for n in range(2))
    drop = (
        "drop_field: {table: items, field: title, restore: {archive: true, otherwise: {value: %s}}}"
    )
    storage = workspace.connect()
    for otherwise in "first", "second":
        workspace.write(2, drop % otherwise)
        migrate_up(storage, DEFAULT_TENANT, workspace.directory)
        if is_converted or otherwise == "second":
            older.admin.run_jobs()
        if otherwise == "first":
            older.table("items").insert(id=2, title="title 2", size=2)
            rollback.roll_back(storage)
    assert [one.title for one in older.table("items").scan()] == ["title 0", "title 1", "title 2"]
    prune_archives(storage, DEFAULT_TENANT)
    assert [one.title for one in older.table("items").scan()] == ["second"] * 3
