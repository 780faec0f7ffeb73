"""The clients of a service: typed methods, the errors of the database, and what they refuse."""

from __future__ import annotations

import asyncio
import inspect
import multiprocessing
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import zapdb
import zapdb.aio
from tests.cli.program import run_here
from tests.contract.tables import ADD_COLOR, ITEMS
from tests.services import Authority, Served, served, token_for
from tests.support import Workspace
from zapdb.cli.served_commands import list_served_commands
from zapdb.control import catalog
from zapdb.control.settings import SettingScope
from zapdb.errors import (
    AnswerTooLarge,
    CallTimedOut,
    InvalidValue,
    NotAllowed,
    NotAuthenticated,
    ServiceUnreachable,
    UnknownName,
    UsageError,
    ZapdbError,
)
from zapdb.service import aio_client, client, server
from zapdb.service.certificates import Certificates
from zapdb.service.methods import METHODS, Method
from zapdb.service.principals import Grant


@pytest.fixture
def service(workspace: Workspace, key_file: Path) -> Iterator[Served]:
    workspace.write(1, ITEMS)
    workspace.open().admin.create_tenant("acme")
    with served(workspace.address, key_file) as one:
        yield one


def method_of(of: Any, method: Method) -> Any:
    service = method.service.rpartition(".")[2].lower()
    return getattr(getattr(of, service), method.function.__name__)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.path)
def test_the_clients_have_every_method(method: Method) -> None:
    """As the function has it: its parameters and its docstring; the asynchronous one awaited, or
    iterated if it answers with a stream."""
    calls = client.Calls(
        client.ServiceAddress.read("grpc://localhost", client.ServiceAccess("x")), None, "default"
    )
    here = method_of(client.Client(calls), method)
    there = method_of(aio_client.AsyncClient(calls), method)
    wanted = list(method.signature.parameters)
    for found in (here, there):
        assert list(inspect.signature(found.__wrapped__).parameters)[1:] == wanted
        assert found.__doc__ == method.function.__doc__
    assert inspect.isasyncgenfunction(there.__func__) == method.is_stream
    assert inspect.iscoroutinefunction(there.__func__) == (not method.is_stream)


def test_a_client_answers_as_the_database_does(
    service: Served, workspace: Workspace, key_file: Path
) -> None:
    token = token_for(key_file)
    with zapdb.connect(f"grpc://{service.address}", token=token) as found:
        tables = found.catalog.list_tables()
        assert [table.table for table in tables.tables] == ["items"]
        assert type(tables) is catalog.Tables
        entries = list(found.catalog.get_fingerprint_history("items"))
        assert [entry.revision for entry in entries] == [1]
        assert found.for_tenant("acme").catalog.list_tables().tables == ()
        with pytest.raises(UnknownName) as caught:
            found.catalog.get_table("nobody")
        assert caught.value.context["tables"] == "items"
        with pytest.raises(UnknownName):
            list(found.catalog.get_fingerprint_history("nobody"))

    async def ask() -> None:
        address = f"grpc://{service.address}"
        async with zapdb.aio.connect(address, token=token) as found:
            assert await found.catalog.list_tables() == tables
            assert [one async for one in found.catalog.get_fingerprint_history("items")] == entries
            with pytest.raises(UnknownName):
                await found.catalog.get_table("nobody")
            with pytest.raises(UnknownName):
                [one async for one in found.catalog.get_fingerprint_history("nobody")]
            assert (await found.for_tenant("acme").catalog.list_tables()).tables == ()

    asyncio.run(ask())


def test_a_look_up_sees_a_change_at_last_and_with_its_seq_at_once(
    service: Served, workspace: Workspace, key_file: Path
) -> None:
    with zapdb.connect(f"grpc://{service.address}", token=token_for(key_file)) as found:
        assert found.catalog.list_tables().position == 1
        workspace.write(2, ADD_COLOR)
        db = workspace.open()
        found._calls._seen[0] = db.admin.catalog_seq()
        assert found.catalog.list_tables().position == 2


def test_tokens_come_from_the_call_a_file_or_the_environment(
    service: Served, key_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"grpc://{service.address}"
    token = token_for(key_file)
    with zapdb.connect(address) as found, pytest.raises(NotAuthenticated, match="no token"):
        found.catalog.list_tables()
    file = tmp_path / "token"
    file.touch(0o600)
    file.write_text(token_for(key_file, "ci", Grant("default", frozenset({"jobs:read"}))) + "\n")
    with zapdb.connect(address, token_file=file) as found:
        with pytest.raises(NotAllowed):
            found.catalog.list_tables()
        file.write_text(token + "\n")  # a long-lived client is given another one
        found.catalog.list_tables()
    monkeypatch.setenv("ZAPDB_TOKEN", token)
    with zapdb.connect(address) as found:
        found.catalog.list_tables()
    file.chmod(0o644)
    with pytest.raises(UsageError, match="others can read"):
        zapdb.connect(address, token_file=file)


def test_by_tls_with_a_certificate(workspace: Workspace, key_file: Path, tmp_path: Path) -> None:
    workspace.write(1, ITEMS)
    workspace.open()
    authority = Authority.make(tmp_path)
    with served(workspace.address, key_file, Certificates(*authority.sign("service"))) as one:
        address, token = f"grpcs://{one.address}", token_for(key_file)
        with zapdb.connect(address, token=token, tls_ca=authority.path) as found:
            assert len(found.catalog.list_tables().tables) == 1
        with zapdb.connect(address, token=token) as found, pytest.raises(ServiceUnreachable):
            found.catalog.list_tables()
        given = ("-d", address, "--tls-ca", str(authority.path), "--token-file")
        file = tmp_path / "token"
        file.touch(0o600)
        file.write_text(token)
        result = run_here(["catalog", "list", "--json", *given, str(file)])
        assert result.status == 0, result
        assert result.json["tables"][0]["table"] == "items"


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("grpc://db.example.com:1", "travel in clear"),
        ("grpc://10.0.0.1", "travel in clear"),
        ("grpcs://", "no address"),
        ("grpcs://host:port", "no address"),
        ("grpcs://host/path", "no address"),
        ("grpcs://user@host", "no address"),
        ("http://host", "no address"),
        ("", "no address"),
    ],
)
def test_addresses_that_are_refused(address: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        zapdb.connect(address)


def test_an_address_of_the_other_kind_leads_to_what_takes_it() -> None:
    with pytest.raises(UsageError) as of_database:
        zapdb.connect("postgresql://app:secret@host/shop")
    assert "zapdb.open" in of_database.value.hint
    assert "secret" not in str(of_database.value)
    with pytest.raises(UsageError) as of_service:
        zapdb.open("grpcs://host:7427")
    assert "zapdb.connect" in of_service.value.hint


def test_certificates_go_with_tls_and_with_their_key(tmp_path: Path) -> None:
    certificate, key = Authority.make(tmp_path).sign("x")
    with pytest.raises(UsageError, match="are for TLS"):
        zapdb.connect("grpc://localhost", tls_cert=certificate, tls_key=key)
    with pytest.raises(UsageError, match="goes with its key"):
        zapdb.connect("grpcs://localhost", tls_cert=certificate)
    key.chmod(0o644)
    with pytest.raises(UsageError, match="others can read"):
        zapdb.connect("grpcs://localhost", tls_cert=certificate, tls_key=key)


def test_nobody_there(tmp_path: Path) -> None:
    with zapdb.connect("grpc://127.0.0.1:1") as found:
        with pytest.raises(ServiceUnreachable) as caught:
            found.catalog.list_tables()
        assert "zapdb serve" in caught.value.hint
        with pytest.raises(ServiceUnreachable):
            list(found.catalog.get_fingerprint_history("items"))
    assert run_here(["catalog", "list", "-d", "grpc://127.0.0.1:1"]).status == 1


def ask_in_child(found: client.Client, told: Any) -> None:
    try:
        found.catalog.list_tables()
    except ZapdbError as error:
        told.send((type(error), error.hint))
    told.send(None)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_process_connects_anew() -> None:
    """Before anything was sent, since grpc can't be forked afterwards."""
    here, there = multiprocessing.Pipe()
    with zapdb.connect("grpc://127.0.0.1:1", token="x") as found:
        child = multiprocessing.get_context("fork").Process(
            target=ask_in_child, args=(found, there)
        )
        child.start()
        kind, hint = here.recv()
        child.join()
    assert kind is UsageError
    assert "zapdb.connect in the forked process" in hint


def test_other_commands_refuse_a_service_and_list_those_that_it_has() -> None:
    served_names = list_served_commands()
    assert {"catalog list", "migrate check", "settings set"} <= {*served_names}
    for command in (["data", "list", "items"], ["verify"], ["serve"], ["sql", "SELECT 1"]):
        assert " ".join(command[:2]) not in served_names
        result = run_here([*command, "-d", "grpcs://localhost:1", "--json"])
        assert result.status == 2, result
        assert "catalog list, " in result.error["hint"], result


def test_a_stream_that_is_kept_is_read_again_when_the_catalog_has_changed(
    service: Served, workspace: Workspace, key_file: Path
) -> None:
    """By an activation, and by a pruning, which changes no row of the catalog but moves its seq."""
    workspace.write(2, ADD_COLOR)
    db = workspace.open()
    with zapdb.connect(f"grpc://{service.address}", token=token_for(key_file)) as found:
        found._calls._seen[0] = db.admin.catalog_seq()

        def revisions() -> list[int]:
            return [one.revision for one in found.catalog.get_fingerprint_history("items")]

        assert revisions() == revisions() == [1, 2]
        kept = service.server._kept._kept
        assert any(len(one.messages) == 2 for one in kept.values())
        command = ["catalog", "prune", "--table", "items", "--keep-last", "1", "--yes"]
        result = run_here([*command, "-d", workspace.address])
        assert result.status == 0, result
        found._calls._seen[0] = db.admin.catalog_seq()
        assert revisions() == [2]


def test_a_call_may_be_given_a_time(service: Served, key_file: Path) -> None:
    """A watch has no end, so it takes all of it."""
    address, token = f"grpc://{service.address}", token_for(key_file)
    with zapdb.connect(address, token=token, timeout_seconds=0.5) as found:
        with pytest.raises(CallTimedOut, match="did not answer") as caught:
            list(found.catalog.watch_catalog())
        assert isinstance(caught.value, TimeoutError)
        with pytest.raises(CallTimedOut):
            list(found.for_tenant("acme").with_timeout(0.2).catalog.watch_catalog())
        assert next(found.with_timeout(None).catalog.watch_catalog())
        assert found.with_timeout(60).catalog.list_tables().tables

    async def ask() -> None:
        async with zapdb.aio.connect(address, token=token, timeout_seconds=0.5) as found:
            with pytest.raises(CallTimedOut):
                [one async for one in found.catalog.watch_catalog()]
            assert (await found.with_timeout(60).catalog.list_tables()).tables

    asyncio.run(ask())


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), 1e300])
def test_no_call_is_given_a_time_that_is_none(seconds: float) -> None:
    with pytest.raises(UsageError, match="no time that a call may take"):
        zapdb.connect("grpc://localhost:1", timeout_seconds=seconds)

    async def connect() -> None:
        with pytest.raises(UsageError, match="no time that a call may take"):
            zapdb.aio.connect("grpc://localhost:1", timeout_seconds=seconds)

    asyncio.run(connect())


def test_an_answer_that_no_client_takes_is_told(
    service: Served, key_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "SERVICE_ANSWER_SIZE_BYTES_MAX", 20)
    with zapdb.connect(f"grpc://{service.address}", token=token_for(key_file)) as found:
        for ask in (
            found.catalog.list_tables,
            found.cluster.list_nodes,
            lambda: list(found.catalog.get_fingerprint_history("items")),
            lambda: next(found.catalog.watch_catalog()),
        ):
            with pytest.raises(AnswerTooLarge) as caught:
                ask()
            assert caught.value.context["most_bytes"] == "20"


def test_a_closed_client_says_so(service: Served, key_file: Path) -> None:
    address, token = f"grpc://{service.address}", token_for(key_file)
    found = zapdb.connect(address, token=token)
    other, watch = found.for_tenant("acme"), found.catalog.watch_catalog()
    next(watch)
    found.close()
    for ask in (found.catalog.list_tables, other.catalog.list_tables, found.catalog.watch_catalog):
        with pytest.raises(UsageError, match="the client is closed"):
            ask()
    with pytest.raises(ServiceUnreachable):
        next(watch)

    async def work() -> None:
        there = zapdb.aio.connect(address, token=token)
        watch = there.catalog.watch_catalog()
        await anext(watch)
        waiting = asyncio.ensure_future(anext(watch))
        await asyncio.sleep(0)
        await there.close()
        with pytest.raises(ServiceUnreachable):
            await waiting
        with pytest.raises(UsageError, match="the client is closed"):
            await there.catalog.list_tables()
        with pytest.raises(UsageError, match="the client is closed"):
            await anext(there.catalog.watch_catalog())

    asyncio.run(work())


@pytest.mark.parametrize("key", ["é", "a\nb", "a\x7f", " a", "a "])
def test_no_key_is_sent_that_no_header_can_have(key: str) -> None:
    with zapdb.connect("grpc://127.0.0.1:1", token="x") as found:
        with pytest.raises(UsageError, match="characters of ASCII"):
            found.with_key(key)
        with pytest.raises(UsageError, match="this is no token"):
            zapdb.connect("grpc://127.0.0.1:1", token=f"x{key}x")

    async def work() -> None:
        async with zapdb.aio.connect("grpc://127.0.0.1:1", token="x") as there:
            with pytest.raises(UsageError, match="characters of ASCII"):
                there.with_key(key)

    asyncio.run(work())


def test_a_parameter_that_no_request_can_have_is_named() -> None:
    with zapdb.connect("grpc://127.0.0.1:1", token="x") as found:
        cases: list[tuple[str, Callable[[], object]]] = [
            ("limit", lambda: found.history.list_records("items", "0s", limit=-1)),
            ("limit", lambda: found.history.list_records("items", "0s", limit=2**70)),
            ("after", lambda: next(found.catalog.watch_catalog(after=-1))),
            ("table", lambda: found.catalog.get_table("\ud800")),
            ("key", lambda: found.history.fetch_row("items", ("\ud800",), "0s")),
            ("tenant", lambda: found.for_tenant("\ud800").catalog.list_tables()),
            ("scope", lambda: found.settings.list_settings(SettingScope(table="\ud800"))),
        ]
        for name, ask in cases:
            with pytest.raises(InvalidValue) as caught:
                ask()
            assert caught.value.context["parameter"] == name
        with pytest.raises(TypeError):
            found.catalog.get_table(5)  # type: ignore[arg-type] # on purpose


def test_a_client_for_tasks_belongs_to_an_event_loop() -> None:
    with pytest.raises(UsageError, match="no event loop runs here"):
        zapdb.aio.connect("grpc://localhost:1")
