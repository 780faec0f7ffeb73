"""What a service does about callers who mean harm, damaged key files, and a lost database."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import socket
import sys
import threading
import time
import tracemalloc
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from subprocess import PIPE
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2

import zapdb
import zapdb.aio
from tests import processes
from tests.contract.tables import ITEMS
from tests.services import Served, bearer, served, token_for
from tests.support import Workspace, wait_until
from zapdb.errors import NotAuthenticated, RequestTooLarge, UsageError
from zapdb.limits import SERVICE_PLAIN_REQUEST_SIZE_BYTES_MAX
from zapdb.service import keys
from zapdb.service import server as server_module
from zapdb.service.methods import METHODS, Method
from zapdb.service.status import from_call
from zapdb.storage import TransactionMode

LIST_TABLES = "/zapdb.v1.Catalog/ListTables"
WAIT_SECONDS = 60
MIB = 1024 * 1024


@pytest.fixture
def service(workspace: Workspace, key_file: Path) -> Iterator[Served]:
    workspace.write(1, ITEMS)
    workspace.open()
    with served(workspace.address, key_file) as one:
        yield one


def unknown_field(size_bytes: int, text: bytes = b"x") -> bytes:
    """A request with a field that no method has: number 1,000, of bytes."""
    length = bytearray()
    left = size_bytes
    while left > 0x7F:
        length.append(left & 0x7F | 0x80)
        left >>= 7
    length.append(left)
    return b"\xc2\x3e" + bytes(length) + text.ljust(size_bytes, b"x")


# Memory


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_kept_answers_keep_no_requests(service: Served, key_file: Path) -> None:
    size_bytes = SERVICE_PLAIN_REQUEST_SIZE_BYTES_MAX - 100
    with grpc.insecure_channel(service.address) as channel:
        ask = channel.unary_unary(LIST_TABLES)
        token = bearer(token_for(key_file))
        ask(b"", metadata=token)
        tracemalloc.start()
        try:
            for number in range(30):
                ask(unknown_field(size_bytes, b"%d" % number), metadata=token)
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert held < 10 * MIB


def call(channel: grpc.Channel, method: Method, request: bytes, metadata: Any = ()) -> None:
    kinds = "stream" if method.sent else "unary", "stream" if method.is_stream else "unary"
    ask = getattr(channel, "_".join(kinds))(method.path)
    answer = ask(iter([request]) if method.sent else request, metadata=metadata)
    next(iter(answer))


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_nothing_is_parsed_of_a_call_without_a_token(
    service: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed = list[int]()
    monkeypatch.setattr(server_module, "_parse", lambda _, raw: parsed.append(len(raw)))
    with grpc.insecure_channel(service.address) as channel:
        for method in METHODS:
            with pytest.raises(grpc.RpcError) as caught:
                call(channel, method, unknown_field(MIB))
            assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED, method.path
    assert parsed == []


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_requests_without_files_are_small(service: Served, key_file: Path) -> None:
    token = bearer(token_for(key_file))
    with grpc.insecure_channel(service.address) as channel:
        for method in METHODS:
            if method.sent is None:
                with pytest.raises(grpc.RpcError) as caught:
                    call(
                        channel, method, unknown_field(SERVICE_PLAIN_REQUEST_SIZE_BYTES_MAX), token
                    )
                assert from_call(caught.value, "").code == RequestTooLarge.code, method.path


# Tokens in clear


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bytes]]:
    """What a proxy that the environment names is told."""
    told = list[bytes]()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def listen() -> None:
            with suppress(OSError):
                while True:
                    client, _ = listener.accept()
                    told.append(client.recv(100))
                    client.close()

        threading.Thread(target=listen, daemon=True).start()
        place = f"http://127.0.0.1:{listener.getsockname()[1]}"
        for name in ("http_proxy", "https_proxy", "grpc_proxy"):
            monkeypatch.setenv(name, place)
        for name in ("no_proxy", "no_grpc_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        yield told


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_no_proxy_gets_a_token_in_clear(
    service: Served, key_file: Path, proxy: list[bytes]
) -> None:
    address, token = f"grpc://{service.address}", token_for(key_file)
    with zapdb.connect(address, token=token) as client:
        assert client.catalog.list_tables().tables

    async def ask() -> None:
        async with zapdb.aio.connect(address, token=token) as client:
            assert (await client.catalog.list_tables()).tables

    asyncio.run(ask())
    assert proxy == []


# Key files


OTHERS = (None, True, 0, "", "x", [], {}, ["x"], {"x": 1}, "\ud800")


def damage(plain: Any, chance: random.Random) -> Any:
    """The same with one part replaced by something else, or left out."""
    if isinstance(plain, dict) and plain and chance.random() < 0.9:
        name = chance.choice(sorted(plain))
        if chance.random() < 0.2:
            return {key: value for key, value in plain.items() if key != name}
        return {**plain, name: damage(plain[name], chance)}
    if isinstance(plain, list) and plain and chance.random() < 0.9:
        at = chance.randrange(len(plain))
        return [*plain[:at], damage(plain[at], chance), *plain[at + 1 :]]
    return chance.choice(OTHERS)


def test_a_damaged_key_file_is_refused_or_read(key_file: Path) -> None:
    whole = json.loads(key_file.read_text())
    whole["keys"].append({"kty": "oct", "kid": "s", "alg": "HS256", "k": "A" * 43, "use": "sig"})
    whole["keys"].append({"kty": "RSA", "kid": "r", "alg": "RS256", "n": "AQAB", "e": "AQAB"})
    whole["keys"].append({"kty": "EC", "kid": "e", "alg": "ES256", "crv": "P-256", "x": "AA"})
    whole["principals"] = {"ci": [{"tenant": "*", "scopes": ["catalog:read"], "tables": ["a"]}]}
    whole["audience"] = "zapdb"
    chance, refused = random.Random(35), 0
    for number in range(2_000):
        made = damage(damage(whole, chance) if number % 2 else whole, chance)
        key_file.write_text(json.dumps(made))
        try:
            keys.read_keys(key_file)
        except UsageError:
            refused += 1
    assert refused > 500
    for text in ("[" * 100_000, '{"keys": ' * 100_000, "", "\0", '{"keys": [NaN]}'):
        key_file.write_text(text)
        with pytest.raises(UsageError):
            keys.read_keys(key_file)


def is_let_in(client: zapdb.service.client.Client) -> bool:
    try:
        return bool(client.catalog.list_tables().tables)
    except NotAuthenticated:
        return False


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    "text",
    [
        '{"keys": ["x"]}',
        '{"keys": [{"kty": "oct", "kid": "s", "alg": "HS256"}]}',
        '{"keys": [{"kty": "OKP", "kid": "s", "alg": ["EdDSA"]}]}',
        "[" * 100_000,
    ],
)
def test_a_service_keeps_its_keys_when_their_file_is_damaged(
    service: Served, key_file: Path, text: str
) -> None:
    token = token_for(key_file)
    with zapdb.connect(f"grpc://{service.address}", token=token) as client:
        assert client.catalog.list_tables().tables
        key_file.write_text(text)
        version = service.server._keys._version
        wait_until(lambda: service.server._keys._version != version)
        time.sleep(0.1)
        assert client.catalog.list_tables().tables
        made = Path(str(key_file) + ".new")
        keys.add_key(made)
        made.replace(key_file)
        wait_until(lambda: not is_let_in(client))


# A database that is away


def health_of(service: Served) -> int:
    with grpc.insecure_channel(service.address) as channel:
        raw = channel.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=30)
    return health_pb2.HealthCheckResponse.FromString(raw).status


@pytest.mark.parametrize("engine", ["postgresql"], indirect=True)
def test_a_service_is_not_well_while_its_database_is_away(
    service: Served, workspace: Workspace, request: pytest.FixtureRequest
) -> None:
    server = request.getfixturevalue("postgres")
    ((name,),) = workspace.execute("SELECT current_database()")
    told = health_pb2.HealthCheckResponse
    assert health_of(service) == told.SERVING
    server.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
    try:
        server.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '" + name + "'"
        )
        wait_until(lambda: health_of(service) == told.NOT_SERVING)
    finally:
        server.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
    wait_until(lambda: health_of(service) == told.SERVING)


@pytest.mark.parametrize("engine", ["postgresql"], indirect=True)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_service_that_still_opens_its_database_can_be_ended(
    workspace: Workspace, number: signal.Signals
) -> None:
    workspace.write(1, ITEMS)
    workspace.open().close()
    with workspace.connect().transaction(TransactionMode.WRITE) as connection:
        connection.run("LOCK TABLE zapdb_catalog IN ACCESS EXCLUSIVE MODE")
        serve = (*(sys.executable, "-m", "zapdb", "serve"), "-d", workspace.address)
        options = ("--listen", "127.0.0.1:0", "--insecure-loopback")
        process = processes.Popen([*serve, *options], stdout=PIPE, stderr=PIPE, text=True)
        wait_until(
            lambda: workspace.execute(
                "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
                " AND strpos(query, 'zapdb_catalog') > 0 AND datname = current_database()"
            )
        )
        process.send_signal(number)
        out, err = process.communicate(timeout=WAIT_SECONDS)
    assert out == ""
    assert "Traceback" not in err
    assert process.returncode != 0


# Odds and ends


def test_addresses_say_what_they_mean() -> None:
    for address in ("grpc://localhost:0", "grpc://:pw@localhost:1", "grpc://localhost:1#x"):
        with pytest.raises(UsageError, match="no address of a service"):
            zapdb.connect(address)
    with pytest.raises(UsageError):
        server_module.Listening("127.0.0.1:\u0663", insecure_loopback=True).require_safe()


def test_an_idempotency_key_is_not_empty() -> None:
    with (
        zapdb.connect("grpc://localhost:1") as client,
        pytest.raises(UsageError, match="is empty"),
    ):
        client.with_key("")


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_the_default_tenant_is_one_with_and_without_its_name(
    service: Served, key_file: Path
) -> None:
    method = next(one for one in METHODS if one.name == "PruneFingerprintHistory")
    metadata = (*bearer(token_for(key_file)), ("zapdb-idempotency-key", "k"))
    with grpc.insecure_channel(service.address) as channel:
        ask = channel.unary_unary(method.path)
        answers = {
            ask(
                method.request_class(
                    tenant=tenant, table="items", bound={"keep_last": 5}
                ).SerializeToString(),
                metadata=metadata,
            )
            for tenant in ("", "default")
        }
    assert len(answers) == 1


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_metrics_are_served_at_the_loopback_of_ipv6(service: Served) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    with (
        service.server.metrics_at("[::1]:0") as address,
        urllib.request.urlopen(f"http://{address}/metrics", timeout=60) as answer,
    ):
        assert answer.status == 200
