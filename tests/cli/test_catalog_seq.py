"""What changes the catalog says by which seq other processes have seen it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support import Workspace
from zapdb.catalog import (
    row_kinds,
)
from zapdb.cli.program import run_program

ITEMS = """\
create_table: {table: items, key: [id], fields: [
      {name: id, type: integer}, {name: title, type: string}]}"""
LISTS = "create_table: {table: lists, key: [id], fields: [{name: id, type: integer}]}"


def test_each_change_of_the_catalog_gives_a_seq(
    workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    workspace.write(1, ITEMS)

    def call(*arguments: str) -> dict[str, Any]:
        assert run_program([*arguments, "-d", workspace.address, "--json"]) == 0
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    migrations = ("-m", str(workspace.directory))
    first = call("migrate", "up", *migrations)["seq"]
    db = workspace.follow()
    assert db.admin.wait_for_catalog(first).position == 1
    workspace.write(2, LISTS)
    seq = call("migrate", "up", *migrations)["seq"]
    assert seq > first
    assert [state.schema.name for state in db.admin.wait_for_catalog(seq).tables] == [
        "items",
        "lists",
    ]
    assert db.table("lists").insert(id=1).id == 1  # this process works with it by now
    # A process that applies nothing has the seq of what is there already.
    assert call("migrate", "up", *migrations)["seq"] >= seq

    seqs = [seq]
    seqs.append(call("tenant", "create", "acme")["seq"])
    seen = db.admin.wait_for_catalog(seqs[-1]).cache.list(row_kinds.Tenant)
    assert "acme" in {tenant.name for tenant in seen}
    seqs.append(db.admin.create_tenant("other"))
    seqs.append(call("tenant", "remove", "acme", "--yes")["seq"])
    seqs.append(call("settings", "set", "schema_changes", "allow")["seq"])
    seqs.append(call("convert", "run")["seq"])
    seqs.append(call("reindex", "run")["seq"])
    seqs.append(call("cluster", "upgrade")["seq"])
    seqs.append(call("cluster", "evict", "--expired", "--yes")["seq"])
    assert seqs == sorted(seqs)
    assert seqs[1] > seqs[0]
    assert seqs[3] > seqs[2]
    for seq in seqs:
        assert db.admin.wait_for_catalog(seq).seq >= seq

    db.table("items").insert(id=1, title="Milk")
    workspace.write(3, "create_index: {table: items, index: titles, fields: [{field: title}]}")
    other = workspace.open()
    (report,) = other.admin.run_jobs()
    assert seqs[-1] < report.seq <= other.admin.catalog_seq()
    (index,) = db.admin.wait_for_catalog(report.seq).tables[0].indexes
    assert index.state == "readable"
    other.close()
    workspace.remove(3)
    call("migrate", "rollback", "--to", "2", "--yes")

    workspace.remove(2)
    seq = call("migrate", "rollback", "--to", "1", "--yes")["seq"]
    assert seq > seqs[-1]
    assert db.admin.wait_for_catalog(seq).position == 1
