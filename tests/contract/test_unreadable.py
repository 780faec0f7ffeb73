"""Records that can't be read are discarded or replaced, and what follows the change log goes on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.contract.mirrors import Place, check, keep
from tests.contract.tables import INDEX_SIZE, ITEMS
from tests.contract.test_repair import UNIQUE_TITLE
from tests.support import Workspace
from zapdb.activation.rollback import roll_back
from zapdb.cli.program import run_program
from zapdb.database import Database, RecordChange
from zapdb.errors import (
    EXIT_ERROR,
    CorruptRecord,
    HistoryUnavailable,
    RecordNotFound,
    ReferenceViolation,
    UniqueViolation,
    UsageError,
)
from zapdb.log.pending_changes import count_changes

KEEP_NOTES = """\
drop_field: {table: items, field: note, restore: {archive: true, otherwise: {value: none}}}"""
TAGS = """\
create_table: {table: tags, key: [id], fields: [
      {name: id, type: integer},
      {name: item, type: reference, to: items, optional: true}]}"""
BY_ITEM = "create_index: {table: tags, index: by_item, fields: [{field: item}]}"
LARGE = "x" * 100_000
DAMAGED = b"\x81\xff\xff\xff"


def refer(on_delete: str) -> str:
    return f"add_reference: {{table: tags, field: item, on_delete: {on_delete}}}"


def damage(place: Workspace, at: int, value: bytes = DAMAGED) -> bytes:
    """Give the item at a place in the order of keys other bytes; returns its key."""
    keys = sorted(bytes(key) for (key,) in place.execute("SELECT key FROM zapdb_records_1"))
    place.execute("UPDATE zapdb_records_1 SET value = ? WHERE key = ?", (value, keys[at]))
    return keys[at]


def make(place: Workspace, *operations: str) -> Database:
    place.write(1, ITEMS, INDEX_SIZE, UNIQUE_TITLE, *operations)
    db = place.open()
    rows = ({"id": at, "title": f"title {at}", "note": LARGE} for at in range(6))
    db.table("items").insert_many(rows)
    return db


def find_problems(db: Database) -> list[str]:
    return [problem for report in db.admin.verify() for problem in report.problems]


def test_rule_29_a_record_is_discarded_and_all_that_follows_goes_on(
    workspace: Workspace, tmp_path: Path
) -> None:
    mirror = Place("sqlite", f"sqlite:///{tmp_path / 'mirror.db'}")
    db = make(workspace)
    db.admin.set_setting("change_log", "on")
    db.history.start(tmp_path / "store")
    items = db.table("items")
    items.update(2, size=7)
    db.history.flush()
    keep(db, mirror)
    workspace.write(2, KEEP_NOTES)
    with workspace.open() as newer:
        newer.admin.run_jobs()
    db.history.flush()
    before = next(db.moments())
    follower = db.change_log.follower("reader")
    follower.advance(db.change_log.end())

    key = damage(workspace, 2)
    for write in (
        lambda: items.delete(2),
        lambda: items.upsert(id=2, title="new"),
        lambda: items.delete_where(items.f.size == 7),
        lambda: items.delete_many([2]),
    ):
        with pytest.raises(CorruptRecord, match="decoded") as caught:
            write()
        assert "zapdb data discard" in caught.value.hint
    with pytest.raises(UsageError, match="can be read"):
        items.discard_unreadable(1)
    with pytest.raises(RecordNotFound):
        items.discard_unreadable(99)

    discarded = db.run(lambda tx: tx.table("items").discard_unreadable(2))
    assert (discarded.table, discarded.key, discarded.value) == ("items", key, DAMAGED)
    assert find_problems(db) == []
    (change,) = follower.changes()
    assert isinstance(change, RecordChange)
    assert (change.operation, change.key, change.unreadable) == ("delete", (2,), DAMAGED)
    assert (change.before, change.after) == (None, None)
    keep(db, mirror)
    check(db, mirror)
    after = next(db.moments())

    # The past before has a record that can't be read, whatever was read of it earlier.
    past = db.at(before).table("items")
    for read in (
        lambda: past.get(2),
        lambda: list(past.scan()),
        lambda: past.to_arrow().read_all(),
        lambda: list(db.diff(before, after, tables=["items"])),
    ):
        with pytest.raises(CorruptRecord, match="decoded") as caught:
            read()
        assert (caught.value.context["table"], caught.value.context["key"]) == ("items", "2")
    assert past.get(1).title == "title 1"
    assert db.at(after).table("items").count() == 5
    versions = items.history(2)
    assert [(v.operation, v.record and v.record.size) for v in versions] == [
        ("baseline", 0),
        ("update", 7),
        ("delete", None),
    ]

    # What the log has of it owns no blobs that it does not name, and needs its table's schema.
    db.admin.sweep(older_than_seconds=0)
    assert find_problems(db) == []
    items.insert(id=2, title="title 2", size=8)
    db.history.flush()
    assert db.history.verify(sample=10).problems == ()
    follower.remove()
    db.change_log.prune(after.bookmark)
    assert db.at(before).table("items").get(2).size == 7  # as files have it, from before
    assert not db.at(after).table("items").exists(2)
    assert items.get(2).size == 8


def test_rule_29_a_history_that_begins_at_such_a_record_begins_behind_it(
    workspace: Workspace, tmp_path: Path
) -> None:
    db = make(workspace)
    db.admin.set_setting("change_log", "on")
    damage(workspace, 2)
    db.history.start(tmp_path / "store")
    with pytest.raises(CorruptRecord):
        db.history.flush()
    start = next(db.moments())
    db.table("items").discard_unreadable(2)
    after = next(db.moments())
    db.history.flush()
    db.table("items").insert(id=2, title="title 2")
    db.history.flush()
    assert db.history.verify(sample=10).problems == ()
    with db._session.reading() as connection:  # its change needs the schema of its time
        assert dict(count_changes(connection, 1, 1)) == {b"\x81": 2}
    db.history.erase_fields("items", "size")  # where it is in the bytes is not known
    changes = [made for made in db.change_log.read() if isinstance(made, RecordChange)]
    assert [made.unreadable for made in changes if made.operation == "delete"] == [b""]
    db.history.flush()
    db.change_log.prune(db.change_log.end())
    with pytest.raises(HistoryUnavailable):
        db.at(start).table("items").get(1)
    assert db.at(after).table("items").count() == 5
    assert db.at(next(db.moments())).table("items").count() == 6


def test_references_are_obeyed_and_a_replacement_keeps_them(workspace: Workspace) -> None:
    db = make(workspace, TAGS, BY_ITEM, refer("restrict"))
    items, tags = db.table("items"), db.table("tags")
    db.admin.set_setting("change_log", "on")
    tags.insert(id=1, item=3)
    key = damage(workspace, 3, b"")
    with pytest.raises(ReferenceViolation, match="other records refer to it"):
        items.discard_unreadable(3)
    with pytest.raises(UniqueViolation):
        items.discard_unreadable(3, replacement={"title": "title 4"})
    with pytest.raises(UsageError, match="key of a record cannot be changed"):
        items.discard_unreadable(3, replacement={"id": 9, "title": "new"})
    with pytest.raises(CorruptRecord):
        items.get(3)  # nothing was done
    assert items.discard_unreadable(stored_key=key, replacement={"title": "new"}).value == b""
    assert (items.get(3).title, tags.get(1).item) == ("new", 3)
    change = list(db.change_log.read())[-1]
    assert isinstance(change, RecordChange)
    assert (change.operation, change.replaced, change.unreadable) == ("update", True, b"")
    assert find_problems(db) == []


def test_rule_13_a_rollback_does_not_wait_for_it(
    workspace: Workspace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make(workspace, TAGS, BY_ITEM, refer("cascade")).close()
    workspace.write(2, KEEP_NOTES)
    with workspace.open() as db:
        db.admin.run_jobs()
        db.table("tags").insert(id=1, item=5)
    converted = b"\x82\xff\xff\xff"
    for at in (4, 5):
        damage(workspace, at, converted)
    assert roll_back(workspace.connect(), evict=True).migrations[0].number == 2
    workspace.remove(2)
    saved = tmp_path / "record.json"
    given = ["items", "4", "--yes", "-d", workspace.address]
    saved.write_text("another's")
    assert run_program(["data", "discard", *given, "--save", str(saved)]) == EXIT_ERROR
    saved.unlink()
    assert run_program(["data", "discard", *given, "--save", str(saved), "--json"]) == 0
    out, _ = capsys.readouterr()
    assert json.loads(saved.read_text()) == json.loads(out)
    assert json.loads(out)["value"] == converted.hex()
    with workspace.open() as db:
        (report,) = db.admin.run_jobs()
        assert (report.job.state, report.progress.quarantined) == ("blocked", 1)
        db.table("items").discard_unreadable(5)  # and the tag that refers to it
        (report,) = db.admin.run_jobs(retry_quarantined=True)
        assert report.job.state == "done"
        assert db.table("items").get(3).note == LARGE
        assert db.table("tags").count() == 0
        assert find_problems(db) == []


def test_a_prefix_of_no_revision_is_damage_for_every_reader(workspace: Workspace) -> None:
    """Readers of an older schema, and of a past, give that prefix to what they convert."""
    workspace.write(1, ITEMS)
    db = workspace.open()
    db.admin.set_setting("change_log", "on")
    db.table("items").insert(id=1, title="t")
    moment = next(db.moments())
    workspace.write(2, "rename_field: {table: items, field: size, to: extent}")
    db.close()
    db = workspace.open()
    ((value,),) = workspace.execute("SELECT value FROM zapdb_records_1")
    damage(workspace, 0, b"\x80" + bytes(value)[1:])
    for read in (db, db.at(moment), workspace.open(serve_as=1)):
        table = read.table("items")
        for ask in (
            lambda table=table: table.get(1),
            lambda table=table: table.to_arrow().read_all(),
            lambda read=read: read.sql("SELECT title FROM items"),
        ):
            with pytest.raises(CorruptRecord):
                ask()
