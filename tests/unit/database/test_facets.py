"""What an open database has is what its reader needs: each facet's names are listed here."""

from __future__ import annotations

from pathlib import Path

import pytest

import zapdb
from tests.documents import document

TABLE = "create_table: {table: items, key: [id], fields: [{name: id, type: integer}]}"
DATABASE = (
    "admin applied at audit before change_log close diff diff_schemas for_tenant history jobs "
    "moments on_catalog_change position run snapshot sql"
)
ADMIN = (
    "catalog catalog_seq cluster_level count_by_revision create_tenant find_fingerprint "
    "forget_rolled_back metrics nodes rehearse rehearse_rollback reindex remove_tenant repair "
    "run_jobs schema_history set_setting setting settings sweep tenants verify wait_for_catalog"
)
CHANGE_LOG = "begin end follower followers prune read read_back read_moment status"
JOBS = "cancel get list pause resume set_priority throttle"
HISTORY = (
    "erase erase_fields flush follow move purge rebuild_manifest repair run start status stop "
    "verify wait"
)


@pytest.fixture
def db(tmp_path: Path) -> zapdb.Database:
    (tmp_path / "0001_items.yaml").write_text(document(TABLE))
    return zapdb.open(f"sqlite:///{tmp_path / 'test.db'}", migrations=tmp_path, apply="auto")


def names_of(found: object) -> list[str]:
    return [name for name in dir(found) if not name.startswith("_")]


def test_each_facet_has_what_its_reader_needs_and_no_internals(db: zapdb.Database) -> None:
    with db:
        assert names_of(db) == [*DATABASE.split(), "table", "tables", "transaction", "versions"]
        assert names_of(db.admin) == ADMIN.split()
        assert names_of(db.change_log) == CHANGE_LOG.split()
        assert names_of(db.jobs) == JOBS.split()
        assert names_of(db.history) == HISTORY.split()


def test_the_names_of_tables_are_those_of_the_processs_own_files(db: zapdb.Database) -> None:
    with db:
        assert db.tables == ("items",)
        with db.snapshot() as snap:
            assert snap.tables == ("items",)


def test_jobs_nodes_and_settings_are_listed(db: zapdb.Database) -> None:
    with db:
        db.admin.set_setting("on_read", "write_back", table="items")
        assert db.admin.settings()["on_read"] == "leave"
        assert db.admin.settings(table="items")["on_read"] == "write_back"
        (node,) = db.admin.nodes()
        assert node.is_alive
        assert db.jobs.list() == []


def test_a_tenant_is_created_and_removed(db: zapdb.Database) -> None:
    with db:
        db.admin.create_tenant("acme")
        db.for_tenant("acme").table("items").insert(id=1)
        removed = db.admin.remove_tenant("acme")
        assert removed.tenant.name == "acme"
        assert [tenant.name for tenant in db.admin.tenants()] == ["default"]
