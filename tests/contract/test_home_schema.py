"""The schema of zapdb's tables on PostgreSQL: found once, named in every statement.

All other tests of PostgreSQL run with a schema of their role's name in front of the search path, in
which a view hides each of zapdb's tables (`tests.support.HIDING`): a statement that names no schema
fails there. Here, how the schema is found, named and shown.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import make_url

import zapdb
import zapdb.aio
from tests.cli.program import Project
from tests.contract.tables import ADD_COLOR, INDEX_TITLE, ITEMS
from tests.support import HIDDEN, PostgresServer, Workspace, error_of
from zapdb.database import Database
from zapdb.errors import PendingMigrations, UsageError
from zapdb.limits import PAGE_RECORDS_MAX
from zapdb.storage.fixed_tables import METADATA, VERSION_TABLE
from zapdb.storage.home_schema import HomeSchema

ENTRY = (
    "SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
    " WHERE c.relkind IN ('r', 'p') AND relname LIKE 'zapdb%%' AND nspname = ?"
)


@pytest.fixture
def place(tmp_path: Path, postgres: PostgresServer) -> Iterator[Workspace]:
    """A database in which nobody has made anything."""
    (tmp_path / "migrations").mkdir()
    with (
        postgres.fresh_database() as address,
        Workspace("postgresql", address, tmp_path / "migrations") as place,
    ):
        place.write(1, ITEMS)
        yield place


def count_tables(place: Workspace, schema: str) -> int:
    ((count,),) = place.execute(ENTRY, (schema,))
    return int(count)


def use(db: Database) -> None:
    """Write and read by single operations, transactions and SQL."""
    items = db.table("items")
    first = items.count() + 1
    items.insert(id=first, title="Milk")
    with db.transaction() as tx:
        tx.table("items").insert_many([{"id": first + n, "title": "x"} for n in range(1, 4)])
    assert items.count() == first + 3
    assert list(db.sql("SELECT count(*) FROM items")) == [(first + 3,)]


def test_a_later_schema_of_the_roles_name_changes_nothing(place: Workspace) -> None:
    """The case: such a schema comes before `public` in the search path that PostgreSQL has."""
    before = place.open()
    use(before)
    place.execute("CREATE SCHEMA postgres")
    use(before)
    place.write(2, ADD_COLOR, INDEX_TITLE)
    after = place.open(apply="auto")
    use(after)
    use(before)
    assert count_tables(place, "postgres") == 0
    with zapdb.open(place.address, read_only=True) as reader:
        assert reader.table("items").count() == 16
    for name in HIDDEN:  # and what is made in it neither
        if name != VERSION_TABLE:
            place.execute(f"CREATE TABLE postgres.{name} (nothing integer)")
    for db in (before, after, place.open()):
        use(db)


def test_several_schemas_of_the_path_are_told(place: Workspace) -> None:
    place.open().close()
    place.execute("CREATE SCHEMA postgres")
    place.execute(f"CREATE TABLE postgres.{VERSION_TABLE} (version_num text)")
    error = error_of(lambda: zapdb.open(place.address))
    assert isinstance(error, UsageError)
    assert error.context["schemas"] == "postgres, public"
    with zapdb.open(place.address, schema="public") as db:
        use(db)


def test_the_schema_stands_in_the_address(place: Workspace, tmp_path: Path) -> None:
    public = place.address
    place.address += "&schema=my-App.1"
    db = place.open()  # it is made
    db.admin.set_setting("change_log", "on")
    use(db)
    assert count_tables(place, "public") == 0
    assert count_tables(place, "my-App.1") > 20
    assert "schema=my-App.1" in repr(db)
    asked = error_of(lambda: zapdb.open(public))
    assert isinstance(asked, PendingMigrations)
    assert asked.hint.startswith("name the schema in the address: …?schema=my-App.1; or run")
    with zapdb.open(public, schema="my-App.1") as other:
        use(other)
    assert isinstance(error_of(lambda: zapdb.open(place.address, schema="b")), UsageError)

    async def use_async() -> None:
        async with zapdb.aio.open(public, schema="my-App.1") as opened:
            assert await opened.table("items").count() == 8
            assert len(await opened.sql("SELECT * FROM items")) == 8

    asyncio.run(use_async())
    found = Project(tmp_path).run("data", "list", "items", "--json", "--database", place.address)
    assert (found.status, found.err) == (0, "")
    (tmp_path / "pyproject.toml").write_text(f'[tool.zapdb]\ndatabase = "{place.address}"\n')
    for command in (["cluster", "status"], ["sql", "SELECT count(*) FROM items"]):
        found = Project(tmp_path).run_process(*command)
        assert found.status == 0, found.err
    mirror = ("mirror", "run", "--once", "--to", "schema:reporting", "-d", place.address)
    found = Project(tmp_path).run(*mirror)
    assert found.status == 0, found.err
    assert place.execute("SELECT count(*) FROM reporting.items") == [(8,)]
    assert count_tables(place, "public") == 0


def test_iterations_of_two_schemas_of_one_database_are_apart(place: Workspace) -> None:
    """Their tables have the same numbers; what is written to one is told to no other one."""
    public, opened = place.address, list[Database]()
    for schema in ("one", "two"):
        place.address = f"{public}&schema={schema}"
        opened.append(place.open())
    one, two = (db.table("items") for db in opened)
    one.insert_many({"id": 2 * at, "title": "x"} for at in range(PAGE_RECORDS_MAX + 1))
    found = []
    for item in one:
        if not found:
            two.insert(id=2 * PAGE_RECORDS_MAX, title="x")  # a key behind the first page
        found.append(item.id)
    assert found == [2 * at for at in range(PAGE_RECORDS_MAX + 1)]
    place.address = f"{public}&schema=one&application_name=other"
    assert place.open()._storage.own_writes is opened[0]._storage.own_writes
    assert opened[0]._storage.own_writes is not opened[1]._storage.own_writes


def test_a_search_path_among_the_options_goes_on(place: Workspace) -> None:
    place.execute("CREATE SCHEMA app")
    public = place.address
    place.address += "&options=-csearch_path%3Dapp"
    db = place.open()
    use(db)
    assert "schema=app" in repr(db)
    assert (count_tables(place, "app") > 20, count_tables(place, "public")) == (True, 0)
    with zapdb.open(public, schema="app") as other:
        use(other)


def test_a_path_without_a_schema_is_told(place: Workspace) -> None:
    place.address += "&options=-csearch_path%3Dnowhere"
    error = error_of(lambda: place.open())
    assert isinstance(error, UsageError)
    assert "no schema of the search path exists" in str(error)


@pytest.mark.parametrize("name", ["a'b", 'a"b', "a%25b", "a\\b", "x" * 64])
def test_names_that_are_no_schema_are_refused(place: Workspace, name: str) -> None:
    with pytest.raises(UsageError):
        zapdb.open(f"{place.address}&schema={name}")


def test_a_file_has_no_schema(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a SQLite file has no schemas"):
        zapdb.open(f"sqlite:///{tmp_path}/a.db", schema="app")
    with pytest.raises(UsageError, match="unknown option"):
        zapdb.open(f"sqlite:///{tmp_path}/a.db?schema=app")


def test_other_processes_get_the_schema(place: Workspace) -> None:
    """What a runner of Spark or a statement's process opens."""
    db = place.open()
    place.execute("CREATE SCHEMA postgres")
    address = db._storage.engine.full_address()
    assert make_url(address).query["schema"] == "public"
    with zapdb.open(address) as other:
        use(other)


# The names in a statement

NAMES = sorted({*METADATA.tables, VERSION_TABLE, "zapdb_commit_order", "zapdb_records_1"})


@given(
    st.sampled_from(NAMES),
    st.sampled_from(
        (
            "SELECT * FROM {}",
            "SELECT {}.key FROM {} AS {}",
            "'{}'::regclass",
            "LOCK TABLE {} IN",
            "COPY {} (a) FROM",
            "({})",
            "nextval('{}')",
        )
    ),
)
def test_every_name_gets_the_schema_once(name: str, form: str) -> None:
    driver: Any = None
    sql = form.replace("{}", name)
    qualified = HomeSchema("app").qualify(sql, driver)
    assert qualified == sql.replace(name, f'"app".{name}')
    assert HomeSchema("app").qualify(qualified, driver) == qualified


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE INDEX zapdb_catalog_seq ON x",
        'SELECT "zapdb_catalog"',
        "SAVEPOINT zapdb",
        "ALTER TABLE a RENAME TO zapdb_catalog",
        "SELECT a.zapdb_catalog",
        "zapdb_recordsx",
        "xzapdb_catalog",
        "zapdb_records_",
    ],
)
def test_what_is_no_name_of_a_table_is_left_alone(sql: str) -> None:
    driver: Any = None
    assert HomeSchema("app").qualify(sql, driver) == sql


def test_every_table_of_a_database_has_a_name_that_is_known(place: Workspace) -> None:
    """A table that a later revision adds is in `METADATA`; no other way of naming one came up."""
    place.open()
    place.write(2, ADD_COLOR, INDEX_TITLE)
    place.open()
    with psycopg.connect(place.address.replace("+psycopg", "")) as connection:
        found = connection.execute(
            "SELECT relname FROM pg_class WHERE relkind IN ('r', 'p', 'S', 'v') AND"
            " relnamespace = 'public'::regnamespace"
        ).fetchall()
    known = re.compile(r"zapdb_(records|entries)_[0-9]+")
    assert [name for (name,) in found if name not in NAMES and not known.fullmatch(name)] == []
