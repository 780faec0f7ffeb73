"""What queries and tables have in common, what is called by name, and what others call it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.tables import INDEX_SIZE, ITEMS, RENAME_SIZE
from tests.support import Workspace
from zapdb.database import Database, Table
from zapdb.errors import (
    CheckViolation,
    InvalidValue,
    RecordNotFound,
    SeveralRecords,
    UnknownAttribute,
    UnknownField,
    UnsupportedOperation,
    UsageError,
)

COUNT = 30


@pytest.fixture
def db(workspace: Workspace) -> Database:
    workspace.write(1, ITEMS, INDEX_SIZE)
    db = workspace.open()
    db.table("items").insert_many(
        {"id": n, "title": f"title {n}", "size": n % 5} for n in range(COUNT)
    )
    return db


@pytest.fixture
def items(db: Database) -> Table:
    return db.table("items")


def test_a_table_is_asked_as_a_query_is(items: Table) -> None:
    every = items.where()
    assert items.all() == every.all() == list(items)
    assert items.first() == every.first() == items.get(0)
    assert [record.id for record in items.limit(3)] == [0, 1, 2]
    assert items.page(7).records == every.page(7).records
    assert (items.min("id"), items.max("id"), items.sum("id")) == (0, 29, 435)
    assert items.exists() is True
    with pytest.raises(SeveralRecords):
        items.one()
    assert items.delete_where(items.f.id > 0) == COUNT - 1
    assert items.one().id == 0
    items.delete(0)
    assert items.exists() is False
    assert items.first() is None


def test_a_record_is_looked_up_in_a_query_by_its_key(
    items: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    seven, f = items.get(7), items.f
    decoded = list[bytes]()
    reader = items._bound.adapter.reader
    read_many = reader.read_many
    monkeypatch.setattr(
        type(reader),
        "read_many",
        lambda _, rows: decoded.extend(key for _, key, _ in rows) or read_many(rows),
    )
    for query, is_in in (
        (items, True),
        (items.where(), True),
        (items.where(f.size == 2), True),
        (items.where(f.size == 2).order_by("-title").include(), True),
        (items.using("by_size").reverse(), True),
        (items.where(f.size == 3), False),
        (items.where(f.id == 8), False),
    ):
        assert (seven in query, query) == (is_in, query)
    assert 0 < len(decoded) <= 7, decoded
    assert [seven in items.order_by("id").limit(n) for n in (7, 8)] == [False, True]
    items.update(7, title="new")
    assert seven not in items  # it has other values now
    assert items.get(7) in items
    items.delete(7)
    assert seven not in items.where()


def test_what_is_no_record_is_refused_with_the_call_that_looks_for_a_key(items: Table) -> None:
    for owner in (items, items.where()):
        for given in (7, None, "title 7", {"id": 7}):
            with pytest.raises(UnsupportedOperation) as caught:
                assert given in owner
            assert "items.exists(id=…)" in caught.value.hint


def test_a_limit_may_stand_anywhere_and_comes_last(items: Table) -> None:
    wanted = [25, 20]
    f = items.f
    for query in (
        items.limit(2).where(f.size == 0).order_by("-id"),
        items.where(f.size == 0).limit(2).order_by("-id"),
        items.order_by("-id").limit(9).where(size=0).limit(2),
        items.where(size=0).limit(2).order_by("id").reverse(),
    ):
        assert [record.id for record in query] == wanted
        assert query.count() == 2
        assert query.first().id == 25
    assert len(items.limit(2).limit(5).all()) == 5
    with pytest.raises(UsageError, match="a page has a size"):
        items.limit(2).page(1)


def test_fields_by_name(items: Table) -> None:
    assert items.get(id=7) == items.get(7) == items.where(id=7, title="title 7").one()
    assert items.find(id=77) is None
    assert items.exists(id=7)
    with pytest.raises(RecordNotFound) as missing:
        items.get(id=77)
    assert missing.value.context["key"] == "77"
    for wrong in ({"size": 1}, {"id": 7, "size": 1}):
        with pytest.raises(UsageError, match="these are not the fields of the key"):
            items.get(**wrong)
    with pytest.raises(UsageError, match="these are not the fields of the key"):
        items.get(7, id=7)
    with pytest.raises(InvalidValue):
        items.get(id="7")


def test_an_update_changes_what_a_query_has_and_nothing_else(db: Database, items: Table) -> None:
    f = items.f
    assert items.where(f.size == 3).update(title="three") == 6
    assert items.update_where(f.size == 4, title="four", note="x" * 9_000) == 6
    assert {(r.size, r.title) for r in items.where(f.size >= 3)} == {(3, "three"), (4, "four")}
    assert items.where(title="four").first().note == "x" * 9_000
    assert items.where(f.size < 3, f.title.startswith("title")).count() == 18
    # By the index whose entries it changes: each record once.
    assert items.using("by_size").where(f.size >= 3).update(size=5) == 12
    assert items.where(size=5).count() == 12
    assert items.order_by("-id").limit(2).update(size=9) == 2
    assert [record.id for record in items.where(size=9).order_by("id")] == [28, 29]
    assert [report.problems for report in db.admin.verify()] == [()]
    assert items.where(size=77).update(title="none") == 0


def test_an_update_is_all_or_nothing(workspace: Workspace) -> None:
    workspace.write(
        1, ITEMS, "add_check: {table: items, check: small, expression: 'size < 10 or id < 3'}"
    )
    items = workspace.open().table("items")
    items.insert_many({"id": n, "title": "x", "size": n} for n in range(5))
    with pytest.raises(CheckViolation):
        items.where().update(size=10)
    assert [record.size for record in items.order_by("id")] == [0, 1, 2, 3, 4]
    for wrong in (
        lambda: items.where().update(id=1),
        lambda: items.update_where(title="y"),
    ):
        with pytest.raises(UsageError):
            wrong()
    with pytest.raises(UnknownField, match="did you mean 'title'"):
        items.where().update(titel="y")
    with pytest.raises(InvalidValue):
        items.where().update(size="y")


def test_what_others_call_it_is_named(items: Table) -> None:
    query = items.where()
    for name, hint in (
        ("filter", "where("),
        ("objects", "where("),
        ("query", "where("),
        ("save", "update("),
        ("add", "insert("),
        ("commit", "db.transaction()"),
        ("select", "where("),
        ("find_by", "first()"),
        ("index", "using("),
        ("oder_by", "order_by"),
    ):
        for owner in (items, query):
            with pytest.raises(UnknownAttribute) as caught:
                getattr(owner, name)
            assert hint in caught.value.hint, name
            assert not hasattr(owner, name)
    with pytest.raises(UnknownAttribute) as caught:
        _ = items.title
    assert caught.value.hint == "the field is items.f.title, or items['title']"


def test_a_record_is_no_key(items: Table) -> None:
    record = items.get(3)
    for call in (items.get, items.find, items.delete, items.exists):
        with pytest.raises(UsageError, match="a key is expected, not a record") as caught:
            call(record)
        assert caught.value.hint == "give its key: record.id"
    with pytest.raises(UsageError, match="a key is expected, not a record"):
        items.update(record, title="x")


def test_what_others_call_it_on_a_database_is_named(workspace: Workspace) -> None:
    workspace.write(1, ITEMS)
    with workspace.open() as db, db.transaction() as tx:
        for owner in (db, tx):
            for name, hint in (
                ("items", "db.table('items')"),
                ("tabel", "'table'"),
                ("execute", "db.sql("),
                ("session", "db.table("),
                ("commit", "with db.transaction()"),
            ):
                with pytest.raises(UnknownAttribute) as caught:
                    getattr(owner, name)
                assert hint in caught.value.hint, name
                assert not hasattr(owner, name)
        with pytest.raises(UnknownAttribute) as caught:
            _ = db.verify
        assert caught.value.hint == "it is db.admin.verify"
    assert not hasattr(tx, "items")  # not even of a handle that has ended


def test_a_prompt_shows_what_can_be_called(items: Table) -> None:
    query = items.using("by_size").where(items.f.size > 1).order_by("-id").limit(3)
    assert repr(query) == (
        "<query items using by_size where size > 1 order by id descending limit 3>"
    )
    assert repr(items.order_by("id").page(2)) == "<page of 2 records, more behind it>"
    public = {name for name in dir(query) if not name.startswith("_")}
    assert public == {
        *("all", "count", "delete", "exists", "explain", "first", "include", "limit", "max", "min"),
        *("one", "order_by", "page", "reverse", "sum", "to_arrow", "to_pandas", "update", "using"),
        "where",
    }


def test_a_query_that_is_kept_is_of_the_table_as_it_is(workspace: Workspace, db: Database) -> None:
    """It takes the new schema once, and knows it from then on; so does one of a handle."""
    following = workspace.follow()
    items = following.table("items")
    field = items.f.size
    query = items.where(field == 3)
    assert query.first().id == 3
    fresh = "add_field: {table: items, field: {name: size, type: integer, default: 0}}"
    workspace.write(2, RENAME_SIZE, fresh)
    workspace.open()
    assert [record.extent for record in query] == [3] * 6
    known = query._bound

    def check(handle: Any) -> None:
        found = handle.table("items")
        assert found.where(found.f.extent == 3, found.f.size == 0).first().id == 3
        assert found.where(found.f.size == 3).first() is None
        assert found.where(field == 3).first().id == 3

    check(following)
    with following.snapshot() as then:
        check(then)
        workspace.open().table("items").update(3, extent=9)
        check(then)
    with following.transaction() as tx:
        changed = tx.table("items")
        changed.update(3, extent=3)
        check(tx)
        changed.update(3, extent=9)
        assert changed.where(extent=9).one().id == 3
    assert query.first().id == 8
    assert query._bound is known
