"""The catalog as `db.sql` shows it."""

from __future__ import annotations

import re
from typing import Any

from tests.contract.tables import ADD_COLOR, INDEX_SIZE, ITEMS
from tests.support import Workspace
from zapdb.database import Database
from zapdb.jobs.findings import add_findings
from zapdb.sql import RELATIONS
from zapdb.storage import TransactionMode


def test_rule_30_the_catalog_is_readable(workspace: Workspace) -> None:
    workspace.write(1, ITEMS, INDEX_SIZE)
    db = workspace.open()
    workspace.write(2, ADD_COLOR)
    db = workspace.open()
    db.admin.set_setting("served_window", "7")

    def ask(statement: str) -> list[tuple[Any, ...]]:
        return db.sql(statement).fetchall()

    for relation in RELATIONS.values():
        assert db.sql(f"SELECT * FROM {relation.name}").columns == tuple(relation.columns)
    assert ask("SHOW TABLES") == [("items",), *((name,) for name in RELATIONS), ("zapdb_audit",)]
    told = set(re.findall("zapdb_[a-z_]+", str(Database.sql.__doc__)))
    assert told
    assert told <= RELATIONS.keys()
    migrations = "SELECT number, state, active, stored_by FROM zapdb_migrations ORDER BY 1"
    assert [row[:3] for row in ask(migrations)] == [(1, "stored", True), (2, "stored", True)]
    shown = db.admin.schema_history("items")[-1]
    newest = ask("SELECT max_by(fingerprint, revision), count(*) FROM zapdb_schema_history")
    assert newest == [(f"0x{shown.fingerprint:016x}", len(db.admin.schema_history("items")))]
    assert ask("SELECT name, position FROM zapdb_tenants") == [("default", 2)]
    assert ask("SELECT name, key FROM zapdb_tables") == [("items", ["id"])]
    fields = "SELECT name, type, key_position, default_value FROM zapdb_fields"
    assert ask(fields)[::4] == [("id", "integer", 1, None), ("color", "string", None, "red")]
    (index,) = ask("SELECT name, fields, is_unique FROM zapdb_indexes")
    assert index == ("by_size", [{"collation": None, "descending": False, "field": "size"}], False)
    assert ("served_window", "7") in ask("SELECT name, value FROM zapdb_settings")
    assert ask("SELECT value->>'stored_end' FROM zapdb_catalog WHERE kind = 'chain'") == [("2",)]
    joined = "SELECT count(*) FROM items, zapdb_tables t WHERE t.name = 'items'"
    assert ask(joined) == [(0,)]


def test_no_tenant_sees_what_was_found_in_the_records_of_another(workspace: Workspace) -> None:
    """What blocks a job names records and their values."""
    workspace.write(1, ITEMS)
    db = workspace.open()
    db.admin.create_tenant("acme")
    for tenant, title in (("default", "ours"), ("acme", "theirs")):
        for number in range(2):
            db.for_tenant(tenant).table("items").insert(id=number, title=title)
    unique = "create_index: {table: items, index: one, unique: true, fields: [{field: title}]}"
    workspace.write(2, unique)
    db = workspace.open()
    for tenant in ("default", "acme"):
        (report,) = db.for_tenant(tenant).admin.run_jobs()
        assert report.job.state == "blocked"
    storage = db._storage
    with storage.transaction(TransactionMode.CATALOG) as connection:
        add_findings(connection, report.job.id, 0, report.job.findings)  # as while it runs
    found = db.sql("SELECT kind, value FROM zapdb_catalog WHERE kind IN ('job', 'finding')")
    assert [kind for kind, _ in found.fetchall()] == ["job"]
    assert "ours" in str(found.fetchall())
    assert "theirs" not in str(found.fetchall())


def test_no_relation_tells_of_another_tenant_or_of_a_process(workspace: Workspace) -> None:
    """Neither the name of one, its settings, jobs and indexes, nor a process."""
    workspace.write(1, ITEMS, INDEX_SIZE)
    db = workspace.open()
    db.admin.create_tenant("strangers")
    other = db.for_tenant("strangers")
    other.table("items").insert(id=1, title="theirs")
    other.admin.set_setting("history_grace_seconds", "471147", tenant="strangers")
    other.jobs.list()
    workspace.write(2, ADD_COLOR, "drop_index: {table: items, index: by_size}")
    db.close()
    db = workspace.open()
    db.for_tenant("strangers").admin.run_jobs()
    node = db.admin.nodes()[0].node
    for tenant, marks in (("default", ["strangers", "471147"]), ("strangers", ["default"])):
        told = ""
        for relation in RELATIONS.values():
            if relation.name != "zapdb_fields":  # where `default` is a word
                found = db.for_tenant(tenant).sql(f"SELECT * FROM {relation.name}")
                told += f"{relation.name}: {found.fetchall()}\n"
        for mark in [*marks, node.id]:
            assert mark not in told, mark
        tenants = {one.name: one.number for one in db.admin.tenants()}
        catalog = "SELECT kind, key, value FROM zapdb_catalog"
        for kind, _, value in db.for_tenant(tenant).sql(catalog).fetchall():
            assert value.get("tenant", tenants[tenant]) == tenants[tenant], kind
