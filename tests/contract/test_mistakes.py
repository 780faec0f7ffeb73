"""Habits from Django, SQLAlchemy and Peewee: each mistake says what to write here instead."""

from __future__ import annotations

import asyncio
import datetime
import enum
import re
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Any, cast

import pytest

import zapdb.aio
from tests.support import Workspace, error_of
from zapdb.aio import AsyncPastTable
from zapdb.database import Database, Table
from zapdb.errors import (
    InvalidValue,
    SqlError,
    UnknownAttribute,
    UnknownField,
    UnsupportedOperation,
    UsageError,
    ZapdbError,
)
from zapdb.records.cell_format import from_plain
from zapdb.tables.did_you_mean import _HABITS as HABITS
from zapdb.tables.did_you_mean import DATABASE_HABITS, in_tasks

SHOP = """\
create_table: {table: shops, key: [id], fields: [
      {name: id, type: uuid, generated: true},
      {name: name, type: string},
      {name: price, type: decimal, scale: 2, optional: true},
      {name: opened, type: date, optional: true},
      {name: seen, type: timestamp, optional: true},
      {name: vip, type: boolean, default: false},
      {name: stock, type: integer, default: 0},
      {name: photo, type: binary, optional: true},
      {name: tags, type: list, of: string, default: []}]}"""
SALES = """\
create_table: {table: sales, key: [id], fields: [
      {name: id, type: uuid, generated: true},
      {name: shop, type: reference, to: shops}]}"""
KEY = uuid.UUID("0190163d-8694-739b-aea5-966c26f8ad90")
NOW = datetime.datetime(2026, 1, 1)
TODAY = datetime.date(2026, 1, 1)


class State(enum.Enum):
    OPEN = "open"


@pytest.fixture
def db(workspace: Workspace) -> Database:
    workspace.write(1, SHOP, SALES)
    db = workspace.open()
    db.table("shops").insert(id=KEY, name="Ada")
    return db


# Mistakes, what they raise, and some of what it says; `d` is the database, `t` the table.
Mistake = Callable[[Any, Any], object]
MISTAKES: list[tuple[Mistake, type[ZapdbError], str]] = [
    # Values of another type
    (lambda d, t: t.get(str(KEY)), InvalidValue, "hint: give uuid.UUID(text)"),
    (lambda d, t: t.where(t.f.id == str(KEY)), InvalidValue, "hint: give uuid.UUID(text)"),
    (lambda d, t: t.insert(id=KEY.bytes, name="x"), InvalidValue, "uuid.UUID(bytes=raw)"),
    (lambda d, t: d.table("sales").insert(shop=t.get(KEY)), InvalidValue, "such as record.id"),
    (lambda d, t: d.table("sales").insert(shop=str(KEY)), InvalidValue, "give uuid.UUID(text)"),
    (lambda d, t: t.insert(name=None), InvalidValue, "None fits optional fields only"),
    (lambda d, t: t.insert(name=3), InvalidValue, "give str(value)"),
    (lambda d, t: t.insert(name=b"x"), InvalidValue, "give raw.decode()"),
    (lambda d, t: t.insert(name=State.OPEN), InvalidValue, "give member.value"),
    (lambda d, t: t.insert(name="x", price="1.50"), InvalidValue, "give decimal.Decimal(text)"),
    (lambda d, t: t.where(t.f.price > 1.5), InvalidValue, 'give decimal.Decimal("1.50")'),
    (lambda d, t: t.where(opened="2026-01-01"), InvalidValue, "datetime.date.fromisoformat(text)"),
    (lambda d, t: t.insert(name="x", opened=NOW), InvalidValue, "give moment.date()"),
    (lambda d, t: t.insert(name="x", seen=NOW), InvalidValue, "datetime.datetime.now(datetime.UTC"),
    (lambda d, t: t.insert(name="x", seen=TODAY), InvalidValue, "datetime.datetime.combine(day"),
    (lambda d, t: t.insert(name="x", seen="2026"), InvalidValue, "datetime.fromisoformat(text)"),
    (lambda d, t: t.where(vip=1), InvalidValue, "give bool(number)"),
    (lambda d, t: t.where(vip="true"), InvalidValue, 'give text == "true"'),
    (lambda d, t: t.update(KEY, stock=3.0), InvalidValue, "give round(number)"),
    (lambda d, t: t.update(KEY, stock="3"), InvalidValue, "give int(text)"),
    (lambda d, t: t.update(KEY, stock=True), InvalidValue, "give int(value)"),
    (lambda d, t: t.update(KEY, photo="x"), InvalidValue, "give text.encode()"),
    (lambda d, t: t.update(KEY, tags="x"), InvalidValue, "give [text]"),
    (lambda d, t: t.update(KEY, tags={"x"}), InvalidValue, "give sorted(values)"),
    # Values without the names of their fields
    (lambda d, t: t.insert({"name": "x"}), UnsupportedOperation, "write two asterisks before a d"),
    (lambda d, t: t.insert([{"name": "x"}]), UnsupportedOperation, "insert_many([{'title': …}"),
    (lambda d, t: t.insert("x"), UnsupportedOperation, "name the fields: insert(title=…)"),
    (lambda d, t: t.upsert({"name": "x"}), UnsupportedOperation, "upsert(**values)"),
    (lambda d, t: t.update(KEY, {"name": "x"}), UnsupportedOperation, "update(key, **values)"),
    (lambda d, t: t.get({"id": KEY}), UnsupportedOperation, "get(**values)"),
    (lambda d, t: t.where({"name": "x"}), UsageError, "where(**values)"),
    (lambda d, t: t.insert_many({"name": "x"}), UnsupportedOperation, "write insert_many([…])"),
    (lambda d, t: t.insert_many([("x",)]), UsageError, "insert_many takes a dict of fields"),
    (lambda d, t: t.get_many(str(KEY)), UnsupportedOperation, "write get_many([…])"),
    (lambda d, t: t.delete_many(KEY), UnsupportedOperation, "write delete_many([…])"),
    (lambda d, t: t.update(name="x"), UsageError, "give the key first, without names: (id, …)"),
    (lambda d, t: t.update(t.get(KEY), name="x"), UsageError, "give its key: record.id"),
    (lambda d, t: t.update_where(stock=1), UsageError, "conditions come first: update_where("),
    # Other fields than those of the key
    (lambda d, t: t.get(name="Ada"), UsageError, "shops.where(name=…) selects records by any"),
    (lambda d, t: t.find(name="Ada"), UsageError, "shops.where(name=…) selects records by any"),
    (lambda d, t: t.exists(name="Ada"), UsageError, ".first(), .one(), .exists()"),
    (lambda d, t: t.delete(name="Ada"), UsageError, ".update(…), .delete()"),
    (lambda d, t: t.get(nme="Ada"), UsageError, "give all of them by name"),
    (lambda d, t: t.get(t.f.name == "Ada"), UsageError, "shops.where(condition) selects records"),
    (lambda d, t: t.find(t.f.name == "Ada"), UsageError, "shops.where(condition) selects records"),
    (lambda d, t: t.delete(t.f.name == "Ada"), UsageError, "shops.where(condition) selects"),
    (lambda d, t: t.get_or_create(name="Ada"), UnknownAttribute, "first() or items.insert("),
    (lambda d, t: t.get_or_none(name="Ada"), UnknownAttribute, "where(title='Milk').first()"),
    # Databases
    (lambda d, t: d["shops"], UnsupportedOperation, "the table is db.table('shops')"),
    (lambda d, t: "shops" in d, UnsupportedOperation, "db.tables contains all names"),
    (lambda d, t: list(d), UnsupportedOperation, "db.tables contains all names"),
    (lambda d, t: d.insert(name="x"), UnknownAttribute, "it belongs to a table: db.table('items'"),
    (lambda d, t: d.atomic(), UnknownAttribute, "`with db.transaction() as tx:` begins one"),
    (lambda d, t: d.transaction().table("shops"), UnknownAttribute, "in the block tx.table"),
    (lambda d, t: d.admin.setings, UnknownAttribute, "did you mean 'settings'?"),
    (lambda d, t: d.change_log.follow("x"), UnknownAttribute, "did you mean 'follower'?"),
    (lambda d, t: d.run(t.get(KEY)), UsageError, "give the function, not its result"),
    (lambda d, t: d.sql("SELECT 1 WHERE 'a:b' = :x", {"x": 1}), SqlError, "? or $1 in the"),
    (lambda d, t: d.sql("SELECT 1 WHERE '' = %s", [""]), SqlError, "? or $1 in the"),
    # Queries
    (lambda d, t: t.where()[0], UnsupportedOperation, "first() returns the first record"),
    (lambda d, t: t.where()[:3], UnsupportedOperation, "limit(3) returns the first 3 records"),
    (lambda d, t: t.where()[3:6], UnsupportedOperation, "page(size, cursor) returns page"),
    (lambda d, t: t[0], UnsupportedOperation, "first() returns the first record"),
    (lambda d, t: len(t.where()), UnsupportedOperation, "count() counts its records"),
    (lambda d, t: len(t), UnsupportedOperation, "count() counts its records"),
    (lambda d, t: bool(t.where()), UnsupportedOperation, "exists() says whether there is a rec"),
    (lambda d, t: reversed(t.where()), UnsupportedOperation, "order_by('due').reverse()"),
    (lambda d, t: t.where() | t.where(), UnsupportedOperation, "combine the conditions"),
    (lambda d, t: t.where().values("name"), UnknownAttribute, "records have all their fields"),
    (lambda d, t: t.where().exclude(vip=True), UnknownAttribute, "excludes records"),
    (lambda d, t: t.where(name__startswith="A"), UnknownField, "shops.f.name.startswith('…')"),
    (lambda d, t: t.where(opened__lt=TODAY), UnknownField, "write shops.f.opened < …"),
    (lambda d, t: t.where(name__in=["Ada"]), UnknownField, "write shops.f.name.in_([…])"),
    (lambda d, t: t.where(name__x__y=1), UnknownField, "fields of its own table"),
    (lambda d, t: t.where(name=["Ada"]), InvalidValue, "shops.f.name.in_([…])"),
    (lambda d, t: t.order_by("name desc"), UnknownField, "write -name"),
    (lambda d, t: t.order_by(["name"]), UsageError, "give several one after the other"),
    (lambda d, t: t.order_by(t.name), UnknownField, "shops.name is the table's name"),
    (lambda d, t: t.where(lambda r: True), UsageError, "compare a field of the table: shops.f.id"),
    # Fields
    (lambda d, t: t.f.name.desc(), UnknownAttribute, "write -shops.f.name or shops.f.name.desc"),
    (lambda d, t: t.f.name.like("A%"), UnknownAttribute, "write shops.f.name.startswith('…')"),
    (lambda d, t: t.f.name.is_(None), UnknownAttribute, "shops.f.name.is_null()"),
    (lambda d, t: t.f.name.colated(), UnknownAttribute, "did you mean 'collated'?"),
    (lambda d, t: t.where(t.f.vip), UsageError, "compare it: shops.f.vip == True"),
    (lambda d, t: t.where(~t.f.vip), UsageError, "write shops.f.vip == False"),
    (lambda d, t: t.where(t.f.name == t.f.id), UsageError, "compare two fields in Python"),
    (lambda d, t: t.update(KEY, stock=t.f.stock + 1), UnsupportedOperation, "db.run(lambda tx: …"),
    (lambda d, t: t.f.tags[0], UnsupportedOperation, "not about parts of one"),
    # Records
    (lambda d, t: t.get(KEY).save(), UnknownField, "items.update(record.id, title=…)"),
    (lambda d, t: t.get(KEY).nme, UnknownField, "did you mean 'name'?"),
    (lambda d, t: t.get(KEY).to_dict(), UnknownField, "zapdb.asdict(record) is a dict"),
    (lambda d, t: t.get(KEY)["name"], UnsupportedOperation, "write record.name"),
    (lambda d, t: dict(t.get(KEY)), UnsupportedOperation, "zapdb.asdict(record) is a dict"),
    (lambda d, t: d.table("sales").insert(shop=KEY).shop_id, UnknownField, "record.shop is the k"),
    (lambda d, t: t.get(KEY).follow("nme"), UnknownField, "did you mean 'name'?"),
]


def test_mistakes_say_what_to_write(db: Database) -> None:
    shops = db.table("shops")
    for at, (mistake, kind, said) in enumerate(MISTAKES):
        error = error_of(lambda mistake=mistake: mistake(db, shops))
        assert type(error) is kind, (at, said, error)
        assert said in str(error), (at, said, str(error))
    assert shops.all() == [shops.get(KEY)]


def test_what_python_asks_of_a_list_stays_a_type_error(db: Database) -> None:
    shops: Any = db.table("shops")
    assert list(shops) == list(shops.where()) == [shops.get(KEY)]  # they ask for a length first
    with pytest.raises(TypeError):
        len(shops.where())
    assert not hasattr(shops.get(KEY), "save")


def test_a_record_is_deleted_by_its_key_s_name(db: Database) -> None:
    shops: Table = db.table("shops")
    with pytest.raises(UsageError, match="these are not the fields of the key"):
        shops.delete(name="Ada")
    shops.delete(id=KEY)
    assert not shops.exists()


def test_values_as_texts_get_no_hint_of_python(db: Database) -> None:
    table = db.table("shops")._bound.schema
    for name, plain in (("id", 3), ("stock", "3"), ("vip", 1)):
        field = table.field_named(name)
        assert field is not None
        with pytest.raises(InvalidValue) as caught:
            from_plain(table, field, plain)
        assert caught.value.hint == ""


NO_METHODS = {"avg", "lambda", "f", "len", "sorted"}


def calls_in(hint: str) -> list[tuple[str, str]]:
    """Each call that a hint names, as (what it is called on, name); behind a dot it is a query."""
    quoted = re.sub(r"'(?:SELECT|Milk|en|und)[^']*'", "''", hint)
    found = re.findall(r"((?:[a-z_]+\.)*)([a-z_]+)\(", quoted)
    return [(on.rstrip("."), name) for on, name in found if name not in NO_METHODS]


@pytest.mark.parametrize("library", ["zapdb", "zapdb.aio"])
def test_hints_name_calls_that_there_are(workspace: Workspace, library: str) -> None:
    """Of each name that people know from elsewhere, on databases, tables and queries."""
    workspace.write(1, SHOP)
    db = workspace.open()
    of_tasks: tuple[type, ...] = (
        zapdb.aio.AsyncDatabase,
        zapdb.aio.AsyncTable,
        zapdb.aio.AsyncQuery,
    )
    is_sync = library == "zapdb"
    database, *tables = (zapdb.Database, zapdb.Table, zapdb.Query) if is_sync else of_tasks
    kinds: dict[str, Any] = {
        "db": database,
        "tx": database,
        "zapdb": zapdb,
        "zapdb.aio": zapdb.aio,
    }
    tables.append(type(db.table("shops").f.name))
    for owner, names in ((db, DATABASE_HABITS), (db.table("shops"), HABITS)):
        for name in names:
            if hasattr(type(owner), name):
                continue  # a query has no get(), a table has one
            error = cast(UnknownAttribute, error_of(lambda o=owner, n=name: getattr(o, n)))
            hint = (error if is_sync else in_tasks(error)).hint
            assert is_sync or "`with " not in hint
            for on, called in calls_in(hint):
                there = (kinds[on],) if on in kinds else (*tables, database)
                assert any(hasattr(kind, called) for kind in there), (name, hint, on, called)


def test_mistakes_in_tasks(workspace: Workspace) -> None:
    workspace.write(1, SHOP)

    async def run() -> None:
        url = workspace.address
        opening = zapdb.aio.open(url, migrations=workspace.directory, apply="auto")
        async with opening as db:
            shops: Any = db.table("shops")
            for mistake, said in (
                (lambda: list(shops), "write `async for`"),
                (lambda: list(shops.where()), "write `async for`"),
                (lambda: len(shops.where()), "count() counts its records"),
                (lambda: shops.where()[:3], "limit(3) returns"),
                (lambda: cast(Any, db)["shops"], "db.table('shops')"),
            ):
                with pytest.raises(UnsupportedOperation) as caught:
                    mistake()
                assert said in str(caught.value)
            for look, said in (
                (lambda: cast(Any, db).begin, "`async with db.transaction() as tx:` begins one"),
                (lambda: shops.get_or_create, "await items.where(title='Milk').first() or await "),
                (lambda: shops.where().iterator, "async for item in query"),
            ):
                with pytest.raises(UnknownAttribute) as unknown:
                    look()
                assert said in str(unknown.value)
            with pytest.raises(UnsupportedOperation, match="write delete_many"):
                await shops.delete_many("abc")

    asyncio.run(run())


USES: dict[str, Callable[[Any], object]] = {
    "attribute": lambda one: one.unheard_of,
    "habit": lambda one: one.begin,
    "item": lambda one: one["unheard_of"],
    "in": lambda one: "unheard_of" in one,
    "place": lambda one: one[0],
    "slice": lambda one: one[2:3],
    "length": len,
    "truth": bool,
    "reversed": reversed,
    "and": lambda one: one & one,
}


def told_of(use: Callable[[Any], object], one: Any) -> object:
    """What is said of a mistake; what Python says itself differs by the names of classes."""
    try:
        use(one)
    except ZapdbError as error:
        return type(error), error.message, {key: str(it) for key, it in error.context.items()}
    except (AttributeError, TypeError) as error:
        return [kind for kind in (AttributeError, TypeError) if isinstance(error, kind)]
    return None


def test_mistakes_in_tasks_are_told_as_others_are(workspace: Workspace) -> None:
    """What a mistake is made with has the same name there."""
    workspace.write(1, SHOP)
    db = workspace.open()
    db.admin.set_setting("change_log", "on")
    db.table("shops").insert(id=KEY, name="Ada")

    async def run() -> None:
        past = db.at(next(db.moments())).table("shops")
        async with zapdb.aio.open(workspace.address) as here, here.transaction() as tx:
            sync = here._sync
            for ours, theirs in (
                (sync, here),
                (tx._sync, tx),
                (sync.table("shops"), here.table("shops")),
                (sync.table("shops").where(), here.table("shops").where()),
                (past, AsyncPastTable(here._runtime, past)),
            ):
                for name, use in USES.items():
                    if name == "in" and not hasattr(type(theirs), "__contains__"):
                        continue  # what waits for the database can't be asked by `in`
                    said = told_of(use, theirs)
                    assert said == told_of(use, ours), (theirs, name)

    asyncio.run(run())


def test_price_and_moment_as_the_hints_say(db: Database) -> None:
    """What the hints tell to write is accepted."""
    shops, moment, number = db.table("shops"), NOW, 1.499
    stored = shops.update(
        uuid.UUID(str(KEY)),
        price=round(Decimal(number), 2),
        opened=moment.date(),
        seen=moment.astimezone(),
        stock=round(3.0),
        photo="x".encode(),  # noqa: UP012  # as the hint has it
        tags=sorted({"x"}),
    )
    assert (stored.price, stored.stock, stored.tags) == (Decimal("1.50"), 3, ["x"])
    shops.update(KEY, seen=datetime.datetime.combine(TODAY, datetime.time(), datetime.UTC))
