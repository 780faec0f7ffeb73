"""What a service does about slow readers, clients that leave, deadlines, and its own end."""

from __future__ import annotations

import asyncio
import random
import signal
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
import sqlalchemy as sa
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

import zapdb
import zapdb.aio
from tests.contract.tables import ITEMS
from tests.relay import Upstream, relay
from tests.services import Served, bearer, served, serving_process, token_for
from tests.support import GUARD_SECONDS, Workspace, wait_until
from zapdb.catalog import cache
from zapdb.catalog.calls import LoggedCall, write_calls
from zapdb.control import catalog, pace_of
from zapdb.errors import (
    CatalogBehind,
    CatalogRestored,
    LeaseLost,
    NotAuthenticated,
    ServiceError,
    ServiceUnreachable,
    UnknownName,
    UsageError,
)
from zapdb.limits import SERVICE_REQUEST_SIZE_BYTES_MAX
from zapdb.service import addresses
from zapdb.service import server as server_module
from zapdb.service.methods import METHODS, Method
from zapdb.service.principals import EVERY_TENANT, Grant
from zapdb.storage import Storage, TransactionMode
from zapdb.storage.fixed_tables import SCHEMA_HISTORY
from zapdb.storage.identifiers import make_uuid7

MANY = 20_000
LONG_NAME = "x" * 250
LIST_TABLES = "/zapdb.v1.Catalog/ListTables"
LIST_CALLS = "/zapdb.v1.Catalog/ListCalls"


@pytest.fixture
def service(workspace: Workspace, key_file: Path) -> Iterator[Served]:
    workspace.write(1, ITEMS)
    workspace.open().admin.create_tenant("acme")
    with served(workspace.address, key_file) as one:
        yield one


@pytest.fixture
def client(service: Served, key_file: Path) -> Iterator[zapdb.service.client.Client]:
    token = token_for(key_file)
    with zapdb.connect(f"grpc://{service.address}", token=token) as found:
        yield found


def fill_call_log(storage: Storage, tenant: str = "default", count: int = MANY) -> None:
    """So many that a stream of them is longer than what is sent ahead."""
    now = storage.now_us(storage.connection())
    calls = [
        LoggedCall(make_uuid7(), now + at, LONG_NAME, LONG_NAME, tenant, (), "OK", at)
        for at in range(count)
    ]
    for begin in range(0, count, 1_000):
        with storage.transaction(TransactionMode.CATALOG) as connection:
            write_calls(connection, calls[begin : begin + 1_000])


# Streams


def count_open_transactions(workspace: Workspace) -> int:
    """Of the database, other than the one that asks."""
    if workspace.engine == "postgresql":
        ((count,),) = workspace.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE starts_with(state, 'idle in transaction')"
            " AND xact_start < now() - interval '0.5 s' AND datname = current_database()"
        )
        return int(count)
    ((busy, _, _),) = workspace.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return int(busy)


def test_a_slow_reader_holds_no_transaction(
    service: Served, workspace: Workspace, client: Any
) -> None:
    fill_call_log(workspace.connect())
    found = client.catalog.list_calls()
    next(found)
    time.sleep(1)  # the stream is as far ahead as it gets
    for _ in range(20):
        assert count_open_transactions(workspace) == 0
        time.sleep(0.02)
    assert sum(1 for _ in found) >= MANY - 1


def test_a_token_that_ends_during_a_stream_ends_the_stream(
    service: Served, workspace: Workspace, key_file: Path
) -> None:
    fill_call_log(workspace.connect())
    token = token_for(key_file, seconds=3)
    with zapdb.connect(f"grpc://{service.address}", token=token) as client:
        found = client.catalog.list_calls()
        next(found)
        time.sleep(3)
        with pytest.raises(NotAuthenticated, match="over"):
            list(found)


def test_a_tenant_that_is_removed_ends_its_streams(
    service: Served, workspace: Workspace, client: Any
) -> None:
    fill_call_log(workspace.connect(), "new", 5 * MANY)  # more than what is sent ahead
    admin = workspace.open().admin
    admin.create_tenant("new")  # the server has not seen it when the stream begins
    found = client.for_tenant("new").catalog.list_calls()
    next(found)
    admin.remove_tenant("new")
    seen = service.server._db.admin.catalog_seq()
    service.server._db.admin.wait_for_catalog(seen)
    with pytest.raises(UnknownName, match="removed"):
        list(found)
    with pytest.raises(UnknownName):
        client.for_tenant("new").catalog.list_tables()


def test_many_streams_at_once(service: Served, workspace: Workspace, key_file: Path) -> None:
    fill_call_log(workspace.connect(), count=600)

    async def ask() -> list[int]:
        address, token = f"grpc://{service.address}", token_for(key_file)
        async with zapdb.aio.connect(address, token=token) as client:

            async def count() -> int:
                return len([one async for one in client.catalog.list_calls()])

            return await asyncio.gather(*(count() for _ in range(200)))

    assert asyncio.run(ask()) == [600] * 200


def test_a_client_that_goes_away_ends_its_stream(
    service: Served, workspace: Workspace, client: Any
) -> None:
    fill_call_log(workspace.connect())
    found = client.catalog.list_calls()
    next(found)
    found.close()
    ended = ended_calls(service)
    begun = client.catalog.list_calls()
    next(begun)
    client.close()
    wait_until(lambda: ("ListCalls", "CANCELLED") in ended)


@pytest.mark.parametrize("reads", [0, 1], ids=["unread", "begun"])
@pytest.mark.parametrize("way", ["with", "close", "dropped", "client", "thread"])
def test_a_stream_that_is_not_read_to_its_end_ends_at_the_service(
    service: Served, key_file: Path, way: str, reads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = ended_calls(service)
    client = zapdb.connect(f"grpc://{service.address}", token=token_for(key_file))
    entered, enter = list[str](), service.server._guard.enter
    monkeypatch.setattr(
        service.server._guard, "enter", lambda *given: entered.append("") or enter(*given)
    )
    watch = client.catalog.watch_catalog()
    wait_until(lambda: entered == [""])
    for _ in range(reads):
        assert next(watch).rows
    if way == "with":
        with watch:
            pass
    elif way == "close":
        watch.close()
        watch.close()
    elif way == "dropped":
        del watch
    elif way == "client":
        client.close()
    else:
        closing = threading.Timer(0.3, watch.close)
        closing.start()
        assert list(watch) is not None  # it comes to an end
        closing.join()
    wait_until(lambda: ended == [("WatchCatalog", "CANCELLED")])
    if way in ("with", "close"):
        assert list(watch) == []
    elif way == "client":
        with pytest.raises(ServiceUnreachable):
            list(watch)
    client.close()


def ended_calls(service: Served) -> list[tuple[str, str]]:
    """Gets the method and the status of each call that ends from now on."""
    found = list[tuple[str, str]]()
    guard = service.server._guard
    guard._on_end = (
        *guard._on_end,
        lambda call: found.append((call.path.rpartition("/")[2], call.status)),
    )
    return found


# Deadlines


@contextmanager
def locked_leases(workspace: Workspace) -> Iterator[None]:
    """Whoever reads the leases waits, until the end of the block."""
    with workspace.connect().transaction(TransactionMode.WRITE) as connection:
        connection.run("LOCK TABLE zapdb_leases IN ACCESS EXCLUSIVE MODE")
        yield


def waiting_statements(workspace: Workspace) -> int:
    ((count,),) = workspace.execute(
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        " AND strpos(query, 'zapdb_leases') > 0 AND strpos(query, 'UPDATE') = 0"
        " AND datname = current_database()"
    )
    return int(count)


@pytest.mark.parametrize("engine", ["postgresql"], indirect=True)
@pytest.mark.parametrize("leaves", [False, True], ids=["deadline", "cancelled"])
def test_a_statement_ends_with_its_call(
    service: Served, workspace: Workspace, key_file: Path, leaves: bool
) -> None:
    ended = ended_calls(service)
    with grpc.insecure_channel(service.address) as channel, locked_leases(workspace):
        ask = channel.unary_unary("/zapdb.v1.Cluster/ListLeases")
        metadata = bearer(token_for(key_file))
        begun = ask.future(b"", metadata=metadata, timeout=None if leaves else 2)
        wait_until(lambda: waiting_statements(workspace) > 0)
        if leaves:
            begun.cancel()
        else:
            assert begun.exception().code() is grpc.StatusCode.DEADLINE_EXCEEDED
        wait_until(lambda: waiting_statements(workspace) == 0)  # the lock is still there
    wait_until(lambda: len(ended) == 1)
    assert ended == [("ListLeases", "CANCELLED" if leaves else "DEADLINE_EXCEEDED")]


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_who_vanishes_without_a_word_is_found_out(
    workspace: Workspace, key_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the client, whose stream ends with an error; and by the service, which ends the stream."""
    times = {
        "grpc.keepalive_time_ms": 500,
        "grpc.keepalive_timeout_ms": 500,
        "grpc.http2.min_ping_interval_without_data_ms": 100,
        "grpc.http2.min_recv_ping_interval_without_data_ms": 100,
    }
    for module in (addresses, server_module):
        quick = tuple((name, times.get(name, value)) for name, value in module.OPTIONS)
        assert quick != module.OPTIONS
        monkeypatch.setattr(module, "OPTIONS", quick)
    workspace.write(1, ITEMS)
    workspace.open()
    with served(workspace.address, key_file) as service:
        host, _, port = service.address.rpartition(":")
        ended = ended_calls(service)
        with relay(Upstream(host, int(port))) as between:
            address = f"grpc://127.0.0.1:{between.port}"
            with zapdb.connect(address, token=token_for(key_file)) as found:
                watch = found.catalog.watch_catalog()
                next(watch)
                between.delay(3600)
                with pytest.raises(ServiceUnreachable):
                    list(watch)
                wait_until(lambda: ended == [("WatchCatalog", "CANCELLED")])


def test_a_seq_that_the_service_does_not_see_in_time(
    service: Served, client: Any, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "CATALOG_WAIT_SECONDS", 0.3)
    service.server._db.admin.wait_for_catalog(0)  # so the cache is loaded
    monkeypatch.setattr(cache, "refresh_cache", lambda connection, before: before)
    seq = workspace.open().admin.set_setting("on_read", "leave")
    client._calls._seen[0] = seq
    with pytest.raises(CatalogBehind) as caught:
        client.catalog.list_tables()
    assert caught.value.context["seq"] == str(seq)


def test_a_seq_that_the_database_never_had(client: Any) -> None:
    """The client is told at once, and goes on."""
    client._calls._seen[0] = 1 << 62
    other = client.for_tenant("acme")
    with pytest.raises(CatalogRestored) as caught:
        other.catalog.list_tables()
    assert caught.value.context["seq"] == str(1 << 62)
    assert int(caught.value.context["newest"]) < 1 << 62
    assert client.catalog.list_tables().position == 1


# Messages


def test_a_request_that_is_too_large_is_refused(
    service: Served, client: Any, key_file: Path
) -> None:
    metadata = bearer(token_for(key_file))
    request = b"\x0a" + b"\xff\xff\xff\x07" + b"x" * (16 * 1024 * 1024 - 1)
    assert len(request) > SERVICE_REQUEST_SIZE_BYTES_MAX
    with grpc.insecure_channel(service.address) as channel:
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary(LIST_TABLES)(request, metadata=metadata)
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert client.catalog.list_tables().position == 1
    with pytest.raises(ServiceError) as refused:  # already where it is sent
        client.catalog.get_table("x" * (SERVICE_REQUEST_SIZE_BYTES_MAX + 1))
    assert "larger than the limits" in refused.value.hint


def test_fields_of_a_newer_proto_are_left_out(service: Served, key_file: Path) -> None:
    metadata = bearer(token_for(key_file))
    newer = b"\xfa\x3f\x03new" + b"\xc0\x3e\x01"  # fields 1023 and 1000
    with grpc.insecure_channel(service.address) as channel:
        ask = channel.unary_unary(LIST_TABLES)
        assert ask(newer, metadata=metadata) == ask(b"", metadata=metadata)


FINE = {"INVALID_ARGUMENT", "NOT_FOUND", "FAILED_PRECONDITION", "OK", "OUT_OF_RANGE", "ABORTED"}
FINE |= {"ALREADY_EXISTS", "PERMISSION_DENIED"}


@pytest.mark.parametrize(
    "method", [one for one in METHODS if not one.changes], ids=lambda method: method.path
)
def test_mutated_requests_are_refused_and_are_no_faults(
    service: Served, key_file: Path, method: Method, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "CATALOG_WAIT_SECONDS", 0.01)
    rnd = random.Random(method.path)
    grants = (Grant(EVERY_TENANT, frozenset({method.scope})),)
    metadata = bearer(token_for(key_file, "ci", *grants))
    found = dict[str, int]()
    with grpc.insecure_channel(service.address) as channel:
        kinds = "stream" if method.sent else "unary", "stream" if method.is_stream else "unary"
        ask = getattr(channel, "_".join(kinds))(method.path)
        for _ in range(150):
            sent = make_request(method, rnd)
            try:
                answer = ask(iter([sent]) if method.sent else sent, metadata=metadata, timeout=60)
                if pace_of(method.function):  # a watch may have no end
                    next(answer, None)
                    answer.cancel()
                elif method.is_stream:
                    list(answer)
                status = "OK"
            except grpc.RpcError as error:
                status = error.code().name
            found[status] = found.get(status, 0) + 1
    assert set(found) <= FINE, found


def make_request(method: Method, rnd: random.Random) -> bytes:
    """Bytes at random, or fields of the request with values at random, some bytes changed."""
    if rnd.random() < 0.2:
        return rnd.randbytes(rnd.randrange(40))
    request = method.request_class()
    for one in request.DESCRIPTOR.fields:
        if one.is_repeated or one.message_type is not None or rnd.random() < 0.4:
            continue
        if one.cpp_type == one.CPPTYPE_STRING and one.type == one.TYPE_STRING:
            texts = ["items", "", "\0", "a\0b", "é" * 300, "-1", "{", '{"a": 1}', "x" * 5_000]
            setattr(request, one.name, rnd.choice(["acme", "default", *texts]))
        elif one.cpp_type == one.CPPTYPE_BOOL:
            setattr(request, one.name, rnd.random() < 0.5)
        elif one.name != "min_seq" or rnd.random() < 0.1:
            highest = 31 if "32" in str(one.type) or one.cpp_type in (1, 3) else 63
            setattr(request, one.name, rnd.choice([0, 1, 2, 65, 1 << 20, (1 << highest) - 1]))
    raw = bytearray(request.SerializeToString())
    if raw and rnd.random() < 0.3:
        raw[rnd.randrange(len(raw))] = rnd.randrange(256)
    return bytes(raw)


def test_random_bytes_at_the_port(service: Served, client: Any) -> None:
    host, _, port = service.address.rpartition(":")
    rnd = random.Random(7)
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    for at in range(60):
        with socket.create_connection((host, int(port)), timeout=10) as raw:
            sent = rnd.randbytes(rnd.randrange(1, 400))
            raw.sendall(sent if at % 2 else preface + sent)
            raw.settimeout(0.02)
            with suppress(TimeoutError, ConnectionError):
                raw.recv(100)
    assert client.catalog.list_tables().position == 1


def test_a_client_that_knows_the_service_by_reflection_alone(
    service: Served, key_file: Path
) -> None:
    channel = grpc.intercept_channel(
        grpc.insecure_channel(service.address), _Showing(bearer(token_for(key_file)))
    )
    database = ProtoReflectionDescriptorDatabase(channel)
    assert {f"zapdb.v1.{one}" for one in ("Catalog", "Cluster")} <= set(database.get_services())
    pool = DescriptorPool(database)
    found = pool.FindServiceByName("zapdb.v1.Catalog").FindMethodByName("ListTables")
    request = GetMessageClass(found.input_type)(tenant="default")
    answer: Any = channel.unary_unary(
        f"/{found.containing_service.full_name}/{found.name}",
        request_serializer=type(request).SerializeToString,
        response_deserializer=GetMessageClass(found.output_type).FromString,
    )(request)
    assert [table.table for table in answer.tables] == ["items"]
    channel.close()


class _Showing(grpc.UnaryUnaryClientInterceptor, grpc.StreamStreamClientInterceptor):
    """Shows metadata with each call."""

    def __init__(self, metadata: Any) -> None:
        self._metadata = metadata

    def _with(self, details: Any) -> Any:
        return details._replace(metadata=[*(details.metadata or ()), *self._metadata])

    def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        return continuation(self._with(details), request)

    def intercept_stream_stream(self, continuation: Any, details: Any, requests: Any) -> Any:
        return continuation(self._with(details), requests)


# Metrics


def test_metrics_are_served_to_this_machine(service: Served, client: Any) -> None:
    client.catalog.list_tables()
    with service.server.metrics_at("127.0.0.1:0") as address:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=60) as answer:
            text = answer.read().decode()
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"http://{address}/", timeout=60)
        assert 'zapdb_service_call_seconds_count{method="/zapdb.v1.Catalog/ListTables"' in text
        assert "zapdb_nodes" in text
        with pytest.raises(UsageError, match="served there"), service.server.metrics_at(address):
            pass
    for other in ("0.0.0.0:0", "example.com:0"):
        with pytest.raises(UsageError, match="on this machine"), service.server.metrics_at(other):
            pass
    with pytest.raises(UsageError, match="no address"), service.server.metrics_at("127.0.0.1"):
        pass


# The end of a service


def health_of(address: str) -> Any:
    with grpc.insecure_channel(address) as channel:
        raw = channel.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=30)
        return health_pb2.HealthCheckResponse.FromString(raw).status


def test_calls_under_way_may_end_when_the_service_is_told_to(
    workspace: Workspace, key_file: Path
) -> None:
    workspace.write(1, ITEMS)
    count = 8_000  # which are read in a part of the 10 s, also on a loaded machine
    fill_call_log(workspace.open()._storage, count=count)
    with serving_process(workspace.address, "--tokens", str(key_file)) as (address, process):
        assert health_of(address) == health_pb2.HealthCheckResponse.SERVING
        with zapdb.connect(f"grpc://{address}", token=token_for(key_file)) as client:
            found = client.catalog.list_calls()
            next(found)
            process.send_signal(signal.SIGTERM)
            time.sleep(1)
            assert process.poll() is None
            with pytest.raises(ServiceUnreachable):
                zapdb.connect(f"grpc://{address}", token=token_for(key_file)).catalog.list_tables()
            assert sum(1 for _ in found) == count - 1
        assert process.wait(GUARD_SECONDS) == 0


def test_who_does_not_end_in_time_is_ended(
    workspace: Workspace, key_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "SERVICE_DRAIN_SECONDS", 0.5)
    workspace.write(1, ITEMS)
    fill_call_log(workspace.open()._storage)
    with served(workspace.address, key_file) as one:
        client = zapdb.connect(f"grpc://{one.address}", token=token_for(key_file))
        found = client.catalog.list_calls()
        next(found)
        one.stop()
    with pytest.raises(ServiceUnreachable):
        list(found)
    client.close()


def test_an_evicted_service_ends(workspace: Workspace, key_file: Path) -> None:
    workspace.write(1, ITEMS)
    db = workspace.open()

    def serve_and_evict() -> None:
        with served(workspace.address, key_file) as one:
            wait_until(lambda: one.server._was_node)
            with zapdb.connect(f"grpc://{one.address}", token=token_for(key_file)) as client:
                client.cluster.evict_nodes((one.server._db._node.id,))
            wait_until(lambda: one.loop.is_closed())

    with pytest.raises(LeaseLost, match="evicted"):
        serve_and_evict()
    assert len(db.admin.nodes()) == 1


def test_of_two_services_one_may_be_killed(workspace: Workspace, key_file: Path) -> None:
    workspace.write(1, ITEMS)
    fill_call_log(workspace.open()._storage)
    options = ("--tokens", str(key_file))
    token = token_for(key_file)
    with (
        serving_process(workspace.address, *options) as (one, process),
        serving_process(workspace.address, *options) as (two, _),
        zapdb.connect(f"grpc://{one}", token=token) as first,
        zapdb.connect(f"grpc://{two}", token=token) as second,
    ):
        found = first.catalog.list_calls()
        next(found)
        bound = catalog.HistoryBound(keep_last=1)
        seq = first.with_key("k").catalog.prune_fingerprint_history(bound, "items").seq
        process.kill()
        process.wait()
        with pytest.raises(ServiceUnreachable):
            list(found)
        again = second.with_key("k").catalog.prune_fingerprint_history(bound, "items")
        assert again.seq == seq  # the answer that the other one gave
        assert len(list(second.catalog.list_calls(limit=50))) == 50


def test_a_history_is_read_on_from_where_a_killed_service_was(
    workspace: Workspace, key_file: Path
) -> None:
    """No entry is lost, and none is doubled."""
    fields = ", ".join(f"{{name: f{at}, type: string, optional: true}}" for at in range(400))
    key = "{name: id, type: integer}"
    workspace.write(1, f"create_table: {{table: wide, key: [id], fields: [{key}, {fields}]}}")
    storage = workspace.open()._storage
    with storage.transaction(TransactionMode.CATALOG) as connection:
        (first,) = connection.core_execute(sa.select(SCHEMA_HISTORY)).fetchall()
        plain = dict(zip(SCHEMA_HISTORY.c.keys(), first, strict=True))
        later = [{**plain, "revision": at} for at in range(2, 601)]
        for row in later:
            connection.core_execute(sa.insert(SCHEMA_HISTORY).values(row))
    entries, token = list[int](), token_for(key_file)
    for kills in (True, False):
        with (
            serving_process(workspace.address, "--tokens", str(key_file)) as (address, process),
            zapdb.connect(f"grpc://{address}", token=token) as client,
        ):
            found = client.catalog.get_fingerprint_history(
                "wide", since_generation=len(entries) + 1, limit=1_024
            )
            try:
                for entry in found:
                    entries.append(entry.revision)
                    if kills and len(entries) == 5:
                        process.kill()
            except ServiceUnreachable:
                assert kills
    assert entries == list(range(1, 601))


def test_a_service_ends_while_threads_call_it(service: Served, key_file: Path) -> None:
    """Each call has an answer or an error of the service's; nothing hangs."""
    outcomes = list[str]()

    def call() -> None:
        with zapdb.connect(f"grpc://{service.address}", token=token_for(key_file)) as client:
            while True:
                try:
                    client.catalog.list_tables()
                except ServiceError as error:
                    outcomes.append(type(error).__name__)
                    return

    threads = [threading.Thread(target=call) for _ in range(8)]
    for thread in threads:
        thread.start()
    time.sleep(0.3)
    service.stop()
    for thread in threads:
        thread.join(GUARD_SECONDS)
    assert outcomes == ["ServiceUnreachable"] * 8
