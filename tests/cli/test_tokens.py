"""What changes the catalog says by which token other processes have seen it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support import Workspace
from zapdb.catalog import kinds
from zapdb.cli.program import run_program

ITEMS = """\
create_table: {table: items, key: [id], fields: [
      {name: id, type: integer}, {name: title, type: string}]}"""
LISTS = "create_table: {table: lists, key: [id], fields: [{name: id, type: integer}]}"


def test_each_change_of_the_catalog_gives_a_token(
    workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    workspace.write(1, ITEMS)

    def call(*arguments: str) -> dict[str, Any]:
        assert run_program([*arguments, "-d", workspace.address, "--json"]) == 0
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    migrations = ("-m", str(workspace.directory))
    first = call("migrate", "up", *migrations)["token"]
    db = workspace.follow()
    assert db.admin.wait_for_catalog(first).position == 1
    workspace.write(2, LISTS)
    token = call("migrate", "up", *migrations)["token"]
    assert token > first
    assert [state.table.name for state in db.admin.wait_for_catalog(token).tables] == [
        "items",
        "lists",
    ]
    assert db.table("lists").insert(id=1).id == 1  # this process works with it by now
    # Whoever applies nothing has the token of what is there already.
    assert call("migrate", "up", *migrations)["token"] >= token

    tokens = [token]
    tokens.append(call("tenant", "create", "acme")["token"])
    seen = db.admin.wait_for_catalog(tokens[-1]).rows.list(kinds.Tenant)
    assert "acme" in {tenant.name for tenant in seen}
    tokens.append(db.admin.create_tenant("other"))
    tokens.append(call("tenant", "remove", "acme", "--yes")["token"])
    tokens.append(call("settings", "set", "schema_changes", "allow")["token"])
    tokens.append(call("convert", "run")["token"])
    tokens.append(call("reindex", "run")["token"])
    tokens.append(call("cluster", "upgrade")["token"])
    tokens.append(call("cluster", "evict", "--expired", "--yes")["token"])
    assert tokens == sorted(tokens)
    assert tokens[1] > tokens[0]
    assert tokens[3] > tokens[2]
    for token in tokens:
        assert db.admin.wait_for_catalog(token).token >= token

    db.table("items").insert(id=1, title="Milk")
    workspace.write(3, "create_index: {table: items, index: titles, fields: [{field: title}]}")
    other = workspace.open()
    (report,) = other.admin.run_jobs()
    assert tokens[-1] < report.token <= other.admin.catalog_token()
    (index,) = db.admin.wait_for_catalog(report.token).tables[0].indexes
    assert index.state == "readable"
    other.close()
    workspace.remove(3)
    call("migrate", "forget", "--to", "2", "--yes")

    workspace.remove(2)
    token = call("migrate", "forget", "--to", "1", "--yes")["token"]
    assert token > tokens[-1]
    assert db.admin.wait_for_catalog(token).position == 1
