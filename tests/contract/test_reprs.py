"""What a prompt shows of an open database: a line each, of what a reader needs and nothing else."""

from __future__ import annotations

import re

import pytest

from tests.support import Workspace
from zapdb.database import Database

ITEMS = (
    "create_table: {table: items, key: [id], fields: "
    "[{name: id, type: integer}, {name: title, type: string}]}"
)
INDEX = "create_index: {table: items, index: by_title, fields: [{field: title}]}"


@pytest.fixture
def db(workspace: Workspace) -> Database:
    workspace.address = workspace.address.replace("postgres@", "postgres:geheim@")
    workspace.write(1, ITEMS, INDEX)
    db = workspace.open()
    db.admin.set_setting("change_log", "on")
    db.table("items").insert(id=1, title="Milk")
    db.table("items").update(1, title="Tea")
    db.change_log.follower("search").advance(db.change_log.end())
    return db


def shown(found: object) -> str:
    """Its repr: one line, nothing packed, no JSON, no address in memory, no password."""
    text = repr(found)
    assert len(text) <= 300
    for unwanted in ("\n", "b'", '{"', " object at 0x", "geheim"):
        assert unwanted not in text, text
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", "TIME", text)
    return re.sub(r"by [^>]*>", "by SOMEBODY>", text)


def test_a_database_shows_its_address_tenant_and_position(db: Database) -> None:
    url = db._storage.shown_url
    assert shown(db) == f"<zapdb database {url}, tenant 'default', position 1>"
    db.admin.create_tenant("acme")
    acme = db.for_tenant("acme")
    assert shown(acme) == f"<zapdb database {url}, tenant 'acme', position 1>"
    assert shown(db.admin) == f"<admin of {url}>"
    assert shown(db.change_log) == f"<change log of {url}>"
    db.close()
    assert shown(db) == f"<zapdb database {url}, tenant 'default', position 1, closed>"


def test_transactions_and_tables_show_what_they_are(db: Database) -> None:
    assert shown(db.table("items")) == "<table 'items' (id, title)>"
    block = db.transaction()
    assert shown(block) == "<block of a transaction, not begun: use it in a with statement>"
    with block as tx:
        assert shown(block) == "<block of a transaction, begun>"
        assert shown(tx).startswith("<zapdb transaction, open, begun at ")
        assert shown(tx.savepoint()).startswith("<block of a savepoint, not begun")
    with db.snapshot() as snap:
        assert shown(snap).startswith("<zapdb snapshot, open, begun at ")
    assert shown(snap).startswith("<zapdb snapshot, ended, begun at ")


def test_what_admin_lists_is_a_line_each(db: Database) -> None:
    (tenant,) = db.admin.tenants()
    assert shown(tenant) == ("<tenant 'default', number 1, position 1, created TIME by SOMEBODY>")
    (node,) = db.admin.nodes()
    assert re.match(r"<node \w+, live: .* release .*, files end at 1, lease \d+ s>", shown(node))
    (entry,) = db.admin.schema_history("items")
    assert re.match(
        r"<revision 1 of table 1: create, position 1, fingerprint 0x\w{16}, TIME by", shown(entry)
    )
    catalog = db.admin.catalog()
    assert re.match(r"<zapdb catalog at seq \d+: migration 1, items>", shown(catalog))
    assert re.match(r"<catalog rows at seq \d+: \d+ rows>", shown(catalog.cache))
    assert shown(catalog.tables[0]) == "<table 'items': revision 1, index by_title readable>"
    assert shown(catalog.tenant) == "<tenant 1 at position 1: items>"
    assert db.admin.settings()["change_log"] == "on"  # a dict, as long as its settings
    assert repr(db.admin.metrics()).splitlines()[0].startswith("# HELP zapdb_")


def test_a_job_shows_its_table_and_state(workspace: Workspace, db: Database) -> None:
    workspace.write(2, "add_field: {table: items, field: {name: size, type: integer, default: 1}}")
    newer = workspace.open()
    newer.admin.run_jobs()
    (job,) = newer.jobs.list()
    assert shown(job) == "<job convert of 'items', done: 1 records, planned TIME>"


def test_changes_show_what_was_there_and_is(db: Database) -> None:
    switched, inserted, updated = list(db.change_log.read())
    assert shown(switched) == "<change_log_on, transaction 1, TIME by SOMEBODY>".replace(
        "transaction 1", f"transaction {switched.transaction}"
    )
    assert shown(inserted).startswith(
        "<insert in 'items', key (1,): items(id=1, title='Milk'), transaction "
    )
    assert "items(id=1, title='Milk') → items(id=1, title='Tea')" in shown(updated)
    assert shown(updated.bookmark) == f"<bookmark {updated.bookmark}>"
    (status,) = db.change_log.followers()
    assert shown(status) == "<follower 'search': 0 changes behind, 0.0 s, advanced TIME>"
