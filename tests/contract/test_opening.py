"""Opening a database: what is refused before anything is changed, created, verified."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

import zapdb
from tests.contract.tables import ADD_COLOR, ADD_WEIGHT, DROP_NOTE, INDEX_SIZE, ITEMS, RENAME_SIZE
from tests.documents import document
from tests.support import LIVE, Workspace, count_connections, dump, error_of, wait_until
from zapdb.catalog.cluster import (
    cluster_status as cluster,
)
from zapdb.catalog.stored_migrations import list_line
from zapdb.errors import (
    CatalogChanged,
    CorruptCatalog,
    IncompatibleVersion,
    InvalidMigration,
    MigrationConflict,
    NewerStorageVersion,
    NotZapdb,
    PendingMigrations,
    ServedSchemaUnavailable,
    StorageError,
    UsageError,
    ZapdbError,
)
from zapdb.storage import TransactionMode

pytestmark = pytest.mark.empty


def refusal(place: Workspace, kind: type[ZapdbError], apply: str = "auto") -> str:
    """The text of the error that opening is refused with; nothing may have changed."""
    before = dump(place)
    with pytest.raises(kind) as caught:
        zapdb.open(place.address, migrations=place.directory, apply=apply)
    assert type(caught.value) is kind
    assert dump(place) == before
    return str(caught.value)


def database_file(place: Workspace) -> Path:
    return Path(place.address.removeprefix("sqlite:///"))


# Empty databases


@pytest.mark.on_each_engine
def test_rule_06_an_empty_database_is_refused_unless_told_to_apply(workspace: Workspace) -> None:
    workspace.write(1, ITEMS)
    text = refusal(workspace, PendingMigrations, apply="never")
    assert "the database is empty" in text
    assert "zapdb migrate up" in text
    assert dump(workspace) == {}


@pytest.mark.parametrize("engine", ["sqlite"])
def test_a_file_that_is_not_there_is_not_made_by_a_refused_open(workspace: Workspace) -> None:
    workspace.write(1, ITEMS)
    with pytest.raises(PendingMigrations, match="empty"):
        workspace.open(apply="never")
    assert list(database_file(workspace).parent.glob("*.db*")) == []


def test_rule_06_an_empty_database_is_created(workspace: Workspace) -> None:
    workspace.write(1, ITEMS)
    db = workspace.open(apply="auto")
    assert db.position == 1
    assert [applied.label for applied in db.applied] == ["0001_test"]
    again = workspace.open(apply="never")
    assert again.position == 1
    assert again.applied == ()
    again.table("items").insert(id=1, title="Milk")
    assert db.table("items").get(1).title == "Milk"


@pytest.mark.on_each_engine
def test_rule_06_all_pending_migrations_are_applied_at_once(workspace: Workspace) -> None:
    for number, operation in enumerate(
        (
            ITEMS,
            ADD_COLOR,
            DROP_NOTE,
            RENAME_SIZE,
            ADD_WEIGHT,
            INDEX_SIZE.replace("size", "extent"),
        ),
        1,
    ):
        workspace.write(number, operation)
    db = workspace.open()
    assert db.position == 6
    assert db.table("items").field_names == ("id", "title", "extent", "color", "weight")
    assert [entry.position for entry in db.admin.schema_history("items")] == [1, 2, 3, 4, 5, 6]


@pytest.mark.on_each_engine
def test_rule_06_all_pending_migrations_are_validated_before_the_first_is_applied(
    workspace: Workspace,
) -> None:
    workspace.write(1, ITEMS)
    workspace.open().close()
    workspace.write(2, ADD_COLOR)
    workspace.write(3, ADD_COLOR)
    assert "0003_test.yaml:5:5" in refusal(workspace, InvalidMigration)


# Databases of others


def test_a_database_of_something_else_is_refused(workspace: Workspace) -> None:
    workspace.write(1, ITEMS)
    workspace.execute("CREATE TABLE theirs (id integer)")
    workspace.execute("CREATE VIEW seen AS SELECT * FROM theirs")
    for apply in ("auto", "never"):
        text = refusal(workspace, NotZapdb, apply=apply)
        assert "tables: seen, theirs" in text


@pytest.mark.parametrize("engine", ["sqlite"])
@pytest.mark.on_each_engine
def test_the_file_of_something_else_is_left_as_it_is(workspace: Workspace) -> None:
    workspace.write(1, ITEMS)
    file = database_file(workspace)
    with sqlite3.connect(file) as theirs:
        theirs.execute("CREATE TABLE theirs (id integer)")
    theirs.close()
    before = file.read_bytes()
    with pytest.raises(NotZapdb):
        workspace.open()
    assert file.read_bytes() == before
    assert list(file.parent.glob("*.db*")) == [file]


@pytest.mark.parametrize("engine", ["sqlite"])
def test_a_file_that_is_no_database_is_refused(workspace: Workspace) -> None:
    workspace.write(1, ITEMS)
    file = database_file(workspace)
    file.write_text("a letter, and longer than the header of a database would be " * 20)
    with pytest.raises(NotZapdb, match="not a SQLite database"):
        workspace.open()
    assert file.read_text().startswith("a letter")


@pytest.mark.parametrize("engine", ["sqlite"])
def test_a_file_may_be_given_as_a_uri(workspace: Workspace) -> None:
    workspace.write(1, ITEMS)
    workspace.open().table("items").insert(id=1, title="Milk")
    workspace.address = f"sqlite:///file:{database_file(workspace)}?uri=true"
    assert workspace.open(apply="never").table("items").get(1).title == "Milk"


@pytest.mark.parametrize("engine", ["sqlite"])
def test_a_directory_that_is_not_there_is_named(workspace: Workspace, tmp_path: Path) -> None:
    workspace.write(1, ITEMS)
    address = f"sqlite:///{tmp_path / 'nowhere' / 'test.db'}"
    with pytest.raises(StorageError, match="cannot be opened") as caught:
        zapdb.open(address, migrations=workspace.directory, apply="auto")
    assert "its directory must exist" in str(caught.value)


@pytest.mark.parametrize("engine", ["postgresql"])
def test_a_server_that_is_not_there_is_named_without_the_password(workspace: Workspace) -> None:
    workspace.write(1, ITEMS)
    address = "postgresql://ada:secret@127.0.0.1:1/test"
    with pytest.raises(StorageError, match="cannot be reached") as caught:
        zapdb.open(address, migrations=workspace.directory)
    assert "ada:***@" in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("engine", ["postgresql"])
@pytest.mark.on_each_engine
def test_a_schema_beside_other_tables_can_hold_it(workspace: Workspace) -> None:
    workspace.write(1, ITEMS)
    workspace.execute("CREATE TABLE theirs (id integer)")
    workspace.execute("CREATE SCHEMA zapdb")
    workspace.address += "&options=-csearch_path%3Dzapdb"
    workspace.open().table("items").insert(id=1, title="Milk")
    assert "theirs" not in dump(workspace)


@pytest.mark.parametrize("address", ["mysql://a/b", "nonsense"])
def test_addresses_without_a_storage_are_refused(address: str, tmp_path: Path) -> None:
    (tmp_path / "0001_test.yaml").write_text(document(ITEMS))
    with pytest.raises(UsageError) as caught:
        zapdb.open(address, migrations=tmp_path)
    assert "sqlite:///path/to/file.db" in str(caught.value)


# The layout of zapdb's own tables, and the level


def test_a_newer_storage_version_is_refused_naming_it(workspace: Workspace) -> None:
    workspace.write(1, ITEMS)
    workspace.open().close()
    workspace.execute("UPDATE zapdb_storage_version SET version_num = '0917'")
    text = refusal(workspace, NewerStorageVersion)
    assert "storage_version: 0917" in text
    assert "use a zapdb release that knows storage version 0917" in text


@pytest.mark.parametrize("layout", ["0001", "0002", "0003", "0004", "0005"])
@pytest.mark.on_each_engine
def test_rule_34_a_database_from_before_the_first_release_is_refused(
    workspace: Workspace, layout: str
) -> None:
    workspace.write(1, ITEMS)
    workspace.open().close()
    workspace.execute("UPDATE zapdb_storage_version SET version_num = ?", (layout,))
    before = dump(workspace)
    refused = [
        refusal(workspace, IncompatibleVersion),
        str(error_of(lambda: workspace.open(apply="never", read_only=True))),
        str(error_of(lambda: cluster.upgrade_cluster(workspace.connect()))),
    ]
    for text in refused:
        assert text.startswith("the database was made by an unreleased version of zapdb")
        assert f"storage_version: {layout}" in text
        assert "make a new database" in text
    assert dump(workspace) == before


def test_a_layout_without_its_revision_is_corrupt(workspace: Workspace) -> None:
    workspace.write(1, ITEMS)
    workspace.open().close()
    workspace.execute("DELETE FROM zapdb_storage_version")
    assert "zapdb_storage_version" in refusal(workspace, CorruptCatalog)


@pytest.mark.on_each_engine
def test_rule_10_a_level_that_this_release_does_not_know_is_refused(workspace: Workspace) -> None:
    workspace.write(1, ITEMS)
    workspace.open().close()
    workspace.execute(
        "UPDATE zapdb_catalog SET value = replace(value, '\"level\":1', '\"level\":917')"
        " WHERE kind = 'level'"
    )
    assert "level_needed: 917" in refusal(workspace, IncompatibleVersion)


# Files against what is stored


def test_rule_05_a_file_edited_in_its_comments_alone_opens(workspace: Workspace) -> None:
    workspace.write(1, ITEMS)
    path = workspace.write(2, ADD_COLOR)
    workspace.open().close()
    edited = path.read_text().replace("summary: Test", "# a comment\nsummary: 'Tost'\n")
    path.write_text(edited.replace("default: red", 'default: "red"') + "\n\n# another\n")
    path.rename(path.with_name("0002_renamed.yaml"))
    assert workspace.open(apply="never").position == 2


def test_rule_06_a_file_edited_in_its_structure_is_a_conflict(workspace: Workspace) -> None:
    workspace.write(1, ITEMS)
    path = workspace.write(2, ADD_COLOR)
    workspace.open().close()
    workspace.write(2, ADD_COLOR.replace("red", "blue"))
    text = refusal(workspace, MigrationConflict)
    assert text.startswith(f"{path}:1:1: the file differs")
    assert "red" in text
    assert "blue" in text
    assert "zapdb migrate rollback" in text
    path.write_text(document(ADD_COLOR))
    workspace.open()


def test_rule_06_an_added_operation_is_a_conflict_and_not_an_exhausted_number(
    workspace: Workspace,
) -> None:
    workspace.write(1, ITEMS, ADD_COLOR)
    workspace.open().close()
    workspace.write(1, ITEMS, ADD_COLOR, ADD_WEIGHT)
    assert "weight" in refusal(workspace, MigrationConflict)


@pytest.mark.on_each_engine
def test_rule_06_a_conflict_is_found_before_pending_migrations_are_applied(
    workspace: Workspace,
) -> None:
    workspace.write(1, ITEMS)
    workspace.open().close()
    workspace.write(1, ITEMS.replace("default: 0", "default: 1"))
    workspace.write(2, ADD_COLOR)
    refusal(workspace, MigrationConflict)


@pytest.mark.on_each_engine
def test_rule_06_pending_migrations_are_named_with_the_command(workspace: Workspace) -> None:
    workspace.write(1, ITEMS)
    workspace.open().close()
    workspace.write(2, ADD_COLOR)
    workspace.write(3, ADD_WEIGHT)
    text = refusal(workspace, PendingMigrations, apply="never")
    assert "pending: 2" in text
    assert "first: 0002_test" in text
    assert "`zapdb migrate up`" in text


@pytest.mark.on_each_engine
def test_rule_11_files_that_end_before_a_table_was_dropped_are_refused(
    workspace: Workspace,
) -> None:
    workspace.write(
        1,
        ITEMS,
        "create_table: {table: tags, key: [name], fields: [{name: name, type: string}]}",
    )
    workspace.write(2, "drop_table: {table: tags, records: discard}")
    workspace.open().close()
    workspace.remove(2)
    for apply in ("auto", "never"):
        text = refusal(workspace, ServedSchemaUnavailable, apply=apply)
        assert "dropped_by: 0002_test" in text


# Tampering


@pytest.fixture
def stored(workspace: Workspace) -> Workspace:
    """Three stored migrations, and a record."""
    for number, operation in enumerate((ITEMS, ADD_COLOR, ADD_WEIGHT), 1):
        workspace.write(number, operation)
    with workspace.open() as db:
        db.table("items").insert(id=1, title="Milk")
    return workspace


def test_rule_06_a_tampered_structure_is_corruption(stored: Workspace) -> None:
    ((structure,),) = stored.execute("SELECT structure FROM zapdb_migrations WHERE number = 2")
    changed = bytes(structure).replace(b"red", b"tan")
    stored.execute("UPDATE zapdb_migrations SET structure = ? WHERE number = 2", (changed,))
    text = refusal(stored, CorruptCatalog)
    assert "does not match its own digest" in text
    assert "migration: 0002_test" in text


def test_rule_06_a_tampered_digest_is_corruption(stored: Workspace) -> None:
    stored.execute("UPDATE zapdb_migrations SET digest = 'z1:00' WHERE number = 1")
    text = refusal(stored, CorruptCatalog)
    assert "stored: z1:00" in text


def test_rule_06_structures_that_changed_places_are_corruption(stored: Workspace) -> None:
    for number, other in ((2, 20), (3, 2), (20, 3)):
        stored.execute("UPDATE zapdb_migrations SET number = ? WHERE number = ?", (other, number))
    text = refusal(stored, CorruptCatalog)
    assert "not behind the one before it" in text
    assert "0002_test" in text


@pytest.mark.parametrize("parent", ["id", str(2**63 - 1), "1"])
def test_rule_06_a_line_that_leads_nowhere_is_corruption(stored: Workspace, parent: str) -> None:
    """It ends there, and is not followed for ever."""
    stored.execute(f"UPDATE zapdb_migrations SET parent = {parent} WHERE number = 2")
    ((newest,),) = stored.execute("SELECT max(id) FROM zapdb_migrations")
    with (
        stored.control.transaction(TransactionMode.READ) as connection,
        pytest.raises(CorruptCatalog, match="a stored migration is missing") as caught,
    ):
        list_line(connection, newest)
    assert caught.value.context["number"] == 1


def test_a_line_of_another_history_is_not_there(stored: Workspace) -> None:
    with (
        stored.control.transaction(TransactionMode.READ) as connection,
        pytest.raises(CatalogChanged),
    ):
        list_line(connection, 1 << 40)


def test_rule_06_a_missing_migration_is_corruption(stored: Workspace) -> None:
    stored.execute("DELETE FROM zapdb_migrations WHERE number = 2")
    text = refusal(stored, CorruptCatalog)
    assert "a stored migration is missing" in text
    assert "number: 2" in text


def test_rule_06_a_missing_newest_migration_is_corruption(stored: Workspace) -> None:
    stored.execute("DELETE FROM zapdb_migrations WHERE number = 3")
    assert "do not end where the catalog says" in refusal(stored, CorruptCatalog)


def test_rule_03_tampered_numbers_are_corruption(stored: Workspace) -> None:
    ((numbers,),) = stored.execute("SELECT numbers FROM zapdb_migrations WHERE number = 3")
    stored.execute("UPDATE zapdb_migrations SET numbers = ? WHERE number = 3", (numbers[:-1],))
    refusal(stored, CorruptCatalog)
    changed = bytes(numbers)[:-1] + bytes((numbers[-1] + 1,))  # field 6 is field 7 now
    stored.execute("UPDATE zapdb_migrations SET numbers = ? WHERE number = 3", (changed,))
    with stored.open() as db, pytest.raises(CorruptCatalog) as caught:
        db.admin.verify()  # no file shows it, so nothing that opens reads it
    assert caught.value.context["table"] == "items"


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM zapdb_catalog WHERE kind = 'tenant'",
        "DELETE FROM zapdb_catalog WHERE kind = 'chain'",
        "DELETE FROM zapdb_catalog_versions",
    ],
)
def test_rule_06_missing_rows_of_the_catalog_are_corruption(stored: Workspace, sql: str) -> None:
    stored.execute(sql)
    refusal(stored, CorruptCatalog)


def test_rule_23_an_index_without_its_row_is_corruption(workspace: Workspace) -> None:
    workspace.write(1, ITEMS, INDEX_SIZE)
    workspace.open().close()
    workspace.execute("DELETE FROM zapdb_catalog WHERE kind = 'index'")
    assert "index: by_size" in refusal(workspace, CorruptCatalog)


@pytest.mark.on_each_engine
def test_rule_04_the_history_must_end_at_what_is_in_force(stored: Workspace) -> None:
    stored.execute("DELETE FROM zapdb_schema_history WHERE revision = 3")
    assert "table: items" in refusal(stored, CorruptCatalog)


# The tables themselves: what the revisions make, and what the code expects


@pytest.mark.on_each_engine
def test_rule_09_an_opened_database_lists_its_process(workspace: Workspace) -> None:
    workspace.write(1, ITEMS)
    db = workspace.open()
    rows = workspace.execute("SELECT value FROM zapdb_catalog WHERE kind = 'node'" + LIVE)
    assert [json.loads(value)["files_end"] for (value,) in rows] == [1]
    db.close()
    assert workspace.execute("SELECT value FROM zapdb_catalog WHERE kind = 'node'" + LIVE) == []
    held = "SELECT name FROM zapdb_leases WHERE substr(name, 1, 8) <> 'catalog/'"
    assert workspace.execute(held) == []


@pytest.mark.on_each_engine
def test_a_refused_open_leaves_no_process_and_no_connection(workspace: Workspace) -> None:
    workspace.write(1, ITEMS)
    workspace.open().close()
    workspace.write(2, ADD_COLOR)
    before = count_connections(workspace)
    for _ in range(3):
        with pytest.raises(PendingMigrations):
            zapdb.open(workspace.address, migrations=workspace.directory)
    wait_until(lambda: count_connections(workspace) == before, "the server noticed")
    assert workspace.execute("SELECT key FROM zapdb_catalog WHERE kind = 'node'" + LIVE) == []
