"""R9: a preview stores and registers nothing, and answers what `up` would make answerable.

That each of its answers is the one after `up` is shown by the random lives of `test_machine`.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import zapdb
import zapdb.aio
from tests import processes
from tests.cli.program import run_here
from tests.contract.tables import ADD_COLOR, INDEX_SIZE, INDEX_TITLE, ITEMS
from tests.support import Workspace
from zapdb.database import Database
from zapdb.errors import (
    InvalidMigration,
    MigrationConflict,
    NotProven,
    PendingMigrations,
    UnknownName,
    UsageError,
)
from zapdb.storage.fixed_tables import METADATA

INDEX_ITEM = "create_index: {table: orders, index: by_item, fields: [{field: item}]}"
ORDERS = """\
create_table: {table: orders, key: [id], fields: [
      {name: id, type: integer},
      {name: item, type: reference, to: items},
      {name: note, type: string, optional: true}]}"""
REFERENCE = "add_reference: {table: orders, field: item, on_delete: cascade}"
SIZE_AS_TEXT = """\
change_type: {table: items, field: size, type: string, default: "0",
      up: "text(size)", down: "integer(size, else=0)"}"""


@pytest.fixture
def place(workspace: Workspace) -> Workspace:
    """Four items, and a file that is not applied."""
    workspace.write(1, ITEMS)
    with workspace.open() as db:
        for number in range(4):
            db.table("items").insert(id=number, title=f"t{3 - number}", size=number * 10)
    return workspace


@pytest.fixture
def preview(place: Workspace) -> Callable[..., Any]:
    return lambda **options: zapdb.open(
        place.address, migrations=place.directory, preview=True, **options
    )


def dump(place: Workspace) -> dict[str, list[Any]]:
    return {
        table.name: sorted(map(repr, place.execute(f"SELECT * FROM {table.name}")))
        for table in METADATA.tables.values()
    }


def test_r9_a_preview_stores_and_registers_nothing(
    place: Workspace, preview: Callable[..., Any]
) -> None:
    place.write(2, ADD_COLOR, INDEX_SIZE, ORDERS)
    before = dump(place)
    with preview() as db:
        assert [record.color for record in db.table("items").scan()] == ["red"] * 4
        assert list(db.sql("SELECT count(*) AS n FROM items WHERE color = 'red'")) == [(4,)]
        assert list(db.table("orders").scan()) == []
        assert not db.admin.nodes()
        assert db.tables == ("items", "orders")
    assert dump(place) == before


def test_records_are_read_in_every_way(place: Workspace, preview: Callable[..., Any]) -> None:
    place.write(2, ADD_COLOR, SIZE_AS_TEXT, INDEX_TITLE, INDEX_SIZE)
    with preview() as db:
        items = db.table("items")
        assert items.get(2).size == "20"
        assert items.where(size="30").one().id == 3
        assert [item.id for item in items.order_by("title")] == [3, 2, 1, 0]
        assert [item.id for item in items.using("by_title")] == [3, 2, 1, 0]
        assert "by_size" in str(items.where(size="30").explain())
        assert items.where(color="red").count() == 4
        assert items.to_arrow().read_all().column("size").to_pylist() == ["0", "10", "20", "30"]
        with db.snapshot() as snap:
            place.open().table("items").insert(id=9, title="new", color="blue", size="9")
            assert snap.table("items").find(9) is None
        assert items.get(9).color == "blue"


def test_an_index_is_read_only_if_its_entries_stay_right(
    place: Workspace, preview: Callable[..., Any]
) -> None:
    place.write(2, INDEX_SIZE, INDEX_TITLE)
    with place.open() as db:
        db.table("items").insert(id=4, title="t", size=5)
        db.admin.run_jobs()
    place.write(3, SIZE_AS_TEXT, "rename_index: {table: items, index: by_title, to: by_name}")
    with preview() as db:
        items = db.table("items")
        assert [item.size for item in items.using("by_size")] == ["0", "10", "20", "30", "5"]
        assert items.where(size="5").one().id == 4
        assert items.readable_indexes() == ("by_name",)
        assert [item.id for item in items.using("by_name")] == [4, 3, 2, 1, 0]


@pytest.mark.parametrize(
    "read",
    [
        lambda t: list(t.scan()),
        lambda t: [one for one in [t.find(1)] if one],
        lambda t: [] if t.count() == 0 else ["some"],
        lambda t: list(t.where(item=1)),
        lambda t: list(t.where(t.f.id > 1).order_by("note")),
        lambda t: list(t.page(10).records),
        lambda t: [one for one in t.get_many([1, 2]) if one],
        lambda t: t.to_arrow().read_all().to_pylist(),
    ],
)
def test_a_table_that_is_not_there_yet_is_empty(
    place: Workspace, preview: Callable[..., Any], read: Callable[[Any], list[Any]]
) -> None:
    place.write(2, ORDERS, INDEX_ITEM, REFERENCE)
    with preview() as db:
        assert read(db.table("orders")) == []
        with db.snapshot() as snap:
            assert read(snap.table("orders")) == []
        assert list(db.sql("SELECT * FROM items JOIN orders ON orders.item = items.id")) == []


def test_a_table_comes_back_with_its_records(place: Workspace, preview: Callable[..., Any]) -> None:
    place.write(2, ADD_COLOR)
    place.write(3, "drop_table: {table: items, records: archive}")
    place.open().close()
    place.write(4, "restore_table: {table: items, archived_by: 3}")
    with preview() as db:
        assert [(item.id, item.color) for item in db.table("items").scan()] == [
            (number, "red") for number in range(4)
        ]


def test_a_preview_goes_on_when_its_files_are_applied(
    place: Workspace, preview: Callable[..., Any]
) -> None:
    place.write(2, ADD_COLOR, ORDERS)
    with preview() as seen:
        assert seen.table("items").get(1).color == "red"
        with place.open() as db:
            db.table("items").update(1, color="blue")
            db.table("orders").insert(id=1, item=1)
        assert seen.table("items").get(1).color == "blue"
        assert seen.table("orders").count() == 1


def test_what_was_made_before_its_files_were_applied(
    place: Workspace, preview: Callable[..., Any]
) -> None:
    """A table is found by its name; a query that holds a new field's number is made again."""
    place.write(2, ADD_COLOR, ORDERS)
    with preview() as seen:
        items, orders = seen.table("items"), seen.table("orders")
        held, all_items, all_orders = items.order_by("color"), items.order_by("id"), orders.where()
        with place.open() as db:
            db.table("orders").insert(id=1, item=1)
        assert [one.id for one in all_orders] == [1]
        assert orders.get(1).item == 1
        assert len(list(all_items)) == 4
        with pytest.raises(UnknownName, match="a field of the query was dropped"):
            list(held)
        assert len(list(items.order_by("color"))) == 4


def test_metrics_are_those_of_now(place: Workspace, preview: Callable[..., Any]) -> None:
    place.write(2, ORDERS)
    with preview() as seen:
        text = seen.admin.metrics()
    assert 'table="items"' in text
    assert 'table="orders"' not in text


def test_other_files_with_the_same_numbers_end_it(
    place: Workspace, preview: Callable[..., Any], tmp_path: Path
) -> None:
    place.write(2, ADD_COLOR)
    with preview() as seen:
        place.write(2, INDEX_SIZE)
        place.open().close()
        with pytest.raises(MigrationConflict):
            seen.table("items").get(1)


def test_files_up_to_a_number(place: Workspace, preview: Callable[..., Any]) -> None:
    place.write(2, ADD_COLOR)
    place.write(3, SIZE_AS_TEXT)
    with preview(serve_as=2) as seen:
        record = seen.table("items").get(1)
        assert (record.color, record.size) == ("red", 10)
        assert seen.position == 2
    with preview(serve_as=1) as seen:  # which is what is in force
        assert seen.position == 1
        assert not hasattr(seen.table("items").get(1), "color")
    place.open().close()
    with preview(serve_as=2) as seen:  # as any process whose files end there
        assert seen.table("items").get(1).size == 10


def test_each_tenant_is_seen_from_where_it_is(
    place: Workspace, preview: Callable[..., Any]
) -> None:
    with place.open() as db:
        db.admin.create_tenant("acme")
        db.for_tenant("acme").table("items").insert(id=7, title="x")
    place.write(2, ADD_COLOR)
    with preview() as seen, preview(tenant="acme") as other:
        for acme in (seen.for_tenant("acme"), other):
            assert [(item.id, item.color) for item in acme.table("items").scan()] == [(7, "red")]


@pytest.mark.parametrize(
    "ask",
    [
        lambda db: db.at("#1"),
        lambda db: list(db.moments()),
        lambda db: list(db.audit()),
        lambda db: db.change_log,
        lambda db: db.history,
        lambda db: db.table("items").history(1),
    ],
)
def test_a_preview_has_no_past(
    place: Workspace, preview: Callable[..., Any], ask: Callable[[Database], Any]
) -> None:
    place.write(2, ADD_COLOR)
    with preview() as db, pytest.raises(UsageError, match="a preview has no past"):
        ask(db)


@pytest.mark.parametrize("table", ["items", "orders"])
def test_a_preview_is_not_written_to(
    place: Workspace, preview: Callable[..., Any], table: str
) -> None:
    place.write(2, ORDERS)
    with preview() as db, pytest.raises(UsageError, match="read-only") as caught:
        db.table(table).insert(id=9, **{"items": {"title": "x"}, "orders": {"item": 1}}[table])
    assert "preview" in str(caught.value)


def test_what_can_not_be_previewed(
    place: Workspace, preview: Callable[..., Any], tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="needs migration files"):
        zapdb.open(place.address, preview=True)
    with pytest.raises(UsageError, match="applies no migrations"):
        preview(apply="auto")
    with pytest.raises(UsageError, match="can pin"):
        preview(pin={"items": 1})
    place.write(2, SIZE_AS_TEXT.replace("else=0)", "else=0) + 1"))
    with pytest.raises(NotProven):
        preview()
    place.write(2, "rename_table: {table: nothing, to: something}")
    with pytest.raises(InvalidMigration):
        preview()
    place.write(1, ITEMS.replace("size", "extent"))
    with pytest.raises(MigrationConflict):
        preview()
    with pytest.raises(UnknownName):
        preview(tenant="nobody")


def test_an_empty_database_has_no_preview(workspace: Workspace) -> None:
    workspace.write(1, ITEMS)
    with pytest.raises(PendingMigrations):
        zapdb.open(workspace.address, migrations=workspace.directory, preview=True)


def test_tasks_have_the_same(place: Workspace) -> None:
    place.write(2, ADD_COLOR, ORDERS)

    async def ask() -> None:
        async with zapdb.aio.open(place.address, migrations=place.directory, preview=True) as db:
            assert (await db.table("items").get(1)).color == "red"
            assert await db.table("orders").count() == 0
            with pytest.raises(UsageError, match="no past"):
                await db.at("#1")

    asyncio.run(ask())


# Commands


@pytest.fixture
def ask(place: Workspace) -> Callable[..., Any]:
    options = ["-d", place.address, "-m", str(place.directory), "--preview"]
    place.write(2, ADD_COLOR, SIZE_AS_TEXT, ORDERS)
    return lambda *arguments, stdin="": run_here([*arguments, *options], stdin)


def test_commands_read_by_the_schema_of_the_files(
    place: Workspace, ask: Callable[..., Any], tmp_path: Path
) -> None:
    assert json.loads(ask("data", "get", "items", "2", "--json").out)["color"] == "red"
    found = json.loads(ask("data", "list", "items", "--where", "size == '30'", "--json").out)
    assert [record["id"] for record in found["records"]] == [3]
    assert (
        ask("data", "export", "items", "-f", "csv", "-o", str(tmp_path / "items.csv")).status == 0
    )
    assert "color" in (tmp_path / "items.csv").read_text().splitlines()[0]
    assert ask("export", str(tmp_path / "x.sql"), "--sql", "sqlite").status == 0
    assert "orders" in (tmp_path / "x.sql").read_text()
    assert ask("shell", stdin="print(items.get(1).color)").out == "red\n"
    refused = ask("export", str(tmp_path / "whole"))
    assert refused.status == 2
    assert "--preview goes with --sql" in refused.err
    assert not (tmp_path / "whole").exists()


def test_two_answers_are_compared(ask: Callable[..., Any]) -> None:
    ordered = "SELECT id, CAST(size AS VARCHAR) AS size FROM items ORDER BY size"
    assert ask("sql", ordered, "--compare").out == "the answer is the same\n"
    statement = "SELECT CAST(max(size) AS VARCHAR) AS biggest FROM items WHERE id < 10"
    made = "SELECT CASE WHEN typeof(size) = 'VARCHAR' THEN id + 1 ELSE id END AS n FROM items"
    found = ask("sql", made, "--compare")
    assert found.out.splitlines()[-1] == "1 row removed, 1 row added"
    told = json.loads(ask("sql", made, "--compare", "--json").out)
    assert (told["removed"], told["added"]) == ([[0]], [[4]])
    assert ask("sql", statement, "--compare").status == 0
    differing = ask("sql", "SELECT size FROM items", "--compare")
    assert differing.status == 2
    assert "size BIGINT" in differing.err
    only_then = ask("sql", "SELECT color FROM items", "--compare")
    assert only_then.status == 2
    assert "not on the tables as they are" in only_then.err


def test_enums_are_compared_as_texts(place: Workspace) -> None:
    place.write(2, "create_type: {type: tint, enum: [red, green]}")
    place.write(3, "add_field: {table: items, field: {name: tint, type: tint, default: red}}")
    place.open().close()
    place.write(4, "alter_type: {type: tint, add: [{name: blue, back: red}]}")
    given = ["-d", place.address, "-m", str(place.directory), "--preview", "--compare"]
    found = run_here(["sql", "SELECT * FROM items", *given])
    assert found.out == "the answer is the same\n", found


def test_there_is_nothing_to_compare_without_a_preview(place: Workspace) -> None:
    refused = run_here(["sql", "SELECT 1", "--compare", "-d", place.address])
    assert refused.status == 2
    assert "add --preview" in refused.err


def test_the_fixture_of_pytest(place: Workspace, tmp_path: Path) -> None:
    """A test looks at a database that it is given the address of, or is skipped."""
    place.write(2, ADD_COLOR)
    project = tmp_path / "project"
    project.mkdir()
    (project / "conftest.py").write_text('pytest_plugins = ["zapdb.testing"]\n')
    (project / "test_it.py").write_text(
        "def test_it(zapdb_preview):\n"
        "    assert zapdb_preview.table('items').get(1).color == 'red'\n"
    )
    (project / "pytest.ini").write_text(f"[pytest]\nzapdb_migrations = {place.directory}\n")
    pytest_here = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]

    def run(*arguments: str) -> str:
        ended = processes.run(
            [*pytest_here, *arguments],
            cwd=project,
            env=os.environ | {"PYTHONPATH": str(Path(zapdb.__file__).parents[1])},
            capture_output=True,
            text=True,
        )
        return str(ended.stdout) + str(ended.stderr)

    assert "1 passed" in run("--zapdb-preview", place.address)
    assert "1 skipped" in run()
