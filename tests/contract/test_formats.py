"""The next formats of records, keys and documents: written from their level on, and read by a
release that knows them alone (rules 10 and 34)."""

from __future__ import annotations

import json

import pytest

from tests.contract.peer import open_peer, start_peer
from tests.contract.tables import ADD_COLOR, ADD_WEIGHT, INDEX_SIZE, ITEMS
from tests.support import Workspace, dump
from zapdb import formats, release
from zapdb.errors import CorruptCatalog, IncompatibleVersion, InvalidMigration

LEVEL = release.LEVEL + 1
NEWER = {"level": LEVEL, "formats": LEVEL}
"""The options of a peer of the next release."""
BY_TITLE = "create_index: {table: items, index: by_title, fields: [{field: title}]}"


def numbers_of(workspace: Workspace) -> tuple[list[int], list[int]]:
    """The formats of the table's revisions, in order, and of its indexes."""
    records = workspace.execute("SELECT record_format FROM zapdb_schema_history ORDER BY revision")
    rows = workspace.execute("SELECT value FROM zapdb_catalog WHERE kind = 'index' ORDER BY key")
    return [int(n) for (n,) in records], [json.loads(text)["key_format"] for (text,) in rows]


def keys_of(workspace: Workspace, number: int) -> list[bytes]:
    """The keys of the entries of an index."""
    ((text,),) = workspace.execute(
        "SELECT value FROM zapdb_catalog WHERE kind = 'index' AND key = ?", (f"1/{number}",)
    )
    found = workspace.execute(f"SELECT key FROM zapdb_entries_{json.loads(text)['entry_table']}")
    return [bytes(key) for (key,) in found]


def raise_version(workspace: Workspace, number: int) -> None:
    """Have a file's document be of the next version."""
    (path,) = workspace.directory.glob(f"{number:04d}_*.yaml")
    path.write_text(path.read_text().replace("zapdb: 1", "zapdb: 2"))


@pytest.mark.long_on("sqlite")
def test_rule_10_the_next_formats_are_written_from_their_level_on(workspace: Workspace) -> None:
    workspace.write(1, ITEMS, INDEX_SIZE)
    db = workspace.open()
    db.table("items").insert(id=1, title="Milk", size=3)
    with open_peer(workspace, **NEWER) as newer:
        workspace.write(2, ADD_COLOR)
        assert newer.ask("up") == "2"
        assert newer.ask("insert 2") == "written"
        assert numbers_of(workspace) == ([1, 1], [1])  # not beyond what all processes read
        assert db.table("items").get(2).title == "mine"
        workspace.write(3, ADD_WEIGHT)
        raise_version(workspace, 3)
        before = dump(workspace)
        assert newer.ask("up").startswith(
            "IncompatibleVersion | some running processes do not support"
        )
        assert dump(workspace) == before
        db.close()
        assert newer.ask("up") == "3"
        assert newer.ask("level") == str(LEVEL)
        workspace.write(4, BY_TITLE)
        assert newer.ask("up") == "4"
        assert newer.ask("jobs") == "done"
        assert newer.ask("insert 4") == "written"
        assert numbers_of(workspace) == ([1, 1, 2, 2], [1, 2])
    assert {key[:1] for key in keys_of(workspace, 1)} == {b"\x01"}
    assert {key[:1] for key in keys_of(workspace, 2)} == {b"\x07"}
    with start_peer(workspace) as older:
        assert older.answer().startswith("IncompatibleVersion | the database uses features")
    with open_peer(workspace, **NEWER) as newer:
        assert newer.ask("find size 3") == "[1] by by_size"
        assert newer.ask("find title mine") == "[2, 4] by by_title"
        assert newer.ask("find title Milk") == "[1] by by_title"


@pytest.mark.parametrize("name", ["record", "key", "document"])
def test_rule_34_a_number_that_is_not_known_is_refused_by_what_it_stands_with(
    workspace: Workspace, name: formats.FormatName, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the level says: nothing is taken for what it is not."""
    workspace.write(1, ITEMS, INDEX_SIZE)
    workspace.open().close()
    monkeypatch.setitem(formats.LEVELS, name, {9: 1})
    with pytest.raises(IncompatibleVersion, match="a later release wrote this") as caught:
        workspace.open("never")._catalog.read_whole()  # opening reads no document
    found = caught.value
    assert (found.context["format"], found.context["known"]) == (f"{name} 1", "9")
    assert found.context["migration" if name == "document" else "table"]
    assert found.hint == "use a newer release of zapdb"


@pytest.mark.parametrize("number", [None, True, 0, -1, 1.0, 1.5, "1", b"\x01", [], {}])
def test_rule_34_what_is_no_number_of_a_format_is_corrupt(number: object) -> None:
    """A later release is named only where one could have written it."""
    with pytest.raises(CorruptCatalog, match="has no format") as caught:
        formats.require_known("document", number, migration="people")
    assert caught.value.context["migration"] == "people"
    assert caught.value.hint
    with pytest.raises(IncompatibleVersion, match="a later release wrote this"):
        formats.require_known("document", 1 << 70)


def test_rule_34_a_file_of_a_later_version_is_refused_at_its_line(workspace: Workspace) -> None:
    workspace.write(1, ITEMS)
    raise_version(workspace, 1)
    with pytest.raises(InvalidMigration, match="reads documents of version 1") as caught:
        workspace.open()
    assert "0001_test.yaml:1" in str(caught.value)


def test_rule_34_records_of_an_earlier_format_are_stale(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A revision with another format has a layout of its own, though nothing else changed."""
    workspace.write(1, ITEMS)
    db = workspace.open()
    db.table("items").insert(id=1, title="Milk")
    db.close()
    monkeypatch.setitem(formats.LEVELS, "record", {1: 1, 2: 1})
    workspace.write(2, INDEX_SIZE)
    with workspace.open() as db:
        found = db._catalog.tables["items"]
        assert (found.revision, found.layout_revision) == (2, 2)
        assert db.table("items").get(1).title == "Milk"
        assert [report.job.kind for report in db.admin.run_jobs()] == ["index", "convert"]
        assert db.table("items").get(1).title == "Milk"
