"""The asynchronous faces are those of the synchronous ones: made from them, and compared here."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
import typing
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

import zapdb
from tools import aio as tool
from zapdb import aio
from zapdb.database import (
    admin,
    change_log,
    changes,
    database,
    history_store,
    job_control,
    past,
    query,
    table,
    transactions,
)
from zapdb.database.history import past_table
from zapdb.database.history.verification import HistoryVerification
from zapdb.database.sql import Result
from zapdb.history.erasing import HistoryErasure
from zapdb.history.moving import HistoryMove
from zapdb.history.purge import HistoryPurge
from zapdb.history.rebuilding import HistoryRebuild
from zapdb.history.repairing import HistoryRepair
from zapdb.history.stores import HistoryStatus

PAIRS: dict[type, type] = {
    database.Database: aio.Database,
    transactions.Transaction: aio.Transaction,
    transactions.Snapshot: aio.Snapshot,
    transactions.Block: aio.Block,
    table.Table: aio.Table,
    query.Query: aio.Query,
    changes.ChangeFollower: aio.ChangeFollower,
    admin.DatabaseAdmin: aio.DatabaseAdmin,
    job_control.DatabaseJobs: aio.DatabaseJobs,
    change_log.DatabaseChangeLog: aio.DatabaseChangeLog,
    history_store.DatabaseHistory: aio.DatabaseHistory,
    past.Past: aio.Past,
    past_table.PastTable: aio.PastTable,
}
RENAMED = {"__iter__": "__aiter__"}
ADDED = {"__aenter__", "__aexit__"}
"""What the asynchronous face alone has."""
DIFFERENT: dict[str, dict[str, Any]] = {
    "Table.insert_many": {"records": "Iterable or AsyncIterable"},
    "Table.delete_many": {"keys": "Iterable or AsyncIterable"},
    "Table.open": {"return": "BlobFile"},
    "PastTable.open": {"return": "BlobFile"},
    "Past.table": {"like": "an asynchronous table"},
    "Database.table": {"name": "models", "return": "a table of a model's records"},
    "Transaction.table": {"name": "models", "return": "a table of a model's records"},
    "Snapshot.table": {"name": "models", "return": "a table of a model's records"},
    "Database.run": {"function": "a coroutine function"},
}
"""Parameters and results whose types are others, which is said here one by one."""
METHODS = [
    (sync, member)
    for sync in PAIRS
    if sync.__name__ in tool.FACES
    for member, method in tool.FACES[sync.__name__].methods.items()
    if method.kind != "none"
]


def test_generating_them_again_gives_the_same() -> None:
    assert tool.generate() == tool.TARGET.read_text(encoding="utf-8")


def test_a_method_that_is_not_in_the_table_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    source = tool.FACES["Table"]
    for without, said in (("count", "says nothing of Table.count"), ("", "has not: counted")):
        methods = {name: m for name, m in source.methods.items() if name != without}
        methods |= {} if without else {"counted": tool.READ}
        changed = tool.Source(source.parts, source.base, methods)
        monkeypatch.setitem(tool.FACES, "Table", changed)
        with pytest.raises(SystemExit, match=said):
            tool.generate()


def test_what_is_left_out_says_why() -> None:
    for source in tool.FACES.values():
        for method in source.methods.values():
            assert bool(method.why) == (method.kind == "none")


def hints(member: Any) -> dict[str, Any]:
    function = member.fget if isinstance(member, property) else member
    names = {
        "Result": Result,
        "HistoryErasure": HistoryErasure,
        "HistoryMove": HistoryMove,
        "HistoryPurge": HistoryPurge,
        "HistoryRebuild": HistoryRebuild,
        "HistoryRepair": HistoryRepair,
        "HistoryVerification": HistoryVerification,
        "HistoryStatus": HistoryStatus,
        "Iterator": Iterator,
        "faces": sys.modules["zapdb.aio.faces"],
        "Block": getattr(sys.modules[function.__module__], "Block", None),
    }
    return typing.get_type_hints(function, {**vars(sys.modules[function.__module__]), **names})


def as_async(kind: Any) -> Any:
    """The type that stands in the asynchronous face for one of the synchronous."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Iterator or origin is typing.get_origin(Iterator[int]):
        return AsyncIterator[arguments]  # type: ignore[valid-type]  # made at run time
    if origin is transactions.Block:
        return aio.Block[PAIRS[arguments[0]]]  # type: ignore[valid-type]  # made at run time
    return PAIRS.get(kind, kind) if isinstance(kind, type) else kind


def shown(kind: Any, *, of_records: bool = False) -> str:
    """A type as text; what is of any record is of the table's own in the asynchronous face."""
    text = repr(kind)
    text = re.sub(r"typing\.Optional\[(~R)\]", r"\1 | None", text)
    text = re.sub(r"typing\.Union\[(~R), (\w+), NoneType\]", r"\1 | \2 | None", text)
    if of_records:
        record = r"(<class ')?zapdb\.records\.record\.Record('>)?"
        text = re.sub(record, "~R", text)
        text = text.replace("<class 'zapdb.aio.faces.Query'>", "zapdb.aio.faces.Query[~R]")
        text = text.replace(
            "<class 'zapdb.database.page.Page'>", "zapdb.database.typing_protocols.TypedPage[~R]"
        )
    return text


@pytest.mark.parametrize(
    ("sync", "member"), METHODS, ids=[f"{sync.__name__}.{member}" for sync, member in METHODS]
)
def test_names_parameters_and_types_are_the_same(sync: type, member: str) -> None:
    theirs = inspect.getattr_static(PAIRS[sync], RENAMED.get(member, member))
    if member == "applied" or (member == "name" and sync is changes.ChangeFollower):
        assert isinstance(theirs, property)  # attributes there
        return
    if member == "__repr__":
        return
    ours = inspect.getattr_static(sync, member)
    allowed = DIFFERENT.get(f"{sync.__name__}.{member}", {})
    mine, other = hints(ours), hints(theirs)
    is_of_records = sync.__name__ in tool.OF_RECORDS
    if not isinstance(ours, property):
        assert not isinstance(theirs, property)
        shapes = [
            [(p.name, p.kind, p.default) for p in inspect.signature(f).parameters.values()]
            for f in (ours, theirs)
        ]
        assert shapes[0] == shapes[1]
    assert mine.keys() == other.keys()
    for name, kind in mine.items():
        if name not in allowed:
            wanted = shown(as_async(kind), of_records=is_of_records)
            assert shown(other[name]) == wanted, name
    kind = tool.FACES[sync.__name__].methods[member].kind
    if kind in ("read", "write", "sql", "task"):
        is_closed = getattr(ours, "__annotations__", {}).get("return") in tool.CLOSED
        assert inspect.iscoroutinefunction(inspect.unwrap(theirs))
        assert is_closed == hasattr(theirs, "__wrapped__")
    if kind in ("build", "block", "rows", "task rows"):
        assert not inspect.iscoroutinefunction(theirs)


@pytest.mark.parametrize("sync", [s for s in PAIRS if s.__name__ in tool.FACES])
def test_there_is_nothing_else(sync: type) -> None:
    def shown(made: type) -> set[str]:
        return {n for n in dir(made) if not n.startswith("_")}

    wanted = tool.FACES[sync.__name__].methods
    assert shown(PAIRS[sync]) == {
        name for name, method in wanted.items() if method.kind != "none" and name[0] != "_"
    }
    assert shown(sync) <= wanted.keys()


def test_opening_takes_the_same() -> None:
    ours, theirs = inspect.signature(zapdb.open), inspect.signature(aio.open)
    assert ours.parameters == theirs.parameters
    assert theirs.return_annotation == "Database"


PROGRAM = """\
from collections.abc import AsyncIterator
from typing import Any
import zapdb.aio
from zapdb.database import Page
from zapdb.records import Record

async def work(tx: zapdb.aio.Transaction, more: int = 1) -> int:
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
        async with db.transaction() as tx:
            reveal_type(tx)
            async with tx.savepoint() as inner:
                reveal_type(inner)
        async with db.snapshot() as snap:
            reveal_type(snap)
        reveal_type(await items.insert_many([{"id": 1}]))
"""
REVEALED = [
    "Record",
    "Record | None",
    "Record | None",
    "TypedPage[Record]",
    "AsyncIterator[Record]",
    "int",
    "Record",
    "Transaction",
    "Transaction",
    "Snapshot",
    "int",
]


def test_users_of_it_are_checked_strictly(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", str(program)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    found = [line.partition('"')[2].strip('"') for line in done.stdout.splitlines() if '"' in line]
    shown = []
    for kind in found:
        for module in (
            "zapdb.records.record.",
            "zapdb.aio.faces.",
            "zapdb.database.typing_protocols.",
        ):
            kind = kind.replace(module, "")
        shown.append(kind.replace("typing.", "").replace("builtins.", ""))
    assert shown == REVEALED
