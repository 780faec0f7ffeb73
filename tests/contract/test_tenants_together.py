"""Tenants of one process in one transaction or snapshot, and what a jump of one leaves behind."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.tables import ADD_COLOR, ADD_WEIGHT, INDEX_SIZE, INDEX_TITLE, ITEMS
from tests.support import Workspace
from zapdb.activation.rollback import roll_back
from zapdb.database import Database

BOXES = "create_table: {table: boxes, key: [id], fields: [{name: id, type: integer}]}"


def begin(workspace: Workspace) -> tuple[Database, Database]:
    """A process with two tenants open, at migration 1."""
    workspace.write(1, ITEMS)
    db = workspace.open()
    db.admin.create_tenant("acme")
    return db, db.for_tenant("acme")


def go_on(workspace: Workspace, number: int, *operations: str) -> Database:
    """Another process brings both tenants to one more migration; acme as that one has it."""
    workspace.write(number, *operations)
    other = workspace.open()
    acme = other.for_tenant("acme")
    other.admin.run_jobs()
    acme.admin.run_jobs()
    return acme


@pytest.mark.on_each_engine
def test_rule_07_a_write_in_another_tenants_transaction_knows_what_is_in_force(
    workspace: Workspace,
) -> None:
    db, acme = begin(workspace)
    theirs = go_on(workspace, 2, INDEX_SIZE, ADD_COLOR)
    with db.transaction():
        db.table("items").insert(id=1, title="x")
        acme.table("items").insert(id=1, title="x", size=5)
        with acme.transaction():
            acme.table("items").insert(id=2, title="y", size=6)
    assert [record.id for record in theirs.table("items").using("by_size")] == [1, 2]
    (report,) = theirs.admin.verify()
    assert report.problems == ()


def test_rule_08_another_tenants_snapshot_ends_for_all(workspace: Workspace) -> None:
    db, acme = begin(workspace)
    items = acme.table("items")
    items.insert(id=1, title="x")
    go_on(workspace, 2, ADD_COLOR)
    with db.snapshot():
        assert items.get(1).title == "x"
        go_on(workspace, 3, INDEX_SIZE)
        assert items.get(1).title == "x"
    theirs = go_on(workspace, 4, INDEX_TITLE, ADD_WEIGHT)
    assert [record.id for record in items.scan()] == [1]
    items.insert(id=2, title="y")
    assert [record.weight for record in theirs.table("items").scan()] == [7, 7]
    (report,) = theirs.admin.verify()
    assert report.problems == ()


@pytest.mark.parametrize(
    "newest", [INDEX_SIZE, BOXES, "rename_field: {table: items, field: size, to: extent}"]
)
def test_rule_13_a_rollback_of_a_part_of_a_jump_leaves_records_readable(
    workspace: Workspace, newest: str
) -> None:
    """Of the two migrations that acme jumped over, the newest left the layout as it was."""
    db, acme = begin(workspace)
    acme.table("items").insert(id=1, title="x")
    db.close()
    workspace.write(2, ADD_COLOR)
    workspace.open().close()
    workspace.write(3, newest)
    with workspace.open() as db:
        db.for_tenant("acme").table("items").insert(id=2, title="y", color="blue")
    roll_back(workspace.connect())
    workspace.remove(3)

    def check(acme: Database, more: dict[str, Any]) -> None:
        items = acme.table("items")
        assert [(r.id, r.title, r.color) for r in items] == [(1, "x", "red"), (2, "y", "blue")]
        assert all(getattr(record, name) == more[name] for name in more for record in items)
        for report in acme.admin.verify():
            assert report.problems == ()

    with workspace.open() as db:
        check(db.for_tenant("acme"), {})
        db.for_tenant("acme").admin.run_jobs()
        check(db.for_tenant("acme"), {})
    workspace.write(3, ADD_WEIGHT)
    with workspace.open() as db:
        check(db.for_tenant("acme"), {"weight": 7})
    roll_back(workspace.connect())
    workspace.remove(3)
    roll_back(workspace.connect())
    workspace.remove(2)
    with workspace.open() as db:
        assert [r.id for r in db.for_tenant("acme").table("items")] == [1, 2]
