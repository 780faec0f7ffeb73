"""Calls that may take minutes hold up nothing else, and are bounded, with the files that they bring
along."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

import zapdb
from tests.contract.tables import ITEMS
from tests.services import Served, bearer, served, token_for
from tests.support import GUARD_SECONDS, Workspace, wait_until
from zapdb.control.migrations.comparing import check
from zapdb.control.settings import SettingScope
from zapdb.errors import NotAllowed, ServiceBusy
from zapdb.limits import ASYNC_LONG_CALLS, LONG_CALLS_OF_ONE_MAX
from zapdb.migrations import SentDirectory
from zapdb.service import server as server_module
from zapdb.service.client import Client
from zapdb.service.methods import BY_FUNCTION
from zapdb.service.principals import Grant

MEBIBYTE = 1024 * 1024


@pytest.fixture
def service(workspace: Workspace, key_file: Path) -> Iterator[Served]:
    workspace.write(1, ITEMS)
    with workspace.open() as db:
        db.admin.set_setting("change_log", "on")
        db.table("items").insert(id=1, title="Milk")
    with served(workspace.address, key_file) as one:
        yield one


@contextmanager
def client_of(service: Served, key_file: Path, name: str) -> Iterator[Client]:
    token = token_for(key_file, name)
    with zapdb.connect(f"grpc://{service.address}", token=token) as found:
        yield found.with_timeout(GUARD_SECONDS)


class Held:
    """Checks of files that end when they are told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_free = threading.Event()
        self.under_way = 0
        monkeypatch.setattr("zapdb.control.migrations.comparing.check_all_files", self._check)

    def _check(self, *_: Any, **__: Any) -> Any:
        self.under_way += 1
        assert self.is_free.wait(GUARD_SECONDS)
        self.under_way -= 1
        return zapdb.migrations.check.CheckedMigrations(())


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Held:
    return Held(monkeypatch)


def test_all_else_goes_on_while_many_files_are_checked(
    service: Served, workspace: Workspace, key_file: Path, held: Held
) -> None:
    with ExitStack() as ended:
        clients = [ended.enter_context(client_of(service, key_file, f"ci-{n}")) for n in range(4)]
        pool = ended.enter_context(ThreadPoolExecutor(ASYNC_LONG_CALLS + 1))
        ended.callback(held.is_free.set)
        each = [clients[n // LONG_CALLS_OF_ONE_MAX] for n in range(ASYNC_LONG_CALLS)]
        checks = [pool.submit(one.migrations.check, workspace.directory) for one in each]
        wait_until(lambda: held.under_way == ASYNC_LONG_CALLS, "all places are taken")
        with pytest.raises(ServiceBusy) as caught:
            clients[0].migrations.status(workspace.directory)
        assert caught.value.rpc_status == "RESOURCE_EXHAUSTED"
        assert "has ended" in caught.value.hint
        with pytest.raises(ServiceBusy):
            clients[0].jobs.get_conversion_status()
        for client in clients:
            assert len(client.catalog.list_tables().tables) == 1
            assert next(client.catalog.watch_catalog()).rows
            assert client.jobs.list_jobs().jobs == ()
            assert len(client.cluster.list_nodes().nodes) == 1
            assert list(client.changes.list_changes(table="items"))
            assert list(client.history.audit(table="items"))
            client.settings.set_setting("convert", "on_access", SettingScope())
        waiting = pool.submit(clients[3].migrations.check, workspace.directory)
        wait_until(lambda: "ci-3" in service.server._long_calls._under_way, "another one waits")
        assert held.under_way == ASYNC_LONG_CALLS
        held.is_free.set()
        assert [one.result() for one in (*checks, waiting)]
    wait_until(lambda: not service.server._long_calls._under_way, "all places are given back")


def test_files_of_a_call_without_a_place_are_not_received(
    service: Served, workspace: Workspace, key_file: Path, held: Held
) -> None:
    method, sent, is_told = BY_FUNCTION[check], [0], threading.Event()

    def send_many() -> Iterator[Any]:
        yield method.request.write({"directory": SentDirectory("m", ()), "with_lock": False})
        for number in range(1, 61):
            sent[0] += 1
            file = {"name": f"{number:04}_a.yaml", "content": b"#" * MEBIBYTE}
            yield method.request_class(directory={"files": [file]})
        is_told.set()

    with ExitStack() as ended:
        names = [f"ci-{n // LONG_CALLS_OF_ONE_MAX}" for n in range(ASYNC_LONG_CALLS)]
        clients = [ended.enter_context(client_of(service, key_file, name)) for name in names]
        pool = ended.enter_context(ThreadPoolExecutor(ASYNC_LONG_CALLS))
        channel = ended.enter_context(grpc.insecure_channel(service.address))
        ended.callback(held.is_free.set)
        checks = [pool.submit(one.migrations.check, workspace.directory) for one in clients]
        wait_until(lambda: held.under_way == ASYNC_LONG_CALLS, "all places are taken")
        ask = channel.stream_unary(
            method.path, request_serializer=method.request_class.SerializeToString
        )
        call = ask.future(send_many(), metadata=bearer(token_for(key_file, "late")))
        assert not is_told.wait(2)
        assert sent[0] < 10  # as much as a connection has on its way
        held.is_free.set()
        assert call.result(GUARD_SECONDS) is not None
        assert [one.result() for one in checks]


def test_files_that_do_not_come_hold_no_place(
    service: Served, key_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "SENT_FILES_SECONDS", 0.2)
    method, is_over = BY_FUNCTION[check], threading.Event()

    def send_late() -> Iterator[Any]:
        yield method.request.write({"directory": SentDirectory("m", ()), "with_lock": False})
        is_over.wait(GUARD_SECONDS)

    with grpc.insecure_channel(service.address) as channel:
        ask = channel.stream_unary(
            method.path, request_serializer=method.request_class.SerializeToString
        )
        for _ in range(2 * LONG_CALLS_OF_ONE_MAX):
            with pytest.raises(grpc.RpcError) as caught:
                ask(send_late(), metadata=bearer(token_for(key_file)))
            assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert caught.value.details() == "the migration files did not arrive in time"
        is_over.set()


def test_who_may_send_no_files_takes_no_place(
    service: Served, workspace: Workspace, key_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> Any:
        raise AssertionError("it has a place")

    monkeypatch.setattr(service.server._long_calls, "place", refuse)
    token = token_for(key_file, "reader", Grant("default", frozenset({"catalog:read"})))
    with (
        zapdb.connect(f"grpc://{service.address}", token=token) as client,
        pytest.raises(NotAllowed),
    ):
        client.migrations.check(workspace.directory)
