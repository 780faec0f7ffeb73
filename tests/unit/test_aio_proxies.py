"""Each public method of the synchronous classes is there for tasks, or a list here says why not."""

from __future__ import annotations

import inspect
import pydoc
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

import zapdb
from zapdb import aio
from zapdb.aio.proxies import Proxy
from zapdb.aio.runtime import CallKind
from zapdb.database import (
    admin,
    change_log_facet,
    history_facet,
    job_control,
    past,
    transaction_blocks,
)
from zapdb.past.reading.past_table import PastTable
from zapdb.tables import (
    changes,
)
from zapdb.tables.table_reading import ReadableTable

PAIRS: dict[type, type] = {
    zapdb.Database: aio.AsyncDatabase,
    zapdb.Transaction: aio.AsyncTransaction,
    zapdb.Snapshot: aio.AsyncSnapshot,
    zapdb.Table: aio.AsyncTable,
    zapdb.Query: aio.AsyncQuery,
    changes.ChangeFollower: aio.AsyncChangeFollower,
    admin.DatabaseAdmin: aio.AsyncDatabaseAdmin,
    job_control.DatabaseJobs: aio.AsyncDatabaseJobs,
    change_log_facet.DatabaseChangeLog: aio.AsyncDatabaseChangeLog,
    history_facet.DatabaseHistory: aio.AsyncDatabaseHistory,
    past.Past: aio.AsyncPast,
    PastTable: aio.AsyncPastTable,
}
IN_A_BLOCK = "a block is entered and left by `async with`: `__aenter__`, `__aexit__`"
LEFT_OUT = {
    "Database.__enter__": IN_A_BLOCK,
    "Database.__exit__": IN_A_BLOCK,
    "Past.__enter__": IN_A_BLOCK,
    "Past.__exit__": IN_A_BLOCK,
    "Table.__contains__": "what waits for the database is awaited, which `in` can't be",
    "PastTable.__contains__": "what waits for the database is awaited, which `in` can't be",
    "Query.__contains__": "what waits for the database is awaited, which `in` can't be",
    "Past.__contains__": "it only refuses",
    "Past.__getitem__": "it only refuses",
    "DatabaseHistory.run": "it is for a thread or a process of its own",
}
"""What there is no counterpart of, and why."""
CHANGED = {
    "Table.insert_many": "takes what is iterated by `async for`, too",
    "Table.delete_many": "takes what is iterated by `async for`, too",
    "Table.open": "a file that is read by awaiting",
    "PastTable.open": "a file that is read by awaiting",
    "Database.run": "takes a coroutine function",
    "Past.table": "`like` is a table for tasks",
    "Past.tables": "awaited, so a method",
    "Past.position": "awaited, so a method",
    "Past.exact": "awaited, so a method",
    "Past.doubts": "awaited, so a method",
    "ChangeFollower.bookmark": "awaited, so a method",
    "ChangeFollower.name": "an attribute there",
    "Database.applied": "an attribute there",
}
"""What has other types of parameters or results than its name for tasks says, or is no property."""
SPECIAL = {"__iter__", "__enter__", "__exit__", "__getitem__", "__contains__"}
KINDS = {*get_args(CallKind), "build"}


def shown(kind: type) -> list[str]:
    """The public members of a class, with the attributes that its constructor sets."""
    found = [name for name in dir(kind) if name in SPECIAL or not name.startswith("_")]
    set_here = re.findall(r"self\.([a-z]\w*) = ", inspect.getsource(kind))
    return sorted({*found, *set_here})


MEMBERS = [(sync, name) for sync in PAIRS for name in shown(sync)]


def test_there_are_no_other_classes() -> None:
    others = {"AsyncBlock", "AsyncFile", "OpeningBlock", "connect", "open"}
    assert {*aio.__all__} == {proxy.__name__ for proxy in PAIRS.values()} | others
    for sync, proxy in PAIRS.items():
        assert proxy.__name__ == f"Async{sync.__name__}"
        assert issubclass(proxy, Proxy)


@pytest.mark.parametrize(
    ("sync", "name"), MEMBERS, ids=[f"{sync.__name__}.{name}" for sync, name in MEMBERS]
)
def test_every_member_is_there_or_left_out_for_a_reason(sync: type, name: str) -> None:
    known = f"{sync.__name__}.{name}"
    theirs = inspect.getattr_static(PAIRS[sync], {"__iter__": "__aiter__"}.get(name, name), None)
    if known in LEFT_OUT:
        assert theirs is None or name.startswith("__"), f"{known} is not left out"
        return
    ours = inspect.getattr_static(sync, name, None)
    assert theirs is not None, f"zapdb.aio has no {known}: add it to proxies.py, or here why not"
    if known in CHANGED:
        assert callable(theirs) or isinstance(theirs, property)
    elif isinstance(ours, property):
        assert isinstance(theirs, property)
    else:
        assert_same(ours, theirs)
    if not name.startswith("__"):
        assert_described(ours, theirs)


def assert_same(ours: Any, theirs: Any) -> None:
    """That both take the same, and return what is the same for tasks."""
    mine, other = inspect.signature(ours), inspect.signature(theirs)
    assert [*map(str, mine.parameters.values())] == [*map(str, other.parameters.values())]
    returned, wanted = str(other.return_annotation), str(mine.return_annotation)
    if ours.__qualname__.startswith("PastTable."):
        returned = returned.replace("[R]", "").replace("R", "Record")
    if returned != wanted:
        assert returned.replace("Async", "") == wanted
    if hasattr(theirs, "kind"):  # it is made of ours, which it calls by its name
        assert theirs.__wrapped__.__name__ == ours.__name__
        assert theirs.kind in KINDS
        assert inspect.iscoroutinefunction(theirs) == (returned == wanted)
        assert theirs.__module__ == "zapdb.aio.proxies"


def assert_described(ours: Any, theirs: Any) -> None:
    said = inspect.getdoc(theirs)
    assert bool(said) == bool(inspect.getdoc(ours)) or said
    assert "`with " not in (said or "")


def test_what_is_said_of_exceptions_is_needed() -> None:
    members = {f"{sync.__name__}.{name}" for sync, name in MEMBERS}
    assert LEFT_OUT.keys() <= members
    assert CHANGED.keys() <= members
    assert not LEFT_OUT.keys() & CHANGED.keys()


def test_there_is_nothing_else() -> None:
    for sync, proxy in PAIRS.items():
        added = {name for name in dir(proxy) if not name.startswith("_")} - {*shown(sync)}
        assert added == set()


def test_a_method_that_is_missing_is_told_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zapdb.Table, "archive", lambda self: None, raising=False)
    with pytest.raises(AssertionError, match=r"zapdb\.aio has no Table\.archive: add it"):
        test_every_member_is_there_or_left_out_for_a_reason(zapdb.Table, "archive")


def test_what_returns_such_an_object_returns_it_for_tasks() -> None:
    names = "|".join(kind.__name__ for kind in (*PAIRS, ReadableTable, transaction_blocks.Block))
    for proxy in PAIRS.values():
        for name, member in inspect.getmembers(proxy):
            if inspect.isfunction(member) and not name.startswith("_"):
                returned = str(inspect.signature(member).return_annotation)
                assert not re.search(rf"\b({names}|Iterator)\b", returned), f"{proxy}.{name}"


def list_wrong(method: Any) -> Iterator[tuple[tuple[int, ...], dict[str, Any]]]:
    """Arguments that a method does not take."""
    kinds = {one.kind for one in inspect.signature(method).parameters.values()}
    if inspect.Parameter.VAR_KEYWORD not in kinds:
        yield (), {"unheard_of": 1}
    if inspect.Parameter.VAR_POSITIONAL not in kinds:
        yield tuple(range(40)), {}


@pytest.mark.parametrize("proxy", PAIRS.values(), ids=lambda proxy: proxy.__name__)
def test_wrong_arguments_are_refused_by_the_call(proxy: type[Proxy[Any]]) -> None:
    """And not by awaiting or iterating what it returned: a write would wait for its turn first."""
    one, public = proxy.__new__(proxy), {kind.__name__ for kind in PAIRS.values()}
    for name, member in inspect.getmembers(proxy, inspect.isfunction):
        if name.startswith("_"):
            continue
        for given, named in list_wrong(member):
            with pytest.raises(TypeError) as refused:
                getattr(one, name)(*given, **named)
            told, _, rest = str(refused.value).partition(f".{name}() ")
            assert told in public, refused.value
            assert rest, refused.value


def test_opening_with_wrong_arguments_is_refused_by_the_call() -> None:
    opening: Any = aio.open
    for given, named in list_wrong(opening):
        with pytest.raises(TypeError, match=r"^open\(\) "):
            opening(*given, **named)


def test_opening_takes_the_same() -> None:
    ours, theirs = inspect.signature(zapdb.open), inspect.signature(aio.open)
    assert ours.parameters == theirs.parameters
    assert theirs.return_annotation == "AsyncDatabase"
    assert (aio.open.__module__, aio.open.__qualname__) == ("zapdb.aio.proxies", "open")
    assert "At most `max_connections` transactions" in (aio.open.__doc__ or "")


def test_help_tells_what_a_method_takes_and_does() -> None:
    told = pydoc.plain(pydoc.render_doc(aio.AsyncTable, renderer=pydoc.plaintext))
    assert "async get(self, /, *key: 'Any', **named: 'Any') -> 'R'" in told
    assert "where(self, /, *predicates: 'Predicate', **values: 'Any') -> 'AsyncQuery[R]'" in told
    assert "Return the record with this key, `get(7)` or `get(id=7)`" in told
    told = pydoc.plain(pydoc.render_doc(aio.AsyncDatabase, renderer=pydoc.plaintext))
    assert "`async with db.transaction() as tx`" in told
    assert "transaction(self, *, token: 'bool' = False) -> 'AsyncBlock[AsyncTransaction]'" in told


def test_what_is_not_awaited_is_warned_of_by_its_name() -> None:
    told = "coroutine 'AsyncDatabaseAdmin.tenants' was never awaited"
    tenants: Any = aio.AsyncDatabaseAdmin.tenants
    with pytest.warns(RuntimeWarning, match=told):
        tenants(None)


PROGRAM = """\
from collections.abc import AsyncIterator
from typing import Any
import zapdb.aio
from zapdb.database import Page
from zapdb.records import Record

async def work(tx: zapdb.aio.AsyncTransaction, more: int = 1) -> int:
    return more

async def main() -> None:
    async with zapdb.aio.open("sqlite://") as db:
        items = db.table("items")
        reveal_type(await items.get(1))
        reveal_type(await items.find(1))
        reveal_type(await items.where(items.f.due < 3).order_by("due").first())
        reveal_type(await items.where().page(5))
        reveal_type(items.scan())
        reveal_type(await db.run(work))
        async for item in items.where(items.f.due < 3):
            reveal_type(item)
        async for item in items:
            reveal_type(item)
        async with db.transaction() as tx:
            reveal_type(tx)
            async with tx.savepoint() as inner:
                reveal_type(inner)
        async with db.snapshot() as snap:
            reveal_type(snap)
        reveal_type(await items.insert_many([{"id": 1}]))
        reveal_type(await db.admin.tenants())
        reveal_type(await (await db.at(3)).table("items"))
        reveal_type(await (await (await db.at(3)).table("items")).where(id=3).all())
"""
REVEALED = [
    "Record",
    "Record | None",
    "Record | None",
    "Page[Record]",
    "AsyncIterator[Record]",
    "int",
    "Record",
    "Record",
    "AsyncTransaction",
    "AsyncTransaction",
    "AsyncSnapshot",
    "int",
    "list[Tenant]",
    "AsyncPastTable[Record]",
    "list[Record]",
]
WRONG = """\
import zapdb.aio

async def main(db: zapdb.aio.AsyncDatabase, items: zapdb.aio.AsyncTable) -> None:
    await items.get_many()
    await items.page("x")
    await items.import_file("x", mode="other")
    await items.where().limit("x").all()
    await db.admin.set_setting(3, "x")
    items.delete(1)
    await items.where()
    for item in items.scan():
        pass
    async with db.transaction(tokn=True):
        pass
    await zapdb.aio.open("sqlite://", migration="x")
"""


def check(tmp_path: Path, text: str) -> str:
    program = tmp_path / "program.py"
    program.write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", str(program)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout


def test_users_of_it_are_checked_strictly(tmp_path: Path) -> None:
    told = check(tmp_path, PROGRAM)
    assert "error:" not in told, told
    found = [line.partition('"')[2].strip('"') for line in told.splitlines() if '"' in line]
    assert [re.sub(r"\b[a-z_.]+\.(?=[A-Za-z])", "", kind) for kind in found] == REVEALED


def test_mistakes_of_users_are_found(tmp_path: Path) -> None:
    told = check(tmp_path, WRONG)
    lines = [*map(int, re.findall(r"program\.py:(\d+): error", told))]
    wrong = [n for n, line in enumerate(WRONG.splitlines(), 1) if n > 3 and "pass" not in line]
    assert sorted({*lines}) == wrong, told
