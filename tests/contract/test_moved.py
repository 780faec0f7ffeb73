"""Records that are changed under a newer schema between being read and being decoded.

What was dropped is read from the archive when a record is decoded. Where it is there no more, the
record is what others made of it meanwhile: under a schema that its reader has not heard of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tests.contract.tables import ADD_COLOR, INDEX_SIZE, ITEMS
from tests.support import Workspace
from zapdb.activation import rollback
from zapdb.database import Database
from zapdb.tables.indexes import BoundTable

pytestmark = pytest.mark.long_on("postgresql")

COUNT = 40
DROP_NOTE = """\
drop_field: {table: items, field: note, restore: {archive: true, otherwise: {value: lost}}}"""
DROP_TITLE = """\
drop_field: {table: items, field: title, restore: {archive: true, otherwise: {value: lost}}}"""
RESTORE_NOTE = """\
restore_field: {table: items, field: note, archived_by: 2, otherwise: {value: never}}"""
ALL = [(at, f"title {at}", f"note {at}") for at in range(COUNT)]

READS: dict[str, Callable[[Any], Iterator[Any]]] = {
    "scan": lambda items: items.scan(),
    "query": lambda items: iter(items.where(items.f.title != "none")),
    "index": lambda items: iter(items.using("by_size")),
}


@pytest.fixture
def older(workspace: Workspace) -> Database:
    """A process whose files end at migration 1; 2 is in force, and all is converted to it."""
    workspace.write(1, ITEMS, INDEX_SIZE)
    older = workspace.open()
    older.table("items").insert_many(
        {"id": at, "title": title, "note": note, "size": at} for at, title, note in ALL
    )
    workspace.write(2, DROP_NOTE, ADD_COLOR)
    convert(workspace)
    return older


def convert(place: Workspace) -> None:
    with place.open() as db:
        db.admin.run_jobs()


def roll_back(place: Workspace, number: int) -> None:
    assert rollback.roll_back(place.connect()).migrations[0].number == number
    place.remove(number)


def seen(records: Any) -> list[tuple[int, str, str]]:
    return [(r.id, r.title, r.note) for r in records]


@pytest.mark.parametrize("read", READS)
def test_rule_11_no_read_fails_where_a_migration_is_rolled_back(
    workspace: Workspace, older: Database, read: str
) -> None:
    found = READS[read](older.table("items"))
    first = next(found)
    roll_back(workspace, 2)
    assert seen([first, *found]) == ALL
    assert seen(READS[read](older.table("items"))) == ALL


@pytest.mark.parametrize("read", READS)
def test_rule_11_no_read_fails_where_another_takes_its_place(
    workspace: Workspace, older: Database, read: str
) -> None:
    """What that one archives is read, too."""
    found = READS[read](older.table("items"))
    first = next(found)
    roll_back(workspace, 2)
    workspace.write(2, DROP_TITLE, name="other")
    convert(workspace)
    assert seen([first, *found]) == ALL


AT_ONCE: dict[str, Callable[[Any], list[Any]]] = {
    "many": lambda items: items.get_many(range(COUNT)),
    "arrow": lambda items: [
        SimpleNamespace(**row) for row in items.to_arrow().read_all().to_pylist()
    ],
    "one": lambda items: [items.get(at) for at in range(COUNT)],
}


def do_between(
    db: Database, monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]
) -> list[bool]:
    """Do something right between the first page that is read and its records; notes that it was."""
    ask, struck = db._session.read_active, list[bool]()

    def ask_and_act(bound: BoundTable, question: Any) -> Any:
        answer = ask(bound, question)
        if answer[1] is not None and not struck:
            struck.append(True)
            act()
        return answer

    monkeypatch.setattr(db._session, "read_active", ask_and_act)
    # So that it is asked for one record, too.
    monkeypatch.setattr(db._session, "writes_back", lambda _: True)
    return struck


@pytest.mark.parametrize("read", AT_ONCE)
def test_rule_11_what_is_decoded_at_once_is_read_on(
    workspace: Workspace, older: Database, read: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    struck = do_between(older, monkeypatch, lambda: roll_back(workspace, 2))
    assert seen(AT_ONCE[read](older.table("items"))) == ALL
    assert struck


@pytest.mark.parametrize("drops", [(DROP_NOTE, DROP_TITLE), (DROP_TITLE, DROP_NOTE)])
def test_rule_11_of_several_dropped_fields_some_come_back(
    workspace: Workspace, drops: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The archive of one is consumed, and that of the other stays."""
    workspace.write(1, ITEMS)
    older = workspace.open()
    older.table("items").insert_many({"id": at, "title": t, "note": n} for at, t, n in ALL)
    workspace.write(2, drops[0])
    workspace.write(3, drops[1])
    convert(workspace)
    struck = do_between(older, monkeypatch, lambda: roll_back(workspace, 3))
    assert seen(older.table("items").get_many(range(COUNT))) == ALL
    assert struck


def test_rule_11_a_record_is_read_as_of_one_moment(
    workspace: Workspace, older: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The archived fields are not those of another version than the rest."""
    workspace.remove(2)
    other = workspace.open(apply="never").table("items")
    struck = do_between(older, monkeypatch, lambda: other.update(1, size=99, note="new"))
    record = older.table("items").get(1)
    assert struck
    assert (record.size, record.note) in {(1, "note 1"), (99, "new")}


def test_rule_11_a_position_that_was_rolled_back_is_read_to_the_end(
    workspace: Workspace, older: Database
) -> None:
    """Of a process that sees whatever is in force; a way leads back over what was rolled back."""
    workspace.write(3, RESTORE_NOTE)
    with workspace.open():
        follower = workspace.follow()
    scans = [follower.table("items").scan() for _ in range(2)]
    first = [next(scan) for scan in scans]
    roll_back(workspace, 3)
    roll_back(workspace, 2)
    assert seen([first[0], *scans[0]]) == ALL
    workspace.write(2, DROP_TITLE, name="other")
    convert(workspace)
    left = [(record.id, record.note) for record in (first[1], *scans[1])]
    assert left == [(at, note) for at, _, note in ALL]
    assert [record.id for record in follower.table("items").scan()] == list(range(COUNT))
