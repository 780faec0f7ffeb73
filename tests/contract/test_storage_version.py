"""zapdb's own tables: what the Alembic revisions make is what the code expects."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from tests.contract.tables import ITEMS
from tests.support import Workspace, dump, finish, wait_until
from zapdb.storage import (
    STORAGE_VERSION,
    Connection,
    TransactionMode,
    connect,
    ensure_storage,
    read_storage_version,
)
from zapdb.storage.fixed_tables import METADATA
from zapdb.storage.storage_version import (
    FIRST_STORAGE_VERSION,
    VERSION_TABLE,
    StorageUpgrade,
    list_upgrades,
    upgrades_directory,
)

pytestmark = pytest.mark.empty


def config(connection: Connection | None = None) -> Config:
    made = Config()
    made.set_main_option("script_location", str(upgrades_directory()))
    made.set_main_option("path_separator", "os")
    if connection is not None:
        made.attributes["connection"] = connection.core
    return made


def test_rule_34_the_head_of_the_revisions_is_the_layout_of_this_code() -> None:
    directory = ScriptDirectory.from_config(config())
    assert directory.get_heads() == [STORAGE_VERSION]
    assert [revision.revision for revision in directory.walk_revisions()][
        -1
    ] == FIRST_STORAGE_VERSION


def test_rule_10_each_revision_names_the_level_that_it_needs() -> None:
    found = [*ScriptDirectory.from_config(config()).walk_revisions()][::-1]
    assert list_upgrades() == [StorageUpgrade(one.revision, one.module.LEVEL) for one in found]


def test_rule_10_the_revisions_make_the_tables_that_the_code_expects(workspace: Workspace) -> None:
    storage = workspace.connect()
    ensure_storage(storage, create=True)
    connection = storage.connection()
    context = MigrationContext.configure(
        connection.core, opts={"version_table": VERSION_TABLE, "compare_server_default": True}
    )
    assert compare_metadata(context, METADATA) == []
    # What a comparison by Alembic leaves out.
    inspector = sa.inspect(connection.core)
    for table in METADATA.tables.values():
        key = inspector.get_pk_constraint(table.name)["constrained_columns"]
        assert key == [column.name for column in table.primary_key]
        defaults = {c["name"]: c["default"] for c in inspector.get_columns(table.name)}
        assert set(defaults.values()) == {None}


def test_rule_10_the_revisions_own_nothing_else(workspace: Workspace) -> None:
    storage = workspace.connect()
    ensure_storage(storage, create=True)
    made = storage.dialect.table_names(storage.connection())
    assert set(made) == {*METADATA.tables, VERSION_TABLE}


def test_rule_10_a_downgrade_takes_the_tables_away(workspace: Workspace) -> None:
    storage = workspace.connect()
    ensure_storage(storage, create=True)
    with storage.transaction(TransactionMode.CATALOG) as connection:
        command.downgrade(config(connection), "base")
    assert storage.dialect.table_names(storage.connection()) == [VERSION_TABLE]
    with storage.transaction(TransactionMode.CATALOG) as connection:
        command.upgrade(config(connection), "head")
    assert read_storage_version(storage) == STORAGE_VERSION
    workspace.write(1, ITEMS)
    workspace.open().table("items").insert(id=1, title="Milk")


@pytest.mark.on_each_engine
def test_a_creation_that_fails_half_way_leaves_nothing(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    from alembic.operations import Operations

    make = Operations.create_table

    def fail(self: Any, name: str, *columns: Any) -> Any:
        if name == "zapdb_ranges":
            raise RuntimeError("no more room")
        return make(self, name, *columns)

    monkeypatch.setattr(Operations, "create_table", fail)
    storage = workspace.connect()
    with pytest.raises(RuntimeError, match="no more room"):
        ensure_storage(storage, create=True)
    assert dump(workspace) == {}
    monkeypatch.undo()
    ensure_storage(storage, create=True)
    assert read_storage_version(storage) == STORAGE_VERSION


@pytest.mark.parametrize("engine", ["postgresql"])
@pytest.mark.on_each_engine
def test_a_creation_whose_session_the_server_ends_is_run_again(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where its process does nothing for long, on a machine that has too much to do."""
    from alembic.operations import Operations

    monkeypatch.setattr("zapdb.storage.postgresql.CATALOG_IDLE_SECONDS", 0.1)
    storage, make = workspace.connect(), Operations.create_table
    backend = storage.connection().driver.info.backend_pid
    is_gone = "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = ?"
    tables, left = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'", list[str]()

    def pause(self: Any, name: str, *columns: Any) -> Any:
        if name == "zapdb_ranges":
            wait_until(lambda: workspace.execute(is_gone, (backend,)) == [(True,)], "it was ended")
            monkeypatch.undo()
            left.extend(name for (name,) in workspace.execute(tables))
        return make(self, name, *columns)

    monkeypatch.setattr(Operations, "create_table", pause)
    ensure_storage(storage, create=True)
    assert Operations.create_table is make  # it was ended
    assert left == []
    assert read_storage_version(storage) == STORAGE_VERSION


@pytest.mark.on_each_engine
def test_a_reader_beside_the_first_opening_is_waited_for(tmp_path: Path) -> None:
    """SQLite itself does not wait where the journal's mode is changed."""
    path = tmp_path / "x.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("CREATE TABLE t (a)")
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM t").fetchall()
        storage = connect(f"sqlite:///{path}")
        preparing = threading.Thread(target=storage.engine.prepare, args=(storage.connection,))
        preparing.start()
        preparing.join(0.3)
        assert preparing.is_alive()
        reader.execute("COMMIT")
        finish(preparing)
        assert not preparing.is_alive()
        storage.close()
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("PRAGMA journal_mode").fetchone() == ("wal",)
