"""What the tables are stands in rows: opening sums no chain; what needs it reads it as it was."""

from __future__ import annotations

import pytest

import zapdb
from tests.contract.tables import ADD_COLOR, ADD_WEIGHT, DROP_NOTE, INDEX_SIZE, ITEMS
from tests.support import Workspace, are_schemas_whole
from zapdb.activation import TenantCatalog
from zapdb.activation.rollback import roll_back
from zapdb.catalog.stored_migrations import StoredChain
from zapdb.database import Database
from zapdb.errors import CatalogChanged, CorruptCatalog
from zapdb.jobs.repair import repair_schemas

pytestmark = pytest.mark.empty

TYPES = "create_type: {type: state, enum: [open, done]}"
ADD_STATE = "add_field: {table: items, field: {name: state, type: state, default: open}}"
TAGS = "create_table: {table: tags, key: [name], fields: [{name: name, type: string}]}"
DROP_TAGS = "drop_table: {table: tags, records: archive}"
CHAIN = (ITEMS, ADD_COLOR, TYPES, ADD_STATE, TAGS, DROP_NOTE, DROP_TAGS, ADD_WEIGHT)


@pytest.fixture
def whole(workspace: Workspace) -> Workspace:
    """Migrations that make and change tables and a type, and archive a table; a record of each
    layout of `items`."""
    for number, operation in enumerate(CHAIN, 1):
        workspace.write(number, operation)
        with workspace.open() as db:
            db.table("items").insert(id=number, title=f"at {number}")
    return workspace


def is_read(db: Database) -> bool:
    chain = catalog_of(db).chain
    assert isinstance(chain, StoredChain)
    return chain.is_read


def catalog_of(db: Database) -> TenantCatalog:
    return db._catalog


@pytest.mark.on_each_engine
def test_rule_06_opening_and_ordinary_work_read_no_migrations(whole: Workspace) -> None:
    with zapdb.open(whole.address) as db:
        items = db.table("items")
        items.insert(id=100, title="new")
        assert items.get(100).state == "open"
        items.update(100, title="newer")
        assert items.get(100).title == "newer"
        assert db.position == len(CHAIN)
        assert not is_read(db)
        assert items.get(1).color == "red"  # a stale record has to be converted
        assert is_read(db)
        made = catalog_of(db).chain.migrations[-1].after
        assert made == catalog_of(db).chain.schema_at(len(CHAIN))
    assert are_schemas_whole(whole.connect())


@pytest.mark.on_each_engine
@pytest.mark.parametrize("end", range(1, len(CHAIN)))
def test_each_position_has_what_its_migrations_make(whole: Workspace, end: int) -> None:
    """A process with fewer files is served an older schema, and a tenant is made there."""
    kept = {number: whole.directory / f"{number:04d}_test.yaml" for number in range(1, 9)}
    for number, file in kept.items():
        if number > end:
            file.unlink()
    if end >= 7:  # the table that was dropped
        with whole.open() as db:
            assert [record.id for record in db.table("items").scan()] == [*range(1, 9)]
    storage = whole.connect()
    while True:
        with storage.transaction(zapdb.storage.TransactionMode.READ) as connection:
            catalog = zapdb.activation.load_tenant_catalog(connection, 1)
        assert catalog.chain.schema_at(catalog.position) == catalog.chain.migrations[-1].after
        assert are_schemas_whole(storage)
        if catalog.position == end:
            break
        roll_back(storage)
    with whole.open() as db:
        assert db.position == end
        assert not is_read(db) or db.table("items").count()


@pytest.mark.on_each_engine
def test_a_rolled_back_migration_takes_its_rows_with_it(whole: Workspace) -> None:
    storage = whole.connect()
    before = whole.execute("SELECT count(*) FROM zapdb_schemas")
    assert roll_back(storage).migrations[0].number == len(CHAIN)
    assert whole.execute("SELECT count(*) FROM zapdb_schemas") < before
    whole.write(len(CHAIN), INDEX_SIZE)
    with whole.open() as db:
        assert [index.index.name for index in catalog_of(db).table("items").indexes] == ["by_size"]
    assert are_schemas_whole(storage)


@pytest.mark.on_each_engine
def test_a_chain_is_read_as_it_was(whole: Workspace) -> None:
    """Another migration was stored in the place of the newest before anything asked."""
    storage = whole.connect()
    with zapdb.open(whole.address) as db:
        known = catalog_of(db)
        assert not is_read(db)
        roll_back(storage)
        whole.write(len(CHAIN), INDEX_SIZE)
        whole.write(len(CHAIN) + 1, "drop_index: {table: items, index: by_size}")
        whole.open().close()
        assert [m.label for m in known.chain.migrations][-1] == "0008_test"
        assert known.chain.migrations[-1].changes[0].keyword == "add_field"
        assert known.chain.migrations[-1].after == known.chain.schema_at(8)
        db.table("items").get(1)
        assert [m.number for m in catalog_of(db).chain.migrations] == [*range(1, 10)]
        assert catalog_of(db).chain.migrations[7].changes[0].keyword == "create_index"
    whole.execute("DELETE FROM zapdb_migrations WHERE number > 6")
    unread = zapdb.catalog.stored_migrations.StoredMigrations(storage, known.chain_state)
    with pytest.raises(CatalogChanged, match="a backup was restored"):
        len(unread)


@pytest.mark.on_each_engine
@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM zapdb_schemas",
        "DELETE FROM zapdb_schemas WHERE table_number = 0",
        "UPDATE zapdb_schemas SET content = ? WHERE table_number = 1",
        "UPDATE zapdb_schemas SET migration = migration + 1",
        "DELETE FROM zapdb_schemas WHERE migration = (SELECT max(migration) FROM zapdb_schemas)",
        "DELETE FROM zapdb_schemas WHERE migration IN"
        " (SELECT id FROM zapdb_migrations WHERE number = 2)",
    ],
)
def test_rows_that_are_not_what_the_migrations_make_are_damage_with_a_way_out(
    whole: Workspace, sql: str
) -> None:
    with whole.open() as db:
        before = [*db.table("items").scan()]
    whole.execute(sql, [b"x"] * sql.count("?"))
    with pytest.raises(CorruptCatalog) as caught, whole.open() as db:
        db.admin.verify()
    assert caught.value.hint is not None
    assert "`zapdb verify --repair`" in caught.value.hint
    storage = whole.connect()
    assert repair_schemas(storage, dry_run=True)
    assert not are_schemas_whole(storage)
    assert repair_schemas(storage)
    assert not repair_schemas(storage)
    assert are_schemas_whole(storage)
    with whole.open() as db:
        assert [*db.table("items").scan()] == before
        db.admin.verify()


def test_damaged_migrations_repair_nothing(whole: Workspace) -> None:
    whole.execute("DELETE FROM zapdb_schemas")
    whole.execute("UPDATE zapdb_migrations SET digest = 'z1:00' WHERE number = 1")
    with pytest.raises(CorruptCatalog, match="does not match its own digest"):
        repair_schemas(whole.connect())


@pytest.mark.on_each_engine
def test_a_tenant_that_is_behind_loads_its_own_position(workspace: Workspace) -> None:
    for number, operation in enumerate(CHAIN, 1):
        workspace.write(number, operation)
        with workspace.open() as db:
            if number == 2:
                db.admin.create_tenant("behind")
                db.for_tenant("behind").table("items").insert(id=1, title="Milk")
                db.admin.set_setting("schema_changes", "refuse", tenant="behind")
    with zapdb.open(workspace.address, tenant="behind") as db:
        catalog = catalog_of(db)
        assert (db.position, catalog.chain.end, is_read(db)) == (2, len(CHAIN), True)
        assert db.table("items").field_names == ("id", "title", "size", "note", "color")
        assert db.table("items").get(1).note is None
        assert catalog.chain.schema_at(2) == catalog.chain.at(2).after
        first = catalog_of(db.for_tenant("default"))
        assert first.chain.schema_at(first.position) == catalog.chain.at(len(CHAIN)).after
    with zapdb.open(workspace.address, tenant="behind", read_only=True) as db:
        assert (db.position, is_read(db)) == (2, False)
        assert [record.id for record in db.table("items").scan()] == [1]
