"""The call log of a service, and requests that are repeated with their idempotency key."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest

import zapdb
from tests.cli.program import run_here
from tests.contract.tables import ADD_COLOR, ITEMS
from tests.services import ALL, Served, bearer, served, token_for
from tests.support import Workspace
from zapdb.catalog import calls
from zapdb.catalog.calls import KeyedRequest, LoggedCall, prune_calls, read_calls, write_calls
from zapdb.cli.served_commands import list_served_commands
from zapdb.control import catalog
from zapdb.control.settings import SettingScope
from zapdb.errors import (
    CommitUnknown,
    ConcurrencyError,
    InvalidValue,
    KeyInUse,
    NotAllowed,
    UnknownName,
    UsageError,
)
from zapdb.service.call_log import CLOCK_NOISE_US, NotedCall
from zapdb.service.client import Client
from zapdb.service.guard import IncomingCall
from zapdb.service.methods import METHODS
from zapdb.service.principals import Grant, Principal
from zapdb.storage import Storage, TransactionMode
from zapdb.storage.identifiers import make_uuid7

READS = frozenset({"data:read", "catalog:read"})


@pytest.fixture
def service(workspace: Workspace, key_file: Path) -> Iterator[Served]:
    workspace.write(1, ITEMS)
    workspace.open()
    workspace.write(2, ADD_COLOR)
    workspace.open().admin.create_tenant("acme")
    with served(workspace.address, key_file) as one:
        yield one


def client_for(service: Served, key_file: Path, name: str, *grants: Grant) -> Client:
    return zapdb.connect(f"grpc://{service.address}", token=token_for(key_file, name, *grants))


def logged(service: Served, workspace: Workspace, tenant: str = "default") -> list[LoggedCall]:
    """The rows of a tenant, the oldest first, when all calls so far are written."""
    storage = workspace.connect()
    log = service.server._call_log
    while log._waiting:
        pass
    with storage.transaction(TransactionMode.READ) as connection:
        return read_calls(connection, tenant, None, None, None)[::-1]


def test_what_changed_or_read_or_was_refused_is_logged(
    service: Served, workspace: Workspace, key_file: Path
) -> None:
    before = workspace.connect()
    now = before.now_us(before.connection())
    with client_for(service, key_file, "reader", Grant("default", READS)) as reader:
        reader.catalog.list_tables()  # a look-up
        reader.catalog.list_key_ranges("items")
        with pytest.raises(NotAllowed):
            reader.catalog.prune_fingerprint_history(catalog.HistoryBound(keep_last=1), "items")
    with client_for(service, key_file, "admin") as admin:
        bound = catalog.HistoryBound(keep_last=1)
        admin.catalog.prune_fingerprint_history(bound, "items")
        with pytest.raises(UsageError):
            admin.catalog.prune_fingerprint_history(bound)
        with pytest.raises(UnknownName):  # its tables are not made yet
            admin.for_tenant("acme").catalog.list_key_ranges("items")
    with pytest.raises(grpc.RpcError), grpc.insecure_channel(service.address) as channel:
        channel.unary_unary("/zapdb.v1.Catalog/ListTables")(b"")  # of nobody
    found = logged(service, workspace)
    assert [(call.principal, call.method.rpartition("/")[2], call.status) for call in found] == [
        ("reader", "ListKeyRanges", "OK"),
        ("reader", "PruneFingerprintHistory", "PERMISSION_DENIED"),
        ("admin", "PruneFingerprintHistory", "OK"),
        ("admin", "PruneFingerprintHistory", "FAILED_PRECONDITION"),
    ]
    assert [call.tables for call in found] == [("items",)] * 3 + [()]
    # The service knows the database's clock as well as its answers are quick.
    assert all(now - CLOCK_NOISE_US <= call.called_at for call in found)
    assert all(call.duration_us > 0 for call in found)
    assert [call.principal for call in logged(service, workspace, "acme")] == ["admin"]


def test_calls_show_what_is_in_the_call_log(
    service: Served, workspace: Workspace, key_file: Path
) -> None:
    with client_for(service, key_file, "a") as one, client_for(service, key_file, "b") as two:
        one.catalog.list_key_ranges("items")
        two.catalog.list_key_ranges("items")
        logged(service, workspace)
        found = list(one.catalog.list_calls())
        assert [call.principal for call in found] == ["b", "a"]
        assert [call.principal for call in one.catalog.list_calls(limit=1)] == ["b"]
        assert [call.principal for call in one.catalog.list_calls(principal="a")] == ["a"]
        assert list(one.catalog.list_calls(since=f"{datetime.now(UTC) + timedelta(days=1)}")) == []
    here = run_here(["catalog", "calls", "--json", "-d", workspace.address])
    assert [line["principal"] for line in here.lines] == ["b", "a"]
    assert here.lines[0]["method"] == "/zapdb.v1.Catalog/ListKeyRanges"
    text = run_here(["catalog", "calls", "--since", "1h", "-d", workspace.address])
    assert "ListKeyRanges" in text.out


def test_a_flood_of_names_is_cut(service: Served, workspace: Workspace, key_file: Path) -> None:
    """Callers may ask for anything: it is no more than a row holds."""
    metadata = bearer(token_for(key_file, "ci", Grant("default", ALL)))
    with grpc.insecure_channel(service.address) as channel:
        for path in ("/" + "x" * 5_000 + "/y", "/zapdb.v1.Catalog/Nothing"):
            with pytest.raises(grpc.RpcError):
                channel.unary_unary(path)(b"", metadata=metadata)
        request = b"\x0a\x03a\x00b"  # the tenant
        with pytest.raises(grpc.RpcError):
            channel.unary_unary("/zapdb.v1.Catalog/ListTables")(request, metadata=metadata)
    storage = workspace.connect()
    assert len(logged(service, workspace, "")) == 2
    assert [call.tenant for call in logged(service, workspace, "a\ufffdb")] == ["a\ufffdb"]
    assert storage.connection() is not None


def test_calls_that_belong_to_no_tenant_are_listed_with_all(
    service: Served, workspace: Workspace, key_file: Path
) -> None:
    with (
        client_for(service, key_file, "a") as one,
        client_for(service, key_file, "b", Grant("default", ALL)) as narrow,
        grpc.insecure_channel(service.address) as channel,
    ):
        metadata = bearer(token_for(key_file, "b", Grant("default", ALL)))
        with pytest.raises(grpc.RpcError):
            channel.unary_unary("/zapdb.v1.Catalog/Nothing")(b"", metadata=metadata)
        with pytest.raises(NotAllowed):
            narrow.for_tenant("gone").catalog.list_tables()
        one.catalog.list_key_ranges("items")
        while len(found := list(one.catalog.list_calls(all_tenants=True))) < 3:
            pass
        assert {(call.principal, call.tenant) for call in found} == {
            ("b", ""),
            ("b", "gone"),
            ("a", "default"),
        }
        with pytest.raises(NotAllowed):
            list(narrow.catalog.list_calls(all_tenants=True))
    given = ("catalog", "calls", "--all-tenants", "-d", workspace.address)
    assert "gone" in run_here(given).out
    assert "contradict" in run_here([*given, "--tenant", "acme"]).err


def test_a_duration_has_a_bound(workspace: Workspace) -> None:
    """What a caller gives is no stored time that would be damaged, and no overflow."""
    workspace.write(1, ITEMS)
    workspace.open().admin.set_setting("change_log", "on")
    commands = (
        ("catalog", "calls", "--since"),
        ("catalog", "revisions", "--table", "items", "--since"),
        ("history", "moments", "--since"),
        ("history", "row", "items", "1", "--at"),
        ("changes", "prune", "--older-than"),
    )
    for command in commands:
        result = run_here([*command, "999999999d", "-d", workspace.address])
        assert "the duration is too long" in result.err, result
        assert result.status == 2
    for command in commands[:3]:
        assert run_here([*command, "36525d", "-d", workspace.address]).err == ""


def rows_at(*times: int) -> list[LoggedCall]:
    return [LoggedCall(make_uuid7(), at, "ci", "/m", "default", (), "OK", 1) for at in times]


def times_left(storage: Storage) -> list[int]:
    with storage.transaction(TransactionMode.READ) as connection:
        return [call.called_at for call in read_calls(connection, "default", None, None, None)]


def test_calls_go_by_age_and_beyond_the_bound(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace.write(1, ITEMS)
    workspace.open()
    storage = workspace.connect()
    monkeypatch.setattr(calls, "CALL_LOG_CALLS_MAX", 3)
    second = 1_000_000

    def prune(retention_seconds: int, *times: int) -> list[int]:
        with storage.transaction(TransactionMode.CATALOG) as connection:
            write_calls(connection, rows_at(*times))
            prune_calls(connection, retention_seconds, 100 * second)
        return times_left(storage)

    assert prune(0, 1, 2) == [2, 1]
    assert prune(0, 3, 4, 5) == [5, 4, 3]
    assert prune(50, 60 * second) == [60 * second]
    assert prune(10, 95 * second) == [95 * second]


def test_refusals_push_out_nothing_but_refusals(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever has a token may be refused as often as they like."""
    workspace.write(1, ITEMS)
    workspace.open()
    storage = workspace.connect()
    monkeypatch.setattr(calls, "CALL_LOG_CALLS_MAX", 4)

    def prune(*rows: LoggedCall) -> list[int]:
        with storage.transaction(TransactionMode.CATALOG) as connection:
            write_calls(connection, rows)
            prune_calls(connection, 0, 100)
        return times_left(storage)

    def refused_at(*times: int) -> list[LoggedCall]:
        return [replace(row, status=NotAllowed.rpc_status) for row in rows_at(*times)]

    assert prune(*rows_at(1), *refused_at(2, 3, 4)) == [4, 3, 2, 1]
    assert prune(*rows_at(5), *refused_at(6, 7, 7, 7)) == [7, 7, 5, 1]
    assert prune(*rows_at(8)) == [8, 7, 5, 1]
    assert prune(*rows_at(9, 10)) == [10, 9, 8, 5]  # of those, older ones go first
    assert prune(*refused_at(11)) == [10, 9, 8, 5]


def test_a_row_has_no_more_than_some_names_of_tables(
    service: Served, workspace: Workspace, key_file: Path
) -> None:
    """A refused call may name as many tables as a message has place for: neither a row nor what
    waits to be one has them."""
    metadata = bearer(token_for(key_file, "ci", Grant("other", ALL)))
    method = next(one for one in METHODS if one.name == "DiffMoments")
    names = ["x" * 255] * 300
    request = method.request_class(tenant="default", first="#1", second="#1", tables=names)
    with grpc.insecure_channel(service.address) as channel, pytest.raises(grpc.RpcError):
        list(channel.unary_stream(method.path)(request.SerializeToString(), metadata=metadata))
    while not (found := logged(service, workspace)):
        pass  # the client is told before the log
    assert found[0].tables == (*names[:4], "… and 296 more")
    few = IncomingCall(method.path, {}, caller=Principal("ci", ()), tables=("a\x1b[31m\n", "b"))
    assert NotedCall.of(few).tables == ("a\ufffd[31m\ufffd", "b")


def test_pages_lead_through_the_whole_log(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace.write(1, ITEMS)
    db = workspace.open()
    monkeypatch.setattr(calls, "PAGE_CALLS", 4)
    monkeypatch.setattr(catalog, "PAGE_CALLS", 4)
    rows = rows_at(*(at // 3 for at in range(18)))  # several of one moment
    with db._storage.transaction(TransactionMode.CATALOG) as connection:
        write_calls(connection, rows)
    found = run_here(["catalog", "calls", "--json", "-d", workspace.address]).lines
    assert len(found) == 18
    assert [line["called_at"] for line in found] == sorted(
        (line["called_at"] for line in found), reverse=True
    )


# Idempotency keys


def prune_with(client: Client, key: str, keep: int, table: str = "items") -> Any:
    bound = catalog.HistoryBound(keep_last=keep)
    return client.with_key(key).catalog.prune_fingerprint_history(bound, table)


def test_a_repeated_call_is_the_same_call(service: Served, key_file: Path) -> None:
    with client_for(service, key_file, "ci") as client, client_for(service, key_file, "x") as other:
        first = prune_with(client, "deploy-1", 1)
        assert (first.done, first.pruned) == (True, (1,))
        assert prune_with(client, "deploy-1", 1) == first
        assert prune_with(client, "deploy-2", 1).pruned == ()  # by then there was nothing to do
        assert prune_with(other, "deploy-1", 1).pruned == ()  # keys are each principal's own
        for request in ((2, "items"), (1, "others")):
            with pytest.raises(KeyInUse) as caught:
                prune_with(client, "deploy-1", *request)
            assert caught.value.context == {"key": "deploy-1", "principal": "ci"}
        for key in ("", "x" * 256):
            if key:
                with pytest.raises(InvalidValue):
                    prune_with(client, key, 1)


def test_a_call_that_failed_is_done_again(service: Served, key_file: Path) -> None:
    with client_for(service, key_file, "ci") as client:
        bound = catalog.HistoryBound(keep_last=1)
        for _ in range(2):
            with pytest.raises(UsageError):
                client.with_key("k").catalog.prune_fingerprint_history(bound)
        assert prune_with(client, "k", 1).pruned == (1,)  # nothing was done with it


def test_a_key_is_known_until_its_time_is_over(workspace: Workspace) -> None:
    workspace.write(1, ITEMS)
    db, other = workspace.open(), workspace.open()
    keyed = KeyedRequest("ci", "k", hashlib.sha256(b"a").digest(), "zapdb migrate status")
    mine, theirs = db._node.id, other._node.id

    def begin(request: KeyedRequest, owner: str, now_us: int = 0) -> bytes | None:
        with db._storage.transaction(TransactionMode.CATALOG) as connection:
            return request.begin(connection, owner, now_us)

    assert begin(keyed, mine) is None
    with pytest.raises(ConcurrencyError, match="under way"):
        begin(keyed, theirs)  # a live process works on it
    with pytest.raises(CommitUnknown, match="broken off") as caught:  # here, since not under way
        begin(keyed, mine)
    assert caught.value.hint.startswith("`zapdb migrate status` shows whether it did")
    with db._storage.transaction(TransactionMode.CATALOG) as connection:
        keyed.end(connection, b"answer")
    assert begin(keyed, theirs) == b"answer"
    with db._storage.transaction(TransactionMode.CATALOG) as connection:
        keyed.forget(connection)  # an answer stays
    assert begin(keyed, theirs) == b"answer"
    assert begin(keyed, theirs, 90_000 * 1_000_000) is None  # 25 hours later


def test_what_a_dead_process_began_is_not_done_again(workspace: Workspace) -> None:
    workspace.write(1, ITEMS)
    db = workspace.open()
    keyed = KeyedRequest("ci", "k", b"x")
    with db._storage.transaction(TransactionMode.CATALOG) as connection:
        assert keyed.begin(connection, "dead", 0) is None
        for one in (db._node.id, "another"):
            with pytest.raises(CommitUnknown):
                keyed.begin(connection, one, 0)


def test_a_key_of_a_tenant_that_was_removed_is_none_of_the_one_with_its_name(
    service: Served, key_file: Path, workspace: Workspace
) -> None:
    db = workspace.open()
    with client_for(service, key_file, "ci") as client:
        acme, scope = client.for_tenant("acme"), SettingScope(of_tenant=True)
        acme.with_key("k").settings.set_setting("on_read", "leave", scope)
        db.admin.remove_tenant("acme")
        db.admin.create_tenant("acme")
        with pytest.raises(KeyInUse):
            acme.with_key("k").settings.set_setting("on_read", "leave", scope)


def test_what_only_asks_needs_no_key(service: Served, key_file: Path) -> None:
    """A dry run with the key of the call itself is not that call."""
    bound = catalog.HistoryBound(keep_last=1)
    with client_for(service, key_file, "ci") as client:
        of = client.with_key("k").catalog
        assert not of.prune_fingerprint_history(bound, "items", dry_run=True).done
        assert of.prune_fingerprint_history(bound, "items").done
        assert not of.prune_fingerprint_history(bound, "items", dry_run=True).done


def test_each_change_is_shown_by_a_command_that_a_service_answers() -> None:
    served_commands = list_served_commands()
    for method in METHODS:
        if method.changes:
            words = method.shown_by.removesuffix(" --all").removeprefix("zapdb ")
            assert words in served_commands, method.name
            assert not method.shows_data, method.name
