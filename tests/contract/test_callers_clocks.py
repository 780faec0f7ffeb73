"""How long ago something was goes by the database's clock, not by that of who asks."""

from __future__ import annotations

import ast
import importlib
import pkgutil
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import zapdb
import zapdb.cli
import zapdb.control
from tests.cli.program import run_here
from tests.contract.tables import ADD_COLOR, ITEMS
from tests.contract.test_service_commands import settle
from tests.services import Served, served
from tests.support import Workspace, advance_clock
from zapdb.catalog.calls import LoggedCall, write_calls
from zapdb.catalog.feed import read_seq
from zapdb.storage import TransactionMode

OFF = timedelta(days=400)
ROOMS = (zapdb.cli, zapdb.control)
OWN_CLOCK = {
    "zapdb.cli.token": "a token has no database, and ends by the clock of who verifies it",
    "zapdb.cli.sources.databases": "a line of progress, for whoever looks at it",
}


def list_modules() -> Iterator[ModuleType]:
    for room in ROOMS:
        for found in pkgutil.walk_packages(room.__path__, f"{room.__name__}."):
            yield importlib.import_module(found.name)


def test_commands_and_methods_look_at_no_clock_of_their_own() -> None:
    looking = {module.__name__ for module in list_modules() if looks_at_clock(module)}
    assert looking == OWN_CLOCK.keys()


def looks_at_clock(module: ModuleType) -> bool:
    assert module.__file__ is not None
    tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
    called = (ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call))
    clocks = ("datetime.now", "datetime.utcnow", "date.today", "time.time", "time.time_ns")
    return any(name.endswith(clocks) for name in called)


class _Kind(type):
    def __instancecheck__(cls, one: object) -> bool:
        return isinstance(one, datetime)


class LateClock(datetime, metaclass=_Kind):
    """A clock that is far ahead."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Any:
        return datetime.now(tz) + OFF


@pytest.fixture
def asked(workspace: Workspace) -> Iterator[tuple[Workspace, Served]]:
    workspace.write(1, ITEMS)
    with workspace.open() as db:
        db.admin.set_setting("change_log", "on")
        db.table("items").insert(id=1, title="Milk")
    workspace.write(2, ADD_COLOR)
    with workspace.open() as db:
        db.table("items").update(1, title="Oats")
    storage = workspace.control
    with storage.transaction(TransactionMode.CATALOG) as connection:
        now = storage.now_us(connection)
        called = LoggedCall(b"1" * 16, now, "ada", "/one", "default", (), "OK", 1)
        write_calls(connection, [called])
    with served(workspace.address) as service:
        yield workspace, service


SERVED = (
    ("catalog", "revisions", "--table", "items", "--since", "7d"),
    ("catalog", "prune", "--table", "items", "--older-than", "7d", "--dry-run"),
    ("catalog", "calls", "--since", "7d", "--principal", "ada"),
    ("history", "audit", "--since", "0s"),
    ("history", "moments", "--since", "0s"),
    ("history", "row", "items", "1", "--at", "0s"),
)
DIRECT = (
    ("changes", "prune", "--older-than", "7d", "--dry-run"),
    ("sweep", "--older-than", "7d", "--dry-run"),
)


@pytest.fixture
def put_forward(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Lets the clock of commands and methods be far ahead of the database's."""

    def forward() -> None:
        for module in list_modules():
            if vars(module).get("datetime") is datetime:
                monkeypatch.setattr(module, "datetime", LateClock)

    return forward


@pytest.mark.parametrize("way", ["database", "service"])
def test_how_long_ago_is_by_the_clock_of_the_database(
    asked: tuple[Workspace, Served], way: str, put_forward: Callable[[], None]
) -> None:
    workspace, service = asked
    database = ("-d", workspace.address)
    there = database if way == "database" else ("-d", f"grpc://{service.address}")
    commands = [(*command, *there) for command in SERVED]
    commands += [(*command, *database) for command in DIRECT] if way == "database" else []
    right = [settle(run_here(command)) for command in commands]
    put_forward()
    assert [settle(run_here(command)) for command in commands] == right
    said = dict(zip(commands, right, strict=True))
    assert {result.status for result in right} == {0}, said
    assert right[0].out.count("\n") == 4
    assert "nothing to prune" in right[1].out
    assert "/one" in right[2].out


def test_a_service_does_not_keep_an_answer_that_goes_by_the_time(
    asked: tuple[Workspace, Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace, service = asked
    kept = service.server._kept._kept
    with zapdb.connect(f"grpc://{service.address}") as client:
        client._calls._seen[0] = read_seq(workspace.control.connection())
        for since, is_kept in (("7d", False), (None, True)):
            found = list(client.catalog.get_fingerprint_history("items", since=since))
            assert len(found) == 2
            assert any(len(one.messages) == 2 for one in kept.values()) == is_kept
        advance_clock(monkeypatch, workspace.control, OFF.total_seconds())
        for since, count in (("7d", 0), (None, 2), ("900d", 2), ("2020-01-01T00:00Z", 2)):
            found = client.catalog.get_fingerprint_history("items", since=since)
            assert len(list(found)) == count
